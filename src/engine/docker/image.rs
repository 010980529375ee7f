//! Images. Each name is resolved to a digest once, before the run, and every start of the run uses that image
//! even if the name is moved meanwhile. A missing image is pulled.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bollard::models::ImageInspect;
use bollard::query_parameters::TagImageOptions;
use tokio::time::{sleep, timeout};

use crate::base::clock;
use crate::engine::docker::client::Daemon;
use crate::engine::docker::credentials;
use crate::engine::docker::docker_error::{DockerError, is_not_found};
use crate::engine::docker::errors;
use crate::engine::docker::host::DockerEnv;
use crate::engine::docker::image_ref;
use crate::engine::docker::pull;
use crate::engine::start_progress::ProgressFn;
use crate::results::store;

/// Pauses before a registry that failed temporarily is asked for a digest again, in seconds.
const RETRY_DELAYS_S: [u64; 2] = [1, 3];

/// How long a registry may take before the progress display says that its answer is awaited.
const SLOW_ANSWER: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PullPolicy {
    /// A missing image is an error.
    Never,
    /// Pulls images that are missing.
    #[default]
    Missing,
    /// Asks the registry for the current digest of every name.
    Always,
}

/// Images of a run, with the digest that each name has for the whole run.
#[derive(Debug, Default)]
pub(crate) struct Images {
    pull: PullPolicy,
    /// By name: repository and digest, or the image id if the image came from no registry.
    resolved: Mutex<BTreeMap<String, ResolvedImage>>,
}

/// The digest of a name, once it is known. `ensure` holds the lock while it pulls, so that an image is pulled
/// once.
type ResolvedImage = Arc<tokio::sync::Mutex<Option<String>>>;

/// An image that is present.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LocalImage {
    /// Image id, with which containers are created.
    pub(super) id: String,
    /// Digest in a registry, or the id if it came from none.
    pub(super) digest: String,
    pub(super) bytes: Option<u64>,
    /// Duration of the pull, if there was one.
    pub(super) pull_seconds: Option<f64>,
}

impl Images {
    pub(crate) fn new(pull: PullPolicy) -> Self {
        Self {
            pull,
            resolved: Mutex::default(),
        }
    }

    /// Sets the digest that a name had when the run began, when the run is resumed.
    pub(crate) fn pin_digest(&self, image: &str, digest: &str) {
        let entry = Arc::new(tokio::sync::Mutex::new(Some(digest.to_owned())));
        let mut pins = self.resolved.lock().unwrap_or_else(PoisonError::into_inner);
        pins.insert(image.to_owned(), entry);
    }

    fn resolved_image(&self, image: &str) -> ResolvedImage {
        let mut pins = self.resolved.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(pins.entry(image.to_owned()).or_default())
    }

    /// Resolves a name to a digest, without pulling the image.
    pub(super) async fn resolve(
        &self,
        daemon: &Daemon,
        docker_env: &DockerEnv,
        image: &str,
        report_progress: &(dyn Fn(String) + Sync),
    ) -> Result<(), DockerError> {
        let pin = self.resolved_image(image);
        let mut pin = pin.lock().await;
        if pin.is_some() {
            return Ok(());
        }
        let local_image = inspect(daemon, image).await?;
        match (local_image, self.pull) {
            (Some(image_state), PullPolicy::Never | PullPolicy::Missing) => {
                *pin = Some(digest(&image_state, image))
            }
            (None, PullPolicy::Never) => return Err(pull_forbidden(image)),
            // Podman cannot ask a registry, so only the pull finds the digest.
            (_, PullPolicy::Missing | PullPolicy::Always) if daemon.is_podman || image.contains('@') => {}
            (_, PullPolicy::Missing | PullPolicy::Always) => {
                *pin = Some(ask_registry(daemon, docker_env, image, report_progress).await?);
            }
        }
        Ok(())
    }

    /// Makes the image of the pinned digest available, and pulls it if it is missing.
    pub(super) async fn ensure(
        &self,
        daemon: &Daemon,
        docker_env: &DockerEnv,
        image: &str,
        mut log: store::Log,
        report_progress: ProgressFn<'_>,
    ) -> Result<LocalImage, DockerError> {
        let pin = self.resolved_image(image);
        let mut pin = pin.lock().await;
        let reference = pin.clone().unwrap_or_else(|| image.to_owned());
        // The pin is set once the name has been pulled in this run.
        let is_stale = pin.is_none() && self.pull == PullPolicy::Always;
        let local_image = match is_stale {
            true => None,
            false => inspect(daemon, &reference).await?,
        };
        let started_at = clock::now();
        let mut pulled_seconds = None;
        let image_state = match local_image {
            Some(image_state) => image_state,
            None if self.pull == PullPolicy::Never => return Err(pull_forbidden(image)),
            None if reference.starts_with("sha256:") => {
                let raw = format!(
                    "the image {reference} no longer exists; `{image}` referred to it when the run began"
                );
                return Err(DockerError::from_message("inspect the image", raw));
            }
            None => {
                let login = credentials::registry_credentials(docker_env, image).await;
                let login = login.unwrap_or_else(|reason| {
                    use std::io::Write;
                    // The image may be public; the registry reports an error if it is not.
                    let _ = writeln!(log, "no login: {reason}");
                    None
                });
                let full_reference = image_ref::with_tag(&reference);
                pull::pull(daemon, &full_reference, login, &mut log, report_progress).await?;
                pulled_seconds = Some(clock::now().since(started_at).as_secs_f64());
                let image_state = inspect(daemon, &full_reference).await?;
                let image_state = image_state.ok_or_else(|| {
                    DockerError::from_message(
                        "pull",
                        format!("No such image: {full_reference}, although it was pulled"),
                    )
                })?;
                self.tag_pulled(daemon, image, &image_state).await;
                image_state
            }
        };
        let digest = digest(&image_state, image);
        *pin = Some(digest.clone());
        Ok(LocalImage {
            id: image_state.id.clone().unwrap_or(reference),
            digest,
            bytes: image_state.size.and_then(|size| u64::try_from(size).ok()),
            pull_seconds: pulled_seconds,
        })
    }

    /// Tags an image that was pulled by its digest, as `docker pull` would, so that the next run finds it. An
    /// existing tag stays, except with `PullPolicy::Always`.
    async fn tag_pulled(&self, daemon: &Daemon, image: &str, image_state: &ImageInspect) {
        let (Some(tag), Some(id)) = (image_ref::tag(image), &image_state.id) else {
            return;
        };
        let is_taken = matches!(inspect(daemon, image).await, Ok(Some(_)));
        if is_taken && self.pull != PullPolicy::Always {
            return;
        }
        let options = TagImageOptions {
            repo: Some(image_ref::repository(image).to_owned()),
            tag: Some(tag),
        };
        // A failure is harmless: the image is still found by its digest.
        let _ = daemon.docker.tag_image(id, Some(options)).await;
    }
}

/// An image as the daemon reports it; `None` if it is unknown.
async fn inspect(daemon: &Daemon, image: &str) -> Result<Option<ImageInspect>, DockerError> {
    match daemon.docker.inspect_image(image).await {
        Ok(image_state) => Ok(Some(image_state)),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(DockerError::new("inspect the image", &error)),
    }
}

/// Asks the registry for the digest of a name.
async fn ask_registry(
    daemon: &Daemon,
    docker_env: &DockerEnv,
    image: &str,
    report_progress: &(dyn Fn(String) + Sync),
) -> Result<String, DockerError> {
    let (login, why_not) = match credentials::registry_credentials(docker_env, image).await {
        Ok(login) => (login, None),
        Err(reason) => (None, Some(reason)),
    };
    let mut pauses = RETRY_DELAYS_S.iter();
    loop {
        let full_reference = image_ref::with_tag(image);
        let lookup = daemon
            .docker
            .inspect_registry_image(&full_reference, login.clone());
        let lookup = report_if_slow(lookup, || {
            report_progress(format!(
                "asking the registry {} for the digest of `{image}`…",
                image_ref::registry(image)
            ));
        });
        let mut docker_error = match lookup.await {
            Ok(response) => {
                let digest = response.descriptor.digest.unwrap_or_default();
                if digest.starts_with("sha256:") {
                    return Ok(image_ref::with_digest(image, &digest));
                }
                DockerError::from_message(
                    "ask the registry",
                    format!("manifest unknown: the registry reports no digest of {full_reference}"),
                )
            }
            Err(error) => DockerError::new("ask the registry", &error),
        };
        match pauses
            .next()
            .filter(|_| errors::is_transient(&docker_error.message))
        {
            Some(pause) => sleep(Duration::from_secs(*pause)).await,
            None => {
                if let Some(reason) = &why_not {
                    docker_error
                        .message
                        .push_str(&format!(" (without a login: {reason})"));
                }
                return Err(docker_error);
            }
        }
    }
}

/// Awaits `answer` and calls `report_progress` if it takes longer than [`SLOW_ANSWER`].
async fn report_if_slow<T>(answer: impl Future<Output = T>, report_progress: impl FnOnce()) -> T {
    let mut answer = std::pin::pin!(answer);
    match timeout(SLOW_ANSWER, &mut answer).await {
        Ok(answer) => answer,
        Err(_) => {
            report_progress();
            answer.await
        }
    }
}

fn pull_forbidden(image: &str) -> DockerError {
    DockerError::from_message(
        "inspect the image",
        format!("No such image: {image}, and pulling is forbidden"),
    )
}

/// The permanent name of an image: its digest in the registry of `image`, else in any registry, else its id.
fn digest(image_state: &ImageInspect, image: &str) -> String {
    let named = image_state.repo_digests.iter().flatten();
    let repository_prefix = format!("{}@", image_ref::repository(image));
    let ours = named
        .clone()
        .find(|digest| digest.starts_with(&repository_prefix));
    ours.or_else(|| named.clone().next())
        .or(image_state.id.as_ref())
        .cloned()
        .unwrap_or_else(|| image.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_known_by_the_digest_of_its_own_registry_else_by_its_id() {
        let mut image_state = ImageInspect {
            id: Some("sha256:1".into()),
            repo_digests: Some(vec!["a@sha256:2".into(), "h:5/a@sha256:3".into()]),
            ..ImageInspect::default()
        };
        assert_eq!(digest(&image_state, "h:5/a:1"), "h:5/a@sha256:3");
        assert_eq!(digest(&image_state, "b"), "a@sha256:2");
        image_state.repo_digests = None;
        assert_eq!(digest(&image_state, "a"), "sha256:1");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_is_told_once_it_is_long() {
        let reports = std::cell::Cell::new(0);
        let report_progress = || reports.set(reports.get() + 1);
        report_if_slow(sleep(SLOW_ANSWER / 2), report_progress).await;
        assert_eq!(reports.get(), 0);
        report_if_slow(sleep(SLOW_ANSWER * 20), report_progress).await;
        assert_eq!(reports.get(), 1);
    }

    #[test]
    fn what_the_run_began_with_is_held() {
        let images = Images::default();
        images.pin_digest("a:1", "a@sha256:2");
        let pin = images.resolved_image("a:1");
        assert_eq!(pin.try_lock().unwrap().as_deref(), Some("a@sha256:2"));
        assert!(images.resolved_image("b").try_lock().unwrap().is_none());
    }
}
