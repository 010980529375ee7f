"""Draws messages of the program at random, for a reader who says which of them need a second reading.

    python3 tests/messages.py [SEED [COUNT]]     default: seed 1, 50 messages

A message is what users read as one text: a text literal of the sources, outside of tests, with five words or more, that stands where an
error, a note, a finding or a line of output is made; or the help of an option or a command. A text that code joins to others is a part of
a message. Users never read it alone, so it is not drawn. `{name}` stands for a value.
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
# What stands before a text that is a message as it is.
MAKES_A_MESSAGE = re.compile(
    r"""(?:
        (?:error|usage|malformed|bad_request|host_not_ready|cannot_continue|external|with_help|with_note|warn!|error!|eprintln!|println!)\s*\(
      | (?:Err|Diagnostic::new|UnmetRequirement::new|UrlFault::new|Error::custom|Error::other|Notice::\w+)\s*\(
      | (?:notes|errors|warnings|remarks|lines)\.push\s*\(
      | print_line\s*\(
      | \b(?:meaning|fix|help|message|problem|what)\s*:
      | \.(?:context|with_context|map_err|ok_or|ok_or_else)\s*\((?:\s*\|[^|]*\|)?
    )\s*(?:Some\s*\()?\s*(?:&?\s*format!\s*\(\s*)?$""",
    re.VERBOSE,
)
HELP = re.compile(r"((?:^[ ]+///[^\n]*\n)+)((?:[ ]+#\[[^\]]*\]\n)*)[ ]+(?:pub(?:\([a-z]+\))? )?(?:([a-z_]+): |([A-Z]\w*)[,({ ])", re.MULTILINE)


def words(text):
    return [word for word in re.sub(r"\{[^}]*\}", "", text).split() if re.search(r"[A-Za-z]{2}", word)]


def literals(source):
    code = LINT.sub("", ASSERTION.sub("", source.split("#[cfg(test)]\nmod tests {")[0]))
    for found in LITERAL.finditer(code):
        if found.group(2) and MAKES_A_MESSAGE.search(code[max(0, found.start() - 200) : found.start()]):
            text = re.sub(r"\\\n\s*", "", found.group(2))
            text = re.sub(r"\\(.)", lambda escape: {"n": "\n"}.get(escape[1], escape[1]), text).replace("{{", "{").replace("}}", "}").strip()
            # The rest is what other programs print: their logs, the tables of the Python tool, HTML.
            if len(words(text)) >= 5 and not text.startswith(("<", "===", "#", "ERROR", "INFO")):
                yield text


def helps(file):
    source, command_of = file.read_text(), next((name for name in ("bench", "sim") if name in (file.stem, file.parent.name)), "...")
    for block, attributes, option, command in HELP.findall(source):
        text = " ".join(line.strip().removeprefix("///").strip() for line in block.strip().splitlines())
        name = option.replace("_", "-") or re.sub(r"(?<=[a-z])(?=[A-Z])", "-", command).lower()
        if len(words(text)) >= 5 and not re.search(r"hide = true|flatten", attributes):
            yield f"in `matrix {command_of} --help`, `{name}`: {text}"


def main():
    seed, count = (int(word) for word in (sys.argv[1:] + ["1", "50"][len(sys.argv) - 1 :])[:2])
    files = [file for file in sorted(ROOT.rglob("*.rs")) if file.stem not in ("tests", "testing", "golden", "montecarlo", "console") and "/tests/" not in str(file)]
    found = {text for file in files for text in literals(file.read_text())}
    found |= {text for file in files if file.is_relative_to(ROOT / "cli") or file.name == "cli.rs" for text in helps(file)}
    print(f"seed {seed}, {count} of {len(found)} messages")
    for number, text in enumerate(random.Random(seed).sample(sorted(found), count), 1):
        print(f"{number:3}. {text}")


if __name__ == "__main__":
    main()
