//! How a test says that it is skipped.

use std::io::Write;

/// Says that the calling test is skipped, and why: on stderr itself, which no test's capture hides. `.ci/run` makes a table of these
/// lines, and fails where one is not in `.ci/skips`.
#[track_caller]
pub fn skip(reason: &str) {
    let place = std::panic::Location::caller();
    let _ = writeln!(
        std::io::stderr(),
        "SKIPPED {}:{}: {reason}",
        place.file(),
        place.line()
    );
}
