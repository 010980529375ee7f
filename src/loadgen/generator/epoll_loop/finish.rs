//! Makes the record of a request whose answer has ended, and queues the next round of its conversation.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::LoopState;
use crate::base::clock;
use crate::loadgen::generator::concurrency_limit::Slot;
use crate::loadgen::generator::pending::PendingRequest;
use crate::loadgen::generator::request_outcome::{RequestOutcome, blank_record, fill_record};
use crate::loadgen::request::{CLOSE_GRACE, Response, nanos_since};
use crate::loadgen::socket::{ReadContext, Socket};

impl LoopState {
    /// Makes the record of an exchange that is over.
    pub(super) fn finish(&mut self, index: usize, answer: Response) {
        let Some(mut stream) = self.streams[index].take() else {
            return;
        };
        self.running -= 1;
        self.connecting -= usize::from(stream.is_connecting);
        self.preparing -= usize::from(stream.is_preparing);
        // Data that arrived together with the end of the answer triggers no further event.
        let is_open = |socket: &mut Socket, reading: &mut ReadContext| {
            let read = socket.read(reading);
            read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        };
        if let Some(mut socket) = stream.in_flight.take_open_socket()
            && is_open(&mut socket, &mut self.event_loop.reading)
        {
            self.close_deadlines
                .push_back((clock::now().plus(CLOSE_GRACE), index));
            self.closing_sockets.insert(index, socket);
        }
        let timestamp_source = answer.timestamp_source;
        let took = answer.end.since(answer.sent);
        self.typical_response_time = Some(
            self.typical_response_time
                .map_or(took, |typical| typical * 7 / 8 + took / 8),
        );
        let mut request = blank_record(&stream.request);
        let target = &self.event_loop.shared.target;
        let model = stream.request.model.as_deref().unwrap_or(&target.model);
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
        self.follow(&stream.request, &request);
        self.outcomes.push(RequestOutcome {
            record: request,
            lag,
            timestamp_source,
        });
        if let Some(next) = next {
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
