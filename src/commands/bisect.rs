//! `matrix bisect`: the first of several versions that is worse.

use anyhow::Context;

use crate::cli::RunArgs;
use crate::cli::compare::BisectArgs;
use crate::commands::again::Further;
use crate::commands::compare::{gates, noise_of, of_arms, of_run};
use crate::commands::plan::select;
use crate::commands::run::measure;
use crate::commands::{Colors, Outcome, Refusal, print, read, refused};
use crate::exit::Exit;
use crate::judge::compare::cells::{Comparison, Row, Terms};
use crate::judge::compare::verdict::Verdict;
use crate::judge::metrics::Metric;
use crate::matrix::plan::{Cell, Plan};
use crate::matrix::spec::select::{self, AxisValues};
use crate::results::store::Run;

const VERSION: &str = "version";

/// Looks for the first bad version.
///
/// # Errors
/// As `matrix run`; fewer than three versions.
pub fn execute(args: &BisectArgs, colors: Colors) -> Outcome {
    let mut plan = read(&args.run.matrix)
        .map_err(|(mistakes, sources)| refused(&mistakes, &sources, colors.stderr))?
        .plan;
    if let Some(only) = &args.run.only {
        select(&mut plan, only)?;
    }
    let versions = versions(&plan);
    if versions.len() < 3 {
        return Err(Refusal::usage(format!(
            "error: there is nothing to search between {} versions\n  = help: list them in order, as in `sglang: {{ version: [v0.5.0, v0.5.1, v0.5.2] }}`, the first good, the last bad\n",
            versions.len()
        )));
    }
    let mut probe = Probe {
        args,
        colors,
        gates: gates(&args.judging.gate)?,
        resume: args.run.resume.clone(),
    };
    let (mut good, mut bad) = (0, versions.len() - 1);
    let ends = [versions[good].as_str(), versions[bad].as_str()];
    let Some(found) = probe.compare(ends, None)? else {
        return Ok(Exit::Interrupted);
    };
    let is_loss = |row: &&Row| row.verdict() == Some(Verdict::Worse);
    let worst = found.rows.iter().filter(is_loss);
    let Some(worst) = worst.max_by(|one, two| size(one).total_cmp(&size(two))) else {
        let is_open = |row: &Row| matches!(row.verdict(), None | Some(Verdict::Unclear));
        let is_undecided = found.rows.iter().any(is_open);
        let (said, exit) = match is_undecided {
            true => ("cannot be told from", Exit::NotJudged),
            false => ("is not worse than", Exit::Done),
        };
        print(&format!(
            "{} {said} {}: there is nothing to search for\n",
            ends[1], ends[0]
        ));
        return Ok(exit);
    };
    // Only what regressed moves the search: another metric may get worse on the way, and better again.
    let regressed = Regressed {
        axes: others(worst.cell.as_str()),
        metric: worst.metric,
    };
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        let Some(found) = probe.compare([ends[0], &versions[middle]], Some(&regressed))? else {
            return Ok(Exit::Interrupted);
        };
        let row = found.rows.iter().find(|row| row.metric == regressed.metric);
        match row.and_then(Row::verdict) {
            Some(Verdict::Worse) => bad = middle,
            Some(Verdict::Same | Verdict::Better) => good = middle,
            Some(Verdict::Unclear) | None => {
                print(&format!(
                    "{} cannot be told from {} by {}: the first bad version lies after {} and not after {}; more `--starts` may tell\n",
                    versions[middle],
                    ends[0],
                    regressed.metric.label(),
                    versions[good],
                    versions[bad]
                ));
                return Ok(Exit::NotJudged);
            }
        }
    }
    print(&format!(
        "first bad version: {} (last good: {}), by {} of {}\n",
        versions[bad],
        versions[good],
        regressed.metric.label(),
        worst.cell
    ));
    Ok(Exit::Regression)
}

/// What the last version lost.
struct Regressed {
    /// The axes of its cell, the version left out.
    axes: AxisValues,
    metric: Metric,
}

/// How large a change is.
fn size(row: &Row) -> f64 {
    row.answer
        .estimate
        .map_or(0.0, |estimate| estimate.log_change.abs())
}

/// The axes of a cell, the version left out.
fn others(key: &str) -> AxisValues {
    let mut axes = select::values(key);
    axes.remove(VERSION);
    axes
}

/// The versions of a plan in its order.
fn versions(plan: &Plan) -> Vec<String> {
    let mut versions: Vec<String> = Vec::new();
    for version in plan.cells.iter().filter_map(|cell| cell.axes.get(VERSION)) {
        if !versions.contains(version) {
            versions.push(version.clone());
        }
    }
    versions
}

/// Measures two versions at a time, each time in a run of its own in which they alternate.
struct Probe<'a> {
    args: &'a BisectArgs,
    colors: Colors,
    gates: Vec<Metric>,
    /// The run that the first measurement goes on with.
    resume: Option<String>,
}

impl Probe<'_> {
    /// One version against another, in the cell that regressed where that is known; `None` if it was interrupted.
    fn compare(
        &mut self,
        versions: [&str; 2],
        regressed: Option<&Regressed>,
    ) -> Result<Option<Comparison>, Refusal> {
        let run = RunArgs {
            resume: self.resume.take(),
            ..self.args.run.clone()
        };
        let is_wanted = |cell: &Cell| {
            let is_version = cell
                .axes
                .get(VERSION)
                .is_some_and(|own| versions.contains(&own.as_str()));
            is_version && regressed.is_none_or(|regressed| others(cell.key.as_str()) == regressed.axes)
        };
        let starts = self.args.starts;
        let change = |plan: &mut Plan| {
            plan.start_times(starts);
            plan.keep(is_wanted);
        };
        let measured = measure(&run, self.colors, &change, &Further::Nothing)?;
        if measured.exit == Exit::Interrupted {
            return Ok(None);
        }
        let run = Run::read(&measured.folder).context("the run cannot be read")?;
        let noise = noise_of(&self.args.run.places.cache(), &of_run(&run, &self.gates));
        let terms = Terms {
            bound: self.args.judging.floor,
            noise: noise.as_ref(),
            across: false,
        };
        let found = of_arms(&run, &self.gates, VERSION, versions, &terms)?;
        print(&told(&found, versions[1]));
        Ok(Some(found))
    }
}

fn told(found: &Comparison, version: &str) -> String {
    let row = |row: &Row| format!("  {}: {}: {}\n", row.word(), row.cell, row.reason());
    let rows: String = found.rows.iter().map(row).collect();
    format!("{version}:\n{rows}")
}
