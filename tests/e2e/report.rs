//! The same results give the same report, in every format, at any time.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::harness::{Bench, Ran, repository, sims};

const TWO_ENGINES: &[(&str, &str, &str)] = &[("a", "vllm", ""), ("b", "sglang", "")];
const SHORT: &str = "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 4 }\n";

fn report(bench: &Bench, runs: &[&Path], more: &[&str]) -> Ran {
    let runs = runs.iter().map(|run| run.to_str().expect("a path is text"));
    let args: Vec<&str> = ["report"]
        .into_iter()
        .chain(runs)
        .chain(more.iter().copied())
        .collect();
    bench.call(&args)
}

/// The files of a folder.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    entries
        .map(|entry| {
            let path = entry.expect("it can be read").path();
            let name = path
                .file_name()
                .expect("it has a name")
                .to_string_lossy()
                .into_owned();
            (name, fs::read(&path).expect("it can be read"))
        })
        .collect()
}

#[test]
fn the_files_of_a_run_are_drawn_again_byte_for_byte() {
    let bench = Bench::of(&sims(TWO_ENGINES, SHORT));
    bench.run(&[]).exits(0);
    let folder = bench.run_folder();
    report(&bench, &[&folder], &["--out", "again"]).exits(0);
    let again = files(&folder.join("../../again"));
    let names: Vec<&str> = again.keys().map(String::as_str).collect();
    for name in ["report.csv", "report.html", "report.json", "report.md"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert_eq!(names.iter().filter(|name| name.starts_with("engine-")).count(), 2);
    for (name, bytes) in &again {
        assert!(
            fs::read(folder.join(name)).expect("the run has it too") == *bytes,
            "{name}"
        );
    }
    assert!(again["report.html"].len() < 2 << 20);
    let json: serde_json::Value = serde_json::from_slice(&again["report.json"]).expect("it is JSON");
    assert_eq!(json["cells"].as_array().map(Vec::len), Some(2));
    assert!(
        json["cells"][0]["series"][0]["points"].is_array(),
        "nothing is known over time"
    );
    bench.leaves_no_process();
}

#[test]
fn engines_of_similar_and_of_long_names_have_a_report_each() {
    let long = "x".repeat(300);
    let version = format!("--version-string, {}", "9".repeat(300));
    let engines = [
        ("v-fp8", "vllm", ""),
        ("\"v fp8\"", "vllm", ""),
        (long.as_str(), "vllm", &version),
    ];
    let scenario =
        "  - random-ids: { dataset: random-ids, prompts: 2, input_len: 4, output_len: 2, warmup: 0 }\n";
    let bench = Bench::of(&sims(&engines, scenario));
    bench.run(&[]).exits(0);
    // A run is found by its name and by its matrix as well.
    let folder = bench.run_folder();
    let name = folder.file_name().expect("it has a name").to_string_lossy();
    for named in [&*name, "t"] {
        bench.call(&["report", named]).exits(0);
        bench.call(&["explain", "--run", named]).exits(0);
    }
    let entries = fs::read_dir(&folder).expect("there is a run").flatten();
    let is_page = |name: &str| name.starts_with("engine-") && name.ends_with(".md");
    let mut pages: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| is_page(name))
        .collect();
    pages.sort();
    assert_eq!(pages.len(), 3, "one page for each engine: {pages:?}");
}

#[test]
fn two_runs_make_one_report_and_a_reference_is_chosen_by_name() {
    let bench = Bench::of(&sims(TWO_ENGINES, SHORT));
    bench.run(&[]).exits(0);
    let first = bench.run_folder();
    let second = first.with_file_name("second");
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .args([&first, &second])
        .status();
    assert!(copied.is_ok_and(|status| status.success()));
    let about = fs::read_to_string(second.join("run.json")).expect("it is there");
    let name = first
        .file_name()
        .expect("it has a name")
        .to_string_lossy()
        .into_owned();
    fs::write(second.join("run.json"), about.replace(&name, "second")).expect("it can be written");
    let ran = report(
        &bench,
        &[&first, &second],
        &["--format", "markdown", "--reference", "b"],
    )
    .exits(0);
    assert!(
        ran.stdout.contains("run=second") && ran.stdout.contains("vs b"),
        "{}",
        ran.stdout
    );
    let ran = report(&bench, &[&first], &["--reference", "sim-b"]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stderr.contains("no run has an engine called `sim-b`"),
        "{}",
        ran.stderr
    );
}

#[test]
fn an_old_run_is_drawn_in_every_format() {
    let bench = Bench::of(&sims(TWO_ENGINES, SHORT));
    let old = repository().join("tests/fixtures/run-format-1");
    for format in ["terminal", "markdown", "html", "csv", "json"] {
        let ran = report(&bench, &[&old], &["--format", format]).exits(0);
        assert!(
            ran.stdout.contains("Tiny-1B") || format == "html",
            "{format}: {}",
            ran.stdout
        );
        let again = report(&bench, &[&old], &["--format", format]).exits(0);
        assert!(ran.stdout == again.stdout, "{format}");
    }
}

/// An answer that did not arrive is no success; a reader that has seen enough is.
#[test]
fn an_answer_that_cannot_be_written_ends_with_6() {
    let bench = Bench::of(&sims(&[("a", "vllm", "")], SHORT));
    bench.run(&[]).exits(0);
    let run = bench.run_folder();
    let run = run.to_str().expect("a path is text");
    let to = |args: &[&str], stdout: fs::File| {
        let mut command = bench.command(args);
        command.stdout(stdout);
        Ran::from(command.output().expect("the binary runs"))
    };
    let full = || {
        fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .expect("Linux has it")
    };
    for args in [
        &["report", run, "--format", "json"][..],
        &["report", run],
        &["plan", "matrices/m.yaml"],
        &["check", "matrices/m.yaml"],
        &["explain", "--codes"],
        &["schema", "report"],
        &["run", "matrices/m.yaml", "--no-calibration", "--json"],
        // It is judged as nothing, which is 5.
        &["compare", run, run],
    ] {
        to(args, full()).exits(6).says("error: cannot write to stdout: ");
    }
    // A refusal keeps its code.
    to(&["plan", "matrices/none.yaml"], full()).exits(2);
    let (reader, writer) = std::io::pipe().expect("there are pipes");
    drop(reader);
    let mut command = bench.command(&["report", run]);
    command.stdout(writer);
    let ended = Ran::from(command.output().expect("the binary runs")).exits(0);
    assert_eq!(ended.stderr, "");
}

#[test]
fn events_have_their_time_and_cells_their_verdict() {
    let bench = Bench::of(&sims(&[("a", "vllm", "")], SHORT));
    let ran = bench
        .call(&["run", "matrices/m.yaml", "--no-calibration", "--json"])
        .exits(0);
    let event = |line: &str| -> serde_json::Value { serde_json::from_str(line).expect("a line is JSON") };
    let events: Vec<serde_json::Value> = ran.stdout.lines().map(event).collect();
    assert!(
        events.iter().all(|event| event["at"].is_string()),
        "{}",
        ran.stdout
    );
    let ended = events.iter().find(|event| event["event"] == "cell-ended");
    let ended = ended.expect("a cell ended");
    assert!(ended["verdict"].is_string(), "{ended}");
    let codes = ended["codes"].as_array().expect("codes are a list");
    assert!(codes.contains(&"simulated".into()), "{ended}");
}

/// A place that cannot be written is a wrong flag.
#[test]
fn a_file_in_the_place_of_a_folder_is_a_wrong_flag() {
    let bench = Bench::of(&sims(&[("a", "vllm", "")], SHORT));
    bench.run(&[]).exits(0);
    report(&bench, &[&bench.run_folder()], &["--out", "matrices/m.yaml"])
        .exits(2)
        .says("cannot create the folder");
    bench
        .call(&["init", "matrices/m.yaml"])
        .exits(2)
        .says("cannot create the folder");
}

/// What was cut off is no file that the next `init` would take for finished.
#[test]
fn a_disk_that_takes_no_whole_file_leaves_none_that_is_cut_off() {
    let bench = Bench::of(&sims(&[("a", "vllm", "")], SHORT));
    // As on a full disk: a write beyond the limit fails once it is partly done.
    let limited = ["sh", "-c", "trap '' XFSZ; ulimit -f 2; exec \"$@\"", "sh"];
    let ran = bench.wrapped(&limited, &["init", "my files"]).output();
    Ran::from(ran.expect("the binary runs"))
        .exits(6)
        .says("cannot write my files/");
    bench.call(&["init", "whole"]).exits(0);
    let same = |path: &str| {
        let read = |folder: &str| fs::read(bench.path().join(folder).join(path)).ok();
        (read("my files"), read("whole"))
    };
    let again = bench
        .call(&["init", "my files"])
        .exits(0)
        .shows("try the demo: matrix run 'my files/matrices/demo.yaml'");
    let paths = again
        .stdout
        .lines()
        .filter_map(|line| line.split_once(" my files/"));
    let mut count = 0;
    for (_, path) in paths {
        let (limited, whole) = same(path);
        assert!(limited.is_some() && limited == whole, "{path}");
        count += 1;
    }
    assert!(count > 10, "{}", again.stdout);
}

#[test]
fn a_code_that_is_misspelt_is_answered_with_the_nearest() {
    let bench = Bench::of(&sims(&[("a", "vllm", "")], SHORT));
    let meant = "did you mean the reason code `host-busy`?";
    let misspelt = |more: &[&str]| {
        let args = [&["explain", "host-bussy"][..], more].concat();
        bench.call(&args).exits(2)
    };
    misspelt(&[]).says("there is no run").says(meant);
    bench.run(&[]).exits(0);
    misspelt(&[]).says("no measured cell").says(meant);
    let run = bench.run_folder();
    let of_run = misspelt(&["--run", &run.display().to_string()]);
    assert!(!of_run.stderr.contains("the code"), "{}", of_run.stderr);
    let far = bench.call(&["explain", "engine=zzz,scenario=none"]).exits(2);
    assert!(!far.stderr.contains("the code"), "{}", far.stderr);
}

#[test]
fn a_measurement_is_a_trace_for_perfetto() {
    let bench = Bench::of(&sims(TWO_ENGINES, SHORT));
    bench.run(&[]).exits(0);
    bench
        .call(&["report", "--format", "perfetto"])
        .exits(2)
        .says("set the folder with `--out`");
    let out = bench.path().join("traces").display().to_string();
    bench
        .call(&[
            "report",
            "--format",
            "perfetto",
            "--out",
            &out,
            "--only",
            "engine=other",
        ])
        .exits(2)
        .says("no measurement with recorded requests is selected");
    bench
        .call(&["report", "--format", "perfetto", "--out", &out])
        .exits(0)
        .shows(".perfetto-trace");
    let traces: Vec<Vec<u8>> = fs::read_dir(&out)
        .expect("the folder is there")
        .map(|entry| fs::read(entry.expect("it can be read").path()).expect("a trace can be read"))
        .collect();
    assert!(!traces.is_empty());
    for trace in traces {
        // The first packet of a trace, and the name of a slice.
        assert_eq!(trace[0], 0x0a);
        assert!(trace.windows(9).any(|part| part == b"request 0"));
    }
}
