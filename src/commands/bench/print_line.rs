//! Printing of lines on stdout.

use crate::commands::output::print;

pub(super) fn print_line(line: &str) {
    print(&format!("{line}\n"));
}
