//! Is this machine fit to measure: everything that is missing, named at once, before the first engine starts.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::Path;

use crate::engine::{self, Wanted};
use crate::load::dataset::template::ChatTemplate;
use crate::load::dataset::tokenizer::Tokenizer;
use crate::load::dataset::{self, Caches};
use crate::matrix::plan::{Launch, Place, Plan, Protocol};
use crate::run::{Host, hygiene};

/// Something that keeps the machine from measuring.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// What is missing.
    pub what: String,
    /// How to mend it.
    pub help: String,
}

impl Finding {
    fn new(what: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            help: help.into(),
        }
    }

    /// It as a note, for where it keeps nobody from anything.
    pub fn note(&self) -> String {
        format!("note: {}\n  = help: {}\n", self.what, self.help)
    }
}

/// Everything that is missing for a plan.
pub async fn findings(
    plan: &Plan,
    host: &Host,
    results: &Path,
    tell: &(dyn Fn(String) + Sync),
) -> Vec<Finding> {
    let mut found = BTreeSet::new();
    containers(plan, host, tell, &mut found).await;
    for (what, help) in hygiene::unfit(plan, host).await {
        found.insert(Finding::new(what, help));
    }
    for launch in &plan.launches {
        secrets(launch, host, &mut found);
        devices(launch, host, &mut found);
        match &launch.place {
            Place::Container(_) => port(launch, &mut found),
            Place::Process(process) => {
                if process.venv.is_none()
                    && let Some(program) = process.command.first()
                    && program.holes().next().is_none()
                    && !is_program(program.as_str(), host.path.as_deref())
                {
                    found.insert(Finding::new(
                        format!(
                            "the program `{program}` of engine `{}` is not in PATH",
                            launch.engine.name
                        ),
                        "install it, or give its environment with `venv:`",
                    ));
                }
                port(launch, &mut found);
            }
            Place::Attach(_) => {}
            Place::Imported(_) => {
                found.insert(Finding::new(
                    format!("the launch `{}` was imported and cannot be started", launch.id),
                    "write a matrix for it",
                ));
            }
        }
    }
    inputs(plan, host, &mut found);
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

/// What the container daemon lacks for the launches that run in containers.
async fn containers(plan: &Plan, host: &Host, tell: &(dyn Fn(String) + Sync), found: &mut BTreeSet<Finding>) {
    let wanted = Wanted {
        launches: plan.launches.iter().collect(),
        whereabouts: &host.whereabouts,
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

fn devices(launch: &Launch, host: &Host, found: &mut BTreeSet<Finding>) {
    let gpus = host.machine.gpus.len();
    if launch.devices as usize > gpus && !matches!(launch.place, Place::Attach(_)) {
        found.insert(Finding::new(
            format!("the launch `{}` needs {} GPUs, and this host has {gpus}", launch.id, launch.devices),
            "leave it out with `--only` or `exclude`, lower `tp`, or say `devices: none` for an engine that runs without",
        ));
    }
}

/// Data sets and tokenizers that cannot be opened.
fn inputs(plan: &Plan, host: &Host, found: &mut BTreeSet<Finding>) {
    let caches = host.caches();
    let tokenizers: BTreeSet<&str> = plan
        .launches
        .iter()
        .map(|launch| launch.tokenizer.as_str())
        .collect();
    for name in tokenizers {
        if let Err(error) = Tokenizer::open(name, &host.folder, &caches) {
            found.insert(Finding::new(
                error.to_string(),
                "or name another one with `tokenizer:` at the model",
            ));
        }
    }
    for cell in &plan.cells {
        let work = &cell.scenario.workload;
        if let Err(error) = dataset::locate(work, &host.folder, &caches) {
            found.insert(Finding::new(
                error.to_string(),
                "or name the file in `datasets:` of the matrix",
            ));
        }
    }
}

/// Chat templates that tokenizers at hand do not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Untemplated {
    /// A data set needs one here.
    pub needed: BTreeSet<Finding>,
    /// An engine that speaks `chat` is to apply one, and may have it from elsewhere.
    pub expected: BTreeSet<Finding>,
}

/// Which chat templates are missing for a plan, as far as its tokenizers are at hand; `folder` is where paths begin.
pub fn templates(plan: &Plan, folder: &Path, caches: &Caches) -> Untemplated {
    let mut found = Untemplated::default();
    for cell in &plan.cells {
        let launch = plan.launch(&cell.launch);
        let workload = &cell.scenario.workload;
        let is_chat = launch.contact.dialect.protocol == Protocol::Chat && !launch.engine.simulated;
        if !is_chat && !workload.needs_template() {
            continue;
        }
        // One that is not there is told of by itself.
        let Ok(tokenizer) = Tokenizer::find(&launch.tokenizer, folder, caches) else {
            continue;
        };
        let Err(error) = ChatTemplate::open(&tokenizer) else {
            continue;
        };
        if workload.needs_template() {
            let field = match workload.apply_chat_template {
                true => "`apply_chat_template`".to_owned(),
                false => format!("the data set `{}`", workload.dataset.bench_serving_name()),
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

/// Whether the engine's arguments say where a chat template is.
fn names_template(launch: &Launch) -> bool {
    let words = launch.argv(launch.usual_port());
    words.iter().any(|word| word.as_str().contains("template"))
}

/// Whether a program can be found: by its path, or in `PATH`.
fn is_program(program: &str, path: Option<&str>) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    path.unwrap_or_default()
        .split(':')
        .any(|folder| Path::new(folder).join(program).is_file())
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("0.0.0.0", port)).is_ok()
}
