"""Runs the real `vllm bench serve` for many command lines in one process, because importing it takes long.

Reads a JSON list from stdin: of each case the arguments, and a folder. Writes what the tool prints into
FOLDER/stdout, and the error of a case that fails into FOLDER/error. Between cases it posts to /next-case of the recording server,
whose port is the first argument, so that requests can be distinguished.
"""

import contextlib
import io
import json
import os
import sys
import urllib.request

from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser


def parser():
    made = FlexibleArgumentParser(prog="vllm bench serve")
    add_cli_args(made)
    return made


def run(arguments, folder):
    os.chdir(folder)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            main(parser().parse_args(arguments))
    except (Exception, SystemExit) as error:
        with open(os.path.join(folder, "error"), "w") as file:
            file.write(f"{type(error).__name__}: {error}")
    with open(os.path.join(folder, "stdout"), "w") as file:
        file.write(printed.getvalue())


def make_strict(folder):
    """Replaces the bare word that Python writes for an infinite number, where JSON has none."""
    for place, _, names in os.walk(folder):
        for name in (name for name in names if name.endswith(".json")):
            path = os.path.join(place, name)
            with open(path) as file:
                text = file.read()
            with open(path, "w") as file:
                file.write(text.replace(": Infinity", ': "inf"'))


def flags():
    """Every flag, with whether it takes a value."""
    return [
        [option, action.nargs != 0]
        for action in parser()._actions
        for option in action.option_strings
        if option.startswith("--")
    ]


request = json.load(sys.stdin)
with open(request["flags"], "w") as file:
    json.dump(flags(), file)
for case in request["cases"]:
    run(case["arguments"], case["folder"])
    make_strict(case["folder"])
    urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/next-case", data=b"").read()
