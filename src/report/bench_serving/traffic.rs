//! How requests arrived, in the words of bench_serving's reports.

use serde_json::{Value, json};

use crate::base::units::RequestRate;
use crate::config::arrival::Arrival;
use crate::config::scenario::Scenario;
use crate::report::bench_serving::python;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Traffic {
    Rate(RequestRate),
    /// At a rate that changes; the word for how.
    Changing(&'static str),
    /// At the moments of a trace.
    Trace,
}

impl Traffic {
    /// As a block shows it.
    pub(in crate::report) fn text(self) -> String {
        match self {
            Self::Rate(rate) => python::repr(rate.per_second()),
            Self::Changing(word) => word.to_owned(),
            Self::Trace => "trace".to_owned(),
        }
    }

    /// As strict JSON can say it.
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
    /// How the requests of a scenario arrived at this arrival, its own or the one that a search found.
    pub(crate) fn of(scenario: &Scenario, arrival: &Arrival) -> Self {
        match scenario.workload.is_replayed() {
            true => Self::Trace,
            false => Self::at(arrival),
        }
    }

    /// How requests arrive that no trace times.
    pub(crate) fn at(arrival: &Arrival) -> Self {
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
