//! What is known of the machine and the engine while a cell is measured: sampled, kept, joined to the window, and never in the way.

use matrix::results::record::cell::{Definitions, MeasurementStatus, MeasurementSummary};
use matrix::results::record::telemetry::{Sample, SourceFacts, Telemetry, TelemetrySource};
use matrix::results::store::Run;

use crate::harness::{Bench, sims, summary};

const ONE: &str = "  - random-1k-1k: { prompts: 40, input_len: 32, output_len: 64, rate: 20 }\n";

fn telemetry(summary: &MeasurementSummary) -> &Telemetry {
    summary.telemetry.as_ref().expect("it is kept with the summary")
}

fn facts(telemetry: &Telemetry, source: TelemetrySource) -> &SourceFacts {
    let found = telemetry.sources.iter().find(|facts| facts.source == source);
    found.unwrap_or_else(|| panic!("{source:?} was not asked: {telemetry:?}"))
}

fn samples(run: &Run, summary: &MeasurementSummary, source: TelemetrySource) -> Vec<Sample> {
    let cells = run.plan.starts.iter().flat_map(|start| &start.cells);
    let measurement = cells
        .into_iter()
        .find(|cell| cell.cell == summary.cell)
        .expect("the plan has the cell");
    let all = run
        .read_telemetry(measurement)
        .expect("it can be read")
        .expect("it was kept");
    all.into_iter().filter(|sample| sample.source == source).collect()
}

/// Insists that what a real engine and the host tell fits what was sent and received: the engine's own counters over the window are
/// those of the records, its own times are not above ours, and it worked for them.
pub fn agrees(run: &Run, summary: &MeasurementSummary) {
    let actual = telemetry(summary);
    let cells = run.plan.starts.iter().flat_map(|start| &start.cells);
    let measurement = cells
        .into_iter()
        .find(|cell| cell.cell == summary.cell)
        .expect("the plan has the cell");
    let requests = run.read_requests(measurement).expect("requests are kept");
    let output: u32 = requests
        .iter()
        .map(|request| request.output_tokens().expect("it is reported"))
        .sum();
    let prompt: u32 = requests
        .iter()
        .map(|request| {
            request
                .usage
                .expect("it is reported")
                .prompt
                .expect("it is reported")
        })
        .sum();
    let cell = &summary.cell;
    let window = actual
        .engine
        .as_ref()
        .unwrap_or_else(|| panic!("{cell}: {actual:?}"));
    assert!(window.reset.is_empty(), "{cell}: {window:?}");
    assert_eq!(
        window.grown["generation_tokens"],
        f64::from(output),
        "{cell}: {window:?}"
    );
    assert_eq!(
        window.grown["prompt_tokens"],
        f64::from(prompt),
        "{cell}: {window:?}"
    );
    if let Some(ended) = window.grown.get("requests") {
        assert_eq!(*ended, requests.len() as f64, "{cell}: {window:?}");
    }
    let ours = summary.figures[&Definitions::Matrix]["mean_ttft_ms"].expect("it is reported");
    if let Some(theirs) = window.means.get("ttft_s") {
        assert!(
            theirs * 1e3 <= ours,
            "{cell}: {theirs} s by the engine, {ours} ms by us"
        );
    }
    for source in [TelemetrySource::Engine, TelemetrySource::Host] {
        let facts = facts(actual, source);
        assert!(facts.is_bracketed && facts.trouble.is_none(), "{cell}: {facts:?}");
    }
    let host = actual.host.as_ref().expect("it is reported");
    let (engine, cpus) = (host.engine_cpus.expect("it is reported"), f64::from(host.cpus));
    // The kernel counts processor time in hundredths of a second, at both edges of the window.
    let rounding = cpus * 0.02 / actual.seconds;
    assert!(
        engine > 0.02 && engine <= cpus * 1.05 + rounding,
        "{cell}: {host:?}"
    );
    assert_eq!(host.shares_cpus, Some(true), "{cell}: {host:?}");
    let all = engine + host.client_cpus.expect("it is reported") + host.other_cpus.expect("it is reported");
    assert!(all <= cpus * 1.1 + rounding, "{cell}: {host:?}");
}

#[test]
fn engine_host_and_energy_agree_with_what_was_sent() {
    let bench = Bench::of(&sims(
        &[("one", "vllm", "--step, 20ms"), ("two", "sglang", "--step, 20ms")],
        ONE,
    ));
    bench.run(&[]).exits(0).shows("tok/J");
    let run = bench.finished();
    for engine in ["one", "two"] {
        let summary = summary(&run, engine, "random-1k-1k");
        assert_eq!(summary.status, MeasurementStatus::Done);
        let actual = telemetry(summary);
        let window = actual.engine.as_ref().unwrap();
        let figures = &summary.figures[&Definitions::Matrix];
        assert_eq!(window.grown["generation_tokens"], 40.0 * 64.0);
        assert_eq!(
            window.grown["generation_tokens"],
            figures["output_tokens"].unwrap()
        );
        assert_eq!(
            window.grown["prompt_tokens"],
            figures["reported_input_tokens"].unwrap()
        );
        assert_eq!(window.grown["requests"], 40.0);
        assert_eq!(window.grown["ttft_s_count"], 40.0);
        assert!(window.reset.is_empty(), "{window:?}");
        assert!(window.means["ttft_s"] * 1e3 <= figures["mean_ttft_ms"].unwrap());
        assert!(window.gauges["running"].max >= 1.0, "{window:?}");
        assert!(summary.cache_reset.as_ref().unwrap().hits_in_window.is_some());

        let host = actual.host.as_ref().unwrap();
        assert!(host.cpus >= 1);
        let client = host.client_cpus.unwrap();
        let engine = host.engine_cpus.unwrap();
        assert!(client > 0.0 && client < f64::from(host.cpus), "{host:?}");
        assert!(engine > 0.0 && engine < f64::from(host.cpus), "{host:?}");
        assert!(host.ranges["memory_available_bytes"].min > 0.0);
        for source in [TelemetrySource::Engine, TelemetrySource::Host] {
            let facts = facts(actual, source);
            assert!(facts.is_bracketed && facts.trouble.is_none(), "{facts:?}");
            // The load lasts three seconds, and a busy machine may be late by some of them.
            assert!(facts.samples >= 1 && facts.longest_gap_s < 5.0, "{facts:?}");
        }

        // An idle device takes 80 W, and one with anything to do at least 300.
        let energy = actual.energy.as_ref().unwrap();
        assert!(energy.is_simulated && energy.above_idle_j.is_none());
        assert!(energy.mean_w > 80.0 && energy.mean_w <= 700.0, "{energy:?}");
        assert!(energy.peak_w.unwrap() >= energy.mean_w && energy.peak_w.unwrap() <= 700.0);
        assert!((energy.joules - energy.mean_w * actual.seconds).abs() < 1e-6);
        let per_token = figures["energy_per_output_token_j"].unwrap();
        assert!((per_token * 2560.0 - energy.joules).abs() < 1e-6 * energy.joules);

        let samples = samples(&run, summary, TelemetrySource::Engine);
        assert!(samples[0].at_ns <= 0 && samples.last().unwrap().at_ns as f64 / 1e9 >= actual.seconds);
    }
    bench.leaves_no_process();
}

#[test]
fn metrics_that_never_come_are_reported_and_the_load_goes_on() {
    // The probe and the warm-up are the first two requests: nothing is told of the window.
    let scenario = ONE.replace("prompts: 40", "prompts: 100");
    let bench = Bench::of(&sims(&[("mute", "vllm", "--hang-metrics-after, 12")], &scenario));
    let ran = bench.run(&[]).exits(0);
    assert!(ran.stdout.contains("100/0"), "{}", ran.stdout);
    let run = bench.finished();
    let summary = summary(&run, "mute", "random-1k-1k");
    let actual = telemetry(summary);
    // It lasts five seconds, and was silent but for the first half of one.
    assert!(
        actual.seconds > 4.5 && actual.seconds < 10.0,
        "{}",
        actual.seconds
    );
    let engine = facts(actual, TelemetrySource::Engine);
    let trouble = engine.trouble.as_deref().unwrap();
    assert!(
        trouble.contains("no response within") || trouble.contains("no response for"),
        "{trouble}"
    );
    assert!(!engine.is_bracketed && engine.longest_gap_s > 3.0, "{engine:?}");
    assert!(
        facts(actual, TelemetrySource::Host).longest_gap_s < 3.0,
        "the host is asked all the same"
    );
    assert_eq!(actual.energy, None);
    assert_eq!(summary.cache_reset.as_ref().unwrap().hits_in_window, None);
    bench.leaves_no_process();
}

#[test]
fn counters_that_begin_again_are_told() {
    let bench = Bench::of(&sims(&[("anew", "vllm", "--forget-metrics-after, 30")], ONE));
    // What is judged of it is told elsewhere.
    bench.run(&[]);
    let run = bench.finished();
    let window = telemetry(summary(&run, "anew", "random-1k-1k"))
        .engine
        .as_ref()
        .unwrap();
    assert!(
        window.reset.contains(&"generation_tokens".to_owned()),
        "{window:?}"
    );
    assert!(!window.grown.contains_key("generation_tokens"));
}
