//! Shipped matrices and recipes plan, match their snapshots and satisfy their schemas.

#[path = "support/binary.rs"]
mod binary;

use std::path::{Path, PathBuf};
use std::process::Command;

use matrix::cli::env_variable;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The matrices in `matrices`, without its list of prices.
fn matrices() -> Vec<PathBuf> {
    let mut files = yaml_files("matrices");
    files.retain(|path| !path.ends_with("prices.yaml"));
    files
}

fn yaml_files(folder: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(root().join(folder))
        .expect("the folder is there")
        .map(|entry| entry.expect("the folder is readable").path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "yaml"))
        .collect();
    files.sort();
    files
}

fn shell(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(binary::matrix())
        .args(args)
        .current_dir(root())
        .env("NO_COLOR", "1")
        .output()
        .expect("the binary runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
    (
        output.status.code().unwrap_or(-1),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn every_shipped_matrix_plans_as_its_snapshot_shows() {
    for path in matrices() {
        let name = path
            .file_stem()
            .expect("a file has a name")
            .to_string_lossy()
            .into_owned();
        let (code, out, err) = shell(&[
            "plan",
            &format!("matrices/{name}.yaml"),
            "--results",
            "no-such-folder",
        ]);
        assert_eq!(code, 0, "{err}");
        insta::with_settings!({ snapshot_path => "snapshots", prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(format!("plan-{name}"), out);
        });
    }
}

#[test]
fn plan_names_inputs_that_are_missing_and_how_to_get_them() {
    let empty = tempfile::tempdir().expect("a folder can be made");
    let hf_home = empty.path().display().to_string();
    let (code, out, err) = shell(&["plan", "matrices/qwen3.yaml", "--hf-home", &hf_home]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("inputs are missing:"), "{err}");
    assert!(
        err.contains("the missing files with `matrix fetch matrices/qwen3.yaml`"),
        "{err}"
    );
    assert!(!out.contains("missing"), "{out}");
}

#[test]
fn a_code_is_explained_without_a_run() {
    let empty = tempfile::tempdir().expect("a folder can be made");
    let results = empty.path().display().to_string();
    let (code, out, err) = shell(&["explain", "host-busy", "--results", &results]);
    assert_eq!(code, 0, "{err}");
    assert!(out.starts_with("host-busy: "), "{out}");
    for head in ["  means ", "  what to do ", "  bound "] {
        assert!(out.contains(head), "{out}");
    }
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");
}

#[test]
fn a_misspelt_run_gets_the_nearest_name() {
    let (code, _, err) = shell(&["report", "publishd"]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("did you mean `published`?"), "{err}");
}

#[test]
fn every_matrix_of_documents_and_examples_passes_check() {
    let pages = ["README.md", "docs/matrix-files.md"]
        .map(|name| std::fs::read_to_string(root().join(name)).expect("the file is readable"));
    let blocks = pages.iter().flat_map(|page| page.split("```yaml\n").skip(1));
    let blocks = blocks.filter_map(|rest| rest.split_once("```").map(|(block, _)| block));
    let named = blocks.filter(|block| block.starts_with("name:"));
    let (matrices, recipes): (Vec<&str>, Vec<&str>) = named.partition(|block| block.contains("engines:"));
    assert!(
        matrices.iter().any(|block| block.contains("attach:")),
        "{matrices:?}"
    );
    let folder = tempfile::tempdir().expect("a folder can be made");
    for block in matrices {
        let path = folder.path().join("document.yaml");
        std::fs::write(&path, block).expect("a file can be written");
        passes_check(&path);
    }
    assert!(!recipes.is_empty());
    std::fs::create_dir(folder.path().join("engines")).expect("a folder can be made");
    for block in recipes {
        let name = block["name:".len()..].lines().next().unwrap_or_default().trim();
        let (matrix, recipe) = (format!("{name}.yaml"), format!("engines/{name}.yaml"));
        let text = format!("engines: [{name}]\nmodels: [Qwen/Qwen3-8B]\nscenarios: [random-1k-1k]\n");
        std::fs::write(folder.path().join(recipe), block).expect("a file can be written");
        std::fs::write(folder.path().join(&matrix), text).expect("a file can be written");
        passes_check(&folder.path().join(matrix));
    }
    let examples = ["examples", "examples/own-engine"].map(yaml_files).concat();
    assert!(examples.len() > 4, "{examples:?}");
    for path in examples {
        passes_check(&path);
    }
}

fn passes_check(matrix: &Path) {
    let (code, _, err) = shell(&["check", &matrix.display().to_string()]);
    assert_eq!(code, 0, "{}\n{err}", matrix.display());
}

#[test]
fn shipped_files_satisfy_the_schemas_they_name() {
    let prices = vec![root().join("matrices/prices.yaml")];
    for (files, kind) in [
        (matrices(), "matrix"),
        (yaml_files("engines"), "engine"),
        (prices, "prices"),
    ] {
        let (code, schema, _) = shell(&["schema", kind]);
        assert_eq!(code, 0);
        let schema: serde_json::Value = serde_json::from_str(&schema).expect("a schema is JSON");
        let validator = jsonschema::validator_for(&schema).expect("the schema is one");
        for path in files {
            let text = std::fs::read_to_string(&path).expect("the file is readable");
            let modeline = format!("# yaml-language-server: $schema=../schemas/{kind}.json");
            assert!(
                text.starts_with(&modeline),
                "{} lacks the editors' modeline",
                path.display()
            );
            let yaml: serde_yaml::Value = serde_yaml::from_str(&text).expect("YAML is YAML");
            let merged = merge(yaml);
            let json = serde_json::to_value(&merged).expect("it has text keys");
            let errors: Vec<String> = validator
                .iter_errors(&json)
                .map(|error| format!("{} at {}", error, error.instance_path()))
                .collect();
            assert!(errors.is_empty(), "{}: {errors:#?}", path.display());
        }
    }
}

/// Merge keys, which a schema knows nothing of, worked in.
fn merge(value: serde_yaml::Value) -> serde_yaml::Value {
    let mut value = value;
    value.apply_merge().expect("merge keys merge");
    value
}

/// The phase that a line of the engine's log begins by its recipe: the first pattern in it counts.
fn phase_of(recipe: &serde_yaml::Value, line: &str) -> Option<String> {
    let phases = recipe["log_patterns"]["phases"]
        .as_sequence()
        .expect("the recipe has phases");
    phases
        .iter()
        .find(|phase| {
            let pattern = phase["pattern"].as_str();
            line.contains(pattern.expect("a phase has a pattern"))
        })
        .and_then(|phase| Some(phase["phase"].as_str()?.to_owned()))
}

#[test]
fn lines_of_vllm_0_24_on_a_gpu_begin_their_phases() {
    let text = std::fs::read_to_string(root().join("engines/vllm.yaml")).expect("the recipe is there");
    let recipe: serde_yaml::Value = serde_yaml::from_str(&text).expect("the recipe is YAML");
    for (line, phase) in [
        (
            "WARNING [vllm.py:1062] Enforce eager set, disabling torch.compile and CUDAGraphs.",
            None,
        ),
        (
            "INFO [core.py:114] Initializing a V1 LLM engine (v0.24.0) with config: model='m'",
            Some("engine"),
        ),
        (
            "INFO [model_runner.py:281] Loading model from scratch...",
            Some("weights"),
        ),
        (
            "INFO [backends.py:1089] Using cache directory: /c/backbone for vLLM's torch.compile",
            Some("compile"),
        ),
        (
            "INFO [backends.py:1148] Dynamo bytecode transform time: 11.12 s",
            Some("compile"),
        ),
        (
            "INFO [kv_cache_utils.py:2146] GPU KV cache size: 834,176 tokens",
            Some("kv-cache"),
        ),
        ("Capturing CUDA graphs (PIECEWISE):  12%|#| 6/51", Some("graphs")),
        ("INFO:     Application startup complete.", Some("ready")),
    ] {
        assert_eq!(phase_of(&recipe, line).as_deref(), phase, "{line}");
    }
}

#[test]
fn the_committed_schemas_are_those_that_the_binary_prints() {
    for kind in ["matrix", "engine", "cluster", "prices", "report"] {
        let (_, printed, _) = shell(&["schema", kind]);
        let path = root().join(format!("schemas/{kind}.json"));
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == printed,
            "`matrix schema {kind}` does not print schemas/{kind}.json"
        );
    }
}

/// README's picture, from a run that is kept packed. `MATRIX_RECORD=1 cargo test --test shipped picture` draws it anew.
#[test]
fn the_picture_of_the_readme_is_what_the_binary_draws() {
    let folder = tempfile::tempdir().expect("a folder is made");
    let packed = root().join("tests/fixtures/picture.tar.zst");
    let archive = folder.path().join("run.tar");
    let unpacked =
        zstd::decode_all(std::fs::File::open(packed).expect("the run is there")).expect("it is whole");
    std::fs::write(&archive, unpacked).expect("it is written");
    let tar = Command::new("tar")
        .arg("-xf")
        .arg(&archive)
        .current_dir(folder.path())
        .status();
    assert!(tar.expect("tar runs").success());
    let run = folder.path().join("sweep");
    let (code, drawn, err) = shell(&["report", &run.to_string_lossy(), "--format", "svg"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let picture = root().join("docs/report.svg");
    if env_variable("MATRIX_RECORD").is_some() {
        std::fs::write(&picture, &drawn).expect("it is written");
    }
    let kept = std::fs::read_to_string(&picture).unwrap_or_default();
    assert!(
        kept == drawn,
        "docs/report.svg is old: `MATRIX_RECORD=1 cargo test --test shipped picture`"
    );
    assert!(drawn.contains("SLO: 80 tok/s per user") && drawn.matches("class=\"caption\"").count() > 1);
}

#[test]
fn a_run_is_explained_by_its_folder_and_pages_are_as_wide_as_columns_says() {
    let (code, out, err) = shell(&["explain", "tests/fixtures/run-format-2"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("start 1, repeat 1"), "{out}");
    let narrow = Command::new(binary::matrix())
        .args(["report", "results/published", "--format", "terminal"])
        .current_dir(root())
        .env("NO_COLOR", "1")
        .env("COLUMNS", "90")
        .output()
        .expect("the binary runs");
    let text = String::from_utf8_lossy(&narrow.stdout);
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest.is_some_and(|widest| widest <= 90), "{widest:?}\n{text}");
}
