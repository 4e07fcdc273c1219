#!/usr/bin/env python3
"""Runs the mutants of pleg-core that cargo-mutants lists, and says which survive (`just mutants`).

All mutants are compiled into one copy of the workspace and enabled one by one by PLEG_MUTANT, which saves a build
for each. A mutant is caught if a test fails or does not end in time. Results are kept in target/mutants, so an
interrupted run goes on.

  mutants.py run [--only TEXT] [--jobs N]   build, run what was not run, write the survivors to target/mutants/survivors
  mutants.py show                           the numbers, and the survivors
"""

import argparse
import concurrent.futures
import functools
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "mutants"
TREE = WORK / "tree"
CORE = "crates/pleg-core/src"
# Rust code that reads which mutant is enabled.
SWITCH = """//! Which mutant is enabled.
pub(crate) fn active() -> u32 {
    static ACTIVE: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *ACTIVE.get_or_init(|| std::env::var("PLEG_MUTANT").ok().and_then(|n| n.parse().ok()).unwrap_or(0))
}
"""
# The tests: the package, the name of its test program, and its arguments. The slow ones run for mutants that survive
# the fast ones.
FAST = [
    ("pleg-core", "pleg_core", []),
    ("pleg-core", "suite", ["--skip=failing_lists_run_once_a_second_however_many_events_arrive"]),
    ("pleg-fuzz", "corpus", []),
]
SLOW = [
    ("pleg-proof", "worlds", []),
    ("pleg-proof", "model", []),
]
TESTS = FAST + SLOW


def mutants():
    """What cargo-mutants lists, numbered from 1, by file."""
    listed = subprocess.run(
        ["cargo", "mutants", "--list", "--json", "--package", "pleg-core"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout
    by_file = defaultdict(list)
    for number, mutant in enumerate(json.loads(listed), 1):
        function = (mutant.get("function") or {}).get("function_name", "")
        by_file[mutant["file"]].append({
            "number": number,
            "function": function,
            # A `return` of another type than the body's does not compile.
            "is_opaque": "impl " in (mutant.get("function") or {}).get("return_type", ""),
            "genre": mutant["genre"],
            "replacement": mutant["replacement"],
            "start": (mutant["span"]["start"]["line"] - 1, mutant["span"]["start"]["column"] - 1),
            "end": (mutant["span"]["end"]["line"] - 1, mutant["span"]["end"]["column"] - 1),
        })
    return by_file


class Mutated:
    """A source file with all of its mutants."""

    def __init__(self, parser, source, mutants, without):
        self.source = source
        self.lines = [0]
        for line in source.split(b"\n"):
            self.lines.append(self.lines[-1] + len(line) + 1)
        self.at = defaultdict(list)
        self.inserted = defaultdict(list)
        self.unplaced = []
        self.tree = parser.parse(source)
        for mutant in mutants:
            if mutant["number"] not in without and not self.place(mutant):
                self.unplaced.append(mutant["number"])

    def offset(self, point):
        line, column = point
        start = self.lines[line]
        text = self.source[start : self.lines[line + 1] - 1].decode()
        return start + len(text[:column].encode())

    def place(self, mutant):
        start, end = self.offset(mutant["start"]), self.offset(mutant["end"])
        mutant["text"] = self.source[start:end].decode()
        node = self.tree.root_node.descendant_for_byte_range(start, max(start, end - 1))
        genre = mutant["genre"]
        outer = node
        while outer and outer.type not in ("const_item", "static_item"):
            outer = outer.parent
        if outer:
            return False
        if genre == "FnValue":
            while node and node.type != "function_item":
                node = node.parent
            body = node and node.child_by_field_name("body")
            if not body or mutant["is_opaque"]:
                return False
            self.inserted[body.start_byte + 1].append(mutant)
            return True
        kinds = {
            "BinaryOperator": ("binary_expression", "compound_assignment_expr"),
            "UnaryOperator": ("unary_expression",),
            "MatchArm": ("match_arm",),
            "MatchArmGuard": ("match_arm",),
            "StructField": ("struct_expression",),
        }.get(genre, ())
        while node and node.type not in kinds:
            node = node.parent
        if not node:
            return False
        if genre == "BinaryOperator":
            operator = node.child_by_field_name("operator") or node.children[1]
            if operator.start_byte != start:
                return False
        if genre == "UnaryOperator" and node.children[0].start_byte != start:
            return False
        if genre == "StructField":
            mutant["field"] = (start, end)
        self.at[node.id].append(mutant)
        return True

    def text(self):
        return self.render(self.tree.root_node)

    def render(self, node, skip=None):
        """The text of a node, with a choice wherever there is a mutant."""
        mutants = self.at.get(node.id, [])
        if not mutants:
            return self.plain(node)
        if node.type == "match_arm":
            return self.arm(node, mutants)
        if node.type == "struct_expression":
            branches = [(m, self.without(node, *m["field"])) for m in mutants]
        elif node.type == "unary_expression":
            branches = [(m, self.render(node.children[1])) for m in mutants]
        else:
            left, operator, right = node.children
            left, right = self.render(left), self.render(right)
            branches = [(m, left + b" " + m["replacement"].encode() + b" " + right) for m in mutants]
        return choice(branches, self.plain(node))

    def plain(self, node):
        out, at = b"", node.start_byte
        if not node.children:
            return self.source[node.start_byte : node.end_byte]
        for child in node.children:
            out += self.source[at : child.start_byte] + self.render(child)
            at = child.end_byte
            out += b"".join(early_return(m) for m in self.inserted.get(child.end_byte, []) if child.type == "{")
        return out + self.source[at : node.end_byte]

    def without(self, node, start, end):
        """The text of a struct expression without a field and the comma that follows."""
        after = self.source[end : node.end_byte].decode()
        rest = after.lstrip()
        rest = rest[1:] if rest.startswith(",") else rest
        return self.source[node.start_byte : start] + rest.encode()

    def arm(self, node, mutants):
        pattern, value = node.child_by_field_name("pattern"), node.child_by_field_name("value")
        condition = pattern.child_by_field_name("condition")
        only = self.source[pattern.start_byte : pattern.end_byte]
        guard = b"true"
        if condition:
            guard = b"(" + self.render(condition) + b")"
            only = re.sub(rb"\s+if$", b"", self.source[pattern.start_byte : condition.start_byte].rstrip())
        for m in mutants:
            enabled = b"crate::mutant::active() == %d" % m["number"]
            if m["genre"] == "MatchArm" or m["replacement"] == "false":
                guard = b"(!(" + enabled + b") && " + guard + b")"
            else:
                guard = b"(" + enabled + b" || " + guard + b")"
            guard = mark(m, guard)
        start = self.source[node.start_byte : pattern.start_byte]
        between = self.source[pattern.end_byte : value.start_byte]
        end = self.source[value.end_byte : node.end_byte]
        return start + only + b" if " + guard + between + self.render(value) + end


def mark(mutant, text):
    return b"/*<%d*/%s/*>%d*/" % (mutant["number"], text, mutant["number"])


def choice(branches, original):
    arms = b"".join(b"%d => { %s }, " % (m["number"], mark(m, text)) for m, text in branches)
    return b"(match crate::mutant::active() { " + arms + b"_ => { " + original + b" } })"


def early_return(mutant):
    value = mutant["replacement"].encode()
    return b" if crate::mutant::active() == %d { %s } " % (mutant["number"], mark(mutant, b"return " + value + b";"))


def write_tree(by_file, without, constant):
    """Writes the copy with all mutants but some. Functions are `const` only where they must be."""
    import tree_sitter
    import tree_sitter_rust

    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_rust.language()))
    unplaced = []
    for name in subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines():
        source = ROOT / name
        if not source.is_file():
            continue
        text = source.read_bytes()
        if name.startswith(CORE) and name.endswith(".rs"):
            mutated = Mutated(parser, text, by_file.get(name, []), without)
            unplaced += mutated.unplaced
            text = mutated.text()
            text = re.sub(
                rb"\bconst fn (\w+)",
                lambda m: m.group(0) if m.group(1).decode() in constant else b"fn " + m.group(1),
                text,
            )
            if name == f"{CORE}/lib.rs":
                text += b"\nmod mutant;\n"
        target = TREE / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.is_file() or target.read_bytes() != text:
            target.write_bytes(text)
    (TREE / CORE / "mutant.rs").write_text(SWITCH)
    return unplaced


def build():
    """The paths of the test programs, or the errors of the compiler."""
    packages = sorted({package for package, _, _ in TESTS})
    environment = {
        **os.environ,
        "CARGO_TARGET_DIR": str(WORK / "target"),
        "RUSTFLAGS": "--cap-lints=allow",
    }
    selected = [argument for package in packages for argument in ("-p", package)]
    done = subprocess.run(
        ["cargo", "test", "--no-run", "--no-fail-fast", "--tests", "--message-format=json", *selected],
        cwd=TREE, env=environment, capture_output=True, text=True,
    )
    programs, errors = {}, []
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-artifact" and message.get("executable"):
            package = re.search(r"([\w-]+)(?:@|#)?[^/]*$", message["package_id"])
            directory = Path(message["manifest_path"]).parent.name
            programs[(directory, message["target"]["name"])] = message["executable"]
        if message["reason"] == "compiler-message" and message["message"]["level"] == "error":
            errors.append(message["message"])
    if done.returncode and not errors:
        sys.exit(done.stderr)
    return programs, errors


def blamed(error):
    """The mutants in whose text the compiler found an error."""
    found = set()
    spans = [span for span in error["spans"] if span["is_primary"]] or error["spans"]
    for span in spans:
        file = TREE / span["file_name"]
        if not file.is_file():
            continue
        text = file.read_bytes()
        innermost = None
        for marked in re.finditer(rb"/\*<(\d+)\*/", text):
            end = text.find(b"/*>%s*/" % marked.group(1), marked.end())
            if marked.start() <= span["byte_start"] and span["byte_end"] <= end + 12:
                innermost = int(marked.group(1))
        if innermost:
            found.add(innermost)
    return found


def compile_all(by_file):
    """Builds, leaving out what does not compile. Returns the programs, those mutants, and the unplaced ones."""
    without, constant = set(), set()
    for attempt in range(40):
        unplaced = write_tree(by_file, without, constant)
        programs, errors = build()
        if not errors:
            return programs, without, unplaced
        new, new_constant = set(), set()
        for error in errors:
            text = error["message"] + json.dumps(error.get("children", []))
            called = re.search(r"non-const (?:associated function|function|method) `(?:[^`]*::)?(\w+)`", text)
            called = called or re.search(r"cannot call non-const .*`(?:[^`]*::)?(\w+)(?:::<[^`]*>)?`", text)
            if called and called.group(1) == "active":
                new |= blamed(error)
                new |= in_same_function(error)
            elif called:
                new_constant.add(called.group(1))
            elif (error.get("code") or {}).get("code") == "E0004":
                arms = {m["number"] for of in by_file.values() for m in of if m["genre"] == "MatchArm"}
                new |= in_same_function(error) & arms
            else:
                new |= blamed(error)
        print(f"build {attempt}: {len(errors)} errors, {len(new)} mutants left out, {len(new_constant)} const", flush=True)
        if not (new - without) and not (new_constant - constant):
            for error in errors[:10]:
                print(error["rendered"])
            sys.exit("these errors are not those of a mutant")
        without |= new
        constant |= new_constant
    sys.exit("it does not compile in the end")


def in_same_function(error):
    """All mutants of the function that has the error."""
    found = set()
    for span in error["spans"]:
        text = (TREE / span["file_name"]).read_bytes()
        start = text.rfind(b"fn ", 0, span["byte_start"])
        end = text.find(b"\n    }\n", span["byte_start"])
        end = min(e for e in (end, text.find(b"\n}\n", span["byte_start"])) if e > 0)
        found |= {int(n) for n in re.findall(rb"/\*<(\d+)\*/", text[start:end])}
    return found


def run_one(number, programs, limit, tests):
    """Which test program caught the mutant, or None."""
    for package, name, arguments in tests:
        program = programs.get((package, name))
        if not program:
            continue
        environment = {
            **os.environ,
            "PLEG_MUTANT": str(number),
            "PLEG_FUZZ_ROWS": "300",
            "PROPTEST_RNG_SEED": "1",
            "RUST_BACKTRACE": "0",
            # libtest stops at the first failure only with its unstable options.
            "RUSTC_BOOTSTRAP": "1",
            "CARGO_MANIFEST_DIR": str(TREE / "crates" / package),
        }
        seconds = limit[(package, name)]
        process = subprocess.Popen(
            [program, "--test-threads=1", "-Z", "unstable-options", "--fail-fast", *arguments],
            env=environment, cwd=TREE / "crates" / package,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5)),
        )
        try:
            code = process.wait(timeout=20 * seconds)
            if code == -signal.SIGXCPU:
                return f"{package} {name}, which does not end"
            if code in (-signal.SIGTERM, -signal.SIGINT, -signal.SIGKILL):
                raise RuntimeError(f"{package} {name} was ended by somebody else")
            if code:
                return f"{package} {name}"
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return f"{package} {name}, which does not end"
    return None


def limits(programs):
    """The seconds of CPU that each test program may use: four times what it uses without a mutant, and ten seconds."""
    limit = defaultdict(lambda: 3600)
    for test in TESTS:
        package, name, _ = test
        if (package, name) in programs:
            began = used_by_children()
            caught = run_one(0, programs, limit, [test])
            if caught:
                sys.exit(f"fails without a mutant: {caught}")
            used = used_by_children() - began
            print(f"{package} {name}: {used:.1f} s of CPU", flush=True)
            limit[(package, name)] = 10 + int(4 * used)
    return limit


def used_by_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@functools.cache
def results():
    """The file of the results, one for each version of the core: lines move, and tests are added."""
    tree = subprocess.run(
        ["git", "rev-parse", "HEAD:crates/pleg-core"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    return WORK / f"results-{tree[:12]}.jsonl"


def recorded():
    if not results().is_file():
        return {}
    return {r["key"]: r for r in map(json.loads, results().read_text().splitlines())}


def key(file, mutant):
    line, column = mutant["start"]
    change = f"{mutant['genre']} {mutant.get('text', '')[:40]!r} -> {mutant['replacement']}"
    return f"{file}:{line + 1}:{column + 1} {mutant['function']}: {change}"


def run(only, jobs):
    WORK.mkdir(parents=True, exist_ok=True)
    by_file = mutants()
    programs, without, unplaced = compile_all(by_file)
    all_of = {m["number"]: key(file, m) for file, of in by_file.items() for m in of}
    print(f"{len(all_of)} mutants; {len(without)} do not compile, {len(unplaced)} are not placed", flush=True)
    (WORK / "left-out.json").write_text(json.dumps({
        "all": len(all_of),
        "not compiled": sorted(all_of[n] for n in without),
        "not placed": sorted(all_of[n] for n in unplaced),
    }, indent=1))
    limit = limits(programs)
    can_run = {
        name: n for n, name in all_of.items()
        if n not in without and n not in set(unplaced) and (not only or only in name)
    }
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for tests, is_last in [(FAST, False), (SLOW, True)]:
            done = recorded()
            todo = {
                name: n for name, n in can_run.items()
                if name not in done or not done[name]["caught"] and is_last and not done[name]["slow"]
            }
            run_all(pool, todo, programs, limit, tests, is_last)
    show()


def run_all(pool, todo, programs, limit, tests, is_last):
    """Runs these tests for these mutants, and records the results."""
    began = time.monotonic()
    running = {pool.submit(run_one, n, programs, limit, tests): name for name, n in todo.items()}
    with open(results(), "a") as out:
        for count, future in enumerate(concurrent.futures.as_completed(running), 1):
            name, caught = running[future], future.result()
            out.write(json.dumps({"key": name, "caught": caught, "slow": is_last}) + "\n")
            out.flush()
            if not caught:
                print(f"survives{'' if is_last else ' the fast tests'}: {name}", flush=True)
            if count % 50 == 0:
                print(f"{count} of {len(todo)} in {time.monotonic() - began:.0f} s", flush=True)


def show():
    done = recorded()
    by = defaultdict(int)
    for result in done.values():
        by[result["caught"] or "survived"] += 1
    for name, count in sorted(by.items(), key=lambda item: -item[1]):
        print(f"{count:5} {name}")
    survivors = sorted(r["key"] for r in done.values() if not r["caught"])
    (WORK / "survivors").write_text("\n".join(survivors) + "\n")
    print("\n".join(survivors))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "show"])
    parser.add_argument("--only", help="only mutants whose description contains this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many run at the same time")
    arguments = parser.parse_args()
    if arguments.command == "run":
        run(arguments.only, arguments.jobs)
    else:
        show()


if __name__ == "__main__":
    main()
