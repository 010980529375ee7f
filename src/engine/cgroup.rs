//! A cgroup (version 2) for each start, where the host lets this process make one: as root, or below a delegated group. What a start
//! forks cannot leave it without rights of its own, and the kernel kills all of it at once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use procfs::process::Process;

/// How the folders of these groups are called.
const PREFIX: &str = "matrix-";

/// How long, and how often, a group is tried to be removed: a killed process is seen no more before it has left its group.
const LEFT: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);

/// The group of one start. It stays until [`Cgroup::remove`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cgroup {
    folder: PathBuf,
}

impl Cgroup {
    /// A group below that of this process, which is not made yet: who is killed in between must have written its folder down. `None`
    /// where the host does not allow it.
    pub(super) fn planned(id: &str) -> Option<Self> {
        let own = own()?;
        // To move a process the group that it comes from must be writable too.
        rustix::fs::access(own.join("cgroup.procs"), rustix::fs::Access::WRITE_OK).ok()?;
        Some(Self {
            folder: own.join(format!("{PREFIX}{id}")),
        })
    }

    /// Makes it; `None` where the host does not allow it.
    pub(super) fn create(self) -> Option<Self> {
        fs::create_dir(&self.folder).ok()?;
        if self.folder.join("cgroup.kill").exists() {
            return Some(self);
        }
        self.remove();
        None
    }

    /// The group of a folder that was kept; `None` where it is not one of ours.
    pub(super) fn of(folder: &Path) -> Option<Self> {
        let name = folder.file_name()?.to_str()?;
        let is_group = name.starts_with(PREFIX) && folder.join("cgroup.kill").exists();
        is_group.then(|| Self {
            folder: folder.to_owned(),
        })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Moves this process into the group.
    pub(super) fn enter(&self) -> io::Result<()> {
        fs::write(self.folder.join("cgroup.procs"), "0")
    }

    /// The processes that are in it.
    pub(super) fn members(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Sends SIGKILL to everything in it, also to what is being forked.
    pub(super) fn kill(&self) {
        let _ = fs::write(self.folder.join("cgroup.kill"), "1");
    }

    /// Removes the group and those that were made below it, if nothing is in them.
    pub(super) fn remove(&self) {
        remove(&self.folder);
    }

    /// As [`Cgroup::remove`], and waits a moment for processes that are ending in it.
    pub(super) fn remove_soon(&self) {
        for _ in 0..LEFT.as_millis() / LOOK.as_millis() {
            self.remove();
            if !self.folder.exists() {
                return;
            }
            std::thread::sleep(LOOK);
        }
    }
}

fn remove(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    let _ = fs::remove_dir(folder);
}

/// The folder of the group that this process is in.
fn own() -> Option<PathBuf> {
    let process = Process::myself().ok()?;
    let mounts = process.mountinfo().ok()?;
    let mount = mounts.into_iter().find(|mount| mount.fs_type == "cgroup2")?;
    let groups = process.cgroups().ok()?;
    let group = groups.into_iter().find(|group| group.hierarchy == 0)?;
    // Beyond the root of our namespace nothing is ours.
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
        let Some(group) = Cgroup::planned(&format!("test-{}", std::process::id())).and_then(Cgroup::create)
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
        assert_eq!(Cgroup::of(group.folder()), Some(group.clone()));
        fs::create_dir(group.folder().join("below")).unwrap();
        group.remove();
        assert!(group.folder().exists(), "something is in it");
        group.kill();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        group.remove_soon();
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
        assert_eq!(Cgroup::of(&ours), None, "it is no cgroup");
        for path in [&other, &ours] {
            fs::write(path.join("cgroup.kill"), "").unwrap();
        }
        assert_eq!(Cgroup::of(&other), None, "another one made it");
        assert!(Cgroup::of(&ours).is_some());
    }
}
