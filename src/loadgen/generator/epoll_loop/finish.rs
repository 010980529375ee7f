//! Makes the record of a request whose answer has ended, and queues the next round of its conversation.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::LoopState;
use crate::loadgen::generator::concurrency_limit::Slot;
use crate::loadgen::generator::pending::PendingRequest;
use crate::loadgen::generator::request_outcome::{RequestOutcome, blank_record, fill_record};
use crate::loadgen::request::{Response, nanos_since};
use crate::results::record::request::ConnectionUse;

impl LoopState {
    /// Makes the record of an exchange that is over.
    pub(super) fn finish(&mut self, index: usize, answer: Response) {
        if self.sends_again(index, &answer) {
            return;
        }
        let Some(mut stream) = self.streams[index].take() else {
            return;
        };
        self.running -= 1;
        self.connecting -= usize::from(stream.is_connecting);
        self.preparing -= usize::from(stream.is_preparing);
        self.keep_connection(index, &mut stream);
        let timestamp_source = answer.timestamp_source;
        let took = answer.end.since(answer.sent);
        self.typical_response_time = Some(
            self.typical_response_time
                .map_or(took, |typical| typical * 7 / 8 + took / 8),
        );
        let mut request = blank_record(&stream.request);
        let target = &self.event_loop.shared.target;
        let model = stream.request.model.as_deref().unwrap_or(&target.model);
        let route = &self.event_loop.shared.route;
        route.end_request(stream.endpoint);
        let endpoint = u32::try_from(stream.endpoint).unwrap_or(u32::MAX);
        request.connection = ConnectionUse {
            endpoint: route.has_several().then_some(endpoint),
            retries: stream.attempts.retries,
            turned_away: std::mem::take(&mut stream.attempts.turned_away),
            is_retry_skipped: stream.attempts.is_retry_skipped,
            is_reused: stream.attempts.is_reused,
            is_reconnected: stream.attempts.is_reconnected,
        };
        fill_record(&mut request, answer, target.dialect.usage, model, self.zero);
        let ready_ns = nanos_since(stream.ready_at, self.zero);
        let lag = request
            .sent_ns
            .map(|at| Duration::from_nanos(at.saturating_sub(ready_ns)));
        let shared = &self.event_loop.shared;
        shared.progress.running.fetch_sub(1, Ordering::Relaxed);
        let conversation = stream.request.conversation.take();
        let next = conversation
            .and_then(|conversation| PendingRequest::next_round(conversation, &request, index, shared));
        shared.finish_request(&request);
        let next_endpoint = shared.route.of_next_round(stream.endpoint);
        self.follow(&stream.request, &request, next_endpoint);
        self.outcomes.push(RequestOutcome {
            record: request,
            lag,
            timestamp_source,
        });
        if let Some(mut next) = next {
            next.endpoint = next_endpoint;
            self.send_next_turn(next, &mut stream.slot);
        }
    }

    /// Queues the next round of a conversation, unless sending is over. In that case the round never falls
    /// due.
    ///
    /// The slot of a conversation without pauses becomes free at its end.
    fn send_next_turn(&mut self, next: PendingRequest, slot: &mut Option<Slot>) {
        if !self.may_continue() {
            return;
        }
        match next.begins_session() {
            true => self.follow_ups.push(next),
            false => self.next_rounds.push_back((next, slot.take())),
        }
    }
}
