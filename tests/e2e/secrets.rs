//! A planted secret is found in no artefact.

use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::Bench;

const SECRET: &str = "s3cr3t-plant\"ed/9876543210";

#[test]
fn a_secret_in_environment_url_flag_and_log_is_found_in_no_artefact() {
    // The engine prints its arguments and environment, as engines like to do, and asks for its key.
    let matrix = r#"
name: t
engines:
  - sim:
      as: talker
      variant: vllm
      command: [sh, -c, 'echo "key is $PLANTED_KEY and flag is $1"; shift; exec "$@"', sh, "${MATRIX_TEST_SECRET}", "{matrix}", sim, --model, "{served}", --port, "{port}"]
      args: [--preset, fast, --api-key, "${MATRIX_TEST_SECRET}"]
      env: { PLANTED_KEY: "${MATRIX_TEST_SECRET}" }
      headers: { Authorization: "Bearer ${MATRIX_TEST_SECRET}", X-Url: "http://user:${MATRIX_TEST_SECRET}@host/" }
models:
  - m: { tokenizer: data/tokenizer.json }
scenarios:
  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 4 }
datasets: { sharegpt: data/conversations.json }
"#;
    let bench = Bench::of(matrix).variable("MATRIX_TEST_SECRET", SECRET);
    let plan = bench.call(&["plan", "matrices/m.yaml"]).exits(0);
    let json = bench.call(&["plan", "matrices/m.yaml", "--json"]).exits(0);
    assert!(
        plan.stdout.contains("${MATRIX_TEST_SECRET}"),
        "the plan names the secret: {}",
        plan.stdout
    );
    let ran = bench.run(&[]).exits(0);
    let events = bench.run(&["--resume", "--json"]).exits(0);
    let report = bench
        .call(&["report", bench.run_folder().to_str().expect("a path is text")])
        .exits(0);
    for (what, said) in [
        ("plan", &plan),
        ("plan --json", &json),
        ("run", &ran),
        ("run --json", &events),
        ("report", &report),
    ] {
        clean(what, said.stdout.as_bytes());
        clean(what, said.stderr.as_bytes());
    }
    let files = everything(&bench.results());
    assert!(files.len() > 10, "{files:?}");
    let mut logs = 0;
    for file in &files {
        let bytes = fs::read(file).expect("files can be read");
        let bytes = if file.extension().is_some_and(|kind| kind == "zst") {
            zstd::decode_all(&bytes[..]).expect("it is zstd")
        } else {
            bytes
        };
        clean(&file.display().to_string(), &bytes);
        let text = String::from_utf8_lossy(&bytes);
        logs += usize::from(
            file.ends_with("engine.log") && text.contains("key is ***") && text.contains("flag is ***"),
        );
    }
    assert!(logs > 0, "the engine's words are kept, its secret is not");
    bench.leaves_no_process();
}

#[test]
fn a_secret_that_the_engine_throws_back_in_errors_is_hidden_too() {
    let matrix = r#"
name: t
engines:
  - sim: { as: a, variant: vllm, command: [sh, -c, 'echo "cannot use $PLANTED_KEY" >&2; exit 7'], env: { PLANTED_KEY: "${MATRIX_TEST_SECRET}" } }
models:
  - m: { tokenizer: data/tokenizer.json }
scenarios:
  - random-ids: { dataset: random-ids, prompts: 2, input_len: 4, output_len: 4, range_ratio: 0 }
"#;
    let bench = Bench::of(matrix).variable("MATRIX_TEST_SECRET", SECRET);
    let ran = bench.run(&[]).exits(3);
    clean("stderr", ran.stderr.as_bytes());
    clean("stdout", ran.stdout.as_bytes());
    let summary = fs::read_to_string(
        everything(&bench.results())
            .iter()
            .find(|file| file.ends_with("summary.json"))
            .expect("there is a summary"),
    );
    let summary = summary.expect("it can be read");
    assert!(summary.contains("cannot use ***"), "{summary}");
    for file in everything(&bench.results()) {
        clean(
            &file.display().to_string(),
            &fs::read(&file).expect("files can be read"),
        );
    }
}

#[test]
fn a_secret_in_an_answer_of_the_engine_reaches_neither_terminal_nor_events() {
    // It tells the secret as its version, which is shown.
    let matrix = r#"
name: t
engines:
  - sim: { as: a, variant: vllm, args: [--version-string, "${MATRIX_TEST_SECRET}"] }
models:
  - m: { tokenizer: data/tokenizer.json }
scenarios:
  - random-ids: { dataset: random-ids, prompts: 2, input_len: 4, output_len: 4 }
"#;
    for more in [&[][..], &["--json"]] {
        let bench = Bench::of(matrix).variable("MATRIX_TEST_SECRET", SECRET);
        let ran = bench.run(more).exits(0);
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert!(
            said.contains("version ***") || said.contains("\"version\":\"***\""),
            "{said}"
        );
        clean("stderr", ran.stderr.as_bytes());
        clean("stdout", ran.stdout.as_bytes());
    }
}

#[test]
fn what_looks_like_a_secret_in_our_environment_is_hidden_and_reaches_no_engine_unnamed() {
    let matrix = r#"
name: t
engines:
  - sim: { as: a, variant: vllm, command: [sh, -c, "env; exit 7"] }
models:
  - m: { tokenizer: data/tokenizer.json }
scenarios:
  - random-ids: { dataset: random-ids, prompts: 2, input_len: 4, output_len: 4 }
"#;
    let webhook = "http://127.0.0.1:9/s3cr3t-9876543210";
    let bench = Bench::of(matrix)
        .variable("HF_TOKEN", SECRET)
        .variable("SOME_API_KEY", "s3cr3t-of-another-service")
        .variable("MATRIX_WEBHOOK", webhook);
    let plan = bench.call(&["plan", "matrices/m.yaml"]).exits(0);
    let plan = plan
        .shows("not passed to the engine, because they look like secrets: SOME_API_KEY")
        .shows("replaced by `***` in all output: HF_TOKEN");
    clean("plan", plan.stdout.as_bytes());
    let ran = bench.run(&[]).exits(3);
    clean("stderr", ran.stderr.as_bytes());
    clean("stdout", ran.stdout.as_bytes());
    let mut said = String::new();
    for file in everything(&bench.results()) {
        let bytes = fs::read(&file).expect("files can be read");
        clean(&file.display().to_string(), &bytes);
        if file.ends_with("engine.log") {
            said.push_str(&String::from_utf8_lossy(&bytes));
        }
    }
    assert!(said.contains("HF_TOKEN=***"), "it gets the token: {said}");
    assert!(
        !said.contains("SOME_API_KEY") && !said.contains("MATRIX_WEBHOOK"),
        "{said}"
    );
    bench.rewrite(&matrix.replace("as: a,", "as: a, environment: clean,"));
    bench.run(&[]).exits(3);
    let logs = everything(&bench.results());
    let mut logs: Vec<_> = logs.iter().filter(|file| file.ends_with("engine.log")).collect();
    logs.retain(|file| !fs::read_to_string(file).is_ok_and(|log| log.contains("HF_TOKEN")));
    assert!(!logs.is_empty(), "one run gave the engine no token");
}

#[test]
fn a_short_value_is_written_as_it_is_and_spoils_no_file_of_the_run() {
    let matrix = r#"
name: second
engines:
  - sim: { as: a, variant: vllm, env: { FLAG: "${MATRIX_TEST_FLAG}" } }
models:
  - m: { tokenizer: data/tokenizer.json }
scenarios:
  - random-ids: { dataset: random-ids, prompts: 2, input_len: 4, output_len: 4, warmup: 0 }
"#;
    let bench = Bench::of(matrix).variable("MATRIX_TEST_FLAG", "e");
    bench
        .run(&[])
        .exits(0)
        .says("`${MATRIX_TEST_FLAG}` is too short to be redacted");
    bench.run(&["--resume"]).exits(0);
    assert_eq!(bench.finished().info.matrix, "second");
}

#[test]
fn passwords_in_urls_and_flags_are_refused_and_not_shown() {
    let matrix = |engine: &str| {
        format!(
            "name: t\nengines:\n  - {engine}\nmodels:\n  - m: {{ tokenizer: data/tokenizer.json, args: {{ default: [] }} }}\nscenarios:\n  - random-1k-1k: {{ prompts: 2 }}\n"
        )
    };
    for engine in [
        "attach: { url: \"http://user:s3cr3t@127.0.0.1:9\" }",
        "attach: { url: \"http://127.0.0.1:9/?api_key=s3cr3t\" }",
        "sim: { args: [--api-key=s3cr3t] }",
        "sim: { args: [--api-key, s3cr3t] }",
        "sim: { args: [--password, s3cr3t] }",
        "sim: { args: [--db, \"postgres://u:s3cr3t@h/db\"] }",
        "sim: { env: { DBURL: \"postgres://u:s3cr3t@h/db\" } }",
        "sim: { env: { https_proxy: http://u:s3cr3t@h:80/, FOO_SECRET: abc } }",
        "sim: { image: \"http://u:s3cr3t@h/x\" }",
        "sim: { body: { callback: \"http://h/?token=s3cr3t\" } }",
        "sim: { container: { extra_hosts: [\"http://u:s3cr3t@h\"] } }",
    ] {
        let bench = Bench::of(&matrix(engine));
        for command in [&["check"][..], &["plan"], &["check", "--json"]] {
            let ran = bench.call(&[command, &["matrices/m.yaml"]].concat()).exits(2);
            let said = format!("{}{}", ran.stdout, ran.stderr);
            assert!(
                said.contains("looks like a secret") || said.contains("looks like a password"),
                "{engine}: {said}"
            );
            clean(engine, said.as_bytes());
        }
    }
}

#[test]
fn a_message_about_something_else_shows_no_password_of_a_url() {
    let matrix = "name: t\nengines:\n  - sim: { imge: \"http://u:s3cr3t@h/x\" } # http://u:s3cr3t@h\nmodels: [m]\nscenarios: [sharegpt]\n";
    let bench = Bench::of(matrix);
    let ran = bench.call(&["check", "matrices/m.yaml"]).exits(2).says("imge");
    clean("an excerpt", ran.stderr.as_bytes());
    bench.rewrite(&matrix.replace("imge: \"", "image: [\""));
    let ran = bench.call(&["check", "matrices/m.yaml"]).exits(2);
    clean("an excerpt of broken YAML", ran.stderr.as_bytes());
}

#[test]
fn control_characters_from_outside_reach_neither_terminal_nor_ci() {
    let matrix = r#"
name: t
engines:
  - sim: { as: a, variant: vllm, args: [--version-string, "1.0\n::error::pwn\e[31m"] }
models:
  - m: { tokenizer: data/tokenizer.json }
scenarios:
  - random-ids: { dataset: random-ids, prompts: 2, input_len: 4, output_len: 4, warmup: 0 }
"#;
    let bench = Bench::of(matrix);
    let ran = bench.run(&[]).exits(0);
    for text in [&ran.stdout, &ran.stderr] {
        assert!(
            !text.contains('\u{1b}') && !text.contains("\n::error"),
            "{text:?}"
        );
    }
    let named = matrix
        .replace("name: t", "name: \"\\n::error::pwn\\e[31m\"")
        .replace("- random-ids: {", "- \"r\\n::error::pwn\": {");
    bench.rewrite(&named);
    for command in ["check", "plan"] {
        let ran = bench.call(&[command, "matrices/m.yaml"]).exits(0);
        let text = ran.stdout + &ran.stderr;
        let acts = |line: &str| line.trim_start().starts_with("::") || line.contains('\u{1b}');
        assert!(!text.lines().any(acts), "{command}: {text:?}");
    }
    bench.rewrite("name: t\nengines: [\"x\\n::error::pwn\"]\nmodels: [m]\nscenarios: [sharegpt]\n");
    let ran = bench.call(&["check", "matrices/m.yaml"]).exits(2);
    assert!(!ran.stderr.contains("\n::error"), "{:?}", ran.stderr);
    bench.rewrite(&matrix.replace("as: a", "ass: \"a\u{1b}[31m\""));
    let ran = bench.call(&["check", "matrices/m.yaml"]).exits(2);
    assert!(!ran.stderr.contains('\u{1b}'), "{:?}", ran.stderr);
}

/// No spelling of the secret stands in these bytes.
fn clean(what: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for part in ["s3cr3t", "9876543210"] {
        assert!(!text.contains(part), "{what} holds the secret:\n{text}");
    }
}

fn everything(folder: &Path) -> Vec<PathBuf> {
    let (mut folders, mut files) = (vec![folder.to_path_buf()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("folders can be read").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path)
            } else {
                files.push(path)
            }
        }
    }
    files
}
