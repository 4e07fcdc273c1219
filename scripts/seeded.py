#!/usr/bin/env python3
"""Plants seeded bugs in a copy of the core, one at a time, and checks that the tests catch each.

    seeded.py               plant all bugs that were not yet planted since the last change of the core
    seeded.py NAME...       plant these bugs
    seeded.py --check       check that each patch applies exactly once (fast, for CI)

crates/pleg-proof/seeded.toml describes the bugs. A bug is caught if its command fails: the scripted tests of the core, or
the random worlds for bugs with `by = "worlds"`. The copy, its build and the results are in the directory
pleg-seeded in the temporary directory.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUGS = ROOT / "crates/pleg-proof/seeded.toml"
COPY = Path(tempfile.gettempdir()) / "pleg-seeded"
CRATES = ["pleg-core", "pleg-node-model", "pleg-proof"]
COMMANDS = {
    # The copy has no docs, so the test of the page docs/failures.md would fail with any bug.
    "core": "cargo test --quiet -p pleg-core --lib --test suite -- --skip catalogue::",
    "worlds": "cargo run --quiet --release -p pleg-proof --bin soak -- 0 3000",
}
LIMIT_SECONDS = 1200
# With some bugs a test never ends, and its process needs more and more memory.
LIMIT_BYTES = 8 << 30


def edits(bug):
    """The patches of a bug, each as a file, the text to find, and the text that replaces it."""
    return [(edit["file"], edit["find"], edit["put"]) for edit in bug.get("edit", [bug])]


def problem(bug):
    """The reasons why the script cannot plant a bug."""
    for file, find, put in edits(bug):
        count = (ROOT / file).read_text().count(find)
        if count != 1 or find == put:
            return f"{bug['name']}: found {count} times in {file}: {find}"
    return None


def plant(bug):
    """Returns true if the tests catch the bug, and None if the core does not compile with the bug."""
    for crate in CRATES:
        shutil.copytree(ROOT / "crates" / crate, COPY / "crates" / crate, dirs_exist_ok=True)
    for file, find, put in edits(bug):
        path = COPY / file
        path.write_text(path.read_text().replace(find, put))
    command = COMMANDS[bug.get("by", "core")]
    limits = ["prlimit", f"--as={LIMIT_BYTES}", "timeout", "--kill-after=5", str(LIMIT_SECONDS)]
    done = subprocess.run(limits + command.split(), cwd=COPY, capture_output=True, text=True)
    if "error[E" in done.stderr or "could not compile" in done.stderr:
        print(done.stderr, file=sys.stderr)
        return None
    return done.returncode != 0


def prepare():
    """Creates a workspace of the tested crates only."""
    COPY.mkdir(exist_ok=True)
    manifest = (ROOT / "Cargo.toml").read_text()
    begin = manifest.index("members = [")
    end = manifest.index("]", begin)
    members = ", ".join(f'"crates/{crate}"' for crate in CRATES)
    (COPY / "Cargo.toml").write_text(f"{manifest[:begin]}members = [{members}{manifest[end:]}")
    shutil.copy(ROOT / "Cargo.lock", COPY / "Cargo.lock")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    bugs = tomllib.loads(BUGS.read_text())["bug"]
    if problems := [found for bug in bugs if (found := problem(bug))]:
        sys.exit("\n".join(problems))
    if args.check:
        return print(f"{len(bugs)} seeded bugs apply")
    if args.names:
        bugs = [bug for bug in bugs if bug["name"] in args.names]
    prepare()
    os.environ.setdefault("CARGO_TARGET_DIR", str(COPY / "target"))
    sources = b"".join(path.read_bytes() for crate in CRATES for path in sorted((ROOT / "crates" / crate).rglob("*.rs")))
    results = COPY / f"results-{hashlib.sha256(sources).hexdigest()[:12]}.json"
    caught = json.loads(results.read_text()) if results.exists() else {}
    for by in sorted({bug.get("by", "core") for bug in bugs if caught.get(bug["name"]) is None or args.names}):
        if plant({"edit": [], "by": by}) is not False:
            sys.exit(f"without a bug this must succeed, and does not: {COMMANDS[by]}")
    for bug in bugs:
        name = bug["name"]
        if caught.get(name) is None or args.names:
            caught[name] = plant(bug)
            results.write_text(json.dumps(caught))
        result = {True: "caught", False: "NOT CAUGHT", None: "NOT COMPILED"}[caught[name]]
        print(f"{result:12} {name}", flush=True)
    sys.exit(not all(caught[bug["name"]] for bug in bugs))


if __name__ == "__main__":
    main()
