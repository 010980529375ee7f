//! `matrix compare`: compares two runs cell by cell.

use std::path::Path;

use crate::analysis::compare::arm_comparison::compare_arms;
use crate::analysis::compare::decision::{self, NoVerdict};
use crate::analysis::compare::named_gates::named_gates;
use crate::analysis::compare::pairwise::{self, CompareOptions, Comparison};
use crate::analysis::compare::verdict::Verdict;
use crate::analysis::compare::{from_run, machines, stored};
use crate::analysis::metrics::Metric;
use crate::base::text::pluralize;
use crate::cli::regression::{Arms, CompareArgs};
use crate::commands::error::{CommandError, Outcome};
use crate::commands::output::{Colors, eprint, print};
use crate::commands::terminal;
use crate::exit::Exit;
use crate::report::format;
use crate::results::record::cell::{MeasurementStatus, MeasurementSummary};
use crate::results::record::cell_stats::{ExclusionCause, Noise, RunStats};
use crate::results::record::validity;
use crate::results::store::{self, Run, StoreError};

pub(crate) fn execute(args: &CompareArgs, colors: Colors) -> Outcome {
    let gates = gating_metrics(&args.judging.gate)?;
    let Some(candidate) = &args.candidate else {
        return execute_arms(args, &gates, colors);
    };
    let baseline = load_side(&args.results, &args.baseline, &gates)?;
    let mut candidate = load_side(&args.results, candidate, &gates)?;
    if !gates.is_empty() {
        // The requested metrics also apply to a baseline's file, in place of the metrics that gated it.
        for cell in candidate.cells.values_mut() {
            cell.gates = gates.iter().map(|metric| metric.name()).collect();
        }
    }
    let noise = saved_noise(&args.places.cache(), &candidate);
    let mut comparison = pairwise::compare(
        &baseline,
        &candidate,
        &CompareOptions {
            bound: args.judging.floor,
            noise: noise.as_ref(),
            allow_environment: args.across_environments,
            further_questions: 0,
        },
    );
    if comparison.rows.is_empty() {
        return Err(CommandError::usage(format!(
            "error: `{}` and `{}` have no cell in common\n  = help: cells are paired by all axes except the version; compare two runs of one matrix\n",
            args.baseline,
            args.candidate.as_deref().unwrap_or_default()
        )));
    }
    // A copy under another name has the same measurements too.
    if baseline.began == candidate.began && baseline.cells == candidate.cells {
        for row in comparison.rows.iter_mut().filter(|row| row.verdict().is_some()) {
            let why = "baseline and candidate are the same measurements".to_owned();
            row.answer.outcome = decision::Outcome::NotJudged(NoVerdict::NotComparable(why));
        }
        print_comparison(args, &comparison, ["baseline", "candidate"], colors);
        eprint(&format!(
            "note: nothing was compared, because baseline and candidate are the same measurements of the run `{}`\n",
            candidate.run
        ));
        return Ok(Exit::NotJudged);
    }
    print_comparison(args, &comparison, ["baseline", "candidate"], colors);
    let refused = candidate.cells.iter().any(|(key, cell)| match cell.exclusion() {
        // A cell that neither side measured does not count as missing.
        Some((ExclusionCause::NotMeasured, _)) => comparison
            .rows
            .iter()
            .any(|row| row.cell == *key && !row.samples[0].logs.is_empty()),
        refused => refused.is_some(),
    });
    Ok(exit(&comparison, refused))
}

/// Compares the two arms of one run that the flags name.
fn execute_arms(args: &CompareArgs, gates: &[Metric], colors: Colors) -> Outcome {
    let Some(Arms { axis, values }) = &args.arms else {
        return Err(CommandError::usage(
            "error: there is no candidate to compare with the baseline\n  = help: name a second run, or two arms of the run with `--arms`\n",
        ));
    };
    let run = store::nightly::find_run(&args.results, &args.baseline)
        .map_err(|error| CommandError::usage(format!("error: {error}\n")))?;
    for doubt in &run.warnings {
        eprint(&format!("warning: {doubt}\n"));
    }
    let names = [values[0].as_str(), values[1].as_str()];
    let noise = saved_noise(&args.places.cache(), &run_stats(&run, gates));
    let terms = CompareOptions {
        bound: args.judging.floor,
        noise: noise.as_ref(),
        allow_environment: args.across_environments,
        further_questions: 0,
    };
    let comparison = compare_run_arms(&run, gates, axis, names, &terms)?;
    print_comparison(args, &comparison, names, colors);
    eprint(&repeat_note(&run, &comparison));
    let refused = comparison.rows.iter().any(|row| row.refusal_cause.is_some());
    Ok(exit(&comparison, refused))
}

/// How to measure again what does not count, if something was not judged.
fn repeat_note(run: &Run, comparison: &Comparison) -> String {
    let counts = |summary: &&MeasurementSummary| {
        let verdict = summary.validity.as_ref().map(|validity| validity.verdict);
        summary.status == MeasurementStatus::Done && verdict != Some(validity::Verdict::Invalid)
    };
    let lost = run.summaries.iter().filter(|summary| !counts(summary)).count();
    if lost == 0 || comparison.rows.iter().all(|row| row.verdict().is_some()) {
        return String::new();
    }
    format!(
        "note: {} of this run {} not count, because of a failure or an invalid result. The measurements of the other side in the same round do not count either. To measure again, run `matrix run {} --resume {} --failed`; then compare again\n",
        pluralize(lost, "measurement", "measurements"),
        if lost == 1 { "does" } else { "do" },
        run.plan.matrix,
        run.info.run
    )
}

/// Compares two arms of a run. Fails if no cells of the two arms form pairs.
pub(super) fn compare_run_arms(
    run: &Run,
    gates: &[Metric],
    axis: &str,
    values: [&str; 2],
    terms: &CompareOptions<'_>,
) -> Result<Comparison, CommandError> {
    let side = run_stats(run, gates);
    compare_arms(&run.plan, &run.summaries, &side, axis, values, terms)
        .map_err(|error| CommandError::usage(format!("error: {error}\n")))
}

fn print_comparison(args: &CompareArgs, comparison: &Comparison, names: [&str; 2], colors: Colors) {
    let layout = terminal::layout(colors);
    print(&format::draw_comparison(&args.format, comparison, names, layout));
}

/// The exit code of a comparison.
fn exit(comparison: &Comparison, refused: bool) -> Exit {
    if comparison.count_verdict(Verdict::Worse) > 0 || comparison.is_less_reliable() {
        Exit::Regression
    } else if refused || comparison.lost_cells().next().is_some() {
        Exit::CellFailed
    } else if comparison.judged_count() == 0 {
        Exit::NotJudged
    } else {
        Exit::Done
    }
}

/// The gating metrics with these names. Fails for a metric that does not exist or has no better direction.
pub(super) fn gating_metrics(names: &[String]) -> Result<Vec<Metric>, CommandError> {
    named_gates(names).map_err(|error| CommandError::usage(format!("error: {error}\n")))
}

/// The side with this name: a baseline's file, a run's folder or name, or a matrix's newest run.
pub(super) fn load_side(root: &Path, name: &str, gates: &[Metric]) -> Result<RunStats, CommandError> {
    let usage = |error: StoreError| CommandError::usage(format!("error: {error}\n"));
    let path = Path::new(name);
    if path.is_file() {
        let stored_baseline = store::nightly::read_baseline(path).map_err(usage)?;
        return stored_baseline
            .map(|baseline| baseline.side)
            .ok_or_else(|| CommandError::usage(format!("error: `{name}` is not a baseline file\n")));
    }
    let run = store::nightly::find_run(root, name).map_err(usage)?;
    for doubt in &run.warnings {
        eprint(&format!("warning: {doubt}\n"));
    }
    Ok(run_stats(&run, gates))
}

pub(super) fn run_stats(run: &Run, gates: &[Metric]) -> RunStats {
    from_run::run_stats(&run.info, &run.plan, &run.machine, &run.summaries, gates)
}

/// The saved noise of the host that measured `side`.
pub(super) fn saved_noise(cache: &Path, side: &RunStats) -> Option<Noise> {
    let noise = store::nightly::read_noise(cache)?;
    if !machines::are_noise_compatible(&noise.machine, &side.machine) {
        return None;
    }
    for doubt in stored::unusable_noise(&noise) {
        eprint(&format!("warning: {doubt}\n"));
    }
    Some(noise)
}
