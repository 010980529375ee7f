//! How often a schema refers to itself, which bounds the steps of a check.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Returns the number of references of a schema that lead back to themselves. At each level of an answer, a check may follow
/// all of them.
pub(super) fn count_recursive_references(schema: &Value) -> usize {
    let mut all = Vec::new();
    collect_references(schema, &mut all);
    let mut from_target: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for target in &all {
        from_target.entry(target).or_insert_with(|| {
            let mut references = Vec::new();
            // A reference to an anchor may lead anywhere.
            let part = target.strip_prefix('#').and_then(|path| schema.pointer(path));
            collect_references(part.unwrap_or(schema), &mut references);
            references
        });
    }
    let is_recursive = |target: &&&str| {
        let mut reached = BTreeSet::new();
        let mut next = from_target[**target].clone();
        while let Some(reference) = next.pop() {
            if reached.insert(reference) {
                next.extend(&from_target[reference]);
            }
        }
        reached.contains(**target)
    };
    all.iter().filter(is_recursive).count()
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
    fn references_that_lead_back_are_counted() {
        let point = json!({"$defs": {"p": {"type": "number"}}, "properties": {"x": {"$ref": "#/$defs/p"}, "y": {"$ref": "#/$defs/p"}}});
        let list = json!({"properties": {"next": {"$ref": "#"}}});
        let pair = json!({
            "$ref": "#/$defs/a",
            "$defs": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/b"}]}, "b": {"items": {"$ref": "#/$defs/a"}}},
        });
        let anchored = json!({"$defs": {"a": {"$anchor": "a", "items": {"$ref": "#a"}}}});
        for (schema, count) in [(point, 0), (list, 1), (pair, 3), (anchored, 1)] {
            assert_eq!(count_recursive_references(&schema), count, "{schema}");
        }
        assert_eq!(depth(&json!({"a": [1, {"b": []}]})), 4);
    }
}
