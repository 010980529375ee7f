//! Launches, logs and small servers for the tests of `engine`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::base::ids::{LaunchId, RunId};
use crate::base::secrets::Redactor;
use crate::base::units::Span;
use crate::config::template::Text;
use crate::engine::{Context, Logs, Running, StartError, free_port, start};
use crate::plan::{
    Attach, Blame, Contact, Container, DeadSign, Engine, Launch, Patience, PhaseSign, Place, Process,
    Protocol, Reading, Reset, Signs,
};
use crate::results::store::Store;

/// The secret that must not appear in any file.
pub(crate) const SECRET: &str = "hunter2-hunter2";

/// A temporary folder with a store.
pub(crate) struct Bench {
    pub(crate) folder: tempfile::TempDir,
    store: Store,
}

impl Bench {
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

    pub(crate) fn context(&self) -> Context {
        let path = std::process::Command::new("sh")
            .args(["-c", "printf %s \"$PATH\""])
            .output()
            .unwrap();
        Context {
            run: RunId::new("r"),
            start: 1,
            devices: Vec::new(),
            device_names: Vec::new(),
            cpus: None,
            redactor: Redactor::new([SECRET]),
            secret: Arc::new(|name| (name == "KEY").then(|| SECRET.to_owned())),
            matrix: PathBuf::from("matrix"),
            shim: None,
            path: Some(String::from_utf8(path.stdout).unwrap()),
            environment: Vec::new(),
            hf_home: None,
            cache: self.path().join("cache"),
            whereabouts: crate::engine::Whereabouts::default(),
            images: Arc::default(),
            orphans: Arc::default(),
            folder: self.path().to_owned(),
            port: free_port().unwrap(),
        }
    }

    pub(crate) fn logs(&self, launch: &Launch) -> Logs {
        Logs {
            engine: self.store.engine_log(&launch.id, 1).unwrap(),
            install: self.store.install_log(&launch.id, 1).unwrap(),
        }
    }

    pub(crate) async fn start(&self, launch: &Launch) -> Result<Running, StartError> {
        start(launch, &self.context(), self.logs(launch), &|_| {}).await
    }

    /// The content of all files below `results`.
    pub(crate) fn written(&self) -> String {
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
pub(crate) fn shell(script: &str) -> Launch {
    command(&["sh", "-c", script])
}

pub(crate) fn python(script: &str) -> Launch {
    command(&["python3", "-u", "-c", script, "{port}"])
}

pub(crate) fn attached(url: &str) -> Launch {
    Launch {
        place: Place::Attach(Attach {
            url: Text::new(url),
            ..Attach::default()
        }),
        ..command(&["none"])
    }
}

pub(crate) fn contained(container: Container) -> Launch {
    Launch {
        place: Place::Container(Box::new(container)),
        ..command(&["none"])
    }
}

pub(crate) fn command(words: &[&str]) -> Launch {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let process = Process {
        command: words.iter().map(|word| Text::new(*word)).collect(),
        ..Process::default()
    };
    let engine = Engine {
        title: "Test".into(),
        backend: "vllm".into(),
        simulated: true,
        ..Engine::new("test")
    };
    let contact = Contact {
        models: Some("/v1/models".into()),
        version: Some(Reading {
            path: "/version".into(),
            pointer: "/version".into(),
        }),
        info: Some("/info".into()),
        reset: Some(Reset {
            method: "POST".into(),
            path: "/reset".into(),
            success: Some("/success".into()),
        }),
        ..Contact::new(Protocol::Completions)
    };
    Launch {
        id: LaunchId::new(format!("launch-{}", NEXT.fetch_add(1, Ordering::Relaxed))),
        signs: Signs {
            phases: vec![PhaseSign {
                phase: "weights".into(),
                pattern: "Loading".into(),
            }],
            dead: vec![
                DeadSign {
                    pattern: "out of memory".into(),
                    means: "the memory does not hold it".into(),
                    help: "raise tp".into(),
                    fatal: false,
                    blame: Blame::Capacity,
                },
                DeadSign {
                    pattern: "core died".into(),
                    means: "its core died".into(),
                    help: "read above".into(),
                    fatal: true,
                    blame: Blame::Engine,
                },
            ],
        },
        patience: Patience {
            start: Span::seconds(30),
            stall: Span::seconds(20),
            stop: Span::seconds(10),
            probe: Span(Duration::from_millis(400)),
        },
        ..Launch::new(engine, "m", Place::Process(process), contact)
    }
}

pub(crate) fn process(launch: &mut Launch) -> &mut Process {
    match &mut launch.place {
        Place::Process(process) => process,
        _ => panic!("the launch is no process"),
    }
}

/// A server that becomes healthy at the third request, knows its version, and answers that a cache reset
/// failed.
pub(crate) const SERVER: &str = r#"
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
