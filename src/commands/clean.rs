//! `matrix clean`: removes orphans, which it recognises by their ownership tags.

use crate::cli::cache::CacheArgs;
use crate::commands::environment::environment;
use crate::commands::error::{CommandError, Outcome};
use crate::commands::output::{eprint, print};
use crate::exit::Exit;
use crate::runner::cleanup;

/// Removes orphans and lists them.
pub(crate) fn execute() -> Outcome {
    let swept = cleanup::clean(&environment(), &CacheArgs::from_environment().cache())?;
    for removed_item in &swept.removed {
        print(&format!("removed {removed_item}\n"));
    }
    for note in &swept.notes {
        eprint(&format!("note: {note}\n"));
    }
    let mut message: String = swept
        .remaining
        .iter()
        .map(|removed_item| format!("error: cannot remove {removed_item}\n"))
        .collect();
    if let Some(reason) = &swept.containers_error {
        message.push_str(&format!(
            "error: cannot list the containers: {reason}\n  = help: orphaned containers may still use GPUs; run `matrix clean` again when the container daemon responds\n"
        ));
    }
    if !message.is_empty() {
        return Err(CommandError::host_not_ready(message));
    }
    if swept.removed.is_empty() && swept.notes.is_empty() {
        print("no orphan found\n");
    }
    Ok(Exit::Done)
}
