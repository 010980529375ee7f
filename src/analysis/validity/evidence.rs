//! What a measurement is judged by.

use super::responses::input::Responses;
use crate::analysis::metrics::{self, Metric};
use crate::config::validity::ValidityBounds;
use crate::plan::{Cell, Launch};
use crate::results::record::cell::{Definitions, MeasurementSummary, Origin};
use crate::results::record::machine::Machine;
use crate::results::record::request::Request;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence<'a> {
    pub(crate) launch: &'a Launch,
    pub(crate) cell: &'a Cell,
    pub(crate) summary: &'a MeasurementSummary,
    pub(crate) requests: &'a [Request],
    /// The machine, where it is known.
    pub(crate) machine: Option<&'a Machine>,
    /// From where on it is doubted.
    pub(crate) bounds: &'a ValidityBounds,
}

impl Evidence<'_> {
    pub(crate) fn metric_value(&self, metric: Metric) -> Option<f64> {
        metrics::metric_value(self.summary.figures.get(&Definitions::Matrix)?, metric)
    }

    /// The responses of a server that knows its model by these names.
    pub(crate) fn responses<'a>(&'a self, names: &'a [&'a str]) -> Responses<'a> {
        Responses {
            requests: self.requests,
            scenario: &self.cell.scenario,
            names,
            listed: &self.summary.engine.models,
            protocol: self.launch.api.dialect.protocol,
            is_simulated: self.summary.origin == Origin::Simulated,
            bounds: self.bounds,
        }
    }

    pub(crate) fn completed_requests(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().filter(|request| request.is_completed())
    }
}
