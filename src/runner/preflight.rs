//! Checks before the first engine starts that the host can measure; reports everything that is missing at
//! once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::Path;

use futures_util::future::join_all;

use crate::base::ids::LaunchId;
use crate::base::text::pluralize;
use crate::config::api::ServerTemplate;
use crate::config::dataset::{Dataset, TemplateUse};
use crate::config::quality::{PublicTask, TaskSource};
use crate::engine::{self, ContainerChecks};
use crate::loadgen::dataset::template::ChatTemplate;
use crate::loadgen::dataset::tokenizer::Tokenizer;
use crate::loadgen::dataset::{self, Caches};
use crate::plan::{Launch, Plan};
use crate::runner::context::HostEnv;
use crate::runner::gpu_idle;
use crate::runner::graded::public;

/// Something that prevents measuring.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnmetRequirement {
    pub(crate) what: String,
    /// How to fix it.
    pub(crate) help: String,
}

impl UnmetRequirement {
    fn new(what: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            help: help.into(),
        }
    }

    /// The finding as a note, for cases in which it prevents nothing.
    pub(crate) fn to_note(&self) -> String {
        format!("note: {}\n  = help: {}\n", self.what, self.help)
    }
}

/// Paths from the command line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunPaths<'a> {
    pub(crate) matrix: &'a Path,
    pub(crate) results: &'a Path,
}

/// Everything that is missing for a plan.
pub(crate) async fn unmet_requirements(
    plan: &Plan,
    host: &HostEnv,
    places: RunPaths<'_>,
    report: &(dyn Fn(String) + Sync),
) -> Vec<UnmetRequirement> {
    let RunPaths { matrix, results } = places;
    let mut unmet = BTreeSet::new();
    check_containers(plan, host, report, &mut unmet).await;
    check_servers(plan, host, &mut unmet).await;
    check_devices(plan, host, &mut unmet);
    check_gpu_instances(plan, host, &mut unmet);
    for (what, help) in gpu_idle::preflight(plan, host).await {
        unmet.insert(UnmetRequirement::new(what, help));
    }
    let path = host.environment.variable("PATH");
    for launch in &plan.launches {
        check_secrets(launch, host, &mut unmet);
        if engine::takes_port(launch) {
            check_port(launch, &mut unmet);
        }
        check_nodes(launch, host, &mut unmet);
        if let Some(lack) = engine::unmet_host_requirement(launch, path.as_deref()) {
            unmet.insert(UnmetRequirement::new(lack.problem, lack.help));
        }
    }
    unmet.extend(check_inputs(plan, &host.folder, &host.caches(), matrix));
    unmet.extend(check_templates(plan, &host.folder, &host.caches()).needed);
    if let Some(limit) = host.machine.open_files {
        let open_files = plan.cells.iter().map(|cell| {
            let all = u64::from(cell.scenario.workload.prompts);
            cell.scenario
                .arrival
                .concurrency
                .map_or(all, |users| u64::from(users.get()).min(all))
        });
        let open_files = open_files.max().unwrap_or(0) + 200;
        if open_files > limit {
            unmet.insert(UnmetRequirement::new(
                format!("up to {open_files} open files may be needed, but only {limit} are allowed"),
                "raise the hard limit (`ulimit -Hn`), or limit `concurrency`",
            ));
        }
    }
    let room = std::fs::create_dir_all(results).and_then(|()| {
        let stat = rustix::fs::statvfs(results)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    });
    match room {
        Err(error) => {
            unmet.insert(UnmetRequirement::new(
                format!("the folder {} cannot be written: {error}", results.display()),
                "choose another folder with `--results`",
            ));
        }
        Ok(bytes) if bytes < 256 << 20 => {
            unmet.insert(UnmetRequirement::new(
                format!(
                    "only {} MiB are free for results in {}",
                    bytes >> 20,
                    results.display()
                ),
                "free disk space, or choose another folder with `--results`",
            ));
        }
        Ok(_) => {}
    }
    unmet.into_iter().collect()
}

/// Problems of the container daemon and the images, for launches in containers.
async fn check_containers(
    plan: &Plan,
    host: &HostEnv,
    report: &(dyn Fn(String) + Sync),
    unmet: &mut BTreeSet<UnmetRequirement>,
) {
    let wanted = ContainerChecks {
        launches: plan.launches.iter().collect(),
        docker_env: &host.docker,
        cache_dir: &host.cache,
        images: &host.images,
        hf_home: host.hf_home.as_deref(),
        folder: &host.folder,
        report_wait: report,
        secrets: &|name| host.secrets.get(name).cloned(),
    };
    for lack in engine::container_lacks(&wanted).await {
        unmet.insert(UnmetRequirement::new(lack.problem, lack.help));
    }
}

/// Attached servers that do not answer.
async fn check_servers(plan: &Plan, host: &HostEnv, unmet: &mut BTreeSet<UnmetRequirement>) {
    let secret = |name: &str| host.secrets.get(name).cloned();
    let urls = plan
        .launches
        .iter()
        .map(|launch| engine::unmet_server(launch, &secret, &host.http, &host.folder));
    for lack in join_all(urls).await.into_iter().flatten() {
        unmet.insert(UnmetRequirement::new(lack.problem, lack.help));
    }
}

fn check_port(launch: &Launch, unmet: &mut BTreeSet<UnmetRequirement>) {
    if let Some(port) = launch.api.port.fixed.filter(|port| !is_free(*port)) {
        unmet.insert(UnmetRequirement::new(
            format!("port {port} of engine `{}` is already in use", launch.engine.name),
            "stop the process that listens on it, or remove `port:` so that a free port is chosen",
        ));
    }
}

fn check_secrets(launch: &Launch, host: &HostEnv, unmet: &mut BTreeSet<UnmetRequirement>) {
    for name in launch
        .secrets()
        .iter()
        .filter(|name| !host.secrets.contains_key(*name))
    {
        unmet.insert(UnmetRequirement::new(
            format!(
                "the environment variable `{name}` is not set, but engine `{}` needs it",
                launch.engine.name
            ),
            format!("export {name}=… before the run; its value is never stored"),
        ));
    }
}

/// Launches on several devices of which some are MIG instances; an engine sees only one instance.
fn check_gpu_instances(plan: &Plan, host: &HostEnv, unmet: &mut BTreeSet<UnmetRequirement>) {
    let is_instance = |device: &u32| {
        let mut known = host.machine.devices.iter();
        known.any(|known| known.device == *device && known.instance.is_some())
    };
    if !host.devices.iter().any(is_instance) {
        return;
    }
    for launch in plan.launches.iter().filter(|launch| launch.devices > 1) {
        if !launch.is_attached() {
            unmet.insert(UnmetRequirement::new(
                format!(
                    "the launch `{}` needs {} GPUs, but GPU instances (MIG) cannot be combined",
                    launch.id, launch.devices
                ),
                "select whole GPUs with `--gpus`, or disable MIG on the GPUs that the launch uses",
            ));
        }
    }
}

/// A launch over more nodes than the job has.
fn check_nodes(launch: &Launch, host: &HostEnv, unmet: &mut BTreeSet<UnmetRequirement>) {
    let (needed, available) = (launch.nodes() as usize, host.job_nodes.names.len());
    if needed <= available.max(1) {
        return;
    }
    let place = match available {
        0 => "only a job that `matrix` submits can use several nodes".to_owned(),
        count => format!("this job has {}", pluralize(count, "node", "nodes")),
    };
    unmet.insert(UnmetRequirement::new(
        format!("the launch `{}` needs {needed} nodes, but {place}", launch.id),
        "submit the matrix as a job: `matrix run MATRIX --cluster NAME`",
    ));
}

/// Launches that need more GPUs than available.
fn check_devices(plan: &Plan, host: &HostEnv, unmet: &mut BTreeSet<UnmetRequirement>) {
    let (all, gpus) = (host.machine.gpus.len(), host.devices.len());
    let available = match gpus < all {
        true => format!("the run may use {gpus} of the {all} GPUs of this host"),
        false => format!("this host has {all}"),
    };
    let large: Vec<&Launch> = plan
        .launches
        .iter()
        .filter(|launch| launch.local_gpus() as usize > gpus && !launch.is_attached())
        .collect();
    let needed = large.iter().map(|launch| launch.local_gpus()).max().unwrap_or(0);
    let needed = match needed {
        1 => "1 GPU".to_owned(),
        n => format!("{n} GPUs"),
    };
    let names: Vec<String> = large
        .iter()
        .take(MAX_NAMED_LAUNCHES)
        .map(|launch| format!("`{}`", launch.id))
        .collect();
    let what = match &large[..] {
        [] => return,
        [_] => format!("the launch {} needs {needed}, but {available}", names[0]),
        all => {
            let more = match all.len() - names.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let names = names.join(", ");
            format!(
                "{} launches need up to {needed} each, but {available}; these launches are {names}{more}",
                all.len()
            )
        }
    };
    unmet.insert(UnmetRequirement::new(
        what,
        "exclude launches that need too many GPUs (`--only` or `exclude`), lower `tp`, or set `devices: none` if the engine needs no GPU",
    ));
}

/// Largest number of launches that one finding names.
const MAX_NAMED_LAUNCHES: usize = 3;

/// Data sets and tokenizers that cannot be opened; paths are relative to `folder`. Everything that
/// `matrix fetch` can download is one finding, because it is one command.
pub(crate) fn check_inputs(
    plan: &Plan,
    folder: &Path,
    caches: &Caches,
    matrix: &Path,
) -> Vec<UnmetRequirement> {
    let tokenizers: BTreeSet<&str> = plan
        .launches
        .iter()
        .map(|launch| launch.tokenizer.as_str())
        .collect();
    let tokenizers = tokenizers.into_iter().filter_map(|name| {
        let error = Tokenizer::open(name, folder, caches).err()?;
        Some((
            error.to_string(),
            "set another `tokenizer:` at the model (`built-in` needs no file)",
        ))
    });
    let files = plan.cells.iter().filter_map(|cell| {
        let work = &cell.scenario.workload;
        let error = dataset::locate(work, folder, caches).err()?.to_string();
        let error = match &work.dataset {
            Dataset::Random(_) => error.replacen(
                "`random`",
                "`random` (the data set `random` cuts its prompts from ShareGPT)",
                1,
            ),
            _ => error,
        };
        Some((error, "name the file in `datasets:` of the matrix"))
    });
    let items = public_tasks(plan).filter_map(|task| {
        let error = public::locate(task, caches).err()?;
        Some((
            error,
            "set `path` and `grader` of the task to use a file of your own",
        ))
    });
    let missing: BTreeSet<(String, &str)> = tokenizers.chain(files).chain(items).collect();
    group_inputs(&missing, matrix)
}

/// The public tasks whose items a plan sends.
pub(crate) fn public_tasks(plan: &Plan) -> impl Iterator<Item = PublicTask> {
    let scenarios = plan.cells.iter().map(|cell| &cell.scenario);
    let tasks = scenarios.flat_map(|scenario| scenario.quality.iter().flat_map(|quality| &quality.tasks));
    tasks.filter_map(|task| match task.source {
        TaskSource::Public { task, .. } => Some(task),
        _ => None,
    })
}

/// Groups missing inputs: those that one command downloads become one finding.
fn group_inputs(missing: &BTreeSet<(String, &str)>, matrix: &Path) -> Vec<UnmetRequirement> {
    let (fetched, others): (Vec<_>, Vec<_>) = missing
        .iter()
        .map(|(what, help)| {
            (
                what.split_once("\nfetch it with").map(|(what, _)| what),
                what,
                help,
            )
        })
        .partition(|(fetched, ..)| fetched.is_some());
    let mut unmet: Vec<UnmetRequirement> = others
        .into_iter()
        .map(|(_, what, help)| UnmetRequirement::new(what.clone(), *help))
        .collect();
    let whats: Vec<&str> = fetched.iter().filter_map(|(what, ..)| *what).collect();
    let command = format!("`matrix fetch {}`", matrix.display());
    match &whats[..] {
        [] => {}
        [what] => unmet.push(UnmetRequirement::new(
            *what,
            format!("download the missing file with {command}, or {}", fetched[0].2),
        )),
        _ => unmet.push(UnmetRequirement::new(
            format!("{} inputs are missing:\n  {}", whats.len(), whats.join("\n  ")),
            format!("download the missing files with {command}, or set another `tokenizer:` at the models (`built-in` needs no file) and name the files of the data sets in `datasets:`"),
        )),
    }
    unmet
}

/// Chat templates that the available tokenizers lack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MissingTemplates {
    /// A data set needs the template.
    pub(crate) needed: BTreeSet<UnmetRequirement>,
    /// A `chat` engine applies the template, and may have it from elsewhere.
    pub(crate) expected: BTreeSet<UnmetRequirement>,
}

/// Missing chat templates of a plan, for the tokenizers that are available; paths are relative to `folder`.
pub(crate) fn check_templates(plan: &Plan, folder: &Path, caches: &Caches) -> MissingTemplates {
    let mut unmet = MissingTemplates::default();
    let launches: BTreeMap<&LaunchId, &Launch> =
        plan.launches.iter().map(|launch| (&launch.id, launch)).collect();
    // A missing tokenizer is reported separately.
    let error = |name: &str| {
        let tokenizer = Tokenizer::find(name, folder, caches).ok()?;
        ChatTemplate::open(&tokenizer)
            .err()
            .map(|error| error.to_string())
    };
    let mut errors: BTreeMap<&str, Option<String>> = BTreeMap::new();
    for cell in &plan.cells {
        let launch = launches[&cell.launch];
        let workload = &cell.scenario.workload;
        let is_chat = launch.api.dialect.protocol.facts().template == ServerTemplate::Applied
            && !launch.engine.simulated;
        let template = workload.facts().template;
        if !is_chat && !template.is_needed() {
            continue;
        }
        let known = errors
            .entry(&launch.tokenizer)
            .or_insert_with(|| error(&launch.tokenizer));
        let Some(error) = known else {
            continue;
        };
        if template.is_needed() {
            let field = match template {
                TemplateUse::Requested => "`apply_chat_template`".to_owned(),
                _ => format!("the data set `{}`", workload.dataset.bench_serving_name()),
            };
            unmet.needed.insert(UnmetRequirement::new(
                format!(
                    "{field} of the scenario `{}` needs a chat template: {error}",
                    cell.scenario.name
                ),
                "set another `tokenizer:` at the model, or exclude the scenario with `--only` or `exclude`",
            ));
        } else if !sets_chat_template(launch) {
            unmet.expected.insert(UnmetRequirement::new(
                format!(
                    "the engine `{}` needs a chat template for its protocol `chat`; without one, requests fail: {error}",
                    launch.engine.name
                ),
                "set a chat template in the engine's arguments, such as `--chat-template`, or use a variant with the protocol `completions`",
            ));
        }
    }
    unmet
}

/// Whether the engine's arguments name a chat template.
fn sets_chat_template(launch: &Launch) -> bool {
    let args = launch.command_args(launch.default_port());
    args.iter().any(|word| word.as_str().contains("template"))
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("0.0.0.0", port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_command_gets_is_one_finding() {
        let help = "name the file in `datasets:` of the matrix";
        let missing = |whats: &[&str]| -> Vec<UnmetRequirement> {
            let missing = whats.iter().map(|what| ((*what).to_owned(), help)).collect();
            group_inputs(&missing, Path::new("m.yaml"))
        };
        let a = "no tokenizer found for `a`; searched x\nfetch it with `matrix fetch --tokenizer a`, or so";
        let b = "no data file found for `b`\nfetch it with `matrix fetch --dataset b`, or so";
        let other = "no data file found for `custom`\nset the scenario's `path` to a file of its format";
        assert_eq!(missing(&[]), []);
        let one = missing(&[a]);
        assert_eq!(one.len(), 1);
        assert_eq!(one[0].what, "no tokenizer found for `a`; searched x");
        assert!(
            one[0]
                .help
                .starts_with("download the missing file with `matrix fetch m.yaml`, or name"),
            "{}",
            one[0].help
        );
        let all = missing(&[a, b, other]);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].what, other);
        assert!(
            all[1]
                .what
                .starts_with("2 inputs are missing:\n  no data file found for `b`\n  no tokenizer"),
            "{}",
            all[1].what
        );
        assert!(
            all[1]
                .help
                .starts_with("download the missing files with `matrix fetch m.yaml`"),
            "{}",
            all[1].help
        );
    }
}
