//! Reads a run without changing it, even if it is being written, incomplete or made by an earlier version.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Result, StoreError, Tried, journal, layout, partial};
use crate::plan::{Measurement, Plan};
use crate::results::record::FORMAT;
use crate::results::record::cell::Summary;
use crate::results::record::event::Event;
use crate::results::record::histogram::Second;
use crate::results::record::machine::Machine;
use crate::results::record::request::Request;
use crate::results::record::run::About;
use crate::results::record::telemetry::Sample;

/// Longest line of compressed JSON that is read; records are far shorter.
const LONGEST_LINE: u64 = 64 << 20;

const LARGEST_FILE: u64 = 4 << 30;

/// A run on disk. Its requests are read on demand.
#[derive(Clone, Debug)]
pub struct Run {
    /// The run's folder.
    pub folder: PathBuf,
    /// Name, matrix and version of the run.
    pub about: About,
    /// The plan of the run.
    pub plan: Plan,
    /// The host that measured.
    pub machine: Machine,
    /// Finished measurements of the plan, in the plan's order.
    pub summaries: Vec<Summary>,
    /// Finished measurements that are not in the plan (any more).
    pub strays: Vec<Summary>,
    /// Folders of cells without a finished measurement.
    pub unfinished: Vec<Unfinished>,
    /// Events of the journal with their times.
    pub journal: Vec<(String, Event)>,
    /// Messages about files that could not be read and were skipped.
    pub doubts: Vec<String>,
    places: BTreeMap<Measurement, PathBuf>,
}

/// A measurement that is not finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// Its folder.
    pub folder: PathBuf,
    /// What is missing or wrong.
    pub why: String,
}

impl Run {
    /// Reads the run in `folder`.
    ///
    /// # Errors
    /// The folder holds no run, the format is newer, or the plan is missing or invalid.
    pub fn read(folder: &Path) -> Result<Self> {
        let about = about(folder)?;
        let plan = plan(folder)?;
        let mut doubts = Vec::new();
        let machine = json(&folder.join(layout::MACHINE), "the machine is unknown").unwrap_or_else(|error| {
            doubts.push(error.to_string());
            Machine::default()
        });
        let path = folder.join(layout::JOURNAL);
        let journal = match journal::read(&path) {
            Ok(told) => {
                doubts.extend(told.doubts);
                told.events
            }
            Err(error) => {
                doubts.push(format!("cannot read `{}`: {error}", path.display()));
                Vec::new()
            }
        };
        let mut run = Self {
            folder: folder.to_owned(),
            about,
            plan,
            machine,
            summaries: Vec::new(),
            strays: Vec::new(),
            unfinished: Vec::new(),
            journal,
            doubts,
            places: BTreeMap::new(),
        };
        run.read_cells()?;
        Ok(run)
    }

    fn read_cells(&mut self) -> Result<()> {
        let mut found = BTreeMap::new();
        for folder in cell_folders(&self.folder)? {
            let path = folder.join(layout::SUMMARY);
            let read = json(&path, "it was not finished").and_then(|summary: Summary| {
                match summary.contradiction() {
                    Some(why) => Err(StoreError::Broken { path, why }),
                    None => Ok(summary),
                }
            });
            let summary = match read {
                Ok(summary) => summary,
                Err(error) => {
                    let why = error.to_string();
                    self.doubts.push(match partial::reached(&folder) {
                        Err(_) => why.clone(),
                        Ok(reached) => format!(
                            "{why}; the requests that had ended are in `{}`: {}, the last one {:.1} s after the load began",
                            layout::PARTIAL,
                            reached.requests,
                            reached.last_end_s
                        ),
                    });
                    self.unfinished.push(Unfinished { folder, why });
                    continue;
                }
            };
            let measurement = Measurement {
                cell: summary.cell.clone(),
                start: summary.start,
                repeat: summary.repeat,
            };
            if let Some(other) = self.places.insert(measurement.clone(), folder.clone()) {
                let (one, two) = (other.display(), folder.display());
                self.doubts.push(format!(
                    "`{one}` and `{two}` hold the same measurement; the second counts"
                ));
            }
            found.insert(measurement, summary);
        }
        self.drop_copies(&mut found);
        for measurement in self.plan.starts.iter().flat_map(|start| &start.cells) {
            self.summaries.extend(found.remove(measurement));
        }
        self.strays.extend(found.into_values());
        if let Some(first) = self.strays.first() {
            self.doubts.push(format!(
                "the plan does not have {} measured {} of `{}`, such as `{}`: not shown",
                self.strays.len(),
                if self.strays.len() == 1 { "cell" } else { "cells" },
                self.folder.display(),
                first.cell
            ));
        }
        Ok(())
    }

    /// Drops copied summaries: two measurements of a cell never have the same begin and metrics.
    fn drop_copies(&mut self, found: &mut BTreeMap<Measurement, Summary>) {
        let mut originals: Vec<(Measurement, Summary)> = Vec::new();
        for (measurement, summary) in std::mem::take(found) {
            let is_copy = |(_, other): &&(Measurement, Summary)| {
                other.cell == summary.cell
                    && !other.began.is_empty()
                    && other.began == summary.began
                    && !other.figures.is_empty()
                    && other.figures == summary.figures
            };
            match originals.iter().find(is_copy) {
                Some((original, _)) => self.doubts.push(format!(
                    "start {}, repeat {} of `{}` is a copy of start {}, repeat {}: it counts once",
                    measurement.start, measurement.repeat, measurement.cell, original.start, original.repeat
                )),
                None => originals.push((measurement, summary)),
            }
        }
        found.extend(originals);
    }

    /// The folder of a finished measurement.
    pub(crate) fn cell_dir(&self, measurement: &Measurement) -> Option<&Path> {
        self.places.get(measurement).map(PathBuf::as_path)
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
            "the figures in `summary.json` are all that is left",
        )?;
        read_lines(file, &path)
    }

    /// Reads the histograms of a finished measurement; `None` if there are none, as in older runs.
    ///
    /// # Errors
    /// The measurement is not finished, or the file is invalid.
    pub fn read_seconds(&self, measurement: &Measurement) -> Result<Option<Vec<Second>>> {
        let help = "the requests tell the same";
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
        let help = "what `summary.json` says of the window is all that is left";
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
        let (file, path) = self.open(measurement, layout::ENGINE_LOG, "what the engine said is lost")?;
        io::read_to_string(file).tried("read", &path)
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
        match open_plain(&path) {
            Ok(file) => Ok((file, path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(StoreError::Missing { path, help }),
            Err(error) => Err(error).tried("open", &path),
        }
    }
}

/// Opens a plain file for reading. Refuses a pipe, whose opening would block, and a device, which may never
/// end.
pub(super) fn open_plain(path: &Path) -> io::Result<File> {
    let waits_for_nobody =
        i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag of `open` is a small number");
    let file = File::options()
        .read(true)
        .custom_flags(waits_for_nobody)
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no plain file")),
    }
}

/// Reads compressed JSON lines.
fn read_lines<T: DeserializeOwned>(file: File, path: &Path) -> Result<Vec<T>> {
    let lines = zstd::Decoder::new(file).tried("read", path)?;
    let mut values = Vec::new();
    let mut lines = BufReader::new(lines);
    let mut line = Vec::new();
    for number in 1.. {
        let broken = |why: String| StoreError::Broken {
            path: path.to_owned(),
            why: format!("line {number}: {why}"),
        };
        line.clear();
        // A few compressed bytes may expand to any length.
        let mut bounded = (&mut lines).take(LONGEST_LINE);
        let read = bounded.read_until(b'\n', &mut line);
        if read.map_err(|error| broken(error.to_string()))? == 0 {
            break;
        }
        if line.len() as u64 == LONGEST_LINE && line.last() != Some(&b'\n') {
            return Err(broken(format!("it is longer than {} MiB", LONGEST_LINE >> 20)));
        }
        values.push(serde_json::from_slice(&line).map_err(|error| broken(error.to_string()))?);
    }
    Ok(values)
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Listed {
    pub folder: PathBuf,
    pub about: About,
}

/// Lists every readable run below `root`, newest first; empty if `root` does not exist.
pub(crate) fn list(root: &Path) -> Result<Vec<Listed>> {
    let mut runs: Vec<Listed> = folders(root)?
        .into_iter()
        .filter_map(|folder| {
            let about = about(&folder).ok()?;
            Some(Listed { folder, about })
        })
        .collect();
    runs.sort_by(|a, b| {
        let key = |run: &Listed| (run.about.began.clone(), run.folder.clone());
        key(b).cmp(&key(a))
    });
    Ok(runs)
}

/// Finds the newest run of a matrix below `root`.
pub(crate) fn latest(root: &Path, matrix: &str) -> Result<Option<Listed>> {
    Ok(list(root)?.into_iter().find(|run| run.about.matrix == matrix))
}

/// Reads the plan of the run in `folder`. Fails if it is missing, invalid, or refers to a launch or cell that
/// it does not contain.
pub(crate) fn plan(folder: &Path) -> Result<Plan> {
    let path = folder.join(layout::PLAN);
    let plan: Plan = json(&path, "continue the run with `--resume`, which writes it again")?;
    match plan.contradiction() {
        None => Ok(plan),
        Some(why) => Err(StoreError::Broken { path, why }),
    }
}

/// Reads `run.json` of the run in `folder`.
pub(crate) fn about(folder: &Path) -> Result<About> {
    json(&folder.join(layout::RUN), "").map_err(|error| match error {
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
    let mut all = folders(&run.join(layout::CELLS))?;
    all.retain(|folder| !layout::is_old(&name(folder)));
    Ok(all)
}

/// The folders in `root`, by name; empty if `root` does not exist.
pub(crate) fn folders(root: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.tried("list", root)?,
    };
    let mut folders = Vec::new();
    for entry in entries {
        let path = entry.tried("list", root)?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

/// The format that a file declares; none if it has the format of the run.
#[derive(Deserialize)]
struct Version {
    #[serde(default)]
    format: Option<u32>,
}

/// Reads a JSON file; `help` says what to do if it is missing.
pub(crate) fn json<T: DeserializeOwned>(path: &Path, help: &'static str) -> Result<T> {
    let path = path.to_owned();
    let bytes = open_plain(&path).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(LARGEST_FILE + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    match bytes {
        Ok(bytes) if bytes.len() as u64 > LARGEST_FILE => Err(StoreError::Broken {
            path,
            why: format!("it is larger than {} GiB", LARGEST_FILE >> 30),
        }),
        Ok(bytes) => {
            // The version is parsed first and alone, because the rest of a newer format may differ.
            if let Ok(Version { format: Some(theirs) }) = serde_json::from_slice(&bytes)
                && theirs > FORMAT
            {
                let ours = FORMAT;
                return Err(StoreError::Newer { path, theirs, ours });
            }
            serde_json::from_slice(&bytes).map_err(|error| StoreError::Broken {
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
        Err(error) => Err(error).tried("read", &path),
    }
}
