//! What outlives a run: the baseline, the noise of the machine, the history of nights, and what was told of them.
//!
//! ```text
//! <baseline>.json            wherever the caller says: fit for git
//! <cache>/noise.json         kept with the machine
//! <results>/nightly/
//!   history-<matrix>.jsonl   a line for each night, only ever appended to
//!   told-<matrix>.json       what notifications told last
//!   lock                     held while a night goes on
//! ```

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::lock::Lock;
use super::{Result, Run, StoreError, Tried, atomic, layout, reader};
use crate::base::clock;
use crate::base::secrets::Redactor;
use crate::matrix::plan::arms::noise_name;
use crate::results::record::FORMAT;
use crate::results::record::night::Night;
use crate::results::record::side::{Baseline, Noise};

/// The folder of nights below the results, held by one night at a time.
#[derive(Debug)]
pub struct Nights {
    folder: PathBuf,
    matrix: String,
    _lock: Lock,
}

impl Nights {
    /// Takes the nights of a matrix below `root`.
    ///
    /// # Errors
    /// Another night goes on, or the disk refuses.
    pub fn take(root: &Path, matrix: &str) -> Result<Self> {
        let folder = root.join(layout::NIGHTLY);
        fs::create_dir_all(&folder).tried("make the folder", &folder)?;
        Ok(Self {
            _lock: Lock::take(&folder)?,
            folder,
            matrix: matrix.to_owned(),
        })
    }

    /// Appends a night to the history; it is on disk on return.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn append(&self, night: &Night) -> Result<PathBuf> {
        let path = history_file(&self.folder, &self.matrix);
        let mut text = fs::read(&path).unwrap_or_default();
        // What a killed process left of a last line goes.
        let whole = text
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |last| last + 1);
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .tried("open", &path)?;
        if whole < text.len() {
            file.set_len(whole as u64)
                .tried("cut the torn last line of", &path)?;
        }
        text = serde_json::to_vec(night).expect("texts and numbers are JSON");
        text.push(b'\n');
        file.write_all(&text)
            .and_then(|()| file.sync_all())
            .tried("append to", &path)?;
        Ok(path)
    }

    /// What notifications told last: identities of findings.
    pub fn told(&self) -> Vec<String> {
        reader::json(&self.told_file(), "").unwrap_or_default()
    }

    /// Keeps what was told.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn tell(&self, told: &[String]) -> Result<()> {
        write(&self.told_file(), &told)
    }

    fn told_file(&self) -> PathBuf {
        self.folder.join(format!(
            "told-{}.json",
            layout::slug(&self.matrix, &Redactor::default())
        ))
    }
}

fn history_file(folder: &Path, matrix: &str) -> PathBuf {
    folder.join(format!(
        "history-{}.jsonl",
        layout::slug(matrix, &Redactor::default())
    ))
}

/// Every night of a matrix below `root`, the oldest first, with what was passed over.
///
/// # Errors
/// The disk refuses, or a newer `matrix` wrote a night.
pub fn history(root: &Path, matrix: &str) -> Result<(Vec<Night>, Vec<String>)> {
    let path = history_file(&root.join(layout::NIGHTLY), matrix);
    let text = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read.tried("read", &path)?,
    };
    // A last line that was torn may end within a letter.
    let text = String::from_utf8_lossy(&text);
    let (mut nights, mut doubts): (Vec<Night>, Vec<String>) = Default::default();
    for (index, line) in text.lines().enumerate() {
        match serde_json::from_str::<Night>(line) {
            Ok(night) if night.format > FORMAT => {
                return Err(StoreError::Newer {
                    path,
                    theirs: night.format,
                    ours: FORMAT,
                });
            }
            Ok(night) => nights.push(night),
            Err(error) => doubts.push(format!(
                "`{}`:{}: passed over: {error}",
                path.display(),
                index + 1
            )),
        }
    }
    Ok((nights, doubts))
}

/// The matrices whose nights lie below `root`, by the names that their histories tell.
pub fn matrices(root: &Path) -> Vec<String> {
    #[derive(Deserialize)]
    struct Named {
        matrix: String,
    }
    let entries = fs::read_dir(root.join(layout::NIGHTLY))
        .into_iter()
        .flatten()
        .flatten();
    let told = entries.filter_map(|entry| {
        let is_history = entry.file_name().to_string_lossy().starts_with("history-");
        let text = is_history.then(|| fs::read(entry.path()).ok()).flatten()?;
        let first = text.split(|byte| *byte == b'\n').next()?;
        Some(serde_json::from_slice::<Named>(first).ok()?.matrix)
    });
    let mut names: Vec<String> = told.collect();
    names.sort_unstable();
    names
}

/// The baseline in a file; `None` where there is no such file.
///
/// # Errors
/// It cannot be read, or a newer `matrix` wrote it.
pub fn baseline(path: &Path) -> Result<Option<Baseline>> {
    let baseline: Baseline = match reader::json(path, "") {
        Err(StoreError::Missing { .. }) => return Ok(None),
        read => read?,
    };
    if baseline.format > FORMAT {
        return Err(StoreError::Newer {
            path: path.to_owned(),
            theirs: baseline.format,
            ours: FORMAT,
        });
    }
    Ok(Some(baseline))
}

/// Writes a baseline, whole or not at all.
///
/// # Errors
/// The disk refuses.
pub fn keep_baseline(path: &Path, baseline: &Baseline) -> Result<()> {
    write(path, baseline)
}

/// The noise that is kept with this machine; none where it was not measured, or cannot be read.
pub fn noise(cache: &Path) -> Option<Noise> {
    reader::json(&cache.join(layout::NOISE), "").ok()
}

/// Keeps the noise with the machine; returns the file.
///
/// # Errors
/// The disk refuses.
pub fn keep_noise(cache: &Path, noise: &Noise) -> Result<PathBuf> {
    fs::create_dir_all(cache).tried("make the folder", cache)?;
    let path = cache.join(layout::NOISE);
    write(&path, noise)?;
    Ok(path)
}

fn write<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    let text = serde_json::to_string_pretty(value).expect("texts and finite numbers are JSON");
    atomic::sweep_killed(atomic::folder(path));
    atomic::write(path, format!("{text}\n").as_bytes()).tried("write", path)
}

/// Removes the requests, histograms, samples and logs of the runs of `matrix`, those of `matrix noise` included, that began longer ago than `seconds`, except those of the runs `but`, of runs
/// that somebody writes, and of measurements that are not finished; what they came to stays. Returns what was removed, in bytes.
///
/// # Errors
/// The disk refuses.
pub fn forget_raw(root: &Path, matrix: &str, seconds: f64, but: &[&str]) -> Result<u64> {
    let (now, noise) = (clock::timestamp(), noise_name(matrix));
    let mut freed = 0;
    for listed in reader::list(root)?
        .into_iter()
        .filter(|listed| [matrix, noise.as_str()].contains(&listed.about.matrix.as_str()))
    {
        let age = clock::seconds_between(&listed.about.began, &now);
        let is_kept = but.contains(&listed.about.run.as_str()) || super::writer_of(&listed.folder).is_some();
        if is_kept || age.is_none_or(|age| age < seconds) {
            continue;
        }
        // Versions that were set aside go with the others.
        let mut folders = reader::folders(&listed.folder.join(layout::CELLS))?;
        folders.retain(|cell| cell.join(layout::SUMMARY).exists());
        folders.extend(reader::folders(&listed.folder.join(layout::LAUNCHES))?);
        for folder in folders {
            for entry in fs::read_dir(&folder).tried("list", &folder)? {
                let entry = entry.tried("list", &folder)?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let logs = [layout::ENGINE_LOG, layout::INSTALL_LOG];
                if logs.iter().any(|log| name.starts_with(log)) || name.contains(".zst") {
                    freed += entry.metadata().map_or(0, |about| about.len());
                    fs::remove_file(entry.path()).tried("remove", &entry.path())?;
                }
            }
        }
    }
    Ok(freed)
}

/// The run in a folder or, where that is the name of a matrix, its newest run below `root`.
///
/// # Errors
/// There is none, or it cannot be read.
pub fn named(root: &Path, name: &str) -> Result<Run> {
    let path = Path::new(name);
    if path.join(layout::RUN).exists() {
        return Run::read(path);
    }
    let below = root.join(name);
    if below.join(layout::RUN).exists() {
        return Run::read(&below);
    }
    match super::latest(root, name)? {
        Some(listed) => Run::read(&listed.folder),
        None => Err(StoreError::Unnamed {
            name: name.to_owned(),
            root: root.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::base::ids::RunId;

    fn night(run: &str) -> Night {
        Night {
            format: FORMAT,
            at: "2026-01-02T03:04:05Z".to_owned(),
            run: RunId::new(run),
            matrix: "größe".to_owned(),
            baseline: None,
            machine: BTreeMap::new(),
            cells: BTreeMap::new(),
            judged: None,
            findings: Vec::new(),
        }
    }

    #[test]
    fn a_history_whose_last_line_was_torn_within_a_letter_is_read_and_goes_on() {
        let root = tempfile::tempdir().unwrap();
        let nights = Nights::take(root.path(), "größe").unwrap();
        let path = nights.append(&night("one")).unwrap();
        let line = fs::read(&path).unwrap();
        let letter = line.windows(2).position(|pair| pair == "ö".as_bytes()).unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(&line[..=letter]).unwrap();
        let (read, doubts) = history(root.path(), "größe").unwrap();
        assert_eq!((read.len(), doubts.len()), (1, 1), "{doubts:?}");
        nights.append(&night("two")).unwrap();
        let (read, doubts) = history(root.path(), "größe").unwrap();
        assert_eq!(read, [night("one"), night("two")]);
        assert_eq!(doubts, [] as [String; 0]);
        assert_eq!(matrices(root.path()), ["größe"]);
        assert_eq!(matrices(&root.path().join("elsewhere")), [] as [String; 0]);
    }
}
