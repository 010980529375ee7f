//! Finds and reads the profile of a cluster.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::cli;
use crate::commands::diagnostics::diagnostics_error;
use crate::commands::error::CommandError;
use crate::commands::output::Colors;
use crate::config::cluster::{ClusterProfile, JobPer};
use crate::config::yaml::{self, Diagnostic, Source};
use crate::runner::load_matrix::read_bytes;

/// Largest profile in MiB.
const MAX_PROFILE_MIB: u64 = 1;

/// Reads the profile of a cluster: a path, or a name below `clusters` beside the matrix or in the user's
/// configuration folder.
pub(super) fn profile(
    cluster: &str,
    matrix_folder: &Path,
    colors: Colors,
) -> Result<ClusterProfile, CommandError> {
    let path = profile_path(cluster, matrix_folder)?;
    let text = read_bytes(&path, MAX_PROFILE_MIB)
        .and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other))
        .map_err(|error| {
            CommandError::usage(format!("error: cannot read `{}`: {error}\n", path.display()))
        })?;
    let source = Source::new(path.display().to_string(), text);
    let (profile, diagnostics) = yaml::read::<ClusterProfile>(&source);
    match (profile, diagnostics.is_empty()) {
        (Some(profile), true) if profile.max_jobs.is_some() && profile.job_per == JobPer::Run => {
            Err(CommandError::usage(format!(
                "error: `max_jobs` of `{}` needs `job_per: launch`\n  = help: with `job_per: run` a run is one job; add `job_per: launch`, or remove `max_jobs`\n",
                path.display()
            )))
        }
        (Some(profile), true) => match profile.containers.problem() {
            None => Ok(profile),
            Some(problem) => {
                let wrong = Diagnostic::new(format!("{problem} (`{}`)", source.name)).with_help(
                    "remove `options` and `bind`, or set `runtime` to `podman`, `apptainer`, `singularity` or `enroot`",
                );
                Err(diagnostics_error(&[wrong], &[source], colors.stderr))
            }
        },
        (_, false) => Err(diagnostics_error(&diagnostics, &[source], colors.stderr)),
        (None, true) => {
            let empty = Diagnostic::new(format!("the profile `{}` is empty", path.display()))
                .with_help("write at least the line `scheduler: slurm`");
            Err(diagnostics_error(&[empty], &[source], colors.stderr))
        }
    }
}

fn profile_path(cluster: &str, matrix_folder: &Path) -> Result<PathBuf, CommandError> {
    if cluster.is_empty() {
        return Err(CommandError::usage(
            "error: the name of the cluster is empty\n  = help: `--cluster lab` reads `clusters/lab.yaml`\n"
                .to_owned(),
        ));
    }
    if cluster.contains('/') || cluster.ends_with(".yaml") {
        return Ok(PathBuf::from(cluster));
    }
    let folders = [matrix_folder.join("clusters"), PathBuf::from("clusters")];
    let places: Vec<PathBuf> = folders.into_iter().chain(config_folder()).collect();
    let file = format!("{cluster}.yaml");
    if let Some(path) = places
        .iter()
        .map(|place| place.join(&file))
        .find(|path| path.is_file())
    {
        return Ok(path);
    }
    // The folder of the matrix may be the current one.
    let known: BTreeSet<String> = places
        .iter()
        .filter_map(|place| std::fs::read_dir(place).ok())
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let is_yaml = path.extension().is_some_and(|extension| extension == "yaml");
            is_yaml.then(|| {
                path.file_stem()
                    .map(|stem| format!("`{}`", stem.to_string_lossy()))
            })?
        })
        .collect();
    let known = match known.is_empty() {
        true => "there is no cluster profile yet".to_owned(),
        false => format!(
            "the profiles are {}",
            known.into_iter().collect::<Vec<_>>().join(", ")
        ),
    };
    let searched: Vec<String> = places
        .iter()
        .map(|place| place.join(&file).display().to_string())
        .collect();
    Err(CommandError::usage(format!(
        "error: no profile describes the cluster `{cluster}`; {known}\n  = help: create the profile as {}; docs/clusters.md shows how\n",
        searched.join(" or ")
    )))
}

/// The user's folder of profiles.
fn config_folder() -> Option<PathBuf> {
    let base = cli::env_variable("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| cli::env_variable("HOME").map(|home| Path::new(&home).join(".config")))?;
    Some(base.join("matrix/clusters"))
}
