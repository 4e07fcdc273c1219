#!/usr/bin/env python3
"""Applies seeded bugs, one at a time, and checks that the assertion that each names catches it.

A seeded bug is a source patch in a TOML file (crates/pleg-proof/planted.toml describes the format).
Each is applied to a copy of the crates, never to the tree.

  planted.py --check                 every patch still applies, exactly once (fast; for CI);
                                     lists all that do not
  planted.py [NAME...]               apply all bugs, or these, and print the results
  planted.py --file FILE [...]       of another file; may be given several times
  planted.py --write                 the same, and write docs/planted.md

Exits with 1 if a bug is not caught by the assertion or test that it names. The copy and its
build are kept in --dir (default: a directory of its own under the system's temporary one), so
that a second run builds little; delete it when done.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_FILES = [ROOT / "crates/pleg-proof/planted.toml", ROOT / "crates/pleg-proof/weakened.toml"]
TABLE = ROOT / "docs/planted.md"
# What a catcher needs of the tree.
COPIED = ["crates", "tests", "benches", "proto", "Cargo.toml", "Cargo.lock"]
# Where a catcher that draws at random gives up, and the seed that it begins with.
WORLDS, SEQUENCES, MODEL_SEED = 2_000, 3_000, 1
TIME_LIMIT = 1800
# A named test takes seconds; what takes so much longer, its building included, has hung.
TEST_LIMIT = 300


class Wrong(Exception):
    """Something that the person who runs this has to mend."""


@dataclass
class Edit:
    file: str
    find: str
    put: str


@dataclass
class Defect:
    name: str
    law: int
    why: str
    by: str
    caught_by: str
    edits: list[Edit]
    world: str | None = None


@dataclass
class Fate:
    """What became of a planted defect."""

    caught: bool
    # The assertion or test that broke, or why none did.
    broke: str
    # Seeds, sequences or cases until then; none for a named test, which has one.
    tries: str = ""
    # What it shrank to, if it did.
    shrunk: list[str] = field(default_factory=list)
    seconds: float = 0.0


def read(file: Path) -> list[Defect]:
    try:
        entries = tomllib.loads(file.read_text())["defect"]
    except (tomllib.TOMLDecodeError, KeyError) as e:
        raise Wrong(f"{file}: {e}") from e
    defects = []
    for entry in entries:
        name = entry.get("name", "?")
        try:
            # One edit beside the rest, or several under `edit`.
            edits = entry.get("edit") or [{k: entry[k] for k in ("file", "find", "put")}]
            defect = Defect(
                name=name,
                law=entry["law"],
                why=entry["why"],
                by=entry["by"],
                caught_by=entry["caught_by"],
                edits=[Edit(e["file"], e["find"], e["put"]) for e in edits],
                world=entry.get("world"),
            )
        except KeyError as e:
            raise Wrong(f"{file}: {name} lacks {e}") from e
        if defect.by == "exhaustive" and defect.world is None:
            raise Wrong(f"{file}: {name} is caught by the exhaustive check, but in which world?")
        defects.append(defect)
    return defects


def apply(root: Path, defect: Defect) -> tuple[dict[str, str], list[str]]:
    """The files of a defect as they are with it, and which of its edits do not apply."""
    texts: dict[str, str] = {}
    wrong = []
    for edit in defect.edits:
        text = texts.get(edit.file)
        if text is None:
            path = root / edit.file
            if not path.is_file():
                wrong.append(f"{defect.name}: there is no {edit.file}")
                continue
            text = path.read_text()
        found = text.count(edit.find)
        if found != 1:
            first = edit.find.strip().partition("\n")[0]
            wrong.append(f"{defect.name}: found {found} times in {edit.file}, must be once: {first}")
            continue
        changed = text.replace(edit.find, edit.put)
        if changed == text:
            wrong.append(f"{defect.name}: changes nothing in {edit.file}")
        texts[edit.file] = changed
    return texts, wrong


def patched(root: Path, defect: Defect) -> dict[str, str]:
    """The files of a defect as they are with it."""
    texts, wrong = apply(root, defect)
    if wrong:
        raise Wrong("; ".join(wrong))
    return texts


class Copy:
    """A copy of the crates with a build of its own."""

    def __init__(self, at: Path):
        self.at = at / "tree"
        self.target = at / "target"
        self.at.mkdir(parents=True, exist_ok=True)

    def refresh(self) -> None:
        """Makes the copy equal to the tree again. What is equal keeps its time, so that it is not
        built again; what is not gets a new one, so that it is."""
        wanted: set[Path] = set()
        for name in COPIED:
            top = ROOT / name
            for file in [top] if top.is_file() else sorted(top.rglob("*")):
                if file.is_file():
                    relative = file.relative_to(ROOT)
                    wanted.add(relative)
                    self.put(str(relative), file.read_bytes())
        for file in list(self.at.rglob("*")):
            if file.is_file() and file.relative_to(self.at) not in wanted:
                file.unlink()

    def put(self, relative: str, content: bytes) -> None:
        path = self.at / relative
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def run(self, command: list[str], limit: int = TIME_LIMIT, **env: str) -> tuple[int, str]:
        """Runs a command in the copy: its exit code and all that it said."""
        surroundings = {
            **os.environ,
            "CARGO_TARGET_DIR": str(self.target),
            # Most of the time goes into building, again for every defect.
            "CARGO_INCREMENTAL": "1",
            "CARGO_PROFILE_DEV_OPT_LEVEL": "0",
            "CARGO_PROFILE_DEV_DEBUG": "0",
            "RUST_BACKTRACE": "0",
        }
        with subprocess.Popen(
            command,
            cwd=self.at,
            env={**surroundings, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as running:
            try:
                said, _ = running.communicate(timeout=limit)
                code = running.returncode
            except subprocess.TimeoutExpired:
                # The test, too, and not just the cargo that runs it.
                os.killpg(running.pid, signal.SIGKILL)
                said, _ = running.communicate()
                code, said = 124, f"{said}\nno end within {limit} s\n"
        if "error: could not compile" in said or "error: failed to " in said:
            raise Wrong(f"does not build:\n{said[-4000:]}")
        return code, said


# --- the catchers: each says what became of the defect that is planted in the copy ---


def by_model(copy: Copy, defect: Defect) -> Fate:
    # Seeds that are kept are no evidence for how soon it is found.
    shutil.rmtree(copy.at / "crates/pleg-proof/proptest-regressions", ignore_errors=True)
    tried = []
    # Most are caught soon; those that need a lie would have to wait for all that are honest.
    for kind, cases in (("honest", SEQUENCES // 10), ("lying", SEQUENCES), ("honest", SEQUENCES)):
        command = ["cargo", "test", "-q", "-p", "pleg-proof", "--test", "model", f"no_{kind}"]
        _, said = copy.run(
            command,
            PROPTEST_CASES=str(cases),
            PROPTEST_RNG_SEED=str(MODEL_SEED),
            PLEG_MODEL_LAW=defect.caught_by,
        )
        found = re.search(r"^sequence (\d+) shrinks to \d+ steps in (.*):\n((?: .*\n|\n)*)"
                          r"and breaks ([\w-]+): ", said, re.M)
        if found and found[4] == defect.caught_by:
            steps = [line.strip() for line in found[3].splitlines()]
            tries = f"{kind} sequence {found[1]}"
            return Fate(True, found[4], tries, [found[2], *steps])
        passed = re.search(r"test result: ok\. 1 passed", said)
        tried.append(f"{cases} {kind} sequences" if passed else said[-600:])
    return Fate(False, "nothing", " and ".join(tried))


def by_worlds(copy: Copy, defect: Defect) -> Fate:
    simulate = ["cargo", "run", "-q", "-p", "pleg-proof", "--bin", "simulate", "--"]
    begin, many, others = 0, 20, {}
    while begin < WORLDS:
        seeds = ["--from", str(begin), "--seeds", str(many)]
        _, said = copy.run([*simulate, *seeds])
        broken = re.findall(r"^seed (\d+): ([\w-]+): ", said, re.M)
        for seed, name in sorted((int(seed), name) for seed, name in broken):
            if name == defect.caught_by:
                return Fate(True, name, f"seed {seed}")
            others.setdefault(name, seed)
        begin, many = begin + many, min(4 * many, WORLDS - begin - many)
    first = [f"{name} in seed {seed}" for name, seed in others.items()]
    return Fate(False, ", ".join(first) or "nothing", f"{WORLDS} seeds")


def by_exhaustive(copy: Copy, defect: Defect) -> Fate:
    exhaust = ["cargo", "run", "-q", "-p", "pleg-proof", "--bin", "exhaust", "--"]
    code, said = copy.run([*exhaust, "--shortest", str(defect.world)])
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    named = [line for line in lines if line.startswith(defect.caught_by)]
    if code != 0 and named:
        return Fate(True, defect.caught_by, f"world {defect.world}", lines)
    return Fate(False, lines[-1] if code != 0 and lines else "nothing", f"world {defect.world}")


def by_test(copy: Copy, defect: Defect) -> Fate:
    code, said = copy.run([*shlex.split(defect.by), "--", "--exact", defect.caught_by], TEST_LIMIT)
    failed = re.findall(r"^test (\S+) \.\.\. FAILED", said, re.M)
    if defect.caught_by in failed:
        return Fate(True, defect.caught_by, "1 test")
    if code == 124:
        return Fate(True, f"{defect.caught_by}, which never ends", "1 test")
    return Fate(False, ", ".join(failed) or "nothing", "1 test")


def catcher(defect: Defect):
    named = {"model": by_model, "worlds": by_worlds, "exhaustive": by_exhaustive}
    if defect.by in named:
        return named[defect.by]
    if defect.by.startswith("cargo test "):
        return by_test
    raise Wrong(f"{defect.name}: nothing is known of a catcher {defect.by!r}")


def holds_without(copy: Copy, defects: list[Defect]) -> None:
    """The named tests pass where nothing is planted: only then do they catch anything."""
    commands = {(d.by, d.caught_by) for d in defects if d.by.startswith("cargo test ")}
    for command in sorted({by for by, _ in commands}):
        _, said = copy.run(shlex.split(command))
        for test in sorted(test for by, test in commands if by == command):
            if not re.search(rf"^test {re.escape(test)} \.\.\. ok", said, re.M):
                raise Wrong(f"{command}: {test} does not pass as it is\n{said[-2000:]}")


def plant(copy: Copy, defect: Defect) -> Fate:
    copy.refresh()
    for file, text in patched(copy.at, defect).items():
        copy.put(file, text.encode())
    begun = time.monotonic()
    try:
        fate = catcher(defect)(copy, defect)
    except Wrong as e:
        fate = Fate(False, str(e))
    fate.seconds = time.monotonic() - begun
    return fate


def mistakes(defects: list[Defect]) -> list[str]:
    """All patches that do not apply and all catchers that do not exist."""
    wrong = []
    for defect in defects:
        wrong += apply(ROOT, defect)[1]
        try:
            catcher(defect)
        except Wrong as e:
            wrong.append(str(e))
    return wrong


# --- what is told of it ---


def tell(defect: Defect, fate: Fate) -> None:
    verdict = "caught" if fate.caught else "NOT CAUGHT"
    steps = "".join(f"\n    {step}" for step in fate.shrunk)
    print(f"{defect.name} (invariant {defect.law}): {verdict}: {fate.broke}; {fate.tries}; "
          f"{fate.seconds:.0f} s{steps}", flush=True)


def catcher_of(defect: Defect) -> str:
    if defect.by.startswith("cargo test "):
        return f"`{defect.by.removeprefix('cargo test ')}`"
    return {"model": "model test", "worlds": "random worlds", "exhaustive": "exhaustive check"}[
        defect.by
    ]


def table(fates: list[tuple[Defect, Fate]]) -> str:
    lines = [
        "| invariant | seeded bug | effect | caught by | failed assertion or test | tries until caught |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for defect, fate in sorted(fates, key=lambda f: f[0].law):
        broke = f"`{fate.broke}`" if fate.caught else f"**not caught** ({fate.broke[:80]})"
        row = [str(defect.law), defect.name, defect.why, catcher_of(defect), broke, fate.tries]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    return "\n".join(lines) + "\n"


PAGE = """# Seeded bugs

Each row is a seeded bug, applied to a copy of the code as a source patch
(`crates/pleg-proof/planted.toml`, `weakened.toml`), and the assertion or test that caught it. Only the
assertion that the bug names counts. This page is written by `scripts/planted.py --write`;
`scripts/planted.py --check` verifies in CI that every patch still applies. Random worlds start at seed 0.
The model test generates its sequences from one fixed seed: first sequences in which events are true, then
sequences in which events may be false.

{table}
## Shortest failing sequences

The model test prints the shortest sequence that it finds. For the bugs above:

{shrunk}"""


def page(fates: list[tuple[Defect, Fate]]) -> str:
    shrunk = [(d, f.shrunk) for d, f in fates if f.shrunk and d.by == "model"]
    shortest = sorted(shrunk, key=lambda s: (len(s[1]), s[0].name))
    texts = []
    for defect, (world, *steps) in shortest:
        listed = "\n".join(steps)
        texts.append(f"**{defect.name}** breaks `{defect.caught_by}` in `{world}`:\n\n"
                     f"```text\n{listed}\n```\n")
    return PAGE.format(table=table(fates), shrunk="\n".join(texts))


def main() -> int:
    about = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    about.add_argument("names", nargs="*", metavar="NAME")
    about.add_argument("--check", action="store_true")
    about.add_argument("--file", action="append", type=Path, metavar="FILE")
    about.add_argument("--write", action="store_true")
    about.add_argument("--jobs", type=int, default=1, metavar="N", help="copies at work")
    about.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()) / "pleg-planted")
    args = about.parse_args()
    if args.write and args.names:
        about.error("--write wants all of them")
    files = args.file or [file for file in DEFAULT_FILES if file.is_file()]
    defects = [defect for file in files for defect in read(file)]
    names = [defect.name for defect in defects]
    if len(set(names)) != len(names):
        raise Wrong("two defects have one name")
    unknown = set(args.names) - set(names)
    if unknown:
        raise Wrong(f"no defect is called {', '.join(sorted(unknown))}")
    chosen = [d for d in defects if not args.names or d.name in args.names]
    wrong = mistakes(chosen)
    if wrong:
        raise Wrong(f"{len(wrong)} of {len(chosen)} patches do not apply:\n  " + "\n  ".join(wrong))
    laws = sorted({defect.law for defect in chosen})
    if args.check:
        print(f"{len(chosen)} seeded bugs apply, of invariants {', '.join(map(str, laws))}")
        return 0
    copies: Queue[Copy] = Queue()
    for n in range(args.jobs):
        copies.put(Copy(args.dir / str(n)))

    def fate_of(defect: Defect) -> tuple[Defect, Fate]:
        copy = copies.get()
        try:
            fate = plant(copy, defect)
        finally:
            copies.put(copy)
        tell(defect, fate)
        return defect, fate

    first = copies.get()
    first.refresh()
    holds_without(first, chosen)
    copies.put(first)
    with ThreadPoolExecutor(args.jobs) as pool:
        fates = list(pool.map(fate_of, chosen))
    print()
    print(table(fates), end="")
    survivors = [defect.name for defect, fate in fates if not fate.caught]
    if args.write and not survivors:
        TABLE.write_text(page(fates))
    if survivors:
        print(f"\nnot caught as named: {', '.join(survivors)}", file=sys.stderr)
    return 1 if survivors else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Wrong as wrong:
        print(f"planted: {wrong}", file=sys.stderr)
        sys.exit(2)
