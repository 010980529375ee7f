//! Serde deserializer over the tree: the requested type decides how a node is read.

use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, SeqAccess, Visitor};

use super::context::YamlContext;
use super::diagnostic::Diagnostic;
use super::entries::{EntryAccess, ItemAccess, collect_entries, drop_unknown};
use super::enum_access::{EnumDeserializer, NamedAccess};
use super::node::{Child, Value};
use super::read_error::{ReadError, ReadErrorKind};
use super::scalar::{self, PlainScalar};
use super::spanned::SPANNED;
use super::suggest::{self, backtick_list};
use crate::config::forms::type_names;

/// A node at its place of use, as a deserializer.
#[derive(Clone, Copy)]
pub(super) struct NodeDeserializer<'n, 'c> {
    pub(crate) context: &'c YamlContext<'n>,
    pub(crate) child: &'n Child,
}

impl<'n, 'c> NodeDeserializer<'n, 'c> {
    pub(super) fn new(context: &'c YamlContext<'n>, child: &'n Child) -> Self {
        Self { context, child }
    }

    fn locate<T>(self, result: Result<T, ReadError>) -> Result<T, ReadError> {
        result.map_err(|fault| self.context.locate_error(self.child, fault))
    }

    fn number<'de, V: Visitor<'de>>(self, whole: bool, visitor: V) -> Result<V::Value, ReadError> {
        let expected = suggest::describe_expected(&(&visitor as &dyn serde::de::Expected).to_string());
        let Value::Scalar { text, plain } = &self.child.node.value else {
            return self.locate(Err(ReadError::expected(expected)));
        };
        let reads = |text: &str| {
            if whole {
                text.parse::<u64>().is_ok() || text.parse::<i64>().is_ok()
            } else {
                scalar::parse_real(text).is_some()
            }
        };
        if !plain && reads(text) {
            let help = Some(format!(
                "a quoted text is not a number; write {text} without quotes"
            ));
            return self.locate(Err(ReadError::unplaced(ReadErrorKind::Expected {
                expected,
                help,
                instead: Some(text.clone()),
            })));
        }
        let tokens = (whole && *plain && self.context.is_value_of(scalar::counts_tokens))
            .then(|| scalar::parse_kibi(text))
            .flatten();
        if let Some(tokens) = tokens {
            return self.locate(visitor.visit_u64(tokens));
        }
        let clear = *plain && !scalar::has_odd_zero(text);
        let result = if clear
            && whole
            && let Ok(number) = text.parse::<u64>()
        {
            visitor.visit_u64(number)
        } else if clear
            && whole
            && let Ok(number) = text.parse::<i64>()
        {
            visitor.visit_i64(number)
        } else if clear
            && !whole
            && let Some(number) = scalar::parse_real(text)
        {
            visitor.visit_f64(number)
        } else {
            let is_huge =
                clear && whole && text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty();
            let expected = match is_huge {
                true => suggest::describe_bounds(&(&visitor as &dyn serde::de::Expected).to_string()),
                false => expected,
            };
            let instead = scalar::suggest_number(text, whole);
            let help = match &instead {
                Some(_) if scalar::has_odd_zero(text) => {
                    Some("remove the leading 0, because some tools read such a number as octal".to_owned())
                }
                Some(_) => Some("write".to_owned()),
                None => None,
            };
            Err(ReadError::unplaced(ReadErrorKind::Expected {
                expected,
                help,
                instead,
            }))
        };
        self.locate(result)
    }

    fn text<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let expected = suggest::describe_expected(&(&visitor as &dyn serde::de::Expected).to_string());
        self.locate(match &self.child.node.value {
            Value::Scalar { text, .. } if self.child.is_null() => {
                let help =
                    (!text.is_empty()).then(|| "put the value in quotes if it is meant as text".to_owned());
                let instead = help.as_ref().map(|_| format!("\"{text}\""));
                Err(ReadError::unplaced(ReadErrorKind::Expected {
                    expected,
                    help,
                    instead,
                }))
            }
            Value::Scalar { text, .. } => visitor.visit_str(text),
            Value::Map(map) if !map.is_empty() && map.iter().all(|(_, value)| value.is_null()) => {
                let help = Some("put the value in quotes if the braces belong to the value".to_owned());
                Err(ReadError::unplaced(ReadErrorKind::Expected {
                    expected,
                    help,
                    instead: None,
                }))
            }
            Value::List(_) | Value::Map(_) => Err(ReadError::expected(expected)),
        })
    }

    /// Reads a map with known keys.
    pub(super) fn structure<'de, V: Visitor<'de>>(
        self,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let result = match &self.child.node.value {
            Value::Map(map) => collect_entries(self.context, map).and_then(|mut entries| {
                drop_unknown(self.context, &mut entries, known);
                visitor.visit_map(EntryAccess::new(self.context, entries))
            }),
            Value::Scalar { text, plain } => {
                let slip = *plain
                    && text
                        .split_once(':')
                        .is_some_and(|(key, rest)| known.contains(&key) && !rest.starts_with(' '));
                let help = slip.then(|| "write a space after the colon".to_owned());
                let instead = slip.then(|| text.replacen(':', ": ", 1));
                Err(ReadError::unplaced(ReadErrorKind::Expected {
                    expected: suggest::expected_map(known),
                    help,
                    instead,
                }))
            }
            Value::List(_) => Err(ReadError::expected(suggest::expected_map(known))),
        };
        self.locate(result)
    }

    fn list<'de, V: Visitor<'de>>(self, is_tuple: bool, visitor: V) -> Result<V::Value, ReadError> {
        let expected = suggest::describe_expected(&(&visitor as &dyn serde::de::Expected).to_string());
        self.locate(match &self.child.node.value {
            Value::List(items) => visitor.visit_seq(ItemAccess::new(self.context, items, is_tuple)),
            Value::Scalar { .. } | Value::Map(_) => Err(ReadError::expected(expected)),
        })
    }

    /// Reads a name, or a map with one entry.
    fn named<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let expected = suggest::describe_expected(&(&visitor as &dyn serde::de::Expected).to_string());
        self.locate(match &self.child.node.value {
            Value::Scalar { .. } if self.child.is_null() => Err(ReadError::expected(expected)),
            Value::Scalar { .. } => visitor.visit_map(NamedAccess::new(self.context, self.child, None)),
            Value::Map(map) => match map.as_slice() {
                [(key, value)] => visitor.visit_map(NamedAccess::new(self.context, key, Some(value))),
                [] => Err(ReadError::expected(expected)),
                [(first, _), (second, _), ..] => {
                    let names = backtick_list([first, second].into_iter().filter_map(Child::text));
                    let first_name = first.text().unwrap_or_default();
                    Err(self.context.error_here(
                        Diagnostic::new(format!(
                            "only one key is allowed{}, but there are two: {names}",
                            self.context.path()
                        ))
                        .with_place(&self.context.place(&second.node.mark), "a second key")
                        .with_secondary(&self.context.place(&first.node.mark), "the first key")
                        .with_help(format!(
                            "indent the settings of `{first_name}` deeper than `{first_name}` itself"
                        )),
                    ))
                }
            },
            Value::List(_) => Err(ReadError::expected(expected)),
        })
    }
}

macro_rules! numbers {
    ($($method:ident $whole:literal)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
            self.number($whole, visitor)
        })*
    };
}

macro_rules! texts {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
            self.text(visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for NodeDeserializer<'_, '_> {
    type Error = ReadError;

    numbers! {
        deserialize_u8 true deserialize_u16 true deserialize_u32 true deserialize_u64 true deserialize_u128 true
        deserialize_i8 true deserialize_i16 true deserialize_i32 true deserialize_i64 true deserialize_i128 true
        deserialize_f32 false deserialize_f64 false
    }

    texts! {
        deserialize_char deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_identifier
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.locate(match &self.child.node.value {
            Value::List(items) => visitor.visit_seq(ItemAccess::new(self.context, items, false)),
            Value::Map(map) => collect_entries(self.context, map)
                .and_then(|entries| visitor.visit_map(EntryAccess::new(self.context, entries))),
            Value::Scalar { text, plain: false } => visitor.visit_str(text),
            Value::Scalar { text, plain: true } => match scalar::classify(text) {
                PlainScalar::Null => visitor.visit_unit(),
                PlainScalar::Bool(value) => visitor.visit_bool(value),
                PlainScalar::Natural(number) => visitor.visit_u64(number),
                PlainScalar::Negative(number) => visitor.visit_i64(number),
                PlainScalar::Real(number) => visitor.visit_f64(number),
                PlainScalar::Text => visitor.visit_str(text),
            },
        })
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let expected = suggest::describe_expected(&(&visitor as &dyn serde::de::Expected).to_string());
        let fault = match &self.child.node.value {
            Value::Scalar { text, plain: true } if text == "true" => {
                return self.locate(visitor.visit_bool(true));
            }
            Value::Scalar { text, plain: true } if text == "false" => {
                return self.locate(visitor.visit_bool(false));
            }
            Value::Scalar { text, plain } => {
                let instead = scalar::parse_bool_word(text).map(|value| value.to_string());
                let quotes = if *plain { "" } else { ", without quotes" };
                let help = instead.as_ref().map(|value| format!("write `{value}`{quotes}"));
                ReadError::unplaced(ReadErrorKind::Expected {
                    expected,
                    help,
                    instead,
                })
            }
            Value::List(_) | Value::Map(_) => ReadError::expected(expected),
        };
        self.locate(Err(fault))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.locate(if self.child.is_null() {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        })
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.locate(if self.child.is_null() {
            visitor.visit_unit()
        } else {
            Err(ReadError::expected("nothing"))
        })
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match name {
            SPANNED => self.locate(visitor.visit_seq(SpannedAccess {
                node: self,
                position: 0,
            })),
            type_names::LIST => self.locate(match &self.child.node.value {
                Value::List(items) => visitor.visit_seq(ItemAccess::new(self.context, items, false)),
                Value::Scalar { .. } if self.child.is_null() => {
                    Err(ReadError::expected("a value or a list of values"))
                }
                Value::Scalar { .. } | Value::Map(_) => visitor.visit_seq(SingleAccess(Some(self))),
            }),
            type_names::BY_ENGINE => self.locate(match &self.child.node.value {
                Value::Map(map) => collect_entries(self.context, map)
                    .and_then(|entries| visitor.visit_map(EntryAccess::new(self.context, entries))),
                Value::Scalar { .. } | Value::List(_) => visitor.visit_seq(SingleAccess(Some(self))),
            }),
            type_names::NAMED => self.named(visitor),
            type_names::TEXT => self.text(visitor),
            _ => self.locate(visitor.visit_newtype_struct(self)),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.list(false, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, ReadError> {
        self.list(true, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        self.list(true, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let expected = suggest::describe_expected(&(&visitor as &dyn serde::de::Expected).to_string());
        self.locate(match &self.child.node.value {
            Value::Map(map) => collect_entries(self.context, map)
                .and_then(|entries| visitor.visit_map(EntryAccess::new(self.context, entries))),
            Value::Scalar { .. } | Value::List(_) => Err(ReadError::expected(expected)),
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        self.structure(fields, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let one_of = || ReadError::expected(format!("one of {}", backtick_list(variants.iter().copied())));
        self.locate(match &self.child.node.value {
            Value::Scalar { .. } if self.child.is_null() => Err(one_of()),
            Value::Scalar { .. } => visitor.visit_enum(EnumDeserializer::new(self.context, self.child, None)),
            Value::Map(map) => match map.as_slice() {
                [(key, value)] => visitor.visit_enum(EnumDeserializer::new(self.context, key, Some(value))),
                [] => Err(one_of()),
                [(first, _), (second, _), ..] => Err(self.context.error_here(
                    Diagnostic::new(format!("only one key is allowed{}", self.context.path()))
                        .with_place(&self.context.place(&second.node.mark), "a second key")
                        .with_secondary(&self.context.place(&first.node.mark), "the first key")
                        .with_help(format!("keep one of {}", backtick_list(variants.iter().copied()))),
                )),
            },
            Value::List(_) => Err(one_of()),
        })
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_unit()
    }
}

/// Sequence that [`super::Spanned`] reads: file, start, end, value.
struct SpannedAccess<'n, 'c> {
    node: NodeDeserializer<'n, 'c>,
    position: u8,
}

impl<'de> SeqAccess<'de> for SpannedAccess<'_, '_> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, ReadError> {
        let mark = &self.node.child.node.mark;
        self.position += 1;
        match self.position {
            1 => seed.deserialize(self.node.context.file().into_deserializer()),
            2 => seed.deserialize(mark.start.into_deserializer()),
            3 => seed.deserialize(mark.end.into_deserializer()),
            4 => seed.deserialize(self.node),
            _ => return Ok(None),
        }
        .map(Some)
    }
}

/// A single value in place of a list.
struct SingleAccess<'n, 'c>(Option<NodeDeserializer<'n, 'c>>);

impl<'de> SeqAccess<'de> for SingleAccess<'_, '_> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, ReadError> {
        self.0.take().map(|at| seed.deserialize(at)).transpose()
    }
}
