//! Type names by which the forms tell the reader what they need.

/// The type name by which [`OneOrMany`](super::OneOrMany) requests a sequence from the reader.
pub(in crate::config) const LIST: &str = "$list";
/// The type name by which [`ByEngine`](super::ByEngine) requests a map, or a sequence of one value for all engines.
pub(in crate::config) const BY_ENGINE: &str = "$by-engine";
/// The type name by which [`Named`](super::Named) requests a map with one entry.
pub(in crate::config) const NAMED: &str = "$named";
/// The name by which [`Template`](crate::config::template::Template) asks the reader for the scalar as spelled.
pub(in crate::config) const TEXT: &str = "$text";
