//! One night of a matrix, as history keeps it. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::ids::{CellKey, ContentHash, RunId};
use crate::results::record::cell::Origin;
use crate::results::record::cell_stats::Facts;

/// One night: a line of the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Night {
    /// The version of the layout.
    pub format: u32,
    /// When it ended first, RFC 3339: a run that is resumed later keeps it.
    pub at: String,
    pub run: RunId,
    pub matrix: String,
    /// The run of the baseline that it was held against; none where there was no baseline.
    pub baseline: Option<RunId>,
    pub machine: Facts,
    /// What each cell came to.
    pub cells: BTreeMap<CellKey, NightCell>,
    /// How many gating metrics were judged; absent without a baseline and in older nights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged: Option<Judged>,
    /// What was found, one line each; what notifications and reports tell.
    pub findings: Vec<Finding>,
}

/// How many gating metrics of the baseline and of the night were judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Judged {
    /// Gating metrics of all cells.
    pub metrics: usize,
    /// Those of which it is known whether they got worse: better, same, worse, or unclear with enough starts.
    pub judged: usize,
    /// Those that are suspected of a loss that nothing confirmed or refuted.
    #[serde(default)]
    pub undecided: usize,
    /// Those of the judged that are unclear: not suspected, and a loss worth finding is not excluded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unclear: usize,
    /// The loss that would have been shown of each of the unclear nine times of ten, as a share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visible_loss_share: Option<f64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl Judged {
    /// Metrics that could not be judged.
    pub(crate) const fn not_judged(self) -> usize {
        self.metrics
            .saturating_sub(self.judged)
            .saturating_sub(self.undecided)
    }
}

/// One cell of a night.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NightCell {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompts: Option<ContentHash>,
    /// Where its figures come from; absent in older nights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The engine that answered.
    pub engine: Facts,
    /// Gating figures by name: the means of the starts that were planned, not of those that a suspicion added.
    pub figures: BTreeMap<String, Vec<f64>>,
}

/// What a night found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Finding {
    /// What kind of finding it is.
    pub kind: FindingKind,
    /// The cell; none where it is about all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<CellKey>,
    /// The figure, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figure: Option<String>,
    /// What happened, in words with numbers.
    pub text: String,
}

impl Finding {
    /// What makes it the same finding on another night, whatever its numbers are by then.
    pub(crate) fn identity(&self) -> String {
        let cell = self.cell.as_ref().map_or("", |cell| cell.as_str());
        let figure = self.figure.as_deref().unwrap_or_default();
        match self.kind {
            // Another driver is another event.
            FindingKind::Environment => format!("{}|{}", self.kind.name(), self.text),
            _ => format!("{}|{cell}|{figure}", self.kind.name()),
        }
    }
}

/// Kinds of findings, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FindingKind {
    /// A loss, confirmed by fresh starts.
    Worse,
    /// A cell failed, or some of its starts did.
    Failed,
    /// A cell of the baseline was not measured.
    Missing,
    /// A cell was judged invalid: it raises no alarm and clears none.
    Invalid,
    /// The environment changed: what it does to figures is not the engine's doing.
    Environment,
    /// A suspicion that was neither confirmed nor refuted: too few fresh starts were made, or count.
    Undecided,
    /// A suspicion that fresh starts did not confirm.
    Unconfirmed,
    /// Metrics that could not be judged, and why.
    NotJudged,
    /// What may hide a loss: the night cannot exclude it, and does not suspect it.
    Unclear,
    /// A gain beyond the floor.
    Better,
}

impl FindingKind {
    /// The kind as it is written.
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

    /// Whether people are told of it at once, by webhook.
    pub(crate) const fn is_news(self) -> bool {
        matches!(
            self,
            Self::Worse | Self::Failed | Self::Missing | Self::Invalid | Self::Environment
        )
    }
}
