//! `matrix completions` and `matrix man`: what shells and `man` need of the command line.

use std::fs;

use anyhow::Context;

use crate::cli::orientation::{self, CompletionsArgs, ManArgs};
use crate::commands::declaration::declaration;
use crate::commands::error::{CommandError, Outcome};
use crate::commands::output::print;
use crate::exit::Exit;

pub(crate) fn completions(args: &CompletionsArgs) -> Outcome {
    let text = orientation::completions(args.shell, declaration());
    print(&String::from_utf8_lossy(&text));
    Ok(Exit::Done)
}

pub(crate) fn man(args: &ManArgs) -> Outcome {
    let folder = args.dir.display();
    fs::create_dir_all(&args.dir)
        .and_then(|()| orientation::write_man_pages(declaration(), &args.dir))
        .with_context(|| format!("cannot write man pages into {folder}"))
        .map_err(CommandError::unwritable)?;
    print(&format!(
        "wrote man pages into {folder}; read one with: man {folder}/matrix.1\n"
    ));
    Ok(Exit::Done)
}
