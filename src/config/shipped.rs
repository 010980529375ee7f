//! The recipes and matrices inside the binary, so that it works without other files.

include!(concat!(env!("OUT_DIR"), "/shipped.rs"));

/// The text of a shipped file, by its path in the repository.
pub(crate) fn file_text(path: &str) -> Option<&'static str> {
    FILES
        .iter()
        .find(|(name, _)| *name == path)
        .map(|(_, text)| *text)
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
