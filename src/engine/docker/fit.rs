//! Can the container daemon do what the launches ask for: everything that it lacks, before the first engine starts. It creates
//! nothing and pulls nothing.

use std::collections::BTreeSet;
use std::path::Path;

use crate::engine::docker::address::Whereabouts;
use crate::engine::docker::daemon::{Daemon, Refused};
use crate::engine::docker::image::Images;
use crate::matrix::plan::{Container, Gpus, Launch, Place};

/// What is to run in containers, and where.
pub struct Wanted<'a> {
    /// The launches; those of other executors are passed over.
    pub launches: Vec<&'a Launch>,
    /// Where the daemon is.
    pub whereabouts: &'a Whereabouts,
    /// The images of the run, which are resolved here.
    pub images: &'a Images,
    /// Where Hugging Face's cache is, for `{hf_home}`.
    pub hf_home: Option<&'a Path>,
    /// The folder of the matrix file, for `{dir}` and relative paths.
    pub folder: &'a Path,
    /// The values of secrets by name.
    pub secrets: &'a (dyn Fn(&str) -> Option<String> + Send + Sync),
}

/// Something that a daemon lacks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lack {
    /// What is missing, and where it is asked for.
    pub what: String,
    /// How to mend it.
    pub help: String,
}

impl From<&Refused> for Lack {
    fn from(refused: &Refused) -> Self {
        Self {
            what: format!("{}: {}", refused.what(), refused.raw.trim()),
            help: refused.meaning.help.clone(),
        }
    }
}

/// Everything that the daemon lacks for the launches.
pub async fn lacks(wanted: &Wanted<'_>) -> Vec<Lack> {
    let launches: Vec<(&Launch, &Container)> = wanted
        .launches
        .iter()
        .filter_map(|launch| match &launch.place {
            Place::Container(container) => Some((*launch, &**container)),
            Place::Process(_) | Place::Attach(_) => None,
        })
        .collect();
    if launches.is_empty() {
        return Vec::new();
    }
    let daemon = match Daemon::connect(wanted.whereabouts).await {
        Ok(daemon) => daemon,
        Err(refused) => return vec![Lack::from(&refused)],
    };
    let mut found = BTreeSet::new();
    runtimes(&daemon, &launches, &mut found).await;
    images(&daemon, wanted, &launches, &mut found).await;
    for (launch, container) in &launches {
        if daemon.address.is_local() {
            sources(wanted, launch, container, &mut found);
        }
        if daemon.is_podman && (container.runtime.is_some() || container.gpus != Gpus::None) {
            found.insert(Lack {
                what: format!(
                    "the daemon is Podman, which silently ignores `runtime` and `gpus` of engine `{}` and would start it without GPUs",
                    launch.engine.name
                ),
                help: "use Docker, or name the GPUs as `device_nodes` (CDI) and take `runtime` and `gpus` out".to_owned(),
            });
        }
    }
    found.into_iter().collect()
}

async fn runtimes(daemon: &Daemon, launches: &[(&Launch, &Container)], found: &mut BTreeSet<Lack>) {
    let known = match daemon.docker.info().await {
        Ok(info) => info.runtimes.unwrap_or_default(),
        Err(error) => {
            found.insert(Lack::from(&Refused::of("info", &error)));
            return;
        }
    };
    for (launch, container) in launches {
        let Some(runtime) = container.runtime.as_ref().filter(|_| !daemon.is_podman) else {
            continue;
        };
        if !known.contains_key(runtime) {
            let mut names: Vec<&String> = known.keys().collect();
            names.sort();
            let said = Refused::saying("info", format!("unknown or invalid runtime name: {runtime}"));
            found.insert(Lack {
                what: format!(
                    "{} of engine `{}`; it knows {names:?}",
                    said.what(),
                    launch.engine.name
                ),
                help: said.meaning.help,
            });
        }
    }
}

/// Finds out what every image's name means, and says which cannot be had.
async fn images(
    daemon: &Daemon,
    wanted: &Wanted<'_>,
    launches: &[(&Launch, &Container)],
    found: &mut BTreeSet<Lack>,
) {
    let images: BTreeSet<&str> = launches
        .iter()
        .map(|(_, container)| container.image.as_str())
        .collect();
    for image in images {
        if let Err(refused) = wanted.images.resolve(daemon, wanted.whereabouts, image).await {
            let lack = Lack::from(&refused);
            found.insert(Lack {
                what: format!("image `{image}`: {}", lack.what),
                ..lack
            });
        }
    }
}

/// Folders that a container is to see and that are not there.
fn sources(wanted: &Wanted<'_>, launch: &Launch, container: &Container, found: &mut BTreeSet<Lack>) {
    let hole = |name: &str| match name {
        "hf_home" => wanted.hf_home.map(|path| path.to_string_lossy().into_owned()),
        "dir" => Some(wanted.folder.to_string_lossy().into_owned()),
        _ => None,
    };
    for mount in &container.mounts {
        // A hole that only a start fills is that start's business.
        let Ok(source) = mount.source.reveal(&hole, wanted.secrets) else {
            continue;
        };
        if !wanted.folder.join(&source).exists() {
            let said = Refused::saying("create", format!("bind source path does not exist: {source}"));
            found.insert(Lack {
                what: format!("{} of engine `{}`", said.what(), launch.engine.name),
                help: said.meaning.help,
            });
        }
    }
}
