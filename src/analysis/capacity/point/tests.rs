use super::*;
use crate::base::units::HumanDuration;
use crate::results::record::search::RequestsAfterStart;

fn slo() -> Slo {
    Slo {
        ttft: Some(HumanDuration::from_secs(1)),
        ..Slo::default()
    }
}

fn search_by(by: SearchVariable, target: f64) -> Search {
    Search {
        target,
        ..Search::new(by)
    }
}

/// Returns requests, one due every 10 ms. The functions give the ms from due to sent and to answered, `None` for a failure.
fn requests(
    count: u64,
    sent_after: impl Fn(u64) -> u64,
    answered_after: impl Fn(u64) -> Option<u64>,
) -> Vec<Request> {
    let at = |place: u64| {
        let due = place * 10;
        let answered = answered_after(due);
        let failure = match answered {
            Some(_) => serde_json::Value::Null,
            None => serde_json::json!({"class": "reset", "message": ""}),
        };
        let (sent, end) = (due + sent_after(due), due + answered.unwrap_or(1));
        let [due, sent, end] = [due, sent, end].map(|ms| ms * 1_000_000);
        serde_json::from_value(serde_json::json!({
            "index": place, "prompt_tokens": 1, "asked_tokens": 1, "due_ns": due, "sent_ns": sent,
            "chunks": [[end, "a", 1, 4]], "end_ns": end, "failure": failure,
        }))
        .unwrap()
    };
    (0..count).map(at).collect()
}

#[test]
fn failed_requests_count_as_misses() {
    let failing = requests(800, |_| 0, |due| (due % 40 != 0).then_some(500));
    let judged = judge_point(
        &failing,
        &slo(),
        &search_by(SearchVariable::Concurrency, 0.95),
        None,
        false,
    );
    assert_eq!(
        (judged.requests, judged.good, judged.attainment),
        (800, 600, 0.75)
    );
    assert_eq!(judged.decision(), PointDecision::Fails);
    let judged = judge_point(
        &failing,
        &slo(),
        &search_by(SearchVariable::Concurrency, 0.5),
        None,
        false,
    );
    assert!(judged.holds, "{judged:?}");
}

#[test]
fn of_no_request_nothing_is_shown() {
    let judged = judge_point(&[], &slo(), &search_by(SearchVariable::Rate, 0.5), None, false);
    assert_eq!(
        (judged.holds, judged.decision(), judged.interval),
        (false, PointDecision::Undecided, [0.0, 1.0])
    );
}

#[test]
fn the_wait_for_a_slot_counts() {
    // Each is answered 100 ms after it was sent. They are sent on time, then 950 ms late.
    let on_time = requests(200, |_| 0, |_| Some(100));
    let judged = judge_point(
        &on_time,
        &slo(),
        &search_by(SearchVariable::Rate, 0.9),
        None,
        false,
    );
    assert_eq!((judged.good, judged.holds, judged.unreached), (200, true, None));
    let late = requests(200, |_| 950, |_| Some(1050));
    let judged = judge_point(&late, &slo(), &search_by(SearchVariable::Rate, 0.9), None, false);
    assert_eq!((judged.good, judged.decision()), (0, PointDecision::Fails));
}

#[test]
fn a_rate_that_was_not_reached_does_not_hold() {
    // The requests are sent at half the rate at which they are due.
    let slow = requests(200, |due| due, |due| Some(due + 1));
    let lenient = Slo {
        ttft: Some(HumanDuration::from_secs(60)),
        ..Slo::default()
    };
    let judged = judge_point(
        &slow,
        &lenient,
        &search_by(SearchVariable::Rate, 0.9),
        None,
        false,
    );
    assert_eq!(
        (judged.attainment, judged.decision()),
        (1.0, PointDecision::Fails)
    );
    let unreached = judged.unreached.unwrap();
    assert_eq!((unreached.due_per_s, unreached.sent_per_s), (100.0, 50.0));
}

#[test]
fn a_concurrency_that_was_not_reached_shows_nothing() {
    let steady = requests(200, |_| 0, |_| Some(100));
    let judged = judge_point(
        &steady,
        &slo(),
        &search_by(SearchVariable::Concurrency, 0.9),
        None,
        false,
    );
    assert!(judged.holds);
    assert!(judge_concurrency(judged, 10.0, 10.0).holds);
    let short = judge_concurrency(judged, 16.0, 10.0);
    assert_eq!(
        (short.holds, short.decision(), short.peak_concurrency),
        (false, PointDecision::Undecided, Some(10.0))
    );
}

/// The first requests come all at once and miss the SLO; a start does not decide.
#[test]
fn the_requests_that_decide_are_stored_and_printed_beside_all() {
    let burst = requests(505, |_| 0, |due| Some(if due < 600 { 1500 } else { 100 }));
    let search = search_by(SearchVariable::Concurrency, 0.9);
    let judged = judge_point(&burst, &slo(), &search, None, true);
    assert!(judged.holds && judged.attainment < search.target, "{judged:?}");
    assert_eq!((judged.requests, judged.good), (505, 445));
    let after_start = RequestsAfterStart {
        requests: 416,
        good: 416,
    };
    assert_eq!(judged.after_start, Some(after_start));
    assert_eq!(
        judged.describe_after_start(),
        ", after the start 416 of 416 (100.00 %)"
    );
    let steady = requests(505, |_| 0, |due| Some(if due == 4000 { 1500 } else { 100 }));
    let judged = judge_point(&steady, &slo(), &search, None, true);
    assert_eq!(judged.describe_after_start(), "", "no miss is left out");
    let old = PointJudgement {
        after_start: None,
        ..judged
    };
    assert_eq!(old.describe_after_start(), "");
}

/// What was sent after the decision was sent until the client heard of it, and may have been cut.
#[test]
fn requests_after_the_decision_do_not_count() {
    let cut = requests(300, |_| 0, |due| (due < 2000).then_some(100));
    let search = search_by(SearchVariable::Rate, 0.9);
    assert!(!judge_point(&cut, &slo(), &search, None, false).holds);
    let judged = judge_point(&cut, &slo(), &search, Some(200), false);
    assert_eq!((judged.requests, judged.good, judged.holds), (200, 200, true));
}

/// A conversation of two rounds begins every 20 ms, until the last one has begun; then only second rounds follow, and the engine is faster.
#[test]
fn requests_beside_fewer_sessions_are_not_judged() {
    let mut sent = requests(1000, |_| 0, |due| Some(if due < 8000 { 1500 } else { 100 }));
    for (place, request) in sent.iter_mut().enumerate() {
        let is_first = place % 2 == 0 && place < 800;
        request.round = Some(u32::from(!is_first));
    }
    let search = search_by(SearchVariable::Sessions, 0.5);
    let judged = judge_point(&sent, &slo(), &search, None, true);
    assert_eq!((judged.requests, judged.good), (799, 0));
    let judged = judge_concurrency(judged, 400.0, 400.0);
    assert_eq!(
        (judged.decision(), judged.peak_concurrency),
        (PointDecision::Fails, None)
    );
    let too_few = judge_concurrency(judged, 500.0, 400.0);
    assert_eq!(too_few.peak_concurrency, Some(400.0));
}
