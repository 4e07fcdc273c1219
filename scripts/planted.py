#!/usr/bin/env python3
"""Plants seeded bugs, one at a time, and checks that each is caught by the assertion it names.

A seeded bug is a source patch in a TOML file (crates/pleg-proof/planted.toml describes the format).
Each patch is applied to a copy of the crates, never to the tree.

  planted.py --check                 check that every patch applies exactly once, and list those
                                     that do not (fast, for CI)
  planted.py [NAME...]               plant all bugs, or these, and print the results
  planted.py --file FILE [...]       read the bugs from FILE; may be given several times
  planted.py --rotate N              plant N bugs, other ones at each commit
  planted.py --write                 plant all bugs of a clean tree and write the table to
                                     docs/planted.md; goes on where it was interrupted

Exits with 1 if a bug is not caught by the assertion it names. The copy and its build are kept in
--dir (default: pleg-planted in the temporary directory), so a second run builds little. Delete
that directory when done.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_FILES = [ROOT / "crates/pleg-proof/planted.toml", ROOT / "crates/pleg-proof/weakened.toml"]
TABLE = ROOT / "docs/planted.md"
# The parts of the tree that the detectors build.
COPIED = ["crates", "tests", "benches", "proto", "Cargo.toml", "Cargo.lock"]
# Limits of the random detectors, and the seed of the model test.
WORLDS, SEQUENCES, MODEL_SEED = 2_000, 3_000, 1
TIME_LIMIT = 1800
# A named test takes seconds. One that takes longer than this, build included, hangs.
TEST_LIMIT = 300


class UserError(Exception):
    """An error that the user has to fix."""


@dataclass
class Edit:
    file: str
    find: str
    put: str


@dataclass
class Bug:
    name: str
    invariant: int
    why: str
    by: str
    caught_by: str
    edits: list[Edit]
    world: str | None = None


@dataclass
class Result:
    """The result of planting one bug."""

    caught: bool
    # The assertion or test that failed, or why none did.
    failed: str
    # How many seeds or sequences it took.
    attempts: str = ""
    seconds: float = 0.0


def read(file: Path) -> list[Bug]:
    try:
        entries = tomllib.loads(file.read_text())["bug"]
    except (tomllib.TOMLDecodeError, KeyError) as e:
        raise UserError(f"{file}: {e}") from e
    bugs = []
    for entry in entries:
        name = entry.get("name", "?")
        try:
            # One edit inline, or several under `edit`.
            edits = entry.get("edit") or [{k: entry[k] for k in ("file", "find", "put")}]
            bug = Bug(
                name=name,
                invariant=entry["invariant"],
                why=entry["why"],
                by=entry["by"],
                caught_by=entry["caught_by"],
                edits=[Edit(e["file"], e["find"], e["put"]) for e in edits],
                world=entry.get("world"),
            )
        except KeyError as e:
            raise UserError(f"{file}: {name} lacks {e}") from e
        if bug.by == "exhaustive" and bug.world is None:
            raise UserError(f"{file}: {name} is caught by the exhaustive check, but names no world")
        bugs.append(bug)
    return bugs


def apply(root: Path, bug: Bug) -> tuple[dict[str, str], list[str]]:
    """The patched files of a bug, and its edits that do not apply."""
    texts: dict[str, str] = {}
    errors = []
    for edit in bug.edits:
        text = texts.get(edit.file)
        if text is None:
            path = root / edit.file
            if not path.is_file():
                errors.append(f"{bug.name}: there is no {edit.file}")
                continue
            text = path.read_text()
        found = text.count(edit.find)
        if found != 1:
            first = edit.find.strip().partition("\n")[0]
            errors.append(f"{bug.name}: found {found} times in {edit.file}, must be once: {first}")
            continue
        changed = text.replace(edit.find, edit.put)
        if changed == text:
            errors.append(f"{bug.name}: changes nothing in {edit.file}")
        texts[edit.file] = changed
    return texts, errors


def patched(root: Path, bug: Bug) -> dict[str, str]:
    """The patched files of a bug."""
    texts, errors = apply(root, bug)
    if errors:
        raise UserError("; ".join(errors))
    return texts


class Copy:
    """A copy of the crates with its own build directory."""

    def __init__(self, at: Path, target: Path | None):
        self.at = at / "tree"
        self.target = target or at / "target"
        self.at.mkdir(parents=True, exist_ok=True)

    def refresh(self) -> None:
        """Makes the copy equal to the tree again. Unchanged files keep their modification time, so
        cargo rebuilds only changed ones."""
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
        """Runs a command in the copy and returns its exit code and output."""
        environment = {
            **os.environ,
            "CARGO_TARGET_DIR": str(self.target),
            # Every bug is built anew, and building takes most of the time.
            "CARGO_INCREMENTAL": "1",
            "CARGO_PROFILE_DEV_OPT_LEVEL": "0",
            "CARGO_PROFILE_DEV_DEBUG": "0",
            "RUST_BACKTRACE": "0",
        }
        with subprocess.Popen(
            command,
            cwd=self.at,
            env={**environment, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as running:
            try:
                output, _ = running.communicate(timeout=limit)
                code = running.returncode
            except subprocess.TimeoutExpired:
                # Kill the test as well as cargo.
                os.killpg(running.pid, signal.SIGKILL)
                output, _ = running.communicate()
                code, output = 124, f"{output}\ntimed out after {limit} s\n"
        if "error: could not compile" in output or "error: failed to " in output:
            raise UserError(f"does not build:\n{output[-4000:]}")
        return code, output


# --- detectors: each runs one kind of check against the copy with the bug ---


def by_model(copy: Copy, bug: Bug) -> Result:
    tried = []
    # Most bugs are caught early. Those that need a false event should not wait for all true ones.
    for kind, cases in (("true", SEQUENCES // 10), ("false", SEQUENCES), ("true", SEQUENCES)):
        command = ["cargo", "test", "-q", "-p", "pleg-proof", "--test", "model", f"sequences_with_{kind}_events"]
        _, output = copy.run(
            command,
            PROPTEST_CASES=str(cases),
            PROPTEST_RNG_SEED=str(MODEL_SEED),
            PLEG_MODEL_INVARIANT=bug.caught_by,
        )
        found = re.search(r"^sequence (\d+) shrinks to \d+ steps in .*:\n(?: .*\n|\n)*"
                          r"and violates ([\w-]+): ", output, re.M)
        if found and found[2] == bug.caught_by:
            return Result(True, found[2], f"sequence {found[1]} with {kind} events")
        passed = re.search(r"test result: ok\. 1 passed", output)
        tried.append(f"{cases} sequences with {kind} events" if passed else output[-600:])
    return Result(False, "nothing", " and ".join(tried))


def by_worlds(copy: Copy, bug: Bug) -> Result:
    simulate = ["cargo", "run", "-q", "-p", "pleg-proof", "--bin", "simulate", "--"]
    begin, many, others = 0, 20, {}
    while begin < WORLDS:
        seeds = ["--from", str(begin), "--seeds", str(many)]
        _, output = copy.run([*simulate, *seeds])
        broken = re.findall(r"^seed (\d+): ([\w-]+): ", output, re.M)
        for seed, name in sorted((int(seed), name) for seed, name in broken):
            if name == bug.caught_by:
                return Result(True, name, f"seed {seed}")
            others.setdefault(name, seed)
        begin, many = begin + many, min(4 * many, WORLDS - begin - many)
    first = [f"{name} in seed {seed}" for name, seed in others.items()]
    return Result(False, ", ".join(first) or "nothing", f"{WORLDS} seeds")


def by_exhaustive(copy: Copy, bug: Bug) -> Result:
    exhaust = ["cargo", "run", "-q", "-p", "pleg-proof", "--bin", "exhaust", "--"]
    code, output = copy.run([*exhaust, "--shortest", str(bug.world)])
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    # Without the warnings of the compiler.
    begin = next((n for n, line in enumerate(lines) if line.startswith(f"{bug.world} ")), 0)
    lines = lines[begin:]
    named = [line for line in lines if line.startswith(bug.caught_by)]
    if code != 0 and named:
        return Result(True, bug.caught_by, f"world {bug.world}", lines)
    return Result(False, lines[-1] if code != 0 and lines else "nothing", f"world {bug.world}")


def test_command(by: str) -> list[str]:
    """A few scripted tests: to optimise the core and its tests would take most of the time."""
    cargo, *rest = shlex.split(by)
    return [cargo, "--config", "profile.dev.package.pleg-core.opt-level=0", *rest]


def by_test(copy: Copy, bug: Bug) -> Result:
    code, output = copy.run([*test_command(bug.by), "--", "--exact", bug.caught_by], TEST_LIMIT)
    failed = re.findall(r"^test (\S+) \.\.\. FAILED", output, re.M)
    if bug.caught_by in failed:
        return Result(True, bug.caught_by, "1 test")
    if code == 124:
        return Result(True, f"{bug.caught_by} (timed out)", "1 test")
    return Result(False, ", ".join(failed) or "nothing", "1 test")


def detector(bug: Bug):
    named = {"model": by_model, "worlds": by_worlds, "exhaustive": by_exhaustive}
    if bug.by in named:
        return named[bug.by]
    if bug.by.startswith("cargo test "):
        return by_test
    raise UserError(f"{bug.name}: unknown detector {bug.by!r}")


def check_tests_pass(copy: Copy, bugs: list[Bug]) -> None:
    """Checks that the named tests pass without a bug."""
    commands = {(d.by, d.caught_by) for d in bugs if d.by.startswith("cargo test ")}
    for command in sorted({by for by, _ in commands}):
        _, output = copy.run(test_command(command))
        for test in sorted(test for by, test in commands if by == command):
            if not re.search(rf"^test {re.escape(test)} \.\.\. ok", output, re.M):
                raise UserError(f"{command}: {test} fails without a bug\n{output[-2000:]}")


def plant(copy: Copy, bug: Bug) -> Result:
    copy.refresh()
    for file, text in patched(copy.at, bug).items():
        copy.put(file, text.encode())
    started = time.monotonic()
    try:
        result = detector(bug)(copy, bug)
    except UserError as e:
        result = Result(False, str(e))
    result.seconds = time.monotonic() - started
    return result


def head() -> str:
    return subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()


class Finished:
    """The caught bugs of this commit, in a file, so that an interrupted run can be resumed."""

    def __init__(self, at: Path):
        self.file = at / f"caught-{head()}.jsonl"
        lines = self.file.read_text().splitlines() if self.file.is_file() else []
        self.results = {name: Result(**result) for name, result in map(json.loads, lines)}

    def of(self, bug: Bug) -> Result | None:
        return self.results.get(bug.name)

    def add(self, bug: Bug, result: Result) -> None:
        if result.caught:
            with self.file.open("a") as out:
                out.write(json.dumps([bug.name, asdict(result)]) + "\n")


def in_rotation(bugs: list[Bug], number: int) -> list[Bug]:
    """As many bugs, that follow those of the commit before."""
    count = subprocess.check_output(["git", "rev-list", "--count", "HEAD"], cwd=ROOT, text=True)
    begin = int(count) * number
    return [bugs[n % len(bugs)] for n in range(begin, begin + min(number, len(bugs)))]


def find_errors(bugs: list[Bug]) -> list[str]:
    """All patches that do not apply and all unknown detectors."""
    errors = []
    for bug in bugs:
        errors += apply(ROOT, bug)[1]
        try:
            detector(bug)
        except UserError as e:
            errors.append(str(e))
    return errors


# --- reports ---


def report(bug: Bug, result: Result) -> None:
    verdict = "caught" if result.caught else "NOT CAUGHT"
    print(f"{bug.name} (invariant {bug.invariant}): {verdict}: {result.failed}; {result.attempts}; "
          f"{result.seconds:.0f} s", flush=True)


def detector_name(bug: Bug) -> str:
    if bug.by.startswith("cargo test "):
        return f"`{bug.by.removeprefix('cargo test ')}`"
    return {"model": "model test", "worlds": "random worlds", "exhaustive": "exhaustive check"}[
        bug.by
    ]


def table(results: list[tuple[Bug, Result]]) -> str:
    lines = [
        "| invariant | seeded bug | effect | caught by | failed assertion or test | tries until caught |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for bug, result in sorted(results, key=lambda f: f[0].invariant):
        failed = f"`{result.failed}`" if result.caught else f"**not caught** ({result.failed[:80]})"
        row = [str(bug.invariant), bug.name, bug.why, detector_name(bug), failed, result.attempts]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    return "\n".join(lines) + "\n"


PAGE = """# Seeded bugs

Each row is a seeded bug, applied to a copy of the code as a source patch
(`crates/pleg-proof/planted.toml`, `weakened.toml`), and the assertion or test that caught it. Only the
assertion that the bug names counts. `scripts/planted.py --write` has written this page at commit {commit};
`scripts/planted.py --check` verifies in CI that every patch still applies. Random worlds start at seed 0.
The model test generates its sequences from one fixed seed: first sequences in which events are true, then
sequences in which events may be false.

{table}"""


def page(results: list[tuple[Bug, Result]]) -> str:
    return PAGE.format(commit=head()[:7], table=table(results))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--file", action="append", type=Path, metavar="FILE")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rotate", type=int, metavar="N")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="copies in parallel")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()) / "pleg-planted")
    parser.add_argument("--target", type=Path, metavar="DIR", help="build directory, of one copy")
    args = parser.parse_args()
    if args.write and args.names:
        parser.error("--write takes no names")
    if args.target and args.jobs > 1:
        parser.error("--target is for one copy: use --jobs 1")
    files = args.file or [file for file in DEFAULT_FILES if file.is_file()]
    bugs = [bug for file in files for bug in read(file)]
    names = [bug.name for bug in bugs]
    if len(set(names)) != len(names):
        raise UserError("two bugs have the same name")
    unknown = set(args.names) - set(names)
    if unknown:
        raise UserError(f"no bug is named {', '.join(sorted(unknown))}")
    chosen = [d for d in bugs if not args.names or d.name in args.names]
    if args.rotate:
        chosen = in_rotation(chosen, args.rotate)
    errors = find_errors(chosen)
    if errors:
        raise UserError(f"{len(errors)} of {len(chosen)} patches do not apply:\n  " + "\n  ".join(errors))
    if args.write and subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *COPIED], cwd=ROOT).returncode:
        raise UserError("--write records the results of a commit: commit the changes first")
    invariants = sorted({bug.invariant for bug in chosen})
    if args.check:
        print(f"{len(chosen)} seeded bugs apply, of invariants {', '.join(map(str, invariants))}")
        return 0
    copies: Queue[Copy] = Queue()
    for n in range(args.jobs):
        copies.put(Copy(args.dir / str(n), args.target))

    finished = Finished(args.dir)

    def run_one(bug: Bug) -> tuple[Bug, Result]:
        # Only --write resumes: who names a bug wants it planted.
        if args.write and (result := finished.of(bug)):
            return bug, result
        copy = copies.get()
        try:
            result = plant(copy, bug)
        finally:
            copies.put(copy)
        report(bug, result)
        finished.add(bug, result)
        return bug, result

    first = copies.get()
    first.refresh()
    check_tests_pass(first, chosen)
    copies.put(first)
    with ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(run_one, chosen))
    print()
    print(table(results), end="")
    survivors = [bug.name for bug, result in results if not result.caught]
    if args.write and not survivors:
        TABLE.write_text(page(results))
    if survivors:
        print(f"\nnot caught by the named assertion: {', '.join(survivors)}", file=sys.stderr)
    return 1 if survivors else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        print(f"planted: {error}", file=sys.stderr)
        sys.exit(2)
