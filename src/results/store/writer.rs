//! Writes a run.

mod finished;
mod hosts;
mod open;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::backup::{Backups, free_number, move_to_backup, numbered_backup, replace_with_backup};
use super::error::{IoContext, Result, StoreError};
use super::files::read_json;
use super::journal::Journal;
use super::lock::Lock;
use super::log::Log;
use super::open_folder::OpenFolder;
use super::redact_json::{JsonLayout, to_redacted_json};
use super::run_folder::{read_plan, read_run_info};
use super::{atomic, layout};
use crate::base::clock;
use crate::base::ids::{LaunchId, RunId};
use crate::base::private_files::open_file;
use crate::base::secrets::Redactor;
use crate::plan::{Measurement, Plan};
use crate::results::record::FORMAT;
use crate::results::record::cell::{MeasurementSummary, ReplacedResult};
use crate::results::record::client::Calibration;
use crate::results::record::graded::GradedItem;
use crate::results::record::histogram::SecondHistogram;
use crate::results::record::machine::Machine;
use crate::results::record::post_mortem::PostMortem;
use crate::results::record::request::Request;
use crate::results::record::run::RunInfo;
use crate::results::record::stored_answers::StoredAnswers;
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
    lock: Lock,
}

/// What is written when a run begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunManifest<'a> {
    /// The text of the matrix file.
    pub(crate) source: &'a str,
    /// The texts of the recipes, by name.
    pub(crate) recipes: &'a BTreeMap<String, String>,
    pub(crate) plan: &'a Plan,
    pub(crate) machine: &'a Machine,
}

/// Further data of a measurement beside summary and requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CellArtifacts<'a> {
    /// The engine's log during the measurement.
    pub(crate) log: &'a str,
    /// The post-mortem, if the measurement failed.
    pub(crate) post_mortem: Option<&'a PostMortem>,
    pub(crate) samples: &'a [Sample],
    /// What became of the items of graded tasks.
    pub(crate) graded: &'a [GradedItem],
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

    /// Records in the lock of the run where this process runs, such as `job 7 on node2`.
    pub(crate) fn note_place(&self, place: &str) -> Result<()> {
        self.lock
            .note_place(place)
            .io_context("write", &self.folder().join(layout::LOCK))
    }

    /// Writes the files of the beginning, `run.json` last. In a resumed run, changed files are kept as
    /// `.old-<n>`. Measurements whose cell changed are moved aside and returned. If the run was measured on a different machine so far,
    /// its measurements get the facts of that one.
    pub(crate) fn begin_run(&self, beginning: &RunManifest) -> Result<Vec<Measurement>> {
        let RunManifest {
            source,
            recipes,
            plan,
            machine,
        } = beginning;
        self.check_place()?;
        replace_with_backup(&self.folder().join(layout::MATRIX), &self.redactor.redact(source))?;
        let folder = self.folder().join(layout::RECIPES);
        self.create_folder(&folder)?;
        for (name, text) in *recipes {
            let path = folder.join(format!("{}.yaml", layout::slug(name, &self.redactor)));
            replace_with_backup(&path, &self.redactor.redact(text))?;
        }
        self.create_folder(&self.folder().join(layout::LAUNCHES))?;
        self.create_folder(&self.folder().join(layout::CELLS))?;
        let changed = self.back_up_changed(plan)?;
        self.keep_host(machine)?;
        let path = self.folder().join(layout::PLAN);
        let text = self.to_pretty_json(*plan);
        match read_plan(self.folder()) {
            // It still has everything, so that no earlier version is kept.
            Ok(earlier) if plan.continues(&earlier) => write_text(&path, &text)?,
            _ => replace_with_backup(&path, &text)?,
        }
        replace_with_backup(
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
            .get_or_init(|| read_run_info(self.folder()).unwrap_or_else(|_| about()));
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
        replace_with_backup(
            &self.folder().join(layout::CALIBRATION),
            &self.to_pretty_json(calibration),
        )
    }

    /// Writes the answers of a stored run with which those of this run are compared; earlier ones are kept as `.old-<n>`.
    pub(crate) fn write_stored_answers(&self, answers: &StoredAnswers) -> Result<()> {
        self.check_place()?;
        replace_with_backup(
            &self.folder().join(layout::STORED_ANSWERS),
            &self.to_pretty_json(answers),
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

    /// Returns the results that count against the engine and that this measurement replaces, also if a change of the matrix moved them aside.
    pub(crate) fn replaced_results(&self, summary: &MeasurementSummary) -> Vec<ReplacedResult> {
        let folder = self.cell_dir(&summary.measurement());
        let read = |folder: &Path| read_json::<MeasurementSummary>(&folder.join(layout::SUMMARY), "").ok();
        let backups = || Backups::of_folder(&self.folder().join(layout::CELLS));
        let earlier = read(&folder).or_else(|| backups().of(&folder).find_map(|version| read(&version)));
        earlier.map_or_else(Vec::new, |earlier| earlier.replaced_by_another())
    }

    /// Writes a measurement that ended, the summary last. On return it is synced; only then may the journal
    /// report it. An earlier version is kept as `.old-<n>`. Blocks, for seconds if answers are long and many.
    /// On failure the measurement is not finished.
    pub(crate) fn write_cell<'s>(
        &self,
        summary: &MeasurementSummary,
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
        if !artifacts.graded.is_empty() {
            self.write_lines(&folder.join(layout::GRADED), artifacts.graded)?;
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
    pub(crate) fn amend_cell(
        &self,
        summary: &MeasurementSummary,
        post_mortem: Option<&PostMortem>,
    ) -> Result<()> {
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
    pub(crate) fn summary(&self, measurement: &Measurement) -> Result<MeasurementSummary> {
        let path = self.cell_dir(measurement).join(layout::SUMMARY);
        read_json(&path, "the measurement was not finished")
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

    pub(super) fn to_pretty_json<T: Serialize + DeserializeOwned>(&self, value: &T) -> String {
        to_redacted_json(value, JsonLayout::Pretty, &self.redactor)
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
