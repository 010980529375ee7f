//! What happens before anything is started.

use std::fs;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Bench, sims};

/// Each command waits for its matrix: nobody writes into the pipe that it reads it from.
#[test]
fn a_signal_before_anything_was_started_ends_every_command_with_130() {
    let bench = Bench::of("name: t\n");
    fs::remove_file(bench.matrix()).expect("it was made");
    rustix::fs::mkfifoat(rustix::fs::CWD, bench.matrix(), 0o600.into()).expect("a pipe can be made");
    for command in ["run", "nightly", "noise", "bisect", "plan", "check"] {
        for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
            // Below `nohup` SIGHUP is ignored from the start, and stays so.
            let mut child = bench
                .wrapped(&["env", "--default-signal=HUP"], &[command, "matrices/m.yaml"])
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the binary runs");
            // This returns once the other side is open.
            let writer = fs::OpenOptions::new().write(true).open(bench.matrix());
            let _writer = writer.expect("it reads the matrix");
            let id = i32::try_from(child.id()).expect("ids are small");
            kill_process(Pid::from_raw(id).expect("it is an id"), signal).expect("it lives");
            let status = child.wait().expect("it ends");
            assert_eq!(status.code(), Some(130), "{command}: {signal:?}: {status}");
        }
    }
    assert!(!bench.results().exists(), "nothing was begun");
}

#[test]
fn check_runs_nothing_that_a_recipe_names_unless_it_is_asked_to() {
    let bench = Bench::of(&sims(
        &[("a", "vllm", "")],
        "  - random-ids: { dataset: random-ids, prompts: 2, input_len: 4, output_len: 2 }\n",
    ));
    let engines = bench.path().join("engines");
    let recipe = fs::read_to_string(engines.join("sim.yaml")).expect("it is shipped");
    let asked = "help: [\"{matrix}\", sim, --help]";
    assert!(recipe.contains(asked), "{recipe}");
    fs::remove_file(&engines).expect("the link can be removed");
    fs::create_dir(&engines).expect("a folder can be made");
    let trap = "help: [sh, -c, \"touch ran\"]";
    fs::write(engines.join("sim.yaml"), recipe.replace(asked, trap)).expect("a file can be written");
    let ran = bench.call(&["check", "matrices/m.yaml"]).exits(0);
    ran.says("`--ask-engines`");
    assert!(!bench.path().join("ran").exists(), "the recipe's program was run");
    bench
        .call(&["check", "matrices/m.yaml", "--ask-engines"])
        .exits(0);
    assert!(bench.path().join("ran").exists());
}

#[test]
fn a_run_that_has_no_room_to_begin_leaves_nothing_and_is_not_to_be_resumed() {
    let bench = Bench::of(&sims(
        &[("a", "vllm", "")],
        "  - random-ids: { dataset: random-ids, prompts: 2, input_len: 4, output_len: 2, warmup: 0 }\n",
    ));
    for blocks in ["1", "2"] {
        let limit = format!("ulimit -f {blocks}; exec \"$@\"");
        let wrapper = ["bash", "-c", limit.as_str(), "-"];
        let run = ["run", "matrices/m.yaml", "--no-calibration", "--results", "r"];
        let output = bench.wrapped(&wrapper, &run).output().expect("the binary runs");
        let ran = crate::harness::Ran::from(output);
        assert!(matches!(ran.code, Some(4 | 6)), "{}", ran.stderr);
        assert!(!ran.stderr.contains("--resume"), "{}", ran.stderr);
        let left = fs::read_dir(bench.path().join("r"))
            .into_iter()
            .flatten()
            .flatten();
        let left: Vec<_> = left
            .map(|entry| entry.file_name())
            .filter(|name| *name != ".lock")
            .collect();
        assert!(left.is_empty(), "{blocks}: {left:?}: {}", ran.stderr);
    }
}

#[test]
fn a_junit_file_that_could_never_be_written_is_refused_before_anything_starts() {
    let bench = Bench::of(&sims(
        &[("a", "vllm", "")],
        "  - random-ids: { dataset: random-ids, prompts: 2, input_len: 4, output_len: 2, warmup: 0 }\n",
    ));
    let pipe = bench.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).expect("a pipe can be made");
    for (file, why) in [
        ("pipe", "named pipe"),
        ("nowhere/j.xml", "No such file"),
        ("matrices", "directory"),
    ] {
        let ran = bench
            .call(&["nightly", "matrices/m.yaml", "--junit", file])
            .exits(2);
        ran.says(why).says("--junit");
    }
    assert!(!bench.path().join("nowhere").exists());
}
