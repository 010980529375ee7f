#!/usr/bin/env bash
# Reads the metrics of a run (`matrix run --metrics-listen`) with the parser of Prometheus' own Python client, from PyPI.
#
#     tests/prometheus.sh
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'kill "${run:-}" 2>/dev/null || true; rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check 'prometheus-client==0.23.1'
cargo build --quiet
port=$("$work/venv/bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
# Long enough for several reports of the running load, which come once a second.
cat >"$work/watched.yaml" <<'YAML'
engines: [sim]
models: [{ m: { tokenizer: built-in } }]
scenarios: [{ a: { dataset: random-ids, input_len: 64, output_len: 64, concurrency: [2, 4], duration: 5s } }]
YAML
target/debug/matrix run "$work/watched.yaml" --no-calibration --results "$work/results" \
  --metrics-listen "127.0.0.1:$port" >/dev/null 2>"$work/log" &
run=$!
"$work/venv/bin/python" - "$port" "$work/results" <<'PYTHON'
import json, pathlib, sys, time, urllib.request
from prometheus_client.parser import text_string_to_metric_families

port, results = sys.argv[1:]
pages, seen, outputs = 0, set(), {}
deadline = time.monotonic() + 180
while time.monotonic() < deadline:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            page = answer.read().decode()
    except OSError:
        if pages:
            break
        time.sleep(0.2)
        continue
    pages += 1
    for family in text_string_to_metric_families(page):
        seen.add(family.name)
        assert family.documentation and family.type in ("gauge", "counter"), family
        for sample in family.samples:
            if sample.name == "matrix_result_output_tokens_per_second":
                outputs[sample.labels["cell"]] = sample.value
    time.sleep(0.3)
wanted = {"matrix_run_info", "matrix_measurements", "matrix_cell_requests_in_flight", "matrix_cell_mean_ttft_seconds",
          "matrix_cell_output_tokens_per_second", "matrix_engine_ready_seconds", "matrix_result_output_tokens_per_second"}
assert wanted <= seen, wanted - seen
# The values are those of the run's own journal.
(run,) = pathlib.Path(results).glob("watched-*")
events = map(json.loads, (run / "journal.jsonl").read_text().splitlines())
own = {e["measurement"]["cell"]: e["output_tokens_per_s"] for e in events if e["event"] == "cell-ended"}
for cell, value in outputs.items():
    assert abs(own[cell] - value) < 1e-9 * value, (cell, own[cell], value)
print(f"{pages} pages, {len(seen)} metrics, {len(outputs)} results as in the journal")
PYTHON
wait "$run" || [ $? = 3 ]
