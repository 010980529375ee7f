//! Every critical and high finding of the verdicts once more, from what the finding says alone, with another shape of data than the first test of
//! it.

use serde_json::{Value, json};

use crate::written::{
    E2E, OUTPUT, Row, Written, around, burst, doubted, gpu_host, has_best, host, merged, paced, row_of,
};

/// How a machine of `written` is told in files of sides.
fn facts() -> Value {
    json!({ "host": "h", "kernel": "6.8.0-45-generic", "CPU": "EPYC 9654", "CPUs": "8", "memory": "64.00 GiB" })
}

fn key(engine: &str, model: &str) -> String {
    format!("engine={engine},version=1,model={model},scenario=s")
}

/// Two runs on one host, compared.
fn compared(first: &[Row], second: &[Row]) -> (i32, String, Value) {
    let written = Written::new();
    written.run("r1", &host("h"), first);
    written.run("r2", &host("h"), second);
    written.compare(&["results/r1", "results/r2"])
}

fn verdicts(actual: &Value) -> Vec<&str> {
    let rows = actual["rows"].as_array().expect("there are rows");
    rows.iter()
        .map(|row| row["verdict"].as_str().unwrap_or("none"))
        .collect()
}

#[test]
fn c1_a_slower_engine_on_a_noisy_host_is_never_the_same() {
    // Latencies at a rate, 9 % slower, in six cells; the noise of the host is known from another cell.
    let rows = |by: f64| -> Vec<Row> {
        (0..6)
            .map(|model| {
                let e2e: Vec<f64> = [200.0, 206.0, 195.0, 203.0, 198.0, 201.0, 197.0, 202.0]
                    .iter()
                    .enumerate()
                    .map(|(at, value)| by * value * (1.0 + 0.004 * ((at * 7 + model * 3) % 5) as f64))
                    .collect();
                Row::measured("x", &format!("m{model}"), paced("s", 4.0), E2E, &e2e)
            })
            .collect()
    };
    for share in [0.02, 0.05, 0.1] {
        let written = Written::new();
        written.run("r1", &host("h"), &rows(1.0));
        written.run("r2", &host("h"), &rows(1.09));
        written.noise(&facts(), &key("other", "m9"), E2E, share);
        let (code, text, actual) = written.compare(&["results/r1", "results/r2"]);
        assert_eq!(actual["rows"][0]["is_noise_known"], true, "{text}");
        assert!(!verdicts(&actual).contains(&"same"), "{share}: {text}");
        assert_eq!(code == 1, verdicts(&actual).contains(&"worse"), "{share}: {text}");
    }
}

#[test]
fn c2_a_comparison_that_judged_nothing_does_not_end_with_success() {
    let written = Written::new();
    written.run(
        "r1",
        &gpu_host("h", "570.1", 700.0),
        &[Row::of("x", "m", &around(100.0))],
    );
    written.run(
        "r2",
        &gpu_host("h", "560.3", 700.0),
        &[Row::of("x", "m", &around(50.0))],
    );
    let (code, text, actual) = written.compare(&["results/r1", "results/r2"]);
    assert_eq!((code, verdicts(&actual)), (5, vec!["none"]), "{text}");
    assert!(text.starts_with("1 of 1 metrics not judged\n"), "{text}");
    assert!(text.contains("driver: 570.1 → 560.3"), "{text}");
    // The same machine in a container of another name, after a patch of its kernel, with a little less memory.
    let renamed = merged(
        gpu_host("pod-7f9c", "570.1", 700.0),
        &json!({ "kernel": "6.8.0-51-generic", "memory_bytes": 68_700_000_000u64, "cpus": 6 }),
    );
    written.run("r3", &renamed, &[Row::of("x", "m", &around(50.0))]);
    let (code, text, actual) = written.compare(&["results/r1", "results/r3"]);
    assert_eq!((code, verdicts(&actual)), (1, vec!["worse"]), "{text}");
    assert!(text.starts_with("1 of 1 metrics judged: 1 worse\n"), "{text}");
    assert!(text.contains("pod-7f9c"), "{text}");
}

#[test]
fn c5_goodput_and_latency_decide_at_a_rate_and_throughput_does_not() {
    // The second one writes a little more and misses the SLO of every other request.
    let scenario = merged(
        paced("p", 8.0),
        &json!({ "slo": { "ttft": "300ms", "tpot": null } }),
    );
    let row = |engine: &str, e2e: f64, goodput: f64, output: f64| {
        Row::measured(engine, "m", scenario.clone(), E2E, &around(e2e))
            .with("goodput_req_s", goodput)
            .with(OUTPUT, output)
    };
    let written = Written::of(&[
        row("meets", 900.0, 8.0, 1020.0),
        row("misses", 1400.0, 4.1, 1024.0),
    ]);
    let document = written.document(&["r"]);
    assert_eq!(
        row_of(&document, "misses")["ratio"]["standing"],
        "worse",
        "{document}"
    );
    assert_eq!(row_of(&document, "meets")["is_best"], true, "{document}");
    assert_eq!(row_of(&document, "misses")["is_best"], false);
}

#[test]
fn c6_a_mean_is_over_shared_rows_only_and_says_of_how_many() {
    let of = |engine: &str, models: std::ops::Range<usize>, by: f64| -> Vec<Row> {
        models
            .map(|model| Row::of(engine, &format!("m{model}"), &around(100.0 * by)))
            .collect()
    };
    // The third engine was measured where the reference is broken.
    let mut rows = [
        of("ref", 0..8, 1.0),
        of("slower", 0..10, 0.9),
        of("few", 8..10, 16.0),
    ]
    .concat();
    rows.extend(of("ref", 8..10, 0.1));
    let document = Written::of(&rows).document(&["r"]);
    for standing in document["standings"].as_array().expect("there are standings") {
        let means = ["mean", "geometric_mean"].map(|name| &standing[name]);
        assert!(means.iter().all(|mean| mean.is_null()), "{standing}");
    }
    let rows = [of("ref", 0..9, 1.0), of("slower", 0..10, 0.9)].concat();
    let written = Written::of(&rows);
    let document = written.document(&["r"]);
    let mean = &document["standings"][1]["mean"];
    assert!(
        (mean["value"].as_f64().expect("there is one") - 0.9).abs() < 1e-6,
        "{document}"
    );
    let text = written.report(&["r"], "markdown");
    assert!(
        text.contains("all engines have a ratio in 9 of 9 rows")
            || text.contains("all engines have a ratio in 9 of 10 rows"),
        "{text}"
    );
    // Suspect cells and single starts leave none.
    let mut doubtful = rows.clone();
    doubtful[3] = doubtful[3].clone().summed(doubted("suspect", "host-busy"));
    let single: Vec<Row> = ["a", "b"].map(|engine| Row::of(engine, "m", &[100.0])).to_vec();
    for rows in [doubtful, single] {
        let document = Written::of(&rows).document(&["r"]);
        assert_eq!(document["standings"][1]["mean"], Value::Null, "{document}");
    }
}

#[test]
fn c7_among_many_rows_that_do_not_differ_nothing_wins() {
    // Sixty rows of three engines that differ by chance alone, three starts each: an uncorrected interval finds winners among them.
    let mut state = 20_261_122u64;
    let mut chance = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1 << 24) - 0.5
    };
    let mut rows = Vec::new();
    for model in 0..20 {
        for engine in ["a", "b", "c"] {
            let starts: Vec<f64> = (0..3).map(|_| 1000.0 * (1.0 + 0.03 * chance())).collect();
            rows.push(Row::of(engine, &format!("m{model}"), &starts));
        }
    }
    let document = Written::of(&rows).document(&["r"]);
    assert!(!has_best(&document), "{document}");
    let wins = document["standings"]
        .as_array()
        .expect("there are standings")
        .iter();
    assert_eq!(
        wins.filter_map(|standing| standing["wins"].as_u64()).sum::<u64>(),
        0
    );
}

#[test]
fn c8_two_hosts_give_no_winner_whatever_differs() {
    for (first, second, actual) in [
        (
            gpu_host("h", "570.1", 700.0),
            gpu_host("h", "560.3", 700.0),
            "driver",
        ),
        (
            host("h"),
            merged(host("h"), &json!({ "cpu": "Xeon 8480" })),
            "CPU",
        ),
        (
            gpu_host("h", "570.1", 700.0),
            merged(gpu_host("h", "570.1", 700.0), &json!({ "gpus": ["NVIDIA A100"] })),
            "GPU",
        ),
    ] {
        let written = Written::new();
        written.run("one", &first, &[Row::of("quick", "m", &around(150.0))]);
        written.run("two", &second, &[Row::of("slow", "m", &around(100.0))]);
        let document = written.document(&["one", "two"]);
        assert!(!has_best(&document), "{actual}: {document}");
        let slow = row_of(&document, "slow");
        assert_eq!(slow["ratio"]["standing"], "not-judged", "{actual}: {slow}");
        assert!(
            slow["differences"].to_string().contains(actual),
            "{actual}: {slow}"
        );
    }
}

#[test]
fn h1_equal_starts_are_no_certainty() {
    // Twelve cells, two starts each that agree to the last digit; then three, in one of two levels.
    let rows = |starts: &[f64], by: f64| -> Vec<Row> {
        (0..12)
            .map(|model| {
                let starts: Vec<f64> = starts.iter().map(|start| start * by).collect();
                Row::of("x", &format!("m{model}"), &starts)
            })
            .collect()
    };
    for starts in [&[100.0, 100.0][..], &[100.0, 100.1, 99.9]] {
        let (code, text, actual) = compared(&rows(starts, 1.0), &rows(starts, 0.93));
        assert_eq!(code, 5, "{text}");
        assert!(text.starts_with("12 of 12 metrics not judged\n"), "{text}");
        assert!(verdicts(&actual).iter().all(|verdict| *verdict == "none"));
    }
    // Enough starts and no spread at all: certain, and never with a chance of nothing.
    let (code, text, actual) = compared(&rows(&[100.0; 6], 1.0), &rows(&[100.0; 6], 0.93));
    assert_eq!(code, 1, "{text}");
    assert!(
        actual["rows"][0]["p"].as_f64().expect("there is one") > 0.0,
        "{actual}"
    );
}

#[test]
fn h2_starts_that_a_stopping_rule_asked_for_narrow_no_interval_by_their_luck() {
    // Five starts told that twelve are needed; the later ones are alike by luck.
    let first = [100.0, 103.0, 97.0, 102.0, 98.0];
    let side = |later: f64| {
        let starts: Vec<Value> = first
            .iter()
            .copied()
            .chain([later; 7])
            .map(|start| json!([start]))
            .collect();
        let key = key("x", "m");
        json!({ "format": 1, "accepted": [], "side": {
            "run": "r", "matrix": "m", "began": "2026-01-01T00:00:00Z", "tool": "matrix", "machine": { "host": "h" },
            "cells": { key: {
                "axes": {}, "content": "c", "engine": {}, "prompts": "p", "devices": 1, "requests": 1000, "origin": "measured",
                "gates": [OUTPUT], "figures": { OUTPUT: starts }, "first_stage": 5,
            } },
        } })
    };
    let folder = tempfile::tempdir().expect("a folder can be made");
    for (name, later) in [("one.json", 100.0), ("two.json", 97.0)] {
        std::fs::write(folder.path().join(name), side(later).to_string()).expect("a file can be written");
    }
    let ended = std::process::Command::new(crate::binary::matrix())
        .args([
            "compare", "one.json", "two.json", "--cache", "cache", "--format", "json",
        ])
        .current_dir(folder.path())
        .output()
        .expect("the binary runs");
    let actual: Value = serde_json::from_slice(&ended.stdout).expect("it is JSON");
    let row = &actual["rows"][0];
    // 2.55 % between the first starts, t of eight degrees of freedom: ±2.4 points. All twenty-four together would say ±1.2.
    let [low, high] = [0, 1].map(|at| {
        row["interval_share"][at]
            .as_f64()
            .unwrap_or_else(|| panic!("{row}"))
    });
    assert!(high - low > 0.04, "{row}");
    assert_eq!(verdicts(&actual), ["unclear"], "{row}");
}

#[test]
fn h4_arms_of_one_run_are_compared_round_by_round() {
    // The host drifts by 10 % over the run, both engines alike; the second one is 4 % slower all along.
    let drift = [1.0, 0.98, 0.95, 0.93, 0.9];
    let luck = [0.001, -0.002, 0.0, 0.002, -0.001];
    let arm = |engine: &str, by: f64, sign: f64| {
        let starts: Vec<f64> = drift
            .iter()
            .zip(luck)
            .map(|(drift, luck)| 100.0 * by * drift * (1.0 + sign * luck))
            .collect();
        Row::of(engine, "m", &starts)
    };
    let written = Written::of(&[arm("a", 1.0, 1.0), arm("b", 0.96, -1.0)]);
    let (code, text, actual) = written.compare(&["r", "--arms", "engine=a,b"]);
    assert_eq!((code, verdicts(&actual)), (1, vec!["worse"]), "{text}");
}

#[test]
fn h5_noise_is_known_of_a_new_version_and_of_another_engine_of_the_load() {
    let written = Written::new();
    written.run("r1", &host("h"), &[Row::of("x", "m", &[100.0, 100.4, 99.7])]);
    let renamed = merged(host("h"), &json!({ "host": "h" }));
    written.run("r2", &renamed, &[Row::of("x", "m", &[92.0, 92.3, 91.8])]);
    for known in [
        "engine=x,version=0,model=m,scenario=s",
        "engine=y,model=m,scenario=s",
        "engine=z,model=q,scenario=t",
    ] {
        written.noise(&facts(), known, OUTPUT, 0.006);
        let (code, text, actual) = written.compare(&["results/r1", "results/r2"]);
        assert_eq!((code, verdicts(&actual)), (1, vec!["worse"]), "{known}: {text}");
        assert_eq!(actual["rows"][0]["is_noise_known"], true, "{known}: {text}");
    }
}

#[test]
fn h7_an_engine_that_dies_is_a_regression_though_what_is_left_is_as_fast() {
    let died = json!({ "ending": { "failed": { "phase": "launch", "class": "engine", "reason": "out of memory", "tail": [] } }, "figures": {} });
    let written = Written::new();
    written.run("r1", &host("h"), &[Row::of("x", "m", &around(100.0))]);
    let mut row = Row::of("x", "m", &around(100.0));
    row.starts.truncate(5);
    let run = written.run("r2", &host("h"), &[row]);
    for start in [2, 4] {
        let file = run.join(format!("cells/c0-s{start}-r1/summary.json"));
        let text = std::fs::read_to_string(&file).expect("there is a summary");
        let summary: Value = serde_json::from_str(&text).expect("it is JSON");
        std::fs::write(&file, merged(summary, &died).to_string()).expect("a file can be written");
    }
    let (code, text, _) = written.compare(&["results/r1", "results/r2"]);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("2 of 5 starts crashed, compared with 0 of 5 on the baseline"),
        "{text}"
    );
}

#[test]
fn h8_doubts_of_either_side_are_named_in_every_format() {
    let clean = || Row::of("x", "m", &around(100.0));
    let capped = || clean().summed(doubted("suspect", "throttled-thermal"));
    for (first, second, side) in [(capped(), clean(), "baseline"), (clean(), capped(), "candidate")] {
        let (_, text, actual) = compared(&[first], &[second]);
        assert!(
            text.contains(&format!(
                "suspect: {side}, start 1, 2, 3, 4, 5: throttled-thermal"
            )),
            "{text}"
        );
        assert!(
            actual["rows"][0]["suspect"]
                .to_string()
                .contains("throttled-thermal"),
            "{actual}"
        );
    }
    let written = Written::of(&[Row::of("a", "m", &around(100.0)), capped()]);
    for format in ["terminal", "markdown", "html"] {
        let text = written.report(&["r"], format);
        let first = text.find("suspect").unwrap_or_else(|| panic!("{format}: {text}"));
        let sections = ["latencies", "Findings"].map(|title| text.find(title).unwrap_or(text.len()));
        assert!(sections.iter().all(|later| first < *later), "{format}");
    }
}

#[test]
fn h9_a_value_is_that_of_its_starts_and_its_repeats_count_once() {
    // One start repeated many times in luck: the median over repeats would be 130.
    let written = Written::new();
    written.run("r1", &host("h"), &[Row::of("x", "m", &around(100.0))]);
    let starts = [100.0, 101.0, 99.0, 100.0, 130.0];
    let run = written.run("r2", &host("h"), &[Row::of("x", "m", &starts)]);
    for repeat in 2..=9 {
        let text =
            std::fs::read_to_string(run.join("cells/c0-s5-r1/summary.json")).expect("there is a summary");
        let summary: Value = serde_json::from_str(&text).expect("it is JSON");
        let folder = run.join(format!("cells/c0-s5-r{repeat}"));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        let summary = merged(summary, &json!({ "repeat": repeat }));
        std::fs::write(folder.join("summary.json"), summary.to_string()).expect("a file can be written");
    }
    let (_, text, actual) = written.compare(&["results/r1", "results/r2"]);
    let row = &actual["rows"][0];
    let expected = (100.0f64 * 101.0 * 99.0 * 100.0 * 130.0).powf(0.2);
    assert!(
        (row["candidate"].as_f64().expect("there is one") - expected).abs() < 1e-6,
        "{text}"
    );
    let change = row["change_share"].as_f64().expect("there is one");
    let [low, high] = [0, 1].map(|at| row["interval_share"][at].as_f64().expect("there is one"));
    assert!(low < change && change < high, "{row}");
}

#[test]
fn an_unlike_load_is_told_in_values_and_compared_by_none() {
    let longer = merged(burst("s"), &json!({ "seed": 2 }));
    let row = |scenario: Value, prompts: &str| {
        Row::measured("x", "m", scenario, OUTPUT, &around(100.0)).summed(json!({ "prompts_hash": prompts }))
    };
    let (code, text, _) = compared(
        &[row(burst("s"), "00000000000000aa")],
        &[row(longer, "00000000000000bb")],
    );
    assert_eq!(code, 5, "{text}");
    assert!(text.contains("seed 1") && text.contains("seed 2"), "{text}");
    assert!(!text.contains("00000000000000aa"), "{text}");
}
