//! Downloads files from the model hub into the cache layout of the hub's own tools, so that other tools find
//! them too.
//!
//! An interrupted download is resumed. A file is checked against the hub's digest and becomes visible only
//! when it is complete. Downloads happen only on request: `matrix` works offline by default.

mod cache_files;
mod error;
mod hub_file;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use reqwest::header::{AUTHORIZATION, HeaderMap, RANGE};
use reqwest::{Client, Response, StatusCode};

use self::cache_files::{digest, link_blob, write_file};
pub(crate) use self::error::HubError;
use self::error::{error_text, interrupted_error, io_error, request_error};
pub(crate) use self::hub_file::{HubFile, RepositoryKind};

/// How often a download is attempted before it fails.
const MAX_ATTEMPTS: u32 = 5;

#[derive(Clone)]
pub(crate) struct Hub {
    /// The hub's address without a slash at the end, such as `https://huggingface.co`.
    pub(crate) endpoint: String,
    /// The token for private and gated files.
    pub(crate) token: Option<String>,
    /// The cache folder: `HF_HOME`.
    pub(crate) home: PathBuf,
    /// A client that follows redirects.
    pub(crate) http: Client,
    /// A client that follows none: the answer before a redirect has the digest and the size.
    pub(crate) no_redirect_http: Client,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FetchResult {
    /// The complete file was in the cache.
    AlreadyPresent(PathBuf),
    Downloaded {
        path: PathBuf,
        bytes: u64,
    },
    /// The repository does not have the file, which is optional.
    Absent,
}

/// What the hub states about a file before the download.
struct FileFacts {
    commit: String,
    /// SHA-256 of a large file; git's SHA-1 of a small one.
    digest: String,
    bytes: Option<u64>,
}

impl Hub {
    /// Downloads a file into the cache unless it is there. `tell` is called with the bytes received and the
    /// total.
    pub(crate) async fn fetch(
        &self,
        hub_file: &HubFile,
        mut tell: impl FnMut(u64, Option<u64>),
    ) -> Result<FetchResult, HubError> {
        let Some(facts) = self.fetch_facts(hub_file).await? else {
            return Ok(FetchResult::Absent);
        };
        let repository = self.home.join("hub").join(format!(
            "{}--{}",
            hub_file.kind.folder(),
            hub_file.repository.replace('/', "--")
        ));
        let blob = repository.join("blobs").join(&facts.digest);
        let link = repository
            .join("snapshots")
            .join(&facts.commit)
            .join(&hub_file.file);
        let is_there = blob.is_file();
        if !is_there {
            self.download(hub_file, &facts, &blob, &mut tell).await?;
        }
        let bytes = fs::metadata(&blob)
            .map(|about| about.len())
            .map_err(|source| io_error(&blob, source))?;
        link_blob(&blob, &link).map_err(|source| io_error(&link, source))?;
        let reference = repository.join("refs").join("main");
        write_file(&reference, facts.commit.as_bytes()).map_err(|source| io_error(&reference, source))?;
        Ok(match is_there {
            true => FetchResult::AlreadyPresent(link),
            false => FetchResult::Downloaded { path: link, bytes },
        })
    }

    /// Lists the files of a repository's `main` revision.
    pub(crate) async fn list(
        &self,
        kind: RepositoryKind,
        repository: &str,
    ) -> Result<Vec<HubFile>, HubError> {
        let all = HubFile {
            kind,
            repository: repository.to_owned(),
            file: "the list of files".to_owned(),
            is_optional: false,
        };
        let url = format!(
            "{}/api/{}/{repository}/revision/main",
            self.endpoint,
            kind.folder()
        );
        let answer = self
            .with_token(self.http.get(url))
            .send()
            .await
            .map_err(|error| request_error(&all, &error))?;
        let status = answer.status();
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(HubError::Refused {
                repository: all.repository,
                file: all.file,
                status: status.as_u16(),
            });
        }
        if !status.is_success() {
            return Err(interrupted_error(&all, &format!("status {status}")));
        }
        let about: RepositoryInfo = answer
            .json()
            .await
            .map_err(|error| interrupted_error(&all, &error_text(&error)))?;
        let files = about.siblings.into_iter().map(|sibling| HubFile {
            file: sibling.rfilename,
            ..all.clone()
        });
        Ok(files.filter(|hub_file| is_inside(&hub_file.file)).collect())
    }

    fn url(&self, hub_file: &HubFile) -> String {
        let (prefix, repository) = (hub_file.kind.prefix(), &hub_file.repository);
        format!(
            "{}/{prefix}{repository}/resolve/main/{}",
            self.endpoint, hub_file.file
        )
    }

    async fn fetch_facts(&self, hub_file: &HubFile) -> Result<Option<FileFacts>, HubError> {
        let request = self.with_token(self.no_redirect_http.head(self.url(hub_file)));
        let answer = request
            .send()
            .await
            .map_err(|error| request_error(hub_file, &error))?;
        match answer.status() {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                return Err(HubError::Refused {
                    repository: hub_file.repository.clone(),
                    file: hub_file.file.clone(),
                    status: answer.status().as_u16(),
                });
            }
            StatusCode::NOT_FOUND if hub_file.is_optional => return Ok(None),
            StatusCode::NOT_FOUND => {
                return Err(HubError::Missing {
                    repository: hub_file.repository.clone(),
                    file: hub_file.file.clone(),
                });
            }
            status if status.is_client_error() || status.is_server_error() => {
                return Err(interrupted_error(hub_file, &format!("status {status}")));
            }
            _ => {}
        }
        let headers = answer.headers();
        let digest = header(headers, "x-linked-etag").or_else(|| header(headers, "etag"));
        let digest = digest.map(|tag| tag.trim_start_matches("W/").trim_matches('"').to_owned());
        let plain = |text: &String| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let (Some(digest), Some(commit)) = (
            digest.filter(plain),
            header(headers, "x-repo-commit").filter(plain),
        ) else {
            return Err(interrupted_error(
                hub_file,
                &"the response has no digest or no commit; check that the server is a model hub",
            ));
        };
        let size = header(headers, "x-linked-size").or_else(|| header(headers, "content-length"));
        Ok(Some(FileFacts {
            commit,
            digest,
            bytes: size.and_then(|size| size.parse().ok()),
        }))
    }

    /// Downloads into `<blob>.incomplete` with up to [`MAX_ATTEMPTS`] attempts, and renames it to `blob` once
    /// its digest matches.
    async fn download(
        &self,
        hub_file: &HubFile,
        facts: &FileFacts,
        blob: &Path,
        tell: &mut impl FnMut(u64, Option<u64>),
    ) -> Result<(), HubError> {
        let part = blob.with_extension("incomplete");
        if let Some(folder) = part.parent() {
            fs::create_dir_all(folder).map_err(|source| io_error(folder, source))?;
        }
        let mut last = String::new();
        for _ in 0..MAX_ATTEMPTS {
            match self.attempt(hub_file, facts, &part, tell).await {
                Ok(()) => {
                    let actual =
                        digest(&part, facts.digest.len()).map_err(|source| io_error(&part, source))?;
                    if actual != facts.digest {
                        let _ = fs::remove_file(&part);
                        return Err(HubError::DigestMismatch {
                            repository: hub_file.repository.clone(),
                            file: hub_file.file.clone(),
                            actual,
                            expected: facts.digest.clone(),
                        });
                    }
                    return fs::rename(&part, blob).map_err(|source| io_error(blob, source));
                }
                Err(AttemptError::Io(source)) => return Err(io_error(&part, source)),
                Err(AttemptError::Interrupted(reason)) => last = reason,
            }
        }
        let message = match fs::metadata(&part) {
            Ok(about) if about.len() > 0 => format!(
                "{last} ({MAX_ATTEMPTS} attempts); the downloaded part is kept, and the same command continues the \
                 download"
            ),
            _ => format!("{last} ({MAX_ATTEMPTS} attempts)"),
        };
        Err(interrupted_error(hub_file, &message))
    }

    async fn attempt(
        &self,
        hub_file: &HubFile,
        facts: &FileFacts,
        part: &Path,
        tell: &mut impl FnMut(u64, Option<u64>),
    ) -> Result<(), AttemptError> {
        let mut have = fs::metadata(part).map_or(0, |about| about.len());
        if facts.bytes.is_some_and(|bytes| have > bytes) {
            fs::remove_file(part).map_err(AttemptError::Io)?;
            have = 0;
        }
        if have > 0 && facts.bytes == Some(have) {
            return Ok(());
        }
        let mut request = self.with_token(self.http.get(self.url(hub_file)));
        if have > 0 {
            request = request.header(RANGE, format!("bytes={have}-"));
        }
        let mut answer = request
            .send()
            .await
            .map_err(|error| AttemptError::Interrupted(error_text(&error)))?;
        let mut file = match answer.status() {
            StatusCode::PARTIAL_CONTENT => OpenOptions::new()
                .append(true)
                .open(part)
                .map_err(AttemptError::Io)?,
            StatusCode::OK => {
                have = 0;
                File::create(part).map_err(AttemptError::Io)?
            }
            status => return Err(AttemptError::Interrupted(format!("status {status}"))),
        };
        while let Some(bytes) = next_chunk(&mut answer).await? {
            file.write_all(&bytes).map_err(AttemptError::Io)?;
            have += bytes.len() as u64;
            tell(have, facts.bytes);
        }
        file.sync_all().map_err(AttemptError::Io)?;
        match facts.bytes {
            Some(bytes) if have < bytes => Err(AttemptError::Interrupted(format!(
                "the transfer ended after {have} of {bytes} bytes"
            ))),
            _ => Ok(()),
        }
    }

    fn with_token(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        match &self.token {
            Some(token) => request.header(AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        }
    }
}

/// The part of the hub's description of a repository that is used.
#[derive(serde::Deserialize)]
struct RepositoryInfo {
    siblings: Vec<Sibling>,
}

#[derive(serde::Deserialize)]
struct Sibling {
    rfilename: String,
}

/// Returns true if a file name from the hub stays inside the repository's folder.
fn is_inside(file: &str) -> bool {
    Path::new(file)
        .components()
        .all(|part| matches!(part, std::path::Component::Normal(_)))
}

enum AttemptError {
    Interrupted(String),
    Io(io::Error),
}

async fn next_chunk(
    answer: &mut Response,
) -> Result<Option<impl AsRef<[u8]> + std::ops::Deref<Target = [u8]>>, AttemptError> {
    answer
        .chunk()
        .await
        .map_err(|error| AttemptError::Interrupted(error_text(&error)))
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}
