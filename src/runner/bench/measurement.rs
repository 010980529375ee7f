//! A load of a bench that was measured.

use std::sync::Arc;

use serde_json::Value;

use crate::analysis::metrics::Basis;
use crate::analysis::validity::{self, LoadEvidence, Met, Responses};
use crate::config::scenario::Scenario;
use crate::config::validity::Bounds;
use crate::loadgen::Spill;
use crate::plan::Protocol;
use crate::results::record::validity::Reason;
use crate::runner::bench::session::Session;
use crate::runner::load::LoadOutcome;

/// A load of a bench that was measured.
pub(crate) struct BenchMeasurement {
    pub(crate) session: Session,
    /// The scenario that was asked for, at the arrival of this load.
    pub(crate) scenario: Scenario,
    pub(crate) backend: String,
    pub(crate) protocol: Protocol,
    pub(crate) outcome: LoadOutcome,
    /// The server's configuration and state after the load, if it was asked and reports them.
    pub(crate) info: Option<Value>,
    pub(crate) accept_length: Option<f64>,
    /// When the measurement began.
    pub(crate) began: String,
    /// The share of prompt tokens that the prompts repeat of each other; `None` where it is unknown.
    pub(crate) repeated: Option<f64>,
    /// Where responses went that exceed the memory budget.
    pub(crate) spill: Option<Arc<Spill>>,
    pub(crate) is_interrupted: bool,
}

impl AsRef<LoadOutcome> for BenchMeasurement {
    fn as_ref(&self) -> &LoadOutcome {
        &self.outcome
    }
}

impl BenchMeasurement {
    /// What metrics are derived from beside the requests.
    pub(crate) fn basis(&self) -> Basis {
        Basis {
            protocol: self.protocol,
            backend: self.backend.clone(),
            devices: 0,
            slo: self.scenario.slo.clone(),
            duration: None,
            accept_length: self.accept_length,
            energy: self.outcome.telemetry.energy.clone(),
            engine: None,
        }
    }

    /// That the server had the prompts in its cache, where it reports that.
    pub(crate) fn cache_warm(&self) -> Option<Reason> {
        validity::cache_warm(&self.caches(&Bounds::default()))
    }

    /// What speaks against its metrics. `model` is the name that was given or that the server gives its model.
    pub(crate) fn reasons(&self, model: &str, is_simulated: bool) -> Vec<Reason> {
        let bounds = Bounds::default();
        validity::judge_load(&LoadEvidence {
            responses: Responses {
                requests: &self.outcome.requests,
                scenario: &self.scenario,
                names: &[self.session.model(), model],
                listed: &[],
                protocol: self.protocol,
                is_simulated,
                bounds: &bounds,
            },
            caches: self.caches(&bounds),
            client: &self.outcome.client,
            telemetry: &self.outcome.telemetry,
        })
    }

    fn caches<'a>(&'a self, bounds: &'a Bounds) -> Met<'a> {
        Met {
            protocol: self.protocol,
            scenario: &self.scenario,
            bounds,
            repeated: self.repeated,
            proof: None,
            requests: &self.outcome.requests,
        }
    }
}
