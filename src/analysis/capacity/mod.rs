//! The capacity of a system: the highest load at which enough requests meet the SLO.

mod outcomes;
mod point;
mod probe_test;
mod search;
mod starts;
mod strategy;
mod tiers;

pub(crate) use outcomes::{EndedRequest, outcomes};
pub(crate) use point::{judge_concurrency, judge_point};
pub(crate) use probe_test::{ProbeDecision, first_look, judge, next_look};
pub(crate) use search::capacity_over_starts;
pub(crate) use tiers::{NextPoint, TieredSearch};
