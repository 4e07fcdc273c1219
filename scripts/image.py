#!/usr/bin/env python3
"""Writes the OCI image archive of pleg: image.py PROGRAM ARCHIVE [REFERENCE]

The image has the program and nothing else. If the program is linked dynamically, it also has the libraries that
it needs. The same program gives the same bytes. `just image` builds a static program and its archive:

    ctr --namespace k8s.io images import ARCHIVE      # or: skopeo copy oci-archive:ARCHIVE docker://...
"""

import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "containerd"))
import image  # noqa: E402

ROOT = pathlib.Path(__file__).parent.parent


def version():
    manifest = (ROOT / "Cargo.toml").read_text()
    return re.search(r'^version = "(.*)"$', manifest, re.MULTILINE)[1]


def libraries(program):
    """The paths of the program's libraries and dynamic loader. A static program has none."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True)
    if listed.returncode != 0 or "statically linked" in listed.stdout:
        return []
    missing = [line.strip() for line in listed.stdout.splitlines() if "not found" in line]
    if missing:
        sys.exit(f"image.py: {program} needs {', '.join(missing)}")
    return sorted(set(re.findall(r"(/\S+) \(0x", listed.stdout)))


def main(program, archive, reference=None):
    reference = reference or f"localhost/pleg:{version()}"
    paths = [("pleg", program), *((path.lstrip("/"), path) for path in libraries(program))]
    files = [(name, pathlib.Path(path).read_bytes(), 0o755) for name, path in paths]
    image.write(archive, reference, files, {
        "Entrypoint": ["/pleg"],
        "Cmd": ["agent"],
        "WorkingDir": "/",
        # The program runs as root, because the socket of the runtime belongs to root.
        "User": "0:0",
        "ExposedPorts": {"9394/tcp": {}},
        "Labels": {
            "org.opencontainers.image.title": "pleg",
            "org.opencontainers.image.version": version(),
            "org.opencontainers.image.licenses": "Apache-2.0",
        },
    })
    print(f"{archive}: {reference}, {', '.join(name for name, _ in paths)}")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
