//! Warm-up: sends the first request of a workload before the measurement.

use crate::base::clock::MonotonicTime;
use crate::config::api::ClientStyle;
use crate::config::scenario::Scenario;
use crate::config::workload::Profile;
use crate::loadgen::dataset::PreparedPrompts;
use crate::loadgen::{LoadError, PlannedRequest};
use crate::results::record::request::{Failure, Request};
use crate::runner::load::load_spec;
use crate::runner::ready_engine::ReadyEngine;
use crate::runner::requests::warm_up_item;
use crate::runner::supervise::{self, AbortReason, DriveControl};

/// Largest length of warm-up answers in the profile `current`, in tokens; `classic` and `vllm bench serve` send
/// the whole first request.
const MAX_TOKENS: u32 = 32;

pub(crate) struct WarmUp {
    pub(crate) requests: Vec<Request>,
    /// Zero of the times in the records.
    pub(crate) zero: MonotonicTime,
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

/// The warm-up requests; empty if the scenario has no warm-up or no prompts.
pub(crate) fn warm_up_requests(scenario: &Scenario, prepared: &PreparedPrompts) -> Vec<PlannedRequest> {
    let limit = match scenario.profile {
        _ if scenario.client_style() == ClientStyle::VllmServe => None,
        Profile::Classic => None,
        Profile::Current => Some(MAX_TOKENS),
    };
    let item = warm_up_item(scenario, prepared, limit);
    item.map_or_else(Vec::new, |item| vec![item; scenario.limits.warmup as usize])
}

/// Sends these requests at once and waits for their answers. No telemetry and no records are stored. Fails if
/// no request can be written or sent at all.
pub(crate) async fn warm_up(
    engine: &mut ReadyEngine,
    scenario: &Scenario,
    items: Vec<PlannedRequest>,
    mut control: DriveControl<'_>,
) -> Result<WarmUp, LoadError> {
    let load = load_spec(&engine.target, scenario, items);
    let (driven, abort) = supervise::drive(&mut engine.running, load, &mut control).await?;
    Ok(WarmUp {
        requests: driven.records,
        zero: driven.zero,
        abort,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock;
    use crate::results::record::request::RequestFailureClass;

    fn warmed(failures: &[Option<&str>]) -> WarmUp {
        let request = |message: &Option<&str>| {
            let mut request: Request = serde_json::from_value(serde_json::json!({
                "index": 0, "prompt_tokens": 1, "asked_tokens": 1, "due_ns": 0, "chunks": [], "end_ns": 0,
            }))
            .unwrap();
            request.failure = message.map(|message| Failure {
                class: RequestFailureClass::Status,
                message: message.to_owned(),
            });
            request
        };
        WarmUp {
            requests: failures.iter().map(request).collect(),
            zero: clock::now(),
            abort: None,
        }
    }

    #[test]
    fn a_warm_up_fails_only_if_no_request_completed() {
        assert!(warmed(&[]).failure().is_none());
        assert!(warmed(&[Some("first"), None]).failure().is_none());
        let failed = warmed(&[Some("first"), Some("second")]);
        assert_eq!(
            failed.failure().map(|failure| failure.message.as_str()),
            Some("first")
        );
    }
}
