//! Checks requests and tokens under way: latencies, duration, peaks and limit against each other.

use super::range::Range;
use super::{Checks, MAX_GAPS_PER_TOKEN, MAX_TPOT_WEIGHT_FACTOR, time};
use crate::analysis::metrics::{
    LatencyKind, Metric,
    Statistic::{Max, Mean, P99, Std},
    TokenCount,
};
use crate::import::result_block::WarningSubject;

/// Maximum factors of the last answer's duration over mean E2E and over its 99th percentile.
const MAX_LAST_RESPONSE_FACTORS: [f64; 2] = [4.0, 2.0];
/// Assumed maximum coefficient of variation of answer lengths: mean TPOT over tokens differs from that over
/// requests by at most this many standard deviations of TPOT.
const MAX_TPOT_DEVIATIONS: f64 = 2.0;
/// A peak below this share of the computed average contradicts it.
const MIN_PEAK_SHARE: f64 = 0.9;
/// Maximum factor of a closed loop's duration over the time in which its slots are busy.
const MAX_IDLE_FACTOR: f64 = 1.15;
/// Time that a client may need between two requests of a slot, and around the whole load (`CLIENT_OVERHEAD_MS`), in
/// milliseconds. A client in Python took 2 s around twelve requests on a busy host.
const CLIENT_PAUSE_MS: f64 = 20.0;
const CLIENT_OVERHEAD_MS: f64 = 5000.0;
/// A load of fewer seconds may have no whole second that reaches the average.
const MIN_DURATION_S: f64 = 2.0;

impl Checks<'_> {
    /// Range of mean TPOT over tokens, from which mean E2E follows. The printed mean is over requests.
    pub(super) fn token_weighted_tpot(&self) -> Option<Range> {
        let mean = self.range(time(Mean, LatencyKind::Tpot))?;
        if self.has_equal_lengths() {
            return Some(mean);
        }
        let wide = Range {
            low: mean.low / MAX_TPOT_WEIGHT_FACTOR,
            high: mean.high * MAX_TPOT_WEIGHT_FACTOR,
        };
        let Some(std) = self.range(time(Std, LatencyKind::Tpot)) else {
            return Some(wide);
        };
        let off = MAX_TPOT_DEVIATIONS * std.high;
        Some(Range {
            low: wide.low.max(mean.low - off),
            high: wide.high.min(mean.high + off),
        })
    }

    /// Mean E2E in milliseconds, as printed or as the sum of its parts.
    fn mean_e2e(&self) -> Option<Range> {
        let of_parts = || {
            let completed = self
                .result
                .figure(Metric::Completed)
                .filter(|count| *count > 0.0)?;
            let output = self.result.figure(Metric::Tokens(TokenCount::Output))?;
            let rest = (output / completed - 1.0).max(0.0);
            Some(
                self.range(time(Mean, LatencyKind::Ttft))?
                    .plus(self.token_weighted_tpot()?.times(rest)),
            )
        };
        self.range(time(Mean, LatencyKind::E2e)).or_else(of_parts)
    }

    /// Maximum duration of the last answer, in milliseconds.
    pub(super) fn last_response_ms(&self) -> Option<f64> {
        let value = |metric| self.result.figure(metric);
        let mean = |sample| value(time(Mean, sample));
        let of_parts = || {
            let tokens = value(Metric::Tokens(TokenCount::Output))? / value(Metric::Completed)?;
            Some(mean(LatencyKind::Ttft)? + mean(LatencyKind::Tpot)? * (tokens - 1.0).max(0.0))
        };
        let [of_mean, of_p99] = MAX_LAST_RESPONSE_FACTORS;
        value(time(Max, LatencyKind::E2e))
            .or_else(|| Some(of_p99 * value(time(P99, LatencyKind::E2e))?))
            .or_else(|| Some(of_mean * mean(LatencyKind::E2e).or_else(of_parts)?))
    }

    /// Warns about peaks below the average.
    pub(super) fn check_peaks(&mut self) {
        if self.result.is_from_matrix {
            return;
        }
        if let Some((line, message)) = self.low_peak_output() {
            self.warn(line, WarningSubject::Figures, message);
        }
        if let Some((line, message)) = self.low_peak_concurrency() {
            self.warn(line, WarningSubject::Figures, message);
        }
    }

    /// The peak second has at least the mean over all seconds; the last second may be almost empty. Clients
    /// count events, not tokens.
    fn low_peak_output(&self) -> Option<(u32, String)> {
        let (peak, line) = self.printed(Metric::PeakOutput)?;
        let output = self.result.figure(Metric::Tokens(TokenCount::Output))?;
        let duration = self.range(Metric::Duration)?;
        if duration.low < MIN_DURATION_S {
            return None;
        }
        let seconds = duration.high.floor() + 1.0;
        let least = output / self.tokens_per_event()? / seconds;
        (peak.high < MIN_PEAK_SHARE * least).then(|| {
            let message = format!(
                "{} is {:.2} tok/s, but {output} output tokens in {:.2} s are {:.2} tok/s on average",
                Metric::PeakOutput.label(),
                peak.midpoint(),
                duration.midpoint(),
                output / duration.midpoint(),
            );
            (line, message)
        })
    }

    /// Upper bound of the tokens per event.
    fn tokens_per_event(&self) -> Option<f64> {
        let itl = self
            .range(time(Mean, LatencyKind::Itl))
            .filter(|itl| itl.low > 0.0)?;
        let completed = self.result.figure(Metric::Completed)?;
        let output = self.result.figure(Metric::Tokens(TokenCount::Output))?;
        let e2e = self.range(time(Mean, LatencyKind::E2e));
        let by_times = match e2e.zip(self.range(time(Mean, LatencyKind::Ttft))) {
            Some((e2e, ttft)) => output / (completed * (1.0 + (e2e.low - ttft.high).max(0.0) / itl.high)),
            None => itl.high / self.token_weighted_tpot().filter(|tpot| tpot.low > 0.0)?.low,
        };
        let accepted = self.result.figure(Metric::AcceptLength).unwrap_or(1.0);
        Some(by_times.max(accepted).max(1.0))
    }

    /// Clients count the requests of a whole second, which are at least as many as those in flight on
    /// average.
    fn low_peak_concurrency(&self) -> Option<(u32, String)> {
        // If the mean is printed, it is compared with the peak directly.
        if self.range(Metric::MeanConcurrency).is_some() {
            return None;
        }
        let (peak, line) = self.printed(Metric::PeakConcurrency)?;
        let completed = self.result.figure(Metric::Completed)?;
        let under_way = self
            .mean_e2e()?
            .times(completed / 1000.0)
            .divided_by(self.range(Metric::Duration)?)?;
        (peak.high < MIN_PEAK_SHARE * under_way.low).then(|| {
            let message = format!(
                "{} is {:.0}, but the latencies show that {:.2} requests were in flight on average",
                Metric::PeakConcurrency.label(),
                peak.midpoint(),
                under_way.midpoint(),
            );
            (line, message)
        })
    }

    /// Warns if a closed loop took far longer than its requests keep the slots busy.
    pub(super) fn check_idle_slots(&mut self) {
        if let Some((line, message)) = self.idle_slots_contradiction() {
            self.warn(line, WarningSubject::Figures, message);
        }
    }

    fn idle_slots_contradiction(&self) -> Option<(u32, String)> {
        let (result, options) = (self.result, &self.result.options);
        let completed = result.figure(Metric::Completed).filter(|count| *count >= 1.0)?;
        let is_whole = options.prompts.is_none_or(|prompts| prompts as f64 == completed);
        // A failed request may hold its slot for any time. `matrix` checks its own load when it measures.
        if result.is_from_matrix
            || !is_whole
            || result.figure(Metric::Failed).unwrap_or(0.0) > 0.0
            || options.rate != Some(f64::INFINITY)
            || options.traffic.is_some()
        {
            return None;
        }
        let (duration, line) = self.printed(Metric::Duration)?;
        let slots = f64::from(options.concurrency?).min(completed);
        let whole = self.mean_e2e()?;
        let busy = (whole.high + CLIENT_PAUSE_MS) * completed / slots;
        (duration.low * 1000.0 > MAX_IDLE_FACTOR * busy + self.last_response_ms()? + CLIENT_OVERHEAD_MS).then(|| {
            let message = format!(
                "{completed} requests of {:.2} ms each on average, sent {slots} at a time, take {:.2} s, but the \
                 load took {:.2} s",
                whole.midpoint(),
                whole.midpoint() * completed / slots / 1000.0,
                duration.midpoint(),
            );
            (line, message)
        })
    }

    /// Without E2E: warns if gaps are so short that there were far more of them than tokens.
    pub(super) fn check_gap_count(&mut self) {
        let (Some((itl, line)), Some(tpot)) = (
            self.printed(time(Mean, LatencyKind::Itl)),
            self.token_weighted_tpot(),
        ) else {
            return;
        };
        if itl.low > 0.0 && tpot.low > MAX_GAPS_PER_TOKEN * itl.high {
            let message = format!(
                "mean ITL is {:.2} ms, but mean TPOT is {:.2} ms: each token would need more than {:.1} \
                 streamed events",
                itl.midpoint(),
                self.range(time(Mean, LatencyKind::Tpot))
                    .map_or(tpot.low, Range::midpoint),
                tpot.low / itl.high,
            );
            self.warn(line, WarningSubject::Figures, message);
        }
    }
}
