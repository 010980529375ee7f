//! Preflight check of the container daemon: collects everything that the launches need and the daemon lacks,
//! before the first engine starts. It pulls nothing. It creates only a trial container, which it removes.

use std::collections::BTreeSet;
use std::path::Path;

use bollard::models::SystemInfo;

use crate::engine::docker::client::Daemon;
use crate::engine::docker::gpu_probe;
use crate::engine::docker::host::Whereabouts;
use crate::engine::docker::image::Images;
use crate::engine::docker::lack::Lack;
use crate::engine::docker::refused::Refused;
use crate::plan::{Container, Gpus, Launch, Place};

pub(crate) struct Wanted<'a> {
    /// All launches; those that do not run in containers are skipped.
    pub launches: Vec<&'a Launch>,
    pub whereabouts: &'a Whereabouts,
    /// Folder of start records.
    pub cache: &'a Path,
    /// The images of the run; this check resolves them.
    pub images: &'a Images,
    /// Folder of the Hugging Face cache, for `{hf_home}`.
    pub hf_home: Option<&'a Path>,
    /// The folder of the matrix file, for `{dir}` and relative paths.
    pub folder: &'a Path,
    /// Receives progress messages of long waits.
    pub tell: &'a (dyn Fn(String) + Sync),
    pub secrets: &'a (dyn Fn(&str) -> Option<String> + Send + Sync),
}

pub(crate) async fn lacks(wanted: &Wanted<'_>) -> Vec<Lack> {
    let launches: Vec<(&Launch, &Container)> = wanted
        .launches
        .iter()
        .filter_map(|launch| match &launch.place {
            Place::Container(container) => Some((*launch, &**container)),
            Place::Process(_) | Place::Attach(_) | Place::Imported(_) => None,
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
    // The trial would only repeat what is already found.
    if found.is_empty() {
        found = gpu_probe::lacks(&daemon, wanted.cache, &launches).await;
    }
    found.into_iter().collect()
}

async fn runtimes(daemon: &Daemon, launches: &[(&Launch, &Container)], found: &mut BTreeSet<Lack>) {
    let info = match daemon.docker.info().await {
        Ok(info) => info,
        Err(error) => {
            found.insert(Lack::from(&Refused::of("info", &error)));
            return;
        }
    };
    cdi(&info, launches, found);
    let known = info.runtimes.unwrap_or_default();
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

/// Adds launches that request GPUs by CDI from a daemon that has no CDI GPUs.
fn cdi(info: &SystemInfo, launches: &[(&Launch, &Container)], found: &mut BTreeSet<Lack>) {
    let knows_cdi = info
        .cdi_spec_dirs
        .as_ref()
        .is_some_and(|folders| !folders.is_empty());
    // Newer daemons list the devices that they found; older ones only the folders in which they look.
    let has_gpus = info.discovered_devices.as_ref().is_none_or(|devices| {
        let ids = devices.iter().filter_map(|device| device.id.as_deref());
        ids.into_iter().any(|id| id.starts_with("nvidia.com/gpu="))
    });
    for (launch, container) in launches {
        if !matches!(container.gpus, Gpus::Cdi | Gpus::CdiAll) || (knows_cdi && has_gpus) {
            continue;
        }
        let said = Refused::saying(
            "info",
            match knows_cdi {
                false => r#"could not select device driver "cdi""#.to_owned(),
                true => "no CDI device of nvidia.com/gpu".to_owned(),
            },
        );
        found.insert(Lack {
            what: format!("{} of engine `{}`", said.what(), launch.engine.name),
            help: said.meaning.help,
        });
    }
}

/// Resolves the image names, and adds those that are not available.
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
        if let Err(refused) = wanted
            .images
            .resolve(daemon, wanted.whereabouts, image, wanted.tell)
            .await
        {
            let lack = Lack::from(&refused);
            found.insert(Lack {
                what: format!("image `{image}`: {}", lack.what),
                ..lack
            });
        }
    }
}

/// Adds mount sources that do not exist.
fn sources(wanted: &Wanted<'_>, launch: &Launch, container: &Container, found: &mut BTreeSet<Lack>) {
    let hole = |name: &str| match name {
        "hf_home" => wanted.hf_home.map(|path| path.to_string_lossy().into_owned()),
        "dir" => Some(wanted.folder.to_string_lossy().into_owned()),
        _ => None,
    };
    for mount in &container.mounts {
        // Placeholders that only a start fills in are checked by that start.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing::contained;
    use bollard::models::DeviceInfo;

    #[test]
    fn a_daemon_without_cdi_or_without_gpus_in_it_is_told_before_the_run() {
        let launch = contained(Container {
            gpus: Gpus::Cdi,
            ..Container::default()
        });
        let Place::Container(container) = &launch.place else {
            panic!("it is a container");
        };
        let told = |info: SystemInfo| {
            let mut found = BTreeSet::new();
            cdi(&info, &[(&launch, &**container)], &mut found);
            found.into_iter().map(|lack| lack.what).collect::<String>()
        };
        assert!(told(SystemInfo::default()).contains("does not know CDI"));
        let knows = |ids: Option<&[&str]>| SystemInfo {
            cdi_spec_dirs: Some(vec!["/etc/cdi".into()]),
            discovered_devices: ids.map(|ids| {
                let device = |id: &&str| DeviceInfo {
                    id: Some((*id).to_owned()),
                    ..DeviceInfo::default()
                };
                ids.iter().map(device).collect()
            }),
            ..SystemInfo::default()
        };
        assert!(told(knows(Some(&["amd.com/gpu=0"]))).contains("by its CDI name"));
        assert_eq!(told(knows(Some(&["nvidia.com/gpu=0"]))), "");
        assert_eq!(told(knows(None)), "");
    }
}
