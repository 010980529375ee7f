//! The path of a matrix file, which may be given by its name.

use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};

/// Reads a path: one that exists as it is; of a name without folder and extension, such as `demo`, the file `demo.yaml` here or
/// in `matrices`.
pub(super) fn matrix_path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(|path| find(Path::new(""), path))
}

/// `here` is the current folder.
fn find(here: &Path, path: PathBuf) -> PathBuf {
    let is_name = path.file_name() == Some(path.as_os_str()) && path.extension().is_none();
    if !is_name || here.join(&path).is_file() {
        return path;
    }
    let file = path.with_extension("yaml");
    let places = [file.clone(), Path::new("matrices").join(file)];
    let found = places.into_iter().find(|place| here.join(place).is_file());
    found.unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_file_here_or_among_the_matrices() {
        let here = tempfile::tempdir().unwrap();
        std::fs::create_dir(here.path().join("matrices")).unwrap();
        let write = |name: &str| std::fs::write(here.path().join(name), "").unwrap();
        let found = |name: &str| find(here.path(), PathBuf::from(name)).display().to_string();
        write("matrices/demo.yaml");
        assert_eq!(found("demo"), "matrices/demo.yaml");
        write("demo.yaml");
        assert_eq!(found("demo"), "demo.yaml");
        write("demo");
        assert_eq!(found("demo"), "demo");
        for kept in ["missing", "a/missing", "demo.yml", "./missing"] {
            assert_eq!(found(kept), kept);
        }
    }
}
