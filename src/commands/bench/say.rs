//! A line on stdout.

use crate::commands::output::print;

/// Prints a line on stdout.
pub(super) fn say(line: &str) {
    print(&format!("{line}\n"));
}
