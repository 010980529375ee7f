//! Maps with a single key: the variant of an enum, and a name with details.

use serde::de::{
    DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, VariantAccess, Visitor, value::UnitDeserializer,
};

use super::context::{Context, Step};
use super::entries::{Entries, Items};
use super::error::Fault;
use super::node::{Child, Value};
use super::reader::At;
use super::suggest;

/// A variant and its content, if any.
pub(super) struct Choice<'n, 'c> {
    context: &'c Context<'n>,
    key: &'n Child,
    value: Option<&'n Child>,
}

impl<'n, 'c> Choice<'n, 'c> {
    pub(super) fn new(context: &'c Context<'n>, key: &'n Child, value: Option<&'n Child>) -> Self {
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
            is_firm: true,
        }
    }

    fn needs_value<T>(&self) -> Result<T, Fault> {
        let name = self.key.text().unwrap_or_default();
        Err(serde::de::Error::custom(format_args!(
            "`{name}` needs a value; write `{name}: …`"
        )))
    }
}

impl<'de, 'n, 'c> EnumAccess<'de> for Choice<'n, 'c> {
    type Error = Fault;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Fault> {
        let variant = seed
            .deserialize(At::new(self.context, self.key))
            .map_err(|fault| self.context.hurt(self.key, fault))?;
        Ok((variant, self))
    }
}

impl<'de> VariantAccess<'de> for Choice<'_, '_> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        match self.content() {
            None => Ok(()),
            Some(_) => self.context.inside(self.step(), || {
                let name = self.key.text().unwrap_or_default();
                Err(serde::de::Error::custom(format_args!(
                    "`{name}` takes no value; write `{name}` alone"
                )))
            }),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Fault> {
        self.context.inside(self.step(), || match self.content() {
            Some(value) => seed.deserialize(At::new(self.context, value)),
            None => self.needs_value(),
        })
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        self.context.inside(self.step(), || {
            match self.content().map(|value| &value.node.value) {
                Some(Value::List(items)) => visitor.visit_seq(Items::new(self.context, items, true)),
                Some(_) => Err(Fault::wanted(suggest::plain("a sequence"))),
                None => self.needs_value(),
            }
        })
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.context.inside(self.step(), || match self.content() {
            Some(value) => At::new(self.context, value).structure(fields, visitor),
            // A variant whose keys all have defaults may be written without content.
            None => visitor.visit_map(Entries::new(self.context, Vec::new())),
        })
    }
}

/// A name and its details; missing details are read as null.
pub(super) struct Pair<'n, 'c> {
    context: &'c Context<'n>,
    key: &'n Child,
    value: Option<&'n Child>,
    is_given: bool,
}

impl<'n, 'c> Pair<'n, 'c> {
    pub(super) fn new(context: &'c Context<'n>, key: &'n Child, value: Option<&'n Child>) -> Self {
        Self {
            context,
            key,
            value,
            is_given: false,
        }
    }
}

impl<'de> MapAccess<'de> for Pair<'_, '_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        if self.is_given {
            return Ok(None);
        }
        self.is_given = true;
        seed.deserialize(At::new(self.context, self.key))
            .map(Some)
            .map_err(|fault| self.context.hurt(self.key, fault))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        match self.value.filter(|_| !self.context.is_left_out(0)) {
            Some(value) => {
                let step = Step {
                    index: 0,
                    key: Some(self.key),
                    value: Some(value),
                    is_firm: false,
                };
                self.context
                    .inside(step, || seed.deserialize(At::new(self.context, value)))
            }
            None => {
                let nothing: UnitDeserializer<Fault> = ().into_deserializer();
                seed.deserialize(nothing)
            }
        }
    }
}
