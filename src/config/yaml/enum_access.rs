//! Maps with a single key: the variant of an enum, and a name with details.

use serde::de::{
    DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, VariantAccess, Visitor, value::UnitDeserializer,
};

use super::context::{Step, YamlContext};
use super::entries::{EntryAccess, ItemAccess};
use super::node::{Child, Value};
use super::read_error::ReadError;
use super::reader::NodeDeserializer;
use super::suggest;

/// A variant and its content, if any.
pub(super) struct EnumDeserializer<'n, 'c> {
    context: &'c YamlContext<'n>,
    key: &'n Child,
    value: Option<&'n Child>,
}

impl<'n, 'c> EnumDeserializer<'n, 'c> {
    pub(super) fn new(context: &'c YamlContext<'n>, key: &'n Child, value: Option<&'n Child>) -> Self {
        Self { context, key, value }
    }

    /// The content of the variant, unless it is null.
    fn content(&self) -> Option<&'n Child> {
        self.value.filter(|value| !value.is_null())
    }

    fn step(&self) -> Step<'n> {
        Step {
            index: 0,
            key: Some(self.key),
            value: self.content(),
            is_required: true,
        }
    }

    fn needs_value<T>(&self) -> Result<T, ReadError> {
        let name = self.key.text().unwrap_or_default();
        Err(serde::de::Error::custom(format_args!(
            "`{name}` needs a value; write `{name}: …`"
        )))
    }
}

impl<'de, 'n, 'c> EnumAccess<'de> for EnumDeserializer<'n, 'c> {
    type Error = ReadError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), ReadError> {
        let variant = seed
            .deserialize(NodeDeserializer::new(self.context, self.key))
            .map_err(|fault| self.context.locate_error(self.key, fault))?;
        Ok((variant, self))
    }
}

impl<'de> VariantAccess<'de> for EnumDeserializer<'_, '_> {
    type Error = ReadError;

    fn unit_variant(self) -> Result<(), ReadError> {
        match self.content() {
            None => Ok(()),
            Some(_) => self.context.with_step(self.step(), || {
                let name = self.key.text().unwrap_or_default();
                Err(serde::de::Error::custom(format_args!(
                    "`{name}` takes no value; write `{name}` alone"
                )))
            }),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, ReadError> {
        self.context.with_step(self.step(), || match self.content() {
            Some(value) => seed.deserialize(NodeDeserializer::new(self.context, value)),
            None => self.needs_value(),
        })
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, ReadError> {
        self.context.with_step(self.step(), || {
            match self.content().map(|value| &value.node.value) {
                Some(Value::List(items)) => visitor.visit_seq(ItemAccess::new(self.context, items, true)),
                Some(_) => Err(ReadError::expected(suggest::describe_expected("a sequence"))),
                None => self.needs_value(),
            }
        })
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        self.context.with_step(self.step(), || match self.content() {
            Some(value) => NodeDeserializer::new(self.context, value).structure(fields, visitor),
            // A variant whose keys all have defaults may be written without content.
            None => visitor.visit_map(EntryAccess::new(self.context, Vec::new())),
        })
    }
}

/// A name and its details; missing details are read as null.
pub(super) struct NamedAccess<'n, 'c> {
    context: &'c YamlContext<'n>,
    key: &'n Child,
    value: Option<&'n Child>,
    is_value_read: bool,
}

impl<'n, 'c> NamedAccess<'n, 'c> {
    pub(super) fn new(context: &'c YamlContext<'n>, key: &'n Child, value: Option<&'n Child>) -> Self {
        Self {
            context,
            key,
            value,
            is_value_read: false,
        }
    }
}

impl<'de> MapAccess<'de> for NamedAccess<'_, '_> {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ReadError> {
        if self.is_value_read {
            return Ok(None);
        }
        self.is_value_read = true;
        seed.deserialize(NodeDeserializer::new(self.context, self.key))
            .map(Some)
            .map_err(|fault| self.context.locate_error(self.key, fault))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, ReadError> {
        match self.value.filter(|_| !self.context.is_omitted(0)) {
            Some(value) => {
                let step = Step {
                    index: 0,
                    key: Some(self.key),
                    value: Some(value),
                    is_required: false,
                };
                self.context.with_step(step, || {
                    seed.deserialize(NodeDeserializer::new(self.context, value))
                })
            }
            None => {
                let nothing: UnitDeserializer<ReadError> = ().into_deserializer();
                seed.deserialize(nothing)
            }
        }
    }
}
