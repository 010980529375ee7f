//! The references of a schema, whose number bounds the steps of a check.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Longest chain of references that is followed.
const MAX_CHAIN: usize = 1000;

/// The references of a schema.
pub(super) struct References<'a> {
    all: Vec<&'a str>,
    /// The references in the part that each leads to.
    from_target: BTreeMap<&'a str, Vec<&'a str>>,
}

impl<'a> References<'a> {
    pub(super) fn new(schema: &'a Value) -> Self {
        let mut all = Vec::new();
        collect_references(schema, &mut all);
        let mut from_target = BTreeMap::new();
        for target in &all {
            from_target.entry(*target).or_insert_with(|| {
                let mut references = Vec::new();
                // A reference to an anchor may lead anywhere.
                let part = target.strip_prefix('#').and_then(|path| schema.pointer(path));
                collect_references(part.unwrap_or(schema), &mut references);
                references
            });
        }
        Self { all, from_target }
    }

    /// Returns the number of references that lead back to themselves. At each level of an answer, a check may follow all of
    /// them.
    pub(super) fn count_recursive(&self) -> usize {
        self.all.iter().filter(|target| self.is_recursive(target)).count()
    }

    fn is_recursive(&self, target: &str) -> bool {
        let mut reached = BTreeSet::new();
        let mut next = self.from_target[target].clone();
        while let Some(reference) = next.pop() {
            if reached.insert(reference) {
                next.extend(&self.from_target[reference]);
            }
        }
        reached.contains(target)
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
        for next in &self.from_target[target] {
            count = count.saturating_add(self.followed_from(next, known, length + 1));
        }
        known.insert(target, count);
        count
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
    fn references_that_lead_back_are_counted() {
        let point = json!({"$defs": {"p": {"type": "number"}}, "properties": {"x": {"$ref": "#/$defs/p"}, "y": {"$ref": "#/$defs/p"}}});
        let list = json!({"properties": {"next": {"$ref": "#"}}});
        let pair = json!({
            "$ref": "#/$defs/a",
            "$defs": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/b"}]}, "b": {"items": {"$ref": "#/$defs/a"}}},
        });
        let anchored = json!({"$defs": {"a": {"$anchor": "a", "items": {"$ref": "#a"}}}});
        for (schema, count) in [(point, 0), (list, 1), (pair, 3), (anchored, 1)] {
            assert_eq!(References::new(&schema).count_recursive(), count, "{schema}");
        }
        assert_eq!(depth(&json!({"a": [1, {"b": []}]})), 4);
        let twice = |of: &str| json!({"allOf": [{"$ref": of}, {"$ref": of}]});
        let chain = json!({"$defs": {"a": {"type": "number"}, "b": twice("#/$defs/a"), "c": twice("#/$defs/b")}, "$ref": "#/$defs/c"});
        // Of `b` twice one, of `c` twice three, of the whole one and those of `c`.
        assert_eq!(References::new(&chain).count_followed(), 2 + 6 + 7);
    }
}
