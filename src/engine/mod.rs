//! Starts engines, waits for readiness, stops them, and removes orphans.
//!
//! Executors implement `executor::Executor`: detecting the exit, stopping, and finding the processes. This
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
mod help_check;
mod log;
mod orphans;
mod ownership;
mod port;
mod process;
mod process_group;
mod program;
mod readiness;
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

pub(crate) use api::{CacheReset, facts, reset_caches};
pub(crate) use api::{accept_length, check_model, lacks};
pub(crate) use attach::attached;
pub(crate) use attach::unreachable;
pub(crate) use context::{Asking, Context, Logs};
pub use docker::Refused;
pub(crate) use docker::{Images, Orphans, Pull, Wanted, Whereabouts, lacks as container_lacks, pull_ahead};
pub(crate) use endpoint::{Devices, Endpoint};
pub(crate) use environment::described as environment_described;
pub(crate) use error::StartError;
pub(crate) use help_check::{UnknownFlag, check_flags};
#[cfg(test)]
pub(crate) use orphans::find;
pub(crate) use orphans::{kill_own, sweep};
#[cfg(test)]
pub(crate) use ownership::Owner;
pub use port::free_port;
pub(crate) use readiness::{NoToken, NotReady, ready};
pub(crate) use root_processes::{Listener, holder, is_here, listeners, still_answers};
pub(crate) use running::{Death, Running};
pub(crate) use shim::{exec, supervise};
pub(crate) use start::{host_lacks, image, is_local, start, takes_port};
pub(crate) use start_progress::Progress;
pub(crate) use sweep_result::Swept;
#[cfg(test)]
pub(crate) use venv::VenvError;

pub(crate) use crate::base::control_client::{client as http_client, proxied_client};

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
