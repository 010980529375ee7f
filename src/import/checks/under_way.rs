//! Requests and tokens under way: what times, duration, peaks and the limit allow together.

use super::{About, Checks, OUTLASTED, Range, TOO_MANY, WEIGHED, time};
use crate::analysis::metrics::{
    Count, Metric, Sample,
    Statistic::{Max, Mean, P99, Std},
};

/// By how many standard deviations of TPOT its mean over tokens may lie from that over requests: by as many as the lengths of answers vary by,
/// as a share of their mean.
const UNEVEN: f64 = 2.0;
/// The share of what times come to below which a peak contradicts them.
const PEAK: f64 = 0.9;
/// By which factor a closed loop may take longer than its slots are busy.
const IDLE: f64 = 1.15;
/// What a client may need between two requests of a slot, and around all of them, in milliseconds. One in Python took 2 s around twelve
/// requests on a busy host.
const BETWEEN: f64 = 20.0;
const AROUND: f64 = 5000.0;
/// A load of fewer seconds has no whole second in which its mean must come.
const WHOLE_SECONDS: f64 = 2.0;

impl Checks<'_> {
    /// Mean TPOT over tokens, of which mean E2E is made; that which is printed is the mean over requests.
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

    /// Mean E2E, as it is printed or as its parts come to, in milliseconds.
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

    /// How long the last answer may take, in milliseconds.
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

    /// Peaks below what was under way or came on average.
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

    /// The fullest second has at least the mean of all seconds, the last of which may hold hardly anything. Clients count events.
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

    /// At most so many tokens came in an event.
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

    /// Clients count the requests of a whole second, which are never fewer than those under way on average.
    fn low_concurrency(&self) -> Option<(u32, String)> {
        // Where the mean is printed it is held against the peak as it is.
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

    /// A closed loop without pauses that took far longer than its requests keep its slots busy.
    pub(super) fn idle_slots(&mut self) {
        if let Some((line, says)) = self.idle() {
            self.warn(line, About::Figures, says);
        }
    }

    fn idle(&self) -> Option<(u32, String)> {
        let (found, asked) = (self.found, &self.found.asked);
        let completed = found.figure(Metric::Completed).filter(|count| *count >= 1.0)?;
        let is_whole = asked.prompts.is_none_or(|prompts| prompts as f64 == completed);
        // A request that fails may hold its slot for any time, and `matrix` judges its own load.
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

    /// Without E2E: so short times between events that there were far more of them than tokens.
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
