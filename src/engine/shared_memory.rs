//! Shared memory that an engine leaves in `/dev/shm`. Killed engines leave hundreds of megabytes, which the
//! kernel does not free. A file is removed only if it is newer than the start, a process of the engine had it
//! open or mapped for writing, and no process uses it. Other new files are reported and stay.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use tokio::net::unix::pipe::Receiver;
use tokio::time::{Instant, sleep_until};

use crate::base::proc::ProcessId;

/// Folder of named shared memory on Linux.
const FOLDER: &str = "/dev/shm";

/// How many of the remaining files are named.
const MAX_NAMED: usize = 4;

/// Minimum interval between two reports of new files, because other programs may create files continuously.
const MIN_EVENT_GAP: Duration = Duration::from_millis(30);

/// A file with its inode, because its name may be reused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct ShmFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// Observes an engine's shared memory.
#[derive(Clone, Debug)]
pub(super) struct Tracker {
    folder: PathBuf,
    /// Files that existed before the start.
    existing: BTreeSet<ShmFile>,
    /// Files that the engine's processes had open or mapped for writing.
    engine_files: BTreeSet<ShmFile>,
}

/// Result of the removal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cleanup {
    pub(super) files: usize,
    pub(super) bytes: u64,
    /// Files of this user that are newer than the start, unused, and were never seen with the engine.
    unattributed_files: Vec<PathBuf>,
    /// Files that the engine wrote and that another process uses or may use.
    used_files: Vec<PathBuf>,
}

impl Cleanup {
    /// Description such as `; 419.2 MB that the engine left in /dev/shm are freed (2 files)`, with the names of files
    /// that stay. Empty if there were none.
    pub(super) fn summary(&self) -> String {
        let megabytes = self.bytes as f64 / 1e6;
        let mut words = match self.files {
            0 => String::new(),
            1 => format!("; {megabytes:.1} MB that the engine left in {FOLDER} are freed (1 file)"),
            files => {
                format!("; {megabytes:.1} MB that the engine left in {FOLDER} are freed ({files} files)")
            }
        };
        match &self.unattributed_files[..] {
            [] => {}
            [one] => words.push_str(&format!(
                "; 1 new file in {FOLDER} was not removed, because it may not belong to the engine: {}",
                file_names(std::slice::from_ref(one))
            )),
            several => words.push_str(&format!(
                "; {} new files in {FOLDER} were not removed, because they may not belong to the engine: {}",
                several.len(),
                file_names(several)
            )),
        }
        if let Some(used) = self.used_summary() {
            words.push_str(&format!("; {used}"));
        }
        words
    }

    /// Describes the files that stay because they are or may be in use; `None` if there are none.
    pub(super) fn used_summary(&self) -> Option<String> {
        let (files, were, them) = match self.used_files.len() {
            0 => return None,
            1 => ("1 file".to_owned(), "was", "it"),
            files => (format!("{files} files"), "were", "them"),
        };
        Some(format!(
            "{files} that the engine wrote in {FOLDER} {were} not removed, because another process may be using {them}: {}",
            file_names(&self.used_files)
        ))
    }
}

/// Names of the first [`MAX_NAMED`] files.
fn file_names(files: &[PathBuf]) -> String {
    let names = files.iter().filter_map(|path| path.file_name());
    let mut names: Vec<String> = names.take(MAX_NAMED).map(|name| format!("{name:?}")).collect();
    names.extend((files.len() > MAX_NAMED).then(|| "…".to_owned()));
    names.join(", ")
}

/// Reports new files in shared memory, so that the files of an engine that ends right after creating them are
/// seen.
#[derive(Debug)]
pub(super) struct CreationEvents {
    /// `None` if inotify is not available.
    events: Option<Receiver>,
    /// Earliest time of the next report.
    quiet_until: Instant,
}

impl CreationEvents {
    /// Begins before the start of an engine. Needs a tokio runtime.
    pub(super) fn start() -> Self {
        Self::in_folder(Path::new(FOLDER))
    }

    pub(super) fn disabled() -> Self {
        Self {
            events: None,
            quiet_until: Instant::now(),
        }
    }

    fn in_folder(folder: &Path) -> Self {
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok();
        let events = events.filter(|events| inotify::add_watch(events, folder, WatchFlags::CREATE).is_ok());
        Self {
            // An inotify descriptor is read like a pipe.
            events: events.and_then(|events| Receiver::from_owned_fd_unchecked(events).ok()),
            ..Self::disabled()
        }
    }

    /// Waits for a new file since the last call. Cancel-safe.
    pub(super) async fn wait(&mut self) {
        let Some(events) = &self.events else {
            return std::future::pending().await;
        };
        sleep_until(self.quiet_until).await;
        while events.readable().await.is_ok() {
            if events.try_read(&mut [0; 4096]).is_ok() {
                self.quiet_until = Instant::now() + MIN_EVENT_GAP;
                return;
            }
        }
        std::future::pending().await
    }
}

impl Tracker {
    /// Begins before the start of an engine.
    pub(super) fn start() -> Self {
        Self::in_folder(Path::new(FOLDER))
    }

    fn in_folder(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            existing: folder_files(folder).map(|(file, _)| file).collect(),
            engine_files: BTreeSet::new(),
        }
    }

    /// Finds new files that the engine's processes have open or mapped for writing. Without new files it only
    /// lists the folder.
    pub(super) fn record_open_files(&mut self, tree: &[ProcessId]) {
        let mut open: BTreeMap<u64, ShmFile> = self
            .new_files()
            .filter(|(file, _)| !self.engine_files.contains(file))
            .map(|(file, _)| (file.inode, file))
            .collect();
        let Some(device) = open.values().next().map(|file| file.device) else {
            return;
        };
        for ProcessId { pid, .. } in tree {
            let mut used = OpenInodes::default();
            used.add_process(Path::new(&format!("/proc/{pid}")), device, Access::Write);
            let with = used.inodes.iter().filter_map(|inode| open.remove(inode));
            self.engine_files.extend(with);
            if open.is_empty() {
                return;
            }
        }
    }

    pub(super) const fn engine_files(&self) -> &BTreeSet<ShmFile> {
        &self.engine_files
    }

    /// Files of this user that did not exist before the start.
    fn new_files(&self) -> impl Iterator<Item = (ShmFile, fs::Metadata)> + '_ {
        let ours = geteuid().as_raw();
        folder_files(&self.folder)
            .filter(move |(file, about)| about.uid() == ours && !self.existing.contains(file))
    }

    /// Removes what the engine left, after it has ended.
    pub(super) fn remove_leaked(&self) -> Cleanup {
        remove_unused(self.new_files().collect(), &self.engine_files)
    }
}

impl ShmFile {
    /// Metadata, if the file still exists and belongs to this user.
    fn metadata(&self) -> Option<fs::Metadata> {
        let about = fs::symlink_metadata(&self.path).ok()?;
        let is_same = (about.dev(), about.ino()) == (self.device, self.inode) && about.is_file();
        (is_same && about.uid() == geteuid().as_raw()).then_some(about)
    }

    pub(super) fn exists(&self) -> bool {
        self.metadata().is_some()
    }
}

/// Removes the unused files of an engine whose owner was killed.
pub(super) fn remove_orphans(engine_files: &BTreeSet<ShmFile>) -> Cleanup {
    let leaked = engine_files
        .iter()
        .filter_map(|file| Some((file.clone(), file.metadata()?)));
    remove_unused(leaked.collect(), engine_files)
}

/// Files that were created after `since` (Unix time in seconds) and that processes of an engine write. Empty
/// if the system does not report creation times.
pub(super) fn files_written_since(since: f64, tree: &[ProcessId]) -> BTreeSet<ShmFile> {
    let folder = Path::new(FOLDER);
    let is_new = |about: &fs::Metadata| {
        let created_at = about.created().ok();
        let created_at = created_at.and_then(|created_at| created_at.duration_since(UNIX_EPOCH).ok());
        created_at.is_some_and(|created_at| created_at.as_secs_f64() >= since)
    };
    let old = folder_files(folder).filter(|(_, about)| !is_new(about));
    let mut watch = Tracker {
        folder: folder.to_owned(),
        existing: old.map(|(file, _)| file).collect(),
        engine_files: BTreeSet::new(),
    };
    watch.record_open_files(tree);
    watch.engine_files
}

/// Removes the files of `left` that are in `seen` and not in use.
fn remove_unused(leaked: Vec<(ShmFile, fs::Metadata)>, engine_files: &BTreeSet<ShmFile>) -> Cleanup {
    let Some(device) = leaked.first().map(|(file, _)| file.device) else {
        return Cleanup::default();
    };
    let used = OpenInodes::of_all_processes(device);
    let mut cleanup = Cleanup::default();
    for (file, about) in leaked {
        let is_open_to_others = about.mode() & 0o066 != 0;
        let is_hidden = used.is_partial && is_open_to_others;
        if is_hidden || used.inodes.contains(&file.inode) {
            if engine_files.contains(&file) {
                cleanup.used_files.push(file.path);
            }
            continue;
        }
        if !engine_files.contains(&file) {
            cleanup.unattributed_files.push(file.path);
            continue;
        }
        // A failure means that another process has removed it, which is fine.
        if fs::remove_file(&file.path).is_ok() {
            cleanup.files += 1;
            cleanup.bytes += about.blocks() * 512;
        }
    }
    cleanup
}

/// Regular files of a folder.
fn folder_files(folder: &Path) -> impl Iterator<Item = (ShmFile, fs::Metadata)> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let path = entry.path();
        let about = fs::symlink_metadata(&path).ok()?;
        let file = ShmFile {
            path,
            device: about.dev(),
            inode: about.ino(),
        };
        about.is_file().then_some((file, about))
    })
}

/// Which use of a file counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Any,
    /// Mapped shared and writable, or open for writing. A process that only reads did not create the file,
    /// for example an engine that reads weights staged here.
    Write,
}

/// Files of one device that processes of this host use.
#[derive(Default)]
struct OpenInodes {
    inodes: BTreeSet<u64>,
    /// Whether processes of other users could not be read.
    is_partial: bool,
}

impl OpenInodes {
    fn of_all_processes(device: u64) -> Self {
        let mut used = Self::default();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()) {
                used.add_process(&entry.path(), device, Access::Any);
            }
        }
        used
    }

    fn add_process(&mut self, process: &Path, device: u64, access: Access) {
        self.add_mapped(process, device, access);
        self.add_opened(process, device, access);
    }

    fn add_mapped(&mut self, process: &Path, device: u64, access: Access) {
        let maps = match fs::read_to_string(process.join("maps")) {
            Ok(maps) => maps,
            Err(error) => return self.note_unreadable(&error),
        };
        let own = format!(
            "{:02x}:{:02x}",
            rustix::fs::major(device),
            rustix::fs::minor(device)
        );
        for line in maps.lines() {
            // Fields: address, permissions, offset, device, inode, name.
            let mut words = line.split_ascii_whitespace().skip(1);
            let rights = words.next().unwrap_or_default().as_bytes();
            let is_written = rights.get(1) == Some(&b'w') && rights.get(3) == Some(&b's');
            if (is_written || access == Access::Any)
                && words.nth(1) == Some(own.as_str())
                && let Some(inode) = words.next().and_then(|inode| inode.parse().ok())
            {
                self.inodes.insert(inode);
            }
        }
    }

    fn add_opened(&mut self, process: &Path, device: u64, access: Access) {
        let open = match fs::read_dir(process.join("fd")) {
            Ok(open) => open,
            Err(error) => return self.note_unreadable(&error),
        };
        for file in open.flatten() {
            if let Ok(about) = fs::metadata(file.path())
                && about.dev() == device
                && (access == Access::Any || is_writable(process, &file.file_name()))
            {
                self.inodes.insert(about.ino());
            }
        }
    }

    /// A process that has ended meanwhile uses nothing; only a missing permission matters.
    fn note_unreadable(&mut self, error: &std::io::Error) {
        self.is_partial |= error.kind() == ErrorKind::PermissionDenied;
    }
}

/// Whether a file descriptor of a process is open for writing.
fn is_writable(process: &Path, descriptor: &std::ffi::OsStr) -> bool {
    let about = fs::read_to_string(process.join("fdinfo").join(descriptor)).unwrap_or_default();
    let flags = about.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    // The lowest two bits are the access mode: 0 read, 1 write, 2 both.
    flags.is_some_and(|flags| flags & 3 != 0)
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

    fn process(pid: u32) -> [ProcessId; 1] {
        [ProcessId { pid, started: 0 }]
    }

    fn own_process() -> [ProcessId; 1] {
        process(std::process::id())
    }

    fn writer(path: &Path) -> fs::File {
        fs::OpenOptions::new().append(true).open(path).unwrap()
    }

    #[test]
    fn only_what_the_engine_was_seen_to_write_is_removed() {
        let folder = tempfile::tempdir_in(FOLDER).unwrap();
        let old = file(folder.path(), "old");
        let mut watch = Tracker::in_folder(folder.path());
        let [created_at, open, read, foreign] =
            ["made", "open", "read", "foreign"].map(|name| file(folder.path(), name));
        let stranger = file(folder.path(), "stranger");
        let sub = folder.path().join("sub");
        fs::create_dir(&sub).unwrap();
        {
            let _engine = (
                writer(&old),
                writer(&created_at),
                writer(&stranger),
                fs::File::open(&read).unwrap(),
            );
            watch.record_open_files(&own_process());
        }
        let held = writer(&open);
        watch.record_open_files(&own_process());
        let is_root = geteuid().is_root();
        if is_root {
            std::os::unix::fs::chown(&stranger, Some(65534), None).unwrap();
        } else {
            fs::remove_file(&stranger).unwrap();
        }
        let mut cleanup = watch.remove_leaked();
        cleanup.unattributed_files.sort();
        assert_eq!(
            cleanup,
            Cleanup {
                files: 1,
                bytes: 8192,
                unattributed_files: vec![foreign.clone(), read.clone()],
                used_files: vec![open.clone()],
            }
        );
        for stays in [&old, &open, &read, &foreign, &sub] {
            assert!(stays.exists(), "{}", stays.display());
        }
        assert!(!created_at.exists());
        assert_eq!(stranger.exists(), is_root);
        let words = cleanup.summary();
        assert!(
            words.contains("(1 file)")
                && words
                    .contains(r#"2 new files in /dev/shm were not removed, because they may not belong to the engine: "foreign", "read""#)
                && words.ends_with(r#"1 file that the engine wrote in /dev/shm was not removed, because another process may be using it: "open""#),
            "{words}"
        );
        drop(held);
        assert_eq!(watch.remove_leaked().files, 1, "nobody holds it any more");
        assert_eq!(watch.remove_leaked().files, 0);
        assert_eq!(Cleanup::default().summary(), "");
    }

    #[tokio::test]
    async fn a_file_that_is_made_is_told_of_and_one_that_is_written_is_not() {
        let folder = tempfile::tempdir_in(FOLDER).unwrap();
        let mut alarm = CreationEvents::in_folder(folder.path());
        let path = file(folder.path(), "a");
        alarm.wait().await;
        std::io::Write::write_all(&mut writer(&path), b"more").unwrap();
        let quiet = tokio::time::timeout(Duration::from_millis(100), alarm.wait());
        assert!(quiet.await.is_err());
        file(folder.path(), "b");
        alarm.wait().await;
    }

    #[tokio::test]
    async fn where_the_system_does_not_tell_nothing_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let mut alarm = CreationEvents::in_folder(&folder.path().join("none"));
        let quiet = tokio::time::timeout(Duration::from_millis(50), alarm.wait());
        assert!(quiet.await.is_err());
    }

    #[test]
    fn what_another_process_wrote_is_not_the_engine_s() {
        let folder = tempfile::tempdir_in(FOLDER).unwrap();
        let mut watch = Tracker::in_folder(folder.path());
        let path = file(folder.path(), "dataset");
        let other = std::process::Command::new("sleep")
            .arg("60")
            .stdin(fs::File::open(&path).unwrap())
            .stdout(writer(&path))
            .spawn();
        let mut other = other.unwrap();
        watch.record_open_files(&own_process());
        assert!(watch.engine_files.is_empty());
        watch.record_open_files(&process(other.id()));
        assert_eq!(watch.engine_files.len(), 1, "a descriptor for writing is seen");
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn what_is_older_than_a_container_is_not_what_it_wrote() {
        let name = |part: &str| format!("matrix-test-{part}-{}", std::process::id());
        let folder = Path::new(FOLDER);
        let old = file(folder, &name("old"));
        let since = fs::metadata(&old).unwrap().created().unwrap();
        let since = since.duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        std::thread::sleep(Duration::from_millis(20));
        let [new, read] = ["new", "read"].map(|part| file(folder, &name(part)));
        let _open = (writer(&old), writer(&new), fs::File::open(&read).unwrap());
        let written = files_written_since(since + 0.01, &own_process());
        let paths: Vec<&PathBuf> = written.iter().map(|file| &file.path).collect();
        let found = paths.contains(&&new);
        let others = paths.contains(&&old) || paths.contains(&&read);
        for path in [old, new, read] {
            fs::remove_file(path).unwrap();
        }
        assert!(found && !others);
    }

    #[test]
    fn a_name_that_is_given_anew_is_new() {
        let folder = tempfile::tempdir_in(FOLDER).unwrap();
        let path = file(folder.path(), "a");
        let mut watch = Tracker::in_folder(folder.path());
        let other = file(folder.path(), "b");
        fs::rename(other, &path).unwrap();
        let engine = writer(&path);
        watch.record_open_files(&own_process());
        drop(engine);
        assert_eq!(watch.remove_leaked().files, 1);
    }
}
