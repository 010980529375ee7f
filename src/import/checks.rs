//! Finds figures that contradict each other, the client's arguments, or the text around them. Tolerances
//! follow from the printed digits.

mod counts;
mod model;
mod range;
mod spread;
mod token_times;
mod under_way;

use range::{Range, with_differing_digits};

use super::result_block::{ResultBlock, Warning, WarningSubject};
use crate::analysis::metrics::{
    LatencyKind, Metric, Quantity,
    Statistic::{self, Max, Mean, Median, P90, P95, P99},
    TokenCount,
};

/// Maximum number of gaps between chunks per output token; more contradict each other. Speculative decoding
/// and answers of different lengths stay far below.
const MAX_GAPS_PER_TOKEN: f64 = 1.5;
/// Maximum factor between mean TPOT over requests and over tokens; in the former, short answers count as much
/// as long ones.
const MAX_TPOT_WEIGHT_FACTOR: f64 = 4.0;
/// Maximum factor of peak concurrency over the limit plus the requests that end per second: clients count by
/// whole seconds, and requests do not end evenly.
const MAX_PEAK_FACTOR: f64 = 2.0;
/// Maximum factor of mean concurrency over the limit: clients differ in when they free a slot.
const MAX_MEAN_CONCURRENCY_FACTOR: f64 = 1.02;
/// Minimum factor of mean concurrency over the limit of a closed loop. Units that are mistaken are off by a factor of 1000.
const MIN_MEAN_CONCURRENCY_FACTOR: f64 = 0.05;

/// Maximum factor of output throughput over that of full slots at the mean TPOT, in which short answers count as much as long ones.
const MAX_SLOT_RATE_FACTOR: f64 = 2.0;

/// Maximum factor of the duration over the time in which requests fall due and the last one is answered.
const MAX_DURATION_FACTOR: f64 = 1.1;
/// Standard deviations of randomly spaced arrivals that are attributed to chance.
const ARRIVAL_DEVIATIONS: f64 = 4.0;

/// Checks a set of figures and returns a warning for each contradiction.
pub(super) fn find_contradictions(result: &ResultBlock) -> Vec<Warning> {
    let mut checks = Checks {
        result,
        warnings: Vec::new(),
    };
    checks.check_model();
    checks.check_signs();
    checks.check_counts();
    checks.check_rate();
    checks.check_throughput();
    checks.check_order();
    checks.check_token_rates();
    checks.check_percentile_spread();
    checks.check_peaks();
    checks.check_idle_slots();
    checks.check_e2e_parts();
    checks.check_chunk_gaps();
    checks.warnings
}

struct Checks<'a> {
    result: &'a ResultBlock,
    warnings: Vec<Warning>,
}

const fn time(statistic: Statistic, sample: LatencyKind) -> Metric {
    Metric::Time(statistic, sample)
}

impl Checks<'_> {
    fn printed(&self, metric: Metric) -> Option<(Range, u32)> {
        let printed = *self.result.figures.get(&metric)?;
        Some((Range::from_metric(metric, printed, printed.value?), printed.line))
    }

    fn range(&self, metric: Metric) -> Option<Range> {
        self.printed(metric).map(|(range, _)| range)
    }

    fn warn(&mut self, line: u32, about: WarningSubject, message: String) {
        self.warnings.push(Warning::new(line, about, message));
    }

    /// Warns if a figure differs from the value computed from others; `from` names those.
    fn check_equal(&mut self, metric: Metric, computed: Option<Range>, from: &str) {
        if let (Some((printed, line)), Some(computed)) = (self.printed(metric), computed)
            && !printed.overlaps(computed)
        {
            let label = metric.label();
            let unit = metric.unit().symbol();
            let [printed_digits, computed_digits] =
                with_differing_digits(printed.midpoint(), computed.midpoint());
            self.warn(
                line,
                WarningSubject::Figures,
                format!("{label} is {printed_digits} {unit}, but {from} is {computed_digits}"),
            );
        }
    }

    /// Warns if `lower` is above `upper`.
    fn check_not_above(&mut self, lower: Metric, upper: Metric) {
        if let (Some((low, line)), Some(high)) = (self.printed(lower), self.range(upper))
            && low.low > high.high
        {
            let [above, below] = with_differing_digits(low.midpoint(), high.midpoint());
            let message = format!(
                "{} ({above} {unit}) is above {} ({below} {unit}), which is impossible",
                lower.label(),
                upper.label(),
                unit = lower.unit().symbol(),
            );
            self.warn(line, WarningSubject::Figures, message);
        }
    }

    /// Warns about negative figures.
    fn check_signs(&mut self) {
        let result = self.result;
        for (metric, printed) in &result.figures {
            if let Some(value) = printed.value.filter(|value| *value < 0.0) {
                let message = format!(
                    "{} is {value:.2} {}, below zero",
                    metric.label(),
                    metric.unit().symbol()
                );
                self.warn(printed.line, WarningSubject::Figures, message);
            }
        }
    }

    /// Warns if a load ended before its requests were due at the requested rate, or took far longer than that
    /// plus the last answer.
    fn check_rate(&mut self) {
        let result = self.result;
        let value = |metric| result.figure(metric);
        let (Some(rate), Some(completed), Some((duration, line))) = (
            result.options.rate.filter(|rate| rate.is_finite() && *rate > 0.0),
            value(Metric::Completed),
            self.printed(Metric::Duration),
        ) else {
            return;
        };
        // A failed request may take any time. `matrix` checks its own rates when it measures.
        if result.is_from_matrix
            || result.matrix_figures.is_some()
            || value(Metric::Failed).unwrap_or(0.0) > 0.0
            || completed < 1.0
        {
            return;
        }
        let Some(last) = self.last_response_ms() else {
            return;
        };
        let due = completed / rate;
        let chance = ARRIVAL_DEVIATIONS
            * (completed / result.options.burstiness.unwrap_or(1.0).max(0.01)).sqrt()
            / rate;
        if MAX_DURATION_FACTOR * duration.high + chance < due {
            let message = format!(
                "{completed} requests at {rate}/s take {due:.0} s to send, but the load took only {:.2} s",
                duration.midpoint()
            );
            self.warn(line, WarningSubject::Figures, message);
        } else if duration.low > MAX_DURATION_FACTOR * due + chance + last / 1000.0 {
            let message = format!(
                "{completed} requests at {rate}/s take {due:.0} s to send, but the load took {:.2} s; the \
                 actual rate was only {:.2} requests/s",
                duration.midpoint(),
                completed / duration.midpoint(),
            );
            self.warn(line, WarningSubject::Figures, message);
        }
    }

    fn check_throughput(&mut self) {
        let duration = self.range(Metric::Duration);
        let per_second = |checks: &Self, metric| checks.range(metric)?.divided_by(duration?);
        for (flow, what, from) in [
            (Quantity::Requests, Metric::Completed, "requests / duration"),
            (
                Quantity::Input,
                Metric::Tokens(TokenCount::Input),
                "tokens / duration",
            ),
            (
                Quantity::Output,
                Metric::Tokens(TokenCount::Output),
                "tokens / duration",
            ),
        ] {
            let computed = per_second(self, what);
            self.check_equal(Metric::Throughput(flow), computed, from);
        }
        let total = per_second(self, Metric::Tokens(TokenCount::Input))
            .zip(per_second(self, Metric::Tokens(TokenCount::Output)))
            .map(|(input, output)| input.plus(output));
        self.check_equal(
            Metric::Throughput(Quantity::Total),
            total,
            "all tokens / duration",
        );
        let under_way = self
            .range(time(Mean, LatencyKind::E2e))
            .zip(self.result.figure(Metric::Completed))
            .and_then(|(e2e, completed)| e2e.times(completed / 1000.0).divided_by(duration?));
        self.check_equal(
            Metric::MeanConcurrency,
            under_way,
            "requests × mean E2E / duration",
        );
    }

    /// Warns if statistics of a latency are not in order, if TTFT exceeds E2E, or if a latency exceeds the
    /// duration.
    fn check_order(&mut self) {
        for sample in [
            LatencyKind::Ttft,
            LatencyKind::Tpot,
            LatencyKind::Itl,
            LatencyKind::E2e,
        ] {
            let known_metrics: Vec<Metric> = [Median, P90, P95, P99, Max]
                .map(|statistic| time(statistic, sample))
                .into_iter()
                .filter(|metric| self.range(*metric).is_some())
                .collect();
            for pair in known_metrics.windows(2) {
                self.check_not_above(pair[0], pair[1]);
            }
            self.check_not_above(time(Mean, sample), time(Max, sample));
        }
        for statistic in [Mean, Median, P90, P95, P99] {
            self.check_not_above(
                time(statistic, LatencyKind::Ttft),
                time(statistic, LatencyKind::E2e),
            );
        }
        let Some(duration) = self
            .range(Metric::Duration)
            .map(|duration| duration.times(1000.0))
        else {
            return;
        };
        for statistic in [Mean, P99] {
            for sample in [LatencyKind::E2e, LatencyKind::Ttft] {
                if let Some((value, line)) = self.printed(time(statistic, sample))
                    && value.low > duration.high
                {
                    let message = format!(
                        "{} is {:.2} ms, longer than the whole measurement ({:.2} ms)",
                        time(statistic, sample).label(),
                        value.midpoint(),
                        duration.midpoint(),
                    );
                    self.warn(line, WarningSubject::Figures, message);
                }
            }
        }
        self.check_not_above(Metric::MeanConcurrency, Metric::PeakConcurrency);
        self.check_not_above(Metric::Goodput, Metric::Throughput(Quantity::Requests));
        self.check_concurrency_limit(duration);
    }

    /// Warns about throughput of tokens that other figures make impossible.
    fn check_token_rates(&mut self) {
        let rate = |quantity| Metric::Throughput(quantity);
        for part in [Quantity::Input, Quantity::Output] {
            self.check_not_above(rate(part), rate(Quantity::Total));
        }
        for statistic in [Mean, Median, P90, P95, P99] {
            self.check_not_above(
                time(statistic, LatencyKind::Tpot),
                time(statistic, LatencyKind::E2e),
            );
        }
        if let (Some(slots), Some((output, line)), Some(tpot)) = (
            self.result.options.concurrency.map(f64::from),
            self.printed(rate(Quantity::Output)),
            self.range(time(Mean, LatencyKind::Tpot)),
        ) && tpot.low > 0.0
            && output.low > MAX_SLOT_RATE_FACTOR * slots * 1000.0 / tpot.low
        {
            let message = format!(
                "output throughput is {:.2} tok/s, but {slots} requests at once with a mean TPOT of {:.2} ms give at most {:.2} tok/s",
                output.midpoint(),
                tpot.midpoint(),
                slots * 1000.0 / tpot.midpoint()
            );
            self.warn(line, WarningSubject::Figures, message);
        }
    }

    fn warn_over_limit(&mut self, line: u32, observed: &str, max: f64) {
        let message = format!("{observed}, but the concurrency limit is {max}");
        self.warn(line, WarningSubject::Figures, message);
    }

    /// Compares the concurrency limit with mean and peak concurrency; `duration` is in milliseconds.
    fn check_concurrency_limit(&mut self, duration: Range) {
        let (Some(limit_value), Some((completed, line))) =
            (self.result.options.concurrency, self.printed(Metric::Completed))
        else {
            return;
        };
        let limit_value = f64::from(limit_value);
        let completed = completed.midpoint();
        let by_times = || {
            let e2e = self.range(time(Mean, LatencyKind::E2e))?;
            let under_way = e2e.times(completed).divided_by(duration)?;
            let words = "requests × mean E2E / duration is";
            Some((under_way, line, format!("{words} {:.2}", under_way.midpoint())))
        };
        let printed = self.printed(Metric::MeanConcurrency).map(|(range, line)| {
            let label = Metric::MeanConcurrency.label();
            (range, line, format!("{label} is {:.2}", range.midpoint()))
        });
        let beyond =
            |(range, ..): &(Range, u32, String)| range.low > limit_value * MAX_MEAN_CONCURRENCY_FACTOR;
        let is_closed_loop = self.result.options.rate.is_none_or(f64::is_infinite);
        let idle = |(range, ..): &(Range, u32, String)| {
            is_closed_loop
                && completed >= 4.0 * limit_value
                && range.high < limit_value * MIN_MEAN_CONCURRENCY_FACTOR
        };
        let (idle, beyond) = (by_times().filter(idle), printed.or_else(by_times).filter(beyond));
        if let Some((_, line, observed)) = idle {
            let message = format!(
                "{observed}, but the client kept {limit_value} requests in flight; latencies and duration may have different units"
            );
            self.warn(line, WarningSubject::Figures, message);
        }
        if let Some((_, line, observed)) = beyond {
            self.warn_over_limit(line, &observed, limit_value);
        }
        let Some(a_second) = (duration.low > 0.0).then(|| completed / duration.low * 1000.0) else {
            return;
        };
        if let Some((peak, line)) = self.printed(Metric::PeakConcurrency)
            && peak.low > MAX_PEAK_FACTOR * (limit_value + a_second)
        {
            let observed = format!("{} is {:.0}", Metric::PeakConcurrency.label(), peak.midpoint());
            self.warn_over_limit(line, &observed, limit_value);
        }
    }
}
