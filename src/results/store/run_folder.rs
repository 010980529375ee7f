//! Lists the runs of a results folder, and reads what each run is.

use std::path::{Path, PathBuf};

use super::error::{Result, StoreError};
use super::files::{folders, read_json};
use super::layout;
use super::nightly::is_own_folder;
use crate::plan::Plan;
use crate::results::record::run::RunInfo;
use crate::results::record::stored_answers::StoredAnswers;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunEntry {
    pub(crate) folder: PathBuf,
    pub(crate) info: RunInfo,
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

/// A folder with a run whose `run.json` cannot be read.
#[derive(Debug)]
pub(crate) struct UnreadableRun {
    pub(crate) folder: PathBuf,
    /// Names the file and the cause.
    pub(crate) error: StoreError,
}

/// Lists the runs below `root` that [`list_runs`] leaves out, by the name of their folder. A folder without `run.json` is no
/// run, and a hidden folder is not searched: an import makes its run in one.
pub(crate) fn list_unreadable_runs(root: &Path) -> Result<Vec<UnreadableRun>> {
    let is_hidden = |folder: &Path| {
        let name = folder.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with('.')
    };
    let folders = folders(root)?.into_iter().filter(|folder| !is_hidden(folder));
    Ok(folders
        .filter_map(|folder| match read_run_info(&folder) {
            Ok(_) | Err(StoreError::NoRun { .. }) => None,
            Err(error) => Some(UnreadableRun { folder, error }),
        })
        .collect())
}

/// The number of measurements of a run that are finished. Their summaries are not read.
pub(crate) fn count_finished(run: &Path) -> Result<usize> {
    let cells = cell_folders(run)?;
    Ok(cells
        .iter()
        .filter(|cell| cell.join(layout::SUMMARY).is_file())
        .count())
}

/// Finds the newest run of a matrix below `root`. Fails if a newer one is damaged.
pub(crate) fn latest_run(root: &Path, matrix: &str) -> Result<Option<RunEntry>> {
    let latest = list_runs(root)?.into_iter().find(|run| run.info.matrix == matrix);
    refuse_damaged_newer_run(root, matrix, latest.as_ref())?;
    Ok(latest)
}

/// Fails if this user has a run of a matrix that is newer than `latest` and cannot be read: `latest` would
/// silently take its place. The name of its folder says its matrix and time.
pub(crate) fn refuse_damaged_newer_run(root: &Path, matrix: &str, latest: Option<&RunEntry>) -> Result<()> {
    let latest_name = latest.and_then(|run| run.folder.file_name());
    let time = |name: &str| name.strip_prefix(matrix)?.strip_prefix('-').map(str::to_owned);
    for folder in folders(root)? {
        let name = folder.file_name().unwrap_or_default();
        let is_of_matrix = time(&name.to_string_lossy())
            .is_some_and(|time| time.len() > 8 && time.bytes().take(8).all(|byte| byte.is_ascii_digit()));
        if !is_of_matrix || Some(name) <= latest_name || !is_own_folder(&folder) {
            continue;
        }
        match read_run_info(&folder) {
            Ok(_) | Err(StoreError::NoRun { .. }) => {}
            Err(source) => {
                return Err(StoreError::DamagedNewest {
                    matrix: matrix.to_owned(),
                    source: Box::new(source),
                });
            }
        }
    }
    Ok(())
}

/// Reads the plan of the run in `folder`. Fails if it is missing, invalid, or refers to a launch or cell that
/// it does not contain.
pub(crate) fn read_plan(folder: &Path) -> Result<Plan> {
    let path = folder.join(layout::PLAN);
    let plan: Plan = read_json(
        &path,
        "continue the run with `--resume`; this writes the file again",
    )?;
    match plan.contradiction() {
        None => Ok(plan),
        Some(reason) => Err(StoreError::Malformed { path, why: reason }),
    }
}

/// Reads the answers of a stored run that the run in `folder` is compared with.
pub(crate) fn read_stored_answers(folder: &Path) -> Result<StoredAnswers> {
    read_json(
        &folder.join(layout::STORED_ANSWERS),
        "continue the run with `--resume`, which copies the answers of the stored run again",
    )
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
