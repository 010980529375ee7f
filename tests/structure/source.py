"""The code of `src` without its tests."""

import re


def without_tests(text):
    """Drops items under `#[cfg(test)]`: up to the brace that closes them, or to the semicolon."""
    out, lines, at = [], text.split("\n"), 0
    while at < len(lines):
        if re.match(r"\s*#\[cfg\(test\)\]", lines[at]):
            at += 1
            depth, begun = 0, False
            while at < len(lines):
                line = re.sub(r'"(\\.|[^"\\])*"', '""', lines[at])
                depth += line.count("{") - line.count("}")
                begun = begun or "{" in line
                at += 1
                if (begun and depth <= 0) or (not begun and line.rstrip().endswith(";")):
                    break
            continue
        out.append(lines[at])
        at += 1
    return "\n".join(out)


def is_test(path):
    return path.name == "tests.rs" or "tests" in path.parts or path.stem.startswith("golden") or path.stem == "shipped"
