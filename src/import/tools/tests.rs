use super::super::{ImportContent, ImportedRun, build_run, read};
use crate::analysis::metrics::{LatencyKind, Metric, Quantity, Statistic, TokenCount, metric_value};
use crate::base::units::RequestRate;
use crate::results::record::cell::{Definitions, MeasurementSummary};
use crate::results::record::provenance::{Tool, UnknownFact};
use crate::results::record::validity::Verdict;

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../../tests/fixtures/import/", $name))
    };
}

fn import(file: &str, text: &str) -> ImportedRun {
    let read = read(file, text).unwrap_or_else(|error| panic!("{error}"));
    build_run("t", &[read], ImportContent::WithCommands)
}

/// A figure under the definitions of the tool.
fn figure(summary: &MeasurementSummary, metric: Metric) -> Option<f64> {
    metric_value(&summary.figures[&Definitions::Current], metric)
}

const fn time(statistic: Statistic, kind: LatencyKind) -> Metric {
    Metric::Time(statistic, kind)
}

/// Compares figures with what the tool prints, rounded as it rounds.
fn assert_printed(summary: &MeasurementSummary, decimals: i32, printed: &[(Metric, f64)]) {
    let digit = 10_f64.powi(-decimals);
    for (metric, expected) in printed {
        let value = figure(summary, *metric).unwrap_or_else(|| panic!("no {}", metric.label()));
        assert!(
            (value - expected).abs() <= 0.5001 * digit,
            "{}: {value} against {expected}",
            metric.label()
        );
    }
}

fn verdict(summary: &MeasurementSummary) -> Verdict {
    summary.validity.as_ref().expect("it is judged").verdict
}

#[test]
fn figures_of_aiperf_are_those_that_it_prints() {
    let run = import("a.json", fixture!("aiperf-rate.json"));
    assert!(run.warnings.is_empty(), "{:#?}", run.warnings);
    let [summary] = &run.summaries[..] else {
        panic!("one result")
    };
    assert_printed(
        summary,
        2,
        &[
            (time(Statistic::Mean, LatencyKind::Ttft), 16.66),
            (time(Statistic::P99, LatencyKind::Ttft), 46.94),
            (time(Statistic::P90, LatencyKind::Ttft), 21.48),
            (time(Statistic::Median, LatencyKind::Ttft), 14.90),
            (time(Statistic::Std, LatencyKind::Ttft), 8.25),
            (time(Statistic::Mean, LatencyKind::E2e), 199.53),
            (time(Statistic::Max, LatencyKind::E2e), 217.17),
            (time(Statistic::Mean, LatencyKind::Tpot), 7.95),
            (time(Statistic::P99, LatencyKind::Tpot), 8.20),
            (Metric::Throughput(Quantity::Output), 175.00),
            (Metric::Throughput(Quantity::Input), 335.65),
            (Metric::Throughput(Quantity::Requests), 7.29),
            (Metric::Completed, 30.0),
            (Metric::Failed, 0.0),
            (Metric::Tokens(TokenCount::Output), 720.0),
            (Metric::Tokens(TokenCount::Input), 1381.0),
        ],
    );
    assert!(figure(summary, Metric::Failed).unwrap().is_sign_positive());
    // The throughput of AIPerf is computed to the end of the phase, not to the last answer (3.93 s).
    let duration = figure(summary, Metric::Duration).unwrap();
    assert!(
        (duration - 30.0 / 7.291_552_376_393_566).abs() < 1e-9,
        "{duration}"
    );
    let imported = summary.imported.as_ref().unwrap();
    assert_eq!(imported.tool_in_words(), "AIPerf 0.13.0");
    assert_eq!(imported.workload.as_deref(), Some("synthetic-100±10-24"));
    assert!(!imported.lacks(UnknownFact::Dataset) && !imported.lacks(UnknownFact::Prompts));
    assert!(imported.lacks(UnknownFact::Engine));
    let cell = &run.plan.cells[0];
    assert_eq!(cell.scenario.arrival.rate, RequestRate::new(10.0).unwrap());
    assert_eq!(
        cell.scenario.arrival.concurrency.map(|limit| limit.get()),
        Some(8)
    );
    assert_eq!(cell.scenario.seed, 7);
    assert_eq!(run.plan.launches[0].model, "demo-8b");
    // TPOT is no figure of `matrix`, TTFT is.
    let ours = |metric| metric_value(&summary.figures[&Definitions::Matrix], metric);
    assert!(ours(time(Statistic::Mean, LatencyKind::Ttft)).is_some());
    assert!(ours(time(Statistic::Mean, LatencyKind::Tpot)).is_none());
    assert!(ours(time(Statistic::Mean, LatencyKind::E2e)).is_some());
    assert_eq!(ours(Metric::Due), Some(30.0));
}

#[test]
fn another_tokenizer_than_the_servers_makes_a_result_of_aiperf_suspect() {
    let run = import("a.json", fixture!("aiperf.json"));
    let [summary] = &run.summaries[..] else {
        panic!("one result")
    };
    assert_eq!(verdict(summary), Verdict::Suspect);
    let said = "AIPerf's tokenizer counts 1774 output tokens, but the server reports 1280";
    assert!(
        run.warnings.iter().any(|warning| warning.contains(said)),
        "{:#?}",
        run.warnings
    );
    assert_printed(
        summary,
        2,
        &[
            (time(Statistic::P99, LatencyKind::Ttft), 46.53),
            (time(Statistic::Median, LatencyKind::E2e), 270.17),
            (time(Statistic::Mean, LatencyKind::Tpot), 5.77),
            (time(Statistic::Mean, LatencyKind::Itl), 8.02),
            (Metric::Goodput, 13.75),
            (Metric::Throughput(Quantity::Output), 609.72),
        ],
    );
    let slo = run.plan.cells[0].scenario.slo.as_ref().expect("it has an SLO");
    assert_eq!(slo.ttft.unwrap().0.as_millis(), 500);
    assert_eq!(slo.tpot.unwrap().0.as_millis(), 50);
}

#[test]
fn failures_and_settings_of_an_older_aiperf_are_read() {
    let text = r#"{
        "input_config": {"endpoint": {"model_names": ["m"], "type": "chat", "streaming": true},
            "loadgen": {"concurrency": 2, "request_count": 12},
            "input": {"random_seed": 3, "prompt": {"input_tokens": {"mean": 64}, "output_tokens": {"mean": 16}}}},
        "request_count": {"unit": "requests", "avg": 10.0},
        "request_throughput": {"unit": "requests/sec", "avg": 5.0},
        "benchmark_duration": {"unit": "sec", "avg": 2.0},
        "time_to_first_token": {"unit": "us", "avg": 20000.0, "max": 30000.0},
        "error_summary": [{"error_details": {"code": 500}, "count": 2}],
        "was_cancelled": false
    }"#;
    let run = import("old.json", text);
    let summary = &run.summaries[0];
    assert_eq!(figure(summary, Metric::Failed), Some(2.0));
    assert_eq!(
        figure(summary, time(Statistic::Mean, LatencyKind::Ttft)),
        Some(20.0)
    );
    assert_eq!(
        verdict(summary),
        Verdict::Invalid,
        "a sixth of the requests failed"
    );
    let scenario = &run.plan.cells[0].scenario;
    assert_eq!((scenario.seed, scenario.name.as_str()), (3, "synthetic-64-16"));
    assert!(scenario.arrival.rate.is_infinite());
    let cancelled = text.replace("\"was_cancelled\": false", "\"was_cancelled\": true");
    let run = import("old.json", &cancelled);
    assert!(
        run.warnings[0].contains("was cancelled before its end"),
        "{:?}",
        run.warnings
    );
}

#[test]
fn each_benchmark_of_guidellm_is_a_row() {
    let run = import("benchmarks.json", fixture!("guidellm.json"));
    assert!(run.warnings.is_empty(), "{:#?}", run.warnings);
    let [two, four] = &run.summaries[..] else {
        panic!("two results")
    };
    assert_ne!(two.cell, four.cell);
    let limits: Vec<_> = run
        .plan
        .cells
        .iter()
        .map(|cell| cell.scenario.arrival.concurrency)
        .collect();
    assert_eq!(
        limits
            .iter()
            .map(|limit| limit.unwrap().get())
            .collect::<Vec<_>>(),
        [2, 4]
    );
    // The table of GuideLLM's console, with one decimal.
    assert_printed(
        two,
        1,
        &[
            (time(Statistic::Mean, LatencyKind::Ttft), 16.0),
            (time(Statistic::Median, LatencyKind::Ttft), 15.9),
            (time(Statistic::P95, LatencyKind::Ttft), 29.5),
            (time(Statistic::Mean, LatencyKind::Tpot), 8.0),
            (time(Statistic::P95, LatencyKind::Tpot), 8.1),
            (Metric::Throughput(Quantity::Requests), 9.6),
            (Metric::Throughput(Quantity::Input), 516.4),
            (Metric::Throughput(Quantity::Output), 231.5),
            (Metric::Throughput(Quantity::Total), 747.9),
        ],
    );
    assert_printed(
        four,
        1,
        &[
            (time(Statistic::Mean, LatencyKind::Ttft), 26.2),
            (time(Statistic::P95, LatencyKind::Tpot), 8.6),
            (Metric::Throughput(Quantity::Output), 424.7),
            // GuideLLM prints 17.1, without the request that ends with the measurement.
            (Metric::Throughput(Quantity::Requests), 17.7),
        ],
    );
    let e2e = figure(two, time(Statistic::Mean, LatencyKind::E2e)).unwrap();
    assert!((190.0..210.0).contains(&e2e), "{e2e} ms");
    assert_eq!(figure(two, Metric::Completed), Some(30.0));
    assert_eq!(figure(two, Metric::Failed), Some(0.0));
    assert_eq!(figure(two, Metric::Cancelled), None, "nothing was cut off");
    assert_eq!(two.prompts, Some(30));
    let imported = [two, four].map(|summary| summary.imported.as_ref().unwrap());
    assert_eq!(imported[0].tool_in_words(), "GuideLLM 0.8.1");
    assert_eq!(imported[0].workload.as_deref(), Some("synthetic-100-24"));
    assert!(1 < imported[0].line && imported[0].line < imported[1].line);
}

#[test]
fn what_guidellm_weights_by_tokens_is_no_tpot_of_answers_of_different_lengths() {
    let run = import("benchmarks.json", fixture!("guidellm-rate.json"));
    let [first, _] = &run.summaries[..] else {
        panic!("two results")
    };
    assert_eq!(figure(first, time(Statistic::Mean, LatencyKind::Tpot)), None);
    assert!(
        run.warnings[0].contains("is not TPOT if answers differ in length"),
        "{:?}",
        run.warnings
    );
    assert_eq!(verdict(first), Verdict::Valid);
    assert_printed(
        first,
        1,
        &[
            (time(Statistic::Mean, LatencyKind::Ttft), 91.8),
            (time(Statistic::P95, LatencyKind::Ttft), 534.8),
            (Metric::Completed, 54.0),
            // The end of the measurement cut them off; they did not fail.
            (Metric::Cancelled, 2.0),
            (Metric::Failed, 0.0),
            (Metric::Tokens(TokenCount::Output), 1407.0),
        ],
    );
    let rates: Vec<f64> = run
        .plan
        .cells
        .iter()
        .map(|cell| cell.scenario.arrival.rate.per_second())
        .collect();
    assert_eq!(rates, [12.0, 20.0]);
}

#[test]
fn a_window_of_guidellm_that_cuts_requests_leaves_out_sums() {
    let text = fixture!("guidellm.json")
        .replacen("\"total_sum\": 720.0", "\"total_sum\": 800.0", 1)
        .replacen("\"warmup_duration\": 0.0", "\"warmup_duration\": 0.5", 1);
    let run = import("benchmarks.json", &text);
    let [first, second] = &run.summaries[..] else {
        panic!("two results")
    };
    assert_eq!(figure(first, Metric::Duration), None);
    assert_eq!(figure(first, Metric::Tokens(TokenCount::Output)), None);
    assert!(figure(first, Metric::Throughput(Quantity::Output)).is_some());
    assert!(figure(second, Metric::Duration).is_some());
    assert!(
        run.warnings[0].contains("between warm-up and cool-down"),
        "{:?}",
        run.warnings
    );
}

#[test]
fn throughput_of_inferencex_is_that_of_all_gpus() {
    let run = import("agg.json", fixture!("inferencex.json"));
    assert!(run.warnings.is_empty(), "{:#?}", run.warnings);
    let [one, apart] = &run.summaries[..] else {
        panic!("two results")
    };
    // 8 GPUs of one node; and 4 of prefill and 8 of decode, whose figures have different divisors.
    for summary in [one, apart] {
        assert_printed(
            summary,
            2,
            &[
                (Metric::Throughput(Quantity::Total), 7200.5),
                (Metric::Throughput(Quantity::Output), 3600.25),
                (Metric::Throughput(Quantity::Input), 3600.25),
                (time(Statistic::Mean, LatencyKind::Ttft), 154.2),
                (time(Statistic::P99, LatencyKind::E2e), 9900.5),
                (time(Statistic::Median, LatencyKind::Tpot), 8.2),
                (time(Statistic::P99, LatencyKind::Itl), 14.5),
            ],
        );
    }
    let per_gpu = |summary: &MeasurementSummary| {
        metric_value(
            &summary.figures[&Definitions::Matrix],
            Metric::PerDevice(Quantity::Output),
        )
    };
    assert_eq!(per_gpu(one), Some(3600.25 / 8.0));
    assert_eq!(per_gpu(apart), Some(3600.25 / 12.0));
    let [single, multi] = &run.plan.launches[..] else {
        panic!("two launches")
    };
    assert_eq!((single.devices, multi.devices), (8, 12));
    assert_eq!(single.precision.as_deref(), Some("fp8"));
    assert_eq!(single.engine.name, "sglang");
    assert_eq!(single.engine.version.as_deref(), Some("v0.5.6.post1"));
    assert_eq!(single.engine.variant.as_deref(), Some("mtp"));
    assert!(
        multi
            .engine
            .variant
            .as_deref()
            .unwrap()
            .starts_with("disaggregated-prefill-1x-tp4-ep4-dp-attention")
    );
    let cell = &run.plan.cells[0];
    assert_eq!(cell.scenario.name, "random-1024-1024");
    assert_eq!(
        cell.scenario.arrival.concurrency.map(|limit| limit.get()),
        Some(64)
    );
    assert!(one.imported.as_ref().unwrap().lacks(UnknownFact::Prompts));
}

#[test]
fn an_aggregate_of_inferencex_that_contradicts_itself_is_suspect() {
    let text = fixture!("inferencex.json").replacen("\"mean_tpot\": 0.00825", "\"mean_tpot\": 0.00725", 1);
    let run = import("agg.json", &text);
    assert_eq!(verdict(&run.summaries[0]), Verdict::Suspect);
    assert_eq!(verdict(&run.summaries[1]), Verdict::Valid);
    assert!(run.warnings[0].contains("mean interactivity is 121.21 tok/s, but 1 / mean TPOT is 137.93"));
    let total = fixture!("inferencex.json").replacen("900.0625", "1900.0625", 1);
    let run = import("agg.json", &total);
    assert!(
        run.warnings[0].contains("total throughput is 15200.50"),
        "{:?}",
        run.warnings
    );
}

#[test]
fn figures_of_inference_perf_are_those_that_it_prints() {
    let run = import("summary.json", fixture!("inference-perf.json"));
    let [summary] = &run.summaries[..] else {
        panic!("one result")
    };
    assert_printed(
        summary,
        1,
        &[
            (time(Statistic::Mean, LatencyKind::E2e), 212.6),
            (time(Statistic::Median, LatencyKind::E2e), 260.7),
            (time(Statistic::P90, LatencyKind::E2e), 266.6),
            (time(Statistic::Mean, LatencyKind::Ttft), 14.1),
            (time(Statistic::P90, LatencyKind::Ttft), 18.8),
            (time(Statistic::Mean, LatencyKind::Tpot), 5.8),
            (time(Statistic::P90, LatencyKind::Tpot), 6.4),
            (Metric::Throughput(Quantity::Requests), 9.4),
            (Metric::Throughput(Quantity::Output), 332.5),
            (Metric::Tokens(TokenCount::Input), 4443.0),
            // Throughput is computed from the texts (35.3 tokens for each answer), not from the server's count.
            (Metric::Tokens(TokenCount::Output), 1412.0),
            (Metric::Tokens(TokenCount::OutputReported), 1024.0),
        ],
    );
    assert!(
        run.warnings[0].contains("counts 1412 output tokens"),
        "{:?}",
        run.warnings
    );
    // Its gaps are zero within an event, so they are neither gaps between events nor those of tokens.
    assert_eq!(figure(summary, time(Statistic::Mean, LatencyKind::Itl)), None);
    assert!(summary.imported.as_ref().unwrap().lacks(UnknownFact::Model));
}

#[test]
fn a_stage_of_inference_perf_has_its_rate_and_failures_count() {
    let text = fixture!("inference-perf.json")
        .replacen(
            "\"load_summary\": {",
            "\"load_summary\": {\"requested_rate\": 10.0,",
            1,
        )
        .replacen(
            "\"failures\": {\n  \"count\": 0",
            "\"failures\": {\n  \"count\": 10",
            1,
        );
    let run = import("stage.json", &text);
    assert_eq!(run.plan.cells[0].scenario.arrival.rate.per_second(), 10.0);
    let summary = &run.summaries[0];
    assert_eq!(figure(summary, Metric::Failed), Some(10.0));
    assert_eq!(verdict(summary), Verdict::Invalid);
    let none = text.replacen(
        "\"successes\": {\n  \"count\": 40",
        "\"successes\": {\n  \"count\": 0",
        1,
    );
    let error = read("stage.json", &none).expect_err("nothing completed");
    assert!(error.reason.contains("completed no request"), "{error}");
}

#[test]
fn figures_of_genai_bench_are_those_of_its_file() {
    let text = fixture!("genai-bench.json");
    let run = import("g.json", text);
    assert!(run.warnings.is_empty(), "{:#?}", run.warnings);
    let [summary] = &run.summaries[..] else {
        panic!("one result")
    };
    assert_printed(
        summary,
        3,
        &[
            (Metric::Completed, 52.0),
            (Metric::Failed, 0.0),
            (Metric::Duration, 3.197),
            (Metric::Throughput(Quantity::Requests), 16.266),
            (Metric::Throughput(Quantity::Output), 390.385),
            (Metric::Throughput(Quantity::Input), 958.759),
            (Metric::Throughput(Quantity::Total), 1349.144),
            (time(Statistic::Mean, LatencyKind::Tpot), 8.840),
            (time(Statistic::P99, LatencyKind::Tpot), 14.941),
        ],
    );
    let cell = &run.plan.cells[0];
    assert_eq!(cell.scenario.name, "D(100,24)");
    assert_eq!(
        cell.scenario.arrival.concurrency.map(|limit| limit.get()),
        Some(4)
    );
    let in_ms = text.replacen("\"_time_unit\": \"s\"", "\"_time_unit\": \"ms\"", 1);
    let run = import("g.json", &in_ms);
    let tpot = figure(&run.summaries[0], time(Statistic::Mean, LatencyKind::Tpot)).unwrap();
    assert!((tpot - 0.008_840_490_591_971_555).abs() < 1e-12, "{tpot}");
}

#[test]
fn a_warm_up_of_genai_bench_leaves_out_its_token_throughput() {
    let text =
        fixture!("genai-bench.json").replacen("\"num_output_tokens\": 24", "\"num_output_tokens\": 48", 1);
    let run = import("g.json", &text);
    assert_eq!(
        figure(&run.summaries[0], Metric::Throughput(Quantity::Output)),
        None
    );
    assert!(figure(&run.summaries[0], Metric::Throughput(Quantity::Requests)).is_some());
    assert!(
        run.warnings[0].contains("leaves a warm-up or cool-down out"),
        "{:?}",
        run.warnings
    );
}

#[test]
fn reports_of_llm_d_hold_what_their_harness_measured() {
    let run = import("br.yaml", fixture!("llm-d-aiperf.yaml"));
    assert!(run.warnings.is_empty(), "{:#?}", run.warnings);
    let summary = &run.summaries[0];
    // The same load as in the file of AIPerf itself.
    assert_printed(
        summary,
        2,
        &[
            (time(Statistic::Mean, LatencyKind::Ttft), 16.66),
            (time(Statistic::P99, LatencyKind::Ttft), 46.94),
            (time(Statistic::Mean, LatencyKind::Tpot), 7.95),
            (time(Statistic::Mean, LatencyKind::E2e), 199.53),
            (Metric::Throughput(Quantity::Output), 175.00),
            (Metric::Completed, 30.0),
            (Metric::Tokens(TokenCount::Output), 720.0),
        ],
    );
    let imported = summary.imported.as_ref().unwrap();
    assert_eq!(imported.tool, Tool::LlmdReport);
    assert_eq!(imported.tool_in_words(), "llm-d benchmark report 0.2 of aiperf");
    assert_eq!(run.plan.launches[0].model, "demo-8b");

    let run = import("br.yaml", fixture!("llm-d-inference-perf.yaml"));
    let summary = &run.summaries[0];
    assert_printed(
        summary,
        1,
        &[
            (time(Statistic::Mean, LatencyKind::Ttft), 14.1),
            (time(Statistic::P90, LatencyKind::Tpot), 6.4),
            (Metric::Completed, 40.0),
            (Metric::Tokens(TokenCount::Output), 1412.0),
        ],
    );
    // The report has the time in which requests were sent.
    assert_eq!(figure(summary, Metric::Duration), None);
    assert!(
        run.warnings
            .iter()
            .any(|warning| warning.contains("the duration in the report is 3.99 s")),
        "{:?}",
        run.warnings
    );
    assert!(
        run.warnings
            .iter()
            .any(|warning| warning.contains("`inter_token_latency` of inference-perf do not follow"))
    );

    let run = import("br.yaml", fixture!("llm-d-guidellm.yaml"));
    let summary = &run.summaries[0];
    assert_printed(
        summary,
        1,
        &[
            (time(Statistic::Mean, LatencyKind::Ttft), 91.8),
            (Metric::Completed, 54.0),
            (Metric::Cancelled, 2.0),
            (Metric::Duration, 3.0),
        ],
    );
    assert_eq!(figure(summary, time(Statistic::Mean, LatencyKind::Tpot)), None);
    assert_eq!(run.plan.cells[0].scenario.arrival.rate.per_second(), 12.0);
}

/// A report of a run on a cluster, whose stack names engine and GPUs.
const STACK: &str = r#"
version: '0.2'
run: {uid: a, time: {duration: PT10S}}
scenario:
  stack:
  - standardized: {kind: inference_engine, tool: vllm, tool_version: 'docker.io/vllm/vllm-openai:v0.11.0', replicas: 1,
      model: {name: acme/tiny-1b}, accelerator: {model: H100, count: 4, parallelism: {tp: 4, dp: 1, pp: 1, ep: 1}}}
  - standardized: {kind: generic, tool: router, tool_version: x}
  load: {standardized: {tool: vllm-benchmark, concurrency: 8, source: random, rate_qps: .inf,
      input_seq_len: {value: 128}, output_seq_len: {value: 32}}}
results:
  request_performance:
    aggregate:
      requests: {total: 100, failures: 4, input_length: {units: count, mean: 128}, output_length: {units: count, mean: 32}}
      latency:
        time_to_first_token: {units: ms, mean: 20.0, p99: 30.0}
        time_per_output_token: {units: ms/token, mean: 8.0}
        inter_token_latency: {units: ms/token, mean: 8.0}
        request_latency: {units: ms, mean: 268.0}
      throughput: {request_rate: {units: queries/s, mean: 9.6}, output_token_rate: {units: tokens/s, mean: 307.2}}
"#;

#[test]
fn the_stack_of_a_report_of_llm_d_is_the_launch() {
    let run = import("br.yaml", STACK);
    assert!(run.warnings.is_empty(), "{:#?}", run.warnings);
    let launch = &run.plan.launches[0];
    assert_eq!((launch.engine.name.as_str(), launch.devices), ("vllm", 4));
    assert_eq!(launch.engine.version.as_deref(), Some("v0.11.0"));
    assert_eq!((launch.model.as_str(), launch.parallel.tp), ("acme/tiny-1b", 4));
    let summary = &run.summaries[0];
    assert_eq!(figure(summary, Metric::Completed), Some(96.0));
    assert_eq!(figure(summary, Metric::Failed), Some(4.0));
    assert_eq!(
        figure(summary, time(Statistic::Mean, LatencyKind::Itl)),
        Some(8.0)
    );
    assert_eq!(verdict(summary), Verdict::Invalid, "4 % of the requests failed");
    let unknown = STACK.replace("tool: vllm-benchmark, ", "");
    let run = import("br.yaml", &unknown);
    assert!(
        run.warnings[0].contains("the definition of `time_per_output_token`"),
        "{:?}",
        run.warnings
    );
    assert_eq!(
        figure(&run.summaries[0], time(Statistic::Mean, LatencyKind::Tpot)),
        None
    );
    let newer = STACK.replace("'0.2'", "'0.3'");
    let error = read("br.yaml", &newer).expect_err("the version is not known");
    assert!(
        error
            .reason
            .contains("version `0.3`; only versions 0.1 and 0.2 can be read"),
        "{error}"
    );
}

#[test]
fn rows_are_compared_only_with_those_of_the_same_tool_and_workload() {
    use crate::analysis::compare::comparable::{Comparability, comparable};
    use crate::analysis::compare::compared_cell::ComparedCell;
    let text = fixture!("aiperf-rate.json");
    let declare = |gpus| crate::import::DeclaredFacts {
        gpus: Some(gpus),
        ..Default::default()
    };
    let other = text.replace("\"mean\": 24.0", "\"mean\": 48.0");
    let files = [
        ("one.json", text.to_owned()),
        ("same.json", text.replace("7.29155", "7.3")),
        ("other.json", other),
    ];
    let readings = files.map(|(file, text)| read(file, &text).unwrap().with_declared(declare(1)));
    let run = build_run("t", &readings, ImportContent::WithCommands);
    let side = |at: usize| {
        let summary = &run.summaries[at];
        let cell = run.plan.cell(&summary.cell);
        (run.plan.launch(&cell.launch), cell, vec![summary])
    };
    let sides = [side(0), side(1), side(2)];
    let compared = |at: usize| ComparedCell {
        launch: sides[at].0,
        cell: sides[at].1,
        summaries: &sides[at].2,
        machine: None,
    };
    let same = comparable(&compared(0), &compared(1));
    assert!(!matches!(same, Comparability::Not(_)), "{same:?}");
    match comparable(&compared(0), &compared(2)) {
        Comparability::Not(reasons) => assert!(
            reasons
                .iter()
                .any(|reason| reason.contains("workload synthetic-100±10-24 of AIPerf against")),
            "{reasons:?}"
        ),
        other => panic!("{other:?}"),
    }
}

#[test]
fn yaml_that_a_markdown_report_quotes_is_no_result_file() {
    let block = fixture!("vllm-console.log");
    let text = format!("# Report\n\n```yaml\nversion: '0.2'\nscenario: [\n```\n\n{block}");
    let run = import("report.md", &text);
    assert_eq!(run.summaries[0].imported.as_ref().unwrap().tool, Tool::VllmBench);
    let error = read("cut.yaml", "version: '0.2'\nscenario: [\n").expect_err("it is cut off");
    assert!(error.reason.contains("the file is not valid YAML"), "{error}");
}
