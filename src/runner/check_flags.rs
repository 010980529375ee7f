//! Checks the flags of launches against the engines' `--help`. An unknown flag becomes an error at its place
//! in the matrix or recipe.

use std::path::Path;
use std::sync::Arc;

use crate::config::yaml::{Diagnostic, Source, SourceSpan};
use crate::engine::{self, FlagReport, HelpContext, UnknownFlag};
use crate::plan::Launch;
use crate::results::record::upgrade::BuildFacts;
use crate::runner::environment::Environment;
use crate::runner::host_error::{self, HostError};
use crate::runner::load_matrix::LoadedMatrix;

#[derive(Debug, Default)]
pub(crate) struct FlagCheck {
    /// Flags that an engine's help does not name.
    pub(crate) unknown: Vec<Diagnostic>,
    /// Engines whose flags could not be checked, and why.
    pub(crate) notes: Vec<String>,
}

/// Runs the `help:` command of each recipe whose engine is installed. Fails if the host cannot run commands.
pub(crate) fn check(
    loaded: &LoadedMatrix,
    environment: &Environment,
    cache: &Path,
) -> Result<FlagCheck, HostError> {
    let FlagReport { unknown, notes } = unknown_flags(loaded, environment, cache)?;
    Ok(FlagCheck {
        unknown: unknown
            .iter()
            .map(|flag| unknown_flag(flag, &loaded.sources))
            .collect(),
        notes,
    })
}

/// As [`check`], with the flags themselves.
pub(crate) fn unknown_flags(
    loaded: &LoadedMatrix,
    environment: &Environment,
    cache: &Path,
) -> Result<FlagReport, HostError> {
    if loaded.plan.launches.iter().all(|launch| launch.help.is_empty()) {
        return Ok(FlagReport::default());
    }
    let path = environment.variable("PATH");
    let asking = HelpContext {
        docker_env: &environment.docker(),
        cache_dir: cache,
        matrix: &host_error::own_program()?,
        folder: &loaded.folder,
        path: path.as_deref(),
    };
    Ok(host_error::small_runtime()?.block_on(engine::check_flags(&loaded.plan.launches, &asking)))
}

/// Flags and packages of the builds of these launches, which have been started before, with the folder of their matrix. Fails
/// if the host cannot run commands.
pub(crate) fn build_facts(
    launches: &[&Launch],
    environment: &Environment,
    cache: &Path,
    folder: &Path,
) -> Result<Vec<BuildFacts>, HostError> {
    let path = environment.variable("PATH");
    let asking = HelpContext {
        docker_env: &environment.docker(),
        cache_dir: cache,
        matrix: &host_error::own_program()?,
        folder,
        path: path.as_deref(),
    };
    let runtime = host_error::small_runtime()?;
    let facts = launches
        .iter()
        .map(|launch| runtime.block_on(engine::build_facts(launch, &asking)));
    Ok(facts.collect())
}

fn unknown_flag(unknown: &UnknownFlag, sources: &[Source]) -> Diagnostic {
    let UnknownFlag {
        recipe,
        flag,
        source: asked,
        nearest,
    } = unknown;
    let diagnostic = Diagnostic::new(format!("`{asked}` has no flag `{flag}`"))
        .with_note("`--help` of the engine does not list this flag")
        .with_help(match nearest {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None => {
                "remove the flag; if `--help` lacks valid flags, remove `help:` from the recipe".to_owned()
            }
        });
    match flag_place(flag, recipe, sources) {
        None => diagnostic,
        Some(place) => match nearest {
            Some(nearest) => diagnostic
                .with_place(&place, "unknown flag")
                .with_replacement(&place, nearest.clone()),
            None => diagnostic.with_place(&place, "unknown flag"),
        },
    }
}

/// The place of a flag: in the matrix, otherwise in the engine's recipe. A launch does not record where its
/// arguments come from, but a flag has the same text in the file as in the command.
fn flag_place(flag: &str, recipe: &str, sources: &[Source]) -> Option<SourceSpan> {
    let of_recipe = |source: &&Source| {
        let file = source.name.trim_end_matches(" (shipped)");
        Path::new(file).file_stem().is_some_and(|stem| *stem == *recipe)
    };
    let matrix = sources.first();
    let files = matrix.into_iter().chain(sources.iter().skip(1).find(of_recipe));
    files.into_iter().find_map(|source| {
        let range = find_flag(&source.text, flag)?;
        Some(SourceSpan {
            file: Arc::from(&*source.name),
            range,
        })
    })
}

/// First occurrence of a flag as a whole word outside comments.
fn find_flag(text: &str, flag: &str) -> Option<std::ops::Range<usize>> {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut places = text.match_indices(flag).map(|(at, _)| at..at + flag.len());
    places.find(|place| {
        let before = &text[..place.start];
        let line = before.rsplit('\n').next().unwrap_or_default();
        let is_comment = line.starts_with('#') || line.contains(" #");
        let is_whole = !before.ends_with(is_letter) && !text[place.end..].starts_with(is_letter);
        is_whole && !is_comment
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_found_where_it_is_written_and_nowhere_else() {
        let text = "# --port\nargs: [--portal, --x-port] # --port\nmore: [--a, \"--port=3\"]\n";
        let place = find_flag(text, "--port").unwrap();
        assert_eq!(&text[place.start - 1..place.end + 3], "\"--port=3\"");
        assert_eq!(find_flag(text, "--nothing"), None);
    }
}
