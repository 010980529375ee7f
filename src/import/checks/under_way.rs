//! Checks requests and tokens under way: latencies, duration, peaks and limit against each other.

use super::{About, Checks, OUTLASTED, Range, TOO_MANY, WEIGHED, time};
use crate::analysis::metrics::{
    Count, Metric, Sample,
    Statistic::{Max, Mean, P99, Std},
};

/// Assumed maximum coefficient of variation of answer lengths: mean TPOT over tokens differs from that over
/// requests by at most this many standard deviations of TPOT.
const UNEVEN: f64 = 2.0;
/// A peak below this share of the computed average contradicts it.
const PEAK: f64 = 0.9;
/// Maximum factor of a closed loop's duration over the time in which its slots are busy.
const IDLE: f64 = 1.15;
/// Time that a client may need between two requests of a slot, and around the whole load (`AROUND`), in
/// milliseconds. A client in Python took 2 s around twelve requests on a busy host.
const BETWEEN: f64 = 20.0;
const AROUND: f64 = 5000.0;
/// A load of fewer seconds may have no whole second that reaches the average.
const WHOLE_SECONDS: f64 = 2.0;

impl Checks<'_> {
    /// Range of mean TPOT over tokens, from which mean E2E follows. The printed mean is over requests.
    pub(super) fn tpot_of_tokens(&self) -> Option<Range> {
        let mean = self.range(time(Mean, Sample::Tpot))?;
        if self.is_even() {
            return Some(mean);
        }
        let wide = Range {
            low: mean.low / WEIGHED,
            high: mean.high * WEIGHED,
        };
        let Some(std) = self.range(time(Std, Sample::Tpot)) else {
            return Some(wide);
        };
        let off = UNEVEN * std.high;
        Some(Range {
            low: wide.low.max(mean.low - off),
            high: wide.high.min(mean.high + off),
        })
    }

    /// Mean E2E in milliseconds, as printed or as the sum of its parts.
    fn whole(&self) -> Option<Range> {
        let of_parts = || {
            let completed = self
                .found
                .figure(Metric::Completed)
                .filter(|count| *count > 0.0)?;
            let output = self.found.figure(Metric::Tokens(Count::Output))?;
            let rest = (output / completed - 1.0).max(0.0);
            Some(
                self.range(time(Mean, Sample::Ttft))?
                    .plus(self.tpot_of_tokens()?.times(rest)),
            )
        };
        self.range(time(Mean, Sample::E2e)).or_else(of_parts)
    }

    /// Maximum duration of the last answer, in milliseconds.
    pub(super) fn last_answer(&self) -> Option<f64> {
        let value = |metric| self.found.figure(metric);
        let mean = |sample| value(time(Mean, sample));
        let of_parts = || {
            let tokens = value(Metric::Tokens(Count::Output))? / value(Metric::Completed)?;
            Some(mean(Sample::Ttft)? + mean(Sample::Tpot)? * (tokens - 1.0).max(0.0))
        };
        let [of_mean, of_p99] = OUTLASTED;
        value(time(Max, Sample::E2e))
            .or_else(|| Some(of_p99 * value(time(P99, Sample::E2e))?))
            .or_else(|| Some(of_mean * mean(Sample::E2e).or_else(of_parts)?))
    }

    /// Warns about peaks below the average.
    pub(super) fn peaks(&mut self) {
        if self.found.is_ours {
            return;
        }
        if let Some((line, says)) = self.low_output() {
            self.warn(line, About::Figures, says);
        }
        if let Some((line, says)) = self.low_concurrency() {
            self.warn(line, About::Figures, says);
        }
    }

    /// The peak second has at least the mean over all seconds; the last second may be almost empty. Clients
    /// count events, not tokens.
    fn low_output(&self) -> Option<(u32, String)> {
        let (peak, line) = self.printed(Metric::PeakOutput)?;
        let output = self.found.figure(Metric::Tokens(Count::Output))?;
        let duration = self.range(Metric::Duration)?;
        if duration.low < WHOLE_SECONDS {
            return None;
        }
        let seconds = duration.high.floor() + 1.0;
        let least = output / self.tokens_per_event()? / seconds;
        (peak.high < PEAK * least).then(|| {
            let says = format!(
                "{} is {:.2} tok/s, and {output} output tokens in {:.2} s are {:.2} tok/s on average",
                Metric::PeakOutput.label(),
                peak.middle(),
                duration.middle(),
                output / duration.middle(),
            );
            (line, says)
        })
    }

    /// Upper bound of the tokens per event.
    fn tokens_per_event(&self) -> Option<f64> {
        let itl = self.range(time(Mean, Sample::Itl)).filter(|itl| itl.low > 0.0)?;
        let completed = self.found.figure(Metric::Completed)?;
        let output = self.found.figure(Metric::Tokens(Count::Output))?;
        let e2e = self.range(time(Mean, Sample::E2e));
        let by_times = match e2e.zip(self.range(time(Mean, Sample::Ttft))) {
            Some((e2e, ttft)) => output / (completed * (1.0 + (e2e.low - ttft.high).max(0.0) / itl.high)),
            None => itl.high / self.tpot_of_tokens().filter(|tpot| tpot.low > 0.0)?.low,
        };
        let accepted = self.found.figure(Metric::AcceptLength).unwrap_or(1.0);
        Some(by_times.max(accepted).max(1.0))
    }

    /// Clients count the requests of a whole second, which are at least as many as those under way on
    /// average.
    fn low_concurrency(&self) -> Option<(u32, String)> {
        // If the mean is printed, it is compared with the peak directly.
        if self.range(Metric::MeanConcurrency).is_some() {
            return None;
        }
        let (peak, line) = self.printed(Metric::PeakConcurrency)?;
        let completed = self.found.figure(Metric::Completed)?;
        let under_way = self
            .whole()?
            .times(completed / 1000.0)
            .over(self.range(Metric::Duration)?)?;
        (peak.high < PEAK * under_way.low).then(|| {
            let says = format!(
                "{} is {:.0}, and by their times {:.2} requests were under way on average",
                Metric::PeakConcurrency.label(),
                peak.middle(),
                under_way.middle(),
            );
            (line, says)
        })
    }

    /// Warns if a closed loop took far longer than its requests keep the slots busy.
    pub(super) fn idle_slots(&mut self) {
        if let Some((line, says)) = self.idle() {
            self.warn(line, About::Figures, says);
        }
    }

    fn idle(&self) -> Option<(u32, String)> {
        let (found, asked) = (self.found, &self.found.asked);
        let completed = found.figure(Metric::Completed).filter(|count| *count >= 1.0)?;
        let is_whole = asked.prompts.is_none_or(|prompts| prompts as f64 == completed);
        // A failed request may hold its slot for any time. `matrix` checks its own load when it measures.
        if found.is_ours
            || !is_whole
            || found.figure(Metric::Failed).unwrap_or(0.0) > 0.0
            || asked.rate != Some(f64::INFINITY)
            || asked.traffic.is_some()
        {
            return None;
        }
        let (duration, line) = self.printed(Metric::Duration)?;
        let slots = f64::from(asked.concurrency?).min(completed);
        let whole = self.whole()?;
        let busy = (whole.high + BETWEEN) * completed / slots;
        (duration.low * 1000.0 > IDLE * busy + self.last_answer()? + AROUND).then(|| {
            let says = format!(
                "{completed} requests of {:.2} ms on average, {slots} at a time, take {:.2} s, and the load took {:.2} s",
                whole.middle(),
                whole.middle() * completed / slots / 1000.0,
                duration.middle(),
            );
            (line, says)
        })
    }

    /// Without E2E: warns if gaps are so short that there were far more of them than tokens.
    pub(super) fn gaps_too_quick(&mut self) {
        let (Some((itl, line)), Some(tpot)) = (self.printed(time(Mean, Sample::Itl)), self.tpot_of_tokens())
        else {
            return;
        };
        if itl.low > 0.0 && tpot.low > TOO_MANY * itl.high {
            let says = format!(
                "mean ITL is {:.2} ms, and mean TPOT {:.2} ms: that is time for more than {:.1} events for each token",
                itl.middle(),
                self.range(time(Mean, Sample::Tpot))
                    .map_or(tpot.low, Range::middle),
                tpot.low / itl.high,
            );
            self.warn(line, About::Figures, says);
        }
    }
}
