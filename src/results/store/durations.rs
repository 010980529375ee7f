//! Durations of cells and of starts in earlier runs. Reads only summaries, newest run first, and stops when
//! every cell is found.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::error::Result;
use super::run_folder::RunEntry;
use super::{files, layout, run_folder};
use crate::base::date;
use crate::base::ids::{CellKey, ContentHash};
use crate::plan::Cell;
use crate::results::record::cell::{MeasurementStatus, Phase, PhaseTime};
use crate::results::record::last_duration::LastDuration;

/// Number of runs that are searched: about two months of nightly runs.
const MAX_RUNS: usize = 60;

/// Finds the last duration of each of `cells` in the runs of `matrix`. A run with the same content hash is
/// preferred to a newer one with only the same key. Cells that were never measured are absent; unreadable
/// summaries are ignored.
pub(crate) fn last_durations<'a>(
    root: &Path,
    matrix: &str,
    cells: impl IntoIterator<Item = &'a Cell>,
) -> Result<BTreeMap<CellKey, LastDuration>> {
    let mut open: BTreeMap<&CellKey, &ContentHash> =
        cells.into_iter().map(|cell| (&cell.key, &cell.content)).collect();
    let mut known: BTreeMap<CellKey, LastDuration> = BTreeMap::new();
    let runs = run_folder::list_runs(root)?;
    for run in runs.iter().filter(|run| run.info.matrix == matrix).take(MAX_RUNS) {
        if open.is_empty() {
            break;
        }
        for (
            (key, content),
            CellDuration {
                seconds,
                launch_seconds,
            },
        ) in finished_cells(run)?
        {
            let Some(matching) = open.get(&key) else { continue };
            let same = **matching == content;
            if same || !known.contains_key(&key) {
                let run = run.info.run.clone();
                known.insert(
                    key,
                    LastDuration {
                        seconds,
                        launch_seconds,
                        run,
                        same,
                    },
                );
            }
        }
        open.retain(|key, _| known.get(*key).is_none_or(|past| !past.same));
    }
    Ok(known)
}

/// The fields of a summary that are needed here.
#[derive(Deserialize)]
struct SummaryHead {
    cell: CellKey,
    content: ContentHash,
    #[serde(rename = "status", alias = "ending")]
    status: MeasurementStatus,
    began: String,
    ended: String,
    #[serde(default)]
    phases: Vec<PhaseTime>,
}

/// Durations of a cell in one run.
struct CellDuration {
    seconds: f64,
    launch_seconds: Option<f64>,
}

fn finished_cells(run: &RunEntry) -> Result<BTreeMap<(CellKey, ContentHash), CellDuration>> {
    let mut durations: BTreeMap<_, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for folder in run_folder::cell_folders(&run.folder)? {
        let Ok(brief) = files::read_json::<SummaryHead>(&folder.join(layout::SUMMARY), "") else {
            continue;
        };
        let seconds = date::seconds_between(&brief.began, &brief.ended);
        if let (MeasurementStatus::Done, Some(seconds)) = (&brief.status, seconds) {
            let (measured, launched) = durations.entry((brief.cell, brief.content)).or_default();
            measured.push(seconds);
            let launches = brief
                .phases
                .iter()
                .filter(|phase| phase.phase == Phase::Launch.name());
            launched.extend(launches.map(|phase| phase.seconds));
        }
    }
    let mean = |seconds: &[f64]| {
        let sum = seconds.iter().sum::<f64>();
        (!seconds.is_empty()).then(|| sum / seconds.len() as f64)
    };
    let took = |(measured, launched): (Vec<f64>, Vec<f64>)| {
        Some(CellDuration {
            seconds: mean(&measured)?,
            launch_seconds: mean(&launched),
        })
    };
    Ok(durations
        .into_iter()
        .filter_map(|(cell, seconds)| Some((cell, took(seconds)?)))
        .collect())
}
