//! How the requests of a probe went, in the order in which they were due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::probe_test::ProbeOutcome;
use crate::analysis::metrics;
use crate::config::scenario::Slo;
use crate::results::record::request::Request;

/// A request that ended, as far as a probe needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedRequest {
    index: u64,
    due_ns: u64,
    end_ns: u64,
    /// The largest share of a limit of the SLO that it used, counted from when it was due.
    severity: f64,
    /// Whether the client cancelled it as planned, so that it is not judged.
    is_cancelled: bool,
}

impl EndedRequest {
    pub(crate) fn new(request: &Request, slo: &Slo) -> Self {
        Self {
            index: u64::from(request.index),
            due_ns: request.due_ns,
            end_ns: request.end_ns,
            severity: metrics::slo_severity(request, slo),
            is_cancelled: request.cancelled,
        }
    }

    /// Whether it met the SLO.
    pub(crate) fn is_good(&self) -> bool {
        self.severity <= 1.0
    }
}

/// Returns the outcomes of requests in the order in which they were due. Failed requests are misses; requests that the
/// client cancelled as planned are not judged. In a closed loop, where the end of a request starts the next one, as many
/// are in flight all the time.
pub(crate) fn outcomes(requests: impl Iterator<Item = EndedRequest>, is_closed: bool) -> Vec<ProbeOutcome> {
    let mut judged: Vec<EndedRequest> = requests.filter(|request| !request.is_cancelled).collect();
    judged.sort_by_key(|request| (request.due_ns, request.index));
    let mut ends = BinaryHeap::new();
    judged
        .into_iter()
        .map(|request| {
            while ends.peek().is_some_and(|Reverse(end)| *end <= request.due_ns) {
                ends.pop();
            }
            let in_flight = if is_closed { 0.0 } else { ends.len() as f64 };
            ends.push(Reverse(request.end_ns));
            ProbeOutcome {
                severity: request.severity,
                in_flight,
            }
        })
        .collect()
}
