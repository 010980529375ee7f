//! Flags that an engine does not know, as mistakes with the place where somebody wrote them.

use std::sync::Arc;

use anyhow::Context;

use crate::cli::{self, Places};
use crate::commands::{Read, Refusal, complain, whereabouts};
use crate::config::yaml::{Mistake, Place, Source};
use crate::engine::{self, Asking, UnknownFlag};

/// Asks the engines that are at hand; what could not be asked is told on stderr.
pub(crate) fn unknown(read: &Read, places: &Places) -> Result<Vec<Mistake>, Refusal> {
    if read.plan.launches.iter().all(|launch| launch.help.is_empty()) {
        return Ok(Vec::new());
    }
    let whereabouts = whereabouts();
    let path = cli::variable("PATH");
    let matrix = std::env::current_exe().context("cannot find the program's own file")?;
    let asking = Asking {
        whereabouts: &whereabouts,
        cache: &places.cache(),
        matrix: &matrix,
        folder: &read.folder,
        path: path.as_deref(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    let found = runtime.block_on(engine::check_flags(&read.plan.launches, &asking));
    for note in &found.notes {
        complain(&format!("note: {note}\n"));
    }
    let mistakes = found.unknown.iter();
    Ok(mistakes.map(|flag| mistake(flag, &read.sources)).collect())
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

/// Where a flag is written: in the matrix, else in the engine's recipe. Texts of a launch do not know where they come from, but a
/// flag stands in the file as it stands in the command.
fn place(flag: &str, recipe: &str, sources: &[Source]) -> Option<Place> {
    let of_recipe = |source: &&Source| {
        let file = source.name.trim_end_matches(" (shipped)");
        std::path::Path::new(file)
            .file_stem()
            .is_some_and(|stem| *stem == *recipe)
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

/// The first place of a flag in a text: as a whole word, and not in a comment.
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
