//! One cgroup (version 2) per start, where the host allows it: as root, or below a delegated group. Processes
//! of the start cannot leave it without privileges, and the kernel kills all of them at once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use procfs::process::Process;

/// Prefix of the folder names of these groups.
const PREFIX: &str = "matrix-";

/// How long [`Cgroup::remove_when_empty`] tries to remove a group. A killed process disappears from `/proc` before
/// it leaves its group.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The cgroup of one start. Dropping the value does not remove the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cgroup {
    folder: PathBuf,
}

impl Cgroup {
    /// A group below the group of this process that does not exist yet, so that its folder can be recorded
    /// before [`Cgroup::create`]. `None` if the host does not allow it.
    pub(super) fn for_start(id: &str) -> Option<Self> {
        let own_folder = own_folder()?;
        // Moving a process needs write access to the group that it leaves.
        rustix::fs::access(own_folder.join("cgroup.procs"), rustix::fs::Access::WRITE_OK).ok()?;
        Some(Self {
            folder: own_folder.join(format!("{PREFIX}{id}")),
        })
    }

    /// Creates the group. `None` if the host does not allow it.
    pub(super) fn create(self) -> Option<Self> {
        fs::create_dir(&self.folder).ok()?;
        if self.folder.join("cgroup.kill").exists() {
            return Some(self);
        }
        self.remove();
        None
    }

    /// The group of a recorded folder. `None` if the folder is not a group of `matrix`.
    pub(super) fn from_folder(folder: &Path) -> Option<Self> {
        let name = folder.file_name()?.to_str()?;
        let is_group = name.starts_with(PREFIX) && folder.join("cgroup.kill").exists();
        is_group.then(|| Self {
            folder: folder.to_owned(),
        })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn enter(&self) -> io::Result<()> {
        fs::write(self.folder.join("cgroup.procs"), "0")
    }

    /// Process ids in the group.
    pub(super) fn members(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Sends SIGKILL to all processes of the group, including those that are being forked.
    pub(super) fn kill(&self) {
        let _ = fs::write(self.folder.join("cgroup.kill"), "1");
    }

    /// Removes the group and the groups below it, if they hold no process.
    pub(super) fn remove(&self) {
        remove_tree(&self.folder);
    }

    /// As [`Cgroup::remove`], but retries for up to [`REMOVE_TIMEOUT`] while processes are ending. Blocks the thread.
    pub(super) fn remove_when_empty(&self) {
        for _ in 0..REMOVE_TIMEOUT.as_millis() / POLL_INTERVAL.as_millis() {
            self.remove();
            if !self.folder.exists() {
                return;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

fn remove_tree(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    let _ = fs::remove_dir(folder);
}

/// The folder of the group of this process.
fn own_folder() -> Option<PathBuf> {
    let process = Process::myself().ok()?;
    let mounts = process.mountinfo().ok()?;
    let mount = mounts.into_iter().find(|mount| mount.fs_type == "cgroup2")?;
    let groups = process.cgroups().ok()?;
    let group = groups.into_iter().find(|group| group.hierarchy == 0)?;
    // Groups above the root of our cgroup namespace belong to the host.
    if group.pathname.contains("/..") || mount.root != "/" {
        return None;
    }
    Some(mount.mount_point.join(group.pathname.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_a_group_is_known_and_killed_at_once() {
        use std::io::Write;
        use std::os::unix::process::ExitStatusExt;
        let Some(group) = Cgroup::for_start(&format!("test-{}", std::process::id())).and_then(Cgroup::create)
        else {
            let _ = writeln!(
                io::stderr(),
                "SKIPPED {}:{}: no cgroup can be made here",
                file!(),
                line!()
            );
            return;
        };
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        fs::write(group.folder().join("cgroup.procs"), child.id().to_string()).unwrap();
        assert_eq!(group.members(), [child.id()]);
        assert_eq!(Cgroup::from_folder(group.folder()), Some(group.clone()));
        fs::create_dir(group.folder().join("below")).unwrap();
        group.remove();
        assert!(group.folder().exists(), "something is in it");
        group.kill();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        group.remove_when_empty();
        assert!(!group.folder().exists());
    }

    #[test]
    fn a_folder_that_is_no_group_of_ours_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("other");
        let ours = folder.path().join("matrix-1");
        for path in [&other, &ours] {
            fs::create_dir(path).unwrap();
        }
        assert_eq!(Cgroup::from_folder(&ours), None, "it is no cgroup");
        for path in [&other, &ours] {
            fs::write(path.join("cgroup.kill"), "").unwrap();
        }
        assert_eq!(Cgroup::from_folder(&other), None, "another one made it");
        assert!(Cgroup::from_folder(&ours).is_some());
    }
}
