//! Identifiers of runs, launches and cells, and digests. All are stable text.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Creates the identifier from its text.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// Returns the text of the identifier.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// One execution of a plan: the name of its folder below `results/`.
    RunId
);
name!(
    /// One launch of a plan: readable, unique within the plan.
    LaunchId
);
name!(
    /// What a cell is, in words: its axis values. Cells of two runs are paired by it.
    CellKey
);
name!(
    /// A digest of everything that decides what is measured; a changed cell has another one.
    ContentHash
);

impl ContentHash {
    /// Returns the digest of a value's JSON form.
    pub(crate) fn from_value<T: Serialize>(value: &T) -> Self {
        let bytes =
            serde_json::to_vec(value).expect("values that are hashed have string keys and finite numbers");
        Self::from_bytes(&bytes)
    }

    /// Returns the digest of bytes: the first 16 hex digits of SHA-256.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(hex(&Sha256::digest(bytes))[..16].to_owned())
    }
}

/// A digest of bytes that arrive in pieces. It equals [`ContentHash::from_bytes`] of all pieces joined.
#[derive(Clone, Default)]
pub(crate) struct Digest(Sha256);

impl Digest {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> ContentHash {
        ContentHash(hex(&self.0.finalize())[..16].to_owned())
    }
}

/// Encodes bytes as lower-case hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
