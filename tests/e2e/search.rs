//! A scenario that searches, one whose rate changes, and what they leave on disk.

use std::fs;
use std::thread;
use std::time::Duration;

use matrix::analysis::metrics::{self, Metric};
use matrix::config::search::SearchVariable;
use matrix::results::record::cell::Definitions;
use matrix::results::record::search::{Point, PointDecision, SearchStopReason};
use matrix::results::record::validity::{ReasonCode, Verdict};
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Bench, sims, summary};

/// Four requests run at once on this engine; whoever finds all four taken waits.
const MATRIX: &str = "
name: capacity
engines:
  - sim: { variant: vllm, args: [--max-running, \"4\", --step, 5ms, --step-per-sequence, 0ms] }
models:
  - tiny: { tokenizer: data/tokenizer.json }
scenarios:
  - random-1k-1k:
      prompts: 1500
      input_len: 32
      output_len: 8
      slo: { ttft: 50ms }
      search: { by: concurrency, from: 2, to: 32, target: 0.9, prompts: 128 }
  - climbing:
      dataset: random
      input_len: 32
      output_len: 8
      range_ratio: 1.0
      spacing: constant
      stages: [{ rate: 5, duration: 1s }, { rate: 20, duration: 500ms }]
datasets: { sharegpt: data/conversations.json }
";

#[test]
fn a_matrix_finds_a_capacity_and_keeps_every_point() {
    let bench = Bench::of(MATRIX);
    let ran = bench.run(&[]).exits(0);
    let run = bench.finished();
    let [search, stages] = run.summaries.as_slice() else {
        panic!("two cells are expected: {:?}", run.summaries)
    };
    let record = search.search.as_ref().expect("the search is recorded");
    assert_eq!(
        (record.by, record.ending),
        (SearchVariable::Concurrency, SearchStopReason::Bracketed)
    );
    let capacity = record.capacity.unwrap_or_else(|| panic!("{}", record.describe()));
    // Four do not wait, eight about as long as they may, and sixteen for much longer; a busy host widens the interval.
    assert!(
        (2.0..=9.0).contains(&capacity.low) && (3.0..=16.0).contains(&capacity.high),
        "{}",
        record.describe()
    );
    assert!(
        record
            .points
            .iter()
            .all(|point| point.judged.requests <= 128 && !point.figures.is_empty())
    );
    // The first failure is repeated, and both ends of the interval.
    let probes = |value: f64| record.points.iter().filter(|point| point.value == value).count();
    let fails = |point: &&Point| point.judged.decision == Some(PointDecision::Fails);
    let failure = record.points.iter().find(fails);
    let repeated = [
        capacity.low,
        capacity.high,
        failure.expect("a bound has one").value,
    ];
    assert!(
        repeated.iter().all(|value| probes(*value) >= 2),
        "{:#?}",
        record.points
    );
    // Requests and figures are those of the point that was found.
    let figures = &search.figures[&Definitions::Matrix];
    assert_eq!(
        metrics::metric_value(
            figures,
            Metric::from_name("found_concurrency_requests").expect("it is one")
        ),
        Some(capacity.value)
    );
    assert!(metrics::metric_value(figures, Metric::Attainment) >= Some(0.9));
    assert_eq!(
        metrics::metric_value(figures, Metric::PeakConcurrency),
        Some(capacity.low)
    );
    let best = record
        .points
        .iter()
        .find(|point| point.value == capacity.low)
        .expect("it was measured");
    assert_eq!(search.schedule_hash.as_ref(), Some(&best.schedule_hash));
    let measurements = &run.plan.starts[0].cells;
    let requests = run.read_requests(&measurements[0]).expect("requests are kept");
    assert!((110..=128).contains(&requests.len()), "{}", requests.len());
    let shown = format!(
        "{} at once [{} .. {}]",
        capacity.value, capacity.low, capacity.high
    );
    assert!(ran.stdout.contains(&shown), "{}", ran.stdout);

    // As many prompts as the stages come to, at their times; what happened in each second is kept.
    assert_eq!(stages.prompts, Some(15));
    let requests = run.read_requests(&measurements[1]).expect("requests are kept");
    let due: Vec<u64> = requests
        .iter()
        .map(|request| request.due_ns / 1_000_000)
        .collect();
    assert_eq!(due[..7], [0, 200, 400, 600, 800, 1000, 1050]);
    let seconds = run
        .read_seconds(&measurements[1])
        .expect("histograms can be read")
        .expect("they are kept");
    let first = metrics::summarize_window(&seconds, 0..1).expect("a histogram is one");
    assert_eq!((first.due, first.sent), (5, 5));
    let all = metrics::summarize_window(&seconds, 0..u32::MAX).expect("a histogram is one");
    assert_eq!((all.completed, all.failed, all.output_tokens), (15, 0, Some(120)));
    let exact = metrics::metric_value(
        &stages.figures[&Definitions::Matrix],
        Metric::from_name("max_e2e_ms").unwrap(),
    );
    let actual = all.e2e.expect("answers took some time").max;
    assert!(
        (actual / exact.expect("answers took some time") - 1.0).abs() < 1.1e-3,
        "{actual} {exact:?}"
    );
    bench.leaves_no_process();
}

#[test]
fn the_plan_of_a_search_tells_its_slo_and_how_much_a_point_sends() {
    let bench = Bench::of(MATRIX);
    let planned = |matrix: &str| {
        bench.rewrite(matrix);
        bench.call(&["plan", "matrices/m.yaml"]).exits(0)
    };
    let attainment = "from 2 to 32 at which 90 % of requests meet the SLO";
    planned(MATRIX).shows(&format!(
        "{attainment}, at most 128 requests for each load that the search tries, SLO TTFT 50ms,"
    ));
    planned(&MATRIX.replace("prompts: 128 }", "duration: 90s }")).shows(&format!(
        "{attainment}, at most 1m 30s for each load that the search tries, SLO TTFT 50ms,"
    ));
    planned(&MATRIX.replace(
        "stages: [{ rate: 5, duration: 1s }, { rate: 20, duration: 500ms }]",
        "rate: 5\n      duration: 10s",
    ))
    .shows("rate 5, for 10s,");
}

#[test]
fn a_bound_that_was_not_bracketed_is_said_beside_the_figures() {
    let bench = Bench::of(
        &MATRIX
            .replace("to: 32", "to: 2")
            .replace("ttft: 50ms", "ttft: 5s"),
    );
    let ran = bench.run(&["--only", "scenario=random-1k-1k"]).exits(0);
    assert!(
        ran.stdout
            .contains("the capacity lies above it and was not found"),
        "{}",
        ran.stdout
    );
    let run = bench.finished();
    let record = run.summaries[0].search.as_ref().expect("the search is recorded");
    assert_eq!(
        (record.found, record.ending),
        (Some(2.0), SearchStopReason::AllHeld)
    );
    assert!(
        run.summaries[0]
            .warnings
            .iter()
            .any(|warning| warning.contains("the capacity lies above it and was not found"))
    );
}

/// An engine that stops listening in the middle of a point is not one that holds no more than the point before.
#[test]
fn a_server_that_goes_away_during_a_search_has_no_capacity_and_wins_nothing() {
    let scenarios = "  - random-1k-1k: { prompts: 400, input_len: 16, output_len: 4, warmup: 0, slo: { ttft: 10s }, search: { by: concurrency, to: 32, prompts: 110, target: 0.9 } }\n";
    let matrix = sims(
        &[("stays", "vllm", ""), ("goes", "vllm", "--refuse, \"250\"")],
        scenarios,
    );
    let bench = Bench::of(&format!(
        "{matrix}validity: {{ send_lag: 200ms, other_cpus: 1.0, stolen: 1.0, window: 0s, tail: 0, steady: 0.0 }}\n"
    ));
    let ran = bench.run(&[]);
    let run = bench.finished();
    let gone = summary(&run, "goes", "random-1k-1k");
    let record = gone.search.as_ref().expect("the search is recorded");
    assert_eq!(record.ending, SearchStopReason::Unanswered, "{record:?}");
    let codes: Vec<_> = gone
        .validity
        .iter()
        .flat_map(|validity| &validity.reasons)
        .map(|reason| reason.code)
        .collect();
    assert!(codes.contains(&ReasonCode::Errors), "{codes:?}");
    assert!(
        ran.stdout.contains("the exact capacity was not found"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("refused"), "{}", ran.stdout);
    bench.leaves_no_process();
}

/// A search whose points send all prompts again, and a cell with the same lengths after it, on one start.
fn searched_twice(variant: &str, args: &str) -> Bench {
    let slo = "slo: { ttft: 10s }";
    let matrix = sims(
        &[("kept", variant, args)],
        &format!(
            "  - random-1k-1k: {{ prompts: 80, input_len: 400, output_len: 8, warmup: 0, {slo}, search: {{ by: concurrency, to: 4, target: 0.5 }} }}\n  - again: {{ dataset: random, prompts: 8, input_len: 400, output_len: 8, range_ratio: 1.0, concurrency: 2, {slo} }}\n"
        ),
    );
    Bench::of(&format!(
        "{matrix}validity: {{ send_lag: 200ms, other_cpus: 1.0, stolen: 1.0, window: 0s, tail: 0, steady: 0.0 }}\n"
    ))
}

/// An engine that nobody can tell to empty its caches, and that counts no hits: from the second point on the caches are unproven, and so are
/// those of the cell after the search.
#[test]
fn points_and_the_cell_after_a_search_are_not_taken_for_cold() {
    let bench = searched_twice("openai", "--hide-cached-tokens");
    bench.run(&[]);
    let run = bench.finished();
    let search = summary(&run, "kept", "random-1k-1k");
    let unproven = crate::responses::reason(search, "reset-unproven");
    assert_eq!(unproven.weight, Verdict::Suspect);
    assert!(
        unproven
            .measured
            .starts_with("this concerns 2 of 3 points of the search, first at 2 at once:"),
        "{unproven:?}"
    );
    crate::responses::reason(summary(&run, "kept", "again"), "reset-unproven");
}

/// The same where the engine counts its hits: the first warm point ends the search, neither holds nor fails, and makes the row invalid.
#[test]
fn a_point_on_a_warm_cache_ends_the_search_and_counts_for_nothing() {
    let bench = searched_twice("vllm", "--fake-reset");
    bench.run(&[]).exits(3);
    let run = bench.finished();
    let search = summary(&run, "kept", "random-1k-1k");
    let warm = crate::responses::reason(search, "cache-warm");
    assert_eq!(warm.weight, Verdict::Invalid);
    let record = search.search.as_ref().expect("the search is recorded");
    assert_eq!(
        (record.points.len(), record.found, record.fails_at, record.ending),
        (2, Some(1.0), None, SearchStopReason::CacheWarm),
        "{}",
        record.describe()
    );
    // An engine that empties its caches is not doubted.
    let honest = searched_twice("vllm", "");
    honest.run(&[]);
    let run = honest.finished();
    for scenario in ["random-1k-1k", "again"] {
        let validity = summary(&run, "kept", scenario).validity.as_ref();
        let reasons = &validity.expect("it is judged").reasons;
        let names: Vec<&str> = reasons.iter().map(|reason| reason.code.name()).collect();
        assert!(
            !names.contains(&"cache-warm") && !names.contains(&"reset-unproven"),
            "{names:?}"
        );
    }
}

/// What docs/matrix-files.md says of its example: enough prompts for the highest rate.
#[test]
fn a_search_with_a_duration_has_prompts_for_its_highest_rate() {
    let bench = Bench::of(&sims(
        &[("a", "vllm", "")],
        "  - ids: { dataset: random-ids, input_len: 16, output_len: 2, slo: { ttft: 500ms }, search: { by: rate, from: 16, to: 64, target: 0.99, duration: 60s } }\n",
    ));
    bench
        .call(&["check", "matrices/m.yaml"])
        .exits(0)
        .shows("4088 prompts");
}

/// Prompts of random tokens begin alike by chance, some points more than others, and with short tokens: here 12 % of the tokens of one point, 4 % of its bytes. That is no warm cache.
#[test]
fn prompts_of_a_point_that_repeat_each_other_are_no_warm_cache() {
    let bench = Bench::of(
        "
name: alike
engines:
  - sim: { as: vllm, variant: vllm, args: [--preset, fast, --step, 8ms, --seed, \"2\"] }
models:
  - m: { tokenizer: data/tokenizer.json }
scenarios:
  - found:
      dataset: random-ids
      prompts: 800
      input_len: 32
      output_len: 16
      range_ratio: 1.0
      seed: 2
      slo: { e2e: 2s }
      search: { by: concurrency, to: 8, target: 0.9, prompts: 110 }
validity: { send_lag: 10s, client_cpu: 1.0 }
",
    );
    bench.run(&[]);
    let run = bench.finished();
    let search = run.summaries[0].search.as_ref().expect("the search is recorded");
    assert_eq!(search.ending, SearchStopReason::AllHeld, "{}", search.describe());
    assert!(
        search.points.iter().all(|point| !point.has_warm_cache()),
        "{}",
        search.describe()
    );
}

/// The example itself is of a standard scenario, which has a number of its own where that is enough.
#[test]
fn a_standard_scenario_has_prompts_for_its_arrivals_too() {
    let scenarios = "  - random-1k-1k: { slo: { ttft: 500ms, tpot: 50ms }, search: { by: rate, from: 16, to: 64, target: 0.99, duration: 60s } }
  - random-2k-6k: { rate: 400, duration: 12s, spacing: constant }
  - random-6k-2k: { rate: 1, duration: 60s }
  - sharegpt: { stages: [{ rate: 300, duration: 60s }], spacing: constant }
";
    let bench = Bench::of(&sims(&[("a", "vllm", "")], scenarios));
    let mut said = bench.call(&["check", "matrices/m.yaml"]).exits(0);
    for prompts in ["4088 prompts", "4800 prompts", "500 prompts", "18000 prompts"] {
        said = said.shows(prompts);
    }
}

/// A search whose points run out of prompts does not know whether the rate holds.
#[test]
fn a_rate_whose_prompts_ran_out_neither_holds_nor_fails() {
    let bench = Bench::of(&sims(
        &[("a", "vllm", "")],
        "  - ids: { dataset: random-ids, input_len: 16, output_len: 2, prompts: 60, spacing: constant, slo: { ttft: 5s }, \
         search: { by: rate, from: 30, to: 240, target: 0.9, duration: 4s } }\n",
    ));
    bench.run(&[]).exits(0);
    let run = bench.finished();
    let record = run.summaries[0].search.as_ref().expect("the search is recorded");
    assert_eq!(
        (record.ending, record.found, record.fails_at),
        (SearchStopReason::OutOfPrompts, None, None)
    );
    let [point] = record.points.as_slice() else {
        panic!("one point is expected: {record:?}");
    };
    let judged = &point.judged;
    assert_eq!(
        (judged.holds, judged.ran_out_s.is_some()),
        (false, true),
        "{judged:?}"
    );
    let due = judged.due_per_s.expect("the rate is varied");
    assert!(
        (due - 30.0).abs() < 1.0,
        "{due} fell due each second until the prompts ran out"
    );
    assert!(
        record
            .describe()
            .contains("the first point, 30 req/s, ran out of prompts"),
        "{}",
        record.describe()
    );
}

/// A client that is stopped during a point which the search does not choose marks the row all the same: that point decides where the search goes.
#[test]
fn a_client_that_was_stopped_during_another_point_marks_the_search() {
    let matrix = sims(
        &[("a", "vllm", "--step, 40ms")],
        "  - random-1k-1k: { prompts: 160, input_len: 16, output_len: 2, warmup: 0, slo: { ttft: 20s }, search: { by: concurrency, from: 1, to: 2, prompts: 80, target: 0.5 } }\n",
    );
    let bench = Bench::of(&matrix);
    let child = bench.begin(&["run", "matrices/m.yaml", "--no-calibration"]);
    // The first point takes six seconds, in which records are written.
    let writes = || {
        let cells = fs::read_dir(bench.results()).into_iter().flatten().flatten();
        let cells = cells.flat_map(|run| {
            fs::read_dir(run.path().join("cells"))
                .into_iter()
                .flatten()
                .flatten()
        });
        let mut partial = cells.map(|cell| cell.path().join("requests.partial.jsonl.zst"));
        partial.any(|partial| partial.exists())
    };
    bench.until("records of the first point", writes);
    thread::sleep(Duration::from_millis(500));
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::STOP).expect("the child lives");
    thread::sleep(Duration::from_millis(600));
    kill_process(pid, Signal::CONT).expect("the child lives");
    child.wait_with_output().expect("it ends");
    let run = bench.finished();
    let search = summary(&run, "a", "random-1k-1k");
    let record = search.search.as_ref().expect("the search is recorded");
    assert_eq!(record.found, Some(2.0), "{}", record.describe());
    let late = search.client.and_then(|client| client.late).expect("it is known");
    assert!(late.pauses >= 1 && late.longest_pause_s >= 0.5, "{late:?}");
    let reasons = &search.validity.as_ref().expect("it is judged").reasons;
    assert!(
        reasons.iter().any(|reason| reason.code == ReasonCode::ClientLate
            && reason.measured.starts_with("the client was stopped")),
        "{reasons:#?}"
    );
    bench.leaves_no_process();
}

/// Alone, the slower tier is met by more requests at once.
#[test]
fn every_tier_of_an_slo_gets_its_capacity_and_points_are_shown() {
    let tiers = "slo: [{ ttft: 300ms }, { ttft: 300ms, speed: 40 tok/s }]";
    let args = "args: [--max-running, \"8\", --step, 4ms, --step-per-sequence, 8ms]";
    let matrix = MATRIX
        .replace("slo: { ttft: 50ms }", tiers)
        .replace("output_len: 8", "output_len: 5")
        .replace("from: 2", "from: 1")
        .replace(
            "args: [--max-running, \"4\", --step, 5ms, --step-per-sequence, 0ms]",
            args,
        );
    let climbing = matrix.find("  - climbing:").expect("it is there");
    let data = matrix.find("datasets:").expect("it is there");
    let matrix = format!("{}{}", &matrix[..climbing], &matrix[data..]);
    let bench = Bench::of(&matrix);
    bench
        .call(&["plan", "matrices/m.yaml"])
        .exits(0)
        .shows("SLO TTFT 300ms or TTFT 300ms and speed 40 tok/s");
    let ran = bench
        .run(&[])
        .exits(0)
        .says("requests meet the SLO of tier 2 (")
        .shows("speed 40 tok/s: ");
    let run = bench.finished();
    let record = run.summaries[0].search.as_ref().expect("the search is recorded");
    let capacities: Vec<_> = std::iter::once(record)
        .chain(&record.further_tiers)
        .map(|record| record.capacity.unwrap_or_else(|| panic!("{}", record.describe())))
        .collect();
    // 40 tok/s leave 25 ms for a token. Two at once take 20 ms, three 28.
    assert!(
        capacities[1].low <= 3.0 && capacities[1].high <= 5.0,
        "{capacities:?}"
    );
    assert!(capacities[0].low > capacities[1].low, "{capacities:?}");
    let figures = &run.summaries[0].figures[&Definitions::Matrix];
    for (name, capacity) in ["found_concurrency_requests", "found_concurrency_tier2_requests"]
        .into_iter()
        .zip(&capacities)
    {
        assert_eq!(
            figures.get(name).copied().flatten(),
            Some(capacity.value),
            "{}",
            ran.stdout
        );
    }
    // Tiers without a search are none.
    let start = matrix.find("      search:").expect("it is there");
    let end = start + matrix[start..].find('\n').expect("a line ends") + 1;
    bench.rewrite(&format!("{}{}", &matrix[..start], &matrix[end..]));
    bench
        .call(&["plan", "matrices/m.yaml"])
        .exits(2)
        .says("several tiers need a search, which finds the capacity of each tier");
}

/// Conversations of three turns with pauses, of which eight may run at a time without a wait.
const CONVERSATIONS: &str = "
name: users
engines:
  - sim: { variant: vllm-chat, args: [--max-running, \"8\", --step, 20ms, --step-per-sequence, 0ms] }
models:
  - tiny: { tokenizer: data/tokenizer.json }
scenarios:
  - users:
      dataset: generated-shared-prefix
      shared_prefix: { groups: 4, prompts_per_group: 100, turns: 3, system_len: 16, question_len: 16 }
      output_len: 8
      think_time: 100ms
      slo: { ttft: 60ms }
      search: { by: sessions, from: 4, to: 64, target: 0.9, prompts: 120 }
";

#[test]
fn the_number_of_conversations_that_keeps_the_slo_is_found() {
    let bench = Bench::of(CONVERSATIONS);
    let ran = bench.run(&[]).exits(0).shows(" sessions [");
    let run = bench.finished();
    let record = run.summaries[0].search.as_ref().expect("the search is recorded");
    let capacity = record.capacity.unwrap_or_else(|| panic!("{}", record.describe()));
    // A turn takes about 160 ms and its pause 100 ms, so that eight slots have twelve users or so.
    assert!(
        (4.0..=24.0).contains(&capacity.low) && capacity.high <= 48.0,
        "{}",
        record.describe()
    );
    let figures = &run.summaries[0].figures[&Definitions::Matrix];
    assert_eq!(
        figures.get("found_sessions").copied().flatten(),
        Some(capacity.value),
        "{}",
        ran.stdout
    );
    bench.rewrite(&CONVERSATIONS.replace("think_time: 100ms", "sessions: 4"));
    bench
        .call(&["plan", "matrices/m.yaml"])
        .exits(2)
        .says("the search varies `sessions`");
    bench.rewrite(&MATRIX.replace("by: concurrency", "by: sessions"));
    bench
        .call(&["plan", "matrices/m.yaml"])
        .exits(2)
        .says("has no conversations, so the search cannot vary their number");
}
