//! Engines that are started several times take turns within one model, and the plan says what that costs.

use crate::harness::{Bench, Ran};

/// Two engines and two models, two starts each.
fn matrix(repeats: &str) -> String {
    format!(
        "name: t
engines:
  - sim: {{ as: a, variant: vllm, args: [--preset, fast] }}
  - sim: {{ as: b, variant: sglang, args: [--preset, fast] }}
models:
  - one: {{ tokenizer: data/tokenizer.json }}
  - two: {{ tokenizer: data/tokenizer.json }}
scenarios:
  - random-1k-1k: {{ prompts: 2, input_len: 8, output_len: 4, warmup: 0 }}
repeats: {repeats}
datasets: {{ sharegpt: data/conversations.json }}
"
    )
}

/// Engine and model of each start, in order: `a one`.
fn starts(planned: &Ran) -> Vec<String> {
    let plan: serde_json::Value = serde_json::from_str(&planned.stdout).expect("it is JSON");
    let launches = plan["launches"].as_array().expect("there are launches");
    let of = |id: &serde_json::Value| {
        let launch = launches
            .iter()
            .find(|launch| launch["launch"] == *id)
            .expect("it is one of them");
        let text = |value: &serde_json::Value| value.as_str().expect("it is a text").to_owned();
        format!("{} {}", text(&launch["engine"]["name"]), text(&launch["model"]))
    };
    let starts = plan["starts"].as_array().expect("there are starts");
    starts.iter().map(|start| of(&start["launch"])).collect()
}

#[test]
fn engines_take_turns_within_one_model_unless_blocks_are_asked_for() {
    let bench = Bench::of(&matrix("{ starts: 2 }"));
    let planned = |matrix: &str| {
        bench.rewrite(matrix);
        bench.call(&["plan", "matrices/m.yaml", "--json"]).exits(0)
    };
    let turns = [
        "a one", "b one", "b one", "a one", "a two", "b two", "b two", "a two",
    ];
    assert_eq!(starts(&planned(&matrix("{ starts: 2 }"))), turns);
    let older = planned(&matrix("{ starts: 2, interleave: true }"));
    assert_eq!(starts(&older), turns);
    older.says("note: `interleave: true` is the older form of `order: alternate`, which is the default");
    let blocks = [
        "a one", "a one", "a two", "a two", "b one", "b one", "b two", "b two",
    ];
    for repeats in ["{ starts: 2, order: blocks }", "{ starts: 2, interleave: false }"] {
        assert_eq!(starts(&planned(&matrix(repeats))), blocks, "{repeats}");
    }
    bench.rewrite(&matrix("{ starts: 2, order: blocks, interleave: true }"));
    bench
        .call(&["check", "matrices/m.yaml"])
        .exits(2)
        .says("`repeats` says twice in which order engines are started");
}

#[test]
fn the_plan_tells_what_either_order_costs() {
    let bench = Bench::of(&matrix("{ starts: 2 }"));
    let costs = "order: alternate (8 engine starts, another engine 5 times); `order: blocks` would be 8 engine starts, another engine 3 times";
    bench.call(&["plan", "matrices/m.yaml"]).exits(0).shows(costs);
    bench.run(&[]).exits(0);
    let planned = bench.call(&["plan", "matrices/m.yaml"]).exits(0).shows(costs);
    let loading = planned
        .stdout
        .lines()
        .find(|line| line.starts_with("loading took "))
        .expect("the run tells how long loading takes");
    assert!(
        loading.contains(" a start last time: ") && loading.contains(" for all starts"),
        "{loading}"
    );
    bench.leaves_no_process();
}
