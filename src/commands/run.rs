//! `matrix run`: every engine started, every cell measured, every table written.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;

use crate::analysis::compare::decision::USUAL_BOUND;
use crate::base::ids::{CellKey, RunId};
use crate::base::secrets::{self, Redactor};
use crate::base::text::{causes, counted, minutes};
use crate::base::threads;
use crate::cli::{self, RunArgs};
use crate::commands::environment::{environment, pull_policy};
use crate::commands::error::{CommandError, Outcome};
use crate::commands::log;
use crate::commands::matrix_file::{load, mistakes_error, print_notes, select};
use crate::commands::output::{Colors, complain, print, unless_finished};
use crate::commands::report;
use crate::commands::rounds::{self, Further, Plans, Round, remaining};
use crate::config::gpus::GpuList;
use crate::engine;
use crate::exit::Exit;
use crate::plan::arms::noise_name;
use crate::plan::{Launch, Measurement, Plan, Start};
use crate::progress::Progress;
use crate::results::record::cell::{Ending, Summary};
use crate::results::record::client::Calibration;
use crate::results::record::event::Event;
use crate::results::record::machine::Machine;
use crate::results::store::{self, Beginning, Store, StoreError};
use crate::runner::calibrate::Wanted;
use crate::runner::check_flags;
use crate::runner::context::{Events, Host, Job, Tally};
use crate::runner::gpu_lock::Claim;
use crate::runner::gpu_selection::{self, Wish};
use crate::runner::load_matrix::LoadedMatrix;
use crate::runner::shutdown::{Signals, Stop};
use crate::runner::{self, preflight};
use crate::telemetry::gpu::{Gpus, Places};
use crate::telemetry::machine;

/// How long something that an earlier run left may take to end by itself.
const GRACE: Duration = Duration::from_secs(10);

/// How many cells are named that an edit makes obsolete.
const SHOWN: usize = 20;

/// Tokens of each stream of the calibration before the first cell.
const QUICK_TOKENS: u32 = 16;

/// Runs a matrix.
///
/// # Errors
/// Mistakes in the files, a failed preflight, a disk that refuses.
pub fn execute(args: &RunArgs, colors: Colors) -> Outcome {
    let measured = measure(args, colors, &|_| (), &Further::AsAsked, USUAL_BOUND)?;
    if !args.json {
        print(&measured.tables);
        print(&format!("{}\n", measured.count.words()));
        print(&format!("results: {}\n", measured.folder.display()));
        print(&format!(
            "page: {}\n",
            measured.folder.join("report.html").display()
        ));
        if measured.exit == Exit::Interrupted {
            print(&format!(
                "go on with: {}\n",
                cli::resume_command(measured.run.as_str())
            ));
        } else if let Some(what) = measured.count.worthless() {
            let resume = cli::resume_command(measured.run.as_str());
            let failed = if args.failed { "" } else { " --failed" };
            print(&format!("measure {what} again: {resume}{failed}\n"));
        }
    }
    Ok(measured.exit)
}

/// How the measurements of a run ended, those of earlier invocations included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    done: usize,
    invalid: usize,
    failed: usize,
    interrupted: usize,
    missing: usize,
}

impl Count {
    /// Of the summaries of a plan with so many measurements.
    fn of<'a>(summaries: impl Iterator<Item = &'a Summary>, measurements: usize) -> Self {
        let mut count = Self {
            missing: measurements,
            ..Self::default()
        };
        for summary in summaries {
            count.missing = count.missing.saturating_sub(1);
            match &summary.ending {
                Ending::Failed { .. } => count.failed += 1,
                Ending::Done if summary.is_invalid() => count.invalid += 1,
                Ending::Done => count.done += 1,
                Ending::Interrupted => count.interrupted += 1,
                Ending::Skipped { .. } => {}
            }
        }
        count
    }

    /// What may be measured again, in words.
    const fn worthless(self) -> Option<&'static str> {
        match (self.failed > 0, self.invalid > 0) {
            (true, true) => Some("what failed or is invalid"),
            (true, false) => Some("what failed"),
            (false, true) => Some("what is invalid"),
            (false, false) => None,
        }
    }

    fn words(self) -> String {
        let mut words = format!("{} done", self.done);
        let others = [
            (self.invalid, "invalid"),
            (self.failed, "failed"),
            (self.interrupted, "interrupted"),
            (self.missing, "not measured"),
        ];
        for (count, word) in others {
            if count > 0 {
                words.push_str(&format!(", {count} {word}"));
            }
        }
        words
    }
}

/// What measuring came to.
pub(super) struct Measured {
    /// The run.
    pub run: RunId,
    /// Its folder.
    pub folder: PathBuf,
    /// Its tables, for the terminal.
    pub tables: String,
    /// How its measurements ended.
    pub count: Count,
    /// How `matrix run` would end.
    pub exit: Exit,
}

/// Measures a matrix, whose plan `change` may change before anything is chosen of it, and what is wanted beyond it. A change smaller than
/// `bound` does not count in its tables.
///
/// # Errors
/// As [`execute`].
pub(super) fn measure(
    args: &RunArgs,
    colors: Colors,
    change: &dyn Fn(&mut Plan),
    further: &Further<'_>,
    bound: f64,
) -> Result<Measured, CommandError> {
    let mut read = load(&args.matrix, colors)?;
    // Who goes on with a run was told when it began.
    if args.resume.is_none() {
        print_notes(&read);
    }
    change(&mut read.plan);
    let resumed = resumed(args, &read.plan.matrix)?;
    let earlier = resumed
        .as_ref()
        .and_then(|run| rounds::earlier(&args.results.join(run.as_str())));
    further.prepare(&mut read.plan, earlier.as_ref());
    let secrets = secrets(&read.plan);
    for (name, _) in secrets.iter().filter(|(_, value)| !secrets::is_hidden(value)) {
        complain(&format!(
            "note: the value of `${{{name}}}` is too short to be hidden in what is written\n"
        ));
    }
    let redactor = redactor(&secrets);
    let whole = read.plan.clone();
    if let Some(only) = &args.only {
        select(&mut read.plan, only)?;
    }
    let runtime = threads::runtime()?;
    let flags = check_flags::check(&read, &environment(), &args.places.cache())?;
    for note in &flags.notes {
        complain(&format!("note: {note}\n"));
    }
    if !flags.unknown.is_empty() {
        return Err(mistakes_error(&flags.unknown, &read.sources, colors.stderr));
    }
    let host = host(args, &read, secrets, redactor.clone())?;
    let allowed = allowed_gpus(args.gpus.as_ref(), &read.plan, &host.machine)?;
    // Before the machine is looked at: what a killed run left may hold the very port or the GPUs that are wanted now.
    let swept = runtime.block_on(engine::sweep(GRACE, &host.whereabouts, &host.cache));
    store::calibration::sweep(&host.cache);
    let uses_daemon = |launch: &Launch| engine::image(launch).is_some();
    for note in &swept.notes {
        complain(&format!("note: {note}\n"));
    }
    for what in &swept.remaining {
        complain(&format!("warning: cannot remove {what}\n"));
    }
    // A run that needs the daemon is refused with the same words.
    if let Some(reason) = swept
        .unseen
        .filter(|_| !read.plan.launches.iter().any(uses_daemon))
    {
        complain(&format!(
            "note: the containers that earlier runs may have left could not be looked at: {reason}\n"
        ));
    }
    let swept = swept.removed;
    let places = preflight::Places {
        matrix: &args.matrix,
        results: &args.results,
    };
    let devices = runtime.block_on(gpu_selection::chosen(&read.plan, &host, &allowed));
    if devices.len() < host.machine.gpus.len() {
        gpu_selection::hold_to_leased(&mut read.plan);
    }
    let host = Host { devices, ..host };
    if let Err(unfit) = runtime.block_on(fit(&read.plan, &host, places)) {
        let told = swept.iter().map(|what| format!("note: removed {what}\n"));
        return Err(CommandError::unfit(told.collect::<String>() + &unfit.message));
    }
    let _claim = claim(&read.plan, &host, &allowed)?;
    let store = Arc::new(open(args, &whole.matrix, resumed.as_ref(), &redactor)?);
    agree(args, &store, &whole)?;
    let host = Host {
        run: store.run().clone(),
        ..host
    };
    let began = Begun {
        args,
        colors,
        further,
        bound,
        read,
        whole,
        host,
        store,
        swept,
        runtime,
    };
    let store = Arc::clone(&began.store);
    began.measure().map_err(|error| {
        let why = redactor.redact(&causes(error.as_ref())).into_owned();
        stuck(args, &store, &why)
    })
}

/// The refusal of a run that was begun and cannot go on.
fn stuck(args: &RunArgs, store: &Store, why: &str) -> CommandError {
    let resume = cli::resume_command(store.run().as_str());
    let moved = store.check_place().map_err(|moved| (moved.to_string(), moved));
    if let Err((what, StoreError::Moved { path, now })) = moved {
        return CommandError::stuck(match now {
            Some(now) => format!(
                "error: {what}\nthe run was started and cannot go on; what was measured before is saved in {}\n  = help: move it back to {}, then go on with: {resume}\n",
                now.display(),
                path.display(),
            ),
            None => format!(
                "error: {what}\nthe run was started and cannot go on; nothing of it is left\n  = help: begin again\n"
            ),
        });
    }
    // Where this fails too, what the run holds is still there and named below.
    let _ = store.restore_about();
    if store.discard_unbegun() {
        return CommandError::stuck(format!(
            "error: {why}\nnothing was measured, and the run's folder is removed\n  = help: begin again once {} has room for it\n",
            args.results.display()
        ));
    }
    CommandError::stuck(format!(
        "error: {why}\nthe run was started and cannot go on; what was measured is saved in {}\n  = help: go on with: {resume}\n",
        store.folder().display(),
    ))
}

/// A run whose folder is there.
struct Begun<'a> {
    args: &'a RunArgs,
    colors: Colors,
    further: &'a Further<'a>,
    bound: f64,
    read: LoadedMatrix,
    whole: Plan,
    host: Host,
    store: Arc<Store>,
    /// What an earlier run had left.
    swept: Vec<String>,
    runtime: tokio::runtime::Runtime,
}

impl Begun<'_> {
    /// Measures what is to be measured, and writes the tables.
    fn measure(self) -> anyhow::Result<Measured> {
        let Self {
            args,
            colors,
            further,
            bound,
            read,
            whole,
            host,
            store,
            swept,
            runtime,
        } = self;
        let finished = begin(&store, &read, &whole, &host)?;
        hold_images(&whole, &finished, &host);
        let todo = remaining(&read.plan.starts, &finished, args.failed);
        if args.resume.is_some() {
            // What is measured again is appended as it ends.
            let open: BTreeSet<&Measurement> = todo.iter().flat_map(|start| &start.cells).collect();
            let run = store::Run::read(store.folder()).context("cannot read the run")?;
            report::results(&run, &store, |measurement| !open.contains(measurement))?;
        }
        log::into(store.log().context("cannot open the log")?);
        let journal = Mutex::new(store.journal().context("cannot open the journal")?);
        let (events, progress) = listeners(args, &read.plan, &store, journal, &host.redactor);
        let stop = Stop::default();
        let mut plans = Plans {
            whole,
            chosen: read.plan.clone(),
        };
        let mut grow = || {
            let Some(more) = plans.grow(further, &store)? else {
                return Ok(None);
            };
            let finished = begin(&store, &read, &plans.whole, &host)?;
            Ok(Some(Round {
                plan: plans.chosen.clone(),
                // A night that was cut short may have measured some of them.
                todo: remaining(&more, &finished, false),
            }))
        };
        let finished = measurements(&read.plan.starts) - measurements(&todo);
        let work = Work {
            first: Round {
                plan: read.plan.clone(),
                todo,
            },
            swept,
            finished,
            calibrates: !args.no_calibration,
            retry_invalid: args.retry_invalid,
        };
        let conducted = runtime.block_on(conduct(&store, &host, &events, &stop, work, &mut grow));
        progress.finish();
        let unstopped = conducted?;
        let (finished, tables) = unless_finished(unwritten(store.folder()), || {
            store.restore_about().context("cannot write `run.json` again")?;
            let finished = store
                .finished(&plans.chosen)
                .context("cannot read what is finished")?;
            let tables = report::write(&store, args.only.as_ref(), &args.places.cache(), bound, colors)
                .context("the measurements are saved, the tables are not")?;
            anyhow::Ok((finished, tables))
        })?;
        let count = Count::of(finished.values(), measurements(&plans.chosen.starts));
        Ok(Measured {
            run: store.run().clone(),
            folder: store.folder().to_owned(),
            tables,
            count,
            exit: verdict(&stop, count, unstopped),
        })
    }
}

/// The message if a signal ends the command before the report of a run is written.
fn unwritten(folder: &Path) -> String {
    format!(
        "stopped while the report was written; the measurements are saved\n  = help: write it with: {} --out {}\n",
        cli::report_command(folder),
        cli::word(&folder.to_string_lossy())
    )
}

/// Puts GPUs that are only pretended in the place of the machine's own, if that is asked for.
fn pretend(about: &mut Machine) -> Result<bool, CommandError> {
    let pretended =
        cli::pretended_gpus().map_err(|wrong| CommandError::usage(format!("error: {wrong}\n")))?;
    if let Some(count) = pretended {
        about.gpus = vec!["pretended GPU".to_owned(); count as usize];
        about.gpus_pretended = true;
    }
    Ok(about.gpus_pretended)
}

/// Who tells about the machine's devices. What is there and cannot be used is no more than a note, unless it was asked
/// for by name.
pub(super) fn devices() -> Result<Option<Arc<Gpus>>, CommandError> {
    let places = Places {
        nvml: cli::nvml_library(),
        path: cli::variable("PATH"),
    };
    let gpus = match Gpus::open(&places) {
        Ok(gpus) => gpus,
        Err(reason) if places.nvml.is_some() => {
            return Err(CommandError::usage(format!(
                "error: {reason}\n  = help: name NVIDIA's `libnvidia-ml.so.1` with MATRIX_NVML_LIBRARY, or unset it\n"
            )));
        }
        Err(reason) => {
            complain(&format!(
                "note: nobody tells about the devices of this host: {reason}\n"
            ));
            None
        }
    };
    Ok(gpus.map(Arc::new))
}

/// The GPUs that a run may use: by its flag, its matrix, the environment, else all.
fn allowed_gpus(flag: Option<&GpuList>, plan: &Plan, machine: &Machine) -> Result<Vec<u32>, CommandError> {
    let named = |list: &GpuList, from: &'static str| Wish {
        list: list.clone(),
        from,
    };
    let wish = flag.map(|list| named(list, "`--gpus`"));
    let wish = wish.or_else(|| plan.gpus.as_ref().map(|list| named(list, "`gpus:`")));
    let environment = match wish {
        None => cli::visible_gpus(),
        Some(_) => None,
    };
    if let Some((name, list)) = environment {
        let Some(list) = list else {
            complain(&format!("note: `{name}` leaves no GPU to this run\n"));
            return Ok(Vec::new());
        };
        // Inside of a container the devices may be those that are named already, numbered anew.
        return match gpu_selection::allowed(machine, Some(&named(&list, "the environment"))) {
            Ok(allowed) => Ok(allowed),
            Err(reason) => {
                complain(&format!("note: `{name}` is not followed: {reason}\n"));
                Ok((0..).take(machine.gpus.len()).collect())
            }
        };
    }
    gpu_selection::allowed(machine, wish.as_ref()).map_err(|reason| {
        CommandError::unfit(format!(
            "error: {reason}\n  = help: `nvidia-smi -L` lists the GPUs of this host\npreflight failed; nothing was started\n"
        ))
    })
}

/// Keeps other runs from the GPUs of this host, where this one uses any. Pretended ones are no more shared than the cache is.
fn claim(plan: &Plan, host: &Host, allowed: &[u32]) -> Result<Option<Claim>, CommandError> {
    if plan.launches.iter().all(|launch| launch.devices == 0) {
        return Ok(None);
    }
    let pretended = host.machine.gpus_pretended.then(|| host.cache.clone());
    let folder = cli::locks().or(pretended);
    Claim::take(allowed, folder.as_deref()).map(Some).map_err(|error| {
        CommandError::unfit(format!(
            "error: {error}\n  = help: wait until it is over, or stop it; two runs at once would measure each other\n\
             preflight failed; nothing was started\n"
        ))
    })
}

/// How a run ends whose measurements ended so, by now or before, and that could not stop so many engines.
fn verdict(stop: &Stop, count: Count, unstopped: usize) -> Exit {
    if stop.is_asked() {
        Exit::Interrupted
    } else if unstopped > 0 || count.failed > 0 || count.invalid > 0 {
        Exit::CellFailed
    } else {
        Exit::Done
    }
}

/// Hides the secrets that the plan names and those of our environment: engines that are processes inherit them.
fn redactor(named: &BTreeMap<String, String>) -> Redactor {
    let usual = environment().secrets();
    Redactor::new(named.values().chain(&usual).map(String::as_str))
}

/// The values of the secrets that the plan names, as far as the environment has them.
fn secrets(plan: &Plan) -> BTreeMap<String, String> {
    let names: BTreeSet<String> = plan.launches.iter().flat_map(|launch| launch.secrets()).collect();
    names
        .into_iter()
        .filter_map(|name| cli::variable(&name).map(|value| (name, value)))
        .collect()
}

fn host(
    args: &RunArgs,
    read: &LoadedMatrix,
    secrets: BTreeMap<String, String>,
    redactor: Redactor,
) -> Result<Host, CommandError> {
    let open_files = machine::raise_open_files();
    let (mut about, gpus) = with_devices()?;
    about.open_files = open_files.or(about.open_files);
    let matrix = std::env::current_exe().context("cannot find the program's own file")?;
    let folder = std::path::absolute(&read.folder).context("cannot find the folder of the matrix file")?;
    Ok(Host {
        run: RunId::new(""),
        matrix,
        folder,
        path: cli::variable("PATH"),
        environment: cli::variables(),
        hf_home: args.places.hf_home(),
        cache: args.places.cache(),
        whereabouts: environment().docker(),
        images: Arc::new(engine::Images::new(pull_policy(args.pull))),
        orphans: Arc::default(),
        prompts: (!args.fresh_prompts).then(|| args.places.prompts()),
        secrets,
        redactor,
        http: engine::http_client(),
        machine: about,
        devices: Vec::new(),
        gpus,
    })
}

/// This machine, with who tells about its devices.
fn with_devices() -> Result<(Machine, Option<Arc<Gpus>>), CommandError> {
    let mut about = machine::read(&format!("matrix {}", cli::VERSION));
    let gpus = match pretend(&mut about)? {
        true => None,
        false => devices()?,
    };
    if let Some(gpus) = &gpus {
        gpus.describe(&mut about);
    }
    Ok((about, gpus))
}

/// This machine.
pub(super) fn here() -> Result<Machine, CommandError> {
    with_devices().map(|(about, _)| about)
}

/// Everything that keeps the machine from measuring, named at once.
async fn fit(plan: &Plan, host: &Host, places: preflight::Places<'_>) -> Result<(), CommandError> {
    for finding in preflight::templates(plan, &host.folder, &host.caches()).expected {
        complain(&host.redactor.redact(&finding.note()));
    }
    let waiting = |what: String| complain(&host.redactor.redact(&format!("{what}\n")));
    let findings = preflight::findings(plan, host, places, &waiting).await;
    if findings.is_empty() {
        return Ok(());
    }
    let mut message = String::new();
    for finding in &findings {
        message.push_str(&format!("error: {}\n  = help: {}\n", finding.what, finding.help));
    }
    let count = match findings.len() {
        1 => "1 finding".to_owned(),
        n => format!("{n} findings"),
    };
    message.push_str(&format!("preflight failed ({count}); nothing was started\n"));
    Err(CommandError::unfit(host.redactor.redact(&message)))
}

/// The run to be taken up again, where one is.
fn resumed(args: &RunArgs, matrix: &str) -> Result<Option<RunId>, CommandError> {
    let root = &args.results;
    let Some(resume) = &args.resume else {
        return Ok(None);
    };
    let run = if resume == "latest" {
        let all = store::list(root).map_err(unfit)?;
        let mut own = all
            .into_iter()
            .filter(|listed| store::is_own_folder(&listed.folder));
        let latest = own.find(|listed| listed.about.matrix == matrix);
        latest.map(|listed| listed.about.run).ok_or_else(|| {
            CommandError::usage(format!(
                "error: this user has no run of `{matrix}` in {} to resume\n  = help: leave `--resume` out to begin one\n",
                root.display()
            ))
        })?
    } else {
        let name = Path::new(resume)
            .file_name()
            .map_or(resume.as_str().into(), |name| name.to_string_lossy());
        RunId::new(name)
    };
    let folder = root.join(run.as_str());
    let about = store::about(&folder).map_err(|error| CommandError::usage(format!("error: {error}\n")))?;
    // Files of two users in one run lock both out of it.
    if !store::is_own_folder(&folder) {
        return Err(CommandError::usage(format!(
            "error: the run `{run}` in {} belongs to another user, who could not go on with it after this\n  = help: go on as that user, or copy the run into a results folder of your own (`--results`)\n",
            root.display()
        )));
    }
    if about.matrix == noise_name(matrix) {
        return Err(CommandError::usage(format!(
            "error: the run `{run}` measures noise, and no other command goes on with it\n  = help: go on with `matrix noise {} --resume {run}`, or name a run of `{matrix}`\n",
            args.matrix.display()
        )));
    }
    if about.matrix != matrix {
        return Err(CommandError::usage(format!(
            "error: the run `{run}` is one of the matrix `{}`, and `{matrix}` is to go on\n  = help: name a run of `{matrix}`, or leave the name out to go on with its newest one\n",
            about.matrix
        )));
    }
    Ok(Some(run))
}

/// Asks before finished cells are measured again because the matrix was edited.
fn agree(args: &RunArgs, store: &Store, whole: &Plan) -> Result<(), CommandError> {
    if args.resume.is_none() {
        return Ok(());
    }
    let outdated = store.outdated(whole).map_err(unfit)?;
    if outdated.is_empty() {
        return Ok(());
    }
    let mut cells: Vec<String> = outdated
        .iter()
        .map(|measurement| measurement.cell.to_string())
        .collect();
    cells.dedup();
    let mut lines: String = cells
        .iter()
        .take(SHOWN)
        .map(|cell| format!("  {cell}\n"))
        .collect();
    if cells.len() > SHOWN {
        lines.push_str(&format!("  and {} more\n", cells.len() - SHOWN));
    }
    let what = format!(
        "{} of run `{}` {} not fit the matrix any more; {} set aside and measured again:\n{lines}",
        counted(outdated.len(), "finished measurement", "finished measurements"),
        store.run(),
        if outdated.len() == 1 { "does" } else { "do" },
        if outdated.len() == 1 { "it is" } else { "they are" }
    );
    if args.yes {
        complain(&format!("note: {what}"));
        return Ok(());
    }
    let refusal = || {
        CommandError::usage(format!(
            "error: {what}  = help: add `--yes` to go on, or undo the edit; without `--resume` a new run begins\n"
        ))
    };
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return Err(refusal());
    }
    complain(&format!("{what}go on? [y/N] "));
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    match read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes") {
        true => Ok(()),
        false => Err(refusal()),
    }
}

fn unfit(error: StoreError) -> CommandError {
    CommandError::unfit(format!("error: {error}\n"))
}

/// A new run, or the one to be taken up again.
fn open(
    args: &RunArgs,
    matrix: &str,
    resumed: Option<&RunId>,
    redactor: &Redactor,
) -> Result<Store, CommandError> {
    let root = &args.results;
    if let Some(run) = resumed {
        return Store::open(root, run, redactor.clone())
            .map_err(|error| CommandError::usage(format!("error: {error}\n")));
    }
    Store::create_new(root, matrix, redactor).map_err(unfit)
}

/// Writes what the run begins or goes on with, and tells what is finished.
fn begin(
    store: &Store,
    read: &LoadedMatrix,
    whole: &Plan,
    host: &Host,
) -> anyhow::Result<BTreeMap<Measurement, Summary>> {
    let recipes = read.sources[1..]
        .iter()
        .filter_map(|source| {
            let file = source.name.trim_end_matches(" (shipped)");
            Some((
                Path::new(file).file_stem()?.to_string_lossy().into_owned(),
                source.text.to_string(),
            ))
        })
        .collect();
    let beginning = Beginning {
        source: &read.sources[0].text,
        recipes: &recipes,
        plan: whole,
        machine: &host.machine,
    };
    store.begin_run(&beginning).context("cannot begin the run")?;
    store.finished(whole).context("cannot read what is finished")
}

/// A run that is taken up again goes on with the images that it began with, whatever their names mean by now.
fn hold_images(plan: &Plan, finished: &BTreeMap<Measurement, Summary>, host: &Host) {
    for summary in finished.values() {
        let launch = plan.launches.iter().find(|launch| launch.id == summary.launch);
        if let Some(image) = launch.and_then(engine::image)
            && let Some(digest) = &summary.engine.image_digest
        {
            host.images.hold(image, digest);
        }
    }
}

fn listeners(
    args: &RunArgs,
    plan: &Plan,
    store: &Arc<Store>,
    journal: Mutex<store::Journal>,
    redactor: &Redactor,
) -> (Events, Arc<Progress>) {
    let past = store::durations::last_durations(&args.results, &plan.matrix, &plan.cells).unwrap_or_default();
    let expected: BTreeMap<CellKey, f64> = past.into_iter().map(|(key, past)| (key, past.seconds)).collect();
    let progress = Arc::new(Progress::new(expected));
    let mut events = Events::without_secrets(redactor.clone());
    events.listen(move |event| {
        if event.is_kept() {
            tracing::info!("{}", serde_json::to_string(event).expect("events are JSON"));
            let written = journal
                .lock()
                .expect("writing the journal does not panic")
                .append(event);
            if let Err(error) = written {
                tracing::error!("the journal: {error}");
            }
        }
    });
    let (results, planned) = (Arc::clone(store), plan.clone());
    events.listen(move |event| {
        if let Event::CellEnded { measurement, .. } = event
            && let Err(error) = report::append_result(&planned, &results, measurement)
        {
            tracing::error!("results.jsonl: {error:#}");
        }
    });
    if args.json {
        events.listen(|event| {
            print(&format!(
                "{}\n",
                serde_json::to_string(&store::Line::now(event)).expect("events are JSON")
            ))
        });
    } else {
        let drawn = Arc::clone(&progress);
        events.listen(move |event| drawn.show(event));
    }
    (events, progress)
}

/// How many measurements these starts are for.
fn measurements(starts: &[Start]) -> usize {
    starts.iter().map(|start| start.cells.len()).sum()
}

/// What is to be done.
struct Work {
    /// What was planned before anything was measured.
    first: Round,
    /// What an earlier run had left.
    swept: Vec<String>,
    /// Measurements that are finished already.
    finished: usize,
    /// Whether the client is measured first.
    calibrates: bool,
    /// How often what is invalid is measured again.
    retry_invalid: u32,
}

/// Does all rounds: after each, `grow` tells the next one, until it wants no more. Gives how many engines could not be stopped.
async fn conduct(
    store: &Store,
    host: &Host,
    events: &Events,
    stop: &Stop,
    work: Work,
    grow: &mut dyn FnMut() -> anyhow::Result<Option<Round>>,
) -> anyhow::Result<usize> {
    let Work {
        first: Round { mut plan, mut todo },
        swept,
        finished,
        mut calibrates,
        retry_invalid,
    } = work;
    let mut signals = Signals::catch().context("cannot listen to signals")?;
    for what in swept {
        events.tell(Event::Swept { what });
    }
    let mut planned = measurements(&todo) + finished;
    events.tell(Event::RunBegan {
        run: host.run.clone(),
        matrix: plan.matrix.clone(),
        measurements: planned,
        finished,
    });
    let began = crate::base::clock::now();
    let ended = Cell::new(Tally::default());
    let work = async {
        let mut calibration = None;
        loop {
            // A run that goes on may have nothing left to do of what was planned before.
            if calibrates && !todo.is_empty() {
                let streams = runner::calibrate::streams(&plan, &todo);
                calibration = calibrate(host, store, events, streams, stop).await;
                calibrates = false;
            }
            let job = Job {
                plan: &plan,
                todo,
                store,
                events,
                host,
                retry_invalid,
                calibration: calibration.as_ref(),
            };
            let (tally, told) = runner::run(&job, stop).await;
            ended.update(|all| all + tally);
            told?;
            let next = if stop.is_asked() { None } else { grow()? };
            let Some(next) = next else {
                return anyhow::Ok(());
            };
            Round { plan, todo } = next;
            planned += measurements(&todo);
            events.tell(Event::StartsAdded {
                starts: todo.len(),
                measurements: planned,
            });
        }
    };
    let told = tokio::select! {
        told = work => told,
        never = stop.listen(&mut signals, events) => match never {},
    };
    let tally = ended.get();
    events.tell(Event::RunEnded {
        done: tally.done,
        failed: tally.failed,
        skipped: tally.skipped,
        interrupted: tally.interrupted,
        invalid: tally.invalid,
    });
    tracing::info!(
        "the run took {}",
        minutes(crate::base::clock::now().since(began).as_secs_f64())
    );
    // The last that is said: it is left to whoever reads it.
    let unstopped = runner::orphans(host, events, stop).await;
    told.map(|()| unstopped)
}

/// Measures the client briefly at the numbers of streams that the cells to come will have. What fails here costs the rows their client
/// error, and no more.
async fn calibrate(
    host: &Host,
    store: &Store,
    events: &Events,
    streams: Vec<u32>,
    stop: &Stop,
) -> Option<Calibration> {
    if streams.is_empty() {
        return None;
    }
    let wanted = Wanted {
        streams,
        gaps_ms: runner::calibrate::GAPS_MS.to_vec(),
        tokens: QUICK_TOKENS,
        flood: false,
    };
    let measured = runner::calibrate::calibrate(host, store, &wanted, stop).await;
    let warn = |message: String| events.tell(Event::Warning { message });
    let mut calibration = match measured {
        Ok(measured) => measured?,
        Err(reason) => {
            warn(format!(
                "the client is not calibrated, rows carry no client error: {reason}"
            ));
            return None;
        }
    };
    // How fast it can be at all is measured by `matrix calibrate` only.
    let kept = store::calibration::kept(&host.cache);
    let same = kept.filter(|kept| (&kept.tool, &kept.machine) == (&calibration.tool, &calibration.machine));
    calibration.flood = same.and_then(|kept| kept.flood);
    if let Err(error) = store.write_calibration(&calibration) {
        warn(format!("the calibration is not kept: {error}"));
    }
    Some(calibration)
}
