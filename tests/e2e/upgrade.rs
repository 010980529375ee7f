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
    let scenario = "  - l: { dataset: random, prompts: 48, input_len: 40, output_len: 12, concurrency: 8 }\n";
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
        .shows("May I upgrade sim from old to slow? No: output throughput in the steady state got worse: -");
    let page = page(&bench);
    let resources = page["resources"].as_array().expect("a list");
    // Time to ready; the simulated engine has a power meter.
    assert_eq!(resources.len(), 2);
    // One metric beside them, and what a program needs to compute the verdicts again.
    assert_eq!(page["figures"], 3);
    for figure in resources
        .iter()
        .chain(page["speed"]["rows"].as_array().expect("a list"))
    {
        let p = figure["p"].as_f64().expect("a number");
        assert!(figure["adjusted_p"].as_f64() >= Some(p), "{figure}");
        assert!((0.0..=1.0).contains(&p), "{figure}");
        for side in ["baseline_starts", "candidate_starts"] {
            assert_eq!(figure[side].as_array().map(Vec::len), Some(5), "{figure}");
        }
    }
    let markdown = fs::read_to_string(bench.run_folder().join("upgrade.md")).expect("there is a page");
    assert!(markdown.contains("in the joint test of 3 figures"), "{markdown}");
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
    // Wrong answers are not measured again until they are good ones by chance.
    let again = [
        "--from", &from, "--to", &to, "--only", "args=old", "--resume", "--failed",
    ];
    upgrade(&bench, &again)
        .exits(1)
        .shows("No: answers of arithmetic got worse: -")
        .says("note: `--failed` does not repeat 5 measurements with wrong answers");
}

/// Arguments for [`build`] that let its first start end in the middle of a load.
fn dies_once(bench: &Bench, name: &str) -> String {
    let mark = bench.path().join(format!("{name}-died"));
    let mark = mark.display();
    format!("$([ -e {mark} ] || {{ touch {mark}; echo --die-after 20requests; }})")
}

#[test]
fn a_crash_on_both_sides_is_undecided_and_one_that_was_measured_again_still_counts() {
    let matrix = matrix().replace("quality: { tasks: [arithmetic: { items: 20 }] }\n", "");
    let only = ["--only", "args=old", "--floor", "80%"];
    let bench = Bench::of(&matrix);
    let old = build(&bench, "old", &dies_once(&bench, "old"), "");
    let new = build(&bench, "new", &dies_once(&bench, "new"), "");
    let [from, to] = [format!("program={old}"), format!("program={new}")];
    upgrade(&bench, &[&["--from", &from, "--to", &to], &only[..]].concat())
        .exits(3)
        .shows("Undecided: starts of both sides crash: 1 of 5 starts crashed, compared with 1 of 5")
        .shows("compared with 1 of 5 on the baseline (failed in ");

    let bench = Bench::of(&matrix);
    let old = build(&bench, "old", "", "");
    let new = build(&bench, "new", &dies_once(&bench, "new"), "");
    let [from, to] = [format!("program={old}"), format!("program={new}")];
    let sides = ["--from", &from, "--to", &to];
    upgrade(&bench, &[&sides, &only[..]].concat())
        .exits(1)
        .shows("No: less reliable: 1 of 5 starts crashed, compared with 0 of 5 on the baseline (failed in ");
    upgrade(&bench, &[&sides, &only[..], &["--resume", "--failed"]].concat())
        .exits(1)
        .shows("No: less reliable: 1 of 6 starts crashed, compared with 0 of 5 on the baseline")
        .shows("Measured again for new (")
        .shows("): start 1, repeat 1: failed in ");
    // Another load asks another question, but what it replaces is named. With the load from before, what was measured counts again.
    let continued = [&sides, &only[..], &["--resume", "--yes"]].concat();
    bench.rewrite(&matrix.replace("prompts: 48", "prompts: 56"));
    upgrade(&bench, &continued)
        .exits(0)
        .shows("Measured again for new (")
        .shows(" (measured with an earlier version of the matrix).");
    bench.rewrite(&matrix);
    upgrade(&bench, &continued)
        .exits(1)
        .shows("No: less reliable: 1 of 6 starts crashed, compared with 0 of 5 on the baseline");
}

#[test]
fn wrong_answers_are_not_measured_again_by_changing_the_matrix_and_changing_it_back() {
    let matrix = matrix();
    let bench = Bench::of(&matrix);
    let mark = bench.path().join("was-wrong");
    let mark = mark.display();
    let wrong_at_first = format!("$([ -e {mark} ] || {{ touch {mark}; echo --wrong-answers 60%; }})");
    let old = build(&bench, "old", "", "");
    let new = build(&bench, "new", &wrong_at_first, "");
    let [from, to] = [format!("program={old}"), format!("program={new}")];
    let arguments = [
        "--from", &from, "--to", &to, "--only", "args=old", "--floor", "80%",
    ];
    upgrade(&bench, &arguments)
        .exits(1)
        .shows("No: answers of arithmetic got worse: -");
    let continued = [&arguments[..], &["--resume", "--yes"]].concat();
    bench.rewrite(&matrix.replace("prompts: 48", "prompts: 56"));
    upgrade(&bench, &continued)
        .exits(0)
        .shows("Measured again for new (");
    bench.rewrite(&matrix);
    upgrade(&bench, &continued)
        .exits(1)
        .says(
            "a change of the matrix was undone, so 10 measurements from before the change can be used again",
        )
        .shows("No: answers of arithmetic got worse: -");
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
        (
            "args=old",
            "2",
            "`--from` sets `args`, but `--to` sets another setting, `version`",
        ),
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
    let worse = "old: [--wrong-answers, 60%, --step, 9ms";
    bench.rewrite(&text.replace("old: [--step, 4ms", worse));
    let after = run("old", "after");
    upgrade(&bench, &["--from", &before, "--to", &after])
        .exits(1)
        .shows("No: answers of arithmetic got worse: -")
        .shows("- output throughput in the steady state got worse: -")
        .shows("measured one after the other");
    let folder = Path::new(after.trim_start_matches("run="));
    let page = page_of(folder);
    assert_eq!(page["changes"][0]["what"], "run");
    let first = Path::new(before.trim_start_matches("run="));
    let first_name = first.file_name().and_then(|name| name.to_str());
    assert_eq!(page["answers"][0]["comparison"]["run"].as_str(), first_name);
    for (more, error) in [
        (vec!["--starts", "7"], "`--starts` does nothing with `run=`"),
        (vec!["--resume"], "`--resume` does nothing with `run=`"),
        (
            vec!["--only", "scenario=x"],
            "that `--engine` and `--only` select",
        ),
    ] {
        upgrade(
            &bench,
            &[&["--from", &before, "--to", &after][..], &more].concat(),
        )
        .exits(2)
        .says(error);
    }
    bench
        .call(&[
            "upgrade",
            "matrices/m.yaml",
            "--engine",
            "sin",
            "--from",
            &before,
            "--to",
            &after,
        ])
        .exits(2)
        .says("neither run has an engine `sin`")
        .says("did you mean `sim`?");
    // What a run did not record is named.
    let known = |page: serde_json::Value| !page["unknown"].to_string().contains("driver of the baseline");
    assert!(known(page));
    fs::remove_file(first.join("machine.json")).expect("it can be removed");
    upgrade(&bench, &["--from", &before, "--to", &after]).exits(1);
    assert!(!known(page_of(folder)));
    upgrade(&bench, &["--from", &before, "--to", &before])
        .exits(2)
        .says("`--from` and `--to` name the same measurements");
    upgrade(&bench, &["--from", &before, "--to", "2"])
        .exits(2)
        .says("`--from` sets `run`, but `--to` sets another setting, `version`");
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
        .shows("first bad version: v2 (last good: v1), judged by answers of arithmetic of ");
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

/// A bench whose first night is the baseline; then its matrix is rewritten, and a second night is run. Returns that night's output.
fn second_night(first: &str, second: &str) -> (Bench, Ran) {
    let bench = Bench::of(first);
    let floor = ["--floor", "80%"];
    let ran = nightly(&bench, &floor).exits(0);
    assert!(!ran.stdout.contains("May I upgrade"), "{}", ran.stdout);
    let set = [
        "baseline",
        "set",
        "matrices/m.yaml",
        "--reason",
        "the first night",
    ];
    bench.call(&set).exits(0);
    bench.rewrite(second);
    let ran = nightly(&bench, &floor);
    (bench, ran)
}

#[test]
fn a_night_with_another_build_than_its_baseline_gets_the_page_and_its_answers_are_compared() {
    for paired in [true, false] {
        // The reference of the matrix is an engine that answers as badly as the candidate does later.
        let other =
            "  - sim: { as: other, variant: vllm, args: [--step, 4ms, --wrong-answers, 60%] }\nmodels:";
        let night = |more: &str| {
            let text = one_engine(&format!("args: [--step, 4ms{more}]"));
            let text = match paired {
                true => text,
                false => text
                    .replace("models:", other)
                    .replace("quality: { ", "quality: { reference: other, "),
            };
            format!("{text}repeats: {{ starts: 3 }}\nnightly: {{ paired: {paired} }}\n")
        };
        let (bench, same) = second_night(&night(""), &night(""));
        assert!(!same.stdout.contains("May I upgrade"), "{}", same.stdout);
        bench.rewrite(&night(", --wrong-answers, 60%"));
        let question = "May I upgrade sim from the baseline to this nightly run? ";
        let ran = nightly(&bench, &["--floor", "80%"])
            .shows("/upgrade.html")
            .shows(&format!("{question}No: answers of arithmetic got worse: -"));
        let page = page_of(&newest(&bench));
        let compared = &page["answers"][0]["comparison"];
        let reference = compared["reference"].as_str().expect("a key");
        assert!(reference.starts_with("engine=sim,"), "{compared}");
        assert_eq!(compared["run"].is_null(), paired, "{compared}");
        let ran = ran.exits(1).shows("worse: engine=sim,");
        if paired {
            ran.shows("reference: the baseline, which was started alternately with the candidate");
            // The cell is invalid by its answers, and its row says so.
            assert_eq!(page["speed"]["rows"][0]["refused"], "invalid", "{page}");
        }
        assert_eq!(page["metrics_judged_by"], "nightly run");
        let resources = page["resources"].as_array().expect("a list").len();
        assert_eq!(page["figures"], resources, "{page}");
        let night = fs::read_to_string(newest(&bench).join("nightly.md")).expect("there is a page");
        assert!(
            night.contains("upgrade of sim: no (answers of arithmetic got worse: "),
            "{night}"
        );
        let changes = page["changes"].as_array().expect("a list");
        assert_eq!(changes[0]["what"], "run", "{changes:?}");
        assert!(
            changes.iter().any(|change| change["what"]
                .as_str()
                .is_some_and(|what| what.contains("--wrong-answers"))),
            "{changes:?}"
        );
    }
}

#[test]
fn worse_answers_of_a_build_that_looks_the_same_fail_the_night() {
    let programs = Bench::of("name: t");
    let program = build(&programs, "engine", "", "");
    let command = format!("[\"{program}\", sim, --model, \"{{served}}\", --port, \"{{port}}\"]");
    let night = one_engine(&format!("command: {command}, args: [--step, 4ms]"));
    let night = format!("{night}repeats: {{ starts: 5 }}\n");
    let (bench, same) = second_night(&night, &night);
    same.exits(0);
    build(&programs, "engine", "--wrong-answers 60%", "");
    let ran = nightly(&bench, &["--floor", "80%"])
        .exits(1)
        .shows("worse: engine=sim,")
        .shows("answers of arithmetic got worse: -");
    assert!(!ran.stdout.contains("May I upgrade"), "{}", ran.stdout);
}

#[test]
fn another_version_of_the_matrix_is_another_build_and_answers_that_one_night_graded_are_undecided() {
    let night = |version: &str| {
        let text = one_engine(&format!("version: {version}, args: [--step, 4ms]"));
        format!("{text}repeats: {{ starts: 5 }}\n")
    };
    let without = night("v2").replace("quality: {", "# {");
    let (bench, ran) = second_night(&night("v1"), &without);
    ran.shows("May I upgrade sim from v1 to v2? Undecided: answers of arithmetic were not compared: the answers of only one side were graded, those of the candidate were not");
    let changes = page_of(&newest(&bench))["changes"].clone();
    assert_eq!(changes[1]["what"], "version in the matrix", "{changes}");
    assert_eq!(
        [&changes[1]["before"], &changes[1]["after"]],
        ["v1", "v2"],
        "{changes}"
    );
}
