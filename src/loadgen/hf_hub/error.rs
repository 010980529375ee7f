//! Why a file of the hub could not be fetched.

use std::io;
use std::path::{Path, PathBuf};

use super::hub_file::HubFile;
use crate::base::control_client::causes;

#[derive(Debug, thiserror::Error)]
pub(crate) enum HubError {
    #[error(
        "the hub denies access to `{file}` of `{repository}` (status {status}): set HF_TOKEN to a token \
         that may read it, and accept the terms on the model's page if there are any"
    )]
    Refused {
        repository: String,
        file: String,
        status: u16,
    },
    #[error("the hub has no `{file}` in `{repository}`: check the name")]
    Missing { repository: String, file: String },
    /// The hub cannot be reached, so fetching other files would fail too.
    #[error("cannot fetch `{file}` of `{repository}`: {reason}")]
    Unreachable {
        repository: String,
        file: String,
        reason: String,
    },
    /// The transfer failed too often, or the server is not a model hub.
    #[error("cannot fetch `{file}` of `{repository}`: {reason}")]
    Interrupted {
        repository: String,
        file: String,
        reason: String,
    },
    #[error(
        "`{file}` of `{repository}` is corrupt: its digest is {actual}, but the hub says {expected}; the \
         download was deleted, try again"
    )]
    DigestMismatch {
        repository: String,
        file: String,
        /// The digest of the downloaded content.
        actual: String,
        /// The digest from the hub.
        expected: String,
    },
    #[error("cannot store `{}`: {source}", path.display())]
    Io {
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

pub(super) fn io_error(path: &Path, source: io::Error) -> HubError {
    HubError::Io {
        path: path.to_path_buf(),
        source,
    }
}

/// Creates the error for a request that got no answer.
pub(super) fn request_error(hub_file: &HubFile, error: &reqwest::Error) -> HubError {
    match error.is_connect() {
        true => HubError::Unreachable {
            repository: hub_file.repository.clone(),
            file: hub_file.file.clone(),
            reason: error_text(error),
        },
        false => interrupted_error(hub_file, &error_text(error)),
    }
}

pub(super) fn interrupted_error(hub_file: &HubFile, reason: &dyn std::fmt::Display) -> HubError {
    HubError::Interrupted {
        repository: hub_file.repository.clone(),
        file: hub_file.file.clone(),
        reason: reason.to_string(),
    }
}

/// Formats an error of the client with its causes.
pub(super) fn error_text(error: &reqwest::Error) -> String {
    [vec![error.to_string()], causes(error)].concat().join(": ")
}
