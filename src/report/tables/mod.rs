//! Tables of cells side by side: the comparison of engines, the results of one engine, the overview at the
//! end of a run.
//!
//! All figures follow the definitions `matrix`. A row is marked as best only if repeated starts show that it
//! is.

pub(crate) mod answers;
mod capacity;
mod columns;
mod comparison;
mod conclusion;
mod cost;
mod family;
mod grouping;
mod latencies;
mod notes;
mod overview;
mod overview_matrix;
mod probes;
mod ratio;
mod report_cell;
mod suspicion;
#[cfg(test)]
mod tests;
mod units;

pub(crate) use answers::{AnswerResult, AnswerScore, AnswersVersusReference, answer_scores, answer_table};
pub(crate) use capacity::{CapacityInterval, TierCapacity, tier_capacities};
pub(crate) use columns::has_percentile;
pub(crate) use comparison::comparison_tables;
pub(crate) use conclusion::{Beaten, Conclusion, Lead};
pub(crate) use cost::{CellCost, cell_cost, dollars};
pub(crate) use family::{Group, compare_groups};
pub(crate) use grouping::{group_by_name, short_names};
pub(crate) use latencies::latency_tables;
pub(crate) use notes::{concurrent_launches_note, reason_in_words, suspect_reasons};
pub(crate) use overview::{engine_results, overview};
pub(crate) use overview_matrix::overview_matrix;
pub(crate) use probes::{ProbeAgreement, probe_agreement, probe_table};
pub(crate) use ratio::{Ratio, RatioOrReason, RatioVerdict, comparability};
pub(crate) use report_cell::{
    ReportCell, is_burst, is_unknown, mean_of_starts, means_of_starts, metric_value, status_in_words,
    summary_validity,
};
#[cfg(test)]
pub(crate) use suspicion::contradiction;
