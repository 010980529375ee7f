//! How requests arrived, in the words of bench_serving's reports.

use serde_json::{Value, json};

use super::python;
use crate::base::units::RequestRate;
use crate::matrix::spec::scenario::Scenario;
use crate::matrix::spec::workload::Dataset;

/// How requests arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Traffic {
    /// At a rate.
    Rate(RequestRate),
    /// At the moments of a trace.
    Trace,
}

impl Traffic {
    /// As a block shows it.
    pub(super) fn text(self) -> String {
        match self {
            Self::Rate(rate) => python::repr(rate.per_second()),
            Self::Trace => "trace".to_owned(),
        }
    }

    /// As strict JSON can say it.
    pub(super) fn json(self) -> Value {
        match self {
            Self::Rate(rate) if rate.is_infinite() => json!("inf"),
            Self::Rate(rate) => json!(rate.per_second()),
            Self::Trace => json!("trace"),
        }
    }
}

impl Traffic {
    /// How the requests of a scenario arrive.
    pub fn of(scenario: &Scenario) -> Self {
        match scenario.workload.dataset {
            Dataset::Mooncake => Self::Trace,
            _ => Self::Rate(scenario.arrival.rate),
        }
    }
}

impl From<RequestRate> for Traffic {
    fn from(rate: RequestRate) -> Self {
        Self::Rate(rate)
    }
}
