//! Warming up: the first request of a workload, sent before the measurement.

use crate::base::clock::Moment;
use crate::config::scenario::Scenario;
use crate::config::workload::Profile;
use crate::loadgen::dataset::Prepared;
use crate::loadgen::{DriveError, Item};
use crate::results::record::request::{Failure, Request};
use crate::runner::load::load_of;
use crate::runner::ready_engine::ReadyEngine;
use crate::runner::requests::warm_up_item;
use crate::runner::supervise::{self, AbortReason, DriveControl};

/// The profile `current` cuts warm-up answers to this many tokens; `classic` sends the whole first request.
const TOKENS: u32 = 32;

/// What warming up came to.
pub(crate) struct WarmUp {
    pub(crate) requests: Vec<Request>,
    /// The moments in records count from here.
    pub(crate) zero: Moment,
    pub(crate) abort: Option<AbortReason>,
}

impl WarmUp {
    /// The first failure, if no request completed.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        let is_failed = self.requests.iter().all(|request| !request.is_completed());
        let mut failures = self
            .requests
            .iter()
            .filter_map(|request| request.failure.as_ref());
        failures.next().filter(|_| is_failed)
    }
}

/// The requests that warm up; none if the scenario wants none or has no prompts.
pub(crate) fn items(scenario: &Scenario, prepared: &Prepared) -> Vec<Item> {
    let limit = match scenario.profile {
        Profile::Classic => None,
        Profile::Current => Some(TOKENS),
    };
    let item = warm_up_item(scenario, prepared, limit);
    item.map_or_else(Vec::new, |item| vec![item; scenario.limits.warmup as usize])
}

/// Sends these requests at once and waits for their answers. Nothing is sampled, and no record is kept.
///
/// # Errors
/// No request can be written or sent at all.
pub(crate) async fn warm_up(
    engine: &mut ReadyEngine,
    scenario: &Scenario,
    items: Vec<Item>,
    control: &DriveControl<'_>,
) -> Result<WarmUp, DriveError> {
    let load = load_of(&engine.target, scenario, items);
    let (driven, abort) = supervise::drive(&mut engine.running, load, control).await?;
    Ok(WarmUp {
        requests: driven.requests,
        zero: driven.zero,
        abort,
    })
}
