//! The daemon of the tests, and matrices whose engine is the simulated one in an image of it.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use matrix::cli::env_variable;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::harness::{Bench, Ran, repository};

/// The image of the simulated engine. The tests of another checkout may use the same daemon: theirs is another image.
pub static IMAGE: LazyLock<String> = LazyLock::new(|| {
    let place = Sha256::digest(env!("CARGO_MANIFEST_DIR").as_bytes());
    let tag: String = place[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("matrix-sim:{tag}")
});

/// A daemon for tests.
pub struct Daemon {
    pub host: String,
}

impl Daemon {
    /// The daemon, with the image made; `None`, said aloud, where the test is to be skipped.
    #[track_caller]
    pub fn or_skip() -> Option<Self> {
        static IMAGE_MADE: OnceLock<()> = OnceLock::new();
        let Some(host) = env_variable("MATRIX_DOCKER_HOST") else {
            assert!(
                env_variable("MATRIX_REQUIRE_DOCKER").is_none(),
                "MATRIX_DOCKER_HOST is not set, and MATRIX_REQUIRE_DOCKER is"
            );
            crate::skip::skip(
                "needs Docker; start it with tests/docker/dockerd.sh up and set MATRIX_DOCKER_HOST to what it prints",
            );
            return None;
        };
        IMAGE_MADE.get_or_init(|| make_image(&host));
        Some(Self { host })
    }

    /// What the `docker` program says.
    pub fn docker(&self, args: &[&str]) -> String {
        let output = self.try_docker(args);
        assert!(
            output.status.success(),
            "docker {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Makes an image of its own out of the simulated engine's, with another line.
    pub fn derive(&self, name: &str, line: &str) {
        let mut build = Command::new("docker")
            .args(["build", "--quiet", "-t", name, "-"])
            .env("DOCKER_HOST", &self.host)
            .env("DOCKER_BUILDKIT", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the docker program runs");
        let lines = format!("FROM {}\n{line}\n", IMAGE.as_str());
        let mut stdin = build.stdin.take().expect("it is piped");
        stdin.write_all(lines.as_bytes()).expect("it reads");
        drop(stdin);
        assert!(build.wait().expect("it ends").success(), "{name} is made");
    }

    pub fn try_docker(&self, args: &[&str]) -> Output {
        Command::new("docker")
            .args(args)
            .env("DOCKER_HOST", &self.host)
            .stdin(Stdio::null())
            .output()
            .expect("the docker program runs")
    }

    /// The ids of the containers, also of those that ended, that this filter finds.
    pub fn containers(&self, filter: &str) -> Vec<String> {
        let found = self.docker(&["ps", "-a", "-q", "--no-trunc", "--filter", filter]);
        found.lines().map(str::to_owned).collect()
    }

    /// The containers of the one run in a bench.
    pub fn of_run(&self, bench: &Bench) -> Vec<String> {
        let folder = bench.run_folder();
        let run = folder.file_name().expect("a run has a name").to_string_lossy();
        self.containers(&format!("label=matrix.run={run}"))
    }

    pub fn inspect(&self, id: &str) -> Value {
        let text = self.docker(&["inspect", id]);
        let mut all: Vec<Value> = serde_json::from_str(&text).expect("docker writes JSON");
        all.remove(0)
    }

    /// A matrix with one engine in a container. `name` is its own and the engine's name, unique among the tests, for it becomes
    /// part of the container's and of the run's; `more` are lines of the recipe's `container:`, `args` are added to the simulated engine's.
    pub fn bench(&self, name: &str, more: &[&str], args: &str, scenarios: &str) -> Bench {
        let entry = format!("args: [{args}]");
        self.bench_with(name, more, &entry, scenarios)
    }

    /// The same with any keys in the matrix's entry of the engine.
    pub fn bench_with(&self, name: &str, more: &[&str], entry: &str, scenarios: &str) -> Bench {
        let matrix = format!(
            "name: {name}\nengines:\n  - box: {{ as: {name}, {entry} }}\nmodels:\n  - m: {{ tokenizer: data/tokenizer.json }}\nscenarios:\n{scenarios}datasets: {{ sharegpt: data/conversations.json }}\n"
        );
        let bench = Bench::of(&matrix).variable("DOCKER_HOST", &self.host);
        let engines = folder(&bench).join("engines");
        fs::remove_file(&engines).expect("the link can be removed");
        fs::create_dir(&engines).expect("a folder can be made");
        fs::write(engines.join("box.yaml"), recipe(more)).expect("a file can be written");
        bench
    }
}

/// The recipe, with more lines of its `container:`; a line replaces the usual one of the same key.
pub fn recipe(more: &[&str]) -> String {
    let image = format!("image: {}", *IMAGE);
    let usual = [
        image.as_str(),
        "runtime: nvidia",
        "gpus: all",
        "ipc: host",
        "network: host",
        "command: [--preset, fast, --host, 0.0.0.0, --model, \"{served}\"]",
    ];
    let key = |line: &str| line.split(':').next().unwrap_or_default().to_owned();
    let kept = usual
        .iter()
        .filter(|line| !more.iter().any(|other| key(other) == key(line)));
    let lines: String = kept
        .chain(more)
        // A key without a value takes the usual one out.
        .filter(|line| !line.ends_with(':'))
        .map(|line| format!("  {line}\n"))
        .collect();
    format!(
        "name: box\ntitle: Box\nsimulated: true\nbackend: vllm\nversion: \"1\"\nexecutors: [container]\ndevices: none\ncontainer:\n{lines}\
         port: {{ default: 8000, flag: [--port, \"{{port}}\"] }}\n\
         api:\n  protocol: completions\n  usage: stream-options\n  health: /health\n  models: /v1/models\n  \
         version: {{ path: /version, pointer: /version }}\n\
         log_patterns:\n  fatal:\n    - {{ pattern: CUDA out of memory, means: the memory is full, help: take less }}\n\
         timeouts: {{ start: 60s, stall: 30s, stop: 3s, probe: 10s }}\n"
    )
}

/// Makes the image of the simulated engine at a daemon.
pub fn make_image(host: &str) {
    let made = Command::new(repository().join("tests/docker/dockerd.sh"))
        .args(["image", crate::binary::matrix().as_str(), IMAGE.as_str()])
        .env("DOCKER_HOST", host)
        .output()
        .expect("the script runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// The folder of a bench.
pub fn folder(bench: &Bench) -> PathBuf {
    let results = bench.results();
    results.parent().expect("results lie in the folder").to_owned()
}

/// Waits until the first cell of a run is being measured, and insists that the run is not over before.
pub fn until_measuring(bench: &Bench, child: &mut std::process::Child) {
    until("the first cell", || {
        if let Some(status) = child.try_wait().expect("it can be asked") {
            let mut said = String::new();
            let stderr = child.stderr.as_mut().expect("it is piped");
            std::io::Read::read_to_string(stderr, &mut said).expect("it is text");
            panic!("the run ended ({status}): {said}");
        }
        is_measuring(bench)
    });
}

/// Waits until something is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..1500 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{what} does not come within 30 s");
}

/// A run in the background.
pub fn begin(bench: &Bench) -> std::process::Child {
    bench
        .command(&["run", "matrices/m.yaml"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs")
}

/// The post-mortem of the one cell that has one.
pub fn post_mortem(bench: &Bench) -> String {
    let cells = fs::read_dir(bench.run_folder().join("cells")).expect("there are cells");
    let pages: Vec<String> = cells
        .flatten()
        .filter_map(|cell| fs::read_to_string(cell.path().join("post-mortem.md")).ok())
        .collect();
    assert_eq!(pages.len(), 1, "one post-mortem is expected: {pages:?}");
    pages.into_iter().next().expect("it was counted")
}

/// Whether the first cell of a run is being measured.
fn is_measuring(bench: &Bench) -> bool {
    let run = fs::read_dir(bench.results())
        .ok()
        .and_then(|mut runs| runs.find_map(Result::ok));
    let journal = run.and_then(|run| fs::read_to_string(run.path().join("journal.jsonl")).ok());
    journal.is_some_and(|text| text.contains("cell-began"))
}

/// What a run in the background came to.
pub fn end(child: std::process::Child) -> Ran {
    Ran::from(child.wait_with_output().expect("it ends"))
}
