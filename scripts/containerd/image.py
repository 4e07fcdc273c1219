"""Archives of OCI images. The same files give the same bytes: no time, owner or directory order is in an archive."""

import hashlib
import io
import json
import pathlib
import platform
import tarfile

# Image configs use Go's names of architectures.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}


def tar(files):
    """A tar archive of these files: triples of name, bytes and mode. All are owned by root and dated 1970."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data, mode in files:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def write(archive, reference, files, settings):
    """Writes an archive with an image. `files`: triples as for `tar`. `settings`: those for containers."""
    blobs = []

    def blob(media_type, data):
        """Stores the data in a file that its digest names, and returns the OCI descriptor of the data."""
        digest = hashlib.sha256(data).hexdigest()
        blobs.append((f"blobs/sha256/{digest}", data, 0o644))
        return {"mediaType": f"application/vnd.oci.image.{media_type}", "digest": f"sha256:{digest}", "size": len(data)}

    def document(value):
        return json.dumps(value, sort_keys=True).encode()

    machine = platform.machine()
    target = {"architecture": ARCHITECTURES.get(machine, machine), "os": "linux"}
    layer = blob("layer.v1.tar", tar(files))
    layers = {"type": "layers", "diff_ids": [layer["digest"]]}
    config = blob("config.v1+json", document({**target, "config": settings, "rootfs": layers}))
    media_type = "application/vnd.oci.image.manifest.v1+json"
    parts = {"schemaVersion": 2, "mediaType": media_type, "config": config, "layers": [layer]}
    manifest = blob("manifest.v1+json", document(parts))
    names = {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference.rpartition(":")[2]}
    index = document({"schemaVersion": 2, "manifests": [{**manifest, "platform": target, "annotations": names}]})
    layout = ("oci-layout", document({"imageLayoutVersion": "1.0.0"}), 0o644)
    pathlib.Path(archive).write_bytes(tar([layout, ("index.json", index, 0o644), *blobs]))
