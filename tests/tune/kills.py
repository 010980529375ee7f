"""Kills `matrix tune` at random moments and continues it, until it ends; called by tests/tune.sh.

    kills.py MATRIX_BINARY DATA_FOLDER KILLS SEED
"""

import json
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TEXT = """name: t
engines: [{ sim: { variant: vllm, args: [--preset, fast, --step, 10ms] } }]
models: [{ m: { tokenizer: data/tokenizer.json } }]
scenarios: [{ l: { dataset: random-ids, prompts: 48, input_len: 40, output_len: 12, concurrency: 8 } }]
validity: { window: 100ms, send_lag: 10s, client_cpu: 1.0, max_cache_hits: 0.2 }
tune: { budget: 18 starts, space: { --step: [10ms, 2ms, 14ms], --seed: [1, 2, 3] } }
"""


def command(binary, resume):
    return [binary, "tune", "matrices/m.yaml", "--no-calibration"] + (["--resume"] if resume else [])


def folder_with(data):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="matrix-kills."))
    (folder / "matrices/data").mkdir(parents=True)
    (folder / "matrices/m.yaml").write_text(TEXT)
    shutil.copy(f"{data}/tokenizer.json", folder / "matrices/data")
    return folder


def records(folder):
    return [json.loads(path.read_text()) for path in folder.glob("results/*/tune.json")]


def ended(folder):
    found = []
    for journal in folder.glob("results/*/journal.jsonl"):
        for line in journal.read_text().splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if "cell-ended" in line:
                found.append((journal.parent.name, json.dumps(event.get("measurement"), sort_keys=True)))
    return found


def left_running(folder):
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cwd").resolve() == folder or str(folder) in (entry / "cmdline").read_text():
                found.append(entry.name)
        except OSError:
            pass
    return found


def main():
    binary, data, kills, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    draws = random.Random(seed)
    whole = folder_with(data)
    done = subprocess.run(command(binary, False), cwd=whole, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kind = records(whole)[0]["result"]["kind"]
    folder = folder_with(data)
    struck = 0
    code = None
    for _ in range(kills * 4):
        child = subprocess.Popen(command(binary, bool(records(folder))), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if struck < kills:
            try:
                child.wait(timeout=draws.uniform(0.2, 6.0))
            except subprocess.TimeoutExpired:
                child.send_signal(signal.SIGKILL)
                struck += 1
        _, stderr = child.communicate()
        if child.returncode >= 0:
            code = child.returncode
            if struck >= kills or code not in (0, 130):
                break
            # It ended before all kills: another search, which is killed as well.
            shutil.rmtree(folder / "results", ignore_errors=True)
            code = None
    assert code == 0, f"exit code {code}: {stderr}"
    record = records(folder)[0]
    measured = ended(folder)
    twice = {entry for entry in measured if measured.count(entry) > 1}
    assert not twice, f"measured twice: {twice}"
    assert record["result"]["kind"] == kind, f"{record['result']['kind']} instead of {kind}"
    time.sleep(1)
    assert not left_running(folder), "processes are left"
    print(f"{struck} kills, seed {seed}: {kind} as without kills, {len(measured)} measurements, none twice, nothing left running")
    shutil.rmtree(whole)
    shutil.rmtree(folder)


main()
