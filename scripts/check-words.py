#!/usr/bin/env python3
"""Checks sentences and names in all committed files by those rules of CONTRIBUTING.md that a script can check.

- A comment or page has none of PHRASES.
- The doc comment of a function begins with a verb or a noun, not with Whether, What, How or When.
- The name of a test has at most ten words.
- No identifier has a word of NAMES.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PHRASES = [
    "the begin", "also if", "also when", "is to be", "are to be", "ever more", "whatever it", "of which", "so long",
]  # fmt: skip
PHRASE = re.compile(r"\b(" + "|".join(PHRASES) + r")\b|, too\.", re.IGNORECASE)
NAMES = {"held", "disputed", "told", "said", "kept", "asked", "silence", "trust", "standin", "news"}
COMMENT = re.compile(r"^\s*(?:///?!?|#(?!\[|!\[))(.*)|\s//\s(.*)")
# Comments, strings and characters of Rust.
TEXT = re.compile(r"""//[^\n]*|\bb?r(#*)".*?"\1|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)'""", re.DOTALL)
FUNCTION = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?(?:const )?(?:async )?fn (\w+)")
LONGEST_NAME = 10


def problems(path: str, text: str):
    lines = text.split("\n")
    page = path.endswith(".md")
    docs, is_test = [], False
    for number, line in enumerate(lines, 1):
        comment = COMMENT.search(line)
        sentence = line if page else next((part for part in comment.groups() if part), "") if comment else ""
        if found := PHRASE.search(sentence):
            yield number, f"the phrase “{found[0]}”"
        if not path.endswith(".rs"):
            continue
        code = line.strip()
        if code.startswith("///"):
            docs.append((number, code[3:].strip()))
        elif code.startswith("#["):
            is_test |= "test]" in code or "test(" in code
        else:
            if function := FUNCTION.match(line):
                if docs and re.match(r"(Whether|What|How|When)\b", docs[0][1]):
                    yield docs[0][0], f"the doc comment of {function[1]} begins with {docs[0][1].split()[0]}"
                if is_test and len(function[1].split("_")) > LONGEST_NAME:
                    yield number, f"the name of the test {function[1]} has more than ten words"
            docs, is_test = [], False
    code = TEXT.sub(lambda text: "\n" * text[0].count("\n"), text) if path.endswith(".rs") else ""
    for number, line in enumerate(code.split("\n"), 1):
        for name in re.findall(r"[A-Za-z_]\w*", line):
            words = set(re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower().split("_"))
            if bad := words & NAMES:
                yield number, f"the name {name} has the word “{bad.pop()}”"


def main():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found = 0
    for path in listed.splitlines():
        if path.endswith((".rs", ".md", ".py", ".sh", ".toml", ".yaml", "Justfile", ".proto")) and "/generated/" not in path and path != "scripts/check-words.py":
            for number, problem in problems(path, (ROOT / path).read_text()):
                print(f"{path}:{number}: {problem}")
                found += 1
    sys.exit(f"check-words: {found} problems" if found else 0)


if __name__ == "__main__":
    main()
