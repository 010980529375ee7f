//! A measurement under way, and what came out of it.

use std::sync::Arc;

use crate::base::clock::Moment;
use crate::loadgen::{Sink, Spill};
use crate::plan::{Cell, Launch, Measurement};
use crate::results::record::cell::{Summary, UniquePrefix};
use crate::results::record::client::ClientFacts;
use crate::results::record::post_mortem::End;
use crate::results::record::request::Request;
use crate::results::record::telemetry::Sample;
use crate::runner::context::Job;

/// What tells the prompts that warm up from those of the load.
pub(super) const WARM_UP: &str = "warm-up";

/// What came out of a measurement.
pub(crate) struct CellOutcome {
    pub(crate) summary: Summary,
    pub(crate) requests: Vec<Request>,
    /// What was sampled around the window.
    pub(crate) samples: Vec<Sample>,
    /// Whether the engine can measure another cell.
    pub(crate) engine_is_well: bool,
    /// How the engine ended, where it did.
    pub(crate) end: Option<End>,
}

/// A measurement under way: what it has gone through so far.
pub(super) struct CellRun<'a> {
    pub(super) job: &'a Job<'a>,
    pub(super) launch: &'a Launch,
    pub(super) cell: &'a Cell,
    pub(super) measurement: &'a Measurement,
    pub(super) began: Moment,
    pub(super) phase_began: Moment,
    pub(super) summary: Summary,
    pub(super) samples: Vec<Sample>,
    /// Earlier tries of this measurement on this start.
    pub(super) tries: usize,
    /// What the prompts of the load begin with, where the recipe asks for unique prefixes.
    pub(super) unique_prefix: Option<UniquePrefix>,
    /// Where records go while a load runs.
    pub(super) sink: Option<Sink>,
    /// Where answers go that are more than memory is to hold.
    pub(super) spill: Option<Arc<Spill>>,
    /// What the client did during the points of a search whose requests are not those of the cell.
    pub(super) other_points: Vec<ClientFacts>,
}
