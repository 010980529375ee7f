//! Launch to running engine: start, wait, stop, sweep.
//!
//! An executor implements `executor::Executor`: how to notice that an engine ended, how to stop it, and which processes are its own.
//! Nothing here measures, decides what to start, or knows an engine by name.

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
pub use api::{accept_length, check_model, lacks};
pub(crate) use attach::attached;
pub use attach::unreachable;
pub use context::{Asking, Context, Logs, Secrets};
pub use docker::{
    Images, Lack, Orphans, Pull, Refused, Remaining, Wanted, Whereabouts, lacks as container_lacks,
    pull_ahead,
};
pub use endpoint::{Devices, Endpoint};
pub use environment::described as environment_described;
pub use error::StartError;
pub use help_check::{Flags, UnknownFlag, check_flags};
pub use log::{Log, Omen};
pub use orphans::{Leftover, find, kill_own, sweep};
pub use ownership::Owner;
pub use port::free_port;
pub use readiness::{NoToken, NotReady, Readiness, ready};
pub use root_processes::{Listener, holder, is_here, listeners, still_answers};
pub use running::{Death, Running, Stopped};
pub use shim::{exec, supervise};
pub use start::{host_lacks, image, is_local, start, takes_port};
pub use start_progress::{Progress, Tell};
pub use sweep_result::Swept;
pub use venv::VenvError;

pub(crate) use crate::base::control_client::{client as http_client, proxied_client};

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
