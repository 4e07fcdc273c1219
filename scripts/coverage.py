#!/usr/bin/env python3
"""Writes docs/coverage.md from the summary of cargo-llvm-cov (`just coverage`)."""

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/coverage.md"
# The product, and the share of lines that tests must run.
NEEDED = defaultdict(lambda: 90, {"pleg-core": 98})
PRODUCT = [
    "pleg-core",
    "pleg-runtime",
    "pleg-cri",
    "pleg-generic",
    "pleg-evented",
    "pleg",
    "pleg-kubelet",
    "pleg-cli",
]
# Written by a generator, from a contract that tests check.
LEFT_OUT = ["crates/pleg-cri/src/generated/"]
TEXT = """# Coverage

Written by `just coverage` at {commit}. The share of lines in `src/` that `cargo test --workspace` runs, measured by
cargo-llvm-cov. A line that is run is not a line that is checked: [seeded bugs](planted.md) and [mutants](mutants.md) show
that. Generated wire types are left out. Tests inside of `src/` count as lines that run. What only the tests on real
containerds run is not counted.

| crate | lines | run | share | needed |
| --- | ---: | ---: | ---: | ---: |
{crates}

The ten files with the most lines that no test runs:

| file | lines not run | of |
| --- | ---: | ---: |
{files}
"""


def main():
    data = json.loads(Path(sys.argv[1]).read_text())["data"][0]
    crates = {name: [0, 0] for name in PRODUCT}
    files = []
    for file in data["files"]:
        path = str(Path(file["filename"]).relative_to(ROOT))
        parts = path.split("/")
        if parts[0] != "crates" or parts[1] not in crates or parts[2] != "src":
            continue
        if any(path.startswith(prefix) for prefix in LEFT_OUT):
            continue
        lines = file["summary"]["lines"]
        crates[parts[1]][0] += lines["count"]
        crates[parts[1]][1] += lines["covered"]
        files.append((lines["count"] - lines["covered"], lines["count"], path))
    rows, failed = [], []
    for name, (count, covered) in crates.items():
        share = 100 * covered / max(count, 1)
        needed = NEEDED[name]
        rows.append(f"| {name} | {count:,} | {covered:,} | {share:.1f} % | {needed} % |")
        if share < needed:
            failed.append(f"{name}: {share:.1f} % of lines, needed {needed} %")
    worst = sorted(files, reverse=True)[:10]
    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()
    PAGE.write_text(
        TEXT.format(
            commit=commit,
            crates="\n".join(rows),
            files="\n".join(f"| `{path}` | {missed:,} | {count:,} |" for missed, count, path in worst),
        )
    )
    print("\n".join(rows))
    for line in failed:
        print(f"coverage: {line}", file=sys.stderr)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
