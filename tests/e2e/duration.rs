//! Loads that end with their time: what never fell due is no failure, and what is under way has the time that it was given.

use matrix::analysis::metrics::{self, Metric};
use matrix::results::record::cell::{Definitions, MeasurementStatus, MeasurementSummary};
use matrix::results::record::request::Request;
use matrix::results::record::validity::Verdict;
use matrix::results::store::Run as Finished;

use crate::harness::{Bench, sims};

fn figure(summary: &MeasurementSummary, metric: Metric) -> Option<f64> {
    metrics::metric_value(&summary.figures[&Definitions::Matrix], metric)
}

/// The only cell of a finished run, with its requests.
fn cell(run: &Finished) -> (&MeasurementSummary, Vec<Request>) {
    let [summary] = run.summaries.as_slice() else {
        panic!("one cell is expected: {:?}", run.summaries)
    };
    let requests = run.read_requests(&run.plan.starts[0].cells[0]);
    (summary, requests.expect("requests are kept"))
}

/// The only cell of a run on an engine with this step.
fn ran(step: &str, scenario: &str) -> Bench {
    let scenario = format!("  - timed: {{ dataset: random, input_len: 16, range_ratio: 1.0, {scenario} }}\n");
    let bench = Bench::of(&sims(&[("v", "vllm", &format!("--step, {step}"))], &scenario));
    bench.run(&[]).exits(0);
    bench
}

#[test]
fn what_did_not_fall_due_within_the_duration_is_no_failure() {
    for (scenario, at_least, at_most) in [
        // One request takes some 80 ms, so that each of the four users sends some twelve in a second.
        (
            "output_len: 8, prompts: 2000, concurrency: 4, duration: 1s",
            4,
            400,
        ),
        (
            "output_len: 2, prompts: 3000, rate: 20, spacing: constant, duration: 2s, slo: { ttft: 60s }",
            40,
            40,
        ),
        (
            "output_len: 2, ramp: { from: 5, to: 20 }, spacing: constant, duration: 2s, slo: { ttft: 60s }",
            25,
            25,
        ),
    ] {
        let bench = ran("10ms", scenario);
        let run = bench.finished();
        let (summary, requests) = cell(&run);
        assert_eq!(summary.status, MeasurementStatus::Done, "{scenario}");
        let verdict = summary.validity.as_ref().expect("what ended is judged").verdict;
        assert_ne!(verdict, Verdict::Invalid, "{scenario}: {:?}", summary.validity);
        let due = requests.len();
        assert!((at_least..=at_most).contains(&due), "{scenario}: {due}");
        assert_eq!(figure(summary, Metric::Due), Some(due as f64));
        assert_eq!(figure(summary, Metric::Failed), Some(0.0), "{scenario}");
        if scenario.contains("slo") {
            assert_eq!(figure(summary, Metric::Attainment), Some(1.0), "{scenario}");
        }
        let is_short = summary.warnings.iter().any(|warning| warning.contains("ran out"));
        assert!(!is_short, "{:?}", summary.warnings);
    }
}

#[test]
fn the_drain_counts_from_the_end_of_the_duration() {
    // Each answer takes 1.5 s at least, and its time ends after an hour.
    let bench = ran("30ms", "output_len: 50, prompts: 4, duration: 1h, drain: 1s");
    let run = bench.finished();
    let (summary, requests) = cell(&run);
    assert_eq!(summary.status, MeasurementStatus::Done);
    assert!(requests.iter().all(Request::is_completed), "{requests:?}");
}

#[test]
fn what_is_under_way_is_cut_when_the_drain_is_over() {
    // Each answer takes minutes.
    let bench = Bench::of(&sims(
        &[("v", "vllm", "--step, 500ms")],
        "  - timed: { dataset: random, input_len: 16, output_len: 500, range_ratio: 1.0, rate: 5, spacing: constant, duration: 1s, \
         drain: 500ms, warmup: 0 }\n",
    ));
    bench.run(&[]).exits(3);
    let run = bench.finished();
    let (summary, requests) = cell(&run);
    assert_eq!(requests.len(), 5, "{:?}", summary.status);
    for request in &requests {
        assert!(request.end_ns >= 1_500_000_000, "{request:?}");
        let failure = request.failure.as_ref().expect("it was cut");
        assert_eq!(failure.class.name(), "cancelled");
    }
}

#[test]
fn prompts_that_run_out_before_the_time_is_over_are_told() {
    for scenario in [
        "output_len: 2, prompts: 5, concurrency: 2, duration: 1h",
        "output_len: 2, prompts: 5, rate: 50, duration: 1h",
    ] {
        let bench = ran("10ms", scenario);
        let run = bench.finished();
        let (summary, _) = cell(&run);
        let actual: Vec<&String> = summary
            .warnings
            .iter()
            .filter(|warning| warning.contains("ran out"))
            .collect();
        assert!(
            matches!(actual[..], [actual] if actual.starts_with("the 5 prompts ran out after ") && actual.ends_with("raise `prompts`")),
            "{scenario}: {:?}",
            summary.warnings
        );
    }
}

#[test]
fn stages_have_prompts_enough_for_their_draw() {
    for seed in 1..4 {
        let bench = ran(
            "1ms",
            &format!(
                "output_len: 1, seed: {seed}, stages: [{{ rate: 20, duration: 1s }}, {{ rate: 40, duration: 500ms }}]"
            ),
        );
        let run = bench.finished();
        let (summary, requests) = cell(&run);
        let is_short = summary.warnings.iter().any(|warning| warning.contains("ran out"));
        assert!(!is_short, "{:?}", summary.warnings);
        assert!(requests.iter().all(|request| request.due_ns < 1_500_000_000));
        // The expected 40 and four of their deviations.
        assert_eq!(summary.prompts, Some(66));
        // Ten deviations of the expected 40.
        assert!((1..104).contains(&requests.len()), "{}", requests.len());
    }
}

/// The standard scenario asks for 1000 prompts and more; its data set here has fewer, and the load needs some 20.
#[test]
fn a_small_data_set_that_outlasts_the_duration_is_no_warning() {
    let bench = Bench::of(&sims(
        &[("v", "vllm", "--step, 1ms")],
        "  - sharegpt: { rate: 20, spacing: constant, duration: 1s, warmup: 0 }\n",
    ));
    bench.run(&[]).exits(0).says(", 20 requests");
    let run = bench.finished();
    let (summary, requests) = cell(&run);
    assert_eq!(requests.len(), 20);
    assert!(run.plan.cells[0].scenario.workload.prompts > summary.prompts.expect("it is known"));
    let is_short = summary
        .warnings
        .iter()
        .any(|warning| warning.contains("were requested"));
    assert!(!is_short, "{:?}", summary.warnings);
}
