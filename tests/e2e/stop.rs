//! Ctrl-C, once and twice; and terminals that go away.

use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use matrix::base::clock;
use matrix::results::record::cell::MeasurementStatus;

use crate::harness::{Bench, sims};

/// Long enough that a signal always finds it under way.
const LONG: &str = "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 4000, warmup: 0 }\n  - random-2k-6k: { prompts: 4, input_len: 16, output_len: 4 }\n";

fn begin(bench: &Bench) -> Child {
    begin_with(bench, Stdio::null())
}

fn begin_with(bench: &Bench, stdout: Stdio) -> Child {
    let child = bench
        .command(&["run", "matrices/m.yaml", "--no-calibration"])
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let began = clock::now();
    loop {
        let journal = std::fs::read_dir(bench.results())
            .ok()
            .and_then(|mut runs| runs.next())
            .and_then(Result::ok);
        let text = journal
            .and_then(|run| std::fs::read_to_string(run.path().join("journal.jsonl")).ok())
            .unwrap_or_default();
        if text.contains("cell-began") {
            break;
        }
        assert!(
            clock::now().since(began) < Duration::from_secs(30),
            "the first cell never began: {text}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    child
}

fn signal(child: &Child, signal: Signal) {
    let pid =
        Pid::from_raw(i32::try_from(child.id()).expect("process ids are small")).expect("a child has an id");
    kill_process(pid, signal).expect("the child lives");
}

#[test]
fn one_signal_saves_the_cell_and_stops_the_engine() {
    let bench =
        Bench::of(&sims(&[("a", "vllm", "--itl, 20ms, --ttft, 20ms")], LONG).replace("--preset, fast, ", ""));
    let child = begin_with(&bench, Stdio::piped());
    signal(&child, Signal::INT);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(
        output.status.code(),
        Some(130),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let run = bench.finished();
    assert_eq!(run.summaries.len(), 1);
    assert_eq!(run.summaries[0].status, MeasurementStatus::Interrupted);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("\n0 done, 1 interrupted, 1 not measured\n"),
        "{said}"
    );
    assert_eq!(
        run.read_requests(&run.plan.starts[0].cells[0])
            .expect("requests are kept")
            .len(),
        4
    );
    bench.leaves_no_process();
    bench.rewrite(
        &sims(
            &[("a", "vllm", "--itl, 1ms, --ttft, 1ms")],
            &LONG.replace("4000", "40"),
        )
        .replace("--preset, fast, ", ""),
    );
    // What was interrupted is not finished.
    bench
        .run(&["--resume"])
        .exits(0)
        .says(": t, 2 measurements")
        .shows("\n2 done\n");
    assert!(!bench.journal().contains("\"finished\":1"), "{}", bench.journal());
    assert_eq!(bench.finished().summaries.len(), 2);
}

/// The process id of the engine that the journal tells of.
fn engine(bench: &Bench) -> Pid {
    let journal = bench.journal();
    let (_, after) = journal
        .split_once("\"identity\":\"")
        .expect("an engine was started");
    let pid: String = after.chars().take_while(char::is_ascii_digit).collect();
    Pid::from_raw(pid.parse().expect("it is a number")).expect("it is a process id")
}

fn slow() -> String {
    sims(&[("a", "vllm", "--itl, 20ms, --ttft, 20ms")], LONG).replace("--preset, fast, ", "")
}

#[test]
fn an_engine_that_is_stopped_together_with_the_run_has_not_failed() {
    let bench = Bench::of(&slow());
    let child = begin(&bench);
    // As a service manager does it, in the order that is worse.
    kill_process(engine(&bench), Signal::TERM).expect("it lives");
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, Signal::TERM);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(
        output.status.code(),
        Some(130),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(
        bench.finished().summaries[0].status,
        MeasurementStatus::Interrupted
    );
    bench.leaves_no_process();
}

#[test]
fn a_hangup_that_was_ignored_from_the_start_stays_ignored() {
    let bench = Bench::of(&slow().replace("output_len: 4000", "output_len: 150"));
    let mut shell = bench.wrapped(
        &["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"],
        &["run", "matrices/m.yaml", "--no-calibration"],
    );
    let child = shell
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell runs");
    bench.until_journal("cell-began");
    signal(&child, Signal::HUP);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", bench.journal());
}

#[test]
fn a_signal_after_the_cells_ends_the_command() {
    use std::io::Write;
    let bench = Bench::of(&sims(
        &[("a", "vllm", "")],
        "  - random-ids: { dataset: random-ids, prompts: 2, input_len: 4, output_len: 2, warmup: 0 }\n",
    ));
    // Nobody reads its tables, so that it waits where nothing is measured any more.
    let (_reader, mut writer) = std::io::pipe().expect("there are pipes");
    rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::NONBLOCK).expect("a pipe has flags");
    while writer.write(&[b' '; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::empty()).expect("a pipe has flags");
    let mut command = bench.command(&["run", "matrices/m.yaml", "--no-calibration"]);
    let mut child = command
        .stdout(writer)
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    bench.until("report.md", || {
        bench.journal().contains("run-ended") && bench.run_folder().join("results.jsonl").exists()
    });
    std::thread::sleep(Duration::from_millis(700));
    signal(&child, Signal::TERM);
    let began = clock::now();
    while child.try_wait().expect("it can be asked").is_none() {
        if clock::now().since(began) > Duration::from_secs(10) {
            child.kill().expect("it can be killed");
            panic!("the signal was swallowed");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(child.wait().expect("it ended").code(), Some(130));
}

/// A server that answers like vLLM, but for the reset of its caches, which it never answers.
const HANGS_AT_RESET: &str = r#"
import http.server, json, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, kind, text):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
    def do_GET(self):
        answers = {"/health": {}, "/version": {"version": "1"}, "/v1/models": {"data": [{"id": "m"}]}}
        if self.path in answers:
            self.answer("application/json", json.dumps(answers[self.path]))
        else:
            self.send_error(404)
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        if "reset" in self.path:
            open(sys.argv[2], "w").close()
            time.sleep(600)
        token = {"id": "1", "object": "text_completion", "choices": [{"index": 0, "text": " a", "finish_reason": None}]}
        usage = {"id": "1", "choices": [], "usage": {"prompt_tokens": 16, "completion_tokens": 1, "total_tokens": 17}}
        events = [json.dumps(token), json.dumps(usage), "[DONE]"]
        self.answer("text/event-stream", "".join(f"data: {event}\n\n" for event in events))
    def log_message(self, *rest):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#;

#[test]
fn a_signal_while_a_reset_hangs_stops_the_run() {
    let matrix = sims(&[("a", "vllm", "")], LONG)
        .replace("--preset, fast", "")
        .replace(
            "as: a,",
            "as: a, command: [python3, \"{dir}/hangs.py\", \"{port}\", \"{dir}/asked\"],",
        );
    let bench = Bench::of(&matrix);
    std::fs::write(bench.path().join("matrices/hangs.py"), HANGS_AT_RESET).expect("a file can be written");
    let child = bench.begin(&["run", "matrices/m.yaml", "--no-calibration"]);
    bench.until("the reset", || bench.path().join("matrices/asked").exists());
    let began = clock::now();
    signal(&child, Signal::INT);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(
        output.status.code(),
        Some(130),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        clock::now().since(began) < Duration::from_secs(40),
        "it waited for the reset, which may take 60 s"
    );
    bench.leaves_no_process();
}

#[test]
fn a_second_signal_kills_at_once() {
    let matrix = sims(
        &[("a", "vllm", "--itl, 20ms, --ttft, 20ms, --ignore-sigterm")],
        LONG,
    )
    .replace("--preset, fast, ", "")
    .replace("as: a,", "as: a, timeouts: { stop: 60s },");
    let bench = Bench::of(&matrix);
    let child = begin(&bench);
    signal(&child, Signal::INT);
    std::thread::sleep(Duration::from_millis(500));
    signal(&child, Signal::INT);
    let began = clock::now();
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(
        output.status.code(),
        Some(130),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        clock::now().since(began) < Duration::from_secs(30),
        "it waited for the engine's grace"
    );
    bench.leaves_no_process();
}

#[test]
fn a_signal_while_the_engine_loads_leaves_nothing() {
    let bench = Bench::of(&sims(&[("a", "vllm", "--start-delay, 30s")], LONG));
    let child = bench
        .command(&["run", "matrices/m.yaml", "--no-calibration"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    // Not by its processes: an engine is asked for its flags before the run begins.
    bench.until_journal("engine-started");
    signal(&child, Signal::TERM);
    assert_eq!(
        child.wait_with_output().expect("it ends").status.code(),
        Some(130)
    );
    bench.leaves_no_process();
    assert!(bench.finished().summaries.is_empty());
}
