//! What a newcomer does first.

use crate::harness::{Bench, repository, sims};

#[test]
fn the_demo_ends_with_tables_and_results_on_disk() {
    let bench = Bench::of(
        &std::fs::read_to_string(repository().join("matrices/demo.yaml")).expect("the demo is shipped"),
    );
    let ran = bench.run(&[]).exits(0);
    assert!(ran.stdout.contains("simulated"), "{}", ran.stdout);
    let run = bench.finished();
    assert_eq!(run.summaries.len(), 16);
    assert!(
        run.unfinished.is_empty() && run.warnings.is_empty(),
        "{:?} {:?}",
        run.unfinished,
        run.warnings
    );
    let folder = bench.run_folder();
    let lines = std::fs::read_to_string(folder.join("results.jsonl")).expect("there are lines");
    assert_eq!(lines.lines().count(), 16);
    for line in lines.lines() {
        let value: serde_json::Value = serde_json::from_str(line).expect("each line is strict JSON");
        assert!(value["completed"].as_u64() > Some(0), "{line}");
        assert!(value["output_throughput"].as_f64() > Some(0.0), "{line}");
        assert_eq!(value["matrix"]["origin"], "simulated");
    }
    let report = std::fs::read_to_string(folder.join("report.md")).expect("there is a report");
    assert!(
        report.contains("simulated") && report.contains("sim-vllm") && report.contains("demo-32b"),
        "{report}"
    );
    for measurement in run.plan.starts.iter().flat_map(|start| &start.cells) {
        let requests = run.read_requests(measurement).expect("requests are kept");
        let asked = run.plan.cell(&measurement.cell).scenario.workload.prompts as usize;
        assert_eq!(requests.len(), asked);
        assert!(
            requests
                .iter()
                .all(|request| request.is_completed() && request.usage.is_some())
        );
        assert!(
            !run.read_engine_log(measurement)
                .expect("there is a log")
                .is_empty()
                || measurement.cell != run.plan.starts[0].cells[0].cell
        );
    }
    bench.leaves_no_process();
}

#[test]
fn two_dialects_send_the_same_prompts_and_get_what_they_ask_for() {
    let bench = Bench::of(&sims(
        &[
            ("a", "sglang", ""),
            ("b", "vllm-chat", ""),
            ("c", "lmdeploy", ""),
            ("d", "openai", ""),
            ("e", "sglang-oai-chat", ""),
        ],
        "  - random-1k-1k: { prompts: 8, input_len: 64, output_len: 20 }\n",
    ));
    bench.run(&[]).exits(0);
    let run = bench.finished();
    let hashes: std::collections::BTreeSet<_> = run
        .summaries
        .iter()
        .map(|summary| summary.prompts_hash.clone())
        .collect();
    assert_eq!((run.summaries.len(), hashes.len()), (5, 1));
    for measurement in run.plan.starts.iter().flat_map(|start| &start.cells) {
        for request in run.read_requests(measurement).expect("requests are kept") {
            assert_eq!(
                request.output_tokens(),
                Some(20),
                "{}: {request:?}",
                measurement.cell
            );
        }
    }
    bench.leaves_no_process();
}

#[test]
fn plan_prints_what_run_does_and_how_long_it_took_last_time() {
    let bench = Bench::of(&sims(
        &[("a", "vllm", "")],
        "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 4 }\n",
    ));
    let before = bench.call(&["plan", "matrices/m.yaml"]).exits(0);
    assert!(!before.stdout.contains("last time"));
    bench.run(&[]).exits(0);
    bench
        .call(&["plan", "matrices/m.yaml"])
        .exits(0)
        .shows("last time");
    let json = bench.call(&["plan", "matrices/m.yaml", "--json"]).exits(0);
    let plan: serde_json::Value = serde_json::from_str(&json.stdout).expect("a plan is JSON");
    assert!(plan["cells"][0]["last_seconds"].as_f64() > Some(0.0));
}

#[test]
fn report_draws_the_same_tables_again() {
    let bench = Bench::of(&sims(
        &[("a", "vllm", ""), ("b", "sglang", "")],
        "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 4 }\n",
    ));
    let ran = bench.run(&[]).exits(0);
    let folder = bench.run_folder();
    let again = bench
        .call(&[
            "report",
            folder.to_str().expect("a path is text"),
            "--format",
            "markdown",
        ])
        .exits(0);
    let written = std::fs::read_to_string(folder.join("report.md")).expect("there is a report");
    assert_eq!(again.stdout, written);
    assert!(ran.stdout.contains("sim"), "{}", ran.stdout);
    bench
        .call(&["report", "results/nowhere"])
        .exits(2)
        .says("nowhere");
}
