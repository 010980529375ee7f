//! Flags whose values are the variants of an enum, parsed by serde names, so that the command line does not
//! repeat enums of `config` and `sim`.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde::Deserializer;
use serde::de::value::Error;
use serde::de::{DeserializeOwned, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use crate::config::backend::Backend;
use crate::config::dataset::DatasetName;

/// Parses a variant of `T`, none of which holds a value.
pub(super) fn variant_parser<T>() -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(variant_names::<T>()).try_map(|name| parse_variant(&name))
}

/// Accepts these values, each with its line of help.
pub(super) fn described_values(values: &[(&'static str, &'static str)]) -> PossibleValuesParser {
    let values = values
        .iter()
        .map(|(name, help)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(values)
}

/// Parses the Python tool's name of a backend.
pub(super) fn backend() -> impl TypedValueParser<Value = Backend> {
    PossibleValuesParser::new(Backend::ALL.iter().map(|backend| backend.name()))
        .try_map(|name| Backend::from_name(&name).ok_or_else(|| Error::custom("no backend has this name")))
}

/// Parses the Python tool's name of a data set.
pub(super) fn dataset() -> impl TypedValueParser<Value = DatasetName> {
    // `--like vllm` has names of its own.
    let names = DatasetName::ALL
        .iter()
        .filter(|name| **name != DatasetName::VllmServe);
    let names = names.map(|name| name.bench_serving_name());
    PossibleValuesParser::new(names).try_map(known_dataset)
}

/// Parses the name of a data set whose file `matrix fetch` gets.
pub(super) fn fetched_dataset() -> impl TypedValueParser<Value = DatasetName> {
    let fetched = DatasetName::ALL
        .iter()
        .filter(|name| name.fetched_as() == Some(**name));
    let values = fetched.map(|name| {
        let file = name.default_dataset().facts().file;
        let about = file.map_or("", |file| file.about);
        PossibleValue::new(name.bench_serving_name()).help(about)
    });
    PossibleValuesParser::new(values).try_map(known_dataset)
}

fn known_dataset(text: String) -> Result<DatasetName, Error> {
    let mut all = DatasetName::ALL.iter().copied();
    all.find(|name| name.bench_serving_name() == text)
        .ok_or_else(|| Error::custom("no data set has this name"))
}

fn parse_variant<T: DeserializeOwned>(name: &str) -> Result<T, Error> {
    T::deserialize(IntoDeserializer::<Error>::into_deserializer(name))
}

/// Names of an enum's variants, in order.
fn variant_names<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut names: &[&str] = &[];
    let _ = T::deserialize(VariantNames(&mut names));
    names
}

/// A deserializer that records the variant names of an enum and returns no value.
struct VariantNames<'n>(&'n mut &'static [&'static str]);

impl<'de> Deserializer<'de> for VariantNames<'_> {
    type Error = Error;

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        *self.0 = variants;
        self.deserialize_any(visitor)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        Err(Error::custom("there is no value"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::dataset::image::PictureFormat;
    use crate::config::dataset::speed_bench::Category;

    #[test]
    fn names_are_those_that_files_use() {
        assert_eq!(variant_names::<PictureFormat>(), ["jpeg", "png"]);
        assert_eq!(
            variant_names::<Category>(),
            ["low_entropy", "mixed", "high_entropy"]
        );
    }
}
