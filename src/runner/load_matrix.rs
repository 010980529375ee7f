//! Reads and expands a matrix file with its recipes.

mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::base::ids::ContentHash;
use crate::base::text::pluralize;
use crate::config::engine::{Recipe, Recipes};
use crate::config::forms::Named;
use crate::config::job_containers::JobContainers;
use crate::config::matrix::{EngineEntry, Matrix, engine_name};
use crate::config::repeats::StartOrder;
use crate::config::shipped;
use crate::config::yaml::{self, Diagnostic, ReadResult, RenamedKey, Source};
use crate::plan::{Plan, expand, notes};

/// A matrix that was read and expanded, with its sources.
#[derive(Clone, Debug)]
pub(crate) struct LoadedMatrix {
    pub(crate) plan: Plan,
    /// The matrix file and its recipes, as read.
    pub(crate) sources: Vec<Source>,
    /// The folder of the matrix file; paths in the matrix are relative to it.
    pub(crate) folder: PathBuf,
    /// Notes and warnings about valid entries, one line each.
    pub(crate) notes: Vec<String>,
    /// The recipes of its engines.
    pub(crate) recipes: Recipes,
}

impl LoadedMatrix {
    /// A digest of the matrix file and its recipes.
    pub(crate) fn digest(&self) -> ContentHash {
        let texts: Vec<&str> = self.sources.iter().map(|source| &*source.text).collect();
        ContentHash::from_value(&texts)
    }
}

/// All errors of a matrix and its recipes.
#[derive(Debug)]
pub(crate) struct MatrixErrors {
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// The files that contain the errors.
    pub(crate) sources: Vec<Source>,
}

/// Largest matrix file in MiB.
const MAX_MATRIX_MIB: u64 = 64;

/// Reads the matrix file.
fn read_text(path: &Path) -> std::io::Result<String> {
    String::from_utf8(read_bytes(path, MAX_MATRIX_MIB)?).map_err(std::io::Error::other)
}

/// Reads a file up to a size limit; a device file may never end.
pub(crate) fn read_bytes(path: &Path, largest_mib: u64) -> std::io::Result<Vec<u8>> {
    let largest = largest_mib << 20;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path)?;
    // A regular file says its size, a device file does not.
    let is_too_large = file.metadata()?.len() > largest || {
        file.take(largest + 1).read_to_end(&mut bytes)?;
        bytes.len() as u64 > largest
    };
    match is_too_large {
        true => Err(std::io::Error::other(format!(
            "the file is larger than {largest_mib} MiB"
        ))),
        false => Ok(bytes),
    }
}

/// The folder of a matrix file.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Reads and expands a matrix with its recipes, for engines whose containers are started as given; `None` if nothing is
/// started. Reports all errors of all files together.
pub(crate) fn load(path: &Path, containers: Option<JobContainers>) -> Result<LoadedMatrix, MatrixErrors> {
    load_changed(path, containers, &mut |_| Ok(()))
}

/// As [`load`], with a change of the matrix before it is expanded.
pub(crate) fn load_changed(
    path: &Path,
    containers: Option<JobContainers>,
    change: &mut dyn FnMut(&mut Matrix) -> Result<(), Box<Diagnostic>>,
) -> Result<LoadedMatrix, MatrixErrors> {
    let text = match read_text(path) {
        Ok(text) => text,
        Err(error) => {
            let help = match nearby_matrix(path) {
                Some(near) => format!("did you mean `{}`?", near.display()),
                None => "give the path of a matrix file; `matrix init` creates one".to_owned(),
            };
            let diagnostic =
                Diagnostic::new(format!("cannot read `{}`: {error}", path.display())).with_help(help);
            return Err(MatrixErrors {
                diagnostics: vec![diagnostic],
                sources: Vec::new(),
            });
        }
    };
    let folder = folder_of(path);
    let mut sources = vec![Source::new(path.display().to_string(), text)];
    let ReadResult {
        value: matrix,
        mut diagnostics,
        mut renamed,
    } = yaml::read_with_renames::<Matrix>(&sources[0]);
    let Some(mut matrix) = matrix else {
        yaml::add_missing_keys(
            &sources[0],
            &required_keys("schemas/matrix.json"),
            &mut diagnostics,
        );
        return Err(MatrixErrors { diagnostics, sources });
    };
    matrix.containers = containers;
    if matrix.name.value.is_empty() {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        matrix.name = stem.into_owned().into();
    }
    let has_recipe = |name: &str| recipe_source(name, folder).is_some();
    diagnostics.extend(matrix.split_versions(&has_recipe));
    if let Err(diagnostic) = change(&mut matrix) {
        diagnostics.push(*diagnostic);
        return Err(MatrixErrors { diagnostics, sources });
    }
    let recipes = load_recipes(&matrix, folder, &mut sources, &mut diagnostics, &mut renamed);
    let unreadable = unreadable_recipes(&matrix, &recipes, folder);
    // A matrix with errors is still expanded, to find the remaining errors.
    match expand(&matrix, &recipes) {
        Ok(plan) => {
            if diagnostics.is_empty() {
                diagnostics = files::unusable_files(&matrix, folder);
            }
            match diagnostics.is_empty() {
                true => Ok(LoadedMatrix {
                    notes: renamed_key_notes(&renamed, &sources)
                        .chain(matrix_notes(&matrix))
                        .chain(notes::notes(&plan, &recipes))
                        .chain(files::left_out_items(&matrix, folder))
                        .collect(),
                    plan,
                    sources,
                    folder: folder.to_path_buf(),
                    recipes,
                }),
                false => Err(MatrixErrors { diagnostics, sources }),
            }
        }
        Err(more) => {
            let new: Vec<Diagnostic> = more
                .into_iter()
                .filter(|diagnostic| {
                    !is_consequence(diagnostic, &diagnostics)
                        && !lacks_unread_dataset(diagnostic, &diagnostics)
                        && !lacks_unread_length(diagnostic, &diagnostics)
                        && !unreadable.contains(&diagnostic.message)
                })
                .collect();
            diagnostics.extend(new);
            Err(MatrixErrors { diagnostics, sources })
        }
    }
}

/// A matrix file whose name is nearest to that of a missing one: in its folder, or among the `matrices` here.
fn nearby_matrix(missing: &Path) -> Option<PathBuf> {
    let name = missing.file_stem()?.to_string_lossy().into_owned();
    let folders = [folder_of(missing).to_owned(), PathBuf::from("matrices")];
    folders.into_iter().find_map(|folder| {
        let entries = std::fs::read_dir(&folder).ok()?;
        let files = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
        let known: BTreeMap<String, PathBuf> = files
            .filter(|path| {
                path.extension()
                    .is_some_and(|kind| kind == "yaml" || kind == "yml")
            })
            .filter_map(|path| Some((path.file_stem()?.to_string_lossy().into_owned(), path)))
            .collect();
        let near = yaml::nearest_name(&name, known.keys().map(String::as_str))?;
        let path = known.get(near)?;
        Some(path.strip_prefix(".").unwrap_or(path).to_owned())
    })
}

/// Notes about keys with earlier names, one line for each name and file.
fn renamed_key_notes<'a>(
    renamed: &'a [RenamedKey],
    sources: &'a [Source],
) -> impl Iterator<Item = String> + use<'a> {
    let mut lines: BTreeMap<(&str, &str, &str), Vec<usize>> = BTreeMap::new();
    for RenamedKey {
        place,
        old_name: earlier,
        new_name: today,
    } in renamed
    {
        let source = sources.iter().find(|source| *source.name == *place.file);
        let before = source.and_then(|source| source.text.get(..place.range.start));
        let line = before.map_or(0, |before| before.matches('\n').count() + 1);
        lines.entry((&place.file, earlier, today)).or_default().push(line);
    }
    lines.into_iter().map(|((file, earlier, today), lines)| {
        let more = match lines.len() {
            1 => String::new(),
            many => format!(" and in {}", pluralize(many - 1, "other line", "other lines")),
        };
        format!(
            "note: {file}:{}{more}: `{earlier}` is now named `{today}`",
            lines[0]
        )
    })
}

/// Notes on how a valid matrix could be improved, one line each.
fn matrix_notes(matrix: &Matrix) -> Vec<String> {
    let older = matrix.repeats.interleave.as_ref();
    let order = matrix.repeats.order();
    let interleave = older.map(|interleave| {
        format!(
            "note: `interleave: {interleave}` is the older form of `order: {}`{}",
            order.name(),
            if order == StartOrder::Alternate {
                ", which is the default"
            } else {
                ""
            }
        )
    });
    let notes = interleave.into_iter().chain(shared_server_notes(matrix));
    notes.chain(unencrypted_notes(matrix)).collect()
}

/// Notes addresses that `tls` does not concern, beside others that it does.
fn unencrypted_notes(matrix: &Matrix) -> Vec<String> {
    let of_engine = |engine: &Named<EngineEntry>| {
        engine.value.tls.as_ref()?;
        let urls = engine.value.urls.as_ref()?;
        let plain = urls
            .value
            .iter()
            .filter(|url| url.as_str().starts_with("http://"));
        let plain: Vec<&str> = plain.map(|url| url.as_str()).collect();
        (!plain.is_empty()).then(|| {
            format!(
                "note: `tls` of `{}` has no effect on {}: connections to `http://` are not encrypted",
                engine_name(engine),
                yaml::backtick_list(plain)
            )
        })
    };
    matrix.engines.iter().filter_map(of_engine).collect()
}

/// Warns about engines that attach to the same server.
fn shared_server_notes(matrix: &Matrix) -> Vec<String> {
    let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for engine in matrix.engines.iter() {
        if let Some(url) = &engine.value.url {
            let server = url.value.as_str().trim_end_matches('/');
            names.entry(server).or_default().push(&engine_name(engine).value);
        }
    }
    names.retain(|_, names| names.len() > 1);
    names
        .into_iter()
        .map(|(url, names)| {
            format!(
                "note: {} attach to the same server, `{url}`, which is therefore compared with itself",
                yaml::backtick_list(names)
            )
        })
        .collect()
}

/// Reads the recipes that the matrix names. If one is unknown, all others are read too, to suggest the
/// nearest name.
fn load_recipes(
    matrix: &Matrix,
    folder: &Path,
    sources: &mut Vec<Source>,
    diagnostics: &mut Vec<Diagnostic>,
    renamed: &mut Vec<RenamedKey>,
) -> Recipes {
    let mut recipes = Recipes::new();
    let names: BTreeSet<&str> = matrix
        .engines
        .iter()
        .map(|named| named.name.value.as_str())
        .collect();
    let before = diagnostics.len();
    for name in names {
        let Some(source) = recipe_source(name, folder) else {
            continue;
        };
        let reading = yaml::read_with_renames::<Recipe>(&source);
        diagnostics.extend(reading.diagnostics);
        renamed.extend(reading.renamed);
        match reading.value {
            Some(recipe) => {
                let recipe = recipe.completed();
                diagnostics.extend(check_recipe_name(&recipe, name));
                diagnostics.extend(check_recipe_start(&recipe));
                recipes.insert(name.to_owned(), recipe);
            }
            None => yaml::add_missing_keys(&source, &required_keys("schemas/engine.json"), diagnostics),
        }
        sources.push(source);
    }
    if diagnostics.len() == before {
        for name in shipped::yaml_names("engines").chain(local_recipes(folder)) {
            let recipe = || yaml::read::<Recipe>(&recipe_source(&name, folder)?).0;
            if !recipes.contains_key(&name)
                && let Some(recipe) = recipe()
            {
                recipes.insert(name, recipe.completed());
            }
        }
    }
    recipes
}

/// Messages about engines whose recipes have errors, which are reported at their places instead.
fn unreadable_recipes(matrix: &Matrix, recipes: &Recipes, folder: &Path) -> BTreeSet<String> {
    let names = matrix.engines.iter().map(|named| named.name.value.as_str());
    names
        .filter(|name| !recipes.contains_key(*name) && recipe_source(name, folder).is_some())
        .map(|name| format!("unknown engine `{name}`"))
        .collect()
}

/// The keys that a file of this shipped schema must have.
fn required_keys(schema: &str) -> Vec<String> {
    #[derive(serde::Deserialize)]
    struct Required {
        required: Vec<String>,
    }
    let text = shipped::file_text(schema).expect("the schema is shipped");
    let Required { required } = serde_json::from_str(text).expect("the schema has required keys");
    required
}

fn check_recipe_name(recipe: &Recipe, name: &str) -> Option<Diagnostic> {
    if recipe.name.value == name {
        return None;
    }
    let diagnostic = Diagnostic::new(format!(
        "the recipe is named `{}`, but its file is named `{name}.yaml`",
        recipe.name
    ))
    .with_help("use the same name for the recipe and its file");
    Some(match &recipe.name.place {
        Some(place) => diagnostic.with_place(place, "this name differs from the file name of the recipe"),
        None => diagnostic,
    })
}

fn check_recipe_start(recipe: &Recipe) -> Option<Diagnostic> {
    if recipe.has_start() {
        return None;
    }
    let diagnostic = Diagnostic::new(format!(
        "the recipe `{}` does not say how to start the engine",
        recipe.name
    ))
    .with_help("add `command: [my-engine, serve, \"{model}\", --port, \"{port}\"]`, or a `container` with `image` and `command`");
    Some(match &recipe.name.place {
        Some(place) => diagnostic.with_place(place, "the command is missing"),
        None => diagnostic,
    })
}

/// Whether an error may follow from another one, because the entry with the other error was left out.
fn is_consequence(diagnostic: &Diagnostic, others: &[Diagnostic]) -> bool {
    let Some(place) = &diagnostic.place else {
        return !others.is_empty();
    };
    others
        .iter()
        .filter_map(|other| other.place.as_ref())
        .any(|other| {
            other.file == place.file
                && other.range.start < place.range.end
                && place.range.start < other.range.end
        })
}

/// Whether a scenario only lacks a length because the one that it sets could not be read.
fn lacks_unread_length(diagnostic: &Diagnostic, others: &[Diagnostic]) -> bool {
    let message = diagnostic.message.strip_prefix("invalid `");
    let Some((key, rest)) = message.and_then(|rest| rest.split_once("` in the scenario `")) else {
        return false;
    };
    let field = format!(".{}.{key}`", rest.trim_end_matches('`'));
    others.iter().any(|other| other.message.contains(&field))
}

/// Whether a scenario only lacks a data set because the one it names could not be read.
fn lacks_unread_dataset(diagnostic: &Diagnostic, others: &[Diagnostic]) -> bool {
    let message = diagnostic.message.strip_prefix("the scenario `");
    let Some(name) = message.and_then(|rest| rest.strip_suffix("` has no data set")) else {
        return false;
    };
    let field = format!(".{name}.dataset`");
    others
        .iter()
        .any(|other| other.message.contains(&field) || other.label.contains(&field))
}

/// Folders of recipes: beside the matrix's folder, in it, and in the current folder.
fn recipe_folders(folder: &Path) -> [PathBuf; 3] {
    [
        folder.join("../engines"),
        folder.join("engines"),
        PathBuf::from("engines"),
    ]
}

/// The recipe of that name from the first folder that has it, otherwise the shipped one.
pub(super) fn recipe_source(name: &str, folder: &Path) -> Option<Source> {
    let file = format!("{name}.yaml");
    let local = recipe_folders(folder).into_iter().find_map(|place| {
        let path = place.join(&file);
        let text = std::fs::read_to_string(&path).ok()?;
        Some(Source::new(path.display().to_string(), text))
    });
    let shipped = || {
        let text = shipped::file_text(&format!("engines/{file}"))?;
        Some(Source::new(format!("engines/{file} (shipped)"), text))
    };
    local.or_else(shipped)
}

pub(super) fn local_recipes(folder: &Path) -> impl Iterator<Item = String> {
    recipe_folders(folder)
        .into_iter()
        .filter_map(|place| std::fs::read_dir(place).ok())
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            (path.extension()? == "yaml")
                .then(|| path.file_stem().map(|stem| stem.to_string_lossy().into_owned()))?
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_tls_does_not_concern_are_noted() {
        let notes = |urls: &str| {
            let text = format!(
                "name: m\nengines:\n  - attach: {{ as: e, urls: [{urls}], tls: {{ insecure: true }} }}\nmodels: [m]\nscenarios: [sharegpt]\n"
            );
            let (matrix, errors) = yaml::read::<Matrix>(&Source::new("m.yaml", text));
            assert!(errors.is_empty(), "{errors:?}");
            unencrypted_notes(&matrix.unwrap())
        };
        assert_eq!(notes("'https://a', 'https://b'"), Vec::<String>::new());
        let mixed = notes("'https://a', 'http://b'");
        assert!(
            mixed[0].contains("`tls` of `e` has no effect on `http://b`"),
            "{mixed:?}"
        );
    }
}
