//! What must not change by accident: the digest of every shipped cell, which resumes, baselines and caches go by, and the bytes of every report.
//! `tests/golden/` has what was recorded; with `MATRIX_RECORD=1` it is made anew.

#[path = "support/binary.rs"]
mod binary;

use std::path::PathBuf;
use std::process::Command;

use matrix::cli::variable;
use serde_json::Value;
use sha2::{Digest, Sha256};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// What a command prints, run in the repository.
fn printed(args: &[&str]) -> String {
    let output = Command::new(binary::matrix())
        .args(args)
        .current_dir(root())
        .output()
        .expect("the binary runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {stderr}");
    String::from_utf8(output.stdout).expect("what is printed is text")
}

/// Compares with the recording, or makes it.
fn is_as_recorded(name: &str, now: &str) {
    let path = root().join("tests/golden").join(name);
    if variable("MATRIX_RECORD").is_some() {
        std::fs::write(&path, now).expect("the recording can be written");
        return;
    }
    let before = std::fs::read_to_string(&path).expect("there is a recording");
    for (before, now) in before.lines().zip(now.lines()) {
        assert_eq!(before, now, "{name}");
    }
    assert_eq!(before.lines().count(), now.lines().count(), "{name}");
}

#[test]
fn digests_of_shipped_cells_are_those_that_runs_were_made_with() {
    let mut names: Vec<String> = std::fs::read_dir(root().join("matrices"))
        .expect("the folder is there")
        .map(|entry| {
            entry
                .expect("it can be read")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .filter(|name| name.ends_with(".yaml"))
        .collect();
    names.sort();
    let mut lines = String::new();
    for name in names {
        let plan: Value = serde_json::from_str(&printed(&["plan", &format!("matrices/{name}"), "--json"]))
            .expect("it is JSON");
        for cell in plan["cells"].as_array().expect("a plan has cells") {
            let text = |field: &str| cell[field].as_str().expect("a cell has it").to_owned();
            lines.push_str(&format!("{name} {} {}\n", text("content"), text("cell")));
        }
    }
    is_as_recorded("digests.txt", &lines);
}

#[test]
fn reports_of_an_old_run_have_the_same_bytes() {
    let lines = ["markdown", "csv", "json", "html"].map(|format| {
        let report = printed(&["report", "tests/fixtures/run-format-1", "--format", format]);
        let digest = Sha256::digest(report.as_bytes());
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{format} {} bytes {hex}\n", report.len())
    });
    is_as_recorded("reports.txt", &lines.concat());
}
