//! Commands that help to begin: `list`, `doctor`, `new`, `completions` and `man`.

use std::path::Path;
use std::process::{Command, Output};

fn matrix(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_matrix"));
    command.args(args).current_dir(folder);
    command
        .env("HF_HOME", folder.join("hf"))
        .env("MATRIX_CACHE", folder.join("cache"));
    command.output().expect("the binary starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn runs_engines_and_data_sets_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let empty = matrix(folder.path(), &["list"]);
    assert_eq!(empty.status.code(), Some(0), "{}", stderr(&empty));
    assert!(stdout(&empty).contains("no run in results"), "{}", stdout(&empty));
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    let runs = matrix(
        folder.path(),
        &["list", "runs", "--results", &published.display().to_string()],
    );
    let text = stdout(&runs);
    let line = text
        .lines()
        .find(|line| line.starts_with("published "))
        .expect("the run is listed");
    assert!(line.contains(" of "), "{line}");
    let engines = stdout(&matrix(folder.path(), &["list", "engines"]));
    for name in ["vllm", "sglang", "lmdeploy", "sim"] {
        assert!(
            engines.lines().any(|line| line.starts_with(name)),
            "{name}: {engines}"
        );
    }
    let sets = matrix(folder.path(), &["list", "datasets", "--json"]);
    let sets: serde_json::Value = serde_json::from_slice(&sets.stdout).unwrap();
    let sets = sets.as_array().unwrap();
    let named = |name: &str| sets.iter().find(|set| set["dataset"] == name).unwrap();
    assert_eq!(named("random-ids")["needs_file"], false);
    assert_eq!(named("sharegpt")["fetchable"], true);
}

#[test]
fn the_doctor_names_what_is_missing_and_starts_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let host = matrix(folder.path(), &["doctor"]);
    assert_eq!(host.status.code(), Some(0), "{}", stderr(&host));
    for line in ["host ", "processor ", "GPUs ", "containers ", "HF_TOKEN "] {
        assert!(stdout(&host).contains(line), "{line}: {}", stdout(&host));
    }
    let lacking = folder.path().join("m.yaml");
    std::fs::write(
        &lacking,
        "name: m\nengines: [{ vllm: { precision: bf16, executor: process } }]\nmodels: [{ own/model: { tp: 64 } }]\nscenarios: [random-1k-1k]\n",
    )
    .unwrap();
    let refused = matrix(folder.path(), &["doctor", "m.yaml"]);
    assert_eq!(refused.status.code(), Some(4), "{}", stderr(&refused));
    for text in [
        "needs 64 GPUs",
        "matrix fetch m.yaml",
        "are missing for this matrix",
    ] {
        assert!(stderr(&refused).contains(text), "{text}: {}", stderr(&refused));
    }
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("matrices/demo.yaml");
    let ready = matrix(folder.path(), &["doctor", &demo.display().to_string()]);
    assert_eq!(ready.status.code(), Some(0), "{}", stderr(&ready));
    assert!(stdout(&ready).contains("nothing is missing; start the run with: matrix run "));
    assert!(!folder.path().join("results").exists(), "nothing is created");
}

#[test]
fn the_doctor_warns_of_other_work_on_the_host() {
    let cpus = std::thread::available_parallelism().unwrap().get();
    let work: Vec<_> = (0..cpus)
        .map(|_| {
            Command::new("sh")
                .args(["-c", "while :; do :; done"])
                .spawn()
                .unwrap()
        })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let host = matrix(folder.path(), &["doctor"]);
    for mut process in work {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    assert_eq!(host.status.code(), Some(0), "{}", stderr(&host));
    assert!(stdout(&host).contains("other processes use"), "{}", stdout(&host));
    for text in ["warning: other processes used", "`host-busy`"] {
        assert!(stderr(&host).contains(text), "{text}: {}", stderr(&host));
    }
}

#[test]
fn a_new_engine_is_valid_at_once_and_never_replaces_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let forms: [(&str, &[&str]); 3] = [
        ("mine", &[]),
        (
            "boxed",
            &[
                "--image",
                "me/engine:1",
                "--command",
                "--model {model} --port {port}",
            ],
        ),
        (
            "other",
            &["--command", "other-serve --m {model}", "--model", "a/b"],
        ),
    ];
    for (name, flags) in forms {
        let written = matrix(folder.path(), &[&["new", "engine", name], flags].concat());
        assert_eq!(written.status.code(), Some(0), "{}", stderr(&written));
        let file = format!("matrices/{name}.yaml");
        let checked = matrix(folder.path(), &["check", &file]);
        assert_eq!(checked.status.code(), Some(0), "{name}: {}", stderr(&checked));
        // Neither tokenizer nor data set must be fetched.
        let ready = matrix(folder.path(), &["doctor", &file]);
        assert!(
            !stderr(&ready).contains("matrix fetch"),
            "{name}: {}",
            stderr(&ready)
        );
        let again = matrix(folder.path(), &["new", "engine", name]);
        assert_eq!(again.status.code(), Some(2));
        assert!(stderr(&again).contains("exists already"), "{}", stderr(&again));
    }
    for (name, text) in [
        ("vllm", "shipped engine"),
        ("Mine", "not a valid name of an engine"),
        ("../x", "not a valid name of an engine"),
    ] {
        let refused = matrix(folder.path(), &["new", "engine", name]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(stderr(&refused).contains(text), "{}", stderr(&refused));
    }
}

#[test]
fn completions_and_man_pages_know_every_command() {
    let folder = tempfile::tempdir().unwrap();
    for (shell, mark) in [
        ("bash", "complete -F"),
        ("zsh", "#compdef matrix"),
        ("fish", "complete -c matrix"),
    ] {
        let text = stdout(&matrix(folder.path(), &["completions", shell]));
        assert!(
            text.contains(mark) && text.contains("nightly") && text.contains("--resume"),
            "{shell}"
        );
    }
    let written = matrix(folder.path(), &["man", "pages"]);
    assert_eq!(written.status.code(), Some(0), "{}", stderr(&written));
    for page in ["matrix.1", "matrix-run.1", "matrix-baseline-accept.1"] {
        let text = std::fs::read_to_string(folder.path().join("pages").join(page)).expect(page);
        assert!(text.contains(".SH NAME"), "{page}");
    }
    assert!(
        !folder.path().join("pages/matrix-__shim.1").exists(),
        "hidden commands have none"
    );
}

/// An attached server whose model has no tokenizer on this host.
#[test]
fn a_server_is_measured_with_what_is_inside_the_binary() {
    let folder = tempfile::tempdir().unwrap();
    let port = matrix::engine::free_port().unwrap().to_string();
    let mut server = Command::new(env!("CARGO_BIN_EXE_matrix"))
        .args(["sim", "--model", "mine", "--port", &port, "--dialect", "vllm"])
        .spawn()
        .unwrap();
    let text = format!(
        "engines: [{{ attach: {{ as: mine, url: 'http://127.0.0.1:{port}' }} }}]\nmodels: [{{ mine: {{ tokenizer: built-in }} }}]\nscenarios: [{{ short: {{ dataset: random-ids, input_len: 64, output_len: 8, prompts: 16, concurrency: 4 }} }}]\nvalidity: {{ window: 100ms, send_lag: 500ms }}\n"
    );
    std::fs::write(folder.path().join("m.yaml"), text).unwrap();
    let run = matrix(folder.path(), &["run", "m.yaml", "--no-calibration"]);
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(run.status.code(), Some(0), "{}{}", stdout(&run), stderr(&run));
    let listed = matrix(folder.path(), &["list"]);
    assert!(stdout(&listed).contains("1 of 1"), "{}", stdout(&listed));
}

#[test]
fn a_matrix_is_found_by_its_name_and_the_newest_run_without_one() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(matrix(folder.path(), &["init", "."]).status.code(), Some(0));
    for args in [&["check", "demo"][..], &["plan", "demo"], &["doctor", "demo"]] {
        let output = matrix(folder.path(), args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    }
    let wrong = matrix(folder.path(), &["check", "demmo.yml"]);
    assert!(
        stderr(&wrong).contains("did you mean `matrices/demo.yaml`?"),
        "{}",
        stderr(&wrong)
    );
    let none = matrix(folder.path(), &["report"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(
        stderr(&none).contains("there is no run in results"),
        "{}",
        stderr(&none)
    );
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    let newest = matrix(
        folder.path(),
        &["report", "--results", &published.display().to_string()],
    );
    assert_eq!(newest.status.code(), Some(0), "{}", stderr(&newest));
    assert!(
        stderr(&newest).contains("note: the newest run, "),
        "{}",
        stderr(&newest)
    );
}
