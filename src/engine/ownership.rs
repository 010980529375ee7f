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
pub(crate) const RUN: &str = "MATRIX_RUN";
/// Variable with launch and start: `<launch>#<start>`.
pub(crate) const START: &str = "MATRIX_START";
/// Variable with the owning `matrix` process.
pub(crate) const OWNER: &str = "MATRIX_OWNER";

/// The `matrix` process that started something:
/// `<pid>:<start time in clock ticks>:<boot id>:<pid namespace>`.
///
/// A pid alone is reused; start time and boot id make it unique. Pids of another namespace (a container)
/// cannot be checked here, so such owners are never considered dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pid: i32,
    started: u64,
    boot: String,
    namespace: String,
}

impl Owner {
    /// This process. Fails if `/proc` cannot be read.
    pub(crate) fn this() -> Result<Self, procfs::ProcError> {
        let stat = Process::myself()?.stat()?;
        Ok(Self {
            pid: stat.pid,
            started: stat.starttime,
            boot: boot(),
            namespace: namespace(),
        })
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, ':');
        Some(Self {
            pid: parts.next()?.parse().ok()?,
            started: parts.next()?.parse().ok()?,
            boot: parts.next()?.to_owned(),
            namespace: parts.next()?.to_owned(),
        })
    }

    /// The owner as text that is valid in file names.
    pub(crate) fn file_name(&self) -> String {
        self.to_string()
            .replace(|letter: char| !letter.is_ascii_alphanumeric(), "-")
    }

    /// The owner whose [`Owner::file_name`] is a prefix of `name`, if it belongs to this boot and pid
    /// namespace.
    pub(crate) fn of_file_name(name: &str) -> Option<Self> {
        let mut parts = name.split('-');
        let owner = Self {
            pid: parts.next()?.parse().ok()?,
            started: parts.next()?.parse().ok()?,
            boot: boot(),
            namespace: namespace(),
        };
        name.starts_with(&owner.file_name()).then_some(owner)
    }

    /// Whether it belongs to this boot of this host.
    pub(crate) fn is_of_this_boot(&self) -> bool {
        self.boot == boot()
    }

    /// Whether its pid can be checked here: same boot and same pid namespace.
    pub(crate) fn is_seen_from_here(&self) -> bool {
        self.is_of_this_boot() && self.namespace == namespace()
    }

    /// Whether the owner has certainly ended. A process missing in `/proc` is not enough, because `/proc` may
    /// hide processes of other users (`hidepid`, `ProtectProc=`); the kernel must report that the pid does
    /// not exist.
    pub(crate) fn is_dead(&self) -> bool {
        let boot = boot();
        if self.boot != boot {
            // Without a readable boot id nothing is certain.
            return !self.boot.is_empty() && !boot.is_empty();
        }
        let namespace = namespace();
        if self.namespace != namespace || namespace.is_empty() {
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
            .is_some_and(|process| process.started != self.started || process.has_ended)
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}:{}:{}:{}",
            self.pid, self.started, self.boot, self.namespace
        )
    }
}

fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

fn namespace() -> String {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.to_string_lossy().replace("pid:", "")
}

/// Ownership tags of one start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    pub(crate) run: String,
    pub(crate) start: String,
    pub(crate) owner: Owner,
}

impl Marks {
    pub(crate) fn new(run: &RunId, launch: &LaunchId, start: u32) -> Result<Self, procfs::ProcError> {
        Ok(Self {
            run: run.to_string(),
            start: format!("{launch}#{start}"),
            owner: Owner::this()?,
        })
    }

    pub(crate) fn variables(&self) -> [(&'static str, String); 3] {
        [
            (RUN, self.run.clone()),
            (START, self.start.clone()),
            (OWNER, self.owner.to_string()),
        ]
    }

    pub(super) fn read(environ: &HashMap<OsString, OsString>) -> Option<Self> {
        let text = |name: &str| {
            environ
                .get(&OsString::from(name))
                .map(|value| value.to_string_lossy().into_owned())
        };
        Some(Self {
            run: text(RUN)?,
            start: text(START)?,
            owner: Owner::parse(&text(OWNER)?)?,
        })
    }
}

/// The ownership tags of a process; `None` if it has none or its environment cannot be read.
pub(crate) fn of(pid: u32) -> Option<Marks> {
    Marks::read(&proc::open(pid)?.environ().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_reads_what_it_writes_and_is_alive() {
        let owner = Owner::this().unwrap();
        assert_eq!(Owner::parse(&owner.to_string()), Some(owner.clone()));
        let name = format!("{}-7.json", owner.file_name());
        assert_eq!(Owner::of_file_name(&name), Some(owner.clone()));
        assert!(!owner.is_dead());
    }

    #[test]
    fn an_owner_is_dead_when_its_id_passed_on_or_the_machine_restarted() {
        let owner = Owner::this().unwrap();
        let passed_on = Owner {
            started: owner.started + 1,
            ..owner.clone()
        };
        let restarted = Owner {
            boot: "another".into(),
            ..owner.clone()
        };
        assert!(passed_on.is_dead() && restarted.is_dead());
        assert_eq!(Owner::of_file_name(&restarted.file_name()), None);
        let elsewhere = Owner {
            namespace: "[1]".into(),
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
            started: proc::by_id(child.id()).unwrap().started,
            ..Owner::this().unwrap()
        };
        child.wait().unwrap();
        assert!(owner.is_dead());
    }

    #[test]
    fn an_owner_of_which_nothing_can_be_known_is_not_dead() {
        let owner = Owner::this().unwrap();
        for pid in [-1, 0] {
            let broken = Owner { pid, ..owner.clone() };
            assert!(!broken.is_dead(), "{pid} is no process");
        }
        let unread = Owner {
            boot: String::new(),
            pid: i32::MAX,
            ..owner
        };
        assert!(!unread.is_dead(), "its boot is not known");
    }
}
