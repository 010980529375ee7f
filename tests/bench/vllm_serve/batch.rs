//! Command lines that both tools run, and their differences.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::facts::{facts, masked_lines, results};
use crate::harness::{Desk, Ran, repository};
use crate::recorder::{Heard, Recorder};

/// The path by which the driver reports the end of a case.
const NEXT_CASE: &str = "/next-case";

/// Comparisons to come.
pub(super) struct Batch {
    pub(super) desk: Desk,
    pub(super) recorder: Recorder,
    pub(super) tokenizer: String,
    pub(super) cases: Vec<Vec<String>>,
}

impl Batch {
    pub(super) fn new(recorder: Recorder) -> Self {
        let desk = Desk::new();
        Self {
            tokenizer: crate::python::tokenizer(desk.path()),
            desk,
            recorder,
            cases: Vec::new(),
        }
    }

    /// Adds a case with the server, the model, the tokenizer and one request at a time.
    pub(super) fn add(&mut self, args: &[&str]) {
        let (port, tokenizer) = (self.recorder.port.to_string(), self.tokenizer.clone());
        let common = ["--port", &port, "--model", "m", "--tokenizer", &tokenizer];
        let mut all: Vec<&str> = common.to_vec();
        if !args.contains(&"--max-concurrency") {
            all.extend(["--max-concurrency", "1"]);
        }
        if !args.contains(&"--request-id-prefix") {
            all.extend(["--request-id-prefix", "id-"]);
        }
        all.extend(["--disable-tqdm", "--save-result"]);
        all.extend(args);
        self.add_bare(&all);
    }

    /// Adds a case with nothing but these arguments.
    pub(super) fn add_bare(&mut self, args: &[&str]) {
        self.cases
            .push(args.iter().map(|arg| (*arg).to_owned()).collect());
    }

    /// A file of JSON lines.
    pub(super) fn lines(&self, name: &str, rows: &[Value]) -> String {
        let path = self.desk.path().join(name);
        let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
        std::fs::write(&path, text).expect("a file can be written");
        path.display().to_string()
    }

    /// A folder of a case and a tool.
    fn folder(&self, tool: &str, place: usize) -> PathBuf {
        let folder = self.desk.path().join(format!("{tool}-{place}"));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        folder
    }

    /// Runs both tools with every case and compares them. Returns the flags of vLLM's tool, each with whether it takes a value.
    pub(super) fn compare(self, python: &Path) -> BTreeMap<String, bool> {
        let flags = self.desk.path().join("flags.json");
        let theirs = self.run_python(python, &flags);
        assert_eq!(theirs.len(), self.cases.len(), "the driver ran every case");
        let differences: Vec<String> = (self.cases.iter().zip(theirs).enumerate())
            .flat_map(|(place, (args, theirs))| self.differences(place, args, theirs))
            .collect();
        assert!(differences.is_empty(), "{}", differences.join("\n"));
        let known: Vec<(String, bool)> =
            serde_json::from_slice(&std::fs::read(flags).expect("the driver wrote it")).expect("it is JSON");
        known.into_iter().collect()
    }

    /// Runs the real tool and returns the requests of each case.
    fn run_python(&self, python: &Path, flags: &Path) -> Vec<Vec<Heard>> {
        let case = |(place, args): (usize, &Vec<String>)| json!({"arguments": args, "folder": self.folder("theirs", place)});
        let cases: Vec<Value> = self.cases.iter().enumerate().map(case).collect();
        let driver = repository().join("tests/bench/vllm_serve/driver.py");
        let mut child = Command::new(python)
            .arg(driver)
            .arg(self.recorder.port.to_string())
            .env("HF_HUB_OFFLINE", "1")
            .env("VLLM_NO_USAGE_STATS", "1")
            .env("VLLM_LOGGING_LEVEL", "ERROR")
            .env("PYTHONHASHSEED", "0")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("OPENAI_API_KEY", "k")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("Python runs");
        let request = json!({"cases": cases, "flags": flags});
        let mut stdin = child.stdin.take().expect("stdin is piped");
        stdin
            .write_all(request.to_string().as_bytes())
            .expect("the driver reads it");
        drop(stdin);
        Ran::from(child.wait_with_output().expect("the driver ends")).exits(0);
        let mut heard = self.recorder.take();
        assert_eq!(heard.pop().map(|last| last.path).as_deref(), Some(NEXT_CASE));
        heard
            .split(|request| request.path == NEXT_CASE)
            .map(<[Heard]>::to_vec)
            .collect()
    }

    /// Runs ours and describes in what it differs.
    fn differences(&self, place: usize, args: &[String], theirs: Vec<Heard>) -> Vec<String> {
        let (their_folder, folder) = (self.folder("theirs", place), self.folder("ours", place));
        if let Ok(error) = std::fs::read_to_string(their_folder.join("error")) {
            return vec![format!("vLLM's tool fails with {args:?}: {error}")];
        }
        let ran = Command::new(crate::binary::matrix())
            .args(["bench", "--like", "vllm"])
            .args(args)
            .current_dir(&folder)
            .env("OPENAI_API_KEY", "k")
            .stdin(Stdio::null())
            .output();
        let ran = Ran::from(ran.expect("the binary runs"));
        let ours = self.recorder.take();
        if ran.code != Some(0) {
            return vec![format!("ours fails with {args:?}: {}", ran.stderr)];
        }
        // Prompts are counted all at once.
        let is_counted = args_value(args, "--model") == Some("bytes");
        let is_ordered = args_value(args, "--max-concurrency") == Some("1") && !is_counted;
        let (ours, theirs) = (facts(ours, is_ordered), facts(theirs, is_ordered));
        assert!(!theirs.is_empty(), "vLLM's tool sends nothing with {args:?}");
        let printed = std::fs::read_to_string(their_folder.join("stdout")).expect("the driver wrote it");
        let results_text = |folder: &Path| {
            results(folder)
                .into_iter()
                .flat_map(|(name, lines)| [vec![name], lines].concat())
        };
        let pairs = [
            ("request", ours, theirs),
            ("line", masked_lines(&ran.stdout), masked_lines(&printed)),
            (
                "result",
                results_text(&folder).collect(),
                results_text(&their_folder).collect(),
            ),
        ];
        pairs
            .into_iter()
            .filter_map(|(what, ours, theirs)| {
                let length = ours.len().max(theirs.len());
                let differs = |at: &usize| ours.get(*at) != theirs.get(*at);
                let at = (0..length).find(differs)?;
                Some(format!(
                    "{what} {at} of {args:?}\n  ours:   {:?}\n  theirs: {:?}",
                    ours.get(at),
                    theirs.get(at)
                ))
            })
            .collect()
    }
}

fn args_value<'a>(args: &'a [String], flag: &str) -> Option<&'a str> {
    let place = args.iter().rposition(|arg| arg == flag)?;
    args.get(place + 1).map(String::as_str)
}
