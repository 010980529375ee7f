//! Answers that a bench is easily wrong about: a server that says the same to every request, word for word.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::harness::{Desk, Ran};

/// A server that answers each request with these lines, an event each, a few milliseconds apart; its thread ends with the process.
fn serve(lines: &[String]) -> u16 {
    serve_in_turn(&[lines.to_vec()])
}

/// The same with other lines in turn. A line `wait 40` sends nothing for 40 ms.
pub fn serve_in_turn(answers: &[Vec<String>]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it has one").port();
    let (answers, turn) = (answers.to_vec(), Arc::new(AtomicUsize::new(0)));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (answers, turn) = (answers.clone(), Arc::clone(&turn));
            std::thread::spawn(move || answer(stream, &answers, &turn));
        }
    });
    port
}

/// Reads a request with its body; returns its head.
pub fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let length = stream.read(&mut buffer).ok().filter(|length| *length > 0)?;
        bytes.extend_from_slice(&buffer[..length]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is_length = name.eq_ignore_ascii_case("content-length");
            is_length.then(|| value.trim().parse::<usize>().ok())?
        });
        if body.len() >= length.unwrap_or(0) {
            return Some(head.to_owned());
        }
    }
}

fn answer(mut stream: TcpStream, answers: &[Vec<String>], turn: &AtomicUsize) -> Option<()> {
    let head = read_request(&mut stream)?;
    if head.starts_with("GET") {
        let body = json!({"data": [{"id": "m"}]}).to_string();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        return stream.write_all((head + &body).as_bytes()).ok();
    }
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        .ok()?;
    for line in &answers[turn.fetch_add(1, Ordering::Relaxed) % answers.len()] {
        let wait_ms = line.strip_prefix("wait ").and_then(|span| span.parse().ok());
        std::thread::sleep(Duration::from_millis(wait_ms.unwrap_or(5)));
        if wait_ms.is_none() {
            stream.write_all(format!("{line}\n\n").as_bytes()).ok()?;
        }
    }
    Some(())
}

/// The lines of a stream, with its end.
pub fn stream(events: &[Value]) -> Vec<String> {
    let events = events.iter().map(|event| format!("data: {event}"));
    events.chain(["data: [DONE]".to_owned()]).collect()
}

/// The same with long pauses before each event, so that what lies between events is known on a busy host too.
fn slow_stream(events: &[Value]) -> Vec<String> {
    let lines = stream(events).into_iter();
    lines.flat_map(|line| ["wait 200".to_owned(), line]).collect()
}

pub fn text(text: &str) -> Value {
    json!({"choices": [{"text": text}]})
}

/// Two requests for eight tokens each: what was said, and the line that was written.
pub fn bench(backend: &str, lines: &[String], more: &[&str]) -> (Ran, Map<String, Value>) {
    let desk = Desk::new();
    let port = serve(lines);
    let common = ["--num-prompts", "2", "--warmup-requests", "0", "--disable-tqdm"];
    let ran = desk.random(backend, port, &[&common[..], more].concat());
    let line = desk.lines().into_iter().next().expect("a line was written");
    (ran, line)
}

pub fn figure(line: &Map<String, Value>, name: &str) -> f64 {
    line["matrix"]["figures"][name]
        .as_f64()
        .unwrap_or_else(|| panic!("no {name} in {line:#?}"))
}

#[test]
fn a_server_that_stops_at_its_own_limit_is_not_credited_with_what_was_asked_for() {
    let mut events = ["a", " b", " c"].map(text);
    events[2]["choices"][0]["finish_reason"] = json!("length");
    let (ran, line) = bench("vllm", &stream(&events), &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let block = line["total_output_tokens"].as_f64().expect("a number");
    assert!(
        (4.0..=8.0).contains(&block),
        "{block} tokens for 2 answers of `a b c`"
    );
    assert_eq!(block, figure(&line, "output_tokens"));
}

/// Counts are asked for unless the Python tool's own body is wanted, and what the body allows is what is asked for.
#[test]
fn more_tokens_than_the_data_set_asks_for_are_counted_and_not_cut() {
    let mut events: Vec<Value> = vec![text(" a"); 1200];
    events.push(json!({"choices": [], "usage": {"prompt_tokens": 32, "completion_tokens": 1200}}));
    let lines: Vec<String> = vec![stream(&events).join("\n\n")];
    let (ran, line) = bench(
        "vllm",
        &lines,
        &["--extra-request-body", r#"{"max_tokens": 3000}"#],
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(line["total_output_tokens"], json!(2400));
    assert!(
        ran.stderr.contains("requests ask for token counts"),
        "{}",
        ran.stderr
    );
    assert_eq!(figure(&line, "asked_output_tokens"), 6000.0);
}

#[test]
fn tool_calls_without_a_report_have_tokens() {
    let call = |name: Option<&str>, arguments: &str| json!({"choices": [{"delta": {"tool_calls": [{"function": {"name": name, "arguments": arguments}}]}}]});
    let events = [
        call(Some("find"), ""),
        call(None, "{\"word\":"),
        call(None, " \"blue\"}"),
    ];
    let (ran, line) = bench("vllm-chat", &slow_stream(&events), &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(figure(&line, "output_tokens") > 4.0);
    assert!(figure(&line, "mean_tpot_ms") > 0.0);
}

#[test]
fn an_answer_that_ends_at_once_is_whole_where_the_model_may_end_it() {
    let event = json!({"choices": [{"delta": {"content": ""}, "finish_reason": "stop"}]});
    let (ran, line) = bench(
        "vllm-chat",
        &stream(std::slice::from_ref(&event)),
        &["--disable-ignore-eos"],
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(figure(&line, "completed_requests"), 2.0);
    assert_eq!(line["matrix"]["figures"]["mean_ttft_ms"], Value::Null);
    let (ran, _) = bench("vllm-chat", &stream(&[event]), &[]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
}

#[test]
fn hidden_reasoning_is_told_apart_and_shared_out_over_no_event() {
    let event = |content: &str| json!({"choices": [{"delta": {"content": content}}]});
    let mut events = ["a", " b", " c", " d"].map(event).to_vec();
    events.push(json!({"choices": [], "usage": {
        "prompt_tokens": 32, "completion_tokens": 104, "completion_tokens_details": {"reasoning_tokens": 100},
    }}));
    let (ran, line) = bench("vllm-chat", &slow_stream(&events), &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(figure(&line, "reasoning_output_tokens"), 200.0);
    // Events are 200 ms apart; shared out over 103 tokens it would be about six.
    assert!(figure(&line, "mean_tpot_ms") > 60.0);
    assert!(figure(&line, "p50_itl_ms") > 60.0);
}

#[test]
fn an_event_named_error_is_a_failure_with_its_words() {
    let mut lines = stream(&["a", " b", " c"].map(text));
    lines.pop();
    lines.push("event: error\ndata: {\"code\": 500, \"message\": \"engine died\"}".to_owned());
    let (ran, _) = bench("vllm", &lines, &[]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("error-event, such as: engine died"),
        "{}",
        ran.stderr
    );
}

#[test]
fn json_that_only_python_reads_and_a_report_of_nothing_cost_no_answer() {
    let lines = [
        r#"data: {"choices": [{"text": "a", "logprobs": {"token_logprobs": [NaN]}}]}"#,
        r#"data: {"choices": [{"text": " b"}], "usage": {"completion_tokens": -1}}"#,
        r#"data: {"choices": [{"text": " c\ud83d"}], "x": 1, "x": 2}"#,
        r#"data: {"choices": [], "usage": {"prompt_tokens": 32, "completion_tokens": 0}}"#,
        "data: [DONE]",
    ];
    let (ran, line) = bench("vllm", &lines.map(str::to_owned), &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(figure(&line, "output_tokens") >= 6.0, "{line:#?}");
}

/// Different words in no order that repeats, an event each.
fn words(count: usize) -> Vec<Value> {
    let digit = |place: usize| usize::from(b"31415926535897932384626433832795"[place % 32] - b'0');
    let word = |place: usize| {
        format!(
            " {}",
            ["river", "stone", "light", "green", "seven"][digit(place) % 5]
        )
    };
    (0..count).map(|place| text(&word(place))).collect()
}

/// Ten requests for 32 tokens each to a server that reports so many, and answers each with another event first: what was said.
fn judged(events: Vec<Value>, reported: u64) -> Ran {
    let mut turns = vec![events; 10];
    for (events, place) in turns.iter_mut().zip(0..) {
        let last = events.len() - 1;
        if last > 0 && events[last] != events[last - 1] {
            events[last] = text(&format!(" {place}"));
        }
    }
    answered(&turns, reported)
}

fn answered(turns: &[Vec<Value>], reported: u64) -> Ran {
    let whole = |events: &Vec<Value>| {
        let mut events = events.clone();
        events.push(json!({"choices": [{"text": "", "finish_reason": "length"}]}));
        events.push(json!({"choices": [], "usage": {"prompt_tokens": 32, "completion_tokens": reported}}));
        // In one piece, so that ten answers take no time.
        vec![stream(&events).join("\n\n")]
    };
    let turns: Vec<Vec<String>> = turns.iter().map(whole).collect();
    let port = serve_in_turn(&turns);
    let more = [
        "--random-output-len",
        "32",
        "--warmup-requests",
        "0",
        "--disable-tqdm",
    ];
    Desk::new().random("vllm", port, &more).exits(0)
}

/// A bench holds answers to what a run holds them to, and says so by the same codes.
#[test]
fn answers_that_are_not_what_was_asked_for_are_named() {
    judged(words(16), 16).says("output-short");
    let inflated = judged(words(32), 96).says("tokens-disagree").says("output-long");
    assert!(
        !inflated.stderr.contains("tokens are those that came"),
        "{}",
        inflated.stderr
    );
    judged(vec![text("!"); 32], 32).says("answers-degenerate");
    answered(&[words(32)], 32).says("for different prompts");
    // All of them arrive in one piece, and one of them another model wrote.
    judged(words(32), 32).says("chunked-tokens");
    let mut turns = vec![words(32); 10];
    turns[3][0]["model"] = json!("tiny");
    answered(&turns, 32).says("wrong-model");
    let honest = judged(words(32), 32);
    for code in ["output-", "tokens-disagree", "answers-degenerate"] {
        assert!(!honest.stderr.contains(code), "{}", honest.stderr);
    }
}

/// A proxy that passes events on in groups of three makes the median ITL zero.
#[test]
fn events_that_a_proxy_collects_are_named() {
    let turn = |place: usize| {
        let mut events = words(48);
        events[0] = text(&format!(" {place}"));
        events.push(json!({"choices": [{"text": "", "finish_reason": "length"}]}));
        events.push(json!({"choices": [], "usage": {"prompt_tokens": 32, "completion_tokens": 48}}));
        let lines = stream(&events);
        lines
            .chunks(3)
            .flat_map(|group| ["wait 35".to_owned(), group.join("\n\n")])
            .collect::<Vec<String>>()
    };
    // Far enough apart that a client on a busy machine reads each group by itself: it is not blamed then.
    let turns: Vec<Vec<String>> = (0..10).map(turn).collect();
    let more = [
        "--random-output-len",
        "48",
        "--warmup-requests",
        "0",
        "--disable-tqdm",
    ];
    let desk = Desk::new();
    let ran = desk.random("vllm", serve_in_turn(&turns), &more);
    ran.says("suspect for ITL (chunked-tokens)");
}

/// What a bench found against its load stays with it: in its line, and in a run into which line and log are imported, in either order.
#[test]
fn what_was_found_is_imported_whichever_file_is_read_first() {
    let half = [text(" river"), text(" stone"), text(" light")];
    let desk = Desk::new();
    let ran = desk.random(
        "vllm",
        serve(&stream(&half)),
        &["--warmup-requests", "0", "--disable-tqdm"],
    );
    let validity = &desk.lines()[0]["matrix"]["validity"];
    assert_eq!(validity["verdict"], "invalid", "{validity:#}");
    std::fs::write(desk.path().join("bench.log"), &ran.stdout).expect("a file can be written");
    for (name, files) in [
        ("log", ["bench.log", "out.jsonl"]),
        ("line", ["out.jsonl", "bench.log"]),
    ] {
        let matrix = |args: &[&str]| {
            let mut command = std::process::Command::new(crate::binary::matrix());
            let output = command.args(args).current_dir(desk.path()).output();
            Ran::from(output.expect("the binary runs"))
        };
        let imported = matrix(&[&["import", "--name", name], &files[..]].concat());
        assert_eq!(imported.code, Some(0), "{}", imported.stderr);
        let report = matrix(&["report", &format!("results/{name}"), "--format", "csv-long"]);
        let rows: Vec<&str> = report.stdout.lines().skip(1).collect();
        let is_invalid = |row: &&str| row.contains(",invalid,") && row.contains("output-short");
        let actual = format!("{name}: {}{}", report.stdout, report.stderr);
        assert!(!rows.is_empty() && rows.iter().all(is_invalid), "{actual}");
    }
}

/// Forty requests at once for answers of 2 to 11 tokens, which come after a wait of their own, an event each 5 ms: what was said. Twice as many
/// as are needed: on a busy host the events of some take longer than their wait.
fn waited(wait_ms: fn(usize) -> usize) -> Ran {
    let turn = |place: usize| {
        let count = 2 + place % 10;
        let mut events = words(count);
        events[count - 1] = text(&format!(" {place}"));
        events.push(json!({"choices": [{"text": "", "finish_reason": "length"}]}));
        events.push(json!({"choices": [], "usage": {"prompt_tokens": 32, "completion_tokens": count}}));
        let wait = format!("wait {}", wait_ms(count));
        [wait].into_iter().chain(stream(&events)).collect()
    };
    let turns: Vec<Vec<String>> = (0..40).map(turn).collect();
    let more = [
        "--random-output-len",
        "11",
        "--num-prompts",
        "40",
        "--warmup-requests",
        "0",
        "--disable-tqdm",
    ];
    Desk::new().random("vllm", serve_in_turn(&turns), &more)
}

/// A gateway that replays whole answers shows by their lengths what their first events waited for.
#[test]
fn whole_answers_that_were_held_back_are_told_from_slow_prefills() {
    waited(|tokens| 400 + 200 * tokens).says("grows by");
    let prefill = waited(|_| 1000);
    assert!(!prefill.stderr.contains("chunked-tokens"), "{}", prefill.stderr);
}

/// Twenty requests for 32 tokens each that may end early, to a server whose every other answer ends otherwise: what was said.
fn ended(words_of_others: usize, end: &Value) -> Ran {
    let turn = |place: usize| {
        let count = if place.is_multiple_of(2) {
            20
        } else {
            words_of_others
        };
        let mut events = words(count);
        events[count - 1] = text(&format!(" {place}"));
        events.push(match place % 2 {
            0 => json!({"choices": [{"text": "", "finish_reason": "stop"}]}),
            _ => end.clone(),
        });
        events.push(json!({"choices": [], "usage": {"prompt_tokens": 32, "completion_tokens": count}}));
        vec![stream(&events).join("\n\n")]
    };
    let turns: Vec<Vec<String>> = (0..20).map(turn).collect();
    let more = [
        "--random-output-len",
        "32",
        "--num-prompts",
        "20",
        "--warmup-requests",
        "0",
        "--disable-tqdm",
        "--disable-ignore-eos",
    ];
    Desk::new().random("vllm", serve_in_turn(&turns), &more)
}

/// Where answers may end early, what is cut is no answer that ended.
#[test]
fn answers_that_were_cut_are_no_answers_that_ended() {
    let finish = |word: &str| json!({"choices": [{"text": "", "finish_reason": word}]});
    for end in [
        finish("timeout"),
        finish("cancelled"),
        json!({"message": "out of memory", "type": "InternalServerError", "code": 500}),
        json!({"errors": [{"message": "out of memory"}]}),
        json!({"error_code": 50001, "text": "out of memory"}),
        json!({"status": "error", "reason": "out of memory"}),
        json!({"choices": [{"text": "", "error": {"message": "out of memory"}, "finish_reason": "stop"}]}),
    ] {
        let ran = ended(5, &end).exits(3);
        assert!(ran.stderr.contains("error-event"), "{end}: {}", ran.stderr);
    }
    ended(5, &finish("shed"))
        .exits(0)
        .says("output-short")
        .says("10 of 20 answers (50.0 %) end early, and their finish reason is unknown: `shed` 10");
    ended(16, &finish("length"))
        .exits(0)
        .says("output-short")
        .says("10 of 20 answers end at a limit of the server; they have 160 of 320 requested tokens");
    for (words, word) in [
        (32, "length"),
        (5, "stop"),
        (5, "stop_sequence"),
        (32, "finished"),
    ] {
        let honest = ended(words, &finish(word)).exits(0);
        assert!(
            !honest.stderr.contains("output-short"),
            "{word}: {}",
            honest.stderr
        );
    }
}

/// An event that the server does not count starts no clock without a word.
#[test]
fn an_event_ahead_of_the_tokens_is_named() {
    let mut events = vec![text(" ")];
    events.extend(words(32));
    judged(events, 32)
        .says("tokens-disagree")
        .says("there are more events with text than tokens")
        .says("only white space");
}

/// Nor does a word that is the same whatever the prompt, as a gateway sends while the model still reads the prompt.
#[test]
fn a_word_ahead_of_the_models_own_is_named() {
    // One at a time, so that a pause of this host is not one of all answers.
    let beginning = |first: &str, waits: usize| {
        let mut lines = stream(&words(8));
        lines[0] = format!("data: {}", text(first));
        // Comments keep the connection busy before the model's first token.
        lines.splice(1..1, vec![": wait".to_owned(); waits]);
        let more = [
            "--num-prompts",
            "10",
            "--warmup-requests",
            "0",
            "--disable-tqdm",
            "--max-concurrency",
            "1",
        ];
        Desk::new().random("vllm", serve(&lines), &more).exits(0)
    };
    beginning(" Sure", 40)
        .says("first-event-ahead")
        .says("answers begin with an event that is the same for every prompt");
    beginning(" ", 40)
        .says("first-event-ahead")
        .says("only white space");
    let honest = beginning(" Sure", 0);
    assert!(!honest.stderr.contains("first-event-ahead"), "{}", honest.stderr);
}

/// The answer is over and the connection with it: nothing was left open.
#[test]
fn a_connection_that_ends_with_its_answer_is_not_left_open() {
    let honest = judged(words(32), 32);
    assert!(!honest.stderr.contains("connections open"), "{}", honest.stderr);
}

/// From due is never less than from sent: both end with the stream.
#[test]
fn latency_from_due_ends_where_latency_ends() {
    let mut lines = stream(&words(8));
    let done = lines.pop().expect("a stream ends");
    // Comments keep the connection busy after the last token.
    lines.extend(vec![": wait".to_owned(); 40]);
    lines.push(done);
    let (ran, line) = bench("vllm", &lines, &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let (sent, due) = (
        figure(&line, "mean_e2e_line_ms"),
        figure(&line, "mean_e2e_line_due_ms"),
    );
    assert!(due >= sent, "{due} {sent}");
    assert!(
        ran.stdout
            .lines()
            .any(|line| line.starts_with("Mean E2E from Due") && line.contains(&format!("{due:.2}"))),
        "{}",
        ran.stdout
    );
    ran.says("after the last token");
}

#[test]
fn a_count_of_tokens_that_cannot_be_is_told() {
    let mut events: Vec<Value> = vec![text(" a"); 8];
    events.push(
        json!({"choices": [], "usage": {"prompt_tokens": 1_000_000_000_000_u64, "completion_tokens": 8}}),
    );
    let (ran, line) = bench("vllm", &stream(&events), &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let validity = line["matrix"]["validity"].to_string();
    assert!(validity.contains("prompt-tokens-disagree"), "{validity}");
}
