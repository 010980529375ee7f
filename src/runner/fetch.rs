//! Fetches what a matrix lacks: files of the model hub, and data sets of other hosts.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::redirect::Policy;
use thiserror::Error;
use tokio::runtime::Runtime;

use crate::config::dataset::{DatasetName, PublishedFile, WebFile};
use crate::config::quality::PublicTask;
use crate::loadgen::dataset::tokenizer::Tokenizer;
use crate::loadgen::dataset::{self, Caches};
use crate::loadgen::hf_hub::{FetchResult, Hub, HubError, HubFile, RepositoryKind};
use crate::plan::Plan;
use crate::runner::host_error::{self, HostError};
use crate::runner::load_matrix::LoadedMatrix;
use crate::runner::preflight::public_tasks;

/// The files of a tokenizer, and whether a repository may lack them.
const TOKENIZER_FILES: [(&str, bool); 6] = [
    ("tokenizer.json", false),
    ("tokenizer_config.json", true),
    ("chat_template.jinja", true),
    ("chat_template.json", true),
    ("special_tokens_map.json", true),
    ("config.json", true),
];

pub(crate) struct FetchRequest<'a> {
    /// The address of the hub.
    pub(crate) endpoint: &'a str,
    /// Token for private and gated files.
    pub(crate) token: Option<String>,
    /// Hugging Face's cache folder.
    pub(crate) home: PathBuf,
    pub(crate) tokenizers: &'a [String],
    pub(crate) datasets: Vec<DatasetName>,
    /// A matrix, of which everything that is missing is fetched.
    pub(crate) matrix: Option<LoadedMatrix>,
    /// Whether the weights of the matrix's models are downloaded too.
    pub(crate) models: bool,
}

/// Progress of a download.
pub(crate) enum FetchEvent<'a> {
    FileBegan {
        name: &'a str,
    },
    Progress {
        bytes: u64,
        total: u64,
    },
    FileEnded,
    Existing {
        name: &'a str,
        path: &'a Path,
    },
    Downloaded {
        name: &'a str,
        path: &'a Path,
        bytes: u64,
    },
    Failed(FetchError),
    /// The hub cannot be reached, so this many other files were not tried.
    NotTried(usize),
}

/// Why something could not be downloaded.
#[derive(Debug, Error)]
pub(crate) enum FetchError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("cannot create an HTTP client")]
    Client(#[source] reqwest::Error),
    #[error(transparent)]
    Hub(HubError),
    #[error("cannot fetch `{url}`")]
    Trace { url: String, source: reqwest::Error },
    #[error(transparent)]
    TraceBody(reqwest::Error),
    #[error("cannot save the trace")]
    Save(#[source] std::io::Error),
    #[error("cannot save `{}`", .place.display())]
    SaveAs {
        place: PathBuf,
        source: tempfile::PersistError,
    },
}

/// Downloads what is missing and reports progress. Returns whether anything was missing. The failure of a
/// single file is an event, not an error.
pub(crate) fn fetch(
    request: &FetchRequest<'_>,
    report: &mut dyn FnMut(FetchEvent<'_>),
) -> Result<bool, FetchError> {
    let hub = open_hub(request)?;
    let runtime = host_error::small_runtime()?;
    let (files, pages) = missing_files(request, &hub, &runtime)?;
    if files.is_empty() && pages.is_empty() {
        return Ok(false);
    }
    fetch_files(&hub, &runtime, &files, report);
    for page in pages {
        runtime.block_on(fetch_page(&hub.http, &page, report));
    }
    Ok(true)
}

fn open_hub(request: &FetchRequest<'_>) -> Result<Hub, FetchError> {
    // The first user of TLS installs the crypto provider.
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
        no_redirect_http: client(Policy::none())?,
    })
}

/// The files of the hub and of other hosts that are missing.
fn missing_files(
    request: &FetchRequest<'_>,
    hub: &Hub,
    runtime: &Runtime,
) -> Result<(BTreeSet<HubFile>, BTreeSet<WebFile>), FetchError> {
    let caches = Caches {
        hf_home: Some(hub.home.clone()),
        prompts: None,
    };
    let tokenizers = request.tokenizers.iter().flat_map(|name| tokenizer_files(name));
    let mut wanted_files: BTreeSet<HubFile> = tokenizers.collect();
    let datasets = request.datasets.iter().map(|name| name.default_dataset());
    let files = datasets.filter_map(|dataset| dataset.facts().file);
    let mut files: Vec<PublishedFile> = files.flat_map(|file| file.published).collect();
    if let Some(LoadedMatrix { plan, folder, .. }) = &request.matrix {
        files.extend(lacking_files(plan, folder, &caches));
        wanted_files.extend(lacking_tokenizers(plan, folder, &caches));
    }
    let mut pages: BTreeSet<WebFile> = BTreeSet::new();
    for file in files {
        match file {
            PublishedFile::Hub { repository, file } => drop(wanted_files.insert(HubFile {
                kind: RepositoryKind::Dataset,
                repository: repository.to_owned(),
                file: file.to_owned(),
                is_optional: false,
            })),
            PublishedFile::Web(page) => drop(pages.insert(page)),
        }
    }
    if let (Some(LoadedMatrix { plan, folder, .. }), true) = (&request.matrix, request.models) {
        let launches = plan.launches.iter();
        let ids: BTreeSet<&str> = launches.map(|launch| launch.checkpoint.as_str()).collect();
        for id in ids.into_iter().filter(|id| is_repository(id, folder)) {
            let files = runtime.block_on(hub.list(RepositoryKind::Model, id));
            wanted_files.extend(files.map_err(FetchError::Hub)?);
        }
    }
    Ok((wanted_files, pages))
}

/// Downloads files of the hub until it cannot be reached.
fn fetch_files(
    hub: &Hub,
    runtime: &Runtime,
    files: &BTreeSet<HubFile>,
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
            Ok(FetchResult::AlreadyPresent(path)) => report(FetchEvent::Existing { name, path: &path }),
            Ok(FetchResult::Downloaded { path, bytes }) => report(FetchEvent::Downloaded {
                name,
                path: &path,
                bytes,
            }),
            Ok(FetchResult::Absent) => {}
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

fn tokenizer_files(name: &str) -> impl Iterator<Item = HubFile> + use<'_> {
    TOKENIZER_FILES.iter().map(move |(file, is_optional)| HubFile {
        kind: RepositoryKind::Model,
        repository: name.to_owned(),
        file: (*file).to_owned(),
        is_optional: *is_optional,
    })
}

/// Fetches a file to the path where the Python tool looks for it, too.
async fn fetch_page(http: &reqwest::Client, page: &WebFile, report: &mut dyn FnMut(FetchEvent<'_>)) {
    let (name, path) = (page.name(), &page.path);
    if path.is_file() {
        return report(FetchEvent::Existing { name, path });
    }
    match download(http, page).await {
        Ok(bytes) => report(FetchEvent::Downloaded { name, path, bytes }),
        Err(error) => report(FetchEvent::Failed(error)),
    }
}

/// Downloads a file, and returns its size in bytes.
async fn download(http: &reqwest::Client, page: &WebFile) -> Result<u64, FetchError> {
    let (url, place) = (page.url.clone(), &page.path);
    let answer = http
        .get(&url)
        .send()
        .await
        .and_then(reqwest::Response::error_for_status)
        .map_err(|source| FetchError::Trace { url, source })?;
    let bytes = answer.bytes().await.map_err(FetchError::TraceBody)?;
    let folder = place.parent().expect("the path of a trace has a folder");
    // The umask still applies: other users of this host may read the file too.
    let file = tempfile::Builder::new()
        .permissions(std::fs::Permissions::from_mode(0o666))
        .tempfile_in(folder)
        .map_err(FetchError::Save)?;
    std::fs::write(file.path(), &bytes).map_err(FetchError::Save)?;
    file.persist(place).map_err(|source| FetchError::SaveAs {
        place: place.to_owned(),
        source,
    })?;
    Ok(bytes.len() as u64)
}

/// The published files of data sets and tasks that a plan sends and that are not here.
fn lacking_files(plan: &Plan, folder: &Path, caches: &Caches) -> Vec<PublishedFile> {
    let works = plan.cells.iter().map(|cell| &cell.scenario.workload);
    let unnamed = works.filter(|work| work.path.is_none());
    let of_datasets = unnamed
        .filter(|work| dataset::locate(work, folder, caches).is_err())
        .filter_map(|work| work.facts().file?.default);
    let of_tasks = public_tasks(plan).map(PublicTask::file);
    of_datasets
        .chain(of_tasks.filter(|file| dataset::locate_published(file, caches).is_err()))
        .collect()
}

/// The tokenizers of a plan that are not here and that the hub may have.
fn lacking_tokenizers(plan: &Plan, folder: &Path, caches: &Caches) -> impl Iterator<Item = HubFile> {
    let names = plan.launches.iter().map(|launch| launch.tokenizer.as_str());
    let lacking = names
        .filter(move |name| is_repository(name, folder) && Tokenizer::open(name, folder, caches).is_err());
    lacking.flat_map(tokenizer_files)
}

/// Whether a name can be a repository of the hub: `owner/name`, and not a path on this host.
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
