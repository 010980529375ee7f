//! Executor of processes on this host: runs the recipe's command in its own process group below the shim. An
//! engine may consist of several processes, some of them on other nodes of a job.

mod engine_process;
mod orders;

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all, select_all};

use self::engine_process::{EngineProcess, ProcessPlace};
use self::orders::{Output, spawn_orders};
use crate::base::clock;
use crate::base::ids::RunId;
use crate::engine::api;
use crate::engine::context::{Logs, StartContext};
use crate::engine::endpoint::{Devices, Endpoint, OtherServer};
use crate::engine::error::StartError;
use crate::engine::executor::control::ExitCause;
use crate::engine::executor::control::{AllowedListeners, Executor};
use crate::engine::labelled_output::{LabelledOutput, label};
use crate::engine::log::Log;
use crate::engine::ownership::OwnershipTags;
use crate::engine::port;
use crate::engine::process_group::ProcessGroup;
use crate::engine::remote_process;
use crate::engine::running::RunningEngine;
use crate::engine::start_record::StartRecord;
use crate::engine::venv::{self, PreparedVenv, VenvRequest};
use crate::plan::{Launch, Member, Ports, Process};
use crate::results::record::cell::FailureClass;
use crate::results::record::post_mortem::EngineExitStatus;

/// How long to wait for the end of the log after the process has ended. Descendants that still run keep the
/// pipe open.
const LOG_DRAIN_TIMEOUT: Duration = Duration::from_millis(300);

/// How long to wait until the log is complete after everything has ended.
const LOG_CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of processes that are named in a line.
const MAX_NAMED: usize = 8;

pub(super) struct ProcessEngine {
    /// At least one.
    processes: Vec<EngineProcess>,
    /// Position of the process that requests are sent to.
    endpoint: usize,
    /// The other processes that serve HTTP.
    others: Vec<OtherServer>,
    /// Those of the process that requests are sent to.
    tags: OwnershipTags,
    grace: Duration,
}

pub(super) async fn start(
    launch: &Launch,
    process: &Process,
    context: &StartContext,
    logs: Logs,
) -> Result<RunningEngine, StartError> {
    let headers = api::request_headers(launch, context)?;
    let tags = ownership_tags(launch, &context.run, context.start)?;
    let prepared_venv = match &process.venv {
        Some(spec) => Some(prepare_venv(launch, spec, context, &tags, logs.install).await?),
        None => None,
    };
    let venv = prepared_venv
        .as_ref()
        .map(|prepared_venv| prepared_venv.folder.as_path());
    let orders = spawn_orders(launch, process, context, venv, &tags)?;
    for port in [context.port].iter().chain(&context.further_ports) {
        if !port::is_free(*port) {
            return Err(StartError::PortTaken { port: *port });
        }
    }
    let started_at = clock::now();
    let (log, output) = follow_log(launch, context, logs.engine).map_err(|source| StartError::Spawn {
        program: orders[0].spec.program.display().to_string(),
        source,
    })?;
    // A failure drops, and thereby kills, the processes that were started before.
    let mut processes = Vec::new();
    for order in orders {
        let program = order.spec.program.display().to_string();
        let started = order.start(&output, launch, context).await;
        processes.push(started.map_err(|source| StartError::Spawn { program, source })?);
    }
    let members = launch.members();
    let endpoint = members.iter().position(|member| member.is_endpoint).unwrap_or(0);
    let server = |host: String, port: u16| {
        let base_url = format!("http://{host}:{port}");
        Endpoint::new(host, port, base_url, headers.clone())
    };
    let local = || "127.0.0.1".to_owned();
    Ok(RunningEngine {
        endpoint: server(local(), context.port),
        log,
        devices: Devices::Local(context.devices.clone()),
        started_at,
        executor: Box::new(ProcessEngine {
            processes,
            endpoint,
            others: other_servers(members, &context.ports(), |node, port| match node {
                0 => Some(server(local(), port)),
                node => Some(server(context.job_nodes.address(node)?, port)),
            }),
            tags: match members.get(endpoint) {
                Some(member) => tags.of_process(&member.name),
                None => tags,
            },
            grace: launch.timeouts.stop.duration(),
        }),
        shared_memory: None,
        shared_memory_events: None,
    })
}

/// The servers of the engine besides the one that requests are sent to. `server` returns that of a port of a node.
fn other_servers(
    members: &[Member],
    ports: &Ports,
    server: impl Fn(u32, u16) -> Option<Endpoint>,
) -> Vec<OtherServer> {
    let servers = members
        .iter()
        .enumerate()
        .filter(|(_, member)| !member.is_endpoint);
    let servers = servers.filter_map(|(index, member)| {
        Some(OtherServer {
            name: member.name.clone(),
            health: member.health.clone()?,
            endpoint: server(member.node, ports.http(members, index))?,
        })
    });
    servers.collect()
}

/// The log of the engine, and where its processes write.
fn follow_log(
    launch: &Launch,
    context: &StartContext,
    sink: crate::results::store::Log,
) -> std::io::Result<(Log, Output)> {
    let (reader, writer) = std::io::pipe()?;
    let log = Log::follow(reader, sink, launch.log_patterns.clone(), &context.redactor)?;
    let output = match launch.members().is_empty() {
        true => Output::Plain(writer),
        false => Output::Labelled(LabelledOutput::new(writer)),
    };
    Ok((log, output))
}

impl Executor for ProcessEngine {
    fn identity(&self) -> String {
        let shown = self.processes.iter().take(MAX_NAMED);
        let pids = shown.map(|process| match &process.place {
            ProcessPlace::Here(group) => group.pid().to_string(),
            ProcessPlace::Elsewhere(remote) => format!("{} of srun", remote.pid().unwrap_or_default()),
        });
        let pids = pids.collect::<Vec<_>>().join(", ");
        match self.processes.len().saturating_sub(MAX_NAMED) {
            0 => pids,
            rest => format!("{pids}, and {rest} more"),
        }
    }

    fn wait_for_exit<'a>(&'a mut self, log: &'a Log) -> BoxFuture<'a, ExitCause> {
        Box::pin(self.process_exit(log))
    }

    fn root_pids(&self, _endpoint: &Endpoint) -> Vec<u32> {
        self.groups().map(ProcessGroup::root_pid).collect()
    }

    fn has_several_processes(&self) -> bool {
        self.processes.len() > 1
    }

    fn has_exited(&mut self) -> bool {
        self.processes.iter_mut().any(EngineProcess::has_exited)
    }

    fn other_servers(&self) -> &[OtherServer] {
        &self.others
    }

    fn allowed_listeners(&self) -> AllowedListeners {
        AllowedListeners::Processes(Some(self.tags.clone()))
    }

    fn record(&self) -> Option<&StartRecord> {
        self.groups().next().map(ProcessGroup::record)
    }

    /// Each of several processes has a record of its own.
    fn records_processes(&self) -> bool {
        !self.has_several_processes()
    }

    fn record_each_process(&mut self) {
        if self.has_several_processes() {
            for process in &mut self.processes {
                process.record_processes();
            }
        }
    }

    fn set_record(&mut self, record: StartRecord) {
        let groups = self
            .processes
            .iter_mut()
            .filter_map(|process| match &mut process.place {
                ProcessPlace::Here(group) => Some(group),
                ProcessPlace::Elsewhere(_) => None,
            });
        if let Some(first) = groups.into_iter().next() {
            first.set_record(record);
        }
    }

    /// Returns the record only if no process of the engine is left.
    fn stop(mut self: Box<Self>, log: &Log) -> BoxFuture<'_, (String, Option<StartRecord>)> {
        Box::pin(async move {
            let grace = self.grace;
            let stops = self.processes.iter_mut().map(|process| process.stop(grace));
            let descriptions = join_all(stops).await;
            log.wait_closed(LOG_CLOSE_TIMEOUT).await;
            let is_gone = self.processes.iter().all(EngineProcess::is_gone);
            let record = self.record().filter(|_| is_gone).cloned();
            let ends = self.processes.iter().zip(descriptions);
            let ends = ends.map(|(process, description)| (process.name.clone(), description));
            (describe_ends(ends), record)
        })
    }
}

/// Describes the ends of processes, those that ended alike together.
fn describe_ends(ends: impl Iterator<Item = (Option<String>, String)>) -> String {
    let mut alike: Vec<(Vec<String>, String)> = Vec::new();
    for (name, description) in ends {
        match alike.iter_mut().find(|(_, other)| *other == description) {
            Some((names, _)) => names.extend(name),
            None => alike.push((name.into_iter().collect(), description)),
        }
    }
    let texts = alike.into_iter().map(|(names, description)| {
        let more = names.len().saturating_sub(MAX_NAMED);
        let named = names[..names.len() - more].join(", ");
        match (names.is_empty(), more) {
            (true, _) => description,
            (false, 0) => format!("{named}: {description}"),
            (false, more) => format!("{named}, and {more} other processes: {description}"),
        }
    });
    texts.collect::<Vec<_>>().join("; ")
}

impl ProcessEngine {
    /// The processes of this host.
    fn groups(&self) -> impl Iterator<Item = &ProcessGroup> {
        self.processes.iter().filter_map(|process| match &process.place {
            ProcessPlace::Here(group) => Some(&**group),
            ProcessPlace::Elsewhere(_) => None,
        })
    }

    /// Waits for the exit of a process, and up to [`LOG_DRAIN_TIMEOUT`] for the rest of the log.
    async fn process_exit(&mut self, log: &Log) -> ExitCause {
        let exits = self
            .processes
            .iter_mut()
            .map(|process| Box::pin(process.wait_for_exit()));
        let (status, index, others) = select_all(exits).await;
        drop(others);
        log.wait_closed(LOG_DRAIN_TIMEOUT).await;
        let process = &self.processes[index];
        let (reason, end) = match status {
            Ok(status) => {
                let end = EngineExitStatus {
                    code: status.code().map(i64::from),
                    signal: status.signal(),
                    // The exit status does not say who killed the process; the kernel's log may.
                    out_of_memory: None,
                };
                (status.to_string(), end)
            }
            Err(error) => (
                format!("the exit status cannot be read: {error}"),
                EngineExitStatus::default(),
            ),
        };
        let Some(name) = &process.name else {
            return ExitCause {
                description: format!("the engine ended ({reason})"),
                fatal_line: None,
                end,
                fault: None,
                tail: None,
            };
        };
        let lines = log.tail_of(&label(name));
        let host = match process.place {
            ProcessPlace::Here(_) => None,
            // The end of the process by a signal is an exit code of `srun`.
            ProcessPlace::Elsewhere(_) if end.signal.is_some() => {
                Some("another program killed `srun`, but not the process that `srun` started")
            }
            ProcessPlace::Elsewhere(_) => lines.iter().find_map(|line| remote_process::host_error(line)),
        };
        let cause = host.map_or_else(String::new, |error| format!(": {error}"));
        ExitCause {
            description: format!("the engine ended, because its process `{name}` ended ({reason}){cause}"),
            fatal_line: None,
            end,
            fault: host.map(|_| FailureClass::Infrastructure),
            tail: Some(lines).filter(|_| index != self.endpoint),
        }
    }
}

fn ownership_tags(launch: &Launch, run: &RunId, start: u32) -> Result<OwnershipTags, StartError> {
    Ok(OwnershipTags::new(run, &launch.id, start)?)
}

/// Creates or finds the Python environment of the process.
async fn prepare_venv(
    launch: &Launch,
    spec: &crate::plan::Venv,
    context: &StartContext,
    tags: &OwnershipTags,
    log: crate::results::store::Log,
) -> Result<PreparedVenv, StartError> {
    let path = match &spec.path {
        Some(path) => Some(context.folder.join(context.fill(None, path, "`venv:`")?)),
        None => None,
    };
    let make = VenvRequest {
        name: &venv::environment_name(launch),
        spec,
        path,
        cache_dir: &context.cache_dir,
        search_path: context.path.as_deref(),
        shim: context.shim_binary.as_deref(),
        redactor: &context.redactor,
        tags,
    };
    Ok(venv::prepare(&make, log).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_end_alike_are_named_together() {
        let end = |name: &str, description: &str| (Some(name.to_owned()), description.to_owned());
        let two = [
            end("prefill", "killed"),
            end("decode", "ended"),
            end("router", "killed"),
        ];
        assert_eq!(
            describe_ends(two.into_iter()),
            "prefill, router: killed; decode: ended"
        );
        assert_eq!(describe_ends([(None, "ended".to_owned())].into_iter()), "ended");
        let many = (1..=20).map(|number| end(&format!("d{number}"), "ended"));
        assert_eq!(
            describe_ends(many),
            "d1, d2, d3, d4, d5, d6, d7, d8, and 12 other processes: ended"
        );
    }
}
