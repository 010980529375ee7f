//! A name alone, or a name with details.

use std::fmt;
use std::marker::PhantomData;

#[cfg(test)]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::type_names::NAMED;
use crate::config::yaml::Spanned;

/// An entry of a list of names: `sglang`, or `sglang: { version: v1 }` with details.
///
/// Serialized as a map with one key. A name alone, or with nothing after its colon, has the default value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named<T> {
    pub(crate) name: Spanned<String>,
    pub(crate) value: T,
}

impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(&self.name.value, &self.value)?;
        map.end()
    }
}

impl<'de, T: DeserializeOwned + Default> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(NAMED, NamedVisitor(PhantomData))
    }
}

struct NamedVisitor<T>(PhantomData<T>);

impl<'de, T: DeserializeOwned + Default> Visitor<'de> for NamedVisitor<T> {
    type Value = Named<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name, or a map with one name as its key")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Named<T>, E> {
        Ok(Named {
            name: name.to_owned().into(),
            value: T::default(),
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Named<T>, A::Error> {
        let Some(name) = entries.next_key::<Spanned<String>>()? else {
            return Err(A::Error::invalid_length(0, &self));
        };
        let value: Option<T> = entries.next_value()?;
        if let Some(second) = entries.next_key::<String>()? {
            return Err(A::Error::custom(format_args!(
                "`{name}` and `{second}` are two keys where one is expected"
            )));
        }
        Ok(Named {
            name,
            value: value.unwrap_or_default(),
        })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Named<T>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

#[cfg(test)]
impl<T: JsonSchema> JsonSchema for Named<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("Named_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<T>();
        json_schema!({
            "anyOf": [
                { "type": "string" },
                {
                    "type": "object",
                    "minProperties": 1,
                    "maxProperties": 1,
                    "additionalProperties": { "anyOf": [value, { "type": "null" }] }
                }
            ]
        })
    }
}
