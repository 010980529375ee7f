//! The arrival of requests, in the words of bench_serving's reports.

use serde_json::{Value, json};

use crate::base::units::RequestRate;
use crate::config::arrival::Arrival;
use crate::config::scenario::Scenario;
use crate::report::bench_serving::python;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Traffic {
    Rate(RequestRate),
    /// A ramp or stages; the word names which.
    Changing(&'static str),
    /// At the times of a trace.
    Trace,
}

impl Traffic {
    /// The text in a block.
    pub(in crate::report) fn text(self) -> String {
        match self {
            Self::Rate(rate) => python::repr(rate.per_second()),
            Self::Changing(word) => word.to_owned(),
            Self::Trace => "trace".to_owned(),
        }
    }

    /// The value in strict JSON.
    pub(in crate::report) fn json(self) -> Value {
        match self {
            Self::Rate(rate) if rate.is_infinite() => json!("inf"),
            Self::Rate(rate) => json!(rate.per_second()),
            Self::Changing(word) => json!(word),
            Self::Trace => json!("trace"),
        }
    }
}

impl Traffic {
    /// The traffic of a scenario at `arrival`, which is its own or the one that a search found.
    pub(crate) fn from_scenario(scenario: &Scenario, arrival: &Arrival) -> Self {
        match scenario.workload.is_replayed() {
            true => Self::Trace,
            false => Self::from_arrival(arrival),
        }
    }

    /// The traffic of an arrival that replays no trace.
    pub(crate) fn from_arrival(arrival: &Arrival) -> Self {
        match &arrival.pace {
            Some(pace) => Self::Changing(pace.name()),
            None => Self::Rate(arrival.rate),
        }
    }
}

impl From<RequestRate> for Traffic {
    fn from(rate: RequestRate) -> Self {
        Self::Rate(rate)
    }
}
