//! Fetches what a matrix lacks: files of the model hub, and Mooncake's traces.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::redirect::Policy;
use thiserror::Error;
use tokio::runtime::Runtime;

use crate::config::dataset_options::MooncakeTrace;
use crate::config::workload::Dataset;
use crate::loadgen::dataset::tokenizer::Tokenizer;
use crate::loadgen::dataset::{self, Caches};
use crate::loadgen::hf_hub::{Fetched, Hub, HubError, Kind, Wanted};
use crate::plan::Plan;
use crate::runner::host_error::{self, HostError};
use crate::runner::load_matrix::LoadedMatrix;

/// The files that make a tokenizer, and whether a repository may lack one.
const TOKENIZER: [(&str, bool); 6] = [
    ("tokenizer.json", false),
    ("tokenizer_config.json", true),
    ("chat_template.jinja", true),
    ("chat_template.json", true),
    ("special_tokens_map.json", true),
    ("config.json", true),
];

/// What to fetch.
pub(crate) struct FetchRequest<'a> {
    /// The address of the hub.
    pub(crate) endpoint: &'a str,
    /// The token for private and gated files.
    pub(crate) token: Option<String>,
    /// The folder of Hugging Face's cache.
    pub(crate) home: PathBuf,
    /// Names of tokenizers.
    pub(crate) tokenizers: &'a [String],
    pub(crate) datasets: Vec<Dataset>,
    /// A matrix, of which everything that is missing is fetched.
    pub(crate) matrix: Option<LoadedMatrix>,
    /// Whether the weights of the matrix's models are fetched too.
    pub(crate) models: bool,
}

/// What happens while files are fetched.
pub(crate) enum FetchEvent<'a> {
    FileBegan {
        name: &'a str,
    },
    Progress {
        bytes: u64,
        total: u64,
    },
    FileEnded,
    /// The file existed already.
    Kept {
        name: &'a str,
        path: &'a Path,
    },
    Downloaded {
        name: &'a str,
        path: &'a Path,
        bytes: u64,
    },
    Failed(FetchError),
    /// The hub cannot be reached, so that this many other files of it are not tried.
    NotTried(usize),
}

/// Why something cannot be fetched.
#[derive(Debug, Error)]
pub(crate) enum FetchError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("cannot make a client")]
    Client(#[source] reqwest::Error),
    #[error(transparent)]
    Hub(HubError),
    #[error("cannot fetch `{url}`")]
    Trace { url: String, source: reqwest::Error },
    #[error(transparent)]
    TraceBody(reqwest::Error),
    #[error("cannot keep the trace")]
    Keep(#[source] std::io::Error),
    #[error("cannot keep `{}`", .place.display())]
    KeepAs {
        place: PathBuf,
        source: tempfile::PersistError,
    },
}

/// Fetches what is missing, and reports how it goes. Returns whether anything was missing.
///
/// # Errors
/// Nothing could be fetched at all. The failure of a single file is an event.
pub(crate) fn fetch(
    request: &FetchRequest<'_>,
    report: &mut dyn FnMut(FetchEvent<'_>),
) -> Result<bool, FetchError> {
    let hub = hub(request)?;
    let runtime = host_error::small_runtime()?;
    let (files, traces) = missing(request, &hub, &runtime)?;
    if files.is_empty() && traces.is_empty() {
        return Ok(false);
    }
    fetch_files(&hub, &runtime, &files, report);
    for trace in traces {
        runtime.block_on(fetch_trace(&hub.http, trace, report));
    }
    Ok(true)
}

fn hub(request: &FetchRequest<'_>) -> Result<Hub, FetchError> {
    // The first user of TLS installs the provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = |policy: Policy| {
        reqwest::Client::builder()
            .redirect(policy)
            .connect_timeout(Duration::from_secs(20))
            .read_timeout(Duration::from_secs(60))
            .build()
            .map_err(FetchError::Client)
    };
    Ok(Hub {
        endpoint: request.endpoint.trim_end_matches('/').to_owned(),
        token: request.token.clone(),
        home: request.home.clone(),
        http: client(Policy::limited(10))?,
        direct: client(Policy::none())?,
    })
}

/// The files of the hub and the traces that are missing.
fn missing(
    request: &FetchRequest<'_>,
    hub: &Hub,
    runtime: &Runtime,
) -> Result<(BTreeSet<Wanted>, BTreeSet<MooncakeTrace>), FetchError> {
    let caches = Caches {
        hf_home: Some(hub.home.clone()),
        prompts: None,
    };
    let tokenizers = request.tokenizers.iter().flat_map(|name| tokenizer_files(name));
    let datasets = request.datasets.iter();
    let files = datasets.filter_map(|dataset| dataset::usual_file(*dataset));
    let mut wanted: BTreeSet<Wanted> = tokenizers.chain(files.map(dataset_file)).collect();
    let mut traces: BTreeSet<MooncakeTrace> = BTreeSet::new();
    if request.datasets.contains(&Dataset::Mooncake) {
        traces.extend(MooncakeTrace::ALL);
    }
    let Some(LoadedMatrix { plan, folder, .. }) = &request.matrix else {
        return Ok((wanted, traces));
    };
    wanted.extend(lacking(plan, folder, &caches));
    traces.extend(lacking_traces(plan, folder, &caches));
    if request.models {
        let launches = plan.launches.iter();
        let ids: BTreeSet<&str> = launches.map(|launch| launch.checkpoint.as_str()).collect();
        for id in ids.into_iter().filter(|id| is_repository(id, folder)) {
            let files = runtime.block_on(hub.list(Kind::Model, id));
            wanted.extend(files.map_err(FetchError::Hub)?);
        }
    }
    Ok((wanted, traces))
}

/// Fetches files of the hub until it cannot be reached.
fn fetch_files(
    hub: &Hub,
    runtime: &Runtime,
    files: &BTreeSet<Wanted>,
    report: &mut dyn FnMut(FetchEvent<'_>),
) {
    for (index, file) in files.iter().enumerate() {
        let name = &format!("{}/{}", file.repository, file.file);
        report(FetchEvent::FileBegan { name });
        let fetched = runtime.block_on(hub.fetch(file, |bytes, all| {
            report(FetchEvent::Progress {
                bytes,
                total: all.unwrap_or(bytes),
            });
        }));
        report(FetchEvent::FileEnded);
        match fetched {
            Ok(Fetched::Kept(path)) => report(FetchEvent::Kept { name, path: &path }),
            Ok(Fetched::Downloaded { path, bytes }) => report(FetchEvent::Downloaded {
                name,
                path: &path,
                bytes,
            }),
            Ok(Fetched::Absent) => {}
            Err(error) => {
                let is_away = matches!(error, HubError::Unreachable { .. });
                report(FetchEvent::Failed(FetchError::Hub(error)));
                if is_away {
                    report(FetchEvent::NotTried(files.len() - index - 1));
                    break;
                }
            }
        }
    }
}

fn dataset_file((repository, file): (&str, &str)) -> Wanted {
    Wanted {
        kind: Kind::Dataset,
        repository: repository.to_owned(),
        file: file.to_owned(),
        is_optional: false,
    }
}

fn tokenizer_files(name: &str) -> impl Iterator<Item = Wanted> {
    TOKENIZER.iter().map(move |(file, is_optional)| Wanted {
        kind: Kind::Model,
        repository: name.to_owned(),
        file: (*file).to_owned(),
        is_optional: *is_optional,
    })
}

/// The traces of Mooncake that a plan sends and that are not here.
fn lacking_traces(plan: &Plan, folder: &Path, caches: &Caches) -> BTreeSet<MooncakeTrace> {
    let works = plan.cells.iter().map(|cell| &cell.scenario.workload);
    let usual = works.filter(|work| work.dataset == Dataset::Mooncake && work.path.is_none());
    usual
        .filter(|work| dataset::locate(work, folder, caches).is_err())
        .map(|work| work.mooncake().trace)
        .collect()
}

/// Fetches a trace to the path where the Python tool looks for it, too.
async fn fetch_trace(http: &reqwest::Client, trace: MooncakeTrace, report: &mut dyn FnMut(FetchEvent<'_>)) {
    let (name, path) = (trace.file(), &dataset::mooncake_place(trace));
    if path.is_file() {
        return report(FetchEvent::Kept { name, path });
    }
    match download_trace(http, trace, path).await {
        Ok(bytes) => report(FetchEvent::Downloaded { name, path, bytes }),
        Err(error) => report(FetchEvent::Failed(error)),
    }
}

/// Downloads a trace, and returns its size in bytes.
async fn download_trace(
    http: &reqwest::Client,
    trace: MooncakeTrace,
    place: &Path,
) -> Result<u64, FetchError> {
    let url = trace.url();
    let answer = http
        .get(&url)
        .send()
        .await
        .and_then(reqwest::Response::error_for_status)
        .map_err(|source| FetchError::Trace { url, source })?;
    let bytes = answer.bytes().await.map_err(FetchError::TraceBody)?;
    let folder = place.parent().expect("the path of a trace has a folder");
    // The umask still applies: other users of this host read the file too.
    let file = tempfile::Builder::new()
        .permissions(std::fs::Permissions::from_mode(0o666))
        .tempfile_in(folder)
        .map_err(FetchError::Keep)?;
    std::fs::write(file.path(), &bytes).map_err(FetchError::Keep)?;
    file.persist(place).map_err(|source| FetchError::KeepAs {
        place: place.to_owned(),
        source,
    })?;
    Ok(bytes.len() as u64)
}

/// The data sets and tokenizers of a plan that are not here and that the hub may have.
fn lacking(plan: &Plan, folder: &Path, caches: &Caches) -> BTreeSet<Wanted> {
    let mut wanted = BTreeSet::new();
    for cell in &plan.cells {
        let work = &cell.scenario.workload;
        let usual = dataset::usual_file(work.dataset).filter(|_| work.path.is_none());
        if let Some((repository, file)) = usual
            && dataset::locate(work, folder, caches).is_err()
        {
            wanted.insert(dataset_file((repository, file)));
        }
    }
    for launch in &plan.launches {
        let name = &launch.tokenizer;
        if is_repository(name, folder) && Tokenizer::open(name, folder, caches).is_err() {
            wanted.extend(tokenizer_files(name));
        }
    }
    wanted
}

/// Whether a name can be a repository of the hub: `owner/name`, and no path of this host.
fn is_repository(name: &str, folder: &Path) -> bool {
    let fits = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    name.split('/').count() == 2 && name.split('/').all(fits) && !folder.join(name).exists()
}
