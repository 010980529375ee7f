//! Reads the matrix file of a command line.

use std::path::Path;

use crate::base::text::one_line;
use crate::commands::cluster_profile;
use crate::commands::diagnostics::diagnostics_error;
use crate::commands::error::CommandError;
use crate::commands::output::{Colors, eprint};
use crate::config::job_containers::JobContainers;
use crate::config::matrix::Matrix;
use crate::config::select::Selector;
use crate::config::yaml::Diagnostic;
use crate::plan::Plan;
use crate::plan::selection;
use crate::runner::load_matrix::{self, LoadedMatrix};

/// Reads a matrix and its recipes, of which nothing is started. The error shows all errors at their places.
pub(crate) fn load(path: &Path, colors: Colors) -> Result<LoadedMatrix, CommandError> {
    load_with(path, None, colors)
}

/// Reads a matrix and its recipes, to be started on this host or as a job of the given cluster.
pub(crate) fn load_to_start(
    path: &Path,
    cluster: Option<&str>,
    colors: Colors,
) -> Result<LoadedMatrix, CommandError> {
    load_with(path, Some(containers(path, cluster, colors)?), colors)
}

/// As [`load_to_start`], with a change of the matrix before it is expanded.
pub(crate) fn load_changed(
    path: &Path,
    cluster: Option<&str>,
    change: &mut dyn FnMut(&mut Matrix) -> Result<(), Box<Diagnostic>>,
    colors: Colors,
) -> Result<LoadedMatrix, CommandError> {
    let containers = containers(path, cluster, colors)?;
    load_matrix::load_changed(path, Some(containers), change)
        .map_err(|errors| diagnostics_error(&errors.diagnostics, &errors.sources, colors.stderr))
}

/// How containers are started on this host, or as the profile of the given cluster says.
pub(crate) fn containers(
    path: &Path,
    cluster: Option<&str>,
    colors: Colors,
) -> Result<JobContainers, CommandError> {
    let folder = load_matrix::folder_of(path);
    let profile = cluster.map(|cluster| cluster_profile::profile(cluster, folder, colors));
    Ok(profile
        .transpose()?
        .map(|profile| profile.containers)
        .unwrap_or_default())
}

fn load_with(
    path: &Path,
    containers: Option<JobContainers>,
    colors: Colors,
) -> Result<LoadedMatrix, CommandError> {
    load_matrix::load(path, containers)
        .map_err(|errors| diagnostics_error(&errors.diagnostics, &errors.sources, colors.stderr))
}

/// Keeps the cells that match the selector, and prints notes about it. Fails if no cell matches.
pub(crate) fn select(plan: &mut Plan, only: &Selector) -> Result<(), CommandError> {
    let notes =
        selection::select(plan, only).map_err(|error| CommandError::usage(format!("error: {error}\n")))?;
    for note in notes {
        eprint(&format!("note: {note}\n"));
    }
    Ok(())
}

pub(crate) fn print_notes(loaded: &LoadedMatrix) {
    for note in &loaded.notes {
        eprint(&format!("{}\n", one_line(note)));
    }
}
