//! The commands of the shipped schedules are valid.

use std::path::{Path, PathBuf};

use clap::Parser;

use super::{Cli, Command};

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn schedule(name: &str) -> String {
    let path = repository().join("matrices/schedules").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Parses the command of a line, up to a redirection of the shell.
fn parse(line: &str) -> Command {
    let at = line
        .find("matrix ")
        .unwrap_or_else(|| panic!("no command in `{line}`"));
    let command = line[at..].split(">>").next().unwrap_or_default();
    let words = command.split_whitespace().map(|word| word.trim_matches('"'));
    let cli = Cli::try_parse_from(words).unwrap_or_else(|error| panic!("`{command}`: {error}"));
    cli.command
}

fn check_nightly(line: &str) {
    let Command::Nightly(args) = parse(line) else {
        panic!("`{line}` is no nightly run")
    };
    assert!(repository().join(Path::new(&args.run.matrix)).exists(), "{line}");
    assert!(args.keep.is_some() && args.junit.is_some(), "{line}");
}

#[test]
fn the_commands_of_the_schedules_are_valid() {
    let service = schedule("matrix-nightly.service");
    let starts: Vec<&str> = service
        .lines()
        .filter(|line| line.starts_with("ExecStart="))
        .collect();
    assert_eq!(starts.len(), 1);
    check_nightly(starts[0]);

    let crontab = schedule("nightly.cron");
    let mut lines = crontab.lines().filter(|line| line.contains("matrix nightly"));
    let command = lines.find(|line| !line.starts_with('#'));
    check_nightly(command.expect("the crontab has a command"));

    let workflow: serde_yaml::Value =
        serde_yaml::from_str(&schedule("github-nightly.yaml")).expect("the workflow is YAML");
    let steps = workflow["jobs"]["nightly"]["steps"]
        .as_sequence()
        .expect("it has steps");
    let runs: Vec<&str> = steps.iter().filter_map(|step| step["run"].as_str()).collect();
    assert_eq!(runs.len(), 2);
    check_nightly(runs[0]);
    assert!(matches!(parse(runs[1]), Command::History(_)), "{}", runs[1]);
}
