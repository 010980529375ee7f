//! Answers that are graded on the measured engine, under its load and alone.

use std::fs;

use matrix::results::record::cell::Phase;
use matrix::results::record::validity::ReasonCode;
use matrix::results::store::Run as Finished;

use crate::harness::{Bench, failure, sims, summary};

const SCENARIO: &str =
    "  - l: { dataset: random, prompts: 24, input_len: 40, output_len: 20, concurrency: 8 }\n";

fn codes(run: &Finished, engine: &str) -> Vec<ReasonCode> {
    let validity = summary(run, engine, "l").validity.as_ref().expect("it is judged");
    validity.reasons.iter().map(|reason| reason.code).collect()
}

/// The scores of an engine's tasks on disk: correct and sent items.
fn scores(run: &Finished, engine: &str) -> Vec<(String, u64, u64)> {
    let summary = serde_json::to_value(summary(run, engine, "l")).expect("it is JSON");
    let tasks = summary["graded"]["tasks"]
        .as_array()
        .expect("answers were graded");
    tasks
        .iter()
        .map(|task| {
            let count = |key: &str| task[key].as_u64().expect("a count");
            (
                task["task"].as_str().expect("a name").to_owned(),
                count("correct"),
                count("items"),
            )
        })
        .collect()
}

#[test]
fn answers_that_are_wrong_only_under_load_cost_the_cell_and_others_are_told_apart() {
    let matrix = sims(
        &[
            ("good", "vllm-chat", "--step=4ms"),
            ("load", "vllm-chat", "--step=4ms, --wrong-above=4"),
            ("parser", "vllm-chat", "--step=4ms, --broken-tool-parser"),
            ("template", "vllm-chat", "--step=4ms, --wrong-template"),
        ],
        SCENARIO,
    );
    let tasks = "quality:\n  controls: 8\n  tasks:\n    - arithmetic: { items: 16, min_correct: 0.5 }\n    \
                 - copy: { items: 16, input_len: 20 }\n    - tool-calls: { items: 16 }\n";
    let bench = Bench::of(&format!("{matrix}{tasks}"));
    let matrix = bench.matrix();
    let matrix = matrix.to_str().expect("a text");
    bench
        .call(&["plan", matrix])
        .exits(0)
        .shows("then 48 graded items are sent under the same load");
    bench.run(&[]).exits(3).shows("Graded answers");
    let run = bench.finished();
    for (task, correct, items) in scores(&run, "good") {
        assert_eq!((correct, items), (16, 16), "{task}");
    }
    let wrong_under_load = [ReasonCode::AnswersWrongUnderLoad, ReasonCode::AnswersBelowMinimum];
    assert!(
        !codes(&run, "good")
            .iter()
            .any(|code| wrong_under_load.contains(code))
    );
    assert!(codes(&run, "load").contains(&ReasonCode::AnswersWrongUnderLoad));
    // Wrong alone, too.
    let correct: Vec<u64> = scores(&run, "parser")
        .iter()
        .map(|(_, correct, _)| *correct)
        .collect();
    assert_eq!(correct, [16, 16, 0]);
    assert!(
        !codes(&run, "parser")
            .iter()
            .any(|code| wrong_under_load.contains(code))
    );
    let found = codes(&run, "template");
    assert!(found.contains(&ReasonCode::AnswersBelowMinimum), "{found:?}");
    assert!(!found.contains(&ReasonCode::AnswersWrongUnderLoad), "{found:?}");
}

#[test]
fn own_items_are_read_before_the_load_and_bad_ones_are_refused() {
    let matrix = sims(&[("good", "vllm", "")], SCENARIO);
    let with = |tasks: &str| Bench::of(&format!("{matrix}quality: {{ tasks: [{tasks}] }}\n"));
    let refused = |bench: &Bench, text: &str| {
        bench
            .call(&["plan", bench.matrix().to_str().expect("a text")])
            .exits(2)
            .says(text);
    };
    refused(&with("arithmetics"), "use one of `arithmetic`");
    refused(
        &with("tool-calls"),
        "cannot be used for the task `tool-calls` of `quality`",
    );
    let bench = with("mine: { path: items.jsonl, grader: numeric, items: 2 }");
    refused(&bench, "items.jsonl");
    let items = "{\"question\": \"What is 12 * 12 + 100? Answer with the number alone.\", \"answer\": \"it is\\n#### 244\"}\n\
                 {\"question\": \"What is 12 * 12 + 100? Answer with the number alone.\", \"answer\": \"#### 1\"}\n";
    fs::write(bench.matrix().with_file_name("items.jsonl"), items).expect("it can be written");
    bench.run(&[]).exits(0);
    let run = bench.finished();
    assert_eq!(scores(&run, "good"), [("mine".to_owned(), 1, 2)]);
}

#[test]
fn an_engine_that_dies_while_it_is_graded_fails_its_cell_and_keeps_what_was_recorded() {
    let matrix = sims(&[("dies", "vllm", "--die-after=40requests")], SCENARIO);
    let bench = Bench::of(&format!(
        "{matrix}quality: {{ tasks: [arithmetic: {{ items: 40 }}] }}\n"
    ));
    bench.run(&[]).exits(3).shows("failed in grade");
    let run = bench.finished();
    let cell = summary(&run, "dies", "l");
    let (phase, reason, _) = failure(cell);
    assert_eq!(phase, Phase::Grade, "{reason}");
    let measurement = &run.plan.starts[0].cells[0];
    let requests = run.read_requests(measurement).expect("requests are kept");
    assert_eq!(requests.len(), 24);
}

#[test]
fn answers_that_are_worse_than_those_of_the_reference_cost_the_row_and_equal_ones_do_not() {
    let matrix = sims(
        &[
            ("pinned", "vllm", "--step=2ms, --wrong-answers=5%"),
            ("equal", "vllm", "--step=2ms, --wrong-answers=5%"),
            ("worse", "vllm", "--step=2ms, --wrong-answers=30%"),
        ],
        SCENARIO,
    );
    let quality = "quality: { reference: pinned, controls: 4, tasks: [arithmetic: { items: 120 }] }\n";
    let bench = Bench::of(&format!("{matrix}{quality}"));
    let ran = bench.run(&[]).exits(3).shows("lost / gained");
    ran.says("the answers are worse than those of the reference: arithmetic");
    let run = bench.finished();
    let compared = [
        ReasonCode::AnswersWorseThanReference,
        ReasonCode::AnswersNotCompared,
        ReasonCode::AnswersCompared,
    ];
    for (engine, code) in [
        ("pinned", None),
        ("equal", Some(ReasonCode::AnswersCompared)),
        ("worse", Some(ReasonCode::AnswersWorseThanReference)),
    ] {
        let mut found = codes(&run, engine);
        found.retain(|code| compared.contains(code));
        assert_eq!(found, code.into_iter().collect::<Vec<_>>(), "{engine}");
    }
    // The report of other formats has the figures.
    let folder = bench.run_folder();
    let folder = folder.to_str().expect("a text");
    let json = bench
        .call(&["report", folder, "--format", "json"])
        .exits(0)
        .stdout;
    let document: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    let cells = document["cells"].as_array().expect("it has cells");
    let worse = cells
        .iter()
        .find(|cell| cell["engine_name"] == "worse")
        .expect("it has the cell");
    let found = &worse["answers"][0]["versus_reference"]["result"]["compared"];
    assert_eq!(found["is_worse"], true, "{found}");
    assert_eq!(worse["validity"], "invalid");
    let csv = bench
        .call(&["report", folder, "--format", "csv-long"])
        .exits(0)
        .stdout;
    assert!(csv.contains("arithmetic_difference_share"), "{csv}");
    // A resumed run judges its answers again without the reference.
    let matrix = format!("{matrix}{}", quality.replace("reference: pinned, ", ""));
    bench.rewrite(&matrix);
    bench.run(&["--resume"]).exits(0);
    assert!(
        !codes(&bench.finished(), "worse")
            .iter()
            .any(|code| compared.contains(code))
    );
}
