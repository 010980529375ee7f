//! Inputs of the metrics besides the records.

use std::time::Duration;

use crate::config::scenario::Slo;
use crate::plan::{Cell, Launch, Protocol};
use crate::results::record::telemetry::{Energy, EngineWindow};

/// Inputs of the metrics besides the records.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MetricInputs {
    pub(crate) protocol: Protocol,
    /// Name of the backend in bench_serving.
    pub(crate) backend: String,
    /// Devices of the engine, or 0 if it has none.
    pub(crate) devices: u32,
    pub(crate) slo: Option<Slo>,
    /// From the start of the measurement until bench_serving would have stopped its clock, for `classic` and
    /// `current`. `None` if it was not measured; the last end of a request is then used.
    pub(crate) duration: Option<Duration>,
    /// Tokens accepted per step of speculative decoding, if the server reported it.
    pub(crate) accept_length: Option<f64>,
    pub(crate) energy: Option<Energy>,
    pub(crate) engine: Option<EngineWindow>,
}

impl MetricInputs {
    /// Returns the inputs for a cell of a plan.
    pub(crate) fn from_cell(launch: &Launch, cell: &Cell) -> Self {
        Self {
            protocol: launch.api.dialect.protocol,
            backend: launch.engine.backend.clone(),
            devices: launch.gpus().unwrap_or(0),
            slo: cell.scenario.slo.clone(),
            duration: None,
            accept_length: None,
            energy: None,
            engine: None,
        }
    }
}
