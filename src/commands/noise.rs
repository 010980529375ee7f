//! `matrix noise`: the same engine in two arms, to learn what this machine's figures vary by though nothing changes.

use std::collections::BTreeMap;

use anyhow::Context;

use crate::analysis::compare::decision::{KnownNoise, USUAL_BOUND};
use crate::analysis::compare::power::{self, Demand};
use crate::analysis::compare::{machines, stored, t_test, verdict};
use crate::base::clock;
use crate::base::ids::CellKey;
use crate::cli::regression::NoiseArgs;
use crate::commands::compare::{gates, of_run};
use crate::commands::error::{CommandError, Outcome};
use crate::commands::output::{Colors, complain, print};
use crate::commands::rounds::{Further, Wanted};
use crate::commands::run::measure;
use crate::exit::Exit;
use crate::report::{self, Format, comparison};
use crate::results::record::cell_stats::{Noise, Side, Varies};
use crate::results::store::{self, Run};

/// Starts on either side of the comparison that the smallest visible change is told for.
const SIDES: usize = 5;
/// Starts of a round of both arms, A B B A.
const ROUND: u32 = 4;

/// What the gating figures of each cell vary by.
type Found = BTreeMap<CellKey, BTreeMap<String, Varies>>;

/// Measures noise and keeps it. Until when the matrix itself would start again is not looked at.
///
/// # Errors
/// As `matrix run`.
pub fn execute(args: &NoiseArgs, colors: Colors) -> Outcome {
    let gates = gates(&args.gate)?;
    let of_arm = args.starts.max(args.target.map_or(0, |_| SIDES as u32));
    if of_arm > args.starts {
        complain(&format!(
            "note: `--starts {}` is raised to {of_arm}: with fewer, `--target` ends too often by chance\n",
            args.starts
        ));
    }
    let starts = 2 * of_arm;
    if args.target.is_some() && starts > args.most {
        return Err(CommandError::usage(format!(
            "error: `--starts {of_arm}` makes {starts} starts of each launch, both arms together, and `--most {}` allows fewer\n  = help: raise `--most`, or begin with fewer `--starts` ({SIDES} at least)\n",
            args.most
        )));
    }
    let look = |run: &Run| {
        let side = of_run(run, &gates);
        let found = varies(&side);
        (side, found)
    };
    let further = |run: &Run| match (
        is_reached(args, &look(run).1),
        args.most.saturating_sub(started(run)),
    ) {
        (true, _) | (false, 0) => Wanted::new(),
        // A whole round of A B B A, for all alike.
        (false, left) => {
            let cells = run.plan.cells.iter();
            cells.map(|cell| (cell.key.clone(), left.min(ROUND))).collect()
        }
    };
    let measured = measure(
        &args.run,
        colors,
        &|plan| plan.measure_noise(starts),
        &Further::While(&further),
        USUAL_BOUND,
    )?;
    if measured.exit == Exit::Interrupted {
        return Ok(Exit::Interrupted);
    }
    let run = Run::read(&measured.folder).context("the run cannot be read")?;
    let (side, found) = look(&run);
    match (args.target, widest(&found)) {
        (_, None) => complain("note: no cell has three starts that count: nothing is told of its noise\n"),
        (None, Some(_)) => {}
        (Some(target), Some((cell, figure, widest))) => {
            let what = match is_reached(args, &found) {
                true => "the target is reached",
                false => "`--most` is spent and the target not reached",
            };
            complain(&format!(
                "note: {what}: {} starts of each launch show changes from {:.2} % on in every figure (with the upper bound of its noise at 80 %), and {:.2} % is asked for; the widest is {figure} of {cell}\n",
                started(&run),
                widest * 100.0,
                target * 100.0
            ));
        }
    }
    let cache = args.run.places.cache();
    let kept =
        store::nightly::noise(&cache).filter(|noise| machines::shares_noise(&noise.machine, &side.machine));
    let mut noise = Noise {
        machine: side.machine.clone(),
        cells: kept.map(|noise| noise.cells).unwrap_or_default(),
    };
    for (cell, figures) in &found {
        noise
            .cells
            .entry(cell.clone())
            .or_default()
            .extend(figures.clone());
    }
    let path = store::nightly::keep_noise(&cache, &noise).context("the noise cannot be kept")?;
    if args.run.json {
        let text = serde_json::to_string(&found).context("it is JSON")?;
        print(&format!("{text}\n"));
    } else {
        let format = Format::Terminal {
            width: super::terminal::width(),
            colors: colors.stdout,
        };
        let rows = found.iter().flat_map(|(cell, figures)| {
            figures
                .iter()
                .map(move |(figure, varies)| (cell, figure.as_str(), varies, visible(varies)))
        });
        print(&report::draw(&comparison::noise(rows), format));
        print(&format!("kept in {}\n", path.display()));
    }
    Ok(measured.exit)
}

/// Whether every figure shows so small a change as is asked for, though its noise may be as large as its upper bound.
fn is_reached(args: &NoiseArgs, found: &Found) -> bool {
    match (args.target, widest(found)) {
        (Some(target), Some((.., widest))) => widest <= target,
        _ => true,
    }
}

/// How often each launch is started.
fn started(run: &Run) -> u32 {
    run.plan.starts.iter().map(|start| start.start).max().unwrap_or(0)
}

/// The smallest change that five starts against five show, with the upper confidence bound of the noise: a lucky estimate ends nothing early.
fn visible(varies: &Varies) -> f64 {
    let sigma = stored::bound(varies).map_or(f64::INFINITY, |bound| bound.sigma);
    let demand = Demand {
        alpha: 0.025,
        power: 0.9,
    };
    power::detectable(sigma, SIDES, SIDES, demand).exp_m1()
}

/// The figure with the largest of the smallest changes that can be seen; `None` where there is none.
fn widest(found: &Found) -> Option<(&CellKey, &str, f64)> {
    let figures = found.iter().flat_map(|(cell, figures)| {
        let of_cell = figures.iter();
        of_cell.map(move |(figure, varies)| (cell, figure.as_str(), visible(varies)))
    });
    figures.max_by(|(.., one), (.., two)| one.total_cmp(two))
}

/// What the gating figures of each cell vary by. Starts belong to the arms A B B A by their number.
fn varies(side: &Side) -> Found {
    let of_cell = |cell: &crate::results::record::cell_stats::SideCell| -> BTreeMap<String, Varies> {
        cell.gates
            .iter()
            .filter_map(|gate| {
                let repeats: Vec<Vec<f64>> = cell
                    .figures
                    .get(gate)?
                    .iter()
                    .map(|repeats| verdict::logs(repeats))
                    .collect::<Option<_>>()?;
                let means: Vec<f64> = repeats.iter().map(|repeats| t_test::mean(repeats)).collect();
                if means.len() < 3 {
                    return None;
                }
                let (a, b): (Vec<_>, Vec<_>) = means
                    .iter()
                    .enumerate()
                    .partition(|(at, _)| matches!(at % 4, 0 | 3));
                let arm =
                    |arm: Vec<(usize, &f64)>| arm.into_iter().map(|(_, log)| *log).collect::<Vec<f64>>();
                let difference = t_test::difference(&arm(a), &arm(b))?;
                let components = power::components(&repeats);
                let variance = t_test::variance(&means);
                let bound = KnownNoise::of_starts(&means)?;
                let varies = Varies {
                    at: clock::timestamp(),
                    starts: u32::try_from(means.len()).ok()?,
                    per_start: repeats
                        .iter()
                        .map(Vec::len)
                        .max()
                        .and_then(|most| u32::try_from(most).ok())?,
                    start_share: variance.sqrt(),
                    bound_share: Some(bound.sigma),
                    df: Some(bound.df),
                    between_share: components.between.unwrap_or(variance).sqrt(),
                    within_share: components.within.map(f64::sqrt),
                    difference_share: verdict::relative(difference.value),
                };
                Some((gate.clone(), varies))
            })
            .collect()
    };
    side.cells
        .iter()
        .map(|(key, cell)| (key.clone(), of_cell(cell)))
        .filter(|(_, figures)| !figures.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use rand_mt::Mt64;

    use super::*;

    /// Normal, by Box and Muller.
    fn normal(dice: &mut Mt64) -> f64 {
        let mut even = || ((dice.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        (-2.0 * even().ln()).sqrt() * (std::f64::consts::TAU * even()).cos()
    }

    /// What is kept of starts.
    fn varies(logs: &[f64]) -> Varies {
        let bound = KnownNoise::of_starts(logs).expect("there are several");
        Varies {
            at: String::new(),
            starts: u32::try_from(logs.len()).expect("they are few"),
            per_start: 1,
            start_share: t_test::variance(logs).sqrt(),
            bound_share: Some(bound.sigma),
            df: Some(bound.df),
            between_share: 0.0,
            within_share: None,
            difference_share: 0.0,
        }
    }

    #[test]
    fn a_target_that_the_noise_does_not_allow_is_seldom_reached_by_luck() {
        // Five against five show 2.37 % at a noise of 1 %, and 2.85 % at one of 1.2 %.
        for (sigma, target, most) in [(0.01, 0.02, 0.15), (0.012, 0.02, 0.05), (0.005, 0.02, 1.0)] {
            let (mut reached, mut kept, runs) = (0, 0.0, 2000);
            let mut dice = Mt64::new(20_261_122);
            for _ in 0..runs {
                let logs: Vec<f64> = (0..20).map(|_| sigma * normal(&mut dice)).collect();
                // From ten starts on, a round of four more at a time: whether any look ends it.
                let mut looks = [10, 14, 18, 20].into_iter().map(|starts| varies(&logs[..starts]));
                if let Some(varies) = looks.find(|varies| visible(varies) <= target) {
                    reached += 1;
                    kept += varies.bound_share.expect("it is there") / sigma;
                }
            }
            let share = f64::from(reached) / f64::from(runs);
            println!(
                "sigma {sigma}, target {target}: reached in {:.1} %, and then {:.2} of the noise is kept",
                100.0 * share,
                kept / f64::from(reached)
            );
            assert!(share <= most, "sigma {sigma}, target {target}: {share}");
            // A target that the noise allows is reached.
            assert!(
                most < 1.0 || share > 0.95,
                "sigma {sigma}, target {target}: {share}"
            );
        }
    }
}
