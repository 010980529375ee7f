//! The references of a schema, whose number bounds the steps of a check.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// Longest chain of references that is followed.
const MAX_CHAIN: usize = 1000;

/// The references of a schema.
pub(super) struct References<'a> {
    all: Vec<&'a str>,
    targets: BTreeMap<&'a str, Target<'a>>,
}

/// What a reference leads to.
struct Target<'a> {
    /// The whole schema for an anchor, which may be anywhere.
    part: &'a Value,
    is_anchor: bool,
    /// The references in that part.
    references: Vec<&'a str>,
}

impl<'a> References<'a> {
    pub(super) fn new(schema: &'a Value) -> Self {
        let mut all = Vec::new();
        collect_references(schema, &mut all);
        let mut targets = BTreeMap::new();
        for target in &all {
            targets.entry(*target).or_insert_with(|| {
                let mut references = Vec::new();
                let part = target.strip_prefix('#').and_then(|path| schema.pointer(path));
                collect_references(part.unwrap_or(schema), &mut references);
                Target {
                    part: part.unwrap_or(schema),
                    is_anchor: part.is_none(),
                    references,
                }
            });
        }
        Self { all, targets }
    }

    /// Returns by how much the steps of a check may multiply with each level of an answer: 1 if each part follows at most one
    /// reference that can lead to a part again, otherwise the number of references that lead back to themselves.
    pub(super) fn steps_per_level(&self) -> usize {
        let recursive: BTreeSet<&str> = self
            .targets
            .keys()
            .copied()
            .filter(|target| self.reached_from(target).contains(target))
            .collect();
        let endless: BTreeSet<&str> = self
            .targets
            .keys()
            .copied()
            .filter(|target| recursive.contains(target) || !recursive.is_disjoint(&self.reached_from(target)))
            .collect();
        let multiplies =
            |target: &Target<'_>| count_followed_by_one(target.part, &endless, target.is_anchor) > 1;
        match self.targets.values().any(multiplies) {
            true => self
                .all
                .iter()
                .filter(|target| recursive.contains(**target))
                .count(),
            false => 1,
        }
    }

    /// Returns what the references in the part that a reference leads to lead to, and so on.
    fn reached_from(&self, target: &str) -> BTreeSet<&'a str> {
        let mut reached = BTreeSet::new();
        let mut next = self.targets[target].references.clone();
        while let Some(reference) = next.pop() {
            if reached.insert(reference) {
                next.extend(&self.targets[reference].references);
            }
        }
        reached
    }

    /// Returns how many references are followed from all places, each chain until it repeats itself.
    pub(super) fn count_followed(&self) -> usize {
        let mut known = BTreeMap::new();
        let counts = self
            .all
            .iter()
            .map(|target| self.followed_from(target, &mut known, 1));
        counts.fold(0, usize::saturating_add)
    }

    fn followed_from(&self, target: &'a str, known: &mut BTreeMap<&'a str, usize>, length: usize) -> usize {
        if let Some(count) = known.get(target) {
            return *count;
        }
        if length > MAX_CHAIN {
            return usize::MAX;
        }
        // A chain that comes back here ends.
        known.insert(target, 1);
        let mut count = 1_usize;
        for next in &self.targets[target].references {
            count = count.saturating_add(self.followed_from(next, known, length + 1));
        }
        known.insert(target, count);
        count
    }
}

/// Returns how many of these references one part follows at most for one value in an answer. Properties are different values.
/// Definitions are followed only by references to them.
fn count_followed_by_one(part: &Value, references: &BTreeSet<&str>, with_definitions: bool) -> usize {
    let count = |part: &Value| count_followed_by_one(part, references, with_definitions);
    let counts = |parts: &Map<String, Value>| -> Vec<usize> { parts.values().map(count).collect() };
    match part {
        Value::Object(fields) => {
            let of_field = |(key, value): (&String, &Value)| match (key.as_str(), value) {
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(target)) => {
                    usize::from(references.contains(target.as_str()))
                }
                ("properties", Value::Object(parts)) => counts(parts).into_iter().max().unwrap_or(0),
                ("$defs" | "definitions", Value::Object(_)) if !with_definitions => 0,
                (
                    "$defs" | "definitions" | "patternProperties" | "dependentSchemas" | "dependencies",
                    Value::Object(parts),
                ) => counts(parts).into_iter().sum(),
                _ => count(value),
            };
            fields.iter().map(of_field).sum()
        }
        Value::Array(parts) => parts.iter().map(count).sum(),
        _ => 0,
    }
}

fn collect_references<'a>(schema: &'a Value, found: &mut Vec<&'a str>) {
    match schema {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (key.as_str(), value) {
                    ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(target)) => found.push(target),
                    _ => collect_references(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, found)),
        _ => {}
    }
}

/// Returns the number of levels of a value; 1 for one without parts.
pub(super) fn depth(value: &Value) -> u32 {
    let parts: &mut dyn Iterator<Item = &Value> = match value {
        Value::Array(items) => &mut items.iter(),
        Value::Object(fields) => &mut fields.values(),
        _ => &mut std::iter::empty(),
    };
    1 + parts.map(depth).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn references_that_lead_back_are_counted_where_they_multiply() {
        let point = json!({"$defs": {"p": {"type": "number"}}, "properties": {"x": {"$ref": "#/$defs/p"}, "y": {"$ref": "#/$defs/p"}}});
        let list = json!({"properties": {"next": {"$ref": "#"}}});
        let pair = json!({
            "$ref": "#/$defs/a",
            "$defs": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/b"}]}, "b": {"items": {"$ref": "#/$defs/a"}}},
        });
        let anchored = json!({"$defs": {"a": {"$anchor": "a", "items": {"$ref": "#a"}}}});
        let node = json!({"$ref": "#/$defs/n"});
        let defined = |part: Value| json!({"$defs": {"n": part}, "$ref": "#/$defs/n"});
        let either = json!({"anyOf": [node, {"type": "null"}]});
        let tree = defined(json!({"properties": {"left": either, "right": either}}));
        let expression = json!({"anyOf": [node, {"properties": {"of": node}}]});
        for schema in [
            point,
            list,
            pair,
            anchored,
            tree,
            defined(json!({"type": ["object", "integer"], "properties": {"a": node}})),
            defined(json!({"properties": {"$defs": node, "properties": {"items": node}}})),
            json!({"anyOf": [node, node], "$defs": {"n": {"items": node}}}),
        ] {
            assert_eq!(References::new(&schema).steps_per_level(), 1, "{schema}");
        }
        for (schema, count) in [
            (defined(json!({"anyOf": [{"items": node}, {"items": node}]})), 3),
            (
                defined(json!({"properties": {"a": node}, "additionalProperties": node})),
                3,
            ),
            (defined(json!({"properties": {"a": expression}})), 3),
            (
                defined(json!({"patternProperties": {"$defs": node, "^a": node}})),
                3,
            ),
            (
                defined(json!({"dependentSchemas": {"definitions": {"items": node}, "b": {"items": node}}})),
                3,
            ),
            (json!({"allOf": [{"$ref": "#"}, {"items": {"$ref": "#"}}]}), 2),
            (
                json!({"$defs": {"a": {"$anchor": "a", "anyOf": [{"items": {"$ref": "#a"}}, {"items": {"$ref": "#a"}}]}}}),
                2,
            ),
            // From each level, the second list may begin.
            (
                json!({"$defs": {
                    "a": {"items": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]}},
                    "b": {"items": {"$ref": "#/$defs/b"}},
                }}),
                3,
            ),
            // Both lead to a part that leads back.
            (
                json!({"$defs": {
                    "a": {"allOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/c"}]},
                    "b": {"items": {"$ref": "#/$defs/a"}},
                    "c": {"items": {"$ref": "#/$defs/a"}},
                }}),
                4,
            ),
        ] {
            assert_eq!(References::new(&schema).steps_per_level(), count, "{schema}");
        }
        assert_eq!(depth(&json!({"a": [1, {"b": []}]})), 4);
        let twice = |of: &str| json!({"allOf": [{"$ref": of}, {"$ref": of}]});
        let chain = json!({"$defs": {"a": {"type": "number"}, "b": twice("#/$defs/a"), "c": twice("#/$defs/b")}, "$ref": "#/$defs/c"});
        // Of `b` twice one, of `c` twice three, of the whole one and those of `c`.
        assert_eq!(References::new(&chain).count_followed(), 2 + 6 + 7);
    }
}
