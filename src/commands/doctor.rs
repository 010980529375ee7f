//! `matrix doctor`: what this host is, and what it lacks for a matrix. Starts nothing.

use std::path::Path;

use crate::base::text::{one_line, pluralize, printable};
use crate::cli::orientation::DoctorArgs;
use crate::cli::{command_line, env_variable};
use crate::commands::environment::{cache_dirs, environment};
use crate::commands::error::{CommandError, Outcome};
use crate::commands::matrix_file::{load_to_start, print_notes};
use crate::commands::measure::notice_line;
use crate::commands::output::{Colors, eprint, print};
use crate::commands::session_error::session_error;
use crate::exit::Exit;
use crate::results::record::validity::ReasonCode;
use crate::runner::environment::PullPolicy;
use crate::runner::session::examination::{self, HostFacts};
use crate::runner::session::observer::{Notice, Observer, OutdatedMeasurements};
use crate::runner::session::request::{ExtraStarts, RunRequest};

pub(crate) fn execute(args: &DoctorArgs, colors: Colors) -> Outcome {
    let facts =
        examination::host_facts(&environment(), &Notes).map_err(|error| session_error(error, colors))?;
    print(&printable(&describe_host(&facts)));
    if let Some(busy) = facts.busy() {
        eprint(&format!(
            "warning: {busy} during the last second\n  = help: stop them before a run (`top` lists them); otherwise measurements become suspect (`{}`)\n",
            ReasonCode::HostBusy.name()
        ));
    }
    let Some(matrix) = &args.matrix else {
        return Ok(Exit::Done);
    };
    let loaded = load_to_start(matrix, None, colors)?;
    print_notes(&loaded);
    let request = RunRequest {
        matrix: loaded,
        matrix_file: matrix.clone(),
        results: existing_folder(&args.results).to_owned(),
        only: None,
        resume: None,
        repeat_failed: false,
        retry_invalid: 0,
        pull: PullPolicy::Never,
        calibrate: false,
        gpus: None,
        dirs: cache_dirs(&args.places, false),
        environment: environment(),
        extra_starts: ExtraStarts::None,
    };
    let unmet = examination::unmet_requirements(&request, &Notes);
    let unmet = unmet.map_err(|error| session_error(error, colors))?;
    if unmet.is_empty() {
        print(&printable(&format!(
            "nothing is missing; start the run with: {}\n",
            command_line::run_command(matrix)
        )));
        return Ok(Exit::Done);
    }
    let mut message = String::new();
    for finding in &unmet {
        message.push_str(&format!(
            "missing: {}\n  = help: {}\n",
            finding.what, finding.help
        ));
    }
    let count = pluralize(unmet.len(), "thing is", "things are");
    message.push_str(&format!("{count} missing for this matrix on this host\n"));
    Err(CommandError::host_not_ready(message))
}

/// The nearest folder that exists: a run would create the others.
fn existing_folder(folder: &Path) -> &Path {
    let mut above = folder.ancestors().filter(|above| above.is_dir());
    above.next().unwrap_or(Path::new("."))
}

fn describe_host(facts: &HostFacts) -> String {
    let machine = &facts.machine;
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    let memory = machine.memory_bytes.map_or_else(
        || "unknown memory".to_owned(),
        |bytes| format!("{:.1} GiB of memory", bytes as f64 / f64::from(1 << 30)),
    );
    let cpus = machine.cpus.map_or_else(
        || "an unknown number of processors".to_owned(),
        |cpus| pluralize(cpus as usize, "processor", "processors"),
    );
    let gpus = match (&machine.gpus[..], machine.gpus_pretended) {
        ([], _) => "none".to_owned(),
        (gpus, true) => format!("{} (pretended)", gpus.len()),
        (gpus, false) => {
            let driver = machine.driver.as_ref();
            let driver = driver.map_or_else(String::new, |driver| format!(", driver {driver}"));
            format!("{} x {}{driver}", gpus.len(), gpus[0])
        }
    };
    let daemon = match &facts.daemon {
        Ok(daemon) => {
            let gpus = match daemon.runtimes.iter().any(|runtime| runtime == "nvidia") {
                true => "with the NVIDIA runtime",
                false => "without the NVIDIA runtime",
            };
            format!("{} at {}, {gpus}", known(&daemon.version), daemon.address)
        }
        Err(reason) => format!("no daemon: {reason}"),
    };
    let token = match env_variable("HF_TOKEN") {
        Some(_) => "set",
        None => "no token is set; only gated models need one",
    };
    let files = machine
        .open_files
        .map_or_else(|| "unknown".to_owned(), |limit| limit.to_string());
    let load = facts.load.as_ref().and_then(|load| load.other_cpus);
    let load = load.map_or_else(
        || "unknown".to_owned(),
        |used| format!("other processes use {used:.2} processors"),
    );
    let lines = [
        (
            "host",
            format!("{}, Linux {}", known(&machine.os), known(&machine.kernel)),
        ),
        ("processor", format!("{}, {cpus}, {memory}", known(&machine.cpu))),
        ("GPUs", gpus),
        ("containers", daemon),
        ("busy", load),
        ("open files", format!("at most {files}")),
        ("HF_TOKEN", token.to_owned()),
    ];
    let lines = lines.map(|(name, value)| format!("{name:<11} {}\n", one_line(&value)));
    lines.concat()
}

/// Prints notices. Nothing is replaced, as nothing is measured.
struct Notes;

impl Observer for Notes {
    fn notice(&self, notice: Notice) {
        eprint(&notice_line(&notice));
    }

    fn accepts_replacement(&self, _: &OutdatedMeasurements) -> bool {
        false
    }
}
