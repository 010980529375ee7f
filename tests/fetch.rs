//! `matrix fetch` against a local server that plays the model hub: redirects, ranges, broken transfers, tokens, wrong digests.

#[path = "support/binary.rs"]
mod binary;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use sha1::Sha1;
use sha2::{Digest, Sha256};

const TOKENIZER: &str = include_str!("../matrices/data/tokenizer.json");

/// Items of a public task, of which one cannot be graded.
const ITEMS: &str = r#"{"prompt": "Quote it.", "instruction_id_list": ["startend:quotation"], "kwargs": [{}]}
{"prompt": "In German.", "instruction_id_list": ["language:response_language"], "kwargs": [{"language": "de"}]}
{"prompt": "No comma.", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
"#;

/// What the server did, and what it is to do wrong.
#[derive(Default)]
struct Behaviour {
    /// Requests as `METHOD path range auth`.
    seen: Vec<String>,
    /// How often a large file is cut in the middle.
    cuts: u32,
    /// Whether the large file's bytes differ from its digest.
    spoils: bool,
    /// The token that is wanted.
    token: Option<String>,
}

struct Server {
    address: String,
    behaviour: Arc<Mutex<Behaviour>>,
}

impl Server {
    fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = format!("http://{}", listener.local_addr().expect("it is bound"));
        let behaviour = Arc::new(Mutex::new(behaviour));
        let shared = Arc::clone(&behaviour);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || answer(stream, &shared));
            }
        });
        Self { address, behaviour }
    }

    fn seen(&self) -> Vec<String> {
        self.behaviour.lock().expect("the server lives").seen.clone()
    }
}

/// The data set: large enough to be cut.
fn conversations() -> Vec<u8> {
    let turns = |i: usize| {
        format!(
            r#"{{"conversations":[{{"value":"question {i}"}},{{"value":"an answer of some words {i}"}}]}}"#
        )
    };
    format!("[{}]", (0..20_000).map(turns).collect::<Vec<_>>().join(",")).into_bytes()
}

fn answer(mut stream: TcpStream, shared: &Mutex<Behaviour>) {
    let mut lines = BufReader::new(stream.try_clone().expect("sockets can be cloned"))
        .lines()
        .map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    let headers: BTreeMap<String, String> = lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| {
            line.split_once(':')
                .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        })
        .collect();
    let mut words = first.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let range = headers.get("range").cloned().unwrap_or_default();
    let auth = headers.get("authorization").cloned().unwrap_or_default();
    let (cut, spoils, refused) = {
        let mut behaviour = shared.lock().expect("no test panics with it");
        behaviour.seen.push(format!("{method} {path} {range} {auth}"));
        let refused = behaviour
            .token
            .as_ref()
            .is_some_and(|token| auth != format!("Bearer {token}") && !path.starts_with("/cdn"));
        let cut = method == "GET" && path.starts_with("/cdn") && behaviour.cuts > 0;
        behaviour.cuts -= u32::from(cut);
        (cut, behaviour.spoils, refused)
    };
    let large = conversations();
    let sha256 = hex(&Sha256::digest(&large));
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let small = |text: &str| {
        let digest = hex(&Sha1::digest(
            [format!("blob {}\0", text.len()).as_bytes(), text.as_bytes()].concat(),
        ));
        format!("X-Repo-Commit: {commit}\r\nETag: \"{digest}\"\r\n")
    };
    let (status, extra, body): (&str, String, Vec<u8>) = match path {
        _ if refused => ("401 Unauthorized", String::new(), Vec::new()),
        "/datasets/anon8231489123/ShareGPT_Vicuna_unfiltered/resolve/main/ShareGPT_V3_unfiltered_cleaned_split.json" => {
            (
                "302 Found",
                format!(
                    "X-Repo-Commit: {commit}\r\nX-Linked-Etag: \"{sha256}\"\r\nX-Linked-Size: {}\r\nLocation: /cdn/large\r\n",
                    large.len()
                ),
                Vec::new(),
            )
        }
        "/cdn/large" => {
            let from: usize = range
                .strip_prefix("bytes=")
                .and_then(|range| range.trim_end_matches('-').parse().ok())
                .unwrap_or(0);
            let mut body = large[from..].to_vec();
            if spoils {
                body[0] = b'!';
            }
            (
                if from > 0 { "206 Partial Content" } else { "200 OK" },
                String::new(),
                body,
            )
        }
        "/datasets/google/IFEval/resolve/main/ifeval_input_data.jsonl" => {
            ("200 OK", small(ITEMS), ITEMS.into())
        }
        "/some/model/resolve/main/tokenizer.json" => ("200 OK", small(TOKENIZER), TOKENIZER.into()),
        "/some/model/resolve/main/config.json" => ("200 OK", small("{}"), b"{}".to_vec()),
        "/some/model/resolve/main/weights.bin" => ("200 OK", small("weights"), b"weights".to_vec()),
        "/api/models/some/model/revision/main" => {
            let list = r#"{"siblings":[{"rfilename":"config.json"},{"rfilename":"weights.bin"},{"rfilename":"../evil"}]}"#;
            ("200 OK", String::new(), list.into())
        }
        _ => ("404 Not Found", String::new(), Vec::new()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\n{extra}Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(head.as_bytes());
    if method != "HEAD" {
        let send = if cut { &body[..body.len() / 3] } else { &body[..] };
        let _ = stream.write_all(send);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn fetch(folder: &Path, server: &Server, token: Option<&str>, more: &[&str]) -> Output {
    let matrix = "name: t\nengines: [vllm]\nmodels: [some/model]\nscenarios: [sharegpt]\n";
    std::fs::write(folder.join("m.yaml"), matrix).expect("a file can be written");
    let fetch = ["fetch", "m.yaml", "--endpoint", &server.address];
    call(folder, token, &[&fetch, more].concat())
}

fn call(folder: &Path, token: Option<&str>, arguments: &[&str]) -> Output {
    let mut command = Command::new(binary::matrix());
    command.args(arguments).current_dir(folder);
    command
        .env("HF_HOME", folder.join("hf"))
        .env_remove("HF_TOKEN")
        .env("NO_PROXY", "127.0.0.1");
    if let Some(token) = token {
        command.env("HF_TOKEN", token);
    }
    command.output().expect("the binary runs")
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn what_a_matrix_lacks_is_fetched_resumed_and_found_offline() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let server = Server::start(Behaviour {
        cuts: 2,
        ..Behaviour::default()
    });
    let output = fetch(folder.path(), &server, None, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let hub = folder.path().join("hf/hub");
    let data = hub.join("datasets--anon8231489123--ShareGPT_Vicuna_unfiltered/snapshots/0123456789abcdef0123456789abcdef01234567");
    let file = data.join("ShareGPT_V3_unfiltered_cleaned_split.json");
    assert_eq!(std::fs::read(&file).expect("it is there"), conversations());
    assert!(
        std::fs::symlink_metadata(&file)
            .expect("it is there")
            .is_symlink(),
        "the layout of the hub's own tools"
    );
    let resumed = server
        .seen()
        .iter()
        .filter(|line| line.starts_with("GET /cdn/large bytes="))
        .count();
    assert_eq!(
        resumed,
        2,
        "a broken transfer goes on where it broke: {:?}",
        server.seen()
    );
    // The run's own lookup finds both now, and a second fetch has nothing to do.
    let again = fetch(folder.path(), &server, None, &[]);
    assert!(said(&again).contains("nothing is missing"), "{}", said(&again));
}

#[test]
fn the_items_of_public_tasks_are_fetched_and_planned() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let server = Server::start(Behaviour::default());
    let matrix = "name: t\nengines: [vllm]\nmodels: [some/model]\n\
                  scenarios: [l: { dataset: random-ids, prompts: 4, concurrency: 2, input_len: 8, output_len: 8 }]\n\
                  quality: { tasks: [ifeval: { items: 2 }] }\n";
    std::fs::write(folder.path().join("m.yaml"), matrix).expect("a file can be written");
    let missing = "the file with the items of the task `ifeval` is missing";
    let plan = call(folder.path(), None, &["plan", "m.yaml"]);
    assert!(said(&plan).contains(missing), "{}", said(&plan));
    let fetch = ["fetch", "m.yaml", "--endpoint", &server.address];
    let fetched = call(folder.path(), None, &fetch);
    assert_eq!(fetched.status.code(), Some(0), "{}", said(&fetched));
    let file = "google/IFEval/ifeval_input_data.jsonl";
    assert!(said(&fetched).contains(file), "{}", said(&fetched));
    let plan = call(folder.path(), None, &["plan", "m.yaml"]);
    assert!(!said(&plan).contains(missing), "{}", said(&plan));
    assert!(said(&plan).contains("2 graded items"), "{}", said(&plan));
    let again = call(folder.path(), None, &fetch);
    assert!(said(&again).contains("nothing is missing"), "{}", said(&again));
}

#[test]
fn the_files_of_a_model_are_fetched_when_asked_for_and_none_leaves_the_cache() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let server = Server::start(Behaviour::default());
    let output = fetch(folder.path(), &server, None, &["--models"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let snapshot = folder
        .path()
        .join("hf/hub/models--some--model/snapshots/0123456789abcdef0123456789abcdef01234567");
    assert_eq!(
        std::fs::read_to_string(snapshot.join("weights.bin")).expect("it is there"),
        "weights"
    );
    assert!(!server.seen().iter().any(|line| line.contains("evil")));
    // Other users and containers read a shared cache.
    let mode = |path: &Path| {
        let about = std::fs::metadata(path).expect("it is there");
        std::os::unix::fs::PermissionsExt::mode(&about.permissions()) & 0o777
    };
    let reference = folder.path().join("hf/hub/models--some--model/refs/main");
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "").expect("a file can be written");
    assert_eq!(mode(&reference), mode(&plain), "the umask decides");
}

#[test]
fn a_wrong_digest_is_thrown_away_and_told() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let server = Server::start(Behaviour {
        spoils: true,
        ..Behaviour::default()
    });
    let output = fetch(folder.path(), &server, None, &[]);
    assert_eq!(output.status.code(), Some(4));
    assert!(said(&output).contains("is corrupt"), "{}", said(&output));
    let blobs = folder
        .path()
        .join("hf/hub/datasets--anon8231489123--ShareGPT_Vicuna_unfiltered/blobs");
    assert_eq!(
        std::fs::read_dir(blobs).expect("the folder is there").count(),
        0,
        "nothing wrong is kept"
    );
}

#[test]
fn a_token_is_sent_to_the_hub_alone_and_a_missing_one_is_named() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let server = Server::start(Behaviour {
        token: Some("hf_right".into()),
        ..Behaviour::default()
    });
    let without = fetch(folder.path(), &server, None, &[]);
    assert_eq!(without.status.code(), Some(4));
    assert!(said(&without).contains("HF_TOKEN"), "{}", said(&without));
    let with = fetch(folder.path(), &server, Some("hf_right"), &[]);
    assert_eq!(with.status.code(), Some(0), "{}", said(&with));
    assert!(!said(&with).contains("hf_right"));
}

#[test]
fn a_hub_that_cannot_be_reached_is_told_in_words() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let server = Server {
        address: "http://127.0.0.1:9".into(),
        behaviour: Arc::default(),
    };
    let output = fetch(folder.path(), &server, None, &[]);
    assert_eq!(output.status.code(), Some(4));
    assert!(
        said(&output).contains("cannot fetch") && said(&output).contains("refused"),
        "{}",
        said(&output)
    );
    // Said once, with how many files are left.
    let errors = said(&output).matches("cannot fetch").count();
    assert_eq!(errors, 1, "{}", said(&output));
    assert!(
        said(&output).contains("6 more files of the hub were not downloaded"),
        "{}",
        said(&output)
    );
}
