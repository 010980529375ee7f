//! What these tests share: a simulated engine as a process of its own, and the binary beside it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Map, Value};
use tempfile::TempDir;

use crate::nvml::{self, Stub};

/// A simulated engine that ends with the test.
pub struct Sim {
    child: Child,
    pub port: u16,
}

impl Sim {
    /// Starts one and waits until it listens.
    pub fn start(dialect: &str, more: &[&str]) -> Self {
        let mut child = Command::new(crate::binary::matrix())
            .args(["sim", "--dialect", dialect, "--port", "0", "--model", "m"])
            .args(more)
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .expect("the binary runs");
        let mut log = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let port = loop {
            let mut line = String::new();
            assert_ne!(
                log.read_line(&mut line).expect("the log can be read"),
                0,
                "it ended without a port"
            );
            if let Some((_, rest)) = line.split_once("running on http://127.0.0.1:") {
                let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                break digits.parse().expect("a port is a number");
            }
        };
        // Its pipe must not fill up.
        std::thread::spawn(move || log.lines().for_each(drop));
        Self { child, port }
    }

    /// The value of a counter or gauge of its metrics.
    pub fn counter(&self, name: &str) -> f64 {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the engine listens");
        let request = b"GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        stream.write_all(request).expect("it reads");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("it answers");
        let line = page.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        value.unwrap_or_else(|| panic!("no {name} in {page}"))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder of its own in which benches run.
pub struct Desk {
    folder: TempDir,
    library: Option<String>,
}

/// What a bench came to.
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Desk {
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder can be made"),
            library: None,
        }
    }

    /// With the GPUs of a stub.
    pub fn gpus(stub: &Stub) -> Self {
        Self {
            library: Some(stub.path()),
            ..Self::new()
        }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// `matrix bench` with these arguments, without any key of the environment.
    pub fn command(&self, args: &[&str]) -> Command {
        // A shell's background job ignores SIGINT, and so would the binary.
        let mut command = Command::new("env");
        command.arg("--default-signal=INT").arg(crate::binary::matrix());
        command
            .arg("bench")
            .args(args)
            .current_dir(self.folder.path())
            .env("MATRIX_CACHE", self.folder.path().join("cache"))
            .env_remove("OPENAI_API_KEY")
            .env_remove("API_KEY")
            .env_remove("SGLANG_IS_IN_CI")
            .envs(self.library.iter().map(|path| (nvml::VARIABLE, path)))
            .stdin(Stdio::null());
        command
    }

    pub fn call(&self, args: &[&str]) -> Ran {
        Ran::from(self.command(args).output().expect("the binary runs"))
    }

    /// Ten requests of the data set `random` to that port.
    pub fn random(&self, backend: &str, port: u16, more: &[&str]) -> Ran {
        let output = self.random_command(backend, port, more).output();
        Ran::from(output.expect("the binary runs"))
    }

    /// The command that [`Desk::random`] runs.
    pub fn random_command(&self, backend: &str, port: u16, more: &[&str]) -> Command {
        let port = port.to_string();
        let (tokenizer, conversations) = (data("tokenizer.json"), data("conversations.json"));
        let args = [
            "--backend",
            backend,
            "--host",
            "127.0.0.1",
            "--port",
            &port,
            "--tokenizer",
            &tokenizer,
            "--dataset-name",
            "random",
            "--dataset-path",
            &conversations,
            "--num-prompts",
            "10",
            "--random-input-len",
            "32",
            "--random-output-len",
            "8",
            "--random-range-ratio",
            "1.0",
            "--output-file",
            "out.jsonl",
        ];
        self.command(&[&args[..], more].concat())
    }

    /// The lines that were appended.
    pub fn lines(&self) -> Vec<Map<String, Value>> {
        let text = std::fs::read_to_string(self.path().join("out.jsonl")).expect("a line was appended");
        text.lines()
            .map(|line| serde_json::from_str(line).expect("a line is strict JSON"))
            .collect()
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }
}

impl Ran {
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "stdout:\n{}\nstderr:\n{}",
            self.stdout,
            self.stderr
        );
        self
    }

    pub fn says(self, text: &str) -> Self {
        assert!(
            self.stderr.contains(text),
            "`{text}` is not in stderr:\n{}",
            self.stderr
        );
        self
    }

    pub fn shows(self, text: &str) -> Self {
        assert!(
            self.stdout.contains(text),
            "`{text}` is not in stdout:\n{}",
            self.stdout
        );
        self
    }

    /// The labels of the block in order, titles without their rules.
    pub fn labels(&self) -> Vec<String> {
        self.labels_from("")
    }

    /// The labels of the first block from a text on.
    pub fn labels_from(&self, title: &str) -> Vec<String> {
        let from = self.stdout.find(title).unwrap_or_default();
        let block = self.stdout[from..]
            .lines()
            .skip_while(|line| !line.starts_with('='));
        let mut rules = 0;
        let is_of_block = |line: &&str| {
            let is_open = rules < 2;
            rules += usize::from(line.starts_with('='));
            is_open
        };
        block
            .take_while(is_of_block)
            .map(|line| match line.split_once(':') {
                Some((label, _)) => label.to_owned(),
                None => line.trim_matches(['=', '-']).trim().to_owned(),
            })
            .collect()
    }

    /// A value of the block.
    pub fn value(&self, label: &str) -> &str {
        let line = self
            .stdout
            .lines()
            .find(|line| line.split(':').next() == Some(label));
        let line = line.unwrap_or_else(|| panic!("no `{label}` in\n{}", self.stdout));
        line.split_once(':').map_or("", |(_, value)| value.trim())
    }
}

/// A file of the demonstration's data.
pub fn data(name: &str) -> String {
    repository()
        .join("matrices/data")
        .join(name)
        .display()
        .to_string()
}

pub fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
