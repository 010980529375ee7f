//! The page of an upgrade for a nightly run whose builds are not those of its baseline.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::confirm::NightlyResults;
use crate::analysis::compare::baseline_starts;
use crate::analysis::compare::pairwise::row::Row;
use crate::analysis::graded::reference::AnswerComparison;
use crate::analysis::graded::sides::GradedRun;
use crate::analysis::upgrade::{NightlyAnswers, NightlyUpgrade, answers_in_words};
use crate::base::ids::CellKey;
use crate::commands::compare::run_stats;
use crate::commands::error::CommandError;
use crate::commands::output::eprint;
use crate::commands::upgrade_page::{Sides, build_facts, record, write};
use crate::config::select;
use crate::plan::Launch;
use crate::plan::arms::baseline_key;
use crate::report::upgrade::UpgradePage;
use crate::results::record::nightly::{Finding, FindingKind};
use crate::results::record::upgrade::BuildFacts;
use crate::results::store::{self, Run};

/// The page of a changed build that was written.
pub(super) struct WrittenPage {
    pub(super) page: UpgradePage,
    pub(super) path: PathBuf,
}

/// What a nightly run adds to the verdicts on its metrics.
pub(super) struct Additions {
    /// Cells that answer worse than the baseline, and those whose answers could not be compared with it.
    pub(super) findings: Vec<Finding>,
    /// The page, if a cell was measured on another build than its baseline.
    pub(super) page: Option<WrittenPage>,
}

impl Additions {
    /// Whether answers could not be compared, so that a loss of them would have gone unnoticed.
    pub(super) fn has_uncompared_answers(&self) -> bool {
        self.findings
            .iter()
            .any(|finding| finding.kind == FindingKind::NotJudged)
    }
}

/// Compares the answers with those of the baseline, and writes the page if a cell was measured on another build. `rows` are the judged
/// metrics, and `folder` is that of the run.
pub(super) fn additions(nightly: &NightlyResults<'_>, rows: Vec<Row>, folder: &Path) -> Additions {
    let all_cells = run_stats(nightly.run, nightly.gates);
    let upgrade = NightlyUpgrade {
        plan: &nightly.run.plan,
        summaries: &nightly.run.summaries,
        baseline: &nightly.baseline.side,
        candidate: nightly.candidate,
        all_cells: &all_cells,
        bound: nightly.view.min_change,
    };
    let stored = baseline_run(nightly);
    let graded = stored.as_ref().map_err(String::clone).map(|run| GradedRun {
        stored: Some(&run.info.run),
        plan: &run.plan,
        summaries: &run.summaries,
    });
    let answers = upgrade.compare_answers(&graded);
    let findings = answers.comparisons.iter().filter_map(answer_finding).collect();
    let changed = upgrade.changed_cells();
    let page = changed.first().and_then(|first| {
        let builds = builds(nightly, first, stored.as_ref().ok());
        let written =
            builds.and_then(|builds| write_page(nightly, &upgrade, &changed, builds, rows, answers, folder));
        // The verdicts of the night do not depend on the page.
        let warn = |error: CommandError| {
            eprint(&format!(
                "warning: the engine has a new build, but the page that compares it with the old build could not be written: {}\n",
                error.message.trim()
            ));
        };
        written.map_err(warn).ok()
    });
    Additions { findings, page }
}

/// The finding that answers got worse or could not be compared.
fn answer_finding(answers: &AnswerComparison) -> Option<Finding> {
    let (kind, text) = match &answers.result {
        Ok(compared) if compared.is_worse() => {
            (FindingKind::Worse, answers_in_words(&answers.task, compared))
        }
        Ok(_) => return None,
        Err(why) => (
            FindingKind::NotJudged,
            format!("answers of {} were not compared: {why}", answers.task),
        ),
    };
    Some(Finding {
        kind,
        cell: Some(answers.cell.clone()),
        figure: None,
        text,
    })
}

fn write_page(
    nightly: &NightlyResults<'_>,
    upgrade: &NightlyUpgrade<'_>,
    changed: &[(CellKey, CellKey)],
    builds: [BuildFacts; 2],
    rows: Vec<Row>,
    answers: NightlyAnswers,
    folder: &Path,
) -> Result<WrittenPage, CommandError> {
    let runs = [&nightly.baseline.side.run, &nightly.run.info.run];
    let sides = Sides {
        engine: engine_of(changed),
        setting: "run".to_owned(),
        given: runs.map(ToString::to_string),
        axis: "version".to_owned(),
        values: upgrade.names(changed),
    };
    let record = record(sides, builds);
    let judged = upgrade.judge(&record, changed, rows, answers);
    let (page, path) = write(folder, &record, &judged)?;
    Ok(WrittenPage { page, path })
}

/// The engine of all of these cells; `None` if there are several.
fn engine_of(changed: &[(CellKey, CellKey)]) -> Option<String> {
    let engine = |key: &CellKey| select::parse_key(key.as_str()).remove("engine");
    let engines: BTreeSet<Option<String>> = changed.iter().map(|(_, key)| engine(key)).collect();
    match engines.len() {
        1 => engines.into_iter().next().flatten(),
        _ => None,
    }
}

/// The stored run of the baseline.
///
/// # Errors
/// Why it cannot be read.
fn baseline_run(nightly: &NightlyResults<'_>) -> Result<Run, String> {
    let name = &nightly.baseline.side.run;
    let found = store::nightly::find_run(&nightly.view.args.results, name.as_str()).ok();
    // A matrix may have the name of a run.
    found
        .filter(|run| run.info.run == *name)
        .ok_or_else(|| format!("the run `{name}` of the baseline is not among the results"))
}

/// What is known of the builds that a pair of cells was measured on. The baseline's is started for its help, if it can be.
fn builds(
    nightly: &NightlyResults<'_>,
    (baseline, candidate): &(CellKey, CellKey),
    stored: Option<&Run>,
) -> Result<[BuildFacts; 2], CommandError> {
    let run = nightly.run;
    let cell = run.plan.cell(candidate);
    let twin = baseline_key(cell);
    let of_baseline: Option<(Launch, Run)> = match run.plan.cells.iter().find(|cell| cell.key == twin) {
        Some(twin) => Some((run.plan.launch(&twin.launch).clone(), run.clone())),
        None => {
            let pairs = [(candidate, baseline)];
            let (mut launches, _) = baseline_starts::baseline_launches(nightly.baseline, pairs.into_iter());
            launches
                .remove(candidate)
                .map(|launch| (launch, stored.unwrap_or(run).clone()))
        }
    };
    let sides = [
        of_baseline.as_ref().map(|(launch, run)| (launch, run)),
        Some((run.plan.launch(&cell.launch), run)),
    ];
    build_facts(&nightly.view, sides, &nightly.request.matrix.folder)
}
