//! Runs that cannot be read whole: what is passed over is told wherever the run is shown.

use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::{Bench, Ran, repository};

/// A copy of a small run, in a folder without engines.
fn copy() -> (Bench, PathBuf) {
    let bench = Bench::of("name: none\n");
    let run = bench.path().join("results/r");
    fs::create_dir_all(bench.path().join("results")).expect("a folder can be made");
    let mut copy = std::process::Command::new("cp");
    copy.arg("-r")
        .arg(repository().join("tests/fixtures/run-format-1"))
        .arg(&run);
    assert!(copy.status().expect("cp runs").success());
    (bench, run)
}

/// The summary of one of its cells.
fn summary(run: &Path) -> PathBuf {
    let cells = fs::read_dir(run.join("cells")).expect("there are cells");
    let mut cells: Vec<PathBuf> = cells
        .flatten()
        .map(|cell| cell.path().join("summary.json"))
        .collect();
    cells.sort();
    cells.remove(0)
}

/// Whether what is said or shown names a file.
fn names(ran: &Ran, text: &str) -> bool {
    ran.stdout.contains(text) || ran.stderr.contains(text)
}

#[test]
fn a_broken_summary_is_told_in_every_format_and_in_a_comparison() {
    let (bench, run) = copy();
    fs::write(summary(&run), "{\"broken\"").expect("it can be written");
    for format in ["terminal", "markdown", "html", "csv", "json"] {
        let ran = bench.call(&["report", "results/r", "--format", format]).exits(0);
        assert!(
            names(&ran, "summary.json"),
            "{format}: {}{}",
            ran.stdout,
            ran.stderr
        );
        assert!(
            names(&ran, "is not valid: "),
            "{format}: {}{}",
            ran.stdout,
            ran.stderr
        );
    }
    let ran = bench.call(&["compare", "results/r", "results/r"]);
    assert!(names(&ran, "summary.json"), "{}{}", ran.stdout, ran.stderr);
    let ran = bench.call(&["explain", "--run", "results/r"]).exits(0);
    assert!(names(&ran, "summary.json"), "{}{}", ran.stdout, ran.stderr);
}

#[test]
fn a_plan_edited_by_hand_is_refused_without_a_panic() {
    let (bench, run) = copy();
    let path = run.join("plan.json");
    let text = fs::read_to_string(&path).expect("it can be read");
    let mut plan: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    plan["cells"][0]["launch"] = "gone".into();
    fs::write(&path, plan.to_string()).expect("it can be written");
    for args in [
        &["report", "results/r"][..],
        &["compare", "results/r", "results/r"],
    ] {
        let ran = bench.call(args);
        assert!(
            matches!(ran.code, Some(2 | 4)),
            "{args:?}: {:?} {}",
            ran.code,
            ran.stderr
        );
        assert!(
            ran.stderr.contains("refers to the launch `gone`"),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn a_pipe_or_a_device_in_the_place_of_a_file_is_refused_at_once() {
    for name in ["plan.json", "run.json"] {
        let (bench, run) = copy();
        let path = run.join(name);
        fs::remove_file(&path).expect("it can be removed");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .expect("a pipe can be made");
        let ran = bench.call(&["report", "results/r"]);
        assert!(
            ran.stderr.contains("not a regular file"),
            "{name}: {}",
            ran.stderr
        );
        fs::remove_file(&path).expect("it can be removed");
        std::os::unix::fs::symlink("/dev/zero", &path).expect("a link can be made");
        let ran = bench.call(&["report", "results/r"]);
        assert!(
            ran.stderr.contains("not a regular file"),
            "{name}: {}",
            ran.stderr
        );
    }
}

/// Figures that somebody wrote who did not measure them: a throughput that duration and tokens do not make.
#[test]
fn a_summary_that_contradicts_itself_is_told_and_not_shown() {
    let (bench, run) = copy();
    let path = summary(&run);
    let text = fs::read_to_string(&path).expect("it can be read");
    for (figure, value, words) in [
        ("output_throughput_tok_s", 320.0, "`output_tokens` is 320"),
        ("completed_requests", 5.0, "`completed_requests` is 5"),
        ("mean_ttft_ms", -3.0, "`mean_ttft_ms` is -3"),
        ("output_throughput_tok_s", 32.0, ""),
    ] {
        let mut actual: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        let mut figures = serde_json::json!({
            "duration_s": 10.0, "output_tokens": 320.0, "output_throughput_tok_s": 32.0,
            "completed_requests": 10.0, "request_throughput_req_s": 1.0, "mean_ttft_ms": 3.0
        });
        figures[figure] = value.into();
        actual["figures"]["matrix"] = figures;
        fs::write(&path, actual.to_string()).expect("it can be written");
        let ran = bench.call(&["report", "results/r"]).exits(0);
        let is_told = names(&ran, "summary.json") && names(&ran, "is not valid: ");
        assert_eq!(
            is_told,
            !words.is_empty(),
            "{figure}: {}{}",
            ran.stdout,
            ran.stderr
        );
        assert!(names(&ran, words), "{figure}: {}{}", ran.stdout, ran.stderr);
    }
}

/// The same measurements under another name are no second run.
#[test]
fn a_copy_of_a_run_is_not_compared_with_it() {
    let (bench, run) = copy();
    let other = bench.path().join("results/other");
    let mut copy = std::process::Command::new("cp");
    assert!(
        copy.arg("-r")
            .args([&run, &other])
            .status()
            .expect("cp runs")
            .success()
    );
    let about = fs::read_to_string(other.join("run.json")).expect("it can be read");
    let mut about: serde_json::Value = serde_json::from_str(&about).expect("it is JSON");
    about["run"] = "other".into();
    fs::write(other.join("run.json"), about.to_string()).expect("it can be written");
    let ran = bench.call(&["compare", "results/r", "results/other"]).exits(5);
    assert!(
        ran.stderr
            .contains("baseline and candidate are the same measurements"),
        "{}",
        ran.stderr
    );
}

/// One start that was copied is one start.
#[test]
fn copies_of_a_start_count_once() {
    let (bench, run) = copy();
    let first = summary(&run);
    let text = fs::read_to_string(&first).expect("it can be read");
    let mut actual: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    actual["start"] = 2.into();
    let folder = first.parent().expect("it lies in a folder");
    let second = folder.with_file_name("copy-s2-r1");
    fs::create_dir(&second).expect("it can be made");
    fs::write(second.join("summary.json"), actual.to_string()).expect("it can be written");
    let path = run.join("plan.json");
    let plan = fs::read_to_string(&path).expect("it can be read");
    let mut plan: serde_json::Value = serde_json::from_str(&plan).expect("it is JSON");
    let mut start = plan["starts"][0].clone();
    start["start"] = 2.into();
    for cell in start["cells"].as_array_mut().expect("a start has cells") {
        cell["start"] = 2.into();
    }
    plan["starts"]
        .as_array_mut()
        .expect("a plan has starts")
        .push(start);
    fs::write(&path, plan.to_string()).expect("it can be written");
    let ran = bench
        .call(&["report", "results/r", "--format", "terminal"])
        .exits(0);
    assert!(
        names(&ran, "is a copy of start 1, repeat 1: only one is used"),
        "{}{}",
        ran.stdout,
        ran.stderr
    );
}
