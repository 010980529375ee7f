//! Which differences between two machines forbid a verdict, and which are only reported; runs that go on on another machine.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use crate::harness::{Bench, Ran, sims};

const FIGURE: &str = "output_throughput_tok_s";
const CELL: &str = "engine=a,model=m,scenario=s";

fn facts(facts: &[(&str, &str)]) -> Value {
    let facts = facts.iter();
    facts
        .map(|(name, value)| ((*name).to_owned(), json!(value)))
        .collect()
}

/// The file of a baseline with one cell, measured on these starts.
fn baseline(machine: &[(&str, &str)], starts: &[f64]) -> String {
    let starts: Vec<[f64; 1]> = starts.iter().map(|value| [*value]).collect();
    let cell = json!({
        "axes": {}, "content": "content", "engine": {}, "settings": {}, "prompts": "prompts", "devices": 1,
        "requests": 1000, "origin": "measured", "gates": [FIGURE], "figures": { FIGURE: starts },
    });
    let side = json!({
        "run": "r", "matrix": "m", "began": "2026-01-01T00:00:00Z", "tool": "matrix",
        "machine": facts(machine), "cells": { CELL: cell },
    });
    json!({ "format": 1, "accepted": [], "side": side }).to_string()
}

/// A fifth less output on a machine of the second facts than on one of the first; what its noise is, is known of `noisy`.
fn compared(before: &[(&str, &str)], after: &[(&str, &str)], noisy: &[(&str, &str)]) -> (Ran, Ran) {
    let bench = Bench::of(&sims(&[("a", "vllm", "")], "  - random-1k-1k: { prompts: 1 }\n"));
    let folder = bench.results().with_file_name("cache");
    fs::create_dir_all(&folder).expect("a folder can be made");
    let estimate = json!({
        "at": "2026-01-01T00:00:00Z", "starts": 12, "per_start": 1, "start_share": 0.004, "between_share": 0.004,
        "difference_share": 0.0,
    });
    let noise = json!({ "machine": facts(noisy), "cells": { CELL: { FIGURE: estimate } } });
    let write = |name: &str, text: &str| {
        fs::write(bench.results().with_file_name(name), text).expect("a file can be written");
    };
    write("cache/noise.json", &noise.to_string());
    write("one.json", &baseline(before, &[100.0, 100.4, 99.6, 100.2, 99.8]));
    write("two.json", &baseline(after, &[80.0, 80.3, 79.7, 80.1, 79.9]));
    let call = |format| bench.call(&["compare", "one.json", "two.json", "--format", format]);
    (call("markdown"), call("json"))
}

fn is_noise_known(actual: &Ran) -> bool {
    let actual: Value = serde_json::from_str(&actual.stdout).expect("it is JSON");
    actual["rows"][0]["is_noise_known"] == true
}

const MACHINE: [(&str, &str); 5] = [
    ("CPU", "EPYC"),
    ("CPUs", "2"),
    ("host", "runner-1"),
    ("kernel", "6.8.0-45-generic"),
    ("memory", "24.49 GiB"),
];

/// The machine with one fact changed.
fn with<'f>(name: &'f str, value: &'f str) -> Vec<(&'f str, &'f str)> {
    let mut facts: BTreeMap<&str, &str> = MACHINE.into();
    facts.insert(name, value);
    facts.into_iter().collect()
}

#[test]
fn a_new_host_name_a_kernel_patch_and_a_few_bytes_of_memory_keep_the_verdict() {
    for (name, value) in [
        ("host", "runner-2"),
        ("kernel", "6.8.0-51-generic"),
        ("memory", "24.51 GiB"),
        ("CPUs", "1"),
    ] {
        let (page, _) = compared(&MACHINE, &with(name, value), &MACHINE);
        let page = page.exits(1);
        assert!(page.stdout.contains("worse"), "{name}: {}", page.stdout);
        assert!(page.stdout.contains("host"), "{name}: {}", page.stdout);
    }
}

#[test]
fn another_power_limit_driver_or_processor_gives_no_verdict() {
    for (name, before, after) in [
        ("GPU 0 power limit", "700 W", "350 W"),
        ("driver", "570.1", "560.3"),
        ("GPUs", "H100", "H200"),
        ("CPU", "EPYC", "Xeon"),
    ] {
        let (page, _) = compared(&with(name, before), &with(name, after), &MACHINE);
        assert_ne!(page.code, Some(1), "{name}: {}", page.stdout);
        assert!(
            page.stdout.contains(before)
                && page.stdout.contains(after)
                && page.stdout.contains("environment"),
            "{name}: {}",
            page.stdout
        );
    }
}

#[test]
fn noise_is_found_again_under_another_host_name_and_not_used_on_another_machine() {
    let uuids = |host: &'static str, uuids: &'static str| {
        let mut facts = with("host", host);
        facts.push(("GPU UUIDs", uuids));
        facts
    };
    let (first, renamed) = (
        uuids("runner-1", "GPU-1, GPU-2"),
        uuids("runner-2", "GPU-1, GPU-2"),
    );
    let (page, actual) = compared(&first, &renamed, &first);
    page.exits(1);
    assert!(is_noise_known(&actual), "{}", actual.stdout);
    let (page, actual) = compared(&first, &uuids("runner-1", "GPU-7, GPU-8"), &first);
    page.exits(1).shows("another machine of the same class");
    assert!(!is_noise_known(&actual), "{}", actual.stdout);
    // What was measured before machines had an identity is of the host of that name.
    let (page, actual) = compared(&MACHINE, &first, &MACHINE);
    page.exits(1);
    assert!(is_noise_known(&actual), "{}", actual.stdout);
}

const SMALL: &str = "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 4 }\n";

/// Calls the binary as a job on that node would.
fn call_on(bench: &Bench, node: &str, args: &[&str]) -> Ran {
    let ran = bench.command(args).env("SLURMD_NODENAME", node).output();
    Ran::from(ran.expect("the binary runs"))
}

/// Has the run say that it was measured so far on this processor.
fn measured_on_processor(bench: &Bench, name: &str) {
    let path = bench.run_folder().join("machine.json");
    let text = fs::read_to_string(&path).expect("the run began");
    let mut machine: Value = serde_json::from_str(&text).expect("it is JSON");
    machine["cpu"] = json!(name);
    fs::write(&path, machine.to_string()).expect("it can be written");
}

/// The node of each start by its engine, as the summaries say.
fn nodes(bench: &Bench) -> Vec<(String, String)> {
    let summaries = bench.finished().summaries;
    let node = |summary| -> (String, String) {
        let summary: Value = serde_json::to_value(summary).expect("it is JSON");
        let text = |value: &Value| value.as_str().expect("it is there").to_owned();
        (
            text(&summary["launch"])[..1].to_owned(),
            text(&summary["machine"]["node"]),
        )
    };
    summaries.iter().map(node).collect()
}

#[test]
fn arms_of_a_run_that_went_on_on_another_machine_are_named_and_judged_only_if_they_may_be() {
    let matrix = format!(
        "{}repeats: {{ starts: 5 }}\n",
        sims(
            &[("a", "vllm", ""), ("b", "vllm", "--itl, 20ms, --ttft, 50ms")],
            SMALL
        )
        .replace("--preset, fast, --itl", "--itl")
    );
    let args = ["run", "matrices/m.yaml", "--no-calibration"];
    let compare = |bench: &Bench| {
        let run = bench.run_folder().display().to_string();
        bench.call(&["compare", &run, "--arms", "engine=a,b"])
    };
    for processor in [None, Some("Another 9000")] {
        let bench = Bench::of(&matrix);
        let only = ["--only", "engine=a"];
        call_on(&bench, "node1", &[&args[..], &only[..]].concat()).exits(0);
        if let Some(name) = processor {
            measured_on_processor(&bench, name);
        }
        call_on(&bench, "node2", &[&args[..], &["--resume"][..]].concat()).exits(0);
        let expected: Vec<(String, String)> = [("a", "node1"), ("b", "node2")]
            .into_iter()
            .flat_map(|(engine, node)| vec![(engine.to_owned(), node.to_owned()); 5])
            .collect();
        let mut found = nodes(&bench);
        found.sort();
        assert_eq!(found, expected);
        let report = fs::read_to_string(bench.run_folder().join("report.md")).expect("it was written");
        assert!(
            report.contains("node1 (5 measurements), node2 (5 measurements)")
                && report.contains("node node2 against node1"),
            "{report}"
        );
        let compared = compare(&bench).shows("node1").shows("node2");
        match processor {
            None => assert!(
                !compared.stdout.contains("environment CPU"),
                "{}",
                compared.stdout
            ),
            Some(name) => drop(compared.exits(5).shows(name).shows("environment CPU")),
        }
    }
}

#[test]
fn noise_that_two_nodes_measured_is_not_saved_and_the_run_is_kept() {
    let matrix = sims(&[("a", "vllm", "")], SMALL);
    let args = ["noise", "matrices/m.yaml", "--no-calibration", "--starts", "3"];
    let saved = |bench: &Bench| bench.results().with_file_name("cache").join("noise.json");
    let bench = Bench::of(&matrix);
    call_on(&bench, "node1", &args).exits(0).shows("saved in");
    assert!(saved(&bench).exists());
    let bench = Bench::of(&matrix);
    let mut command = bench.command(&args);
    let begun = command.env("SLURMD_NODENAME", "node1").spawn();
    bench.until_journal("\"cell-ended\"");
    let mut begun = begun.expect("the binary runs");
    begun.kill().and_then(|()| begun.wait()).expect("it is a child");
    let ran = call_on(&bench, "node2", &[&args[..], &["--resume"][..]].concat());
    ran.exits(5)
        .says("the noise is not saved")
        .says("node node1 and node2")
        .says("Measure the noise again on one host");
    assert!(!saved(&bench).exists());
    assert_eq!(bench.finished().summaries.len(), 6, "the run is complete");
}
