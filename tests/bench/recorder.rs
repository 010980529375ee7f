//! A server that keeps what it is sent and answers each request with as many words as were asked for.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};

/// A request: its path, its headers in lower case, its body.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    pub path: String,
    pub headers: Vec<String>,
    pub body: Value,
}

/// How the server answers a request to empty its caches.
#[derive(Clone, Copy)]
pub enum Flush {
    AsOthers,
    Answer(&'static str),
    Silence,
}

/// The server; its thread ends with the process.
pub struct Recorder {
    pub port: u16,
    heard: Arc<Mutex<Vec<Heard>>>,
}

impl Recorder {
    pub fn start() -> Self {
        Self::listen(Flush::AsOthers, Duration::ZERO)
    }

    pub fn flushing(flush: Flush) -> Self {
        Self::listen(flush, Duration::ZERO)
    }

    /// Waits before each answer to a request that carries something, so that requests sent together are under way together.
    pub fn delayed(delay: Duration) -> Self {
        Self::listen(Flush::AsOthers, delay)
    }

    fn listen(flush: Flush, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it has one").port();
        let heard: Arc<Mutex<Vec<Heard>>> = Arc::default();
        let keep = Arc::clone(&heard);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let keep = Arc::clone(&keep);
                // A client that goes away early ends its thread, and the test misses the request.
                std::thread::spawn(move || serve(&mut stream.ok()?, &keep, flush, delay));
            }
        });
        Self { port, heard }
    }

    /// What came since the last look.
    pub fn take(&self) -> Vec<Heard> {
        std::mem::take(&mut *self.heard.lock().expect("no holder panics"))
    }
}

fn serve(stream: &mut TcpStream, keep: &Mutex<Vec<Heard>>, flush: Flush, delay: Duration) -> Option<()> {
    let (head, body) = read(stream)?;
    let mut lines = head.lines();
    let mut words = lines.next()?.split(' ');
    let (method, path) = (words.next()?, words.next()?.to_owned());
    if method == "GET" {
        let answer = match path.as_str() {
            "/v1/models" => {
                json!({"object": "list", "data": [{"id": "m", "object": "model", "root": "models/m"}]})
            }
            "/" => json!({}),
            "/server_info" => json!({"internal_states": [{}]}),
            _ => return reply(stream, "404 Not Found", "text/plain", ""),
        };
        return reply(stream, "200 OK", "application/json", &answer.to_string());
    }
    let body: Value = match (body.is_empty(), boundary(&head)) {
        (true, _) => Value::Null,
        (false, Some(boundary)) => form(boundary, &body)?,
        (false, None) => serde_json::from_slice(&body).ok()?,
    };
    let is_flush = path.starts_with("/flush_cache") || path.starts_with("/reset_prefix_cache");
    let answer = match flush {
        Flush::Answer(answer) if is_flush => answer.to_owned(),
        Flush::Silence if is_flush => {
            // Until the client goes away.
            let _ = stream.read(&mut [0]);
            return None;
        }
        _ => answer(&path, &body),
    };
    let headers = lines
        .filter_map(|line| line.split_once(": "))
        // Every client draws its own boundary.
        .map(|(name, value)| (name, value.split("; boundary=").next().unwrap_or(value)))
        .map(|(name, value)| format!("{}: {value}", name.to_lowercase()))
        .collect();
    keep.lock().ok()?.push(Heard { path, headers, body });
    std::thread::sleep(delay);
    let kind = match answer.starts_with('{') {
        true => "application/json",
        false => "text/event-stream",
    };
    reply(stream, "200 OK", kind, &answer)
}

fn read(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let length = stream.read(&mut buffer).ok().filter(|length| *length > 0)?;
        bytes.extend_from_slice(&buffer[..length]);
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let is_length = |line: &&str| line.to_lowercase().starts_with("content-length:");
        let length = head.lines().find(is_length).and_then(|line| line.split_once(':'));
        let length: usize = length.map_or(Some(0), |(_, digits)| digits.trim().parse().ok())?;
        if bytes.len() >= end + 4 + length {
            return Some((head, bytes.split_off(end + 4)));
        }
    }
}

/// The boundary of a form.
fn boundary(head: &str) -> Option<&str> {
    let mut lines = head.lines();
    let line = lines.find(|line| {
        line.to_lowercase()
            .starts_with("content-type: multipart/form-data")
    })?;
    Some(line.split_once("boundary=")?.1.trim_matches('"'))
}

/// The fields of a form in their order, each with its text; of a file its name, type and content.
fn form(boundary: &str, body: &[u8]) -> Option<Value> {
    let mark = format!("--{boundary}").into_bytes();
    let starts: Vec<usize> = (0..body.len())
        .filter(|at| body[*at..].starts_with(&mark))
        .collect();
    let mut fields = Map::new();
    for pair in starts.windows(2) {
        // The line break after the boundary and that before the next one.
        let part = &body[pair[0] + mark.len() + 2..pair[1] - 2];
        let end = part.windows(4).position(|end| end == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&part[..end]).into_owned();
        let quoted = |before: &str| Some(head.split_once(before)?.1.split('"').next()?.to_owned());
        let content = &part[end + 4..];
        let value = match quoted("filename=\"") {
            None => json!(String::from_utf8_lossy(content)),
            Some(name) => {
                let kind = head.lines().find(|line| line.starts_with("Content-Type"));
                json!({"name": name, "type": kind, "content": content})
            }
        };
        fields.insert(quoted("form-data; name=\"")?, value);
    }
    Some(Value::Object(fields))
}

/// A stream of events, a word each; every third answer ends after half of what was asked for.
fn answer(path: &str, body: &Value) -> String {
    // The model `bytes` has a tokenizer whose tokens are bytes.
    if body["model"] == "bytes" && path == "/tokenize" {
        let bytes = body["prompt"].as_str().unwrap_or_default().bytes();
        return json!({"tokens": bytes.collect::<Vec<u8>>()}).to_string();
    }
    if body["model"] == "bytes" && path == "/detokenize" {
        let ids = body["tokens"].as_array().into_iter().flatten();
        let bytes: Vec<u8> = ids.filter_map(|id| u8::try_from(id.as_u64()?).ok()).collect();
        return json!({"prompt": String::from_utf8_lossy(&bytes)}).to_string();
    }
    if ["/v1/embeddings", "/pooling"].contains(&path) {
        let name = if path == "/pooling" { "data" } else { "embedding" };
        // A list of numbers is one prompt of token ids.
        let inputs = body["input"].as_array().filter(|inputs| !inputs[0].is_number());
        let vectors = vec![json!({name: [0.5, -1e-3]}); inputs.map_or(1, Vec::len)];
        return json!({"data": vectors, "usage": {"prompt_tokens": 7}}).to_string();
    }
    if path == "/v1/rerank" {
        let documents = body["documents"].as_array().map_or(0, Vec::len);
        let results: Vec<Value> = (0..documents)
            .map(|index| json!({"index": index, "relevance_score": 0.5}))
            .collect();
        return json!({"results": results, "usage": {"prompt_tokens": 7, "total_tokens": 7}}).to_string();
    }
    let asked = [
        &body["max_tokens"],
        &body["max_completion_tokens"],
        &body["max_output_tokens"],
        &body["sampling_params"]["max_new_tokens"],
    ];
    // The fields of a form are texts.
    let number = |tokens: &&Value| tokens.as_u64().or_else(|| tokens.as_str()?.parse().ok());
    let asked = asked.iter().find_map(number).unwrap_or(1);
    let count = if asked % 3 == 0 { asked.div_ceil(2) } else { asked };
    let (mut events, mut text) = (String::new(), String::new());
    for place in 0..count {
        let word = format!(" word{place}");
        text.push_str(&word);
        let event = match path {
            "/generate" => {
                json!({"text": text, "meta_info": {"prompt_tokens": 7, "completion_tokens": place + 1}})
            }
            "/v1/chat/completions" | "/v1/audio/transcriptions" => {
                json!({"choices": [{"delta": {"content": word}}]})
            }
            "/v1/responses" => json!({"type": "response.output_text.delta", "delta": word}),
            "/v2/models/ensemble/generate_stream" => json!({"text_output": word}),
            _ => json!({"choices": [{"text": word}]}),
        };
        events.push_str(&format!("data: {event}\n\n"));
    }
    if path == "/v1/responses" {
        let usage = json!({"input_tokens": 7, "output_tokens": count});
        let event =
            json!({"type": "response.completed", "response": {"status": "completed", "usage": usage}});
        events.push_str(&format!("event: response.completed\ndata: {event}\n\n"));
        return events;
    }
    if path == "/v1/audio/transcriptions" {
        let usage = json!({"prompt_tokens": 104, "completion_tokens": count});
        events.push_str(&format!("data: {}\n\n", json!({"choices": [], "usage": usage})));
    }
    // Triton ends without a word.
    if !path.starts_with("/v2/") {
        events.push_str("data: [DONE]\n\n");
    }
    events
}

fn reply(stream: &mut TcpStream, status: &str, kind: &str, body: &str) -> Option<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).ok()
}
