//! `matrix compare` on sides that are written by hand: what it says and how it ends.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

const FIGURE: &str = "output_throughput_tok_s";

/// A cell with these starts of a figure.
fn cell(figure: &str, starts: &[f64]) -> Value {
    let starts: Vec<Value> = starts.iter().map(|start| json!([start])).collect();
    json!({
        "axes": {}, "content": "c", "engine": {}, "prompts": "p", "devices": 1, "requests": 1000,
        "origin": "measured", "gates": [figure], "figures": { figure: starts },
    })
}

fn side(cells: Vec<(String, Value)>) -> Value {
    let cells: serde_json::Map<String, Value> = cells
        .into_iter()
        .map(|(key, mut cell)| {
            let axes = key.split(',').filter_map(|part| part.split_once('='));
            cell["axes"] = axes
                .map(|(name, value)| (name.to_owned(), json!(value)))
                .collect::<serde_json::Map<_, _>>()
                .into();
            (key, cell)
        })
        .collect();
    json!({ "run": "r", "matrix": "m", "began": "2026-01-01T00:00:00Z", "tool": "matrix", "machine": { "host": "h" }, "cells": cells })
}

fn alone(version: &str, starts: &[f64]) -> Value {
    side(vec![(key(version), cell(FIGURE, starts))])
}

fn key(version: &str) -> String {
    format!("engine=x,version={version},model=a,scenario=s")
}

/// The noise of a cell: its standard deviation as a share, by so many starts.
fn noise(cell: &str, share: f64, starts: u32) -> Value {
    let varies = json!({
        "at": "2026-01-01T00:00:00Z", "starts": starts, "per_start": 1, "start_share": share, "between_share": share,
        "difference_share": 0.0,
    });
    json!({ "machine": { "host": "h" }, "cells": { cell: { FIGURE: varies } } })
}

struct Told {
    exit: i32,
    text: String,
    json: Value,
}

impl Told {
    fn row(&self) -> &Value {
        &self.json["rows"][0]
    }

    fn verdict(&self) -> &str {
        self.row()["verdict"].as_str().unwrap_or("none")
    }
}

/// What `matrix compare` says of two sides.
fn compared(baseline: &Value, candidate: &Value, noise: Option<&Value>) -> Told {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let write = |name: &str, value: &Value| {
        fs::write(folder.path().join(name), value.to_string()).expect("a file can be written");
    };
    for (name, side) in [("one.json", baseline), ("two.json", candidate)] {
        let mut side = side.clone();
        side["run"] = json!(name);
        write(name, &json!({ "format": 1, "accepted": [], "side": side }));
    }
    fs::create_dir(folder.path().join("cache")).expect("a folder can be made");
    if let Some(noise) = noise {
        write("cache/noise.json", noise);
    }
    let (exit, text) = call(folder.path(), "markdown");
    let (_, json) = call(folder.path(), "json");
    Told {
        exit,
        text,
        json: serde_json::from_str(&json).expect("it is JSON"),
    }
}

fn call(folder: &Path, format: &str) -> (i32, String) {
    let ended = Command::new(crate::binary::matrix())
        .args([
            "compare", "one.json", "two.json", "--cache", "cache", "--format", format,
        ])
        .current_dir(folder)
        .output()
        .expect("the binary runs");
    let out = String::from_utf8_lossy(&ended.stdout).into_owned();
    (ended.status.code().unwrap_or(-1), out)
}

const LEVEL: [f64; 5] = [100.0, 101.0, 99.0, 102.0, 98.0];

#[test]
fn a_loss_on_a_noisy_host_is_never_called_the_same() {
    for (share, lost) in [
        (0.08, [88.0, 88.8, 87.0, 89.0, 88.2]),
        (0.03, [94.0, 94.5, 93.6, 94.2, 93.8]),
    ] {
        let noise = noise(&key("1"), share, 10);
        let actual = compared(&alone("1", &LEVEL), &alone("1", &lost), Some(&noise));
        assert!(
            ["worse", "unclear"].contains(&actual.verdict()),
            "{share}: {}",
            actual.text
        );
        assert_eq!(actual.exit == 1, actual.verdict() == "worse");
    }
}

/// Also where nothing differs: five repeats on one start are no five starts.
#[test]
fn every_verdict_on_running_servers_says_that_it_is_of_these() {
    let steady = [100.0, 100.2, 99.8, 100.1, 99.9];
    for (share, verdict) in [(1.001, "same"), (0.8, "worse")] {
        let values = steady.map(|value| share * value);
        let attached = |version: &str, values: &[f64]| {
            let mut side = alone(version, values);
            side["cells"][key(version)]["attached"] = json!(true);
            side
        };
        let actual = compared(&attached("1", &steady), &attached("1", &values), None);
        assert_eq!(actual.verdict(), verdict, "{}", actual.text);
        assert!(
            actual.text.contains("applies only to these two running servers"),
            "{}",
            actual.text
        );
    }
}

#[test]
fn two_starts_a_side_are_not_judged_however_much_they_agree() {
    for (first, second) in [
        (&[100.0, 100.0][..], &[97.0, 97.0][..]),
        (&[106.0, 105.9, 106.1], &[94.0, 94.1, 93.9]),
        (&[76.61, 76.61], &[73.36, 73.36]),
    ] {
        let actual = compared(&alone("1", first), &alone("1", second), None);
        assert_eq!((actual.exit, actual.verdict()), (5, "none"), "{}", actual.text);
        assert!(
            actual.text.starts_with("1 of 1 metrics not judged\n"),
            "{}",
            actual.text
        );
    }
}

#[test]
fn one_step_of_a_search_is_no_regression() {
    let found = |value: f64| {
        let mut cell = cell("found_rate_req_s", &[value; 5]);
        cell["resolutions"] = json!({ "found_rate_req_s": 0.0222 });
        side(vec![(key("1"), cell)])
    };
    let actual = compared(&found(76.61), &found(73.36), None);
    assert_eq!((actual.exit, actual.verdict()), (0, "unclear"), "{}", actual.text);
    let p = actual.row()["p"].as_f64().expect("there is one");
    assert!(p > 0.0, "{p}");
}

#[test]
fn noise_of_one_version_is_known_of_the_next() {
    let noise = noise(&key("1"), 0.01, 10);
    let actual = compared(&alone("1", &LEVEL), &alone("2", &LEVEL), Some(&noise));
    assert_eq!(actual.row()["is_noise_known"], true, "{}", actual.text);
}

#[test]
fn value_and_change_come_from_one_estimator() {
    let skewed = [100.0, 100.0, 100.0, 100.0, 40.0];
    let actual = compared(&alone("1", &skewed), &alone("1", &[100.0; 5]), None);
    let row = actual.row();
    let number = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("no {name}: {row}"));
    assert!(
        (number("candidate") / number("baseline") - 1.0 - number("change_share")).abs() < 1e-9,
        "{row}"
    );
    assert!(
        actual.text.contains("83.26"),
        "the geometric mean: {}",
        actual.text
    );
}

#[test]
fn more_cells_change_how_certain_a_change_is_and_never_what_it_is() {
    let of = |cells: usize, scale: f64| {
        let cells = (0..cells).map(|at| {
            (
                format!("engine=x,model=m{at:02},scenario=s"),
                cell(
                    FIGURE,
                    &[100.0, 108.0, 97.0, 101.0, 103.0].map(|start| start * scale),
                ),
            )
        });
        side(cells.collect())
    };
    let change = |cells| compared(&of(cells, 1.0), &of(cells, 0.93), None).row()["change_share"].as_f64();
    assert_eq!(change(1), change(12));
}

#[test]
fn what_was_not_judged_comes_first_with_its_reason_and_the_rest_is_judged() {
    let of = |few: &[f64]| {
        side(vec![
            (
                "engine=x,model=a,scenario=s".to_owned(),
                cell(FIGURE, &[100.0, 100.6, 99.5, 100.2, 99.8]),
            ),
            ("engine=x,model=b,scenario=s".to_owned(), cell(FIGURE, few)),
        ])
    };
    let actual = compared(&of(&[100.0, 101.0]), &of(&[90.0, 91.0]), None);
    let first: Vec<&str> = actual.text.lines().take(2).collect();
    assert_eq!(actual.exit, 0);
    assert_eq!(first[0], "1 of 2 metrics not judged, 1 judged: 1 same");
    assert!(
        first[1].starts_with("- 1: the two sides have 2 and 2 starts; a verdict needs five starts"),
        "{}",
        first[1]
    );
}

const QUIET: [f64; 5] = [100.0, 100.6, 99.5, 100.2, 99.8];

fn crashed(starts: std::ops::RangeInclusive<u32>) -> Value {
    let failed = |start| json!({ "start": start, "repeat": 1, "cause": "failed", "reason": "failed in measure: it died" });
    starts.map(failed).collect()
}

#[test]
fn starts_that_crash_where_none_did_are_a_regression() {
    let mut cell = cell(FIGURE, &QUIET[..2]);
    cell["excluded"] = crashed(3..=5);
    let actual = compared(&alone("1", &QUIET), &side(vec![(key("1"), cell)]), None);
    assert_eq!(actual.exit, 1, "{}", actual.text);
    assert!(
        actual
            .text
            .contains("3 of 5 starts crashed, compared with 0 of 5 on the baseline"),
        "{}",
        actual.text
    );
}

#[test]
fn failed_requests_are_counted_exactly_and_a_few_more_are_no_finding() {
    let of = |failed: u32| {
        let mut cell = cell(FIGURE, &QUIET);
        let by_start: Vec<[u32; 2]> = (0..5).map(|start| [(failed + start) / 5, 2000]).collect();
        cell["tried"] =
            json!({ "starts": 5, "crashed": 0, "requests": 10_000, "failed": failed, "by_start": by_start });
        side(vec![(key("1"), cell)])
    };
    for (before, after, exit) in [(1, 0, 0), (0, 9, 0), (2, 9, 0), (0, 40, 1), (300, 310, 0)] {
        let actual = compared(&of(before), &of(after), None);
        assert_eq!(actual.exit, exit, "{before} {after}: {}", actual.text);
        let shown = format!("less reliable: {after} of 10000 requests failed in ");
        assert_eq!(actual.text.contains(&shown), exit == 1, "{}", actual.text);
    }
}

#[test]
fn failed_requests_of_one_start_are_shown_and_no_regression() {
    let of = |failed: [u32; 5]| {
        let mut cell = cell(FIGURE, &QUIET);
        let by_start = failed.map(|failed| [failed, 200]);
        let sum: u32 = failed.iter().sum();
        cell["tried"] =
            json!({ "starts": 5, "crashed": 0, "requests": 1000, "failed": sum, "by_start": by_start });
        side(vec![(key("1"), cell)])
    };
    let actual = compared(&of([0; 5]), &of([0, 0, 9, 0, 0]), None);
    assert_eq!(actual.exit, 0, "{}", actual.text);
    let shown =
        "unclear: 9 of 1000 requests failed in 1 of 5 starts, baseline 0 of 1000 requests in 0 of 5 starts";
    assert!(actual.text.contains(shown), "{}", actual.text);
    assert_eq!(
        actual.json["failures"][0]["is_regression"], false,
        "{}",
        actual.json
    );
    let actual = compared(&of([0; 5]), &of([2, 3, 2, 4, 2]), None);
    assert_eq!(actual.exit, 1, "{}", actual.text);
    // Of files from before requests of each start were kept nothing tells how starts differ.
    let mut older = of([2, 3, 2, 4, 2]);
    older["cells"][key("1")]["tried"]["by_start"] = json!([]);
    let actual = compared(&of([0; 5]), &older, None);
    assert_eq!(actual.exit, 0, "{}", actual.text);
    assert!(
        actual
            .text
            .contains("; not judged: a verdict needs the requests of three starts"),
        "{}",
        actual.text
    );
}

/// A side of one cell at a fixed rate: its E2E, and the share of twenty requests of each start that met the SLO.
fn paced(e2e: f64, good: [f64; 5]) -> Value {
    let mut cell = cell("median_e2e_ms", &QUIET.map(|value| value * e2e));
    cell["gates"] = json!(["median_e2e_ms", "goodput_req_s"]);
    cell["requests"] = json!(20);
    cell["figures"]["goodput_req_s"] = json!(good.map(|share| [2.0 * share]));
    cell["figures"]["request_throughput_req_s"] = json!(vec![[2.0]; 5]);
    side(vec![(key("1"), cell)])
}

#[test]
fn a_goodput_that_collapses_hides_no_loss_of_latency_and_is_a_regression() {
    let fine = paced(1.0, [1.0; 5]);
    let actual = compared(&fine, &paced(1.08, [1.0, 1.0, 1.0, 0.0, 0.0]), None);
    assert_eq!(actual.row()["verdict"], "worse", "{}", actual.text);
    let actual = compared(&fine, &paced(1.0, [1.0, 1.0, 1.0, 0.0, 0.0]), None);
    assert_eq!(
        (actual.exit, &actual.row()["verdict"]),
        (1, &json!("same")),
        "{}",
        actual.text
    );
    assert!(
        actual
            .text
            .contains("less reliable: goodput is 0 on 2 of 5 starts, compared with 0 of 5 on the baseline"),
        "{}",
        actual.text
    );
}

#[test]
fn a_goodput_that_collapses_is_a_regression_whatever_the_gating_metric() {
    let of_latency = |good: [f64; 5]| {
        let mut side = paced(1.0, good);
        side["cells"][key("1")]["gates"] = json!(["median_e2e_ms"]);
        side
    };
    let actual = compared(
        &of_latency([1.0; 5]),
        &of_latency([1.0, 1.0, 1.0, 0.0, 0.0]),
        None,
    );
    assert_eq!(actual.exit, 1, "{}", actual.text);
    assert!(
        actual.text.contains("goodput is 0 on 2 of 5 starts"),
        "{}",
        actual.text
    );
}

#[test]
fn zeros_and_single_requests_are_no_certainty() {
    let goodput = |actual: &Told| actual.json["rows"][1].clone();
    let actual = compared(&paced(1.0, [0.0; 5]), &paced(1.001, [0.0; 5]), None);
    let row = goodput(&actual);
    assert_eq!(
        (&row["not_judged"], &row["interval_share"]),
        (&json!("missing"), &Value::Null),
        "{}",
        actual.text
    );
    assert!(
        actual.text.contains("is 0 on every start of both sides"),
        "{}",
        actual.text
    );
    // One request of twenty on each start, and none.
    let actual = compared(&paced(1.0, [0.05; 5]), &paced(1.0, [0.0; 5]), None);
    let row = goodput(&actual);
    assert_eq!(
        (actual.exit, &row["verdict"]),
        (0, &json!("unclear")),
        "{}",
        actual.text
    );
    let reason = row["reason"].as_str().unwrap_or_default();
    assert!(
        reason.starts_with("the change to zero is beyond the bound"),
        "{reason}"
    );
    let actual = compared(&paced(1.0, [1.0; 5]), &paced(1.0, [0.0; 5]), None);
    let row = goodput(&actual);
    assert_eq!(
        (&row["verdict"], &row["change_share"]),
        (&json!("worse"), &json!(-1.0)),
        "{}",
        actual.text
    );
}

#[test]
fn what_is_decided_asks_for_no_starts() {
    let actual = compared(
        &alone("1", &QUIET),
        &alone("1", &QUIET.map(|value| value * 0.9)),
        None,
    );
    assert_eq!(
        (actual.verdict(), &actual.row()["starts_to_decide"]),
        ("worse", &Value::Null),
        "{}",
        actual.json
    );
}

#[test]
fn a_cell_that_the_candidate_lacks_is_found() {
    let one = || (key("1"), cell(FIGURE, &QUIET));
    let lost = (
        "engine=x,version=1,model=b,scenario=s".to_owned(),
        cell(FIGURE, &QUIET),
    );
    let actual = compared(&side(vec![one(), lost]), &side(vec![one()]), None);
    assert_eq!(actual.exit, 3, "{}", actual.text);
    assert!(
        actual.text.starts_with(
            "1 of 2 metrics not judged, 1 judged: 1 same\n- 1: the cell is missing in the candidate\n"
        ),
        "{}",
        actual.text
    );
}

#[test]
fn suspect_is_shown_where_a_verdict_is() {
    let mut doubted = cell(FIGURE, &QUIET.map(|start| start * 0.94));
    let doubt =
        |start| json!({ "start": start, "repeat": 1, "reason": "throttled-power (80 % against 10 %)" });
    doubted["suspect"] = (1..=5).map(doubt).collect();
    let actual = compared(&alone("1", &QUIET), &side(vec![(key("1"), doubted)]), None);
    assert!(
        actual.text.contains("| x 1 a s \\[suspect\\] |") || actual.text.contains("| x 1 a s [suspect] |"),
        "{}",
        actual.text
    );
    assert!(
        actual
            .text
            .contains("suspect: candidate, start 1, 2, 3, 4, 5: throttled-power"),
        "{}",
        actual.text
    );
    assert!(
        actual.row()["suspect"][0]
            .as_str()
            .is_some_and(|doubt| doubt.contains("throttled-power"))
    );
}

#[test]
fn what_several_cells_are_suspect_of_is_one_line_for_each_code_and_side() {
    let key = |model: &str| format!("engine=x,version=1,model={model},scenario=s");
    let of = |codes: &[&str]| {
        let doubted = |start: usize, code: &&str| json!({ "start": start % 5 + 1, "repeat": 1, "reason": format!("{code} ({start}.{start} against 1)") });
        let cells = ["a", "b", "c"].map(|model| {
            let mut cell = cell(FIGURE, &LEVEL);
            let doubts: Vec<Value> = (0..5)
                .flat_map(|start| codes.iter().map(move |code| (start, code)))
                .map(|(start, code)| doubted(start, code))
                .collect();
            cell["suspect"] = json!(doubts);
            (key(model), cell)
        });
        side(cells.into())
    };
    let actual = compared(&of(&["host-busy"]), &of(&["host-busy", "cpu-stolen"]), None);
    let lines: Vec<&str> = actual
        .text
        .lines()
        .filter(|line| line.contains(" are suspect on "))
        .collect();
    assert_eq!(lines.len(), 3, "{}", actual.text);
    for (side, code) in [
        ("baseline", "host-busy"),
        ("candidate", "host-busy"),
        ("candidate", "cpu-stolen"),
    ] {
        let line = lines
            .iter()
            .find(|line| line.contains(side) && line.contains(code));
        let line = line.unwrap_or_else(|| panic!("no {code}: {}", actual.text));
        assert!(line.contains("on 15 starts in 3 cells"), "{line}");
    }
    // Machines get all of it.
    assert_eq!(
        actual.row()["suspect"].as_array().map(Vec::len),
        Some(15),
        "{}",
        actual.json
    );
}

/// What `matrix compare` of one cell with five starts says with these arguments, and its stderr.
fn compared_with(noise: &Value, args: &[&str]) -> (Value, String) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let write = |name: &str, value: &Value| {
        fs::write(folder.path().join(name), value.to_string()).expect("a file can be written");
    };
    for name in ["one.json", "two.json"] {
        write(
            name,
            &json!({ "format": 1, "accepted": [], "side": alone("1", &LEVEL) }),
        );
    }
    fs::create_dir(folder.path().join("cache")).expect("a folder can be made");
    write("cache/noise.json", noise);
    let ended = Command::new(crate::binary::matrix())
        .args([
            "compare", "one.json", "two.json", "--cache", "cache", "--format", "json",
        ])
        .args(args)
        .current_dir(folder.path())
        .output()
        .expect("the binary runs");
    let actual = String::from_utf8_lossy(&ended.stderr).into_owned();
    (
        serde_json::from_slice(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {actual}")),
        actual,
    )
}

#[test]
fn noise_that_no_measurement_gives_is_named_and_not_used() {
    let mut edited = noise(&key("1"), 0.01, 16);
    edited["cells"][key("1")][FIGURE]["df"] = json!(1e9);
    edited["cells"][key("1")][FIGURE]["bound_share"] = json!(0.012);
    let (json, actual) = compared_with(&edited, &[]);
    assert!(
        actual.contains("1000000000 degrees of freedom are not possible with 16 starts")
            && actual.contains("matrix noise"),
        "{actual}"
    );
    assert_eq!(json["rows"][0]["is_noise_known"], json!(false), "{json}");
}

#[test]
fn a_figure_that_is_named_twice_is_one_test() {
    let noise = noise(&key("1"), 0.01, 16);
    let (json, actual) = compared_with(&noise, &["--gate", FIGURE, "--gate", "output_throughput"]);
    assert_eq!(json["rows"].as_array().map(Vec::len), Some(1), "{json} {actual}");
}
