//! Graded answers that are compared with those of a stored run.

use std::fs;
use std::path::{Path, PathBuf};

use matrix::results::record::validity::ReasonCode;
use matrix::results::store::Run as Finished;

use crate::harness::{Bench, sims, summary};

const SCENARIO: &str =
    "  - l: { dataset: random, prompts: 24, input_len: 40, output_len: 20, concurrency: 8 }\n";
const RIGHT: &str = "--step=2ms, --wrong-answers=4%";

fn matrix(engines: &[(&str, &str, &str)], quality: &str) -> String {
    format!("{}quality: {{ {quality} }}\n", sims(engines, SCENARIO))
}

/// A bench with a finished run of one engine, and the name of that run.
fn pinned(tasks: &str) -> (Bench, String) {
    let bench = Bench::of(&matrix(&[("pinned", "vllm", RIGHT)], tasks));
    bench.run(&[]).exits(0);
    let name = name_of(&bench.run_folder());
    (bench, name)
}

fn name_of(folder: &Path) -> String {
    let name = folder.file_name().expect("it has a name");
    name.to_string_lossy().into_owned()
}

/// The one run below a folder of results.
fn run_below(bench: &Bench, results: &str) -> PathBuf {
    let entries = fs::read_dir(bench.path().join(results)).expect("there are results");
    let mut folders = entries.map(|entry| entry.expect("it can be read").path());
    folders
        .find(|path| path.join("run.json").exists())
        .expect("there is a run")
}

/// The codes of the comparison of an engine's cell, with what was measured.
fn compared(folder: &Path, engine: &str) -> Vec<(ReasonCode, String)> {
    let run = Finished::read(folder).expect("the run can be read");
    let validity = summary(&run, engine, "l")
        .validity
        .as_ref()
        .expect("it is judged");
    let reasons = validity.reasons.iter().filter(|reason| {
        [
            ReasonCode::AnswersWorseThanReference,
            ReasonCode::AnswersNotCompared,
            ReasonCode::AnswersCompared,
        ]
        .contains(&reason.code)
    });
    reasons
        .map(|reason| (reason.code, reason.measured.clone()))
        .collect()
}

#[test]
fn answers_worse_than_those_of_a_stored_run_cost_the_row_and_the_copy_outlives_that_run() {
    let tasks = "controls: 4, tasks: [arithmetic: { items: 120 }]";
    let (bench, name) = pinned(tasks);
    let engines = [
        ("equal", "vllm", RIGHT),
        ("worse", "vllm", "--step=2ms, --wrong-answers=30%"),
    ];
    bench.rewrite(&matrix(
        &engines,
        &format!("{tasks}, reference: {{ run: results/{name} }}"),
    ));
    let ran = bench.run(&["--results", "new"]).exits(3);
    ran.says(&format!("of the stored run `{name}`"))
        .shows(&format!("of the stored run {name}"));
    let folder = run_below(&bench, "new");
    let [(code, measured)] = &compared(&folder, "worse")[..] else {
        panic!("one reason is expected");
    };
    assert_eq!(*code, ReasonCode::AnswersWorseThanReference, "{measured}");
    assert!(measured.contains(&name), "{measured}");
    assert_eq!(compared(&folder, "equal")[0].0, ReasonCode::AnswersCompared);
    // A report needs the copy alone, and a resumed run too.
    let json = |bench: &Bench| {
        let path = folder.to_str().expect("a text");
        let json = bench.call(&["report", path, "--format", "json"]).exits(0).stdout;
        let document: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
        let cells = document["cells"].as_array().expect("it has cells").clone();
        let worse = cells.into_iter().find(|cell| cell["engine_name"] == "worse");
        worse.expect("it has the cell")["answers"][0]["versus_reference"].clone()
    };
    let before = json(&bench);
    assert_eq!(before["run"], name);
    assert_eq!(before["result"]["compared"]["is_worse"], true);
    let stored = bench.results().join(&name);
    let summaries = fs::read_dir(stored.join("cells")).expect("it has cells");
    for cell in summaries {
        let path = cell.expect("it can be read").path().join("summary.json");
        let text = fs::read_to_string(&path).expect("it can be read");
        fs::write(&path, text.replace("\"outcomes\": \"1", "\"outcomes\": \"0")).expect("it can be written");
    }
    bench
        .run(&["--results", "new", "--resume"])
        .exits(3)
        .says(&format!("the answers of the stored run `{name}` have changed"));
    assert_eq!(json(&bench), before);
    fs::remove_dir_all(stored).expect("it can be removed");
    let resumed = bench.run(&["--results", "new", "--resume"]).exits(3);
    assert!(!resumed.stderr.contains("have changed"), "{}", resumed.stderr);
    assert_eq!(json(&bench), before);
}

#[test]
fn a_stored_run_that_cannot_be_compared_is_refused_before_anything_starts_and_other_items_are_named() {
    let items =
        |answer: u32| format!("{{\"question\": \"What is 11 * 11 + 100?\", \"answer\": \"{answer}\"}}\n");
    let bench = Bench::of("");
    let file = bench.path().join("matrices/items.jsonl");
    fs::write(&file, items(221).repeat(4)).expect("it can be written");
    let tasks = "tasks: [arithmetic: { items: 8 }, mine: { path: items.jsonl, grader: numeric, items: 4 }]";
    bench.rewrite(&matrix(&[("pinned", "vllm", RIGHT)], tasks));
    bench.run(&[]).exits(0);
    let name = name_of(&bench.run_folder());
    let engine = [("other", "vllm", RIGHT)];
    let with = |tasks: &str, reference: &str| {
        bench.rewrite(&matrix(
            &engine,
            &format!("{tasks}, reference: {{ {reference} }}"),
        ));
        bench.run(&["--results", "new"])
    };
    with(tasks, "run: nowhere")
        .exits(2)
        .says("no run `nowhere` found");
    with(
        "tasks: [arithmetic: { items: 5 }]",
        &format!("run: results/{name}"),
    )
    .exits(2)
    .says("8 instead of 5 items");
    let other_load = matrix(&engine, &format!("{tasks}, reference: {{ run: results/{name} }}"));
    bench.rewrite(&other_load.replace("input_len: ", "input_len: 1"));
    bench
        .run(&["--results", "new"])
        .exits(2)
        .says("has other prompts in the stored run, although it has the same name there");
    with(tasks, &format!("run: results/{name}, engine: vllm"))
        .exits(2)
        .says("selects none of the graded cells of the stored run: `engine=pinned,");
    assert!(!bench.path().join("new").exists());
    fs::write(&file, items(222).repeat(4)).expect("it can be written");
    with(tasks, &format!("run: results/{name}")).exits(0);
    let found = compared(&run_below(&bench, "new"), "other");
    let [(mine, measured), (arithmetic, _)] = &found[..] else {
        panic!("two reasons are expected: {found:?}");
    };
    assert_eq!(
        [arithmetic, mine].map(|code| *code == ReasonCode::AnswersNotCompared),
        [false, true],
        "{measured}"
    );
    assert!(measured.contains("the items differ"), "{measured}");
}
