//! Quantities in the spelling of users: durations, rates, sizes.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A duration as users write it: `250ms`, `30s`, `1h 30m`. On disk it has the same spelling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HumanDuration(pub Duration);

impl HumanDuration {
    /// Creates a duration of whole seconds.
    pub(crate) const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// Converts it to a [`Duration`].
    pub(crate) const fn duration(self) -> Duration {
        self.0
    }
}

impl std::str::FromStr for HumanDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let span: jiff::SignedDuration = text.trim().parse().map_err(|_| {
            if text.trim().parse::<f64>().is_ok() {
                format!(
                    "`{text}` has no unit; write `{}s` or `{}ms`",
                    text.trim(),
                    text.trim()
                )
            } else if let Some(days) = text
                .trim()
                .strip_suffix('d')
                .and_then(|days| days.parse::<u32>().ok())
            {
                format!(
                    "`{text}` is in days, which are not supported; write hours, as in `{}h`",
                    u64::from(days) * 24
                )
            } else {
                format!("`{text}` is not a duration; write it like `250ms`, `30s` or `1h 30m`")
            }
        })?;
        match Duration::try_from(span) {
            Ok(duration) => Ok(Self(duration)),
            Err(_) => Err(format!("`{text}` is negative; a duration must be at least 0")),
        }
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        if nanos == 0 {
            return f.write_str("0s");
        }
        let (mut rest, mut first) = (nanos, true);
        for (unit, size) in [
            ("h", 3_600_000_000_000),
            ("m", 60_000_000_000),
            ("s", 1_000_000_000),
            ("ms", 1_000_000),
            ("us", 1_000),
            ("ns", 1u128),
        ] {
            let count = rest / size;
            if count > 0 {
                write!(f, "{}{count}{unit}", if first { "" } else { " " })?;
                first = false;
                rest %= size;
            }
        }
        Ok(())
    }
}

impl Serialize for HumanDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
impl schemars::JsonSchema for HumanDuration {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A duration with its unit: `250ms`, `30s`, `1h 30m`.",
            "examples": ["30s", "250ms", "1h 30m"]
        })
    }
}

/// Requests per second: above zero, or infinite, which means that all requests are due at once. On disk it is
/// a number or `"inf"`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) struct RequestRate(f64);

impl RequestRate {
    /// All requests are due at the start.
    pub(crate) const INFINITE: Self = Self(f64::INFINITY);

    /// Creates a rate; `None` if it is not above zero.
    pub(crate) fn new(per_second: f64) -> Option<Self> {
        (per_second > 0.0).then_some(Self(per_second))
    }

    /// Refuses a rate whose gaps no measurement outlasts.
    fn practical(self) -> Result<Self, String> {
        const MIN: f64 = 1e-6;
        match self.0 < MIN {
            true => Err(format!(
                "`{:e}` requests per second is less than one request in eleven days; write at least {MIN:e}",
                self.0
            )),
            false => Ok(self),
        }
    }

    /// Returns requests per second, which may be infinite.
    pub(crate) const fn per_second(self) -> f64 {
        self.0
    }

    pub(crate) fn is_infinite(self) -> bool {
        self.0.is_infinite()
    }
}

impl fmt::Display for RequestRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl std::str::FromStr for RequestRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rate = text.trim().parse::<f64>().ok().and_then(Self::new);
        rate.ok_or_else(|| {
            format!("`{text}` is not a request rate; write requests per second above 0, or `inf`")
        })?
        .practical()
    }
}

impl Serialize for RequestRate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_infinite() {
            serializer.serialize_str("inf")
        } else {
            serializer.serialize_f64(self.0)
        }
    }
}

impl<'de> Deserialize<'de> for RequestRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = RequestRate;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("requests per second above 0, or `inf`")
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<RequestRate, E> {
                let rate = RequestRate::new(value).ok_or_else(|| {
                    E::custom(format!(
                        "`{value}` is not a request rate; it must be above 0, or `inf`"
                    ))
                })?;
                rate.practical().map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<RequestRate, E> {
                self.visit_f64(value as f64)
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<RequestRate, E> {
                self.visit_f64(value as f64)
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<RequestRate, E> {
                value.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
impl schemars::JsonSchema for RequestRate {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RequestRate".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "oneOf": [{ "type": "number", "exclusiveMinimum": 0 }, { "const": "inf" }],
            "description": "Requests per second, above 0; with `inf` all requests are due at once."
        })
    }
}

/// Output tokens per second of one answer, above zero. On disk and in YAML such as `30 tok/s`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) struct TokenSpeed(f64);

impl TokenSpeed {
    /// The time per token.
    pub(crate) fn per_token(self) -> Duration {
        Duration::from_secs_f64(1.0 / self.0)
    }
}

impl fmt::Display for TokenSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tok/s", self.0)
    }
}

impl std::str::FromStr for TokenSpeed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        /// Slower and faster answers cannot be timed.
        const POSSIBLE: std::ops::RangeInclusive<f64> = 0.001..=1_000_000.0;
        let number = text.trim().strip_suffix("tok/s").unwrap_or(text).trim();
        let speed = number
            .parse::<f64>()
            .ok()
            .filter(|speed| POSSIBLE.contains(speed));
        speed.map(Self).ok_or_else(|| {
            format!(
                "`{text}` is not the speed of an answer; write it in output tokens per second, such as `30 tok/s`"
            )
        })
    }
}

impl Serialize for TokenSpeed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TokenSpeed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = TokenSpeed;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("output tokens per second, such as `30 tok/s`")
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<TokenSpeed, E> {
                self.visit_str(&value.to_string())
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<TokenSpeed, E> {
                self.visit_f64(value as f64)
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<TokenSpeed, E> {
                self.visit_f64(value as f64)
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<TokenSpeed, E> {
                value.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
impl schemars::JsonSchema for TokenSpeed {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TokenSpeed".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": ["number", "string"],
            "description": "Output tokens per second of one answer, such as `30 tok/s`."
        })
    }
}

/// A size in bytes as users write it: `32GiB`, `512 MiB`, `1GB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Bytes(pub u64);

const SIZE_UNITS: [(&str, u64); 9] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("g", 1 << 30),
    ("m", 1 << 20),
    ("B", 1),
];

impl std::str::FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let trimmed = text.trim();
        SIZE_UNITS
            .iter()
            .find_map(|(unit, size)| {
                let number: f64 = trimmed.strip_suffix(unit)?.trim().parse().ok()?;
                (number >= 0.0 && number.is_finite()).then_some(Self((number * *size as f64) as u64))
            })
            .ok_or_else(|| format!("`{text}` is not a size; write it like `32GiB`, `512MiB` or `1GB`"))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, size) = SIZE_UNITS[..3]
            .iter()
            .find(|(_, size)| self.0 >= *size && self.0.is_multiple_of(*size))
            .unwrap_or(&("B", 1));
        write!(f, "{}{unit}", self.0 / size)
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
impl schemars::JsonSchema for Bytes {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Bytes".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "description": "A size with its unit: `32GiB`, `512MiB`, `1GB`." })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_reads_what_it_writes() {
        for text in ["0s", "250ms", "30s", "1h 30m", "1m 1s 5ms", "6h"] {
            assert_eq!(text.parse::<HumanDuration>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_span_without_unit_says_what_to_write() {
        assert_eq!(
            "90".parse::<HumanDuration>().unwrap_err(),
            "`90` has no unit; write `90s` or `90ms`"
        );
        assert!(
            "-3s"
                .parse::<HumanDuration>()
                .unwrap_err()
                .contains("is negative")
        );
    }

    #[test]
    fn a_rate_is_above_zero_or_infinite() {
        assert!("inf".parse::<RequestRate>().unwrap().is_infinite());
        assert!("0".parse::<RequestRate>().is_err());
        let back: RequestRate =
            serde_json::from_str(&serde_json::to_string(&RequestRate::INFINITE).unwrap()).unwrap();
        assert!(back.is_infinite());
    }

    #[test]
    fn sizes_read_and_write_their_unit() {
        assert_eq!("32g".parse::<Bytes>().unwrap().to_string(), "32GiB");
        assert_eq!("1GB".parse::<Bytes>().unwrap().0, 1_000_000_000);
        assert!("12".parse::<Bytes>().is_err());
    }
}
