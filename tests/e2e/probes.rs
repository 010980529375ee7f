//! Greedy probes: answers that are compared with each other, and never judged.

use serde_json::Value;

use crate::harness::{Bench, sims};

const SCENARIO: &str =
    "  - l: { dataset: random, prompts: 24, input_len: 40, output_len: 20, concurrency: 8 }\n";

/// Insists that an engine answered all probes under load and alone, in its one cell that has them.
pub fn answers_all(bench: &Bench, engine: &str) {
    let probes = agreement(bench, engine);
    assert_eq!(probes["under_load"]["probes"], 32, "{probes}");
    assert!(
        share(&probes["under_load"]) > 0.0,
        "a greedy answer never depends on the load alone: {probes}"
    );
}

/// The agreement of an engine's answers in the report.
fn agreement(bench: &Bench, engine: &str) -> Value {
    let folder = bench.run_folder();
    let folder = folder.to_str().expect("a text");
    let json = bench
        .call(&["report", folder, "--format", "json"])
        .exits(0)
        .stdout;
    let document: Value = serde_json::from_str(&json).expect("it is JSON");
    let cells = document["cells"].as_array().expect("it has cells");
    let is_asked = |cell: &&Value| cell["engine_name"] == engine && !cell["probes"].is_null();
    let cell = cells.iter().find(is_asked);
    let cell = cell.expect("it has the cell");
    assert_ne!(cell["validity"], "invalid", "{cell}");
    cell["probes"].clone()
}

fn share(figures: &Value) -> f64 {
    figures["identical_share"].as_f64().expect("a share")
}

#[test]
fn answers_that_vary_are_shown_beside_what_is_normal_and_cost_nothing() {
    let matrix = sims(
        &[
            ("same", "vllm", "--step=2ms"),
            ("varied", "vllm-chat", "--step=2ms, --varied-answers=50%"),
            ("other", "vllm", "--step=2ms, --seed=7"),
        ],
        SCENARIO,
    );
    let bench = Bench::of(&format!(
        "{matrix}repeats: {{ starts: 2 }}\nquality: {{ probes: true, reference: same }}\n"
    ));
    let file = bench.matrix();
    bench
        .call(&["plan", file.to_str().expect("a text")])
        .exits(0)
        .shows("then 32 probe prompts are sent under the same load");
    bench
        .run(&[])
        .exits(0)
        .shows("Greedy probes")
        .shows("agreement is not judged");
    let same = agreement(&bench, "same");
    assert_eq!(same["under_load"]["probes"], 64);
    assert_eq!(share(&same["under_load"]), 1.0, "{same}");
    assert_eq!(share(&same["between_starts"]["all"]), 1.0, "{same}");
    assert_eq!(same["versus_reference"], Value::Null);
    let varied = agreement(&bench, "varied");
    // A quarter of the pairs has no answer that varies.
    let under_load = &varied["under_load"];
    assert!((0.05..0.6).contains(&share(under_load)), "{varied}");
    let length = |key: &str| under_load[key].as_f64().expect("a length");
    assert!(length("common_characters") < length("characters"), "{varied}");
    assert!(length("common_characters") > 0.0, "{varied}");
    let between = &varied["between_starts"];
    assert_eq!(between["pairs"], 1);
    assert!((0.0..0.75).contains(&share(&between["all"])), "{varied}");
    // Another seed gives the words of another model.
    let other = agreement(&bench, "other");
    assert_eq!(share(&other["under_load"]), 1.0, "{other}");
    let versus = &other["versus_reference"]["result"]["compared"];
    assert_eq!(share(versus), 0.0, "{other}");
}
