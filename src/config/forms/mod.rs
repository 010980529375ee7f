//! Shapes that people write in more than one way: a value or a list, a name alone or with details, one value for all
//! or one per engine.
//!
//! Each reads from our YAML reader with exact places, and from JSON as it was serialized. None of them is `untagged`:
//! each asks the reader by a name of its own, so a wrong value inside is reported where it stands.

mod by_engine;
mod list;
mod map;
mod named;

pub(crate) use by_engine::ByEngine;
pub(crate) use list::OneOrMany;
pub(crate) use map::OrderedMap;
pub(crate) use named::Named;

/// The name by which [`OneOrMany`] asks the reader for a sequence.
pub(super) const LIST: &str = "$list";
/// The name by which [`ByEngine`] asks the reader for a map, or a sequence of one when all engines share the value.
pub(super) const BY_ENGINE: &str = "$by-engine";
/// The name by which [`Named`] asks the reader for a map of one entry.
pub(super) const NAMED: &str = "$named";
/// The name by which [`Text`](super::template::Text) asks the reader for the scalar as spelled.
pub(super) const TEXT: &str = "$text";

#[cfg(test)]
mod tests;
