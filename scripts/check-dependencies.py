#!/usr/bin/env python3
"""Checks licences, sources, bans and wildcards of deny.toml against all dependencies.

Denies the same as `cargo deny check bans licenses sources` (`just lint`), without the minutes that cargo-deny takes to
build. Prints each denied dependency and exits with 1.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

RULES = tomllib.loads(Path("deny.toml").read_text())
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"


def is_allowed(expression: str, allowed: set[str]) -> bool:
    """Returns true if `allowed` satisfies an SPDX expression. A licence with its exception (`A WITH B`) is one name."""
    expression = expression.replace("/", " OR ")
    words = re.findall(r"\(|\)|AND|OR|[\w.+-]+(?: WITH [\w.+-]+)?", expression)
    python = {"(": "(", ")": ")", "AND": "and", "OR": "or"}
    return bool(eval(" ".join(python.get(word) or str(word in allowed) for word in words)))


def output(*command: str) -> str:
    return subprocess.check_output(["cargo", *command, "--all-features"], text=True)


def denied() -> list[str]:
    metadata = json.loads(output("metadata", "--format-version=1"))
    # `cargo metadata` also lists optional dependencies that no feature enables.
    tree = output("tree", "--workspace", "--target=all", "--prefix=none", "--format={p}")
    used = {" ".join(line.split()[:2]) for line in tree.splitlines()}
    packages = {package["id"]: package for package in metadata["packages"]}
    packages = {id: p for id, p in packages.items() if f"{p['name']} v{p['version']}" in used}
    licences = set(RULES["licenses"]["allow"])
    exceptions = {e["crate"]: set(e["allow"]) for e in RULES["licenses"]["exceptions"]}
    wrappers = {ban["crate"]: set(ban.get("wrappers", [])) for ban in RULES["bans"]["deny"]}
    found = []
    for package in packages.values():
        name = package["name"]
        if package["publish"] == []:
            continue
        if package["source"] not in (None, CRATES_IO):
            found.append(f"{name}: source {package['source']}")
        if not is_allowed(package["license"] or "", licences | exceptions.get(name, set())):
            found.append(f"{name}: licence {package['license']}")
    for node in metadata["resolve"]["nodes"]:
        if (user := packages.get(node["id"])) is None:
            continue
        for dependency in packages.keys() & set(node["dependencies"]):
            name = packages[dependency]["name"]
            if name in wrappers and user["name"] not in wrappers[name]:
                found.append(f"{name}: {user['name']} depends on it")
        for dependency in user["dependencies"]:
            if dependency["req"] == "*" and user["source"] is None and "path" not in dependency:
                found.append(f"{dependency['name']}: {user['name']} takes any version")
    return found


found = denied()
print("\n".join(found) or "licences, sources and bans: all dependencies are allowed")
sys.exit(bool(found))
