//! `matrix report`: writes the report of finished runs in every format. A run writes the same documents at
//! its end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::analysis::compare::extra_starts;
use crate::analysis::compare::machine_facts::facts_of_run;
use crate::analysis::compare::machines;
use crate::analysis::compare::precision::CellPrecision;
use crate::analysis::metrics;
use crate::base::ids::CellKey;
use crate::cli::command_line;
use crate::cli::report::ReportArgs;
use crate::commands::error::{CommandError, Outcome};
use crate::commands::files::free_name;
use crate::commands::history;
use crate::commands::output::{Colors, eprint, print};
use crate::commands::prices::{price_list, price_list_or_shipped};
use crate::commands::terminal;
use crate::commands::traces;
use crate::config::prices::{PriceList, Prices};
use crate::config::select::Selector;
use crate::config::yaml::nearest_name;
use crate::exit::Exit;
use crate::plan::{Measurement, Plan};
use crate::report::document::{Document, MeasurementTimeSeries, ReportedRun};
use crate::report::format::{self, FORMATS, ReportFormat};
use crate::report::html;
use crate::report::terminal::PageLayout;
use crate::report::{self, ReportCell};
use crate::results::record::cell::MeasurementSummary;
use crate::results::record::cell_stats::Noise;
use crate::results::store::{self, Run, Store, atomic};

/// Creates the report of runs.
pub(crate) fn execute(args: &ReportArgs, colors: Colors) -> Outcome {
    let read = |name: &String| {
        let run = store::nightly::find_run(&args.results, &history::matrix_name(name, colors)?);
        run.map_err(|error| CommandError::usage(format!("error: {error}\n")))
    };
    let mut runs: Vec<Run> = args.runs.iter().map(read).collect::<Result<_, _>>()?;
    if runs.is_empty() {
        runs.push(newest_run(&args.results)?);
    }
    if let Some(name) = &args.reference {
        check_reference(name, &runs)?;
    }
    if args.format.as_deref() == Some(traces::FORMAT) {
        let Some(out) = &args.out else {
            return Err(CommandError::usage(
                "error: `--format perfetto` writes files and needs a folder for them\n  = help: set the folder with `--out`\n",
            ));
        };
        return traces::write(&runs, args.only.as_ref(), out);
    }
    if args.only.is_some() {
        return Err(CommandError::usage(
            "error: `--only` has an effect only with `--format perfetto`\n  = help: leave it out, or add `--format perfetto --out DIR`\n",
        ));
    }
    let cache = args.places.cache();
    let list = price_list(args.prices.as_deref(), colors)?;
    let load = |run| ReportInput::load(run, &cache, &list);
    let read: Vec<ReportInput> = runs.iter().map(load).collect();
    let document = document(&read, args.reference.as_deref(), args.floor);
    let format = args.format.as_deref().map(format::report);
    if format.is_some_and(|format| !format.shows_warnings) {
        print_warnings(&read);
    }
    let Some(out) = &args.out else {
        let format = format.unwrap_or_else(|| format::report("terminal"));
        print(&(format.draw)(&document, terminal::layout(colors)));
        return Ok(Exit::Done);
    };
    fs::create_dir_all(out)
        .with_context(|| format!("cannot create the folder {}", out.display()))
        .map_err(CommandError::unwritable)?;
    let formats = format.map_or_else(folder_formats, |format| vec![format]);
    for (name, text) in files(&document, &read, formats) {
        let path = out.join(name);
        atomic::write(&path, text.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))
            .map_err(CommandError::unwritable)?;
        print(&format!("wrote {}\n", path.display()));
    }
    Ok(Exit::Done)
}

/// The error that a folder has no run.
pub(super) fn no_run_error(results: &Path) -> CommandError {
    CommandError::usage(format!(
        "error: there is no run in {}\n  = help: give the folder of the runs with `--results`, or start a run with `matrix run`\n",
        results.display()
    ))
}

/// The newest run of all matrices, which is named on stderr.
fn newest_run(results: &Path) -> Result<Run, CommandError> {
    let failed = |error: store::StoreError| CommandError::usage(format!("error: {error}\n"));
    let runs = store::list_runs(results).map_err(failed)?;
    let Some(newest) = runs.first() else {
        return Err(no_run_error(results));
    };
    eprint(&format!("note: the newest run, {}\n", newest.info.run.as_str()));
    Run::read(&newest.folder).map_err(failed)
}

/// The formats that are written into a folder by default.
fn folder_formats() -> Vec<&'static ReportFormat> {
    let formats = FORMATS.iter().filter_map(|format| format.report.as_ref());
    formats.filter(|format| format.is_in_run_folder).collect()
}

/// Names and contents of a report's files.
fn files(
    document: &Document,
    inputs: &[ReportInput<'_>],
    formats: Vec<&'static ReportFormat>,
) -> impl Iterator<Item = (String, String)> {
    formats.into_iter().flat_map(|format| {
        let mut files = vec![(format.file.to_owned(), (format.draw)(document, PageLayout::FILE))];
        if format.has_engine_reports {
            files.extend(engine_reports(inputs));
        }
        files
    })
}

/// Fails if the reference is in no run; suggests the nearest name.
fn check_reference(name: &str, runs: &[Run]) -> Result<(), CommandError> {
    let engines: BTreeSet<&str> = runs
        .iter()
        .flat_map(|run| &run.plan.launches)
        .map(|launch| launch.engine.name.as_str())
        .collect();
    if engines.contains(name) {
        return Ok(());
    }
    let help = match nearest_name(name, engines.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!(
            "the engines are {}",
            engines.into_iter().collect::<Vec<_>>().join(", ")
        ),
    };
    Err(CommandError::usage(format!(
        "error: no run has an engine called `{name}`\n  = help: {help}\n"
    )))
}

/// Writes the documents of a run beside its records. Returns the run, and tables for the terminal with the
/// cells that match `only`. `cache` holds the noise of this host; `bound` is the smallest change that counts.
pub(crate) fn write_documents(
    store: &Store,
    only: Option<&Selector>,
    cache: &Path,
    bound: f64,
    colors: Colors,
) -> anyhow::Result<(Run, String)> {
    let run = Run::read(store.folder())?;
    write_results(&run, store, |_| true)?;
    let list = price_list_or_shipped(colors);
    let inputs = [ReportInput::load(&run, cache, &list)];
    let document = document(&inputs, None, bound);
    for (name, text) in files(&document, &inputs, folder_formats()) {
        store.write_report(&name, &text)?;
    }
    let tables = |document: &Document| format::terminal::report(document, terminal::layout(colors));
    let Some(only) = only else {
        let tables = tables(&document);
        return Ok((run, tables));
    };
    let mut part = run.clone();
    part.plan.retain_cells(|cell| only.matches(&cell.axes));
    let selected: BTreeSet<CellKey> = part.plan.cells.iter().map(|cell| cell.key.clone()).collect();
    part.summaries.retain(|summary| selected.contains(&summary.cell));
    let left_out = run.plan.cells.len() - selected.len();
    let command = command_line::report_command(store.folder());
    let note = match left_out {
        0 => String::new(),
        1 => format!("1 cell left out by `--only`; `{command}` shows it\n"),
        _ => format!("{left_out} cells left out by `--only`; `{command}` shows them\n"),
    };
    let tables = tables(&self::document(
        &[ReportInput::load(&part, cache, &list)],
        None,
        bound,
    ));
    Ok((run, format!("{tables}{note}")))
}

/// The page of a run that belongs to a site. `index` is the address of the site's index. What cannot be read of the run is
/// named on stderr.
pub(super) fn page_in_site(run: &Run, cache: &Path, list: &PriceList, bound: f64, index: &str) -> String {
    let inputs = [ReportInput::load(run, cache, list)];
    print_warnings(&inputs);
    html::draw_in_site(&document(&inputs, None, bound), index)
}

fn print_warnings(inputs: &[ReportInput<'_>]) {
    for warning in inputs.iter().flat_map(|input| &input.warnings) {
        eprint(&format!("warning: {}\n", report::single_line(warning)));
    }
}

/// Writes the reports of a finished run again, because something beside its measurements changed.
pub(crate) fn rewrite_reports(folder: &Path, cache: &Path, bound: f64, colors: Colors) -> anyhow::Result<()> {
    let run = Run::read(folder)?;
    let list = price_list_or_shipped(colors);
    let inputs = [ReportInput::load(&run, cache, &list)];
    let document = document(&inputs, None, bound);
    for (name, text) in files(&document, &inputs, folder_formats()) {
        let path = folder.join(name);
        atomic::write(&path, text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Rewrites `results.jsonl`: one line with bench_serving's keys for each finished measurement that is
/// `wanted`.
pub(crate) fn write_results(
    run: &Run,
    store: &Store,
    is_selected: impl Fn(&Measurement) -> bool,
) -> anyhow::Result<()> {
    let lines: Vec<serde_json::Value> = run
        .summaries
        .iter()
        .filter(|summary| is_selected(&summary.measurement()))
        .map(|summary| results_jsonl_line(&run.plan, summary))
        .collect::<anyhow::Result<_>>()?;
    store.write_results(&lines)?;
    Ok(())
}

/// Appends the line of a measurement that has just ended. The cost does not depend on earlier measurements.
pub(crate) fn append_result(plan: &Plan, store: &Store, measurement: &Measurement) -> anyhow::Result<()> {
    let mut summary = store.summary(measurement)?;
    // A name on disk may have been redacted.
    summary.cell = measurement.cell.clone();
    store.append_result(&results_jsonl_line(plan, &summary)?)?;
    Ok(())
}

fn results_jsonl_line(plan: &Plan, summary: &MeasurementSummary) -> anyhow::Result<serde_json::Value> {
    let cell = plan.cell(&summary.cell);
    let line = report::bench_serving::jsonl::line(plan.launch(&cell.launch), cell, summary);
    serde_json::from_str(&line).context("a line of `results.jsonl` is not valid JSON")
}

/// A run with its histograms and precision.
struct ReportInput<'a> {
    run: &'a Run,
    traces: BTreeMap<Measurement, MeasurementTimeSeries>,
    warnings: Vec<String>,
    precisions: BTreeMap<CellKey, CellPrecision>,
    noise: Option<Noise>,
    prices: Prices,
}

impl<'a> ReportInput<'a> {
    fn load(run: &'a Run, cache: &Path, list: &PriceList) -> Self {
        let mut doubts = run.warnings.clone();
        let mut traces = BTreeMap::new();
        for summary in &run.summaries {
            let measurement = Measurement {
                cell: summary.cell.clone(),
                start: summary.start,
                repeat: summary.repeat,
            };
            let seconds = match run.read_seconds(&measurement) {
                Ok(Some(seconds)) => seconds,
                // An older run has no histograms. Without requests nothing is known.
                Ok(None) => run
                    .read_requests(&measurement)
                    .map(|requests| metrics::histograms_per_second(&requests))
                    .unwrap_or_default(),
                Err(error) => {
                    doubts.push(error.to_string());
                    Vec::new()
                }
            };
            let samples = run.read_telemetry(&measurement).unwrap_or_else(|error| {
                doubts.push(error.to_string());
                None
            });
            let trace = MeasurementTimeSeries {
                seconds,
                samples: samples.unwrap_or_default(),
            };
            traces.insert(measurement, trace);
        }
        Self {
            run,
            traces,
            warnings: doubts,
            precisions: extra_starts::run_precision(
                &run.info,
                &run.plan,
                &run.machine,
                &run.summaries,
                &run.journal,
            ),
            noise: store::nightly::read_noise(cache).filter(|noise| {
                machines::are_noise_compatible(&noise.machine, &facts_of_run(&run.machine, &run.summaries))
            }),
            prices: Prices {
                matrix: run.plan.price,
                list: list.clone(),
            },
        }
    }
}

fn document(inputs: &[ReportInput<'_>], reference: Option<&str>, bound: f64) -> Document {
    let sources: Vec<ReportedRun<'_>> = inputs
        .iter()
        .map(|inputs| ReportedRun {
            run_info: &inputs.run.info,
            plan: &inputs.run.plan,
            machine: &inputs.run.machine,
            summaries: &inputs.run.summaries,
            stored_answers: inputs.run.stored_answers.as_ref(),
            traces: &inputs.traces,
            warnings: &inputs.warnings,
            precisions: &inputs.precisions,
            tune: inputs.run.tune.as_ref(),
            noise: inputs.noise.as_ref(),
            prices: &inputs.prices,
        })
        .collect();
    Document::from_runs(&sources, reference, bound)
}

/// Longest part of a file name that comes from an engine's name.
const MAX_PART_BYTES: usize = 100;

/// One Markdown document for each engine of each run.
fn engine_reports(inputs: &[ReportInput<'_>]) -> Vec<(String, String)> {
    let mut documents = Vec::new();
    for ReportInput { run, .. } in inputs {
        let report_cells = ReportCell::from_plan(&run.plan, &run.summaries);
        for (name, of_engine) in report::engine_report::group_by_engine(&report_cells) {
            let name = match inputs.len() {
                1 => name,
                _ => format!("{name}-{}", run.info.run),
            };
            let text = report::engine_report::engine_report(&of_engine, Some(&run.machine));
            documents.push((name, text));
        }
    }
    let names: Vec<String> = documents.iter().map(|(name, _)| name.clone()).collect();
    // Two hosts may have runs of one name.
    let mut taken = BTreeSet::new();
    let mut file = |name: &str| format!("engine-{}.md", free_name(&file_part(name, &names), &mut taken));
    documents
        .into_iter()
        .map(|(name, text)| (file(&name), text))
        .collect()
}

/// An engine's name as a part of a file name, unique among `names`.
fn file_part(name: &str, names: &[String]) -> String {
    let is_safe = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_');
    let safe = |name: &str| -> String {
        name.chars()
            .map(|letter| if is_safe(letter) { letter } else { '-' })
            .collect()
    };
    let part = safe(name);
    let twins = names
        .iter()
        .filter(|other| safe(other).eq_ignore_ascii_case(&part));
    match part.len() <= MAX_PART_BYTES && twins.count() < 2 {
        true => part,
        false => store::file_name(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::secrets::Redactor;
    use crate::results::store::testing::{create_and_begin, plan, write_all_cells};

    #[test]
    fn runs_of_one_name_in_two_folders_have_documents_of_their_own() {
        let roots = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let runs = roots.each_ref().map(|root| {
            let store = create_and_begin(root.path(), "small-1", &plan(), Redactor::default());
            write_all_cells(&store, &plan());
            Run::read(store.folder()).unwrap()
        });
        let list = PriceList::default();
        let inputs = runs
            .each_ref()
            .map(|run| ReportInput::load(run, roots[0].path(), &list));
        let documents = engine_reports(&inputs);
        let names: BTreeSet<&str> = documents.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((documents.len(), names.len()), (2, 2), "{names:?}");
    }
}
