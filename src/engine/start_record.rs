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

use crate::base::private_files::{create_folder, is_private, open_file};
use crate::base::proc::{self, ProcessId};
use crate::engine::cgroup::Cgroup;
use crate::engine::ownership::{Owner, OwnershipTags};
use crate::engine::shared_memory;
use crate::engine::tagged_process::{self, TaggedProcess};

/// File extension of a record that is being written.
const TEMP_EXTENSION: &str = "new";

/// Maximum size of a record that is read, in bytes.
const MAX_RECORD_BYTES: u64 = 16 << 20;

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
    shared: BTreeSet<shared_memory::ShmFile>,
}

/// A process of a start whose owner has ended.
pub(super) struct OrphanProcess {
    pub(super) tags: OwnershipTags,
    pub(super) process: TaggedProcess,
}

/// A name for a start of this process that is never reused.
pub(super) fn unique_id(tags: &OwnershipTags) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{}-{number}", tags.owner.file_name())
}

impl StartRecord {
    /// Writes the record of a start. Called before the first process exists.
    pub(super) fn begin(cache: &Path, id: &str, tags: &OwnershipTags, cgroup: Option<&Cgroup>) -> Self {
        let mut record = Self::new(cache, id, tags);
        record.content.cgroup = cgroup.map(|group| group.folder().to_owned());
        record.write();
        record
    }

    /// Writes the record of a create request to a container daemon.
    pub(super) fn for_request(cache: &Path, tags: &OwnershipTags) -> Self {
        let mut record = Self::new(cache, &unique_id(tags), tags);
        record.content.is_request = true;
        record.write();
        record
    }

    fn new(cache: &Path, id: &str, tags: &OwnershipTags) -> Self {
        Self {
            path: folder(cache).join(format!("{id}.json")),
            content: Content {
                owner: tags.owner.to_string(),
                run: tags.run.clone(),
                start: tags.start.clone(),
                cgroup: None,
                is_request: false,
                processes: Vec::new(),
                shared: BTreeSet::new(),
            },
        }
    }

    /// Adds processes. If writing fails, they are found only by ownership tags and shim.
    pub(super) fn add(&mut self, members: &[ProcessId]) {
        let processes = &mut self.content.processes;
        let before = processes.len();
        for member in members {
            if !processes.contains(member) {
                processes.push(*member);
            }
        }
        if processes.len() > before {
            self.write();
        }
    }

    pub(super) fn add_shared(&mut self, files: &BTreeSet<shared_memory::ShmFile>) {
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
        let cgroup = self.content.cgroup.as_deref().and_then(Cgroup::from_folder);
        if cgroup.is_none() && !self.content.shared.iter().any(shared_memory::ShmFile::exists) {
            let _ = fs::remove_file(&self.path);
        }
    }

    fn write(&self) {
        let text = serde_json::to_string(&self.content).expect("a record is JSON");
        let unfinished = self.path.with_extension(TEMP_EXTENSION);
        let written = create_folder(self.path.parent().unwrap_or(Path::new("")))
            .and_then(|()| {
                let mut options = OpenOptions::new();
                options.write(true).create(true).truncate(true).mode(0o600);
                open_file(&mut options, &unfinished)
            })
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&unfinished, &self.path));
        if let Err(error) = written {
            tracing::warn!(
                "the record of this start could not be written to `{}`: {error}",
                self.path.display()
            );
        }
    }
}

/// A record whose owner has ended.
struct OrphanRecord {
    record: StartRecord,
    owner: Owner,
    cgroup: Option<Cgroup>,
}

fn orphan_records(cache: &Path) -> Vec<OrphanRecord> {
    let entries = fs::read_dir(folder(cache)).into_iter().flatten().flatten();
    let records = entries.filter_map(|entry| {
        let path = entry.path();
        let content = read_content(&path)?;
        // Pids of another host or container that shares the folder are not valid here.
        let owner =
            Owner::parse(&content.owner).filter(|owner| owner.is_in_this_namespace() && owner.is_dead())?;
        Some(OrphanRecord {
            owner,
            cgroup: content.cgroup.as_deref().and_then(Cgroup::from_folder),
            record: StartRecord { path, content },
        })
    });
    records.collect()
}

impl OrphanRecord {
    /// Running processes of the start, with their descendants.
    fn live_processes(&self) -> Vec<ProcessId> {
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
pub(super) fn orphan_processes(cache: &Path) -> Vec<OrphanProcess> {
    let mut all = Vec::new();
    for abandoned in orphan_records(cache) {
        let live = abandoned.live_processes();
        let tags = OwnershipTags {
            run: abandoned.record.content.run,
            start: abandoned.record.content.start,
            owner: abandoned.owner,
        };
        let processes = live.iter().filter_map(|id| tagged_process::by_id(id.pid));
        all.extend(processes.map(|process| OrphanProcess {
            tags: tags.clone(),
            process,
        }));
    }
    all
}

/// Result of freeing the shared memory of ended owners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordCleanup {
    pub(super) freed: Vec<String>,
    pub(super) remaining: Vec<String>,
}

/// A create request of an ended owner. The container may not exist yet.
pub(super) struct OrphanRequest {
    pub(super) tags: OwnershipTags,
    /// Time since the request, by the system clock.
    pub(super) age: Duration,
}

/// Create requests whose owners ended before the daemon answered.
pub(super) fn orphan_requests(cache: &Path) -> Vec<OrphanRequest> {
    let requests = orphan_records(cache)
        .into_iter()
        .filter_map(|OrphanRecord { record, owner, .. }| {
            let StartRecord { path, content } = record;
            let written = fs::metadata(path).and_then(|about| about.modified()).ok()?;
            content.is_request.then(|| OrphanRequest {
                // Zero if the clock was set back.
                age: written.elapsed().unwrap_or_default(),
                tags: OwnershipTags {
                    run: content.run,
                    start: content.start,
                    owner,
                },
            })
        });
    requests.collect()
}

/// Frees the shared memory of starts whose owner and processes have ended, and removes their records. Returns
/// what was freed and what had to stay.
pub(super) fn clean_up(cache: &Path) -> RecordCleanup {
    let mut outcome = RecordCleanup::default();
    for OrphanRecord { record, cgroup, .. } in orphan_records(cache)
        .into_iter()
        .filter(|one| one.live_processes().is_empty())
    {
        let Content {
            run, start, shared, ..
        } = &record.content;
        let cleanup = shared_memory::remove_orphans(shared);
        if let Some(used) = cleanup.used_summary() {
            outcome.remaining.push(format!("run {run} ({start}): {used}"));
        }
        if cleanup.files > 0 {
            outcome.freed.push(format!(
                "{:.1} MB of shared memory ({} files) that run {run} ({start}) left behind",
                cleanup.bytes as f64 / 1e6,
                cleanup.files
            ));
        }
        if let Some(cgroup) = cgroup {
            cgroup.remove_when_empty();
        }
        record.remove();
    }
    remove_unfinished(cache);
    outcome
}

/// Removes incomplete records of ended owners.
fn remove_unfinished(cache: &Path) {
    for entry in fs::read_dir(folder(cache)).into_iter().flatten().flatten() {
        let path = entry.path();
        let owner = path
            .file_stem()
            .and_then(|name| Owner::from_file_name(name.to_str()?));
        if path.extension().is_some_and(|end| end == TEMP_EXTENSION)
            && owner.is_some_and(|owner| owner.is_dead())
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
fn read_content(path: &Path) -> Option<Content> {
    let file = open_file(OpenOptions::new().read(true), path).ok()?;
    let about = file.metadata().ok()?;
    if path.extension()? != "json" || !is_private(&about) {
        return None;
    }
    let mut text = Vec::new();
    file.take(MAX_RECORD_BYTES).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A process without ownership tags, and an owner that has ended.
    fn untagged_process() -> (std::process::Child, ProcessId, Owner) {
        let child = std::process::Command::new("sleep")
            .arg("60")
            .env_clear()
            .spawn()
            .unwrap();
        let member = proc::by_id(child.id()).unwrap().id();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let this = Owner::current().unwrap().to_string();
        let (_, rest) = this.split_once(':').unwrap();
        let dead = Owner::parse(&format!("{}:{rest}", ended.id())).unwrap();
        ended.wait().unwrap();
        (child, member, dead)
    }

    fn record(cache: &Path, owner: Owner) -> StartRecord {
        let tags = OwnershipTags {
            run: "r".to_owned(),
            start: "a#1".to_owned(),
            owner,
        };
        StartRecord::begin(cache, &unique_id(&tags), &tags, None)
    }

    fn pids(cache: &Path) -> Vec<u32> {
        orphan_processes(cache)
            .iter()
            .map(|orphan| orphan.process.info.pid)
            .collect()
    }

    #[test]
    fn a_process_of_a_dead_owner_is_found_without_marks_until_it_is_gone() {
        let cache = tempfile::tempdir().unwrap();
        let (mut child, member, dead) = untagged_process();
        let mut live = record(cache.path(), Owner::current().unwrap());
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
        assert_eq!(clean_up(cache.path()), RecordCleanup::default());
        assert_eq!(files(), 1, "a record stays while its processes live");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(pids(cache.path()), [] as [u32; 0]);
        assert_eq!(clean_up(cache.path()), RecordCleanup::default());
        assert_eq!(files(), 0);
    }

    #[test]
    fn a_record_stays_until_its_cgroup_is_removed() {
        let cache = tempfile::tempdir().unwrap();
        let (mut child, _, dead) = untagged_process();
        // No process is listed in the cgroup, but it cannot be removed.
        let busy = cache.path().join("matrix-busy");
        fs::create_dir(&busy).unwrap();
        fs::write(busy.join("cgroup.kill"), "").unwrap();
        let group = Cgroup::from_folder(&busy);
        let tags = OwnershipTags {
            run: "r".to_owned(),
            start: "a#1".to_owned(),
            owner: dead,
        };
        let record = StartRecord::begin(cache.path(), &unique_id(&tags), &tags, group.as_ref());
        clean_up(cache.path());
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
        clean_up(cache.path());
        removed.join().unwrap();
        assert!(!busy.exists() && !record.path.exists());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn what_a_killed_writer_left_is_removed() {
        let cache = tempfile::tempdir().unwrap();
        let (mut child, _, dead) = untagged_process();
        let paths = [dead, Owner::current().unwrap()].map(|owner| {
            let path = record(cache.path(), owner).path;
            fs::rename(&path, path.with_extension(TEMP_EXTENSION)).unwrap();
            path.with_extension(TEMP_EXTENSION)
        });
        clean_up(cache.path());
        assert_eq!(paths.map(|path| path.exists()), [false, true]);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_record_that_another_user_could_have_written_is_not_believed() {
        let cache = tempfile::tempdir().unwrap();
        let (mut child, member, dead) = untagged_process();
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
        let (mut child, member, dead) = untagged_process();
        record(cache.path(), dead).add(&[member]);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
