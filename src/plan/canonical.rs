//! Digests by which runs, baselines and caches are found. They are computed over canonical form 1: JSON with
//! the field names of format 1, so that measurements of earlier versions are still found.

use serde::Serialize;
use serde_json::Value;

use crate::base::ids::{ContentHash, LaunchId};
use crate::config::scenario::Scenario;

/// Digest of everything that decides what a launch starts. `decides` is a tuple whose first element holds the
/// API as its fifth element.
pub(super) fn launch_hash(decides: &impl Serialize) -> ContentHash {
    let mut value = canonical_json(decides);
    rename_key(&mut value, "/0/4/metrics/names", "kv_cache_usage", "kv_use");
    ContentHash::from_value(&value)
}

/// Digest of a cell: of its launch and its scenario.
pub(super) fn cell_hash(launch: &LaunchId, scenario: &Scenario) -> ContentHash {
    let mut value = canonical_json(&(launch, scenario));
    rename_key(&mut value, "/1/lora", "distribution", "dealt");
    ContentHash::from_value(&value)
}

fn canonical_json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("values that are hashed have string keys and finite numbers")
}

/// Renames a key of the object at `pointer` to its earlier name, at the same position.
fn rename_key(value: &mut Value, pointer: &str, today: &str, canonical: &str) {
    let Some(object) = value.pointer_mut(pointer).and_then(Value::as_object_mut) else {
        return;
    };
    *object = std::mem::take(object)
        .into_iter()
        .map(|(key, value)| match key == today {
            true => (canonical.to_owned(), value),
            false => (key, value),
        })
        .collect();
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_keeps_its_place_and_gets_its_former_name() {
        let mut value =
            json!([[0, 1, 2, 3, { "metrics": { "names": { "a": 1, "kv_cache_usage": 2, "z": 3 } } }]]);
        rename_key(&mut value, "/0/4/metrics/names", "kv_cache_usage", "kv_use");
        assert_eq!(
            value.to_string(),
            r#"[[0,1,2,3,{"metrics":{"names":{"a":1,"kv_use":2,"z":3}}}]]"#
        );
        assert_eq!(launch_hash(&json!("x")), ContentHash::from_value(&"x"));
    }
}
