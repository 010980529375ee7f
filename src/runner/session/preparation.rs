//! Prepares the host for a run: removes orphans, chooses GPUs, runs the preflight and locks the GPUs.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::ids::RunId;
use crate::base::secrets::{self, Redactor};
use crate::engine::{self, Images, JobNodes};
use crate::plan::{Launch, Plan};
use crate::runner::cleanup::{self, SweepResult};
use crate::runner::context::HostEnv;
use crate::runner::environment::Environment;
use crate::runner::gpu_lock::GpuLock;
use crate::runner::gpu_selection;
use crate::runner::host_error;
use crate::runner::preflight::{self, RunPaths, UnmetRequirement};
use crate::runner::session::error::SessionError;
use crate::runner::session::gpus;
use crate::runner::session::observer::{Notice, Observer};
use crate::runner::session::request::RunRequest;
use crate::slurm::{self, SlurmError};
use crate::telemetry::machine;

pub(super) struct PreparedHost {
    pub(super) host: HostEnv,
    /// Orphans of earlier runs that this run removed.
    pub(super) removed: Vec<String>,
    pub(super) gpu_lock: Option<GpuLock>,
}

/// The plan's secrets, and a redactor for them and for secrets of the environment, which processes inherit.
pub(super) fn plan_secrets(
    plan: &Plan,
    environment: &Environment,
    observer: &dyn Observer,
) -> (BTreeMap<String, String>, Redactor) {
    let secrets = environment.secrets_of(plan);
    for (name, _) in secrets
        .iter()
        .filter(|(_, value)| !secrets::is_long_enough(value))
    {
        observer.notice(Notice::Note(format!(
            "the value of `${{{name}}}` is too short to be redacted in the output"
        )));
    }
    let inherited = environment.secrets();
    let redactor = Redactor::new(secrets.values().chain(&inherited).map(String::as_str));
    (secrets, redactor)
}

/// The host of a run, before GPUs are chosen.
pub(super) fn host_env(
    request: &RunRequest<'_>,
    secrets: BTreeMap<String, String>,
    redactor: Redactor,
    observer: &dyn Observer,
) -> Result<HostEnv, SessionError> {
    let environment = &request.environment;
    let open_files = machine::raise_open_files();
    let (mut about, gpus) = gpus::machine(environment, &|notice| observer.notice(notice))?;
    about.open_files = open_files.or(about.open_files);
    Ok(HostEnv {
        run: RunId::new(""),
        matrix: host_error::own_program()?,
        folder: host_error::absolute_folder(&request.matrix.folder)?,
        environment: environment.clone(),
        hf_home: request.dirs.hf_home.clone(),
        cache: request.dirs.cache.clone(),
        docker: environment.docker(),
        images: Arc::new(Images::new(request.pull)),
        orphans: Arc::default(),
        prompts: request.dirs.prompts.clone(),
        secrets,
        redactor,
        http: engine::http_client(),
        machine: about,
        devices: Vec::new(),
        job_nodes: Default::default(),
        gpus,
    })
}

/// Prepares the host for a plan. If the run does not use all GPUs of the host, its containers see only their
/// own.
pub(super) async fn prepare(
    mut host: HostEnv,
    plan: &mut Plan,
    request: &RunRequest<'_>,
    observer: &dyn Observer,
) -> Result<PreparedHost, SessionError> {
    let environment = &request.environment;
    let notice = |notice| observer.notice(notice);
    let allowed = gpus::allowed_gpus(request.gpus.as_ref(), plan, &host.machine, environment, &notice)?;
    // Remove orphans before the preflight: they may hold a port or GPU that this run needs.
    let swept = cleanup::sweep(&host.docker, &host.cache).await;
    report_sweep(&swept, plan, observer);
    host.devices = gpu_selection::choose_gpus(plan, &host, &allowed).await;
    if plan.launches.iter().any(|launch| launch.nodes() > 1) {
        host.job_nodes = job_nodes(environment, observer).await;
    }
    if host.devices.len() < host.machine.gpus.len() {
        gpu_selection::restrict_to_leased(plan);
    }
    let places = RunPaths {
        matrix: &request.matrix_file,
        results: &request.results,
    };
    let findings = run_preflight(plan, &host, places, observer).await;
    if !findings.is_empty() {
        return Err(SessionError::Preflight {
            findings,
            removed: swept.removed,
        });
    }
    let gpu_lock = gpus::lock_gpus(plan, &host, &allowed, environment)?;
    Ok(PreparedHost {
        host,
        removed: swept.removed,
        gpu_lock,
    })
}

/// The nodes of the job of a cluster that this run executes in; empty outside of one.
pub(super) async fn job_nodes(environment: &Environment, observer: &dyn Observer) -> JobNodes {
    let variables = ["SLURM_JOB_NODELIST", "SLURMD_NODENAME"].map(|name| environment.variable(name));
    let [Some(list), Some(here)] = variables else {
        return JobNodes::default();
    };
    let found = async {
        let mut names = slurm::node_names(&list).await?;
        names.sort_by_key(|name| *name != here);
        let addresses = slurm::node_addresses(&names).await?;
        Ok::<_, SlurmError>(JobNodes { names, addresses })
    };
    found.await.unwrap_or_else(|error| {
        observer.notice(Notice::Warning(format!(
            "the nodes of this job are unknown: {error}"
        )));
        JobNodes::default()
    })
}

fn report_sweep(swept: &SweepResult, plan: &Plan, observer: &dyn Observer) {
    for note in &swept.notes {
        observer.notice(Notice::Note(note.clone()));
    }
    for what in &swept.remaining {
        observer.notice(Notice::Warning(format!("cannot remove {what}")));
    }
    // If the plan has containers, the preflight reports the same.
    let uses_daemon = |launch: &Launch| engine::image_name(launch).is_some();
    if let Some(reason) = &swept.containers_error
        && !plan.launches.iter().any(uses_daemon)
    {
        observer.notice(Notice::Note(format!(
            "containers of earlier runs could not be checked: {reason}"
        )));
    }
}

/// The redacted findings of the preflight.
pub(super) async fn run_preflight(
    plan: &Plan,
    host: &HostEnv,
    places: RunPaths<'_>,
    observer: &dyn Observer,
) -> Vec<UnmetRequirement> {
    let redact = |text: &str| host.redactor.redact(text).into_owned();
    let redacted = |finding: UnmetRequirement| UnmetRequirement {
        what: redact(&finding.what),
        help: redact(&finding.help),
    };
    for finding in preflight::check_templates(plan, &host.folder, &host.caches()).expected {
        observer.notice(Notice::Input(redacted(finding)));
    }
    let progress = |what: String| observer.notice(Notice::Progress(redact(&what)));
    let findings = preflight::unmet_requirements(plan, host, places, &progress).await;
    findings.into_iter().map(redacted).collect()
}
