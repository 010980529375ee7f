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

/// How hard zstd tries: its own default, far faster than any engine answers.
pub(super) const LEVEL: i32 = 3;

/// A run that this process writes; others are kept out until it is dropped.
#[derive(Debug)]
pub(crate) struct Store {
    run: RunId,
    place: Place,
    redactor: Redactor,
    /// What `run.json` holds, from when the run was begun or taken up again.
    about: OnceLock<About>,
    _lock: Lock,
}

/// What a run begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beginning<'a> {
    /// The text of the matrix as it was read.
    pub source: &'a str,
    /// The recipes' texts as they were read, by name.
    pub recipes: &'a BTreeMap<String, String>,
    pub plan: &'a Plan,
    pub machine: &'a Machine,
}

/// What belongs to a measurement beside its records.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Said<'a> {
    /// What the engine said meanwhile.
    pub log: &'a str,
    /// Why it failed, where it did.
    pub post_mortem: Option<&'a PostMortem>,
    /// What was sampled meanwhile.
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
    /// Makes the folder of a new run of a matrix below `root` and locks it: `<matrix>-<UTC stamp>`, with a number where that is taken.
    ///
    /// # Errors
    /// The disk refuses.
    pub(crate) fn create_new(root: &Path, matrix: &str, redactor: &Redactor) -> Result<Self> {
        sweep_cut_off(root);
        let mut tries = 0;
        loop {
            let run = Self::new_run_id(root, matrix, redactor);
            match Self::create(root, &run, redactor.clone()) {
                // Another process was quicker.
                Err(StoreError::Exists { .. }) if tries < 100 => tries += 1,
                made => return made,
            }
        }
    }

    /// Refuses what cannot be the name of a new run below `root`.
    ///
    /// # Errors
    /// A run of that name exists, its name would leave `root`, or is one of the store's own.
    pub(crate) fn check_new(root: &Path, run: &RunId) -> Result<()> {
        let folder = folder_of(root, run)?;
        match folder.exists() {
            true => Err(StoreError::Exists { path: folder }),
            false => Ok(()),
        }
    }

    /// A name for a new run of a matrix below `root`: `<matrix>-<UTC stamp>`, with a number where that is taken.
    pub(crate) fn new_run_id(root: &Path, matrix: &str, redactor: &Redactor) -> RunId {
        let name = format!("{}-{}", layout::slug(matrix, redactor), clock::stamp());
        let free = (2..).map(|number| format!("{name}-{number}"));
        let free = std::iter::once(name.clone())
            .chain(free)
            .find(|name| !root.join(name).exists());
        RunId::new(free.unwrap_or(name))
    }

    /// Makes the folder of a new run and locks it. Nothing is in it before [`Store::begin_run`].
    ///
    /// # Errors
    /// The run exists, its name would leave `root`, or the disk refuses.
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
            // Nobody else has anything in it yet, and its name is free for the next try.
            let _ = fs::remove_dir_all(folder);
        }
        made
    }

    /// Opens a run to go on with it.
    ///
    /// # Errors
    /// There is no such run, another process writes it, it has a newer format, or the disk refuses.
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

    /// Checks that the run's folder is still where it was when it was opened.
    ///
    /// # Errors
    /// It was moved or removed meanwhile; nothing is written any more.
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

    /// Writes what the run begins with, `run.json` last. In a run that goes on, what differs is kept as `.old-<n>`, and
    /// measurements whose cell has changed are set aside; those are returned.
    ///
    /// # Errors
    /// The disk refuses.
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

    /// Writes `run.json` again where something removed it while the run was under way, such as a job that deletes old files: without it the folder is
    /// no run.
    ///
    /// # Errors
    /// The disk refuses.
    pub(crate) fn restore_about(&self) -> Result<()> {
        self.check_place()?;
        let path = self.folder().join(layout::RUN);
        match self.about.get() {
            Some(about) if !path.exists() => put(&path, &self.pretty(about)),
            _ => Ok(()),
        }
    }

    /// Removes the folder of a run that could not be begun: half a beginning is no run, and nothing can go on with it. `false` where it was begun.
    pub(crate) fn discard_unbegun(&self) -> bool {
        let is_begun =
            self.about.get().is_some() || !matches!(self.folder().join(layout::RUN).try_exists(), Ok(false));
        !is_begun && self.discard()
    }

    /// Removes the run's folder; `false` where it is not there any more, or the disk refuses.
    pub(crate) fn discard(&self) -> bool {
        self.check_place().is_ok() && fs::remove_dir_all(self.folder()).is_ok()
    }

    /// Keeps what the client is worth on this machine; an earlier one of the run is kept as `.old-<n>`.
    ///
    /// # Errors
    /// The disk refuses.
    pub(crate) fn write_calibration(&self, calibration: &Calibration) -> Result<()> {
        self.check_place()?;
        self.renew(
            &self.folder().join(layout::CALIBRATION),
            &self.pretty(calibration),
        )
    }

    /// The journal, at its end.
    ///
    /// # Errors
    /// The disk refuses.
    pub(crate) fn journal(&self) -> Result<Journal> {
        self.check_place()?;
        Journal::open(self.folder().join(layout::JOURNAL), self.redactor.clone())
    }

    /// Our own log.
    ///
    /// # Errors
    /// The disk refuses.
    pub(crate) fn log(&self) -> Result<Log> {
        self.check_place()?;
        Log::open(&self.folder().join(layout::LOG), &self.redactor)
    }

    /// A new log for what an engine says after its start; that of an earlier try is kept aside.
    ///
    /// # Errors
    /// The disk refuses.
    pub(crate) fn engine_log(&self, launch: &LaunchId, start: u32) -> Result<Log> {
        self.launch_log(launch, start, layout::ENGINE_LOG)
    }

    /// A new log for what the installation before a start says; that of an earlier try is kept aside.
    ///
    /// # Errors
    /// The disk refuses.
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
            // The tails of the earlier log keep its number.
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

    /// The folder of a measurement. Whatever lies in it before the measurement ends is lost when it is written.
    pub(crate) fn cell_dir(&self, measurement: &Measurement) -> PathBuf {
        self.folder()
            .join(layout::CELLS)
            .join(layout::cell(measurement, &self.redactor))
    }

    /// Writes a measurement that ended, the summary last; on return it is on disk, and only then may the journal say so.
    /// An earlier one of the same measurement is set aside. It blocks, for seconds where answers are long and many.
    ///
    /// # Errors
    /// The disk refuses; then the measurement is not finished.
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
        // Of what another tool measured nobody knows the requests, nor what the engine said.
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

    /// Writes the summary of a finished measurement anew, where it turned out afterwards that it failed.
    ///
    /// # Errors
    /// The disk refuses.
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

    /// Where the post-mortem of a measurement is, if it has one.
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

    /// The plan's measurements that are finished on disk, however they ended, with the content that the plan gives them.
    ///
    /// # Errors
    /// A file is there and cannot be read. A broken summary is no error: its measurement is not finished.
    pub(crate) fn finished(&self, plan: &Plan) -> Result<BTreeMap<Measurement, Summary>> {
        let mut finished = BTreeMap::new();
        self.each_on_disk(plan, |measurement, _, mut summary, is_same| {
            if is_same {
                // On disk a name may lack a secret.
                summary.cell = measurement.cell.clone();
                finished.insert(measurement.clone(), summary);
            }
            Ok(())
        })?;
        Ok(finished)
    }

    /// The plan's measurements that were done with another content than the plan gives them: [`Store::begin_run`] will set them aside.
    ///
    /// # Errors
    /// As [`Store::finished`].
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

    /// Visits the plan's measurements that have a readable summary, with whether its content is the planned one.
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

    /// Writes `results.jsonl` anew: one line for each value.
    ///
    /// # Errors
    /// The disk refuses.
    pub(crate) fn write_results(&self, lines: &[serde_json::Value]) -> Result<()> {
        self.check_place()?;
        let text: String = lines
            .iter()
            .map(|line| json(line, Form::Line, &self.redactor))
            .collect();
        put(&self.folder().join(layout::RESULTS), &text)
    }

    /// Appends a line to `results.jsonl`. What a crash leaves of it goes when the run goes on and the file is written anew.
    ///
    /// # Errors
    /// The disk refuses.
    pub(crate) fn append_result(&self, line: &serde_json::Value) -> Result<()> {
        self.check_place()?;
        let path = self.folder().join(layout::RESULTS);
        let text = json(line, Form::Line, &self.redactor);
        let file = open_file(fs::OpenOptions::new().create(true).append(true), &path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .tried("append to", &path)
    }

    /// The summary of a finished measurement.
    ///
    /// # Errors
    /// It is missing or broken, or the disk refuses.
    pub(crate) fn summary(&self, measurement: &Measurement) -> Result<Summary> {
        let path = self.cell_dir(measurement).join(layout::SUMMARY);
        reader::json(&path, "it was not finished")
    }

    /// Writes a document beside the records, in place of the last one of that name, and says where it is.
    ///
    /// # Errors
    /// The name is not a plain file name or is one of the store's own; the disk refuses.
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

    /// Puts a text at `path`; another text that was there is kept aside.
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

/// Removes the unfinished files of runs below `root` that were killed while they began. Such a folder is no run, so that nobody goes on
/// with it; what else is in it stays.
fn sweep_cut_off(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let folder = entry.path();
        if folder.join(layout::RUN).exists() {
            continue;
        }
        // Under its lock no process writes there, so that even a file of this moment was left.
        let Some(_lock) = lock::keep_out(&folder) else {
            continue;
        };
        for folder in [folder.join(layout::RECIPES), folder] {
            let _ = atomic::sweep(&folder);
        }
    }
}

/// Removes what an unfinished measurement left, but for records of requests that ended.
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

/// A free name for the present version of `path`.
fn aside(path: &Path) -> PathBuf {
    numbered(path, free_number(path))
}

/// The least number that no earlier version of `path` has.
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
