//! The steady state of a closed loop whose requests are of one length and end in waves.

use matrix::analysis::metrics::{self, Metric};
use matrix::results::record::cell::{Definitions, MeasurementSummary};

use crate::harness::Bench;

/// Four waves of ten requests; the second engine gathers tokens into few events.
const WAVES: &str = "name: t
engines:
  - sim: { as: each, args: [--ttft, 10ms, --itl, 5ms] }
  - sim: { as: gathered, args: [--ttft, 10ms, --itl, 5ms, --merge-chunks, '16'] }
models:
  - one: { tokenizer: data/tokenizer.json }
scenarios:
  - waves: { dataset: random-ids, prompts: 40, input_len: 64, output_len: 32, concurrency: 10, range_ratio: 1.0 }
";

fn figure(summary: &MeasurementSummary, name: &str) -> f64 {
    let metric = Metric::from_name(name).unwrap_or_else(|| panic!("{name} is no metric"));
    metrics::metric_value(&summary.figures[&Definitions::Matrix], metric)
        .unwrap_or_else(|| panic!("no {name}: {summary:?}"))
}

#[test]
fn the_steady_state_holds_all_waves_and_tells_what_the_whole_run_tells() {
    let bench = Bench::of(WAVES);
    bench.run(&[]).exits(0);
    let summaries = bench.finished().summaries;
    assert_eq!(summaries.len(), 2);
    for summary in &summaries {
        let [steady, whole] = ["steady_duration_s", "duration_s"].map(|name| figure(summary, name));
        assert!(steady > 0.6 * whole, "{}: {steady} s of {whole} s", summary.cell);
        let names = ["steady_output_throughput_tok_s", "output_throughput_tok_s"];
        let [steady, whole] = names.map(|name| figure(summary, name));
        assert!(
            (steady / whole - 1.0).abs() < 0.3,
            "{}: {steady} tok/s in the steady state, {whole} tok/s in all",
            summary.cell
        );
    }
    bench.leaves_no_process();
}
