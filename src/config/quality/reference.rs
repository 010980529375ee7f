//! The engine with whose answers those of all others are compared.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::{Serialize, Serializer};

use crate::config::select::Selector;

/// A selection of the reference: axes with patterns, or the name of an engine alone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AnswerReference(pub(crate) Selector);

impl Serialize for AnswerReference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for AnswerReference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ReferenceVisitor)
    }
}

struct ReferenceVisitor;

impl<'de> Visitor<'de> for ReferenceVisitor {
    type Value = AnswerReference;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of an engine, or a map of axes")
    }

    fn visit_str<E: Error>(self, engine: &str) -> Result<AnswerReference, E> {
        let axis = "engine".to_owned().into();
        Ok(AnswerReference(Selector(vec![(axis, vec![engine.to_owned()])])))
    }

    fn visit_map<A: MapAccess<'de>>(self, axes: A) -> Result<AnswerReference, A::Error> {
        Selector::deserialize(MapAccessDeserializer::new(axes)).map(AnswerReference)
    }
}

impl JsonSchema for AnswerReference {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "AnswerReference".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "string" }, generator.subschema_for::<Selector>()] })
    }
}
