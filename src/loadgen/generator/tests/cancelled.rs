//! Requests that the client cancels before their answers end.

use std::num::NonZeroU32;
use std::time::Duration;

use super::{A, DONE, END, load, run_over};
use crate::base::units::HumanDuration;
use crate::config::cancel::Cancel;
use crate::loadgen::CancelPlan;
use crate::loadgen::generator::LoadSpec;
use crate::loadgen::test_server::{Act, Server, partial_stream, plain_response, stream};
use crate::results::record::request::{Request, RequestFailureClass};

/// An event with output, without the mark of its end.
fn event() -> Vec<u8> {
    let text = format!("{A}\n\n");
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}

fn cancelling(
    port: u16,
    requests: usize,
    after_tokens: Option<u32>,
    after: Option<HumanDuration>,
) -> LoadSpec {
    let mut load = load(port, &vec![0; requests]);
    for planned in &mut load.requests {
        planned.requested_tokens = 1000;
    }
    load.cancel = Some(CancelPlan {
        cancel: Cancel {
            share: 1.0,
            after_tokens: after_tokens.and_then(NonZeroU32::new),
            after,
        },
        seed: 1,
    });
    load
}

fn assert_cancelled(request: &Request) {
    assert!(request.cancelled, "{request:?}");
    assert!(!request.is_completed() && !request.is_failed());
}

/// The server goes on until its connection is gone, so the load ends only if the client closes it.
#[tokio::test]
async fn a_request_is_cancelled_at_its_token_and_its_connection_is_closed() {
    for is_bare in [true, false] {
        let server = Server::answering(vec![Act::Write(partial_stream(&[A])), Act::Forever(event())]).await;
        let requests = run_over(cancelling(server.port, 3, Some(5), None), is_bare).await;
        assert_eq!(requests.len(), 3);
        for request in &requests {
            assert_cancelled(request);
            // What arrived together with the fifth token is not read.
            assert_eq!(request.chunks.len(), 5, "{is_bare}");
            assert!(request.end_ns >= request.chunks.last().unwrap().at_ns);
        }
        // `Forever` ends when a write fails, which needs a closed connection.
        server.wait_for_ends(3).await;
    }
}

#[tokio::test]
async fn an_answer_that_ends_before_or_at_its_token_is_no_cancellation() {
    for after in [2, 3, 1000] {
        let server = Server::answering(vec![Act::Write(stream(&[A, END, DONE]))]).await;
        let requests = run_over(cancelling(server.port, 1, Some(after), None), true).await;
        assert!(requests[0].is_completed() && !requests[0].cancelled, "{after}");
        assert_eq!(requests[0].chunks.len(), 2);
    }
}

#[tokio::test]
async fn a_request_is_cancelled_after_its_time_whatever_has_arrived() {
    const TIME: Duration = Duration::from_millis(60);
    for is_bare in [true, false] {
        for begin in [None, Some(partial_stream(&[A]))] {
            let events = usize::from(begin.is_some());
            let acts = begin.map(Act::Write).into_iter().chain([Act::Hang]).collect();
            let server = Server::answering(acts).await;
            let load = cancelling(server.port, 2, None, Some(HumanDuration(TIME)));
            for request in run_over(load, is_bare).await {
                assert_cancelled(&request);
                assert_eq!(request.chunks.len(), events);
                let written = Duration::from_nanos(request.written_ns.unwrap());
                assert!(Duration::from_nanos(request.end_ns) >= written + TIME);
            }
        }
    }
}

#[tokio::test]
async fn an_answer_that_ends_in_time_is_no_cancellation() {
    let server = Server::answering(vec![Act::Write(stream(&[A, END, DONE]))]).await;
    let load = cancelling(server.port, 20, None, Some(HumanDuration::from_secs(600)));
    let requests = run_over(load, true).await;
    assert!(requests.iter().all(Request::is_completed));
}

#[tokio::test]
async fn a_failure_before_the_cancellation_stays_a_failure() {
    let error = r#"data: {"error": {"message": "out of memory"}}"#;
    for (acts, class) in [
        (
            vec![Act::Write(plain_response("503 Busy", "later"))],
            RequestFailureClass::Status,
        ),
        (
            vec![Act::Write(partial_stream(&[A, error, A, A])), Act::Hang],
            RequestFailureClass::ErrorEvent,
        ),
        (
            vec![Act::Write(partial_stream(&[A])), Act::Reset],
            RequestFailureClass::Reset,
        ),
    ] {
        let server = Server::answering(acts).await;
        let requests = run_over(cancelling(server.port, 1, Some(3), None), true).await;
        let failure = requests[0].failure.as_ref().unwrap();
        assert_eq!(failure.class, class, "{failure:?}");
        assert!(!requests[0].cancelled);
    }
}

/// A slot of a cancelled request is free for the next one.
#[tokio::test]
async fn cancelled_requests_give_their_slots_back() {
    let server = Server::answering(vec![Act::Write(partial_stream(&[A])), Act::Forever(event())]).await;
    let mut load = cancelling(server.port, 12, Some(2), None);
    load.concurrency = NonZeroU32::new(2);
    let requests = run_over(load, true).await;
    assert_eq!(requests.len(), 12);
    requests.iter().for_each(assert_cancelled);
}

#[tokio::test]
async fn only_the_chosen_requests_are_cancelled() {
    let server = Server::answering(vec![Act::Write(stream(&[A, A, END, DONE]))]).await;
    let mut load = cancelling(server.port, 40, Some(1), None);
    let plan = load.cancel.as_mut().unwrap();
    plan.cancel.share = 0.5;
    let chosen = super::super::cancellation::Cancellations::draw(*plan, 40);
    for request in run_over(load, true).await {
        assert_eq!(
            request.cancelled,
            chosen.point(request.index).is_some(),
            "{}",
            request.index
        );
        assert!(request.cancelled || request.is_completed());
    }
}
