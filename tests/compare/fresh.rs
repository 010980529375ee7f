//! Findings of a review of verdicts and reports, each shown a second time: with other engines, metrics, sizes and ways in than the review used.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::written::{
    E2E, OUTPUT, Row, Written, around, burst, gpu_host, has_best, host, merged, paced, row_of,
};

const TPOT: &str = "mean_tpot_ms";

/// Eight starts around a value: a percent and a half of noise.
fn eight(value: f64) -> Vec<f64> {
    [1.0, 1.02, 0.98, 1.015, 0.99, 1.005, 0.985, 1.01]
        .map(|by| by * value)
        .to_vec()
}

/// What is kept of the host `h` beside its noise.
fn facts() -> Value {
    json!({ "host": "h", "kernel": "6.8.0-45-generic", "CPU": "EPYC 9654", "CPUs": "8", "memory": "64.00 GiB" })
}

/// Two runs, `a` and `b`, of one row each on the host `h`.
fn pair(before: Row, after: Row) -> Written {
    let written = Written::new();
    written.run("a", &host("h"), &[before]);
    written.run("b", &host("h"), &[after]);
    written
}

const PAIR: [&str; 2] = ["results/a", "results/b"];

/// The row of a figure in what machines get of a comparison.
fn figure<'j>(compared: &'j Value, name: &str) -> &'j Value {
    let mut rows = compared["rows"].as_array().expect("there are rows").iter();
    rows.find(|row| row["figure"] == name)
        .unwrap_or_else(|| panic!("no {name}: {compared}"))
}

/// Puts keys over the summary of one start of the first row of a run.
fn amend(run: &Path, start: usize, over: &Value) {
    let path = run.join(format!("cells/c0-s{start}-r1/summary.json"));
    let summary: Value =
        serde_json::from_str(&fs::read_to_string(&path).expect("there is a summary")).expect("it is JSON");
    fs::write(path, merged(summary, over).to_string()).expect("a file can be written");
}

#[test]
fn a_noisier_host_never_makes_the_same_of_slower_requests() {
    let row =
        |engine_value: f64| Row::measured("tgi", "falcon", paced("steady", 24.0), E2E, &eight(engine_value));
    for share in [0.01, 0.04, 0.08, 0.16] {
        let slower = pair(row(410.0), row(437.0));
        slower.noise(
            &facts(),
            "engine=tgi,version=1,model=falcon,scenario=steady",
            E2E,
            share,
        );
        let (_, text, actual) = slower.compare(&PAIR);
        assert_ne!(figure(&actual, E2E)["verdict"], "same", "{share}: {text}");
    }
    // And of equal ones neither, where the host alone moves them by more than the bound.
    let equal = pair(row(410.0), row(410.5));
    equal.noise(
        &facts(),
        "engine=tgi,version=1,model=falcon,scenario=steady",
        E2E,
        0.16,
    );
    let (_, text, actual) = equal.compare(&PAIR);
    assert_eq!(figure(&actual, E2E)["verdict"], "unclear", "{text}");
}

#[test]
fn throughput_that_the_arrivals_fix_decides_between_no_engines() {
    let mut rows = Vec::new();
    for rate in [3.0, 18.0] {
        let scenario = paced(&format!("at-{rate}"), rate);
        // Whoever answers late has a longer tail of arrivals to divide by, or a shorter one: a few percent of throughput say nothing.
        for (engine, e2e, output) in [("mid", 330.0, 1.0), ("swift", 300.0, 0.97), ("slow", 960.0, 1.03)] {
            let row = Row::measured(engine, "falcon", scenario.clone(), E2E, &eight(e2e));
            rows.push(row.with(OUTPUT, output * 128.0 * rate));
        }
    }
    let written = Written::of(&rows);
    let document = written.document(&["r"]);
    for comparison in document["comparisons"].as_array().expect("there are some") {
        for row in comparison["rows"].as_array().expect("there are rows") {
            let is_swift = row["name"].as_str().is_some_and(|name| name.starts_with("swift"));
            assert_eq!(row["is_best"] == true, is_swift, "{row}");
        }
        assert_eq!(comparison["figure"], E2E, "{comparison}");
    }
    let slow = row_of(&document, "slow")["ratio"]["value"].as_f64();
    let slow = slow.expect("there is a ratio");
    assert!(slow > 2.5, "{slow}");
    let page = written.report(&["r"], "markdown");
    assert!(page.contains("median E2E"), "{page}");
}

#[test]
fn a_mean_over_rows_needs_nearly_all_of_them_and_counts_only_shared_ones() {
    let models: Vec<String> = (0..10).map(|at| format!("model-{at}")).collect();
    let rows_with = |of_narrow: usize| {
        let mut rows = Vec::new();
        for (at, model) in models.iter().enumerate() {
            // Where `narrow` did not run, `wide` is twenty times as fast; and `base` is broken on two models that all have.
            let wide = if at >= of_narrow { 20_000.0 } else { 900.0 };
            let narrow = if at < 2 { 12_000.0 } else { 950.0 };
            rows.push(Row::of("base", model, &eight(1000.0)));
            rows.push(Row::of("wide", model, &eight(wide)));
            if at < of_narrow {
                rows.push(Row::of("narrow", model, &eight(narrow)));
            }
        }
        rows
    };
    let written = Written::new();
    written.run("few", &host("h"), &rows_with(7));
    written.run("most", &host("h"), &rows_with(9));
    let few = written.document(&["few"]);
    for standing in few["standings"].as_array().expect("there are standings") {
        assert_eq!(standing["mean"], Value::Null, "{standing}");
    }
    let page = written.report(&["few"], "markdown");
    assert!(page.contains("7 of 10"), "{page}");
    let most = written.document(&["most"]);
    let mean = |engine: &str| {
        let standings = most["standings"].as_array().expect("there are standings");
        let own = standings.iter().find(|standing| {
            standing["engine"]
                .as_str()
                .is_some_and(|name| name.starts_with(engine))
        });
        own.expect("it stands there")["mean"].clone()
    };
    let wide = mean("wide")["value"].as_f64().expect("there is a mean");
    assert!((0.89..0.91).contains(&wide), "{wide}");
    let narrow = mean("narrow");
    assert!(
        narrow["most"].as_f64().is_some_and(|most| most > 11.0),
        "{narrow}"
    );
    let page = written.report(&["most"], "markdown");
    assert!(page.contains("9 of 10"), "{page}");
}

#[test]
fn neither_a_small_gain_nor_one_in_forty_by_chance_is_a_win() {
    // A percent and a half, of starts that agree to a thousandth.
    let near = |value: f64| {
        [1.0, 1.0004, 0.9996, 1.0002, 0.9998, 1.0]
            .map(|by| by * value)
            .to_vec()
    };
    let scenario = paced("steady", 9.0);
    let small = Written::of(&[
        Row::measured("tgi", "falcon", scenario.clone(), E2E, &near(500.0)),
        Row::measured("mlc", "falcon", scenario, E2E, &near(492.5)),
    ]);
    let document = small.document(&["r"]);
    assert!(!has_best(&document), "{document}");
    // Forty comparisons of one noisy engine with itself, one of which is 3.8 % better, with p of about 2 %.
    let level = [100.0, 103.0, 97.0, 101.0, 99.0];
    let turned = [99.0, 101.0, 100.0, 97.0, 103.0];
    let lucky = [104.5, 105.0, 101.0, 106.0, 102.5];
    let mut rows = Vec::new();
    for at in 0..40 {
        let model = format!("model-{at:02}");
        rows.push(Row::of("tgi", &model, &level));
        rows.push(Row::of("mlc", &model, if at == 17 { &lucky } else { &turned }));
    }
    let many = Written::of(&rows);
    let document = many.document(&["r"]);
    assert!(!has_best(&document), "a win by chance");
    let wins: Vec<&Value> = document["standings"]
        .as_array()
        .expect("there are standings")
        .iter()
        .filter(|standing| standing["wins"] != 0)
        .collect();
    assert!(wins.is_empty(), "{wins:?}");
}

#[test]
fn another_processor_or_another_limit_of_one_of_two_gpus_leaves_no_winner() {
    let rows = |value: f64, engine: &str| [Row::of(engine, "falcon", &eight(value))];
    let xeon = merged(host("g"), &json!({ "cpu": "Xeon 8480+" }));
    let two = |limit: f64| {
        let device =
            |at: u32, limit: f64| json!({ "device": at, "name": "NVIDIA H100", "power_limit_w": limit });
        let gpus = json!({ "gpus": ["NVIDIA H100", "NVIDIA H100"], "devices": [device(0, 700.0), device(1, limit)] });
        merged(gpu_host("h", "570.86", 700.0), &gpus)
    };
    for (before, after, what) in [(host("h"), xeon, "Xeon"), (two(700.0), two(450.0), "450")] {
        let written = Written::new();
        written.run("a", &before, &rows(1000.0, "tgi"));
        written.run("b", &after, &rows(1400.0, "mlc"));
        let document = written.document(&["a", "b"]);
        assert!(!has_best(&document), "{document}");
        let page = written.report(&["a", "b"], "markdown");
        assert!(page.contains(what), "{page}");
    }
    // Three runs of one engine: each has its ratio to the first, not to itself.
    let written = Written::new();
    for (name, value) in [("a", 1000.0), ("b", 1250.0), ("c", 800.0)] {
        written.run(name, &host("h"), &rows(value, "tgi"));
    }
    let document = written.document(&["a", "b", "c"]);
    let rows = document["comparisons"][0]["rows"]
        .as_array()
        .expect("there are rows");
    let ratios: Vec<f64> = rows
        .iter()
        .filter_map(|row| row["ratio"]["value"].as_f64())
        .collect();
    let near = |one: f64, other: f64| (one - other).abs() < 1e-6;
    assert!(
        ratios.len() == 3 && near(ratios[0], 1.0) && near(ratios[1], 1.25) && near(ratios[2], 0.8),
        "{ratios:?}"
    );
}

#[test]
fn starts_that_agree_exactly_or_lie_on_two_levels_prove_nothing_by_themselves() {
    let of = |values: &[f64]| Row::of("tgi", "falcon", values);
    for starts in [3, 4] {
        let (code, text, actual) = pair(of(&vec![55.0; starts]), of(&vec![52.0; starts])).compare(&PAIR);
        let row = figure(&actual, OUTPUT);
        assert_eq!((code, &row["verdict"]), (5, &Value::Null), "{starts}: {text}");
    }
    // Two levels, 6 % apart, that both sides know: three of five against one of five.
    let before = [106.0, 100.1, 105.9, 100.0, 106.1];
    let after = [100.0, 100.1, 105.9, 99.9, 100.0];
    let (code, text, actual) = pair(of(&before), of(&after)).compare(&PAIR);
    assert_ne!(figure(&actual, OUTPUT)["verdict"], "worse", "{text}");
    assert_ne!(code, 1, "{text}");
    // p is told, and is above 0 where nothing varies.
    let (_, text, actual) = pair(of(&[55.0; 5]), of(&[52.0; 5])).compare(&PAIR);
    assert!(
        figure(&actual, OUTPUT)["p"].as_f64().is_some_and(|p| p > 0.0),
        "{text}"
    );
}

/// A search for the streams at once that an engine bears, with the same answer on each of five starts.
fn streams(at: f64, fails_at: f64) -> Row {
    let search = json!({
        "by": "concurrency", "from": 1.0, "to": 512.0, "resolution": 0.05, "target": 0.95, "points": 16,
    });
    let slo = json!({ "search": search, "slo": { "ttft": null, "tpot": "40ms" } });
    let point = |value: f64, holds: bool| {
        json!({
            "value": value, "schedule_hash": "00000000000000aa", "figures": {},
            "judged": {
                "requests": 600, "good": 590, "attainment": 0.983, "interval": [0.97, 0.99], "holds": holds,
            },
        })
    };
    let record = json!({ "search": {
        "by": "concurrency", "target": 0.95, "points": [point(at, true), point(fails_at, false)], "found": at,
        "attainment": 0.983, "fails_at": fails_at, "capacity": { "value": at, "low": at, "high": fails_at }, "resolution": 0.05, "ending": "bracketed",
    } });
    let scenario = merged(burst("streams"), &slo);
    Row::measured("tgi", "falcon", scenario, "found_concurrency_requests", &[at; 5]).summed(record)
}

#[test]
fn a_step_on_the_grid_of_streams_is_no_loss() {
    let (code, text, actual) = pair(streams(64.0, 67.0), streams(61.0, 64.0)).compare(&PAIR);
    let row = figure(&actual, "found_concurrency_requests");
    assert_ne!(row["verdict"], "worse", "{text}");
    assert_ne!(code, 1, "{text}");
    if let [low, high] = row["interval_share"].as_array().map_or(&[][..], Vec::as_slice) {
        assert!(low.as_f64() < high.as_f64(), "{text}");
    }
}

#[test]
fn starts_that_were_added_until_they_agreed_do_not_narrow_the_interval() {
    let added = [100.1, 100.0, 99.9, 100.1, 100.0, 99.9, 100.0];
    let values = |stage: [f64; 5], by: f64| {
        let all = stage.iter().chain(&added);
        all.map(|value| by * value).collect::<Vec<f64>>()
    };
    let written = Written::of(&[
        Row::of("tgi", "falcon", &values([100.0, 106.0, 95.0, 104.0, 96.0], 10.0)),
        Row::of("mlc", "falcon", &values([95.0, 104.0, 100.0, 96.0, 106.0], 10.2)),
    ]);
    let path = written.path().join("results/r/plan.json");
    let plan: Value =
        serde_json::from_str(&fs::read_to_string(&path).expect("there is a plan")).expect("it is JSON");
    let until = json!({ "until": { "half_width": 0.02, "most": 20, "stage": 5 } });
    fs::write(path, merged(plan, &until).to_string()).expect("a file can be written");
    let document = written.document(&["r"]);
    let ratio = document["comparisons"][0]["rows"]
        .as_array()
        .expect("there are rows")
        .iter()
        .map(|row| &row["ratio"])
        .find(|ratio| ratio["standing"] != "reference")
        .expect("one is no reference");
    let width = ratio["most"].as_f64().expect("it is known") - ratio["least"].as_f64().expect("it is known");
    // The ratios of the first five rounds vary by 7 %: with their four degrees of freedom that of twelve rounds lies within 5.6 %. All twelve vary by
    // 4.4 %, and would make it 2.8 %.
    assert!(width > 0.08, "{ratio}");
}

#[test]
fn noise_is_found_under_another_version_engine_or_scenario() {
    let row = |value: f64| Row::measured("tgi", "falcon", paced("steady", 12.0), E2E, &around(value)[..3]);
    for key in [
        "engine=tgi,version=0.9.4,model=falcon,scenario=steady",
        "engine=mlc,version=7,model=falcon,scenario=steady",
        "engine=mlc,version=7,model=gemma,scenario=bursty",
    ] {
        let written = pair(row(400.0), row(480.0));
        written.noise(&facts(), key, E2E, 0.006);
        let (code, text, actual) = written.compare(&PAIR);
        let row = figure(&actual, E2E);
        assert_eq!(row["is_noise_known"], true, "{key}: {text}");
        assert_eq!((code, &row["verdict"]), (1, &json!("worse")), "{key}: {text}");
    }
}

#[test]
fn two_starts_of_seven_that_died_are_a_finding_though_the_rest_is_faster() {
    let row = |value: f64| {
        let values: Vec<f64> = eight(value).into_iter().take(7).collect();
        Row::measured("tgi", "falcon", paced("steady", 12.0), E2E, &values)
    };
    let written = Written::new();
    written.run("a", &host("h"), &[row(400.0)]);
    let run = written.run("b", &host("h"), &[row(360.0)]);
    let died = json!({ "figures": {}, "validity": null, "ending": { "failed": {
        "phase": "launch", "class": "engine", "reason": "the engine ended (signal 11) before it was ready", "tail": [],
    } } });
    for start in [2, 6] {
        amend(&run, start, &died);
    }
    let (code, text, actual) = written.compare(&PAIR);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("2 of 7 starts crashed"), "{text}");
    assert!(
        actual["failures"]
            .as_array()
            .is_some_and(|failures| !failures.is_empty()),
        "{actual}"
    );
    // The other way round nothing failed that did not fail before.
    let (code, text, _) = written.compare(&["results/b", "results/a"]);
    assert!(!text.contains("starts crashed"), "{text}");
    assert_eq!(code, 1, "slower by a ninth: {text}");
}

#[test]
fn what_is_doubtful_is_marked_before_any_second_table() {
    let doubt = |verdict: &str, code: &str, measured: &str| {
        json!({ "validity": { "verdict": verdict, "reasons": [
            { "code": code, "weight": verdict, "measured": measured, "bound": "1.0 %", "advice": "look" },
        ] } })
    };
    let scenario = || paced("steady", 12.0);
    let rows = [
        Row::measured("sound", "falcon", scenario(), E2E, &eight(400.0)),
        Row::measured("hot", "falcon", scenario(), E2E, &eight(370.0)).summed(doubt(
            "suspect",
            "throttled-hardware",
            "9 % of samples",
        )),
        Row::measured("short", "falcon", scenario(), E2E, &eight(200.0)).summed(doubt(
            "invalid",
            "output-short",
            "310 of 1000",
        )),
    ];
    let written = Written::of(&rows);
    // The first table has a row for the load, and the values of all engines in it.
    let page = written.report(&["r"], "markdown");
    let row = page.lines().find(|line| line.starts_with("| falcon"));
    let row = row.expect("there is a row");
    for (value, mark) in [("370.", "suspect"), ("200.", "invalid")] {
        let at = row.find(value).unwrap_or_else(|| panic!("no {value}: {row}"));
        let cell = row[at..].split('|').next().unwrap_or_default();
        assert!(cell.contains(mark), "{value}: {row}");
    }
    assert!(!has_best(&written.document(&["r"])));
    // `compare` says so in its table and for machines.
    let row = |value: f64| Row::measured("tgi", "falcon", scenario(), E2E, &eight(value));
    let written = pair(
        row(400.0),
        row(460.0).summed(doubt("suspect", "swapping", "80 MiB/s")),
    );
    let (_, text, actual) = written.compare(&PAIR);
    assert!(text.contains("swapping"), "{text}");
    assert!(
        figure(&actual, E2E)["suspect"].to_string().contains("swapping"),
        "{actual}"
    );
}

#[test]
fn one_start_far_out_moves_value_ratio_and_interval_together() {
    let skewed = [10.0, 10.0, 10.1, 9.9, 18.0];
    let level = [10.0, 10.1, 9.9, 10.0, 10.0];
    let of = |engine: &str, values: &[f64]| {
        let row = Row::of(engine, "falcon", &eight(5000.0)[..5]);
        let mut row = row;
        for (start, value) in row.starts.iter_mut().zip(values) {
            start[TPOT] = json!(value);
        }
        row
    };
    let written = pair(of("tgi", &level), of("tgi", &skewed));
    let (_, text, actual) = written.compare(&[PAIR[0], PAIR[1], "--gate", TPOT]);
    let row = figure(&actual, TPOT);
    let value = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("no {name}: {text}"));
    let change = value("candidate") / value("baseline") - 1.0;
    assert!((change - value("change_share")).abs() < 1e-6, "{text}");
    let low = row["interval_share"][0].as_f64().expect("it is known");
    let high = row["interval_share"][1].as_f64().expect("it is known");
    assert!(low <= change && change <= high, "{text}");
    // In a report as well: the value that stands there, divided by the other one, is the ratio.
    let burst = |engine: &str, values: &[f64]| {
        let values: Vec<f64> = values.iter().map(|value| value * 100.0).collect();
        Row::of(engine, "falcon", &values)
    };
    let written = Written::of(&[burst("tgi", &level), burst("mlc", &skewed)]);
    let document = written.document(&["r"]);
    let ratio = &row_of(&document, "mlc")["ratio"];
    let ratio = match ratio["standing"] == "reference" {
        true => {
            1.0 / row_of(&document, "tgi")["ratio"]["value"]
                .as_f64()
                .expect("there is one")
        }
        false => ratio["value"].as_f64().expect("there is one"),
    };
    let geometric =
        |values: &[f64]| (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp();
    let expected = geometric(&skewed) / geometric(&level);
    assert!((ratio - expected).abs() < 1e-6, "{ratio}, {expected}");
    let page = written.report(&["r"], "markdown");
    assert!(
        page.contains(&format!("{:.1}", 100.0 * geometric(&skewed))),
        "{page}"
    );
}

/// A launch as a process with these words and variables.
fn started(command: &[&str], env: &[(&str, &str)]) -> Value {
    json!({ "place": { "process": {
        "command": command, "env": env, "dir": null, "devices_env": null, "venv": null,
    } } })
}

#[test]
fn a_smaller_cache_type_and_a_variable_stand_beside_the_ratio_and_in_the_comparison() {
    let row = |engine: &str, value: f64, launch: Value| {
        let mut row = Row::measured(engine, "falcon", paced("steady", 12.0), E2E, &eight(value));
        // Two setups of one engine.
        let of_one = json!({ "engine": {
            "name": engine, "recipe": "tgi", "title": engine, "version": "1", "variant": null, "backend": "vllm", "simulated": false,
        } });
        row.launch = merged(launch, &of_one);
        row
    };
    let usual = started(
        &["serve", "--port", "1", "--max-num-seqs", "256"],
        &[("ATTN", "FLASH")],
    );
    let other = started(
        &[
            "serve",
            "--port",
            "1",
            "--max-num-seqs",
            "64",
            "--kv-cache-dtype",
            "fp8_e5m2",
        ],
        &[("ATTN", "XFORMERS")],
    );
    let actual = ["64", "256", "fp8", "FLASH", "XFORMERS"];
    let written = Written::of(&[row("tgi", 400.0, usual.clone()), row("mlc", 360.0, other.clone())]);
    let document = written.document(&["r"]);
    let differences = format!(
        "{} {}",
        row_of(&document, "tgi")["differences"],
        row_of(&document, "mlc")["differences"]
    );
    for value in actual {
        assert!(differences.contains(value), "{value}: {differences}");
    }
    let written = pair(row("tgi", 400.0, usual), row("tgi", 360.0, other));
    let (_, text, _) = written.compare(&PAIR);
    for value in actual {
        assert!(text.contains(value), "{value}: {text}");
    }
    assert!(
        !text.contains("0123456789abcdef"),
        "a digest says nothing: {text}"
    );
}
