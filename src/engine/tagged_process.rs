//! Running processes of this host with their ownership tags.

use procfs::process::Process;

use crate::base::proc::{self, ProcessInfo};
use crate::engine::ownership::OwnershipTags;

/// A running process with the ownership tags in its environment.
#[derive(Clone, Debug)]
pub(crate) struct TaggedProcess {
    pub(crate) info: ProcessInfo,
    /// `None` if it has none or its environment cannot be read.
    pub(crate) tags: Option<OwnershipTags>,
    /// Its command line. In the result of [`all`], an untagged process has its name here.
    pub(crate) command: String,
}

/// All running processes whose state can be read, without zombies.
pub(crate) fn all() -> Vec<TaggedProcess> {
    proc::open_all().filter_map(|process| read(&process)).collect()
}

/// A running process with its command line; `None` if it does not exist.
pub(crate) fn by_id(pid: u32) -> Option<TaggedProcess> {
    let process = proc::open(pid)?;
    let command = process.cmdline().unwrap_or_default().join(" ");
    Some(TaggedProcess {
        command,
        ..read(&process)?
    })
}

/// The processes of a start that run on this host and whose parents do not belong to it.
pub(crate) fn roots_of_start(run: &str, start: &str) -> Vec<u32> {
    let mut own = all();
    own.retain(|process| {
        process
            .tags
            .as_ref()
            .is_some_and(|tags| tags.is_of_start(run, start))
    });
    let has_parent = |process: &&TaggedProcess| own.iter().any(|other| other.info.pid == process.info.parent);
    let roots = own.iter().filter(|process| !has_parent(process));
    roots.map(|process| process.info.pid).collect()
}

fn read(process: &Process) -> Option<TaggedProcess> {
    let stat = process.stat().ok()?;
    let info = ProcessInfo::from(&stat);
    if info.has_ended {
        return None;
    }
    let tags = process
        .environ()
        .ok()
        .and_then(|environ| OwnershipTags::from_environment(&environ));
    Some(TaggedProcess {
        info,
        command: match &tags {
            Some(_) => process.cmdline().unwrap_or_default().join(" "),
            None => stat.comm,
        },
        tags,
    })
}
