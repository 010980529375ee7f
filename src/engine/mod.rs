//! Starts engines, waits for readiness, stops them, and removes orphans.
//!
//! Executors implement `executor::Launcher` (the start) and `executor::control::Executor` (exit, stop, processes). This
//! module does not measure, does not decide what to start, and knows no engine by name.

mod api;
mod attach;
mod cgroup;
mod context;
mod docker;
mod endpoint;
mod environment;
mod error;
mod executor;
mod flag_parser;
mod help_check;
mod labelled_output;
mod log;
mod not_ready;
mod orphans;
mod ownership;
mod packages;
mod port;
mod process;
mod process_group;
mod program;
mod readiness;
mod remote_process;
mod root_processes;
mod running;
mod shared_memory;
mod shim;
mod start;
mod start_progress;
mod start_record;
mod sweep_result;
mod tagged_process;
mod venv;

pub(crate) use api::{CacheReset, fetch_facts, reset_caches};
pub(crate) use api::{accept_length, check_model, is_path_missing};
pub(crate) use attach::running_at;
pub(crate) use attach::unmet_server;
pub(crate) use context::{HelpContext, JobNodes, Logs, StartContext};
pub use docker::DockerError;
pub(crate) use docker::{
    ContainerChecks, DaemonFacts, DockerEnv, Images, PullPolicy, UnremovedContainers, daemon_facts,
    prefetch_image, unmet_container_requirements as container_lacks,
};
pub(crate) use endpoint::{Devices, Endpoint};
pub(crate) use error::StartError;
pub(crate) use help_check::{FlagReport, UnknownFlag, build_facts, check_flags};
pub(crate) use not_ready::{NoToken, NotReady};
#[cfg(test)]
pub(crate) use orphans::find_owned_processes;
pub(crate) use orphans::{kill_own, sweep};
#[cfg(test)]
pub(crate) use ownership::Owner;
pub(crate) use ownership::start_tag;
pub use port::free_port;
pub(crate) use port::ports_for;
pub(crate) use readiness::{unhealthy_server, wait_until_ready};
pub(crate) use remote_process::STEP_VARIABLES;
pub(crate) use remote_process::serve::serve as serve_remote;
pub(crate) use root_processes::{Listener, is_local_host, listeners, port_holder, still_answers};
pub(crate) use running::{EngineExit, RunningEngine};
pub(crate) use shim::{exec, supervise};
pub(crate) use start::{describe_inherited, image_name, is_local, start, takes_port, unmet_host_requirement};
pub(crate) use start_progress::Progress;
pub(crate) use sweep_result::SweepResult;
pub(crate) use tagged_process::roots_of_start;
#[cfg(test)]
pub(crate) use venv::VenvError;

pub(crate) use crate::base::control_client::{client as http_client, proxied_client};

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
