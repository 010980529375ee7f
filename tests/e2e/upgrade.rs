//! `matrix upgrade`: two builds of the simulated engine, started in turn.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::harness::{Bench, Ran};
use crate::nightly::{newest, nightly};

/// An engine with sets of arguments, and answers to grade.
fn matrix() -> String {
    let engine =
        "  - sim: { variant: vllm, args: [--preset, fast] }\n  - sim: { as: other, variant: vllm }\n";
    let axes = "axes:\n  args: { old: [--step, 4ms, --seed, 1], new: [--step, 4ms, --seed, 2], slow: [--step, 9ms, --seed, 1], twin: [--step, 4ms, --seed, 1] }\n";
    let scenario = "  - l: { dataset: random, prompts: 24, input_len: 40, output_len: 12, concurrency: 8 }\n";
    let rest =
        "datasets: { sharegpt: data/conversations.json }\nquality: { tasks: [arithmetic: { items: 20 }] }\n";
    format!(
        "name: t\nengines:\n{engine}models:\n  - m: {{ tokenizer: data/tokenizer.json }}\nscenarios:\n{scenario}{axes}{rest}"
    )
}

/// The matrix with one engine, which has these settings, and without sets of arguments.
fn one_engine(settings: &str) -> String {
    let is_kept = |line: &&str| {
        let is_set = line.starts_with("axes:") || line.trim_start().starts_with("args: {");
        !is_set && !line.contains("as: other")
    };
    matrix()
        .replace("args: [--preset, fast]", settings)
        .lines()
        .filter(is_kept)
        .map(|line| format!("{line}\n"))
        .collect()
}

fn upgrade(bench: &Bench, more: &[&str]) -> Ran {
    let matrix = bench.matrix();
    let matrix = matrix.to_str().expect("a text");
    let given = ["upgrade", matrix, "--engine", "sim", "--no-calibration"];
    bench.call(&[&given, more].concat())
}

/// The written page as JSON.
fn page(bench: &Bench) -> serde_json::Value {
    page_of(&bench.run_folder())
}

fn page_of(run: &Path) -> serde_json::Value {
    let text = fs::read_to_string(run.join("upgrade.json")).expect("there is a page");
    serde_json::from_str(&text).expect("it is JSON")
}

#[test]
fn equal_builds_may_be_upgraded_and_a_slower_one_may_not() {
    let bench = Bench::of(&matrix());
    upgrade(
        &bench,
        &["--from", "args=old", "--to", "args=new", "--floor", "80%"],
    )
    .exits(0)
    .shows("May I upgrade sim from old to new? Yes: nothing got worse in 1 figure: 1 same, 0 better")
    .shows("simulated");
    let markdown = fs::read_to_string(bench.run_folder().join("upgrade.md")).expect("there is a page");
    assert!(
        markdown.starts_with("# May I upgrade sim from old to new? Yes"),
        "{markdown}"
    );
    assert!(markdown.contains("| engine | --seed | 1 | 2 |"), "{markdown}");
    assert_eq!(page(&bench)["answers"][0]["task"], "arithmetic");

    let bench = Bench::of(&matrix());
    upgrade(&bench, &["--from", "args=old", "--to", "args=slow"])
        .exits(1)
        .shows("May I upgrade sim from old to slow? No: output throughput got worse: -");
    let resources = page(&bench)["resources"].as_array().expect("a list").len();
    // Time to ready; the simulated engine has a power meter.
    assert_eq!(resources, 2);
}

/// A program that runs the simulated engine with more arguments and changes its help.
fn build(bench: &Bench, name: &str, more: &str, help: &str) -> String {
    let path = bench.path().join(name);
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *--help*) \"{0}\" sim --help | sed '{help}'; exit ;; esac\nshift\nexec \"{0}\" sim \"$@\" {more}\n",
        env!("CARGO_BIN_EXE_matrix")
    );
    fs::write(&path, script).expect("it can be written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it can be changed");
    path.to_str().expect("a text").to_owned()
}

#[test]
fn wrong_answers_come_before_a_slower_start_and_the_help_texts_are_compared() {
    let bench = Bench::of(&matrix());
    let old = build(&bench, "old", "", "s/--flood/--deluge/");
    let new = build(
        &bench,
        "new",
        "--wrong-answers 60% --start-delay 2s",
        "s/default: 0%/default: 1%/",
    );
    let [from, to] = [format!("program={old}"), format!("program={new}")];
    let ran = upgrade(&bench, &["--from", &from, "--to", &to, "--only", "args=old"]);
    ran.exits(1)
        .shows("May I upgrade sim from old to new? No: answers of arithmetic got worse: -")
        .shows("- time to ready got worse: +");
    let page = page(&bench);
    let changes = page["changes"].as_array().expect("a list");
    let is_listed = |kind: &str, what: &str| {
        let mut changes = changes.iter();
        changes.any(|change| change["kind"] == kind && change["what"] == what)
    };
    assert_eq!(changes[0]["what"], "program", "{changes:?}");
    assert_eq!(changes[0]["after"].as_str(), Some(new.as_str()));
    assert!(is_listed("removed flag", "--deluge"), "{changes:?}");
    assert!(is_listed("added flag", "--flood"), "{changes:?}");
    assert!(is_listed("default", "--jitter"), "{changes:?}");
}

#[test]
fn what_cannot_be_upgraded_is_refused_before_anything_starts() {
    let bench = Bench::of(&matrix());
    let new = build(&bench, "new", "", "s/--seed/--sown/");
    let lacking = format!("program={new}");
    let good = format!("program={}", env!("CARGO_BIN_EXE_matrix"));
    for (from, to, error) in [
        ("args=old", "args=nwe", "did you mean `new`?"),
        ("args=old", "args=old", "both sides are `args=old`"),
        ("args=old", "2", "`--from` sets `args`, and `--to` sets `version`"),
        ("imgae=a", "image=b", "did you mean `image`?"),
        ("1.0", "2.0", "start the same engine"),
        ("args=old", "args=twin", "start the same engine"),
        (&good, &lacking, "has no flag `--seed`"),
    ] {
        upgrade(&bench, &["--from", from, "--to", to])
            .exits(2)
            .says(error);
    }
    assert!(!bench.results().exists(), "nothing was started");
}

#[test]
fn two_stored_runs_are_the_sides_of_an_upgrade() {
    let bench = Bench::of(&format!("{}repeats: {{ starts: 5 }}\n", matrix()));
    let run = |args: &str, folder: &str| {
        bench
            .run(&["--only", &format!("engine=sim,args={args}"), "--results", folder])
            .exits(0);
        let runs = fs::read_dir(bench.path().join(folder)).expect("there are results");
        let mut names = runs.map(|run| run.expect("it can be read").path());
        let run = names
            .find(|run| run.join("run.json").exists())
            .expect("there is a run");
        format!("run={}", run.display())
    };
    // The same arguments under one name, as before and after a change of the host.
    let before = run("old", "before");
    let text = fs::read_to_string(bench.matrix()).expect("it can be read");
    bench.rewrite(&text.replace("old: [--step, 4ms", "old: [--step, 9ms"));
    let after = run("old", "after");
    upgrade(&bench, &["--from", &before, "--to", &after])
        .exits(1)
        .shows("No: output throughput got worse: -")
        .shows("measured one after the other");
    let folder = Path::new(after.trim_start_matches("run="));
    assert_eq!(page_of(folder)["changes"][0]["what"], "run");
    upgrade(&bench, &["--from", &before, "--to", &before])
        .exits(2)
        .says("both sides are");
    upgrade(&bench, &["--from", &before, "--to", "2"])
        .exits(2)
        .says("`--from` sets `run`, and `--to` sets `version`");
}

/// Three versions of which the last two answer wrongly, as fast as the first.
#[test]
fn a_search_by_upgrades_finds_the_version_whose_answers_got_worse() {
    let versions = one_engine("version: [v1, v2, v3], args: [--step, 4ms]");
    let wrong = ["v2", "v3"]
        .map(|version| format!("  - {{ when: {{ version: {version} }}, args: [--wrong-answers, 60%] }}\n"))
        .concat();
    let bench = Bench::of(&format!("{versions}overrides:\n{wrong}"));
    let search = ["bisect", "matrices/m.yaml", "--no-calibration", "--floor", "80%"];
    bench
        .call(&[&search[..], &["--criterion", "upgrade"]].concat())
        .exits(1)
        .shows("May I upgrade sim from v1 to v3? No: answers of arithmetic got worse: -")
        .shows("page: ")
        .shows("first bad version: v2 (last good: v1), by answers of arithmetic of ");
    assert_eq!(
        page_of(&newest(&bench))["answers"][0]["task"],
        "arithmetic",
        "of the last step"
    );
    bench
        .call(&[&search[..], &["--criterion", "speed"]].concat())
        .exits(2)
        .says("[possible values: metrics, upgrade]");
}

#[test]
fn a_night_with_another_build_than_its_baseline_gets_the_page_and_its_answers_are_compared() {
    for paired in [true, false] {
        let night = |more: &str| {
            let text = one_engine(&format!("args: [--step, 4ms{more}]"));
            format!("{text}repeats: {{ starts: 3 }}\nnightly: {{ paired: {paired} }}\n")
        };
        let bench = Bench::of(&night(""));
        let floor = ["--floor", "80%"];
        let first = nightly(&bench, &floor).exits(0);
        assert!(!first.stdout.contains("May I upgrade"), "{}", first.stdout);
        bench
            .call(&[
                "baseline",
                "set",
                "matrices/m.yaml",
                "--reason",
                "the first night",
            ])
            .exits(0);
        let same = nightly(&bench, &floor);
        assert!(!same.stdout.contains("May I upgrade"), "{}", same.stdout);
        bench.rewrite(&night(", --wrong-answers, 60%"));
        let question = "May I upgrade sim from the baseline to this nightly run? ";
        let ran = nightly(&bench, &floor).shows("/upgrade.html");
        match paired {
            true => ran
                .exits(3)
                .shows(&format!("{question}No: answers of arithmetic got worse: -")),
            // Nothing says what the answers of the baseline were.
            false => ran.shows(question),
        };
        let changes = page_of(&newest(&bench))["changes"].clone();
        let changes = changes.as_array().expect("a list");
        assert_eq!(changes[0]["what"], "run", "{changes:?}");
        assert!(
            changes.iter().any(|change| change["what"]
                .as_str()
                .is_some_and(|what| what.contains("--wrong-answers"))),
            "{changes:?}"
        );
    }
}
