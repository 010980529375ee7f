//! `matrix compare`: compares two runs cell by cell.

use std::path::Path;

use crate::analysis::compare::arm_comparison::compare_arms;
use crate::analysis::compare::decision::{self, Gap};
use crate::analysis::compare::named_gates::named_gates;
use crate::analysis::compare::pairwise::{self, Comparison, Terms};
use crate::analysis::compare::verdict::Verdict;
use crate::analysis::compare::{from_run, machines, stored};
use crate::analysis::metrics::Metric;
use crate::cli;
use crate::cli::regression::{Arms, CompareArgs};
use crate::commands::error::{CommandError, Outcome};
use crate::commands::output::{Colors, complain, print};
use crate::exit::Exit;
use crate::report::{self, Format, Table, comparison};
use crate::results::record::cell_stats::{Cause, Noise, Side};
use crate::results::store::{self, Run, StoreError};

/// Compares two sides.
pub(crate) fn execute(args: &CompareArgs, colors: Colors) -> Outcome {
    let gates = gates(&args.judging.gate)?;
    let Some(candidate) = &args.candidate else {
        return alternated(args, &gates, colors);
    };
    let baseline = named(&args.results, &args.baseline, &gates)?;
    let mut candidate = named(&args.results, candidate, &gates)?;
    if !gates.is_empty() {
        // The requested metrics also apply to a baseline's file, in place of the metrics that gated it.
        for cell in candidate.cells.values_mut() {
            cell.gates = gates.iter().map(|metric| metric.name()).collect();
        }
    }
    let noise = noise_of(&args.places.cache(), &candidate);
    let mut comparison = pairwise::compare(
        &baseline,
        &candidate,
        &Terms {
            bound: args.judging.floor,
            noise: noise.as_ref(),
            across: args.across_environments,
        },
    );
    if comparison.rows.is_empty() {
        return Err(CommandError::usage(format!(
            "error: `{}` and `{}` have no cell in common\n  = help: cells are paired by their axes, the version left out; `matrix compare` two runs of one matrix\n",
            args.baseline,
            args.candidate.as_deref().unwrap_or_default()
        )));
    }
    // A copy under another name has the same measurements too.
    if baseline.began == candidate.began && baseline.cells == candidate.cells {
        for row in comparison.rows.iter_mut().filter(|row| row.verdict().is_some()) {
            let why = "both sides are the same measurements".to_owned();
            row.answer.outcome = decision::Outcome::NotJudged(Gap::NotComparable(why));
        }
        show(args, &comparison, ["baseline", "candidate"], colors)?;
        complain(&format!(
            "note: both sides are the same measurements, those of the run `{}`: nothing was compared\n",
            candidate.run
        ));
        return Ok(Exit::NotJudged);
    }
    show(args, &comparison, ["baseline", "candidate"], colors)?;
    let refused = candidate.cells.iter().any(|(key, cell)| match cell.refused() {
        // A cell that neither side measured does not count as missing.
        Some((Cause::NotMeasured, _)) => comparison
            .rows
            .iter()
            .any(|row| row.cell == *key && !row.samples[0].logs.is_empty()),
        refused => refused.is_some(),
    });
    Ok(ending(&comparison, refused))
}

/// Compares the two arms of one run that the flags name.
fn alternated(args: &CompareArgs, gates: &[Metric], colors: Colors) -> Outcome {
    let Some(Arms { axis, values }) = &args.arms else {
        return Err(CommandError::usage("error: there is nothing to compare with\n"));
    };
    let run = store::nightly::named(&args.results, &args.baseline)
        .map_err(|error| CommandError::usage(format!("error: {error}\n")))?;
    for doubt in &run.doubts {
        complain(&format!("warning: {doubt}\n"));
    }
    let names = [values[0].as_str(), values[1].as_str()];
    let noise = noise_of(&args.places.cache(), &of_run(&run, gates));
    let terms = Terms {
        bound: args.judging.floor,
        noise: noise.as_ref(),
        across: args.across_environments,
    };
    let comparison = of_arms(&run, gates, axis, names, &terms)?;
    show(args, &comparison, names, colors)?;
    let refused = comparison.rows.iter().any(|row| row.refused.is_some());
    Ok(ending(&comparison, refused))
}

/// Compares two arms of a run. Fails if no cells of the two arms form pairs.
pub(super) fn of_arms(
    run: &Run,
    gates: &[Metric],
    axis: &str,
    values: [&str; 2],
    terms: &Terms<'_>,
) -> Result<Comparison, CommandError> {
    let side = of_run(run, gates);
    compare_arms(&run.plan, &run.summaries, &side, axis, values, terms)
        .map_err(|error| CommandError::usage(format!("error: {error}\n")))
}

fn show(
    args: &CompareArgs,
    comparison: &Comparison,
    names: [&str; 2],
    colors: Colors,
) -> Result<(), CommandError> {
    if args.format == cli::Format::Json {
        let text =
            serde_json::to_string_pretty(&comparison::json(comparison)).map_err(anyhow::Error::from)?;
        print(&format!("{text}\n"));
    } else {
        print(&format!("{}\n", comparison::headline(comparison)));
        draw(&comparison::tables(comparison, names), args.format, colors);
    }
    Ok(())
}

/// The exit code of a comparison.
fn ending(comparison: &Comparison, refused: bool) -> Exit {
    if comparison.count(Verdict::Worse) > 0 || comparison.is_less_reliable() {
        Exit::Regression
    } else if refused || comparison.lost().next().is_some() {
        Exit::CellFailed
    } else if comparison.judged() == 0 {
        Exit::NotJudged
    } else {
        Exit::Done
    }
}

/// Prints tables, separated by empty lines.
pub(super) fn draw(tables: &[Table], format: cli::Format, colors: Colors) {
    let format = match format {
        cli::Format::Markdown => Format::Markdown,
        _ => Format::Terminal {
            width: super::terminal::width(),
            colors: colors.stdout,
        },
    };
    let texts: Vec<String> = tables.iter().map(|table| report::draw(table, format)).collect();
    print(&texts.join("\n"));
}

/// The gating metrics with these names. Fails for a metric that does not exist or has no better direction.
pub(super) fn gates(names: &[String]) -> Result<Vec<Metric>, CommandError> {
    named_gates(names).map_err(|error| CommandError::usage(format!("error: {error}\n")))
}

/// The side with this name: a baseline's file, a run's folder or name, or a matrix's newest run.
pub(super) fn named(root: &Path, name: &str, gates: &[Metric]) -> Result<Side, CommandError> {
    let usage = |error: StoreError| CommandError::usage(format!("error: {error}\n"));
    let path = Path::new(name);
    if path.is_file() {
        let kept = store::nightly::baseline(path).map_err(usage)?;
        return kept
            .map(|baseline| baseline.side)
            .ok_or_else(|| CommandError::usage(format!("error: `{name}` is no baseline\n")));
    }
    let run = store::nightly::named(root, name).map_err(usage)?;
    for doubt in &run.doubts {
        complain(&format!("warning: {doubt}\n"));
    }
    Ok(of_run(&run, gates))
}

pub(super) fn of_run(run: &Run, gates: &[Metric]) -> Side {
    from_run::of_run(&run.about, &run.plan, &run.machine, &run.summaries, gates)
}

/// The saved noise of the host that measured `side`.
pub(super) fn noise_of(cache: &Path, side: &Side) -> Option<Noise> {
    let noise = store::nightly::noise(cache)?;
    if !machines::shares_noise(&noise.machine, &side.machine) {
        return None;
    }
    for doubt in stored::doubts(&noise) {
        complain(&format!("warning: {doubt}\n"));
    }
    Some(noise)
}
