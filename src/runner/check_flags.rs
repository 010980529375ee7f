//! Checks the flags of launches against the engines' `--help`. An unknown flag becomes an error at its place
//! in the matrix or recipe.

use std::path::Path;
use std::sync::Arc;

use crate::config::yaml::{Mistake, Place, Source};
use crate::engine::{self, Asking, UnknownFlag};
use crate::runner::environment::Environment;
use crate::runner::host_error::{self, HostError};
use crate::runner::load_matrix::LoadedMatrix;

#[derive(Debug, Default)]
pub(crate) struct FlagCheck {
    /// Flags that an engine's help does not name.
    pub(crate) unknown: Vec<Mistake>,
    /// Engines whose flags could not be checked, and why.
    pub(crate) notes: Vec<String>,
}

/// Runs the `help:` command of each recipe whose engine is installed. Fails if the host cannot run commands.
pub(crate) fn check(
    loaded: &LoadedMatrix,
    environment: &Environment,
    cache: &Path,
) -> Result<FlagCheck, HostError> {
    if loaded.plan.launches.iter().all(|launch| launch.help.is_empty()) {
        return Ok(FlagCheck::default());
    }
    let path = environment.variable("PATH");
    let asking = Asking {
        whereabouts: &environment.docker(),
        cache,
        matrix: &host_error::own_program()?,
        folder: &loaded.folder,
        path: path.as_deref(),
    };
    let found = host_error::small_runtime()?.block_on(engine::check_flags(&loaded.plan.launches, &asking));
    let mistakes = found.unknown.iter();
    Ok(FlagCheck {
        unknown: mistakes.map(|flag| mistake(flag, &loaded.sources)).collect(),
        notes: found.notes,
    })
}

fn mistake(unknown: &UnknownFlag, sources: &[Source]) -> Mistake {
    let UnknownFlag {
        recipe,
        flag,
        asked,
        nearest,
    } = unknown;
    let mistake = Mistake::new(format!("`{asked}` knows no flag `{flag}`"))
        .note("its own `--help` does not name it")
        .help(match nearest {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None => {
                "take it out; if the engine takes it all the same, take `help:` out of the recipe".to_owned()
            }
        });
    match place(flag, recipe, sources) {
        None => mistake,
        Some(place) => match nearest {
            Some(nearest) => mistake
                .at(&place, "unknown flag")
                .replace(&place, nearest.clone()),
            None => mistake.at(&place, "unknown flag"),
        },
    }
}

/// The place of a flag: in the matrix, otherwise in the engine's recipe. A launch does not record where its
/// arguments come from, but a flag has the same text in the file as in the command.
fn place(flag: &str, recipe: &str, sources: &[Source]) -> Option<Place> {
    let of_recipe = |source: &&Source| {
        let file = source.name.trim_end_matches(" (shipped)");
        Path::new(file).file_stem().is_some_and(|stem| *stem == *recipe)
    };
    let matrix = sources.first();
    let files = matrix.into_iter().chain(sources.iter().skip(1).find(of_recipe));
    files.into_iter().find_map(|source| {
        let range = written(&source.text, flag)?;
        Some(Place {
            file: Arc::from(&*source.name),
            range,
        })
    })
}

/// First occurrence of a flag as a whole word outside comments.
fn written(text: &str, flag: &str) -> Option<std::ops::Range<usize>> {
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
        let place = written(text, "--port").unwrap();
        assert_eq!(&text[place.start - 1..place.end + 3], "\"--port=3\"");
        assert_eq!(written(text, "--nothing"), None);
    }
}
