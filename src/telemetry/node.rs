//! What this process and the sampler of another node of the job tell each other: a line of JSON for each message.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::results::record::machine::Machine;
use crate::results::record::telemetry::{Gpu, GpuProcess};
use crate::telemetry::gpu::GpuBaseline;
use crate::telemetry::probe::{DeviceReading, ProbeFacts};

/// A message to the sampler of a node. It ends when its standard input ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ToNode {
    /// The first message: an engine will be started.
    Prepare(NodeTask),
    /// The engine is ready; read the probes from now on.
    Watch,
    /// Read every probe now, and answer with [`FromNode::Done`].
    Read { number: u64, begins_window: bool },
}

/// What the sampler of a node has to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeTask {
    /// Run and start, by which the processes of the engine are recognized.
    pub(crate) run: String,
    pub(crate) start: String,
    /// Number of GPUs of the engine on the node.
    pub(crate) gpus: u32,
    /// Memory in bytes that an idle GPU may hold.
    pub(crate) rest_memory: u64,
    /// How long GPUs get to become idle.
    pub(crate) settle: Duration,
}

/// A line of the sampler of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeLine {
    /// When it was sent, in nanoseconds of the sender's monotonic clock.
    pub(crate) sent_ns: u64,
    pub(crate) message: FromNode,
}

/// A message of the sampler of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FromNode {
    /// The engine may be started.
    Ready(Box<NodeGpus>),
    /// The probes that are read from now on.
    Watching(Vec<ProbeFacts>),
    /// The result of a reading.
    Reading {
        /// Position of the probe in [`FromNode::Watching`].
        probe: usize,
        /// Middle of the reading, in nanoseconds of the sender's clock.
        at_ns: u64,
        result: Result<Vec<DeviceReading>, String>,
    },
    /// Every probe was read that answers.
    Done {
        number: u64,
        /// Processes on each GPU that do not belong to the engine.
        foreign: Vec<(u32, Vec<GpuProcess>)>,
        /// Messages of the kernel log about faults of these GPUs since the window began.
        kernel: Vec<String>,
    },
}

/// A node and the GPUs of the engine on it, before its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeGpus {
    /// The node itself.
    pub(crate) machine: Machine,
    pub(crate) facts: Vec<Gpu>,
    pub(crate) baselines: Vec<GpuBaseline>,
    /// Which of them are not idle.
    pub(crate) busy: Vec<String>,
    /// Why they cannot be read.
    pub(crate) trouble: Option<String>,
}
