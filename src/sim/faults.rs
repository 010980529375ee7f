//! Faults on request: which exist, when each is due, and what a dying engine writes to its log.
//!
//! Generation requests are numbered 1, 2, 3 … in the order in which their bodies are complete. Every
//! well-formed `POST` to a generating path counts, including probes, warm-ups and requests that are rejected
//! for their content. Health checks do not count. "Every n" means the numbers divisible by n. Deciding is
//! pure; the connection applies the fault.

use std::time::Duration;

use serde::Deserialize;

/// When the engine crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DieAfter {
    /// After this time since the start of serving, loading included.
    Time(Duration),
    /// After this many tokens were written, all requests together.
    Tokens(u64),
    /// After this many generation requests ended in any way. Requests that are rejected for their content or
    /// answered with status 500 do not count.
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
        match text.parse::<crate::base::units::HumanDuration>() {
            Ok(span) => Ok(Self::Time(span.duration())),
            Err(_) => Err(format!(
                "`{text}` is not a valid time or count; write it like `200ms`, `40tokens` or `3requests`"
            )),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Loading {
    #[default]
    Ends,
    /// The process crashes after this time.
    Dies(Duration),
    /// Loading never ends.
    Hangs,
}

/// What fails although the health check succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FalseHealth {
    /// Generation requests are never answered.
    Hang,
    /// Generation requests are answered without a token.
    Empty,
}

/// A line in a stream that is longer than clients expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HugeLine {
    /// Every n-th stream has one.
    pub(crate) every: u64,
    /// Length of its text in bytes.
    pub(crate) bytes: usize,
}

/// All faults. The default is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Faults {
    pub(crate) die_after: Option<DieAfter>,
    pub(crate) loading: Loading,
    /// After this many generation requests, requests that arrive are not answered. Streams in progress end
    /// normally.
    pub(crate) hang_after: Option<u64>,
    /// After this many generation requests, new connections are refused and existing ones are closed after
    /// their answer.
    pub(crate) refuse_after: Option<u64>,
    /// Every n-th stream ends with an error event in the middle.
    pub(crate) error_event_every: Option<u64>,
    /// Every n-th stream ends inside an event, and its connection is closed.
    pub(crate) half_stream_every: Option<u64>,
    /// Every n-th stream has an invalid event in the middle.
    pub(crate) garbage_every: Option<u64>,
    /// Some streams have one very long event in the middle.
    pub(crate) huge_line: Option<HugeLine>,
    /// Every n-th stream never ends.
    pub(crate) endless_stream_every: Option<u64>,
    /// Every n-th generation request is answered with status 500.
    pub(crate) http_error_every: Option<u64>,
    /// The health check succeeds although no tokens are generated.
    pub(crate) false_health: Option<FalseHealth>,
    /// A cache reset reports success without effect.
    pub(crate) fake_reset: bool,
    /// Answers end after this fraction of the requested tokens, even with `ignore_eos`.
    pub(crate) early_end: Option<f64>,
    /// Answers are longer than requested by this fraction.
    pub(crate) extra_output: Option<f64>,
    /// Prompts are cut to this many tokens, and the usage reports the cut length.
    pub(crate) truncate_prompts: Option<usize>,
    /// All tokens of all answers are the same, as with weights that are NaN.
    pub(crate) same_token: bool,
    /// Requests are generated to their end although their clients disconnected.
    pub(crate) ignore_disconnects: bool,
    /// Share of the answers with a structure, and of those to items of graded tasks, that are wrong.
    pub(crate) wrong_answers: Option<f64>,
    /// Share of the answers of words that leave the usual ones at a drawn token, as with another batch.
    pub(crate) varied_answers: Option<f64>,
    /// Such answers are wrong while more than this many requests are in flight.
    pub(crate) wrong_above: Option<u64>,
    /// Such answers are wrong to prompts of more than this many tokens.
    pub(crate) wrong_beyond: Option<usize>,
    /// Prompts are put into another chat template than the model's, so that no item of a graded task is solved.
    pub(crate) wrong_template: bool,
    /// Calls of tools in answers to items of graded tasks are written as text.
    pub(crate) broken_tool_parser: bool,
    /// The usage is not reported.
    pub(crate) hide_usage: bool,
    /// The requested number of tokens is reported, whatever the actual number is.
    pub(crate) claim_full_length: bool,
    /// Another model is served than the configured one.
    pub(crate) wrong_model: bool,
    /// After this many generation requests, the list of models has another name.
    pub(crate) rename_after: Option<u64>,
    /// After this many generation requests, all metrics restart at zero, as after a restart of the engine.
    pub(crate) forget_metrics_after: Option<u64>,
    /// After this many generation requests, requests for metrics are not answered.
    pub(crate) hang_metrics_after: Option<u64>,
    pub(crate) ignore_sigterm: bool,
    /// A child process is left behind.
    pub(crate) leak_child: bool,
    /// This many bytes are written to the log once the engine is ready, as fast as possible.
    pub(crate) log_flood: Option<u64>,
    /// A file of this many bytes is left in `/dev/shm`.
    pub(crate) leave_shm: Option<u64>,
}

/// A fault in the middle of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamFault {
    /// An error event, then the end.
    ErrorEvent,
    /// The end inside an event.
    Cut,
    /// Invalid bytes, then the rest.
    Garbage,
    /// An event with a text of this many bytes, then the rest.
    HugeLine(usize),
}

impl Faults {
    /// The fault of the stream of generation request `number`; the most severe if several are due.
    pub(crate) fn stream_fault(&self, number: u64) -> Option<StreamFault> {
        let huge = self.huge_line;
        [
            (self.half_stream_every, StreamFault::Cut),
            (self.error_event_every, StreamFault::ErrorEvent),
            (self.garbage_every, StreamFault::Garbage),
            (
                huge.map(|huge| huge.every),
                StreamFault::HugeLine(huge.map_or(0, |huge| huge.bytes)),
            ),
        ]
        .into_iter()
        .find_map(|(every, fault)| is_due(every, number).then_some(fault))
    }

    pub(crate) fn is_endless(&self, number: u64) -> bool {
        is_due(self.endless_stream_every, number)
    }

    pub(crate) fn is_http_error(&self, number: u64) -> bool {
        is_due(self.http_error_every, number)
    }

    /// Whether the list of models has another name after `requests` generation requests.
    pub(crate) fn renames_at(&self, requests: u64) -> bool {
        self.rename_after.is_some_and(|after| requests > after)
    }

    /// Whether the metrics restart at zero after `requests` generation requests.
    pub(crate) fn forgets_metrics_at(&self, requests: u64) -> bool {
        self.forget_metrics_after.is_some_and(|after| requests > after)
    }

    /// Whether requests for metrics are not answered after `requests` generation requests.
    pub(crate) fn hangs_metrics_at(&self, requests: u64) -> bool {
        self.hang_metrics_after.is_some_and(|after| requests > after)
    }

    /// Which wrong answer the `nth` answer with a structure is, counted from 0; `None` if it is correct. Of any consecutive answers whose
    /// number times the share is whole, exactly that share is wrong.
    pub(crate) fn wrong_answer(&self, nth: u64) -> Option<u64> {
        // Shares such as 0.29 are no exact binary numbers.
        let wrong_before =
            |answers: u64| (answers as f64 * self.wrong_answers.unwrap_or(0.0) + 1e-9).floor() as u64;
        let before = wrong_before(nth);
        (wrong_before(nth + 1) > before).then_some(before)
    }

    /// Whether answers that can be wrong are, with so many requests in flight and a prompt of so many tokens.
    pub(crate) fn is_wrong(&self, in_flight: u64, prompt: usize) -> bool {
        self.wrong_above.is_some_and(|most| in_flight > most)
            || self.wrong_beyond.is_some_and(|most| prompt > most)
    }

    /// Whether no request is answered after `requests` generation requests.
    pub(crate) fn hangs_at(&self, requests: u64) -> bool {
        self.hang_after.is_some_and(|after| requests > after)
    }

    /// Whether connections are refused after `requests` generation requests.
    pub(crate) fn refuses_at(&self, requests: u64) -> bool {
        self.refuse_after.is_some_and(|after| requests >= after)
    }
}

fn is_due(every: Option<u64>, number: u64) -> bool {
    every.is_some_and(|every| every > 0 && number.is_multiple_of(every))
}

/// Last lines in the log of a crashing engine.
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
            .filter(|number| faults.stream_fault(*number).is_some())
            .collect();
        assert_eq!(due, [3, 6, 9]);
        assert!((1..100).all(|number| Faults::default().stream_fault(number).is_none()));
    }

    #[test]
    fn the_share_of_wrong_answers_is_exact_from_any_place_on() {
        for (share, among, wrong) in [
            (0.1, 50, 5),
            (0.29, 100, 29),
            (0.5, 8, 4),
            (1.0, 7, 7),
            (0.0, 9, 0),
        ] {
            let faults = Faults {
                wrong_answers: Some(share),
                ..Faults::default()
            };
            for from in 0..500 {
                let found: Vec<u64> = (from..from + among)
                    .filter_map(|nth| faults.wrong_answer(nth))
                    .collect();
                assert_eq!(found.len(), wrong, "{share} from {from}");
                assert!(found.windows(2).all(|pair| pair[1] == pair[0] + 1));
            }
        }
        assert!((0..100).all(|nth| Faults::default().wrong_answer(nth).is_none()));
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
