//! The schedules to copy: what will read them finds nothing wrong, and the command in each is one that we understand.

use std::fs;
use std::process::Command;

use crate::harness::{SCIPY, repository};

fn text(name: &str) -> String {
    let path = repository().join("matrices/schedules").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn systemd_finds_nothing_wrong_with_service_and_timer() {
    let service = text("matrix-nightly.service");
    let folder = tempfile::tempdir().expect("a folder can be made");
    // The binary and the user of the example are not here.
    let here = service
        .replace("/usr/local/bin/matrix", &crate::binary::matrix())
        .replace("User=bench\n", "");
    fs::write(folder.path().join("matrix-nightly.service"), here).expect("a file can be written");
    fs::write(
        folder.path().join("matrix-nightly.timer"),
        text("matrix-nightly.timer"),
    )
    .expect("a file can be written");
    let verified = Command::new("systemd-analyze")
        .args([
            "verify",
            "--man=no",
            "matrix-nightly.service",
            "matrix-nightly.timer",
        ])
        .current_dir(folder.path())
        .env("SYSTEMD_UNIT_PATH", format!("{}:", folder.path().display()))
        .output();
    let Ok(verified) = verified else {
        crate::skip::skip("needs systemd-analyze");
        return;
    };
    let said = String::from_utf8_lossy(&verified.stderr).into_owned();
    let ours: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("matrix-nightly"))
        .collect();
    assert!(ours.is_empty(), "{said}");
    let calendar = Command::new("systemd-analyze")
        .args(["calendar", "*-*-* 02:00:00"])
        .status();
    assert!(calendar.expect("it ran before").success());
}

#[test]
fn the_crontab_has_five_fields() {
    let crontab = text("nightly.cron");
    let lines: Vec<&str> = crontab
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with("SHELL="))
        .collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let fields: Vec<&str> = lines[0].splitn(6, ' ').collect();
    let is_field = |field: &&str| *field == "*" || field.parse::<u32>().is_ok_and(|number| number < 60);
    assert!(fields[..5].iter().all(is_field), "{fields:?}");
    assert!(!fields[5].contains('%'), "cron makes line ends of percent signs");
}

#[test]
fn the_workflow_is_one_that_github_takes() {
    let Some(python) = SCIPY.python() else {
        crate::skip::skip(SCIPY.skipped);
        return;
    };
    let checked = Command::new(python.join("check-jsonschema"))
        .args(["--builtin-schema", "vendor.github-workflows"])
        .arg(repository().join("matrices/schedules/github-nightly.yaml"))
        .output()
        .expect("it runs");
    assert!(
        checked.status.success(),
        "{}",
        String::from_utf8_lossy(&checked.stdout)
    );
}
