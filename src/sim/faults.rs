//! What goes wrong on request: the list, when each falls due, and the words it is reported with.
//!
//! Generation requests are numbered 1, 2, 3 … in the order in which their bodies are complete. Every well-formed
//! `POST` to a generating path counts, probes, warm-ups and requests refused for their content included; health
//! checks do not. "Every n" means the numbers that n divides. Deciding is pure; whoever holds the socket acts.

use std::time::Duration;

use serde::Deserialize;

/// When the engine dies by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DieAfter {
    /// This long after the process began to serve, loading included.
    Time(Duration),
    /// As soon as this many tokens, of all requests together, were written.
    Tokens(u64),
    /// As soon as this many generation requests have ended, whichever way; those refused for their content or
    /// answered with status 500 do not count here.
    Requests(u64),
}

impl std::str::FromStr for DieAfter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let count = |digits: &str| digits.trim().parse::<u64>().ok().filter(|count| *count > 0);
        let stem = |unit: &str| {
            text.strip_suffix(unit)
                .or_else(|| text.strip_suffix(unit.strip_suffix('s')?))
        };
        if let Some(count) = stem("tokens").and_then(count) {
            return Ok(Self::Tokens(count));
        }
        if let Some(count) = stem("requests").and_then(count) {
            return Ok(Self::Requests(count));
        }
        match text.parse::<crate::base::units::Span>() {
            Ok(span) => Ok(Self::Time(span.duration())),
            Err(_) => Err(format!(
                "`{text}` is no moment to die; write it like `200ms`, `40tokens` or `3requests`"
            )),
        }
    }
}

/// What happens to loading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loading {
    /// It ends.
    #[default]
    Ends,
    /// The process dies after this time.
    Dies(Duration),
    /// It never ends.
    Hangs,
}

/// What a healthy answer hides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LyingHealth {
    /// Generation requests are accepted and never answered.
    Hang,
    /// Generation requests are answered without a token.
    Empty,
}

/// A line that is longer than clients like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugeLine {
    /// Every n-th stream carries one.
    pub every: u64,
    /// The length of its text, in bytes.
    pub bytes: usize,
}

/// Everything that goes wrong; by default nothing does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// Death after loading.
    pub die_after: Option<DieAfter>,
    /// Trouble while loading.
    pub loading: Loading,
    /// After this many generation requests, nothing that arrives is answered any more; streams in progress end.
    pub hang_after: Option<u64>,
    /// After this many generation requests, new connections are refused and the others are not kept.
    pub refuse_after: Option<u64>,
    /// Every n-th stream ends with an error event in its middle.
    pub error_event_every: Option<u64>,
    /// Every n-th stream is cut inside an event, and its connection closed.
    pub half_stream_every: Option<u64>,
    /// Every n-th stream carries an event of garbage in its middle.
    pub garbage_every: Option<u64>,
    /// Some streams carry one huge event in their middle.
    pub huge_line: Option<HugeLine>,
    /// Every n-th stream never ends.
    pub endless_stream_every: Option<u64>,
    /// Every n-th generation request is answered with status 500.
    pub http_error_every: Option<u64>,
    /// Health is told while nothing is generated.
    pub lying_health: Option<LyingHealth>,
    /// A cache reset is answered with success and resets nothing.
    pub fake_reset: bool,
    /// Answers end after this share of the tokens asked for, though the end of text is ignored.
    pub early_end: Option<f64>,
    /// Answers go on beyond the tokens asked for by this share of them.
    pub extra_output: Option<f64>,
    /// Only so many tokens of a prompt are read and reported.
    pub truncate_prompts: Option<usize>,
    /// Every token of every answer is the same one, as of weights that went to NaN.
    pub same_token: bool,
    /// Token counts are not reported.
    pub hide_usage: bool,
    /// So many tokens are reported as were asked for, however many came.
    pub claim_full_length: bool,
    /// Another model is served than the one named.
    pub wrong_model: bool,
    /// After this many generation requests another model is named where models are listed.
    pub rename_after: Option<u64>,
    /// After this many generation requests all metrics begin again at nothing, as those of an engine that was restarted.
    pub forget_metrics_after: Option<u64>,
    /// After this many generation requests metrics are asked for and never answered.
    pub hang_metrics_after: Option<u64>,
    /// SIGTERM does nothing.
    pub ignore_sigterm: bool,
    /// A child process is left behind.
    pub leak_child: bool,
    /// This many bytes are written to the log as soon as the engine is ready, as fast as the log takes them.
    pub log_flood: Option<u64>,
    /// A file of this many bytes is left in `/dev/shm`.
    pub leave_shm: Option<u64>,
}

/// What happens in the middle of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mishap {
    /// An error event, then the end.
    ErrorEvent,
    /// The end inside an event.
    Cut,
    /// Bytes that mean nothing, then the rest.
    Garbage,
    /// An event with a text of this many bytes, then the rest.
    HugeLine(usize),
}

impl Faults {
    /// What happens to the stream of generation request `number`; the worst, if several fall due.
    pub(crate) fn mishap(&self, number: u64) -> Option<Mishap> {
        let huge = self.huge_line;
        [
            (self.half_stream_every, Mishap::Cut),
            (self.error_event_every, Mishap::ErrorEvent),
            (self.garbage_every, Mishap::Garbage),
            (
                huge.map(|huge| huge.every),
                Mishap::HugeLine(huge.map_or(0, |huge| huge.bytes)),
            ),
        ]
        .into_iter()
        .find_map(|(every, mishap)| is_due(every, number).then_some(mishap))
    }

    /// Whether the stream of generation request `number` never ends.
    pub(crate) fn is_endless(&self, number: u64) -> bool {
        is_due(self.endless_stream_every, number)
    }

    /// Whether generation request `number` is answered with status 500.
    pub(crate) fn is_http_error(&self, number: u64) -> bool {
        is_due(self.http_error_every, number)
    }

    /// Whether another model is named once `requests` generation requests came in.
    pub(crate) fn renames_at(&self, requests: u64) -> bool {
        self.rename_after.is_some_and(|after| requests > after)
    }

    /// Whether metrics begin again at nothing once `requests` generation requests came in.
    pub(crate) fn forgets_metrics_at(&self, requests: u64) -> bool {
        self.forget_metrics_after.is_some_and(|after| requests > after)
    }

    /// Whether metrics are no longer answered once `requests` generation requests came in.
    pub(crate) fn hangs_metrics_at(&self, requests: u64) -> bool {
        self.hang_metrics_after.is_some_and(|after| requests > after)
    }

    /// Whether nothing is answered any more once `requests` generation requests came in.
    pub(crate) fn hangs_at(&self, requests: u64) -> bool {
        self.hang_after.is_some_and(|after| requests > after)
    }

    /// Whether connections are refused once `requests` generation requests came in.
    pub(crate) fn refuses_at(&self, requests: u64) -> bool {
        self.refuse_after.is_some_and(|after| requests >= after)
    }
}

fn is_due(every: Option<u64>, number: u64) -> bool {
    every.is_some_and(|every| every > 0 && number.is_multiple_of(every))
}

/// What a dying engine leaves in its log.
pub(crate) const LAST_WORDS: &[&str] = &[
    "ERROR EngineCore encountered a fatal error.",
    "Traceback (most recent call last):",
    "  File \"engine/core.py\", line 704, in run_engine_core",
    "    engine_core.run_busy_loop()",
    "  File \"engine/model_runner.py\", line 1512, in execute_model",
    "    hidden_states = self.model(input_ids, positions)",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 0 has a total capacity of 79.11 GiB \
     of which 642.00 MiB is free. (simulated)",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_death_is_read_by_its_unit() {
        assert_eq!("200ms".parse(), Ok(DieAfter::Time(Duration::from_millis(200))));
        assert_eq!("40tokens".parse(), Ok(DieAfter::Tokens(40)));
        assert_eq!("1 request".parse(), Ok(DieAfter::Requests(1)));
        assert!("0tokens".parse::<DieAfter>().is_err());
        assert!("40".parse::<DieAfter>().unwrap_err().contains("`40tokens`"));
    }

    #[test]
    fn every_third_means_three_six_nine() {
        let faults = Faults {
            garbage_every: Some(3),
            ..Faults::default()
        };
        let due: Vec<_> = (1..10)
            .filter(|number| faults.mishap(*number).is_some())
            .collect();
        assert_eq!(due, [3, 6, 9]);
        assert!((1..100).all(|number| Faults::default().mishap(number).is_none()));
    }

    #[test]
    fn hanging_begins_with_the_request_after_refusing_at_it() {
        let faults = Faults {
            hang_after: Some(2),
            refuse_after: Some(2),
            ..Faults::default()
        };
        assert_eq!(
            [1, 2, 3].map(|requests| faults.hangs_at(requests)),
            [false, false, true]
        );
        assert_eq!(
            [1, 2, 3].map(|requests| faults.refuses_at(requests)),
            [false, true, true]
        );
    }
}
