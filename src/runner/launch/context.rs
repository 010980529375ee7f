//! Input of one start of a launch.

use std::sync::Arc;

use crate::plan::command::{self, Given};
use crate::plan::{Launch, Start};
use crate::runner::context::Job;
use crate::runner::lease::Lease;
use crate::runner::prefetch::Ahead;
use crate::runner::prompt_store::PromptStore;
use crate::runner::scheduling::Roster;
use crate::runner::shutdown::Stop;

/// A launch with its GPUs and the measurements of one start.
#[derive(Clone, Copy)]
pub(crate) struct LaunchContext<'a> {
    pub(crate) job: &'a Job<'a>,
    pub(crate) launch: &'a Launch,
    pub(crate) start: &'a Start,
    pub(crate) lease: &'a Lease<'a>,
    pub(crate) prompt_store: &'a Arc<PromptStore>,
    pub(crate) roster: &'a Roster,
    pub(crate) ahead: &'a Ahead,
    pub(crate) stop: &'a Stop,
}

impl LaunchContext<'_> {
    /// The command line that `plan` prints.
    pub(super) fn planned(&self) -> String {
        let given = Given {
            folder: Some(&self.job.host.folder),
            ..Given::default()
        };
        command::line_of(self.launch, given).joined()
    }

    /// The command line with port and GPUs of this start.
    pub(super) fn exact(&self, port: u16) -> String {
        let devices = self.job.host.machine.device_names(self.lease.devices());
        let given = Given {
            folder: Some(&self.job.host.folder),
            port: Some(port),
            devices: Some(&devices),
        };
        command::line_of(self.launch, given).joined()
    }
}
