//! `matrix import`: writes results of other tools as a run.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context;

use crate::base::ids::RunId;
use crate::base::secrets::Redactor;
use crate::base::text::{counted, printable};
use crate::cli::{self, ImportArgs, VERSION};
use crate::commands::error::{CommandError, Outcome};
use crate::commands::output::{complain, print};
use crate::commands::report;
use crate::exit::Exit;
use crate::import::{self, Declared, Keep, Reading};
use crate::report::quiet;
use crate::results::record::event::Event;
use crate::results::record::machine::Machine;
use crate::results::store::{Beginning, Run, Store, StoreError};
use crate::runner::load_matrix::bytes_of;

/// Reads the files and writes the run.
pub(crate) fn execute(args: &ImportArgs) -> Outcome {
    if let Some(name) = &args.name {
        Store::check_new(&args.results, &RunId::new(name)).map_err(refused)?;
    }
    let readings = read(args)?;
    let name = args.name.as_deref().unwrap_or("imported");
    let keep = match args.figures_only {
        true => Keep::FiguresAlone,
        false => Keep::Commands,
    };
    let imports = import::run(name, &readings, keep);
    for warning in &imports.warnings {
        complain(&format!("warning: {}\n", quiet(warning)));
    }
    let redactor = Redactor::default();
    let run = match &args.name {
        Some(name) => RunId::new(name),
        None => Store::new_run_id(&args.results, name, &redactor),
    };
    let store = Store::create(&args.results, &run, redactor).map_err(refused)?;
    let machine = Machine {
        tool: format!("matrix {VERSION}"),
        ..Machine::default()
    };
    let files: Vec<String> = args.files.iter().map(|file| file_name(file)).collect();
    let source = format!(
        "# imported from {}; there is no matrix\n",
        quiet(&files.join(", "))
    );
    let beginning = Beginning {
        source: &source,
        recipes: &BTreeMap::new(),
        plan: &imports.plan,
        machine: &machine,
    };
    match fill(&store, &beginning, &imports, &files) {
        Ok(told) => {
            print(&printable(&told));
            Ok(Exit::Done)
        }
        Err(error) => {
            // An incomplete run is removed, which frees its name for the next attempt.
            store.discard();
            Err(CommandError::unwritable(error))
        }
    }
}

/// The error if a run of that name cannot be written.
fn refused(error: StoreError) -> CommandError {
    match error {
        StoreError::Exists { path } => CommandError::usage(format!(
            "error: `{}` exists; a run is never overwritten: choose another `--name`, or leave it out\n",
            path.display()
        )),
        StoreError::Name { .. } => {
            CommandError::usage(format!("error: `--name`: {error}\nnothing was imported\n"))
        }
        other => CommandError::unwritable(other.into()),
    }
}

/// Writes the imported run; returns the final message.
fn fill(
    store: &Store,
    beginning: &Beginning<'_>,
    imports: &import::Imports,
    files: &[String],
) -> anyhow::Result<String> {
    store.begin_run(beginning).context("the run cannot be begun")?;
    for summary in &imports.summaries {
        store
            .write_cell(summary, &[], &[], "")
            .context("a cell cannot be written")?;
    }
    let told = format!(
        "imported {} from {}",
        counted(imports.summaries.len(), "cell", "cells"),
        quiet(&files.join(", "))
    );
    let mut journal = store.journal().context("the journal cannot be opened")?;
    journal
        .append(&Event::Note {
            message: told.clone(),
        })
        .context("the journal cannot be written")?;
    let run = Run::read(store.folder()).context("cannot read the run")?;
    report::results(&run, store, |_| true)?;
    let warnings = match imports.warnings.len() {
        0 => String::new(),
        1 => ", 1 warning".to_owned(),
        count => format!(", {count} warnings"),
    };
    Ok(format!(
        "{told}{warnings}\nthe run is {}; `{}` draws its tables\n",
        store.folder().display(),
        cli::report_command(store.folder())
    ))
}

/// Largest input file in MiB.
const LARGEST: u64 = 1024;

/// Reads every file, or returns all errors.
fn read(args: &ImportArgs) -> Result<Vec<Reading>, CommandError> {
    let (mut readings, mut mistakes) = (Vec::new(), String::new());
    for path in &args.files {
        let bytes = match bytes_of(path, LARGEST) {
            Ok(bytes) => bytes,
            Err(error) => {
                mistakes.push_str(&format!("error: cannot read `{}`: {error}\n", path.display()));
                continue;
            }
        };
        // Progress bars in logs may be cut inside a character.
        match import::read(&file_name(path), &String::from_utf8_lossy(&bytes)) {
            Ok(reading) => match declared(args, path) {
                Ok(declared) => readings.push(reading.declared(declared)),
                Err(reason) => mistakes.push_str(&format!("error: {}\n", quiet(&reason))),
            },
            Err(error) => mistakes.push_str(&format!("error: {}\n", quiet(&error.to_string()))),
        }
    }
    match mistakes.is_empty() {
        true => Ok(readings),
        false => Err(CommandError::usage(format!("{mistakes}nothing was imported\n"))),
    }
}

/// Declared facts of a file, from a file beside it or from the flags.
fn declared(args: &ImportArgs, path: &Path) -> Result<Declared, String> {
    let flags = args.declared.clone();
    let flags = Declared {
        engine: flags.engine,
        version: flags.version,
        gpus: flags.gpus,
        gpu: flags.gpu,
        precision: flags.precision,
        model: flags.model,
    };
    let beside = format!("{}.import.yaml", path.display());
    let text = match fs::read_to_string(&beside) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(flags),
        Err(error) => return Err(format!("cannot read `{beside}`: {error}")),
    };
    let own: Declared = serde_yaml::from_str(&text).map_err(|error| {
        format!(
            "`{beside}`: {error}; it may hold `engine`, `version`, `gpus`, `gpu`, `precision` and `model`"
        )
    })?;
    Ok(own.or(flags))
}

/// The file name without its folders, which are private.
fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(
        || path.display().to_string(),
        |name| name.to_string_lossy().into_owned(),
    )
}
