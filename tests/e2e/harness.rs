//! What the end-to-end tests share: a folder of its own, the real binary, and what it left.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use matrix::base::clock;
use matrix::results::record::cell::{MeasurementStatus, MeasurementSummary, Phase};
use matrix::results::store::Run as Finished;
use tempfile::TempDir;

use crate::nvml::{self, Stub};

/// A matrix in a folder of its own, and the binary that runs it.
pub struct Bench {
    folder: TempDir,
    variables: Vec<(String, String)>,
}

/// What a run of the binary came to.
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Bench {
    /// A folder with this matrix and the demonstration's data.
    pub fn of(matrix: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let matrices = folder.path().join("matrices");
        fs::create_dir_all(&matrices).expect("a folder can be made");
        std::os::unix::fs::symlink(repository().join("matrices/data"), matrices.join("data"))
            .expect("a link can be made");
        std::os::unix::fs::symlink(repository().join("engines"), folder.path().join("engines"))
            .expect("a link can be made");
        fs::write(matrices.join("m.yaml"), bounded(matrix)).expect("a file can be written");
        Self {
            folder,
            variables: Vec::new(),
        }
    }

    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// GPUs of a stub, which no other test uses.
    pub fn gpus(self, stub: &Stub) -> Self {
        let locks = self.folder.path().join("locks").display().to_string();
        self.variable(nvml::VARIABLE, &stub.path())
            .variable("MATRIX_LOCKS", &locks)
    }

    /// The folder that commands are called in.
    pub fn path(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// The matrix file.
    pub fn matrix(&self) -> PathBuf {
        self.folder.path().join("matrices/m.yaml")
    }

    pub fn rewrite(&self, matrix: &str) {
        fs::write(self.folder.path().join("matrices/m.yaml"), bounded(matrix))
            .expect("a file can be written");
    }

    /// As [`Bench::command`], started by another command that ends with the words of its own.
    pub fn wrapped(&self, wrapper: &[&str], args: &[&str]) -> Command {
        let command = self.command(args);
        let (first, rest) = wrapper.split_first().expect("a command has a name");
        let mut outer = Command::new(first);
        outer
            .args(rest)
            .arg(command.get_program())
            .args(command.get_args());
        outer.current_dir(command.get_current_dir().expect("it has one"));
        let set = command.get_envs();
        outer.envs(set.filter_map(|(name, value)| Some((name, value?))));
        outer
    }

    /// The binary with these arguments, in the folder.
    pub fn command(&self, args: &[&str]) -> Command {
        // A shell's background job ignores SIGINT, and so would the binary.
        let mut command = Command::new("env");
        command.arg("--default-signal=INT").arg(crate::binary::matrix());
        command
            .args(args)
            .current_dir(self.folder.path())
            .env("NO_COLOR", "1")
            // By this its engines are found again: they do not get the variables of `matrix`.
            .env("TEST_FOLDER", self.folder.path())
            .env("MATRIX_CACHE", self.folder.path().join("cache"))
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    pub fn call(&self, args: &[&str]) -> Ran {
        Ran::from(self.command(args).output().expect("the binary runs"))
    }

    /// `matrix run` of the folder's matrix.
    pub fn run(&self, more: &[&str]) -> Ran {
        let mut args = vec!["run", "matrices/m.yaml", "--no-calibration"];
        args.extend(more);
        self.call(&args)
    }

    pub fn results(&self) -> PathBuf {
        self.folder.path().join("results")
    }

    /// The one run's folder.
    pub fn run_folder(&self) -> PathBuf {
        let mut runs: Vec<PathBuf> = fs::read_dir(self.results())
            .expect("there are results")
            .map(|entry| entry.expect("results can be read").path())
            .filter(|path| path.join("run.json").exists())
            .collect();
        assert_eq!(runs.len(), 1, "one run is expected: {runs:?}");
        runs.remove(0)
    }

    /// The log of the one start of an engine.
    pub fn engine_log(&self) -> String {
        let launches = fs::read_dir(self.run_folder().join("launches")).expect("an engine was started");
        let logs = launches.map(|start| start.expect("it can be read").path().join("engine.log"));
        let mut logs = logs.filter(|log| log.exists()).collect::<Vec<_>>();
        assert_eq!(logs.len(), 1, "one start is expected: {logs:?}");
        fs::read_to_string(logs.remove(0)).expect("it can be read")
    }

    pub fn finished(&self) -> Finished {
        Finished::read(&self.run_folder()).expect("the run can be read")
    }

    /// The binary with these arguments, begun and not waited for; its stdout is thrown away, its stderr is kept.
    pub fn begin(&self, args: &[&str]) -> Child {
        let mut command = self.command(args);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().expect("the binary runs")
    }

    /// Waits until the journal of the one run says this.
    pub fn until_journal(&self, text: &str) {
        self.until(text, || self.journal().contains(text));
    }

    /// The journal of the one run; nothing before there is one.
    pub fn journal(&self) -> String {
        let runs = fs::read_dir(self.results()).into_iter().flatten().flatten();
        let mut journals = runs.filter_map(|run| fs::read_to_string(run.path().join("journal.jsonl")).ok());
        journals.next().unwrap_or_default()
    }

    /// Waits for something that comes sooner or later.
    pub fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let began = clock::now();
        while !is_so() {
            assert!(
                clock::now().since(began) < Duration::from_secs(60),
                "`{what}` never came; journal:\n{}",
                self.journal()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The processes that a run of this folder started and that still live.
    pub fn survivors(&self) -> Vec<String> {
        marked(&self.folder.path().display().to_string())
    }

    /// Waits a moment for what is ending, then insists that nothing lives.
    pub fn leaves_no_process(&self) {
        for _ in 0..50 {
            if self.survivors().is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("still running: {:?}", self.survivors());
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
}

/// The bounds of tests that are not about bounds: they are short, and share few processors with their engine and with each other.
const BOUNDS: &str = "validity: { send_lag: 10s, client_cpu: 1.0, max_cache_hits: 0.2 }\n";

/// The matrix with these bounds, unless it has its own.
fn bounded(matrix: &str) -> String {
    match matrix.contains("\nvalidity:") {
        true => matrix.to_owned(),
        false => format!("{matrix}{BOUNDS}"),
    }
}

/// A matrix on simulated engines: each with its own arguments, one model, small scenarios.
pub fn sims(engines: &[(&str, &str, &str)], scenarios: &str) -> String {
    let engines: String = engines
        .iter()
        .map(|(name, variant, args)| {
            format!(
                "  - sim: {{ as: {name}, variant: {variant}, args: [--preset, fast{}{args}] }}\n",
                if args.is_empty() { "" } else { ", " }
            )
        })
        .collect();
    format!(
        "name: t\nengines:\n{engines}models:\n  - m: {{ tokenizer: data/tokenizer.json }}\nscenarios:\n{scenarios}datasets: {{ sharegpt: data/conversations.json }}\n"
    )
}

/// The summary of the cell whose key holds both parts.
pub fn summary<'r>(run: &'r Finished, engine: &str, scenario: &str) -> &'r MeasurementSummary {
    let fits = |summary: &&MeasurementSummary| {
        let key = summary.cell.as_str();
        key.contains(&format!("engine={engine},")) && key.contains(&format!("scenario={scenario},"))
    };
    run.summaries
        .iter()
        .find(fits)
        .unwrap_or_else(|| panic!("no cell of {engine} and {scenario}"))
}

/// The phase and reason of a failed cell, with the engine's last words.
pub fn failure(summary: &MeasurementSummary) -> (Phase, String, String) {
    match &summary.status {
        MeasurementStatus::Failed {
            phase, reason, tail, ..
        } => (*phase, reason.clone(), tail.join("\n")),
        other => panic!("{} ended as {other:?}", summary.cell),
    }
}

pub fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Live processes whose working directory or environment names a folder; zombies do not count.
fn marked(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc is there").flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        let environ = String::from_utf8_lossy(&read("environ")).into_owned();
        let is_zombie = String::from_utf8_lossy(&read("stat")).contains(") Z ");
        if environ.contains(folder) && !is_zombie && pid != std::process::id() {
            found.push(format!(
                "{pid}: {}",
                String::from_utf8_lossy(&read("cmdline")).replace('\0', " ")
            ));
        }
    }
    found
}
