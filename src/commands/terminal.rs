//! Width of the terminal.

use crate::cli::environment::columns;
use crate::commands::output::Colors;
use crate::report::terminal::{PAGE_WIDTH, PageLayout};

/// The layout of tables on stdout.
pub(super) fn layout(colors: Colors) -> PageLayout {
    PageLayout {
        width: width(),
        colors: colors.stdout,
    }
}

/// Width of the terminal in columns, or of `COLUMNS`, or of a page if stdout is no terminal. A terminal is always
/// narrower than a page, because notes on a page are not wrapped.
pub(super) fn width() -> u16 {
    match terminal_width().or_else(columns) {
        None => PAGE_WIDTH,
        Some(PAGE_WIDTH) => PAGE_WIDTH - 1,
        Some(width) => width.max(MIN_WIDTH),
    }
}

/// Narrowest width for which tables are drawn.
const MIN_WIDTH: u16 = 60;

/// Width of the terminal in columns; `None` if stdout is no terminal.
pub(super) fn terminal_width() -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(size.ws_col.max(MIN_WIDTH))
}
