//! Which differences between two machines forbid a verdict, and which are told only.

use std::collections::BTreeMap;
use std::fs;

use matrix::base::ids::{CellKey, ContentHash, RunId};
use matrix::results::record::cell::Origin;
use matrix::results::record::cell_stats::{Baseline, CellStats, Facts, Noise, NoiseEstimate, RunStats};

use crate::harness::{Bench, Ran, sims};

const FIGURE: &str = "output_throughput_tok_s";
const CELL: &str = "engine=a,model=m,scenario=s";

fn facts(actual: &[(&str, &str)]) -> Facts {
    let actual = actual.iter();
    actual
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// A side of one cell with these starts, as a baseline's file.
fn file(machine: Facts, starts: &[f64]) -> String {
    let cell = CellStats {
        axes: BTreeMap::new(),
        content: ContentHash::from_bytes(b"content"),
        asked: BTreeMap::new(),
        limits: BTreeMap::new(),
        engine: BTreeMap::new(),
        settings: BTreeMap::new(),
        load: None,
        prompts: Some(ContentHash::from_bytes(b"prompts")),
        clock_mhz: None,
        capped_share: None,
        one_token_share: None,
        loop_share: None,
        canned_share: None,
        tokens_per_counted: None,
        tokens_per_event: None,
        vision_tokens: None,
        attached: false,
        devices: 1,
        requests: Some(1000),
        origin: Origin::Measured,
        gates: vec![FIGURE.to_owned()],
        figures: [(
            FIGURE.to_owned(),
            starts.iter().map(|value| vec![*value]).collect(),
        )]
        .into(),
        intervals: BTreeMap::new(),
        excluded: Vec::new(),
        launch: None,
        first_stage: None,
        resolutions: BTreeMap::new(),
        no_ratio: BTreeMap::new(),
        no_verdict: BTreeMap::new(),
        answer_tokens: None,
        suspect: Vec::new(),
        tried: None,
    };
    let side = RunStats {
        run: RunId::new("r"),
        matrix: "m".to_owned(),
        began: "2026-01-01T00:00:00Z".to_owned(),
        tool: "matrix".to_owned(),
        machine,
        cells: [(CellKey::new(CELL), cell)].into(),
    };
    let baseline = Baseline {
        format: 1,
        accepted: Vec::new(),
        launches: Vec::new(),
        side,
    };
    serde_json::to_string(&baseline).expect("it is JSON")
}

/// A fifth less output on a machine of the second facts than on one of the first; what its noise is, is known of `noisy`.
fn compared(before: &[(&str, &str)], after: &[(&str, &str)], noisy: &[(&str, &str)]) -> (Ran, Ran) {
    let bench = Bench::of(&sims(&[("a", "vllm", "")], "  - random-1k-1k: { prompts: 1 }\n"));
    let folder = bench.results().with_file_name("cache");
    fs::create_dir_all(&folder).expect("a folder can be made");
    let varies = NoiseEstimate {
        at: "2026-01-01T00:00:00Z".to_owned(),
        starts: 12,
        per_start: 1,
        start_share: 0.004,
        bound_share: None,
        df: None,
        between_share: 0.004,
        within_share: None,
        difference_share: 0.0,
    };
    let noise = Noise {
        machine: facts(noisy),
        cells: [(CellKey::new(CELL), [(FIGURE.to_owned(), varies)].into())].into(),
    };
    let write = |name: &str, text: &str| {
        fs::write(bench.results().with_file_name(name), text).expect("a file can be written");
    };
    write(
        "cache/noise.json",
        &serde_json::to_string(&noise).expect("it is JSON"),
    );
    write(
        "one.json",
        &file(facts(before), &[100.0, 100.4, 99.6, 100.2, 99.8]),
    );
    write("two.json", &file(facts(after), &[80.0, 80.3, 79.7, 80.1, 79.9]));
    let call = |format| bench.call(&["compare", "one.json", "two.json", "--format", format]);
    (call("markdown"), call("json"))
}

fn is_noise_known(actual: &Ran) -> bool {
    let actual: serde_json::Value = serde_json::from_str(&actual.stdout).expect("it is JSON");
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
