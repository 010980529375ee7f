//! A line on stdout.

use crate::commands::output::print;

/// Prints a line on stdout.
pub(super) fn print_line(line: &str) {
    print(&format!("{line}\n"));
}
