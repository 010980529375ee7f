//! Checks before the first engine starts that the host can measure; reports everything that is missing at
//! once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::Path;

use futures_util::future::join_all;

use crate::base::ids::LaunchId;
use crate::config::dataset::{Dataset, TemplateUse};
use crate::engine::{self, Wanted};
use crate::loadgen::dataset::template::ChatTemplate;
use crate::loadgen::dataset::tokenizer::Tokenizer;
use crate::loadgen::dataset::{self, Caches};
use crate::plan::{Launch, Plan, Protocol};
use crate::runner::context::Host;
use crate::runner::gpu_idle;

/// Something that prevents measuring.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub what: String,
    /// How to fix it.
    pub help: String,
}

impl Finding {
    fn new(what: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            help: help.into(),
        }
    }

    /// The finding as a note, for cases in which it prevents nothing.
    pub(crate) fn note(&self) -> String {
        format!("note: {}\n  = help: {}\n", self.what, self.help)
    }
}

/// Paths from the command line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places<'a> {
    pub matrix: &'a Path,
    /// The results folder.
    pub results: &'a Path,
}

/// Everything that is missing for a plan.
pub(crate) async fn findings(
    plan: &Plan,
    host: &Host,
    places: Places<'_>,
    tell: &(dyn Fn(String) + Sync),
) -> Vec<Finding> {
    let Places { matrix, results } = places;
    let mut found = BTreeSet::new();
    containers(plan, host, tell, &mut found).await;
    servers(plan, host, &mut found).await;
    devices(plan, host, &mut found);
    instances(plan, host, &mut found);
    for (what, help) in gpu_idle::unfit(plan, host).await {
        found.insert(Finding::new(what, help));
    }
    for launch in &plan.launches {
        secrets(launch, host, &mut found);
        if engine::takes_port(launch) {
            port(launch, &mut found);
        }
        if let Some(lack) = engine::host_lacks(launch, host.path.as_deref()) {
            found.insert(Finding::new(lack.what, lack.help));
        }
    }
    found.extend(inputs(plan, &host.folder, &host.caches(), matrix));
    found.extend(templates(plan, &host.folder, &host.caches()).needed);
    if let Some(limit) = host.machine.open_files {
        let wanted = plan.cells.iter().map(|cell| {
            let all = u64::from(cell.scenario.workload.prompts);
            cell.scenario
                .arrival
                .concurrency
                .map_or(all, |users| u64::from(users.get()).min(all))
        });
        let wanted = wanted.max().unwrap_or(0) + 200;
        if wanted > limit {
            found.insert(Finding::new(
                format!("{wanted} open files may be needed, and {limit} are allowed"),
                "raise the hard limit (`ulimit -Hn`), or cap `concurrency`",
            ));
        }
    }
    let room = std::fs::create_dir_all(results).and_then(|()| {
        let stat = rustix::fs::statvfs(results)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    });
    match room {
        Err(error) => {
            found.insert(Finding::new(
                format!("the folder {} cannot be written: {error}", results.display()),
                "choose another one with `--results`",
            ));
        }
        Ok(bytes) if bytes < 256 << 20 => {
            found.insert(Finding::new(
                format!(
                    "only {} MiB are free for results in {}",
                    bytes >> 20,
                    results.display()
                ),
                "make room, or choose another folder with `--results`",
            ));
        }
        Ok(_) => {}
    }
    found.into_iter().collect()
}

/// Problems of the container daemon and the images, for launches in containers.
async fn containers(plan: &Plan, host: &Host, tell: &(dyn Fn(String) + Sync), found: &mut BTreeSet<Finding>) {
    let wanted = Wanted {
        launches: plan.launches.iter().collect(),
        whereabouts: &host.whereabouts,
        cache: &host.cache,
        images: &host.images,
        hf_home: host.hf_home.as_deref(),
        folder: &host.folder,
        tell,
        secrets: &|name| host.secrets.get(name).cloned(),
    };
    for lack in engine::container_lacks(&wanted).await {
        found.insert(Finding::new(lack.what, lack.help));
    }
}

/// Attached servers that do not answer.
async fn servers(plan: &Plan, host: &Host, found: &mut BTreeSet<Finding>) {
    let secret = |name: &str| host.secrets.get(name).cloned();
    let asked = plan
        .launches
        .iter()
        .map(|launch| engine::unreachable(launch, &secret, &host.http));
    for lack in join_all(asked).await.into_iter().flatten() {
        found.insert(Finding::new(lack.what, lack.help));
    }
}

fn port(launch: &Launch, found: &mut BTreeSet<Finding>) {
    if let Some(port) = launch.contact.port.fixed.filter(|port| !is_free(*port)) {
        found.insert(Finding::new(
            format!("port {port} of engine `{}` is taken", launch.engine.name),
            "stop what listens there, or take `port:` out: then a free one is chosen",
        ));
    }
}

fn secrets(launch: &Launch, host: &Host, found: &mut BTreeSet<Finding>) {
    for name in launch
        .secrets()
        .iter()
        .filter(|name| !host.secrets.contains_key(*name))
    {
        found.insert(Finding::new(
            format!(
                "the environment variable `{name}` is not set, and engine `{}` needs it",
                launch.engine.name
            ),
            format!("export {name}=… before the run; its value is never written down"),
        ));
    }
}

/// Launches on several devices of which some are MIG instances; an engine sees only one instance.
fn instances(plan: &Plan, host: &Host, found: &mut BTreeSet<Finding>) {
    let is_instance = |device: &u32| {
        let mut known = host.machine.devices.iter();
        known.any(|known| known.device == *device && known.instance.is_some())
    };
    if !host.devices.iter().any(is_instance) {
        return;
    }
    for launch in plan.launches.iter().filter(|launch| launch.devices > 1) {
        if !launch.is_attached() {
            found.insert(Finding::new(
                format!(
                    "the launch `{}` needs {} GPUs, and instances of a GPU (MIG) cannot be combined",
                    launch.id, launch.devices
                ),
                "name whole GPUs with `--gpus`, or turn MIG off on those that it is to use",
            ));
        }
    }
}

/// Launches that need more GPUs than available.
fn devices(plan: &Plan, host: &Host, found: &mut BTreeSet<Finding>) {
    let (all, gpus) = (host.machine.gpus.len(), host.devices.len());
    let there = match gpus < all {
        true => format!("the run may use {gpus} of {all}"),
        false => format!("this host has {all}"),
    };
    let large: Vec<&Launch> = plan
        .launches
        .iter()
        .filter(|launch| launch.devices as usize > gpus && !launch.is_attached())
        .collect();
    let needed = large.iter().map(|launch| launch.devices).max().unwrap_or(0);
    let needed = match needed {
        1 => "1 GPU".to_owned(),
        n => format!("{n} GPUs"),
    };
    let names: Vec<String> = large
        .iter()
        .take(NAMED)
        .map(|launch| format!("`{}`", launch.id))
        .collect();
    let what = match &large[..] {
        [] => return,
        [_] => format!("the launch {} needs {needed}, and {there}", names[0]),
        all => {
            let more = match all.len() - names.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let names = names.join(", ");
            format!(
                "{} launches need up to {needed}, and {there}: {names}{more}",
                all.len()
            )
        }
    };
    found.insert(Finding::new(
        what,
        "leave them out with `--only` or `exclude`, lower `tp`, or say `devices: none` for an engine that runs without",
    ));
}

/// Largest number of launches that one finding names.
const NAMED: usize = 3;

/// Data sets and tokenizers that cannot be opened; paths are relative to `folder`. Everything that
/// `matrix fetch` can download is one finding, because it is one command.
pub(crate) fn inputs(plan: &Plan, folder: &Path, caches: &Caches, matrix: &Path) -> Vec<Finding> {
    let tokenizers: BTreeSet<&str> = plan
        .launches
        .iter()
        .map(|launch| launch.tokenizer.as_str())
        .collect();
    let tokenizers = tokenizers.into_iter().filter_map(|name| {
        let error = Tokenizer::open(name, folder, caches).err()?;
        Some((
            error.to_string(),
            "or name another one with `tokenizer:` at the model",
        ))
    });
    let files = plan.cells.iter().filter_map(|cell| {
        let work = &cell.scenario.workload;
        let error = dataset::locate(work, folder, caches).err()?.to_string();
        let error = match &work.dataset {
            Dataset::Random(_) => {
                error.replacen("`random`", "`random`, which cuts its prompts from ShareGPT", 1)
            }
            _ => error,
        };
        Some((error, "or name the file in `datasets:` of the matrix"))
    });
    let missing: BTreeSet<(String, &str)> = tokenizers.chain(files).collect();
    grouped(&missing, matrix)
}

/// Groups missing inputs: those that one command downloads become one finding.
fn grouped(missing: &BTreeSet<(String, &str)>, matrix: &Path) -> Vec<Finding> {
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
    let mut found: Vec<Finding> = others
        .into_iter()
        .map(|(_, what, help)| Finding::new(what.clone(), *help))
        .collect();
    let whats: Vec<&str> = fetched.iter().filter_map(|(what, ..)| *what).collect();
    let command = format!("`matrix fetch {}`", matrix.display());
    match &whats[..] {
        [] => {}
        [what] => found.push(Finding::new(
            *what,
            format!("get it with {command}, {}", fetched[0].2),
        )),
        _ => found.push(Finding::new(
            format!("{} inputs are missing:\n  {}", whats.len(), whats.join("\n  ")),
            format!("get them all with {command}, or name others with `tokenizer:` at the models and in `datasets:`"),
        )),
    }
    found
}

/// Chat templates that the available tokenizers lack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Untemplated {
    /// A data set needs the template.
    pub needed: BTreeSet<Finding>,
    /// A `chat` engine applies the template, and may have it from elsewhere.
    pub expected: BTreeSet<Finding>,
}

/// Missing chat templates of a plan, for the tokenizers that are available; paths are relative to `folder`.
pub(crate) fn templates(plan: &Plan, folder: &Path, caches: &Caches) -> Untemplated {
    let mut found = Untemplated::default();
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
        let is_chat = launch.contact.dialect.protocol == Protocol::Chat && !launch.engine.simulated;
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
            found.needed.insert(Finding::new(
                format!(
                    "{field} of the scenario `{}` needs a chat template: {error}",
                    cell.scenario.name
                ),
                "or name another one with `tokenizer:` at the model, or leave the scenario out with `--only` or `exclude`",
            ));
        } else if !names_template(launch) {
            found.expected.insert(Finding::new(
                format!(
                    "the engine `{}` is asked by `chat`, and answers nothing if it finds no chat template either: {error}",
                    launch.engine.name
                ),
                "or give the engine one in its arguments, such as `--chat-template`, or use a variant with the protocol `completions`",
            ));
        }
    }
    found
}

/// Whether the engine's arguments name a chat template.
fn names_template(launch: &Launch) -> bool {
    let words = launch.argv(launch.usual_port());
    words.iter().any(|word| word.as_str().contains("template"))
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("0.0.0.0", port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_command_gets_is_one_finding() {
        let help = "or name the file in `datasets:` of the matrix";
        let missing = |whats: &[&str]| -> Vec<Finding> {
            let missing = whats.iter().map(|what| ((*what).to_owned(), help)).collect();
            grouped(&missing, Path::new("m.yaml"))
        };
        let a = "no tokenizer for `a`; looked at x\nfetch it with `matrix fetch --tokenizer a`, or so";
        let b = "no data file for `b`\nfetch it with `matrix fetch --dataset b`, or so";
        let other = "no data file for `custom`\nname a file of its format";
        assert_eq!(missing(&[]), []);
        let one = missing(&[a]);
        assert_eq!(one.len(), 1);
        assert_eq!(one[0].what, "no tokenizer for `a`; looked at x");
        assert!(
            one[0]
                .help
                .starts_with("get it with `matrix fetch m.yaml`, or name"),
            "{}",
            one[0].help
        );
        let all = missing(&[a, b, other]);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].what, other);
        assert!(
            all[1]
                .what
                .starts_with("2 inputs are missing:\n  no data file for `b`\n  no tokenizer"),
            "{}",
            all[1].what
        );
        assert!(
            all[1].help.starts_with("get them all with `matrix fetch m.yaml`"),
            "{}",
            all[1].help
        );
    }
}
