#!/usr/bin/env python3
"""Draws names, comments and messages of `src` for readers to explain.

    tests/structure/draw.py SEED [COUNT] [CHECKOUT]

Names are those of types, traits, functions, constants and fields, with the item they belong to. Comments are whole blocks, with the line of code
below. Messages are strings of three words or more and the documentation that `--help` and the schemas print. Code of tests is left out. The same
seed and commit draw the same lines.
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
    """Comment blocks, the line of code below each, and the attribute that says whether `--help` or a schema prints it."""
    block, item, is_head = [], "", False
    for line in text.split("\n"):
        bare = line.strip()
        if bare.startswith("//"):
            is_head = bare.startswith("//!")
            block.append(re.sub(r"^//[/!]? ?", "", bare))
        elif block and bare.startswith("#["):
            item = bare if bare.startswith("#[derive") else item
        else:
            if block:
                yield " ".join(block), "" if is_head else bare, item
            block = []
            if re.match(r"#\[derive", bare):
                item = bare
            elif re.match(r"(?:pub(?:\([a-z]+\))? )?(?:fn|impl|trait|const|static|mod)\b", bare):
                item = ""


names, comments, messages = [], [], []
for path in sorted(SRC.rglob("*.rs")):
    if is_test(path) or path.name in ("testing.rs", "test_server.rs"):
        continue
    text, place = without_tests(path.read_text()), path.relative_to(SRC.parent)
    owner = ""
    for line in text.split("\n"):
        begun = re.match(r"(?:pub(?:\([a-z]+\))? )?(?:unsafe )?(?:impl\b.*?|(?:struct|enum|trait) \w+[^{;]*)(?= \{)", line)
        owner = f", in `{begun[0].strip()}`" if begun else "" if line.startswith("}") else owner
        if DEFINITION.match(line) or FIELD.match(line):
            names.append(f"{place}: `{line.strip().rstrip(' {,')}`{'' if begun else owner}")
    for block, below, item in blocks(text):
        if PRINTED.search(item):
            messages.append(f"{place}: {block}")
        else:
            comments.append(f"{place}: {block}" + (f"  [above `{below}`]" if below else ""))
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
