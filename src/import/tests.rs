use std::collections::BTreeMap;

use super::*;
use crate::analysis::compare::comparable::{Comparability, comparable};
use crate::analysis::compare::compared_cell::ComparedCell;
use crate::analysis::metrics::{LatencyKind, Metric, Quantity, Statistic, TokenCount};
use crate::config::workload::Profile;
use crate::report::bench_serving::block::{self as printed, BlockFacts, Layout};
use crate::report::bench_serving::traffic::Traffic;
use crate::results::record::cell::{Definitions, MeasurementSummary};
use crate::results::record::provenance::{Tool, UnknownFact};
use crate::results::record::validity::{ReasonCode, Verdict};

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../tests/fixtures/import/", $name))
    };
}

const LAYOUTS: &str = fixture!("layouts.log");
const REPORT: &str = fixture!("report.md");

fn import(file: &str, text: &str) -> ImportedRun {
    build_run("t", &[read(file, text).unwrap()], ImportContent::WithCommands)
}

fn figure(summary: &MeasurementSummary, definitions: Definitions, metric: Metric) -> Option<f64> {
    crate::analysis::metrics::metric_value(&summary.figures[&definitions], metric)
}

const fn mean(sample: LatencyKind) -> Metric {
    Metric::Time(Statistic::Mean, sample)
}

/// The block of a summary, as reports draw it.
fn block_text(imports: &ImportedRun, summary: &MeasurementSummary) -> String {
    let cell = imports.plan.cell(&summary.cell);
    let (scenario, launch) = (&cell.scenario, imports.plan.launch(&cell.launch));
    let definitions = match scenario.profile {
        Profile::Classic => Definitions::Classic,
        Profile::Current => Definitions::Current,
    };
    let facts = BlockFacts {
        backend: &launch.engine.backend,
        rate: Traffic::from_scenario(scenario, &scenario.arrival),
        concurrency: scenario.arrival.concurrency,
        slo: scenario.slo.as_ref(),
        cache: None,
        has_images: false,
        embeds: false,
        layout: Layout::AsPrinted {
            vision: summary
                .imported
                .as_ref()
                .is_some_and(|imported| imported.vision_line),
        },
    };
    printed::block(scenario.profile, &facts, &summary.figures[&definitions])
}

fn blocks(text: &str) -> Vec<String> {
    let mut blocks: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in text.lines() {
        let line = line.rsplit('\r').next().unwrap().trim_end();
        if block::is_block_start(line) {
            is_open = true;
            blocks.push(String::new());
        }
        if is_open {
            blocks.last_mut().unwrap().push_str(&format!("{line}\n"));
            is_open = !block::is_block_end(line);
        }
    }
    blocks
}

#[test]
fn every_layout_is_read_by_its_labels_and_drawn_again_to_the_byte() {
    let imports = import("layouts.log", LAYOUTS);
    assert!(imports.warnings.is_empty(), "{:#?}", imports.warnings);
    let printed = blocks(LAYOUTS);
    assert_eq!((imports.summaries.len(), printed.len()), (7, 7));
    for (summary, printed) in imports.summaries.iter().zip(printed) {
        let drawn = block_text(&imports, summary);
        let drawn: Vec<&str> = drawn.trim().lines().map(str::trim_end).collect();
        // The misspelling of an old version is not printed again.
        let printed = printed.replace("Max reqeuest concurrency:", "Max request concurrency: ");
        let printed: Vec<&str> = printed.trim().lines().collect();
        assert_eq!(drawn, printed);
        let scenario = &imports.plan.cell(&summary.cell).scenario;
        assert_eq!((scenario.name.as_str(), scenario.seed), ("random-32-16", 7));
        assert_eq!(scenario.workload.prompts, 8);
    }
    let profiles: Vec<Profile> = imports
        .summaries
        .iter()
        .map(|summary| imports.plan.cell(&summary.cell).scenario.profile)
        .collect();
    assert_eq!(profiles[..2], [Profile::Classic; 2]);
    assert_eq!(profiles[2..], [Profile::Current; 5]);
}

#[test]
fn one_changed_digit_is_seen_in_the_block() {
    let changed = LAYOUTS.replacen(
        "Mean E2E Latency (ms):                   170.00",
        "Mean E2E Latency (ms):                   170.01",
        1,
    );
    let (before, after) = (import("a", LAYOUTS), import("a", &changed));
    let (before, after) = (
        block_text(&before, &before.summaries[0]),
        block_text(&after, &after.summaries[0]),
    );
    assert!(before.contains("170.00") && after.contains("170.01"));
    assert_eq!(before.replacen("170.00", "170.01", 1), after);
}

#[test]
fn the_same_cell_in_one_file_is_a_repeat_and_in_another_file_another_one() {
    let one = import("layouts.log", LAYOUTS);
    let repeats: Vec<u32> = one.summaries.iter().map(|summary| summary.repeat).collect();
    // Layouts A and A′ have no limit, the others have a limit of two. The last one has an SLO.
    assert_eq!(repeats, [1, 2, 1, 2, 3, 4, 1]);
    assert_eq!(one.plan.cells.len(), 3);
    let readings = ["a.log", "b.log"].map(|file| read(file, LAYOUTS).unwrap());
    let two = build_run("t", &readings, ImportContent::WithCommands);
    assert_eq!(two.plan.cells.len(), 6);
    assert!(two.plan.cells[3].key.as_str().contains("variant=file b.log,"));
    let measured: usize = two.plan.starts.iter().map(|start| start.cells.len()).sum();
    assert_eq!(measured, two.summaries.len());
    for summary in &two.summaries {
        assert_eq!(two.plan.cell(&summary.cell).launch, summary.launch);
        assert_eq!(two.plan.cell(&summary.cell).content, summary.content);
    }
}

#[test]
fn a_report_tells_engine_model_size_and_command_and_its_mistakes_are_found() {
    let imports = import("report.md", REPORT);
    assert_eq!(imports.summaries.len(), 3);
    let launch = &imports.plan.launches[0];
    assert_eq!(launch.engine.title, "ACME");
    assert_eq!(launch.engine.version.as_deref(), Some("v1.2.0"));
    assert_eq!((launch.model.as_str(), launch.parallel.tp), ("acme/tiny-1b", 1));
    let big = &imports.plan.launches[1];
    assert_eq!(
        (big.model.as_str(), big.precision.as_deref(), big.devices),
        ("acme/big-70b", Some("fp8"), 4)
    );
    let line = crate::plan::command::command_line(launch);
    assert_eq!(
        line.to_wrapped(),
        "acme-serve --model-path acme/tiny-1b --tp 1 \\\n    --host 0.0.0.0"
    );
    insta::assert_snapshot!(imports.warnings.join("\n"));
    let verdict = |at: usize| imports.summaries[at].validity.as_ref().unwrap();
    assert_eq!(verdict(0).verdict, Verdict::Valid);
    assert_eq!(verdict(1).reasons[0].code, ReasonCode::ChunkedTokens);
    assert_eq!(verdict(2).verdict, Verdict::Suspect);
}

#[test]
fn commands_are_left_out_where_only_figures_are_wanted() {
    let reading = [read("report.md", REPORT).unwrap()];
    let imports = build_run("t", &reading, ImportContent::FiguresOnly);
    let text = serde_json::to_string(&imports.plan).unwrap();
    assert!(
        text.contains("acme/engine:v1.2.0-cu1") && !text.contains("acme-serve"),
        "{text}"
    );
    assert!(
        imports
            .summaries
            .iter()
            .all(|summary| summary.engine.command.is_none())
    );
}

#[test]
fn lines_of_bench_serving_are_read_with_what_json_does_not_know() {
    let imports = import("results.jsonl", fixture!("results.jsonl"));
    assert!(imports.warnings.is_empty(), "{:?}", imports.warnings);
    let [first, second] = &imports.summaries[..] else {
        panic!()
    };
    let current = |summary, metric| figure(summary, Definitions::Current, metric);
    assert_eq!(current(first, mean(LatencyKind::Itl)), Some(10.0));
    assert_eq!(current(second, mean(LatencyKind::Itl)), None);
    assert_eq!(
        current(first, Metric::Tokens(TokenCount::OutputCounted)),
        Some(127.0)
    );
    let rate = |summary: &MeasurementSummary| {
        imports
            .plan
            .cell(&summary.cell)
            .scenario
            .arrival
            .rate
            .per_second()
    };
    assert_eq!((rate(first), rate(second)), (f64::INFINITY, 4.0));
    let launch = &imports.plan.launches[0];
    assert_eq!(
        (launch.parallel.tp, launch.engine.version.as_deref()),
        (2, Some("0.5.23"))
    );
    assert_eq!(
        first.imported.as_ref().unwrap().unknown,
        [UnknownFact::Prompts, UnknownFact::Seed]
    );
    let per_gpu = Metric::PerDevice(Quantity::Output);
    assert_eq!(figure(first, Definitions::Matrix, per_gpu), Some(51.2));
}

#[test]
fn an_object_of_vllm_is_read_and_what_it_does_not_tell_is_unknown() {
    let imports = import("vllm.json", fixture!("vllm.json"));
    assert!(imports.warnings.is_empty(), "{:?}", imports.warnings);
    let [summary] = &imports.summaries[..] else {
        panic!()
    };
    let of_matrix = |metric| figure(summary, Definitions::Matrix, metric);
    assert_eq!(of_matrix(mean(LatencyKind::Ttft)), Some(20.0));
    assert_eq!(
        of_matrix(mean(LatencyKind::Tpot)),
        None,
        "it ends with another line"
    );
    assert_eq!(of_matrix(Metric::Failed), Some(0.0));
    let place = summary.imported.as_ref().unwrap();
    assert_eq!(place.tool, Tool::VllmBench);
    for what in [
        UnknownFact::Engine,
        UnknownFact::Dataset,
        UnknownFact::Gpus,
        UnknownFact::Seed,
    ] {
        assert!(place.lacks(what), "{what:?}");
    }
    let console = import("x", fixture!("vllm-console.log"));
    assert_eq!(console.summaries.len(), 1);
    let (block, object) = (&console.summaries[0].figures, &summary.figures);
    for metric in [
        Metric::Completed,
        mean(LatencyKind::Ttft),
        Metric::Throughput(Quantity::Total),
    ] {
        let value_of = |figures: &BTreeMap<_, _>| {
            crate::analysis::metrics::metric_value(&figures[&Definitions::Current], metric)
                .map(|value| (value * 100.0).round())
        };
        assert_eq!(value_of(block), value_of(object), "{metric:?}");
    }
}

#[test]
fn rows_of_csv_are_read_and_a_cut_one_is_told() {
    let imports = import("lmdeploy.csv", fixture!("lmdeploy.csv"));
    assert_eq!(imports.summaries.len(), 2);
    assert_eq!(
        imports.warnings,
        ["lmdeploy.csv:5: the row has 3 values, but the header has 18 columns; the row is ignored"]
    );
    let first = &imports.summaries[0];
    assert_eq!(
        figure(first, Definitions::Classic, mean(LatencyKind::E2e)),
        Some(170.0)
    );
    assert!(!first.figures.contains_key(&Definitions::Current));
}

#[test]
fn what_holds_no_results_is_refused_with_what_would_do() {
    for (text, why) in [
        ("", "the file has no `Serving Benchmark Result` block"),
        ("{\"a\": 1}", "`completed` or `duration` is missing"),
        ("{\"completed\": 1", "this line is not valid JSON"),
        (
            "============ Serving Benchmark Result ============\nBackend: x\n",
            "the file has no `Serving Benchmark Result` block",
        ),
    ] {
        let error = read("f.txt", text).unwrap_err().to_string();
        assert!(error.contains("`f.txt`") && error.contains(why), "{error}");
        assert!(error.contains("use a console log"), "{error}");
    }
}

#[test]
fn a_block_that_was_cut_keeps_what_it_has_and_says_so() {
    let end = LAYOUTS.find("Inter-token").unwrap();
    let imports = import("cut.log", &LAYOUTS[..end]);
    assert_eq!(imports.summaries.len(), 1);
    assert!(
        imports.warnings[0].contains("the result block is cut off"),
        "{:?}",
        imports.warnings
    );
    let value_of = |metric| figure(&imports.summaries[0], Definitions::Classic, metric);
    assert_eq!(
        (
            value_of(mean(LatencyKind::Ttft)),
            value_of(mean(LatencyKind::Itl))
        ),
        (Some(20.0), None)
    );
}

proptest::proptest! {
    #[test]
    fn no_text_makes_a_reader_panic(text in "(?s).{0,200}", at in 0..17_000_usize) {
        let _ = read("any", &text);
        let at = (0..=at.min(LAYOUTS.len())).rev().find(|at| LAYOUTS.is_char_boundary(*at)).unwrap();
        let cut = format!("{}{text}{}", &LAYOUTS[..at], &LAYOUTS[at..]);
        if let Ok(reading) = read("any", &cut) {
            let _ = build_run("any", &[reading], ImportContent::WithCommands);
        }
    }
}

/// A console log and the JSON of the same run become one row, with the workload of the first and the digits
/// of the second.
#[test]
fn one_measurement_in_two_formats_is_one_row() {
    let readings = [
        read("a.log", fixture!("vllm-console.log")).unwrap(),
        read("b.json", fixture!("vllm.json")).unwrap(),
    ];
    let imports = build_run("t", &readings, ImportContent::WithCommands);
    let [summary] = &imports.summaries[..] else {
        panic!("{:?}", imports.plan.cells)
    };
    assert_eq!(
        imports.plan.cell(&summary.cell).scenario.name,
        "random-32-16-ratio-0"
    );
    assert!(
        imports.warnings[0].contains("`b.json` has the same measurement"),
        "{:?}",
        imports.warnings
    );
    let std = Metric::Time(Statistic::Std, LatencyKind::Ttft);
    assert_eq!(
        figure(summary, Definitions::Current, std),
        Some(1.5),
        "only the JSON tells it"
    );
    let other = fixture!("vllm.json").replace("\"duration\": 1.25", "\"duration\": 1.5");
    let readings = [
        read("a.log", fixture!("vllm-console.log")).unwrap(),
        read("b.json", &other).unwrap(),
    ];
    assert_eq!(
        build_run("t", &readings, ImportContent::WithCommands)
            .summaries
            .len(),
        2,
        "another duration is another run"
    );
}

#[test]
fn what_a_file_lacks_is_declared_and_what_it_tells_is_believed() {
    let declared = DeclaredFacts {
        engine: Some("vllm".to_owned()),
        version: Some("v0.10.1".to_owned()),
        gpus: Some(8),
        gpu: Some("H100".to_owned()),
        precision: Some("bf16".to_owned()),
        model: Some("other/model".to_owned()),
    };
    let reading = read("b.json", fixture!("vllm.json"))
        .unwrap()
        .with_declared(declared);
    let imports = build_run("t", &[reading], ImportContent::WithCommands);
    let launch = &imports.plan.launches[0];
    assert_eq!(
        (launch.engine.name.as_str(), launch.engine.version.as_deref()),
        ("vllm", Some("v0.10.1"))
    );
    assert_eq!((launch.devices, launch.precision.as_deref()), (8, Some("bf16")));
    assert_eq!(launch.model, "acme/tiny-1b", "the file names it");
    let place = imports.summaries[0].imported.as_ref().unwrap();
    for what in [UnknownFact::Engine, UnknownFact::Version, UnknownFact::Gpus] {
        assert!(!place.lacks(what), "{what:?}");
    }
    let per_gpu = Metric::PerDevice(Quantity::Output);
    assert_eq!(
        figure(&imports.summaries[0], Definitions::Matrix, per_gpu),
        Some(12.8)
    );
}

#[test]
fn a_backend_that_was_asked_for_is_believed_before_the_words_of_the_server() {
    let line = r#"{"backend": "vllm", "dataset_name": "random", "duration": 2.0, "completed": 4, "server_info": {"model_path": "m", "tp_size": 1, "version": "mockd-0.1.0"}}"#;
    let imports = import("x.jsonl", line);
    assert_eq!(imports.plan.launches[0].engine.name, "vllm");
    let imports = import("x.jsonl", &line.replace("\"vllm\"", "\"sglang\""));
    assert_eq!(
        imports.plan.launches[0].engine.version.as_deref(),
        Some("mockd-0.1.0")
    );
}

#[test]
fn percentiles_that_were_asked_for_are_known() {
    let log = fixture!("vllm-console.log").replace("Median TTFT (ms):", "P50 TTFT (ms):   ").replace(
        "P99 TTFT (ms): ",
        "P75 TTFT (ms):                           20.50\nP99.9 TTFT (ms):                         22.00\nP99 TTFT (ms): ",
    );
    let imports = import("x.log", &log);
    assert!(imports.warnings.is_empty(), "{:?}", imports.warnings);
    let median = Metric::Time(Statistic::Median, LatencyKind::Ttft);
    assert_eq!(
        figure(&imports.summaries[0], Definitions::Current, median),
        Some(20.0)
    );
}

#[test]
fn printed_figures_are_in_the_lines_of_results() {
    for (file, text) in [
        ("l.log", LAYOUTS),
        ("r.md", REPORT),
        ("v.json", fixture!("vllm.json")),
    ] {
        let imports = import(file, text);
        for summary in &imports.summaries {
            let cell = imports.plan.cell(&summary.cell);
            let line =
                crate::report::bench_serving::jsonl::line(imports.plan.launch(&cell.launch), cell, summary);
            let line: serde_json::Value = serde_json::from_str(&line).unwrap();
            for key in ["duration", "completed", "output_throughput"] {
                assert!(line[key].is_number(), "{file}: {key}: {line}");
            }
        }
    }
}

/// Two files with all digits are one measurement if two tools wrote them, and two if one tool did.
#[test]
fn one_measurement_of_two_tools_is_one_row_and_of_one_tool_two() {
    let read = |file: &str| read(file, fixture!("vllm.json")).unwrap();
    let (one, mut other) = (read("a.json"), read("b.json"));
    assert_eq!(
        build_run("t", &[one.clone(), other.clone()], ImportContent::WithCommands)
            .summaries
            .len(),
        2
    );
    other.results[0].tool = Tool::BenchServing;
    assert_eq!(
        build_run("t", &[one, other], ImportContent::WithCommands)
            .summaries
            .len(),
        1
    );
}

/// Changes single figures of a consistent block.
#[test]
fn figures_that_cannot_be_together_are_told_with_their_line() {
    let block = "\
benchmark_args=Namespace(backend='vllm', num_prompts=1000, max_concurrency=500)

============ Serving Benchmark Result ============
Successful requests:                     1000
Benchmark duration (s):                  100.00
Total input tokens:                      512000
Total generated tokens:                  256000
Request throughput (req/s):              10.00
Input token throughput (tok/s):          5120.00
Output token throughput (tok/s):         2560.00
Request goodput (req/s):                 9.50
Concurrency:                             500.00
----------------End-to-End Latency----------------
Mean E2E Latency (ms):                   50000.00
---------------Time to First Token----------------
Mean TTFT (ms):                          20000.00
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          117.65
---------------Inter-Token Latency----------------
Mean ITL (ms):                           117.65
==================================================
";
    let warnings = |text: &str| import("x.log", text).warnings;
    assert!(warnings(block).is_empty(), "{:?}", warnings(block));
    for (from, to, line, words) in [
        ("117.65", "1.17", 20, "mean ITL is 1.17 ms"),
        (
            "Mean TPOT (ms):                          117.65",
            "Mean TPOT (ms):                          1.17",
            18,
            "mean TPOT is 1.17 ms",
        ),
        ("20000.00", "-20000.00", 16, "below zero"),
        (
            "9.50",
            "10.50",
            11,
            "goodput (10.50 req/s) is above request throughput",
        ),
        (
            "max_concurrency=500",
            "max_concurrency=400",
            12,
            "but the concurrency limit is 400",
        ),
        ("2560.00", "1e400", 10, "`1e400` is not a number"),
    ] {
        let messages = warnings(&block.replace(from, to));
        let is_told = |warning: &&String| warning.contains(words) && warning.contains(&format!(":{line}"));
        assert!(
            messages.iter().any(|warning| is_told(&warning)),
            "{from} to {to}: {messages:?}"
        );
    }
    // Python's words for a missing value.
    assert!(
        warnings(&block.replace(
            "Mean ITL (ms):                           117.65",
            "Mean ITL (ms):                           nan"
        ))
        .is_empty()
    );
}

#[test]
fn rates_and_lengths_that_were_asked_for_and_not_measured_are_told() {
    let warnings = |rate: &str, duration: f64, input: u32, backend: &str, itl: f64| {
        let log = format!(
            "Namespace(backend='{backend}', dataset_name='random', num_prompts=800, random_input_len=1024, random_output_len=512, \
             random_range_ratio=1.0, request_rate={rate}, max_concurrency=None)\n\
             ============ Serving Benchmark Result ============\n\
             Successful requests: 800\n\
             Benchmark duration (s): {duration:.2}\n\
             Total input tokens: {input}\n\
             Total generated tokens: 409600\n\
             Mean E2E Latency (ms): 3110.00\n\
             Mean TTFT (ms): 200.00\n\
             Mean TPOT (ms): 5.69\n\
             Mean ITL (ms): {itl:.2}\n\
             ==================================================\n"
        );
        import("x.log", &log).warnings.join("\n")
    };
    let whole = 800 * 1024;
    for backend in ["vllm", "sglang"] {
        assert_eq!(warnings("8.0", 103.0, whole, backend, 5.69), "");
        assert_eq!(warnings("inf", 400.0, whole, backend, 5.69), "");
        for (block_text, words) in [
            (
                warnings("8.0", 400.0, whole, backend, 5.69),
                "the actual rate was only 2.00 requests/s",
            ),
            (
                warnings("8.0", 50.0, whole, backend, 5.69),
                "take 100 s to send, but the load took only 50.00 s",
            ),
            (
                warnings("8.0", 103.0, whole / 2, backend, 5.69),
                "are 512 tokens for each of 800 prompts, but 1024 tokens each were requested",
            ),
            (
                warnings("8.0", 103.0, whole, backend, 17.1),
                match backend {
                    "vllm" => "events carry 3.00 tokens",
                    _ => "mean ITL, which the benchmark client computes per token, is 17.10 ms",
                },
            ),
        ] {
            assert!(block_text.contains(words), "{backend}: {words}: {block_text}");
        }
    }
}

/// `vllm bench serve` prints no E2E unless requested.
#[test]
fn gaps_far_above_those_of_tokens_are_told_without_the_time_of_answers() {
    let messages_for = |itl: f64| {
        let log = format!(
            "============ Serving Benchmark Result ============\n\
             Successful requests: 8\nBenchmark duration (s): 2.00\nMean TTFT (ms): 100.00\nMean TPOT (ms): 20.00\n\
             Mean ITL (ms): {itl:.2}\n\
             ==================================================\n"
        );
        import("x.log", &log).warnings.join("\n")
    };
    assert!(
        messages_for(60.0).contains("events carry about 3.0 tokens"),
        "{}",
        messages_for(60.0)
    );
    assert_eq!(messages_for(24.0), "");
}

/// The limit of the block against that of the client's arguments.
#[test]
fn a_block_whose_limit_contradicts_the_arguments_is_told() {
    let warnings = |arguments: &str, printed: &str| {
        let log = format!(
            "Namespace(num_prompts=8, max_concurrency={arguments})\n\
             ============ Serving Benchmark Result ============\n\
             Max request concurrency: {printed}\n\
             Successful requests: 8\n\
             Benchmark duration (s): 2.00\n\
             ==================================================\n"
        );
        import("x.log", &log).warnings
    };
    for (arguments, printed) in [("2", "2"), ("None", "not set")] {
        assert_eq!(
            warnings(arguments, printed),
            [] as [String; 0],
            "{arguments} {printed}"
        );
    }
    for (arguments, printed, why) in [
        (
            "2",
            "64",
            "the limit of concurrent requests is unclear: the result block says at most 64 requests at a time, but the client's arguments say at most 2",
        ),
        (
            "None",
            "64",
            "the client's arguments say any number of requests at a time",
        ),
        (
            "2",
            "not set",
            "the result block says any number of requests at a time",
        ),
    ] {
        let messages = warnings(arguments, printed);
        assert!(
            messages.iter().any(|warning| warning.contains(why)),
            "{messages:?}"
        );
    }
}

#[test]
fn answers_shorter_than_asked_are_told() {
    let warnings = |tokens: u32, more: &str| {
        let line = format!(
            r#"{{"backend": "vllm", "dataset_name": "random", "random_input_len": 32, "random_output_len": 16,
            "random_range_ratio": 1.0, "completed": 8, "duration": 2.0, "total_output_tokens": {tokens}{more}}}"#
        );
        import("x.jsonl", &line.replace('\n', " ")).warnings
    };
    let messages = warnings(64, "");
    assert!(
        messages[0].contains("64 output tokens are 8 tokens for each of 8 answers, but 16 tokens each"),
        "{messages:?}"
    );
    for (tokens, more) in [
        (128, ""),
        (64, r#", "disable_ignore_eos": true"#),
        (64, r#", "extra_request_body": {"ignore_eos": false}"#),
        (64, r#", "matrix": {"engine": "a"}"#),
    ] {
        assert_eq!(warnings(tokens, more), [] as [String; 0], "{tokens} {more}");
    }
}

#[test]
fn objects_of_vllm_that_contradict_their_limit_or_their_lists_are_told() {
    let object = serde_json::json!({
        "model_id": "acme/tiny-1b", "endpoint_type": "vllm", "num_prompts": 4, "max_concurrency": 2, "duration": 4.0,
        "completed": 4, "failed": 0, "total_input_tokens": 128, "total_output_tokens": 64, "mean_e2el_ms": 2000.0,
        "max_concurrent_requests": 4, "input_lens": [32, 32, 32, 32], "output_lens": [16, 16, 16, 16],
    });
    let warnings = |changed: serde_json::Value| {
        let mut object = object.as_object().unwrap().clone();
        object.extend(changed.as_object().unwrap().clone());
        import("x.json", &serde_json::Value::from(object).to_string()).warnings
    };
    for fine in [
        serde_json::json!({}),
        serde_json::json!({"completed": 3, "failed": 1, "total_input_tokens": 96, "total_output_tokens": 48,
            "output_lens": [16, 16, 16, 0], "errors": ["", "", "", "timeout"]}),
    ] {
        assert_eq!(warnings(fine.clone()), [] as [String; 0], "{fine}");
    }
    for (wrong, why) in [
        (
            serde_json::json!({"duration": 2.0}),
            "requests × mean E2E / duration is 4.00, but the concurrency limit is 2",
        ),
        (
            serde_json::json!({"max_concurrent_requests": 500}),
            "peak concurrency is 500, but the concurrency limit is 2",
        ),
        (
            serde_json::json!({"output_lens": [16, 16, 1, 1]}),
            "output tokens are 64, but the values of the requests add up to 34",
        ),
        (
            serde_json::json!({"input_lens": [32, 32, 32, 64]}),
            "prompt tokens are 128, but the values of the requests add up to 160",
        ),
        (
            serde_json::json!({"output_lens": [16, 16]}),
            "4 requests succeeded, but only 2 have an output length",
        ),
        (
            serde_json::json!({"ttfts": [0.1, 0.1, 0.1, 0.1, 0.1]}),
            "4 requests succeeded and 0 failed, but 5 requests have a TTFT",
        ),
    ] {
        let messages = warnings(wrong.clone());
        assert!(
            messages.iter().any(|warning| warning.contains(why)),
            "{wrong}: {messages:?}"
        );
    }
}

/// The warnings of a `vllm bench serve` object, a closed loop of 64 with answers of 256 tokens, after these
/// changes.
fn warnings_of_vllm(changes: serde_json::Value) -> Vec<String> {
    let object = serde_json::json!({
        "model_id": "acme/tiny-1b", "endpoint_type": "vllm", "num_prompts": 1000, "request_rate": "inf", "burstiness": 1.0,
        "max_concurrency": 64, "duration": 200.0, "completed": 1000, "failed": 0, "total_input_tokens": 1_024_000,
        "total_output_tokens": 256_000, "request_throughput": 5.0, "output_throughput": 1280.0, "total_token_throughput": 6400.0,
        "max_output_tokens_per_s": 1500.0, "max_concurrent_requests": 64,
        "mean_ttft_ms": 400.0, "median_ttft_ms": 380.0, "std_ttft_ms": 50.0, "p99_ttft_ms": 600.0,
        "mean_tpot_ms": 48.0, "median_tpot_ms": 48.0, "std_tpot_ms": 1.0, "p99_tpot_ms": 50.0,
        "mean_itl_ms": 48.0, "median_itl_ms": 47.0, "std_itl_ms": 5.0, "p99_itl_ms": 60.0,
    });
    let mut object = object.as_object().unwrap().clone();
    object.extend(changes.as_object().unwrap().clone());
    import("x.json", &serde_json::Value::from(object).to_string()).warnings
}

#[test]
fn figures_that_no_measurement_has_together_are_told() {
    for (wrong, why) in [
        (
            serde_json::json!({"max_output_tokens_per_s": 600.0}),
            "peak output throughput is 600.00 tok/s, but 256000 output tokens in 200.00 s are 1280.00 tok/s \
             on average",
        ),
        (
            serde_json::json!({"median_ttft_ms": 20.0, "std_ttft_ms": 1.0}),
            "with a standard deviation of 1.00 ms, mean and percentile can differ by at most 1.05 ms",
        ),
        (
            serde_json::json!({"std_ttft_ms": 0.0}),
            "with a standard deviation of 0.00 ms, mean and percentile can differ by at most 0.05 ms",
        ),
        (
            serde_json::json!({"mean_ttft_ms": 700.0, "median_ttft_ms": 680.0}),
            "mean TTFT is 700.00 ms, but p99 TTFT is 600.00 ms: with a standard deviation of 50.00 ms",
        ),
        (
            serde_json::json!({"mean_ttft_ms": 9000.0, "std_ttft_ms": null}),
            "with this percentile and a maximum of 200050.00 ms, the mean can be at most",
        ),
        (
            serde_json::json!({"p50_ttft_ms": 200.0}),
            "median TTFT appears twice, as 380.00 and as 200.00",
        ),
        (
            serde_json::json!({"max_concurrent_requests": 8}),
            "peak concurrency is 8, but the latencies show that 63.20 requests were in flight",
        ),
        (
            serde_json::json!({"mean_itl_ms": 20.0, "median_itl_ms": 20.0, "p99_itl_ms": 30.0}),
            "mean ITL is 20.00 ms, but mean TPOT is 48.00 ms: each token would need more than 2.3 streamed events",
        ),
        (
            serde_json::json!({"mean_tpot_ms": 30.0, "median_tpot_ms": 30.0, "p99_tpot_ms": 33.0,
                "mean_itl_ms": 30.0, "median_itl_ms": 30.0, "p99_itl_ms": 35.0}),
            "64 at a time, take 125.78 s, but the load took 200.00 s",
        ),
    ] {
        let messages = warnings_of_vllm(wrong.clone());
        assert!(
            messages.iter().any(|warning| warning.contains(why)),
            "{wrong}: {messages:#?}"
        );
    }
    let block = |peak: &str| {
        let log = format!(
            "============ Serving Benchmark Result ============\nSuccessful requests: 60\nBenchmark duration (s): 6.31\n\
             Total generated tokens: 3600\nPeak output token throughput (tok/s): {peak}\nMean E2E Latency (ms): 628.42\n\
             Mean TTFT (ms): 36.95\nMean TPOT (ms): 10.02\nMean ITL (ms): 10.02\n\
             ==================================================\n"
        );
        import("x.log", &log).warnings.join("\n")
    };
    assert_eq!(block("607.00"), "");
    assert!(
        block("300.00").contains("peak output throughput is 300.00 tok/s"),
        "{}",
        block("300.00")
    );
}

#[test]
fn rounded_figures_of_vllm_contradict_nothing_that_they_print_as() {
    let rounded = |throughput: f64| {
        let object = serde_json::json!({
            "endpoint_type": "vllm", "backend": "vllm", "model_id": "a/b", "num_prompts": 200, "request_rate": 8.0,
            "burstiness": 1.0, "max_concurrency": null, "duration": 27.35, "completed": 200, "failed": 0,
            "total_input_tokens": 204_800, "total_output_tokens": 25_600, "request_throughput": throughput,
            "output_throughput": 936.01, "total_token_throughput": 8424.13, "mean_ttft_ms": 48.21,
            "median_ttft_ms": 44.9, "p99_ttft_ms": 91.3, "mean_tpot_ms": 8.42, "median_tpot_ms": 8.4,
            "p99_tpot_ms": 9.2, "mean_itl_ms": 8.41, "median_itl_ms": 8.2, "p99_itl_ms": 14.8,
        });
        import("v.json", &object.to_string()).warnings
    };
    assert_eq!(rounded(7.3126), [] as [String; 0]);
    let messages = rounded(7.3226);
    assert!(
        messages.len() == 1 && messages[0].contains("is 7.32 req/s, but requests / duration is 7.31"),
        "{messages:?}"
    );
    let messages = rounded(7.3146);
    assert!(
        messages.len() == 1 && messages[0].contains("is 7.315 req/s, but requests / duration is 7.313"),
        "{messages:?}"
    );
}

#[test]
fn figures_that_only_look_odd_are_let_pass() {
    for fine in [
        serde_json::json!({}),
        serde_json::json!({"p50_ttft_ms": 380.0}),
        // One request of a thousand took minutes.
        serde_json::json!({"mean_ttft_ms": 700.0, "median_ttft_ms": 200.0, "std_ttft_ms": 6000.0, "max_concurrent_requests": 64}),
        // Chunks of speculative decoding carry three tokens, and the peak second counts chunks.
        serde_json::json!({"max_output_tokens_per_s": 500.0, "mean_itl_ms": 144.0, "median_itl_ms": 140.0, "p99_itl_ms": 160.0,
            "spec_decode_acceptance_length": 3.0}),
        // A load that fell due slowly leaves slots empty.
        serde_json::json!({"request_rate": 5.0, "mean_tpot_ms": 10.0, "median_tpot_ms": 10.0, "p99_tpot_ms": 12.0,
            "mean_itl_ms": 10.0, "median_itl_ms": 10.0, "p99_itl_ms": 12.0}),
        // A ramped load does too.
        serde_json::json!({"ramp_up_strategy": "linear", "mean_tpot_ms": 10.0, "median_tpot_ms": 10.0, "p99_tpot_ms": 12.0,
            "mean_itl_ms": 10.0, "median_itl_ms": 10.0, "p99_itl_ms": 12.0}),
        // The last of few requests runs alone.
        serde_json::json!({"num_prompts": 65, "completed": 65, "duration": 25.0, "total_input_tokens": 66_560,
            "total_output_tokens": 16_640, "request_throughput": 2.6, "output_throughput": 665.6,
            "total_token_throughput": 3328.0}),
        // A run of little more than a second spans two clock seconds.
        serde_json::json!({"num_prompts": 8, "completed": 8, "max_concurrency": 8, "duration": 1.25, "total_input_tokens": 80,
            "total_output_tokens": 160, "request_throughput": 6.4, "output_throughput": 128.0,
            "total_token_throughput": 192.0, "max_output_tokens_per_s": 90.0, "max_concurrent_requests": 8,
            "mean_ttft_ms": 100.0, "median_ttft_ms": 100.0, "p99_ttft_ms": 104.0, "std_ttft_ms": 3.0,
            "mean_tpot_ms": 50.0, "median_tpot_ms": 50.0, "p99_tpot_ms": 50.0, "std_tpot_ms": 0.1,
            "mean_itl_ms": 50.0, "median_itl_ms": 50.0, "p99_itl_ms": 55.0}),
        // Short answers with a high TPOT count as much as long ones.
        serde_json::json!({"mean_tpot_ms": 90.0, "median_tpot_ms": 50.0, "std_tpot_ms": 120.0, "p99_tpot_ms": 600.0}),
    ] {
        assert_eq!(warnings_of_vllm(fine.clone()), [] as [String; 0], "{fine}");
    }
}

#[test]
fn moments_of_requests_are_held_against_the_figures() {
    let lists = |gap: f64, spacing: f64| {
        let starts: Vec<f64> = (0..1000).map(|at| 7.0 + f64::from(at) * spacing).collect();
        serde_json::json!({
            "ttfts": vec![0.4; 1000], "itls": vec![vec![gap; 255]; 1000], "start_times": starts,
            "mean_itl_ms": 48.0, "median_itl_ms": 48.0,
        })
    };
    let messages_for = |gap, spacing| warnings_of_vllm(lists(gap, spacing)).join("\n");
    assert_eq!(messages_for(0.048, 0.187), "");
    let quick = messages_for(0.02, 0.194);
    assert!(
        quick.contains("mean ITL is 48.00 ms, but the ITLs of the requests have a mean of 20.00 ms"),
        "{quick}"
    );
    for spacing in [0.01, 0.3] {
        let words = "the load took 200.00 s, but the timestamps of its requests show";
        assert!(
            messages_for(0.048, spacing).contains(words),
            "{}",
            messages_for(0.048, spacing)
        );
    }
    // Failed requests have times in the lists, but not in the means.
    let mut failed = lists(0.02, 0.01);
    failed["errors"] = serde_json::json!(vec!["timeout"; 1000]);
    assert!(
        !warnings_of_vllm(failed)
            .join("\n")
            .contains("the ITLs of the requests have a mean of")
    );
}

/// A block of the first layout without other output, with lines above it.
fn log_with(above: &str, arguments: &[(&str, &str)]) -> String {
    let from = LAYOUTS.find("Namespace(").unwrap();
    let end = LAYOUTS.find("\n\n-----").unwrap();
    let mut log = LAYOUTS[from..end].to_owned();
    for (name, value) in arguments {
        let at = log.find(&format!("{name}="));
        match at {
            Some(at) => {
                let stop = at + log[at..].find(", ").unwrap();
                log.replace_range(at..stop, &format!("{name}={value}"));
            }
            None => log = log.replacen("Namespace(", &format!("Namespace({name}={value}, "), 1),
        }
    }
    format!("{above}\n{log}\n")
}

#[test]
fn servers_in_logs_are_read_and_held_against_what_is_declared() {
    let declared = DeclaredFacts {
        gpus: Some(1),
        precision: Some("bf16".to_owned()),
        ..DeclaredFacts::default()
    };
    for server in [
        "$ vllm serve acme/tiny-1b --tensor-parallel-size 8 --quantization fp8",
        "vllm serve acme/tiny-1b \\\n  --tensor-parallel-size 8 \\\n  --quantization fp8",
        "+ docker run --gpus all x/y:v1 --model acme/tiny-1b -tp 8 -q fp8",
        "server_args=ServerArgs(model_path='acme/tiny-1b', tp_size=8, quantization='fp8', dtype='auto')",
        "INFO args: Namespace(model_tag='acme/tiny-1b', model='x/y', tensor_parallel_size=8, quantization='fp8')",
        "INFO non-default args: {'model': 'acme/tiny-1b', 'tensor_parallel_size': 8, 'quantization': 'fp8'}",
    ] {
        let log = log_with(server, &[]);
        let imports = import("x.log", &log);
        let launch = &imports.plan.launches[0];
        assert_eq!(
            (launch.parallel.tp, launch.devices, launch.precision.as_deref()),
            (8, 8, Some("fp8")),
            "{server}"
        );
        assert_eq!(imports.warnings, [] as [String; 0], "{server}");
        let reading = read("x.log", &log).unwrap().with_declared(declared.clone());
        let imports = build_run("t", &[reading], ImportContent::WithCommands);
        assert_eq!(
            imports.warnings,
            [
                "x.log:1: the declared number of GPUs is `1`, but the imported file says `8`",
                "x.log:1: the declared precision is `bf16`, but the imported file says `fp8`",
            ],
            "{server}"
        );
        let validity = imports.summaries[0].validity.as_ref().unwrap();
        assert_eq!(validity.verdict, Verdict::Suspect, "{server}");
        let other = import("x.log", &log.replacen("acme/tiny-1b", "acme/big-70b", 1));
        let why =
            "the server's command serves `acme/big-70b`, but the client's arguments name `acme/tiny-1b`";
        assert!(other.warnings[0].contains(why), "{server}: {:?}", other.warnings);
    }
    for other in [
        "$ docker run --rm tools/bench",
        "vllm serve is ready",
        "$ vllm bench serve --model acme/big-70b --tp 8",
    ] {
        let imports = import("x.log", &log_with(other, &[]));
        let summary = &imports.summaries[0];
        assert!(
            summary.imported.as_ref().unwrap().lacks(UnknownFact::Tp),
            "{other}"
        );
        assert_eq!(imports.warnings, [] as [String; 0], "{other}");
    }
    // Data-parallel ranks have their own GPUs or share those of tensor-parallel ranks.
    for (gpus, is_told) in [(1, true), (4, false), (8, false)] {
        let log = log_with("$ vllm serve acme/tiny-1b -tp 2 -dp 4", &[]);
        let declared = DeclaredFacts {
            gpus: Some(gpus),
            ..DeclaredFacts::default()
        };
        let reading = read("x.log", &log).unwrap().with_declared(declared);
        let warnings = build_run("t", &[reading], ImportContent::WithCommands).warnings;
        assert_eq!(!warnings.is_empty(), is_told, "{gpus}: {warnings:?}");
    }
    // A server may serve its model under another name.
    let named = log_with(
        "$ vllm serve /models/x --served-model-name acme/tiny-1b --tp 2",
        &[],
    );
    assert_eq!(import("x.log", &named).warnings, [] as [String; 0]);
}

#[test]
fn what_is_declared_otherwise_than_a_file_tells_is_told() {
    let warnings = |declared: DeclaredFacts| {
        let reading = read("r.md", REPORT).unwrap().with_declared(declared);
        build_run("t", &[reading], ImportContent::WithCommands).warnings
    };
    let none = warnings(DeclaredFacts::default());
    let same = DeclaredFacts {
        engine: Some("acme".to_owned()),
        version: Some("1.2.0".to_owned()),
        ..DeclaredFacts::default()
    };
    assert_eq!(warnings(same), none);
    for (declared, why) in [
        (
            DeclaredFacts {
                engine: Some("other".to_owned()),
                ..DeclaredFacts::default()
            },
            "the declared engine is `other`, but the imported file says `ACME`",
        ),
        (
            DeclaredFacts {
                version: Some("v1.3".to_owned()),
                ..DeclaredFacts::default()
            },
            "the declared version is `v1.3`, but the imported file says `v1.2.0`",
        ),
        (
            DeclaredFacts {
                model: Some("acme/tiny-2b".to_owned()),
                ..DeclaredFacts::default()
            },
            "the declared model is `acme/tiny-2b`, but the imported file says `acme/tiny-1b`",
        ),
    ] {
        let messages = warnings(declared);
        assert!(
            messages.iter().any(|warning| warning.contains(why)),
            "{messages:?}"
        );
    }
}

#[test]
fn a_fence_of_the_client_leaves_that_of_the_server() {
    let block = log_with("", &[]);
    let report = format!(
        "## acme/tiny-1b\n\n```bash\nvllm serve acme/tiny-7b --tensor-parallel-size 8 --quantization fp8\n```\n\n\
         ```bash\npython3 -m sglang.bench_serving --backend vllm --model acme/tiny-1b\n```\n\n```\n{block}\n```\n"
    )
    .replace("model='acme/tiny-1b', ", "");
    let imports = import("r.md", &report);
    let launch = &imports.plan.launches[0];
    assert_eq!((launch.parallel.tp, launch.devices), (8, 8));
    let why = "the heading above the result names the model `acme/tiny-1b`, but the server's command serves \
               `acme/tiny-7b`";
    assert!(
        imports.warnings.iter().any(|warning| warning.contains(why)),
        "{:?}",
        imports.warnings
    );
}

/// Client settings that change prompts or load make two imports incomparable; others are noted beside the
/// ratio.
#[test]
fn settings_of_the_client_are_compared() {
    let declared = DeclaredFacts {
        gpus: Some(1),
        gpu: Some("H100".to_owned()),
        ..DeclaredFacts::default()
    };
    let compared = |arguments: &[(&str, &str)]| {
        let readings = [("a.log", &[][..]), ("b.log", arguments)].map(|(file, arguments)| {
            read(file, &log_with("", arguments))
                .unwrap()
                .with_declared(declared.clone())
        });
        let imports = build_run("t", &readings, ImportContent::WithCommands);
        let summaries: Vec<&MeasurementSummary> = imports.summaries.iter().collect();
        let [one, other] = [1, 0].map(|at| {
            let cell = imports.plan.cell(&summaries[at].cell);
            ComparedCell {
                launch: imports.plan.launch(&cell.launch),
                cell,
                summaries: &summaries[at..=at],
                machine: None,
            }
        });
        comparable(&one, &other)
    };
    let usual = "the texts of the prompts were not compared (only their number, token sums and seed)";
    let same = Comparability::WithDifferences(vec![usual.to_owned()]);
    assert_eq!(compared(&[]), same);
    assert_eq!(
        compared(&[
            ("warmup_requests", "1"),
            ("flush_cache", "False"),
            ("tokenizer", "'/x/tiny-1b'")
        ]),
        same
    );
    for (name, value, why) in [
        ("warmup_requests", "1000", "warm-up requests 1000 against 1"),
        (
            "apply_chat_template",
            "True",
            "chat template applied against not applied",
        ),
        ("tokenize_prompt", "True", "prompts as token ids against text"),
        ("tokenizer", "'gpt2'", "tokenizer gpt2 against of the model"),
        ("disable_stream", "True", "fields of the body stream ("),
        ("return_logprob", "True", "fields of the body logprobs ("),
        ("lora_name", "['x']", "fields of the body lora_path ("),
    ] {
        let comparability = compared(&[(name, value)]);
        let is_told = comparability
            .reasons()
            .iter()
            .any(|reason| reason.starts_with(why));
        assert!(
            is_told && matches!(comparability, Comparability::Not(_)),
            "{name}: {comparability:?}"
        );
    }
    for (name, value, why) in [
        (
            "flush_cache",
            "True",
            "caches emptied before the load on against not set",
        ),
        ("profile", "True", "profile of the server on against not set"),
        (
            "served_model_name",
            "'other'",
            "served model name other against not set",
        ),
    ] {
        let comparability = compared(&[(name, value)]);
        let is_told = comparability.reasons().iter().any(|reason| reason == why);
        assert!(
            is_told && comparability.allows_ratio(),
            "{name}: {comparability:?}"
        );
    }
    let served = import("x.log", &log_with("", &[("served_model_name", "'tiny-7b-awq'")]));
    let why = "the client sends the model name `tiny-7b-awq`, but the model is `acme/tiny-1b`";
    assert!(
        served.warnings.iter().any(|warning| warning.contains(why)),
        "{:?}",
        served.warnings
    );
    // Cells with other client settings in one file are no repeats.
    let both = log_with("", &[])
        + &log_with("", &[("flush_cache", "True")])
        + &log_with("", &[("tokenizer", "'gpt2'")]);
    let imports = import("x.log", &both);
    assert_eq!((imports.plan.cells.len(), imports.plan.launches.len()), (3, 3));
}
