//! Starts of one side that are included but suspect.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::analysis::compare::from_run;
use crate::analysis::metrics::Metric;
use crate::results::record::cell_stats::CellStats;

/// A reason why starts of one side are suspect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SuspectStarts {
    pub(crate) side: &'static str,
    pub(crate) starts: BTreeSet<u32>,
    /// The reason code, with the measured value in brackets.
    pub(crate) reason: String,
}

impl SuspectStarts {
    pub(crate) fn code(&self) -> &str {
        self.reason.split(' ').next().unwrap_or_default()
    }
}

impl fmt::Display for SuspectStarts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let starts: Vec<String> = self.starts.iter().map(u32::to_string).collect();
        write!(f, "{}, start {}: {}", self.side, starts.join(", "), self.reason)
    }
}

/// Returns the reasons why the starts of a metric are suspect, each once with its starts.
pub(crate) fn suspect_starts(side: &'static str, cell: &CellStats, metric: Metric) -> Vec<SuspectStarts> {
    let mut starts: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    let family = from_run::metric_family(metric);
    let concerned = cell
        .suspect
        .iter()
        .filter(|doubt| doubt.only.is_empty() || doubt.only.iter().any(|only| family == Some(*only)));
    for doubt in concerned {
        starts.entry(&doubt.reason).or_default().insert(doubt.start);
    }
    let suspicion = |(reason, starts): (&str, BTreeSet<u32>)| SuspectStarts {
        side,
        starts,
        reason: reason.to_owned(),
    };
    starts.into_iter().map(suspicion).collect()
}
