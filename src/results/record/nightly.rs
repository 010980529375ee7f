//! One nightly run of a matrix, as the history stores it. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::ids::{CellKey, ContentHash, RunId};
use crate::results::record::cell::Origin;
use crate::results::record::cell_stats::Facts;

/// One nightly run: a line of the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NightlyRun {
    /// The version of the files on disk.
    pub(crate) format: u32,
    /// When the run first ended, RFC 3339; a later resume does not change it.
    pub(crate) at: String,
    pub(crate) run: RunId,
    pub(crate) matrix: String,
    /// The run of the baseline; none if there was no baseline.
    pub(crate) baseline: Option<RunId>,
    pub(crate) machine: Facts,
    /// The result of each cell.
    pub(crate) cells: BTreeMap<CellKey, NightlyCell>,
    /// Counts of judged gating metrics; absent without a baseline and in older nightly runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) judged: Option<JudgedCounts>,
    /// What the page of an upgrade answers, in one line; absent if the builds are those of the baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) upgrade: Option<String>,
    /// The findings, shown one line each in notifications and reports.
    pub(crate) findings: Vec<Finding>,
}

/// Counts of gating metrics, by whether they could be judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct JudgedCounts {
    /// Gating metrics of all cells.
    pub(crate) metrics: usize,
    /// Metrics with a verdict: better, same, worse, or unclear with enough starts.
    pub(crate) judged: usize,
    /// Suspected losses that were neither confirmed nor refuted.
    #[serde(default)]
    pub(crate) undecided: usize,
    /// Judged metrics that are unclear: no loss is suspected, but a relevant loss is not excluded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) unclear: usize,
    /// The loss, as a share, that would have been detected with 90 % probability for each unclear metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) visible_loss_share: Option<f64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl JudgedCounts {
    pub(crate) const fn not_judged(self) -> usize {
        self.metrics
            .saturating_sub(self.judged)
            .saturating_sub(self.undecided)
    }
}

/// One cell of a nightly run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NightlyCell {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prompts: Option<ContentHash>,
    /// Where its metrics come from; absent in older nightly runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<Origin>,
    /// The engine that answered.
    pub(crate) engine: Facts,
    /// Gating metrics by name: the means of the planned starts, without starts that a confirmation added.
    pub(crate) figures: BTreeMap<String, Vec<f64>>,
}

/// One finding of a nightly run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Finding {
    pub(crate) kind: FindingKind,
    /// The cell; none if the finding concerns all cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cell: Option<CellKey>,
    /// The metric, if the finding concerns one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) figure: Option<String>,
    /// What happened, in words with numbers.
    pub(crate) text: String,
}

impl Finding {
    /// Key by which the same finding is recognised in later nightly runs; it leaves out the numbers.
    pub(crate) fn identity(&self) -> String {
        let cell = self.cell.as_ref().map_or("", |cell| cell.as_str());
        let figure = self.figure.as_deref().unwrap_or_default();
        match self.kind {
            // The text belongs to the key, because another driver is another event.
            FindingKind::Environment => format!("{}|{}", self.kind.name(), self.text),
            _ => format!("{}|{cell}|{figure}", self.kind.name()),
        }
    }
}

/// Kinds of findings, gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FindingKind {
    /// A loss, confirmed by fresh starts.
    Worse,
    /// A cell failed, or some of its starts did.
    Failed,
    /// A cell of the baseline was not measured.
    Missing,
    /// A cell is invalid. It causes no alarm, and does not prove that there is no loss.
    Invalid,
    /// The environment changed; the engine is not the cause of its effects on metrics.
    Environment,
    /// A suspected loss without a decision, because too few fresh starts were made or count.
    Undecided,
    /// A suspected loss that fresh starts did not confirm.
    Unconfirmed,
    /// Metrics that could not be judged, and the reason.
    NotJudged,
    /// Metrics with no suspected loss, but for which a loss cannot be excluded.
    Unclear,
    /// A gain beyond the floor.
    Better,
}

impl FindingKind {
    /// The name on disk.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Worse => "worse",
            Self::Failed => "failed",
            Self::Missing => "missing",
            Self::Invalid => "invalid",
            Self::Environment => "environment",
            Self::Undecided => "undecided",
            Self::Unconfirmed => "unconfirmed",
            Self::Unclear => "unclear",
            Self::NotJudged => "not judged",
            Self::Better => "better",
        }
    }

    /// Whether a webhook reports the finding at once.
    pub(crate) const fn is_notified(self) -> bool {
        matches!(
            self,
            Self::Worse | Self::Failed | Self::Missing | Self::Invalid | Self::Environment
        )
    }
}
