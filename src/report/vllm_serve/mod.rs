//! What `vllm bench serve` prints and writes: its block and its result file.

mod block;
mod counters;
mod result_file;

pub(crate) use block::block;
pub(crate) use counters::{CounterGrowth, growth};
pub(crate) use result_file::{Description, default_name, result_object, text};

use serde_json::{Map, Value};

use crate::analysis::metrics::{GoodputTargets, VllmFigures, VllmTime};
use crate::config::arrival::Arrival;
use crate::report::bench_serving::python::repr;

/// The times in the order of the block: name in files, name in the block, title.
pub(crate) const TIMES: [(VllmTime, &str, &str, &str); 6] = [
    (VllmTime::Ttft, "ttft", "TTFT", "Time to First Token"),
    (
        VllmTime::Tpot,
        "tpot",
        "TPOT",
        "Time per Output Token (excl. 1st token)",
    ),
    (VllmTime::Itl, "itl", "ITL", "Inter-token Latency"),
    (VllmTime::E2el, "e2el", "E2EL", "End-to-end Latency"),
    (
        VllmTime::ClientQueue,
        "client_queue_time",
        "Client Queue Time",
        "Client-side Queueing",
    ),
    (
        VllmTime::E2elWithQueue,
        "e2el_including_client_queue",
        "E2EL incl. Client Queue",
        "Queue-inclusive End-to-end Latency",
    ),
];

/// A measured load with what was requested.
#[derive(Clone, Debug)]
pub(crate) struct VllmLoad<'a> {
    pub(crate) figures: &'a VllmFigures,
    /// Whether responses are text; otherwise they are embeddings.
    pub(crate) generates_text: bool,
    pub(crate) arrival: &'a Arrival,
    /// The names of the times whose statistics are printed.
    pub(crate) selected: &'a [String],
    pub(crate) percents: &'a [f64],
    pub(crate) goodput: Option<GoodputTargets>,
    pub(crate) counters: &'a CounterGrowth,
}

impl VllmLoad<'_> {
    /// The selected times that this load has.
    fn times(&self) -> impl Iterator<Item = (VllmTime, &'static str, &'static str, &'static str)> {
        let is_limited = self.arrival.concurrency.is_some();
        let has = move |time: VllmTime| match time {
            VllmTime::E2el => true,
            VllmTime::ClientQueue => is_limited,
            VllmTime::E2elWithQueue => is_limited && !self.arrival.rate.is_infinite(),
            _ => self.generates_text,
        };
        TIMES
            .into_iter()
            .filter(move |(time, name, ..)| has(*time) && self.selected.iter().any(|one| one == name))
    }
}

/// A percentage in the name of a percentile: `99` or `99.9`.
fn percent_name(percent: f64) -> String {
    match percent.fract() == 0.0 {
        true => format!("{percent:.0}"),
        false => repr(percent),
    }
}

/// Adds fields to an object.
fn insert(object: &mut Map<String, Value>, fields: impl IntoIterator<Item = (&'static str, Value)>) {
    object.extend(fields.into_iter().map(|(key, value)| (key.to_owned(), value)));
}
