//! `matrix compare`: one run against another, cell by cell.

use std::path::Path;

use crate::analysis::compare::decision::{self, Gap};
use crate::analysis::compare::pairwise::{self, Comparison, Terms};
use crate::analysis::compare::verdict::Verdict;
use crate::analysis::compare::{arms, from_run, machines, question, stored};
use crate::analysis::metrics::{Flow, Metric};
use crate::base::ids::CellKey;
use crate::cli::regression::{Arms, CompareArgs, CompareFormat};
use crate::commands::error::{CommandError, Outcome};
use crate::commands::output::{Colors, complain, print};
use crate::exit::Exit;
use crate::report::{self, Format, Table, comparison};
use crate::results::record::cell_stats::{Cause, Noise, Side};
use crate::results::store::{self, Run, StoreError};

/// Compares two sides.
///
/// # Errors
/// A side that cannot be read, a figure that does not exist.
pub fn execute(args: &CompareArgs, colors: Colors) -> Outcome {
    let gates = gates(&args.judging.gate)?;
    let Some(candidate) = &args.candidate else {
        return alternated(args, &gates, colors);
    };
    let baseline = named(&args.results, &args.baseline, &gates)?;
    let mut candidate = named(&args.results, candidate, &gates)?;
    if !gates.is_empty() {
        // Of a baseline's file, too, the figures that are asked for are read, not those that gated it.
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
    // A copy under another name is the same measurements too.
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
        // What neither side measured is missing in no comparison.
        Some((Cause::NotMeasured, _)) => comparison
            .rows
            .iter()
            .any(|row| row.cell == *key && !row.samples[0].logs.is_empty()),
        refused => refused.is_some(),
    });
    Ok(ending(&comparison, refused))
}

/// Compares two arms of one run.
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

/// Two arms of a run held against each other, round by round where they alternated.
///
/// # Errors
/// No cells of the two arms belong together.
pub(super) fn of_arms(
    run: &Run,
    gates: &[Metric],
    axis: &str,
    values: [&str; 2],
    terms: &Terms<'_>,
) -> Result<Comparison, CommandError> {
    let side = of_run(run, gates);
    let found = arms::pairs(&side.cells, axis, values).map_err(|why| {
        CommandError::usage(format!("error: `{axis}={},{}`: {why}\n", values[0], values[1]))
    })?;
    if found.is_empty() {
        let mut known: Vec<&str> = Vec::new();
        for value in side.cells.values().filter_map(|cell| cell.axes.get(axis)) {
            if !known.contains(&value.as_str()) {
                known.push(value);
            }
        }
        return Err(CommandError::usage(format!(
            "error: `{}` has no two cells that differ in `{axis}={},{}` alone\n  = help: its cells have {axis} {}\n",
            side.run,
            values[0],
            values[1],
            if known.is_empty() {
                "–".to_owned()
            } else {
                known.join(", ")
            }
        )));
    }
    let arm = |value: &str| {
        let mut arm = side.clone();
        arm.cells
            .retain(|_, cell| cell.axes.get(axis).is_some_and(|own| own == value));
        arm
    };
    let (first, second) = (arm(values[0]), arm(values[1]));
    let of = |side: &'_ Side, key: &CellKey| side.cells.get_key_value(key).map(|(key, _)| key.clone());
    let pairs: Vec<(CellKey, CellKey)> = found
        .iter()
        .filter_map(|(one, two)| Some((of(&first, one)?, of(&second, two)?)))
        .collect();
    let partner = |key: &CellKey| pairs.iter().find(|(_, two)| two == key).map(|(one, _)| one);
    let matched = pairs.iter().filter_map(|(one, two)| {
        let (key, two) = second.cells.get_key_value(two)?;
        Some((key, first.cells.get(one)?, two))
    });
    let ask: pairwise::Ask<'_> = &|key, [one, two], metric, noise| match partner(key) {
        Some(baseline) => {
            let arms = arms::Arms {
                baseline: (baseline, one),
                candidate: (key, two),
            };
            arms::question(&run.plan, &run.summaries, arms, metric, noise)
        }
        None => question::of_cells(one, two, metric, noise),
    };
    Ok(pairwise::compare_pairs(
        &first,
        &second,
        matched.collect(),
        terms,
        ask,
    ))
}

/// Prints a comparison.
fn show(
    args: &CompareArgs,
    comparison: &Comparison,
    names: [&str; 2],
    colors: Colors,
) -> Result<(), CommandError> {
    if args.format == CompareFormat::Json {
        let text =
            serde_json::to_string_pretty(&comparison::json(comparison)).map_err(anyhow::Error::from)?;
        print(&format!("{text}\n"));
    } else {
        print(&format!("{}\n", comparison::headline(comparison)));
        draw(&comparison::tables(comparison, names), args.format, colors);
    }
    Ok(())
}

/// How a comparison ends.
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

/// Prints tables, an empty line between them.
pub(super) fn draw(tables: &[Table], format: CompareFormat, colors: Colors) {
    let format = match format {
        CompareFormat::Terminal | CompareFormat::Json => Format::Terminal {
            width: super::terminal::width(),
            colors: colors.stdout,
        },
        CompareFormat::Markdown => Format::Markdown,
    };
    let texts: Vec<String> = tables.iter().map(|table| report::draw(table, format)).collect();
    print(&texts.join("\n"));
}

/// The figure of that name, ours or that of bench_serving and `vllm bench serve`.
fn metric_named(name: &str) -> Option<Metric> {
    let theirs = || match name {
        "request_throughput" => Some(Metric::Throughput(Flow::Requests)),
        "input_throughput" => Some(Metric::Throughput(Flow::Input)),
        "output_throughput" => Some(Metric::Throughput(Flow::Output)),
        "total_throughput" | "total_token_throughput" => Some(Metric::Throughput(Flow::Total)),
        "request_goodput" => Some(Metric::Goodput),
        _ => {
            let time = name.replace("_e2el_ms", "_e2e_ms");
            Metric::of_name(&time.replace("_e2e_latency_ms", "_e2e_ms"))
        }
    };
    Metric::of_name(name).or_else(theirs)
}

/// The figures of these names.
///
/// # Errors
/// One of them does not exist, or has no better end.
pub(super) fn gates(names: &[String]) -> Result<Vec<Metric>, CommandError> {
    let gate = |name: &String| {
        let wrong = |why: &str, help: String| {
            CommandError::usage(format!("error: `--gate {name}`: {why}\n  = help: {help}\n"))
        };
        let metric = metric_named(name).ok_or_else(|| {
            let of_time = format!("median_{}_ms", name.to_lowercase().replace("e2el", "e2e"));
            let nearest = match Metric::of_name(&of_time) {
                Some(_) => of_time,
                None => Metric::all()
                    .map(|metric| metric.name())
                    .min_by_key(|known| strsim::damerau_levenshtein(known, name))
                    .unwrap_or_default(),
            };
            wrong("there is no such figure", format!("the nearest is `{nearest}`"))
        })?;
        match metric.better() {
            Some(_) => Ok(metric),
            None => Err(wrong(
                "more of it is neither better nor worse",
                "choose a throughput or a time, such as `output_throughput_tok_s` or `median_e2e_ms`"
                    .to_owned(),
            )),
        }
    };
    let mut gates = Vec::new();
    for name in names {
        let metric = gate(name)?;
        // A figure that is named twice is one test.
        if !gates.contains(&metric) {
            gates.push(metric);
        }
    }
    Ok(gates)
}

/// The side of that name: a baseline's file, a run's folder or name, a matrix's newest run.
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

/// A run as a side.
pub(super) fn of_run(run: &Run, gates: &[Metric]) -> Side {
    from_run::of_run(&run.about, &run.plan, &run.machine, &run.summaries, gates)
}

/// The noise that is kept with the machine that measured `side`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_tools_are_figures_of_ours() {
        for (theirs, ours) in [
            ("request_throughput", "request_throughput_req_s"),
            ("output_throughput", "output_throughput_tok_s"),
            ("total_token_throughput", "total_throughput_tok_s"),
            ("median_e2el_ms", "median_e2e_ms"),
            ("p99_e2e_latency_ms", "p99_e2e_ms"),
            ("median_tpot_ms", "median_tpot_ms"),
        ] {
            let metric = metric_named(theirs).unwrap_or_else(|| panic!("{theirs}"));
            assert_eq!(metric.name(), ours);
        }
        assert_eq!(metric_named("tpot"), None);
    }

    #[test]
    fn a_time_without_a_statistic_is_answered_with_its_median() {
        for (name, near) in [
            ("tpot", "median_tpot_ms"),
            ("TTFT", "median_ttft_ms"),
            ("e2el", "median_e2e_ms"),
            ("median_tpot", "median_tpot_ms"),
        ] {
            let refusal = gates(&[name.to_owned()]).unwrap_err();
            let said = format!("{refusal:?}");
            assert!(said.contains(&format!("the nearest is `{near}`")), "{said}");
        }
    }
}
