//! What must not change by accident: the digest of every shipped cell, which resumes, baselines and caches go by, and the bytes of every report.
//! `tests/golden/` has what was recorded; with `MATRIX_RECORD=1` it is made anew.

#[path = "support/binary.rs"]
mod binary;

use std::path::{Path, PathBuf};
use std::process::Command;

use matrix::cli::env_variable;
use serde_json::Value;
use sha2::{Digest, Sha256};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// What a command prints, run in the repository.
fn printed(args: &[&str]) -> String {
    printed_in(&root(), args)
}

fn printed_in(folder: &Path, args: &[&str]) -> String {
    let output = Command::new(binary::matrix())
        .args(args)
        .current_dir(folder)
        .output()
        .expect("the binary runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {stderr}");
    String::from_utf8(output.stdout).expect("what is printed is text")
}

/// Compares with the recording, or makes it.
fn is_as_recorded(name: &str, now: &str) {
    let path = root().join("tests/golden").join(name);
    if env_variable("MATRIX_RECORD").is_some() {
        std::fs::write(&path, now).expect("the recording can be written");
        return;
    }
    let before = std::fs::read_to_string(&path).expect("there is a recording");
    for (before, now) in before.lines().zip(now.lines()) {
        assert_eq!(before, now, "{name}");
    }
    assert_eq!(before.lines().count(), now.lines().count(), "{name}");
}

/// The digest of every cell of these matrices, a line each.
fn digests(folder: &Path, names: &[String]) -> String {
    let mut lines = String::new();
    for name in names {
        let plan: Value = serde_json::from_str(&printed_in(
            folder,
            &["plan", &format!("matrices/{name}"), "--json"],
        ))
        .expect("it is JSON");
        for cell in plan["cells"].as_array().expect("a plan has cells") {
            let text = |field: &str| cell[field].as_str().expect("a cell has it").to_owned();
            lines.push_str(&format!("{name} {} {}\n", text("content"), text("cell")));
        }
    }
    lines
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
        .filter(|name| name.ends_with(".yaml") && name != "prices.yaml")
        .collect();
    names.sort();
    is_as_recorded("digests.txt", &digests(&root(), &names));
}

#[test]
fn reports_of_an_old_run_have_the_same_bytes() {
    let lines = ["markdown", "csv", "csv-long", "json", "html"].map(|format| {
        let report = printed(&["report", "tests/fixtures/run-format-1", "--format", format]);
        let digest = Sha256::digest(report.as_bytes());
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{format} {} bytes {hex}\n", report.len())
    });
    is_as_recorded("reports.txt", &lines.concat());
}

/// Recipes and matrices in the spelling of 71c2603, whose runs, baselines and caches are still found.
#[test]
fn keys_of_earlier_versions_are_read_and_give_the_same_digests() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (engines, matrices) = (folder.path().join("engines"), folder.path().join("matrices"));
    for made in [&engines, &matrices] {
        std::fs::create_dir(made).expect("a folder can be made");
    }
    let recipes = root().join("tests/fixtures/recipes-earlier");
    for recipe in std::fs::read_dir(recipes).expect("the folder is there") {
        let recipe = recipe.expect("it can be read").path();
        let name = recipe.file_name().expect("it has a name");
        std::fs::copy(&recipe, engines.join(name)).expect("it can be copied");
    }
    std::os::unix::fs::symlink(root().join("matrices/data"), matrices.join("data"))
        .expect("a link can be made");
    let matrix = std::fs::read_to_string(root().join("matrices/nightly.yaml")).expect("the matrix is there");
    let mut matrix = matrix.replace("{ starts: 5 }", "{ starts: 5, until: 2%, most: 20 }");
    matrix.push_str("validity: { warm: 0.05 }\n");
    let names = ["qwen3.yaml", "demo.yaml", "gpt-oss.yaml", "npu.yaml"];
    for name in names {
        std::fs::copy(root().join("matrices").join(name), matrices.join(name)).expect("it can be copied");
    }
    std::fs::write(matrices.join("nightly.yaml"), matrix).expect("it can be written");
    let names: Vec<String> = names
        .into_iter()
        .chain(["nightly.yaml"])
        .map(str::to_owned)
        .collect();
    is_as_recorded("digests-earlier.txt", &digests(folder.path(), &names));
    let check = Command::new(binary::matrix())
        .args(["plan", "matrices/nightly.yaml"])
        .current_dir(folder.path())
        .output()
        .expect("the binary runs");
    let stderr = String::from_utf8_lossy(&check.stderr);
    for hint in [
        "`contact` is now named `api`",
        "`signs` is now named `log_patterns`",
        "`dead` is now named `fatal`",
        "`blame` is now named `fault`",
        "`warm` is now named `max_cache_hits`",
        "`until` is now named `target_ci`",
        "`most` is now named `max_starts`",
    ] {
        assert!(stderr.contains(hint), "{hint} is not in:\n{stderr}");
    }
}
