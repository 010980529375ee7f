//! `matrix clean`: removes orphans, which it recognises by their ownership tags, and on request the jobs of a cluster.

use crate::cli::CleanArgs;
use crate::cli::cache::CacheArgs;
use crate::commands::cluster;
use crate::commands::environment::environment;
use crate::commands::error::{CommandError, Outcome};
use crate::commands::output::{eprint, print};
use crate::exit::Exit;
use crate::runner::cleanup;

/// Removes orphans and lists them.
pub(crate) fn execute(args: &CleanArgs) -> Outcome {
    let (cancelled, mut message) = match args.jobs {
        true => cluster::cancel_jobs()?,
        false => (0, String::new()),
    };
    let swept = cleanup::clean(&environment(), &CacheArgs::from_environment().cache())?;
    for removed_item in &swept.removed {
        print(&format!("removed {removed_item}\n"));
    }
    for note in &swept.notes {
        eprint(&format!("note: {note}\n"));
    }
    for removed_item in &swept.remaining {
        message.push_str(&format!("error: cannot remove {removed_item}\n"));
    }
    if let Some(reason) = &swept.containers_error {
        message.push_str(&format!(
            "error: cannot list the containers: {reason}\n  = help: orphaned containers may still use GPUs; run `matrix clean` again when the container daemon responds\n"
        ));
    }
    if !message.is_empty() {
        return Err(CommandError::host_not_ready(message));
    }
    if swept.removed.is_empty() && swept.notes.is_empty() && cancelled == 0 {
        print("no orphan found\n");
    }
    Ok(Exit::Done)
}
