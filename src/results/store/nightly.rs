//! Files that outlive a run: baseline, noise of the host, history of nightly runs, and the findings that were
//! already notified.
//!
//! ```text
//! <baseline>.json            at a path that the caller chooses; suitable for git
//! <cache>/noise.json         noise of this host
//! <results>/nightly/
//!   history-<matrix>.jsonl   a line for each nightly run
//!   notified-<matrix>.json   identities of the findings in the last notification; `told-<matrix>.json` in format 1
//!   lock                     locked during a nightly run
//! ```

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::{IoContext, Result, StoreError};
use super::lock::Lock;
use super::reader::Run;
use super::{atomic, files, layout, lock, run_folder};
use crate::base::clock;
use crate::base::date;
use crate::base::ids::RunId;
use crate::base::private_files::open_file;
use crate::base::secrets::Redactor;
use crate::config::yaml::nearest_name;
use crate::plan::arms::noise_name;
use crate::results::record::FORMAT;
use crate::results::record::cell_stats::{Baseline, Noise};
use crate::results::record::nightly::NightlyRun;

/// The folder of nightly runs below the results folder, locked by one nightly run at a time.
#[derive(Debug)]
pub(crate) struct NightlyStore {
    folder: PathBuf,
    matrix: String,
    _lock: Lock,
}

/// Creates the folder of nightly runs.
pub(crate) fn create_folder(root: &Path) -> Result<PathBuf> {
    let folder = root.join(layout::NIGHTLY);
    fs::create_dir_all(&folder).io_context("make the folder", &folder)?;
    Ok(folder)
}

impl NightlyStore {
    /// Opens the nightly runs of a matrix below `root`, and locks the folder for the nightly runs of all
    /// matrices. Fails if another nightly run, of any matrix, holds the lock, or if the history is a symbolic
    /// link or not a regular file.
    pub(crate) fn open(root: &Path, matrix: &str) -> Result<Self> {
        let folder = create_folder(root)?;
        let nights = Self {
            _lock: Lock::acquire(&folder)?,
            folder,
            matrix: matrix.to_owned(),
        };
        let path = history_file(&nights.folder, &nights.matrix);
        match open_file(OpenOptions::new().read(true).append(true), &path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).io_context("open", &path),
            Ok(_) | Err(_) => Ok(nights),
        }
    }

    /// Writes a nightly run to the history and syncs it. It replaces an entry of the same run.
    pub(crate) fn record(&self, night: &NightlyRun) -> Result<PathBuf> {
        let path = history_file(&self.folder, &self.matrix);
        let text = read_history(&path)?;
        // Drop an incomplete last line of a killed process.
        let whole = text
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |last| last + 1);
        let is_same = |line: &&[u8]| parse_history_key(line).is_some_and(|entry| entry.run == night.run);
        let line_of = |night: &NightlyRun| {
            let mut line = serde_json::to_vec(night).expect("texts and numbers are JSON");
            line.push(b'\n');
            line
        };
        let lines = text[..whole].split_inclusive(|byte| *byte == b'\n');
        if let Some(earlier) = lines.clone().find(is_same).and_then(parse_history_key) {
            let mut replacement = Some(line_of(&NightlyRun {
                at: earlier.at,
                ..night.clone()
            }));
            let mut replaced = Vec::with_capacity(text.len());
            for line in lines {
                match is_same(&line) {
                    true => replaced.extend(replacement.take().unwrap_or_default()),
                    false => replaced.extend_from_slice(line),
                }
            }
            atomic::sweep_killed(&self.folder);
            atomic::write(&path, &replaced).io_context("write", &path)?;
            return Ok(path);
        }
        let mut file =
            open_file(OpenOptions::new().create(true).append(true), &path).io_context("open", &path)?;
        if whole < text.len() {
            file.set_len(whole as u64)
                .io_context("truncate the end of", &path)?;
        }
        file.write_all(&line_of(night))
            .and_then(|()| file.sync_all())
            .io_context("append to", &path)?;
        Ok(path)
    }

    /// Identities of the findings that the last notification contained.
    pub(crate) fn notified(&self) -> Vec<String> {
        let [now, of_format_1] = ["notified", "told"].map(|name| self.notified_file(name));
        let file = if now.exists() { now } else { of_format_1 };
        files::read_json(&file, "").unwrap_or_default()
    }

    /// Stores the identities of the notified findings.
    pub(crate) fn save_notified(&self, identities: &[String]) -> Result<()> {
        write_json(&self.notified_file("notified"), &identities)
    }

    fn notified_file(&self, name: &str) -> PathBuf {
        self.folder.join(format!(
            "{name}-{}.json",
            layout::slug(&self.matrix, &Redactor::default())
        ))
    }
}

/// The identifying fields of a history entry.
#[derive(Deserialize)]
struct HistoryKey {
    run: RunId,
    at: String,
}

fn parse_history_key(line: &[u8]) -> Option<HistoryKey> {
    serde_json::from_slice(line).ok()
}

fn history_file(folder: &Path, matrix: &str) -> PathBuf {
    folder.join(format!(
        "history-{}.jsonl",
        layout::slug(matrix, &Redactor::default())
    ))
}

/// The text of a history; empty if the file does not exist.
fn read_history(path: &Path) -> Result<Vec<u8>> {
    let read = || -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        files::open_regular_file(path)?.read_to_end(&mut text)?;
        Ok(text)
    };
    match read() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.io_context("read", path),
    }
}

/// Reads all nightly runs of a matrix below `root`, oldest first, with messages about skipped lines. Each run
/// counts once, with its last entry and the time of its first: older versions wrote an entry for each resume.
/// Fails if a newer `matrix` wrote an entry.
pub(crate) fn history(root: &Path, matrix: &str) -> Result<(Vec<NightlyRun>, Vec<String>)> {
    let path = history_file(&root.join(layout::NIGHTLY), matrix);
    let text = read_history(&path)?;
    // An incomplete last line may end inside a character.
    let text = String::from_utf8_lossy(&text);
    let (mut nights, mut warnings): (Vec<NightlyRun>, Vec<String>) = Default::default();
    for (index, line) in text.lines().enumerate() {
        match serde_json::from_slice::<NightlyRun>(line.as_bytes()) {
            Ok(night) if night.format > FORMAT => {
                return Err(StoreError::Newer {
                    path,
                    theirs: night.format,
                    ours: FORMAT,
                });
            }
            Ok(night) => match nights.iter_mut().find(|earlier| earlier.run == night.run) {
                Some(earlier) => {
                    let at = std::mem::take(&mut earlier.at);
                    *earlier = NightlyRun { at, ..night };
                }
                None => nights.push(night),
            },
            Err(error) => warnings.push(format!("`{}`:{}: ignored: {error}", path.display(), index + 1)),
        }
    }
    Ok((nights, warnings))
}

/// The matrices with a history below `root`, by the names in the files.
pub(crate) fn matrices(root: &Path) -> Vec<String> {
    #[derive(Deserialize)]
    struct Named {
        matrix: String,
    }
    let entries = fs::read_dir(root.join(layout::NIGHTLY))
        .into_iter()
        .flatten()
        .flatten();
    let matrix_names = entries.filter_map(|entry| {
        let is_history = entry.file_name().to_string_lossy().starts_with("history-");
        let text = is_history.then(|| read_history(&entry.path()).ok()).flatten()?;
        let first = text.split(|byte| *byte == b'\n').next()?;
        Some(serde_json::from_slice::<Named>(first).ok()?.matrix)
    });
    let mut names: Vec<String> = matrix_names.collect();
    names.sort_unstable();
    names
}

/// Reads a baseline; `None` if the file does not exist. Fails if the file is invalid or a newer `matrix`
/// wrote it.
pub(crate) fn read_baseline(path: &Path) -> Result<Option<Baseline>> {
    let baseline: Baseline = match files::read_json(path, "") {
        Err(StoreError::Missing { .. }) => return Ok(None),
        Err(StoreError::Malformed { path, why }) => return Err(StoreError::MalformedBaseline { path, why }),
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

/// Writes a baseline atomically.
pub(crate) fn save_baseline(path: &Path, baseline: &Baseline) -> Result<()> {
    write_json(path, baseline)
}

/// Reads the noise of this host; `None` if it was not measured or cannot be read.
pub(crate) fn read_noise(cache: &Path) -> Option<Noise> {
    files::read_json(&cache.join(layout::NOISE), "").ok()
}

/// Stores the noise of this host and returns the path.
pub(crate) fn save_noise(cache: &Path, noise: &Noise) -> Result<PathBuf> {
    fs::create_dir_all(cache).io_context("make the folder", cache)?;
    let path = cache.join(layout::NOISE);
    write_json(&path, noise)?;
    Ok(path)
}

fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    let text = serde_json::to_string_pretty(value).expect("texts and finite numbers are JSON");
    atomic::sweep_killed(atomic::parent_folder(path));
    atomic::write(path, format!("{text}\n").as_bytes()).io_context("write", path)
}

/// Removes raw data (requests, histograms, samples, logs) of old runs of `matrix` and of its `matrix noise`,
/// and returns the freed bytes. A run is old if it began more than `seconds` ago. Summaries stay. Runs in
/// `but`, runs that a process is writing, and unfinished measurements are skipped. Only files of the store in
/// folders of this user are removed; links are not followed.
pub(crate) fn remove_raw_data(root: &Path, matrix: &str, seconds: f64, but: &[&str]) -> Result<u64> {
    let (now, noise) = (clock::timestamp(), noise_name(matrix));
    let mut freed = 0;
    for listed in run_folder::list_runs(root)?
        .into_iter()
        .filter(|listed| [matrix, noise.as_str()].contains(&listed.info.matrix.as_str()))
    {
        let age = date::seconds_between(&listed.info.began, &now);
        let is_kept = but.contains(&listed.info.run.as_str()) || lock::writer_pid(&listed.folder).is_some();
        if is_kept || age.is_none_or(|age| age < seconds) || !is_own_folder(&listed.folder) {
            continue;
        }
        // Earlier versions are removed too.
        let below = |name| {
            let folder = listed.folder.join(name);
            match is_own_folder(&folder) {
                true => files::folders(&folder),
                false => Ok(Vec::new()),
            }
        };
        let mut folders = below(layout::CELLS)?;
        folders.retain(|cell| cell.join(layout::SUMMARY).exists());
        folders.extend(below(layout::LAUNCHES)?);
        folders.retain(|folder| is_own_folder(folder));
        for folder in folders {
            for entry in fs::read_dir(&folder).io_context("list", &folder)? {
                let entry = entry.io_context("list", &folder)?;
                let about = entry.metadata().io_context("look at", &entry.path())?;
                if about.is_file() && layout::is_raw_data(&entry.file_name().to_string_lossy()) {
                    fs::remove_file(entry.path()).io_context("remove", &entry.path())?;
                    freed += about.len();
                }
            }
        }
    }
    Ok(freed)
}

/// Whether the path is a folder (not a link) of this user.
pub(crate) fn is_own_folder(path: &Path) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|about| about.is_dir() && about.uid() == rustix::process::geteuid().as_raw())
}

/// Reads the run in the folder `name` or below `root`; if `name` is a matrix, its newest run.
pub(crate) fn find_run(root: &Path, name: &str) -> Result<Run> {
    let path = Path::new(name);
    if path.join(layout::RUN).exists() {
        return Run::read(path);
    }
    let below = root.join(name);
    if below.join(layout::RUN).exists() {
        return Run::read(&below);
    }
    match run_folder::latest_run(root, name)? {
        Some(listed) => Run::read(&listed.folder),
        None => Err(StoreError::UnknownName {
            name: name.to_owned(),
            root: root.to_owned(),
            near: similar_name(root, name),
        }),
    }
}

/// The nearest name of a run or a matrix below `root`.
fn similar_name(root_pid: &Path, file_name: &str) -> Option<String> {
    let runs = run_folder::list_runs(root_pid).ok()?;
    let folder = |listed: &run_folder::RunEntry| listed.folder.file_name()?.to_str().map(str::to_owned);
    let names: Vec<String> = runs
        .iter()
        .flat_map(|listed| [folder(listed), Some(listed.info.matrix.clone())])
        .flatten()
        .collect();
    nearest_name(file_name, names.iter().map(String::as_str)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn night(run: &str) -> NightlyRun {
        NightlyRun {
            format: FORMAT,
            at: "2026-01-02T03:04:05Z".to_owned(),
            run: RunId::new(run),
            matrix: "größe".to_owned(),
            baseline: None,
            machine: BTreeMap::new(),
            cells: BTreeMap::new(),
            judged: None,
            upgrade: None,
            findings: Vec::new(),
        }
    }

    #[test]
    fn a_history_whose_last_line_was_torn_within_a_letter_is_read_and_goes_on() {
        let root = tempfile::tempdir().unwrap();
        let nights = NightlyStore::open(root.path(), "größe").unwrap();
        let path = nights.record(&night("one")).unwrap();
        let line = fs::read(&path).unwrap();
        let letter = line.windows(2).position(|pair| pair == "ö".as_bytes()).unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(&line[..=letter]).unwrap();
        let (read, warnings) = history(root.path(), "größe").unwrap();
        assert_eq!((read.len(), warnings.len()), (1, 1), "{warnings:?}");
        nights.record(&night("two")).unwrap();
        let (read, warnings) = history(root.path(), "größe").unwrap();
        assert_eq!(read, [night("one"), night("two")]);
        assert_eq!(warnings, [] as [String; 0]);
        assert_eq!(matrices(root.path()), ["größe"]);
        assert_eq!(matrices(&root.path().join("elsewhere")), [] as [String; 0]);
    }

    #[test]
    fn a_history_that_is_a_link_or_no_plain_file_is_refused_and_waited_for_by_nobody() {
        let root = tempfile::tempdir().unwrap();
        let path = NightlyStore::open(root.path(), "größe")
            .unwrap()
            .record(&night("one"))
            .unwrap();
        let elsewhere = root.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        let refused = || {
            let error = NightlyStore::open(root.path(), "größe").unwrap_err();
            assert!(matches!(error, StoreError::Io { .. }), "{error}");
        };
        refused();
        assert_eq!(history(root.path(), "größe").unwrap().0, [night("one")]);
        fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        refused();
        history(root.path(), "größe").unwrap_err();
        assert_eq!(matrices(root.path()), [] as [String; 0]);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        refused();
    }

    #[test]
    fn a_run_that_is_recorded_again_replaces_its_entry() {
        let root = tempfile::tempdir().unwrap();
        let nights = NightlyStore::open(root.path(), "größe").unwrap();
        let path = nights.record(&night("one")).unwrap();
        // An entry that this version cannot read stays.
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"unknown\": 1}\n").unwrap();
        nights.record(&night("two")).unwrap();
        let resumed = NightlyRun {
            at: "2026-01-09T00:00:00Z".to_owned(),
            baseline: Some(RunId::new("two")),
            ..night("one")
        };
        nights.record(&resumed).unwrap();
        let expected = NightlyRun {
            at: night("one").at,
            ..resumed
        };
        let (read, warnings) = history(root.path(), "größe").unwrap();
        assert_eq!(read, [expected, night("two")]);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 3);
    }

    #[test]
    fn a_run_with_several_entries_is_one_night() {
        let root = tempfile::tempdir().unwrap();
        let path = NightlyStore::open(root.path(), "größe")
            .unwrap()
            .record(&night("one"))
            .unwrap();
        let later = NightlyRun {
            at: "2026-01-09T00:00:00Z".to_owned(),
            baseline: Some(RunId::new("two")),
            ..night("one")
        };
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        for entry in [&night("two"), &night("one"), &later] {
            writeln!(file, "{}", serde_json::to_string(entry).unwrap()).unwrap();
        }
        let (read, _) = history(root.path(), "größe").unwrap();
        let once = NightlyRun {
            at: night("one").at,
            ..later.clone()
        };
        assert_eq!(read, [once.clone(), night("two")]);
        NightlyStore::open(root.path(), "größe")
            .unwrap()
            .record(&later)
            .unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 2);
        assert_eq!(history(root.path(), "größe").unwrap().0, [once, night("two")]);
    }

    #[test]
    fn only_old_raw_data_of_folders_that_are_ours_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let outside = root.path().join("outside");
        let make = |folder: &Path| {
            fs::create_dir_all(folder).unwrap();
            for name in [
                "summary.json",
                "requests.jsonl.zst",
                "histograms.jsonl.zst.old-2",
                "my-requests.jsonl.zst",
            ] {
                fs::write(folder.join(name), "12345").unwrap();
            }
        };
        let run = |name: &str| {
            let about = format!(
                r#"{{"format":{FORMAT},"run":"{name}","matrix":"m","began":"2020-01-02T03:04:05Z","tool":"1"}}"#
            );
            let folder = root.path().join("results").join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(layout::RUN), about).unwrap();
            folder
        };
        let link = |to: &Path, at: &Path| std::os::unix::fs::symlink(to, at).unwrap();
        let plain = run("plain").join("cells/one");
        make(&plain);
        link(
            &outside.join("cells/one/requests.jsonl.zst"),
            &plain.join("telemetry.jsonl.zst"),
        );
        let logs = root.path().join("results/plain/launches/one-s1");
        fs::create_dir_all(&logs).unwrap();
        for name in ["engine.log", "engine.log.tail.old-3", "engine.log.mine"] {
            fs::write(logs.join(name), "1").unwrap();
        }
        make(&outside.join("cells/one"));
        link(&outside.join("cells"), &run("cells-elsewhere").join("cells"));
        fs::create_dir_all(run("cell-elsewhere").join("cells")).unwrap();
        link(
            &outside.join("cells/one"),
            &root.path().join("results/cell-elsewhere/cells/one"),
        );
        make(&run("moved").join("cells/one"));
        fs::rename(root.path().join("results/moved"), outside.join("moved")).unwrap();
        link(&outside.join("moved"), &root.path().join("results/moved"));

        assert_eq!(
            remove_raw_data(&root.path().join("results"), "m", 1.0, &[]).unwrap(),
            12
        );
        let left = |folder: &Path| {
            let entries = fs::read_dir(folder).unwrap();
            let mut names: Vec<String> = entries
                .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
                .collect();
            names.sort();
            names
        };
        assert_eq!(
            left(&plain),
            ["my-requests.jsonl.zst", "summary.json", "telemetry.jsonl.zst"]
        );
        assert_eq!(left(&logs), ["engine.log.mine"]);
        assert_eq!(left(&outside.join("cells/one")).len(), 4);
        assert_eq!(left(&outside.join("moved/cells/one")).len(), 4);
    }
}
