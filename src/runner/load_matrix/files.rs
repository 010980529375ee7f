//! Errors about files that a matrix names.

use std::path::Path;

use crate::base::tls::TlsConfig;
use crate::config::builtin_scenarios;
use crate::config::connections::TlsOptions;
use crate::config::dataset::DatasetName;
use crate::config::forms::Named;
use crate::config::matrix::{Matrix, ScenarioEntry};
use crate::config::quality::Task;
use crate::config::yaml::Diagnostic;
use crate::loadgen::dataset::{check_folder, check_lengths_file, check_trace, tokenizer};
use crate::runner::answers::checks::AnswerChecks;
use crate::runner::graded::check_items;

/// Errors about all files; relative paths are below `folder`.
pub(super) fn unusable_files(matrix: &Matrix, folder: &Path) -> Vec<Diagnostic> {
    let mut diagnostics = missing_files(matrix, folder);
    diagnostics.extend(missing_tokenizers(matrix, folder));
    diagnostics.extend(malformed_traces(matrix, folder));
    diagnostics.extend(unusable_lengths(matrix, folder));
    diagnostics.extend(unusable_tls_files(matrix, folder));
    diagnostics.extend(unnamed_files(matrix));
    diagnostics.extend(unusable_folders(matrix, folder));
    diagnostics.extend(invalid_schemas(matrix));
    diagnostics.extend(unusable_items(matrix, folder));
    diagnostics
}

/// An error at the name of a scenario.
fn at_scenario(named: &Named<ScenarioEntry>, message: impl Into<String>, label: &str) -> Diagnostic {
    let diagnostic = Diagnostic::new(message);
    match &named.name.place {
        Some(place) => diagnostic.with_place(place, label),
        None => diagnostic,
    }
}

/// Errors about scenarios whose data set is read from a file that nothing names and that has no default.
fn unnamed_files(matrix: &Matrix) -> Vec<Diagnostic> {
    let scenarios = matrix.scenarios.iter();
    scenarios
        .filter_map(|named| {
            let entry = builtin_scenarios::completed(named);
            let workload = entry.workload(1).ok()??;
            let file = workload.facts().file.filter(|file| file.default.is_none())?;
            let is_named =
                entry.path.is_some() || matrix.datasets.iter().any(|(key, _)| key.value == file.key);
            let may_be = match workload.facts().may_be_folder() {
                true => "file or folder",
                false => "file",
            };
            let message = format!(
                "the scenario `{}` names no {may_be} for its data set `{}`",
                named.name,
                workload.dataset.bench_serving_name()
            );
            let help = format!(
                "add `path` to the scenario, or `{}` to `datasets:` of the matrix",
                file.key
            );
            (!is_named).then(|| at_scenario(named, message, "no `path`").with_help(help))
        })
        .collect()
}

/// Errors about folders of data sets that have no file of the right format.
fn unusable_folders(matrix: &Matrix, folder: &Path) -> Vec<Diagnostic> {
    let mut diagnostics: Vec<Diagnostic> = Vec::new();
    for named in matrix.scenarios.iter() {
        let entry = builtin_scenarios::completed(named);
        let Some(dataset) = entry.dataset else { continue };
        let facts = dataset.default_dataset();
        let key = facts.facts().file.map(|file| file.key);
        let shared = matrix
            .datasets
            .iter()
            .find(|(name, _)| key == Some(name.value.as_str()));
        let Some(path) = entry.path.as_ref().or(shared.map(|(_, path)| path)) else {
            continue;
        };
        let Err(error) = check_folder(dataset, &folder.join(&path.value)) else {
            continue;
        };
        let diagnostic = Diagnostic::new(error.to_string());
        diagnostics.push(match &path.place {
            Some(place) => diagnostic.with_place(place, format!("sent by the scenario `{}`", named.name)),
            None => diagnostic,
        });
    }
    diagnostics
}

/// Errors about files of graded items.
fn unusable_items(matrix: &Matrix, folder: &Path) -> Vec<Diagnostic> {
    let Some(quality) = &matrix.quality else {
        return Vec::new();
    };
    let resolved = quality.resolve();
    let tasks = resolved.tasks.iter().filter_map(|task| {
        let why = check_items(task, folder).err()?;
        let entry = quality.tasks.iter().find(|named| named.name.value == task.name)?;
        let diagnostic = Diagnostic::new(format!("the items of the task `{}` cannot be used: {why}", task.name))
            .with_help("paths are relative to the matrix file; each row needs an `answer`, and one of `prompt`, `question` and `messages`");
        let place = entry.value.path.as_ref().and_then(|path| path.place.as_ref());
        Some(match place {
            Some(place) => diagnostic.with_place(place, "this file"),
            None => diagnostic,
        })
    });
    tasks.collect()
}

/// Notes about rows of graded items that are left out, one line each.
pub(super) fn left_out_items(matrix: &Matrix, folder: &Path) -> Vec<String> {
    let tasks = matrix.quality.iter().flat_map(|quality| quality.resolve().tasks);
    let note = |task: Task| {
        let left_out = check_items(&task, folder).ok()??;
        Some(format!("note: the task `{}`: {left_out}", task.name))
    };
    tasks.filter_map(note).collect()
}

/// Errors about bodies whose schemas answers cannot be checked against.
fn invalid_schemas(matrix: &Matrix) -> Vec<Diagnostic> {
    let scenarios = matrix.scenarios.iter();
    scenarios
        .filter_map(|named| {
            let entry = builtin_scenarios::completed(named);
            entry.check_answers.as_ref().filter(|checks| checks.value)?;
            let why = AnswerChecks::check_body(&entry.body.0).err()?;
            let message = format!(
                "the answers of the scenario `{}` cannot be checked: {why}",
                named.name
            );
            Some(
                at_scenario(named, message, "its `body`")
                    .with_help("correct the schema, or remove `check_answers`"),
            )
        })
        .collect()
}

/// Errors about missing files that the matrix names. Some data sets also read folders.
fn missing_files(matrix: &Matrix, folder: &Path) -> Vec<Diagnostic> {
    let reads_folders = |dataset: DatasetName| dataset.default_dataset().facts().may_be_folder();
    let has_key = |dataset: DatasetName, key: &str| {
        let dataset = dataset.default_dataset();
        dataset.facts().file.is_some_and(|file| file.key == key)
    };
    let shared = matrix.datasets.iter().map(|(key, path)| {
        let mut readers = DatasetName::ALL.iter().filter(|dataset| has_key(**dataset, key));
        (path, readers.any(|dataset| reads_folders(*dataset)))
    });
    let own = matrix.scenarios.iter().filter_map(|named| {
        let dataset = builtin_scenarios::completed(named).dataset;
        Some((named.value.path.as_ref()?, dataset.is_some_and(reads_folders)))
    });
    shared
        .chain(own)
        .filter(|(path, may_be_folder)| {
            let full_path = folder.join(&path.value);
            !(full_path.is_file() || *may_be_folder && full_path.is_dir())
        })
        .map(|(path, _)| {
            let full_path = folder.join(&path.value);
            let (message, label, help) = match full_path.is_dir() {
                true => (
                    "is a folder",
                    "a folder",
                    "name a file instead of its folder; paths are relative to the matrix file",
                ),
                false => (
                    "does not exist",
                    "no such file",
                    "paths are relative to the matrix file",
                ),
            };
            let diagnostic = Diagnostic::new(format!("the data set's file `{path}` {message}"))
                .with_note(format!("looked for {}", full_path.display()))
                .with_help(help);
            match &path.place {
                Some(place) => diagnostic.with_place(place, label),
                None => diagnostic,
            }
        })
        .collect()
}

/// Errors about files with pairs of lengths.
fn unusable_lengths(matrix: &Matrix, folder: &Path) -> Vec<Diagnostic> {
    let scenarios = matrix.scenarios.iter();
    scenarios
        .filter_map(|named| {
            let workload = builtin_scenarios::completed(named).workload(1).ok()??;
            let error = check_lengths_file(&workload.with_lengths_in(folder)).err()?;
            let label = format!("`lengths` of the scenario `{}`", named.name);
            Some(at_scenario(named, error.to_string(), &label))
        })
        .collect()
}

/// Errors about files of TLS settings that cannot be used.
fn unusable_tls_files(matrix: &Matrix, folder: &Path) -> Vec<Diagnostic> {
    let entries = matrix.engines.iter().filter_map(|named| named.value.tls.as_ref());
    let problem = |tls: &TlsOptions| {
        let settings = tls.settings(folder, str::to_owned).ok()?;
        match tls.files().next() {
            Some(_) => TlsConfig::load(&settings).err(),
            None => None,
        }
    };
    entries
        .filter_map(|tls| {
            let diagnostic = Diagnostic::new(problem(&tls.value)?.to_string())
                .with_help("files named in `tls` must be PEM files; relative paths start at the folder of the matrix file");
            Some(match &tls.place {
                Some(place) => diagnostic.with_place(place, "named here"),
                None => diagnostic,
            })
        })
        .collect()
}

/// Errors about traces whose rows cannot be sent.
fn malformed_traces(matrix: &Matrix, folder: &Path) -> Vec<Diagnostic> {
    const DEFAULT_PROMPTS: u32 = 1000;
    let mut diagnostics: Vec<Diagnostic> = Vec::new();
    let shared = matrix.datasets.iter().find(|(name, _)| name.value == "mooncake");
    for named in matrix.scenarios.iter() {
        let entry = builtin_scenarios::completed(named);
        let path = entry.path.as_ref().or(shared.map(|(_, path)| path));
        let Some(path) = path.filter(|_| entry.dataset == Some(DatasetName::Mooncake)) else {
            continue;
        };
        let full_path = folder.join(&path.value);
        let prompts = entry
            .prompts
            .as_ref()
            .map_or(DEFAULT_PROMPTS, |prompts| prompts.value);
        let rounds = entry.mooncake.as_ref().map_or(1, |replay| replay.rounds);
        let checked = full_path
            .is_file()
            .then(|| check_trace(&full_path, prompts, rounds));
        let Some(Err(error)) = checked else { continue };
        let diagnostic = Diagnostic::new(error.to_string());
        let diagnostic = match &path.place {
            Some(place) => diagnostic.with_place(place, format!("sent by the scenario `{}`", named.name)),
            None => diagnostic,
        };
        diagnostics.push(diagnostic);
    }
    diagnostics
}

/// Errors about missing tokenizers that are paths. A tokenizer that may be a model name is searched when it
/// is needed.
fn missing_tokenizers(matrix: &Matrix, folder: &Path) -> Vec<Diagnostic> {
    let named = matrix
        .models
        .iter()
        .filter_map(|named| named.value.tokenizer.as_ref());
    let lacking = named.filter(|name| tokenizer::is_missing_path(&name.value, folder));
    lacking
        .map(|name| {
            let diagnostic = Diagnostic::new(format!("the tokenizer `{name}` does not exist"))
                .with_note(format!("looked for {}", folder.join(&name.value).display()))
                .with_help("name a `tokenizer.json` or a folder that contains one, relative to the matrix file, or a model such as `Qwen/Qwen3-8B`");
            match &name.place {
                Some(place) => diagnostic.with_place(place, "no such file"),
                None => diagnostic,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::yaml::{self, Source};

    #[test]
    fn a_folder_is_taken_by_the_data_sets_that_read_folders() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("recordings")).unwrap();
        let errors = |datasets: &str, scenario: &str| {
            let text = format!(
                "name: m\nengines: [sim]\nmodels: [m]\ndatasets: {{ {datasets} }}\nscenarios:\n  - a: {{ {scenario} }}\n"
            );
            let (matrix, _) = yaml::read::<Matrix>(&Source::new("m.yaml", text));
            missing_files(&matrix.unwrap(), folder.path()).len()
        };
        for (dataset, expected) in [
            ("audio", 0),
            ("agentic-sessions", 0),
            ("openai", 1),
            ("sharegpt", 1),
        ] {
            let own = format!("dataset: {dataset}, path: recordings");
            assert_eq!(errors("", &own), expected, "{dataset}");
            let shared = format!("{dataset}: recordings");
            let scenario = format!("dataset: {dataset}");
            assert_eq!(errors(&shared, &scenario), expected, "{dataset}");
        }
        assert_eq!(errors("", "dataset: audio, path: missing"), 1);
    }

    #[test]
    fn what_only_the_matrix_says_is_found_before_anything_starts() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("empty")).unwrap();
        let errors = |datasets: &str, scenario: &str| -> Vec<String> {
            let text = format!(
                "name: m\nengines: [sim]\nmodels: [m]\ndatasets: {{ {datasets} }}\nscenarios:\n  - a: {{ {scenario} }}\n"
            );
            let (matrix, errors) = yaml::read::<Matrix>(&Source::new("m.yaml", text));
            assert!(errors.is_empty(), "{errors:?}");
            let errors = unusable_files(&matrix.unwrap(), folder.path()).into_iter();
            errors.map(|error| error.message).collect()
        };
        for dataset in ["agentic-sessions", "audio", "openai", "custom"] {
            let unnamed = errors("", &format!("dataset: {dataset}"));
            assert!(unnamed[0].contains("names no file"), "{dataset}: {unnamed:?}");
        }
        assert_eq!(errors("", "dataset: sharegpt"), Vec::<String>::new());
        for dataset in ["agentic-sessions", "audio"] {
            let own = errors("", &format!("dataset: {dataset}, path: empty"));
            let shared = errors(&format!("{dataset}: empty"), &format!("dataset: {dataset}"));
            assert_eq!((own.len(), &own), (1, &shared));
            assert!(own[0].contains("empty` does not contain valid rows"), "{own:?}");
        }
        let schema = |schema: &str| {
            let format = format!("{{ type: json_schema, json_schema: {{ schema: {schema} }} }}");
            errors(
                "",
                &format!("dataset: sharegpt, check_answers: true, body: {{ response_format: {format} }}"),
            )
        };
        assert_eq!(schema("{ type: object }"), Vec::<String>::new());
        let invalid = schema("{ type: 5 }");
        assert!(
            invalid[0].contains("the answers of the scenario `a` cannot be checked"),
            "{invalid:?}"
        );
    }
}
