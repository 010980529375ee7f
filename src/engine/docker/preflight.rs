//! Preflight check of the container daemon: collects everything that the launches need and the daemon lacks,
//! before the first engine starts. It pulls nothing. It creates only a trial container, which it removes.

use std::collections::BTreeSet;
use std::path::Path;

use bollard::models::SystemInfo;

use crate::engine::docker::client::Daemon;
use crate::engine::docker::docker_error::DockerError;
use crate::engine::docker::gpu_probe;
use crate::engine::docker::host::DockerEnv;
use crate::engine::docker::image::Images;
use crate::engine::docker::unmet::Unmet;
use crate::plan::{Container, ContainerGpus, Launch};

pub(crate) struct ContainerChecks<'a> {
    /// All launches; those that do not run in containers are skipped.
    pub(crate) launches: Vec<&'a Launch>,
    pub(crate) docker_env: &'a DockerEnv,
    /// Folder of start records.
    pub(crate) cache_dir: &'a Path,
    /// The images of the run; this check resolves them.
    pub(crate) images: &'a Images,
    /// Folder of the Hugging Face cache, for `{hf_home}`.
    pub(crate) hf_home: Option<&'a Path>,
    /// The folder of the matrix file, for `{dir}` and relative paths.
    pub(crate) folder: &'a Path,
    /// Receives progress messages of long waits.
    pub(crate) report_wait: &'a (dyn Fn(String) + Sync),
    pub(crate) secrets: &'a (dyn Fn(&str) -> Option<String> + Send + Sync),
}

pub(crate) async fn unmet_container_requirements(checks: &ContainerChecks<'_>) -> Vec<Unmet> {
    let launches: Vec<(&Launch, &Container)> = checks
        .launches
        .iter()
        .filter_map(|launch| Some((*launch, launch.place.settings().container()?)))
        .collect();
    if launches.is_empty() {
        return Vec::new();
    }
    let daemon = match Daemon::connect(checks.docker_env).await {
        Ok(daemon) => daemon,
        Err(docker_error) => return vec![Unmet::from(&docker_error)],
    };
    let mut unmet = BTreeSet::new();
    check_runtimes(&daemon, &launches, &mut unmet).await;
    check_images(&daemon, checks, &launches, &mut unmet).await;
    for (launch, container) in &launches {
        if daemon.address.is_local() {
            check_sources(checks, launch, container, &mut unmet);
        }
        if daemon.is_podman && (container.runtime.is_some() || container.gpus != ContainerGpus::None) {
            unmet.insert(Unmet {
                problem: format!(
                    "the daemon is Podman, which silently ignores `runtime` and `gpus` of engine `{}` and would start it without GPUs",
                    launch.engine.name
                ),
                help: "use Docker, or name the GPUs in `device_nodes` (CDI) and remove `runtime` and `gpus`".to_owned(),
            });
        }
    }
    // The trial would only repeat what is already found.
    if unmet.is_empty() {
        unmet = gpu_probe::unmet_gpu_requests(&daemon, checks.cache_dir, &launches).await;
    }
    unmet.into_iter().collect()
}

async fn check_runtimes(daemon: &Daemon, launches: &[(&Launch, &Container)], unmet: &mut BTreeSet<Unmet>) {
    let info = match daemon.docker.info().await {
        Ok(info) => info,
        Err(error) => {
            unmet.insert(Unmet::from(&DockerError::new("info", &error)));
            return;
        }
    };
    check_cdi(&info, launches, unmet);
    let runtimes = info.runtimes.unwrap_or_default();
    for (launch, container) in launches {
        let Some(runtime) = container.runtime.as_ref().filter(|_| !daemon.is_podman) else {
            continue;
        };
        if !runtimes.contains_key(runtime) {
            let mut names: Vec<&String> = runtimes.keys().collect();
            names.sort();
            let refusal =
                DockerError::from_message("info", format!("unknown or invalid runtime name: {runtime}"));
            unmet.insert(Unmet {
                problem: format!(
                    "{}; engine `{}` needs this runtime, but the daemon has only {names:?}",
                    refusal.problem(),
                    launch.engine.name
                ),
                help: refusal.diagnosis.help,
            });
        }
    }
}

/// Adds launches that request GPUs by CDI from a daemon that has no CDI GPUs.
fn check_cdi(info: &SystemInfo, launches: &[(&Launch, &Container)], unmet: &mut BTreeSet<Unmet>) {
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
        if !matches!(container.gpus, ContainerGpus::Cdi | ContainerGpus::CdiAll) || (knows_cdi && has_gpus) {
            continue;
        }
        let refusal = DockerError::from_message(
            "info",
            match knows_cdi {
                false => r#"could not select device driver "cdi""#.to_owned(),
                true => "no CDI device of nvidia.com/gpu".to_owned(),
            },
        );
        unmet.insert(Unmet {
            problem: format!(
                "{}, but engine `{}` needs it",
                refusal.problem(),
                launch.engine.name
            ),
            help: refusal.diagnosis.help,
        });
    }
}

/// Resolves the image names, and adds those that are not available.
async fn check_images(
    daemon: &Daemon,
    checks: &ContainerChecks<'_>,
    launches: &[(&Launch, &Container)],
    unmet: &mut BTreeSet<Unmet>,
) {
    let images: BTreeSet<&str> = launches
        .iter()
        .map(|(_, container)| container.image.as_str())
        .collect();
    for image in images {
        if let Err(docker_error) = checks
            .images
            .resolve(daemon, checks.docker_env, image, checks.report_wait)
            .await
        {
            let unmet_requirement = Unmet::from(&docker_error);
            unmet.insert(Unmet {
                problem: format!("image `{image}`: {}", unmet_requirement.problem),
                ..unmet_requirement
            });
        }
    }
}

/// Adds mount sources that do not exist.
fn check_sources(
    checks: &ContainerChecks<'_>,
    launch: &Launch,
    container: &Container,
    unmet: &mut BTreeSet<Unmet>,
) {
    let hole = |name: &str| match name {
        "hf_home" => checks.hf_home.map(|path| path.to_string_lossy().into_owned()),
        "dir" => Some(checks.folder.to_string_lossy().into_owned()),
        _ => None,
    };
    for mount in &container.mounts {
        // Placeholders that only a start fills in are checked by that start.
        let Ok(source) = mount.source.expand(&hole, checks.secrets) else {
            continue;
        };
        if !checks.folder.join(&source).exists() {
            let refusal =
                DockerError::from_message("create", format!("bind source path does not exist: {source}"));
            unmet.insert(Unmet {
                problem: format!(
                    "{}, but engine `{}` needs it",
                    refusal.problem(),
                    launch.engine.name
                ),
                help: refusal.diagnosis.help,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing::container_launch;
    use bollard::models::DeviceInfo;

    #[test]
    fn a_daemon_without_cdi_or_without_gpus_in_it_is_told_before_the_run() {
        let launch = container_launch(Container {
            gpus: ContainerGpus::Cdi,
            ..Container::default()
        });
        let container = launch.place.settings().container().expect("it is a container");
        let check = |info: SystemInfo| {
            let mut unmet = BTreeSet::new();
            check_cdi(&info, &[(&launch, container)], &mut unmet);
            unmet
                .into_iter()
                .map(|unmet_requirement| unmet_requirement.problem)
                .collect::<String>()
        };
        assert!(check(SystemInfo::default()).contains("does not support CDI"));
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
        assert!(check(knows(Some(&["amd.com/gpu=0"]))).contains("by its CDI name"));
        assert_eq!(check(knows(Some(&["nvidia.com/gpu=0"]))), "");
        assert_eq!(check(knows(None)), "");
    }
}
