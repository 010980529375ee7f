//! Which differences between two machines forbid a verdict, and which are told only.

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
    page.exits(1).shows("another one of the same class");
    assert!(!is_noise_known(&actual), "{}", actual.stdout);
    // What was measured before machines had an identity is of the host of that name.
    let (page, actual) = compared(&MACHINE, &first, &MACHINE);
    page.exits(1);
    assert!(is_noise_known(&actual), "{}", actual.stdout);
}
