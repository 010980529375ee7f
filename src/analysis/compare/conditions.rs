//! Conditions in which the measurements of a cell were made and in which two sides must agree. They do not
//! make a single cell suspect, but two cells that differ in them are not comparable.

use crate::analysis::metrics::{Metric, TokenCount, metric_value};
use crate::config::dataset::PromptForm;
use crate::plan::Cell;
use crate::results::record::cell::{Definitions, MeasurementSummary};
use crate::results::record::prompt::MeanPromptTokens;
use crate::results::record::telemetry::GpuWindow;

/// Busy clocks are different if they differ by more than this share.
const MAX_CLOCK_DIFFERENCE: f64 = 0.03;

/// Shares are different if they differ by more than this: of the time at the power limit, or of answers that
/// repeat one token.
const MAX_SHARE_DIFFERENCE: f64 = 0.2;

/// Token counts are different if they differ by more than this share and if text and chunks agree on the side
/// that counts more.
const MAX_RATIO_DIFFERENCE: f64 = 0.02;

/// The same share if chunks hold several tokens, so that the text alone decides.
const MAX_RATIO_DIFFERENCE_BY_TEXT: f64 = 0.05;

/// The same share if each token has its own chunk on both sides and only the text differs. Different answers
/// are tokenized differently.
const MAX_RATIO_DIFFERENCE_OF_TEXT_ALONE: f64 = 0.1;

/// Token counts for the same images are different if they differ by more than this factor. Engines add a few
/// tokens of their own.
const MAX_IMAGE_TOKEN_FACTOR: f64 = 1.1;

/// Fewest tokens on each side for this comparison.
const MIN_TOKENS: u64 = 1_000;

/// Fewest answers for which a share is computed.
const MIN_RESPONSES: u32 = 8;

/// The same limit for kinds of answers that correct engines also give often. Their shares in a few answers
/// differ by chance.
const MIN_RESPONSES_OF_FREQUENT_KIND: u32 = 100;

/// Conditions of all measurements of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Conditions {
    /// Mean clock of the GPUs while they were busy, in MHz.
    pub(crate) clock_mhz: Option<f64>,
    /// Share of the samples in which a GPU was at its power limit, averaged over all GPUs.
    pub(crate) capped_share: Option<f64>,
    /// Share of answers that repeat one token.
    pub(crate) one_token_share: Option<f64>,
    /// Share of answers that repeat a few tokens in a loop.
    pub(crate) loop_share: Option<f64>,
    /// Share of answers with the same text as the answer to another prompt.
    pub(crate) canned_share: Option<f64>,
    /// Output tokens reported by the server per token that we count.
    pub(crate) tokens_per_counted: Option<f64>,
    /// Output tokens reported by the server per chunk.
    pub(crate) tokens_per_event: Option<f64>,
    /// Tokens of a prompt that stand for images, as the server reports them.
    pub(crate) vision_tokens: Option<f64>,
    /// Tokens of a prompt, as sent and as the server counts them.
    pub(crate) prompt_tokens: Option<MeanPromptTokens>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConditionDifference {
    pub(crate) condition: &'static str,
    pub(crate) before: String,
    pub(crate) after: String,
    pub(crate) kind: ConditionKind,
}

/// What a condition is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConditionKind {
    Machine,
    Answers,
    /// The prompts as the server read them. Sides that differ in it did different work.
    Prompts,
}

impl Conditions {
    pub(crate) fn from_cell(cell: &Cell, summaries: &[&MeasurementSummary]) -> Self {
        // Servers count the query of a rerank request once, or once with each document.
        let has_documents = cell.scenario.workload.facts().prompts == PromptForm::Documents;
        Self {
            prompt_tokens: mean_prompt_tokens(summaries).filter(|_| !has_documents),
            ..Self::from_summaries(summaries)
        }
    }

    /// Returns the conditions without the tokens of prompts.
    fn from_summaries(summaries: &[&MeasurementSummary]) -> Self {
        let gpus = || {
            let windows = summaries.iter().filter_map(|summary| summary.telemetry.as_ref());
            windows.flat_map(|telemetry| &telemetry.gpus)
        };
        let capped = |gpu: &GpuWindow| {
            let is_busy = gpu.busy_samples > 0;
            is_busy.then(|| gpu.throttled.get("power").copied().unwrap_or(0.0))
        };
        let [mut one_token, mut loops, mut canned, mut read] = [0; 4];
        let [mut reported, mut counted, mut events, mut vision] = [0; 4];
        let mut prompts = 0;
        for answers in summaries.iter().filter_map(|summary| summary.answers.as_ref()) {
            one_token += answers.one_token;
            loops += answers.loops;
            canned += answers.canned;
            read += answers.read;
            reported += answers.reported_tokens;
            counted += answers.counted_tokens;
            events += answers.events;
            vision += answers.vision_tokens;
            prompts += answers.prompts_reported;
        }
        let per = |other: u64| {
            let is_known = reported.min(counted) >= MIN_TOKENS && other > 0;
            is_known.then(|| reported as f64 / other as f64)
        };
        let share = |count, min_read| (read >= min_read).then(|| f64::from(count) / f64::from(read));
        Self {
            clock_mhz: mean(gpus().filter_map(|gpu| gpu.busy_clock_mhz)),
            capped_share: mean(gpus().filter_map(capped)),
            tokens_per_counted: per(counted),
            tokens_per_event: per(events),
            vision_tokens: (prompts >= MIN_RESPONSES).then(|| vision as f64 / f64::from(prompts)),
            one_token_share: share(one_token, MIN_RESPONSES),
            loop_share: share(loops, MIN_RESPONSES_OF_FREQUENT_KIND),
            canned_share: share(canned, MIN_RESPONSES_OF_FREQUENT_KIND),
            prompt_tokens: None,
        }
    }

    /// Returns the conditions that differ so much that the difference of metrics cannot be attributed to the
    /// engines.
    pub(crate) fn differences(&self, other: &Self) -> Vec<ConditionDifference> {
        let mut differences = Vec::new();
        if let (Some(before), Some(after)) = (self.clock_mhz, other.clock_mhz)
            && (after / before - 1.0).abs() > MAX_CLOCK_DIFFERENCE
        {
            differences.push(ConditionDifference {
                condition: "clock of busy GPUs",
                before: format!("{before:.0} MHz"),
                after: format!("{after:.0} MHz"),
                kind: ConditionKind::Machine,
            });
        }
        let shares = [
            (
                "time at the power limit",
                self.capped_share,
                other.capped_share,
                ConditionKind::Machine,
            ),
            (
                "answers that are one token over and over",
                self.one_token_share,
                other.one_token_share,
                ConditionKind::Answers,
            ),
            (
                "answers that repeat a few tokens over and over",
                self.loop_share,
                other.loop_share,
                ConditionKind::Answers,
            ),
            (
                "answers that are the same text for different prompts",
                self.canned_share,
                other.canned_share,
                ConditionKind::Answers,
            ),
        ];
        for (what, before, after, kind) in shares {
            if let (Some(before), Some(after)) = (before, after)
                && (after - before).abs() > MAX_SHARE_DIFFERENCE
            {
                let percent = |share: f64| format!("{:.0} %", 100.0 * share);
                differences.push(ConditionDifference {
                    condition: what,
                    before: percent(before),
                    after: percent(after),
                    kind,
                });
            }
        }
        differences.extend(self.token_count_difference(other));
        differences.extend(self.image_token_difference(other));
        differences.extend(self.prompt_token_difference(other));
        differences
    }

    /// Returns the difference in the tokens that each side counts for the same images.
    fn image_token_difference(&self, other: &Self) -> Option<ConditionDifference> {
        let (before, after) = self.vision_tokens.zip(other.vision_tokens)?;
        (before.max(after) > MAX_IMAGE_TOKEN_FACTOR * before.min(after)).then(|| ConditionDifference {
            condition: "prompt tokens of images",
            before: format!("{before:.1}"),
            after: format!("{after:.1}"),
            kind: ConditionKind::Prompts,
        })
    }

    /// Returns the difference in the tokens that each server counts for the same prompts.
    fn prompt_token_difference(&self, other: &Self) -> Option<ConditionDifference> {
        let (before, after) = self.prompt_tokens.zip(other.prompt_tokens)?;
        let words = |tokens: MeanPromptTokens| format!("{:.0} ({:.0} sent)", tokens.reported, tokens.sent);
        before.contradicts(&after).then(|| ConditionDifference {
            condition: "mean tokens of a prompt by the server's count",
            before: words(before),
            after: words(after),
            kind: ConditionKind::Prompts,
        })
    }

    /// Returns the difference in the output tokens that each side reports for the same text.
    fn token_count_difference(&self, other: &Self) -> Option<ConditionDifference> {
        let (before, after) = self.tokens_per_counted.zip(other.tokens_per_counted)?;
        let by_text = (after / before).ln();
        let (first, second) = self.tokens_per_event.zip(other.tokens_per_event)?;
        let by_events = (second / first).ln();
        let is_single = |tokens: f64| tokens < 1.0 + MAX_RATIO_DIFFERENCE;
        let bound = match () {
            () if by_text.signum() == by_events.signum() && by_events.abs() > MAX_RATIO_DIFFERENCE => {
                MAX_RATIO_DIFFERENCE
            }
            () if is_single(first) && is_single(second) => MAX_RATIO_DIFFERENCE_OF_TEXT_ALONE,
            () => MAX_RATIO_DIFFERENCE_BY_TEXT,
        };
        (by_text.abs() > bound).then(|| ConditionDifference {
            condition: "ratio of the server's output token count to the client's count of the same text",
            before: format!("{before:.3}"),
            after: format!("{after:.3}"),
            kind: ConditionKind::Answers,
        })
    }
}

/// Returns the tokens of a prompt, over all completed requests of measurements whose server counted every prompt. A
/// server that counts no tokens at all did not count.
fn mean_prompt_tokens(summaries: &[&MeasurementSummary]) -> Option<MeanPromptTokens> {
    let totals = |summary: &&MeasurementSummary| {
        let figure = |metric| {
            [Definitions::Matrix, Definitions::Classic, Definitions::Current]
                .iter()
                .find_map(|definitions| metric_value(summary.figures.get(definitions)?, metric))
        };
        let totals = [
            figure(Metric::Completed)?,
            figure(Metric::Tokens(TokenCount::Input))?,
            figure(Metric::Tokens(TokenCount::InputReported))?,
        ];
        totals.iter().all(|total| *total > 0.0).then_some(totals)
    };
    let [prompts, sent, reported] = summaries
        .iter()
        .filter_map(totals)
        .reduce(|sums, totals| std::array::from_fn(|index| sums[index] + totals[index]))?;
    Some(MeanPromptTokens {
        sent: sent / prompts,
        reported: reported / prompts,
    })
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::dataset::DatasetName;
    use crate::results::store::testing;

    #[test]
    fn conditions_differ_from_a_bound_on_and_never_where_one_is_unknown() {
        let conditions = |clock_mhz, capped_share, one_token_share| Conditions {
            clock_mhz,
            capped_share,
            one_token_share,
            ..Conditions::default()
        };
        let differing = |one: Conditions, other: Conditions| -> Vec<&str> {
            let differences = one.differences(&other).into_iter();
            differences.map(|differs| differs.condition).collect()
        };
        let usual = conditions(Some(1755.0), Some(0.1), Some(0.02));
        assert!(differing(usual, conditions(Some(1710.0), Some(0.29), Some(0.2))).is_empty());
        assert!(differing(usual, Conditions::default()).is_empty());
        assert_eq!(
            differing(usual, conditions(Some(1500.0), Some(0.5), Some(0.4))),
            [
                "clock of busy GPUs",
                "time at the power limit",
                "answers that are one token over and over"
            ]
        );
    }

    #[test]
    fn pictures_that_one_side_reads_at_another_size_differ() {
        let conditions = |vision_tokens| Conditions {
            vision_tokens,
            ..Conditions::default()
        };
        let differ = |before, after| !conditions(before).differences(&conditions(after)).is_empty();
        assert!(!differ(Some(256.0), Some(258.0)) && !differ(Some(0.0), Some(0.0)));
        assert!(!differ(Some(256.0), None));
        assert!(differ(Some(256.0), Some(64.0)) && differ(Some(0.0), Some(256.0)));
    }

    /// A cell of the test plan with this data set, and its conditions with these totals over 24 prompts.
    fn conditions_of_prompts(dataset: DatasetName, sent: f64, reported: Option<f64>) -> Conditions {
        let mut cell = testing::plan().cells[0].clone();
        cell.scenario.workload.dataset = dataset.into();
        let mut summary = testing::summary(&cell);
        let totals = [
            ("completed_requests", Some(24.0)),
            ("input_tokens", Some(sent)),
            ("reported_input_tokens", reported),
        ];
        let totals = totals.map(|(name, value)| (name.to_owned(), value));
        summary.figures.insert(Definitions::Matrix, totals.into());
        Conditions::from_cell(&cell, &[&summary, &summary])
    }

    #[test]
    fn servers_that_count_very_different_tokens_for_the_same_prompts_differ() {
        let conditions = |reported| conditions_of_prompts(DatasetName::RandomIds, 49_152.0, reported);
        let honest = conditions(Some(62_892.0));
        assert_eq!(
            honest.differences(&conditions(Some(6_144.0))),
            [ConditionDifference {
                condition: "mean tokens of a prompt by the server's count",
                before: "2620 (2048 sent)".to_owned(),
                after: "256 (2048 sent)".to_owned(),
                kind: ConditionKind::Prompts,
            }]
        );
        for close_or_unknown in [Some(62_870.0), Some(49_152.0), Some(0.0), None] {
            let other = conditions(close_or_unknown);
            assert_eq!(honest.differences(&other), [], "{close_or_unknown:?}");
        }
    }

    #[test]
    fn tokens_of_short_prompts_and_of_documents_are_not_compared() {
        let differ = |dataset, sent, reported| {
            let of = |reported| conditions_of_prompts(dataset, sent, Some(reported));
            !of(sent).differences(&of(reported)).is_empty()
        };
        assert!(differ(DatasetName::RandomIds, 64.0 * 24.0, 20.0 * 24.0));
        assert!(!differ(DatasetName::RandomIds, 63.0 * 24.0, 20.0 * 24.0));
        assert!(!differ(DatasetName::RandomRerank, 64.0 * 24.0, 20.0 * 24.0));
    }

    #[test]
    fn answers_that_repeat_on_one_side_alone_differ() {
        let conditions = |read, loops, canned| {
            let mut summary = testing::summary(&testing::plan().cells[0]);
            summary.answers = Some(crate::results::record::cell::AnswerStats {
                read,
                loops,
                canned,
                ..Default::default()
            });
            Conditions::from_summaries(&[&summary])
        };
        let differing = |one: Conditions, other: Conditions| one.differences(&other).len();
        let usual = conditions(120, 24, 0);
        assert_eq!(differing(usual, conditions(120, 30, 20)), 0);
        assert_eq!(differing(usual, conditions(120, 60, 0)), 1, "loops");
        assert_eq!(differing(usual, conditions(120, 24, 40)), 1, "the same texts");
        assert_eq!(differing(usual, conditions(20, 16, 16)), 0, "few answers");
    }

    #[test]
    fn a_side_that_reports_more_tokens_for_the_same_text_differs() {
        let conditions = |per_counted, per_event| Conditions {
            tokens_per_counted: Some(per_counted),
            tokens_per_event: Some(per_event),
            ..Conditions::default()
        };
        let differs = |one: Conditions, other: Conditions| !one.differences(&other).is_empty();
        let honest = conditions(0.97, 1.0);
        assert!(differs(honest, conditions(1.18, 1.22)));
        assert!(differs(honest, conditions(1.0, 1.03)), "text and events agree");
        assert!(!differs(honest, conditions(0.98, 1.015)));
        // Speculative decoding and merged chunks: the text decides.
        assert!(
            !differs(honest, conditions(0.98, 4.0)),
            "the text agrees within 2 %"
        );
        assert!(differs(honest, conditions(1.02, 4.0)));
        assert!(
            differs(conditions(0.97, 4.0), conditions(1.18, 1.22)),
            "the honest side merges more"
        );
        assert!(!differs(conditions(0.97, 4.0), conditions(1.01, 1.0)));
        // Each token has its own chunk on both sides, and different answers are tokenized differently.
        assert!(!differs(conditions(0.9, 1.0), conditions(0.97, 1.0)));
        assert!(differs(conditions(0.85, 1.0), conditions(1.0, 1.0)));
        assert!(!differs(honest, Conditions::default()));
    }
}
