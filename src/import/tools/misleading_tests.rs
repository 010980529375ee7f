//! Files that are read without an error although they mix or lose measurements.

use serde_json::{Value, json};

use super::super::{DeclaredFacts, ImportContent, ImportedFile, ImportedRun, build_run, read};
use crate::results::record::validity::Verdict;

fn import(document: &Value) -> ImportedRun {
    let read = read("a.json", &document.to_string()).unwrap_or_else(|error| panic!("{error}"));
    build_run("t", &[read], ImportContent::WithCommands)
}

fn fixture(text: &str) -> Value {
    serde_json::from_str(text).expect("the fixture is JSON")
}

/// The warnings as one text, and the worst verdict.
fn warned(document: &Value) -> (String, Verdict) {
    let run = import(document);
    let verdicts = run
        .summaries
        .iter()
        .filter_map(|summary| summary.validity.as_ref());
    let worst = verdicts.map(|validity| validity.verdict).max();
    (format!("{:?}", run.warnings), worst.expect("it is judged"))
}

#[test]
fn figures_of_several_models_or_phases_of_aiperf_are_suspect_and_name_all_models() {
    let mut document = fixture(include_str!("../../../tests/fixtures/import/aiperf-rate.json"));
    document["input_config"]["models"]["items"] = json!([{"name": "demo-8b"}, {"name": "big-70b"}]);
    let (warnings, verdict) = warned(&document);
    assert!(warnings.contains("went to 2 models"), "{warnings}");
    assert_eq!(verdict, Verdict::Suspect);
    assert_eq!(import(&document).plan.launches[0].model, "demo-8b + big-70b");
}

fn row_of_inferencex() -> Value {
    match fixture(include_str!("../../../tests/fixtures/import/inferencex.json")) {
        Value::Array(rows) => rows[0].clone(),
        one => one,
    }
}

#[test]
fn rows_of_inferencex_without_a_number_of_requests_are_no_bursts_and_tell_hardware_apart() {
    let first = row_of_inferencex();
    let mut other = first.clone();
    other["hw"] = json!("h100");
    other["tput_per_gpu"] = json!(other["tput_per_gpu"].as_f64().unwrap() * 2.0);
    let run = import(&json!([first, other, first]));
    assert_eq!(run.summaries.len(), 2, "the third row repeats the first");
    let variants: Vec<String> = run
        .plan
        .launches
        .iter()
        .filter_map(|launch| launch.engine.variant.clone())
        .collect();
    assert!(
        variants.len() == 2 && variants.iter().any(|variant| variant.contains("h100")),
        "{variants:?}"
    );
    for cell in &run.plan.cells {
        assert_eq!(
            crate::analysis::compare::gates::Load::from_scenario(&cell.scenario),
            crate::analysis::compare::gates::Load::ClosedLoop
        );
    }
}

#[test]
fn a_benchmark_of_guidellm_that_is_in_the_file_twice_is_one_and_lost_requests_are_named() {
    let mut document = fixture(include_str!("../../../tests/fixtures/import/guidellm.json"));
    let first = document["benchmarks"][0].clone();
    document["benchmarks"] = json!([first, first]);
    assert_eq!(import(&document).summaries.len(), 1);
    document["benchmarks"][0]["metrics"]["request_totals"]["total"] = json!(1000);
    let (warnings, verdict) = warned(&document);
    assert!(
        warnings.contains("of 1000 requests have no outcome"),
        "{warnings}"
    );
    assert!(verdict >= Verdict::Suspect);
}

#[test]
fn requests_that_inference_perf_lost_are_named() {
    let mut document = fixture(include_str!("../../../tests/fixtures/import/inference-perf.json"));
    document["load_summary"]["count"] = json!(100);
    let (warnings, verdict) = warned(&document);
    assert!(warnings.contains("of 100 requests have no outcome"), "{warnings}");
    assert!(verdict >= Verdict::Suspect);
}

#[test]
fn latencies_in_another_unit_than_the_duration_contradict_the_limit() {
    let mut document = fixture(include_str!("../../../tests/fixtures/import/genai-bench.json"));
    let (warnings, _) = warned(&document);
    assert!(!warnings.contains("different units"), "{warnings}");
    document["_time_unit"] = json!("ms");
    document["aggregated_metrics"]["error_rate"] = json!(0.5);
    let (warnings, verdict) = warned(&document);
    assert!(warnings.contains("may have different units"), "{warnings}");
    assert!(warnings.contains("the error rate is 0.5"), "{warnings}");
    assert_eq!(verdict, Verdict::Suspect);
}

#[test]
fn unknown_formats_units_and_negative_values_make_figures_suspect() {
    let original = || fixture(include_str!("../../../tests/fixtures/import/aiperf.json"));
    let mut newer = original();
    newer["schema_version"] = json!("2.0");
    let mut per_minute = original();
    per_minute["output_token_throughput"]["unit"] = json!("tokens/min");
    let mut negative = original();
    negative["time_to_first_token"]["avg"] = json!(-3.0);
    for (document, message) in [
        (newer, "format 2.0 of AIPerf"),
        (per_minute, "`output_token_throughput` is in `tokens/min`"),
        (negative, "mean TTFT is negative (-3)"),
    ] {
        let (warnings, verdict) = warned(&document);
        assert!(warnings.contains(message), "{warnings}");
        assert_eq!(verdict, Verdict::Suspect, "{message}");
    }
    let mut report = fixture(include_str!("../../../tests/fixtures/import/guidellm.json"));
    report["metadata"]["version"] = json!(3);
    let (warnings, verdict) = warned(&report);
    assert!(warnings.contains("format 3 of GuideLLM"), "{warnings}");
    assert_eq!(verdict, Verdict::Suspect);
}

#[test]
fn two_results_of_one_configuration_of_inferencex_are_suspect() {
    let first = row_of_inferencex();
    let mut second = first.clone();
    second["mean_ttft"] = json!(second["mean_ttft"].as_f64().unwrap() * 2.0);
    let (warnings, verdict) = warned(&json!([first, second]));
    assert!(
        warnings.contains("rows 1 and 2 have the same settings"),
        "{warnings}"
    );
    assert_eq!(verdict, Verdict::Suspect);
}

#[test]
fn figures_that_cannot_be_true_together_are_suspect() {
    let with = |file: &str, changes: &[(&str, Value)]| {
        let mut document = fixture(file);
        for (pointer, value) in changes {
            *document.pointer_mut(pointer).unwrap() = value.clone();
        }
        document
    };
    let inference_perf = include_str!("../../../tests/fixtures/import/inference-perf.json");
    let genai_bench = include_str!("../../../tests/fixtures/import/genai-bench.json");
    let guidellm = include_str!("../../../tests/fixtures/import/guidellm.json");
    let thousandfold = |pointer: &str| {
        let document = fixture(genai_bench);
        let mut stats = document.pointer(pointer).unwrap().clone();
        for (_, value) in stats.as_object_mut().unwrap() {
            *value = json!(value.as_f64().unwrap_or(0.0) * 1000.0);
        }
        stats
    };
    let mut slow_mean = row_of_inferencex();
    slow_mean["mean_e2el"] = json!(85.9);
    let mut few_slots = row_of_inferencex();
    few_slots["conc"] = json!(1);
    for (document, message) in [
        (
            with(
                inference_perf,
                &[("/successes/throughput/output_tokens_per_sec", json!(3325.1))],
            ),
            "is above total throughput",
        ),
        (
            with(
                genai_bench,
                &[(
                    "/aggregated_metrics/stats/tpot",
                    thousandfold("/aggregated_metrics/stats/tpot"),
                )],
            ),
            "is above mean E2E",
        ),
        (
            with(genai_bench, &[("/aggregated_metrics/num_requests", json!(520))]),
            "have no outcome",
        ),
        (
            with(
                genai_bench,
                &[("/aggregated_metrics/error_codes_frequency", json!({"500": 52}))],
            ),
            "52 requests with an error code, but counts 0 as failed",
        ),
        (
            with(guidellm, &[("/benchmarks/0/duration", json!(0.311))]),
            "neither a warm-up nor a cool-down",
        ),
        (json!([slow_mean]), "with a standard deviation of"),
        (json!([few_slots]), "1 requests at once with a mean TPOT of"),
    ] {
        let (warnings, verdict) = warned(&document);
        assert!(warnings.contains(message), "{message}: {warnings}");
        assert_eq!(verdict, Verdict::Suspect, "{message}");
    }
    let mut absurd = row_of_inferencex();
    absurd["tp"] = json!(1_000_000_000);
    let run = import(&json!([row_of_inferencex(), absurd]));
    assert_eq!(run.summaries.len(), 1, "{:?}", run.warnings);
}

#[test]
fn the_load_of_reports_of_llm_d_is_that_of_their_harness() {
    for (text, limit) in [
        (
            include_str!("../../../tests/fixtures/import/llm-d-aiperf.yaml"),
            Some(8),
        ),
        (
            include_str!("../../../tests/fixtures/import/llm-d-inference-perf.yaml"),
            None,
        ),
    ] {
        let read = read("br.yaml", text).unwrap_or_else(|error| panic!("{error}"));
        let run = build_run("t", &[read], ImportContent::WithCommands);
        let arrival = &run.plan.cells[0].scenario.arrival;
        let concurrency = arrival.concurrency.map(std::num::NonZeroU32::get);
        assert_eq!((arrival.rate.per_second(), concurrency), (10.0, limit));
    }
}

#[test]
fn requests_that_aiperf_did_not_send_are_missing_only_without_a_time_limit() {
    let mut document = fixture(include_str!("../../../tests/fixtures/import/aiperf-rate.json"));
    document["input_config"]["phases"][1]["requests"] = json!(4000);
    let (warnings, verdict) = warned(&document);
    assert!(
        warnings.contains("of 4000 requests have no outcome"),
        "{warnings}"
    );
    assert_eq!(verdict, Verdict::Suspect);
    document["input_config"]["phases"][1]["duration"] = json!(30);
    assert!(
        !warned(&document).0.contains("no outcome"),
        "{}",
        warned(&document).0
    );
}

/// The launch of each cell, in the order of cells.
fn launches_of_cells(run: &ImportedRun) -> Vec<&crate::plan::Launch> {
    let launch_of = |cell: &crate::plan::Cell| {
        let own = run.plan.launches.iter().filter(|launch| launch.id == cell.launch);
        let own: Vec<_> = own.collect();
        assert_eq!(own.len(), 1, "{}", cell.launch);
        own[0]
    };
    run.plan.cells.iter().map(launch_of).collect()
}

/// A file of AIPerf about which facts are declared.
fn declared_file(name: &str, declared: DeclaredFacts) -> ImportedFile {
    let text = include_str!("../../../tests/fixtures/import/aiperf.json");
    let file = read(name, text).unwrap_or_else(|error| panic!("{error}"));
    ImportedFile { declared, ..file }
}

#[test]
fn rows_of_different_precision_have_launches_of_their_own() {
    let fp8 = row_of_inferencex();
    let mut fp4 = fp8.clone();
    (fp4["precision"], fp4["conc"]) = (json!("fp4"), json!(48));
    let mut more = fp8.clone();
    more["conc"] = json!(32);
    let run = import(&json!([fp8, fp4, more]));
    let precisions: Vec<_> = launches_of_cells(&run)
        .iter()
        .map(|launch| launch.precision.as_deref())
        .collect();
    assert_eq!(precisions, [Some("fp8"), Some("fp4"), Some("fp8")]);
    assert_eq!(run.plan.launches.len(), 2);
    let file = |name: &str, precision: &str| {
        declared_file(
            name,
            DeclaredFacts {
                engine: Some("vllm".to_owned()),
                precision: Some(precision.to_owned()),
                ..DeclaredFacts::default()
            },
        )
    };
    let files = [file("x1.json", "bf16"), file("x2.json", "fp8")];
    let run = build_run("t", &files, ImportContent::WithCommands);
    let launches = launches_of_cells(&run);
    assert_eq!(launches.len(), 2);
    for (cell, launch) in run.plan.cells.iter().zip(launches) {
        assert_eq!(cell.axes.get("precision"), launch.precision.as_ref());
    }
}

#[test]
fn kinds_of_gpu_are_in_the_variants_also_of_files_that_have_one_each() {
    let variants = |files: &[ImportedFile]| {
        let run = build_run("t", files, ImportContent::WithCommands);
        let launches = launches_of_cells(&run);
        let named = launches.iter().map(|launch| launch.engine.variant.clone());
        named.collect::<Vec<_>>()
    };
    let file = |name: &str, gpu: Option<&str>| {
        let gpu = gpu.map(str::to_owned);
        declared_file(
            name,
            DeclaredFacts {
                gpu,
                ..DeclaredFacts::default()
            },
        )
    };
    let two = [file("a.json", Some("H100")), file("b.json", Some("H200"))];
    assert_eq!(variants(&two), [Some("h100".to_owned()), Some("h200".to_owned())]);
    let one = [file("a.json", Some("H100")), file("b.json", None)];
    assert_eq!(variants(&one), [None, None], "one kind distinguishes nothing");
}

#[test]
fn settings_of_inferencex_that_differ_between_rows_are_in_variants_and_launches() {
    let plain = {
        let mut row = row_of_inferencex();
        row["spec_decoding"] = json!("none");
        row
    };
    for (key, value, variant) in [
        ("spec_decoding", json!("mtp"), "mtp"),
        ("dp_attention", json!("true"), "dp-attention"),
        ("ep", json!(8), "ep8"),
        ("dcp_size", json!(2), "dcp2"),
    ] {
        let mut other = plain.clone();
        other[key] = value;
        other["conc"] = json!(48);
        let run = import(&json!([plain, other]));
        let launches = launches_of_cells(&run);
        assert_eq!(launches[0].engine.variant, None, "{key}");
        assert_eq!(launches[1].engine.variant.as_deref(), Some(variant));
        assert_eq!(run.plan.launches.len(), 2, "{key}");
    }
}

#[test]
fn the_name_of_a_file_that_distinguishes_cells_is_a_variant_and_no_argument() {
    let files = ["vllm-1.json", "vllm-2.json"].map(|name| declared_file(name, DeclaredFacts::default()));
    let run = build_run("t", &files, ImportContent::WithCommands);
    let [first, second] = &run.plan.cells[..] else {
        panic!("two cells")
    };
    assert_eq!(first.axes.get("variant"), None);
    assert_eq!(
        second.axes.get("variant").map(String::as_str),
        Some("file vllm-2.json")
    );
    assert_eq!(second.axes.get("args"), None);
    launches_of_cells(&run);
}

#[test]
fn a_throughput_of_inferencex_below_that_of_its_slots_is_suspect() {
    let full = row_of_inferencex();
    assert_eq!(warned(&json!([full])).1, Verdict::Valid);
    for (factor, message) in [
        (0.07, "but 64 requests at once with a mean E2E of 8590.50 ms"),
        (0.0, "output throughput is 0 tok/s"),
    ] {
        let mut row = full.clone();
        for key in ["tput_per_gpu", "output_tput_per_gpu", "input_tput_per_gpu"] {
            row[key] = json!(row[key].as_f64().unwrap() * factor);
        }
        let (warnings, verdict) = warned(&json!([row]));
        assert!(warnings.contains(message), "{warnings}");
        assert_eq!(verdict, Verdict::Suspect);
    }
}

#[test]
fn accelerators_of_llm_d_that_do_not_fit_its_parallel_sizes_are_suspect() {
    let text = include_str!("../../../tests/fixtures/import/llm-d-inference-perf.yaml");
    let original: Value = serde_yaml::from_str(text).expect("the fixture is YAML");
    for (count, tp, dp, message) in [
        (
            1,
            8,
            2,
            "needs 8 (16 if each of 2 data-parallel ranks has its own) or a multiple",
        ),
        (
            4,
            8,
            1,
            "the number of accelerators is 4, but tp 8 × pp 1 needs 8 or a multiple",
        ),
        (8, 8, 1, ""),
        (8, 4, 2, ""),
        (4, 4, 4, ""),
    ] {
        let mut document = original.clone();
        document["scenario"]["host"] = json!({"accelerator": [
            {"model": "H100", "count": count, "parallelism": {"tp": tp, "dp": dp, "pp": 1, "ep": 1}}
        ]});
        let (warnings, verdict) = warned(&document);
        assert!(warnings.contains(message), "{warnings}");
        assert_eq!(
            warnings.contains("number of accelerators"),
            !message.is_empty(),
            "{warnings}"
        );
        assert_eq!(
            verdict == Verdict::Suspect,
            !message.is_empty(),
            "{count} {tp} {dp}"
        );
    }
}

#[test]
fn requests_that_inference_perf_sent_too_slowly_or_too_late_make_figures_suspect() {
    let original = fixture(include_str!("../../../tests/fixtures/import/inference-perf.json"));
    let mut on_time = original.clone();
    // In the fixture, the counts of the tokenizer and of the server differ.
    on_time["successes"]["output_tokens"] = Value::Null;
    on_time["load_summary"]["requested_rate"] = json!(10.0);
    on_time["load_summary"]["achieved_rate"] = json!(9.0);
    let (before, verdict) = warned(&on_time);
    assert!(!before.contains("were sent"), "{before}");
    assert!(!before.contains("sent only"), "{before}");
    assert_eq!(verdict, Verdict::Valid);
    for (key, value, message) in [
        (
            "achieved_rate",
            json!(3.0),
            "set to send 10 requests/s, but sent only 3/s",
        ),
        (
            "schedule_delay",
            json!({"mean": 30.0}),
            "sent 30.00 s later than scheduled",
        ),
    ] {
        let mut document = on_time.clone();
        document["load_summary"][key] = value;
        let (warnings, verdict) = warned(&document);
        assert!(warnings.contains(message), "{warnings}");
        assert_eq!(verdict, Verdict::Suspect);
        document["load_summary"]["concurrency"] = json!(8);
        assert!(!warned(&document).0.contains(message), "slots set the rate");
    }
}
