//! What a bench reports while it runs.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::base::clock::Moment;
use crate::base::control_client::ControlError;
use crate::config::search::Search;
use crate::loadgen::dataset::Extras;
use crate::loadgen::{Content, Item};
use crate::results::record::request::Request;
use crate::results::record::search::{Point, SearchRecord};
use crate::results::store::StoreError;
use crate::runner::bench::measurement::BenchMeasurement;
use crate::runner::bench::session::Session;
use crate::runner::session::observer::Notice;

/// Receives what happens in a bench, in order.
pub(crate) trait BenchObserver {
    fn event(&mut self, event: BenchEvent<'_>);

    /// Receives a load that was measured, with the point of a search that it is. Returns whether to go on.
    fn measured(&mut self, measurement: &BenchMeasurement, point: Option<JudgedPoint<'_>>) -> bool;
}

/// A point of a search after it was judged.
pub(crate) struct JudgedPoint<'a> {
    pub(crate) search: &'a Search,
    pub(crate) point: &'a Point,
    /// What the search has found so far, with this point.
    pub(crate) record: &'a SearchRecord,
    /// Whether it was the last point.
    pub(crate) is_last: bool,
    /// Whether a point has held so far.
    pub(crate) has_best: bool,
}

/// Something that happened in a bench.
pub(crate) enum BenchEvent<'a> {
    /// The server is polled until it is ready.
    Waiting {
        url: &'a str,
        limit: Duration,
    },
    /// The server became ready after so many seconds.
    Ready {
        seconds: f64,
    },
    /// The prompts are prepared.
    Prepared {
        session: &'a Session,
        server: ServerInfo,
    },
    Notice(&'a Notice),
    /// An arrival is measured next, after these.
    Arrival {
        /// Its place among the arrivals, from 0.
        place: usize,
        session: &'a Session,
        before: &'a [Session],
    },
    /// A point of a search is measured next.
    Point {
        number: usize,
        value: f64,
    },
    WarmUpBegan,
    WarmUpCompleted {
        duration: Duration,
    },
    /// A warm-up or a load ended; moments of its requests count from `zero`.
    Sent {
        session: &'a Session,
        items: &'a [Item],
        requests: &'a [Request],
        zero: Moment,
    },
    Profiler(ProfilerEvent<'a>),
    /// Records are not kept while the load runs.
    RecordsNotKept(&'a StoreError),
    /// So many records were not on disk before the load ended.
    RecordsMissed(u64),
    LoadBegan {
        requests: usize,
    },
    LoadProgress {
        ended: usize,
    },
    LoadEnded {
        ended: usize,
    },
}

/// What is known of the server before anything is measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerInfo {
    /// The model by the name that was given, or that the server gives it.
    pub(crate) model: String,
    /// Whether the server says that it is the simulated engine.
    pub(crate) is_simulated: bool,
}

/// Something that happened to a profiler. A worker that runs apart has a name.
pub(crate) enum ProfilerEvent<'a> {
    /// Workers run apart, and none was named.
    NoWorkers,
    Starting {
        url: String,
        /// The body without the fields that stand in both bodies.
        body: &'a Map<String, Value>,
    },
    Stopping,
    /// It was asked to start or to stop.
    Asked {
        to_start: bool,
        worker: Option<&'a str>,
        url: &'a str,
        error: Option<ControlError>,
    },
}

/// What a request asked for beside its prompt.
pub(crate) struct RequestDetails {
    pub(crate) lora: Option<Arc<str>>,
    /// How many images its prompt has, if it may have any.
    pub(crate) images: Option<usize>,
    pub(crate) extras: Option<Arc<Extras>>,
}

impl RequestDetails {
    /// Those of every request that items make, by the index of the request: a conversation is one item and a request for each of its rounds.
    pub(crate) fn of(items: &[Item]) -> Vec<Self> {
        let rounds = items
            .iter()
            .flat_map(|item| std::iter::repeat_n(item, item.rounds()));
        let details = rounds.map(|item| Self {
            lora: item.lora.clone(),
            images: match &item.content {
                Content::Pictures { images, .. } => Some(images.len()),
                _ => None,
            },
            extras: item.extras.clone(),
        });
        details.collect()
    }
}
