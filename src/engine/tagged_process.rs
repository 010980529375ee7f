//! The live processes of this host, each with the marks that it carries.

use procfs::process::Process;

use crate::base::proc::{self, ProcessInfo};
use crate::engine::ownership::Marks;

/// A live process with the marks in its environment.
#[derive(Clone, Debug)]
pub(crate) struct TaggedProcess {
    pub(crate) info: ProcessInfo,
    /// `None` where it has none, or may not be asked.
    pub(crate) marks: Option<Marks>,
    /// Its command line; of one without marks among all processes, its name.
    pub(crate) command: String,
}

/// Every live process whose state can be read; those that ended and were not yet reaped are not live.
pub(crate) fn all() -> Vec<TaggedProcess> {
    proc::open_all().filter_map(|process| read(&process)).collect()
}

/// A live process by its id, with its command line.
pub(crate) fn by_id(pid: u32) -> Option<TaggedProcess> {
    let process = proc::open(pid)?;
    let command = process.cmdline().unwrap_or_default().join(" ");
    Some(TaggedProcess {
        command,
        ..read(&process)?
    })
}

fn read(process: &Process) -> Option<TaggedProcess> {
    let stat = process.stat().ok()?;
    let info = ProcessInfo::from(&stat);
    if info.has_ended {
        return None;
    }
    let marks = process.environ().ok().and_then(|environ| Marks::read(&environ));
    Some(TaggedProcess {
        info,
        command: match &marks {
            Some(_) => process.cmdline().unwrap_or_default().join(" "),
            None => stat.comm,
        },
        marks,
    })
}
