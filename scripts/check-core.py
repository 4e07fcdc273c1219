#!/usr/bin/env python3
"""Checks the shape of the core: small files, small machines, and no two files that call each other in a circle.

    check-core.py SOURCE        such as crates/pleg-core/src

A call is resolved by the name of the method or function if one file alone defines it, and otherwise by the type in
front of it: `Type::name(`, or `self.field.name(` with the type of that field.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

MOST_LINES = 500
MOST_FIELDS = 12
MOST_MACHINES = 16
# Collections and std traits have methods with these names, so the script ignores calls of methods with these names.
COMMON = set(
    "as_ref as_str borrow clear cmp contains eq first fmt from get get_mut hash insert into is_empty iter len new next"
    " push pop remove take".split()
)


def code(path):
    """The source without tests, comments and strings."""
    text = path.read_text().split("#[cfg(test)]")[0]
    text = re.sub(r"//.*", "", text)
    return re.sub(r'"(\\.|[^"\\])*"', '""', text)


def structs(text):
    """The fields of each struct, with their types."""
    for name, body in re.findall(r"struct (\w+)(?:<[^>]*>)? \{(.*?)\n\}", text, re.S):
        yield name, re.findall(r"^\s*(?:pub(?:\(crate\))? )?(\w+): (.+?),?$", body, re.M)


def calls(texts, fields):
    """The files that each file calls."""
    defined = defaultdict(set)
    of_type = {}
    for path, text in texts.items():
        owner = None
        for line in text.splitlines():
            if header := re.match(r"impl(?:<.*?>)? (?:\w+(?:<.*?>)? for )?(\w+)", line):
                owner = header[1]
            elif line == "}":
                owner = None
            if method := re.match(r"\s*(?:pub(?:\(crate\))? )?(?:const )?fn (\w+)", line):
                defined[method[1]].add(path)
                of_type[owner, method[1]] = path
    edges = defaultdict(set)
    for path, text in texts.items():
        for before, name in re.findall(r"((?:self\.)?\w+(?:\.|::))?\b(\w+)\(", text):
            if len(defined[name]) == 1 and name not in COMMON:
                edges[path] |= defined[name]
                continue
            owner = before.removesuffix("::").removesuffix(".").removeprefix("self.")
            owner = fields.get(owner, owner)
            edges[path] |= {of_type[owner, name]} if (owner, name) in of_type else set()
        edges[path].discard(path)
    return edges


def circle(edges):
    """Files that call each other in a circle, if any do."""
    done, way = set(), []

    def visit(path):
        if path in way:
            return way[way.index(path):]
        if path in done:
            return None
        way.append(path)
        for called in sorted(edges[path]):
            if found := visit(called):
                return found
        way.pop()
        done.add(path)
        return None

    return next((found for path in list(edges) if (found := visit(path))), None)


def main():
    root = Path(sys.argv[1])
    errors, fields = [], {}
    texts = {path: code(path) for path in sorted(root.rglob("*.rs"))}
    for path, text in texts.items():
        lines = len(path.read_text().splitlines())
        if lines > MOST_LINES:
            errors.append(f"{path} has {lines} lines; at most {MOST_LINES}")
        for name, members in structs(text):
            most = MOST_MACHINES if name == "Reconciler" else MOST_FIELDS
            # Public structs, such as published data and settings, may have more fields.
            is_data = f"pub struct {name} " in text and name != "Reconciler"
            if len(members) > most and not is_data:
                errors.append(f"{path}: {name} has {len(members)} fields; at most {most}")
            fields |= {field: kind for field, kind in members if name == "Reconciler"}
    if found := circle(calls(texts, fields)):
        names = " -> ".join(str(path.relative_to(root)) for path in [*found, found[0]])
        errors.append(f"files call each other in a circle: {names}")
    for error in errors:
        print(f"check-core: {error}", file=sys.stderr)
    sys.exit(bool(errors))


if __name__ == "__main__":
    main()
