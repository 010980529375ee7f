//! What is reported while a job is submitted and followed.

/// A report while a job is submitted and followed.
pub(crate) enum JobNotice<'a> {
    Note(String),
    Warning(String),
    /// What the job wrote to its standard output.
    Stdout(&'a str),
    /// What the job wrote to its standard error.
    Stderr(&'a str),
}
