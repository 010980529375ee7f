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
use super::place::Place;
use super::redact_json::{Form, json};
use super::{Journal, Result, StoreError, Tried, atomic, layout, reader};
use crate::base::clock;
use crate::base::ids::{LaunchId, RunId};
use crate::base::own::open_file;
use crate::base::secrets::Redactor;
use crate::plan::{Measurement, Plan};
use crate::results::record::FORMAT;
use crate::results::record::cell::{Ending, Summary};
use crate::results::record::client::Calibration;
use crate::results::record::histogram::Second;
use crate::results::record::machine::Machine;
use crate::results::record::post_mortem::PostMortem;
use crate::results::record::request::Request;
use crate::results::record::run::About;
use crate::results::record::telemetry::Sample;

/// Compression level of zstd: its default, which is much faster than any engine answers.
pub(super) const LEVEL: i32 = 3;

/// A run that this process writes. The lock excludes other writers until it is dropped.
#[derive(Debug)]
pub(crate) struct Store {
    run: RunId,
    place: Place,
    redactor: Redactor,
    /// Content of `run.json`, set when the run begins or is resumed.
    about: OnceLock<About>,
    _lock: Lock,
}

/// What is written when a run begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beginning<'a> {
    /// The text of the matrix file.
    pub source: &'a str,
    /// The texts of the recipes, by name.
    pub recipes: &'a BTreeMap<String, String>,
    pub plan: &'a Plan,
    pub machine: &'a Machine,
}

/// Further data of a measurement beside summary and requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Said<'a> {
    /// The engine's log during the measurement.
    pub log: &'a str,
    /// The post-mortem, if the measurement failed.
    pub post_mortem: Option<&'a PostMortem>,
    /// The telemetry samples.
    pub samples: &'a [Sample],
}

impl<'a> From<&'a str> for Said<'a> {
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
        sweep_cut_off(root);
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
        let folder = folder_of(root, run)?;
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
        let folder = folder_of(root, run)?;
        fs::create_dir_all(root).tried("make the folder", root)?;
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(StoreError::Exists { path: folder });
            }
            made => made.tried("make the folder", &folder)?,
        }
        let made = atomic::sync_folder(root)
            .tried("sync", root)
            .and_then(|()| Self::locked(run, folder.clone(), redactor));
        if made.is_err() {
            // The folder is empty, and removing it frees the name for the next attempt.
            let _ = fs::remove_dir_all(folder);
        }
        made
    }

    /// Opens an existing run to resume it. Fails if it does not exist, another process writes it, or its
    /// format is newer.
    pub(crate) fn open(root: &Path, run: &RunId, redactor: Redactor) -> Result<Self> {
        let folder = folder_of(root, run)?;
        let about = reader::about(&folder)?;
        let store = Self::locked(run, folder, redactor)?;
        let _ = store.about.set(about);
        for folder in [store.folder().to_owned(), store.folder().join(layout::RECIPES)] {
            if folder.is_dir() {
                atomic::sweep(&folder).tried("sweep", &folder)?;
            }
        }
        Ok(store)
    }

    fn locked(run: &RunId, folder: PathBuf, redactor: Redactor) -> Result<Self> {
        let place = Place::open(folder)?;
        let lock = Lock::take(place.path())?;
        place.check()?;
        Ok(Self {
            run: run.clone(),
            place,
            redactor,
            about: OnceLock::new(),
            _lock: lock,
        })
    }

    /// Checks that the run's folder is still at its path. Each write checks this first.
    pub(crate) fn check_place(&self) -> Result<()> {
        self.place.check()
    }

    pub(super) fn make(&self, folder: &Path) -> Result<()> {
        self.place.make(folder)
    }

    pub(crate) fn run(&self) -> &RunId {
        &self.run
    }

    pub(super) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    pub(crate) fn folder(&self) -> &Path {
        self.place.path()
    }

    /// Writes the files of the beginning, `run.json` last. In a resumed run, changed files are kept as
    /// `.old-<n>`. Measurements whose cell changed are moved aside and returned.
    pub(crate) fn begin_run(&self, beginning: &Beginning) -> Result<Vec<Measurement>> {
        let Beginning {
            source,
            recipes,
            plan,
            machine,
        } = beginning;
        self.check_place()?;
        self.renew(&self.folder().join(layout::MATRIX), &self.redactor.redact(source))?;
        let folder = self.folder().join(layout::RECIPES);
        self.make(&folder)?;
        for (name, text) in *recipes {
            let path = folder.join(format!("{}.yaml", layout::slug(name, &self.redactor)));
            self.renew(&path, &self.redactor.redact(text))?;
        }
        self.make(&self.folder().join(layout::LAUNCHES))?;
        self.make(&self.folder().join(layout::CELLS))?;
        let changed = self.set_changed_aside(plan)?;
        self.renew(&self.folder().join(layout::PLAN), &self.pretty(*plan))?;
        self.renew(&self.folder().join(layout::MACHINE), &self.pretty(*machine))?;
        self.journal()?;
        let about = || About {
            format: FORMAT,
            run: self.run.clone(),
            matrix: plan.matrix.clone(),
            tool: machine.tool.clone(),
            began: clock::timestamp(),
            files: layout::described(),
        };
        let path = self.folder().join(layout::RUN);
        if !path.exists() {
            put(&path, &self.pretty(self.about.get().unwrap_or(&about())))?;
        }
        self.about
            .get_or_init(|| reader::about(self.folder()).unwrap_or_else(|_| about()));
        Ok(changed)
    }

    /// Writes `run.json` again if it was removed during the run, for example by a job that deletes old files.
    /// Without it the folder is no run.
    pub(crate) fn restore_about(&self) -> Result<()> {
        self.check_place()?;
        let path = self.folder().join(layout::RUN);
        match self.about.get() {
            Some(about) if !path.exists() => put(&path, &self.pretty(about)),
            _ => Ok(()),
        }
    }

    /// Removes the folder of a run that could not begin, because such a folder cannot be resumed. Returns
    /// `false` if the run has begun.
    pub(crate) fn discard_unbegun(&self) -> bool {
        let is_begun =
            self.about.get().is_some() || !matches!(self.folder().join(layout::RUN).try_exists(), Ok(false));
        !is_begun && self.discard()
    }

    /// Removes the run's folder; returns `false` if it is gone or cannot be removed.
    pub(crate) fn discard(&self) -> bool {
        self.check_place().is_ok() && fs::remove_dir_all(self.folder()).is_ok()
    }

    /// Writes the calibration of the client; an earlier one is kept as `.old-<n>`.
    pub(crate) fn write_calibration(&self, calibration: &Calibration) -> Result<()> {
        self.check_place()?;
        self.renew(
            &self.folder().join(layout::CALIBRATION),
            &self.pretty(calibration),
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
        let folder = self
            .folder()
            .join(layout::LAUNCHES)
            .join(layout::launch(launch, start, &self.redactor));
        self.make(&folder)?;
        let path = folder.join(name);
        if path.exists() {
            let number = free_number(&path);
            // The tails get the same number as their log.
            for part in [path.clone()].into_iter().chain(super::log::tails(&path)) {
                if part.exists() {
                    let old = numbered(&part, number);
                    fs::rename(&part, old).tried("move aside", &part)?;
                }
            }
            atomic::sync_folder(&folder).tried("sync", &folder)?;
        }
        Log::open(&path, &self.redactor)
    }

    /// The folder of a measurement. [`Self::write_cell`] replaces its content.
    pub(crate) fn cell_dir(&self, measurement: &Measurement) -> PathBuf {
        self.folder()
            .join(layout::CELLS)
            .join(layout::cell(measurement, &self.redactor))
    }

    /// Writes a measurement that ended, the summary last. On return it is synced; only then may the journal
    /// report it. An earlier version is kept as `.old-<n>`. Blocks, for seconds if answers are long and many.
    /// On failure the measurement is not finished.
    pub(crate) fn write_cell<'s>(
        &self,
        summary: &Summary,
        requests: &[Request],
        seconds: &[Second],
        said: impl Into<Said<'s>>,
    ) -> Result<()> {
        self.check_place()?;
        let said = said.into();
        let folder = self.cell_dir(&Measurement {
            cell: summary.cell.clone(),
            start: summary.start,
            repeat: summary.repeat,
        });
        if folder.join(layout::SUMMARY).exists() {
            set_aside(&folder)?;
        } else if folder.exists() {
            clear(&folder)?;
        }
        self.make(&folder)?;
        let is_ours = summary.imported.is_none();
        // An import has neither requests nor an engine log.
        if is_ours {
            self.write_lines(&folder.join(layout::REQUESTS), requests)?;
        }
        if !seconds.is_empty() {
            self.write_lines(&folder.join(layout::HISTOGRAMS), seconds)?;
        }
        if !said.samples.is_empty() {
            self.write_lines(&folder.join(layout::TELEMETRY), said.samples)?;
        }
        if is_ours {
            put(&folder.join(layout::ENGINE_LOG), &self.redactor.redact(said.log))?;
        }
        if let Some(post_mortem) = said.post_mortem {
            let page = post_mortem.page();
            put(&folder.join(layout::POST_MORTEM), &self.redactor.redact(&page))?;
        }
        put(&folder.join(layout::SUMMARY), &self.pretty(summary))?;
        let partial = folder.join(layout::PARTIAL);
        if partial.exists() {
            fs::remove_file(&partial).tried("remove", &partial)?;
        }
        let cells = self.folder().join(layout::CELLS);
        atomic::sync_folder(&cells).tried("sync", &cells)
    }

    /// Rewrites the summary of a finished measurement that turned out to have failed.
    pub(crate) fn amend_cell(&self, summary: &Summary, post_mortem: Option<&PostMortem>) -> Result<()> {
        self.check_place()?;
        let folder = self.cell_dir(&summary.measurement());
        if let Some(post_mortem) = post_mortem {
            put(
                &folder.join(layout::POST_MORTEM),
                &self.redactor.redact(&post_mortem.page()),
            )?;
        }
        put(&folder.join(layout::SUMMARY), &self.pretty(summary))
    }

    /// The path that a post-mortem of the measurement has.
    pub(crate) fn post_mortem(&self, measurement: &Measurement) -> PathBuf {
        self.cell_dir(measurement).join(layout::POST_MORTEM)
    }

    fn write_lines<T: Serialize + DeserializeOwned>(&self, path: &Path, values: &[T]) -> Result<()> {
        atomic::write_with(path, |file: &mut File| {
            let mut lines = zstd::Encoder::new(BufWriter::new(file), LEVEL)?;
            lines.include_checksum(true)?;
            for value in values {
                lines.write_all(json(value, Form::Line, &self.redactor).as_bytes())?;
            }
            lines.finish()?.flush()
        })
        .tried("write", path)
    }

    /// Reads the finished measurements of the plan with the planned content hash, with any ending. A broken
    /// summary is no error: its measurement is not finished.
    pub(crate) fn finished(&self, plan: &Plan) -> Result<BTreeMap<Measurement, Summary>> {
        let mut finished = BTreeMap::new();
        self.each_on_disk(plan, |measurement, _, mut summary, is_same| {
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
        self.each_on_disk(plan, |measurement, _, summary, is_same| {
            if !is_same && summary.ending == Ending::Done {
                outdated.push(measurement.clone());
            }
            Ok(())
        })?;
        Ok(outdated)
    }

    fn set_changed_aside(&self, plan: &Plan) -> Result<Vec<Measurement>> {
        let mut changed = Vec::new();
        self.each_on_disk(plan, |measurement, folder, _, is_same| {
            if !is_same {
                set_aside(folder)?;
                changed.push(measurement.clone());
            }
            Ok(())
        })?;
        Ok(changed)
    }

    /// Visits the measurements of the plan that have a readable summary, and says whether the content hash is
    /// the planned one.
    fn each_on_disk(
        &self,
        plan: &Plan,
        mut visit: impl FnMut(&Measurement, &Path, Summary, bool) -> Result<()>,
    ) -> Result<()> {
        for measurement in plan.starts.iter().flat_map(|start| &start.cells) {
            let folder = self.cell_dir(measurement);
            let summary: Summary = match reader::json(&folder.join(layout::SUMMARY), "") {
                Ok(summary) => summary,
                Err(StoreError::Missing { .. } | StoreError::Broken { .. }) => continue,
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
            .map(|line| json(line, Form::Line, &self.redactor))
            .collect();
        put(&self.folder().join(layout::RESULTS), &text)
    }

    /// Appends a line to `results.jsonl`. An incomplete line after a crash disappears when the resumed run
    /// rewrites the file.
    pub(crate) fn append_result(&self, line: &serde_json::Value) -> Result<()> {
        self.check_place()?;
        let path = self.folder().join(layout::RESULTS);
        let text = json(line, Form::Line, &self.redactor);
        let file = open_file(fs::OpenOptions::new().create(true).append(true), &path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .tried("append to", &path)
    }

    /// Reads the summary of a finished measurement.
    pub(crate) fn summary(&self, measurement: &Measurement) -> Result<Summary> {
        let path = self.cell_dir(measurement).join(layout::SUMMARY);
        reader::json(&path, "it was not finished")
    }

    /// Writes a report into the run's folder, replacing an earlier one, and returns its path. Fails if the
    /// name is not plain or is used by the store.
    pub(crate) fn write_report(&self, name: &str, text: &str) -> Result<PathBuf> {
        if !layout::is_plain(name) || layout::is_old(name) || layout::OWN.contains(&name) {
            return Err(StoreError::Name {
                name: name.to_owned(),
                what: "a report",
            });
        }
        self.check_place()?;
        let path = self.folder().join(&*self.redactor.redact(name));
        put(&path, &self.redactor.redact(text))?;
        Ok(path)
    }

    fn pretty<T: Serialize + DeserializeOwned>(&self, value: &T) -> String {
        json(value, Form::Pretty, &self.redactor)
    }

    /// Writes a text to `path`; a different earlier text is kept as `.old-<n>`.
    fn renew(&self, path: &Path, text: &str) -> Result<()> {
        match fs::read(path) {
            Ok(old) if old == text.as_bytes() => return Ok(()),
            Ok(old) => {
                let aside = aside(path);
                atomic::write(&aside, &old).tried("write", &aside)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).tried("read", path),
        }
        put(path, text)
    }
}

fn folder_of(root: &Path, run: &RunId) -> Result<PathBuf> {
    if !layout::is_run_name(run.as_str()) {
        return Err(StoreError::Name {
            name: run.to_string(),
            what: "a run",
        });
    }
    Ok(root.join(run.as_str()))
}

/// Removes temporary files of runs below `root` that were killed before they began. Such a folder cannot be
/// resumed; its other files stay.
fn sweep_cut_off(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let folder = entry.path();
        if folder.join(layout::RUN).exists() {
            continue;
        }
        // With the lock held no process writes there, so that every temporary file is an orphan.
        let Some(_lock) = lock::keep_out(&folder) else {
            continue;
        };
        for folder in [folder.join(layout::RECIPES), folder] {
            let _ = atomic::sweep(&folder);
        }
    }
}

/// Removes the files of an unfinished measurement except its partial records.
fn clear(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).tried("list", folder)? {
        let entry = entry.tried("list", folder)?;
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with(layout::PARTIAL) {
            continue;
        }
        let removed = if path.is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.tried("remove the unfinished", &path)?;
    }
    Ok(())
}

fn put(path: &Path, text: &str) -> Result<()> {
    atomic::write(path, text.as_bytes()).tried("write", path)
}

/// A free name for the current version of `path`.
fn aside(path: &Path) -> PathBuf {
    numbered(path, free_number(path))
}

/// The smallest number that no earlier version of `path` has.
fn free_number(path: &Path) -> u32 {
    (1..)
        .find(|number| !numbered(path, *number).exists())
        .expect("a folder never holds as many versions as there are numbers")
}

/// The name of an earlier version of `path`.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(layout::old(&name, number))
}

pub(super) fn set_aside(path: &Path) -> Result<()> {
    fs::rename(path, aside(path)).tried("move aside", path)?;
    let folder = atomic::folder(path);
    atomic::sync_folder(folder).tried("sync", folder)
}
