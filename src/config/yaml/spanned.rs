//! A value with the place where it was written.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

#[cfg(test)]
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde::{Serialize, Serializer};

use super::source::SourceSpan;

/// The type name by which [`Spanned`] requests file, start and end before the value.
pub(super) const SPANNED: &str = "$spanned";

/// A value with its place. Two are equal if their values are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spanned<T> {
    pub(crate) value: T,
    /// Its place; `None` for a value from JSON or a default.
    pub(crate) place: Option<SourceSpan>,
}

impl<T> From<T> for Spanned<T> {
    fn from(value: T) -> Self {
        Self { value, place: None }
    }
}

impl<T> Deref for Spanned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Spanned<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: PartialEq> PartialEq for Spanned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for Spanned<T> {}

impl<T: Hash> Hash for Spanned<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.value.hash(state);
    }
}

impl<T: fmt::Display> fmt::Display for Spanned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T: Serialize> Serialize for Spanned<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Spanned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(SPANNED, SpannedVisitor(PhantomData))
    }
}

struct SpannedVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for SpannedVisitor<T> {
    type Value = Spanned<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    /// Only our own reader answers with a sequence; other deserializers pass the value itself.
    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Spanned<T>, A::Error> {
        const HOLDS: &str =
            "internal error: a value from the YAML reader must have four parts: file, start, end and value";
        let file: String = parts.next_element()?.ok_or_else(|| A::Error::custom(HOLDS))?;
        let start: usize = parts.next_element()?.ok_or_else(|| A::Error::custom(HOLDS))?;
        let end: usize = parts.next_element()?.ok_or_else(|| A::Error::custom(HOLDS))?;
        let value: T = parts.next_element()?.ok_or_else(|| A::Error::custom(HOLDS))?;
        Ok(Spanned {
            value,
            place: Some(SourceSpan {
                file: file.into(),
                range: start..end,
            }),
        })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Spanned<T>, D::Error> {
        T::deserialize(deserializer).map(Spanned::from)
    }
}

#[cfg(test)]
impl<T: JsonSchema> JsonSchema for Spanned<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> std::borrow::Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}
