"""The few CRI calls that containerd.sh needs, with Python's standard library only.

    cri.py SOCKET ready          succeeds when the CRI service lists its pods, so it is up and initialised
    cri.py SOCKET image REF      succeeds when the CRI service knows the image
    cri.py SOCKET remove-pods    stops and removes every pod; succeeds when none is left

A unary gRPC call is one HTTP/2 request: a length-prefixed message, and one in the response. A failed call returns
no message, so this client skips the headers of responses and needs no HPACK decoder.
"""

import socket
import struct
import sys
import urllib.parse

DEADLINE_S = 20.0
WORKERS = 8

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
ACK = END_STREAM = 0x1
END_HEADERS, PADDED = 0x4, 0x8
MAX_WINDOW = 2**31 - 1


class CallFailed(Exception):
    """A call failed: the response has no message."""


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def request(path, method, message):
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"/runtime.v1.{method}",
        # Clients of the gRPC C core, such as Python's grpcio, send the path of the socket in this form.
        ":authority": urllib.parse.quote(path.lstrip("/"), safe="")[-99:],
        "content-type": "application/grpc",
        "te": "trailers",
    }
    # Each is a literal for HPACK, not indexed or Huffman-coded. Name and value must be below 127 bytes.
    literals = [b"\0%c%b%c%b" % (len(n), n.encode(), len(v), v.encode()) for n, v in headers.items()]
    return b"".join([
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        frame(SETTINGS, 0, 0, struct.pack(">HI", 4, MAX_WINDOW)),
        frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", MAX_WINDOW - 65535)),
        frame(HEADERS, END_HEADERS, 1, b"".join(literals)),
        frame(DATA, END_STREAM, 1, b"\0" + struct.pack(">I", len(message)) + message),
    ])


def call(path, method, message=b""):
    """Makes one call on a new connection; returns the bytes of the answer."""
    answer = b""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(DEADLINE_S)
        try:
            connection.connect(path)
            connection.sendall(request(path, method, message))
            stream = connection.makefile("rb")
            ended = False
            while not ended and len(head := stream.read(9)) == 9:
                kind, flags = head[3], head[4]
                payload = stream.read(int.from_bytes(head[:3], "big"))
                if kind in (SETTINGS, PING) and not flags & ACK:
                    connection.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
                elif kind == DATA:
                    answer += payload[1 : len(payload) - payload[0]] if flags & PADDED else payload
                ended = kind in (RST_STREAM, GOAWAY) or (kind in (DATA, HEADERS) and bool(flags & END_STREAM))
        except OSError as error:
            raise CallFailed(f"{method}: {error}") from error
    if len(answer) < 5 or len(answer) - 5 != int.from_bytes(answer[1:5], "big"):
        raise CallFailed(f"{method}: the runtime answered with an error")
    return answer[5:]


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            return value, at


def fields(number, data):
    """Yields the bytes of each length-delimited field with this number of a protobuf message."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 2:
            size, at = varint(data, at)
            if tag >> 3 == number:
                yield data[at : at + size]
            at += size
        elif tag & 7 == 0:
            at = varint(data, at)[1]
        else:
            at += 8 if tag & 7 == 1 else 4


def field(number, data):
    assert len(data) < 128, "one byte holds the length"
    return bytes([number << 3 | 2, len(data)]) + data


def pods(path):
    """The ids of all sandboxes: field 1 (id) of each item (field 1) of the list."""
    items = fields(1, call(path, "RuntimeService/ListPodSandbox"))
    return [id.decode() for item in items for id in fields(1, item)]


def has_image(path, reference):
    # Field 1 of the request is an ImageSpec, whose field 1 is the name; field 1 of the answer is the image, if any.
    answer = call(path, "ImageService/ImageStatus", field(1, field(1, reference.encode())))
    return any(True for _ in fields(1, answer))


def remove_pod(path, pod):
    try:
        for method in ("StopPodSandbox", "RemovePodSandbox"):
            call(path, f"RuntimeService/{method}", field(1, pod.encode()))
    except CallFailed as error:
        print(error, file=sys.stderr)


def remove_pods(path):
    from concurrent.futures import ThreadPoolExecutor  # Only here, because this import is slow.

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(lambda pod: remove_pod(path, pod), pods(path)))
    return not pods(path)


COMMANDS = {"ready": lambda path: pods(path) is not None, "image": has_image, "remove-pods": remove_pods}


def succeeds(path, command, *arguments):
    """Executes a command. Prints the error if a call fails."""
    try:
        return COMMANDS[command](path, *arguments)
    except CallFailed as failed:
        print(f"cri.py: {failed}", file=sys.stderr)
        return False


if __name__ == "__main__":
    sys.exit(0 if succeeds(*sys.argv[1:]) else 1)
