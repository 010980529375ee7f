//! `matrix list`: runs, engines and data sets, with the names that other commands accept.

use std::path::Path;

use serde_json::{Value, json};

use crate::base::text::{one_line, printable};
use crate::cli::orientation::{ListArgs, Listed};
use crate::commands::environment::cache_dirs;
use crate::commands::error::{CommandError, Outcome};
use crate::commands::output::{eprint, print};
use crate::commands::unreadable;
use crate::config::dataset::DatasetName;
use crate::exit::Exit;
use crate::results::store;
use crate::runner::inventory::{self, DatasetFile};

/// A list: the heads of its columns, a line for each entry, the same as JSON, what to do if it is empty, and warnings.
struct Listing {
    heads: &'static [&'static str],
    lines: Vec<Vec<String>>,
    json: Vec<Value>,
    if_empty: String,
    /// Messages about entries that are left out.
    warnings: Vec<String>,
}

pub(crate) fn execute(args: &ListArgs) -> Outcome {
    let listing = match args.what {
        Listed::Runs => runs(&args.results)?,
        Listed::Engines => engines(),
        Listed::Datasets => datasets(args),
    };
    for warning in &listing.warnings {
        eprint(&format!("warning: {warning}\n"));
    }
    print(&match args.json {
        true => format!("{}\n", Value::Array(listing.json)),
        false if listing.lines.is_empty() => listing.if_empty,
        false => printable(&aligned(listing.heads, &listing.lines)),
    });
    Ok(Exit::Done)
}

fn runs(results: &Path) -> Result<Listing, CommandError> {
    let failed = |error| CommandError::usage(format!("error: cannot list the runs: {error}\n"));
    let entries = store::list_runs(results).map_err(failed)?;
    let unreadable = store::list_unreadable_runs(results).map_err(failed)?;
    let mut listing = Listing {
        heads: &["RUN", "MATRIX", "BEGAN", "FINISHED"],
        lines: Vec::new(),
        json: Vec::new(),
        if_empty: match unreadable.len() {
            0 => format!(
                "no run in {}; start one with: matrix run MATRIX\n",
                results.display()
            ),
            _ => format!("no run in {} can be read\n", results.display()),
        },
        warnings: unreadable
            .iter()
            .map(|run| unreadable::left_out(&run.error))
            .collect(),
    };
    for entry in entries {
        let folder = entry.folder.file_name().unwrap_or_default().to_string_lossy();
        let finished = store::count_finished(&entry.folder).ok();
        let planned = store::read_plan(&entry.folder)
            .ok()
            .map(|plan| plan.measurements());
        let text = |count: Option<usize>| count.map_or_else(|| "?".to_owned(), |count| count.to_string());
        listing.lines.push(vec![
            one_line(&folder),
            one_line(&entry.info.matrix),
            one_line(&entry.info.began),
            format!("{} of {}", text(finished), text(planned)),
        ]);
        listing.json.push(json!({
            "run": folder,
            "folder": entry.folder,
            "matrix": entry.info.matrix,
            "began": entry.info.began,
            "tool": entry.info.tool,
            "finished": finished,
            "planned": planned,
        }));
    }
    Ok(listing)
}

fn engines() -> Listing {
    // As for a matrix of this folder or of `matrices`.
    let matrices = Path::new("matrices");
    let folder = if matrices.is_dir() {
        matrices
    } else {
        Path::new("")
    };
    let known = inventory::engines(folder);
    let lines = known.iter().map(|engine| match &engine.about {
        Some(about) => vec![
            engine.name.clone(),
            one_line(about.version.as_deref().unwrap_or("-")),
            about.executors.join(", "),
            one_line(&engine.recipe),
            one_line(&about.title),
        ],
        None => vec![
            engine.name.clone(),
            "-".to_owned(),
            "-".to_owned(),
            one_line(&engine.recipe),
            "the recipe has errors; `matrix check` of a matrix with this engine shows them".to_owned(),
        ],
    });
    let json = known.iter().map(|engine| {
        let about = engine.about.as_ref();
        json!({
            "engine": engine.name,
            "recipe": engine.recipe,
            "title": about.map(|about| &about.title),
            "version": about.and_then(|about| about.version.as_ref()),
            "executors": about.map(|about| &about.executors),
            "variants": about.map(|about| &about.variants),
        })
    });
    Listing {
        heads: &["ENGINE", "VERSION", "RUNS AS", "RECIPE", "TITLE"],
        lines: lines.collect(),
        json: json.collect(),
        if_empty: String::new(),
        warnings: Vec::new(),
    }
}

fn datasets(args: &ListArgs) -> Listing {
    let known = inventory::datasets(&cache_dirs(&args.places, false).input_caches());
    let file = |file: &DatasetFile| match file {
        DatasetFile::NotNeeded => "needs no file".to_owned(),
        DatasetFile::Found(path) => path.display().to_string(),
        DatasetFile::Fetchable(name) => format!("missing; matrix fetch --dataset {}", written(*name)),
        DatasetFile::Named => "your own file; name it with `path:` in the scenario".to_owned(),
    };
    Listing {
        heads: &["DATASET", "FILE"],
        lines: known
            .iter()
            .map(|known| vec![written(known.name), one_line(&file(&known.file))])
            .collect(),
        json: known
            .iter()
            .map(|known| {
                let path = match &known.file {
                    DatasetFile::Found(path) => Some(path),
                    _ => None,
                };
                json!({
                    "dataset": known.name,
                    "needs_file": known.file != DatasetFile::NotNeeded,
                    "file": path,
                    "fetchable": matches!(known.file, DatasetFile::Fetchable(_)),
                })
            })
            .collect(),
        if_empty: String::new(),
        warnings: Vec::new(),
    }
}

/// The name of a data set as a matrix has it.
fn written(name: DatasetName) -> String {
    json!(name).as_str().unwrap_or_default().to_owned()
}

/// Lines whose columns are as wide as their widest text.
fn aligned(heads: &[&str], lines: &[Vec<String>]) -> String {
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    let lines: Vec<&Vec<String>> = std::iter::once(&heads).chain(lines).collect();
    let width = |column: usize| {
        let texts = lines.iter().filter_map(|line| line.get(column));
        texts.map(|text| text.chars().count()).max().unwrap_or(0)
    };
    let mut text = String::new();
    for line in &lines {
        for (column, cell) in line.iter().enumerate() {
            let is_last = column + 1 == line.len();
            let padding = if is_last {
                0
            } else {
                width(column) - cell.chars().count() + 2
            };
            text.push_str(cell);
            text.push_str(&" ".repeat(padding));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::base::secrets::Redactor;
    use crate::results::store::testing::{create_and_begin, plan};

    #[test]
    fn runs_that_cannot_be_read_are_named() {
        let root = tempfile::tempdir().unwrap();
        create_and_begin(root.path(), "good", &plan(), Redactor::default());
        let damaged = root.path().join("damaged");
        fs::create_dir(&damaged).unwrap();
        fs::write(damaged.join("run.json"), "{").unwrap();
        let listing = runs(root.path()).unwrap();
        assert_eq!(listing.lines.len(), 1);
        assert_eq!(listing.warnings.len(), 1);
        let path = damaged.join("run.json").display().to_string();
        assert!(listing.warnings[0].contains(&path), "{}", listing.warnings[0]);
        fs::remove_dir_all(root.path().join("good")).unwrap();
        let listing = runs(root.path()).unwrap();
        assert!(listing.if_empty.contains("can be read"), "{}", listing.if_empty);
    }
}
