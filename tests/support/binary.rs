//! The binary under test.

/// The path of `matrix`: the file that `MATRIX_BINARY` names, so that a test can be run against another build, else the one that cargo built.
#[expect(
    clippy::disallowed_methods,
    reason = "an environment variable names the build under test"
)]
pub fn matrix() -> String {
    std::env::var("MATRIX_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_matrix").to_owned())
}
