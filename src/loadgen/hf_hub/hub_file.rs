//! A file of a repository of the hub.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RepositoryKind {
    Model,
    Dataset,
}

impl RepositoryKind {
    pub(super) const fn folder(self) -> &'static str {
        match self {
            Self::Model => "models",
            Self::Dataset => "datasets",
        }
    }

    /// The path component before the repository's name in a download URL.
    pub(super) const fn prefix(self) -> &'static str {
        match self {
            Self::Model => "",
            Self::Dataset => "datasets/",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HubFile {
    pub(crate) kind: RepositoryKind,
    pub(crate) repository: String,
    /// Path of the file in the repository.
    pub(crate) file: String,
    /// Whether it is no error if the repository does not have the file.
    pub(crate) is_optional: bool,
}
