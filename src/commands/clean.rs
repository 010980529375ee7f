//! `matrix clean`: what dead runs left behind is found by its marks and removed; live runs and strangers are left alone.

use std::time::Duration;

use crate::commands::{Outcome, Refusal, print, whereabouts};
use crate::engine;
use crate::exit::Exit;

/// How long a leftover may take to end by itself.
const GRACE: Duration = Duration::from_secs(10);

/// Removes leftovers and says what they were.
///
/// # Errors
/// No threads can be had.
pub fn execute() -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Refusal::unfit(format!("error: cannot start a runtime: {error}\n")))?;
    let swept = runtime.block_on(engine::sweep(GRACE, &whereabouts()));
    if swept.is_empty() {
        print("nothing was left\n");
    }
    for what in swept {
        print(&format!("removed {what}\n"));
    }
    Ok(Exit::Done)
}
