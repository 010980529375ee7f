use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::base::units::HumanDuration;
use crate::config::scenario::LoadLimits;
use crate::loadgen::dataset::rng::Python;
use crate::loadgen::dataset::{Content, Extras, SessionLink};
use crate::loadgen::generator::tests::run_over;
use crate::loadgen::generator::{LoadSpec, PlannedRequest, run_load};
use crate::loadgen::test_server::{Act, Server, stream, target};
use crate::plan::Protocol;
use crate::results::record::request::Request;

fn request(session: u32, after: &[u32], delay_ms: u64, text: &str) -> PlannedRequest {
    PlannedRequest {
        content: Content::Messages(vec![json!({"role": "user", "content": text})]),
        prompt_tokens: 3,
        requested_tokens: 2,
        due: Duration::ZERO,
        lora_adapter: None,
        extras: Some(Arc::new(Extras {
            session: Some(SessionLink {
                session,
                after: after.to_vec(),
                delay: Duration::from_millis(delay_ms),
                continues: None,
            }),
            ..Extras::default()
        })),
    }
}

/// Its prompt continues that of another request.
fn continuing(mut planned: PlannedRequest, before: u32) -> PlannedRequest {
    let extras = Arc::make_mut(planned.extras.as_mut().unwrap());
    extras.session.as_mut().unwrap().continues = Some(before);
    planned
}

fn load(port: u16, requests: Vec<PlannedRequest>) -> LoadSpec {
    LoadSpec {
        target: target(port, Protocol::Chat),
        requests,
        concurrency: None,
        sessions: None,
        connections: Default::default(),
        cancel: None,
        limits: LoadLimits::default(),
        body: Map::new(),
        stop_at_eos: false,
        sink: None,
        watch: None,
        spill: None,
        threads: NonZeroUsize::MIN,
    }
}

/// Starts a server that keeps the messages of each request and answers `re` and the last of them. A text that
/// ends in `fail` is refused.
async fn server() -> (Server, Arc<Mutex<Vec<Value>>>) {
    let received: Arc<Mutex<Vec<Value>>> = Arc::default();
    let keep = Arc::clone(&received);
    let server = Server::start(move |request| {
        let body: Value = serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
        let messages = body["messages"].clone();
        let last = messages.as_array().unwrap().last().unwrap()["content"].clone();
        let last = last.as_str().unwrap().to_owned();
        keep.lock().unwrap().push(messages);
        if last.ends_with("fail") {
            let refusal = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\nboom";
            return vec![Act::Pause(Duration::from_millis(2)), Act::Write(refusal.to_vec())];
        }
        let piece = json!({"choices": [{"delta": {"content": format!("re {last}")}}]});
        vec![
            Act::Pause(Duration::from_millis(5)),
            Act::Write(stream(&[&format!("data: {piece}"), "data: [DONE]"])),
        ]
    })
    .await;
    (server, received)
}

/// Asserts that each request was sent after those that it waited for, and its pause.
fn assert_order(planned: &[PlannedRequest], records: &[Request]) {
    assert_eq!(records.len(), planned.len(), "every request has a record");
    let mut first = 0;
    for (index, (planned_request, record)) in planned.iter().zip(records).enumerate() {
        let link = planned_request.session().unwrap();
        if index > 0 && planned[index - 1].session().unwrap().session != link.session {
            first = index;
        }
        assert_eq!(
            (record.index as usize, record.session),
            (index, Some(link.session))
        );
        let ended = link
            .after
            .iter()
            .map(|before| records[first + *before as usize].end_ns)
            .max();
        let earliest = ended.unwrap_or(0) + u64::try_from(link.delay.as_nanos()).unwrap();
        let sent = record.sent_ns.unwrap();
        assert!(
            record.due_ns >= earliest,
            "request {index} was due at {}, not {earliest}",
            record.due_ns
        );
        assert!(
            sent >= earliest,
            "request {index} was sent at {sent}, before {earliest}"
        );
    }
}

/// Returns how many requests were in flight at most, from sending to the end.
fn most_in_flight(records: &[Request]) -> usize {
    let at = |moment: u64| {
        let is_running = |record: &&Request| record.sent_ns.unwrap() <= moment && moment < record.end_ns;
        records.iter().filter(is_running).count()
    };
    records
        .iter()
        .map(|record| at(record.sent_ns.unwrap()))
        .max()
        .unwrap()
}

/// Draws sessions whose requests wait for some of those before them.
fn drawn_sessions(seed: u64) -> Vec<PlannedRequest> {
    let mut draws = Python::new(seed);
    let mut all = Vec::new();
    for session in 0..6 {
        let count = draws.randint(1, 8) as u32;
        for position in 0..count {
            let chosen = |draws: &mut Python| draws.below(3) == 0;
            let after: Vec<u32> = (0..position).filter(|_| chosen(&mut draws)).collect();
            let fails = if draws.below(6) == 0 { "fail" } else { "" };
            let text = format!("{session} {position} {fails}");
            all.push(request(session, &after, draws.below(20), &text));
        }
    }
    all
}

#[tokio::test]
async fn no_request_goes_before_those_that_it_waits_for_and_the_cap_holds() {
    for seed in 0..6 {
        let (server, _) = server().await;
        let planned = drawn_sessions(seed);
        let mut load = load(server.port, planned.clone());
        load.concurrency = NonZeroU32::new(3);
        load.sessions = NonZeroU32::new(4).filter(|_| seed % 2 == 0);
        load.threads = NonZeroUsize::new(1 + seed as usize % 2).unwrap();
        let records = run_over(load, seed % 3 != 0).await;
        assert_order(&planned, &records);
        assert!(most_in_flight(&records) <= 3, "{}", most_in_flight(&records));
        let failed = records.iter().filter(|record| !record.is_completed()).count();
        let meant = planned
            .iter()
            .filter(|planned| format!("{:?}", planned.content).contains("fail"))
            .count();
        assert_eq!(failed, meant, "what waits for a failed request is sent");
    }
}

#[tokio::test]
async fn a_fan_out_is_sent_together_and_joined() {
    let (server, _) = server().await;
    let planned = vec![
        request(0, &[], 0, "plan"),
        request(0, &[0], 0, "a"),
        request(0, &[0], 0, "b"),
        request(0, &[0], 0, "c"),
        request(0, &[1, 2, 3], 10, "join"),
    ];
    let records = run_over(load(server.port, planned.clone()), true).await;
    assert_order(&planned, &records);
    assert!(server.stats.max_running() > 1);
    let sent = |index: usize| records[index].sent_ns.unwrap();
    assert!(sent(2) < records[1].end_ns && sent(3) < records[1].end_ns);
}

#[tokio::test]
async fn sessions_wait_for_their_turn() {
    let (server, _) = server().await;
    let planned = vec![
        request(0, &[], 0, "a"),
        request(0, &[0], 20, "b"),
        request(1, &[], 0, "c"),
        request(1, &[], 5, "d"),
    ];
    let mut load = load(server.port, planned.clone());
    load.sessions = NonZeroU32::new(1);
    let records = run_over(load, true).await;
    assert_order(&planned, &records);
    assert!(records[2].sent_ns.unwrap() >= records[1].end_ns);
    assert!(
        records[2].due_ns >= records[1].end_ns,
        "the wait for a session is no wait of a request"
    );
    assert!(records[3].due_ns >= records[2].due_ns + 5_000_000);
}

/// Conversations with this pause before their second round.
fn pausing(pause_ms: u64) -> Vec<PlannedRequest> {
    let one = |name: &str| PlannedRequest {
        content: Content::Text(format!("{name}0").into()),
        prompt_tokens: 3,
        requested_tokens: 2,
        due: Duration::ZERO,
        lora_adapter: None,
        extras: Some(Arc::new(Extras {
            turns: Some(vec![vec![json!({"role": "user", "content": format!("{name}1")})]]),
            pauses: Some(vec![Duration::from_millis(pause_ms)]),
            ..Extras::default()
        })),
    };
    vec![one("a"), one("b")]
}

#[tokio::test]
async fn a_conversation_that_pauses_holds_no_slot() {
    let (server, _) = server().await;
    let mut paused = load(server.port, pausing(400));
    paused.concurrency = NonZeroU32::new(1);
    let records = run_over(paused, true).await;
    assert_eq!(
        records
            .iter()
            .map(|record| record.round.unwrap())
            .collect::<Vec<_>>(),
        [0, 1, 0, 1]
    );
    let (a, b) = (&records[..2], &records[2..]);
    assert!(
        b[0].sent_ns.unwrap() < a[1].sent_ns.unwrap(),
        "its slot is free during the pause"
    );
    assert!(a[1].sent_ns.unwrap() >= a[0].end_ns + 400_000_000);
    assert_eq!(most_in_flight(&records), 1);
    let (server, _) = self::server().await;
    let mut one_by_one = load(server.port, pausing(30));
    one_by_one.sessions = NonZeroU32::new(1);
    let records = run_over(one_by_one, true).await;
    assert!(
        records[2].sent_ns.unwrap() >= records[1].end_ns,
        "the first conversation ends before the second begins"
    );
}

#[tokio::test]
async fn a_fork_continues_the_answer_that_arrived() {
    let (server, received) = server().await;
    let planned = vec![
        request(0, &[], 0, "root"),
        continuing(request(0, &[0], 0, "left"), 0),
        continuing(request(0, &[0], 0, "right fail"), 0),
        continuing(request(0, &[1], 0, "left again"), 1),
        continuing(request(0, &[2], 0, "right again"), 2),
        request(0, &[3, 4], 0, "fresh"),
    ];
    let records = run_over(load(server.port, planned.clone()), true).await;
    assert_order(&planned, &records);
    let texts: Vec<Vec<String>> = received
        .lock()
        .unwrap()
        .iter()
        .map(|messages| {
            let list = messages.as_array().unwrap().iter();
            list.map(|message| message["content"].as_str().unwrap().to_owned())
                .collect()
        })
        .collect();
    let has = |expected: &[&str]| assert!(texts.iter().any(|texts| texts == expected), "{texts:?}");
    has(&["root"]);
    has(&["root", "re root", "left"]);
    has(&["root", "re root", "left", "re left", "left again"]);
    has(&["root", "re root", "right fail", "", "right again"]);
    has(&["fresh"]);
}

#[tokio::test]
async fn what_never_falls_due_has_no_record() {
    let (server, _) = server().await;
    let planned = vec![request(0, &[], 0, "a"), request(0, &[0], 60_000, "b")];
    let mut short = load(server.port, planned.clone());
    short.limits.duration = Some(HumanDuration(Duration::from_millis(300)));
    assert_eq!(run_over(short, true).await.len(), 1);
    let stop = CancellationToken::new();
    let mut running = JoinSet::new();
    running.spawn(run_load(load(server.port, planned), Arc::default(), stop.clone()));
    while server.stats.total() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.cancel();
    let load = running.join_next().await.unwrap().unwrap();
    assert_eq!(load.unwrap().records.len(), 1);
}
