//! Answers that are compared with what their requests demand, in a matrix.

use matrix::analysis::metrics::{Metric, metric_value};
use matrix::results::record::cell::{Definitions, MeasurementSummary};
use matrix::results::record::validity::Verdict;

use crate::harness::{Bench, sims, summary};

fn figure(summary: &MeasurementSummary, name: &str) -> Option<f64> {
    let metric = Metric::from_name(name).expect("the metric exists");
    metric_value(&summary.figures[&Definitions::Matrix], metric)
}

/// Wrong answers are the engine's property: they cost goodput, and the measurement stays valid.
#[test]
fn wrong_answers_cost_goodput_and_no_validity() {
    let scenarios = "  - schemas: { dataset: structured, prompts: 20, concurrency: 4, slo: { e2e: 10m } }\n  \
                     - mixed: { dataset: structured, prompts: 20, concurrency: 4, structured: { tools_share: 0.5, schemas: 3 } }\n  \
                     - unchecked: { dataset: structured, prompts: 4, check_answers: false }\n";
    let bench = Bench::of(&sims(
        &[
            ("good", "vllm-chat", "--step=8ms"),
            ("wrong", "vllm-chat", "--wrong-answers=25%, --step=8ms"),
        ],
        scenarios,
    ));
    bench.run(&[]).exits(0);
    let run = bench.finished();
    for (engine, share) in [("good", 1.0), ("wrong", 0.75)] {
        for scenario in ["schemas", "mixed"] {
            let cell = summary(&run, engine, scenario);
            assert_eq!(figure(cell, "correct_share"), Some(share), "{engine} {scenario}");
            assert_eq!(figure(cell, "correct_requests"), Some(20.0 * share));
            assert_eq!(figure(cell, "completed_requests"), Some(20.0));
            assert!(figure(cell, "goodput_req_s") > Some(0.0));
            let validity = cell.validity.as_ref().expect("it is judged");
            assert!(validity.verdict < Verdict::Invalid, "{validity:#?}");
        }
        let slo = summary(&run, engine, "schemas");
        assert_eq!(figure(slo, "slo_attainment_share"), Some(share));
        assert_eq!(figure(summary(&run, engine, "unchecked"), "correct_share"), None);
    }
    let warnings = |engine: &str| summary(&run, engine, "schemas").warnings.join("\n");
    assert!(
        warnings("wrong").contains("15 of 20 checked answers are correct"),
        "{}",
        warnings("wrong")
    );
    assert!(
        !warnings("good").contains("checked answers"),
        "{}",
        warnings("good")
    );
    let folder = bench.run_folder().display().to_string();
    let report = bench.call(&["report", &folder]).exits(0);
    assert!(
        report.stdout.contains("15 of 20 checked answers are correct"),
        "{}",
        report.stdout
    );
    let mut classes = 0;
    for measurement in run.plan.starts.iter().flat_map(|start| &start.cells) {
        for request in run.read_requests(measurement).expect("requests are kept") {
            classes += usize::from(format!("{request:?}").contains("Incorrect"));
        }
    }
    // Five of twenty in each of two loads.
    assert_eq!(classes, 10);
    bench.leaves_no_process();
}

#[test]
fn a_load_whose_answers_cannot_be_checked_fails_by_itself() {
    let scenarios = "  - random-1k-1k: { prompts: 4, input_len: 48, output_len: 4, check_answers: true, body: { tools: [] } }\n  \
                     - sharegpt: { prompts: 4, output_len: 8 }\n";
    let bench = Bench::of(&sims(&[("a", "vllm", "")], scenarios));
    bench
        .run(&[])
        .exits(3)
        .says("no request says what its answer must be");
    let run = bench.finished();
    assert_eq!(
        figure(summary(&run, "a", "sharegpt"), "completed_requests"),
        Some(4.0)
    );
    let refused = sims(
        &[("native", "sglang", "")],
        "  - schemas: { dataset: structured, prompts: 4 }\n",
    );
    Bench::of(&refused)
        .call(&["check", "matrices/m.yaml"])
        .exits(2)
        .says("cannot send a JSON schema");
    let demands_nothing = sims(
        &[("a", "vllm", "")],
        "  - random-1k-1k: { prompts: 4, input_len: 48, output_len: 4, check_answers: true }\n",
    );
    Bench::of(&demands_nothing)
        .call(&["check", "matrices/m.yaml"])
        .exits(2)
        .says("no request says what its answer must be");
}
