//! One value for all engines, or one for each.

use std::fmt;
use std::marker::PhantomData;

#[cfg(test)]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Serialize, Serializer};

use super::map::{OrderedMap, OrderedMapVisitor};
use super::type_names::BY_ENGINE;
use crate::config::yaml::Spanned;

/// Key of the value for engines without an entry.
const DEFAULT_KEY: &str = "default";

/// A value for all engines, or `{ lmdeploy: 4, default: 8 }`. The value itself is never a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ByEngine<T> {
    /// The same value for all.
    All(T),
    /// Values by engine name, and optionally `default`.
    Each(OrderedMap<T>),
}

impl<T> ByEngine<T> {
    /// The value for an engine: its own, otherwise the default.
    pub(crate) fn get(&self, engine: &str) -> Option<&T> {
        match self {
            Self::All(value) => Some(value),
            Self::Each(map) => map.get(engine).or_else(|| map.get(DEFAULT_KEY)),
        }
    }

    /// The entries as written, including `default`; empty for a single value.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&Spanned<String>, &T)> {
        let map = match self {
            Self::All(_) => None,
            Self::Each(map) => Some(map),
        };
        map.into_iter().flat_map(OrderedMap::iter)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        let one = match self {
            Self::All(value) => Some(value),
            Self::Each(_) => None,
        };
        one.into_iter().chain(self.entries().map(|(_, value)| value))
    }
}

impl<T> From<T> for ByEngine<T> {
    fn from(value: T) -> Self {
        Self::All(value)
    }
}

impl<T: Default> Default for ByEngine<T> {
    fn default() -> Self {
        Self::All(T::default())
    }
}

impl<T: Serialize> Serialize for ByEngine<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All(value) => value.serialize(serializer),
            Self::Each(map) => map.serialize(serializer),
        }
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for ByEngine<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(BY_ENGINE, ByEngineVisitor(PhantomData))
    }
}

struct ByEngineVisitor<T>(PhantomData<T>);

impl<'de, T: DeserializeOwned> Visitor<'de> for ByEngineVisitor<T> {
    type Value = ByEngine<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, or a map of engine names to values")
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<ByEngine<T>, A::Error> {
        OrderedMapVisitor(PhantomData)
            .visit_map(entries)
            .map(ByEngine::Each)
    }

    /// Our own reader passes a single value as a sequence of one element, to distinguish it from a map.
    fn visit_seq<A: SeqAccess<'de>>(self, mut one: A) -> Result<ByEngine<T>, A::Error> {
        match one.next_element()? {
            Some(value) => Ok(ByEngine::All(value)),
            None => Err(A::Error::invalid_length(0, &self)),
        }
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<ByEngine<T>, D::Error> {
        match serde_json::Value::deserialize(deserializer)? {
            map @ serde_json::Value::Object(_) => OrderedMap::deserialize(map).map(ByEngine::Each),
            one => T::deserialize(one).map(ByEngine::All),
        }
        .map_err(D::Error::custom)
    }
}

#[cfg(test)]
impl<T: JsonSchema> JsonSchema for ByEngine<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("ByEngine_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [value, { "type": "object", "additionalProperties": value }] })
    }
}
