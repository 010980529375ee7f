//! Reads one printed result block: its lines by label, in any layout.
//!
//! Source: docs/bench-serving.md 8.

use std::collections::BTreeMap;

use super::args::slo_from_limits;
use super::result_block::{PrintedValue, Warning, WarningSubject};
use crate::analysis::metrics::{LatencyKind, Metric, Quantity, Statistic, Target, TokenCount};
use crate::config::scenario::Slo;
use crate::config::workload::Profile;
use crate::results::record::provenance::Tool;

/// The title of a block, in its first line.
pub(super) const TITLE: &str = "Serving Benchmark Result";

/// The meaning of a label.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Label {
    Backend,
    Rate,
    ConcurrencyLimit,
    /// Prompt tokens without those of images.
    TextTokens,
    Figure(Metric),
    Percent(Metric),
    /// The limits of the SLO.
    Targets,
    /// Known, but not used.
    Ignored,
}

/// Printed labels in lower case and without colon, except for statistics of latencies.
const LABELS: &[(&str, Label)] = &[
    ("backend", Label::Backend),
    ("traffic request rate", Label::Rate),
    ("request rate configured (rps)", Label::Rate),
    ("max request concurrency", Label::ConcurrencyLimit),
    // A misspelling of a version of 2025.
    ("max reqeuest concurrency", Label::ConcurrencyLimit),
    ("maximum request concurrency", Label::ConcurrencyLimit),
    ("successful requests", Label::Figure(Metric::Completed)),
    ("failed requests", Label::Figure(Metric::Failed)),
    ("benchmark duration (s)", Label::Figure(Metric::Duration)),
    (
        "total input tokens",
        Label::Figure(Metric::Tokens(TokenCount::Input)),
    ),
    ("total input text tokens", Label::TextTokens),
    (
        "total input vision tokens",
        Label::Figure(Metric::Tokens(TokenCount::InputVision)),
    ),
    (
        "total generated tokens",
        Label::Figure(Metric::Tokens(TokenCount::Output)),
    ),
    (
        "total generated tokens (retokenized)",
        Label::Figure(Metric::Tokens(TokenCount::OutputCounted)),
    ),
    (
        "request throughput (req/s)",
        Label::Figure(Metric::Throughput(Quantity::Requests)),
    ),
    (
        "input token throughput (tok/s)",
        Label::Figure(Metric::Throughput(Quantity::Input)),
    ),
    (
        "output token throughput (tok/s)",
        Label::Figure(Metric::Throughput(Quantity::Output)),
    ),
    (
        "peak output token throughput (tok/s)",
        Label::Figure(Metric::PeakOutput),
    ),
    ("peak concurrent requests", Label::Figure(Metric::PeakConcurrency)),
    (
        "total token throughput (tok/s)",
        Label::Figure(Metric::Throughput(Quantity::Total)),
    ),
    ("concurrency", Label::Figure(Metric::MeanConcurrency)),
    ("accept length", Label::Figure(Metric::AcceptLength)),
    ("slos (ms)", Label::Targets),
    ("request goodput (req/s)", Label::Figure(Metric::Goodput)),
    ("slo attainment (%)", Label::Percent(Metric::Attainment)),
    (
        "ttft slo attainment (%)",
        Label::Percent(Metric::AttainmentOf(Target::Ttft)),
    ),
    (
        "tpot slo attainment (%)",
        Label::Percent(Metric::AttainmentOf(Target::Tpot)),
    ),
    (
        "e2el slo attainment (%)",
        Label::Percent(Metric::AttainmentOf(Target::E2e)),
    ),
    (
        "total prompt tokens",
        Label::Figure(Metric::Tokens(TokenCount::InputReported)),
    ),
    (
        "total cached tokens",
        Label::Figure(Metric::Tokens(TokenCount::InputCached)),
    ),
    ("cache hit rate", Label::Ignored),
    ("device", Label::Ignored),
    ("host", Label::Ignored),
    ("storage", Label::Ignored),
];

/// The first words of labels of statistics.
pub(super) const STATISTICS: [(&str, Statistic); 8] = [
    ("mean", Statistic::Mean),
    ("median", Statistic::Median),
    ("p50", Statistic::Median),
    ("std", Statistic::Std),
    ("p90", Statistic::P90),
    ("p95", Statistic::P95),
    ("p99", Statistic::P99),
    ("max", Statistic::Max),
];

/// The names of latencies in labels.
pub(super) const SAMPLES: [(&str, LatencyKind); 5] = [
    ("e2e latency", LatencyKind::E2e),
    ("e2el", LatencyKind::E2e),
    ("ttft", LatencyKind::Ttft),
    ("tpot", LatencyKind::Tpot),
    ("itl", LatencyKind::Itl),
];

/// A block that is being read.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) line: u32,
    pub(super) tool: Tool,
    pub(super) backend: Option<String>,
    pub(super) rate: Option<f64>,
    /// The text in place of a rate.
    pub(super) traffic: Option<String>,
    pub(super) concurrency_limit: Option<u32>,
    /// Whether the line of the concurrency limit says that there is none.
    pub(super) is_unlimited: bool,
    pub(super) figures: BTreeMap<Metric, PrintedValue>,
    pub(super) has_vision_line: bool,
    pub(super) slo: Option<Slo>,
    pub(super) warnings: Vec<Warning>,
    text_tokens: Option<f64>,
    has_new_section: bool,
    has_new_label: bool,
}

pub(super) fn is_block_start(line: &str) -> bool {
    line.contains(TITLE) && line.contains("==")
}

pub(super) fn is_block_end(line: &str) -> bool {
    let line = line.trim();
    line.len() >= 20 && line.bytes().all(|byte| byte == b'=')
}

impl Block {
    pub(super) fn new(line: u32) -> Self {
        Self {
            line,
            tool: Tool::VllmBench,
            backend: None,
            rate: None,
            traffic: None,
            concurrency_limit: None,
            is_unlimited: false,
            figures: BTreeMap::new(),
            has_vision_line: false,
            slo: None,
            warnings: Vec::new(),
            text_tokens: None,
            has_new_section: false,
            has_new_label: false,
        }
    }

    /// Reads one line between the first and the last line of the block.
    pub(super) fn read_line(&mut self, number: u32, line: &str) {
        if line.contains("Inter-Token Latency") {
            self.has_new_section = true;
        }
        let Some((label, value)) = line.split_once(": ").or_else(|| line.trim_end().split_once(':')) else {
            return;
        };
        if value.trim().is_empty() {
            return;
        }
        match match_label(label) {
            Some(label) => self.set_value(number, label, value.trim()),
            None => {
                let label = label.trim();
                self.warnings.push(Warning::new(
                    number,
                    WarningSubject::Nothing,
                    format!("unknown label `{label}`; its value is ignored"),
                ));
            }
        }
    }

    fn set_value(&mut self, line: u32, label: Label, value: &str) {
        match label {
            Label::Ignored => {}
            Label::Backend => {
                self.tool = Tool::BenchServing;
                self.backend = Some(value.to_owned());
            }
            Label::Rate => match value.parse() {
                Ok(rate) => self.rate = Some(rate),
                Err(_) => self.traffic = Some(value.to_owned()),
            },
            Label::ConcurrencyLimit => {
                self.has_new_label = true;
                self.concurrency_limit = value.parse().ok();
                self.is_unlimited = self.concurrency_limit.is_none();
            }
            Label::Targets => {
                let pairs = value.split_whitespace().filter_map(|pair| {
                    let (target, limit) = pair.split_once(':')?;
                    Some((target.to_owned(), limit.parse().ok()?))
                });
                self.slo = slo_from_limits(pairs);
            }
            Label::TextTokens => self.text_tokens = value.parse().ok(),
            Label::Figure(metric) => self.add_figure(line, metric, value, 1.0),
            Label::Percent(metric) => self.add_figure(line, metric, value, 0.01),
        }
    }

    fn add_figure(&mut self, line: u32, metric: Metric, value: &str, scale: f64) {
        let is_new = matches!(
            metric,
            Metric::MeanConcurrency
                | Metric::PeakConcurrency
                | Metric::PeakOutput
                | Metric::Throughput(Quantity::Total)
        );
        self.has_new_label |= is_new;
        self.has_vision_line |= metric == Metric::Tokens(TokenCount::InputVision);
        let number: Option<f64> = match value.parse::<f64>() {
            Ok(number) if number.is_finite() => Some(number * scale),
            // Python's words for a missing value.
            Ok(_)
                if value
                    .trim_start_matches(['-', '+'])
                    .starts_with(|c: char| c.is_ascii_alphabetic()) =>
            {
                None
            }
            Err(_) if ["N/A", "–", "-", "None"].contains(&value) => None,
            Ok(_) | Err(_) => {
                self.warnings.push(Warning::new(
                    line,
                    WarningSubject::Figures,
                    format!("`{value}` is not a number for {}; it is ignored", metric.label()),
                ));
                return;
            }
        };
        let decimals = value.split_once('.').map_or(0, |(_, digits)| digits.len());
        let half = match metric.is_count() {
            true => 0.0,
            false => 0.5 * scale * 0.1_f64.powi(i32::try_from(decimals).unwrap_or(0)),
        };
        let printed = PrintedValue {
            value: number,
            half_digit: half,
            line,
        };
        // If requested, the 50th percentile is printed in addition to the median.
        let before = self.figures.insert(metric, printed);
        if before.is_some_and(|before| before.value != printed.value) {
            self.warnings.push(Warning::new(
                line,
                WarningSubject::Figures,
                format!(
                    "{} appears twice in the result block with different values; the second value is used",
                    metric.label()
                ),
            ));
        }
    }

    /// The profile of the figures. LMDeploy's fork prints no concurrency and does not capitalise
    /// `Inter-Token`.
    pub(super) fn profile(&self) -> Profile {
        let is_new = self.has_new_section || self.has_new_label || self.tool == Tool::VllmBench;
        if is_new {
            Profile::Current
        } else {
            Profile::Classic
        }
    }

    /// Adds the image tokens, all input tokens less the text tokens, if the block does not print them.
    pub(super) fn with_derived_image_tokens(mut self) -> Self {
        let input = self.figures.get(&Metric::Tokens(TokenCount::Input)).copied();
        if let (Some(text), Some(printed)) = (self.text_tokens, input)
            && let Some(input) = printed.value
        {
            let vision = Metric::Tokens(TokenCount::InputVision);
            self.figures.entry(vision).or_insert(PrintedValue {
                value: Some((input - text).max(0.0)),
                half_digit: 0.0,
                line: printed.line,
            });
        }
        self
    }
}

/// The longest label at the end of a text. Words before it, such as a container's name, are ignored.
fn match_label(text: &str) -> Option<Label> {
    let text = text.trim().to_lowercase();
    let is_whole = |rest: &str| !rest.ends_with(|letter: char| letter.is_alphanumeric() || letter == ')');
    let ends_in = |label: &str| text.strip_suffix(label).is_some_and(is_whole);
    let plain = LABELS.iter().map(|(name, label)| ((*name).to_owned(), *label));
    let times = STATISTICS.iter().flat_map(|(word, statistic)| {
        SAMPLES.iter().map(move |(name, sample)| {
            (
                format!("{word} {name} (ms)"),
                Label::Figure(Metric::Time(*statistic, *sample)),
            )
        })
    });
    let stored = text.starts_with("storage (").then_some(Label::Ignored);
    plain
        .chain(times)
        .filter(|(name, _)| ends_in(name))
        .max_by_key(|(name, _)| name.len())
        .map(|(_, label)| label)
        .or(stored)
        .or_else(|| is_unknown_percentile(&text).then_some(Label::Ignored))
}

/// Whether a label is a percentile for which there is no metric, such as `p75 ttft (ms)`.
fn is_unknown_percentile(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [.., percentile, _, "(ms)"] = words[..] else {
        return false;
    };
    let share = percentile
        .strip_prefix('p')
        .and_then(|share| share.parse::<f64>().ok());
    share.is_some_and(|share| (0.0..=100.0).contains(&share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_known_whatever_stands_before_them() {
        let ttft = Some(Label::Figure(Metric::Time(Statistic::Mean, LatencyKind::Ttft)));
        assert_eq!(match_label("Mean TTFT (ms)"), ttft);
        assert_eq!(match_label("bench-1  | Mean TTFT (ms)"), ttft);
        assert_eq!(
            match_label("Max reqeuest concurrency"),
            Some(Label::ConcurrencyLimit)
        );
        assert_eq!(
            match_label("Concurrency"),
            Some(Label::Figure(Metric::MeanConcurrency))
        );
        assert_eq!(match_label("  Storage (mooncake)"), Some(Label::Ignored));
        // A percentile without a metric is known, but its value is not used.
        assert_eq!(match_label("P42 TTFT (ms)"), Some(Label::Ignored));
        assert_eq!(match_label("P420 TTFT (ms)"), None);
    }

    #[test]
    fn half_of_the_last_digit_is_kept_and_counts_are_exact() {
        let mut block = Block::new(1);
        block.read_line(2, "Benchmark duration (s):                  423.29    ");
        block.read_line(3, "Successful requests:                     10000");
        block.read_line(4, "Mean TPOT (ms):                          nan");
        let half = |metric| block.figures[&metric].half_digit;
        assert!((half(Metric::Duration) - 0.005).abs() < 1e-12);
        assert_eq!(half(Metric::Completed), 0.0);
        assert_eq!(
            block.figures[&Metric::Time(Statistic::Mean, LatencyKind::Tpot)].value,
            None
        );
        assert!(block.warnings.is_empty(), "{:?}", block.warnings);
    }
}
