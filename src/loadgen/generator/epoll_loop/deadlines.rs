//! Deadlines of requests, of connection attempts and of connections left open.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use super::LoopState;
use crate::base::clock::{self, MonotonicTime};
use crate::loadgen::generator::cancellation::next_look;

impl LoopState {
    /// Handles all deadlines that have passed: of requests, of connection attempts and of connections left
    /// open.
    pub(super) fn expire_deadlines(&mut self) {
        let now = clock::now();
        if self.drain_deadline.is_some_and(|drained| now >= drained) {
            self.cancel_all();
        }
        while let Some((_, index)) = pop_if(&mut self.first_byte_deadlines, |at, _| at <= now) {
            if let Some(stream) = self.streams[index]
                .as_mut()
                .filter(|stream| !stream.in_flight.has_body())
            {
                let answer = stream.in_flight.time_out();
                self.finish(index, *answer);
            }
        }
        while let Some((_, index)) = pop_if(&mut self.request_deadlines, |at, _| at <= now) {
            if let Some(stream) = &mut self.streams[index] {
                let answer = stream.in_flight.time_out();
                self.finish(index, *answer);
            }
        }
        self.cancel_as_planned(now);
        while let Some((_, index)) = pop_if(&mut self.retries, |at, _| at <= now) {
            self.note_retransmit(index);
        }
        while let Some((_, index)) = pop_if(&mut self.full_queues, |at, _| at <= now) {
            self.repeat_connect(index);
        }
        while let Some((_, index)) = pop_if(&mut self.close_deadlines, |at, _| at <= now) {
            let left_open = u64::from(self.closing_sockets.remove(&index).is_some());
            self.event_loop
                .shared
                .progress
                .left_open
                .fetch_add(left_open, Ordering::Relaxed);
        }
        self.send_retries(now);
        self.connect_waiting();
    }

    /// Cancels the requests whose time to their cancellation is over.
    fn cancel_as_planned(&mut self, now: MonotonicTime) {
        while let Some((_, index)) = self
            .cancel_deadlines
            .first()
            .copied()
            .filter(|(at, _)| *at <= now)
        {
            self.cancel_deadlines.pop_first();
            let Some(stream) = &mut self.streams[index] else {
                continue;
            };
            let Some(after) = stream.in_flight.cancels_after() else {
                continue;
            };
            match next_look(stream.in_flight.written_at(), after, now) {
                Some(at) => drop(self.cancel_deadlines.insert((at, index))),
                None => {
                    let answer = stream.in_flight.cancel_as_planned();
                    self.finish(index, *answer);
                }
            }
        }
    }

    /// Returns the next moment at which [`LoopState::expire_deadlines`] may have something to do.
    pub(super) fn next_deadline(&mut self) -> Option<MonotonicTime> {
        let (streams, leaving) = (&self.streams, &self.closing_sockets);
        for queue in [
            &mut self.first_byte_deadlines,
            &mut self.request_deadlines,
            &mut self.retries,
            &mut self.full_queues,
        ] {
            while pop_if(queue, |_, index| streams[index].is_none()).is_some() {}
        }
        while pop_if(&mut self.close_deadlines, |_, index| {
            !leaving.contains_key(&index)
        })
        .is_some()
        {}
        while let Some((_, index)) = self.cancel_deadlines.first()
            && streams[*index].is_none()
        {
            self.cancel_deadlines.pop_first();
        }
        let queues = [
            &self.first_byte_deadlines,
            &self.request_deadlines,
            &self.retries,
            &self.full_queues,
            &self.close_deadlines,
        ];
        let fronts = queues.map(|queue| queue.front().map(|(at, _)| *at));
        let backoff = self.backoffs.peek().map(|Reverse((at, _))| *at);
        let cancelled = self.cancel_deadlines.first().map(|(at, _)| *at);
        let others = [backoff, cancelled, self.drain_deadline].into_iter().flatten();
        fronts.into_iter().flatten().chain(others).min()
    }
}

fn pop_if(
    queue: &mut VecDeque<(MonotonicTime, usize)>,
    is_like: impl Fn(MonotonicTime, usize) -> bool,
) -> Option<(MonotonicTime, usize)> {
    match queue.front() {
        Some((at, index)) if is_like(*at, *index) => queue.pop_front(),
        _ => None,
    }
}
