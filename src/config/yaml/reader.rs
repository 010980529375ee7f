//! Serde deserializer over the tree: the requested type decides how a node is read.

use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, SeqAccess, Visitor};

use super::context::Context;
use super::entries::{Entries, Items, entries_of, keep_known};
use super::error::{Fault, What};
use super::node::{self, Child, Value};
use super::scalar::{self, Looks};
use super::spanned::SPANNED;
use super::special::{Choice, Pair};
use super::{Mistake, Renamed, Source, listed, suggest};
use crate::config::forms;

/// Reads a file and as many errors as possible; `None` only if nothing usable remains.
///
/// Serde stops at the first wrong value. So the value is left out and the file read again, until nothing new comes.
pub fn read<T: DeserializeOwned>(source: &Source) -> (Option<T>, Vec<Mistake>) {
    let reading = read_with_names(source);
    (reading.value, reading.mistakes)
}

/// Result of reading a file.
pub(crate) struct Reading<T> {
    /// The value; `None` only if nothing usable remains.
    pub value: Option<T>,
    /// All errors that were found.
    pub mistakes: Vec<Mistake>,
    /// Keys with an earlier name.
    pub renamed: Vec<Renamed>,
}

/// Reads a file like [`read`], and also returns keys with an earlier name.
pub(crate) fn read_with_names<T: DeserializeOwned>(source: &Source) -> Reading<T> {
    let node::Document { root, mut mistakes } = match node::parse(source) {
        Ok(document) => document,
        Err(mistake) => {
            return Reading {
                value: None,
                mistakes: vec![*mistake],
                renamed: Vec::new(),
            };
        }
    };
    let context = Context::new(&source.name);
    let value = loop {
        match T::deserialize(At::new(&context, &root)) {
            Ok(value) => break Some(value),
            Err(fault) => {
                if !context.goes_on_after(&root, fault) {
                    break None;
                }
            }
        }
    };
    let renamed = context.renamed();
    mistakes.extend(context.into_mistakes());
    Reading {
        value,
        mistakes,
        renamed,
    }
}

/// A node at its place of use, as a deserializer.
#[derive(Clone, Copy)]
pub(super) struct At<'n, 'c> {
    pub context: &'c Context<'n>,
    pub child: &'n Child,
}

impl<'n, 'c> At<'n, 'c> {
    pub(super) fn new(context: &'c Context<'n>, child: &'n Child) -> Self {
        Self { context, child }
    }

    fn hurt<T>(self, result: Result<T, Fault>) -> Result<T, Fault> {
        result.map_err(|fault| self.context.hurt(self.child, fault))
    }

    fn number<'de, V: Visitor<'de>>(self, whole: bool, visitor: V) -> Result<V::Value, Fault> {
        let wanted = suggest::plain(&(&visitor as &dyn serde::de::Expected).to_string());
        let Value::Scalar { text, plain } = &self.child.node.value else {
            return self.hurt(Err(Fault::wanted(wanted)));
        };
        let reads = |text: &str| {
            if whole {
                text.parse::<u64>().is_ok() || text.parse::<i64>().is_ok()
            } else {
                scalar::real(text).is_some()
            }
        };
        if !plain && reads(text) {
            let help = Some(format!("a quoted text is no number; write {text} without quotes"));
            return self.hurt(Err(Fault::loose(What::Wanted {
                expected: wanted,
                help,
                instead: Some(text.clone()),
            })));
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
            && let Some(number) = scalar::real(text)
        {
            visitor.visit_f64(number)
        } else {
            let instead = scalar::respelled(text, whole);
            let help = match &instead {
                Some(_) if scalar::has_odd_zero(text) => {
                    Some("a leading 0 reads differently elsewhere; write".to_owned())
                }
                Some(_) => Some("write".to_owned()),
                None => None,
            };
            Err(Fault::loose(What::Wanted {
                expected: wanted,
                help,
                instead,
            }))
        };
        self.hurt(result)
    }

    fn text<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let wanted = suggest::plain(&(&visitor as &dyn serde::de::Expected).to_string());
        self.hurt(match &self.child.node.value {
            Value::Scalar { text, .. } if self.child.is_null() => {
                let help =
                    (!text.is_empty()).then(|| "put it in quotes if the word itself is meant".to_owned());
                let instead = help.as_ref().map(|_| format!("\"{text}\""));
                Err(Fault::loose(What::Wanted {
                    expected: wanted,
                    help,
                    instead,
                }))
            }
            Value::Scalar { text, .. } => visitor.visit_str(text),
            Value::Map(map) if !map.is_empty() && map.iter().all(|(_, value)| value.is_null()) => {
                let help = Some("put the value in quotes if the braces belong to it".to_owned());
                Err(Fault::loose(What::Wanted {
                    expected: wanted,
                    help,
                    instead: None,
                }))
            }
            Value::List(_) | Value::Map(_) => Err(Fault::wanted(wanted)),
        })
    }

    /// Reads a map with known keys.
    pub(super) fn structure<'de, V: Visitor<'de>>(
        self,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let result = match &self.child.node.value {
            Value::Map(map) => entries_of(self.context, map).and_then(|mut entries| {
                keep_known(self.context, &mut entries, known);
                visitor.visit_map(Entries::new(self.context, entries))
            }),
            Value::Scalar { text, plain } => {
                let slip = *plain
                    && text
                        .split_once(':')
                        .is_some_and(|(key, rest)| known.contains(&key) && !rest.starts_with(' '));
                let help = slip.then(|| "write a space after the colon".to_owned());
                let instead = slip.then(|| text.replacen(':', ": ", 1));
                Err(Fault::loose(What::Wanted {
                    expected: map_of(known),
                    help,
                    instead,
                }))
            }
            Value::List(_) => Err(Fault::wanted(map_of(known))),
        };
        self.hurt(result)
    }

    fn list<'de, V: Visitor<'de>>(self, is_tuple: bool, visitor: V) -> Result<V::Value, Fault> {
        let wanted = suggest::plain(&(&visitor as &dyn serde::de::Expected).to_string());
        self.hurt(match &self.child.node.value {
            Value::List(items) => visitor.visit_seq(Items::new(self.context, items, is_tuple)),
            Value::Scalar { .. } | Value::Map(_) => Err(Fault::wanted(wanted)),
        })
    }

    /// Reads a name, or a map with one entry.
    fn named<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let wanted = suggest::plain(&(&visitor as &dyn serde::de::Expected).to_string());
        self.hurt(match &self.child.node.value {
            Value::Scalar { .. } if self.child.is_null() => Err(Fault::wanted(wanted)),
            Value::Scalar { .. } => visitor.visit_map(Pair::new(self.context, self.child, None)),
            Value::Map(map) => match map.as_slice() {
                [(key, value)] => visitor.visit_map(Pair::new(self.context, key, Some(value))),
                [] => Err(Fault::wanted(wanted)),
                [(first, _), (second, _), ..] => {
                    let names = listed([first, second].into_iter().filter_map(Child::text));
                    let first_name = first.text().unwrap_or_default();
                    Err(self.context.put(
                        Mistake::new(format!(
                            "{names} stand side by side{}",
                            self.context.whereabouts()
                        ))
                        .at(&self.context.place(&second.node.mark), "a second key")
                        .also(&self.context.place(&first.node.mark), "the first key")
                        .help(format!(
                            "indent what belongs to `{first_name}` deeper than `{first_name}` itself"
                        )),
                    ))
                }
            },
            Value::List(_) => Err(Fault::wanted(wanted)),
        })
    }
}

fn map_of(known: &[&'static str]) -> String {
    let todays = known
        .iter()
        .copied()
        .filter(|key| suggest::renamed(key, known).is_none());
    match &todays.collect::<Vec<_>>()[..] {
        [] => "an empty map".to_owned(),
        [one] => format!("a map with the key `{one}`"),
        many if many.len() <= 8 => format!("a map with the keys {}", listed(many.iter().copied())),
        many => format!("a map with keys such as {}", listed(many[..5].iter().copied())),
    }
}

macro_rules! numbers {
    ($($method:ident $whole:literal)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            self.number($whole, visitor)
        })*
    };
}

macro_rules! texts {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            self.text(visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for At<'_, '_> {
    type Error = Fault;

    numbers! {
        deserialize_u8 true deserialize_u16 true deserialize_u32 true deserialize_u64 true deserialize_u128 true
        deserialize_i8 true deserialize_i16 true deserialize_i32 true deserialize_i64 true deserialize_i128 true
        deserialize_f32 false deserialize_f64 false
    }

    texts! {
        deserialize_char deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_identifier
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.hurt(match &self.child.node.value {
            Value::List(items) => visitor.visit_seq(Items::new(self.context, items, false)),
            Value::Map(map) => entries_of(self.context, map)
                .and_then(|entries| visitor.visit_map(Entries::new(self.context, entries))),
            Value::Scalar { text, plain: false } => visitor.visit_str(text),
            Value::Scalar { text, plain: true } => match scalar::looks(text) {
                Looks::Null => visitor.visit_unit(),
                Looks::Bool(value) => visitor.visit_bool(value),
                Looks::Natural(number) => visitor.visit_u64(number),
                Looks::Negative(number) => visitor.visit_i64(number),
                Looks::Real(number) => visitor.visit_f64(number),
                Looks::Text => visitor.visit_str(text),
            },
        })
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let wanted = suggest::plain(&(&visitor as &dyn serde::de::Expected).to_string());
        let fault = match &self.child.node.value {
            Value::Scalar { text, plain: true } if text == "true" => {
                return self.hurt(visitor.visit_bool(true));
            }
            Value::Scalar { text, plain: true } if text == "false" => {
                return self.hurt(visitor.visit_bool(false));
            }
            Value::Scalar { text, plain } => {
                let instead = scalar::as_bool(text).map(|value| value.to_string());
                let quotes = if *plain { "" } else { ", without quotes" };
                let help = instead.as_ref().map(|value| format!("write `{value}`{quotes}"));
                Fault::loose(What::Wanted {
                    expected: wanted,
                    help,
                    instead,
                })
            }
            Value::List(_) | Value::Map(_) => Fault::wanted(wanted),
        };
        self.hurt(Err(fault))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.hurt(if self.child.is_null() {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        })
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.hurt(if self.child.is_null() {
            visitor.visit_unit()
        } else {
            Err(Fault::wanted("nothing"))
        })
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match name {
            SPANNED => self.hurt(visitor.visit_seq(Parts { at: self, given: 0 })),
            forms::LIST => self.hurt(match &self.child.node.value {
                Value::List(items) => visitor.visit_seq(Items::new(self.context, items, false)),
                Value::Scalar { .. } if self.child.is_null() => {
                    Err(Fault::wanted("a value or a list of values"))
                }
                Value::Scalar { .. } | Value::Map(_) => visitor.visit_seq(Once(Some(self))),
            }),
            forms::BY_ENGINE => self.hurt(match &self.child.node.value {
                Value::Map(map) => entries_of(self.context, map)
                    .and_then(|entries| visitor.visit_map(Entries::new(self.context, entries))),
                Value::Scalar { .. } | Value::List(_) => visitor.visit_seq(Once(Some(self))),
            }),
            forms::NAMED => self.named(visitor),
            forms::TEXT => self.text(visitor),
            _ => self.hurt(visitor.visit_newtype_struct(self)),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.list(false, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        self.list(true, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.list(true, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let wanted = suggest::plain(&(&visitor as &dyn serde::de::Expected).to_string());
        self.hurt(match &self.child.node.value {
            Value::Map(map) => entries_of(self.context, map)
                .and_then(|entries| visitor.visit_map(Entries::new(self.context, entries))),
            Value::Scalar { .. } | Value::List(_) => Err(Fault::wanted(wanted)),
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.structure(fields, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let one_of = || Fault::wanted(format!("one of {}", listed(variants.iter().copied())));
        self.hurt(match &self.child.node.value {
            Value::Scalar { .. } if self.child.is_null() => Err(one_of()),
            Value::Scalar { .. } => visitor.visit_enum(Choice::new(self.context, self.child, None)),
            Value::Map(map) => match map.as_slice() {
                [(key, value)] => visitor.visit_enum(Choice::new(self.context, key, Some(value))),
                [] => Err(one_of()),
                [(first, _), (second, _), ..] => Err(self.context.put(
                    Mistake::new(format!(
                        "only one of its kinds can be chosen{}",
                        self.context.whereabouts()
                    ))
                    .at(&self.context.place(&second.node.mark), "a second key")
                    .also(&self.context.place(&first.node.mark), "the first key")
                    .help(format!("keep one of {}", listed(variants.iter().copied()))),
                )),
            },
            Value::List(_) => Err(one_of()),
        })
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }
}

/// Sequence that [`super::Spanned`] reads: file, start, end, value.
struct Parts<'n, 'c> {
    at: At<'n, 'c>,
    given: u8,
}

impl<'de> SeqAccess<'de> for Parts<'_, '_> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        let mark = &self.at.child.node.mark;
        self.given += 1;
        match self.given {
            1 => seed.deserialize(self.at.context.file().into_deserializer()),
            2 => seed.deserialize(mark.start.into_deserializer()),
            3 => seed.deserialize(mark.end.into_deserializer()),
            4 => seed.deserialize(self.at),
            _ => return Ok(None),
        }
        .map(Some)
    }
}

/// A single value in place of a list.
struct Once<'n, 'c>(Option<At<'n, 'c>>);

impl<'de> SeqAccess<'de> for Once<'_, '_> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        self.0.take().map(|at| seed.deserialize(at)).transpose()
    }
}
