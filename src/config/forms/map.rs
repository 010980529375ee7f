//! A map that keeps the written order.

use std::fmt;
use std::marker::PhantomData;

#[cfg(test)]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::config::yaml::Spanned;

/// Values by name, in the written order and without duplicates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OrderedMap<V>(Vec<(Spanned<String>, V)>);

impl<V> Default for OrderedMap<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<V> OrderedMap<V> {
    pub(crate) fn get(&self, name: &str) -> Option<&V> {
        self.entry(name).map(|(_, value)| value)
    }

    /// The name as written, with its place, and its value.
    pub(crate) fn entry(&self, name: &str) -> Option<(&Spanned<String>, &V)> {
        self.iter().find(|(key, _)| key.value == name)
    }

    /// All entries, in the written order.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&Spanned<String>, &V)> + DoubleEndedIterator {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// All names in the order written.
    pub(crate) fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|(key, _)| key.value.as_str())
    }

    /// Sets the value of a name: at its previous position, or at the end.
    pub(crate) fn insert(&mut self, name: impl Into<Spanned<String>>, value: V) -> Option<V> {
        let name = name.into();
        match self.0.iter_mut().find(|(key, _)| *key == name) {
            Some((_, old)) => Some(std::mem::replace(old, value)),
            None => {
                self.0.push((name, value));
                None
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl<V> FromIterator<(Spanned<String>, V)> for OrderedMap<V> {
    /// A later entry replaces the value of an earlier one with the same name.
    fn from_iter<I: IntoIterator<Item = (Spanned<String>, V)>>(entries: I) -> Self {
        let mut map = Self::default();
        for (name, value) in entries {
            map.insert(name, value);
        }
        map
    }
}

impl<V> IntoIterator for OrderedMap<V> {
    type Item = (Spanned<String>, V);
    type IntoIter = std::vec::IntoIter<(Spanned<String>, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<V: Serialize> Serialize for OrderedMap<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (name, value) in self.iter() {
            map.serialize_entry(&name.value, value)?;
        }
        map.end()
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for OrderedMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OrderedMapVisitor(PhantomData))
    }
}

pub(super) struct OrderedMapVisitor<V>(pub PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for OrderedMapVisitor<V> {
    type Value = OrderedMap<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of names to values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<OrderedMap<V>, A::Error> {
        let mut map = OrderedMap::default();
        while let Some((name, value)) = entries.next_entry::<Spanned<String>, V>()? {
            if map.get(&name).is_some() {
                return Err(A::Error::custom(format_args!(
                    "the key `{name}` is written twice"
                )));
            }
            map.0.push((name, value));
        }
        Ok(map)
    }
}

#[cfg(test)]
impl<V: JsonSchema> JsonSchema for OrderedMap<V> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("OrderedMap_{}", V::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<V>();
        json_schema!({ "type": "object", "additionalProperties": value })
    }
}
