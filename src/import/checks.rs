//! Finds figures that contradict each other, the client's arguments, or the text around them. Tolerances
//! follow from the printed digits.

mod spread;
mod under_way;

use super::{About, Found, Printed, Warning, names};
use crate::analysis::metrics::{
    Count, Flow, Metric, Sample,
    Statistic::{self, Max, Mean, Median, P90, P95, P99},
};
use crate::config::validity::Bounds;
use crate::config::workload::Profile;
use crate::results::record::provenance::Tool;

/// From this many tokens per chunk on, the chunk gap is not the time of a token.
const MERGED: f64 = 1.05;
/// If there are this many times more gaps than tokens, figures contradict each other. Speculative decoding
/// and answers of different lengths stay far below.
const TOO_MANY: f64 = 1.5;
/// Maximum factor between mean TPOT over requests and over tokens; in the former, short answers count as much
/// as long ones.
const WEIGHED: f64 = 4.0;
/// Maximum relative difference between the output tokens counted from the text and those that throughput
/// uses.
const RECOUNTED: f64 = 0.1;
/// Maximum factor of peak concurrency over the limit plus the requests that end per second: clients count by
/// whole seconds, and requests do not end evenly.
const CROWDED: f64 = 2.0;
/// Maximum factor of mean concurrency over the limit: clients differ in when they free a slot.
const CONNECTING: f64 = 1.02;

/// Maximum factor of the duration over the time in which requests fall due and the last one is answered.
const SLOW: f64 = 1.1;
/// Standard deviations of randomly spaced arrivals that are attributed to chance.
const BY_CHANCE: f64 = 4.0;
/// Maximum factors of the last answer's duration over mean E2E and over its 99th percentile.
const OUTLASTED: [f64; 2] = [4.0, 2.0];
/// Minimum share of the requested tokens that prompts of one length have.
const SHORT_PROMPTS: f64 = 0.8;
/// Maximum factor of mean ITL over mean TPOT that different answer lengths can explain.
const SPREAD_GAPS: f64 = 1.5;

/// Checks a set of figures and returns a warning for each contradiction.
pub(super) fn contradictions(found: &Found) -> Vec<Warning> {
    let mut checks = Checks {
        found,
        warnings: Vec::new(),
    };
    checks.identity();
    checks.signs();
    checks.counts();
    checks.rate();
    checks.flows();
    checks.orders();
    checks.spreads();
    checks.peaks();
    checks.idle_slots();
    checks.whole_and_parts();
    checks.chunks();
    checks.warnings
}

/// The interval that certainly contains a value.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Range {
    low: f64,
    high: f64,
}

impl Range {
    /// The range of a metric that is printed as `value`.
    fn of_metric(metric: Metric, printed: Printed, value: f64) -> Self {
        // Machine-readable files may be rounded too.
        let half = match printed.half == 0.0 && !metric.is_count() {
            true => half_digit(value),
            false => printed.half,
        };
        Self::of(Printed { half, ..printed }, value)
    }

    fn of(printed: Printed, value: f64) -> Self {
        // Even values with all digits may differ in the last digit of a sum.
        let slack = printed.half * (1.0 + 1e-6) + value.abs() * 1e-9;
        Self {
            low: value - slack,
            high: value + slack,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            low: self.low + other.low,
            high: self.high + other.high,
        }
    }

    fn times(self, factor: f64) -> Self {
        Self {
            low: self.low * factor,
            high: self.high * factor,
        }
    }

    /// Division; `None` if the divisor may be zero or negative.
    fn over(self, other: Self) -> Option<Self> {
        (other.low > 0.0).then(|| Self {
            low: self.low / other.high,
            high: self.high / other.low,
        })
    }

    fn meets(self, other: Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }

    fn middle(self) -> f64 {
        f64::midpoint(self.low, self.high)
    }
}

/// Half a unit of the last written digit. A whole number counts as one with one decimal.
fn half_digit(value: f64) -> f64 {
    let written = value.to_string();
    let decimals = written.split_once('.').map_or(1, |(_, digits)| digits.len());
    0.5 * 0.1_f64.powi(i32::try_from(decimals).unwrap_or(i32::MAX))
}

/// Formats two numbers with the fewest decimals at which they differ, at least two.
fn with_differing_digits(one: f64, other: f64) -> [String; 2] {
    let with = |decimals: usize| [one, other].map(|value| format!("{value:.decimals$}"));
    let enough = (2..16).find(|decimals| {
        let [one, other] = with(*decimals);
        one != other
    });
    with(enough.unwrap_or(2))
}

struct Checks<'a> {
    found: &'a Found,
    warnings: Vec<Warning>,
}

const fn time(statistic: Statistic, sample: Sample) -> Metric {
    Metric::Time(statistic, sample)
}

impl Checks<'_> {
    fn printed(&self, metric: Metric) -> Option<(Range, u32)> {
        let printed = *self.found.figures.get(&metric)?;
        Some((Range::of_metric(metric, printed, printed.value?), printed.line))
    }

    fn range(&self, metric: Metric) -> Option<Range> {
        self.printed(metric).map(|(range, _)| range)
    }

    fn warn(&mut self, line: u32, about: About, says: String) {
        self.warnings.push(Warning::new(line, about, says));
    }

    /// Warns if a figure differs from the value computed from others; `from` names those.
    fn same(&mut self, metric: Metric, computed: Option<Range>, from: &str) {
        if let (Some((printed, line)), Some(computed)) = (self.printed(metric), computed)
            && !printed.meets(computed)
        {
            let label = metric.label();
            let unit = metric.unit().symbol();
            let [said, come] = with_differing_digits(printed.middle(), computed.middle());
            self.warn(
                line,
                About::Figures,
                format!("{label} is {said} {unit}, and {from} come to {come}"),
            );
        }
    }

    /// Warns if `lower` is above `upper`.
    fn below(&mut self, lower: Metric, upper: Metric) {
        if let (Some((low, line)), Some(high)) = (self.printed(lower), self.range(upper))
            && low.low > high.high
        {
            let [above, below] = with_differing_digits(low.middle(), high.middle());
            let says = format!(
                "{} is {above} {unit}, above {} with {below} {unit}",
                lower.label(),
                upper.label(),
                unit = lower.unit().symbol(),
            );
            self.warn(line, About::Figures, says);
        }
    }

    /// Compares the model names of the heading, of the server's command and of the client's arguments.
    fn identity(&mut self) {
        let found = self.found;
        let command = found.started.model.as_deref();
        let asked = found.asked.model.as_deref();
        let is_same = |a: &str, b: &str| names::short(a) == names::short(b);
        if let (Some(served), Some(model)) = (&found.asked.served, asked.or(command)) {
            let [name, model_name] = [served, model].map(|name| names::short(&names::model(name).0));
            let is_one = name.starts_with(&model_name) || model_name.starts_with(&name);
            // A name of another family is an arbitrary served model name.
            if names::are_kin(&name, &model_name) && !is_one {
                let says =
                    format!("the client asks for `{served}`, and its arguments name the model `{model}`");
                self.warn(found.asked.line, About::Identity, says);
            }
        }
        // A heading of another family names no model. Behind the model's name there may be more words.
        let heading = found.heading.as_ref().filter(|(_, heading)| {
            let model = asked.or(command).map(names::short);
            model.is_some_and(|model| names::are_kin(&names::short(heading), &model))
        });
        let is_headed = |heading: &str, model: &str| {
            let (heading, model) = (names::short(heading), names::short(model));
            heading == model || heading.starts_with(&format!("{model} "))
        };
        let is_alias = |asked: &str| found.started.served.as_deref() == Some(asked);
        if let (Some(command), Some(asked)) = (command, asked)
            && !is_same(command, asked)
            && !is_alias(asked)
        {
            let mut says = format!("the command serves `{command}`, the client's arguments name `{asked}`");
            if let Some((_, heading)) = heading {
                says.push_str(&format!(", the heading says `{heading}`"));
            }
            self.warn(found.started.line, About::Identity, says);
            return;
        }
        if let (Some((line, heading)), Some(model)) = (heading, asked.or(command))
            && !is_headed(heading, model)
        {
            let who = match asked {
                Some(_) => "the client's arguments name",
                None => "the command serves",
            };
            let says = format!("the heading says `{heading}`, {who} `{model}`");
            self.warn(*line, About::Identity, says);
        }
    }

    /// Warns about negative figures.
    fn signs(&mut self) {
        let found = self.found;
        for (metric, printed) in &found.figures {
            if let Some(value) = printed.value.filter(|value| *value < 0.0) {
                let says = format!(
                    "{} is {value:.2} {}, below zero",
                    metric.label(),
                    metric.unit().symbol()
                );
                self.warn(printed.line, About::Figures, says);
            }
        }
    }

    fn counts(&mut self) {
        let asked = &self.found.asked;
        let completed = self.printed(Metric::Completed);
        let Some((completed, line)) = completed.map(|(range, line)| (range.middle().round(), line)) else {
            return;
        };
        if let Some(prompts) = asked.prompts.filter(|prompts| completed > *prompts as f64) {
            let says = format!("{completed} requests succeeded, and only {prompts} were asked for");
            self.warn(line, About::Identity, says);
        }
        let failed = self.found.figure(Metric::Failed).unwrap_or(0.0);
        if let Some(prompts) = asked.prompts
            && completed <= prompts as f64
            && completed + failed > prompts as f64
        {
            let says = format!(
                "{completed} requests succeeded and {failed} failed, and only {prompts} were asked for"
            );
            self.warn(line, About::Figures, says);
        }
        let is_whole = asked.prompts.is_some_and(|prompts| completed == prompts as f64);
        let sums = [
            (asked.input_tokens, Count::Input, true),
            // Only LMDeploy's fork counts the requested tokens as output.
            (
                asked.output_tokens,
                Count::Output,
                self.found.profile == Profile::Classic,
            ),
        ];
        for (sum, count, is_kept) in sums {
            if let (Some((line, sum)), Some(total)) = (sum, self.found.figure(Metric::Tokens(count)))
                && is_whole
                && is_kept
                && sum as f64 != total
            {
                let what = Metric::Tokens(count).label();
                let says = format!("{sum} {what} were prepared, and the block counts {total}");
                self.warn(line, About::Figures, says);
            }
        }
        if let (Some(length), Some(output)) =
            (asked.output_len, self.found.figure(Metric::Tokens(Count::Output)))
            && asked.is_random()
            && output > completed * f64::from(length)
        {
            let says = format!("{output} output tokens are more than {completed} answers of {length}");
            self.warn(line, About::Figures, says);
        }
        self.short_prompts(completed);
        self.short_answers(completed);
        if let Some((recounted, line)) = self.printed(Metric::Tokens(Count::OutputCounted))
            && let Some(output) = self.found.figure(Metric::Tokens(Count::Output))
            && (recounted.middle() - output).abs() > RECOUNTED * output
        {
            let says = format!(
                "{} output tokens are counted in the texts, throughput is made of {output}",
                recounted.middle().round()
            );
            self.warn(line, About::Rest, says);
        }
    }

    /// Warns if prompts have fewer tokens than requested.
    fn short_prompts(&mut self, completed: f64) {
        let asked = &self.found.asked;
        if let (true, Some(length), Some((input, line))) = (
            asked.is_random() && asked.range_ratio == Some(1.0) && !self.found.is_ours,
            asked.input_len,
            self.printed(Metric::Tokens(Count::Input)),
        ) && input.high < SHORT_PROMPTS * completed * f64::from(length)
        {
            let says = format!(
                "{} input tokens are {:.0} for each of {completed} prompts, and {length} were asked for",
                input.middle(),
                input.middle() / completed,
            );
            self.warn(line, About::Figures, says);
        }
    }

    /// Warns if a load ended before its requests were due at the requested rate, or took far longer than that
    /// plus the last answer.
    fn rate(&mut self) {
        let found = self.found;
        let value = |metric| found.figure(metric);
        let (Some(rate), Some(completed), Some((duration, line))) = (
            found.asked.rate.filter(|rate| rate.is_finite() && *rate > 0.0),
            value(Metric::Completed),
            self.printed(Metric::Duration),
        ) else {
            return;
        };
        // A failed request may take any time. `matrix` checks its own rates when it measures.
        if found.is_ours
            || found.measured.is_some()
            || value(Metric::Failed).unwrap_or(0.0) > 0.0
            || completed < 1.0
        {
            return;
        }
        let Some(last) = self.last_answer() else { return };
        let due = completed / rate;
        let chance = BY_CHANCE * (completed / found.asked.burstiness.unwrap_or(1.0).max(0.01)).sqrt() / rate;
        if SLOW * duration.high + chance < due {
            let says = format!(
                "{completed} requests at {rate}/s fall due in {due:.0} s, and the load took only {:.2} s",
                duration.middle()
            );
            self.warn(line, About::Figures, says);
        } else if duration.low > SLOW * due + chance + last / 1000.0 {
            let says = format!(
                "{completed} requests at {rate}/s fall due in {due:.0} s, and the load took {:.2} s: the rate was not reached, the load was {:.2} requests/s",
                duration.middle(),
                completed / duration.middle(),
            );
            self.warn(line, About::Figures, says);
        }
    }

    /// Warns if answers have fewer tokens than requested, although all should have one length.
    fn short_answers(&mut self, completed: f64) {
        let (found, asked) = (self.found, &self.found.asked);
        let is_cut = asked.stop_at_eos || asked.body.get("ignore_eos") == Some(&false.into());
        // Other tools stop at the end token by default. `matrix` checks its own answers when it measures.
        let is_exact = found.tool == Tool::BenchServing
            && !found.is_ours
            && asked.is_random()
            && asked.range_ratio == Some(1.0)
            && !is_cut;
        if let (true, Some(length), Some((output, line))) = (
            is_exact,
            asked.output_len,
            self.printed(Metric::Tokens(Count::Output)),
        ) && output.high < completed * f64::from(length) * (1.0 - Bounds::default().short_outputs)
        {
            let says = format!(
                "{} output tokens are {:.0} for each of {completed} answers, and {length} were asked for: answers are short, unless \
                 the client ran with `--disable-ignore-eos`",
                output.middle(),
                output.middle() / completed,
            );
            self.warn(line, About::Figures, says);
        }
    }

    fn flows(&mut self) {
        let duration = self.range(Metric::Duration);
        let per_second = |checks: &Self, metric| checks.range(metric)?.over(duration?);
        for (flow, what, from) in [
            (Flow::Requests, Metric::Completed, "requests / duration"),
            (Flow::Input, Metric::Tokens(Count::Input), "tokens / duration"),
            (Flow::Output, Metric::Tokens(Count::Output), "tokens / duration"),
        ] {
            let computed = per_second(self, what);
            self.same(Metric::Throughput(flow), computed, from);
        }
        let total = per_second(self, Metric::Tokens(Count::Input))
            .zip(per_second(self, Metric::Tokens(Count::Output)))
            .map(|(input, output)| input.plus(output));
        self.same(Metric::Throughput(Flow::Total), total, "all tokens / duration");
        let under_way = self
            .range(time(Mean, Sample::E2e))
            .zip(self.found.figure(Metric::Completed))
            .and_then(|(e2e, completed)| e2e.times(completed / 1000.0).over(duration?));
        self.same(
            Metric::MeanConcurrency,
            under_way,
            "requests × mean E2E / duration",
        );
    }

    /// Warns if statistics of a latency are not in order, if TTFT exceeds E2E, or if a latency exceeds the
    /// duration.
    fn orders(&mut self) {
        for sample in [Sample::Ttft, Sample::Tpot, Sample::Itl, Sample::E2e] {
            let known: Vec<Metric> = [Median, P90, P95, P99, Max]
                .map(|statistic| time(statistic, sample))
                .into_iter()
                .filter(|metric| self.range(*metric).is_some())
                .collect();
            for pair in known.windows(2) {
                self.below(pair[0], pair[1]);
            }
            self.below(time(Mean, sample), time(Max, sample));
        }
        for statistic in [Mean, Median, P90, P95, P99] {
            self.below(time(statistic, Sample::Ttft), time(statistic, Sample::E2e));
        }
        let Some(duration) = self
            .range(Metric::Duration)
            .map(|duration| duration.times(1000.0))
        else {
            return;
        };
        for statistic in [Mean, P99] {
            for sample in [Sample::E2e, Sample::Ttft] {
                if let Some((value, line)) = self.printed(time(statistic, sample))
                    && value.low > duration.high
                {
                    let says = format!(
                        "{} is {:.2} ms, longer than the whole measurement with {:.2}",
                        time(statistic, sample).label(),
                        value.middle(),
                        duration.middle(),
                    );
                    self.warn(line, About::Figures, says);
                }
            }
        }
        self.below(Metric::MeanConcurrency, Metric::PeakConcurrency);
        self.below(Metric::Goodput, Metric::Throughput(Flow::Requests));
        self.limit(duration);
    }

    fn beyond_limit(&mut self, line: u32, found: &str, most: f64) {
        let says = format!("{found}, and at most {most} requests were to be under way at a time");
        self.warn(line, About::Figures, says);
    }

    /// Compares the concurrency limit with mean and peak concurrency; `duration` is in milliseconds.
    fn limit(&mut self, duration: Range) {
        let (Some(most), Some((completed, line))) =
            (self.found.asked.concurrency, self.printed(Metric::Completed))
        else {
            return;
        };
        let most = f64::from(most);
        let completed = completed.middle();
        let by_times = || {
            let e2e = self.range(time(Mean, Sample::E2e))?;
            let under_way = e2e.times(completed).over(duration)?;
            let words = "requests × mean E2E / duration come to";
            Some((
                under_way,
                line,
                format!("{words} {:.2} requests under way", under_way.middle()),
            ))
        };
        let printed = self.printed(Metric::MeanConcurrency).map(|(range, line)| {
            let label = Metric::MeanConcurrency.label();
            (range, line, format!("{label} is {:.2}", range.middle()))
        });
        let beyond = |(range, ..): &(Range, u32, String)| range.low > most * CONNECTING;
        if let Some((_, line, found)) = printed.or_else(by_times).filter(beyond) {
            self.beyond_limit(line, &found, most);
        }
        let Some(a_second) = (duration.low > 0.0).then(|| completed / duration.low * 1000.0) else {
            return;
        };
        if let Some((peak, line)) = self.printed(Metric::PeakConcurrency)
            && peak.low > CROWDED * (most + a_second)
        {
            let found = format!("{} is {:.0}", Metric::PeakConcurrency.label(), peak.middle());
            self.beyond_limit(line, &found, most);
        }
    }

    /// Whether all answers have the requested length.
    fn is_even(&self) -> bool {
        let asked = &self.found.asked;
        let completed = self.found.figure(Metric::Completed);
        let output = self.found.figure(Metric::Tokens(Count::Output));
        let is_sum = |length: u32| output == completed.map(|completed| completed * f64::from(length));
        asked.is_random() && asked.range_ratio == Some(1.0) && asked.output_len.is_some_and(is_sum)
    }

    /// If all answers have one length, mean E2E must be mean TTFT plus mean TPOT for each further token.
    fn whole_and_parts(&mut self) {
        self.tokens_too_quick();
        let length = self.found.asked.output_len.map(f64::from);
        let Some(length) = length.filter(|length| self.is_even() && *length >= 2.0) else {
            return;
        };
        let whole = self
            .range(time(Mean, Sample::Ttft))
            .zip(self.range(time(Mean, Sample::Tpot)))
            .map(|(first, each)| first.plus(each.times(length - 1.0)));
        self.same(
            time(Mean, Sample::E2e),
            whole,
            &format!("mean TTFT and {} times mean TPOT", length - 1.0),
        );
    }

    /// Warns if mean TPOT is far too small for the duration of the answers.
    fn tokens_too_quick(&mut self) {
        let value = |metric| self.found.figure(metric);
        let mean = |sample| value(time(Mean, sample));
        if let (Some(completed), Some(output), Some(e2e), Some(ttft), Some((tpot, line))) = (
            value(Metric::Completed),
            value(Metric::Tokens(Count::Output)),
            mean(Sample::E2e),
            mean(Sample::Ttft),
            self.printed(time(Mean, Sample::Tpot)),
        ) {
            let each = (e2e - ttft) * completed / (output - completed);
            if output > completed && tpot.high * WEIGHED < each {
                let says = format!(
                    "mean TPOT is {:.2} ms, and mean E2E, mean TTFT and the output tokens come to {each:.2} ms for each",
                    tpot.middle()
                );
                self.warn(line, About::Figures, says);
            }
        }
    }

    /// Without E2E: warns if mean ITL is far above mean TPOT. `is_told` suppresses the warning, because the
    /// tool divides gaps or the server accepts several tokens at once.
    fn merged_gaps(&mut self, is_told: bool) {
        let (Some((itl, line)), Some(tpot)) = (
            self.printed(time(Mean, Sample::Itl)),
            self.range(time(Mean, Sample::Tpot)),
        ) else {
            return;
        };
        if !is_told && tpot.low > 0.0 && itl.low > SPREAD_GAPS * tpot.high {
            let says = format!(
                "mean ITL is {:.2} ms, and mean TPOT {:.2} ms: events carry about {:.1} tokens, and ITL is the time between events",
                itl.middle(),
                tpot.middle(),
                itl.middle() / tpot.middle(),
            );
            self.warn(line, About::Chunks, says);
        }
    }

    /// Warns if chunks carry several tokens, so that chunk gaps are no times per token.
    ///
    /// Source: docs/bench-serving.md 13.3.
    fn chunks(&mut self) {
        let value = |metric| self.found.figure(metric);
        let mean = |sample| value(time(Mean, sample));
        let backend = self.found.asked.backend.as_deref().unwrap_or_default();
        let is_divided =
            self.found.profile == Profile::Current && ["sglang", "sglang-native"].contains(&backend);
        let accepts_more = value(Metric::AcceptLength).is_some_and(|length| length > 1.0);
        let (Some(completed), Some(output), Some(e2e), Some(ttft), Some((itl, line))) = (
            value(Metric::Completed),
            value(Metric::Tokens(Count::Output)),
            mean(Sample::E2e),
            mean(Sample::Ttft),
            self.printed(time(Mean, Sample::Itl)),
        ) else {
            self.merged_gaps(is_divided || accepts_more);
            self.gaps_too_quick();
            return;
        };
        let gaps = completed * (e2e - ttft) / itl.middle();
        let rest = output - completed;
        if itl.low > 0.0 && rest > 0.0 && gaps > TOO_MANY * rest {
            let says = format!(
                "mean ITL is {:.2} ms, and the answers took {:.2} ms on average after their first token: that is time for {:.0} tokens \
                 each, and they have {:.0}",
                itl.middle(),
                e2e - ttft,
                gaps / completed,
                rest / completed,
            );
            self.warn(line, About::Figures, says);
        }
        if itl.low <= 0.0 || gaps < 1.0 {
            return;
        }
        let tokens = (output - completed) / gaps;
        if is_divided && tokens > SPREAD_GAPS {
            let says = format!(
                "mean ITL is {:.2} ms for each token by this tool's way to count, and mean E2E, TTFT and the output tokens come to {:.2} ms",
                itl.middle(),
                itl.middle() / tokens
            );
            self.warn(line, About::Chunks, says);
        }
        if !is_divided && !accepts_more && tokens > MERGED {
            let says = format!(
                "events carry {tokens:.2} tokens on average (output tokens and mean E2E, TTFT and ITL say so): ITL is the time \
                 between events, per token it is about {:.2} ms",
                itl.middle() / tokens
            );
            // A few percent are only noted. A larger share makes the measurement suspect as chunked.
            let is_chunked = tokens > Bounds::default().tokens_per_chunk;
            let about = if is_chunked { About::Chunks } else { About::Rest };
            self.warn(line, about, says);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_the_printed_digits() {
        let printed = Printed {
            value: Some(23.62),
            half: 0.005,
            line: 1,
        };
        let range = Range::of(printed, 23.62);
        let duration = Range::of(
            Printed {
                half: 0.005,
                ..printed
            },
            423.29,
        );
        let exact = Range::of(Printed { half: 0.0, ..printed }, 10_000.0);
        assert!(exact.over(duration).unwrap().meets(range));
        let off = Range::of(printed, 23.64);
        assert!(!exact.over(duration).unwrap().meets(off));
    }

    #[test]
    fn a_number_for_programs_is_as_exact_as_its_digits_and_a_count_is_exact() {
        let printed = Printed {
            value: None,
            half: 0.0,
            line: 1,
        };
        let width = |metric, value| {
            let range = Range::of_metric(metric, printed, value);
            range.high - range.low
        };
        assert!((width(Metric::Duration, 27.35) - 0.01).abs() < 1e-6);
        assert!((width(Metric::Duration, 27.0) - 0.1).abs() < 1e-5);
        assert!(width(Metric::Duration, 1e-7) < 1e-6);
        assert!(width(Metric::Duration, 27.351_234_567_891_23) < 1e-7);
        assert!(width(Metric::Completed, 200.0) < 1e-6);
    }

    #[test]
    fn numbers_that_differ_are_written_differently() {
        assert_eq!(with_differing_digits(7.31, 8.0), ["7.31", "8.00"]);
        assert_eq!(with_differing_digits(7.3126, 7.3131), ["7.3126", "7.3131"]);
    }
}
