//! `matrix clean`: removes orphans, which it recognises by their ownership tags.

use crate::cli::Places;
use crate::commands::environment::environment;
use crate::commands::error::{CommandError, Outcome};
use crate::commands::output::{complain, print};
use crate::exit::Exit;
use crate::runner::cleanup;

/// Removes orphans and lists them.
pub(crate) fn execute() -> Outcome {
    let swept = cleanup::clean(&environment(), &Places::of_environment().cache())?;
    for what in &swept.removed {
        print(&format!("removed {what}\n"));
    }
    for note in &swept.notes {
        complain(&format!("note: {note}\n"));
    }
    let mut message: String = swept
        .remaining
        .iter()
        .map(|what| format!("error: cannot remove {what}\n"))
        .collect();
    if let Some(reason) = &swept.unseen {
        message.push_str(&format!(
            "error: the containers could not be looked at: {reason}\n  = help: what runs left there may hold GPUs; clean again once the daemon answers\n"
        ));
    }
    if !message.is_empty() {
        return Err(CommandError::unfit(message));
    }
    if swept.removed.is_empty() && swept.notes.is_empty() {
        print("nothing was left\n");
    }
    Ok(Exit::Done)
}
