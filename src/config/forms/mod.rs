//! Values with more than one spelling: a value or a list, a name alone or with details, one value for all
//! engines or one for each.
//!
//! Each form can be read by our YAML reader, with exact places, and from serialized JSON. None is `untagged`:
//! each requests a special type name from the reader, so that an error inside is reported at its place.

mod by_engine;
mod list;
mod map;
mod named;

pub(crate) use by_engine::ByEngine;
pub(crate) use list::OneOrMany;
pub(crate) use map::OrderedMap;
pub(crate) use named::Named;

/// The type name by which [`OneOrMany`] requests a sequence from the reader.
pub(super) const LIST: &str = "$list";
/// The type name by which [`ByEngine`] requests a map, or a sequence of one value for all engines.
pub(super) const BY_ENGINE: &str = "$by-engine";
/// The type name by which [`Named`] requests a map with one entry.
pub(super) const NAMED: &str = "$named";
/// The name by which [`Text`](super::template::Text) asks the reader for the scalar as spelled.
pub(super) const TEXT: &str = "$text";

#[cfg(test)]
mod tests;
