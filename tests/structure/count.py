#!/usr/bin/env python3
"""Counts the structure of `src`: size, visibility, documentation, import cycles, and how far call paths wander.

    tests/structure/count.py [CHECKOUT]

Code of tests (`#[cfg(test)]` items, files named `tests.rs`, folders named `tests`) is left out. All counts come from the text of the files, by
rules that stand beside each of them, so that two commits can be compared; none of them is exact in the sense of the compiler.
"""

import re
import sys
from pathlib import Path

from source import is_test, without_tests

ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
SRC = ROOT / "src"

# From top to bottom; a call from a later layer to an earlier one climbs. Names of before and after the redesign stand side by side.
LAYERS = [
    ["main", "cli", "exit", "commands"],
    ["run", "runner"],
    ["report", "import"],
    ["judge", "analysis"],
    ["engine", "load", "loadgen", "telemetry", "progress"],
    ["results"],
    ["sim"],
    ["matrix", "config", "plan"],
    ["base"],
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
# What the commands call first: from arguments to a summary.
PATHS = {
    "run": ["commands/run.rs", "execute"],
    "bench": ["commands/bench/mod.rs", "execute"],
    "nightly": ["commands/nightly/mod.rs", "execute"],
}


def code(text):
    """Without comments and the contents of strings and characters."""
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r"'(\\.|[^'\\])'", "''", text)
    text = re.sub(r'r#*"(.|\n)*?"#*', '""', text)
    return re.sub(r'"(\\.|[^"\\])*"', '""', text)


FILES = {}
for path in sorted(SRC.rglob("*.rs")):
    inside = path.relative_to(SRC)
    if not is_test(inside):
        FILES[str(inside)] = without_tests(path.read_text())
CODE = {name: code(text) for name, text in FILES.items()}


def module(file):
    """The path of the module that a file holds, such as `analysis::metrics`."""
    parts = file[: -len(".rs")].split("/")
    if parts[-1] in ("mod", "lib", "main"):
        parts = parts[:-1]
    return "::".join(parts)


MODULES = {module(file): file for file in FILES}


def resolve(path):
    """The file of the longest beginning of a path that is a module."""
    parts = path.split("::")
    while parts:
        file = MODULES.get("::".join(parts))
        if file:
            return file
        parts.pop()
    return None


def flatten(tree):
    """The paths of a `use` with braces."""
    tree = tree.strip()
    brace = tree.find("{")
    if brace < 0:
        return [tree]
    head, inner, depth, parts, last = tree[:brace], tree[brace + 1 : tree.rfind("}")], 0, [], 0
    for at, char in enumerate(inner):
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            parts.append(inner[last:at])
            last = at + 1
    parts.append(inner[last:])
    return [head + path for part in parts if part.strip() for path in flatten(part)]


def absolute(path, here):
    """A path from `crate`, `self` or `super` on as a module's path; `None` for others."""
    parts = path.strip().split("::")
    if parts[0] == "crate":
        return "::".join(parts[1:])
    if parts[0] not in ("self", "super"):
        return None
    at = here.split("::") if here else []
    while parts and parts[0] in ("self", "super"):
        if parts[0] == "super":
            at = at[:-1]
        parts = parts[1:]
    return "::".join(at + parts)


USES = {}  # file -> name in it -> (file it comes from, name there)
for file, text in CODE.items():
    names = {}
    for tree in re.findall(r"\buse\s+([^;]+);", text):
        for path in flatten(re.sub(r"\s+", " ", tree)):
            path, _, alias = path.partition(" as ")
            where = absolute(path, module(file))
            if where is None:
                # A child module of this file.
                where = f"{module(file)}::{path.strip()}".strip(":")
                if resolve(where) in (None, file):
                    continue
            target = resolve(where)
            if target:
                last = path.strip().split("::")[-1]
                if last == "self":
                    last = path.strip().split("::")[-2]
                names[(alias or last).strip()] = (target, last)
    USES[file] = names


def imports(file):
    """Files that a file names, by `use` and by paths from `crate`, `self` and `super`."""
    found = {target for target, _ in USES[file].values()}
    for path in re.findall(r"\b((?:crate|self|super)(?:::\w+)+)", CODE[file]):
        where = absolute(path, module(file))
        target = where and resolve(where)
        if target:
            found.add(target)
    return found - {file}


def cycles(inside):
    """Groups of files of one top-level module that import one another in a circle (strongly connected, by Tarjan)."""
    files = [file for file in FILES if file.split("/")[0].removesuffix(".rs") == inside]
    graph = {file: sorted(other for other in IMPORTS[file] if other in files) for file in files}
    index, low, stack, found = {}, {}, [], []

    def visit(file):
        index[file] = low[file] = len(index)
        stack.append(file)
        for other in graph[file]:
            if other not in index:
                visit(other)
                low[file] = min(low[file], low[other])
            elif other in stack:
                low[file] = min(low[file], index[other])
        if low[file] == index[file]:
            group = []
            while True:
                group.append(stack.pop())
                if group[-1] == file:
                    break
            if len(group) > 1:
                found.append(sorted(group))

    sys.setrecursionlimit(10_000)
    for file in files:
        if file not in index:
            visit(file)
    return found


def functions(file):
    """Names of functions with the lines that each takes and its body."""
    lines = FILES[file].split("\n")
    bare = code(FILES[file]).split("\n") if len(code(FILES[file]).split("\n")) == len(lines) else lines
    found = []
    for at, line in enumerate(lines):
        match = re.match(r"\s*(?:pub(?:\([^)]*\))?\s+)?(?:const\s+)?(?:async\s+)?(?:unsafe\s+)?fn\s+(\w+)", line)
        if not match:
            continue
        depth, begun = 0, False
        for end in range(at, len(lines)):
            depth += bare[end].count("{") - bare[end].count("}")
            begun = begun or "{" in bare[end]
            if begun and depth <= 0:
                found.append((match.group(1), end - at + 1, "\n".join(bare[at : end + 1])))
                break
            if not begun and bare[end].rstrip().endswith(";"):
                break
    return found


FUNCTIONS = {file: functions(file) for file in FILES}
BY_NAME = {}
for file, found in FUNCTIONS.items():
    for name, _, body in found:
        BY_NAME.setdefault((file, name), body)


IMPORTS = {file: imports(file) for file in FILES}
# Where each name is defined, for methods.
HOMES = {}
for file, name in BY_NAME:
    HOMES.setdefault(name, set()).add(file)


def calls(file, body):
    """Functions that a body calls: by a name that its file imports, by a path, or as a method that one of the files it names defines."""
    for name in re.findall(r"\.(\w+)(?:::<[^>]*>)?\(", body):
        homes = HOMES.get(name, set()) & IMPORTS[file]
        if (file, name) in BY_NAME:
            yield file, name
        elif len(homes) == 1:
            yield next(iter(homes)), name
    for match in re.finditer(r"((?:\w+::)*\w+)(?:::<[^>]*>)?\s*\(", body):
        parts = match.group(1).split("::")
        name = parts[-1]
        if len(parts) == 1:
            if (file, name) in BY_NAME:
                yield file, name
            elif name in USES[file]:
                yield USES[file][name][0], USES[file][name][1]
        else:
            head = parts[0]
            if head == "Self":
                yield file, name
            elif head in USES[file]:
                target, last = USES[file][head]
                where = resolve("::".join([module(target), *parts[1:-1]])) if target else None
                yield (where if where and len(parts) > 2 else target), name
            elif head in ("crate", "self", "super"):
                target = resolve(absolute("::".join(parts[:-1]), module(file)) or "")
                if target:
                    yield target, name
            else:
                # A child module of this file.
                target = resolve("::".join([module(file), *parts[:-1]]).strip(":"))
                if target and target != file:
                    yield target, name


def walk(file, name):
    """From a function on along its calls: the files entered, and the calls that climb to a higher layer or out of a folder."""
    entered, climbs, seen, todo = set(), set(), set(), [(file, name)]
    while todo:
        here, name = todo.pop()
        if (here, name) in seen or (here, name) not in BY_NAME:
            continue
        seen.add((here, name))
        entered.add(here)
        for there, callee in calls(here, BY_NAME[(here, name)]):
            if there is None or (there, callee) not in BY_NAME:
                continue
            rank = lambda file: RANK.get(file.split("/")[0].removesuffix(".rs"), 0)
            is_parent = module(here).startswith(module(there) + "::")
            if rank(there) < rank(here) or (rank(there) == rank(here) and is_parent and there != here):
                climbs.add((here, there))
            todo.append((there, callee))
    return entered, climbs


total = sum(len(text.rstrip("\n").split("\n")) for text in FILES.values())
long_files = sorted(((len(t.rstrip("\n").split("\n")), f) for f, t in FILES.items()), reverse=True)
long_files = [(lines, file) for lines, file in long_files if lines > 400]
long_functions = sorted(((n, f, name) for f, found in FUNCTIONS.items() for name, n, _ in found if n > 80), reverse=True)
# Items of modules; fields and methods too, since `missing_docs` asks for words on each.
ITEM = r"^\s*pub\s+(?:const\s+|async\s+|unsafe\s+|static\s+)*(?:fn|struct|enum|trait|type|mod|const|static|use)\b"
public = sum(len(re.findall(ITEM, text, re.M)) for text in FILES.values())
fields = sum(len(re.findall(r"^\s*pub\s+\w+\s*:", text, re.M)) for text in FILES.values())
short = 0
for text in FILES.values():
    for block in re.findall(r"(?:^\s*///[^\n]*\n)+", text, re.M):
        words = re.sub(r"^\s*///", "", block, flags=re.M).split()
        short += len(words) <= 3

print(f"files without tests: {len(FILES)}")
print(f"lines without tests: {total}")
print(f"files over 400 lines: {len(long_files)}")
for lines, file in long_files:
    print(f"  {lines} {file}")
print(f"functions over 80 lines: {len(long_functions)}")
for lines, file, name in long_functions:
    print(f"  {lines} {file} {name}")
print(f"pub items: {public}; pub fields: {fields}")
print(f"documentation of three words or fewer: {short}")
for top in sorted({file.split("/")[0].removesuffix(".rs") for file in FILES}):
    for group in cycles(top):
        print(f"import cycle in {top}: {len(group)} files: {' '.join(group)}")
for path, (file, name) in PATHS.items():
    if file in FILES:
        entered, climbs = walk(file, name)
        print(f"call path of {path}: {len(entered)} files entered, {len(climbs)} calls that climb")
        for here, there in sorted(climbs):
            print(f"  {here} -> {there}")
