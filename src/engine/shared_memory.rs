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
const NAMED: usize = 4;

/// Minimum interval between two reports of new files, because other programs may create files continuously.
const PAUSE: Duration = Duration::from_millis(30);

/// A file with its inode, because its name may be reused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct File {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// Observes an engine's shared memory.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    folder: PathBuf,
    /// Files that existed before the start.
    before: BTreeSet<File>,
    /// Files that the engine's processes had open or mapped for writing.
    seen: BTreeSet<File>,
}

/// Result of the removal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Freed {
    pub(super) files: usize,
    pub(super) bytes: u64,
    /// Files of this user that are newer than the start, unused, and were never seen with the engine.
    unattributed: Vec<PathBuf>,
    /// Files that the engine wrote and that another process uses or may use.
    used: Vec<PathBuf>,
}

impl Freed {
    /// Description such as `; 419.2 MB that it left in /dev/shm are freed (2 files)`, with the names of files
    /// that stay. Empty if there were none.
    pub(super) fn words(&self) -> String {
        let megabytes = self.bytes as f64 / 1e6;
        let mut words = match self.files {
            0 => String::new(),
            1 => format!("; {megabytes:.1} MB that it left in {FOLDER} are freed (1 file)"),
            files => format!("; {megabytes:.1} MB that it left in {FOLDER} are freed ({files} files)"),
        };
        match &self.unattributed[..] {
            [] => {}
            [one] => words.push_str(&format!(
                "; 1 new file in {FOLDER} was not seen with it and stays: {}",
                names(std::slice::from_ref(one))
            )),
            several => words.push_str(&format!(
                "; {} new files in {FOLDER} were not seen with it and stay: {}",
                several.len(),
                names(several)
            )),
        }
        if let Some(used) = self.used_words() {
            words.push_str(&format!("; {used}"));
        }
        words
    }

    /// Describes the files that stay because they are or may be in use; `None` if there are none.
    pub(super) fn used_words(&self) -> Option<String> {
        let files = match self.used.len() {
            0 => return None,
            1 => "1 file".to_owned(),
            files => format!("{files} files"),
        };
        Some(format!(
            "{files} that it wrote in {FOLDER} may be in use by another process, and may not be removed: {}",
            names(&self.used)
        ))
    }
}

/// Names of the first [`NAMED`] files.
fn names(files: &[PathBuf]) -> String {
    let names = files.iter().filter_map(|path| path.file_name());
    let mut names: Vec<String> = names.take(NAMED).map(|name| format!("{name:?}")).collect();
    names.extend((files.len() > NAMED).then(|| "…".to_owned()));
    names.join(", ")
}

/// Reports new files in shared memory, so that the files of an engine that ends right after creating them are
/// seen.
#[derive(Debug)]
pub(super) struct Alarm {
    /// `None` if inotify is not available.
    events: Option<Receiver>,
    /// Earliest time of the next report.
    quiet: Instant,
}

impl Alarm {
    /// Begins before the start of an engine. Needs a tokio runtime.
    pub(super) fn begin() -> Self {
        Self::over(Path::new(FOLDER))
    }

    pub(super) fn silent() -> Self {
        Self {
            events: None,
            quiet: Instant::now(),
        }
    }

    fn over(folder: &Path) -> Self {
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok();
        let events = events.filter(|events| inotify::add_watch(events, folder, WatchFlags::CREATE).is_ok());
        Self {
            // An inotify descriptor is read like a pipe.
            events: events.and_then(|events| Receiver::from_owned_fd_unchecked(events).ok()),
            ..Self::silent()
        }
    }

    /// Waits for a new file since the last call. Cancel-safe.
    pub(super) async fn rings(&mut self) {
        let Some(events) = &self.events else {
            return std::future::pending().await;
        };
        sleep_until(self.quiet).await;
        while events.readable().await.is_ok() {
            if events.try_read(&mut [0; 4096]).is_ok() {
                self.quiet = Instant::now() + PAUSE;
                return;
            }
        }
        std::future::pending().await
    }
}

impl Watch {
    /// Begins before the start of an engine.
    pub(super) fn begin() -> Self {
        Self::over(Path::new(FOLDER))
    }

    fn over(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            before: entries(folder).map(|(file, _)| file).collect(),
            seen: BTreeSet::new(),
        }
    }

    /// Finds new files that the engine's processes have open or mapped for writing. Without new files it only
    /// lists the folder.
    pub(super) fn look(&mut self, tree: &[ProcessId]) {
        let mut open: BTreeMap<u64, File> = self
            .new_files()
            .filter(|(file, _)| !self.seen.contains(file))
            .map(|(file, _)| (file.inode, file))
            .collect();
        let Some(device) = open.values().next().map(|file| file.device) else {
            return;
        };
        for ProcessId { pid, .. } in tree {
            let mut used = Used::default();
            used.by(Path::new(&format!("/proc/{pid}")), device, Access::Write);
            let with = used.inodes.iter().filter_map(|inode| open.remove(inode));
            self.seen.extend(with);
            if open.is_empty() {
                return;
            }
        }
    }

    pub(super) const fn seen(&self) -> &BTreeSet<File> {
        &self.seen
    }

    /// Files of this user that did not exist before the start.
    fn new_files(&self) -> impl Iterator<Item = (File, fs::Metadata)> + '_ {
        let ours = geteuid().as_raw();
        entries(&self.folder).filter(move |(file, about)| about.uid() == ours && !self.before.contains(file))
    }

    /// Removes what the engine left, after it has ended.
    pub(super) fn free(&self) -> Freed {
        remove(self.new_files().collect(), &self.seen)
    }
}

impl File {
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
pub(super) fn free_left(seen: &BTreeSet<File>) -> Freed {
    let left = seen
        .iter()
        .filter_map(|file| Some((file.clone(), file.metadata()?)));
    remove(left.collect(), seen)
}

/// Files that were created after `since` (Unix time in seconds) and that processes of an engine write. Empty
/// if the system does not report creation times.
pub(super) fn written_since(since: f64, tree: &[ProcessId]) -> BTreeSet<File> {
    let folder = Path::new(FOLDER);
    let is_new = |about: &fs::Metadata| {
        let made = about.created().ok();
        let made = made.and_then(|made| made.duration_since(UNIX_EPOCH).ok());
        made.is_some_and(|made| made.as_secs_f64() >= since)
    };
    let old = entries(folder).filter(|(_, about)| !is_new(about));
    let mut watch = Watch {
        folder: folder.to_owned(),
        before: old.map(|(file, _)| file).collect(),
        seen: BTreeSet::new(),
    };
    watch.look(tree);
    watch.seen
}

/// Removes the files of `left` that are in `seen` and not in use.
fn remove(left: Vec<(File, fs::Metadata)>, seen: &BTreeSet<File>) -> Freed {
    let Some(device) = left.first().map(|(file, _)| file.device) else {
        return Freed::default();
    };
    let used = Used::by_anybody(device);
    let mut freed = Freed::default();
    for (file, about) in left {
        let is_open_to_others = about.mode() & 0o066 != 0;
        let is_hidden = used.is_partial && is_open_to_others;
        if is_hidden || used.inodes.contains(&file.inode) {
            if seen.contains(&file) {
                freed.used.push(file.path);
            }
            continue;
        }
        if !seen.contains(&file) {
            freed.unattributed.push(file.path);
            continue;
        }
        // A failure means that another process has removed it, which is fine.
        if fs::remove_file(&file.path).is_ok() {
            freed.files += 1;
            freed.bytes += about.blocks() * 512;
        }
    }
    freed
}

/// Regular files of a folder.
fn entries(folder: &Path) -> impl Iterator<Item = (File, fs::Metadata)> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let path = entry.path();
        let about = fs::symlink_metadata(&path).ok()?;
        let file = File {
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
struct Used {
    inodes: BTreeSet<u64>,
    /// Whether processes of other users could not be read.
    is_partial: bool,
}

impl Used {
    fn by_anybody(device: u64) -> Self {
        let mut used = Self::default();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()) {
                used.by(&entry.path(), device, Access::Any);
            }
        }
        used
    }

    fn by(&mut self, process: &Path, device: u64, access: Access) {
        self.mapped(process, device, access);
        self.opened(process, device, access);
    }

    fn mapped(&mut self, process: &Path, device: u64, access: Access) {
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

    fn opened(&mut self, process: &Path, device: u64, access: Access) {
        let open = match fs::read_dir(process.join("fd")) {
            Ok(open) => open,
            Err(error) => return self.unread(&error),
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
    fn unread(&mut self, error: &std::io::Error) {
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

    fn this() -> [ProcessId; 1] {
        process(std::process::id())
    }

    fn writer(path: &Path) -> fs::File {
        fs::OpenOptions::new().append(true).open(path).unwrap()
    }

    #[test]
    fn only_what_the_engine_was_seen_to_write_is_removed() {
        let folder = tempfile::tempdir_in(FOLDER).unwrap();
        let old = file(folder.path(), "old");
        let mut watch = Watch::over(folder.path());
        let [made, open, read, foreign] =
            ["made", "open", "read", "foreign"].map(|name| file(folder.path(), name));
        let stranger = file(folder.path(), "stranger");
        let sub = folder.path().join("sub");
        fs::create_dir(&sub).unwrap();
        {
            let _engine = (
                writer(&old),
                writer(&made),
                writer(&stranger),
                fs::File::open(&read).unwrap(),
            );
            watch.look(&this());
        }
        let held = writer(&open);
        watch.look(&this());
        let is_root = geteuid().is_root();
        if is_root {
            std::os::unix::fs::chown(&stranger, Some(65534), None).unwrap();
        } else {
            fs::remove_file(&stranger).unwrap();
        }
        let mut freed = watch.free();
        freed.unattributed.sort();
        assert_eq!(
            freed,
            Freed {
                files: 1,
                bytes: 8192,
                unattributed: vec![foreign.clone(), read.clone()],
                used: vec![open.clone()],
            }
        );
        for stays in [&old, &open, &read, &foreign, &sub] {
            assert!(stays.exists(), "{}", stays.display());
        }
        assert!(!made.exists());
        assert_eq!(stranger.exists(), is_root);
        let words = freed.words();
        assert!(
            words.contains("(1 file)")
                && words
                    .contains(r#"2 new files in /dev/shm were not seen with it and stay: "foreign", "read""#)
                && words.ends_with(r#"may be in use by another process, and may not be removed: "open""#),
            "{words}"
        );
        drop(held);
        assert_eq!(watch.free().files, 1, "nobody holds it any more");
        assert_eq!(watch.free().files, 0);
        assert_eq!(Freed::default().words(), "");
    }

    #[tokio::test]
    async fn a_file_that_is_made_is_told_of_and_one_that_is_written_is_not() {
        let folder = tempfile::tempdir_in(FOLDER).unwrap();
        let mut alarm = Alarm::over(folder.path());
        let path = file(folder.path(), "a");
        alarm.rings().await;
        std::io::Write::write_all(&mut writer(&path), b"more").unwrap();
        let quiet = tokio::time::timeout(Duration::from_millis(100), alarm.rings());
        assert!(quiet.await.is_err());
        file(folder.path(), "b");
        alarm.rings().await;
    }

    #[tokio::test]
    async fn where_the_system_does_not_tell_nothing_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let mut alarm = Alarm::over(&folder.path().join("none"));
        let quiet = tokio::time::timeout(Duration::from_millis(50), alarm.rings());
        assert!(quiet.await.is_err());
    }

    #[test]
    fn what_another_process_wrote_is_not_the_engine_s() {
        let folder = tempfile::tempdir_in(FOLDER).unwrap();
        let mut watch = Watch::over(folder.path());
        let path = file(folder.path(), "dataset");
        let other = std::process::Command::new("sleep")
            .arg("60")
            .stdin(fs::File::open(&path).unwrap())
            .stdout(writer(&path))
            .spawn();
        let mut other = other.unwrap();
        watch.look(&this());
        assert!(watch.seen.is_empty());
        watch.look(&process(other.id()));
        assert_eq!(watch.seen.len(), 1, "a descriptor for writing is seen");
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
        let written = written_since(since + 0.01, &this());
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
        let mut watch = Watch::over(folder.path());
        let other = file(folder.path(), "b");
        fs::rename(other, &path).unwrap();
        let engine = writer(&path);
        watch.look(&this());
        drop(engine);
        assert_eq!(watch.free().files, 1);
    }
}
