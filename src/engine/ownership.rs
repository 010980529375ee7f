//! Ownership tags: environment variables that identify processes of `matrix`. Descendants inherit them. Names
//! of programs are never used.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;

use procfs::process::Process;
use rustix::io::Errno;
use rustix::process::Pid;

use crate::base::ids::{LaunchId, RunId};
use crate::base::proc;

/// Variable with the run id.
pub(crate) const RUN_VARIABLE: &str = "MATRIX_RUN";
/// Variable with launch and start: `<launch>#<start>`.
pub(crate) const START_VARIABLE: &str = "MATRIX_START";
/// Variable with the owning `matrix` process.
pub(crate) const OWNER_VARIABLE: &str = "MATRIX_OWNER";

/// The `matrix` process that started something:
/// `<pid>:<start time in clock ticks>:<boot id>:<pid namespace>`.
///
/// A pid alone is reused; start time and boot id make it unique. Pids of another namespace (a container)
/// cannot be checked here, so such owners are never considered dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pid: i32,
    start_ticks: u64,
    boot_id: String,
    pid_namespace: String,
}

impl Owner {
    /// This process. Fails if `/proc` cannot be read.
    pub(crate) fn current() -> Result<Self, procfs::ProcError> {
        let stat = Process::myself()?.stat()?;
        Ok(Self {
            pid: stat.pid,
            start_ticks: stat.starttime,
            boot_id: boot_id(),
            pid_namespace: pid_namespace(),
        })
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, ':');
        Some(Self {
            pid: parts.next()?.parse().ok()?,
            start_ticks: parts.next()?.parse().ok()?,
            boot_id: parts.next()?.to_owned(),
            pid_namespace: parts.next()?.to_owned(),
        })
    }

    /// The owner as text that is valid in file names.
    pub(crate) fn file_name(&self) -> String {
        self.to_string()
            .replace(|letter: char| !letter.is_ascii_alphanumeric(), "-")
    }

    /// The owner whose [`Owner::file_name`] is a prefix of `name`, if it belongs to this boot and pid
    /// namespace.
    pub(crate) fn from_file_name(name: &str) -> Option<Self> {
        let mut parts = name.split('-');
        let owner = Self {
            pid: parts.next()?.parse().ok()?,
            start_ticks: parts.next()?.parse().ok()?,
            boot_id: boot_id(),
            pid_namespace: pid_namespace(),
        };
        name.starts_with(&owner.file_name()).then_some(owner)
    }

    /// Whether it belongs to this boot of this host.
    pub(crate) fn is_of_this_boot(&self) -> bool {
        self.boot_id == boot_id()
    }

    /// Whether its pid can be checked here: same boot and same pid namespace.
    pub(crate) fn is_in_this_namespace(&self) -> bool {
        self.is_of_this_boot() && self.pid_namespace == pid_namespace()
    }

    /// Whether the owner has certainly ended. A process missing in `/proc` is not enough, because `/proc` may
    /// hide processes of other users (`hidepid`, `ProtectProc=`); the kernel must report that the pid does
    /// not exist.
    pub(crate) fn is_dead(&self) -> bool {
        let boot = boot_id();
        if self.boot_id != boot {
            // Without a readable boot id nothing is certain.
            return !self.boot_id.is_empty() && !boot.is_empty();
        }
        let namespace = pid_namespace();
        if self.pid_namespace != namespace || namespace.is_empty() {
            return false;
        }
        let Some(pid) = (self.pid > 0).then(|| Pid::from_raw(self.pid)).flatten() else {
            return false;
        };
        if rustix::process::test_kill_process(pid) == Err(Errno::SRCH) {
            return true;
        }
        // Another process may have the pid now, which shows if `/proc` does not hide it.
        proc::by_id(self.pid.unsigned_abs())
            .is_some_and(|process| process.start_ticks != self.start_ticks || process.has_ended)
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}:{}:{}:{}",
            self.pid, self.start_ticks, self.boot_id, self.pid_namespace
        )
    }
}

fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

fn pid_namespace() -> String {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.to_string_lossy().replace("pid:", "")
}

/// The tag of a start; each of several processes of an engine has its name after it.
pub(crate) fn start_tag(launch: &LaunchId, start: u32) -> String {
    format!("{launch}#{start}")
}

/// Ownership tags of one start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnershipTags {
    pub(crate) run: String,
    pub(crate) start: String,
    pub(crate) owner: Owner,
}

impl OwnershipTags {
    pub(crate) fn new(run: &RunId, launch: &LaunchId, start: u32) -> Result<Self, procfs::ProcError> {
        Ok(Self {
            run: run.to_string(),
            start: start_tag(launch, start),
            owner: Owner::current()?,
        })
    }

    /// The tags of one process of several.
    pub(crate) fn of_process(&self, name: &str) -> Self {
        Self {
            start: format!("{} {name}", self.start),
            ..self.clone()
        }
    }

    pub(crate) fn variables(&self) -> [(&'static str, String); 3] {
        [
            (RUN_VARIABLE, self.run.clone()),
            (START_VARIABLE, self.start.clone()),
            (OWNER_VARIABLE, self.owner.to_string()),
        ]
    }

    /// Whether they are those of a start, or of one of its processes.
    pub(super) fn is_of_start(&self, run: &str, start: &str) -> bool {
        let rest = self.start.strip_prefix(start);
        self.run == run && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    }

    pub(super) fn from_environment(environ: &HashMap<OsString, OsString>) -> Option<Self> {
        let text = |name: &str| {
            environ
                .get(&OsString::from(name))
                .map(|value| value.to_string_lossy().into_owned())
        };
        Some(Self {
            run: text(RUN_VARIABLE)?,
            start: text(START_VARIABLE)?,
            owner: Owner::parse(&text(OWNER_VARIABLE)?)?,
        })
    }
}

/// The ownership tags of a process; `None` if it has none or its environment cannot be read.
pub(crate) fn tags_of_process(pid: u32) -> Option<OwnershipTags> {
    OwnershipTags::from_environment(&proc::open(pid)?.environ().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_reads_what_it_writes_and_is_alive() {
        let owner = Owner::current().unwrap();
        assert_eq!(Owner::parse(&owner.to_string()), Some(owner.clone()));
        let name = format!("{}-7.json", owner.file_name());
        assert_eq!(Owner::from_file_name(&name), Some(owner.clone()));
        assert!(!owner.is_dead());
    }

    #[test]
    fn an_owner_is_dead_when_its_id_passed_on_or_the_machine_restarted() {
        let owner = Owner::current().unwrap();
        let passed_on = Owner {
            start_ticks: owner.start_ticks + 1,
            ..owner.clone()
        };
        let restarted = Owner {
            boot_id: "another".into(),
            ..owner.clone()
        };
        assert!(passed_on.is_dead() && restarted.is_dead());
        assert_eq!(Owner::from_file_name(&restarted.file_name()), None);
        let elsewhere = Owner {
            pid_namespace: "[1]".into(),
            pid: i32::MAX,
            ..owner
        };
        assert!(!elsewhere.is_dead(), "ids of another namespace mean nothing here");
    }

    #[test]
    fn an_owner_is_dead_when_there_is_no_such_process() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let owner = Owner {
            pid: i32::try_from(child.id()).unwrap(),
            start_ticks: proc::by_id(child.id()).unwrap().start_ticks,
            ..Owner::current().unwrap()
        };
        child.wait().unwrap();
        assert!(owner.is_dead());
    }

    #[test]
    fn an_owner_of_which_nothing_can_be_known_is_not_dead() {
        let owner = Owner::current().unwrap();
        for pid in [-1, 0] {
            let broken = Owner { pid, ..owner.clone() };
            assert!(!broken.is_dead(), "{pid} is no process");
        }
        let unread = Owner {
            boot_id: String::new(),
            pid: i32::MAX,
            ..owner
        };
        assert!(!unread.is_dead(), "its boot is not known");
    }
}
