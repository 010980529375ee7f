//! Reads a run without changing it, even if it is being written, incomplete or made by an earlier version.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::{IoContext, Result, StoreError};
use super::{journal, layout, partial};
use crate::plan::{Measurement, Plan};
use crate::results::record::FORMAT;
use crate::results::record::cell::Summary;
use crate::results::record::event::Event;
use crate::results::record::histogram::SecondHistogram;
use crate::results::record::machine::Machine;
use crate::results::record::request::Request;
use crate::results::record::run::RunInfo;
use crate::results::record::telemetry::Sample;

/// Longest line of compressed JSON that is read; records are far shorter.
const MAX_LINE_BYTES: u64 = 64 << 20;

const MAX_FILE_BYTES: u64 = 4 << 30;

/// A run on disk. Its requests are read on demand.
#[derive(Clone, Debug)]
pub struct Run {
    /// The run's folder.
    pub folder: PathBuf,
    /// Name, matrix and version of the run.
    pub info: RunInfo,
    /// The plan of the run.
    pub plan: Plan,
    /// The host that measured.
    pub machine: Machine,
    /// Finished measurements of the plan, in the plan's order.
    pub summaries: Vec<Summary>,
    /// Finished measurements that are not in the plan (any more).
    pub unplanned: Vec<Summary>,
    /// Folders of cells without a finished measurement.
    pub unfinished: Vec<UnfinishedMeasurement>,
    /// Events of the journal with their times.
    pub journal: Vec<(String, Event)>,
    /// Messages about files that could not be read and were skipped.
    pub warnings: Vec<String>,
    cell_paths: BTreeMap<Measurement, PathBuf>,
}

/// A measurement that is not finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedMeasurement {
    /// Its folder.
    pub folder: PathBuf,
    /// What is missing or wrong.
    pub reason: String,
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
        let mut run = Self {
            folder: folder.to_owned(),
            info: about,
            plan,
            machine,
            summaries: Vec::new(),
            unplanned: Vec::new(),
            unfinished: Vec::new(),
            journal,
            warnings,
            cell_paths: BTreeMap::new(),
        };
        run.read_cells()?;
        Ok(run)
    }

    fn read_cells(&mut self) -> Result<()> {
        let mut summaries = BTreeMap::new();
        for folder in cell_folders(&self.folder)? {
            let path = folder.join(layout::SUMMARY);
            let result =
                read_json(&path, "the measurement was not finished").and_then(
                    |summary: Summary| match summary.contradiction() {
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
                            "{reason}; `{}` has the requests that had ended: {}, the last one {:.1} s after \
                             the load began",
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
                    "`{one}` and `{two}` contain the same measurement; the second is used"
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
                "the plan does not contain {} measured {} of `{}`, such as `{}`: not shown",
                self.unplanned.len(),
                if self.unplanned.len() == 1 {
                    "cell"
                } else {
                    "cells"
                },
                self.folder.display(),
                first.cell
            ));
        }
        Ok(())
    }

    /// Drops copied summaries: two measurements of a cell never have the same begin and metrics.
    fn drop_copies(&mut self, summaries: &mut BTreeMap<Measurement, Summary>) {
        let mut originals: Vec<(Measurement, Summary)> = Vec::new();
        for (measurement, summary) in std::mem::take(summaries) {
            let is_copy = |(_, other): &&(Measurement, Summary)| {
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
    pub fn post_mortem(&self, measurement: &Measurement) -> Option<PathBuf> {
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
            "only the metrics in `summary.json` are left",
        )?;
        read_lines(file, &path)
    }

    /// Reads the histograms of a finished measurement; `None` if there are none, as in older runs.
    ///
    /// # Errors
    /// The measurement is not finished, or the file is invalid.
    pub fn read_seconds(&self, measurement: &Measurement) -> Result<Option<Vec<SecondHistogram>>> {
        let help = "the requests contain the same data";
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
        let help = "only the statistics in `summary.json` are left";
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

/// Opens a plain file for reading. Refuses a pipe, whose opening would block, and a device, which may never
/// end.
pub(super) fn open_regular_file(path: &Path) -> io::Result<File> {
    let waits_for_nobody =
        i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag of `open` is a small number");
    let file = File::options()
        .read(true)
        .custom_flags(waits_for_nobody)
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file",
        )),
    }
}

/// Reads compressed JSON lines.
fn read_lines<T: DeserializeOwned>(file: File, path: &Path) -> Result<Vec<T>> {
    let lines = zstd::Decoder::new(file).io_context("read", path)?;
    let mut values = Vec::new();
    let mut lines = BufReader::new(lines);
    let mut line = Vec::new();
    for number in 1.. {
        let broken = |reason: String| StoreError::Malformed {
            path: path.to_owned(),
            why: format!("line {number}: {reason}"),
        };
        line.clear();
        // A few compressed bytes may expand to any length.
        let mut bounded = (&mut lines).take(MAX_LINE_BYTES);
        let read = bounded.read_until(b'\n', &mut line);
        if read.map_err(|error| broken(error.to_string()))? == 0 {
            break;
        }
        if line.len() as u64 == MAX_LINE_BYTES && line.last() != Some(&b'\n') {
            return Err(broken(format!("it is longer than {} MiB", MAX_LINE_BYTES >> 20)));
        }
        values.push(serde_json::from_slice(&line).map_err(|error| broken(error.to_string()))?);
    }
    Ok(values)
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunEntry {
    pub folder: PathBuf,
    pub info: RunInfo,
}

/// Lists every readable run below `root`, newest first; empty if `root` does not exist.
pub(crate) fn list_runs(root: &Path) -> Result<Vec<RunEntry>> {
    let mut runs: Vec<RunEntry> = folders(root)?
        .into_iter()
        .filter_map(|folder| {
            let about = read_run_info(&folder).ok()?;
            Some(RunEntry { folder, info: about })
        })
        .collect();
    runs.sort_by(|a, b| {
        let key = |run: &RunEntry| (run.info.began.clone(), run.folder.clone());
        key(b).cmp(&key(a))
    });
    Ok(runs)
}

/// Finds the newest run of a matrix below `root`.
pub(crate) fn latest_run(root: &Path, matrix: &str) -> Result<Option<RunEntry>> {
    Ok(list_runs(root)?.into_iter().find(|run| run.info.matrix == matrix))
}

/// Reads the plan of the run in `folder`. Fails if it is missing, invalid, or refers to a launch or cell that
/// it does not contain.
pub(crate) fn read_plan(folder: &Path) -> Result<Plan> {
    let path = folder.join(layout::PLAN);
    let plan: Plan = read_json(&path, "continue the run with `--resume`, which writes it again")?;
    match plan.contradiction() {
        None => Ok(plan),
        Some(reason) => Err(StoreError::Malformed { path, why: reason }),
    }
}

/// Reads `run.json` of the run in `folder`.
pub(crate) fn read_run_info(folder: &Path) -> Result<RunInfo> {
    read_json(&folder.join(layout::RUN), "").map_err(|error| match error {
        StoreError::Missing { .. } => StoreError::NoRun {
            path: folder.to_owned(),
        },
        other => other,
    })
}

/// Folders of measurements, without earlier versions.
pub(crate) fn cell_folders(run: &Path) -> Result<Vec<PathBuf>> {
    let name = |folder: &PathBuf| {
        folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    let mut folders = folders(&run.join(layout::CELLS))?;
    folders.retain(|folder| !layout::is_backup_name(&name(folder)));
    Ok(folders)
}

/// The folders in `root`, by name; empty if `root` does not exist.
pub(crate) fn folders(root: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.io_context("list", root)?,
    };
    let mut folders = Vec::new();
    for entry in entries {
        let path = entry.io_context("list", root)?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

/// The format that a file declares; none if it has the format of the run.
#[derive(Deserialize)]
struct FormatHeader {
    #[serde(default)]
    format: Option<u32>,
}

/// Reads a JSON file; `help` says what to do if it is missing.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path, help: &'static str) -> Result<T> {
    let path = path.to_owned();
    let bytes = open_regular_file(&path).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    match bytes {
        Ok(bytes) if bytes.len() as u64 > MAX_FILE_BYTES => Err(StoreError::Malformed {
            path,
            why: format!("it is larger than {} GiB", MAX_FILE_BYTES >> 30),
        }),
        Ok(bytes) => {
            // The version is parsed first and alone, because the rest of a newer format may differ.
            if let Ok(FormatHeader { format: Some(theirs) }) = serde_json::from_slice(&bytes)
                && theirs > FORMAT
            {
                let ours = FORMAT;
                return Err(StoreError::Newer { path, theirs, ours });
            }
            serde_json::from_slice(&bytes).map_err(|error| StoreError::Malformed {
                path,
                why: error.to_string(),
            })
        }
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Err(StoreError::Missing { path, help })
        }
        Err(error) => Err(error).io_context("read", &path),
    }
}
