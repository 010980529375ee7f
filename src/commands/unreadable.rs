//! Warnings about runs that cannot be read.

use std::io::ErrorKind;

use crate::report::single_line;
use crate::results::store::StoreError;

/// The text of a warning about a run that is left out: the file, the cause and how to fix it.
pub(super) fn left_out(error: &StoreError) -> String {
    let help = match error {
        StoreError::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            "; give this user read access to the run, or move it to another folder"
        }
        _ => "",
    };
    format!("left out: {}{help}", single_line(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_run_of_another_user_is_named_with_what_to_do() {
        let text = left_out(&StoreError::Io {
            doing: "read",
            path: "results/a/run.json".into(),
            source: io::Error::from(ErrorKind::PermissionDenied),
        });
        assert!(
            text.starts_with("left out: cannot read `results/a/run.json`: "),
            "{text}"
        );
        assert!(text.contains("; give this user read access"), "{text}");
    }
}
