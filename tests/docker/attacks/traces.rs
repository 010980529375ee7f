//! What an attacked command leaves behind, and what its runs hold once they are complete.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use matrix::results::record::cell::MeasurementStatus;
use matrix::results::record::event::Event;
use matrix::results::store::Run as Finished;
use rustix::process::Signal;

use super::jobs::Case;
use super::{Field, signal};
use crate::daemon::folder;
use crate::harness::Bench;

impl Field<'_> {
    /// Everything of ours that is still there, and what of others is touched; after a run was completed also its files.
    pub fn left(&mut self, completed: Option<&Case>) -> Vec<String> {
        let mut left: Vec<String> = self
            .processes()
            .into_iter()
            .map(|(pid, command)| format!("left: process {pid} `{command}`"))
            .collect();
        // They must not be found again after the next attack.
        for (pid, _) in self.processes() {
            signal(pid, Signal::KILL);
        }
        left.extend(
            self.others
                .besides()
                .into_iter()
                .map(|what| format!("left: {what}")),
        );
        for path in [Path::new("/dev/shm"), &self.folder.path().join("temporary")] {
            for path in entries(path) {
                let name = path.display().to_string();
                let is_ours = path.starts_with(self.folder.path())
                    || name.contains(&self.token)
                    || self.segments.iter().any(|segment| name.contains(segment));
                if is_ours && !self.others.has(&path) {
                    left.push(format!("left: {name}"));
                    let _ = fs::remove_file(&path);
                }
            }
        }
        for path in entries(&self.folder.path().join("locks")) {
            if !self.others.has(&path) && is_locked(&path) {
                left.push(format!("locked: {}", path.display()));
            }
        }
        left.extend(
            groups(&self.commands)
                .into_iter()
                .map(|path| format!("left: {}", path.display())),
        );
        if let Some(case) = completed {
            for path in tree(&folder(&case.bench)) {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                if name.starts_with('.')
                    || name.ends_with(".new")
                    || path.parent().is_some_and(|parent| parent.ends_with("starts"))
                {
                    left.push(format!("left: {}", path.display()));
                }
                if name == "lock" && is_locked(&path) {
                    left.push(format!("locked: {}", path.display()));
                }
            }
        }
        left.extend(
            self.others
                .touched()
                .into_iter()
                .map(|what| format!("touched: {what}")),
        );
        left
    }

    /// What runs of ours: by what stands in its command line, whatever it did to its environment.
    pub fn processes(&self) -> Vec<(i32, String)> {
        let mut found = Vec::new();
        for entry in entries(Path::new("/proc")) {
            let name = entry
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let Ok(pid) = name.parse::<i32>() else { continue };
            let read = |name: &str| fs::read(entry.join(name)).unwrap_or_default();
            let command = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
            let is_zombie = String::from_utf8_lossy(&read("stat")).contains(") Z ");
            if command.contains(&self.token) && !is_zombie {
                found.push((pid, command));
            }
        }
        found
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Every file below a folder, links not followed.
fn tree(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in entries(folder) {
        match path.is_dir() && !path.is_symlink() {
            true => found.extend(tree(&path)),
            false => found.push(path),
        }
    }
    found
}

/// Whether somebody holds a lock on a file.
fn is_locked(path: &Path) -> bool {
    let Ok(file) = fs::File::open(path) else {
        return false;
    };
    matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock))
}

pub fn runs(bench: &Bench) -> Vec<PathBuf> {
    let mut runs = entries(&bench.results());
    runs.retain(|run| run.join("run.json").exists());
    runs
}

pub fn has_run(bench: &Bench) -> bool {
    !runs(bench).is_empty()
}

/// What is not measured exactly once in the runs of a case.
pub fn repeated(case: &Case) -> Vec<String> {
    let mut faults = Vec::new();
    let runs = runs(&case.bench);
    if case.measurements.is_some() && runs.len() != 1 {
        faults.push(format!("there are {} runs: {runs:?}", runs.len()));
    }
    for folder in &runs {
        let run = match Finished::read(folder) {
            Ok(run) => run,
            Err(error) => {
                faults.push(format!("{} cannot be read: {error}", folder.display()));
                continue;
            }
        };
        if let Some(count) = case.measurements
            && run.summaries.len() != count
        {
            faults.push(format!("{} of {count} measurements", run.summaries.len()));
        }
        for summary in &run.summaries {
            if summary.status != MeasurementStatus::Done {
                faults.push(format!("{} ended as {:?}", summary.cell, summary.status));
            }
        }
        faults.extend(run.warnings.iter().map(|doubt| format!("doubt: {doubt}")));
        let lines = fs::read_to_string(folder.join("results.jsonl")).unwrap_or_default();
        let actual: Vec<String> = lines
            .lines()
            .map(|line| {
                let value: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
                let ours = &value["matrix"];
                format!("{} {} {}", ours["cell"], ours["start"], ours["repeat"])
            })
            .collect();
        let once: BTreeSet<&String> = actual.iter().collect();
        if (actual.len(), once.len()) != (run.summaries.len(), run.summaries.len()) {
            faults.push(format!("results.jsonl tells {actual:?}"));
        }
        for measurement in run.plan.starts.iter().flat_map(|start| &start.cells) {
            let is_done = |event: &Event| matches!(event, Event::CellEnded { measurement: ended, status: ending, .. } if ended == measurement && ending == "done");
            let done = run.journal.iter().filter(|(_, event)| is_done(event)).count();
            // A kill between the summary and the journal's line leaves the line out; it never doubles it.
            if done > 1 {
                faults.push(format!("{} is done {done} times", measurement.cell));
            }
        }
        let aside = entries(&folder.join("cells"));
        // What was interrupted is set aside too.
        let was_done = |path: &&PathBuf| {
            let summary = fs::read_to_string(path.join("summary.json")).unwrap_or_default();
            let summary: serde_json::Value = serde_json::from_str(&summary).unwrap_or_default();
            path.to_string_lossy().contains(".old-") && summary["status"] == "done"
        };
        let aside = aside.iter().filter(was_done);
        faults.extend(aside.map(|path| format!("{} was measured again", path.display())));
    }
    faults
}

/// Cgroups that these commands made, each by how the names of its groups begin.
fn groups(commands: &[String]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            if !path.is_dir() || path.is_symlink() {
                continue;
            }
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if commands.iter().any(|command| name.starts_with(command)) {
                found.push(path.clone());
            }
            folders.push(path);
        }
    }
    found
}
