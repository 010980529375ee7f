//! `matrix bisect`: the first of several versions that is worse.

use anyhow::Context;

use crate::cli::RunArgs;
use crate::cli::compare::BisectArgs;
use crate::commands::again::Further;
use crate::commands::compare::{gates, noise_of, of_run};
use crate::commands::plan::select;
use crate::commands::run::measure;
use crate::commands::{Colors, Outcome, Refusal, print, read, refused};
use crate::exit::Exit;
use crate::judge::compare::cells::{self, Comparison, Row, Terms};
use crate::judge::compare::verdict::Verdict;
use crate::judge::metrics::Metric;
use crate::matrix::plan::Plan;
use crate::results::record::side::Side;
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
        run: None,
        wanted: Vec::new(),
    };
    let (mut good, mut bad) = (0, versions.len() - 1);
    let ends = [versions[good].as_str(), versions[bad].as_str()];
    let Some(side) = probe.measure(&ends)? else {
        return Ok(Exit::Interrupted);
    };
    match probe.judge(&side, ends[0], ends[1]) {
        Some(true) => {}
        told => {
            let said = if told.is_none() {
                "cannot be told from"
            } else {
                "is not worse than"
            };
            print(&format!(
                "{} {said} {}: there is nothing to search for\n",
                ends[1], ends[0]
            ));
            return Ok(Exit::Done);
        }
    }
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        let Some(side) = probe.measure(&[&versions[middle]])? else {
            return Ok(Exit::Interrupted);
        };
        let is_worse = probe.judge(&side, ends[0], &versions[middle]);
        match is_worse {
            Some(true) => bad = middle,
            Some(false) => good = middle,
            None => {
                print(&format!(
                    "{} cannot be told from {}: the first bad version lies after {} and not after {}; more `--starts` may tell\n",
                    versions[middle], ends[0], versions[good], versions[bad]
                ));
                return Ok(Exit::CellFailed);
            }
        }
    }
    print(&format!(
        "first bad version: {} (last good: {})\n",
        versions[bad], versions[good]
    ));
    Ok(Exit::Regression)
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

/// Measures versions into one run, one after another.
struct Probe<'a> {
    args: &'a BisectArgs,
    colors: Colors,
    gates: Vec<Metric>,
    run: Option<String>,
    wanted: Vec<String>,
}

impl Probe<'_> {
    /// Everything measured so far with these versions; `None` if it was interrupted.
    fn measure(&mut self, versions: &[&str]) -> Result<Option<Side>, Refusal> {
        self.wanted
            .extend(versions.iter().map(|version| (*version).to_owned()));
        let run = RunArgs {
            resume: self.run.clone().or_else(|| self.args.run.resume.clone()),
            ..self.args.run.clone()
        };
        let (starts, wanted) = (self.args.starts, self.wanted.clone());
        let change = |plan: &mut Plan| {
            plan.start_times(starts);
            plan.keep(|cell| {
                cell.axes
                    .get(VERSION)
                    .is_some_and(|version| wanted.contains(version))
            });
        };
        let measured = measure(&run, self.colors, &change, &Further::Nothing)?;
        if measured.exit == Exit::Interrupted {
            return Ok(None);
        }
        self.run = Some(measured.run.to_string());
        let run = Run::read(&measured.folder).context("the run cannot be read")?;
        Ok(Some(of_run(&run, &self.gates)))
    }

    /// Whether a version is worse than the good one in any cell; `None` where that cannot be told.
    fn judge(&self, side: &Side, good: &str, version: &str) -> Option<bool> {
        let of = |version: &str| Side {
            cells: side
                .cells
                .iter()
                .filter(|(_, cell)| cell.axes.get(VERSION).is_some_and(|known| known == version))
                .map(|(key, cell)| (key.clone(), cell.clone()))
                .collect(),
            ..side.clone()
        };
        let noise = noise_of(&self.args.run.places.cache(), side);
        let terms = Terms {
            bound: self.args.judging.floor,
            noise: noise.as_ref(),
            across: false,
        };
        let found = cells::compare(&of(good), &of(version), &terms);
        print(&told(&found, version));
        let has = |verdict| found.count(verdict) > 0;
        if has(Verdict::Worse) {
            return Some(true);
        }
        let is_open = found.rows.is_empty()
            || found
                .rows
                .iter()
                .any(|row| matches!(row.verdict(), None | Some(Verdict::Unclear)));
        (!is_open).then_some(false)
    }
}

fn told(found: &Comparison, version: &str) -> String {
    let row = |row: &Row| format!("  {}: {}: {}\n", row.word(), row.cell, row.reason());
    let rows: String = found.rows.iter().map(row).collect();
    format!("{version}:\n{rows}")
}
