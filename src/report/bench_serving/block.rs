//! The block that bench_serving prints, byte for byte, from figures of the same profile.
//!
//! A figure without a value prints as `–`, where Python would print 0 or crash.

mod lines;

use std::num::NonZeroU32;

use crate::analysis::metrics::{
    self, CacheHits, LatencyKind, Metric, Percentiles, Quantity,
    Statistic::{Max, Mean, Median, P90, P95, P99},
    SteadyState, Target, TokenCount,
};
use crate::config::scenario::Slo;
use crate::config::workload::Profile;
use crate::report::bench_serving::traffic::Traffic;
use crate::report::bench_serving::{jsonl, python};
use crate::report::table::MISSING;
use crate::results::record::cell::MetricValues;
use lines::Lines;

/// Facts of a block besides its figures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockFacts<'a> {
    /// bench_serving's name of the backend.
    pub(crate) backend: &'a str,
    pub(crate) rate: Traffic,
    /// Maximum number of requests under way at once, if limited.
    pub(crate) concurrency: Option<NonZeroU32>,
    /// The SLO, if requested.
    pub(crate) slo: Option<&'a Slo>,
    /// The hits of the prefix cache, if requested.
    pub(crate) cache: Option<&'a CacheHits>,
    /// Whether prompts contain images.
    pub(crate) has_images: bool,
    /// Whether answers are embeddings, which have neither output tokens nor a first token.
    pub(crate) embeds: bool,
    pub(crate) layout: Layout,
}

/// Which lines a block has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// All lines of the profile; a figure without a value shows as `–`.
    Whole,
    /// Only lines whose figures exist, so that a block of another version of the tool is printed as that
    /// version did.
    AsPrinted {
        /// Whether there is a line for the tokens of images.
        vision: bool,
    },
}

/// Formats the block of results as the tool of this profile prints it. An empty line comes first.
///
/// Source: docs/bench-serving.md 8.1 and 8.2.
pub(crate) fn block(profile: Profile, facts: &BlockFacts<'_>, figures: &MetricValues) -> String {
    let mut lines = Lines {
        figures,
        is_whole: facts.layout == Layout::Whole,
        text: "\n".to_owned(),
    };
    lines.section('=', " Serving Benchmark Result ");
    lines.text("Backend:", facts.backend);
    lines.text("Traffic request rate:", &facts.rate.text());
    match profile {
        Profile::Classic => classic(&mut lines, facts),
        Profile::Current => current(&mut lines, facts),
    }
    lines.section('=', "");
    lines.text
}

fn classic(lines: &mut Lines<'_>, facts: &BlockFacts<'_>) {
    lines.integer("Successful requests:", Metric::Completed);
    lines.number("Benchmark duration (s):", Metric::Duration);
    lines.integer("Total input tokens:", Metric::Tokens(TokenCount::Input));
    if facts.layout != Layout::Whole {
        lines.input_parts(facts);
    }
    lines.integer("Total generated tokens:", Metric::Tokens(TokenCount::Output));
    lines.integer(
        "Total generated tokens (retokenized):",
        Metric::Tokens(TokenCount::OutputCounted),
    );
    lines.number(
        "Request throughput (req/s):",
        Metric::Throughput(Quantity::Requests),
    );
    lines.number(
        "Input token throughput (tok/s):",
        Metric::Throughput(Quantity::Input),
    );
    lines.number(
        "Output token throughput (tok/s):",
        Metric::Throughput(Quantity::Output),
    );
    lines.times(
        "End-to-End Latency",
        "E2E Latency",
        LatencyKind::E2e,
        &[Mean, Median],
    );
    let wanted = [Mean, Median, P99];
    lines.times("Time to First Token", "TTFT", LatencyKind::Ttft, &wanted);
    lines.times(
        "Time per Output Token (excl. 1st token)",
        "TPOT",
        LatencyKind::Tpot,
        &wanted,
    );
    lines.times("Inter-token Latency", "ITL", LatencyKind::Itl, &wanted);
}

fn current(lines: &mut Lines<'_>, facts: &BlockFacts<'_>) {
    let limit = facts
        .concurrency
        .map_or_else(|| "not set".to_owned(), |limit| limit.to_string());
    lines.text("Max request concurrency:", &limit);
    lines.integer("Successful requests:", Metric::Completed);
    lines.number("Benchmark duration (s):", Metric::Duration);
    lines.integer("Total input tokens:", Metric::Tokens(TokenCount::Input));
    lines.input_parts(facts);
    if !facts.embeds {
        lines.integer("Total generated tokens:", Metric::Tokens(TokenCount::Output));
        lines.integer(
            "Total generated tokens (retokenized):",
            Metric::Tokens(TokenCount::OutputCounted),
        );
    }
    lines.number(
        "Request throughput (req/s):",
        Metric::Throughput(Quantity::Requests),
    );
    lines.number(
        "Input token throughput (tok/s):",
        Metric::Throughput(Quantity::Input),
    );
    if !facts.embeds {
        lines.number(
            "Output token throughput (tok/s):",
            Metric::Throughput(Quantity::Output),
        );
        lines.number("Peak output token throughput (tok/s):", Metric::PeakOutput);
    }
    lines.integer("Peak concurrent requests:", Metric::PeakConcurrency);
    if !facts.embeds {
        lines.number(
            "Total token throughput (tok/s):",
            Metric::Throughput(Quantity::Total),
        );
    }
    lines.number("Concurrency:", Metric::MeanConcurrency);
    if lines
        .figure(Metric::AcceptLength)
        .is_some_and(|length| length != 0.0)
    {
        lines.number("Accept length:", Metric::AcceptLength);
    }
    if let Some(slo) = facts.slo {
        goodput(lines, slo);
    }
    let wanted = [Mean, Median, P90, P95, P99];
    lines.times("End-to-End Latency", "E2E Latency", LatencyKind::E2e, &wanted);
    if !facts.embeds {
        lines.times("Time to First Token", "TTFT", LatencyKind::Ttft, &wanted);
        lines.times(
            "Time per Output Token (excl. 1st token)",
            "TPOT",
            LatencyKind::Tpot,
            &wanted,
        );
        let wanted = [Mean, Median, P90, P95, P99, Max];
        lines.times("Inter-Token Latency", "ITL", LatencyKind::Itl, &wanted);
    }
    if let Some(cache) = facts.cache {
        lines.cache(cache);
    }
}

/// A block with figures that the Python tool does not print, including the empty line before it. Figures
/// without a value are left out.
pub(crate) fn additional_block(figures: &MetricValues, percentiles: &[Percentiles], embeds: bool) -> String {
    let known = figures
        .iter()
        .filter(|(_, value)| value.is_some())
        .map(|(name, value)| (name.clone(), *value))
        .collect();
    let mut lines = Lines {
        figures: &known,
        is_whole: false,
        text: "\n".to_owned(),
    };
    lines.section('=', " Further Figures ");
    lines.times(
        "End-to-End Latency from Due",
        "E2E from Due",
        LatencyKind::E2eLineDue,
        &[Mean, P99],
    );
    lines.times(
        "Wait from Due Time to Sending",
        "Wait until Sent",
        LatencyKind::Lag,
        &[Mean, P99],
    );
    if !embeds {
        if lines
            .figure(Metric::Tokens(TokenCount::OutputReasoning))
            .is_some()
        {
            lines.times(
                "Time to First Token after Reasoning",
                "TTFT of Answer",
                LatencyKind::TtftAnswer,
                &[Mean, P99],
            );
            lines.integer("Reasoning tokens:", Metric::Tokens(TokenCount::OutputReasoning));
        }
        if lines.figure(Metric::AudioDuration).is_some() {
            lines.section('-', "Audio");
            lines.optional_number("Audio duration (s):", Metric::AudioDuration, 1.0);
            lines.optional_number("Audio throughput (RTFx):", Metric::AudioThroughput, 1.0);
        }
        lines.section('-', "Engine and Users");
        lines.optional_number("Interactivity (tok/s per user):", Metric::Interactivity, 1.0);
        lines.optional_number("Prefix-cache hit rate (%):", Metric::CacheHitShare, 100.0);
        lines.optional_number("Theoretical hit rate (%):", Metric::TheoreticalHitShare, 100.0);
        lines.optional_number("Accept length (tokens per step):", Metric::AcceptLength, 1.0);
        lines.optional_number("Accept rate (%):", Metric::AcceptRate, 100.0);
        if lines.figure(Metric::Correct).is_some() {
            lines.section('-', "Checked Answers");
            lines.integer("Correct answers:", Metric::Correct);
            lines.integer("Incorrect answers:", Metric::Incorrect);
            lines.integer("Answers that could not be checked:", Metric::Unchecked);
            lines.optional_number("Correct share (%):", Metric::CorrectShare, 100.0);
            lines.optional_number("Goodput of correct answers (req/s):", Metric::Goodput, 1.0);
        }
    }
    for latency in percentiles {
        let name = latency.sample.label();
        lines.section('-', &format!("Percentiles of {name}"));
        for (percent, value) in &latency.values {
            lines.value(&format!("P{percent} {name} (ms):"), Some(*value), 2);
        }
    }
    lines.section('=', "");
    lines.text
}

/// The block of the steady state, including the empty line before it.
///
/// Source: docs/bench-serving.md 8.1, steady state.
pub(crate) fn steady_block(steady: &SteadyState) -> String {
    let none = MetricValues::new();
    let mut lines = Lines {
        figures: &none,
        is_whole: true,
        text: "\n".to_owned(),
    };
    lines.section('=', " Steady-State Result ");
    let values = [
        ("Concurrency ratio:", Some(steady.concurrency_ratio), 2),
        ("Measurement duration (s):", Some(steady.duration), 2),
        (
            "Minimum concurrency:",
            Some(f64::from(steady.concurrency_threshold)),
            0,
        ),
        ("Completed requests:", Some(steady.completed as f64), 0),
        ("Input tokens:", Some(steady.total_input as f64), 0),
        (
            "Input token throughput (tok/s):",
            Some(steady.input_throughput),
            2,
        ),
        ("Generated tokens:", Some(steady.total_output), 2),
        (
            "Output token throughput (tok/s):",
            Some(steady.output_throughput),
            2,
        ),
        (
            "Output throughput, retokenized (tok/s):",
            steady.output_throughput_retokenized,
            2,
        ),
        ("Average concurrency:", Some(steady.average_concurrency), 2),
        ("Peak concurrency:", Some(f64::from(steady.peak_concurrency)), 0),
        (
            "Peak output throughput (tok/s):",
            Some(steady.peak_output_throughput),
            2,
        ),
    ];
    for (label, value, decimals) in values {
        lines.value(label, value, decimals);
    }
    lines.section('=', "");
    lines.text
}

fn goodput(lines: &mut Lines<'_>, slo: &Slo) {
    let limits = metrics::slo_limits(slo);
    let words: Vec<String> = limits
        .iter()
        .map(|(target, limit)| format!("{}:{}", target.bench_serving_name(), python::format_g(*limit)))
        .collect();
    lines.section('-', "Goodput");
    lines.text("SLOs (ms):", &words.join(" "));
    lines.number("Request goodput (req/s):", Metric::Goodput);
    lines.percent("SLO attainment (%):", Metric::Attainment);
    for (target, _) in limits {
        let name = Target::bench_serving_name(target).to_uppercase();
        lines.percent(
            &format!("{name} SLO attainment (%):"),
            Metric::AttainmentOf(target),
        );
    }
}

impl Lines<'_> {
    /// Prompt tokens of text and of images.
    fn input_parts(&mut self, facts: &BlockFacts<'_>) {
        let (text, vision) = jsonl::input_tokens_by_kind(self.figures).unzip();
        let count =
            |tokens: Option<u64>| tokens.map_or_else(|| MISSING.to_owned(), |tokens| tokens.to_string());
        let has_audio = self.figures.contains_key(&Metric::AudioDuration.name());
        if has_audio || !self.may_show(Metric::Tokens(TokenCount::InputVision)) {
            return;
        }
        self.text("Total input text tokens:", &count(text));
        let is_shown = match facts.layout {
            Layout::Whole => facts.has_images,
            Layout::AsPrinted { vision } => vision,
        };
        if is_shown {
            self.text("Total input vision tokens:", &count(vision));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::lines::WIDTH;
    use super::*;
    use crate::analysis::metrics::CacheTiers;
    use crate::base::units::{HumanDuration, RequestRate};

    fn figures(values: &[(&str, f64)]) -> MetricValues {
        values
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Some(*value)))
            .collect()
    }

    fn facts<'a>(backend: &'a str) -> BlockFacts<'a> {
        BlockFacts {
            backend,
            rate: RequestRate::INFINITE.into(),
            concurrency: None,
            slo: None,
            cache: None,
            has_images: false,
            embeds: false,
            layout: Layout::Whole,
        }
    }

    /// The complete example of docs/bench-serving.md 8.1.
    const EXAMPLE: &str = include_str!("block_current.txt");

    /// As when the client cancelled all requests.
    #[test]
    fn further_figures_without_a_value_have_no_line() {
        let mut figures = MetricValues::new();
        for statistic in [Mean, P99] {
            figures.insert(Metric::Time(statistic, LatencyKind::E2eLineDue).name(), None);
            figures.insert(Metric::Time(statistic, LatencyKind::Lag).name(), Some(1.5));
        }
        let block = additional_block(&figures, &[], false);
        assert!(
            !block.contains("E2E from Due") && !block.contains("nan"),
            "{block}"
        );
        assert!(block.contains("Mean Wait until Sent (ms):"), "{block}");
    }

    #[test]
    fn the_current_block_is_the_one_of_the_python_tool() {
        let figures = figures(&[
            ("completed_requests", 3.0),
            ("duration_s", 0.1553),
            ("input_tokens", 18.0),
            ("output_tokens", 12.0),
            ("counted_output_tokens", 12.0),
            ("request_throughput_req_s", 19.31),
            ("input_throughput_tok_s", 115.88),
            ("output_throughput_tok_s", 77.26),
            ("peak_output_throughput_tok_s", 12.0),
            ("peak_concurrency_requests", 3.0),
            ("total_throughput_tok_s", 193.14),
            ("mean_concurrency_requests", 1.067),
            ("accept_length_tokens", 2.5),
            ("goodput_req_s", 19.31),
            ("slo_attainment_share", 1.0),
            ("slo_attainment_ttft_share", 1.0),
            ("slo_attainment_tpot_share", 1.0),
            ("mean_e2e_ms", 55.25),
            ("median_e2e_ms", 56.0),
            ("p90_e2e_ms", 56.36),
            ("p95_e2e_ms", 56.41),
            ("p99_e2e_ms", 56.45),
            ("mean_ttft_ms", 11.32),
            ("median_ttft_ms", 11.35),
            ("p90_ttft_ms", 11.37),
            ("p95_ttft_ms", 11.38),
            ("p99_ttft_ms", 11.38),
            ("mean_tpot_ms", 14.64),
            ("median_tpot_ms", 14.93),
            ("p90_tpot_ms", 15.01),
            ("p95_tpot_ms", 15.02),
            ("p99_tpot_ms", 15.02),
            ("mean_itl_ms", 10.79),
            ("median_itl_ms", 10.23),
            ("p90_itl_ms", 11.81),
            ("p95_itl_ms", 13.0),
            ("p99_itl_ms", 13.96),
            ("max_itl_ms", 14.2),
        ]);
        let span = |ms| Some(HumanDuration(Duration::from_millis(ms)));
        let slo = Slo {
            speed: None,
            ttft: span(500),
            tpot: span(50),
            e2e: None,
        };
        let cache = CacheHits {
            prompt: 18,
            cached: 6,
            is_reported: true,
            tiers: Some(CacheTiers {
                device: 3,
                host: 3,
                ..CacheTiers::default()
            }),
        };
        let facts = BlockFacts {
            rate: RequestRate::new(20.0).unwrap().into(),
            concurrency: NonZeroU32::new(2),
            slo: Some(&slo),
            cache: Some(&cache),
            ..facts("sglang")
        };
        assert_eq!(block(Profile::Current, &facts, &figures), EXAMPLE);
    }

    /// Figures from a published report: LMDeploy v0.10.0, Qwen3-8B-FP8, ShareGPT.
    #[test]
    fn the_classic_block_is_the_one_of_a_published_report() {
        let figures = figures(&[
            ("completed_requests", 10_000.0),
            ("duration_s", 145.35),
            ("input_tokens", 2_258_583.0),
            ("output_tokens", 1_992_177.0),
            ("counted_output_tokens", 2_001_728.0),
            ("request_throughput_req_s", 68.80),
            ("input_throughput_tok_s", 15_539.44),
            ("output_throughput_tok_s", 13_706.52),
            ("mean_e2e_ms", 72_497.56),
            ("median_e2e_ms", 71_765.64),
            ("mean_ttft_ms", 61_801.82),
            ("median_ttft_ms", 58_942.94),
            ("p99_ttft_ms", 121_672.04),
            ("mean_tpot_ms", 58.90),
            ("median_tpot_ms", 62.93),
            ("p99_tpot_ms", 177.56),
            ("mean_itl_ms", 113.18),
            ("median_itl_ms", 111.35),
            ("p99_itl_ms", 421.98),
        ]);
        let text = block(Profile::Classic, &facts("lmdeploy"), &figures);
        assert_eq!(text, include_str!("block_classic.txt"));
    }

    #[test]
    fn what_has_no_value_is_no_zero() {
        let text = block(Profile::Classic, &facts("vllm"), &MetricValues::new());
        assert!(text.contains(&format!("{:<40} –         \n", "Mean TTFT (ms):")));
        assert!(!text.contains(" 0"));
    }

    #[test]
    fn an_unlimited_concurrency_and_no_goodput_are_said_as_in_python() {
        let text = block(Profile::Current, &facts("vllm"), &MetricValues::new());
        assert!(text.contains("Max request concurrency:                 not set   \n"));
        assert!(text.contains("Traffic request rate:                    inf       \n"));
        assert!(!text.contains("Goodput") && !text.contains("Accept length") && !text.contains("Cache"));
    }

    #[test]
    fn cached_tokens_in_storage_have_a_line_with_its_name() {
        let lines = |tiers: Option<CacheTiers>, cached: u64| {
            let cache = CacheHits {
                prompt: 80,
                cached,
                is_reported: true,
                tiers,
            };
            let facts = BlockFacts {
                cache: Some(&cache),
                ..facts("sglang")
            };
            let text = block(Profile::Current, &facts, &MetricValues::new());
            let (_, details) = text.split_once("Cache Hit Details-----------------\n").unwrap();
            details.to_owned()
        };
        let tiers = CacheTiers {
            device: 10,
            host: 5,
            storage: 5,
            storage_backend: Some("mooncake".to_owned()),
        };
        let end = "=".repeat(WIDTH);
        assert_eq!(
            lines(Some(tiers.clone()), 20),
            format!(
                "Total prompt tokens:                     80        \n\
                 Total cached tokens:                     20        \n\
                 \x20 Device:                                10        \n\
                 \x20 Host:                                  5         \n\
                 \x20 Storage (mooncake):                    5         \n\
                 Cache hit rate:                          25.0%\n\
                 \x20 Device:                                50.0%\n\
                 \x20 Host:                                  25.0%\n\
                 \x20 Storage (mooncake):                    25.0%\n\
                 {end}\n"
            )
        );
        let unnamed = CacheTiers {
            storage_backend: None,
            ..tiers.clone()
        };
        assert!(lines(Some(unnamed), 20).contains("  Storage:                               25.0%\n"));
        for (tiers, cached) in [(Some(tiers), 0), (None, 20)] {
            assert!(!lines(tiers, cached).contains("Device"));
        }
    }

    /// Source: docs/bench-serving.md 14.3, the printed goodput and the text and vision tokens.
    #[test]
    fn the_golden_goodput_and_pictures_print_as_in_python() {
        let figures = figures(&[
            ("input_tokens", 41.0),
            ("vision_input_tokens", 5.0),
            ("goodput_req_s", 0.6666666666666666),
            ("slo_attainment_share", 0.6),
            ("slo_attainment_ttft_share", 0.6),
            ("slo_attainment_tpot_share", 0.8),
            ("slo_attainment_e2e_share", 0.6),
        ]);
        let span = |ms| Some(HumanDuration(Duration::from_millis(ms)));
        let slo = Slo {
            speed: None,
            ttft: span(600),
            tpot: span(500),
            e2e: span(3000),
        };
        let facts = BlockFacts {
            slo: Some(&slo),
            has_images: true,
            ..facts("vllm")
        };
        let text = block(Profile::Current, &facts, &figures);
        for lines in [
            "Total input tokens:                      41        \n\
             Total input text tokens:                 36        \n\
             Total input vision tokens:               5         \n",
            "---------------------Goodput----------------------\n\
             SLOs (ms):                               ttft:600 tpot:500 e2el:3000\n\
             Request goodput (req/s):                 0.67      \n\
             SLO attainment (%):                      60.00     \n\
             TTFT SLO attainment (%):                 60.00     \n\
             TPOT SLO attainment (%):                 80.00     \n\
             E2EL SLO attainment (%):                 60.00     \n\
             ----------------End-to-End Latency----------------\n",
        ] {
            assert!(text.contains(lines), "{text}");
        }
    }

    /// Source: docs/bench-serving.md 8.1 with the steady state of 14.3.
    #[test]
    fn the_golden_steady_state_prints_as_in_python() {
        let steady = SteadyState {
            concurrency_ratio: 0.5,
            window_start: 100.75,
            window_end: 102.5,
            duration: 1.75,
            concurrency_threshold: 2,
            completed: 2,
            total_input: 24,
            input_throughput: 13.714285714285714,
            total_output: 24.8,
            total_output_retokenized: Some(6.4),
            output_throughput: 14.171428571428573,
            output_throughput_retokenized: Some(3.6571428571428575),
            average_concurrency: 2.17142857142857,
            peak_concurrency: 3,
            peak_output_throughput: 22.8,
        };
        let text = steady_block(&steady);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "",
                "============== Steady-State Result ===============",
                "Concurrency ratio:                       0.50      ",
                "Measurement duration (s):                1.75      ",
                "Minimum concurrency:                     2         ",
                "Completed requests:                      2         ",
                "Input tokens:                            24        ",
                "Input token throughput (tok/s):          13.71     ",
                "Generated tokens:                        24.80     ",
                "Output token throughput (tok/s):         14.17     ",
                "Output throughput, retokenized (tok/s):  3.66      ",
                "Average concurrency:                     2.17      ",
                "Peak concurrency:                        3         ",
                "Peak output throughput (tok/s):          22.80     ",
                "==================================================",
            ]
        );
    }

    #[test]
    fn values_fill_ten_columns_and_longer_ones_are_not_cut() {
        for (rate, expected) in [
            (None, "inf       "),
            (Some(4.0), "4.0       "),
            (Some(1e16), "1e+16     "),
            (Some(1e-5), "1e-05     "),
        ] {
            let rate = rate.map_or(RequestRate::INFINITE, |rate| RequestRate::new(rate).unwrap());
            let facts = BlockFacts {
                rate: rate.into(),
                ..facts("vllm")
            };
            let text = block(Profile::Classic, &facts, &MetricValues::new());
            let line = format!("Traffic request rate:                    {expected}\n");
            assert!(text.contains(&line), "{text}");
        }
        let figures = figures(&[("input_tokens", 12_345_678_901.0)]);
        let text = block(Profile::Classic, &facts("vllm"), &figures);
        assert!(text.contains("Total input tokens:                      12345678901\n"));
    }

    #[test]
    fn embeddings_have_no_lines_about_output() {
        let facts = BlockFacts {
            embeds: true,
            ..facts("vllm-embedding")
        };
        let text = block(Profile::Current, &facts, &MetricValues::new());
        let labels: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(label, _)| label)
            .collect();
        assert_eq!(
            labels,
            [
                "Backend",
                "Traffic request rate",
                "Max request concurrency",
                "Successful requests",
                "Benchmark duration (s)",
                "Total input tokens",
                "Total input text tokens",
                "Request throughput (req/s)",
                "Input token throughput (tok/s)",
                "Peak concurrent requests",
                "Concurrency",
                "Mean E2E Latency (ms)",
                "Median E2E Latency (ms)",
                "P90 E2E Latency (ms)",
                "P95 E2E Latency (ms)",
                "P99 E2E Latency (ms)",
            ]
        );
    }
}
