//! What an engine leaves in `/dev/shm`. Engines that share memory among their processes leave it behind when they are stopped,
//! hundreds of megabytes at a time, and no kernel takes it away. What lay there before the start, what somebody still uses and what
//! belongs to somebody else stays.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::geteuid;
use tokio::time::timeout;

use crate::engine::docker::{self, Whereabouts};
use crate::engine::leftovers;

/// Where Linux keeps shared memory that has a name.
const FOLDER: &str = "/dev/shm";

/// How long a container daemon may take to say what else runs.
const LIST: Duration = Duration::from_secs(5);

/// Shared memory as it was before an engine started.
#[derive(Debug)]
pub(super) struct Before {
    folder: PathBuf,
    /// By name and inode: a name may be given anew.
    files: BTreeSet<(PathBuf, u64)>,
}

/// A file that an engine left.
#[derive(Debug)]
struct Left {
    path: PathBuf,
    device: u64,
    inode: u64,
    /// The blocks that it holds, in bytes.
    bytes: u64,
    /// Whether users other than its owner may open it.
    is_open_to_others: bool,
}

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Freed {
    /// How many files.
    pub(super) files: usize,
    /// How many bytes they held.
    pub(super) bytes: u64,
}

impl Freed {
    /// Such as `; 419.2 MB that it left in /dev/shm are freed (2 files)`; nothing where there was nothing.
    pub(super) fn words(&self) -> String {
        let megabytes = self.bytes as f64 / 1e6;
        match self.files {
            0 => String::new(),
            1 => format!("; {megabytes:.1} MB that it left in {FOLDER} are freed (1 file)"),
            files => format!("; {megabytes:.1} MB that it left in {FOLDER} are freed ({files} files)"),
        }
    }
}

impl Before {
    /// Looks at what is there.
    pub(super) fn look() -> Self {
        Self::look_at(Path::new(FOLDER))
    }

    fn look_at(folder: &Path) -> Self {
        let files = entries(folder).map(|(path, meta)| (path, meta.ino())).collect();
        Self {
            folder: folder.to_owned(),
            files,
        }
    }

    /// Removes what an engine left, after it ended. While another engine of ours runs nothing is removed: what is there may be its own.
    pub(super) async fn clean(&self, whereabouts: &Whereabouts) -> Freed {
        if self.left().is_empty() || runs_another(whereabouts).await {
            return Freed::default();
        }
        self.remove()
    }

    /// What is new and ours.
    fn left(&self) -> Vec<Left> {
        let ours = geteuid().as_raw();
        entries(&self.folder)
            .filter(|(path, meta)| meta.uid() == ours && !self.files.contains(&(path.clone(), meta.ino())))
            .map(|(path, meta)| Left {
                path,
                device: meta.dev(),
                inode: meta.ino(),
                bytes: meta.blocks() * 512,
                is_open_to_others: meta.mode() & 0o066 != 0,
            })
            .collect()
    }

    fn remove(&self) -> Freed {
        let left = self.left();
        let used = Used::read(left.first().map_or(0, |left| left.device));
        let mut freed = Freed::default();
        for left in left {
            let is_hidden = used.is_partial && left.is_open_to_others;
            if is_hidden || used.inodes.contains(&left.inode) {
                continue;
            }
            // Somebody else may have removed it, which is as good.
            if fs::remove_file(&left.path).is_ok() {
                freed.files += 1;
                freed.bytes += left.bytes;
            }
        }
        freed
    }
}

/// The files of a folder; links and folders are not shared memory.
fn entries(folder: &Path) -> impl Iterator<Item = (PathBuf, fs::Metadata)> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let meta = fs::symlink_metadata(entry.path()).ok()?;
        meta.is_file().then(|| (entry.path(), meta))
    })
}

/// What the processes of this host use of one device.
struct Used {
    inodes: BTreeSet<u64>,
    /// Whether some processes would not be looked into: those of other users.
    is_partial: bool,
}

impl Used {
    fn read(device: u64) -> Self {
        let mut used = Self {
            inodes: BTreeSet::new(),
            is_partial: false,
        };
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let is_process = entry
                .file_name()
                .to_string_lossy()
                .bytes()
                .all(|byte| byte.is_ascii_digit());
            if is_process {
                used.mapped(&entry.path(), device);
                used.opened(&entry.path(), device);
            }
        }
        used
    }

    fn mapped(&mut self, process: &Path, device: u64) {
        let maps = match fs::read_to_string(process.join("maps")) {
            Ok(maps) => maps,
            Err(error) => return self.unread(&error),
        };
        let own = format!(
            "{:02x}:{:02x}",
            rustix::fs::major(device),
            rustix::fs::minor(device)
        );
        for line in maps.lines() {
            // Address, rights, offset, device, inode, name.
            let mut words = line.split_ascii_whitespace().skip(3);
            if words.next() == Some(own.as_str())
                && let Some(inode) = words.next().and_then(|inode| inode.parse().ok())
            {
                self.inodes.insert(inode);
            }
        }
    }

    fn opened(&mut self, process: &Path, device: u64) {
        let open = match fs::read_dir(process.join("fd")) {
            Ok(open) => open,
            Err(error) => return self.unread(&error),
        };
        for file in open.flatten() {
            if let Ok(meta) = fs::metadata(file.path())
                && meta.dev() == device
            {
                self.inodes.insert(meta.ino());
            }
        }
    }

    /// A process that ended meanwhile uses nothing.
    fn unread(&mut self, error: &std::io::Error) {
        self.is_partial |= error.kind() == ErrorKind::PermissionDenied;
    }
}

/// Whether another engine of ours runs: a process with our marks, or a container with our labels.
async fn runs_another(whereabouts: &Whereabouts) -> bool {
    if !leftovers::find(false).is_empty() {
        return true;
    }
    // A daemon that hangs may have one.
    let containers = timeout(LIST, docker::find(whereabouts, false)).await;
    containers.map_or(true, |found| found.iter().any(|container| container.is_running))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, vec![1; 8192]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    #[test]
    fn only_what_is_new_ours_and_unused_is_removed() {
        let folder = tempfile::tempdir_in(FOLDER).unwrap();
        let old = file(folder.path(), "old");
        let before = Before::look_at(folder.path());
        let (new, open, folder_of_it) = (
            file(folder.path(), "new"),
            file(folder.path(), "open"),
            folder.path().join("sub"),
        );
        fs::create_dir(&folder_of_it).unwrap();
        let held = fs::File::open(&open).unwrap();
        let stranger = file(folder.path(), "stranger");
        let is_root = geteuid().is_root();
        if is_root {
            std::os::unix::fs::chown(&stranger, Some(65534), None).unwrap();
        } else {
            fs::remove_file(&stranger).unwrap();
        }
        let freed = before.remove();
        assert_eq!(
            freed,
            Freed {
                files: 1,
                bytes: 8192
            }
        );
        assert!(!new.exists() && old.exists() && open.exists() && folder_of_it.exists());
        assert_eq!(stranger.exists(), is_root);
        assert!(freed.words().contains("1 file"), "{}", freed.words());
        drop(held);
        assert_eq!(before.remove().files, 1, "nobody holds it any more");
        assert_eq!(before.remove().words(), "");
    }

    #[test]
    fn a_name_that_is_given_anew_is_new() {
        let folder = tempfile::tempdir_in(FOLDER).unwrap();
        let path = file(folder.path(), "a");
        let before = Before::look_at(folder.path());
        let other = file(folder.path(), "b");
        fs::rename(other, &path).unwrap();
        assert_eq!(before.remove().files, 1);
    }
}
