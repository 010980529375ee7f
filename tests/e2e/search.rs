//! A scenario that searches, one whose rate changes, and what they leave on disk.

use matrix::judge::metrics::{self, Metric};
use matrix::matrix::spec::search::By;
use matrix::results::record::cell::Definitions;
use matrix::results::record::search::SearchEnding;

use crate::harness::Bench;

/// Four requests run at once on this engine; whoever finds all four taken waits.
const MATRIX: &str = "
name: capacity
engines:
  - sim: { variant: vllm, args: [--max-running, \"4\", --step, 20ms, --step-per-sequence, 0ms] }
models:
  - tiny: { tokenizer: data/tokenizer.json }
scenarios:
  - random-1k-1k:
      prompts: 200
      input_len: 32
      output_len: 8
      slo: { ttft: 90ms }
      search: { by: concurrency, to: 32, target: 0.9, prompts: 20 }
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
        (By::Concurrency, SearchEnding::Bracketed)
    );
    assert_eq!(
        (record.found, record.fails_at),
        (Some(4.0), Some(5.0)),
        "{}",
        record.says()
    );
    assert!(
        record
            .points
            .iter()
            .all(|point| point.judged.requests == 20 && !point.figures.is_empty())
    );
    // Requests and figures are those of the point that was found.
    let figures = &search.figures[&Definitions::Matrix];
    assert_eq!(
        metrics::figure(figures, Metric::Found(By::Concurrency)),
        Some(4.0)
    );
    assert_eq!(metrics::figure(figures, Metric::Attainment), record.attainment);
    assert_eq!(metrics::figure(figures, Metric::PeakConcurrency), Some(4.0));
    let best = record
        .points
        .iter()
        .find(|point| point.value == 4.0)
        .expect("it was measured");
    assert_eq!(search.schedule_hash.as_ref(), Some(&best.schedule_hash));
    let measurements = &run.plan.starts[0].cells;
    assert_eq!(
        run.read_requests(&measurements[0])
            .expect("requests are kept")
            .len(),
        20
    );
    assert!(ran.stdout.contains("4 at once ("), "{}", ran.stdout);

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
    let first = metrics::cut(&seconds, 0..1).expect("a histogram is one");
    assert_eq!((first.due, first.sent), (5, 5));
    let all = metrics::cut(&seconds, 0..u32::MAX).expect("a histogram is one");
    assert_eq!((all.completed, all.failed, all.output_tokens), (15, 0, Some(120)));
    let exact = metrics::figure(
        &stages.figures[&Definitions::Matrix],
        Metric::of_name("max_e2e_ms").unwrap(),
    );
    let told = all.e2e.expect("answers took some time").max;
    assert!(
        (told / exact.expect("answers took some time") - 1.0).abs() < 1.1e-3,
        "{told} {exact:?}"
    );
    bench.leaves_no_process();
}

#[test]
fn a_bound_that_was_not_bracketed_is_said_beside_the_figures() {
    let bench = Bench::of(&MATRIX.replace("to: 32", "to: 2"));
    let ran = bench.run(&["--only", "scenario=random-1k-1k"]).exits(0);
    assert!(ran.stdout.contains("not bracketed"), "{}", ran.stdout);
    let run = bench.finished();
    let record = run.summaries[0].search.as_ref().expect("the search is recorded");
    assert_eq!((record.found, record.ending), (Some(2.0), SearchEnding::AllHeld));
    assert!(
        run.summaries[0]
            .warnings
            .iter()
            .any(|warning| warning.contains("the bound is not bracketed"))
    );
}
