//! What `matrix report` says of runs that are written by hand: ratios, wins, `[best]`, means and marks.

use serde_json::{Value, json};

use crate::written::{
    E2E, OUTPUT, Row, Written, around, burst, doubted, gpu_host, has_best, host, merged, paced, row_of,
};

fn standing(row: &Value) -> &str {
    row["ratio"]["standing"].as_str().unwrap_or("none")
}

/// The first line of a text that holds these words.
fn line<'t>(text: &'t str, words: &str) -> &'t str {
    let found = text.lines().find(|line| line.contains(words));
    found.unwrap_or_else(|| panic!("no `{words}` in:\n{text}"))
}

#[test]
fn a_slow_engine_at_a_fixed_rate_loses_by_its_latency() {
    // 12 req/s: throughput hardly differs, latency threefold.
    let row = |engine: &str, e2e: f64, output: f64| {
        Row::measured(engine, "a", paced("p", 12.0), E2E, &around(e2e)).with(OUTPUT, output)
    };
    let written = Written::of(&[row("quick", 180.0, 192.0), row("slow", 540.0, 184.0)]);
    let document = written.document(&["r"]);
    assert_eq!(document["comparisons"][0]["figure"], E2E, "{document}");
    let slow = row_of(&document, "slow");
    assert!(
        (slow["ratio"]["value"].as_f64().expect("it has one") - 3.0).abs() < 1e-6,
        "{slow}"
    );
    assert_eq!(standing(slow), "worse");
    let text = written.report(&["r"], "markdown");
    assert!(text.contains("vs quick, median E2E"), "{text}");
}

#[test]
fn no_mean_is_told_over_rows_that_engines_do_not_share() {
    let published = concat!(env!("CARGO_MANIFEST_DIR"), "/results/published");
    let written = Written::new();
    let (code, out) = written.call(&["report", published, "--format", "json"]);
    assert_eq!(code, 0);
    let document: Value = serde_json::from_str(&out).expect("it is JSON");
    let standings = document["standings"].as_array().expect("there are standings");
    assert!(standings.len() > 2, "{standings:?}");
    for of_engine in standings {
        let means = ["mean", "geometric_mean"].map(|name| &of_engine[name]);
        assert!(means.iter().all(|mean| mean.is_null()), "{of_engine}");
        assert_eq!(of_engine["wins"], 0, "a single start wins nothing: {of_engine}");
    }
    let (_, text) = written.call(&["report", published, "--format", "markdown"]);
    assert!(
        text.contains("the mean of the ratios is not shown: all engines have a ratio in 6 of 24 rows"),
        "{}",
        line(&text, "mean over")
    );
    for wrong in ["15.807", "1.471"] {
        assert!(!text.contains(wrong), "{}", line(&text, wrong));
    }
    assert!(
        text.contains("a ratio beyond 3 is more often caused by a broken run"),
        "{text}"
    );
}

#[test]
fn a_hair_is_no_win() {
    for second in [vec![100.20, 100.21, 100.19, 100.20, 100.20], vec![100.001; 5]] {
        let first = [100.0, 100.01, 99.99, 100.0, 100.0];
        let written = Written::of(&[Row::of("a", "m", &first), Row::of("b", "m", &second)]);
        let document = written.document(&["r"]);
        assert!(!has_best(&document), "{document}");
        assert_eq!(standing(row_of(&document, "b")), "same", "{document}");
    }
}

#[test]
fn an_engine_is_not_the_best_for_its_machine() {
    let written = Written::new();
    written.run(
        "pa",
        &gpu_host("h", "570.1", 700.0),
        &[Row::of("sim", "m", &around(100.0))],
    );
    written.run(
        "pb",
        &gpu_host("h", "570.1", 350.0),
        &[Row::of("sim", "m", &around(80.0))],
    );
    let document = written.document(&["pa", "pb"]);
    assert!(!has_best(&document), "{document}");
    let rows = document["comparisons"][0]["rows"]
        .as_array()
        .expect("there are rows");
    let value = rows[1]["ratio"]["value"]
        .as_f64()
        .expect("the second run has a ratio to the first");
    assert!((value - 0.8).abs() < 1e-6, "{rows:?}");
    assert_eq!(standing(&rows[1]), "not-judged");
    assert!(
        rows[1]["differences"]
            .to_string()
            .contains("GPU power limit 350 W against 700 W"),
        "{rows:?}"
    );
    // Side by side, each with its run.
    let text = written.report(&["pa", "pb"], "markdown");
    let side_by_side = line(&text, "sim@1 run=pa");
    assert!(!side_by_side.is_empty());
}

#[test]
fn two_starts_show_a_ratio_and_no_win() {
    let written = Written::of(&[
        Row::of("a", "m", &[100.0, 100.0]),
        Row::of("b", "m", &[130.0, 130.0]),
    ]);
    let document = written.document(&["r"]);
    let b = row_of(&document, "b");
    assert_eq!(standing(b), "not-judged", "{b}");
    assert!((b["ratio"]["value"].as_f64().expect("it has one") - 1.3).abs() < 1e-6);
    assert!(!has_best(&document));
    let single = Written::of(&[Row::of("a", "m", &[100.0]), Row::of("b", "m", &[130.0])]);
    let text = single.report(&["r"], "markdown");
    assert!(text.contains("1.30× n=1"), "{text}");
}

#[test]
fn marks_stand_in_the_first_table_too() {
    let rows = [
        Row::of("a", "m", &around(100.0)).summed(doubted("invalid", "output-short")),
        Row::of("b", "m", &around(99.0)).summed(doubted("suspect", "host-busy")),
    ];
    let text = Written::of(&rows).report(&["r"], "markdown");
    let side_by_side = text
        .split_once("All engines side by side")
        .map_or("", |(_, rest)| rest);
    let row = line(side_by_side, "| m |");
    assert!(row.contains("invalid") && row.contains("suspect"), "{row}");
}

#[test]
fn a_ratio_lies_within_its_interval() {
    let written = Written::of(&[
        Row::of("a", "m", &[100.0, 101.0, 99.0, 100.0, 100.0]),
        Row::of("b", "m", &[50.0, 101.0, 102.0, 101.0, 100.0]),
    ]);
    let document = written.document(&["r"]);
    let ratio = &row_of(&document, "b")["ratio"];
    let number = |name: &str| ratio[name].as_f64().unwrap_or_else(|| panic!("{name}: {ratio}"));
    // Geometric means, and not the medians, whose ratio is 1.01.
    assert!((number("value") - 0.8775).abs() < 1e-3, "{ratio}");
    assert!(
        number("least") < number("value") && number("value") < number("most"),
        "{ratio}"
    );
}

#[test]
fn answers_that_the_model_ends_are_compared_by_requests_and_by_the_time_of_a_token() {
    let scenario = merged(burst("e"), &json!({ "stop_at_eos": true }));
    let row = |engine: &str, requests: f64, tokens: f64, tpot: f64| {
        Row::measured(
            engine,
            "m",
            scenario.clone(),
            "request_throughput_req_s",
            &around(requests),
        )
        .with(OUTPUT, requests * tokens)
        .with("output_tokens", 1000.0 * tokens)
        .with("median_tpot_ms", tpot)
        .with("mean_tpot_ms", tpot)
    };
    // The second one answers with a third of the tokens.
    let written = Written::of(&[row("long", 10.0, 40.0, 5.0), row("short", 18.0, 13.0, 5.0)]);
    let document = written.document(&["r"]);
    assert_eq!(
        document["comparisons"][0]["figure"], "request_throughput_req_s",
        "{document}"
    );
    assert!(!has_best(&document), "{document}");
    let short = row_of(&document, "short");
    assert!(
        short["differences"]
            .to_string()
            .contains("the mean answer lengths differ: 13.0 against 40.0 tokens"),
        "{short}"
    );
    assert!(["not-judged", "same"].contains(&standing(short)), "{short}");
    // Answers of one length are judged by requests per second.
    let written = Written::of(&[row("one", 10.0, 40.0, 5.0), row("two", 14.0, 40.1, 5.0)]);
    let document = written.document(&["r"]);
    assert_eq!(standing(row_of(&document, "two")), "better", "{document}");
}

/// A search that found a rate, with its interval if there is one. Searches of older versions have none.
fn found(at: f64, fails_at: Option<f64>, has_interval: bool) -> Value {
    let point = |value: f64, holds: bool| {
        json!({
            "value": value, "schedule_hash": "00000000000000aa", "figures": {},
            "judged": { "requests": 1000, "good": 1000, "attainment": 1.0, "interval": [0.99, 1.0], "holds": holds },
        })
    };
    let points: Vec<Value> = [Some(point(at, true)), fails_at.map(|value| point(value, false))]
        .into_iter()
        .flatten()
        .collect();
    let record = json!({
        "by": "rate", "target": 0.99, "points": points, "found": at, "attainment": 1.0, "fails_at": fails_at,
        "ending": if fails_at.is_some() { "bracketed" } else { "all-held" },
    });
    let interval = json!({
        "resolution": 0.05,
        "capacity": fails_at.map(|high| json!({ "value": at, "low": at, "high": high })),
    });
    json!({ "search": if has_interval { merged(record, &interval) } else { record } })
}

fn searching(engine: &str, at: f64, fails_at: Option<f64>, has_interval: bool) -> Row {
    let search = json!({
        "by": "rate", "from": 1.0, "to": 100.0, "resolution": 0.05, "target": 0.99, "points": 12,
    });
    let scenario = merged(
        paced("c", 1.0),
        &json!({ "search": search, "slo": { "ttft": "300ms", "tpot": null } }),
    );
    Row::measured(engine, "m", scenario, "found_rate_req_s", &[at; 5]).summed(found(
        at,
        fails_at,
        has_interval,
    ))
}

#[test]
fn what_a_search_did_not_bracket_gives_no_ratio_in_either_command() {
    for (fails_at, has_interval, why) in [
        (
            None,
            true,
            "the search did not find both a lower and an upper limit of its result",
        ),
        (
            Some(21.0),
            false,
            "an older version of `matrix`, which gave no interval",
        ),
    ] {
        let written = Written::new();
        written.run("r1", &host("h"), &[searching("a", 40.0, Some(42.0), true)]);
        written.run("r2", &host("h"), &[searching("a", 20.0, fails_at, has_interval)]);
        let (code, text, actual) = written.compare(&["results/r1", "results/r2"]);
        assert_eq!(code, 5, "{text}");
        assert!(
            text.starts_with("1 of 1 metrics not judged") && text.contains(why),
            "{text}"
        );
        assert_eq!(actual["rows"][0]["change_share"], Value::Null, "{actual}");
        let document = written.document(&["r1", "r2"]);
        let rows = document["comparisons"][0]["rows"]
            .as_array()
            .expect("there are rows");
        assert!(
            rows[1]["ratio"].is_null() && rows[1]["no_ratio"].to_string().contains(why),
            "{rows:?}"
        );
        assert!(!has_best(&document));
    }
    let written = Written::of(&[
        searching("a", 20.0, Some(21.0), true),
        searching("b", 40.0, Some(42.0), true),
    ]);
    assert_eq!(standing(row_of(&written.document(&["r"]), "b")), "better");
}

#[test]
fn reports_judge_with_the_noise_and_the_bound_that_compare_uses() {
    let starts = [100.0, 100.6, 99.5];
    let rows = [
        Row::of("a", "m", &starts),
        Row::of("b", "m", &starts.map(|start| start * 0.9)),
    ];
    let machine = json!({ "host": "h", "kernel": "6.8.0-45-generic", "CPU": "EPYC 9654", "CPUs": "8", "memory": "64.00 GiB" });
    let written = Written::of(&rows);
    assert_eq!(standing(row_of(&written.document(&["r"]), "b")), "not-judged");
    written.noise(&machine, "engine=a,version=1,model=m,scenario=s", OUTPUT, 0.006);
    let document = written.document(&["r"]);
    assert_eq!(standing(row_of(&document, "b")), "worse", "{document}");
    let (code, text, actual) = written.compare(&["r", "--arms", "engine=a,b"]);
    assert_eq!(
        (code, actual["rows"][0]["verdict"].as_str()),
        (1, Some("worse")),
        "{text}"
    );
    let (code, out) = written.call(&["report", "results/r", "--floor", "15%", "--format", "json"]);
    assert_eq!(code, 0, "{out}");
    let lenient: Value = serde_json::from_str(&out).expect("it is JSON");
    assert_eq!(standing(row_of(&lenient, "b")), "same", "{lenient}");
}

#[test]
fn what_another_tool_printed_is_no_more_certain_than_its_digits() {
    // One decimal of a small rate: 1.9 may be 1.85 and 2.0 be 1.95 or 2.05.
    let imported = json!({
        "origin": "imported",
        "imported": { "tool": "bench-serving", "file": "f.log", "line": 1 },
    });
    let row = |value: f64| {
        Row::measured("a", "m", burst("s"), "request_throughput_req_s", &[value; 5])
            .summed(imported.clone())
            // What the file shows of the others tells how many decimals it prints.
            .with("mean_ttft_ms", 210.3)
    };
    let written = Written::new();
    written.run("r1", &host("h"), &[row(2.0)]);
    written.run("r2", &host("h"), &[row(1.9)]);
    let (_, text, actual) =
        written.compare(&["results/r1", "results/r2", "--gate", "request_throughput_req_s"]);
    let row = &actual["rows"][0];
    assert_eq!(row["verdict"], "unclear", "{text}");
    let interval = row["interval_share"].clone();
    assert!(text.contains("-9.") || text.contains("-10."), "{interval} {text}");
}

#[test]
fn what_queues_in_a_burst_is_no_ttft_in_any_table() {
    let row = |engine: &str, limit: Option<u32>| {
        let scenario = merged(
            burst("s"),
            &json!({ "arrival": { "rate": "inf", "spacing": "poisson", "concurrency": limit } }),
        );
        Row::measured(engine, "m", scenario, OUTPUT, &around(100.0))
            .with("mean_ttft_ms", 98_765.4)
            .with("median_ttft_ms", 87_654.3)
            .with("p99_ttft_ms", 176_543.2)
    };
    let burst = Written::of(&[row("a", None), row("b", None)]).report(&["r"], "markdown");
    for actual in ["98.77", "87.65", "98765", "176.54", "TTFT mean"] {
        assert!(!burst.contains(actual), "{}", line(&burst, actual));
    }
    assert!(burst.contains("is not shown as TTFT"), "{burst}");
    let closed = Written::of(&[row("a", Some(10)), row("b", Some(10))]).report(&["r"], "markdown");
    assert!(closed.contains("98.77"), "{closed}");
}

#[test]
fn a_percentile_of_few_requests_is_marked_or_left_out() {
    let row = |engine: &str, requests: f64| {
        Row::measured(engine, "m", paced("p", 2.0), E2E, &around(180.0))
            .with("p99_ttft_ms", 66.6)
            .with("p99_e2e_ms", 222.2)
            .with("completed_requests", requests)
            .with("due_requests", requests)
    };
    let text = Written::of(&[row("few", 60.0), row("many", 5000.0)]).report(&["r"], "markdown");
    let latencies = text.split_once("latencies").map_or("", |(_, rest)| rest);
    assert!(!line(latencies, "| few@1").contains("66.6"), "{latencies}");
    assert!(line(latencies, "| many@1").contains("66.6"), "{latencies}");
    let text = Written::of(&[row("some", 400.0), row("many", 5000.0)]).report(&["r"], "markdown");
    let latencies = text.split_once("latencies").map_or("", |(_, rest)| rest);
    assert!(line(latencies, "| some@1").contains('~'), "{latencies}");
}

#[test]
fn tables_put_the_ratio_second_read_times_in_seconds_and_explain_once() {
    let row = |engine: &str, model: &str, by: f64| {
        let scenario = merged(
            burst("s"),
            &json!({ "arrival": { "rate": "inf", "spacing": "poisson", "concurrency": 8 } }),
        );
        Row::measured(engine, model, scenario, OUTPUT, &around(100.0 * by))
            .with("mean_e2e_ms", 1_768_755.8)
            .with("median_e2e_ms", 1_768_755.8)
    };
    let rows: Vec<Row> = ["m1", "m2", "m3"]
        .into_iter()
        .flat_map(|model| [row("a", model, 1.0), row("b", model, 1.1)])
        .collect();
    let text = Written::of(&rows).report(&["r"], "markdown");
    let head = line(&text, "| engine | vs a, output throughput");
    assert!(head.starts_with("| engine | vs a"), "{head}");
    assert!(!text.contains("1768755"), "{}", line(&text, "1768755"));
    assert_eq!(text.matches("definitions: matrix").count(), 1, "{text}");
    assert_eq!(text.matches("95 % interval of the ratio").count(), 1, "{text}");
}

#[test]
fn two_runs_of_one_engine_are_told_apart_and_stand_side_by_side() {
    let written = Written::new();
    for (run, value) in [("monday", 100.0), ("tuesday", 97.0)] {
        written.run(run, &host("h"), &[Row::of("srv", "m", &around(value))]);
    }
    let text = written.report(&["monday", "tuesday"], "markdown");
    for run in ["monday", "tuesday"] {
        assert!(
            text.contains(&format!("srv@1 {run}")),
            "a column of {run}: {text}"
        );
        assert!(
            text.contains(&format!("| {run} |")),
            "the run in the list of cells: {text}"
        );
    }
}

#[test]
fn published_figures_are_compared_by_none_and_the_first_line_says_so() {
    let published = concat!(env!("CARGO_MANIFEST_DIR"), "/results/published");
    let written = Written::new();
    // Of the second pair, one lacks cells.
    for (pair, exit) in [
        (vec![published, published], 5),
        (vec![published, "--arms", "engine=sglang,vllm"], 3),
    ] {
        let (code, text, actual) = written.compare(&pair);
        assert_eq!(code, exit, "{text}");
        let all = actual["figures"].as_u64().expect("they are counted");
        let first = text.lines().next().expect("it says something");
        assert_eq!(first, format!("{all} of {all} metrics not judged"));
        assert!(text.contains("the prompts of both sides are unknown"), "{text}");
        assert!(!text.contains("unknown → unknown"), "nothing differs: {text}");
    }
}

#[test]
fn goodput_that_falls_to_zero_is_worse_and_from_zero_it_is_better() {
    let scenario = merged(
        paced("p", 30.0),
        &json!({ "slo": { "ttft": "10ms", "tpot": null } }),
    );
    let row = |goodput: f64| {
        Row::measured("x", "m", scenario.clone(), E2E, &around(900.0))
            .with("goodput_req_s", goodput)
            .with("request_throughput_req_s", 29.5)
    };
    for (before, after, verdict, code) in [(28.2, 0.0, "worse", 1), (0.0, 28.2, "better", 0)] {
        let written = Written::new();
        written.run("r1", &host("h"), &[row(before)]);
        written.run("r2", &host("h"), &[row(after)]);
        let (ended, text, actual) = written.compare(&["results/r1", "results/r2"]);
        let rows = actual["rows"].as_array().expect("there are rows");
        let goodput = rows.iter().find(|row| row["figure"] == "goodput_req_s");
        let goodput = goodput.unwrap_or_else(|| panic!("{actual}"));
        assert_eq!(
            (ended, goodput["verdict"].as_str()),
            (code, Some(verdict)),
            "{text}"
        );
        assert_eq!(goodput["baseline"], before, "{goodput}");
        assert_eq!(goodput["candidate"], after, "{goodput}");
    }
}

#[test]
fn loads_that_differ_in_more_than_prompts_are_told_in_values() {
    let row = |scenario: Value| {
        Row::measured("x", "m", scenario, E2E, &around(900.0))
            .with("goodput_req_s", 20.0)
            .with("request_throughput_req_s", 29.5)
    };
    let slo = |ttft: &str| {
        merged(
            paced("p", 30.0),
            &json!({ "slo": { "ttft": ttft, "tpot": null } }),
        )
    };
    let limits = |over: Value| {
        let mut scenario = slo("22ms");
        scenario["limits"] = merged(scenario["limits"].clone(), &over);
        scenario
    };
    let even = merged(
        slo("22ms"),
        &json!({ "arrival": { "rate": 30.0, "spacing": "constant", "concurrency": null } }),
    );
    for (other, actual, is_judged) in [
        (slo("100ms"), "SLO | TTFT 22ms | TTFT 100ms", true),
        (even, "spacing | poisson | constant", false),
        (
            limits(json!({ "warmup": 10 })),
            "warm-up requests | 1 | 10",
            false,
        ),
        (
            limits(json!({ "request": "170ms" })),
            "request timeout | 6h | 170ms",
            true,
        ),
    ] {
        let written = Written::new();
        written.run("r1", &host("h"), &[row(slo("22ms"))]);
        written.run("r2", &host("h"), &[row(other)]);
        let (_, text, json) = written.compare(&["results/r1", "results/r2"]);
        assert!(text.contains(actual), "{actual}: {text}");
        assert!(!text.contains("definition of the cell"), "{text}");
        let rows = json["rows"].as_array().expect("there are rows");
        let of = |figure: &str| {
            rows.iter()
                .find(|row| row["figure"] == figure)
                .expect("it is there")
        };
        assert_eq!(of(E2E)["verdict"].is_string(), is_judged, "{actual}: {text}");
        if actual.starts_with("SLO") {
            assert!(of("goodput_req_s")["verdict"].is_null(), "{text}");
        }
    }
}

#[test]
fn a_row_that_alone_is_suspect_wins_nothing_and_the_first_line_of_a_comparison_tells_of_it() {
    let suspect = |engine: &str, value: f64| {
        Row::of(engine, "m", &around(value)).summed(doubted("suspect", "reset-unproven"))
    };
    let written = Written::of(&[Row::of("a", "m", &around(100.0)), suspect("b", 150.0)]);
    let document = written.document(&["r"]);
    assert_eq!(standing(row_of(&document, "b")), "not-judged", "{document}");
    let wins = document["standings"]
        .as_array()
        .expect("there are standings")
        .iter();
    assert_eq!(
        wins.filter_map(|standing| standing["wins"].as_u64()).sum::<u64>(),
        0
    );
    let (_, text, _) = written.compare(&["r", "--arms", "engine=a,b"]);
    let first = text.lines().next().expect("it says something");
    assert_eq!(
        first,
        "1 of 1 metrics judged: 1 better (1 on suspect measurements)"
    );
}

/// A closed loop of four requests for each slot: `of` are its steady duration, its mean E2E in milliseconds, and its throughput in both windows.
fn closed(engine: &str, [steady, e2e, steady_output, output]: [f64; 4]) -> Row {
    let mut scenario = merged(
        burst("s"),
        &json!({ "arrival": { "rate": "inf", "spacing": "poisson", "concurrency": 10 } }),
    );
    scenario["workload"]["prompts"] = json!(40);
    Row::measured(
        engine,
        "m",
        scenario,
        "steady_output_throughput_tok_s",
        &around(steady_output),
    )
    .with(OUTPUT, output)
    .with("duration_s", 1.0)
    .with("steady_duration_s", steady)
    .with("mean_e2e_ms", e2e)
}

#[test]
fn a_steady_state_of_one_wave_decides_nothing() {
    // Equal engines whose longest time without a dip differs by luck.
    let written = Written::of(&[
        closed("a", [0.24, 240.0, 1598.0, 1598.0]),
        closed("b", [0.2, 240.0, 412.0, 1590.0]),
    ]);
    let document = written.document(&["r"]);
    assert_eq!(document["comparisons"][0]["figure"], OUTPUT, "{document}");
    assert!(!has_best(&document), "{document}");
    let b = row_of(&document, "b");
    // The ratio is that of the columns beside it.
    assert!(
        (b["ratio"]["value"].as_f64().expect("it has one") - 1590.0 / 1598.0).abs() < 1e-6,
        "{b}"
    );
    assert_eq!(standing(b), "not-judged", "its ends may decide: {b}");
    let (code, text, actual) = written.compare(&["r", "--arms", "engine=a,b"]);
    assert_eq!(code, 5, "{text}");
    assert_eq!(actual["rows"][0]["figure"], OUTPUT, "{actual}");
    assert!(
        text.contains("76 % of the run is outside the steady state"),
        "{text}"
    );
    assert!(text.contains("raise `prompts`"), "{text}");
}

#[test]
fn a_steady_state_that_holds_several_requests_for_each_slot_decides() {
    // The second one has a straggler at its end: the whole run says -20 %, the time before the drain -6 %.
    let written = Written::of(&[
        closed("a", [0.95, 240.0, 1600.0, 1590.0]),
        closed("b", [0.8, 240.0, 1504.0, 1272.0]),
    ]);
    let document = written.document(&["r"]);
    assert_eq!(
        document["comparisons"][0]["figure"], "steady_output_throughput_tok_s",
        "{document}"
    );
    let b = row_of(&document, "b");
    assert!(
        (b["ratio"]["value"].as_f64().expect("it has one") - 0.94).abs() < 1e-6,
        "{b}"
    );
    assert_eq!(standing(b), "worse", "{b}");
    // Without a drain the whole run decides, however few waves there were.
    let written = Written::of(&[
        closed("a", [0.96, 490.0, 1600.0, 1590.0]),
        closed("b", [0.96, 490.0, 1600.0, 1430.0]),
    ]);
    let document = written.document(&["r"]);
    assert_eq!(document["comparisons"][0]["figure"], OUTPUT, "{document}");
    assert_eq!(standing(row_of(&document, "b")), "worse", "{document}");
}

#[test]
fn report_and_compare_tell_one_interval_for_one_ratio() {
    // Three engines and two models, of which the third is far noisier than the others.
    let wide = |value: f64| -> Vec<f64> { [1.0, 1.2, 0.8, 1.1, 0.9].map(|by| by * value).to_vec() };
    let narrow = |value: f64| -> Vec<f64> { [1.0, 0.99, 1.003, 1.001, 0.997].map(|by| by * value).to_vec() };
    let mut rows = Vec::new();
    for model in ["m", "n"] {
        rows.push(Row::of("a", model, &around(960.0)));
        rows.push(Row::of("b", model, &narrow(1000.0)));
        rows.push(Row::of("c", model, &wide(500.0)));
    }
    let written = Written::of(&rows);
    let document = written.document(&["r"]);
    for engine in ["b", "c"] {
        let ratio = &row_of(&document, engine)["ratio"];
        let (_, text, actual) = written.compare(&["r", "--arms", &format!("engine=a,{engine}")]);
        let row = &actual["rows"][0];
        let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{ratio} {text}"));
        let pairs = [
            (&ratio["value"], &row["change_share"]),
            (&ratio["least"], &row["interval_share"][0]),
            (&ratio["most"], &row["interval_share"][1]),
        ];
        for (reported, compared) in pairs {
            let (reported, compared) = (number(reported), 1.0 + number(compared));
            assert!(
                (reported - compared).abs() < 1e-9,
                "{reported} {compared}: {text}"
            );
        }
    }
    // Starts that are alike by luck leave no interval without a width.
    let written = Written::of(&[Row::of("a", "m", &[960.0; 5]), Row::of("b", "m", &[1000.0; 5])]);
    let document = written.document(&["r"]);
    let ratio = &row_of(&document, "b")["ratio"];
    assert!(
        ratio["most"].as_f64().expect("it has one") > 1.0001 * ratio["least"].as_f64().expect("it has one"),
        "{ratio}"
    );
}

#[test]
fn a_goodput_that_falls_to_zero_in_an_arm_is_worse_round_by_round() {
    let scenario = merged(
        paced("p", 30.0),
        &json!({ "slo": { "ttft": "10ms", "tpot": null } }),
    );
    let row = |engine: &str, goodput: &[f64]| {
        Row::measured(engine, "m", scenario.clone(), "goodput_req_s", goodput)
            .with(E2E, 900.0)
            .with("request_throughput_req_s", 29.5)
    };
    let written = Written::of(&[row("a", &around(28.2)), row("b", &[0.0, 0.0, 0.03, 0.0, 0.0])]);
    let (code, text, actual) = written.compare(&["r", "--arms", "engine=a,b"]);
    let rows = actual["rows"].as_array().expect("there are rows");
    let goodput = rows.iter().find(|row| row["figure"] == "goodput_req_s");
    let goodput = goodput.unwrap_or_else(|| panic!("{actual}"));
    assert_eq!((code, goodput["verdict"].as_str()), (1, Some("worse")), "{text}");
    let document = written.document(&["r"]);
    assert_eq!(standing(row_of(&document, "b")), "worse", "{document}");
    assert_eq!(row_of(&document, "a")["is_best"], true, "{document}");
}

#[test]
fn a_row_that_is_suspect_wins_nothing_though_the_other_one_is_too() {
    let suspect = |engine: &str, value: f64| {
        Row::of(engine, "m", &around(value)).summed(doubted("suspect", "reset-unproven"))
    };
    let written = Written::of(&[suspect("a", 100.0), suspect("b", 150.0)]);
    let document = written.document(&["r"]);
    let b = row_of(&document, "b");
    assert_eq!(standing(b), "not-judged", "{document}");
    assert!(
        b["ratio"]["reason"]
            .to_string()
            .contains("are suspect (reset-unproven)"),
        "{b}"
    );
    let of_engines = document["standings"].as_array().expect("there are standings");
    for of_engine in of_engines {
        assert_eq!(
            (&of_engine["wins"], &of_engine["losses"]),
            (&json!(0), &json!(0)),
            "{of_engine}"
        );
    }
    let (_, text, _) = written.compare(&["r", "--arms", "engine=a,b"]);
    let first = text.lines().next().expect("it says something");
    assert_eq!(
        first,
        "1 of 1 metrics judged: 1 better (1 on suspect measurements)"
    );
}

#[test]
fn a_goodput_of_zero_on_both_sides_is_not_judged_however_fast_the_misses_are() {
    let row = |rate: f64| {
        let scenario = merged(
            paced("p", 30.0),
            &json!({ "slo": { "ttft": "1ms", "tpot": null } }),
        );
        Row::measured("x", "m", scenario, E2E, &around(900.0))
            .with("goodput_req_s", 0.0)
            .with("request_throughput_req_s", rate)
    };
    let written = Written::new();
    written.run("r1", &host("h"), &[row(29.5)]);
    written.run("r2", &host("h"), &[row(11.0)]);
    let (code, text, actual) = written.compare(&["results/r1", "results/r2"]);
    let rows = actual["rows"].as_array().expect("there are rows");
    let goodput = rows.iter().find(|row| row["figure"] == "goodput_req_s");
    let goodput = goodput.unwrap_or_else(|| panic!("{actual}"));
    assert_eq!((code, &goodput["verdict"]), (0, &Value::Null), "{text}");
    assert_eq!(goodput["change_share"], Value::Null, "{goodput}");
}

#[test]
fn a_change_to_zero_or_from_it_has_no_percentage_made_up() {
    let row = |goodput: f64| {
        let scenario = merged(
            paced("p", 30.0),
            &json!({ "slo": { "ttft": "10ms", "tpot": null } }),
        );
        Row::measured("x", "m", scenario, E2E, &around(900.0))
            .with("goodput_req_s", goodput)
            .with("request_throughput_req_s", 29.5)
    };
    for (before, after, words, change) in [
        (28.2, 0.0, "| to zero |", json!(-1.0)),
        (0.0, 28.2, "| from zero |", Value::Null),
    ] {
        let written = Written::new();
        written.run("r1", &host("h"), &[row(before)]);
        written.run("r2", &host("h"), &[row(after)]);
        let (_, text, actual) = written.compare(&["results/r1", "results/r2"]);
        assert!(text.contains(words), "{text}");
        let rows = actual["rows"].as_array().expect("there are rows");
        let goodput = rows.iter().find(|row| row["figure"] == "goodput_req_s");
        let goodput = goodput.unwrap_or_else(|| panic!("{actual}"));
        assert_eq!(goodput["change_share"], change, "{goodput}");
        assert_eq!(goodput["interval_share"], Value::Null, "{goodput}");
    }
}

#[test]
fn a_report_on_runs_of_other_loads_judges_no_more_than_compare() {
    let row = |slo: &str, spacing: &str| {
        let scenario = merged(
            paced("p", 30.0),
            &json!({
                "slo": { "ttft": slo, "tpot": null },
                "arrival": { "rate": 30.0, "spacing": spacing, "concurrency": null },
            }),
        );
        let goodput = if slo == "22ms" { 20.0 } else { 39.0 };
        Row::measured("x", "m", scenario, E2E, &around(900.0))
            .with("goodput_req_s", goodput)
            .with("request_throughput_req_s", 29.5)
    };
    for (other, said) in [
        (row("100ms", "poisson"), Some("SLO TTFT 100ms against TTFT 22ms")),
        // What asks for other arrivals stands by itself.
        (row("22ms", "constant"), None),
    ] {
        let written = Written::new();
        written.run("r1", &host("h"), &[row("22ms", "poisson")]);
        written.run("r2", &host("h"), &[other]);
        let document = written.document(&["r1", "r2"]);
        let actual = document.to_string();
        assert!(
            said.is_none_or(|said| actual.contains(said)),
            "{said:?}: {actual}"
        );
        assert!(!has_best(&document), "{document}");
        let standings = document["standings"].as_array().expect("there are standings");
        for of_run in standings {
            assert_eq!(
                (&of_run["wins"], &of_run["losses"]),
                (&json!(0), &json!(0)),
                "{of_run}"
            );
        }
    }
}

#[test]
fn an_invalid_measurement_drops_its_round_in_report_and_compare_alike() {
    // The host slows down over the run; the fast measurement of `a` at its beginning is invalid, so that what is left of `a` is slow.
    let drift = [1.0, 1.3, 1.6, 1.9, 2.2];
    let of = |by: f64| drift.map(|drift| 80.0 * by * drift);
    let attached = json!({ "place": { "attach": { "url": "http://h:8000", "gpus": 1, "gpu": "H100" } } });
    for place in [json!({}), attached] {
        let row = |engine: &str, by: f64| Row {
            launch: place.clone(),
            ..Row::measured(engine, "m", paced("p", 10.0), E2E, &of(by))
        };
        let written = Written::new();
        let run = written.run("r", &host("h"), &[row("a", 1.0), row("b", 1.02)]);
        doubt(&run, "c0-s1-r1", &doubted("invalid", "output-short"));
        let document = written.document(&["r"]);
        let ratio = row_of(&document, "b")["ratio"]["value"].as_f64();
        let (_, text, actual) = written.compare(&["r", "--arms", "engine=a,b"]);
        let change = actual["rows"][0]["change_share"].as_f64();
        let (ratio, change) = ratio.zip(change).unwrap_or_else(|| panic!("{document} {text}"));
        assert!((ratio - 1.02).abs() < 1e-9, "{ratio}: {document}");
        assert!((change - 0.02).abs() < 1e-9, "{change}: {text}");
    }
}

/// Changes the summary of a measurement of a run.
fn doubt(run: &std::path::Path, measurement: &str, doubt: &Value) {
    let path = run.join("cells").join(measurement).join("summary.json");
    let text = std::fs::read_to_string(&path).expect("there is a summary");
    let summary: Value = serde_json::from_str(&text).expect("it is JSON");
    std::fs::write(path, merged(summary, doubt).to_string()).expect("a file can be written");
}

#[test]
fn a_comparison_that_lost_its_rounds_names_how_to_measure_them_again() {
    let rows = [100.0, 104.0].map(|at| [at, at * 1.01]);
    let written = Written::new();
    let run = written.run(
        "r",
        &host("h"),
        &[Row::of("a", "m", &rows[0]), Row::of("b", "m", &rows[1])],
    );
    let compared = || written.outputs(&["compare", "r", "--arms", "engine=a,b"]).2;
    assert!(!compared().contains("--resume"), "{}", compared());
    doubt(&run, "c0-s1-r1", &doubted("invalid", "output-short"));
    let note = compared();
    assert!(note.contains("note: 1 measurement of this run"), "{note}");
    assert!(
        note.contains("--resume r --failed`; then compare again"),
        "{note}"
    );
}

#[test]
fn one_suspect_start_wins_nothing() {
    let written = Written::new();
    let rows = [
        Row::of("slow", "m", &around(1000.0)),
        Row::of("quick", "m", &around(1500.0)),
    ];
    let run = written.run("r", &host("h"), &rows);
    doubt(&run, "c1-s3-r1", &doubted("suspect", "host-busy"));
    let document = written.document(&["r"]);
    assert_eq!(standing(row_of(&document, "quick")), "not-judged", "{document}");
    for standing in document["standings"].as_array().expect("there are standings") {
        assert_eq!(
            (&standing["wins"], &standing["losses"]),
            (&json!(0), &json!(0)),
            "{standing}"
        );
    }
    assert!(!has_best(&document), "{document}");
}

#[test]
fn a_report_names_its_practical_bound() {
    let written = Written::of(&[
        Row::of("slow", "m", &around(1000.0)),
        Row::of("quick", "m", &around(1040.0)),
    ]);
    for (floor, is_best) in [("2%", true), ("7.5%", false)] {
        let call = |format| {
            written
                .call(&["report", "results/r", "--floor", floor, "--format", format])
                .1
        };
        let document: Value = serde_json::from_str(&call("json")).expect("it is JSON");
        assert_eq!(has_best(&document), is_best, "{floor}");
        let page = call("markdown");
        assert!(
            page.contains(&format!("larger than {} %", &floor[..floor.len() - 1])),
            "{page}"
        );
    }
}

#[test]
fn a_report_on_runs_of_other_loads_tells_the_values_that_differ() {
    let other = merged(
        burst("s"),
        &json!({ "arrival": { "rate": "inf", "spacing": "poisson", "concurrency": 48 } }),
    );
    let mut longer = burst("s");
    longer["workload"]["output_len"] = json!(384);
    for (scenario, values) in [(other, ["48"].as_slice()), (longer, &["128", "384"])] {
        let written = Written::new();
        written.run("a", &host("h"), &[Row::of("one", "m", &around(1000.0))]);
        let row = Row::measured("one", "m", scenario, OUTPUT, &around(1500.0));
        let hash = match values {
            ["48"] => "00000000000000aa",
            _ => "00000000000000bb",
        };
        let row = row.summed(json!({ "prompts_hash": hash }));
        written.run("b", &host("h"), &[row]);
        let page = written.report(&["a", "b"], "markdown");
        for value in values {
            assert!(page.contains(value), "{value}: {page}");
        }
        assert!(!has_best(&written.document(&["a", "b"])), "{page}");
    }
}
