//! Launches, logs and small servers for the tests of `engine`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::base::ids::{LaunchId, RunId};
use crate::base::secrets::Redactor;
use crate::base::units::HumanDuration;
use crate::config::template::Template;
use crate::engine::{Logs, RunningEngine, StartContext, StartError, free_port, start};
use crate::plan::{
    Api, AttachedServer, CacheResetSpec, Container, Engine, ExecutorSpec, FatalPattern, FaultOwner,
    JsonField, Launch, LogPatterns, PhasePattern, Process, Protocol, Timeouts,
};
use crate::results::store::Store;

/// The secret that must not appear in any file.
pub(crate) const SECRET: &str = "hunter2-hunter2";

/// A temporary folder with a store.
pub(crate) struct TestEnv {
    pub(crate) folder: tempfile::TempDir,
    store: Store,
}

impl TestEnv {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(
            &folder.path().join("results"),
            &RunId::new("r"),
            Redactor::new([SECRET]),
        )
        .unwrap();
        Self { folder, store }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn context(&self) -> StartContext {
        let path = std::process::Command::new("sh")
            .args(["-c", "printf %s \"$PATH\""])
            .output()
            .unwrap();
        StartContext {
            run: RunId::new("r"),
            start: 1,
            devices: Vec::new(),
            device_names: Vec::new(),
            cpus: None,
            redactor: Redactor::new([SECRET]),
            secrets: Arc::new(|name| (name == "KEY").then(|| SECRET.to_owned())),
            matrix_binary: PathBuf::from("matrix"),
            shim_binary: None,
            path: Some(String::from_utf8(path.stdout).unwrap()),
            variable_names: Vec::new(),
            hf_home: None,
            cache_dir: self.path().join("cache"),
            docker_env: crate::engine::DockerEnv::default(),
            images: Arc::default(),
            unremoved: Arc::default(),
            folder: self.path().to_owned(),
            port: free_port().unwrap(),
            further_ports: Vec::new(),
            job_nodes: Default::default(),
        }
    }

    pub(crate) fn logs(&self, launch: &Launch) -> Logs {
        Logs {
            engine: self.store.engine_log(&launch.id, 1).unwrap(),
            install: self.store.install_log(&launch.id, 1).unwrap(),
        }
    }

    pub(crate) async fn start(&self, launch: &Launch) -> Result<RunningEngine, StartError> {
        start(launch, &self.context(), self.logs(launch), &|_| {}).await
    }

    /// The content of all files below `results`.
    pub(crate) fn written_text(&self) -> String {
        let mut text = String::new();
        let mut folders = vec![self.path().join("results")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => text.push_str(&String::from_utf8_lossy(&std::fs::read(&path).unwrap())),
                }
            }
        }
        text
    }
}

/// A launch with a unique id that runs a shell script.
pub(crate) fn shell_launch(script: &str) -> Launch {
    command_launch(&["sh", "-c", script])
}

pub(crate) fn python_launch(script: &str) -> Launch {
    command_launch(&["python3", "-u", "-c", script, "{port}"])
}

pub(crate) fn attach_launch(url: &str) -> Launch {
    Launch {
        place: ExecutorSpec::Attach(AttachedServer {
            url: Template::new(url),
            ..AttachedServer::default()
        }),
        ..command_launch(&["none"])
    }
}

pub(crate) fn container_launch(container: Container) -> Launch {
    Launch {
        place: ExecutorSpec::Container(Box::new(container)),
        ..command_launch(&["none"])
    }
}

pub(crate) fn command_launch(words: &[&str]) -> Launch {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let process = Process {
        command: words.iter().map(|word| Template::new(*word)).collect(),
        ..Process::default()
    };
    let engine = Engine {
        title: "Test".into(),
        backend: "vllm".into(),
        simulated: true,
        ..Engine::new("test")
    };
    let api = Api {
        models: Some("/v1/models".into()),
        version: Some(JsonField {
            path: "/version".into(),
            pointer: "/version".into(),
        }),
        info: Some("/info".into()),
        reset: Some(CacheResetSpec {
            method: "POST".into(),
            path: "/reset".into(),
            success: Some("/success".into()),
        }),
        ..Api::new(Protocol::Completions)
    };
    Launch {
        id: LaunchId::new(format!("launch-{}", NEXT.fetch_add(1, Ordering::Relaxed))),
        log_patterns: LogPatterns {
            configuration: Vec::new(),
            phases: vec![PhasePattern {
                phase: "weights".into(),
                pattern: "Loading".into(),
            }],
            dead: vec![
                FatalPattern {
                    pattern: "out of memory".into(),
                    means: "the memory does not hold it".into(),
                    help: "raise tp".into(),
                    fatal: false,
                    fault: FaultOwner::Capacity,
                },
                FatalPattern {
                    pattern: "core died".into(),
                    means: "its core died".into(),
                    help: "read above".into(),
                    fatal: true,
                    fault: FaultOwner::Engine,
                },
            ],
        },
        timeouts: Timeouts {
            start: HumanDuration::from_secs(30),
            stall: HumanDuration::from_secs(20),
            stop: HumanDuration::from_secs(10),
            probe: HumanDuration(Duration::from_millis(400)),
        },
        ..Launch::new(engine, "m", ExecutorSpec::Process(process), api)
    }
}

pub(crate) fn process(launch: &mut Launch) -> &mut Process {
    match &mut launch.place {
        ExecutorSpec::Process(process) => process,
        _ => panic!("the launch is no process"),
    }
}

/// A server that becomes healthy at the third request, knows its version, and answers that a cache reset
/// failed.
pub(crate) const SERVER_SCRIPT: &str = r#"
import http.server, json, sys
print("Loading weights")
looks = 0
class H(http.server.BaseHTTPRequestHandler):
    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def do_GET(self):
        global looks
        looks += 1
        key = self.headers.get("Authorization")
        {
            "/health": lambda: self.answer(200 if looks > 2 else 503, {}),
            "/version": lambda: self.answer(200, {"version": "1.2.3"}),
            "/v1/models": lambda: self.answer(200, {"data": [{"id": "m"}, {"id": "lora"}]}),
            "/info": lambda: self.answer(200 if key == "Bearer hunter2-hunter2" else 401, {"a": 1}),
        }.get(self.path, lambda: self.answer(404, {}))()
    def do_POST(self):
        self.answer(200, {"success": False, "said": "busy"})
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
"#;
