#!/usr/bin/env python3
"""Counts instructions (under valgrind) and allocations of the hot paths. Fails if a path takes over 3 % more
instructions, or more allocations, than in benches/instructions.toml.

  instructions.py            count and compare (needs valgrind)
  instructions.py --write    count and write the file

Runs each path of benches/hot/hot.rs for N and for 2N rounds; the difference is the count of N rounds, without the
preparation. Makes libc use the same routines on every processor. The seeds of hash maps are random, so counts differ by
up to half a percent: if a path takes too many instructions, the script counts it twice more and takes the median. A
new compiler gives other counts: run --write with it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "benches/instructions.toml"
MORE = 0.03
# The number of rounds N of each path: the script runs N and 2N rounds. `stopped` has 250 pods, and each pod exits once.
PATHS = {"known": 500, "stopped": 125, "list-convert": 500, "relist": 10}
# Without this setting, libc chooses its string routines by processor, and the counts would differ between machines.
PLAIN = "glibc.cpu.hwcaps=-AVX,-AVX2,-AVX512F,-AVX512VL,-AVX512BW,-ERMS,-FSRM,-MOVBE,-BMI2,-RTM"


def build() -> Path:
    command = ["cargo", "build", "--profile", "hot", "-p", "hot-paths", "--message-format=json"]
    out = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    for line in out.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == "hot":
            return Path(message["executable"])
    sys.exit("instructions: cargo built no program")


def count(program: Path, path: str, rounds: int) -> int:
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no"]
    command += ["--cachegrind-out-file=/dev/null", program, path, str(rounds)]
    env = {**os.environ, "GLIBC_TUNABLES": PLAIN}
    run = subprocess.run(command, env=env, capture_output=True, text=True)
    found = re.search(r"I\s+refs:\s+([\d,]+)", run.stderr)
    if run.returncode != 0 or not found:
        sys.exit(f"instructions: {path}: {run.stderr}")
    return int(found[1].replace(",", ""))


def per_round(program: Path, path: str, committed: int | None) -> int:
    rounds = PATHS[path]

    def once() -> int:
        return (count(program, path, 2 * rounds) - count(program, path, rounds)) // rounds

    first = once()
    if committed and first <= committed * (1 + MORE):
        return first
    return int(median([first, once(), once()]))


def allocations(program: Path) -> dict[str, float]:
    """The number of allocations of each path, which the benchmark program counts itself."""
    out = subprocess.run([program], check=True, text=True, stdout=subprocess.PIPE).stdout
    return {path: float(n) for path, n in re.findall(r"^  (\S+) +([\d.]+)$", out, re.M)}


def main() -> None:
    write = sys.argv[1:] == ["--write"]
    if sys.argv[1:] and not write:
        sys.exit(__doc__)
    committed = {"paths": {}} if write else tomllib.loads(FIGURES.read_text())
    program = build()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        one = lambda path: per_round(program, path, committed["paths"].get(path))  # noqa: E731
        counted = dict(zip(PATHS, pool.map(one, PATHS)))
    allocated = allocations(program)
    rustc = subprocess.check_output(["rustc", "--version"], text=True).strip()
    if write:
        lines = ["# Written by scripts/instructions.py --write: instructions per round.\n"]
        lines += [f'rustc = "{rustc}"\n\n[paths]\n']
        lines += [f"{path} = {n}\n" for path, n in counted.items()]
        lines += ["\n[allocations]\n"]
        lines += [f"{path} = {n}\n" for path, n in allocated.items()]
        FIGURES.write_text("".join(lines))
        return
    if committed["rustc"] != rustc:
        print(f"instructions: counted with {rustc}, committed with {committed['rustc']}")
    worse = False
    for path, n in counted.items():
        was = committed["paths"].get(path)
        if was is None:
            sys.exit(f"instructions: {path} is not in {FIGURES.name}: run with --write")
        change = n / was - 1
        worse |= change > MORE
        print(f"{path:<16} {n:>10} {change:>+8.1%}{'  too many' if change > MORE else ''}")
    for path, n in allocated.items():
        was = committed["allocations"].get(path, -1.0)
        # Tolerates a tenth of an allocation: the random seed of a hash table decides when the table grows.
        more = n >= was + 0.1
        worse |= more
        print(f"{path:<16} {n:>10} allocations{f', {was} before: too many' if more else ''}")
    sys.exit(1 if worse else 0)


if __name__ == "__main__":
    main()
