//! `matrix import`: writes results of other tools as a run.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use anyhow::Context;

use crate::base::ids::RunId;
use crate::base::regular_file;
use crate::base::secrets::Redactor;
use crate::base::text::{pluralize, printable, shown_path};
use crate::cli::{ImportArgs, VERSION, command_line};
use crate::commands::error::{CommandError, Outcome};
use crate::commands::output::{eprint, print};
use crate::commands::report;
use crate::exit::Exit;
use crate::import::{self, DeclaredFacts, ImportContent, ImportedFile};
use crate::report::sanitize;
use crate::results::record::event::Event;
use crate::results::record::machine::Machine;
use crate::results::store::{Run, RunManifest, Store, StoreError};
use crate::runner::load_matrix::read_bytes;

/// Reads the files and writes the run.
pub(crate) fn execute(args: &ImportArgs) -> Outcome {
    if let Some(name) = &args.name {
        Store::check_new(&args.results, &RunId::new(name)).map_err(store_error)?;
    }
    let readings = read_files(args)?;
    let name = args.name.as_deref().unwrap_or("imported");
    let keep = match args.figures_only {
        true => ImportContent::FiguresOnly,
        false => ImportContent::WithCommands,
    };
    let imports = import::build_run(name, &readings, keep);
    for warning in imports.warnings.iter().take(MAX_PRINTED_WARNINGS) {
        eprint(&format!("warning: {}\n", sanitize(warning)));
    }
    if let Some(more) = imports
        .warnings
        .len()
        .checked_sub(MAX_PRINTED_WARNINGS)
        .filter(|more| *more > 0)
    {
        eprint(&format!(
            "{more} more warnings are not printed here; the report of the run has those of each row\n"
        ));
    }
    let redactor = Redactor::default();
    let run = match &args.name {
        Some(name) => RunId::new(name),
        None => Store::new_run_id(&args.results, name, &redactor),
    };
    // The run is made in a hidden folder, so that one that is interrupted is not taken for a whole one.
    let making = hidden_folder(&args.results).map_err(CommandError::unwritable)?;
    let store = Store::create(making.path(), &run, redactor).map_err(store_error)?;
    let folder = args.results.join(store.folder().file_name().unwrap_or_default());
    let machine = Machine {
        tool: format!("matrix {VERSION}"),
        ..Machine::default()
    };
    let files: Vec<String> = args.files.iter().map(|file| file_name(file)).collect();
    let source = format!(
        "# this run was imported from {}; it has no matrix file\n",
        sanitize(&files.join(", "))
    );
    let beginning = RunManifest {
        source: &source,
        recipes: &BTreeMap::new(),
        plan: &imports.plan,
        machine: &machine,
    };
    let written = write_run(&store, &beginning, &imports, &files)
        .map_err(CommandError::unwritable)
        .and_then(|message| publish(store.folder(), &folder).map(|()| message));
    match written {
        Ok(message) => {
            print(&printable(&format!(
                "{message}\nthe run is in {}; print its report with `{}`\n",
                folder.display(),
                command_line::report_command(&folder)
            )));
            Ok(Exit::Done)
        }
        Err(error) => {
            // An incomplete run is removed, which frees its name for the next attempt.
            store.discard();
            Err(error)
        }
    }
}

/// Gives the finished run its place. Another import may have taken the name since this one began.
fn publish(made: &Path, folder: &Path) -> Result<(), CommandError> {
    match fs::rename(made, folder) {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists | ErrorKind::NotADirectory
            ) =>
        {
            Err(store_error(StoreError::Exists {
                path: folder.to_owned(),
            }))
        }
        renamed => renamed
            .with_context(|| format!("cannot write the run {}", folder.display()))
            .map_err(CommandError::unwritable),
    }
}

/// The error if a run of that name cannot be written.
fn store_error(error: StoreError) -> CommandError {
    match error {
        StoreError::Exists { path } => CommandError::usage(format!(
            "error: `{}` exists; a run is never overwritten: choose another `--name`, or leave it out\n",
            shown_path(&path)
        )),
        StoreError::InvalidName { .. } => {
            CommandError::usage(format!("error: `--name`: {error}\nnothing was imported\n"))
        }
        other => CommandError::unwritable(other.into()),
    }
}

/// Writes the imported run; returns the final message.
fn write_run(
    store: &Store,
    beginning: &RunManifest<'_>,
    imports: &import::ImportedRun,
    files: &[String],
) -> anyhow::Result<String> {
    store.begin_run(beginning).context("cannot create the run")?;
    for summary in &imports.summaries {
        store
            .write_cell(summary, &[], &[], "")
            .context("cannot write a cell")?;
    }
    let message = format!(
        "imported {} from {}",
        pluralize(imports.summaries.len(), "cell", "cells"),
        sanitize(&files.join(", "))
    );
    let mut journal = store.journal().context("cannot open the journal")?;
    journal
        .append(&Event::Note {
            message: message.clone(),
        })
        .context("cannot write the journal")?;
    let run = Run::read(store.folder()).context("cannot read the run")?;
    report::write_results(&run, store, |_| true)?;
    let warnings = match imports.warnings.len() {
        0 => String::new(),
        1 => ", 1 warning".to_owned(),
        count => format!(", {count} warnings"),
    };
    Ok(format!("{message}{warnings}"))
}

/// A folder in which a run is made. It is removed at the end; one that a kill left is removed by an import a day later.
fn hidden_folder(results: &Path) -> anyhow::Result<tempfile::TempDir> {
    const PREFIX: &str = ".importing-";
    let cannot = || format!("cannot write to the folder {}", results.display());
    fs::create_dir_all(results).with_context(cannot)?;
    for entry in fs::read_dir(results).with_context(cannot)?.flatten() {
        let age = entry
            .metadata()
            .and_then(|about| about.modified())
            .ok()
            .and_then(|at| at.elapsed().ok());
        let is_left = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && age.is_some_and(|age| age > LEFT_AFTER);
        if is_left {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    tempfile::Builder::new()
        .prefix(PREFIX)
        .tempdir_in(results)
        .with_context(cannot)
}

/// Age from which a folder of an import is of one that was killed.
const LEFT_AFTER: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// Largest number of warnings to print.
const MAX_PRINTED_WARNINGS: usize = 50;

/// Largest input file in MiB.
const MAX_FILE_MIB: u64 = 1024;

/// Reads every file, or returns all errors.
fn read_files(args: &ImportArgs) -> Result<Vec<ImportedFile>, CommandError> {
    let (mut readings, mut errors) = (Vec::new(), String::new());
    for path in &args.files {
        let bytes = match read_regular_file(path) {
            Ok(bytes) => bytes,
            Err(error) => {
                errors.push_str(&format!("error: cannot read `{}`: {error}\n", shown_path(path)));
                continue;
            }
        };
        // Progress bars in logs may be cut inside a character.
        match import::read(&file_name(path), &String::from_utf8_lossy(&bytes)) {
            Ok(reading) => match declared(args, path) {
                Ok(declared) => readings.push(reading.with_declared(declared)),
                Err(reason) => errors.push_str(&format!("error: {}\n", sanitize(&reason))),
            },
            Err(error) => errors.push_str(&format!("error: {}\n", sanitize(&error.to_string()))),
        }
    }
    match errors.is_empty() {
        true => Ok(readings),
        false => Err(CommandError::usage(format!("{errors}nothing was imported\n"))),
    }
}

/// Reads a regular file. A pipe is refused, because reading may wait for its writer forever.
fn read_regular_file(path: &Path) -> io::Result<Vec<u8>> {
    match fs::metadata(path)? {
        about if about.is_dir() => Err(io::Error::other("the path is a folder; name the files in it")),
        _ => regular_file::check(path).and_then(|()| read_bytes(path, MAX_FILE_MIB)),
    }
}

/// Declared facts of a file, from a file beside it or from the flags.
fn declared(args: &ImportArgs, path: &Path) -> Result<DeclaredFacts, String> {
    let flags = args.declared.clone();
    let flags = DeclaredFacts {
        engine: flags.engine,
        version: flags.version,
        gpus: flags.gpus,
        gpu: flags.gpu,
        precision: flags.precision,
        model: flags.model,
    };
    let declaration_path = format!("{}.import.yaml", path.display());
    let read = read_regular_file(Path::new(&declaration_path));
    let text = match read.and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(flags),
        Err(error) => return Err(format!("cannot read `{declaration_path}`: {error}")),
    };
    let file_declared: DeclaredFacts = serde_yaml::from_str(&text).map_err(|error| {
        format!(
            "`{declaration_path}`: {error}; the allowed keys are `engine`, `version`, `gpus`, `gpu`, `precision` and `model`"
        )
    })?;
    Ok(file_declared.merged_with(flags))
}

/// The file name without its folders, which are private.
fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(
        || path.display().to_string(),
        |name| name.to_string_lossy().into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_another_import_wrote_meanwhile_is_not_overwritten() {
        let root = tempfile::tempdir().unwrap();
        let (made, folder) = (root.path().join("made"), root.path().join("same"));
        for path in [&made, &folder] {
            fs::create_dir(path).unwrap();
            fs::write(path.join("run.json"), path.display().to_string()).unwrap();
        }
        let refusal = publish(&made, &folder).unwrap_err();
        assert_eq!(refusal.exit, Exit::Usage);
        assert!(
            refusal.message.contains("exists; a run is never overwritten"),
            "{}",
            refusal.message
        );
        let text = fs::read_to_string(folder.join("run.json")).unwrap();
        assert_eq!(text, folder.display().to_string());
        fs::remove_dir_all(&folder).unwrap();
        publish(&made, &folder).unwrap();
    }

    #[test]
    fn a_pipe_and_a_folder_are_not_read() {
        let root = tempfile::tempdir().unwrap();
        let pipe = root.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
        let refusal = |path: &Path| read_regular_file(path).unwrap_err().to_string();
        assert_eq!(refusal(&pipe), "the path is not a regular file");
        assert_eq!(refusal(root.path()), "the path is a folder; name the files in it");
    }
}
