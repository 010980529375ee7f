//! The progress of a load, for other threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::results::record::request::Request;

/// Number of requests that must have ended before failures can abort a load.
const MIN_ENDED: u64 = 20;
/// How often the share of failed requests is compared with the bound that aborts a load.
const FAILURE_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The progress of a load. The counters are not read at the same moment.
#[derive(Debug, Default)]
pub struct Progress {
    pub(super) running: AtomicU64,
    pub(super) ended: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) is_aborted: AtomicBool,
    pub(super) events: AtomicU64,
    /// Tokens and events of the answers that ended.
    ended_tokens: AtomicU64,
    ended_events: AtomicU64,
    /// Answers with a first event, and the sum of their times until then.
    begun_answers: AtomicU64,
    ttft_sum_ns: AtomicU64,
    pub(super) left_open: AtomicU64,
    pub(super) surplus: AtomicU64,
}

impl Progress {
    pub(crate) fn running(&self) -> u64 {
        self.running.load(Ordering::Relaxed)
    }

    /// Requests that ended in any way. Requests that are never sent count when they are given up.
    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Events of answers that arrived; a few of them carry no output.
    pub(crate) fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    /// Tokens for each event, of the answers that ended; 1 before the first has.
    pub(crate) fn tokens_per_event(&self) -> f64 {
        match self.ended_events.load(Ordering::Relaxed) {
            0 => 1.0,
            events => self.ended_tokens.load(Ordering::Relaxed) as f64 / events as f64,
        }
    }

    /// The mean time to the first token of the answers that ended, in milliseconds; `None` before the first has.
    pub(crate) fn mean_ttft_ms(&self) -> Option<f64> {
        let answers = self.begun_answers.load(Ordering::Relaxed);
        (answers > 0).then(|| self.ttft_sum_ns.load(Ordering::Relaxed) as f64 / answers as f64 / 1e6)
    }

    /// Connections that the server left open for a second after `[DONE]`.
    pub(crate) fn left_open(&self) -> u64 {
        self.left_open.load(Ordering::Relaxed)
    }

    /// Reusable connections that were closed because the server sent bytes that belong to no request.
    pub(crate) fn surplus(&self) -> u64 {
        self.surplus.load(Ordering::Relaxed)
    }

    /// Returns true if the load was aborted because too many requests failed.
    pub(crate) fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::Relaxed)
    }

    /// Returns once more than this share of the ended requests has failed; never returns without a share.
    pub(super) async fn wait_for_failures(&self, share: Option<f64>) {
        let Some(share) = share else {
            return std::future::pending().await;
        };
        loop {
            let (ended, failed) = (self.ended(), self.failed());
            if ended >= MIN_ENDED && failed as f64 > share * ended as f64 {
                return self.is_aborted.store(true, Ordering::Relaxed);
            }
            tokio::time::sleep(FAILURE_CHECK_INTERVAL).await;
        }
    }

    pub(super) fn count_end(&self, request: &Request) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        if request.is_failed() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        if let (Some(first), Some(sent_ns)) = (request.chunks.first(), request.sent_ns) {
            let events = request.chunks.len() as u64;
            self.ended_events.fetch_add(events, Ordering::Relaxed);
            self.ended_tokens
                .fetch_add(request.received_tokens().into(), Ordering::Relaxed);
            self.begun_answers.fetch_add(1, Ordering::Relaxed);
            self.ttft_sum_ns
                .fetch_add(first.at_ns.saturating_sub(sent_ns), Ordering::Relaxed);
        }
    }
}
