//! Looks at the sockets and reads what has arrived.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::epoll;

use super::wait::wait_for;
use super::{BUSY_READ_BYTES, LoopState, MAX_EPOLL_EVENTS, PREPARING_TOKEN, WAKER_TOKEN};
use crate::base::clock::{self, MonotonicTime};
use crate::loadgen::arrival::TimestampSource;
use crate::loadgen::request::{ReadState, ReadStats};

impl LoopState {
    /// Waits for sockets for up to `wait` and reads what they hold.
    pub(super) fn poll(&mut self, events: &mut Vec<epoll::Event>, wait: Duration) {
        let looked_at = self.wait_for_events(events, wait);
        self.event_loop.reading.start_round();
        let began = clock::now();
        let mut stats = ReadStats::default();
        for index in std::mem::take(&mut self.readable) {
            self.read(index, true, &mut stats);
        }
        for event in events.iter() {
            match event.data.u64() {
                WAKER_TOKEN => self.event_loop.loop_waker.clear(),
                PREPARING_TOKEN => self.serve_preparing(Duration::ZERO),
                index => self.handle_event(index as usize, event.flags, &mut stats),
            }
        }
        self.event_loop
            .shared
            .progress
            .events
            .fetch_add(stats.events, Ordering::Relaxed);
        let since_start = began.since(self.zero);
        self.event_loop
            .reading
            .lateness
            .count_events(stats.events, since_start);
        let is_whole = events.len() < MAX_EPOLL_EVENTS && self.readable.is_empty();
        if is_whole {
            self.event_loop.reading.look_start = looked_at;
        }
        let typical = self.typical_response_time.filter(|_| self.slot_wait.is_some());
        let is_flooded = self.event_loop.reading.lateness.is_flooded(since_start);
        self.served_since_pause += events.len();
        // With many streams in a flood some are always ready, so a pass ends when each had its turn.
        let is_over = is_whole || is_flooded && self.served_since_pause >= self.running;
        let pause = self.gaps.pause(self.running, typical, is_flooded);
        let pause = pause.filter(|_| self.may_pause && is_over && stats.bytes < BUSY_READ_BYTES);
        self.next_poll = match pause {
            // In a flood a pass takes as long as a pause; a pause counted from the start of the pass would
            // leave the sender little time.
            Some(pause) if is_flooded => clock::now().plus(pause),
            Some(pause) => began.plus(pause),
            None => began,
        };
        if is_over {
            self.served_since_pause = 0;
        }
        if stats.bytes > 0 {
            self.longest_pass = self.longest_pass.max(clock::now().since(began));
        }
    }

    /// Waits for sockets for up to `wait`. Returns a moment that is no later than the poll, so that data
    /// which only a later look finds arrived after it.
    fn wait_for_events(&mut self, events: &mut Vec<epoll::Event>, wait: Duration) -> MonotonicTime {
        events.clear();
        let looked_at = clock::now();
        wait_for(&self.event_loop.epoll, events, Duration::ZERO);
        if wait.is_zero() || !events.is_empty() {
            return looked_at;
        }
        // Everything that has arrived was read.
        let slept = clock::now();
        wait_for(&self.event_loop.epoll, events, wait);
        let woken = self.wakes.earliest_wake(slept, wait, clock::now());
        self.event_loop.reading.look_start = woken.unwrap_or(looked_at);
        self.event_loop.reading.look_start
    }

    fn handle_event(&mut self, index: usize, flags: epoll::EventFlags, stats: &mut ReadStats) {
        let ending = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        if self.streams[index].is_none() {
            return self.read_closing(index);
        }
        if flags.intersects(ending) {
            self.continue_write(index);
        }
        if flags.intersects(epoll::EventFlags::IN | ending) {
            self.read(index, flags.intersects(ending), stats);
        }
    }

    fn read(&mut self, index: usize, is_ending: bool, stats: &mut ReadStats) {
        let Some(stream) = &mut self.streams[index] else {
            return;
        };
        let before = (stats.bytes, stats.events);
        match stream
            .in_flight
            .read(is_ending, &mut self.event_loop.reading, stats)
        {
            ReadState::Blocked => {}
            ReadState::Ready => self.readable.push(index),
            ReadState::Done(answer) => return self.finish(index, *answer),
        }
        if stats.bytes > before.0 {
            self.may_pause = stream.in_flight.timestamp_source() == Some(TimestampSource::Kernel);
        }
        let gap = stream
            .gap
            .add_events(stats.events - before.1, stream.in_flight.last_read_at());
        if let Some(gap) = gap {
            self.gaps.add(gap);
        }
    }
}
