//! Several loads in one call, rates that change, searches against an engine of known capacity, the steady state.

use serde_json::{Map, Value};

use crate::harness::{Desk, Sim};
use crate::recorder::Recorder;

/// Four requests run at once, of eight steps each: with steps of 20 ms 25 requests a second, and whoever finds all four taken waits.
fn engine(step: &str) -> [&str; 6] {
    [
        "--max-running",
        "4",
        "--step",
        step,
        "--no-prefix-cache",
        "--step-per-sequence=0ms",
    ]
}

fn ours(line: &Map<String, Value>) -> &Value {
    &line["matrix"]
}

#[test]
fn several_rates_and_concurrencies_give_a_block_and_a_line_each() {
    let (sim, desk) = (Sim::start("vllm", &[]), Desk::new());
    let more = ["--request-rate", "50", "100", "--max-concurrency", "2", "4"];
    let ran = desk.random("vllm", sim.port, &more).exits(0);
    assert_eq!(ran.stdout.matches("Serving Benchmark Result").count(), 4);
    let lines = desk.lines();
    let actual: Vec<_> = lines
        .iter()
        .map(|line| (line["request_rate"].as_f64(), line["max_concurrency"].as_u64()))
        .collect();
    let (slow, fast) = (Some(50.0), Some(100.0));
    assert_eq!(
        actual,
        [(slow, Some(2)), (slow, Some(4)), (fast, Some(2)), (fast, Some(4))]
    );
    assert!(lines.iter().all(|line| line["completed"] == 10));
    // Prompts and schedule are those that each point's seed draws.
    let all = |key: &str| -> Vec<String> { lines.iter().map(|line| ours(line)[key].to_string()).collect() };
    let is_different = |mut values: Vec<String>| {
        values.sort();
        values.dedup();
        values.len() == 4
    };
    assert_eq!(all("seed"), ["42", "43", "44", "45"]);
    assert!(is_different(all("prompts_hash")) && is_different(all("schedule_hash")));
    assert!(
        ran.stderr
            .contains("point 2 of 4: rate 50, at most 4 requests are in flight; the prompts of seed 43"),
        "{}",
        ran.stderr
    );
}

/// What the requests to a recorder said, point by point.
fn prompts(recorder: &Recorder, points: usize) -> Vec<Vec<Value>> {
    let heard = recorder.take();
    let prompts: Vec<Value> = heard
        .into_iter()
        .filter(|heard| heard.path == "/v1/completions")
        .map(|heard| heard.body["prompt"].clone())
        .collect();
    assert_eq!(prompts.len() % points, 0);
    let each = prompts.len() / points;
    prompts.chunks(each).map(<[Value]>::to_vec).collect()
}

#[test]
fn no_point_sends_the_prompts_of_another_unless_the_caches_are_emptied() {
    let (recorder, desk) = (Recorder::start(), Desk::new());
    let two = [
        "--max-concurrency",
        "1",
        "2",
        "--disable-warmup",
        "--dataset-name",
        "random-ids",
    ];
    let ran = desk.random("vllm", recorder.port, &two).exits(0);
    let [first, second] = &prompts(&recorder, 2)[..] else {
        panic!("two points are expected")
    };
    assert!(first.iter().all(|prompt| !second.contains(prompt)));
    assert!(!ran.stderr.contains("sent by earlier points"), "{}", ran.stderr);
    // The first point is what is sent alone, and the second what its seed sends alone.
    let one = [
        "--max-concurrency",
        "2",
        "--disable-warmup",
        "--dataset-name",
        "random-ids",
    ];
    desk.random("vllm", recorder.port, &[&one[..], &["--seed", "43"]].concat())
        .exits(0);
    let mut alone = prompts(&recorder, 1).remove(0);
    let mut second = second.clone();
    for prompts in [&mut alone, &mut second] {
        prompts.sort_by_key(Value::to_string);
    }
    assert_eq!(alone, second);
    // With emptied caches the points send the same.
    let ran = desk
        .random("vllm", recorder.port, &[&two[..], &["--flush-cache"]].concat())
        .exits(0)
        .says("every point sends the same prompts, after a cache reset");
    let [first, second] = &mut prompts(&recorder, 2)[..] else {
        panic!("two points are expected")
    };
    for prompts in [&mut *first, &mut *second] {
        prompts.sort_by_key(Value::to_string);
    }
    assert_eq!(first, second, "{}", ran.stderr);
}

#[test]
fn points_whose_data_set_has_no_other_prompts_say_so() {
    let (recorder, desk) = (Recorder::start(), Desk::new());
    let rows: String = (0..10)
        .map(|row| {
            let text = format!("row {row} ").repeat(40);
            format!(r#"{{"conversations": [{{"content": "{text}"}}, {{"content": "yes, row {row}"}}]}}"#)
                + "\n"
        })
        .collect();
    std::fs::write(desk.path().join("rows.jsonl"), rows).expect("a file can be written");
    let more = [
        "--dataset-name",
        "custom",
        "--dataset-path",
        "rows.jsonl",
        "--max-concurrency",
        "1",
        "2",
    ];
    desk.random("vllm", recorder.port, &more)
        .exits(0)
        .says("warning: 100 % of the prompts of this point were sent by earlier points")
        .says("`--flush-cache`");
}

#[test]
fn a_search_for_a_rate_counts_the_wait_for_a_slot() {
    // Two at once of 32 ms each are 62 requests a second: a busy machine still reaches 40, and none reaches 80.
    let (sim, desk) = (Sim::start("vllm", &engine("4ms")), Desk::new());
    let more = [
        "--num-prompts",
        "200",
        "--search",
        "rate",
        "--search-from",
        "20",
        "--search-to",
        "320",
        "--search-prompts",
        "120",
        "--search-target",
        "0.9",
        "--search-points",
        "4",
        "--spacing",
        "constant",
        "--max-concurrency",
        "2",
        "--goodput",
        "ttft:2000",
        "--disable-warmup",
    ];
    let ran = desk.random("vllm", sim.port, &more).exits(5);
    let lines = desk.lines();
    let result = &ours(lines.last().expect("there are points"))["search"]["result"];
    assert_eq!(result["found"], 40.0, "{}", ran.stdout);
    assert_eq!(result["capacity"], Value::Null, "{result}");
    let failed = lines
        .iter()
        .map(|line| &ours(line)["search"])
        .find(|search| search["judged"]["holds"] == false)
        .expect("the bound is within the range");
    assert_eq!(failed["value"], 80.0);
    let unreached = &failed["judged"]["unreached"];
    assert_eq!(unreached["due_per_s"].as_f64().map(f64::round), Some(80.0));
    assert!(unreached["sent_per_s"].as_f64().is_some_and(|sent| sent < 76.0));
    assert!(
        ran.stderr.contains(" of 80.00 requests/s were sent"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_ramp_and_stages_send_at_their_rates() {
    let (sim, desk) = (Sim::start("vllm", &[]), Desk::new());
    let ramp = [
        "--ramp-up-strategy",
        "linear",
        "--ramp-up-start-rps",
        "5",
        "--ramp-up-end-rps",
        "15",
        "--spacing",
        "constant",
        "--vllm-json",
        "vllm.json",
    ];
    let ran = desk.random("vllm", sim.port, &ramp).exits(0);
    assert_eq!(ran.value("Traffic request rate"), "ramp");
    // Ten requests at 10 per second on average: the last falls due just before a second is over.
    let seconds: f64 = ran.value("Benchmark duration (s)").parse().unwrap();
    assert!(seconds > 0.8, "{seconds}");
    let vllm = std::fs::read_to_string(desk.path().join("vllm.json")).unwrap();
    let vllm: Value = serde_json::from_str(&vllm).unwrap();
    assert_eq!(
        (
            &vllm["ramp_up_strategy"],
            &vllm["ramp_up_end_rps"],
            &vllm["burstiness"]
        ),
        (&"linear".into(), &15.0.into(), &"inf".into())
    );
    // Three requests in the first second, five in the half after it; nothing falls due after the last stage.
    let stages = ["--stages", "3:1", "10:0.5", "--spacing", "constant"];
    let ran = desk.random("vllm", sim.port, &stages).exits(0);
    assert_eq!(ran.value("Successful requests"), "8");
    let lines = desk.lines();
    assert_eq!(
        (&lines[0]["request_rate"], &lines[1]["request_rate"]),
        (&"ramp".into(), &"stages".into())
    );
    assert_eq!(
        ours(&lines[1])["arrival"]["pace"]["stages"][1]["duration"],
        "500ms"
    );
    assert_ne!(ours(&lines[0])["schedule_hash"], ours(&lines[1])["schedule_hash"]);
}

#[test]
fn a_search_for_a_concurrency_finds_how_many_keep_the_slo() {
    // A step takes 1 ms and 8 ms for each sequence in it, so that TPOT is 9 ms of one request, 17 of two and 25 of three.
    // The threshold has 4 ms a token to either side, and half of the requests decide: a busy host does not change what is found.
    let engine = ["--step", "1ms", "--step-per-sequence=8ms", "--no-prefix-cache"];
    let (sim, desk) = (Sim::start("vllm", &engine), Desk::new());
    // The conversations are too few for the prompts of all points.
    let more = [
        "--dataset-name",
        "random-ids",
        "--num-prompts",
        "700",
        "--search",
        "concurrency",
        "--search-prompts",
        "80",
        "--search-target",
        "0.5",
        "--search-to",
        "64",
        "--goodput",
        "tpot:21",
        "--disable-warmup",
    ];
    let ran = desk.random("vllm", sim.port, &more).exits(0);
    let lines = desk.lines();
    let tried: Vec<f64> = lines
        .iter()
        .map(|line| ours(line)["search"]["value"].as_f64().unwrap())
        .collect();
    // The first failure is repeated, and both ends of the interval.
    assert_eq!(tried[..5], [1.0, 2.0, 4.0, 4.0, 3.0], "{}", ran.stderr);
    let times = |value: f64| tried.iter().filter(|other| **other == value).count();
    let result = &ours(lines.last().unwrap())["search"]["result"];
    assert_eq!(
        (&result["ending"], &result["found"]),
        (&"bracketed".into(), &2.0.into()),
        "{result}"
    );
    // Requests of a busy host seldom run at the same time, so that three may be too close to call.
    let fails_at = result["fails_at"].as_f64().unwrap();
    assert!(fails_at == 3.0 || fails_at == 4.0, "{result}");
    assert!(times(2.0) >= 2 && times(fails_at) >= 2, "{}", ran.stderr);
    assert!(
        ran.stdout
            .contains(&format!(" at once, between 2 and {fails_at} (95 % confidence")),
        "{}",
        ran.stdout
    );
    // Every point has its own prompts.
    assert!(!ran.stderr.contains("were sent twice"), "{}", ran.stderr);
    assert!(
        lines[..lines.len() - 1]
            .iter()
            .all(|line| ours(line)["search"].get("result").is_none())
    );
}

#[test]
fn a_search_for_a_rate_finds_the_capacity() {
    let (sim, desk) = (Sim::start("vllm", &engine("5ms")), Desk::new());
    let more = [
        "--num-prompts",
        "4000",
        "--search",
        "rate",
        "--search-from",
        "40",
        "--search-seconds",
        "3",
        "--search-target",
        "0.9",
        "--search-resolution",
        "0.3",
        "--spacing",
        "constant",
        "--goodput",
        "ttft:200",
        "--disable-warmup",
    ];
    let ran = desk.random("vllm", sim.port, &more).exits(0);
    let lines = desk.lines();
    let result = &ours(lines.last().unwrap())["search"]["result"];
    assert_eq!(result["ending"], "bracketed", "{}", ran.stdout);
    let end = |name: &str| result["capacity"][name].as_f64().unwrap();
    // 100 a second is what runs.
    assert!(
        (40.0..=120.0).contains(&end("low")) && end("high") <= 164.0,
        "{}",
        ran.stdout
    );
    assert!(
        end("low") <= end("value") && end("value") <= end("high"),
        "{result}"
    );
    // Each point sends for three seconds at its rate, or until it is decided.
    let due = |line: &Map<String, Value>| {
        let all = (line["request_rate"].as_f64().unwrap() * 3.0).ceil() as u64;
        (ours(line)["due_requests"].as_u64().unwrap(), all)
    };
    assert!(lines.iter().map(due).all(|(due, all)| due <= all));
    assert!(
        lines.iter().map(due).any(|(due, all)| due < all),
        "{}",
        ran.stdout
    );
}

#[test]
fn a_bound_outside_of_the_range_is_said_not_to_be_bracketed() {
    // Its points send the same prompts.
    let (sim, desk) = (Sim::start("vllm", &["--no-prefix-cache"]), Desk::new());
    let search = |more: &[&str]| {
        let usual = [
            "--search",
            "concurrency",
            "--search-to",
            "2",
            "--search-target",
            "0.5",
            "--num-prompts",
            "80",
            "--disable-warmup",
        ];
        desk.random("vllm", sim.port, &[&usual[..], more].concat())
            .exits(0)
    };
    let above = search(&["--goodput", "ttft:60000"]);
    assert!(
        above
            .stdout
            .ends_with("the highest allowed value: the capacity lies above it and was not found\n")
    );
    let below = search(&["--goodput", "ttft:0.001"]);
    assert!(
        below
            .stdout
            .ends_with("even 1 at once is too high; the capacity lies below it\n")
    );
}

#[test]
fn a_search_by_seconds_does_not_count_what_nobody_came_to() {
    let (sim, desk) = (Sim::start("vllm", &engine("1ms")), Desk::new());
    let more = [
        "--num-prompts",
        "500",
        "--search",
        "concurrency",
        "--search-to",
        "2",
        "--search-seconds",
        "1",
        "--search-target",
        "0.5",
        "--goodput",
        "ttft:60000",
        "--disable-warmup",
    ];
    let ran = desk.random("vllm", sim.port, &more).exits(0);
    let lines = desk.lines();
    assert_eq!(lines.len(), 2);
    for line in &lines {
        let judged = &ours(line)["search"]["judged"];
        assert_eq!(
            (&judged["attainment"], &ours(line)["failures"]),
            (&1.0.into(), &serde_json::json!({}))
        );
        let requests = judged["requests"].as_u64().unwrap();
        assert!((74..500).contains(&requests), "{}", ran.stderr);
    }
}

#[test]
fn the_steady_state_has_a_block_and_a_line() {
    let (sim, desk) = (Sim::start("vllm", &engine("20ms")), Desk::new());
    let more = [
        "--max-concurrency",
        "4",
        "--steady-state-concurrency-ratio",
        "0.5",
        "--steady-state-output-file",
        "steady.jsonl",
    ];
    let ran = desk.random("vllm", sim.port, &more).exits(0);
    assert!(
        ran.stdout
            .contains("\n============== Steady-State Result ===============\nConcurrency ratio:")
    );
    assert_eq!(
        ran.labels_from("============== Steady-State Result"),
        [
            "Steady-State Result",
            "Concurrency ratio",
            "Measurement duration (s)",
            "Minimum concurrency",
            "Completed requests",
            "Input tokens",
            "Input token throughput (tok/s)",
            "Generated tokens",
            "Output token throughput (tok/s)",
            "Output throughput, retokenized (tok/s)",
            "Average concurrency",
            "Peak concurrency",
            "Peak output throughput (tok/s)",
            ""
        ]
    );
    assert_eq!(
        (ran.value("Minimum concurrency"), ran.value("Peak concurrency")),
        ("2", "4")
    );
    let line = std::fs::read_to_string(desk.path().join("steady.jsonl")).unwrap();
    let steady: Map<String, Value> = serde_json::from_str(&line).unwrap();
    let keys: Vec<&str> = steady.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        [
            "concurrency_ratio",
            "window_start",
            "window_end",
            "duration",
            "concurrency_threshold",
            "completed",
            "total_input",
            "input_throughput",
            "total_output",
            "total_output_retokenized",
            "output_throughput",
            "output_throughput_retokenized",
            "average_concurrency",
            "peak_concurrency",
            "peak_output_throughput"
        ]
    );
    assert_eq!(
        ours(&desk.lines()[0])["steady_state"]["duration"],
        steady["duration"]
    );
}
