//! The sampler of a node: body of the hidden subcommand `matrix __sample`. It reads messages from its standard input and
//! writes its readings to its standard output, until the input ends.

use std::io::{self, BufRead, Write};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tokio::sync::{mpsc as async_mpsc, oneshot};

use crate::base::clock::{self, MonotonicTime};
use crate::base::units::Bytes;
use crate::engine;
use crate::results::record::machine::Machine;
use crate::runner::environment::Environment;
use crate::runner::gpu_watch::GpuWatch;
use crate::runner::{gpu_idle, gpu_selection, gpu_watch};
use crate::telemetry::gpu::{DeviceProcesses, GpuSources, Gpus};
use crate::telemetry::host::EngineLocation;
use crate::telemetry::node::{FromNode, NodeGpus, NodeLine, NodeTask, ToNode};
use crate::telemetry::probe::ProbeFacts;
use crate::telemetry::sampler::{Sampler, Sink};
use crate::telemetry::{self, ProbeContext, machine};

/// Time over which lines are collected, so that one write sends several.
const COLLECTION_TIME: Duration = Duration::from_millis(50);

/// Timeout of a reading of all probes. A probe that hangs is given up earlier.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

type Requests = async_mpsc::UnboundedReceiver<ToNode>;
type Lines = mpsc::Sender<FromNode>;

/// Samples this node until the standard input ends.
pub(crate) fn serve(environment: &Environment) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (requests, ended) = read_requests()?;
    let lines = write_lines()?;
    let result = runtime.block_on(async {
        tokio::select! {
            _ = ended => Ok(()),
            result = sample(requests, lines, environment) => result,
        }
    });
    // A call to a driver may hang.
    runtime.shutdown_background();
    result
}

/// Reads messages in a thread of its own: a read cannot be cancelled. The second receiver hears when they end.
fn read_requests() -> io::Result<(Requests, oneshot::Receiver<()>)> {
    let (sender, requests) = async_mpsc::unbounded_channel();
    let (send_end, ended) = oneshot::channel::<()>();
    thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let lines = io::stdin().lock().lines().map_while(Result::ok);
        let messages = lines.map_while(|line| serde_json::from_slice(line.as_bytes()).ok());
        for message in messages {
            if sender.send(message).is_err() {
                break;
            }
        }
        let _ = send_end.send(());
    })?;
    Ok((requests, ended))
}

/// Writes messages in a thread of its own: the reader may be slow.
fn write_lines() -> io::Result<Lines> {
    let (sender, messages) = mpsc::channel();
    thread::Builder::new().name("stdout".to_owned()).spawn(move || {
        while let Ok(first) = messages.recv() {
            thread::sleep(COLLECTION_TIME);
            let mut text = Vec::new();
            let sent_ns = clock::now().as_nanos();
            for message in std::iter::once(first).chain(messages.try_iter()) {
                serde_json::to_writer(&mut text, &NodeLine { sent_ns, message }).expect("a message is JSON");
                text.push(b'\n');
            }
            let mut stdout = io::stdout().lock();
            if stdout.write_all(&text).and_then(|()| stdout.flush()).is_err() {
                return;
            }
        }
    })?;
    Ok(sender)
}

async fn sample(mut requests: Requests, lines: Lines, environment: &Environment) -> io::Result<()> {
    let Some(ToNode::Prepare(task)) = requests.recv().await else {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "standard input does not say what to sample; this command is not for users, because `matrix` starts it in jobs of a cluster",
        ));
    };
    let node = Node::prepare(task, &lines, environment).await;
    let mut watching: Option<Watching> = None;
    while let Some(request) = requests.recv().await {
        match (request, &watching) {
            (ToNode::Watch, _) => watching = Some(node.watch(&lines, environment)),
            (
                ToNode::Read {
                    number,
                    begins_window,
                },
                Some(watching),
            ) => {
                let done = node.read(watching, number, begins_window).await;
                let _ = lines.send(done);
            }
            (ToNode::Prepare(_) | ToNode::Read { .. }, _) => {}
        }
    }
    Ok(())
}

/// This node, with the GPUs of the engine.
struct Node {
    task: NodeTask,
    gpus: Option<Arc<Gpus>>,
    devices: Vec<u32>,
    about: NodeGpus,
}

/// The probes of this node, while the engine runs.
struct Watching {
    sampler: Sampler,
    watch: GpuWatch,
    window_began: std::cell::Cell<MonotonicTime>,
}

impl Node {
    /// Finds the GPUs, waits until they are idle, and says so.
    async fn prepare(task: NodeTask, lines: &Lines, environment: &Environment) -> Self {
        let mut node = Self {
            task,
            gpus: None,
            devices: Vec::new(),
            about: NodeGpus {
                machine: Machine {
                    node: environment.variable("SLURMD_NODENAME"),
                    ..machine::read(&environment.tool)
                },
                ..NodeGpus::default()
            },
        };
        if node.task.gpus > 0 {
            node.open(environment).await;
        }
        if let Some(gpus) = &node.gpus {
            let bound = Bytes(node.task.rest_memory);
            let (busy, baselines) =
                gpu_idle::settle(gpus, &node.devices, bound, node.task.settle, |_, _| {}).await;
            node.about.busy = busy;
            node.about.baselines = baselines;
        }
        let _ = lines.send(FromNode::Ready(Box::new(node.about.clone())));
        node
    }

    /// Opens the GPUs and selects those of the engine: the first ones that the scheduler gives the job on this node.
    async fn open(&mut self, environment: &Environment) {
        let sources = GpuSources {
            nvml: environment.nvml_library.clone(),
            path: environment.variable("PATH"),
        };
        let opened = tokio::task::spawn_blocking(move || Gpus::open(&sources)).await;
        let gpus = match opened.expect("opening does not panic") {
            Ok(Some(gpus)) => Arc::new(gpus),
            Ok(None) => return,
            Err(reason) => {
                self.about.trouble = Some(format!(
                    "no telemetry source reports the GPUs of this node: {reason}"
                ));
                return;
            }
        };
        gpus.describe(&mut self.about.machine);
        // If the variable names no GPU of this node, it has the names of another numbering, and all GPUs are the job's.
        let visible = gpu_selection::visible_gpus(&self.about.machine, environment);
        let visible = visible.unwrap_or_else(|_| gpus.facts().iter().map(|gpu| gpu.device).collect());
        self.devices = visible.into_iter().take(self.task.gpus as usize).collect();
        let own = gpus
            .facts()
            .iter()
            .filter(|gpu| self.devices.contains(&gpu.device));
        self.about.facts = own.cloned().collect();
        self.gpus = Some(gpus);
    }

    /// Begins to read the probes. The engine runs, so its processes can be recognized.
    fn watch(&self, lines: &Lines, environment: &Environment) -> Watching {
        let roots = engine::roots_of_start(&self.task.run, &self.task.start);
        let before = self.about.baselines.iter().flat_map(|gpu| &gpu.foreign);
        let before = before.map(|process| process.pid).collect();
        let watch = GpuWatch {
            baselines: self.about.baselines.clone(),
            processes: DeviceProcesses::new(roots.clone(), before),
        };
        let mut probes = telemetry::host_probes(ProbeContext {
            engine: match roots.is_empty() {
                true => EngineLocation::Unknown,
                false => EngineLocation::Local(roots),
            },
            near_cpus: self.about.machine.cpus_near(&self.devices),
            variable: environment.variable,
        });
        if let Some(gpus) = &self.gpus {
            probes.extend(gpus.probes(&self.devices, &watch.processes));
        }
        let facts = probes.iter().map(|probe| ProbeFacts::of(&**probe)).collect();
        let _ = lines.send(FromNode::Watching(facts));
        let lines = lines.clone();
        let sink: Sink = Arc::new(move |probe, at, result| {
            let _ = lines.send(FromNode::Reading {
                probe,
                at_ns: at.as_nanos(),
                result,
            });
        });
        Watching {
            sampler: Sampler::passing_on(probes, sink),
            watch,
            window_began: std::cell::Cell::new(clock::now()),
        }
    }

    /// Reads every probe at the start or the end of a window.
    async fn read(&self, watching: &Watching, number: u64, begins_window: bool) -> FromNode {
        if begins_window {
            watching.window_began.set(clock::now());
            watching.watch.processes.clear();
        }
        watching.sampler.sample_now(READ_TIMEOUT).await;
        let foreign = self.devices.iter();
        let foreign = foreign
            .map(|device| (*device, watching.watch.foreign(*device)))
            .collect();
        let buses: Vec<String> = self
            .about
            .facts
            .iter()
            .filter_map(|gpu| gpu.bus.clone())
            .collect();
        let kernel = match begins_window {
            true => Vec::new(),
            false => gpu_watch::kernel_faults(&buses, clock::now().since(watching.window_began.get())).await,
        };
        FromNode::Done {
            number,
            foreign,
            kernel,
        }
    }
}
