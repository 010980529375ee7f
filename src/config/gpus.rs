//! Lists of a host's GPUs: `4-7`, `0,2`, or UUIDs.

use std::fmt;
use std::str::FromStr;

#[cfg(test)]
use schemars::JsonSchema;
use serde::de::{Deserializer, Visitor};
use serde::{Deserialize, Serialize};

/// GPUs in the written order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub(crate) struct GpuList(Vec<GpuName>);

/// One GPU, as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GpuName {
    /// Index in PCI bus order, as in `nvidia-smi`.
    Index(u32),
    /// UUID or its beginning, such as `GPU-57b0`. For a GPU with MIG instances it means all of them.
    Uuid(String),
    /// A MIG instance: index of its GPU, and its number there, such as `0:1`.
    Instance(u32, u32),
}

impl GpuList {
    /// The names in the list.
    pub(crate) fn names(&self) -> &[GpuName] {
        &self.0
    }
}

impl FromStr for GpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut names = Vec::new();
        for part in text.split(',').map(str::trim) {
            let wrong = || {
                format!(
                    "`{part}` is not a GPU; write indexes or ranges such as `4-7` or `0,2`, UUIDs such as `GPU-57b0…` or `MIG-57b0…`, or MIG instances such as `0:1`"
                )
            };
            if part.starts_with("GPU-") || part.starts_with("MIG-") {
                names.push(GpuName::Uuid(part.to_owned()));
                continue;
            }
            if let Some((gpu, number)) = part.split_once(':') {
                let (Ok(gpu), Ok(number)) = (gpu.parse(), number.parse()) else {
                    return Err(wrong());
                };
                names.push(GpuName::Instance(gpu, number));
                continue;
            }
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let (from, to): (u32, u32) = match (from.parse(), to.parse()) {
                (Ok(from), Ok(to)) if from <= to && to < 1024 => (from, to),
                _ => return Err(wrong()),
            };
            names.extend((from..=to).map(GpuName::Index));
        }
        Ok(Self(names))
    }
}

impl fmt::Display for GpuName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => index.fmt(f),
            Self::Uuid(uuid) => uuid.fmt(f),
            Self::Instance(gpu, number) => write!(f, "{gpu}:{number}"),
        }
    }
}

impl From<GpuList> for String {
    fn from(list: GpuList) -> Self {
        let names: Vec<Self> = list.0.iter().map(ToString::to_string).collect();
        names.join(",")
    }
}

impl<'de> Deserialize<'de> for GpuList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct GpuListVisitor;
        impl Visitor<'_> for GpuListVisitor {
            type Value = GpuList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("GPUs such as `4-7` or `0,2`")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<GpuList, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: serde::de::Error>(self, index: u64) -> Result<GpuList, E> {
                self.visit_str(&index.to_string())
            }
        }
        deserializer.deserialize_any(GpuListVisitor)
    }
}

#[cfg(test)]
impl JsonSchema for GpuList {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "GpuList".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": ["string", "integer"],
            "description": "GPUs of this host: indexes or ranges such as `4-7` or `0,2`, UUIDs such as `GPU-57b0…`, or MIG instances such as `0:1`."
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_named_by_number_range_and_uuid() {
        let list = |text: &str| text.parse::<GpuList>().map(String::from);
        assert_eq!(list("4-7"), Ok("4,5,6,7".to_owned()));
        assert_eq!(list("0, 2,GPU-57b0"), Ok("0,2,GPU-57b0".to_owned()));
        assert_eq!(list("0:1,MIG-57b0"), Ok("0:1,MIG-57b0".to_owned()));
        for wrong in ["", "a", "3-1", "1-", "-1", "0,,1", "0-99999", "0:", ":1", "0:a"] {
            assert!(list(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            serde_json::from_str::<GpuList>("3").map(String::from).unwrap(),
            "3"
        );
    }
}
