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
use crate::engine::docker::errors;
use crate::engine::docker::host::Whereabouts;
use crate::engine::docker::image_ref;
use crate::engine::docker::pull;
use crate::engine::docker::refused::{Refused, is_missing};
use crate::engine::start_progress::Tell;
use crate::results::store;

/// Pauses before a registry that failed temporarily is asked for a digest again, in seconds.
const PAUSES: [u64; 2] = [1, 3];

/// How long a registry may take before the progress display says that its answer is awaited.
const LATE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pull {
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
    pull: Pull,
    /// By name: repository and digest, or the image id if the image came from no registry.
    pins: Mutex<BTreeMap<String, Pin>>,
}

/// The digest of a name, once it is known. `ensure` holds the lock while it pulls, so that an image is pulled
/// once.
type Pin = Arc<tokio::sync::Mutex<Option<String>>>;

/// An image that is present.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Had {
    /// Image id, with which containers are created.
    pub(super) id: String,
    /// Digest in a registry, or the id if it came from none.
    pub(super) digest: String,
    pub(super) bytes: Option<u64>,
    /// Duration of the pull, if there was one.
    pub(super) pulled_seconds: Option<f64>,
}

impl Images {
    pub(crate) fn new(pull: Pull) -> Self {
        Self {
            pull,
            pins: Mutex::default(),
        }
    }

    /// Sets the digest that a name had when the run began, when the run is resumed.
    pub(crate) fn hold(&self, image: &str, digest: &str) {
        let held = Arc::new(tokio::sync::Mutex::new(Some(digest.to_owned())));
        let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        pins.insert(image.to_owned(), held);
    }

    fn pin(&self, image: &str) -> Pin {
        let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(pins.entry(image.to_owned()).or_default())
    }

    /// Resolves a name to a digest, without pulling the image.
    pub(super) async fn resolve(
        &self,
        daemon: &Daemon,
        whereabouts: &Whereabouts,
        image: &str,
        tell: &(dyn Fn(String) + Sync),
    ) -> Result<(), Refused> {
        let pin = self.pin(image);
        let mut pin = pin.lock().await;
        if pin.is_some() {
            return Ok(());
        }
        let here = inspect(daemon, image).await?;
        match (here, self.pull) {
            (Some(seen), Pull::Never | Pull::Missing) => *pin = Some(digest(&seen, image)),
            (None, Pull::Never) => return Err(forbidden(image)),
            // Podman cannot ask a registry, so only the pull finds the digest.
            (_, Pull::Missing | Pull::Always) if daemon.is_podman || image.contains('@') => {}
            (_, Pull::Missing | Pull::Always) => {
                *pin = Some(ask_registry(daemon, whereabouts, image, tell).await?);
            }
        }
        Ok(())
    }

    /// Makes the image of the pinned digest available, and pulls it if it is missing.
    pub(super) async fn ensure(
        &self,
        daemon: &Daemon,
        whereabouts: &Whereabouts,
        image: &str,
        mut log: store::Log,
        tell: Tell<'_>,
    ) -> Result<Had, Refused> {
        let pin = self.pin(image);
        let mut pin = pin.lock().await;
        let reference = pin.clone().unwrap_or_else(|| image.to_owned());
        // The pin is set once the name has been pulled in this run.
        let is_stale = pin.is_none() && self.pull == Pull::Always;
        let here = match is_stale {
            true => None,
            false => inspect(daemon, &reference).await?,
        };
        let began = clock::now();
        let mut pulled_seconds = None;
        let seen = match here {
            Some(seen) => seen,
            None if self.pull == Pull::Never => return Err(forbidden(image)),
            None if reference.starts_with("sha256:") => {
                let raw = format!("the image {reference} that `{image}` meant when the run began is gone");
                return Err(Refused::saying("inspect the image", raw));
            }
            None => {
                let login = credentials::of(whereabouts, image).await;
                let login = login.unwrap_or_else(|reason| {
                    use std::io::Write;
                    // The image may be public; the registry reports an error if it is not.
                    let _ = writeln!(log, "no login: {reason}");
                    None
                });
                let wanted = image_ref::whole(&reference);
                pull::pull(daemon, &wanted, login, &mut log, tell).await?;
                pulled_seconds = Some(clock::now().since(began).as_secs_f64());
                let seen = inspect(daemon, &wanted).await?;
                let seen = seen.ok_or_else(|| {
                    Refused::saying("pull", format!("No such image: {wanted}, though it was pulled"))
                })?;
                self.name(daemon, image, &seen).await;
                seen
            }
        };
        let digest = digest(&seen, image);
        *pin = Some(digest.clone());
        Ok(Had {
            id: seen.id.clone().unwrap_or(reference),
            digest,
            bytes: seen.size.and_then(|size| u64::try_from(size).ok()),
            pulled_seconds,
        })
    }

    /// Tags an image that was pulled by its digest, as `docker pull` would, so that the next run finds it. An
    /// existing tag stays, except with `Pull::Always`.
    async fn name(&self, daemon: &Daemon, image: &str, seen: &ImageInspect) {
        let (Some(tag), Some(id)) = (image_ref::tag(image), &seen.id) else {
            return;
        };
        let is_taken = matches!(inspect(daemon, image).await, Ok(Some(_)));
        if is_taken && self.pull != Pull::Always {
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
async fn inspect(daemon: &Daemon, image: &str) -> Result<Option<ImageInspect>, Refused> {
    match daemon.docker.inspect_image(image).await {
        Ok(seen) => Ok(Some(seen)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(Refused::of("inspect the image", &error)),
    }
}

/// Asks the registry for the digest of a name.
async fn ask_registry(
    daemon: &Daemon,
    whereabouts: &Whereabouts,
    image: &str,
    tell: &(dyn Fn(String) + Sync),
) -> Result<String, Refused> {
    let (login, why_not) = match credentials::of(whereabouts, image).await {
        Ok(login) => (login, None),
        Err(reason) => (None, Some(reason)),
    };
    let mut pauses = PAUSES.iter();
    loop {
        let wanted = image_ref::whole(image);
        let asked = daemon.docker.inspect_registry_image(&wanted, login.clone());
        let asked = told_late(asked, || {
            tell(format!(
                "asking {} what `{image}` means…",
                image_ref::registry(image)
            ));
        });
        let mut refused = match asked.await {
            Ok(found) => {
                let digest = found.descriptor.digest.unwrap_or_default();
                if digest.starts_with("sha256:") {
                    return Ok(image_ref::by_digest(image, &digest));
                }
                Refused::saying(
                    "ask the registry",
                    format!("manifest unknown: no digest of {wanted}"),
                )
            }
            Err(error) => Refused::of("ask the registry", &error),
        };
        match pauses.next().filter(|_| errors::is_transient(&refused.raw)) {
            Some(pause) => sleep(Duration::from_secs(*pause)).await,
            None => {
                if let Some(reason) = &why_not {
                    refused.raw.push_str(&format!(" (without a login: {reason})"));
                }
                return Err(refused);
            }
        }
    }
}

/// Awaits `answer` and calls `tell` if it takes longer than [`LATE`].
async fn told_late<T>(answer: impl Future<Output = T>, tell: impl FnOnce()) -> T {
    let mut answer = std::pin::pin!(answer);
    match timeout(LATE, &mut answer).await {
        Ok(answer) => answer,
        Err(_) => {
            tell();
            answer.await
        }
    }
}

fn forbidden(image: &str) -> Refused {
    Refused::saying(
        "inspect the image",
        format!("No such image: {image}, and pulling is forbidden"),
    )
}

/// The permanent name of an image: its digest in the registry of `image`, else in any registry, else its id.
fn digest(seen: &ImageInspect, image: &str) -> String {
    let named = seen.repo_digests.iter().flatten();
    let own = format!("{}@", image_ref::repository(image));
    let ours = named.clone().find(|digest| digest.starts_with(&own));
    ours.or_else(|| named.clone().next())
        .or(seen.id.as_ref())
        .cloned()
        .unwrap_or_else(|| image.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_known_by_the_digest_of_its_own_registry_else_by_its_id() {
        let mut seen = ImageInspect {
            id: Some("sha256:1".into()),
            repo_digests: Some(vec!["a@sha256:2".into(), "h:5/a@sha256:3".into()]),
            ..ImageInspect::default()
        };
        assert_eq!(digest(&seen, "h:5/a:1"), "h:5/a@sha256:3");
        assert_eq!(digest(&seen, "b"), "a@sha256:2");
        seen.repo_digests = None;
        assert_eq!(digest(&seen, "a"), "sha256:1");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_is_told_once_it_is_long() {
        let told = std::cell::Cell::new(0);
        let tell = || told.set(told.get() + 1);
        told_late(sleep(LATE / 2), tell).await;
        assert_eq!(told.get(), 0);
        told_late(sleep(LATE * 20), tell).await;
        assert_eq!(told.get(), 1);
    }

    #[test]
    fn what_the_run_began_with_is_held() {
        let images = Images::default();
        images.hold("a:1", "a@sha256:2");
        let pin = images.pin("a:1");
        assert_eq!(pin.try_lock().unwrap().as_deref(), Some("a@sha256:2"));
        assert!(images.pin("b").try_lock().unwrap().is_none());
    }
}
