//! `matrix init`: a first matrix, with the recipes, data and schemas it needs.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::Context;

use crate::cli::{InitArgs, SchemaKind};
use crate::commands::{Outcome, Refusal, print, schema, shipped};
use crate::exit::Exit;

/// Writes the shipped files into a folder; what exists is left alone.
///
/// # Errors
/// A folder that cannot be written.
pub fn execute(args: &InitArgs) -> Outcome {
    let matrix = schema::text(SchemaKind::Matrix);
    let engine = schema::text(SchemaKind::Engine);
    let schemas = [
        ("schemas/matrix.json", matrix.as_str()),
        ("schemas/engine.json", engine.as_str()),
    ];
    let mut said = String::new();
    for (path, text) in shipped::FILES.iter().copied().chain(schemas) {
        let file = args.dir.join(path);
        let word = if write_new(&file, text).map_err(Refusal::unwritable)? {
            "wrote"
        } else {
            "kept "
        };
        said.push_str(&format!("{word} {}\n", file.display()));
    }
    said.push_str(&format!(
        "try it: matrix run {}\n",
        args.dir.join("matrices/demo.yaml").display()
    ));
    print(&said);
    Ok(Exit::Done)
}

fn write_new(file: &Path, text: &str) -> anyhow::Result<bool> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    match fs::File::create_new(file) {
        Ok(mut new) => {
            new.write_all(text.as_bytes())
                .with_context(|| format!("cannot write {}", file.display()))?;
            Ok(true)
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot write {}", file.display())),
    }
}
