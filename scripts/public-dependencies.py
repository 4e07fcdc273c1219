#!/usr/bin/env python3
"""Lists the crates whose types the public API of each library crate names, and compares them with ALLOWED.

If a type of a dependency is in the public API, a new major version of the dependency breaks users of the crate. The
script reads rustdoc's JSON, which needs RUSTC_BOOTSTRAP on a stable toolchain.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STD = {"std", "core", "alloc"}
# Each crate with its features, and the crates that its public API may name.
ALLOWED = {
    "pleg-core": ([], set()),
    "pleg-node-model": ([], set()),
    "pleg-runtime": (["fake"], {"pleg_core", "futures_core", "tokio"}),
    "pleg-cri": (
        [],
        {"pleg_core", "pleg_runtime", "bytes", "futures_core", "http", "http_body", "prost", "tokio"}
        | {"tower", "tower_layer", "tower_service"},
    ),
    "pleg-generic": ([], {"pleg_core", "pleg_runtime"}),
    "pleg-evented": ([], {"pleg_core", "pleg_runtime", "tokio", "tokio_util"}),
    "pleg": ([], {"pleg_core", "pleg_runtime", "pleg_evented", "futures_core"}),
    "pleg-kubelet": (
        ["latest"],
        {"pleg", "pleg_core", "pleg_cri", "pleg_runtime", "k8s_openapi"},
    ),
    # pleg-sim may name tonic: the faults that it simulates are gRPC statuses, and its service runs in a tonic server.
    "pleg-sim": ([], {"pleg_cri", "tonic", "tokio"}),
}


def document(crate, features):
    """The JSON that rustdoc writes for a crate with only the given features."""
    command = ["cargo", "rustdoc", "--quiet", "--lib", "-p", crate, "--no-default-features"]
    command += ["--features", ",".join(features)] if features else []
    command += ["--", "-Z", "unstable-options", "--output-format", "json"]
    environment = os.environ | {"RUSTC_BOOTSTRAP": "1", "RUSTDOCFLAGS": ""}
    subprocess.run(command, check=True, cwd=ROOT, env=environment)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return json.loads((target / "doc" / f"{crate.replace('-', '_')}.json").read_text())


def named(node, found):
    """The ids of all types and traits that a public item names."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("resolved_path", "trait", "trait_") and isinstance(value, dict) and "id" in value:
                found.add(str(value["id"]))
            if key not in ("docs", "links", "attrs", "span"):
                named(value, found)
    elif isinstance(node, list):
        for value in node:
            named(value, found)


def public_crates(docs):
    """The names of the crates that public items name, with one of the items for each."""
    crates = {str(key): value["name"] for key, value in docs["external_crates"].items()}
    result = {}
    for item in docs["index"].values():
        is_public = item["visibility"] in ("public", "default")
        inner = item["inner"]
        # Skips automatic (Send) and blanket (Into) implementations, because the crate does not choose their types.
        if "impl" in inner and (inner["impl"].get("is_synthetic") or inner["impl"].get("blanket_impl")):
            continue
        if not is_public or item["crate_id"] != 0:
            continue
        # Does not visit the items of a module or an implementation here, because the index lists each item itself.
        found = set()
        named(inner, found)
        for key in found:
            path = docs["paths"].get(key)
            if path and path["crate_id"] != 0:
                name = crates.get(str(path["crate_id"]), "?")
                result.setdefault(name, f"{item.get('name')} names {'::'.join(path['path'])}")
    return result


def main():
    failed = False
    for crate, (features, allowed) in ALLOWED.items():
        found = {name: example for name, example in public_crates(document(crate, features)).items() if name not in STD}
        print(f"{crate}: {', '.join(sorted(found)) or 'none'}")
        for name in sorted(set(found) - allowed):
            print(f"  {name} is not allowed: {found[name]}", file=sys.stderr)
            failed = True
    sys.exit(failed)


if __name__ == "__main__":
    main()
