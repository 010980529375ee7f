//! `matrix init`: writes a first matrix with its recipes, data and schemas.

use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::base::text::printable;
use crate::cli::{InitArgs, command_line};
use crate::commands::error::{CommandError, Outcome};
use crate::commands::output::print;
use crate::config::shipped;
use crate::exit::Exit;
use crate::results::store::atomic;

/// Writes the shipped files into a folder; existing files are not changed.
pub(crate) fn execute(args: &InitArgs) -> Outcome {
    let mut message = String::new();
    // A report is not written by hand.
    for (path, text) in shipped::files().filter(|(path, _)| *path != "schemas/report.json") {
        let file = args.dir.join(path);
        let status = if write_new(&file, text).map_err(CommandError::unwritable)? {
            "wrote"
        } else {
            "kept "
        };
        message.push_str(&format!("{status} {}\n", file.display()));
    }
    message.push_str(&format!(
        "try the demo: {}\nto compare two servers that already run, put their URLs into {}\n",
        command_line::run_command(&args.dir.join("matrices/demo.yaml")),
        args.dir.join("matrices/two-servers.yaml").display()
    ));
    print(&printable(&message));
    Ok(Exit::Done)
}

pub(super) fn write_new(file: &Path, text: &str) -> anyhow::Result<bool> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create the folder {}", folder.display()))?;
    }
    // An existing file counts as complete the next time, so it must be written atomically.
    atomic::write_new(file, text.as_bytes()).with_context(|| format!("cannot write {}", file.display()))
}
