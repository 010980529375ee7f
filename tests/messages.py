"""Draws messages of the program at random, for a reader who says which of them need a second reading.

    python3 tests/messages.py [SEED [COUNT]]     default: seed 1, 50 messages

A message is a text literal of the sources, outside of tests, with five words or more.
"""

import pathlib
import random
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent / "src"
# The text of an assertion is for developers.
ASSERTION = re.compile(r"""\.(?:expect|expect_err)\(\s*"(?:[^"\\]|\\.)*"\s*,?\s*\)""", re.DOTALL)
# Why a lint does not apply is for developers, too.
LINT = re.compile(r"""reason = "(?:[^"\\]|\\.)*"\s*\)\]""", re.DOTALL)
LITERAL = re.compile(r"""r(#*)".*?"\1|b?'(?:\\.|[^'\\])'|"((?:[^"\\]|\\.)*)"|//[^\n]*""", re.DOTALL)


def texts(source):
    code = LINT.sub("", ASSERTION.sub("", source.split("#[cfg(test)]\nmod tests {")[0]))
    for _, literal in LITERAL.findall(code):
        text = re.sub(r"\\\n\s*", "", literal).replace("\\n", "\n").replace('\\"', '"').strip()
        words = [word for word in text.split() if re.search(r"[A-Za-z]{2}", word)]
        if len(words) >= 5 and not text.startswith(("<", "===")):
            yield text


def main():
    seed, count = (int(word) for word in (sys.argv[1:] + ["1", "50"][len(sys.argv) - 1 :])[:2])
    files = [file for file in sorted(ROOT.rglob("*.rs")) if file.stem not in ("tests", "testing", "golden") and "/tests/" not in str(file)]
    found = sorted({text for file in files for text in texts(file.read_text())})
    print(f"seed {seed}, {count} of {len(found)} messages")
    for number, text in enumerate(random.Random(seed).sample(found, count), 1):
        print(f"{number:3}. {text}")


if __name__ == "__main__":
    main()
