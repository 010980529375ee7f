//! Selectors: axis names and patterns. `exclude`, `overrides` and `--only` all use them.

use std::collections::BTreeMap;
use std::fmt;

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::forms::{OneOrMany, OrderedMap};
use crate::config::template::Template;
use crate::config::yaml::Spanned;

/// The axes of a cell, in the order of its key.
pub(crate) const AXES: [&str; 15] = [
    "engine",
    "version",
    "executor",
    "variant",
    "model",
    "precision",
    "tp",
    "pp",
    "dp",
    "ep",
    "args",
    "env",
    "scenario",
    "rate",
    "concurrency",
];

/// Values of a cell's axes; axes without a value are absent.
pub(crate) type AxisValues = BTreeMap<String, String>;

/// A cell's key: its axis values in order, in the syntax of `--only`.
pub(crate) fn cell_key(values: &AxisValues) -> String {
    let parts: Vec<String> = AXES
        .iter()
        .filter_map(|axis| values.get(*axis).map(|value| format!("{axis}={value}")))
        .collect();
    parts.join(",")
}

/// Parses a [`cell_key`]. A value ends where the name of a later axis begins, so it may contain commas.
pub(crate) fn parse_key(key: &str) -> AxisValues {
    let mut values = AxisValues::new();
    let mut remainder = key;
    for (index, axis) in AXES.iter().enumerate() {
        let Some(value) = remainder
            .strip_prefix(axis)
            .and_then(|remainder| remainder.strip_prefix('='))
        else {
            continue;
        };
        let later = AXES[index + 1..]
            .iter()
            .filter_map(|next| value.find(&format!(",{next}=")));
        let end = later.min().unwrap_or(value.len());
        values.insert((*axis).to_owned(), value[..end].to_owned());
        remainder = value[end..].strip_prefix(',').unwrap_or_default();
    }
    values
}

/// Pairs each cell of one value of an axis with the one cell of the other value that has the same remaining
/// axes. For the axis `engine`, the axes that only say how an engine runs may differ as well. `cells` have their keys.
///
/// # Errors
/// A cell fits several.
pub(crate) fn arm_pairs<'a, K: PartialEq + fmt::Display>(
    cells: &[(&'a K, &'a AxisValues)],
    axis: &str,
    values: [&str; 2],
) -> Result<Vec<(&'a K, &'a K)>, String> {
    const ENGINE_AXES: [&str; 6] = ["engine", "version", "executor", "variant", "args", "env"];
    let is_free = |name: &str| name == axis || (axis == "engine" && ENGINE_AXES.contains(&name));
    let rest = |axes: &'a AxisValues| -> BTreeMap<&'a String, &'a String> {
        axes.iter().filter(|(name, _)| !is_free(name)).collect()
    };
    let cells_with = |value: &str| {
        let value = value.to_owned();
        cells
            .iter()
            .filter(move |(_, axes)| axes.get(axis).is_some_and(|own| *own == value))
    };
    let mut matches: Vec<(&K, &K)> = Vec::new();
    for (first, one) in cells_with(values[0]) {
        for (second, _) in cells_with(values[1]).filter(|(_, two)| rest(two) == rest(one)) {
            let other = matches.iter().find_map(|pair| match *pair {
                (own, other) if own == *first => Some((first, other, second)),
                (other, own) if own == *second => Some((second, other, first)),
                _ => None,
            });
            if let Some((cell, one, other)) = other {
                return Err(format!(
                    "it is unclear whether to compare {cell} with {one} or with {other}"
                ));
            }
            matches.push((first, second));
        }
    }
    Ok(matches)
}

/// Axis names with patterns for their values; all axes must match.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Selector(pub Vec<(Spanned<String>, Vec<String>)>);

impl Selector {
    /// Whether a cell's axis values match.
    pub(crate) fn matches(&self, values: &AxisValues) -> bool {
        self.0.iter().all(|(axis, patterns)| {
            let value = values.get(&axis.value).map_or("", String::as_str);
            let (nots, pattern): (Vec<_>, Vec<_>) =
                patterns.iter().partition(|pattern| pattern.starts_with('!'));
            let is_one = pattern.is_empty() || pattern.iter().any(|pattern| pattern_matches(pattern, value));
            is_one && nots.iter().all(|pattern| pattern_matches(pattern, value))
        })
    }
}

/// Whether a value matches a pattern: `*` matches anything, a leading `~` means "contains", a leading `!`
/// means "not".
pub(crate) fn pattern_matches(pattern: &str, value: &str) -> bool {
    if let Some(remainder) = pattern.strip_prefix('!') {
        return !pattern_matches(remainder, value);
    }
    if let Some(part) = pattern.strip_prefix('~') {
        return value.contains(part);
    }
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut remainder) = value.strip_prefix(first) else {
        return false;
    };
    let Some(mut last) = parts.next() else {
        return remainder.is_empty();
    };
    for next in parts {
        match remainder.find(last) {
            Some(at) => remainder = &remainder[at + last.len()..],
            None => return false,
        }
        last = next;
    }
    remainder.ends_with(last)
}

/// Parses `--only engine=sglang,model=~8B`: comparisons separated by commas; `=` with a pattern, `!=` for its
/// negation; values separated by `|`.
impl std::str::FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (axis, pattern, not) = if let Some((axis, pattern)) = part.split_once("!=") {
                (axis, pattern, "!")
            } else if let Some((axis, pattern)) = part.split_once('=') {
                (axis, pattern, "")
            } else {
                return Err(format!(
                    "`{part}` is not a comparison; write for example `engine=sglang` or `model=~8B`"
                ));
            };
            let axis = axis.trim();
            if !AXES.contains(&axis) {
                let near = crate::config::yaml::nearest_name(axis, AXES);
                let help = near.map_or_else(
                    || format!("known: {}", AXES.join(", ")),
                    |near| format!("did you mean `{near}`?"),
                );
                return Err(format!("`{axis}` is not an axis; {help}"));
            }
            let patterns = pattern
                .split('|')
                .map(|pattern| format!("{not}{}", pattern.trim()))
                .collect();
            parts.push((Spanned::from(axis.to_owned()), patterns));
        }
        if parts.is_empty() {
            return Err("the expression is empty; write for example `engine=sglang,model=~8B`".to_owned());
        }
        Ok(Self(parts))
    }
}

impl<'de> Deserialize<'de> for Selector {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let map = OrderedMap::<OneOrMany<Template>>::deserialize(deserializer)?;
        Ok(Self(
            map.into_iter()
                .map(|(axis, patterns)| (axis, patterns.iter().map(Template::to_string).collect()))
                .collect(),
        ))
    }
}

impl Serialize for Selector {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(axis, patterns)| (&axis.value, patterns)))
    }
}

#[cfg(test)]
impl JsonSchema for Selector {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Selector".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let value = serde_json::json!({
            "anyOf": [
                { "type": ["string", "number", "boolean"] },
                { "type": "array", "items": { "type": ["string", "number", "boolean"] } }
            ]
        });
        let properties: serde_json::Map<_, _> = AXES
            .iter()
            .map(|axis| ((*axis).to_owned(), value.clone()))
            .collect();
        schemars::json_schema!({
            "type": "object",
            "description": "Axis names and patterns; `*` matches anything, `~x` means \"contains x\", `!x` means \"not x\".",
            "properties": properties,
            "additionalProperties": false
        })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (axis, patterns)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let plain: Option<Vec<&str>> = patterns.iter().map(|pattern| pattern.strip_prefix('!')).collect();
            match plain {
                Some(plain) => write!(f, "{comma}{}!={}", axis.value, plain.join("|"))?,
                None => write!(f, "{comma}{}={}", axis.value, patterns.join("|"))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_is_shown_as_it_is_written_and_leaves_out_all_that_it_names() {
        for text in ["engine!=a|b,model=~8B", "engine=a|b"] {
            assert_eq!(text.parse::<Selector>().unwrap().to_string(), text);
        }
        let selector: Selector = "engine!=a|b".parse().unwrap();
        let fits =
            |engine: &str| selector.matches(&AxisValues::from([("engine".to_owned(), engine.to_owned())]));
        assert!(fits("c") && !fits("a") && !fits("b"));
    }

    #[test]
    fn patterns_know_stars_parts_and_contraries() {
        for (pattern, value, expected) in [
            ("vllm", "vllm", true),
            ("vllm", "vllm2", false),
            ("*235B*", "Qwen/Qwen3-235B-A22B", true),
            ("Qwen/*B", "Qwen/Qwen3-8B", true),
            ("Qwen/*B", "Qwen/Qwen3-8B-FP8", false),
            ("~8B", "Qwen/Qwen3-8B-FP8", true),
            ("!vllm", "sglang", true),
            ("a*a", "a", false),
            ("*", "", true),
        ] {
            assert_eq!(pattern_matches(pattern, value), expected, "{pattern} {value}");
        }
    }

    #[test]
    fn an_expression_selects_by_all_its_parts() {
        let only: Selector = "engine=sglang|vllm, model=~8B, tp!=2".parse().unwrap();
        let cell = |engine: &str, tp: &str| {
            AxisValues::from([
                ("engine".to_owned(), engine.to_owned()),
                ("model".to_owned(), "Qwen3-8B".to_owned()),
                ("tp".to_owned(), tp.to_owned()),
            ])
        };
        assert!(
            only.matches(&cell("vllm", "1"))
                && !only.matches(&cell("vllm", "2"))
                && !only.matches(&cell("lmdeploy", "1"))
        );
    }

    #[test]
    fn a_key_gives_back_what_it_was_made_of() {
        let known = [
            ("engine", "vllm"),
            ("model", "Qwen/Qwen3-8B"),
            ("args", "a=1,b=2"),
            ("scenario", "random, short"),
            ("concurrency", "8"),
        ];
        let known: AxisValues = known
            .map(|(axis, value)| (axis.to_owned(), value.to_owned()))
            .into();
        assert_eq!(parse_key(&cell_key(&known)), known);
        assert_eq!(parse_key("no key"), AxisValues::new());
    }

    #[test]
    fn a_misspelt_axis_is_answered_with_the_nearest() {
        assert_eq!(
            "engin=x".parse::<Selector>().unwrap_err(),
            "`engin` is not an axis; did you mean `engine`?"
        );
    }
}
