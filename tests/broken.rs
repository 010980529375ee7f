//! Broken matrices: what each is answered with, word for word.

#[path = "support/binary.rs"]
mod binary;

use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn every_broken_matrix_is_answered_with_place_and_mend() {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder())
        .expect("the folder is there")
        .map(|entry| entry.expect("the folder is readable").path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "yaml"))
        .collect();
    files.sort();
    assert!(files.len() >= 30, "only {} broken matrices", files.len());
    for file in files {
        let name = file
            .file_stem()
            .expect("a file has a name")
            .to_string_lossy()
            .into_owned();
        let output = Command::new(binary::matrix())
            .args(["check", &format!("{name}.yaml")])
            .current_dir(folder())
            .env("NO_COLOR", "1")
            .output()
            .expect("the binary runs");
        let said = String::from_utf8(output.stderr).expect("messages are UTF-8");
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(output.stdout.is_empty(), "{name} wrote to stdout");
        for planted in ["hf_planted", "sk-planted"] {
            assert!(!said.contains(planted), "{name} shows the secret:\n{said}");
        }
        insta::with_settings!({ snapshot_path => "broken", prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(name, said);
        });
    }
}

#[test]
fn a_metric_that_nobody_reads_is_named_in_the_recipe() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let engines = folder.path().join("engines");
    std::fs::create_dir(&engines).expect("a folder can be made");
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("engines/sim.yaml");
    let recipe = std::fs::read_to_string(shipped).expect("the recipe is there");
    let recipe = recipe
        .replace("name: sim", "name: mine")
        .replace("      waiting: [\"vllm:", "      wating: [\"vllm:");
    std::fs::write(engines.join("mine.yaml"), recipe).expect("a file can be written");
    let text = "name: t\nengines: [mine]\nmodels: [m]\nscenarios: [sharegpt]\n";
    std::fs::write(folder.path().join("m.yaml"), text).expect("a file can be written");
    let output = Command::new(binary::matrix())
        .args(["check", "m.yaml"])
        .current_dir(folder.path())
        .output()
        .expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    for part in ["unknown metric `wating`", "did you mean `waiting`?", "mine.yaml"] {
        assert!(said.contains(part), "`{part}` is not in:\n{said}");
    }
}

/// What `check` says of a matrix whose engine is the shipped simulated one with this change of its recipe.
fn check_recipe(from: &str, to: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let engines = folder.path().join("engines");
    std::fs::create_dir(&engines).expect("a folder can be made");
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("engines/vllm.yaml");
    let recipe = std::fs::read_to_string(shipped).expect("the recipe is there");
    let changed = recipe.replace("name: vllm", "name: mine").replacen(from, to, 1);
    assert!(changed.contains(to), "{from} is in the recipe");
    std::fs::write(engines.join("mine.yaml"), changed).expect("a file can be written");
    let text = "name: t\nengines: [mine]\nmodels: [m]\nscenarios: [sharegpt]\n";
    std::fs::write(folder.path().join("m.yaml"), text).expect("a file can be written");
    let output = Command::new(binary::matrix())
        .args(["check", "m.yaml"])
        .current_dir(folder.path())
        .output()
        .expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

#[test]
fn a_mount_that_no_daemon_takes_is_found_in_the_recipe() {
    let of = "mounts: [{ source: \"{hf_home}\", target: /root/.cache/huggingface_hub }]";
    let mounts = |targets: &str| format!("mounts: [{targets}]");
    let twice = mounts("{ source: /etc, target: /x }, { source: /usr, target: /x/ }");
    let relative = mounts("{ source: /etc, target: rel/target }");
    for (recipe, message) in [
        (twice, "two mounts have the target `/x/`"),
        (
            relative,
            "the target `rel/target` of a mount is not an absolute path",
        ),
    ] {
        let (code, said) = check_recipe(of, &recipe);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(message) && said.contains("mine.yaml:"), "{said}");
    }
}

#[test]
fn a_matrix_called_like_an_engine_is_read() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let text = "name: t\nengines: [vllm]\nmodels: [m]\nscenarios: [sharegpt]\n";
    std::fs::write(folder.path().join("vllm.yaml"), text).expect("a file can be written");
    let output = Command::new(binary::matrix())
        .args(["check", "vllm.yaml"])
        .current_dir(folder.path())
        .output()
        .expect("the binary runs");
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/broken")
}

#[test]
fn a_recipe_with_two_ways_to_cold_caches_is_refused() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let engines = folder.path().join("engines");
    std::fs::create_dir(&engines).expect("a folder can be made");
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("engines/llama.cpp.yaml");
    let recipe = std::fs::read_to_string(shipped).expect("the recipe is there");
    for (more, ways) in [
        (
            "restart_for_cells: true",
            "`unique_prefixes` and `restart_for_cells`",
        ),
        (
            "reset: { method: POST, path: /reset }",
            "`reset` and `unique_prefixes`",
        ),
    ] {
        let recipe = recipe.replace("name: llama.cpp", "name: mine").replace(
            "  unique_prefixes: true\n",
            &format!("  unique_prefixes: true\n  {more}\n"),
        );
        std::fs::write(engines.join("mine.yaml"), recipe).expect("a file can be written");
        let text = "name: t\nengines: [mine]\nmodels: [m]\nscenarios: [sharegpt]\n";
        std::fs::write(folder.path().join("m.yaml"), text).expect("a file can be written");
        let output = Command::new(binary::matrix())
            .args(["check", "m.yaml"])
            .current_dir(folder.path())
            .output()
            .expect("the binary runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        for part in [ways, "mine.yaml:", "= help: keep only one"] {
            assert!(said.contains(part), "`{part}` is not in:\n{said}");
        }
    }
}
