//! Finds figures that contradict each other, the client's arguments, or the text around them. Tolerances
//! follow from the printed digits.

mod spread;
mod under_way;

use super::names;
use super::result_block::{PrintedValue, ResultBlock, Warning, WarningSubject};
use crate::analysis::metrics::{
    LatencyKind, Metric, Quantity,
    Statistic::{self, Max, Mean, Median, P90, P95, P99},
    TokenCount,
};
use crate::config::validity::Bounds;
use crate::config::workload::Profile;
use crate::results::record::provenance::Tool;

/// From this many tokens per chunk on, the chunk gap is not the time of a token.
const MULTI_TOKEN_FACTOR: f64 = 1.05;
/// Maximum number of gaps between chunks per output token; more contradict each other. Speculative decoding
/// and answers of different lengths stay far below.
const MAX_GAPS_PER_TOKEN: f64 = 1.5;
/// Maximum factor between mean TPOT over requests and over tokens; in the former, short answers count as much
/// as long ones.
const MAX_TPOT_WEIGHT_FACTOR: f64 = 4.0;
/// Maximum relative difference between the output tokens counted from the text and those that throughput
/// uses.
const MAX_RECOUNT_DIFFERENCE: f64 = 0.1;
/// Maximum factor of peak concurrency over the limit plus the requests that end per second: clients count by
/// whole seconds, and requests do not end evenly.
const MAX_PEAK_FACTOR: f64 = 2.0;
/// Maximum factor of mean concurrency over the limit: clients differ in when they free a slot.
const MAX_MEAN_CONCURRENCY_FACTOR: f64 = 1.02;

/// Maximum factor of the duration over the time in which requests fall due and the last one is answered.
const MAX_DURATION_FACTOR: f64 = 1.1;
/// Standard deviations of randomly spaced arrivals that are attributed to chance.
const ARRIVAL_DEVIATIONS: f64 = 4.0;
/// Maximum factors of the last answer's duration over mean E2E and over its 99th percentile.
const MAX_LAST_RESPONSE_FACTORS: [f64; 2] = [4.0, 2.0];
/// Minimum share of the requested tokens that prompts of one length have.
const MIN_PROMPT_TOKEN_SHARE: f64 = 0.8;
/// Maximum factor of mean ITL over mean TPOT that different answer lengths can explain.
const MAX_ITL_FACTOR: f64 = 1.5;

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
    checks.check_percentile_spread();
    checks.check_peaks();
    checks.check_idle_slots();
    checks.check_e2e_parts();
    checks.check_chunk_gaps();
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
    fn from_metric(metric: Metric, printed: PrintedValue, value: f64) -> Self {
        // Machine-readable files may be rounded too.
        let half = match printed.half_digit == 0.0 && !metric.is_count() {
            true => half_digit(value),
            false => printed.half_digit,
        };
        Self::from_printed(
            PrintedValue {
                half_digit: half,
                ..printed
            },
            value,
        )
    }

    fn from_printed(printed: PrintedValue, value: f64) -> Self {
        // Even values with all digits may differ in the last digit of a sum.
        let slack = printed.half_digit * (1.0 + 1e-6) + value.abs() * 1e-9;
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
    fn divided_by(self, other: Self) -> Option<Self> {
        (other.low > 0.0).then(|| Self {
            low: self.low / other.high,
            high: self.high / other.low,
        })
    }

    fn overlaps(self, other: Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }

    fn midpoint(self) -> f64 {
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
                "{} ({above} {unit}) is above {} ({below} {unit})",
                lower.label(),
                upper.label(),
                unit = lower.unit().symbol(),
            );
            self.warn(line, WarningSubject::Figures, message);
        }
    }

    /// Compares the model names of the heading, of the server's command and of the client's arguments.
    fn check_model(&mut self) {
        let result = self.result;
        let command = result.launch_info.model.as_deref();
        let requested_model = result.options.model.as_deref();
        let is_same = |a: &str, b: &str| names::short_name(a) == names::short_name(b);
        if let (Some(served), Some(model)) = (&result.options.served_model_name, requested_model.or(command))
        {
            let [name, model_name] =
                [served, model].map(|name| names::short_name(&names::model_and_precision(name).0));
            let is_one = name.starts_with(&model_name) || model_name.starts_with(&name);
            // A name of another family is an arbitrary served model name.
            if names::are_same_family(&name, &model_name) && !is_one {
                let message =
                    format!("the client sends the model name `{served}`, but the model is `{model}`");
                self.warn(result.options.line, WarningSubject::Identity, message);
            }
        }
        // A heading of another family names no model. Behind the model's name there may be more words.
        let heading = result.heading.as_ref().filter(|(_, heading)| {
            let model = requested_model.or(command).map(names::short_name);
            model.is_some_and(|model_and_precision| {
                names::are_same_family(&names::short_name(heading), &model_and_precision)
            })
        });
        let is_headed = |heading: &str, model: &str| {
            let (heading, model) = (names::short_name(heading), names::short_name(model));
            heading == model || heading.starts_with(&format!("{model} "))
        };
        let is_alias =
            |requested_model: &str| result.launch_info.served_model_name.as_deref() == Some(requested_model);
        if let (Some(command), Some(requested_model)) = (command, requested_model)
            && !is_same(command, requested_model)
            && !is_alias(requested_model)
        {
            let mut message =
                format!("the command serves `{command}`, the client's arguments name `{requested_model}`");
            if let Some((_, heading)) = heading {
                message.push_str(&format!(", the heading says `{heading}`"));
            }
            self.warn(result.launch_info.line, WarningSubject::Identity, message);
            return;
        }
        if let (Some((line, heading)), Some(model)) = (heading, requested_model.or(command))
            && !is_headed(heading, model)
        {
            let who = match requested_model {
                Some(_) => "the client's arguments name",
                None => "the command serves",
            };
            let message = format!("the heading says `{heading}`, {who} `{model}`");
            self.warn(*line, WarningSubject::Identity, message);
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

    fn check_counts(&mut self) {
        let options = &self.result.options;
        let completed = self.printed(Metric::Completed);
        let Some((completed, line)) = completed.map(|(range, line)| (range.midpoint().round(), line)) else {
            return;
        };
        if let Some(prompts) = options.prompts.filter(|prompts| completed > *prompts as f64) {
            let message =
                format!("{completed} requests succeeded, but the client was to send only {prompts}");
            self.warn(line, WarningSubject::Identity, message);
        }
        let failed = self.result.figure(Metric::Failed).unwrap_or(0.0);
        if let Some(prompts) = options.prompts
            && completed <= prompts as f64
            && completed + failed > prompts as f64
        {
            let message = format!(
                "{completed} requests succeeded and {failed} failed, but the client was to send only \
                 {prompts}"
            );
            self.warn(line, WarningSubject::Figures, message);
        }
        let is_whole = options.prompts.is_some_and(|prompts| completed == prompts as f64);
        let sums = [
            (options.input_tokens, TokenCount::Input, true),
            // Only LMDeploy's fork counts the requested tokens as output.
            (
                options.output_tokens,
                TokenCount::Output,
                self.result.profile == Profile::Classic,
            ),
        ];
        for (sum, count, is_kept) in sums {
            if let (Some((line, sum)), Some(total)) = (sum, self.result.figure(Metric::Tokens(count)))
                && is_whole
                && is_kept
                && sum as f64 != total
            {
                let what = Metric::Tokens(count).label();
                let message = format!("{sum} {what} were prepared, but the block counts {total}");
                self.warn(line, WarningSubject::Figures, message);
            }
        }
        if let (Some(length), Some(output)) = (
            options.output_len,
            self.result.figure(Metric::Tokens(TokenCount::Output)),
        ) && options.is_random()
            && output > completed * f64::from(length)
        {
            let message = format!(
                "{output} output tokens are more than {completed} answers of at most \
                {length} tokens can have"
            );
            self.warn(line, WarningSubject::Figures, message);
        }
        self.check_prompt_lengths(completed);
        self.check_response_lengths(completed);
        if let Some((recounted, line)) = self.printed(Metric::Tokens(TokenCount::OutputCounted))
            && let Some(output) = self.result.figure(Metric::Tokens(TokenCount::Output))
            && (recounted.midpoint() - output).abs() > MAX_RECOUNT_DIFFERENCE * output
        {
            let message = format!(
                "{} output tokens are counted in the texts, but throughput is computed from {output}",
                recounted.midpoint().round()
            );
            self.warn(line, WarningSubject::Nothing, message);
        }
    }

    /// Warns if prompts have fewer tokens than requested.
    fn check_prompt_lengths(&mut self, completed: f64) {
        let options = &self.result.options;
        if let (true, Some(length), Some((input, line))) = (
            options.is_random() && options.range_ratio == Some(1.0) && !self.result.is_from_matrix,
            options.input_len,
            self.printed(Metric::Tokens(TokenCount::Input)),
        ) && input.high < MIN_PROMPT_TOKEN_SHARE * completed * f64::from(length)
        {
            let message = format!(
                "{} input tokens are {:.0} for each of {completed} prompts, but {length} were requested",
                input.midpoint(),
                input.midpoint() / completed,
            );
            self.warn(line, WarningSubject::Figures, message);
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
                "{completed} requests at {rate}/s fall due in {due:.0} s, but the load took only {:.2} s",
                duration.midpoint()
            );
            self.warn(line, WarningSubject::Figures, message);
        } else if duration.low > MAX_DURATION_FACTOR * due + chance + last / 1000.0 {
            let message = format!(
                "{completed} requests at {rate}/s fall due in {due:.0} s, but the load took {:.2} s: the \
                 rate was not reached, it was {:.2} requests/s",
                duration.midpoint(),
                completed / duration.midpoint(),
            );
            self.warn(line, WarningSubject::Figures, message);
        }
    }

    /// Warns if answers have fewer tokens than requested, although all should have one length.
    fn check_response_lengths(&mut self, completed: f64) {
        let (result, options) = (self.result, &self.result.options);
        let is_cut = options.stop_at_eos || options.body.get("ignore_eos") == Some(&false.into());
        // Other tools stop at the end token by default. `matrix` checks its own answers when it measures.
        let is_exact = result.tool == Tool::BenchServing
            && !result.is_from_matrix
            && options.is_random()
            && options.range_ratio == Some(1.0)
            && !is_cut;
        if let (true, Some(length), Some((output, line))) = (
            is_exact,
            options.output_len,
            self.printed(Metric::Tokens(TokenCount::Output)),
        ) && output.high < completed * f64::from(length) * (1.0 - Bounds::default().short_outputs)
        {
            let message = format!(
                "{} output tokens are {:.0} for each of {completed} answers, but {length} were requested: \
                 answers are short, unless the client ran with `--disable-ignore-eos`",
                output.midpoint(),
                output.midpoint() / completed,
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
        if let Some((_, line, observed)) = printed.or_else(by_times).filter(beyond) {
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

    /// Whether all answers have the requested length.
    fn has_equal_lengths(&self) -> bool {
        let options = &self.result.options;
        let completed = self.result.figure(Metric::Completed);
        let output = self.result.figure(Metric::Tokens(TokenCount::Output));
        let is_sum = |length: u32| output == completed.map(|completed| completed * f64::from(length));
        options.is_random() && options.range_ratio == Some(1.0) && options.output_len.is_some_and(is_sum)
    }

    /// If all answers have one length, mean E2E must be mean TTFT plus mean TPOT for each further token.
    fn check_e2e_parts(&mut self) {
        self.check_tpot();
        let length = self.result.options.output_len.map(f64::from);
        let Some(length) = length.filter(|length| self.has_equal_lengths() && *length >= 2.0) else {
            return;
        };
        let whole = self
            .range(time(Mean, LatencyKind::Ttft))
            .zip(self.range(time(Mean, LatencyKind::Tpot)))
            .map(|(first, each)| first.plus(each.times(length - 1.0)));
        self.check_equal(
            time(Mean, LatencyKind::E2e),
            whole,
            &format!("mean TTFT + {} × mean TPOT", length - 1.0),
        );
    }

    /// Warns if mean TPOT is far too small for the duration of the answers.
    fn check_tpot(&mut self) {
        let value = |metric| self.result.figure(metric);
        let mean = |sample| value(time(Mean, sample));
        if let (Some(completed), Some(output), Some(e2e), Some(ttft), Some((tpot, line))) = (
            value(Metric::Completed),
            value(Metric::Tokens(TokenCount::Output)),
            mean(LatencyKind::E2e),
            mean(LatencyKind::Ttft),
            self.printed(time(Mean, LatencyKind::Tpot)),
        ) {
            let each = (e2e - ttft) * completed / (output - completed);
            if output > completed && tpot.high * MAX_TPOT_WEIGHT_FACTOR < each {
                let message = format!(
                    "mean TPOT is {:.2} ms, but mean E2E, mean TTFT and the output tokens imply {each:.2} \
                     ms per token",
                    tpot.midpoint()
                );
                self.warn(line, WarningSubject::Figures, message);
            }
        }
    }

    /// Without E2E: warns if mean ITL is far above mean TPOT. `is_told` suppresses the warning, because the
    /// tool divides gaps or the server accepts several tokens at once.
    fn check_multi_token_gaps(&mut self, is_told: bool) {
        let (Some((itl, line)), Some(tpot)) = (
            self.printed(time(Mean, LatencyKind::Itl)),
            self.range(time(Mean, LatencyKind::Tpot)),
        ) else {
            return;
        };
        if !is_told && tpot.low > 0.0 && itl.low > MAX_ITL_FACTOR * tpot.high {
            let message = format!(
                "mean ITL is {:.2} ms, but mean TPOT is {:.2} ms: events carry about {:.1} tokens, so ITL \
                 is the time between events",
                itl.midpoint(),
                tpot.midpoint(),
                itl.midpoint() / tpot.midpoint(),
            );
            self.warn(line, WarningSubject::Chunks, message);
        }
    }

    /// Warns if chunks carry several tokens, so that chunk gaps are no times per token.
    ///
    /// Source: docs/bench-serving.md 13.3.
    fn check_chunk_gaps(&mut self) {
        let value = |metric| self.result.figure(metric);
        let mean = |sample| value(time(Mean, sample));
        let backend = self.result.options.backend.as_deref().unwrap_or_default();
        let is_divided =
            self.result.profile == Profile::Current && ["sglang", "sglang-native"].contains(&backend);
        let accepts_more = value(Metric::AcceptLength).is_some_and(|length| length > 1.0);
        let (Some(completed), Some(output), Some(e2e), Some(ttft), Some((itl, line))) = (
            value(Metric::Completed),
            value(Metric::Tokens(TokenCount::Output)),
            mean(LatencyKind::E2e),
            mean(LatencyKind::Ttft),
            self.printed(time(Mean, LatencyKind::Itl)),
        ) else {
            self.check_multi_token_gaps(is_divided || accepts_more);
            self.check_gap_count();
            return;
        };
        let gaps = completed * (e2e - ttft) / itl.midpoint();
        let rest = output - completed;
        if itl.low > 0.0 && rest > 0.0 && gaps > MAX_GAPS_PER_TOKEN * rest {
            let message = format!(
                "mean ITL is {:.2} ms, but the answers took {:.2} ms on average after their first token: \
                 that is time for {:.0} further tokens each, and they have {:.0}",
                itl.midpoint(),
                e2e - ttft,
                gaps / completed,
                rest / completed,
            );
            self.warn(line, WarningSubject::Figures, message);
        }
        if itl.low <= 0.0 || gaps < 1.0 {
            return;
        }
        let tokens = (output - completed) / gaps;
        if is_divided && tokens > MAX_ITL_FACTOR {
            let message = format!(
                "mean ITL, which this tool computes per token, is {:.2} ms, but mean E2E, TTFT and the \
                 output tokens imply {:.2} ms",
                itl.midpoint(),
                itl.midpoint() / tokens
            );
            self.warn(line, WarningSubject::Chunks, message);
        }
        if !is_divided && !accepts_more && tokens > MULTI_TOKEN_FACTOR {
            let message = format!(
                "events carry {tokens:.2} tokens on average (from output tokens and mean E2E, TTFT and \
                 ITL): ITL is the time between events; per token it is about {:.2} ms",
                itl.midpoint() / tokens
            );
            // A few percent are only noted. A larger share makes the measurement suspect as chunked.
            let is_chunked = tokens > Bounds::default().tokens_per_chunk;
            let about = if is_chunked {
                WarningSubject::Chunks
            } else {
                WarningSubject::Nothing
            };
            self.warn(line, about, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_the_printed_digits() {
        let printed = PrintedValue {
            value: Some(23.62),
            half_digit: 0.005,
            line: 1,
        };
        let range = Range::from_printed(printed, 23.62);
        let duration = Range::from_printed(
            PrintedValue {
                half_digit: 0.005,
                ..printed
            },
            423.29,
        );
        let exact = Range::from_printed(
            PrintedValue {
                half_digit: 0.0,
                ..printed
            },
            10_000.0,
        );
        assert!(exact.divided_by(duration).unwrap().overlaps(range));
        let off = Range::from_printed(printed, 23.64);
        assert!(!exact.divided_by(duration).unwrap().overlaps(off));
    }

    #[test]
    fn a_number_for_programs_is_as_exact_as_its_digits_and_a_count_is_exact() {
        let printed = PrintedValue {
            value: None,
            half_digit: 0.0,
            line: 1,
        };
        let width = |metric, value| {
            let range = Range::from_metric(metric, printed, value);
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
