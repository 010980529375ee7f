//! A registry of our own on 127.0.0.1, which daemons speak to without TLS: it serves the image of the simulated engine under any
//! name, wants a password, fails for a while, and remembers what it was asked.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::daemon::{Daemon, IMAGE};

/// The registry; it ends with the test's process.
#[derive(Clone)]
pub struct Registry {
    pub at: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    blobs: BTreeMap<String, Vec<u8>>,
    manifests: BTreeMap<String, Vec<u8>>,
    /// Tags by `name:tag`.
    tags: BTreeMap<String, String>,
    /// The value of the header that it wants.
    login: Option<String>,
    /// How many more requests for blobs fail, and how.
    failing: u32,
    asked: Vec<String>,
}

impl Registry {
    /// A registry with the layers of the tests' image and no tag yet.
    pub fn with_layers(daemon: &Daemon) -> (Self, Image) {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let mut save = Command::new("docker")
            .args(["save", &IMAGE])
            .env("DOCKER_HOST", &daemon.host)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the docker program runs");
        let unpacked = Command::new("tar")
            .args(["-x", "-C"])
            .arg(folder.path())
            .stdin(save.stdout.take().expect("it is piped"))
            .status()
            .expect("tar runs");
        assert!(save.wait().expect("it ends").success() && unpacked.success());
        let read = |name: &str| fs::read(folder.path().join(name)).expect("the image has it");
        let saved: Value = serde_json::from_slice(&read("manifest.json")).expect("it is JSON");
        let text = |value: &Value| value.as_str().expect("it is a name").to_owned();
        let config: Value = serde_json::from_slice(&read(&text(&saved[0]["Config"]))).expect("it is JSON");
        let mut state = State::default();
        let layers = saved[0]["Layers"].as_array().expect("it has layers");
        let layers = layers
            .iter()
            .map(|layer| {
                let bytes = read(&text(layer));
                let size = bytes.len();
                let digest = state.keep(bytes);
                json!({ "mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip", "size": size, "digest": digest })
            })
            .collect();
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port can be had");
        let at = listener.local_addr().expect("it has an address");
        let this = Self {
            at,
            state: Arc::new(Mutex::new(state)),
        };
        let server = this.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = server.clone();
                std::thread::spawn(move || server.serve(&stream));
            }
        });
        (this, Image { config, layers })
    }

    /// The name by which a daemon pulls a tag.
    pub fn name(&self, name: &str) -> String {
        format!("{}/{name}", self.at)
    }

    /// Serves an image under `name:tag`: another `mark` makes another image. Gives its digest.
    pub fn push(&self, name: &str, image: &Image, mark: &str) -> String {
        let mut config = image.config.clone();
        config["author"] = json!(mark);
        let config = config.to_string().into_bytes();
        let mut state = self.state.lock().expect("no thread panics");
        let size = config.len();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
            "config": {
                "mediaType": "application/vnd.docker.container.image.v1+json",
                "size": size,
                "digest": state.keep(config),
            },
            "layers": image.layers,
        });
        let manifest = manifest.to_string().into_bytes();
        let digest = digest(&manifest);
        state.manifests.insert(digest.clone(), manifest);
        state.tags.insert(name.to_owned(), digest.clone());
        digest
    }

    /// From now on it wants this login.
    pub fn wants(&self, user: &str, password: &str) {
        let login = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
        self.state.lock().expect("no thread panics").login = Some(login);
    }

    /// The next requests for manifests fail with 503.
    pub fn fails(&self, times: u32) {
        self.state.lock().expect("no thread panics").failing = times;
    }

    /// What it was asked, as `METHOD path status`.
    pub fn asked(&self) -> Vec<String> {
        self.state.lock().expect("no thread panics").asked.clone()
    }

    fn serve(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().expect("a socket can be shared"));
        loop {
            let mut head = Vec::new();
            let mut line = String::new();
            // A daemon tries TLS first, which is no text.
            while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                head.push(line.trim().to_owned());
                line.clear();
            }
            let mut words = head.first().map(|first| first.split(' ')).into_iter().flatten();
            let (Some(method), Some(path)) = (words.next(), words.next()) else {
                return;
            };
            let login = head.iter().find_map(|line| line.strip_prefix("Authorization: "));
            let (status, kind, body) = self.answer(method, path, login);
            let known = format!("{method} {path} {status}");
            self.state.lock().expect("no thread panics").asked.push(known);
            let mut out = stream;
            let said = write!(
                out,
                "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nDocker-Content-Digest: {}\r\n\
                 Docker-Distribution-Api-Version: registry/2.0\r\nWWW-Authenticate: Basic realm=\"r\"\r\n\r\n",
                body.len(),
                digest(&body),
            );
            let body = if method == "HEAD" { Vec::new() } else { body };
            if said.and_then(|()| out.write_all(&body)).is_err() {
                return;
            }
        }
    }

    fn answer(&self, method: &str, path: &str, login: Option<&str>) -> (&'static str, &'static str, Vec<u8>) {
        const JSON: &str = "application/json";
        let mut state = self.state.lock().expect("no thread panics");
        let error = |code: &str| {
            json!({ "errors": [{ "code": code, "message": code }] })
                .to_string()
                .into_bytes()
        };
        if state.login.is_some() && state.login.as_deref() != login {
            return ("401 Unauthorized", JSON, error("UNAUTHORIZED"));
        }
        if path == "/v2/" {
            return ("200 OK", JSON, b"{}".to_vec());
        }
        if let Some((name, reference)) = path.trim_start_matches("/v2/").split_once("/manifests/") {
            if state.failing > 0 && method == "GET" {
                state.failing -= 1;
                return ("503 Service Unavailable", "text/plain", b"later".to_vec());
            }
            let tagged = state.tags.get(&format!("{name}:{reference}")).cloned();
            let found = state
                .manifests
                .get(&tagged.unwrap_or_else(|| reference.to_owned()));
            if let Some(manifest) = found {
                let kind = "application/vnd.docker.distribution.manifest.v2+json";
                return ("200 OK", kind, manifest.clone());
            }
            return ("404 Not Found", JSON, error("MANIFEST_UNKNOWN"));
        }
        let blob = path.rsplit('/').next().and_then(|digest| state.blobs.get(digest));
        match blob {
            Some(blob) => ("200 OK", "application/octet-stream", blob.clone()),
            None => ("404 Not Found", JSON, error("BLOB_UNKNOWN")),
        }
    }
}

impl State {
    fn keep(&mut self, bytes: Vec<u8>) -> String {
        let digest = digest(&bytes);
        self.blobs.insert(digest.clone(), bytes);
        digest
    }
}

/// What images of the registry have in common.
pub struct Image {
    config: Value,
    layers: Value,
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hex}")
}

/// Writes a program that keeps one password, as `docker-credential-<name>`.
pub fn keeper(folder: &Path, name: &str, user: &str, password: &str) {
    use std::os::unix::fs::PermissionsExt;
    let file = folder.join(format!("docker-credential-{name}"));
    let script = format!(
        "#!/bin/sh\ncat >/dev/null\necho '{{\"ServerURL\":\"\",\"Username\":\"{user}\",\"Secret\":\"{password}\"}}'\n"
    );
    fs::write(&file, script).expect("a file can be written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("it is ours");
}
