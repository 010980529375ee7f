//! A load that is killed with `kill -9`, after seconds here and after an hour by `tests/long-load.sh`: everything up to its last
//! seconds can be read.

use std::io::BufRead;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use matrix::base::clock::{self, MonotonicTime};
use matrix::cli::env_variable;
use matrix::results::record::request::Request;
use matrix::results::store::partial;

use crate::chaos::say;
use crate::harness::{Bench, repository, sims};

/// Requests per second, evenly spaced.
const RATE: usize = 20;
/// So many seconds may be lost: records are written once a second, and requests take part of one.
const LOST: usize = 5;

/// A load under way, with what can be read of it so far.
struct Load<'a> {
    name: &'a str,
    child: Child,
    began: MonotonicTime,
    kept: Box<dyn Fn() -> Vec<Request> + 'a>,
}

impl<'a> Load<'a> {
    /// Waits for its first record.
    fn begun(bench: &Bench, name: &'a str, child: Child, kept: impl Fn() -> Vec<Request> + 'a) -> Self {
        bench.until(name, || !kept().is_empty());
        Self {
            name,
            child,
            began: clock::now(),
            kept: Box::new(kept),
        }
    }

    /// Kills it and compares what can be read with what fell due.
    fn killed(mut self) {
        self.child.kill().expect("it can be killed");
        let ran = clock::now().since(self.began);
        self.child.wait().expect("it ends");
        let mut records = (self.kept)();
        records.sort_by_key(|record| record.index);
        let least = (ran.as_secs() as usize).saturating_sub(LOST) * RATE;
        say(&format!(
            "{}: killed {:.1} s after its first record: {} records, at least {least} expected",
            self.name,
            ran.as_secs_f64(),
            records.len()
        ));
        assert!(
            records.len() >= least,
            "{}: {} of {least}",
            self.name,
            records.len()
        );
        // Nothing is missing but at the end.
        let gap = (0..least).find(|place| records[*place].index as usize != *place);
        assert_eq!(gap, None, "{}", self.name);
        assert!(
            records
                .iter()
                .all(|record| record.is_completed() && record.chunks.len() == 8),
            "{}",
            self.name
        );
    }
}

/// The whole lines of a file that is being written.
fn lines(path: &Path) -> Vec<Request> {
    let Ok(file) = std::fs::File::open(path) else {
        return Vec::new();
    };
    let lines = std::io::BufReader::new(file).lines().map_while(Result::ok);
    lines.map_while(|line| serde_json::from_str(&line).ok()).collect()
}

#[test]
fn a_load_killed_late_leaves_everything_up_to_its_last_seconds_readable() {
    let seconds: u64 = env_variable("MATRIX_LONG_LOAD").map_or(7, |text| text.parse().expect("seconds"));
    let prompts = (seconds as usize + 600) * RATE;
    let bench = Bench::of(&sims(
        &[("a", "vllm", "--step, 5ms")],
        &format!(
            "  - paced: {{ dataset: random-ids, prompts: {prompts}, input_len: 8, output_len: 8, range_ratio: 1.0, rate: {RATE}, \
             spacing: constant, concurrency: 200 }}\n"
        ),
    ));
    let quiet = |command: &mut std::process::Command| {
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("the binary runs")
    };
    let run = quiet(&mut bench.command(&["run", "matrices/m.yaml", "--no-calibration"]));
    let cell = || {
        let runs = std::fs::read_dir(bench.results()).into_iter().flatten().flatten();
        let mut cells = runs.flat_map(|run| {
            let cells = std::fs::read_dir(run.path().join("cells"));
            cells.into_iter().flatten().flatten()
        });
        let cell = cells.next();
        cell.and_then(|cell| partial::read_requests(&cell.path()).ok())
            .unwrap_or_default()
    };
    let run = Load::begun(&bench, "run", run, cell);
    // The bench has the run's engine, and prompts and a schedule of its own.
    let port = port_of(&bench);
    let tokenizer = repository().join("matrices/data/tokenizer.json");
    let tokenizer = tokenizer.to_str().expect("it is UTF-8");
    let prompts = prompts.to_string();
    let mut args = vec![
        "bench",
        "--backend",
        "vllm",
        "--host",
        "127.0.0.1",
        "--port",
        &port,
    ];
    args.extend(["--tokenizer", tokenizer, "--dataset-name", "random-ids"]);
    args.extend(["--num-prompts", &prompts, "--random-input-len", "8"]);
    args.extend(["--random-output-len", "8", "--random-range-ratio", "1"]);
    let rate = RATE.to_string();
    args.extend(["--request-rate", &rate, "--spacing", "constant"]);
    args.extend(["--warmup-requests", "0", "--disable-tqdm"]);
    args.extend(["--records", "records.jsonl", "--output-file", "out.jsonl"]);
    let child = quiet(&mut bench.command(&args));
    let kept = bench.path().join("records.jsonl.partial");
    let single = Load::begun(&bench, "bench", child, || lines(&kept));
    std::thread::sleep(Duration::from_secs(seconds));
    single.killed();
    run.killed();
    let run = bench.run_folder();
    let run = run.to_str().expect("it is UTF-8");
    let said = "the measurement was not finished; `requests.partial.jsonl.zst` contains the requests that \
        had ended (number: ";
    bench.call(&["report", run]).exits(0).shows(said);
    bench.call(&["explain", "--run", run]).exits(0).says(said);
    bench.call(&["clean"]).exits(0);
    bench.leaves_no_process();
}

/// The port of the run's engine, by the run's journal.
fn port_of(bench: &Bench) -> String {
    let journal = bench.journal();
    let events = journal.lines().filter_map(|line| serde_json::from_str(line).ok());
    let mut ports = events.filter_map(|event: serde_json::Value| {
        let event = event
            .get("event")
            .filter(|event| event.is_object())
            .unwrap_or(&event)
            .clone();
        event.get("port").and_then(serde_json::Value::as_u64)
    });
    ports.next().expect("an engine was started").to_string()
}
