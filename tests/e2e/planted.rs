//! Secrets planted wherever one can come from, each another value: none is in any file, stream or page, however it is spelled.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::harness::Bench;
use crate::nightly::{LENIENT, newest, receiver};

/// Of a variable that the matrix names.
const NAMED: &str = "named-Qx71bT-4711";
/// Of the hub's variable, which no matrix names.
const HUB: &str = "hf_unnamedKpW83zR0815";
/// Of a variable that looks like a secret, and that no engine gets.
const OTHER: &str = "other-service-V5n2Ym";
/// Of the URL of a server.
const URL: &str = "gateway-Hs64Lt-url";
/// Of a flag.
const FLAG: &str = "flag-Jd90Rw-key";
/// Of the webhook's address.
const HOOK: &str = "T0HOOK-B0-Zx55Gq";

const ALL: [&str; 6] = [NAMED, HUB, OTHER, URL, FLAG, HOOK];

/// The same text cut by a colour, as Python's `rich` writes it.
fn colored(token: &str) -> String {
    let (head, tail) = token.split_at(token.len() / 2);
    format!("\u{1b}[32m{head}\u{1b}[1;36m{tail}\u{1b}[0m")
}

fn based(token: &str) -> String {
    STANDARD.encode(format!("user:{token}"))
}

/// A server that answers the first question for tokens of whoever attaches, and then fails with everything that it was told.
fn telltale() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    std::thread::spawn(move || {
        let mut asked = 0;
        for stream in listener.incoming().map_while(Result::ok) {
            let mut stream = stream;
            let Some(request) = request(&mut stream) else {
                continue;
            };
            if request.starts_with("GET") {
                // Whoever attaches anew looks first.
                asked = 0;
            }
            let (status, kind, body) = if request.starts_with("GET") && request.contains("/v1/models") {
                (
                    "200 OK",
                    "application/json",
                    r#"{"data":[{"id":"m"}]}"#.to_owned(),
                )
            } else if request.starts_with("GET") && request.contains("/health") {
                ("200 OK", "application/json", "{}".to_owned())
            } else if request.starts_with("GET") {
                ("404 Not Found", "text/plain", format!("no such page for {NAMED}"))
            } else if asked == 0 {
                asked += 1;
                let event = r#"{"id":"1","object":"text_completion","model":"m","choices":[{"index":0,"text":" a","finish_reason":"length"}],"usage":{"prompt_tokens":4,"completion_tokens":1,"total_tokens":5}}"#;
                (
                    "200 OK",
                    "text/event-stream",
                    format!("data: {event}\n\ndata: [DONE]\n\n"),
                )
            } else {
                let body = serde_json::json!({
                    "error": format!("not allowed: {NAMED}, {}, {}", colored(NAMED), based(NAMED)),
                    "asked": request,
                });
                ("500 Internal Server Error", "application/json", body.to_string())
            };
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all((head + &body).as_bytes());
        }
    });
    format!("http://{address}")
}

/// What one connection asks, its body read to the end.
fn request(stream: &mut TcpStream) -> Option<String> {
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut piece).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse::<usize>().ok())?
        });
        if body.len() >= length.unwrap_or(0) {
            return Some(text);
        }
    }
}

/// A shell's lines that write tokens as engines do: plain, cut by colours, in base64, and across the ends of buffers.
fn talk() -> String {
    let mut lines = vec![
        "echo named $PLANTED hub $HF_TOKEN flag $1 other $OTHER_API_KEY".to_owned(),
        "echo basic $(printf user:%s $PLANTED | base64) $(printf %s $HF_TOKEN | base64)".to_owned(),
    ];
    for token in ["$PLANTED", "$HF_TOKEN"] {
        lines.push(format!(
            "h=$(printf %s {token} | cut -c 1-9); t=$(printf %s {token} | cut -c 10-); printf \"rich \\\\033[32m%s\\\\033[1;36m%s\\\\033[0m\\\\n\" $h $t"
        ));
    }
    for end in [4096, 8192, 65_536] {
        lines.push(format!(
            "head -c {} /dev/zero | tr \"\\\\000\" x; printf \"%s\\\\n\" $PLANTED",
            end - 8
        ));
    }
    lines.join("; ")
}

fn matrix(server: &str) -> String {
    let talk = talk();
    format!(
        r#"name: t
engines:
  - sim:
      as: talker
      variant: vllm
      command: [sh, -c, '{talk}; shift; exec "$@"', sh, "${{PLANTED_FLAG}}", "{{matrix}}", sim, --model, "{{served}}", --port, "{{port}}"]
      args: [--ttft, 5ms, --itl, 5ms, --api-key, "${{PLANTED_NAMED}}", --version-string, "1-${{PLANTED_FLAG}}"]
      env: {{ PLANTED: "${{PLANTED_NAMED}}" }}
      headers: {{ Authorization: "Bearer ${{PLANTED_NAMED}}", X-Url: "http://user:${{PLANTED_NAMED}}@host/" }}
  - sim:
      as: dying
      variant: vllm
      command: [sh, -c, '{talk}; exit 7', sh, "${{PLANTED_FLAG}}"]
      env: {{ PLANTED: "${{PLANTED_NAMED}}" }}
  - attach:
      as: telltale
      url: "{server}/${{PLANTED_URL}}"
      headers: {{ Authorization: "Bearer ${{PLANTED_NAMED}}" }}
models:
  - m: {{ tokenizer: data/tokenizer.json }}
scenarios:
  - random-1k-1k: {{ prompts: 3, input_len: 8, output_len: 10, warmup: 0 }}
datasets: {{ sharegpt: data/conversations.json }}
{LENIENT}"#
    )
}

#[test]
fn planted_secrets_are_in_no_file_stream_or_page() {
    let bench = Bench::of(&matrix(&telltale()));
    let (url, posted) = receiver();
    let mut bench = bench.variable("MATRIX_WEBHOOK", &format!("{url}/{HOOK}"));
    for (name, value) in [
        ("PLANTED_NAMED", NAMED),
        ("HF_TOKEN", HUB),
        ("OTHER_API_KEY", OTHER),
        ("PLANTED_URL", URL),
        ("PLANTED_FLAG", FLAG),
    ] {
        bench = bench.variable(name, value);
    }
    let mut seen = Seen::default();
    let call = |seen: &mut Seen, args: &[&str], code: i32| {
        let ran = bench.call(args).exits(code);
        let what = args.join(" ");
        seen.look(&format!("stdout of {what}"), ran.stdout.as_bytes());
        seen.look(&format!("stderr of {what}"), ran.stderr.as_bytes());
        ran
    };
    let file = "matrices/m.yaml";
    for more in [&[][..], &["--json"]] {
        call(&mut seen, &[&["check", file], more].concat(), 0);
        call(&mut seen, &[&["plan", file], more].concat(), 0);
    }
    let night = [
        "nightly",
        file,
        "--no-calibration",
        "--gate",
        "mean_tpot_ms",
        "--junit",
        "results/junit.xml",
    ];
    let ran = call(&mut seen, &night, 3);
    assert!(
        ran.stderr.contains("***"),
        "what failed is quoted: {}",
        ran.stderr
    );
    seen.is_clean();
    let body = posted
        .recv_timeout(Duration::from_secs(5))
        .expect("what failed is reported");
    seen.look("the webhook's body", body.to_string().as_bytes());
    let first = newest(&bench).display().to_string();
    let again = ["run", file, "--no-calibration", "--json"];
    let events = call(&mut seen, &again, 3);
    assert!(events.stdout.contains("***"), "{}", events.stdout);
    let resume = [&again[..3], &["--resume", "--failed"]].concat();
    call(&mut seen, &resume, 3);
    let second = newest(&bench).display().to_string();
    assert_ne!(first, second);
    for format in ["terminal", "markdown", "html", "csv", "json"] {
        call(&mut seen, &["report", &first, "--format", format], 0);
    }
    call(
        &mut seen,
        &["report", &first, &second, "--out", "results/drawn"],
        0,
    );
    for more in [&[][..], &["--json"]] {
        call(&mut seen, &[&["explain", "--run", &first], more].concat(), 0);
    }
    let set = [
        "baseline",
        "set",
        file,
        &first,
        "--reason",
        "the first",
        "--gate",
        "mean_tpot_ms",
    ];
    call(&mut seen, &set, 0);
    call(&mut seen, &["baseline", "show", file], 0);
    for format in ["terminal", "markdown", "json"] {
        let ran = bench.call(&[
            "compare",
            &first,
            &second,
            "--gate",
            "mean_tpot_ms",
            "--format",
            format,
        ]);
        seen.look("compare", (ran.stdout + &ran.stderr).as_bytes());
    }
    for format in ["terminal", "html", "json"] {
        call(&mut seen, &["history", "t", "--format", format], 0);
    }

    let root = bench.results();
    let root = root.parent().expect("results lie in the folder");
    let mut files = Vec::new();
    for part in ["results", "cache", "matrices"] {
        everything(&root.join(part), &mut files);
    }
    for file in &files {
        // What was planted.
        if file.ends_with("m.yaml") && !file.starts_with(root.join("results")) {
            continue;
        }
        let bytes = fs::read(file).expect("files can be read");
        let is_packed = file.extension().is_some_and(|kind| kind == "zst");
        let bytes = match is_packed {
            true => zstd::decode_all(&bytes[..]).expect("it is zstd"),
            false => bytes,
        };
        seen.look(&file.display().to_string(), &bytes);
    }
    seen.has("engine.log", "named *** hub *** flag *** other");
    seen.has("requests.jsonl.zst", "not allowed: ***");
    for name in [
        "post-mortem.md",
        "summary.json",
        "results.jsonl",
        "report.html",
        "report.md",
        "report.json",
        "nightly.md",
        "junit.xml",
        "journal.jsonl",
        "plan.json",
        "history-t.jsonl",
        "m.baseline.json",
    ] {
        seen.has(name, "");
    }
    seen.is_clean();
    bench.leaves_no_process();
}

/// What was looked through, and what was found in it.
#[derive(Default)]
struct Seen {
    texts: Vec<(String, String)>,
    found: Vec<String>,
}

impl Seen {
    fn look(&mut self, what: &str, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let plain = without_colors(&text);
        for token in ALL {
            // Also half a token is too much of it.
            let (head, tail) = token.split_at(token.len() / 2);
            let in_base64 =
                [token, &format!("user:{token}"), &format!("{token}\n")].map(|text| STANDARD.encode(text));
            let is_there = plain.contains(head)
                || plain.contains(tail)
                || in_base64
                    .iter()
                    .any(|based| plain.contains(&based[4..based.len() - 4]));
            if is_there {
                let lines = plain
                    .lines()
                    .filter(|line| line.contains(head) || line.contains(tail));
                let lines: Vec<String> = lines
                    .take(2)
                    .map(|line| line.chars().take(300).collect())
                    .collect();
                self.found.push(format!("`{token}` is in {what}: {lines:?}"));
            }
        }
        self.texts.push((what.to_owned(), text));
    }

    fn is_clean(&self) {
        assert!(self.found.is_empty(), "{}", self.found.join("\n"));
    }

    /// Insists that a file of this name was looked through, and that one of them holds a text.
    fn has(&self, name: &str, text: &str) {
        let mut files = self
            .texts
            .iter()
            .filter(|(what, _)| what.ends_with(name))
            .peekable();
        assert!(files.peek().is_some(), "no {name} was looked through");
        assert!(
            files.any(|(_, content)| content.contains(text)),
            "no {name} holds `{text}`"
        );
    }
}

fn without_colors(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let escapes = ["\\u001b[", "\\x1b[", "&#27;[", "\u{1b}["];
    let mut rest = text;
    while let Some((at, escape)) = escapes
        .iter()
        .filter_map(|escape| Some((rest.find(escape)?, escape)))
        .min()
    {
        plain.push_str(&rest[..at]);
        rest = &rest[at + escape.len()..];
        let end = rest
            .find(|letter: char| letter.is_ascii_alphabetic())
            .unwrap_or(0);
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    plain + rest
}

fn everything(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => everything(&path, files),
            false => files.push(path),
        }
    }
}
