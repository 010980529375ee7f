#!/usr/bin/env python3
"""Draws names, comments and messages of `src` for readers to explain.

    tests/structure/draw.py SEED [COUNT] [CHECKOUT]

Names are those of types, traits, functions, constants, fields and variants. Comments are whole blocks. Messages are strings of three words or more
and the documentation that `--help` and the schemas print. Code of tests is left out. The same seed and commit draw the same lines.
"""

import random
import re
import sys
from pathlib import Path

from source import is_test, without_tests

SEED = int(sys.argv[1])
COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 20
SRC = Path(sys.argv[3] if len(sys.argv) > 3 else ".").resolve() / "src"
DEFINITION = re.compile(r"^\s*(?:pub(?:\([a-z]+\))? )?(?:const |async |unsafe )*(struct|enum|trait|fn|const|static|type) (\w+)", re.M)
FIELD = re.compile(r"^    (?:pub(?:\([a-z]+\))? )?([a-z]\w+): [A-Z&\[(]\S*", re.M)
STRING = re.compile(r"""//[^\n]*|'(?:\\.|[^\\'\n])'|r(#*)"(?s:.*?)"\1|"((?:\\.|[^"\\])*)\"""", re.S)
# Strings that no user reads: patterns, headers of HTTP, HTML, templates of requests.
UNREAD = re.compile(r"[<>]|\\n|^[^a-zA-Z]*$|HTTP/1|::|expect\(|\(\?")
PRINTED = re.compile(r"derive\([^)]*(?:Args|Parser|Subcommand|ValueEnum|JsonSchema)")


def blocks(text):
    """Comment blocks with their first line number, and whether `--help` or a schema prints them."""
    block, begun, item = [], 0, ""
    for at, line in enumerate(text.split("\n"), 1):
        bare = line.strip()
        if bare.startswith("//"):
            begun = begun or at
            block.append(re.sub(r"^//[/!]? ?", "", bare))
        else:
            if block:
                yield begun, " ".join(block), item
            block, begun = [], 0
            if re.match(r"#\[derive", bare):
                item = bare
            elif re.match(r"(?:pub(?:\([a-z]+\))? )?(?:fn|impl|trait|const|static|mod)\b", bare):
                item = ""


names, comments, messages = [], [], []
for path in sorted(SRC.rglob("*.rs")):
    if is_test(path) or path.name in ("testing.rs", "test_server.rs"):
        continue
    text, place = without_tests(path.read_text()), path.relative_to(SRC.parent)
    for found in DEFINITION.finditer(text):
        names.append(f"{place}: {found[1]} {found[2]}")
    for found in FIELD.finditer(text):
        names.append(f"{place}: field {found[0].strip()}")
    for _, block, item in blocks(text):
        target = messages if PRINTED.search(item) else comments
        target.append(f"{place}: {block}")
    for found in STRING.finditer(text):
        string = re.sub(r"\\\n\s*", "", found[2] or "")
        is_unread = UNREAD.search(string) or "expect(" in text[max(0, found.start() - 12) : found.start()]
        if len(re.findall(r"[A-Za-z]{2,}", string)) >= 3 and " " in string.strip() and not is_unread:
            messages.append(f"{place}: {string}")

draws = random.Random(SEED)
for title, lines in (("names", names), ("comments", comments), ("messages", messages)):
    print(f"== {COUNT} of {len(lines)} {title}, seed {SEED}")
    for at, line in enumerate(draws.sample(lines, COUNT), 1):
        print(f"{at}. {line}")
