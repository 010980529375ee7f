//! `matrix bisect`: the first of several versions that is worse.

use std::path::Path;

use anyhow::Context;

use crate::analysis::compare::decision::{STARTS_NOISE_KNOWN, STARTS_NOISE_UNKNOWN};
use crate::analysis::compare::pairwise::{Comparison, Row, Terms};
use crate::analysis::compare::reliability::Failure;
use crate::analysis::compare::verdict::Verdict;
use crate::analysis::compare::{from_run, gates, machines, percentile, stored};
use crate::analysis::metrics::Metric;
use crate::base::ids::CellKey;
use crate::cli::regression::BisectArgs;
use crate::commands::compare::{gates as named_gates, noise_of, of_arms, of_run};
use crate::commands::environment::environment;
use crate::commands::error::{CommandError, Outcome};
use crate::commands::matrix_file::{load, select};
use crate::commands::measure::{View, line, measure, request};
use crate::commands::output::{Colors, complain, print};
use crate::commands::session_error::gpu_error;
use crate::config::select::{self, AxisValues};
use crate::exit::Exit;
use crate::plan::{Cell, Plan};
use crate::results::store::{self, Listed};
use crate::runner::load_matrix::LoadedMatrix;
use crate::runner::session::gpus;
use crate::runner::session::request::ExtraStarts;

const VERSION: &str = "version";

/// Looks for the first bad version.
///
/// # Errors
/// As `matrix run`; fewer than three versions.
pub fn execute(args: &BisectArgs, colors: Colors) -> Outcome {
    let matrix = load(&args.run.matrix, colors)?;
    let mut plan = matrix.plan.clone();
    if let Some(only) = &args.run.only {
        select(&mut plan, only)?;
    }
    let versions = versions(&plan);
    if versions.len() < 3 {
        return Err(CommandError::usage(format!(
            "error: there is nothing to search between {} versions\n  = help: list them in order, as in `sglang: {{ version: [v0.5.0, v0.5.1, v0.5.2] }}`, the first good, the last bad\n",
            versions.len()
        )));
    }
    let gates = named_gates(&args.judging.gate)?;
    judgeable(&plan, &gates)?;
    let mut probe = Probe {
        args,
        colors,
        starts: enough(args, &plan, &gates)?,
        gates,
        matrix,
        began: None,
    };
    let (mut good, mut bad) = (0, versions.len() - 1);
    let ends = [versions[good].as_str(), versions[bad].as_str()];
    let Some(found) = probe.compare(ends, None)? else {
        return Ok(Exit::Interrupted);
    };
    // Only what regressed moves the search: something else may get worse on the way, and better again.
    let Some(regressed) = Regressed::of(&found) else {
        return Ok(without_loss(&found, ends));
    };
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        let Some(found) = probe.compare([ends[0], &versions[middle]], Some(&regressed))? else {
            return Ok(Exit::Interrupted);
        };
        match regressed.is_in(&found) {
            Some(true) => bad = middle,
            Some(false) => good = middle,
            None => {
                let why = match found.is_less_reliable() {
                    true => "it fails where the first version does not",
                    false => "more `--starts` may tell",
                };
                print(&format!(
                    "{} cannot be told from {} by {}: the first bad version lies after {} and not after {}; {why}\n",
                    versions[middle],
                    ends[0],
                    regressed.label(),
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
        regressed.label(),
        regressed.cell
    ));
    Ok(Exit::Regression)
}

/// The metrics that gate a cell.
fn gates_of(cell: &Cell, gates: &[Metric]) -> Vec<Metric> {
    match gates {
        [] => gates::gates(&cell.scenario),
        chosen => chosen.to_vec(),
    }
}

/// Refuses a search in which nothing can ever be judged, as a percentile rests on too few requests.
fn judgeable(plan: &Plan, gates: &[Metric]) -> Result<(), CommandError> {
    let doubts: Vec<(&Cell, Vec<Option<String>>)> = plan
        .cells
        .iter()
        .map(|cell| {
            let prompts = cell.scenario.workload.prompts;
            let of_gate = |gate: &Metric| percentile::too_few(*gate, prompts);
            (cell, gates_of(cell, gates).iter().map(of_gate).collect())
        })
        .collect();
    let is_open = |(_, doubts): &(&Cell, Vec<Option<String>>)| doubts.iter().any(Option::is_none);
    let first = doubts
        .iter()
        .find_map(|(cell, doubts)| Some((cell, doubts.iter().flatten().next()?)));
    match first {
        Some((cell, why)) if !doubts.iter().any(is_open) => Err(CommandError::usage(format!(
            "error: nothing could be judged: {why}\n  = help: raise `prompts` of `{}`\n",
            cell.scenario.name
        ))),
        _ => Ok(()),
    }
}

/// Says why there is nothing to search for.
fn without_loss(found: &Comparison, [good, bad]: [&str; 2]) -> Exit {
    let not_judged = found.rows.iter().find(|row| row.verdict().is_none());
    let is_unclear = |row: &Row| row.verdict() == Some(Verdict::Unclear);
    let (said, exit) = match not_judged {
        Some(row) => (
            format!(
                "nothing is known of {bad} against {good}: {} was not judged: {}",
                row.metric.label(),
                row.reason()
            ),
            Exit::NotJudged,
        ),
        None if found.rows.iter().any(is_unclear) => (
            format!("{bad} cannot be told from {good}: more `--starts` may tell"),
            Exit::NotJudged,
        ),
        None => (
            format!("{bad} is not worse than {good}: there is nothing to search for"),
            Exit::Done,
        ),
    };
    print(&format!("{said}\n"));
    exit
}

/// Starts that can decide: those that were asked for, or as many as a verdict needs in every cell.
fn enough(args: &BisectArgs, plan: &Plan, gates: &[Metric]) -> Result<u32, CommandError> {
    let noise = store::nightly::noise(&args.run.places.cache());
    let least = match noise {
        Some(noise) if args.starts < STARTS_NOISE_UNKNOWN as u32 => {
            let (machine, _) = gpus::machine(&environment(), &|notice| complain(&line(&notice)))
                .map_err(|error| gpu_error(&error))?;
            let machine = from_run::machine_facts(&machine);
            let is_of_here = machines::shares_noise(&noise.machine, &machine);
            let is_known = |cell: &Cell| {
                let known = |gate: &Metric| stored::known(&noise, &cell.key, &gate.name());
                let is_enough = |gate: &Metric| known(gate).is_some_and(|noise| noise.is_enough());
                gates_of(cell, gates).iter().all(is_enough)
            };
            match is_of_here && plan.cells.iter().all(is_known) {
                true => STARTS_NOISE_KNOWN,
                false => STARTS_NOISE_UNKNOWN,
            }
        }
        _ => STARTS_NOISE_UNKNOWN,
    } as u32;
    if args.starts < least {
        let why = match least as usize {
            STARTS_NOISE_KNOWN => "a verdict needs three on each side",
            _ => {
                "a verdict needs five on each side, or three where the noise of this host is known (`matrix noise`)"
            }
        };
        complain(&format!(
            "note: `--starts {}` is raised to {least}: {why}
",
            args.starts
        ));
    }
    Ok(args.starts.max(least))
}

/// What the last version lost.
struct Regressed {
    cell: CellKey,
    /// The metric that got worse; `None` where it fails more often.
    metric: Option<Metric>,
}

impl Regressed {
    /// The largest loss in a metric, else the first loss of reliability; `None` where nothing was lost.
    fn of(found: &Comparison) -> Option<Self> {
        let is_loss = |row: &&Row| row.verdict() == Some(Verdict::Worse);
        let losses = found.rows.iter().filter(is_loss);
        let worst = losses.max_by(|one, two| size(one).total_cmp(&size(two)));
        let of_metric = worst.map(|row| Self {
            cell: row.cell.clone(),
            metric: Some(row.metric),
        });
        of_metric.or_else(|| {
            let failure = found.failures.iter().find(|failure| failure.is_regression)?;
            Some(Self {
                cell: failure.cell.clone(),
                metric: None,
            })
        })
    }

    /// Whether a version lost it as well; `None` where that cannot be told.
    fn is_in(&self, found: &Comparison) -> Option<bool> {
        let Some(metric) = self.metric else {
            return match found.is_less_reliable() {
                true => Some(true),
                false => found.failures.is_empty().then_some(false),
            };
        };
        let row = found.rows.iter().find(|row| row.metric == metric)?;
        match row.verdict()? {
            Verdict::Worse => Some(true),
            Verdict::Same | Verdict::Better => Some(false),
            Verdict::Unclear => None,
        }
    }

    fn label(&self) -> String {
        self.metric
            .map_or_else(|| "reliability".to_owned(), |metric| metric.label().to_string())
    }
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
    starts: u32,
    gates: Vec<Metric>,
    matrix: LoadedMatrix,
    /// When the search that goes on began, once its first run is found.
    began: Option<String>,
}

impl Probe<'_> {
    /// One version against another, in the cell that regressed where that is known; `None` if it was interrupted.
    fn compare(
        &mut self,
        versions: [&str; 2],
        regressed: Option<&Regressed>,
    ) -> Result<Option<Comparison>, CommandError> {
        let mut request = request(&self.args.run, self.matrix.clone());
        request.resume = self.earlier(versions)?;
        request.extra_starts = ExtraStarts::None;
        let is_wanted = |cell: &Cell| {
            let is_version = cell
                .axes
                .get(VERSION)
                .is_some_and(|own| versions.contains(&own.as_str()));
            let is_other =
                |regressed: &Regressed| others(cell.key.as_str()) != others(regressed.cell.as_str());
            is_version && !regressed.is_some_and(is_other)
        };
        request.matrix.plan.start_times(self.starts);
        request.matrix.plan.keep(is_wanted);
        let view = View {
            args: &self.args.run,
            bound: self.args.judging.floor,
            colors: self.colors,
        };
        let measured = measure(request, view)?;
        if measured.exit == Exit::Interrupted {
            return Ok(None);
        }
        let run = measured.records;
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

    /// The run that a search which goes on has of these versions already: of the first and the last the one that was named or the newest,
    /// of a step the newest that began later.
    fn earlier(&mut self, versions: [&str; 2]) -> Result<Option<String>, CommandError> {
        let Some(resume) = &self.args.run.resume else {
            return Ok(None);
        };
        let root = &self.args.run.results;
        let runs = store::list(root).context("the results cannot be read")?;
        let measures = |run: &Listed| {
            let plan = store::plan(&run.folder);
            plan.is_ok_and(|plan| self::versions(&plan) == versions)
        };
        let name = Path::new(resume).file_name();
        let is_asked = |run: &Listed| match &self.began {
            Some(began) => run.about.began > *began,
            None => resume == "latest" || name == Some(run.about.run.as_str().as_ref()),
        };
        let found = runs
            .into_iter()
            .find(|run| run.about.matrix == self.matrix.plan.matrix && is_asked(run) && measures(run));
        if let (None, None) = (&found, &self.began) {
            let [first, last] = versions;
            return Err(CommandError::usage(format!(
                "error: no run in {} measures {first} and {last}, with which a search begins, and is `{resume}`\n  = help: leave the name out for the newest one, or leave `--resume` out to begin a search\n",
                root.display()
            )));
        }
        if let (Some(run), None) = (&found, &self.began) {
            self.began = Some(run.about.began.clone());
        }
        Ok(found.map(|run| run.about.run.to_string()))
    }
}

fn told(found: &Comparison, version: &str) -> String {
    let row = |row: &Row| format!("  {}: {}: {}\n", row.word(), row.cell, row.reason());
    let rows: String = found.rows.iter().map(row).collect();
    let failure = |failure: &Failure| format!("  less reliable: {}: {}\n", failure.cell, failure.text);
    let failures: String = found.failures.iter().map(failure).collect();
    format!("{version}:\n{rows}{failures}")
}
