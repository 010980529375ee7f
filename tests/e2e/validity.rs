//! Each reason for doubt, planted in a real run: it is found, with nothing beside it but the consequences that the table of codes
//! documents. And a clean run, in which nothing is found.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use matrix::analysis::validity::code_entry;
use matrix::results::record::cell::MeasurementSummary;
use matrix::results::record::validity::{Reason, ReasonCode, Verdict};

use crate::harness::{Bench, sims, summary};
use crate::nvml::Stub;

/// Bounds that a small measurement does not meet by itself, and that are not what is planted.
const SMALL: &str = "window: 0s, tail: 0, steady: 0.0";

/// Bounds of a host that has few processors for client, engine and other tests: what is read late is held against a fortieth of `send_lag`.
const LAG: &str = "send_lag: 20s, other_cpus: 1.0, stolen: 1.0, swap: 1000GiB";

/// What may stand beside anything on these engines and machines.
const INFORMATIONAL: [ReasonCode; 4] = [
    ReasonCode::Simulated,
    ReasonCode::ClientSharesCpus,
    ReasonCode::BoundsLoosened,
    // Few arrivals are drawn.
    ReasonCode::RateDrawn,
];

/// What was found in a cell.
fn codes(summary: &MeasurementSummary) -> BTreeSet<ReasonCode> {
    let validity = summary.validity.as_ref().expect("what ended is judged");
    validity.reasons.iter().map(|reason| reason.code).collect()
}

/// The cell has this reason, with the table's weight, and nothing that the table does not tell as its consequence.
fn finds(summary: &MeasurementSummary, planted: ReasonCode) {
    let validity = summary
        .validity
        .as_ref()
        .unwrap_or_else(|| panic!("{} is not judged: {:?}", summary.cell, summary.status));
    let found = validity.reasons.iter().find(|reason| reason.code == planted);
    let found =
        found.unwrap_or_else(|| panic!("{}: no {planted:?} in {:#?}", summary.cell, validity.reasons));
    assert_eq!(found.weight, code_entry(planted).weight, "{found:?}");
    assert!(validity.verdict >= found.weight || !found.only.is_empty());
    assert!(
        !found.measured.is_empty() && !found.advice.is_empty(),
        "{found:?}"
    );
    for reason in &validity.reasons {
        let code = reason.code;
        let is_known = code == planted
            || code_entry(planted).implied_codes.contains(&code)
            || (INFORMATIONAL.contains(&code) && reason.weight == Verdict::Valid)
            // Another of these tests sets the clock of this machine.
            || code == ReasonCode::ClockJump;
        assert!(
            is_known,
            "{}: {planted:?} was planted, and this was found too: {reason:#?}",
            summary.cell
        );
    }
}

fn planted(engines: &[(&str, &str, &str)], scenarios: &str) -> Bench {
    bounded(&sims(engines, scenarios), SMALL)
}

/// The matrix with these bounds beside that of the client's lag.
fn bounded(matrix: &str, bounds: &str) -> Bench {
    Bench::of(&format!("{}validity: {{ {LAG}, {bounds} }}\n", matrix))
}

#[test]
fn what_an_engine_does_wrong_is_found() {
    let load = "  - random-1k-1k: { prompts: 12, input_len: 48, output_len: 24, concurrency: 4 }\n";
    let bench = planted(
        &[
            ("errors", "vllm", "--http-error-every, 3, --step=8ms"),
            ("short", "vllm", "--early-end, 50%, --step=8ms"),
            ("chunks", "vllm", "--merge-chunks, 4, --step=8ms"),
            ("renamed", "vllm", "--rename-after, 4, --step=8ms"),
            ("restarted", "vllm", "--forget-metrics-after, 4, --step=8ms"),
            ("good", "vllm", "\"--seed=2\", --step=8ms"),
        ],
        load,
    );
    bench.run(&[]).exits(3).says("invalid: errors:");
    let run = bench.finished();
    for (engine, code) in [
        ("errors", ReasonCode::Errors),
        ("short", ReasonCode::OutputShort),
        ("chunks", ReasonCode::ChunkedTokens),
        ("renamed", ReasonCode::WrongModel),
        ("restarted", ReasonCode::EngineRestarted),
        ("good", ReasonCode::Simulated),
    ] {
        finds(summary(&run, engine, "random-1k-1k"), code);
    }
    let explained = bench
        .call(&["explain", "engine=short"])
        .exits(0)
        .shows("invalid  output-short")
        .shows("bound     1.0 % of the answers");
    assert!(
        !explained.stdout.contains("engine=errors"),
        "{}",
        explained.stdout
    );
    bench
        .call(&["explain", "engine=nobody"])
        .exits(2)
        .says("no measured cell of");
    bench
        .call(&["explain", "engine=good", "--json"])
        .exits(0)
        .shows("\"verdict\": \"valid\"");
    bench.leaves_no_process();
}

#[test]
fn an_engine_that_ignores_cancellations_or_finds_no_common_prefix_is_noted() {
    let load = "  - random-1k-1k: { prompts: 40, input_len: 48, output_len: 40, concurrency: 4, cancel: { share: 0.5, after_tokens: 3 } }\n  - prefixes: { dataset: random, prompts: 12, input_len: 96, output_len: 8, range_ratio: 1, concurrency: 1, common_prefix: { share: 0.5 } }\n";
    let bench = planted(
        &[
            ("deaf", "vllm", "--ignore-disconnects, --step=8ms"),
            ("cold", "vllm", "--no-prefix-cache, --step=8ms"),
        ],
        load,
    );
    bench.run(&[]).exits(0);
    let run = bench.finished();
    finds(summary(&run, "deaf", "random-1k-1k"), ReasonCode::CancelIgnored);
    finds(summary(&run, "cold", "random-1k-1k"), ReasonCode::Simulated);
    finds(summary(&run, "cold", "prefixes"), ReasonCode::CacheMissed);
    bench.leaves_no_process();
}

#[test]
fn another_precision_than_asked_for_is_found() {
    let load = "  - random-1k-1k: { prompts: 8, input_len: 48, output_len: 24 }\n";
    let matrix = sims(&[("a", "sglang", "--quantization, fp8, --step=20ms")], load)
        .replace("as: a,", "as: a, precision: bf16,");
    let bench = bounded(&matrix, SMALL);
    bench.run(&[]).exits(3);
    finds(
        summary(&bench.finished(), "a", "random-1k-1k"),
        ReasonCode::WrongPrecision,
    );
}

/// GPTQ tells no width: there are checkpoints of 2, 3, 4 and 8 bits.
#[test]
fn a_quantization_that_tells_no_width_is_no_other_precision() {
    let load = "  - random-1k-1k: { prompts: 8, input_len: 48, output_len: 24 }\n";
    let matrix =
        sims(&[("a", "sglang", "--quantization, gptq")], load).replace("as: a,", "as: a, precision: int8,");
    let bench = Bench::of(&format!("{matrix}validity: {{ {SMALL}, send_lag: 20s }}\n"));
    bench.run(&[]).exits(0);
    let found = codes(summary(&bench.finished(), "a", "random-1k-1k"));
    assert!(!found.contains(&ReasonCode::WrongPrecision), "{found:?}");
}

/// Hundreds of requests that are due at one moment cannot all be sent at it, and that costs little of the seconds that they take.
#[test]
fn a_burst_is_no_late_client() {
    let load = "  - burst: { dataset: random-ids, prompts: 800, input_len: 200, output_len: 30, range_ratio: 1.0, warmup: 0 }\n";
    let matrix = sims(&[("a", "vllm", "--ttft, 20ms, --itl, 250ms")], load);
    let bench = Bench::of(&format!("{matrix}validity: {{ {SMALL} }}\n"));
    bench.run(&[]).exits(0);
    let run = bench.finished();
    let summary = summary(&run, "a", "burst");
    let reasons = summary.validity.iter().flat_map(|validity| &validity.reasons);
    let late: Vec<&Reason> = reasons
        .filter(|reason| reason.code == ReasonCode::ClientLate && reason.measured.contains("sent"))
        .collect();
    assert!(late.is_empty(), "{late:?}");
    bench.leaves_no_process();
}

/// The client is stopped once, so that one or two of twenty requests are late: an accident, which does not make the others worthless.
#[test]
fn one_stop_of_the_client_does_not_make_a_measurement_invalid() {
    let matrix = sims(
        &[("a", "vllm", "\"--step=1ms\"")],
        "  - paced: { dataset: random-ids, prompts: 20, input_len: 8, output_len: 4, range_ratio: 0, rate: 5, spacing: constant, warmup: 0 }\n",
    );
    let bench = Bench::of(&format!("{matrix}validity: {{ {SMALL}, send_lag: 100ms }}\n"));
    let mut client = bench
        .command(&["run", "matrices/m.yaml", "--no-calibration", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let pid = rustix::process::Pid::from_child(&client);
    let signal = |signal| rustix::process::kill_process(pid, signal).expect("it lives");
    use std::io::BufRead;
    let events = std::io::BufReader::new(client.stdout.take().expect("it is piped"));
    let mut is_stopped = false;
    for line in events.lines() {
        let line = line.expect("events are text");
        if !is_stopped && line.contains("cell-progress") && line.contains("\"measure\"") {
            is_stopped = true;
            signal(rustix::process::Signal::STOP);
            std::thread::sleep(Duration::from_millis(450));
            signal(rustix::process::Signal::CONT);
        }
    }
    let code = client.wait().expect("it ends").code();
    let run = bench.finished();
    let validity = summary(&run, "a", "paced").validity.as_ref();
    let validity = validity.expect("what ended is judged");
    assert!(is_stopped && code == Some(0), "{code:?}: {validity:#?}");
    assert_ne!(validity.verdict, Verdict::Invalid, "{validity:#?}");
}

/// The same prompts twice on one start: a reset that answers success and resets nothing leaves them in the cache.
#[test]
fn a_warm_cache_is_found_and_so_is_a_reset_that_nobody_can_prove() {
    let load = "  - random-1k-1k: { prompts: 8, input_len: 400, output_len: 8 }\n";
    let bench = planted(
        &[
            ("liar", "vllm", "--fake-reset, --step=20ms"),
            ("honest", "vllm", "\"--seed=2\", --step=20ms"),
            ("silent", "openai", "--hide-cached-tokens, --step=20ms"),
        ],
        &format!("{load}repeats: {{ starts: 1, per_start: 2 }}\n"),
    );
    bench.run(&[]).exits(3);
    let run = bench.finished();
    let second = |engine: &str| {
        let fits =
            |summary: &&MeasurementSummary| summary.repeat == 2 && summary.cell.as_str().contains(engine);
        run.summaries.iter().find(fits).expect("it was measured twice")
    };
    finds(second("liar"), ReasonCode::CacheWarm);
    finds(second("honest"), ReasonCode::Simulated);
    finds(second("silent"), ReasonCode::ResetUnproven);
    let unproven = |summary: &MeasurementSummary| codes(summary).contains(&ReasonCode::ResetUnproven);
    assert!(
        !unproven(summary(&run, "silent", "random-1k-1k")),
        "the first one on its start is cold"
    );
}

/// An engine that keeps what it has seen and has no reset: what begins otherwise it has not seen, whatever follows.
#[test]
fn unique_prefixes_keep_caches_cold_and_lengths_as_they_are() {
    let load = "  - random-1k-1k: { prompts: 8, input_len: 400, output_len: 8 }\n  - again: { dataset: random, prompts: 8, input_len: 400, output_len: 8, range_ratio: 1.0 }\n";
    let bench = planted(
        // Slow enough that a busy machine does not gather an answer's tokens.
        &[
            ("unique", "lmdeploy-unique", "--step=20ms"),
            ("plain", "lmdeploy", "--step=20ms"),
        ],
        &format!("{load}repeats: {{ starts: 1, per_start: 2 }}\n"),
    );
    bench
        .run(&[])
        .exits(3)
        .shows("the prompts of each measurement start with a unique prefix")
        .shows("prompts as drawn against prompts with unique prefixes");
    let run = bench.finished();
    let of = |engine: &str| -> Vec<&MeasurementSummary> {
        let fits =
            |summary: &&MeasurementSummary| summary.cell.as_str().contains(&format!("engine={engine},"));
        run.summaries.iter().filter(fits).collect()
    };
    let (unique, plain) = (of("unique"), of("plain"));
    assert_eq!((unique.len(), plain.len()), (4, 4));
    let proof =
        |summary: &MeasurementSummary| summary.cache_reset.clone().expect("what is known of its caches");
    let mut letters = BTreeSet::new();
    for summary in &unique {
        finds(summary, ReasonCode::Simulated);
        let proof = proof(summary);
        assert_eq!(proof.hits_in_window, Some(0.0), "{}: {proof:?}", summary.cell);
        assert!(proof.queries_in_window > Some(3000.0), "{proof:?}");
        let prefix = proof.unique_prefix.expect("it is kept");
        assert_eq!(prefix.kept, 0);
        letters.insert(prefix.letters);
        assert_eq!(
            summary.prompts_hash, plain[0].prompts_hash,
            "what was drawn is the same"
        );
    }
    assert_eq!(letters.len(), 4, "no measurement begins as another");
    let warm = plain
        .iter()
        .filter(|summary| codes(summary).contains(&ReasonCode::CacheWarm));
    assert_eq!(warm.count(), 3, "all but the first on the start");
    // By its own tokenizer the engine counts otherwise, but nearly as much with letters as without.
    let counts = |engine: &str| -> Vec<u32> {
        let all = run.plan.starts.iter().flat_map(|start| &start.cells);
        let own = all.filter(|one| one.cell.as_str().contains(&format!("engine={engine},")));
        let requests = own.flat_map(|one| run.read_requests(one).expect("requests are kept"));
        let actual = requests.map(|request| request.usage.and_then(|usage| usage.prompt));
        actual.map(|count| count.expect("the engine tells")).collect()
    };
    let (with, without) = (counts("unique"), counts("plain"));
    assert_eq!((with.len(), without.len()), (32, 32));
    for (with, without) in with.iter().zip(&without) {
        assert!(with.abs_diff(*without) <= 12, "{with} {without}");
    }
    bench
        .call(&["explain", "engine=unique"])
        .exits(0)
        .shows("prompts start with the unique prefix");
    bench.leaves_no_process();
}

#[test]
fn a_load_that_the_engine_cannot_bear_or_the_limits_do_not_allow_is_found() {
    let scenarios = [
        "  - slots: { dataset: random-ids, prompts: 30, input_len: 8, output_len: 20, range_ratio: 0, rate: 100, concurrency: 1 }\n",
        "  - queue: { dataset: random-ids, prompts: 120, input_len: 8, output_len: 20, range_ratio: 0, rate: 60 }\n",
    ]
    .concat();
    let bench = planted(&[("slow", "vllm", "--max-running, 1, --step, 2ms")], &scenarios);
    bench.run(&[]).exits(0);
    let run = bench.finished();
    finds(summary(&run, "slow", "slots"), ReasonCode::RateNotReached);
    finds(summary(&run, "slow", "queue"), ReasonCode::QueueGrowing);
}

#[test]
fn a_measurement_that_is_short_thin_or_never_steady_is_found() {
    let scenarios = [
        "  - thin: { dataset: random-ids, prompts: 8, input_len: 8, output_len: 8, range_ratio: 0 }\n",
        "  - staged: { dataset: random-ids, prompts: 360, input_len: 8, output_len: 12, range_ratio: 0, stages: [{ rate: 20, duration: 1s }, { rate: 150, duration: 1s }, { rate: 20, duration: 1s }, { rate: 150, duration: 1s }, { rate: 20, duration: 1s }] }\n",
    ]
    .concat();
    // The few answers of a thin load must not become one moment where this host stalls.
    let with = |step: &str, bounds: &str| bounded(&sims(&[("a", "vllm", step)], &scenarios), bounds);
    let bench = with("\"--step=30ms\"", "window: 0s, steady: 0.0");
    bench.run(&["--only", "scenario=thin"]).exits(0);
    finds(summary(&bench.finished(), "a", "thin"), ReasonCode::FewSamples);
    let bench = with("\"--step=30ms\"", "tail: 0");
    bench.run(&["--only", "scenario=thin"]).exits(0);
    finds(summary(&bench.finished(), "a", "thin"), ReasonCode::WindowShort);
    let bench = with("\"--step=1ms\"", "tail: 0, window: 0s");
    bench.run(&["--only", "scenario=staged"]).exits(0);
    finds(summary(&bench.finished(), "a", "staged"), ReasonCode::NeverSteady);
}

/// The client is stopped again and again while requests fall due: the engine, in a process group of its own, goes on.
#[test]
fn a_client_that_is_kept_from_working_is_found() {
    let matrix = sims(
        &[("a", "vllm", "\"--step=1ms\"")],
        "  - paced: { dataset: random-ids, prompts: 200, input_len: 8, output_len: 4, range_ratio: 0, rate: 100 }\n",
    );
    let bench = Bench::of(&format!("{}validity: {{ {SMALL} }}\n", matrix));
    let mut client = bench
        .command(&["run", "matrices/m.yaml", "--no-calibration"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let pid = rustix::process::Pid::from_child(&client);
    let signal = |signal| rustix::process::kill_process(pid, signal).expect("it lives");
    while client.try_wait().expect("it can be asked").is_none() {
        signal(rustix::process::Signal::STOP);
        std::thread::sleep(Duration::from_millis(120));
        signal(rustix::process::Signal::CONT);
        std::thread::sleep(Duration::from_millis(80));
    }
    finds(summary(&bench.finished(), "a", "paced"), ReasonCode::ClientLate);
}

/// Nothing that this machine has saturates the client, so the bound is put where an honest flood lies.
#[test]
fn a_busy_client_is_found() {
    let matrix = sims(
        &[("a", "vllm", "--flood")],
        "  - flood: { dataset: random-ids, prompts: 400, input_len: 8, output_len: 500, range_ratio: 0, concurrency: 64 }\n",
    );
    let bench = bounded(&matrix, &format!("{SMALL}, client_cpu: 0.05"));
    bench.run(&[]).exits(3);
    finds(
        summary(&bench.finished(), "a", "flood"),
        ReasonCode::ClientSaturated,
    );
}

#[test]
fn an_engine_that_somebody_else_uses_counts_other_tokens_than_it_answers() {
    let bench = planted(
        &[("a", "vllm", "\"--step=4ms\"")],
        "  - random-1k-1k: { prompts: 16, input_len: 16, output_len: 60, concurrency: 2 }\n",
    );
    let port = free_port();
    let matrix = std::fs::read_to_string(bench.matrix()).expect("it can be read");
    bench.rewrite(&matrix.replace("as: a,", &format!("as: a, port: {port},")));
    let mut run = bench
        .command(&["run", "matrices/m.yaml", "--no-calibration", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    use std::io::BufRead;
    let events = std::io::BufReader::new(run.stdout.take().expect("it is piped"));
    for line in events.lines() {
        let line = line.expect("events are text");
        if line.contains("cell-progress") && line.contains("\"measure\"") {
            let body = r#"{"model":"m","prompt":"somebody else","max_tokens":40,"ignore_eos":true}"#;
            std::thread::spawn(move || ask(port, body));
        }
    }
    run.wait().expect("it ends");
    finds(
        summary(&bench.finished(), "a", "random-1k-1k"),
        ReasonCode::TokensDisagree,
    );
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.local_addr().expect("it has an address").port()
}

/// Sends one request and reads its answer.
fn ask(port: u16, body: &str) {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("the engine listens");
    write!(
        stream,
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("it can be sent");
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn metrics_that_are_no_longer_answered_are_a_gap() {
    let bench = planted(
        &[("a", "vllm", "--hang-metrics-after, 4, --step, 20ms")],
        "  - random-1k-1k: { prompts: 8, input_len: 16, output_len: 120, concurrency: 4 }\n",
    );
    bench.run(&[]).exits(0);
    finds(
        summary(&bench.finished(), "a", "random-1k-1k"),
        ReasonCode::TelemetryGap,
    );
}

/// Setting the clock by a few milliseconds needs root; where it is refused, nothing can be planted.
#[test]
fn a_wall_clock_that_is_set_meanwhile_is_found() {
    let set = |millis: i64| {
        let mut now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        now.tv_nsec += millis * 1_000_000;
        now.tv_sec += now.tv_nsec.div_euclid(1_000_000_000);
        now.tv_nsec = now.tv_nsec.rem_euclid(1_000_000_000);
        rustix::time::clock_settime(rustix::time::ClockId::Realtime, now)
    };
    if let Err(error) = set(0) {
        crate::skip::skip(&format!("the wall clock cannot be set here ({error}); root may"));
        return;
    }
    let bench = planted(
        &[("a", "vllm", "\"--step=4ms\"")],
        "  - random-1k-1k: { prompts: 16, input_len: 16, output_len: 60, concurrency: 2 }\n",
    );
    let mut run = bench
        .command(&["run", "matrices/m.yaml", "--no-calibration"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let mut by = 3;
    while run.try_wait().expect("it can be asked").is_none() {
        set(by).expect("it could be set a moment ago");
        by = -by;
        std::thread::sleep(Duration::from_millis(200));
    }
    finds(
        summary(&bench.finished(), "a", "random-1k-1k"),
        ReasonCode::ClockJump,
    );
}

#[test]
fn gpus_that_are_pretended_and_neighbours_are_found() {
    let load = "  - random-1k-1k: { prompts: 8, input_len: 16, output_len: 60, concurrency: 2 }\n";
    let matrix = sims(
        &[("a", "vllm", "\"--step=8ms\""), ("b", "vllm", "\"--step=9ms\"")],
        load,
    )
    .replace("as: a,", "as: a, devices: gpu,")
    .replace("as: b,", "as: b, devices: gpu,");
    let bench = bounded(&matrix, SMALL).variable("MATRIX_PRETEND_GPUS", "3");
    bench.run(&["--only", "engine=a"]).exits(0);
    finds(
        summary(&bench.finished(), "a", "random-1k-1k"),
        ReasonCode::PretendedGpus,
    );
    let bench = bounded(&(matrix + "parallel: true\n"), SMALL).variable("MATRIX_PRETEND_GPUS", "3");
    bench.run(&[]).exits(0);
    let found = codes(summary(&bench.finished(), "a", "random-1k-1k"));
    let expected = [
        ReasonCode::Neighbour,
        ReasonCode::PretendedGpus,
        ReasonCode::Simulated,
    ];
    assert!(expected.iter().all(|code| found.contains(code)), "{found:?}");
}

/// A trouble of its own on each GPU of one launch, told by a library of ours in the place of NVIDIA's.
#[test]
fn what_gpus_go_through_is_found() {
    // A millisecond of each at 4 MW: samples miss it, or count it a hundred times over. Longer and lower ones agree with the counter by chance.
    let spikes: String = [4.0_f64, 5.5, 7.0]
        .map(|at| {
            format!(
                " {at}:100 {}:4e6 {}:4e6 {}:100",
                at + 0.0001,
                at + 0.0011,
                at + 0.0012
            )
        })
        .concat();
    let stub = Stub::of(&format!(
        "gpus 6\npower 100\nutil from=engine 95 60\nclock from=engine 1755 2600\n\
         throttle gpu=0 thermal from=engine\nthrottle gpu=1 power from=engine\nthrottle gpu=2 brake from=engine\n\
         clock gpu=3 1200 2600 from=engine+4\nprocess gpu=4 {} 300 from=engine\n\
         power gpu=5 0:100{spikes}\n",
        std::process::id()
    ));
    let matrix = sims(
        &[("a", "vllm", "--step, 20ms")],
        "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 300, concurrency: 4, warmup: 0 }\n",
    )
    .replace("as: a,", "as: a, devices: gpu,")
    .replace("- m: {", "- m: { tp: 6,");
    let bench = bounded(&matrix, SMALL).gpus(&stub);
    bench.run(&[]).exits(3);
    let run = bench.finished();
    let validity = summary(&run, "a", "random-1k-1k")
        .validity
        .clone()
        .expect("it is judged");
    let planted = [
        (ReasonCode::ThrottledThermal, "GPU 0"),
        (ReasonCode::ThrottledPower, "GPU 1"),
        (ReasonCode::ThrottledHardware, "GPU 2"),
        (ReasonCode::ClocksSpread, "GPU 3"),
        (ReasonCode::GpuShared, "GPU 4"),
        (ReasonCode::EnergyDisagrees, "J and"),
    ];
    for (code, whose) in planted {
        let is_it = |reason: &&Reason| reason.code == code && reason.measured.contains(whose);
        assert!(
            validity.reasons.iter().any(|reason| is_it(&reason)),
            "{code:?} in {validity:#?}"
        );
    }
    for reason in &validity.reasons {
        let is_known = planted
            .iter()
            .any(|(code, whose)| *code == reason.code && reason.measured.contains(whose));
        assert!(is_known || INFORMATIONAL.contains(&reason.code), "{reason:#?}");
    }
}

/// What an engine leaves on its GPU is named when it was stopped, and stands beside the cells of the next one.
#[test]
fn memory_that_the_last_engine_left_is_found() {
    let stub = Stub::of("gpus 1\npower 100\nhold 3000 from=gone\n");
    let matrix = sims(
        &[
            ("a", "vllm", "\"--step=30ms\""),
            ("b", "vllm", "\"--seed=2\", --step=30ms"),
        ],
        "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 16 }\n",
    )
    .replace("as: a,", "as: a, devices: gpu, timeouts: { stop: 1s },")
    .replace("as: b,", "as: b, devices: gpu, timeouts: { stop: 1s },");
    let bench = bounded(&matrix, SMALL).gpus(&stub);
    bench.run(&[]).exits(0).says("engine `a` was stopped");
    finds(
        summary(&bench.finished(), "b", "random-1k-1k"),
        ReasonCode::GpuNotAtRest,
    );
}

/// What is invalid is measured again as often as asked, and the record tells of each try.
#[test]
fn an_invalid_cell_is_tried_again_as_often_as_asked() {
    let load = "  - random-1k-1k: { prompts: 12, input_len: 48, output_len: 24 }\n";
    let bench = planted(&[("short", "vllm", "--early-end, 50%, --step=20ms")], load);
    bench
        .run(&["--retry-invalid", "2"])
        .exits(3)
        .says("is measured again (retry 2 of at most 2): invalid: ")
        .says("output-short");
    let run = bench.finished();
    let kept = summary(&run, "short", "random-1k-1k");
    assert_eq!(kept.retries.len(), 2, "{:?}", kept.retries);
    finds(kept, ReasonCode::OutputShort);
}

/// Fifty cells with nothing planted, long enough for what is printed of them.
#[test]
fn a_clean_run_of_fifty_cells_finds_nothing() {
    let scenarios: String = (1..=10)
        .map(|n| {
            format!(
                "  - s{n}: {{ dataset: random-ids, prompts: 1000, input_len: {}, output_len: 8, concurrency: 16 }}\n",
                16 + n
            )
        })
        .collect();
    let engines = ["a", "b", "c", "d", "e"].map(|name| (name, "vllm", "\"--step=1ms\""));
    // A short measurement on a machine whose few processors also run the engine: its length is no finding here.
    let bench = bounded(&sims(&engines, &scenarios), "window: 100ms");
    bench.run(&[]).exits(0);
    let run = bench.finished();
    assert_eq!(run.summaries.len(), 50);
    let mut without_a_processor = 0;
    for summary in &run.summaries {
        let validity = summary.validity.as_ref().expect("what ended is judged");
        let mut found = validity.reasons.clone();
        // A busy machine may keep the client from running, which the kernel reports, so that events of steps of 1 ms are read together;
        // it does so in few cells.
        let all = found.len();
        let is_unread = |reason: &Reason| {
            ["had no processor", "arrived at once"]
                .iter()
                .any(|text| reason.measured.contains(text))
        };
        found.retain(|reason| !is_unread(reason));
        without_a_processor += usize::from(found.len() < all);
        // Another of these tests sets the clock of this machine.
        found.retain(|reason| reason.code != ReasonCode::ClockJump);
        assert!(
            found
                .iter()
                .all(|reason| INFORMATIONAL.contains(&reason.code) && reason.weight == Verdict::Valid),
            "{}: {found:#?}",
            summary.cell
        );
    }
    assert!(without_a_processor <= 5, "{without_a_processor} of 50");
}
