//! Input of one start of a launch.

use std::sync::Arc;

use crate::plan::command::{self, StartValues};
use crate::plan::{Launch, Ports, Start};
use crate::runner::context::RunContext;
use crate::runner::lease::Lease;
use crate::runner::prefetch::ImagePrefetch;
use crate::runner::prompt_store::PromptStore;
use crate::runner::scheduling::ActivityLog;
use crate::runner::shutdown::Shutdown;

/// A launch with its GPUs and the measurements of one start.
#[derive(Clone, Copy)]
pub(crate) struct LaunchContext<'a> {
    pub(crate) run_context: &'a RunContext<'a>,
    pub(crate) launch: &'a Launch,
    pub(crate) start: &'a Start,
    pub(crate) lease: &'a Lease<'a>,
    pub(crate) prompt_store: &'a Arc<PromptStore>,
    pub(crate) activity: &'a ActivityLog,
    pub(crate) prefetch: &'a ImagePrefetch,
    pub(crate) shutdown: &'a Shutdown,
}

impl LaunchContext<'_> {
    /// The command line that `plan` prints.
    pub(super) fn planned_command(&self) -> String {
        let start_values = StartValues {
            folder: Some(&self.run_context.host.folder),
            ..StartValues::default()
        };
        command::command_line_with(self.launch, start_values).to_line()
    }

    /// The command line with port and GPUs of this start.
    pub(super) fn exact_command(&self, ports: &Ports) -> String {
        let devices = self.run_context.host.machine.device_names(self.lease.devices());
        let start_values = StartValues {
            folder: Some(&self.run_context.host.folder),
            port: Some(ports.endpoint),
            further_ports: Some(&ports.further),
            devices: Some(&devices),
        };
        command::command_line_with(self.launch, start_values).to_line()
    }
}
