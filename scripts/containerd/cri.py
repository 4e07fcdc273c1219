#!/usr/bin/env python3
"""The few CRI calls that containerd.sh needs, with Python's standard library only.

    cri.py SOCKET ready          succeeds when the CRI service lists its pods, so it is up and initialised
    cri.py SOCKET image REF      succeeds when the CRI service knows the image
    cri.py SOCKET remove-pods    stops and removes every pod; succeeds when none is left

A unary gRPC call is one HTTP/2 request: a length-prefixed message, and one in the response. A failed call returns
no message, so this client skips the headers of responses and needs no HPACK decoder.
"""

import concurrent.futures
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


def header(name, value):
    """Encodes a header for HPACK as a literal, not indexed or Huffman-coded. Name and value must be below 127 bytes."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


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
    return b"".join([
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        frame(SETTINGS, 0, 0, struct.pack(">HI", 4, MAX_WINDOW)),
        frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", MAX_WINDOW - 65535)),
        frame(HEADERS, END_HEADERS, 1, b"".join(header(*pair) for pair in headers.items())),
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
            while not ended:
                head = stream.read(9)
                if len(head) < 9:
                    break
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


def bytes_fields(data):
    """Yields the number and the bytes of each length-delimited field of a protobuf message."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 2:
            size, at = varint(data, at)
            yield tag >> 3, data[at : at + size]
            at += size
        elif tag & 7 == 0:
            at = varint(data, at)[1]
        else:
            at += 8 if tag & 7 == 1 else 4


def text_field(number, text):
    data = text.encode()
    assert len(data) < 128, "one byte holds the length"
    return bytes([number << 3 | 2, len(data)]) + data


def pods(path):
    """The ids of all sandboxes: field 1 (id) of each item (field 1) of the list."""
    listing = call(path, "RuntimeService/ListPodSandbox")
    return [
        value.decode()
        for number, item in bytes_fields(listing) if number == 1
        for inner, value in bytes_fields(item) if inner == 1
    ]


def remove_pod(path, pod):
    for method in ("StopPodSandbox", "RemovePodSandbox"):
        call(path, f"RuntimeService/{method}", text_field(1, pod))


def remove_pods(path):
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        for done in [pool.submit(remove_pod, path, pod) for pod in pods(path)]:
            try:
                done.result()
            except CallFailed as error:
                print(error, file=sys.stderr)
    return not pods(path)


def main(path, command, *arguments):
    if command == "ready":
        pods(path)
        return True
    if command == "image":
        # Field 1 of the request is an ImageSpec, whose field 1 is the name; field 1 of the answer is the image, if any.
        spec = text_field(1, arguments[0])
        answer = call(path, "ImageService/ImageStatus", bytes([1 << 3 | 2, len(spec)]) + spec)
        return any(number == 1 for number, _ in bytes_fields(answer))
    if command == "remove-pods":
        return remove_pods(path)
    raise SystemExit(__doc__)


if __name__ == "__main__":
    try:
        sys.exit(0 if main(*sys.argv[1:]) else 1)
    except CallFailed as failed:
        sys.exit(f"cri.py: {failed}")
