//! Writes a run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::lock::{self, Lock};
use super::log::Log;
use super::open_folder::OpenFolder;
use super::redact_json::{JsonLayout, to_redacted_json};
use super::{IoContext, Journal, Result, StoreError, atomic, layout, reader};
use crate::base::clock;
use crate::base::ids::{LaunchId, RunId};
use crate::base::private_files::open_file;
use crate::base::secrets::Redactor;
use crate::plan::{Measurement, Plan};
use crate::results::record::FORMAT;
use crate::results::record::cell::{MeasurementStatus, Summary};
use crate::results::record::client::Calibration;
use crate::results::record::histogram::SecondHistogram;
use crate::results::record::machine::Machine;
use crate::results::record::post_mortem::PostMortem;
use crate::results::record::request::Request;
use crate::results::record::run::RunInfo;
use crate::results::record::telemetry::Sample;

/// Compression level of zstd: its default, which is much faster than any engine answers.
pub(super) const ZSTD_LEVEL: i32 = 3;

/// A run that this process writes. The lock excludes other writers until it is dropped.
#[derive(Debug)]
pub(crate) struct Store {
    run: RunId,
    folder: OpenFolder,
    redactor: Redactor,
    /// Content of `run.json`, set when the run begins or is resumed.
    info: OnceLock<RunInfo>,
    _lock: Lock,
}

/// What is written when a run begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunManifest<'a> {
    /// The text of the matrix file.
    pub source: &'a str,
    /// The texts of the recipes, by name.
    pub recipes: &'a BTreeMap<String, String>,
    pub plan: &'a Plan,
    pub machine: &'a Machine,
}

/// Further data of a measurement beside summary and requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CellArtifacts<'a> {
    /// The engine's log during the measurement.
    pub log: &'a str,
    /// The post-mortem, if the measurement failed.
    pub post_mortem: Option<&'a PostMortem>,
    /// The telemetry samples.
    pub samples: &'a [Sample],
}

impl<'a> From<&'a str> for CellArtifacts<'a> {
    fn from(log: &'a str) -> Self {
        Self {
            log,
            ..Self::default()
        }
    }
}

impl Store {
    /// Creates and locks the folder of a new run of a matrix below `root`: `<matrix>-<UTC stamp>`, with a
    /// number if that name is taken.
    pub(crate) fn create_new(root: &Path, matrix: &str, redactor: &Redactor) -> Result<Self> {
        sweep_incomplete_runs(root);
        let mut tries = 0;
        loop {
            let run = Self::new_run_id(root, matrix, redactor);
            match Self::create(root, &run, redactor.clone()) {
                // Another process took the name.
                Err(StoreError::Exists { .. }) if tries < 100 => tries += 1,
                made => return made,
            }
        }
    }

    /// Checks that `run` can name a new run below `root`: it must not exist and must be a plain name that the
    /// store does not use.
    pub(crate) fn check_new(root: &Path, run: &RunId) -> Result<()> {
        let folder = run_folder(root, run)?;
        match folder.exists() {
            true => Err(StoreError::Exists { path: folder }),
            false => Ok(()),
        }
    }

    /// A free name for a new run of a matrix below `root`: `<matrix>-<UTC stamp>`, with a number if that name
    /// is taken.
    pub(crate) fn new_run_id(root: &Path, matrix: &str, redactor: &Redactor) -> RunId {
        let name = format!("{}-{}", layout::slug(matrix, redactor), clock::stamp());
        let free = (2..).map(|number| format!("{name}-{number}"));
        let free = std::iter::once(name.clone())
            .chain(free)
            .find(|name| !root.join(name).exists());
        RunId::new(free.unwrap_or(name))
    }

    /// Creates and locks the folder of a new run. It stays empty until [`Store::begin_run`].
    pub(crate) fn create(root: &Path, run: &RunId, redactor: Redactor) -> Result<Self> {
        let folder = run_folder(root, run)?;
        fs::create_dir_all(root).io_context("make the folder", root)?;
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(StoreError::Exists { path: folder });
            }
            result => result.io_context("make the folder", &folder)?,
        }
        let result = atomic::sync_folder(root)
            .io_context("sync", root)
            .and_then(|()| Self::open_locked(run, folder.clone(), redactor));
        if result.is_err() {
            // The folder is empty, and removing it frees the name for the next attempt.
            let _ = fs::remove_dir_all(folder);
        }
        result
    }

    /// Opens an existing run to resume it. Fails if it does not exist, another process writes it, or its
    /// format is newer.
    pub(crate) fn open(root: &Path, run: &RunId, redactor: Redactor) -> Result<Self> {
        let folder = run_folder(root, run)?;
        let about = reader::read_run_info(&folder)?;
        let store = Self::open_locked(run, folder, redactor)?;
        let _ = store.info.set(about);
        for folder in [store.folder().to_owned(), store.folder().join(layout::RECIPES)] {
            if folder.is_dir() {
                atomic::sweep(&folder).io_context("sweep", &folder)?;
            }
        }
        Ok(store)
    }

    fn open_locked(run: &RunId, folder: PathBuf, redactor: Redactor) -> Result<Self> {
        let place = OpenFolder::open(folder)?;
        let lock = Lock::acquire(place.path())?;
        place.check_path()?;
        Ok(Self {
            run: run.clone(),
            folder: place,
            redactor,
            info: OnceLock::new(),
            _lock: lock,
        })
    }

    /// Checks that the run's folder is still at its path. Each write checks this first.
    pub(crate) fn check_place(&self) -> Result<()> {
        self.folder.check_path()
    }

    pub(super) fn create_folder(&self, folder: &Path) -> Result<()> {
        self.folder.create_subfolder(folder)
    }

    pub(crate) fn run(&self) -> &RunId {
        &self.run
    }

    pub(super) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes the files of the beginning, `run.json` last. In a resumed run, changed files are kept as
    /// `.old-<n>`. Measurements whose cell changed are moved aside and returned.
    pub(crate) fn begin_run(&self, beginning: &RunManifest) -> Result<Vec<Measurement>> {
        let RunManifest {
            source,
            recipes,
            plan,
            machine,
        } = beginning;
        self.check_place()?;
        self.replace_with_backup(&self.folder().join(layout::MATRIX), &self.redactor.redact(source))?;
        let folder = self.folder().join(layout::RECIPES);
        self.create_folder(&folder)?;
        for (name, text) in *recipes {
            let path = folder.join(format!("{}.yaml", layout::slug(name, &self.redactor)));
            self.replace_with_backup(&path, &self.redactor.redact(text))?;
        }
        self.create_folder(&self.folder().join(layout::LAUNCHES))?;
        self.create_folder(&self.folder().join(layout::CELLS))?;
        let changed = self.back_up_changed(plan)?;
        self.replace_with_backup(&self.folder().join(layout::PLAN), &self.to_pretty_json(*plan))?;
        self.replace_with_backup(
            &self.folder().join(layout::MACHINE),
            &self.to_pretty_json(*machine),
        )?;
        self.journal()?;
        let about = || RunInfo {
            format: FORMAT,
            run: self.run.clone(),
            matrix: plan.matrix.clone(),
            tool: machine.tool.clone(),
            began: clock::timestamp(),
            files: layout::file_descriptions(),
        };
        let path = self.folder().join(layout::RUN);
        if !path.exists() {
            write_text(&path, &self.to_pretty_json(self.info.get().unwrap_or(&about())))?;
        }
        self.info
            .get_or_init(|| reader::read_run_info(self.folder()).unwrap_or_else(|_| about()));
        Ok(changed)
    }

    /// Writes `run.json` again if it was removed during the run, for example by a job that deletes old files.
    /// Without it the folder is no run.
    pub(crate) fn restore_run_info(&self) -> Result<()> {
        self.check_place()?;
        let path = self.folder().join(layout::RUN);
        match self.info.get() {
            Some(about) if !path.exists() => write_text(&path, &self.to_pretty_json(about)),
            _ => Ok(()),
        }
    }

    /// Removes the folder of a run that could not begin, because such a folder cannot be resumed. Returns
    /// `false` if the run has begun.
    pub(crate) fn discard_incomplete(&self) -> bool {
        let is_begun =
            self.info.get().is_some() || !matches!(self.folder().join(layout::RUN).try_exists(), Ok(false));
        !is_begun && self.discard()
    }

    /// Removes the run's folder; returns `false` if it is gone or cannot be removed.
    pub(crate) fn discard(&self) -> bool {
        self.check_place().is_ok() && fs::remove_dir_all(self.folder()).is_ok()
    }

    /// Writes the calibration of the client; an earlier one is kept as `.old-<n>`.
    pub(crate) fn write_calibration(&self, calibration: &Calibration) -> Result<()> {
        self.check_place()?;
        self.replace_with_backup(
            &self.folder().join(layout::CALIBRATION),
            &self.to_pretty_json(calibration),
        )
    }

    /// Opens the journal for appending.
    pub(crate) fn journal(&self) -> Result<Journal> {
        self.check_place()?;
        Journal::open(self.folder().join(layout::JOURNAL), self.redactor.clone())
    }

    /// Opens `matrix.log`.
    pub(crate) fn log(&self) -> Result<Log> {
        self.check_place()?;
        Log::open(&self.folder().join(layout::LOG), &self.redactor)
    }

    /// Creates the engine's log of a start; the log of an earlier attempt is kept as `.old-<n>`.
    pub(crate) fn engine_log(&self, launch: &LaunchId, start: u32) -> Result<Log> {
        self.launch_log(launch, start, layout::ENGINE_LOG)
    }

    /// Creates the installation log of a start; the log of an earlier attempt is kept as `.old-<n>`.
    pub(crate) fn install_log(&self, launch: &LaunchId, start: u32) -> Result<Log> {
        self.launch_log(launch, start, layout::INSTALL_LOG)
    }

    fn launch_log(&self, launch: &LaunchId, start: u32, name: &str) -> Result<Log> {
        let folder =
            self.folder()
                .join(layout::LAUNCHES)
                .join(layout::launch_folder(launch, start, &self.redactor));
        self.create_folder(&folder)?;
        let path = folder.join(name);
        if path.exists() {
            let number = free_number(&path);
            // The tails get the same number as their log.
            for part in [path.clone()].into_iter().chain(super::log::tail_paths(&path)) {
                if part.exists() {
                    let old = numbered_backup(&part, number);
                    fs::rename(&part, old).io_context("move aside", &part)?;
                }
            }
            atomic::sync_folder(&folder).io_context("sync", &folder)?;
        }
        Log::open(&path, &self.redactor)
    }

    /// The folder of a measurement. [`Self::write_cell`] replaces its content.
    pub(crate) fn cell_dir(&self, measurement: &Measurement) -> PathBuf {
        self.folder()
            .join(layout::CELLS)
            .join(layout::cell_folder(measurement, &self.redactor))
    }

    /// Writes a measurement that ended, the summary last. On return it is synced; only then may the journal
    /// report it. An earlier version is kept as `.old-<n>`. Blocks, for seconds if answers are long and many.
    /// On failure the measurement is not finished.
    pub(crate) fn write_cell<'s>(
        &self,
        summary: &Summary,
        requests: &[Request],
        seconds: &[SecondHistogram],
        artifacts: impl Into<CellArtifacts<'s>>,
    ) -> Result<()> {
        self.check_place()?;
        let artifacts = artifacts.into();
        let folder = self.cell_dir(&Measurement {
            cell: summary.cell.clone(),
            start: summary.start,
            repeat: summary.repeat,
        });
        if folder.join(layout::SUMMARY).exists() {
            move_to_backup(&folder)?;
        } else if folder.exists() {
            clear_unfinished(&folder)?;
        }
        self.create_folder(&folder)?;
        let is_ours = summary.imported.is_none();
        // An import has neither requests nor an engine log.
        if is_ours {
            self.write_lines(&folder.join(layout::REQUESTS), requests)?;
        }
        if !seconds.is_empty() {
            self.write_lines(&folder.join(layout::HISTOGRAMS), seconds)?;
        }
        if !artifacts.samples.is_empty() {
            self.write_lines(&folder.join(layout::TELEMETRY), artifacts.samples)?;
        }
        if is_ours {
            write_text(
                &folder.join(layout::ENGINE_LOG),
                &self.redactor.redact(artifacts.log),
            )?;
        }
        if let Some(post_mortem) = artifacts.post_mortem {
            let page = post_mortem.to_markdown();
            write_text(&folder.join(layout::POST_MORTEM), &self.redactor.redact(&page))?;
        }
        write_text(&folder.join(layout::SUMMARY), &self.to_pretty_json(summary))?;
        let partial = folder.join(layout::PARTIAL);
        if partial.exists() {
            fs::remove_file(&partial).io_context("remove", &partial)?;
        }
        let cells = self.folder().join(layout::CELLS);
        atomic::sync_folder(&cells).io_context("sync", &cells)
    }

    /// Rewrites the summary of a finished measurement that turned out to have failed.
    pub(crate) fn amend_cell(&self, summary: &Summary, post_mortem: Option<&PostMortem>) -> Result<()> {
        self.check_place()?;
        let folder = self.cell_dir(&summary.measurement());
        if let Some(post_mortem) = post_mortem {
            write_text(
                &folder.join(layout::POST_MORTEM),
                &self.redactor.redact(&post_mortem.to_markdown()),
            )?;
        }
        write_text(&folder.join(layout::SUMMARY), &self.to_pretty_json(summary))
    }

    /// The path that a post-mortem of the measurement has.
    pub(crate) fn post_mortem(&self, measurement: &Measurement) -> PathBuf {
        self.cell_dir(measurement).join(layout::POST_MORTEM)
    }

    fn write_lines<T: Serialize + DeserializeOwned>(&self, path: &Path, values: &[T]) -> Result<()> {
        atomic::write_with(path, |file: &mut File| {
            let mut lines = zstd::Encoder::new(BufWriter::new(file), ZSTD_LEVEL)?;
            lines.include_checksum(true)?;
            for value in values {
                lines.write_all(to_redacted_json(value, JsonLayout::Line, &self.redactor).as_bytes())?;
            }
            lines.finish()?.flush()
        })
        .io_context("write", path)
    }

    /// Reads the finished measurements of the plan with the planned content hash, with any ending. A broken
    /// summary is no error: its measurement is not finished.
    pub(crate) fn finished(&self, plan: &Plan) -> Result<BTreeMap<Measurement, Summary>> {
        let mut finished = BTreeMap::new();
        self.for_each_on_disk(plan, |measurement, _, mut summary, is_same| {
            if is_same {
                // A name on disk may have been redacted.
                summary.cell = measurement.cell.clone();
                finished.insert(measurement.clone(), summary);
            }
            Ok(())
        })?;
        Ok(finished)
    }

    /// The completed measurements of the plan with another content hash. [`Store::begin_run`] moves them
    /// aside.
    pub(crate) fn outdated(&self, plan: &Plan) -> Result<Vec<Measurement>> {
        let mut outdated = Vec::new();
        self.for_each_on_disk(plan, |measurement, _, summary, is_same| {
            if !is_same && summary.status == MeasurementStatus::Done {
                outdated.push(measurement.clone());
            }
            Ok(())
        })?;
        Ok(outdated)
    }

    fn back_up_changed(&self, plan: &Plan) -> Result<Vec<Measurement>> {
        let mut changed = Vec::new();
        self.for_each_on_disk(plan, |measurement, folder, _, is_same| {
            if !is_same {
                move_to_backup(folder)?;
                changed.push(measurement.clone());
            }
            Ok(())
        })?;
        Ok(changed)
    }

    /// Visits the measurements of the plan that have a readable summary, and says whether the content hash is
    /// the planned one.
    fn for_each_on_disk(
        &self,
        plan: &Plan,
        mut visit: impl FnMut(&Measurement, &Path, Summary, bool) -> Result<()>,
    ) -> Result<()> {
        for measurement in plan.starts.iter().flat_map(|start| &start.cells) {
            let folder = self.cell_dir(measurement);
            let summary: Summary = match reader::read_json(&folder.join(layout::SUMMARY), "") {
                Ok(summary) => summary,
                Err(StoreError::Missing { .. } | StoreError::Malformed { .. }) => continue,
                Err(error) => return Err(error),
            };
            let planned = self
                .redactor
                .redact(plan.cell(&measurement.cell).content.as_str());
            let same = self.redactor.redact(summary.content.as_str()) == planned;
            visit(measurement, &folder, summary, same)?;
        }
        Ok(())
    }

    /// Rewrites `results.jsonl`, one line for each value.
    pub(crate) fn write_results(&self, lines: &[serde_json::Value]) -> Result<()> {
        self.check_place()?;
        let text: String = lines
            .iter()
            .map(|line| to_redacted_json(line, JsonLayout::Line, &self.redactor))
            .collect();
        write_text(&self.folder().join(layout::RESULTS), &text)
    }

    /// Appends a line to `results.jsonl`. An incomplete line after a crash disappears when the resumed run
    /// rewrites the file.
    pub(crate) fn append_result(&self, line: &serde_json::Value) -> Result<()> {
        self.check_place()?;
        let path = self.folder().join(layout::RESULTS);
        let text = to_redacted_json(line, JsonLayout::Line, &self.redactor);
        let file = open_file(fs::OpenOptions::new().create(true).append(true), &path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .io_context("append to", &path)
    }

    /// Reads the summary of a finished measurement.
    pub(crate) fn summary(&self, measurement: &Measurement) -> Result<Summary> {
        let path = self.cell_dir(measurement).join(layout::SUMMARY);
        reader::read_json(&path, "the measurement was not finished")
    }

    /// Writes a report into the run's folder, replacing an earlier one, and returns its path. Fails if the
    /// name is not plain or is used by the store.
    pub(crate) fn write_report(&self, name: &str, text: &str) -> Result<PathBuf> {
        if !layout::is_plain_name(name)
            || layout::is_backup_name(name)
            || layout::RESERVED_NAMES.contains(&name)
        {
            return Err(StoreError::InvalidName {
                name: name.to_owned(),
                what: "a report",
            });
        }
        self.check_place()?;
        let path = self.folder().join(&*self.redactor.redact(name));
        write_text(&path, &self.redactor.redact(text))?;
        Ok(path)
    }

    fn to_pretty_json<T: Serialize + DeserializeOwned>(&self, value: &T) -> String {
        to_redacted_json(value, JsonLayout::Pretty, &self.redactor)
    }

    /// Writes a text to `path`; a different earlier text is kept as `.old-<n>`.
    fn replace_with_backup(&self, path: &Path, text: &str) -> Result<()> {
        match fs::read(path) {
            Ok(old) if old == text.as_bytes() => return Ok(()),
            Ok(old) => {
                let aside = backup_path(path);
                atomic::write(&aside, &old).io_context("write", &aside)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).io_context("read", path),
        }
        write_text(path, text)
    }
}

fn run_folder(root: &Path, run: &RunId) -> Result<PathBuf> {
    if !layout::is_run_name(run.as_str()) {
        return Err(StoreError::InvalidName {
            name: run.to_string(),
            what: "a run",
        });
    }
    Ok(root.join(run.as_str()))
}

/// Removes temporary files of runs below `root` that were killed before they began. Such a folder cannot be
/// resumed; its other files stay.
fn sweep_incomplete_runs(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let folder = entry.path();
        if folder.join(layout::RUN).exists() {
            continue;
        }
        // With the lock held no process writes there, so that every temporary file is an orphan.
        let Some(_lock) = lock::exclude_writers(&folder) else {
            continue;
        };
        for folder in [folder.join(layout::RECIPES), folder] {
            let _ = atomic::sweep(&folder);
        }
    }
}

/// Removes the files of an unfinished measurement except its partial records.
fn clear_unfinished(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).io_context("list", folder)? {
        let entry = entry.io_context("list", folder)?;
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with(layout::PARTIAL) {
            continue;
        }
        let removed = if path.is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.io_context("remove the unfinished", &path)?;
    }
    Ok(())
}

fn write_text(path: &Path, text: &str) -> Result<()> {
    atomic::write(path, text.as_bytes()).io_context("write", path)
}

/// A free name for the current version of `path`.
fn backup_path(path: &Path) -> PathBuf {
    numbered_backup(path, free_number(path))
}

/// The smallest number that no earlier version of `path` has.
fn free_number(path: &Path) -> u32 {
    (1..)
        .find(|number| !numbered_backup(path, *number).exists())
        .expect("a folder never holds as many versions as there are numbers")
}

/// The name of an earlier version of `path`.
fn numbered_backup(path: &Path, number: u32) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(layout::backup_name(&name, number))
}

pub(super) fn move_to_backup(path: &Path) -> Result<()> {
    fs::rename(path, backup_path(path)).io_context("move aside", path)?;
    let folder = atomic::parent_folder(path);
    atomic::sync_folder(folder).io_context("sync", folder)
}
