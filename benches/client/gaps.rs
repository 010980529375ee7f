//! The time between tokens as the client tells it, as a raw reader tells it, and as the server knows it from its own send times.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::{Measured, Server, Work, median, take_turns, verdict};

/// Streams and the time between their tokens; and whether it is more than the client has to keep up with, so that it may say that it is late
/// instead.
const ROWS: [(usize, Duration, bool); 7] = [
    (64, Duration::from_micros(500), false),
    (128, Duration::from_millis(1), false),
    (256, Duration::from_millis(2), false),
    (512, Duration::from_millis(5), false),
    (512, Duration::from_millis(20), false),
    (128, Duration::from_micros(500), true),
    (512, Duration::from_millis(1), true),
];

/// How far the client may be off: by this share of the truth, by so much, or by so many times what the raw reader is off.
const SHARE: f64 = 0.05;
const LEAST_MS: f64 = 0.05;
const TIMES_RAW: f64 = 2.0;
/// Beyond so many events in a second it says so itself.
const MOST_EVENTS_PER_S: f64 = 150_000.0;

/// Prints a row for each number of streams and gap.
pub fn bench(rounds: usize, is_quick: bool) {
    let span = Duration::from_millis(if is_quick { 1000 } else { 3000 });
    for (streams, gap, is_beyond) in ROWS {
        let server = Server::paced(gap, 0.0);
        let tokens = (span.as_nanos() / gap.as_nanos()) as usize;
        let mut actual: Vec<[f64; 3]> = Vec::new();
        let work: Work = server.work(streams, tokens);
        let (raw, ours) = take_turns(&work, rounds, |_| actual.push(server.gaps()));
        let truths = |place: usize| actual.iter().skip(place).step_by(2).copied().collect::<Vec<_>>();
        let (late, late_p99) = (
            median(ours.iter().map(|one| one.late_p90)),
            median(ours.iter().map(|one| one.late_p99)),
        );
        let rate = median(ours.iter().map(|one| one.events_per_s));
        // As `analysis::validity` has it.
        let is_late = late > (gap.as_secs_f64() * 500.0).max(0.25) || rate > MOST_EVENTS_PER_S;
        println!(
            "gaps, {streams} streams x {} ms ({:.0} of {:.0} events/s): {}; off by {late:.3} ms for 10 %, {late_p99:.3} ms for 1 %{}",
            gap.as_secs_f64() * 1e3,
            median(ours.iter().map(|one| one.tokens_per_s)),
            streams as f64 / gap.as_secs_f64(),
            [
                ("p50", 0, (|one| one.itl_p50) as fn(&Measured) -> f64),
                ("p99", 2, |one| one.itl_p99)
            ]
            .map(|(name, place, of)| told_of(
                name,
                place,
                of,
                [&raw, &ours],
                [&truths(0), &truths(1)],
                is_late && is_beyond
            ))
            .join(", "),
            if is_late { " (client-late)" } else { "" },
        );
    }
}

/// The medians of a figure and of its distance from the truth, and whether that is within the bound, or said by the client itself.
fn told_of(
    name: &str,
    place: usize,
    of: fn(&Measured) -> f64,
    measured: [&[Measured]; 2],
    truths: [&[[f64; 3]]; 2],
    is_late: bool,
) -> String {
    let truth = median(truths[1].iter().map(|gaps| gaps[place]));
    let [raw, ours] = [0, 1].map(|who| {
        let pairs = measured[who].iter().zip(truths[who]);
        median(pairs.map(|(one, gaps)| (of(one) - gaps[place]).abs()))
    });
    let bound = (SHARE * truth).max(LEAST_MS).max(TIMES_RAW * raw);
    format!(
        "{name} of {truth:.3} ms off by {ours:.3} (raw {raw:.3}, bound {bound:.3}) ms {}",
        verdict(ours <= bound || is_late)
    )
}

/// Loads beyond what moments can be told apart in, through `matrix bench`: it must say so. A load that this machine's server does not bring
/// beyond that rate shows nothing; at least one must.
pub fn flooded() {
    let mut shown = 0;
    for (name, burst) in [("one write per event", 0), ("64 KiB writes", 64 << 10)] {
        for streams in [64, 512, 2048] {
            shown += usize::from(flooded_by(name, burst, streams));
        }
    }
    println!(
        "flooded, loads beyond {MOST_EVENTS_PER_S} events/s: {shown} of 6 {}",
        verdict(shown > 0)
    );
}

/// Whether the load was beyond the rate.
fn flooded_by(name: &str, burst: usize, streams: usize) -> bool {
    let server = Server::flood(burst);
    let folder = tempfile::tempdir().expect("a folder can be made");
    let repository = env!("CARGO_MANIFEST_DIR");
    let (port, tokenizer, rows) = (
        server.port.to_string(),
        format!("{repository}/matrices/data/tokenizer.json"),
        format!("{repository}/matrices/data/conversations.json"),
    );
    let output = Command::new(env!("CARGO_BIN_EXE_matrix"))
        .args([
            "bench",
            "--backend",
            "vllm",
            "--host",
            "127.0.0.1",
            "--port",
            &port,
            "--model",
            "m",
        ])
        .args([
            "--tokenizer",
            &tokenizer,
            "--dataset-name",
            "random",
            "--dataset-path",
            &rows,
        ])
        .args([
            "--num-prompts",
            &streams.to_string(),
            "--random-input-len",
            "8",
            "--random-output-len",
            &(1_000_000 / streams).to_string(),
        ])
        .args([
            "--random-range-ratio",
            "1",
            "--warmup-requests",
            "0",
            "--ready-check-timeout-sec",
            "0",
        ])
        .args(["--disable-tqdm", "--output-file", "out.jsonl"])
        .current_dir(folder.path())
        .env("MATRIX_CACHE", folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stderr);
    let line = std::fs::read_to_string(folder.path().join("out.jsonl")).unwrap_or_default();
    let line: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {said}"));
    let rate = line["matrix"]["client"]["late"]["events_per_s"]
        .as_f64()
        .unwrap_or_default();
    let is_said = said.contains("client-late");
    let is_beyond = rate > MOST_EVENTS_PER_S;
    println!(
        "flooded, {name}, `matrix bench` with {streams} streams at {rate:.0} events/s: {}: {}",
        if is_said { "client-late" } else { "nothing said" },
        if is_beyond {
            verdict(is_said)
        } else {
            "not beyond the rate, shows nothing"
        }
    );
    is_beyond
}
