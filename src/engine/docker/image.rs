//! Images: each name is resolved to a digest once, before the run, and every start of the run takes that very image, whatever the
//! name means by then. A missing one is pulled.

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

/// The pauses before a registry that failed for a moment is asked again for a digest.
const PAUSES: [u64; 2] = [1, 3];

/// How long a registry may take to answer until the wait for it is told.
const LATE: Duration = Duration::from_secs(2);

/// When images are pulled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pull {
    /// Never: what is not here is missing.
    Never,
    /// Where they are not here.
    #[default]
    Missing,
    /// Always: the registry is asked what the name means now.
    Always,
}

/// What every image of a run is.
#[derive(Debug, Default)]
pub(crate) struct Images {
    pull: Pull,
    /// By name: the digest with its repository, or the id of an image that came from no registry.
    pins: Mutex<BTreeMap<String, Pin>>,
}

/// What a name means for the whole run, once that is known. Whoever gets the image holds it, so that nobody pulls it twice.
type Pin = Arc<tokio::sync::Mutex<Option<String>>>;

/// An image that is here.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Had {
    /// Its id, by which it is started.
    pub(super) id: String,
    /// Its digest in a registry, or its id where it came from none.
    pub(super) digest: String,
    /// Its size in bytes.
    pub(super) bytes: Option<u64>,
    /// How long the pull took, where there was one.
    pub(super) pulled_seconds: Option<f64>,
}

impl Images {
    /// Images that are pulled at those times.
    pub(crate) fn new(pull: Pull) -> Self {
        Self {
            pull,
            pins: Mutex::default(),
        }
    }

    /// Says what a name meant when the run began, where it is taken up again.
    pub(crate) fn hold(&self, image: &str, digest: &str) {
        let held = Arc::new(tokio::sync::Mutex::new(Some(digest.to_owned())));
        let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        pins.insert(image.to_owned(), held);
    }

    fn pin(&self, image: &str) -> Pin {
        let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(pins.entry(image.to_owned()).or_default())
    }

    /// Finds out what a name means, without pulling it.
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
            // Podman cannot ask a registry; there only the pull shows it.
            (_, Pull::Missing | Pull::Always) if daemon.is_podman || image.contains('@') => {}
            (_, Pull::Missing | Pull::Always) => {
                *pin = Some(ask_registry(daemon, whereabouts, image, tell).await?);
            }
        }
        Ok(())
    }

    /// Sees to it that an image is here: the one that the run began with.
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
        // Whether the name was pulled already in this run is what its pin says.
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
                    // An image may be public: only the registry knows, and says so.
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

    /// Gives an image that was pulled by its digest the name by which it was asked for, as `docker pull` would have: else the next
    /// run would not find it. A name that means something by now is left alone, unless it is always to mean the newest.
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
        // Without a name it is found by its digest all the same.
        let _ = daemon.docker.tag_image(id, Some(options)).await;
    }
}

/// An image as the daemon knows it; `None`: it does not.
async fn inspect(daemon: &Daemon, image: &str) -> Result<Option<ImageInspect>, Refused> {
    match daemon.docker.inspect_image(image).await {
        Ok(seen) => Ok(Some(seen)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(Refused::of("inspect the image", &error)),
    }
}

/// What the registry says that a name means.
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

/// Waits for an answer, and says so where it takes long.
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

/// What an image is for ever: its digest in the registry that its name says, else in any, else its own id.
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
