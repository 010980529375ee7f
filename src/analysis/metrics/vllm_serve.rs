//! The metrics of `vllm bench serve`, from records. Times are in seconds.
//!
//! They differ from those of vLLM in one thing: the first token is the first event with output. vLLM also takes
//! an event without text for a token, such as the one with the role of a chat answer and the one with the finish
//! reason.

use super::stats::{self, Statistics};
use crate::results::record::request::Request;
use crate::results::record::spilled::SpilledText;

/// What `vllm bench serve` knows of one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct VllmRequest {
    pub(crate) is_successful: bool,
    /// When it was sent, after the start of the load.
    pub(crate) start_s: f64,
    pub(crate) ttft_s: f64,
    pub(crate) itl_s: Vec<f64>,
    pub(crate) latency_s: f64,
    /// The time between the moment at which it fell due and the moment at which it was sent.
    pub(crate) queue_s: f64,
    pub(crate) prompt_tokens: u32,
    /// Reported by the server, otherwise counted; 0 for a failed request.
    pub(crate) output_tokens: u32,
    /// Length of the recording; 0 without one, and if its length is unknown.
    pub(crate) audio_s: f64,
    /// Number of prompts in a request of embeddings.
    pub(crate) sequences: u32,
    pub(crate) text: String,
    pub(crate) error: String,
}

/// The targets of a good request, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct GoodputTargets {
    pub(crate) ttft_s: Option<f64>,
    pub(crate) tpot_s: Option<f64>,
    pub(crate) e2el_s: Option<f64>,
}

impl VllmRequest {
    /// Reads a record. With `is_at_once` all requests are due at the start.
    pub(crate) fn from_record(
        request: &Request,
        generates_text: bool,
        is_at_once: bool,
        sequences: u32,
    ) -> Self {
        let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9;
        let sent = request.sent_ns.unwrap_or(request.due_ns);
        let due = if is_at_once { 0 } else { request.due_ns };
        // Of recordings, vLLM's tool counts only the tokens of the text beside them.
        let reported = request.usage.filter(|_| request.audio.is_none());
        let reported = reported.and_then(|usage| usage.prompt);
        let common = Self {
            start_s: seconds(0, sent),
            queue_s: seconds(due, sent),
            prompt_tokens: reported.unwrap_or(request.prompt_tokens),
            audio_s: request.audio.and_then(|audio| audio.seconds).unwrap_or(0.0),
            sequences,
            text: request
                .text
                .as_ref()
                .map(SpilledText::read)
                .unwrap_or_default()
                .into_owned(),
            error: request
                .failure
                .as_ref()
                .map_or_else(String::new, |failure| failure.message.clone()),
            ..Self::default()
        };
        if !generates_text {
            let latency = request.last_line_ns.map_or(0.0, |last| seconds(sent, last));
            return Self {
                is_successful: request.is_completed(),
                latency_s: latency,
                ttft_s: latency,
                ..common
            };
        }
        let times: Vec<u64> = request.chunks.iter().map(|chunk| chunk.at_ns).collect();
        let (Some(first), Some(last)) = (times.first(), times.last()) else {
            return common;
        };
        Self {
            is_successful: request.is_completed(),
            ttft_s: seconds(sent, *first),
            itl_s: times.windows(2).map(|pair| seconds(pair[0], pair[1])).collect(),
            latency_s: seconds(sent, *last),
            output_tokens: match request.is_completed() {
                true => request.output_tokens().unwrap_or(0),
                false => 0,
            },
            ..common
        }
    }

    /// The time per output token after the first; `None` for fewer than two tokens.
    fn tpot_s(&self) -> Option<f64> {
        let later = self.output_tokens.checked_sub(1).filter(|later| *later > 0)?;
        Some((self.latency_s - self.ttft_s) / f64::from(later))
    }

    /// Whether it meets all targets. A request with fewer than two tokens meets every target of the TPOT.
    fn is_good(&self, targets: &GoodputTargets) -> bool {
        let meets = |target: Option<f64>, value: f64| target.is_none_or(|target| value <= target);
        self.is_successful
            && meets(targets.ttft_s, self.ttft_s)
            && meets(targets.tpot_s, self.tpot_s().unwrap_or(0.0))
            && meets(targets.e2el_s, self.latency_s)
    }
}

/// The times of which statistics are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VllmTime {
    Ttft,
    Tpot,
    Itl,
    E2el,
    ClientQueue,
    E2elWithQueue,
}

/// Statistics of one time, in milliseconds; zeros if there is no value, as vLLM prints them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VllmStatistics {
    pub(crate) mean: f64,
    pub(crate) median: f64,
    pub(crate) std: f64,
    /// Pairs of percentage and percentile.
    pub(crate) percentiles: Vec<(f64, f64)>,
}

/// The requests of a load, and how long it took.
#[derive(Clone, Debug)]
pub(crate) struct VllmFigures {
    pub(crate) requests: Vec<VllmRequest>,
    pub(crate) duration_s: f64,
}

impl VllmFigures {
    pub(crate) fn successes(&self) -> impl Iterator<Item = &VllmRequest> {
        self.requests.iter().filter(|request| request.is_successful)
    }

    pub(crate) fn completed(&self) -> usize {
        self.successes().count()
    }

    pub(crate) fn failed(&self) -> usize {
        self.requests.len() - self.completed()
    }

    /// The sum of a number over the successful requests.
    pub(crate) fn total(&self, number: fn(&VllmRequest) -> u32) -> u64 {
        self.successes().map(|request| u64::from(number(request))).sum()
    }

    /// A number per second of the load.
    pub(crate) fn rate(&self, number: u64) -> f64 {
        match self.duration_s > 0.0 {
            true => number as f64 / self.duration_s,
            false => 0.0,
        }
    }

    /// Seconds of recordings per second: the inverse real-time factor.
    pub(crate) fn rtfx(&self) -> f64 {
        // The sum of no numbers would be -0.
        let seconds = self.successes().fold(0.0, |sum, request| sum + request.audio_s);
        match self.duration_s > 0.0 {
            true => seconds / self.duration_s,
            false => 0.0,
        }
    }

    pub(crate) fn good(&self, targets: &GoodputTargets) -> u64 {
        let good = self.successes().filter(|request| request.is_good(targets));
        good.count() as u64
    }

    /// The largest numbers of events with output and of requests in flight within one of the seconds since the
    /// first request.
    pub(crate) fn peaks(&self) -> (f64, u64) {
        let begin = self
            .successes()
            .map(|request| request.start_s)
            .fold(f64::INFINITY, f64::min);
        let end = self
            .successes()
            .map(|request| request.start_s + request.latency_s);
        let end = end.fold(f64::NEG_INFINITY, f64::max);
        if !begin.is_finite() || !end.is_finite() {
            return (0.0, 0);
        }
        let seconds = (end - begin).ceil() as usize + 1;
        let (mut events, mut running) = (vec![0u64; seconds], vec![0u64; seconds]);
        let second = |at: f64| ((at - begin).max(0.0) as usize).min(seconds - 1);
        for request in self.successes() {
            let mut at = request.start_s + request.ttft_s;
            events[second(at)] += 1;
            for gap in &request.itl_s {
                at += gap;
                events[second(at)] += 1;
            }
            let last = second(request.start_s + request.latency_s);
            running[second(request.start_s)..=last]
                .iter_mut()
                .for_each(|count| *count += 1);
        }
        let max = |counts: Vec<u64>| counts.into_iter().max().unwrap_or(0);
        (max(events) as f64, max(running))
    }

    /// Statistics of a time over the successful requests.
    pub(crate) fn statistics(&self, time: VllmTime, percents: &[f64]) -> VllmStatistics {
        let requests = self.successes();
        let mut values: Vec<f64> = match time {
            VllmTime::Ttft => requests.map(|request| request.ttft_s).collect(),
            VllmTime::Tpot => requests.filter_map(VllmRequest::tpot_s).collect(),
            VllmTime::Itl => requests
                .flat_map(|request| request.itl_s.iter().copied())
                .collect(),
            VllmTime::E2el => requests.map(|request| request.latency_s).collect(),
            VllmTime::ClientQueue => requests.map(|request| request.queue_s).collect(),
            VllmTime::E2elWithQueue => requests
                .map(|request| request.latency_s + request.queue_s)
                .collect(),
        };
        if values.is_empty() {
            values.push(0.0);
        }
        let statistics = Statistics::from_values(&values).expect("there is a value");
        values.sort_by(f64::total_cmp);
        VllmStatistics {
            mean: statistics.mean * 1000.0,
            median: statistics.median * 1000.0,
            std: statistics.std * 1000.0,
            percentiles: percents
                .iter()
                .map(|percent| (*percent, stats::percentile(&values, *percent) * 1000.0))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(start_s: f64, ttft_s: f64, itl_s: &[f64], output_tokens: u32) -> VllmRequest {
        VllmRequest {
            is_successful: true,
            start_s,
            ttft_s,
            itl_s: itl_s.to_vec(),
            latency_s: ttft_s + itl_s.iter().sum::<f64>(),
            output_tokens,
            prompt_tokens: 10,
            sequences: 1,
            ..VllmRequest::default()
        }
    }

    #[test]
    fn no_success_is_no_recording_and_not_less() {
        let none = VllmFigures {
            requests: vec![VllmRequest::default()],
            duration_s: 2.0,
        };
        assert_eq!(format!("{:?}", none.rtfx()), "0.0");
    }

    fn figures() -> VllmFigures {
        VllmFigures {
            requests: vec![
                request(0.5, 0.25, &[0.5, 0.5], 3),
                request(0.75, 0.5, &[], 1),
                VllmRequest {
                    error: "broken".to_owned(),
                    ..VllmRequest::default()
                },
            ],
            duration_s: 2.0,
        }
    }

    #[test]
    fn totals_and_rates_count_only_successes() {
        let figures = figures();
        assert_eq!((figures.completed(), figures.failed()), (2, 1));
        assert_eq!(figures.total(|request| request.output_tokens), 4);
        assert_eq!(figures.rate(figures.total(|request| request.prompt_tokens)), 10.0);
        // The first second has both first events and one more; the second one the last.
        assert_eq!(figures.peaks(), (3.0, 2));
    }

    #[test]
    fn a_single_token_has_no_time_per_token_and_meets_its_target() {
        let figures = figures();
        let tpot = figures.statistics(VllmTime::Tpot, &[50.0]);
        assert_eq!((tpot.mean, tpot.percentiles), (500.0, vec![(50.0, 500.0)]));
        let target = |tpot_s| GoodputTargets {
            tpot_s: Some(tpot_s),
            ..GoodputTargets::default()
        };
        assert_eq!((figures.good(&target(0.5)), figures.good(&target(0.4))), (2, 1));
        assert_eq!(figures.good(&GoodputTargets::default()), 2);
    }

    #[test]
    fn without_a_success_every_figure_is_zero() {
        let figures = VllmFigures {
            requests: vec![VllmRequest::default()],
            duration_s: 0.0,
        };
        assert_eq!((figures.peaks(), figures.rate(5)), ((0.0, 0), 0.0));
        assert_eq!(
            figures.statistics(VllmTime::Itl, &[99.0]).percentiles,
            [(99.0, 0.0)]
        );
    }
}
