//! Flags of a launch held against the `--help` of its image, before anything starts.

use std::fs;

use crate::chaos::OwnDaemon;
use crate::daemon::{Daemon, IMAGE, folder, make_image};

const ONE: &str = "  - random-1k-1k: { prompts: 2, input_len: 16, output_len: 4 }\n";
const HELP: &[&str] = &["help: [--help]"];

#[test]
fn a_misspelt_flag_is_named_with_its_place_and_the_nearest_one_and_nothing_starts() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let bench = daemon.bench("misspelt", HELP, "--prefil-rate, 5000", ONE);
    let unknown = format!("`{}` has no flag `--prefil-rate`", IMAGE.as_str());
    let says = [
        unknown.as_str(),
        "matrices/m.yaml:3:",
        "--prefill-rate",
        "nothing was started",
    ];
    for command in [&["check", "--ask-engines"][..], &["run"]] {
        let ran = bench.call(&[command, &["matrices/m.yaml"]].concat()).exits(2);
        for part in says {
            assert!(ran.stderr.contains(part), "`{part}` is not in:\n{}", ran.stderr);
        }
    }
    assert!(!bench.results().exists(), "nothing was begun");
    assert!(daemon.containers("label=matrix.run=check").is_empty());
}

#[test]
fn a_flag_of_the_recipe_is_named_at_its_place_there() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let more = [
        "help: [--help]",
        "command: [--preset, fast, --host, 0.0.0.0, --quite-another-one, \"3\", --model, \"{served}\"]",
    ];
    let bench = daemon.bench("inrecipe", &more, "", ONE);
    let ran = bench
        .call(&["check", "matrices/m.yaml", "--ask-engines"])
        .exits(2);
    assert!(ran.stderr.contains("engines/box.yaml:"), "{}", ran.stderr);
    assert!(ran.stderr.contains("remove `help:`"), "{}", ran.stderr);
}

#[test]
fn an_image_is_asked_once_and_known_flags_pass() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let bench = daemon.bench("asked", HELP, "--prefill-rate, 5000", ONE);
    let ran = bench
        .call(&["check", "matrices/m.yaml", "--ask-engines"])
        .exits(0);
    assert!(!ran.stderr.contains("not checked"), "{}", ran.stderr);
    let kept = || {
        let folder = folder(&bench).join("cache/help");
        let files = fs::read_dir(folder).expect("the answer is kept").flatten();
        files.map(|file| file.path()).collect::<Vec<_>>()
    };
    let [file] = &kept()[..] else {
        panic!("one answer is expected: {:?}", kept());
    };
    // Another answer in its place: whoever reads it again asks nobody.
    fs::write(file, "--one --two --three").expect("it is ours");
    bench
        .call(&["check", "matrices/m.yaml", "--ask-engines"])
        .exits(2)
        .says("has no flag `--prefill-rate`");
    assert!(daemon.containers("label=matrix.run=check").is_empty());
}

#[test]
fn an_image_that_prints_no_help_is_a_note_and_no_failure() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let bench = daemon.bench("mute", &["help: [--no-help-here]"], "--any-flag", ONE);
    bench
        .call(&["check", "matrices/m.yaml", "--ask-engines"])
        .exits(0)
        .says("note: the flags of engine `mute` are not checked: the program exited with code 2");
    let bench = daemon.bench(
        "absent",
        &["help: [--help]", "image: \"127.0.0.1:1/no/such:1\""],
        "--any-flag",
        ONE,
    );
    bench
        .call(&["check", "matrices/m.yaml", "--ask-engines"])
        .exits(0)
        .says("the image `127.0.0.1:1/no/such:1` is not available locally yet");
    let bench = bench.variable("DOCKER_HOST", "unix:///no/such/docker.sock");
    bench
        .call(&["check", "matrices/m.yaml", "--ask-engines"])
        .exits(0)
        .says("not checked: no container daemon was found");
}

#[test]
fn an_image_is_asked_also_where_the_daemon_keeps_no_logs() {
    if Daemon::or_skip().is_none() {
        return;
    }
    let own = OwnDaemon::with("\"log-driver\": \"none\"");
    make_image(&own.daemon.host);
    let bench = own.daemon.bench("nolog", HELP, "--prefil-rate, 5000", ONE);
    let ran = bench.call(&["run", "matrices/m.yaml"]).exits(2);
    ran.says("has no flag `--prefil-rate`");
    assert!(!bench.results().exists(), "nothing was begun");
}
