//! One request from its slot to its end: what arrived when, and how it ended.
//!
//! There are two ways to make one: [`Live`] over bare TCP, moved on by an event loop, with the kernel's moments of arrival;
//! and [`Exchange`] over tokio, for encrypted connections and single requests, with our own.
//!
//! Where the moments are ours, lines are kept as raw bytes with the moment of the read that completed them; only what
//! control needs is looked at (the end of the answer, `[DONE]`, the length of lines, the number of events), and lines
//! that differ from one parsed before in nothing but their text. All other JSON is parsed when the answer has ended, or when
//! [`trace::BLOCK`] bytes of lines have gathered: always after the moments of these lines were taken.
//! That keeps memory flat, since cumulative streams repeat their text with each event; the price is that about 50 µs of
//! parsing may stand between two reads of other streams on the same thread, once per block. Where the moments are the kernel's,
//! parsing delays none, and lines are parsed as they come.

mod nonblocking;
mod response_trace;

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;

pub(super) use self::nonblocking::{Course, Haul, Live};
pub(super) use self::response_trace::COMPRESSED;
use self::response_trace::Trace;
use crate::base::clock::{self, Moment};
use crate::config::scenario::Limits;
use crate::loadgen::connection::{Connection, Route, Stamp};
use crate::loadgen::protocol::{Decoded, Decoder};
use crate::loadgen::wakeups::woken;
use crate::results::record::request::{Class, Failure};

/// A read buffer begins small, for thousands of streams that bring an event at a time.
const BUFFER: usize = 4 << 10;
/// A read buffer grows up to this for a stream that fills it.
const BUFFER_LIMIT: usize = 64 << 10;
/// How long the end of a connection is waited for after `[DONE]`.
pub(super) const GRACE: Duration = Duration::from_secs(1);
/// After so long the kernel asks again for a connection that nobody answered.
pub(super) const RETRY: Duration = Duration::from_millis(900);

/// Events that a sound answer may have besides those with output: role, finish, usage and the like.
const OTHER_EVENTS: u64 = 16;

/// How far one request may go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// The longest wait for the first byte of the body: some servers send the head before they have anything to say.
    pub(super) first_byte: Duration,
    /// The longest it may take.
    pub(super) request: Duration,
    /// The longest line.
    pub(super) line_bytes: usize,
    /// The most events before it is cut as endless.
    pub(super) events: u64,
    /// The tokens that are asked for.
    pub(super) tokens: u32,
}

impl Bounds {
    /// The bounds of a request that may bring so many tokens.
    pub(super) fn of(asked_tokens: u32, limits: &Limits) -> Self {
        Self {
            first_byte: limits.first_byte.duration(),
            request: limits.request.duration(),
            line_bytes: usize::try_from(limits.line_bytes).unwrap_or(usize::MAX),
            tokens: asked_tokens,
            events: u64::from(asked_tokens) + u64::from(limits.excess_tokens) + OTHER_EVENTS,
        }
    }
}

/// What many exchanges share.
pub(super) struct Exchange<'a> {
    /// The way to the engine.
    pub(super) route: &'a Route,
    /// Called when the connection stands or cannot be made, or has to be asked for again; whether it stands.
    pub(super) on_connect: &'a (dyn Fn(bool) + Sync),
    /// Ends what is under way.
    pub(super) cut: &'a CancellationToken,
    /// Told of the number of events whenever some arrive, and how far their moment may be off.
    pub(super) on_events: &'a (dyn Fn(u64, Duration) + Sync),
    /// Moments are told in nanoseconds after this one.
    pub(super) zero: Moment,
}

/// What came of one request.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) sent: Moment,
    pub(super) connected: Option<Moment>,
    pub(super) written: Option<Moment>,
    pub(super) first_byte: Option<Moment>,
    pub(super) last_line: Option<Moment>,
    pub(super) end: Moment,
    /// Whose clock took its moments of arrival; `None` if nothing arrived.
    pub(super) stamp: Option<Stamp>,
    pub(super) status: Option<u16>,
    /// Content and failure, whether of content or of transport.
    pub(super) decoded: Decoded,
}

/// How the waiting ended.
enum Ending {
    Whole(Moment),
    Failed(Failure),
    TimedOut,
    Cancelled,
}

fn failed(class: Class, message: impl ToString) -> Ending {
    Ending::Failed(Failure {
        class,
        message: message.to_string(),
    })
}

impl Exchange<'_> {
    /// Sends the request now and follows the answer to its end; with it, the connection that was not over then.
    pub(super) async fn run(
        &self,
        request: Vec<u8>,
        decoder: Decoder,
        bounds: Bounds,
    ) -> (Answer, Option<LeftOpen>) {
        let mut trace = Trace::new(decoder, bounds, self.zero);
        let begun = AtomicBool::new(false);
        let last = trace.sent.plus(bounds.request).to_tokio();
        let first = trace.sent.plus(bounds.first_byte.min(bounds.request)).to_tokio();
        let mut open = None;
        let ending = {
            let alarm = sleep_until(first);
            let cancelled = self.cut.cancelled();
            let talk = self.talk(&mut trace, request, &begun, &mut open);
            tokio::pin!(alarm, cancelled, talk);
            loop {
                tokio::select! {
                    biased;
                    ending = &mut talk => break ending,
                    () = &mut cancelled => break Ending::Cancelled,
                    () = &mut alarm => {
                        if first == last || alarm.deadline() == last || !begun.load(Ordering::Relaxed) {
                            break Ending::TimedOut;
                        }
                        alarm.as_mut().reset(last);
                    }
                }
            }
        };
        (trace.conclude(ending), open)
    }

    async fn talk(
        &self,
        trace: &mut Trace,
        request: Vec<u8>,
        begun: &AtomicBool,
        open: &mut Option<LeftOpen>,
    ) -> Ending {
        let mut connecting = pin!(self.route.connect());
        let connected = match timeout(RETRY, &mut connecting).await {
            Ok(connected) => {
                (self.on_connect)(connected.is_ok());
                connected
            }
            Err(_) => {
                (self.on_connect)(false);
                connecting.await
            }
        };
        let mut connection = match connected {
            Ok(connection) => connection,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return failed(Class::Refused, error);
            }
            Err(error) => return failed(Class::Connect, error),
        };
        trace.connected = Some(clock::now());
        let write = connection.write(&request).await;
        if write.is_ok() {
            trace.wrote(clock::now());
        }
        drop(request);
        let mut buffer = vec![0; BUFFER];
        loop {
            let read = connection.read(&mut buffer).await;
            let arrival = match (read, &write) {
                (Ok(arrival), _) => arrival,
                // A server may refuse a request while it is being written; its answer, if there is one, says more.
                (Err(_), Err(error)) => {
                    return failed(Class::Reset, format!("while the request was written: {error}"));
                }
                (Err(error), Ok(())) => return failed(Class::Reset, error),
            };
            let (events, before) = (trace.events(), trace.last_read());
            let at = trace.arrived(arrival);
            let over = trace.take(&buffer[..arrival.length], at);
            if trace.events() > events {
                (self.on_events)(trace.events() - events, at.since(woken().max(before)));
            }
            match over {
                Ok(true) => return Ending::Whole(at),
                // Nothing that matters can follow `[DONE]`, and some servers leave the connection open.
                Ok(false) if trace.is_done() => {
                    *open = Some(LeftOpen(connection));
                    return Ending::Whole(at);
                }
                Ok(false) => {}
                Err(ending) => return ending,
            }
            if trace.has_body {
                begun.store(true, Ordering::Relaxed);
            }
            if arrival.length == buffer.len() && buffer.len() < BUFFER_LIMIT {
                buffer.resize(buffer.len() * 2, 0);
            }
            trace.fold_full();
        }
    }
}

/// A connection whose answer was over before it was.
pub(super) struct LeftOpen(Connection);

impl LeftOpen {
    /// Waits until the server ends it, but not for long; whether it did.
    pub(super) async fn ends(mut self) -> bool {
        timeout(GRACE, self.0.read(&mut [0; 64])).await.is_ok()
    }
}

/// Nanoseconds from the zero of a measurement to a moment.
pub(super) fn nanos(at: Moment, zero: Moment) -> u64 {
    at.as_nanos().saturating_sub(zero.as_nanos())
}

#[cfg(test)]
mod tests;
