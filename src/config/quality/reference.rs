//! The answers with which those of all others are compared: of an engine of the matrix, or of a stored run.

use std::fmt;

#[cfg(test)]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::config::forms::{OneOrMany, OrderedMap};
use crate::config::select::Selector;
use crate::config::template::Template;
use crate::config::yaml::Spanned;

/// Key of the name of a stored run.
const RUN: &str = "run";

/// A selection of the reference: axes with patterns, or the name of an engine alone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AnswerReference {
    /// Name or folder of the stored run whose cells are selected; those of this matrix if absent.
    pub(crate) run: Option<Spanned<String>>,
    pub(crate) cells: Selector,
}

impl AnswerReference {
    /// Describes what is wrong with the name of the run.
    pub(crate) fn run_error(&self) -> Option<(&Spanned<String>, &'static str)> {
        let run = self.run.as_ref()?;
        run.value.trim().is_empty().then_some((run, "it is empty"))
    }
}

impl Serialize for AnswerReference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(run) = &self.run {
            map.serialize_entry(RUN, run)?;
        }
        for (axis, patterns) in &self.cells.0 {
            map.serialize_entry(&axis.value, patterns)?;
        }
        map.end()
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
        Ok(AnswerReference {
            run: None,
            cells: Selector(vec![(axis, vec![engine.to_owned()])]),
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<AnswerReference, A::Error> {
        let map = OrderedMap::<OneOrMany<Template>>::deserialize(MapAccessDeserializer::new(map))?;
        let mut reference = AnswerReference {
            run: None,
            cells: Selector::default(),
        };
        for (key, values) in map {
            let mut texts: Vec<String> = values.iter().map(Template::to_string).collect();
            match (key.value == RUN, texts.len()) {
                (true, 1) => {
                    reference.run = texts.pop().map(|run| Spanned {
                        value: run,
                        place: key.place,
                    })
                }
                (true, _) => return Err(A::Error::custom("`run` must name exactly one stored run")),
                (false, _) => reference.cells.0.push((key, texts)),
            }
        }
        Ok(reference)
    }
}

#[cfg(test)]
impl JsonSchema for AnswerReference {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AnswerReference".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = crate::config::select::AXES.into_iter().chain([RUN]).collect();
        let stored = json_schema!({
            "type": "object",
            "description": "Name or folder of a stored run, and axes that select cells of it.",
            "properties": { RUN: { "type": "string" } },
            "required": [RUN],
            "propertyNames": { "enum": names }
        });
        let cells = generator.subschema_for::<Selector>();
        json_schema!({ "anyOf": [{ "type": "string" }, cells, stored] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_an_engine_or_axes_of_this_matrix_or_of_a_stored_run() {
        let read = |text: &str| serde_json::from_str::<AnswerReference>(text);
        let engine = read("\"vllm\"").unwrap();
        assert_eq!(
            (engine.run, engine.cells.to_string()),
            (None, "engine=vllm".to_owned())
        );
        let text = r#"{"run":"m-1","engine":["vllm"],"tp":["2"]}"#;
        let stored = read(text).unwrap();
        assert_eq!(stored.run.as_ref().unwrap().value, "m-1");
        assert_eq!(stored.cells.to_string(), "engine=vllm,tp=2");
        assert_eq!(serde_json::to_string(&stored).unwrap(), text);
        assert!(read(r#"{"run":["a","b"]}"#).is_err());
        assert!(read(r#"{"run":" "}"#).unwrap().run_error().is_some());
    }
}
