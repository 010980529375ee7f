//! A ready engine, with the facts that its start has found.

use std::sync::Arc;
use std::time::Duration;

use crate::base::control_client::ControlClient;
use crate::base::secrets::Redactor;
use crate::engine::{self, CacheReset, Endpoint, RunningEngine};
use crate::loadgen::Target;
use crate::plan::CacheResetSpec;
use crate::results::record::cell::{EngineFacts, PhaseTime};
use crate::runner::environment::Environment;
use crate::runner::telemetry::Sampling;
use crate::telemetry::gpu::Gpus;

pub(crate) struct ReadyEngine {
    pub(crate) running: RunningEngine,
    /// The client for requests that do not belong to the load.
    pub(crate) control: ControlClient,
    /// The same for further servers: those that share the load, and those behind a router.
    pub(crate) other_controls: Vec<ControlClient>,
    pub(crate) target: Target,
    pub(crate) facts: EngineFacts,
    pub(crate) phases: Vec<PhaseTime>,
    /// Number of measurements so far on this start.
    pub(crate) measurement_count: u32,
    pub(crate) sampling: Sampling,
}

impl ReadyEngine {
    /// Creates the state of an attached server. Sends no request to it. Samples its host, and its GPUs if it
    /// runs on this host.
    pub(crate) async fn attached(
        target: Target,
        control: ControlClient,
        gpus: Option<Arc<Gpus>>,
        environment: &Environment,
    ) -> Self {
        let address = &target.address;
        let host = match address.host.contains(':') {
            true => format!("[{}]", address.host),
            false => address.host.clone(),
        };
        let (base_url, headers) = (control.base_url().to_owned(), control.headers().clone());
        let endpoint = Endpoint::new(host, address.port, base_url, headers).on_socket(address.socket.clone());
        Self {
            running: engine::running_at(endpoint, &Redactor::default()),
            sampling: Sampling::for_attached(address, gpus, environment).await,
            control,
            other_controls: Vec::new(),
            target,
            facts: EngineFacts::default(),
            phases: Vec::new(),
            measurement_count: 0,
        }
    }

    /// Resets the prefix cache of each server within a time limit; without `reset` no request is sent. Returns the
    /// first reset that failed, otherwise the last.
    pub(crate) async fn reset_caches(&self, reset: Option<&CacheResetSpec>, limit: Duration) -> CacheReset {
        let mut outcome = engine::reset_caches(reset, &self.control, limit).await;
        for control in &self.other_controls {
            if outcome.error.is_some() || outcome.proof.success == Some(false) {
                break;
            }
            outcome = engine::reset_caches(reset, control, limit).await;
        }
        outcome
    }
}
