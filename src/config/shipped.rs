//! The recipes, matrices and schemas inside the binary, so that it works without other files.

use std::sync::LazyLock;

include!(concat!(env!("OUT_DIR"), "/shipped.rs"));

/// The texts of all files, one after the other.
static TEXTS: LazyLock<String> = LazyLock::new(|| {
    let compressed = include_bytes!(concat!(env!("OUT_DIR"), "/shipped.zst"));
    let bytes = zstd::decode_all(compressed.as_slice()).expect("the build compressed it");
    String::from_utf8(bytes).expect("shipped files are text")
});

/// Every shipped file: its path in the repository and its text.
pub(crate) fn files() -> impl Iterator<Item = (&'static str, &'static str)> {
    let begins = std::iter::once(0).chain(FILES.iter().map(|(_, end)| *end));
    FILES
        .iter()
        .zip(begins)
        .map(|((path, end), begin)| (*path, &TEXTS[begin..*end]))
}

/// The text of a shipped file, by its path in the repository.
pub(crate) fn file_text(path: &str) -> Option<&'static str> {
    files().find(|(name, _)| *name == path).map(|(_, text)| text)
}

/// Names of the shipped YAML files in a folder, without extension.
pub(crate) fn yaml_names(folder: &str) -> impl Iterator<Item = String> {
    FILES.iter().filter_map(move |(path, _)| {
        let name = path
            .strip_prefix(folder)?
            .strip_prefix('/')?
            .strip_suffix(".yaml")?;
        (!name.contains('/')).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_text_is_that_of_its_file() {
        assert!(FILES.len() > 20);
        for (path, text) in files() {
            let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
            assert_eq!(std::fs::read_to_string(file).unwrap(), text, "{path}");
        }
        assert_eq!(file_text("engines/none.yaml"), None);
    }
}
