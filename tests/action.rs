//! The steps of `action.yml`, run as a runner would run them, with a server in place of GitHub.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use serde_yaml::Value;

const MATRIX: &str = "name: m\nengines: [sim]\nmodels: [{ m8: { tokenizer: data/tokenizer.json } }]\nscenarios: [{ short: { dataset: random-ids, input_len: 16, output_len: 8, prompts: 24, concurrency: 4 } }]\nvalidity: { window: 100ms, send_lag: 500ms }\n";

/// A runner's folders, with a repository that has a matrix.
struct Runner {
    folder: tempfile::TempDir,
    inputs: BTreeMap<&'static str, String>,
    api: String,
}

impl Runner {
    fn new(api: &str) -> Self {
        let folder = tempfile::tempdir().expect("a test can do this");
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let repository = folder.path().join("repository");
        std::fs::create_dir_all(repository.join("matrices/data")).expect("a test can do this");
        std::fs::create_dir_all(folder.path().join("temp")).expect("a test can do this");
        std::fs::write(repository.join("matrices/m.yaml"), MATRIX).expect("a test can do this");
        std::fs::copy(
            root.join("matrices/data/tokenizer.json"),
            repository.join("matrices/data/tokenizer.json"),
        )
        .expect("a test can do this");
        let runner = Self {
            folder,
            inputs: BTreeMap::from([
                ("matrix", "matrices/m.yaml".to_owned()),
                ("binary", env!("CARGO_BIN_EXE_matrix").to_owned()),
                ("args", "--no-calibration".to_owned()),
            ]),
            api: api.to_owned(),
        };
        for args in [
            &["init", "--quiet", "-b", "main"][..],
            &["add", "."],
            &["commit", "--quiet", "-m", "m"],
        ] {
            runner.git(args);
        }
        runner.git(&["remote", "add", "origin", "."]);
        runner
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn git(&self, args: &[&str]) {
        let who = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
        let done = Command::new("git")
            .args(who)
            .args(args)
            .current_dir(self.path("repository"))
            .output()
            .expect("a test can do this");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// What an expression of the action is here.
    fn resolve(&self, text: &str, action: &Value, outputs: &str) -> String {
        let Some(name) = text
            .strip_prefix("${{ ")
            .and_then(|rest| rest.strip_suffix(" }}"))
        else {
            return text.to_owned();
        };
        if let Some(input) = name.strip_prefix("inputs.") {
            let default = action["inputs"][input]["default"].as_str().unwrap_or_default();
            let default = if default.starts_with("${{") {
                "secret-token"
            } else {
                default
            };
            return self
                .inputs
                .get(input)
                .cloned()
                .unwrap_or_else(|| default.to_owned());
        }
        match name {
            "github.event.repository.default_branch" => "main".to_owned(),
            "github.event.pull_request.number" => "7".to_owned(),
            _ => {
                let output = name
                    .strip_prefix("steps.run.outputs.")
                    .unwrap_or_else(|| panic!("{name} is known"));
                let lines = outputs.lines().filter_map(|line| line.split_once('='));
                lines
                    .filter(|(key, _)| *key == output)
                    .map(|(_, value)| value.to_owned())
                    .next_back()
                    .unwrap_or_default()
            }
        }
    }

    /// Runs all steps in order, and returns what each printed.
    fn run(&self) -> BTreeMap<String, Output> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(root.join("action.yml")).expect("a test can do this");
        let action: Value = serde_yaml::from_str(&text).expect("a test can do this");
        let mut outcomes = BTreeMap::new();
        for step in action["runs"]["steps"].as_sequence().expect("a test can do this") {
            let read = |name: &str| std::fs::read_to_string(self.path(name)).unwrap_or_default();
            let outputs = read("outputs");
            let mut command = Command::new("bash");
            command
                .args([
                    "-euo",
                    "pipefail",
                    "-c",
                    step["run"].as_str().expect("a test can do this"),
                ])
                .current_dir(self.path("repository"));
            let path: Vec<String> = read("path")
                .lines()
                .map(str::to_owned)
                .chain([system_path()])
                .collect();
            command
                .env_clear()
                .env("PATH", path.join(":"))
                .env("HOME", self.folder.path());
            command
                .env("GITHUB_ACTION_PATH", root)
                .env("GITHUB_REPOSITORY", "me/mine")
                .env("GITHUB_API_URL", &self.api);
            for (name, file) in [
                ("GITHUB_OUTPUT", "outputs"),
                ("GITHUB_PATH", "path"),
                ("GITHUB_STEP_SUMMARY", "summary"),
                ("RUNNER_TEMP", "temp"),
            ] {
                command.env(name, self.path(file));
            }
            for (name, value) in step["env"].as_mapping().into_iter().flatten() {
                command.env(
                    name.as_str().expect("a test can do this"),
                    self.resolve(value.as_str().expect("a test can do this"), &action, &outputs),
                );
            }
            outcomes.insert(
                step["name"].as_str().expect("a test can do this").to_owned(),
                command.output().expect("a test can do this"),
            );
        }
        outcomes
    }
}

fn system_path() -> String {
    matrix::cli::env_variable("PATH").unwrap_or_default()
}

/// A server with the comments of a pull request; it keeps what was asked of it.
fn github() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a test can do this");
    let address = format!("http://{}", listener.local_addr().expect("a test can do this"));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a test can do this");
            let mut bytes = Vec::new();
            let mut buffer = [0; 65536];
            loop {
                let read = stream.read(&mut buffer).expect("a test can do this");
                bytes.extend_from_slice(&buffer[..read]);
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else {
                    continue;
                };
                let length = head.lines().find_map(|line| {
                    line.to_ascii_lowercase()
                        .strip_prefix("content-length: ")?
                        .parse::<usize>()
                        .ok()
                });
                if body.len() >= length.unwrap_or(0) {
                    break;
                }
            }
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let mut kept = kept.lock().expect("a test can do this");
            let posted = kept.iter().any(|asked: &String| asked.starts_with("POST"));
            let body = match text.starts_with("GET") {
                true if posted => {
                    r#"[{"id": 1, "body": "x"}, {"id": 42, "body": "<!-- matrix matrices/m.yaml -->\nold"}]"#
                }
                true => r#"[{"id": 1, "body": "x"}]"#,
                false => "{}",
            };
            kept.push(text);
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes()).expect("a test can do this");
        }
    });
    (address, asked)
}

fn texts(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn the_steps_measure_compare_and_report() {
    let (api, asked) = github();
    let runner = Runner::new(&api);
    let first = runner.run();
    for (step, output) in &first {
        assert_eq!(output.status.code(), Some(0), "{step}: {}", texts(output));
    }
    assert!(texts(&first["Measure and compare"]).contains("no baseline in the default branch"));
    let summary = std::fs::read_to_string(runner.path("summary")).expect("a test can do this");
    assert!(
        summary.contains("nothing was compared") && summary.contains("| "),
        "{summary}"
    );
    let posted = asked
        .lock()
        .expect("a test can do this")
        .iter()
        .find(|text| text.starts_with("POST /repos/me/mine/issues/7/comments"))
        .cloned()
        .expect("a comment is written");
    assert!(posted.contains("Bearer secret-token") && posted.contains("<!-- matrix matrices/m.yaml -->"));

    // With a baseline in the default branch, the next job compares, and replaces its comment.
    let set = Command::new(env!("CARGO_BIN_EXE_matrix"))
        .args(["baseline", "set", "matrices/m.yaml", "--reason", "first"])
        .current_dir(runner.path("repository"))
        .env("HOME", runner.folder.path())
        .output()
        .expect("a test can do this");
    assert_eq!(set.status.code(), Some(0), "{}", texts(&set));
    runner.git(&["add", "matrices"]);
    runner.git(&["commit", "--quiet", "-m", "baseline"]);
    let second = runner.run();
    let measured = texts(&second["Measure and compare"]);
    assert!(!measured.contains("no baseline"), "{measured}");
    let outputs = std::fs::read_to_string(runner.path("outputs")).expect("a test can do this");
    assert!(outputs.contains("compared=true"), "{outputs}");
    assert!(runner.path("repository/junit.xml").exists(), "{measured}");
    assert!(
        asked
            .lock()
            .expect("a test can do this")
            .iter()
            .any(|text| text.starts_with("PATCH /repos/me/mine/issues/comments/42"))
    );
    // The job ends as the command did.
    let code = outputs
        .lines()
        .filter_map(|line| line.strip_prefix("exit-code="))
        .next_back()
        .expect("a test can do this");
    assert_eq!(
        second["Outcome"]
            .status
            .code()
            .map(|code| code.to_string())
            .as_deref(),
        Some(code),
        "{measured}"
    );
}

#[test]
fn a_matrix_with_errors_ends_the_job_with_its_exit_code() {
    let (api, _) = github();
    let runner = Runner::new(&api);
    std::fs::write(
        runner.path("repository/matrices/m.yaml"),
        "name: m\nengine: [x]\n",
    )
    .expect("a test can do this");
    let outcomes = runner.run();
    assert_eq!(
        outcomes["Outcome"].status.code(),
        Some(2),
        "{}",
        texts(&outcomes["Measure and compare"])
    );
    let summary = std::fs::read_to_string(runner.path("summary")).expect("a test can do this");
    assert!(summary.contains("exit code 2"), "{summary}");
}
