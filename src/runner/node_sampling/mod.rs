//! Samples of the other nodes of an engine's job. On each of them `srun` starts a sampler, `matrix __sample` ([`mod@serve`]),
//! before the engine. It is a step of its own, so a driver that hangs on that node does not hold up the engine there.

mod serve;

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{self, STEP_VARIABLES};
use crate::plan::{Launch, SRUN};
use crate::results::record::telemetry::{DeviceId, NodeWindow};
use crate::runner::context::RunContext;
use crate::telemetry::gpu::GpuBaseline;
use crate::telemetry::node::{NodeTask, ToNode};
use crate::telemetry::sampler::node_link::NodeLink;

pub(crate) use serve::serve;

/// Subcommand that samples a node.
const SAMPLE: &str = "__sample";

/// Time for the scheduler to start a sampler, and for it to open the library of the GPUs, besides the time that GPUs get to become idle.
const START_TIMEOUT: Duration = Duration::from_secs(45);

/// Time for a node to start and end a step that does nothing.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// The sampler of one further node of a launch.
pub(super) struct NodeSampler {
    link: Arc<NodeLink>,
    /// Number of GPUs of the launch there.
    gpus: u32,
    ready_within: Duration,
}

impl Drop for NodeSampler {
    fn drop(&mut self) {
        self.link.close();
    }
}

/// Starts a sampler on each further node of a launch.
pub(super) fn start(run_context: &RunContext<'_>, launch: &Launch, start: u32) -> Vec<NodeSampler> {
    let host = run_context.host;
    let settle = launch.timeouts.stop.duration();
    let nodes = (1..launch.nodes()).filter_map(|node| Some((node, host.job_nodes.names.get(node as usize)?)));
    let samplers = nodes.map(|(node, name)| {
        let gpus = launch.gpus_on(node);
        let task = NodeTask {
            run: host.run.to_string(),
            start: engine::start_tag(&launch.id, start),
            gpus,
            rest_memory: run_context.plan.validity.rest_memory.0,
            settle,
        };
        let link = spawn(&host.matrix, name);
        link.send(&ToNode::Prepare(task));
        NodeSampler {
            link,
            gpus,
            ready_within: settle + START_TIMEOUT,
        }
    });
    samplers.collect()
}

fn spawn(matrix: &std::path::Path, node: &str) -> Arc<NodeLink> {
    let mut command = Command::new(SRUN[0]);
    command
        .args(&SRUN[1..])
        .arg("--unbuffered")
        .arg(format!("--nodelist={node}"))
        .arg(matrix)
        .arg(SAMPLE)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    for variable in STEP_VARIABLES {
        command.env_remove(variable);
    }
    let name = node.to_owned();
    match command.spawn() {
        Ok(mut srun) => {
            let requests = srun.stdin.take().expect("it was requested");
            let lines = srun.stdout.take().expect("it was requested");
            let errors = srun.stderr.take().expect("it was requested");
            NodeLink::start(name, Box::new(requests), lines, move || why_ended(srun, errors))
        }
        Err(error) => NodeLink::start(name, Box::new(io::sink()), io::empty(), move || {
            format!("the sampler of this node was not started: `srun`: {error}")
        }),
    }
}

/// Whether a node of the job still starts a step. A node that is gone is noticed by `srun` only after minutes.
pub(super) async fn responds(node: &str) -> bool {
    let mut command = tokio::process::Command::new(SRUN[0]);
    command
        .args(&SRUN[1..])
        .arg(format!("--nodelist={node}"))
        .arg("true")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    for variable in STEP_VARIABLES {
        command.env_remove(variable);
    }
    let ended = tokio::time::timeout(RESPONSE_TIMEOUT, command.status()).await;
    ended.is_ok_and(|status| status.is_ok_and(|status| status.success()))
}

/// Waits for the end of `srun` and says why it ended.
fn why_ended(mut srun: Child, mut errors: ChildStderr) -> String {
    let mut text = Vec::new();
    let _ = errors.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    let error = text.lines().map(str::trim).find(|line| line.contains("error"));
    match (error, srun.wait()) {
        (Some(error), _) => format!("its sampler ended: {error}"),
        (None, Ok(status)) => format!("its sampler ended ({status})"),
        (None, Err(error)) => {
            format!("the sampler of this node ended, and its exit status cannot be read: {error}")
        }
    }
}

impl NodeSampler {
    pub(super) const fn link(&self) -> &Arc<NodeLink> {
        &self.link
    }

    /// Waits until the state of its GPUs before the start is known, and returns which are not idle.
    pub(super) async fn wait_ready(&self) -> Vec<String> {
        let gpus = self.link.wait_ready(self.ready_within).await;
        let busy = gpus.into_iter().flat_map(|gpus| gpus.busy);
        busy.map(|reason| format!("{}: {reason}", self.link.node()))
            .collect()
    }

    /// The GPUs of the launch that can be read.
    pub(super) fn devices(&self) -> Vec<DeviceId> {
        let facts = self.link.gpus().unwrap_or_default().facts.into_iter();
        facts.map(|gpu| self.id(gpu.device)).collect()
    }

    /// The state of its GPUs before the start.
    pub(super) fn baselines(&self) -> Vec<(DeviceId, GpuBaseline)> {
        let baselines = self.link.gpus().unwrap_or_default().baselines.into_iter();
        baselines.map(|gpu| (self.id(gpu.device), gpu)).collect()
    }

    /// What is known about the node besides its samples.
    pub(super) fn window(&self) -> NodeWindow {
        let about = self.link.gpus();
        NodeWindow {
            node: self.link.node().to_owned(),
            gpus: self.gpus,
            machine: about.as_ref().map(|about| Box::new(about.machine.clone())),
            devices: about.unwrap_or_default().facts,
            host: None,
            trouble: self.link.trouble(),
        }
    }

    fn id(&self, device: u32) -> DeviceId {
        DeviceId {
            node: Some(self.link.node().to_owned()),
            device,
        }
    }
}
