//! What other tools wrote, as a run: imported, drawn again, and shipped.
//!
//! The published reports that `results/published` was made from are not ours to ship. `MATRIX_SEEDS` names the folder that holds
//! them; without it the tests that read them are skipped by name, and where `MATRIX_REQUIRE_SEEDS` is set that is a failure.

#[path = "support/binary.rs"]
mod binary;
#[path = "support/skip.rs"]
mod skip;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use matrix::results::record::cell::MeasurementSummary;
use matrix::results::store::Run;
use serde_json::Value;

use matrix::cli::env_variable;

/// The published files: how they begin, and the names under which they were imported.
const SEEDS: [(&str, &str); 4] = [
    ("000_", "sglang-v0.5.1.md"),
    ("001_", "vllm-v0.10.1.md"),
    ("003_", "lmdeploy-v0.10.0.md"),
    ("002_", "qwen3-coder-npu.log"),
];

/// The reports that are written of them, in the same order.
const REPORTS: [&str; 4] = [
    "engine-sglang-v0.5.1.md",
    "engine-vllm-v0.10.1.md",
    "engine-lmdeploy-0.10.0.md",
    "engine-sglang.md",
];

struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn matrix(args: &[&str], folder: &Path) -> Ran {
    let output = Command::new(binary::matrix())
        .args(args)
        .current_dir(folder)
        .output()
        .expect("the binary runs");
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn fixture(name: &str) -> String {
    let path = repository().join("tests/fixtures/import").join(name);
    path.display().to_string()
}

/// The published files, copied under their names into a folder.
fn seeds(folder: &Path) -> Option<Vec<String>> {
    let Some(place) = env_variable("MATRIX_SEEDS") else {
        assert!(
            env_variable("MATRIX_REQUIRE_SEEDS").is_none(),
            "MATRIX_SEEDS does not name the folder of the published reports"
        );
        return None;
    };
    let all: Vec<PathBuf> = fs::read_dir(&place)
        .expect("MATRIX_SEEDS is a folder")
        .map(|entry| entry.expect("it can be listed").path())
        .collect();
    let copied = SEEDS.map(|(begins, name)| {
        let is_it = |path: &&PathBuf| {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            file.starts_with(begins)
        };
        let from = all
            .iter()
            .find(is_it)
            .unwrap_or_else(|| panic!("no file in {place} begins with {begins}"));
        // A copy may be written to, whatever its original allows.
        fs::write(folder.join(name), fs::read(from).expect("it can be read")).expect("it can be copied");
        name.to_owned()
    });
    Some(copied.to_vec())
}

/// Every result block of a text, without the spaces at the ends of lines.
fn blocks(text: &str) -> Vec<String> {
    let mut blocks: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in text.lines().map(str::trim_end) {
        if line.contains(" Serving Benchmark Result ") {
            is_open = true;
            blocks.push(String::new());
        }
        if is_open {
            blocks
                .last_mut()
                .expect("one is open")
                .push_str(&format!("{line}\n"));
            is_open = line != "=".repeat(50);
        }
    }
    blocks
}

fn read(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    String::from_utf8_lossy(&bytes).into_owned()
}

fn summaries(run: &Path) -> Vec<(PathBuf, Value)> {
    let mut paths: Vec<PathBuf> = fs::read_dir(run.join("cells"))
        .expect("a run has cells")
        .map(|entry| entry.expect("it can be listed").path().join("summary.json"))
        .collect();
    paths.sort();
    let parsed = paths.into_iter().map(|path| {
        (
            path.clone(),
            serde_json::from_str(&read(&path)).expect("a summary is JSON"),
        )
    });
    parsed.collect()
}

#[test]
fn the_published_reports_come_back_to_the_byte_and_their_mistakes_are_told() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let Some(files) = seeds(folder.path()) else {
        skip::skip("needs the published reports; set MATRIX_SEEDS to their folder");
        return;
    };
    let mut args = vec!["import", "--name", "p"];
    args.extend(files.iter().map(String::as_str));
    let ran = matrix(&args, folder.path());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for mistake in [
        "sglang-v0.5.1.md:25: the table of contents says `SGLang v0.10.1`, the title says `SGLang v0.5.1`",
        "sglang-v0.5.1.md:858: the text around the result states 10000 prompts, but 1000 were requested",
        "sglang-v0.5.1.md:1062: the text around the result states 10000 prompts, but 1000 were requested",
        "lmdeploy-v0.10.0.md:100: streamed events carry 2.10 tokens on average",
        "lmdeploy-v0.10.0.md:998: the server's command serves `openai/gpt-oss-20b`, but the client's arguments name `openai/gpt-oss-120b`",
    ] {
        assert!(ran.stderr.contains(mistake), "{mistake}\n{}", ran.stderr);
    }
    // Source: docs/bench-serving.md 13.3: so many runs of LMDeploy have more than 1.05 tokens in an event, and none of the others.
    assert_eq!(ran.stderr.matches("events carry").count(), 9, "{}", ran.stderr);
    let run = folder.path().join("results/p");
    assert_eq!(summaries(&run).len(), 73);
    let drawn = matrix(&["report", "results/p", "--out", "out"], folder.path());
    assert_eq!(drawn.code, Some(0), "{}", drawn.stderr);
    let mut all = 0;
    for (file, report) in files.iter().zip(REPORTS) {
        let (theirs, ours) = (
            blocks(&read(&folder.path().join(file))),
            blocks(&read(&folder.path().join("out").join(report))),
        );
        assert_eq!(theirs, ours, "{file}");
        all += ours.len();
    }
    assert_eq!(all, 73);
    refuses(&read(&folder.path().join("out/report.md")));
    shipped_is(&files, folder.path());
}

/// The comparison refuses what it must refuse.
fn refuses(comparison: &str) {
    let section = |title: &str| {
        let from = comparison
            .find(&format!("\n### {title}\n"))
            .unwrap_or_else(|| panic!("no table of {title}"));
        let rest = &comparison[from + 5..];
        rest[..rest.find("\n### ").unwrap_or(rest.len())].to_owned()
    };
    let fp8 = section("Qwen/Qwen3-8B · sharegpt");
    assert!(
        fp8.contains("lmdeploy@0.10.0: no ratio to sglang: precision fp8 against unknown"),
        "{fp8}"
    );
    let other_tp = section("Qwen/Qwen3-32B · sharegpt");
    assert!(
        other_tp.contains("precision fp8 against unknown, 1 GPU against 2"),
        "{other_tp}"
    );
    let fewer = section("openai/gpt-oss-20b · sharegpt");
    assert_eq!(
        fewer
            .matches("no ratio to sglang: 10000 prompts against 1000")
            .count(),
        2,
        "{fewer}"
    );
    let fair = section("openai/gpt-oss-20b · random-1k-1k");
    assert!(!fair.contains("no ratio"), "{fair}");
    for said in [
        "the GPU model is unknown for at least one side",
        "engine source pip package against container image",
    ] {
        assert!(fair.contains(said), "{said}\n{fair}");
    }
    assert!(
        fair.contains("the wait in the engine's queue, and is not shown as TTFT")
            && !fair.contains("TTFT mean"),
        "{fair}"
    );
}

/// The summary with the places of its warnings and without the texts of its reasons, which are those of the version that wrote them.
fn without_texts(mut summary: MeasurementSummary) -> MeasurementSummary {
    for reason in summary
        .validity
        .iter_mut()
        .flat_map(|validity| &mut validity.reasons)
    {
        (reason.measured, reason.bound, reason.advice) = Default::default();
    }
    for warning in &mut summary.warnings {
        let place = warning.split(": ").next().expect("there is a first part");
        *warning = place.to_owned();
    }
    summary
}

/// What is shipped is what an import of the same files gives.
fn shipped_is(files: &[String], folder: &Path) {
    let mut args = vec!["import", "--name", "published", "--figures-only"];
    args.extend(files.iter().map(String::as_str));
    assert_eq!(matrix(&args, folder).code, Some(0));
    let (ours, shipped) = (
        folder.join("results/published"),
        repository().join("results/published"),
    );
    // The shipped one was written in format 1, whose fields had other names.
    let [ours, shipped] = [ours, shipped].map(|folder| Run::read(&folder).expect("it is a run"));
    assert_eq!(ours.plan, shipped.plan);
    assert_eq!(ours.summaries.len(), shipped.summaries.len());
    for (mut ours, shipped) in ours.summaries.into_iter().zip(shipped.summaries) {
        ours.format = shipped.format;
        assert_eq!(without_texts(ours), without_texts(shipped));
    }
}

#[test]
fn what_is_shipped_is_an_ordinary_run_of_figures_alone() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let published = repository().join("results/published");
    let place = published.display().to_string();
    let ran = matrix(&["report", &place, "--out", "out"], folder.path());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let counts = REPORTS.map(|report| blocks(&read(&folder.path().join("out").join(report))).len());
    assert_eq!(counts, [24, 24, 24, 1]);
    let again = matrix(&["report", &place, "--out", "again"], folder.path());
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    for report in REPORTS.iter().chain(&["report.md"]) {
        let of = |out: &str| read(&folder.path().join(out).join(report));
        assert_eq!(of("out"), of("again"), "{report}");
    }
    for (path, summary) in summaries(&published) {
        assert_eq!(summary["origin"], "imported", "{}", path.display());
        assert!(summary["engine"]["command"].is_null(), "{}", path.display());
    }
    let plan = read(&published.join("plan.json"));
    for word in ["docker run", "/nvme", "/root/", "--host"] {
        assert!(!plan.contains(word), "`{word}` is no figure");
    }
}

#[test]
fn the_published_figures_are_the_table_that_is_drawn_of_what_is_shipped() {
    let ran = matrix(
        &["report", "results/published", "--format", "markdown"],
        &repository(),
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let title = "### All engines side by side\n";
    let from = ran.stdout.find(title).expect("the table is there");
    let rest = &ran.stdout[from..];
    let end = rest[title.len()..]
        .find("\n#")
        .map_or(rest.len(), |at| title.len() + at);
    let table = rest[..end].trim_end();
    let page = read(&repository().join("docs/published.md"));
    let at = page.find(table).unwrap_or_else(|| {
        panic!(
            "docs/published.md does not hold what `matrix report results/published --format markdown` draws:\n{table}"
        )
    });
    let before = page[..at].lines().filter(|line| line.starts_with('#')).count();
    assert_eq!(before, 1, "only the title stands before the table");
}

#[test]
fn a_digit_changed_in_a_record_is_seen_in_the_report() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let ran = matrix(&["import", "--name", "r", &fixture("layouts.log")], folder.path());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let report = || matrix(&["report", "results/r", "--out", "out"], folder.path()).code;
    let all = || blocks(&read(&folder.path().join("out/engine-sglang-oai.md")));
    assert_eq!(report(), Some(0));
    let before = all();
    let run = folder.path().join("results/r");
    let (path, mut summary) = summaries(&run).swap_remove(0);
    let definitions = match summary["figures"]["classic"].is_object() {
        true => "classic",
        false => "current",
    };
    let figure = &mut summary["figures"][definitions]["mean_ttft_ms"];
    assert_eq!(*figure, 20.0);
    *figure = Value::from(20.03);
    fs::write(&path, summary.to_string()).expect("a summary can be written");
    assert_eq!(report(), Some(0));
    let after = all();
    assert_eq!(before.len(), after.len());
    let changed: Vec<(&String, &String)> = before.iter().zip(&after).filter(|(a, b)| a != b).collect();
    assert_eq!(changed.len(), 1);
    let label = "Mean TTFT (ms):                          ";
    assert_eq!(
        changed[0]
            .0
            .replace(&format!("{label}20.00"), &format!("{label}20.03")),
        *changed[0].1
    );
}

#[test]
fn one_run_takes_every_format_and_other_commands_work_on_it() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let names = [
        "layouts.log",
        "report.md",
        "results.jsonl",
        "vllm.json",
        "vllm-console.log",
        "lmdeploy.csv",
    ];
    let files = names.map(fixture);
    let mut args = vec!["import", "--name", "r"];
    args.extend(files.iter().map(String::as_str));
    let ran = matrix(&args, folder.path());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(
        ran.stdout.starts_with("imported 10 cells from layouts.log, "),
        "{}",
        ran.stdout
    );
    assert!(ran.stderr.contains("warning: report.md:17: "), "{}", ran.stderr);
    // The formats of the fixtures print the figures of one measurement.
    let twins = ran.stderr.matches("` has the same measurement").count();
    assert_eq!(twins, 5, "{}", ran.stderr);
    assert_eq!(summaries(&folder.path().join("results/r")).len(), 10);
    for format in ["terminal", "markdown"] {
        let drawn = matrix(&["report", "results/r", "--format", format], folder.path());
        assert_eq!(drawn.code, Some(0), "{}", drawn.stderr);
        assert!(drawn.stdout.contains("acme/tiny-1b"), "{}", drawn.stdout);
    }
    let explained = matrix(&["explain", "--run", "results/r"], folder.path());
    assert!(
        explained.stdout.contains("chunked-tokens"),
        "{}{}",
        explained.stdout,
        explained.stderr
    );
    assert_eq!(matrix(&["clean"], folder.path()).code, Some(0));
    let twice = matrix(&args, folder.path());
    assert_eq!(twice.code, Some(2));
    assert!(twice.stderr.contains("never overwritten"), "{}", twice.stderr);
}

/// Results of further tools, one of each file: rows with the tool's name and definitions, and no ratio between tools.
#[test]
fn one_run_takes_result_files_of_further_tools() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let names = [
        "aiperf-rate.json",
        "guidellm.json",
        "inferencex.json",
        "inference-perf.json",
        "genai-bench.json",
        "llm-d-guidellm.yaml",
    ];
    let files = names.map(fixture);
    let mut args = vec!["import", "--name", "r"];
    args.extend(files.iter().map(String::as_str));
    let ran = matrix(&args, folder.path());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(
        ran.stdout.starts_with("imported 8 cells from aiperf-rate.json, "),
        "{}",
        ran.stdout
    );
    let tools: Vec<(String, Option<String>)> = summaries(&folder.path().join("results/r"))
        .iter()
        .map(|(_, summary)| {
            let text = |key: &str| summary["imported"][key].as_str().map(str::to_owned);
            (text("tool").expect("it names its tool"), text("tool_version"))
        })
        .collect();
    for tool in [
        "aiperf",
        "guidellm",
        "inferencex",
        "inference-perf",
        "genai-bench",
        "llmd-report",
    ] {
        assert!(tools.iter().any(|(name, _)| name == tool), "{tool}: {tools:?}");
    }
    assert!(tools.contains(&("guidellm".to_owned(), Some("0.8.1".to_owned()))));
    let report = matrix(&["report", "results/r", "--format", "markdown"], folder.path());
    assert_eq!(report.code, Some(0), "{}", report.stderr);
    for said in [
        "\\[imported from AIPerf]: read from the output of AIPerf; E2E and TPOT end at the last event with output",
        "read from the output of GuideLLM; figures are those of successful requests",
        "read from the output of InferenceX; throughput is computed from",
        "synthetic-100-24",
        "D(100,24)",
    ] {
        let plain = report.stdout.replace('\\', "");
        assert!(
            plain.contains(&said.replace('\\', "")),
            "{said}\n{}",
            report.stdout
        );
    }
    for format in ["terminal", "json", "csv", "html"] {
        let drawn = matrix(&["report", "results/r", "--format", format], folder.path());
        assert_eq!(drawn.code, Some(0), "{format}: {}", drawn.stderr);
    }
}

/// What contradicts itself or holds nothing is refused or named, with file and line.
#[test]
fn files_of_further_tools_that_hold_no_result_are_refused_with_a_reason() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let write =
        |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a file can be written");
    write(
        "empty.json",
        r#"{"metadata": {"guidellm_version": "0.8.1"}, "benchmarks": []}"#,
    );
    write("list.json", "[{\"a\": 1}]");
    write(
        "new.yaml",
        "version: '0.9'\nscenario: {}\nresults: {request_performance: {aggregate: {requests: {total: 1}}}}\n",
    );
    let ran = matrix(&["import", "empty.json", "list.json", "new.yaml"], folder.path());
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    for said in [
        "no results found in `empty.json`: GuideLLM's report has no benchmarks",
        "no results found in `list.json`: the file is a JSON list, but its entries are not results of InferenceX",
        "no results found in `new.yaml`: the benchmark report has version `0.9`; only versions 0.1 and 0.2 can be read",
        "nothing was imported",
    ] {
        assert!(ran.stderr.contains(said), "{said}\n{}", ran.stderr);
    }
}

/// A console log and a JSON file of two engines, whose GPUs, precision and versions nobody wrote into them: flags or a file beside them say it, and
/// they can be compared.
#[test]
fn what_files_lack_is_told_by_flags_or_beside_them() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let log = fs::read_to_string(fixture("vllm-console.log")).expect("it can be read");
    let faster = log
        .replace("102.40", "128.00")
        .replace("1.25", "1.00")
        .replace("6.40", "8.00")
        .replace("307.20", "384.00");
    fs::write(folder.path().join("one.log"), &log).expect("a file can be written");
    fs::write(folder.path().join("two.log"), faster).expect("a file can be written");
    let known = [
        "--gpus",
        "8",
        "--gpu",
        "H100",
        "--precision",
        "bf16",
        "--version",
        "v0.10.1",
    ];
    let one = [
        &["import", "one.log", "--name", "one", "--engine", "vllm"],
        &known[..],
    ]
    .concat();
    let ran = matrix(&one, folder.path());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let beside = "engine: sglang\nversion: v0.5.1\ngpus: 8\ngpu: H100\nprecision: bf16\n";
    fs::write(folder.path().join("two.log.import.yaml"), beside).expect("a file can be written");
    let ran = matrix(&["import", "two.log", "--name", "two"], folder.path());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let actual = matrix(
        &["report", "results/one", "results/two", "--format", "json"],
        folder.path(),
    );
    assert_eq!(actual.code, Some(0), "{}", actual.stderr);
    let document: Value = serde_json::from_str(&actual.stdout).expect("it is JSON");
    let rows = document["comparisons"][0]["rows"]
        .as_array()
        .expect("they stand side by side");
    let names: Vec<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    assert!(
        names.iter().any(|name| name.contains("vllm@v0.10.1"))
            && names.iter().any(|name| name.contains("sglang@v0.5.1")),
        "{names:?}"
    );
    let ratios: Vec<f64> = rows
        .iter()
        .filter_map(|row| row["ratio"]["value"].as_f64())
        .collect();
    assert!(
        ratios.len() == 2 && ratios.iter().any(|ratio| (ratio - 1.25).abs() < 1e-6),
        "{rows:#?}"
    );
}

/// The median under the name that `--metric-percentiles` gives it.
#[test]
fn the_fiftieth_percentile_is_the_median() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let log = fs::read_to_string(fixture("vllm-console.log")).expect("it can be read");
    let log = log.replace("Median TTFT (ms):", "P50 TTFT (ms):   ");
    fs::write(folder.path().join("p.log"), log).expect("a file can be written");
    let ran = matrix(&["import", "p.log", "--name", "p"], folder.path());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(!ran.stderr.contains("P50"), "{}", ran.stderr);
    let all = summaries(&folder.path().join("results/p"));
    let figures = &all[0].1["figures"];
    assert!(
        figures.to_string().contains("\"median_ttft_ms\":20.0"),
        "{figures}"
    );
}

#[test]
fn files_that_hold_nothing_are_all_named_and_nothing_is_written() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    fs::write(folder.path().join("notes.txt"), "hello\n").expect("a file can be written");
    fs::write(folder.path().join("other.json"), "{\"a\": 1}\n").expect("a file can be written");
    let ran = matrix(
        &[
            "import",
            "notes.txt",
            "other.json",
            "absent",
            &fixture("vllm.json"),
        ],
        folder.path(),
    );
    assert_eq!(ran.code, Some(2));
    for said in [
        "no results found in `notes.txt`",
        "no results found in `other.json`",
        "cannot read `absent`",
        "nothing was imported",
    ] {
        assert!(ran.stderr.contains(said), "{said}\n{}", ran.stderr);
    }
    assert!(!folder.path().join("results").exists());
}

#[test]
fn a_name_that_is_no_runs_is_refused_before_anything_is_read() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    for name in ["nightly", "Nightly", "../outside", ".hidden"] {
        let ran = matrix(&["import", "absent", "--name", name], folder.path());
        assert_eq!(ran.code, Some(2), "{name}: {}", ran.stderr);
        let said = format!("`{name}` cannot be the name of a run");
        assert!(ran.stderr.contains(&said), "{name}: {}", ran.stderr);
        assert!(!ran.stderr.contains("absent"), "{name}: {}", ran.stderr);
    }
    assert!(!folder.path().join("results").exists());
    let import = |name| matrix(&["import", &fixture("vllm.json"), "--name", name], folder.path());
    assert_eq!(import("nightly-2").code, Some(0));
    let again = import("nightly-2");
    assert_eq!(again.code, Some(2), "{}", again.stderr);
    assert!(
        again.stderr.contains("choose another `--name`"),
        "{}",
        again.stderr
    );
}

#[test]
fn a_name_with_control_characters_steers_no_terminal() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let name = "a\u{1b}[31mred";
    let ran = matrix(&["import", &fixture("vllm.json"), "--name", name], folder.path());
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(!ran.stderr.contains('\u{1b}'), "{:?}", ran.stderr);
    assert!(ran.stderr.contains("`a\\u{1b}[31mred`"), "{:?}", ran.stderr);
    let absent = matrix(&["import", name], folder.path());
    assert_eq!(absent.code, Some(2), "{}", absent.stderr);
    assert!(!absent.stderr.contains('\u{1b}'), "{:?}", absent.stderr);
}

#[test]
fn a_pipe_is_refused() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let made = Command::new("mkfifo").arg(folder.path().join("pipe")).status();
    assert!(made.is_ok_and(|status| status.success()));
    let ran = matrix(&["import", "pipe"], folder.path());
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(
        ran.stderr
            .contains("cannot read `pipe`: the path is not a regular file"),
        "{}",
        ran.stderr
    );
}

#[test]
fn imported_names_break_out_of_no_report_and_steer_no_terminal() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let evil = "ev|il`<script>alert(1)</script>\u{1b}[31m\u{202e}";
    let text = read(Path::new(&fixture("report.md")))
        .replace("ACME", evil)
        .replace("acme/tiny-1b", "acme/<img-src=x>|tiny");
    fs::write(folder.path().join("a\u{1b}[2J.md"), text).expect("a file can be written");
    let ran = matrix(&["import", "a\u{1b}[2J.md", "--name", "r"], folder.path());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let printed = matrix(&["report", "results/r", "--color", "never"], folder.path());
    let drawn = matrix(&["report", "results/r", "--out", "out"], folder.path());
    assert_eq!((printed.code, drawn.code), (Some(0), Some(0)), "{}", drawn.stderr);
    for text in [&ran.stdout, &ran.stderr, &printed.stdout] {
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text:?}");
    }
    for entry in fs::read_dir(folder.path().join("out")).expect("reports are there") {
        let path = entry.expect("it can be listed").path();
        let text = read(&path);
        let is_markdown = path.extension().is_some_and(|kind| kind == "md");
        // Data keeps names as they are, and a page has tags of its own: tests beside these formats look into them.
        let words = if is_markdown {
            &["<script>", "<img", "\u{1b}", "\u{202e}"][..]
        } else {
            &["\u{1b}"]
        };
        let outside: String = text.split("```").step_by(2).collect();
        for word in words {
            assert!(!outside.contains(word), "{word:?} in {}", path.display());
        }
    }
}

#[test]
fn medians_of_vllm_are_in_every_table_that_has_their_column() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let text = read(Path::new(&fixture("vllm.json")));
    let text = text.replace("\"request_rate\": \"inf\"", "\"request_rate\": 6.4");
    fs::write(folder.path().join("vllm.json"), text).expect("a file can be written");
    let ran = matrix(&["import", "vllm.json", "--name", "r"], folder.path());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let drawn = matrix(&["report", "results/r", "--format", "markdown"], folder.path());
    let from = drawn.stdout.find(": latencies").expect("the table is there");
    let table = &drawn.stdout[from..];
    let lines: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with('|'))
        .map(|line| {
            line.split('|')
                .map(|cell| cell.trim().trim_start_matches('\\'))
                .collect()
        })
        .collect();
    for (head, value) in [
        ("TTFT p50", "~20.0"),
        ("TPOT p50", "~10.00"),
        ("ITL p50", "~10.00"),
    ] {
        let at = lines[0].iter().position(|cell| cell.starts_with(head));
        let at = at.unwrap_or_else(|| panic!("no {head}: {:?}", lines[0]));
        assert_eq!(lines[2][at], value, "{head}: {table}");
    }
    let again = matrix(&["import", "vllm.json", "--name", "s"], folder.path());
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    let held = matrix(
        &["compare", "results/r", "results/s", "--gate", "median_tpot_ms"],
        folder.path(),
    );
    assert_eq!(held.code, Some(5), "{}", held.stderr);
    assert!(
        held.stdout
            .contains("median TPOT was measured only by the definition `current` of another tool"),
        "{}",
        held.stdout
    );
}

#[test]
fn an_import_that_is_killed_leaves_no_run_and_its_name_is_free() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let line = read(Path::new(&fixture("results.jsonl")));
    let line = line.lines().next().expect("a result");
    let many = folder.path().join("many.jsonl");
    fs::write(&many, format!("{line}\n").repeat(3000)).expect("it can be written");
    let many = many.to_string_lossy().into_owned();
    let mut import = Command::new(binary::matrix())
        .args(["import", &many, "--name", "n"])
        .current_dir(folder.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the binary runs");
    // Killed as soon as measurements are written.
    let results = folder.path().join("results");
    let has_begun = || {
        let found = fs::read_dir(&results).into_iter().flatten().flatten();
        found
            .into_iter()
            .any(|entry| entry.path().join("n/cells").exists() || entry.path().join("cells").exists())
    };
    for _ in 0..120_000 {
        if has_begun() || import.try_wait().expect("it can be asked").is_some() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(has_begun(), "the import writes nothing");
    import.kill().expect("it can be killed");
    import.wait().expect("it ends");
    assert!(!results.join("n").exists(), "a part of a run looks like a run");
    let again = matrix(&["import", &fixture("vllm.json"), "--name", "n"], folder.path());
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert!(
        again.stdout.contains("the run is in results/n"),
        "{}",
        again.stdout
    );
}
