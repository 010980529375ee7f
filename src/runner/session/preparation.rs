//! Prepares the host for a run: removes orphans, chooses GPUs, runs the preflight and locks the GPUs.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::ids::RunId;
use crate::base::secrets::{self, Redactor};
use crate::engine::{self, Images};
use crate::plan::{Launch, Plan};
use crate::runner::cleanup::{self, Swept};
use crate::runner::context::Host;
use crate::runner::environment::Environment;
use crate::runner::gpu_lock::Claim;
use crate::runner::gpu_selection;
use crate::runner::host_error;
use crate::runner::preflight::{self, Finding, Places};
use crate::runner::session::error::SessionError;
use crate::runner::session::gpus;
use crate::runner::session::observer::{Notice, Observer};
use crate::runner::session::request::RunRequest;
use crate::telemetry::machine;

pub(super) struct PreparedHost {
    pub(super) host: Host,
    /// Orphans of earlier runs that this run removed.
    pub(super) removed: Vec<String>,
    pub(super) gpu_lock: Option<Claim>,
}

/// The plan's secrets, and a redactor for them and for secrets of the environment, which processes inherit.
pub(super) fn secrets_of(
    plan: &Plan,
    environment: &Environment,
    observer: &dyn Observer,
) -> (BTreeMap<String, String>, Redactor) {
    let secrets = environment.secrets_of(plan);
    for (name, _) in secrets.iter().filter(|(_, value)| !secrets::is_hidden(value)) {
        observer.notice(Notice::Note(format!(
            "the value of `${{{name}}}` is too short to be hidden in what is written"
        )));
    }
    let inherited = environment.secrets();
    let redactor = Redactor::new(secrets.values().chain(&inherited).map(String::as_str));
    (secrets, redactor)
}

/// The host of a run, before GPUs are chosen.
pub(super) fn host(
    request: &RunRequest<'_>,
    secrets: BTreeMap<String, String>,
    redactor: Redactor,
    observer: &dyn Observer,
) -> Result<Host, SessionError> {
    let environment = &request.environment;
    let open_files = machine::raise_open_files();
    let (mut about, gpus) = gpus::machine(environment, &|notice| observer.notice(notice))?;
    about.open_files = open_files.or(about.open_files);
    Ok(Host {
        run: RunId::new(""),
        matrix: host_error::own_program()?,
        folder: host_error::absolute(&request.matrix.folder)?,
        path: environment.variable("PATH"),
        environment: environment.names.clone(),
        hf_home: request.dirs.hf_home.clone(),
        cache: request.dirs.cache.clone(),
        whereabouts: environment.docker(),
        images: Arc::new(Images::new(request.pull)),
        orphans: Arc::default(),
        prompts: request.dirs.prompts.clone(),
        secrets,
        redactor,
        http: engine::http_client(),
        machine: about,
        devices: Vec::new(),
        gpus,
    })
}

/// Prepares the host for a plan. If the run does not use all GPUs of the host, its containers see only their
/// own.
pub(super) async fn prepare(
    mut host: Host,
    plan: &mut Plan,
    request: &RunRequest<'_>,
    observer: &dyn Observer,
) -> Result<PreparedHost, SessionError> {
    let environment = &request.environment;
    let notice = |notice| observer.notice(notice);
    let allowed = gpus::allowed(request.gpus.as_ref(), plan, &host.machine, environment, &notice)?;
    // Remove orphans before the preflight: they may hold a port or GPU that this run needs.
    let swept = cleanup::sweep(&host.whereabouts, &host.cache).await;
    report_sweep(&swept, plan, observer);
    host.devices = gpu_selection::chosen(plan, &host, &allowed).await;
    if host.devices.len() < host.machine.gpus.len() {
        gpu_selection::hold_to_leased(plan);
    }
    let places = Places {
        matrix: &request.matrix_file,
        results: &request.results,
    };
    let findings = check(plan, &host, places, observer).await;
    if !findings.is_empty() {
        return Err(SessionError::Preflight {
            findings,
            removed: swept.removed,
        });
    }
    let gpu_lock = gpus::lock(plan, &host, &allowed, environment)?;
    Ok(PreparedHost {
        host,
        removed: swept.removed,
        gpu_lock,
    })
}

fn report_sweep(swept: &Swept, plan: &Plan, observer: &dyn Observer) {
    for note in &swept.notes {
        observer.notice(Notice::Note(note.clone()));
    }
    for what in &swept.remaining {
        observer.notice(Notice::Warning(format!("cannot remove {what}")));
    }
    // If the plan has containers, the preflight reports the same.
    let uses_daemon = |launch: &Launch| engine::image(launch).is_some();
    if let Some(reason) = &swept.unseen
        && !plan.launches.iter().any(uses_daemon)
    {
        observer.notice(Notice::Note(format!(
            "the containers that earlier runs may have left could not be looked at: {reason}"
        )));
    }
}

/// The redacted findings of the preflight.
async fn check(plan: &Plan, host: &Host, places: Places<'_>, observer: &dyn Observer) -> Vec<Finding> {
    let redact = |text: &str| host.redactor.redact(text).into_owned();
    let redacted = |finding: Finding| Finding {
        what: redact(&finding.what),
        help: redact(&finding.help),
    };
    for finding in preflight::templates(plan, &host.folder, &host.caches()).expected {
        observer.notice(Notice::Input(redacted(finding)));
    }
    let progress = |what: String| observer.notice(Notice::Progress(redact(&what)));
    let findings = preflight::findings(plan, host, places, &progress).await;
    findings.into_iter().map(redacted).collect()
}
