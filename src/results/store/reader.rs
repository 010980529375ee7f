//! Reads a run without changing it, even if it is being written, incomplete or made by an earlier version.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::error::{IoContext, Result, StoreError};
use super::files::{open_regular_file, read_json, read_lines};
use super::run_folder::{cell_folders, read_plan, read_run_info, read_stored_answers};
use super::{journal, layout, partial};
use crate::plan::{Measurement, Plan};
use crate::results::record::cell::MeasurementSummary;
use crate::results::record::event::Event;
use crate::results::record::histogram::SecondHistogram;
use crate::results::record::machine::Machine;
use crate::results::record::request::Request;
use crate::results::record::run::RunInfo;
use crate::results::record::stored_answers::StoredAnswers;
use crate::results::record::telemetry::Sample;
use crate::results::record::tune::TuneRecord;

/// A run on disk. Its requests are read on demand.
#[derive(Clone, Debug)]
pub struct Run {
    pub(crate) folder: PathBuf,
    /// Name, matrix and version of the run.
    pub info: RunInfo,
    /// The plan of the run.
    pub plan: Plan,
    /// The host that measured.
    pub machine: Machine,
    /// Answers of the stored reference, if the plan has one and they can be read.
    pub(crate) stored_answers: Option<StoredAnswers>,
    /// Finished measurements of the plan, in the plan's order.
    pub summaries: Vec<MeasurementSummary>,
    /// Finished measurements that are not in the plan (any more).
    pub(crate) unplanned: Vec<MeasurementSummary>,
    /// Folders of cells without a finished measurement.
    pub unfinished: Vec<UnfinishedMeasurement>,
    /// Events of the journal with their times.
    pub journal: Vec<(String, Event)>,
    /// Whether a part of the journal could not be read.
    pub(crate) is_journal_damaged: bool,
    /// The search for the best configuration whose trials the run has, if it has.
    pub(crate) tune: Option<TuneRecord>,
    /// Messages about files that could not be read and were skipped.
    pub warnings: Vec<String>,
    cell_paths: BTreeMap<Measurement, PathBuf>,
}

/// A measurement that is not finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedMeasurement {
    pub(crate) folder: PathBuf,
    /// What is missing or wrong.
    pub(crate) reason: String,
}

impl Run {
    /// Reads the run in `folder`.
    ///
    /// # Errors
    /// The folder holds no run, the format is newer, or the plan is missing or invalid.
    pub fn read(folder: &Path) -> Result<Self> {
        let about = read_run_info(folder)?;
        let plan = read_plan(folder)?;
        let mut warnings = Vec::new();
        let machine =
            read_json(&folder.join(layout::MACHINE), "the machine is unknown").unwrap_or_else(|error| {
                warnings.push(error.to_string());
                Machine::default()
            });
        let stored_answers = plan.stored_reference.as_ref().and_then(|_| {
            let read = read_stored_answers(folder);
            read.map_err(|error| warnings.push(error.to_string())).ok()
        });
        let warnings_before = warnings.len();
        let path = folder.join(layout::JOURNAL);
        let journal = match journal::read_journal(&path) {
            Ok(contents) => {
                warnings.extend(contents.warnings);
                contents.events
            }
            Err(error) => {
                warnings.push(format!("cannot read `{}`: {error}", path.display()));
                Vec::new()
            }
        };
        let is_journal_damaged = warnings.len() > warnings_before;
        let tune = match read_json(&folder.join(layout::TUNE), "") {
            Ok(record) => Some(record),
            Err(StoreError::Missing { .. }) => None,
            Err(error) => {
                warnings.push(error.to_string());
                None
            }
        };
        let mut run = Self {
            folder: folder.to_owned(),
            info: about,
            plan,
            machine,
            stored_answers,
            summaries: Vec::new(),
            unplanned: Vec::new(),
            unfinished: Vec::new(),
            journal,
            is_journal_damaged,
            tune,
            warnings,
            cell_paths: BTreeMap::new(),
        };
        run.read_cells()?;
        run.complete_hosts();
        Ok(run)
    }

    /// In a run of several hosts, measurements without a host of their own are those of the run's host.
    fn complete_hosts(&mut self) {
        if self.summaries.iter().all(|summary| summary.machine.is_none()) {
            return;
        }
        for summary in &mut self.summaries {
            if summary.imported.is_none() {
                summary
                    .machine
                    .get_or_insert_with(|| Box::new(self.machine.clone()));
            }
        }
    }

    fn read_cells(&mut self) -> Result<()> {
        let mut summaries = BTreeMap::new();
        for folder in cell_folders(&self.folder)? {
            let path = folder.join(layout::SUMMARY);
            let result = read_json(&path, "the measurement was not finished").and_then(
                |summary: MeasurementSummary| match summary.contradiction() {
                    Some(reason) => Err(StoreError::Malformed { path, why: reason }),
                    None => Ok(summary),
                },
            );
            let summary = match result {
                Ok(summary) => summary,
                Err(error) => {
                    let reason = error.to_string();
                    self.warnings.push(match partial::partial_progress(&folder) {
                        Err(_) => reason.clone(),
                        Ok(reached) => format!(
                            "{reason}; `{}` contains the requests that had ended (number: {}); \
                             the last one ended {:.1} s after the load began",
                            layout::PARTIAL,
                            reached.requests,
                            reached.last_end_s
                        ),
                    });
                    self.unfinished.push(UnfinishedMeasurement { folder, reason });
                    continue;
                }
            };
            let measurement = Measurement {
                cell: summary.cell.clone(),
                start: summary.start,
                repeat: summary.repeat,
            };
            if let Some(other) = self.cell_paths.insert(measurement.clone(), folder.clone()) {
                let (one, two) = (other.display(), folder.display());
                self.warnings.push(format!(
                    "`{one}` and `{two}` contain the same measurement; only the second folder is used"
                ));
            }
            summaries.insert(measurement, summary);
        }
        self.drop_copies(&mut summaries);
        for measurement in self.plan.starts.iter().flat_map(|start| &start.cells) {
            self.summaries.extend(summaries.remove(measurement));
        }
        self.unplanned.extend(summaries.into_values());
        if let Some(first) = self.unplanned.first() {
            self.warnings.push(format!(
                "`{}` contains results of {} {} that the plan of the run does not contain, such as `{}`; these results are not shown",
                self.folder.display(),
                self.unplanned.len(),
                if self.unplanned.len() == 1 {
                    "cell"
                } else {
                    "cells"
                },
                first.cell
            ));
        }
        Ok(())
    }

    /// Drops copied summaries: two measurements of a cell never have the same begin and metrics.
    fn drop_copies(&mut self, summaries: &mut BTreeMap<Measurement, MeasurementSummary>) {
        let mut originals: Vec<(Measurement, MeasurementSummary)> = Vec::new();
        for (measurement, summary) in std::mem::take(summaries) {
            let is_copy = |(_, other): &&(Measurement, MeasurementSummary)| {
                other.cell == summary.cell
                    && !other.began.is_empty()
                    && other.began == summary.began
                    && !other.figures.is_empty()
                    && other.figures == summary.figures
            };
            match originals.iter().find(is_copy) {
                Some((original, _)) => self.warnings.push(format!(
                    "start {}, repeat {} of `{}` is a copy of start {}, repeat {}: only one is used",
                    measurement.start, measurement.repeat, measurement.cell, original.start, original.repeat
                )),
                None => originals.push((measurement, summary)),
            }
        }
        summaries.extend(originals);
    }

    /// The folder of a finished measurement.
    pub(crate) fn cell_dir(&self, measurement: &Measurement) -> Option<&Path> {
        self.cell_paths.get(measurement).map(PathBuf::as_path)
    }

    /// The path of the post-mortem, if the measurement has one.
    pub(crate) fn post_mortem(&self, measurement: &Measurement) -> Option<PathBuf> {
        let path = self.cell_dir(measurement)?.join(layout::POST_MORTEM);
        path.exists().then_some(path)
    }

    /// Reads the requests of a finished measurement.
    ///
    /// # Errors
    /// The file is missing or invalid.
    pub fn read_requests(&self, measurement: &Measurement) -> Result<Vec<Request>> {
        let (file, path) = self.open(
            measurement,
            layout::REQUESTS,
            "the metrics remain in `summary.json`, but the single requests cannot be read",
        )?;
        read_lines(file, &path)
    }

    /// Reads the histograms of a finished measurement; `None` if there are none, as in older runs.
    ///
    /// # Errors
    /// The measurement is not finished, or the file is invalid.
    pub fn read_seconds(&self, measurement: &Measurement) -> Result<Option<Vec<SecondHistogram>>> {
        let help = "`requests.jsonl.zst` also contains the data from which the histograms are made";
        match self.open(measurement, layout::HISTOGRAMS, help) {
            Ok((file, path)) => read_lines(file, &path).map(Some),
            Err(StoreError::Missing { .. }) if self.cell_dir(measurement).is_some() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the telemetry samples of a finished measurement; `None` if there are none.
    ///
    /// # Errors
    /// The measurement is not finished, or the file is invalid.
    pub fn read_telemetry(&self, measurement: &Measurement) -> Result<Option<Vec<Sample>>> {
        let help = "statistics of the telemetry remain in `summary.json`, but its samples cannot be read";
        match self.open(measurement, layout::TELEMETRY, help) {
            Ok((file, path)) => read_lines(file, &path).map(Some),
            Err(StoreError::Missing { .. }) if self.cell_dir(measurement).is_some() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the engine's log during a finished measurement.
    ///
    /// # Errors
    /// The file is missing or cannot be read.
    pub fn read_engine_log(&self, measurement: &Measurement) -> Result<String> {
        let (file, path) = self.open(measurement, layout::ENGINE_LOG, "the engine's log is lost")?;
        io::read_to_string(file).io_context("read", &path)
    }

    fn open(&self, measurement: &Measurement, name: &str, help: &'static str) -> Result<(File, PathBuf)> {
        let Some(folder) = self.cell_dir(measurement) else {
            let Measurement { cell, start, repeat } = measurement;
            return Err(StoreError::Missing {
                path: self.folder.join(format!(
                    "{}/{cell} (start {start}, repeat {repeat})",
                    layout::CELLS
                )),
                help: "the measurement is not finished; continue the run with `--resume`",
            });
        };
        let path = folder.join(name);
        match open_regular_file(&path) {
            Ok(file) => Ok((file, path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(StoreError::Missing { path, help }),
            Err(error) => Err(error).io_context("open", &path),
        }
    }
}
