//! Servers of the tests' own that answer as an honest engine would, but for the one thing that a test gives them.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use matrix::base::clock;
use matrix::loadgen::dataset::Caches;
use matrix::loadgen::dataset::tokenizer::{CleanUp, Tokenizer};
use serde_json::{Value, json};

use crate::harness::repository;

/// Words that are one token each to the tokenizer of the shipped data, with the blank before them.
pub const WORDS: [&str; 16] = [
    " the", " of", " and", " to", " in", " is", " that", " for", " it", " as", " was", " with", " be", " by",
    " on", " not",
];

/// A request, as the server reads it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its number, from 1 on; those that probe and warm up count too.
    pub number: u64,
    /// The ids of its prompt; of a chat those of its last message, and none of another prompt that is text.
    pub ids: Vec<u32>,
    /// How many tokens it asks for.
    pub output: u32,
}

impl Asked {
    /// The text of its prompt, by the tokenizer of the shipped data.
    pub fn text(&self) -> String {
        let text = tokenizer().decode(&self.ids, CleanUp::AsConfigured);
        text.expect("ids have a text")
    }
}

/// The tokenizer of the shipped data.
fn tokenizer() -> &'static Tokenizer {
    static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();
    TOKENIZER.get_or_init(|| {
        let data = repository().join("matrices");
        Tokenizer::open("data/tokenizer.json", &data, &Caches::default()).expect("it is shipped")
    })
}

/// An event of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// How long after the one before it is sent; what has no time of its own is written together with it.
    pub after: Duration,
    /// Its text.
    pub text: String,
}

/// An answer as it is to be sent.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status; what is not 200 has no events.
    pub status: u16,
    /// Its events.
    pub events: Vec<Event>,
    /// The tokens of the prompt that are reported.
    pub prompt: u32,
    /// The tokens of the answer that are reported.
    pub completion: u32,
    /// Tokens of reasoning that are reported.
    pub reasoning: Option<u32>,
    /// Whether there is a report.
    pub usage: bool,
    /// Why it ended.
    pub finish: &'static str,
    /// The model that it names.
    pub model: &'static str,
    /// How it says that it is encoded.
    pub encoding: Option<&'static str>,
}

impl Answer {
    /// An honest one: a word for each token that was asked for, at this pace.
    fn honest(asked: &Asked, ttft: Duration, itl: Duration) -> Self {
        let key = {
            let mut hasher = DefaultHasher::new();
            asked.ids.hash(&mut hasher);
            hasher.finish()
        };
        let event = |index: u32| {
            let mut hasher = DefaultHasher::new();
            (key, index).hash(&mut hasher);
            Event {
                after: if index == 0 { ttft } else { itl },
                text: WORDS[(hasher.finish() % WORDS.len() as u64) as usize].to_owned(),
            }
        };
        Self {
            status: 200,
            events: (0..asked.output).map(event).collect(),
            prompt: asked.ids.len() as u32,
            completion: asked.output,
            reasoning: None,
            usage: true,
            finish: "length",
            model: "m",
            encoding: None,
        }
    }

    /// Joins so many events to one, which is sent when the last of them is due.
    pub fn join(&mut self, count: usize) {
        let joined = self.events.chunks(count).map(|events| Event {
            after: events.iter().map(|event| event.after).sum(),
            text: events.iter().map(|event| event.text.as_str()).collect(),
        });
        self.events = joined.collect();
    }
}

/// What a server does otherwise than an honest one.
#[derive(Clone, Copy)]
pub struct Conduct {
    /// To the first token.
    pub ttft: Duration,
    /// From each token to the next.
    pub itl: Duration,
    /// What becomes of an honest answer.
    pub answer: fn(&Asked, &mut Answer),
    /// The model that it lists once it has read so many requests.
    pub model: fn(u64) -> &'static str,
    /// The longest sequence of tokens that it tells of then.
    pub length: fn(u64) -> u32,
    /// Its metrics, once it has answered so many requests; none where it has no such page.
    pub metrics: Option<fn(u64) -> String>,
}

impl Conduct {
    /// An honest one at this pace in milliseconds.
    pub const fn at(ttft: u64, itl: u64) -> Self {
        Self {
            ttft: Duration::from_millis(ttft),
            itl: Duration::from_millis(itl),
            answer: |_, _| {},
            model: |_| "m",
            length: |_| 4096,
            metrics: None,
        }
    }
}

/// A server of the model `m`, until this is dropped.
pub struct Fake {
    port: u16,
    is_over: Arc<AtomicBool>,
}

impl Fake {
    /// Starts one.
    pub fn start(conduct: Conduct) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let port = listener.local_addr().expect("it has an address").port();
        let (is_over, requests) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let over = Arc::clone(&is_over);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let requests = Arc::clone(&requests);
                // A client that goes away early is no fault of the server.
                std::thread::spawn(move || drop(serve(stream, &conduct, &requests)));
            }
        });
        Self { port, is_over }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // So that it looks.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

fn serve(mut stream: TcpStream, conduct: &Conduct, requests: &AtomicU64) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let path = first.split(' ').nth(1).unwrap_or_default();
    let count = requests.load(Ordering::Relaxed);
    match (path, conduct.metrics) {
        ("/health", _) => plain(&mut stream, 200, "text/plain", "ok"),
        ("/v1/models", _) => {
            let model = json!({"id": (conduct.model)(count), "object": "model", "max_model_len": (conduct.length)(count)});
            let models = json!({"object": "list", "data": [model]});
            plain(&mut stream, 200, "application/json", &models.to_string())
        }
        ("/metrics", Some(metrics)) => plain(&mut stream, 200, "text/plain", &metrics(count)),
        ("/v1/completions" | "/v1/chat/completions", _) => {
            let number = 1 + requests.fetch_add(1, Ordering::Relaxed);
            let asked = read(&body, number);
            let mut answer = Answer::honest(&asked, conduct.ttft, conduct.itl);
            (conduct.answer)(&asked, &mut answer);
            send(&mut stream, &answer, path.contains("chat"))
        }
        _ => plain(&mut stream, 404, "text/plain", "not here"),
    }
}

fn read(body: &[u8], number: u64) -> Asked {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let messages = body["messages"].as_array();
    let said = messages.and_then(|messages| messages.last()?["content"].as_str());
    let ids = match (said, body["prompt"].as_array()) {
        (Some(said), _) => tokenizer().encode(said, false).unwrap_or_default(),
        (None, Some(ids)) => ids.iter().filter_map(|id| id.as_u64()?.try_into().ok()).collect(),
        (None, None) => Vec::new(),
    };
    Asked {
        number,
        ids,
        output: ["max_tokens", "max_completion_tokens"]
            .iter()
            .find_map(|name| body[name].as_u64())
            .unwrap_or(16) as u32,
    }
}

fn plain(stream: &mut TcpStream, status: u16, kind: &str, body: &str) -> std::io::Result<()> {
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status} x\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

fn send(stream: &mut TcpStream, answer: &Answer, is_chat: bool) -> std::io::Result<()> {
    if answer.status != 200 {
        return plain(
            stream,
            answer.status,
            "application/json",
            r#"{"error":{"message":"busy"}}"#,
        );
    }
    let encoding = answer.encoding.map_or_else(String::new, |encoding| {
        format!("Content-Encoding: {encoding}\r\n")
    });
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{encoding}Connection: close\r\n\r\n"
    )?;
    let (began, mut due) = (clock::now(), Duration::ZERO);
    let mut waiting = String::new();
    let last = answer.events.len().saturating_sub(1);
    for (index, event) in answer.events.iter().enumerate() {
        if !event.after.is_zero() {
            stream.write_all(std::mem::take(&mut waiting).as_bytes())?;
            due += event.after;
            std::thread::sleep(due.saturating_sub(clock::now().since(began)));
        }
        let finish = (index == last).then_some(answer.finish);
        let choice = match is_chat {
            true => json!({"index": 0, "delta": {"content": event.text}, "finish_reason": finish}),
            false => json!({"index": 0, "text": event.text, "finish_reason": finish}),
        };
        waiting += &format!(
            "data: {}\n\n",
            json!({"model": answer.model, "choices": [choice]})
        );
    }
    if answer.usage {
        let usage = json!({
            "prompt_tokens": answer.prompt,
            "completion_tokens": answer.completion,
            "total_tokens": answer.prompt + answer.completion,
            "completion_tokens_details": answer.reasoning.map(|tokens| json!({"reasoning_tokens": tokens})),
        });
        waiting += &format!(
            "data: {}\n\n",
            json!({"model": answer.model, "choices": [], "usage": usage})
        );
    }
    stream.write_all((waiting + "data: [DONE]\n\n").as_bytes())
}
