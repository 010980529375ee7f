//! How wide the terminal is.

use crate::report::terminal::PAGE;

/// Columns of the terminal, or of a page where the output goes elsewhere. A terminal is never as wide as a page, whose notes are not
/// broken.
pub(super) fn width() -> u16 {
    match terminal_width() {
        None => PAGE,
        Some(PAGE) => PAGE - 1,
        Some(width) => width,
    }
}

/// Columns of the terminal; `None` where the output goes elsewhere.
pub(super) fn terminal_width() -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(size.ws_col.max(60))
}
