//! The first process of a container on this host. It can be observed and signalled while the daemon does not
//! answer.

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::base::proc;
use crate::engine::root_processes;

/// A container's first process, by its pid on this host. When it ends, the kernel ends all processes of the
/// container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FirstProcess {
    pid: u32,
    container: String,
}

impl FirstProcess {
    /// The process that the daemon reports; `None` if the pid is not that of the container's process on this
    /// host.
    pub(super) fn identify(container: &str, pid: Option<i64>) -> Option<Self> {
        let pid = u32::try_from(pid?).ok().filter(|pid| *pid > 0)?;
        let process = Self {
            pid,
            container: container.to_owned(),
        };
        process.is_alive().then_some(process)
    }

    pub(super) const fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the process runs. False if another process has taken over the pid.
    pub(super) fn is_alive(&self) -> bool {
        proc::by_id(self.pid).is_some_and(|process| !process.has_ended)
            && root_processes::is_of_container(self.pid, &self.container)
    }

    /// Sends a signal; succeeds if the process has ended.
    ///
    /// Fails without root's permission, which access to the daemon does not give.
    pub(super) fn signal(&self, signal: Signal) -> Result<(), Errno> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return Ok(());
        };
        // The pidfd pins the process, so that the pid cannot be reused between the check and the signal.
        let pinned = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pinned) => pinned,
            Err(Errno::SRCH) => return Ok(()),
            Err(error) => return Err(error),
        };
        if !self.is_alive() {
            return Ok(());
        }
        match rustix::process::pidfd_send_signal(&pinned, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_no_container_is_not_taken_for_one() {
        let own = i64::from(std::process::id());
        assert_eq!(FirstProcess::identify(&"f".repeat(64), Some(own)), None);
        assert_eq!(FirstProcess::identify("", Some(0)), None);
        assert_eq!(FirstProcess::identify("", None), None);
    }

    #[test]
    fn a_process_that_is_not_of_the_container_gets_no_signal() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let passed_on = FirstProcess {
            pid: child.id(),
            container: "f".repeat(64),
        };
        assert_eq!(passed_on.signal(Signal::KILL), Ok(()));
        assert!(child.try_wait().unwrap().is_none(), "it was not of the container");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
