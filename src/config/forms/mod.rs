//! Values with more than one spelling: a value or a list, a name alone or with details, one value for all
//! engines or one for each.
//!
//! Each form can be read by our YAML reader, with exact places, and from serialized JSON. None is `untagged`:
//! each requests a special type name from the reader, so that an error inside is reported at its place.

mod by_engine;
mod list;
mod map;
mod named;
pub(super) mod type_names;

pub(crate) use by_engine::ByEngine;
pub(crate) use list::OneOrMany;
pub(crate) use map::OrderedMap;
pub(crate) use named::Named;

#[cfg(test)]
mod tests;
