//! Requests that are sent again: after 429 and 503, and after a reused connection ended before its answer.
//!
//! A request that is sent again keeps its slot, and its times count from the first time that it was sent.

use std::cmp::Reverse;
use std::time::Duration;

use super::LoopState;
use super::pause::Gap;
use crate::base::clock::{self, MonotonicTime};
use crate::loadgen::generator::request_outcome::CloseReason;
use crate::loadgen::request::{RETRIED_STATUSES, Response};
use crate::results::record::request::RequestFailureClass;

/// The first pause before a request is sent again, which doubles each time, and the longest pause, whatever the
/// server asks for.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// The attempts to send a request.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// How often it was sent again after 429 or 503.
    pub(super) retries: u32,
    /// The endpoints that turned it away, if there are several.
    pub(super) turned_away: Vec<u32>,
    /// Whether it is not sent again, because the pause would outlast its timeout.
    pub(super) is_retry_skipped: bool,
    /// Whether the connection of the present attempt has served another request.
    pub(super) is_reused: bool,
    /// Whether a reused connection was replaced.
    pub(super) is_reconnected: bool,
}

impl Attempts {
    pub(super) fn first(is_reused: bool) -> Self {
        Self {
            is_reused,
            ..Self::default()
        }
    }
}

impl LoopState {
    /// Sends a request again, now or later, if its answer allows it. Returns whether it does.
    pub(super) fn sends_again(&mut self, index: usize, answer: &Response) -> bool {
        let retries = self.event_loop.shared.connections.retries;
        let Some(stream) = &self.streams[index] else {
            return false;
        };
        if retries == 0 && !stream.attempts.is_reused || self.is_cut() {
            return false;
        }
        let first_sent = stream.in_flight.sent_at();
        let limit = stream.request.bounds(&self.event_loop.shared).request;
        let failure = answer.decoded.failure.as_ref().map(|failure| failure.class);
        let is_stale = stream.attempts.is_reused
            && !stream.attempts.is_reconnected
            && answer.first_byte.is_none()
            && failure == Some(RequestFailureClass::Reset);
        let is_turned_away = answer
            .status
            .is_some_and(|status| RETRIED_STATUSES.contains(&status));
        if is_stale {
            self.restart(index, first_sent, |attempts| attempts.is_reconnected = true);
            self.send_restarted(index, false);
        } else if is_turned_away && stream.attempts.retries < retries {
            let pause = backoff(answer.retry_after, stream.attempts.retries);
            let at = clock::now().plus(pause);
            if at.since(first_sent) >= limit {
                if let Some(stream) = &mut self.streams[index] {
                    stream.attempts.is_retry_skipped = true;
                }
                return false;
            }
            self.restart(index, first_sent, |_| {});
            self.backoffs.push(Reverse((at, index)));
        } else {
            return false;
        }
        true
    }

    /// Whether requests under way are cut, so that none is sent again.
    fn is_cut(&self) -> bool {
        self.close_reason == Some(CloseReason::Stopped)
            || self.drain_deadline.is_some_and(|drained| clock::now() >= drained)
    }

    /// Prepares a stream for another attempt.
    fn restart(&mut self, index: usize, first_sent: MonotonicTime, count: impl FnOnce(&mut Attempts)) {
        let Some(mut stream) = self.streams[index].take() else {
            return;
        };
        self.connecting -= usize::from(std::mem::take(&mut stream.is_connecting));
        self.preparing -= usize::from(std::mem::take(&mut stream.is_preparing));
        stream.is_registered = false;
        stream.gap = Gap::default();
        count(&mut stream.attempts);
        let request = stream.in_flight.take_request();
        self.keep_connection(index, &mut stream);
        stream.in_flight = self.start_in_flight(&stream.request, request);
        stream.in_flight.set_sent_at(first_sent);
        self.streams[index] = Some(stream);
    }

    /// Sends the requests whose pause is over.
    pub(super) fn send_retries(&mut self, now: MonotonicTime) {
        while let Some(Reverse((at, index))) = self.backoffs.peek().copied()
            && at <= now
        {
            self.backoffs.pop();
            self.send_restarted(index, true);
        }
    }

    /// Sends a request again. `is_retry` says that the server turned it away; then an idle connection may carry it.
    fn send_restarted(&mut self, index: usize, is_retry: bool) {
        // It may have ended in the meantime.
        let Some(mut stream) = self.streams[index].take() else {
            return;
        };
        let shared = &self.event_loop.shared;
        let from = stream.endpoint;
        if is_retry {
            stream.attempts.retries += 1;
            let endpoint = u32::try_from(from).unwrap_or(u32::MAX);
            let endpoint = shared.route.has_several().then_some(endpoint);
            stream.attempts.turned_away.extend(endpoint);
            shared.route.end_request(from);
            let fixed = stream
                .request
                .endpoint
                .or_else(|| shared.route.of_next_round(from));
            let to = shared.route.choose(fixed);
            shared.route.begin_request(to);
            stream
                .in_flight
                .retarget(|request| shared.retarget(request, from, to));
            stream.endpoint = to;
        }
        let limit = stream.request.bounds(shared).request;
        let deadline = stream.in_flight.sent_at().plus(limit);
        let endpoint = stream.endpoint;
        let idle = if is_retry {
            self.take_idle_socket(endpoint)
        } else {
            None
        };
        stream.attempts.is_reused = idle.is_some();
        let now = clock::now();
        let connected = match idle {
            Some(socket) => stream.in_flight.reuse(socket),
            None => self.begin_connect(&mut stream.in_flight, index, endpoint, deadline),
        };
        self.streams[index] = Some(stream);
        self.watch_connect(index, connected, now);
    }
}

/// Returns the pause before another attempt: what the server asks for, otherwise a pause that doubles.
fn backoff(asked: Option<Duration>, retries: u32) -> Duration {
    let doubled = FIRST_BACKOFF.saturating_mul(2_u32.saturating_pow(retries));
    asked.unwrap_or(doubled).min(MAX_BACKOFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_what_the_server_asks_for_or_doubles_and_is_bounded() {
        let pauses = [0, 1, 2, 6, 7, 40].map(|retries| backoff(None, retries).as_millis());
        assert_eq!(pauses, [500, 1000, 2000, 32_000, 60_000, 60_000]);
        assert_eq!(backoff(Some(Duration::ZERO), 3), Duration::ZERO);
        assert_eq!(backoff(Some(Duration::MAX), 0), MAX_BACKOFF);
    }
}
