//! Engines that are started several times take turns within one model, and the plan says what that costs.

use std::fs;

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
        .says("`repeats` sets the order of starts twice");
}

#[test]
fn the_plan_tells_what_either_order_costs() {
    let bench = Bench::of(&matrix("{ starts: 2 }"));
    let costs = "order: alternate (8 engine starts, 5 changes from one engine to another); `order: blocks` would be 8 engine starts, 3 changes from one engine to another";
    bench.call(&["plan", "matrices/m.yaml"]).exits(0).shows(costs);
    bench.run(&[]).exits(0);
    let planned = bench.call(&["plan", "matrices/m.yaml"]).exits(0).shows(costs);
    let loading = planned
        .stdout
        .lines()
        .find(|line| line.starts_with("in the last run, an engine took "))
        .expect("the run tells how long loading takes");
    assert!(
        loading.contains(" on average to load; ") && loading.contains(" all starts of this plan take "),
        "{loading}"
    );
    bench.leaves_no_process();
}

#[test]
fn arms_that_were_not_measured_are_not_judged_and_one_that_failed_has_failed() {
    let planned = matrix("{ starts: 2 }");
    let bench = Bench::of(&planned);
    bench.run(&["--only", "engine=a"]).exits(0);
    for arms in ["engine=a,b", "engine=b,a"] {
        let compared = bench.call(&["compare", "t", "--arms", arms]).exits(5);
        let compared = compared
            .shows("2 of 2 metrics not judged")
            .shows("not measured (the cell was left out, or the run was interrupted)");
        for wrong in ["Differences", "failed", "unknown"] {
            assert!(!compared.stdout.contains(wrong), "{}", compared.stdout);
        }
    }
    // What was under way when the run was interrupted is no failure either.
    let bench_of_interrupted = Bench::of(&planned);
    bench_of_interrupted.run(&[]).exits(0);
    let cells = fs::read_dir(bench_of_interrupted.run_folder().join("cells")).expect("there are cells");
    for cell in cells {
        let path = cell.expect("it can be read").path().join("summary.json");
        let text = fs::read_to_string(&path).expect("there is a summary");
        let mut summary: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        if summary["cell"]
            .as_str()
            .is_some_and(|cell| cell.contains("engine=b"))
        {
            summary["status"] = "interrupted".into();
            fs::write(&path, summary.to_string()).expect("it can be written");
        }
    }
    bench_of_interrupted
        .call(&["compare", "t", "--arms", "engine=a,b"])
        .exits(5)
        .shows("candidate: not measured (the run was interrupted)");
    let bench = Bench::of(&planned.replace(
        "variant: sglang, args: [",
        "variant: sglang, args: [--die-while-loading, ",
    ));
    bench.run(&[]).exits(3);
    // Where the candidate crashed and the baseline did not, that is a loss of reliability.
    for (arms, code) in [("engine=b,a", 3), ("engine=a,b", 1)] {
        bench
            .call(&["compare", "t", "--arms", arms])
            .exits(code)
            .shows(": failed: failed in launch");
    }
    bench.leaves_no_process();
}
