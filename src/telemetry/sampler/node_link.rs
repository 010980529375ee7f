//! Receives the readings of another node of the job, whose sampler `matrix __sample` runs there.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::base::clock::{self, MonotonicTime};
use crate::results::record::telemetry::GpuProcess;
use crate::telemetry::node::{FromNode, NodeGpus, NodeLine, ToNode};
use crate::telemetry::sampler::node_clock::NodeClock;
use crate::telemetry::sampler::track::{HANG_AFTER, Track};

/// Interval of checks for an awaited message.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The sampler of another node, as seen from this one.
pub(crate) struct NodeLink {
    node: String,
    state: Mutex<LinkState>,
}

#[derive(Default)]
struct LinkState {
    /// The sampler ends when this is closed.
    requests: Option<Box<dyn Write + Send>>,
    gpus: Option<NodeGpus>,
    tracks: Vec<Arc<Track>>,
    clock: NodeClock,
    /// Numbers of the latest reading that was requested, and that is done.
    requested: u64,
    done: u64,
    foreign: BTreeMap<u32, Vec<GpuProcess>>,
    kernel: Vec<String>,
    last_line_at: MonotonicTime,
    /// Why no further line comes.
    ended: Option<String>,
}

impl NodeLink {
    /// Begins to receive in a thread. `why_ended` says why the lines ended.
    pub(crate) fn start(
        node: String,
        requests: Box<dyn Write + Send>,
        lines: impl Read + Send + 'static,
        why_ended: impl FnOnce() -> String + Send + 'static,
    ) -> Arc<Self> {
        let link = Arc::new(Self {
            node,
            state: Mutex::new(LinkState {
                requests: Some(requests),
                last_line_at: clock::now(),
                ..LinkState::default()
            }),
        });
        let receiver = Arc::clone(&link);
        let spawned = thread::Builder::new()
            .name(format!("node {}", link.node))
            .spawn(move || {
                let problem = receiver.receive(lines);
                let reason = problem.unwrap_or_else(why_ended);
                let mut state = receiver.lock();
                state.requests = None;
                state.ended = Some(reason);
            });
        if let Err(error) = spawned {
            link.lock().ended = Some(format!(
                "the thread that receives telemetry of the node could not be started: {error}"
            ));
        }
        link
    }

    /// The name of the node.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// Sends a message. If the sampler has ended, its end says why.
    pub(crate) fn send(&self, message: &ToNode) {
        let mut state = self.lock();
        if let Some(requests) = &mut state.requests {
            let mut line = serde_json::to_vec(message).expect("a message is JSON");
            line.push(b'\n');
            let _ = requests.write_all(&line).and_then(|()| requests.flush());
        }
    }

    /// The engine is ready: has the sampler read its probes from now on.
    pub(crate) fn watch(&self) {
        self.lock().last_line_at = clock::now();
        self.send(&ToNode::Watch);
    }

    /// Has the sampler end.
    pub(crate) fn close(&self) {
        self.lock().requests = None;
    }

    /// Waits for the state of the GPUs before the start; `None` if it does not come within `limit`.
    pub(crate) async fn wait_ready(&self, limit: Duration) -> Option<NodeGpus> {
        let deadline = clock::now().plus(limit);
        loop {
            {
                let state = self.lock();
                if state.gpus.is_some() || state.ended.is_some() || clock::now() >= deadline {
                    return state.gpus.clone();
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// The state of the GPUs before the start, if it is known.
    pub(crate) fn gpus(&self) -> Option<NodeGpus> {
        self.lock().gpus.clone()
    }

    /// Requests a reading of all probes that begins after now. Returns its number.
    pub(super) fn request_read(&self, begins_window: bool) -> u64 {
        let number = {
            let mut state = self.lock();
            state.requested += 1;
            state.requested
        };
        self.send(&ToNode::Read {
            number,
            begins_window,
        });
        number
    }

    /// Whether a reading is not done yet, and may still be.
    pub(super) fn is_awaited(&self, number: u64, now: MonotonicTime) -> bool {
        let state = self.lock();
        state.done < number && state.ended.is_none() && !state.is_silent(now)
    }

    pub(super) fn tracks(&self) -> Vec<Arc<Track>> {
        self.lock().tracks.clone()
    }

    /// Processes on a GPU in the latest window that do not belong to the engine.
    pub(crate) fn foreign(&self, device: u32) -> Vec<GpuProcess> {
        self.lock().foreign.get(&device).cloned().unwrap_or_default()
    }

    /// Messages of the node's kernel about faults of the GPUs in the latest window.
    pub(crate) fn kernel(&self) -> Vec<String> {
        self.lock().kernel.clone()
    }

    /// Why the samples of the node are missing or incomplete.
    pub(crate) fn trouble(&self) -> Option<String> {
        let state = self.lock();
        if let Some(reason) = &state.ended {
            return Some(reason.clone());
        }
        let now = clock::now();
        if state.is_silent(now) {
            let silent = now.since(state.last_line_at).as_secs_f64();
            return Some(format!(
                "the telemetry sampler of the node did not respond for {silent:.1} s"
            ));
        }
        state.gpus.as_ref().and_then(|gpus| gpus.trouble.clone())
    }

    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives lines until they end. Returns what is wrong with a line.
    fn receive(&self, lines: impl Read) -> Option<String> {
        for line in BufReader::new(lines).lines() {
            let arrived = clock::now();
            let line = line.ok()?;
            let Ok(line) = serde_json::from_str::<NodeLine>(&line) else {
                return Some(format!(
                    "the telemetry sampler of the node wrote an unknown message: {line}"
                ));
            };
            self.lock().take(&self.node, line, arrived);
        }
        None
    }
}

impl LinkState {
    /// Once probes are read, lines come twice a second.
    fn is_silent(&self, now: MonotonicTime) -> bool {
        now.since(self.last_line_at) > HANG_AFTER
    }

    fn take(&mut self, node: &str, line: NodeLine, arrived: MonotonicTime) {
        self.last_line_at = arrived;
        self.clock.observe(line.sent_ns, arrived);
        match line.message {
            FromNode::Ready(gpus) => self.gpus = Some(*gpus),
            FromNode::Watching(probes) => {
                let track = |facts| Arc::new(Track::new(Some(node.to_owned()), facts));
                self.tracks = probes.into_iter().map(track).collect();
                for track in &self.tracks {
                    track.expect_reading(arrived);
                }
            }
            FromNode::Reading { probe, at_ns, result } => {
                let Some(track) = self.tracks.get(probe) else {
                    return;
                };
                track.lock().store(self.clock.convert(at_ns), result);
                track.expect_reading(arrived);
            }
            FromNode::Done {
                number,
                foreign,
                kernel,
            } => {
                self.done = self.done.max(number);
                self.foreign = foreign.into_iter().collect();
                self.kernel = kernel;
            }
        }
    }
}

#[cfg(test)]
mod tests;
