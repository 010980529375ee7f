//! The record of a start on disk: its processes and its files in shared memory. It identifies processes whose
//! ownership tags, shim and owner are all gone. Pid and start time identify a process until the next boot.
//!
//! Only records that belong to this user and that no other user can write are trusted, because the folder may
//! be shared.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use crate::base::own::{is_ours_alone, make_folder, open_file};
use crate::base::proc::{self, ProcessId};
use crate::engine::cgroup::Cgroup;
use crate::engine::ownership::{Marks, Owner};
use crate::engine::shared_memory;
use crate::engine::tagged_process::{self, TaggedProcess};

/// File extension of a record that is being written.
const UNFINISHED: &str = "new";

/// Maximum size of a record that is read, in bytes.
const LARGEST: u64 = 16 << 20;

/// The record of one start, updated while it runs.
#[derive(Clone, Debug)]
pub(super) struct StartRecord {
    path: PathBuf,
    content: Content,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Content {
    owner: String,
    run: String,
    start: String,
    #[serde(default)]
    cgroup: Option<PathBuf>,
    /// Whether it stands for a create request that the container daemon has not answered.
    #[serde(default)]
    is_request: bool,
    processes: Vec<ProcessId>,
    /// Files in shared memory that its processes wrote.
    #[serde(default)]
    shared: BTreeSet<shared_memory::File>,
}

/// A process of a start whose owner has ended.
pub(super) struct Orphan {
    pub(super) marks: Marks,
    pub(super) process: TaggedProcess,
}

/// A name for a start of this process that is never reused.
pub(super) fn unique_id(marks: &Marks) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{}-{number}", marks.owner.file_name())
}

impl StartRecord {
    /// Writes the record of a start. Called before the first process exists.
    pub(super) fn begin(cache: &Path, id: &str, marks: &Marks, cgroup: Option<&Cgroup>) -> Self {
        let mut record = Self::new(cache, id, marks);
        record.content.cgroup = cgroup.map(|group| group.folder().to_owned());
        record.write();
        record
    }

    /// Writes the record of a create request to a container daemon.
    pub(super) fn of_request(cache: &Path, marks: &Marks) -> Self {
        let mut record = Self::new(cache, &unique_id(marks), marks);
        record.content.is_request = true;
        record.write();
        record
    }

    fn new(cache: &Path, id: &str, marks: &Marks) -> Self {
        Self {
            path: folder(cache).join(format!("{id}.json")),
            content: Content {
                owner: marks.owner.to_string(),
                run: marks.run.clone(),
                start: marks.start.clone(),
                cgroup: None,
                is_request: false,
                processes: Vec::new(),
                shared: BTreeSet::new(),
            },
        }
    }

    /// Adds processes. If writing fails, they are found only by ownership tags and shim.
    pub(super) fn add(&mut self, members: &[ProcessId]) {
        let known = &mut self.content.processes;
        let before = known.len();
        for member in members {
            if !known.contains(member) {
                known.push(*member);
            }
        }
        if known.len() > before {
            self.write();
        }
    }

    pub(super) fn add_shared(&mut self, files: &BTreeSet<shared_memory::File>) {
        if !files.is_subset(&self.content.shared) {
            self.content.shared.extend(files.iter().cloned());
            self.write();
        }
    }

    pub(super) fn contains(&self, process: ProcessId) -> bool {
        self.content.processes.contains(&process)
    }

    /// Removes the record of a start whose processes have ended, unless its shared memory or cgroup still
    /// exists.
    pub(super) fn remove(&self) {
        let cgroup = self.content.cgroup.as_deref().and_then(Cgroup::of);
        if cgroup.is_none() && !self.content.shared.iter().any(shared_memory::File::exists) {
            let _ = fs::remove_file(&self.path);
        }
    }

    fn write(&self) {
        let text = serde_json::to_string(&self.content).expect("a record is JSON");
        let unfinished = self.path.with_extension(UNFINISHED);
        let written = make_folder(self.path.parent().unwrap_or(Path::new("")))
            .and_then(|()| {
                let mut options = OpenOptions::new();
                options.write(true).create(true).truncate(true).mode(0o600);
                open_file(&mut options, &unfinished)
            })
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&unfinished, &self.path));
        if let Err(error) = written {
            tracing::warn!(
                "the record of a start `{}` is not written: {error}",
                self.path.display()
            );
        }
    }
}

/// A record whose owner has ended.
struct Abandoned {
    record: StartRecord,
    owner: Owner,
    cgroup: Option<Cgroup>,
}

fn abandoned(cache: &Path) -> Vec<Abandoned> {
    let entries = fs::read_dir(folder(cache)).into_iter().flatten().flatten();
    let records = entries.filter_map(|entry| {
        let path = entry.path();
        let content = read(&path)?;
        // Pids of another host or container that shares the folder are not valid here.
        let owner =
            Owner::parse(&content.owner).filter(|owner| owner.is_seen_from_here() && owner.is_dead())?;
        Some(Abandoned {
            owner,
            cgroup: content.cgroup.as_deref().and_then(Cgroup::of),
            record: StartRecord { path, content },
        })
    });
    records.collect()
}

impl Abandoned {
    /// Running processes of the start, with their descendants.
    fn live(&self) -> Vec<ProcessId> {
        let is_same = |recorded: &&ProcessId| {
            tagged_process::by_id(recorded.pid).is_some_and(|process| process.info.id() == **recorded)
        };
        let recorded = self.record.content.processes.iter().filter(is_same);
        let grouped = self.cgroup.iter().flat_map(Cgroup::members);
        let live: Vec<u32> = recorded.map(|process| process.pid).chain(grouped).collect();
        match live.is_empty() {
            true => Vec::new(),
            false => proc::live_tree(&live),
        }
    }
}

/// Recorded processes of ended owners, with their descendants.
pub(super) fn orphans(cache: &Path) -> Vec<Orphan> {
    let mut all = Vec::new();
    for abandoned in abandoned(cache) {
        let live = abandoned.live();
        let marks = Marks {
            run: abandoned.record.content.run,
            start: abandoned.record.content.start,
            owner: abandoned.owner,
        };
        let processes = live.iter().filter_map(|id| tagged_process::by_id(id.pid));
        all.extend(processes.map(|process| Orphan {
            marks: marks.clone(),
            process,
        }));
    }
    all
}

/// Result of freeing the shared memory of ended owners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settled {
    pub(super) freed: Vec<String>,
    pub(super) remaining: Vec<String>,
}

/// A create request of an ended owner. The container may not exist yet.
pub(super) struct Request {
    pub(super) marks: Marks,
    /// Time since the request, by the system clock.
    pub(super) age: Duration,
}

/// Create requests whose owners ended before the daemon answered.
pub(super) fn requests(cache: &Path) -> Vec<Request> {
    let asked = abandoned(cache)
        .into_iter()
        .filter_map(|Abandoned { record, owner, .. }| {
            let StartRecord { path, content } = record;
            let written = fs::metadata(path).and_then(|about| about.modified()).ok()?;
            content.is_request.then(|| Request {
                // Zero if the clock was set back.
                age: written.elapsed().unwrap_or_default(),
                marks: Marks {
                    run: content.run,
                    start: content.start,
                    owner,
                },
            })
        });
    asked.collect()
}

/// Frees the shared memory of starts whose owner and processes have ended, and removes their records. Returns
/// what was freed and what had to stay.
pub(super) fn settle(cache: &Path) -> Settled {
    let mut all = Settled::default();
    for Abandoned { record, cgroup, .. } in abandoned(cache).into_iter().filter(|one| one.live().is_empty()) {
        let Content {
            run, start, shared, ..
        } = &record.content;
        let freed = shared_memory::free_left(shared);
        if let Some(used) = freed.used_words() {
            all.remaining.push(format!("of run {run} ({start}) {used}"));
        }
        if freed.files > 0 {
            all.freed.push(format!(
                "{:.1} MB of shared memory (files: {}) of run {run} ({start})",
                freed.bytes as f64 / 1e6,
                freed.files
            ));
        }
        if let Some(cgroup) = cgroup {
            cgroup.remove_soon();
        }
        record.remove();
    }
    remove_unfinished(cache);
    all
}

/// Removes incomplete records of ended owners.
fn remove_unfinished(cache: &Path) {
    for entry in fs::read_dir(folder(cache)).into_iter().flatten().flatten() {
        let path = entry.path();
        let owner = path
            .file_stem()
            .and_then(|name| Owner::of_file_name(name.to_str()?));
        if path.extension().is_some_and(|end| end == UNFINISHED) && owner.is_some_and(|owner| owner.is_dead())
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// Folder of this user's records.
fn folder(cache: &Path) -> PathBuf {
    cache.join(format!("starts-{}", geteuid().as_raw()))
}

/// Reads a record; `None` if it is not trusted or not valid.
fn read(path: &Path) -> Option<Content> {
    let file = open_file(OpenOptions::new().read(true), path).ok()?;
    let about = file.metadata().ok()?;
    if path.extension()? != "json" || !is_ours_alone(&about) {
        return None;
    }
    let mut text = String::new();
    file.take(LARGEST).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A process without ownership tags, and an owner that has ended.
    fn bare() -> (std::process::Child, ProcessId, Owner) {
        let child = std::process::Command::new("sleep")
            .arg("60")
            .env_clear()
            .spawn()
            .unwrap();
        let member = proc::by_id(child.id()).unwrap().id();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let this = Owner::this().unwrap().to_string();
        let (_, rest) = this.split_once(':').unwrap();
        let dead = Owner::parse(&format!("{}:{rest}", ended.id())).unwrap();
        ended.wait().unwrap();
        (child, member, dead)
    }

    fn record(cache: &Path, owner: Owner) -> StartRecord {
        let marks = Marks {
            run: "r".to_owned(),
            start: "a#1".to_owned(),
            owner,
        };
        StartRecord::begin(cache, &unique_id(&marks), &marks, None)
    }

    fn pids(cache: &Path) -> Vec<u32> {
        orphans(cache)
            .iter()
            .map(|orphan| orphan.process.info.pid)
            .collect()
    }

    #[test]
    fn a_process_of_a_dead_owner_is_found_without_marks_until_it_is_gone() {
        let cache = tempfile::tempdir().unwrap();
        let (mut child, member, dead) = bare();
        let mut live = record(cache.path(), Owner::this().unwrap());
        live.add(&[member]);
        assert_eq!(pids(cache.path()), [] as [u32; 0], "its owner lives");
        live.remove();
        let mut orphaned = record(cache.path(), dead);
        let files = || fs::read_dir(folder(cache.path())).unwrap().count();
        assert_eq!(files(), 1, "the record is there before the first process");
        // The same pid with another start time is another process.
        orphaned.add(&[ProcessId {
            started: member.started + 1,
            ..member
        }]);
        assert_eq!(pids(cache.path()), [] as [u32; 0]);
        orphaned.add(&[member]);
        assert_eq!(pids(cache.path()), [member.pid]);
        assert_eq!(settle(cache.path()), Settled::default());
        assert_eq!(files(), 1, "a record stays while its processes live");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(pids(cache.path()), [] as [u32; 0]);
        assert_eq!(settle(cache.path()), Settled::default());
        assert_eq!(files(), 0);
    }

    #[test]
    fn a_record_stays_until_its_cgroup_is_removed() {
        let cache = tempfile::tempdir().unwrap();
        let (mut child, _, dead) = bare();
        // No process is listed in the cgroup, but it cannot be removed.
        let busy = cache.path().join("matrix-busy");
        fs::create_dir(&busy).unwrap();
        fs::write(busy.join("cgroup.kill"), "").unwrap();
        let group = Cgroup::of(&busy);
        let marks = Marks {
            run: "r".to_owned(),
            start: "a#1".to_owned(),
            owner: dead,
        };
        let record = StartRecord::begin(cache.path(), &unique_id(&marks), &marks, group.as_ref());
        settle(cache.path());
        assert!(record.path.exists());
        record.remove();
        assert!(record.path.exists());
        let removed = std::thread::spawn({
            let busy = busy.clone();
            move || {
                std::thread::sleep(Duration::from_millis(100));
                fs::remove_file(busy.join("cgroup.kill")).unwrap();
            }
        });
        settle(cache.path());
        removed.join().unwrap();
        assert!(!busy.exists() && !record.path.exists());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn what_a_killed_writer_left_is_removed() {
        let cache = tempfile::tempdir().unwrap();
        let (mut child, _, dead) = bare();
        let paths = [dead, Owner::this().unwrap()].map(|owner| {
            let path = record(cache.path(), owner).path;
            fs::rename(&path, path.with_extension(UNFINISHED)).unwrap();
            path.with_extension(UNFINISHED)
        });
        settle(cache.path());
        assert_eq!(paths.map(|path| path.exists()), [false, true]);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_record_that_another_user_could_have_written_is_not_believed() {
        let cache = tempfile::tempdir().unwrap();
        let (mut child, member, dead) = bare();
        let mut orphaned = record(cache.path(), dead);
        orphaned.add(&[member]);
        let mode = |mode: u32| fs::set_permissions(&orphaned.path, fs::Permissions::from_mode(mode)).unwrap();
        for open_to_others in [0o620, 0o602, 0o666] {
            mode(open_to_others);
            assert_eq!(pids(cache.path()), [] as [u32; 0], "{open_to_others:o}");
        }
        mode(0o600);
        let elsewhere = cache.path().join("elsewhere");
        fs::rename(&orphaned.path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &orphaned.path).unwrap();
        assert_eq!(pids(cache.path()), [] as [u32; 0], "a link is not followed");
        fs::remove_file(&orphaned.path).unwrap();
        fs::rename(&elsewhere, &orphaned.path).unwrap();
        if geteuid().is_root() {
            let nobody = Some(rustix::fs::Uid::from_raw(65534));
            rustix::fs::chown(&orphaned.path, nobody, None).unwrap();
            assert_eq!(pids(cache.path()), [] as [u32; 0], "it belongs to another user");
            rustix::fs::chown(&orphaned.path, Some(geteuid()), None).unwrap();
        }
        assert_eq!(pids(cache.path()), [member.pid]);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_folder_of_another_user_or_open_to_others_is_not_written_to() {
        let cache = tempfile::tempdir().unwrap();
        let folder = folder(cache.path());
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        let (mut child, member, dead) = bare();
        record(cache.path(), dead).add(&[member]);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
