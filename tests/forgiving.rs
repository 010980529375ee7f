//! Short and foreign spellings in a matrix: those that are accepted, and what the others are answered with.

use std::path::Path;
use std::process::Command;

const MODELS: &str = "models: [Qwen/Qwen3-8B]\nscenarios: [random-1k-1k]\n";

/// Exit code, stdout and stderr of a command on this text as `m.yaml`.
fn answer(text: &str, args: &[&str]) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().expect("a test can do this");
    answer_in(folder.path(), text, args)
}

fn answer_in(folder: &Path, text: &str, args: &[&str]) -> (Option<i32>, String, String) {
    std::fs::write(folder.join("m.yaml"), text).expect("a test can do this");
    let mut command = Command::new(env!("CARGO_BIN_EXE_matrix"));
    command
        .args(args)
        .arg("m.yaml")
        .current_dir(folder)
        .env("NO_COLOR", "1");
    let output = command.output().expect("a test can do this");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("a test can do this");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The plan of a matrix.
fn plan(text: &str) -> String {
    let (code, stdout, stderr) = answer(text, &["plan"]);
    assert_eq!(code, Some(0), "{text}{stderr}");
    stdout
}

/// The errors of a matrix.
fn errors(text: &str) -> String {
    let (code, _, stderr) = answer(text, &["check"]);
    assert_eq!(code, Some(2), "{text}{stderr}");
    stderr
}

#[test]
fn three_lines_are_a_matrix_that_is_named_after_its_file() {
    let plan = plan(&format!("engines: [vllm]\n{MODELS}"));
    assert!(plan.starts_with("m: 1 cell in 1 launch"), "{plan}");
}

#[test]
fn lengths_in_tokens_may_have_a_k() {
    let scenario = |lengths: &str| {
        format!(
            "engines: [vllm]\nmodels: [Qwen/Qwen3-8B]\nscenarios: [{{ r: {{ dataset: random-ids, {lengths} }} }}]\n"
        )
    };
    let plan = plan(&scenario("input_len: 4k, output_len: 1K"));
    assert!(plan.contains("4096 in / 1024 out"), "{plan}");
    let said = errors(&scenario("input_len: 4kb, output_len: 16, prompts: 2k"));
    assert!(said.contains("2000"), "{said}");
    assert!(
        !said.contains("needs `input_len`"),
        "a length that is wrong is not missing: {said}"
    );
}

#[test]
fn an_engine_may_be_written_with_its_version() {
    let short = plan(&format!("engines: [vllm@v0.11.0]\n{MODELS}"));
    let long = plan(&format!(
        "engines: [{{ vllm: {{ version: v0.11.0 }} }}]\n{MODELS}"
    ));
    assert_eq!(short, long);
    assert!(short.contains("vllm/vllm-openai:v0.11.0"), "{short}");
    let said = errors(&format!(
        "engines: [{{ vllm@v0.11.0: {{ version: v0.10.1 }} }}]\n{MODELS}"
    ));
    assert!(said.contains("both set a version"), "{said}");
    let said = errors(&format!("engines: ['vllm:v0.11.0']\n{MODELS}"));
    assert!(said.contains("vllm@v0.11.0"), "{said}");
}

#[test]
fn mounts_may_be_written_as_for_docker_at_engines_and_models() {
    let text = "engines: [{ vllm: { mounts: ['/data/hf:/models:ro', { source: /a, target: /b }] } }]\nmodels: [{ Qwen/Qwen3-8B: { mounts: ['./c:/d'] } }]\nscenarios: [random-1k-1k]\n";
    let plan = plan(text);
    for mount in [
        "source=/data/hf,target=/models,readonly",
        "source=/a,target=/b",
        "target=/d",
    ] {
        assert!(plan.contains(mount), "{mount}: {plan}");
    }
    let said = errors(&format!(
        "engines: [{{ vllm: {{ mounts: ['/data'] }} }}]\n{MODELS}"
    ));
    assert!(said.contains("source"), "{said}");
    let said = errors(&format!(
        "engines: [{{ vllm: {{ volumes: ['/a:/b'] }} }}]\n{MODELS}"
    ));
    assert!(said.contains("did you mean") && said.contains("mounts"), "{said}");
}

#[test]
fn arguments_may_be_one_text() {
    let words = plan(&format!(
        "engines: [{{ vllm: {{ args: [--max-model-len, 4096, --name, 'a b'] }} }}]\n{MODELS}"
    ));
    let text = plan(&format!(
        "engines: [{{ vllm: {{ args: \"--max-model-len 4096 --name 'a b'\" }} }}]\n{MODELS}"
    ));
    assert_eq!(words, text);
    assert!(text.contains("--max-model-len 4096 --name 'a b'"), "{text}");
}

#[test]
fn advice_on_secrets_can_be_pasted() {
    let said = errors(&format!(
        "engines: [{{ vllm: {{ env: {{ HF_TOKEN: ${{HF_TOKEN}} }} }} }}]\n{MODELS}"
    ));
    assert!(
        said.contains("is inside brackets, so it must be in quotes") && said.contains("\"${HF_TOKEN}\""),
        "{said}"
    );
    let said = errors(&format!(
        "engines: [{{ vllm: {{ env: {{ HF_TOKEN: $HF_TOKEN }} }} }}]\n{MODELS}"
    ));
    assert!(said.contains("write `HF_TOKEN: \"${HF_TOKEN}\"`"), "{said}");
    plan(&format!(
        "engines: [{{ vllm: {{ env: {{ HF_TOKEN: \"${{HF_TOKEN}}\" }} }} }}]\n{MODELS}"
    ));
}

#[test]
fn keys_of_other_tools_are_answered_with_ours() {
    for (entry, ours) in [
        (
            "engines: [{ vllm: { extra_args: [--x] } }]\nmodels: [m/m]\nscenarios: [random-1k-1k]\n",
            "args",
        ),
        (
            "tp: 2\nengines: [vllm]\nmodels: [m/m]\nscenarios: [random-1k-1k]\n",
            "models: [{ NAME: { tp: 2 } }]",
        ),
        (
            "engines: [vllm]\nmodels: [m/m]\nscenarios: [{ random-1k-1k: { isl: 5 } }]\n",
            "input_len",
        ),
        (
            "engines: [vllm]\nmodels: [m/m]\nscenarios: [{ random-1k-1k: { request_rate: 5 } }]\n",
            "rate",
        ),
    ] {
        let said = errors(entry);
        assert!(said.contains(ours) && !said.contains("known keys"), "{said}");
        assert!(said.contains("1 error"), "{said}");
    }
}

#[test]
fn two_lines_are_a_recipe() {
    let folder = tempfile::tempdir().expect("a test can do this");
    let write = |recipe: &str| {
        std::fs::create_dir_all(folder.path().join("engines")).expect("a test can do this");
        std::fs::write(folder.path().join("engines/mine.yaml"), recipe).expect("a test can do this");
    };
    let plan =
        |arguments: &[&str]| answer_in(folder.path(), &format!("engines: [mine]\n{MODELS}"), arguments);
    write("name: mine\ncommand: [my-engine, serve, \"{model}\", --port, \"{port}\"]\n");
    let (code, out, said) = plan(&["plan"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        out.contains("process\n    my-engine serve") && out.contains("--port 8000"),
        "{out}"
    );
    write(
        "name: mine\ncontainer: { image: \"my/engine:1\", command: [serve, \"{model}\"] }\napi: { protocol: openai-chat }\n",
    );
    let (code, out, said) = plan(&["plan", "--json"]);
    assert_eq!(code, Some(0), "{said}");
    for part in ["\"backend\": \"vllm-chat\"", "\"title\": \"mine\"", "my/engine:1"] {
        assert!(out.contains(part), "{part}: {out}");
    }
}

#[test]
fn a_recipe_with_errors_is_reported_as_one_with_all_keys_that_it_lacks() {
    let folder = tempfile::tempdir().expect("a test can do this");
    std::fs::create_dir(folder.path().join("engines")).expect("a test can do this");
    std::fs::write(folder.path().join("engines/mine.yaml"), "name: mine\n").expect("a test can do this");
    let (code, _, said) = answer_in(folder.path(), &format!("engines: [mine]\n{MODELS}"), &["check"]);
    assert_eq!(code, Some(2));
    assert!(
        said.contains("the recipe `mine` does not say how to start the engine")
            && said.contains("command: [my-engine, serve"),
        "{said}"
    );
    assert!(!said.contains("unknown engine"), "{said}");
    std::fs::write(folder.path().join("engines/mine.yaml"), "title: mine\n").expect("a test can do this");
    let (code, _, said) = answer_in(folder.path(), &format!("engines: [mine]\n{MODELS}"), &["check"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("missing key `name`"), "{said}");
    assert!(!said.contains("unknown engine"), "{said}");
    let said = errors("about: nothing\n");
    for key in ["engines", "models", "scenarios"] {
        assert!(said.contains(&format!("missing key `{key}`")), "{key}: {said}");
    }
}

#[test]
fn an_error_in_json_has_the_text_to_write_instead() {
    let (code, out, _) = answer(&format!("enginez: [vllm]\n{MODELS}"), &["check", "--json"]);
    assert_eq!(code, Some(2));
    assert!(out.contains("\"replacement\": \"engines\""), "{out}");
}
