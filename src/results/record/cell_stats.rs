//! What a comparison knows of one side: every cell's figures by start, and what they were measured with. Small enough to be kept in git as a
//! baseline. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::ids::{CellKey, ContentHash, LaunchId, RunId};
use crate::config::select::{self, AxisValues};
use crate::plan::Launch;
use crate::results::record::cell::Origin;
use crate::results::record::validity::Family;

/// Facts by name, such as `driver`: as they are told to people.
pub type Facts = BTreeMap<String, String>;

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// The run that measured it.
    pub run: RunId,
    /// The run's matrix.
    pub matrix: String,
    /// When the run began, RFC 3339.
    pub began: String,
    /// The version of `matrix` that measured.
    pub tool: String,
    /// The machine that measured: a difference here is the environment's.
    pub machine: Facts,
    /// The cells.
    pub cells: BTreeMap<CellKey, SideCell>,
}

impl Side {
    /// The key of the cell of that key or, where there is none, of the one cell that differs from it in the version alone.
    pub(crate) fn key_like(&self, key: &CellKey) -> Option<&CellKey> {
        if let Some((known, _)) = self.cells.get_key_value(key) {
            return Some(known);
        }
        let loose = |key: &CellKey| {
            let mut axes = select::values(key.as_str());
            axes.remove("version");
            axes
        };
        let wanted = loose(key);
        let mut alike = self.cells.keys().filter(|known| loose(known) == wanted);
        let first = alike.next()?;
        alike.next().is_none().then_some(first)
    }
}

/// One cell of a side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SideCell {
    /// The values of its axes.
    pub axes: AxisValues,
    /// A digest of launch, scenario and seed.
    pub content: ContentHash,
    /// What it asks besides its prompts: model, precision, arrivals. Cells that differ here answer different questions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub asked: Facts,
    /// What requests had to meet and how long they might take: the SLO and timeouts. Goodput depends on the SLO, failures on the timeouts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: Facts,
    /// The engine that answered: version, image, tokenizer. A difference here is what comparisons are made for.
    pub engine: Facts,
    /// Arguments, variables, image and checkpoint of the engine by name; empty where they are not known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: Facts,
    /// What prompts are drawn from, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<String>,
    /// What was sent; absent where it is not known, or differs between measurements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompts: Option<ContentHash>,
    /// Mean clock of the GPUs while they were busy, in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_mhz: Option<f64>,
    /// The share of the samples in which the GPUs were at their power limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capped_share: Option<f64>,
    /// The share of answers that are one token over and over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_token_share: Option<f64>,
    /// The share of answers that are a loop of a few tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loop_share: Option<f64>,
    /// The share of answers that are the same text as that to another prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canned_share: Option<f64>,
    /// Output tokens by the server's count for each one of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_counted: Option<f64>,
    /// Output tokens by the server's count in an event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_event: Option<f64>,
    /// Tokens of a prompt that stand for pictures, by the server's count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vision_tokens: Option<f64>,
    /// Devices of the engine; 0 where it computes on none, and of an attached server of which nobody knows.
    pub devices: u32,
    /// Whether someone else started the server: what stands here as starts are repeats on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attached: bool,
    /// Completed requests of the measurement that has the fewest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u32>,
    /// Where the figures come from.
    pub origin: Origin,
    /// Figures that gate, by name.
    pub gates: Vec<String>,
    /// Figures by name: for each start that counts, its repeats.
    pub figures: BTreeMap<String, Vec<Vec<f64>>>,
    /// Percentiles by name: for each measurement that counts, between which two values requests alone let it lie with 95 % confidence.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub intervals: BTreeMap<String, Vec<[f64; 2]>>,
    /// Measurements that do not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<Excluded>,
    /// The launch it was measured on, within its run: cells of one launch were measured on the same starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<LaunchId>,
    /// How many of the starts that count were planned before a stopping rule looked at them; absent where none looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_stage: Option<u32>,
    /// Figures that are coarse by themselves: how far the value that was meant may lie to either side, as a share. Half the bracket of a search, half the
    /// last digit that another tool printed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resolutions: BTreeMap<String, f64>,
    /// Figures that no ratio may be made of, and why: what a search found without a bracket.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub no_ratio: Facts,
    /// Figures that give a ratio and no verdict, and why: the throughput of a run that its drain decides.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub no_verdict: Facts,
    /// Mean output tokens of an answer, where the model decides when it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_tokens: Option<f64>,
    /// Measurements that count and are suspect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suspect: Vec<Doubt>,
    /// Starts and requests, those that failed included; absent in files of before they were kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tried: Option<Tried>,
}

/// A measurement that counts and is suspect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Doubt {
    /// Which start, from 1.
    pub start: u32,
    /// Which repeat on it, from 1.
    pub repeat: u32,
    /// The families of figures that it concerns; empty if it concerns all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<Family>,
    /// What was found, in words.
    pub reason: String,
}

/// How often a cell was tried, and how often it failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// Starts of the engine that were made to measure it.
    pub starts: u32,
    /// Those on which the engine failed before the measurement ended.
    pub crashed: u32,
    /// Requests that fell due in measurements that came to their end.
    pub requests: u64,
    /// Those of `requests` that failed.
    pub failed: u64,
    /// Requests of each start that came to its end: those that failed, and all; absent in files of before they were kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_start: Vec<[u64; 2]>,
}

/// A measurement that does not count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Excluded {
    /// Which start, from 1.
    pub start: u32,
    /// Which repeat on it, from 1.
    pub repeat: u32,
    /// Why it does not count.
    pub cause: Cause,
    /// What was found, in words.
    pub reason: String,
}

/// Why a measurement does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// It was left out, or the run was stopped before or while it was measured.
    NotMeasured,
    /// It failed or was skipped.
    Failed,
    /// It was judged invalid.
    Invalid,
}

impl Cause {
    /// The cause as it is written.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NotMeasured => "not measured",
            Self::Failed => "failed",
            Self::Invalid => "invalid",
        }
    }
}

impl SideCell {
    /// The value of each start that counts, of one figure: the geometric mean of its repeats, or their mean where one is not above zero.
    pub(crate) fn starts(&self, figure: &str) -> Vec<f64> {
        let mean = |repeats: &Vec<f64>| {
            let n = repeats.len() as f64;
            match repeats.as_slice() {
                [only] => *only,
                several if several.iter().all(|value| *value > 0.0) => {
                    (several.iter().map(|value| value.ln()).sum::<f64>() / n).exp()
                }
                several => several.iter().sum::<f64>() / n,
            }
        };
        let starts = self.figures.get(figure).into_iter().flatten();
        starts.filter(|repeats| !repeats.is_empty()).map(mean).collect()
    }

    /// Why nothing of it counts, where nothing does: the worst cause with its reason.
    pub(crate) fn refused(&self) -> Option<(Cause, String)> {
        if self.figures.values().any(|starts| !starts.is_empty()) {
            return None;
        }
        let worst = self.excluded.iter().max_by_key(|excluded| excluded.cause);
        Some(worst.map_or_else(
            || {
                (
                    Cause::NotMeasured,
                    "left out, or the run was interrupted".to_owned(),
                )
            },
            |excluded| (excluded.cause, excluded.reason.clone()),
        ))
    }

    /// Whether nothing of it counts because it was not measured.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self.refused(), Some((Cause::NotMeasured, _)))
    }
}

/// The side that candidates are held against until somebody accepts another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// The version of the layout.
    pub format: u32,
    /// Every time it was moved, the last one first.
    pub accepted: Vec<Accepted>,
    /// What it holds.
    pub side: Side,
    /// The launches that its cells were measured on, so that the baseline can be started again beside a candidate; none in older files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub launches: Vec<Launch>,
}

/// One time a baseline was moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// When, as RFC 3339 text.
    pub at: String,
    /// The run it was moved to.
    pub run: RunId,
    /// Why, as the user wrote.
    pub reason: String,
}

/// How much figures of one machine vary though nothing changed: what `matrix noise` found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// The machine.
    pub machine: Facts,
    /// By cell and figure.
    pub cells: BTreeMap<CellKey, BTreeMap<String, Varies>>,
}

/// How much one figure of one cell varies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Varies {
    /// When it was measured, RFC 3339.
    pub at: String,
    /// Starts that it was measured with.
    pub starts: u32,
    /// Repeats on each start.
    pub per_start: u32,
    /// Standard deviation of the means of starts, as a share.
    pub start_share: f64,
    /// Its upper confidence bound at 80 %; absent in files of before it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_share: Option<f64>,
    /// The degrees of freedom that it was measured with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub df: Option<f64>,
    /// Standard deviation between starts without what repeats explain, as a share.
    pub between_share: f64,
    /// Standard deviation between repeats on one start, as a share; absent with one repeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_share: Option<f64>,
    /// By how much the two arms differed, as a share.
    pub difference_share: f64,
}
