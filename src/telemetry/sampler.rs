//! Reads probes periodically, each in its own thread and on its own schedule, and keeps the samples until
//! they are cut to a window. A probe that hangs delays nothing, and no code here runs on the load generator's
//! threads. Samples of other nodes of a job are read there, and arrive by a [`NodeLink`].

mod node_clock;
pub(crate) mod node_link;
mod track;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use crate::base::clock::{self, MonotonicTime};
use crate::results::record::telemetry::{Sample, SourceFacts};
use crate::telemetry::probe::{DeviceReading, Probe, ProbeFacts};
use crate::telemetry::sampler::node_link::NodeLink;
use crate::telemetry::sampler::track::Track;

/// How long `Drop` waits for probes that are being read.
const STOP_TIMEOUT: Duration = Duration::from_millis(250);

/// Interval of checks for an awaited reading.
const READING_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The probes and their samples.
#[derive(Default)]
pub struct Sampler {
    threads: Vec<Arc<Track>>,
    nodes: Vec<Arc<NodeLink>>,
    /// Gets the readings instead of the tracks.
    sink: Option<Sink>,
}

/// Takes the result of a reading: the position of its probe, the time, and the values.
pub(crate) type Sink = Arc<dyn Fn(usize, MonotonicTime, Result<Vec<DeviceReading>, String>) + Send + Sync>;

impl Sampler {
    /// Starts one thread for each probe.
    pub fn start(probes: Vec<Box<dyn Probe>>) -> Self {
        let mut sampler = Self::default();
        for probe in probes {
            sampler.add(probe);
        }
        sampler
    }

    /// Starts one thread for each probe. Keeps no samples, but passes each reading on.
    pub(crate) fn passing_on(probes: Vec<Box<dyn Probe>>, sink: Sink) -> Self {
        let mut sampler = Self::default();
        sampler.sink = Some(sink);
        for probe in probes {
            sampler.add(probe);
        }
        sampler
    }

    /// Adds the samples of another node of the job.
    pub(crate) fn add_node(&mut self, node: Arc<NodeLink>) {
        self.nodes.push(node);
    }

    pub(crate) fn add(&mut self, probe: Box<dyn Probe>) {
        let thread = Arc::new(Track::new(None, ProbeFacts::of(&*probe)));
        let name = match thread.device {
            Some(device) => format!("probe {} {device}", thread.source.name()),
            None => format!("probe {}", thread.source.name()),
        };
        let asking = Arc::clone(&thread);
        let sink = self.sink.clone().map(|sink| (self.threads.len(), sink));
        let spawned = thread::Builder::new()
            .name(name)
            .spawn(move || asking.run(probe, sink));
        if let Err(error) = spawned {
            thread.lock().last_error = Some(format!(
                "the thread of the telemetry probe could not be started: {error}"
            ));
        }
        self.threads.push(thread);
    }

    /// Reads every probe once outside its schedule and waits for the results, at most `limit`. At the start
    /// and the end of a window this gives samples directly before and after it.
    pub async fn sample_now(&self, limit: Duration) {
        self.sample_at_edge(limit, false).await;
    }

    /// Like [`Sampler::sample_now`], at the start of a window if `begins_window`.
    pub(crate) async fn sample_at_edge(&self, limit: Duration, begins_window: bool) {
        let deadline = clock::now().plus(limit);
        let requests: Vec<(&Arc<Track>, u64)> = self
            .threads
            .iter()
            .map(|thread| (thread, thread.request_read()))
            .collect();
        let is_open = |(thread, turn): &&(&Arc<Track>, u64)| {
            let state = thread.lock();
            state.reads_done < *turn && !state.has_ended && !state.is_hanging(clock::now())
        };
        let nodes: Vec<(&Arc<NodeLink>, u64)> = self
            .nodes
            .iter()
            .map(|node| (node, node.request_read(begins_window)))
            .collect();
        let waits_for_node = || {
            nodes
                .iter()
                .any(|(node, turn)| node.is_awaited(*turn, clock::now()))
        };
        while (requests.iter().any(|requests| is_open(&requests)) || waits_for_node())
            && clock::now() < deadline
        {
            tokio::time::sleep(READING_POLL_INTERVAL).await;
        }
    }

    /// Returns the samples from `from` on, and before it the last one with each value of a device, in order of time and
    /// in nanoseconds after `zero`. Also returns the availability of each source from `from` to `to`.
    pub fn samples_between(
        &self,
        zero: MonotonicTime,
        from: MonotonicTime,
        to: MonotonicTime,
    ) -> (Vec<Sample>, Vec<SourceFacts>) {
        let (mut samples, mut facts) = (Vec::new(), Vec::new());
        for thread in &self.threads {
            thread.samples_between((zero, from, to), &mut samples, &mut facts);
        }
        for node in &self.nodes {
            for track in node.tracks() {
                track.samples_between((zero, from, to), &mut samples, &mut facts);
            }
        }
        samples.sort_by(|one, two| {
            let key = |sample: &Sample| (sample.at_ns, sample.source, sample.device);
            key(one).cmp(&key(two)).then_with(|| one.node.cmp(&two.node))
        });
        (samples, facts)
    }

    /// Drops samples taken before a time.
    pub(crate) fn discard_before(&self, before: MonotonicTime) {
        let tracks = self.nodes.iter().flat_map(|node| node.tracks());
        for track in self.threads.iter().cloned().chain(tracks) {
            track.discard_before(before);
        }
    }
}

impl Drop for Sampler {
    /// Ends the reading. The thread of a hanging probe is left running and ends when the probe returns.
    fn drop(&mut self) {
        for thread in &self.threads {
            thread.lock().is_stopping = true;
            thread.changed.notify_all();
        }
        let deadline = clock::now().plus(STOP_TIMEOUT);
        for thread in &self.threads {
            let mut state = thread.lock();
            while !state.has_ended {
                let remaining = deadline.since(clock::now());
                if remaining.is_zero() {
                    break;
                }
                let waited = thread.changed.wait_timeout(state, remaining);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

/// Records that the thread has ended, on return and on panic.
struct EndGuard<'a>(&'a Track);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
        self.0.changed.notify_all();
    }
}

impl Track {
    /// Requests a reading that begins after now. Returns its number.
    fn request_read(&self) -> u64 {
        let mut state = self.lock();
        state.requested_read = state.reads_started + 1;
        self.changed.notify_all();
        state.requested_read
    }

    fn run(&self, mut probe: Box<dyn Probe>, sink: Option<(usize, Sink)>) {
        let _ended = EndGuard(self);
        let period = u64::try_from(self.period.as_nanos()).unwrap_or(u64::MAX);
        while let Some(is_requested) = self.wait_for_turn(period) {
            let began = clock::now();
            let result = catch_unwind(AssertUnwindSafe(|| match is_requested {
                true => probe.read_all(),
                false => probe.read(),
            }));
            let ended = clock::now();
            let at = began.plus(ended.since(began) / 2);
            let has_panicked = result.is_err();
            let panicked =
                |panic: Box<dyn Any + Send>| Err(format!("its probe panicked: {}", panic_text(&*panic)));
            let result = result.unwrap_or_else(panicked);
            let mut state = self.lock();
            state.reading_since = None;
            match &sink {
                Some((position, sink)) => sink(*position, at, result),
                None => state.store(at, result),
            }
            state.reads_done = state.reads_started;
            if has_panicked {
                return;
            }
        }
    }

    /// Waits for the next multiple of the period or for a request, and returns whether it was a request; `None` when the sampler
    /// ends. Multiples that passed during a reading are skipped.
    fn wait_for_turn(&self, period: u64) -> Option<bool> {
        let due = MonotonicTime::from_nanos((clock::now().as_nanos() / period + 1).saturating_mul(period));
        let mut state = self.lock();
        loop {
            let now = clock::now();
            if state.is_stopping {
                return None;
            }
            let is_requested = state.requested_read > state.reads_started;
            if now >= due || is_requested {
                state.reads_started += 1;
                state.reading_since = Some(now);
                return Some(is_requested);
            }
            let waited = self.changed.wait_timeout(state, due.since(now));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned())
}

#[cfg(test)]
mod tests;
