use schemars::schema_for;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::*;
use crate::config::template::Template;
use crate::config::yaml::{Source, Spanned, read, render};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Detail {
    version: Option<Spanned<String>>,
}

fn parse<T: DeserializeOwned>(text: &str) -> T {
    let source = Source::new("m.yaml", text);
    let (value, diagnostics) = read::<T>(&source);
    assert!(
        diagnostics.is_empty(),
        "{}",
        render(&diagnostics, &[source], false)
    );
    value.unwrap()
}

/// Parses YAML, serializes the value as JSON, and checks that it can be read back.
fn round_trip<T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(text: &str) -> String {
    let value: T = parse(text);
    let json = serde_json::to_string(&value).unwrap();
    assert_eq!(serde_json::from_str::<T>(&json).unwrap(), value);
    json
}

#[test]
fn one_or_many_becomes_a_list() {
    assert_eq!(round_trip::<OneOrMany<u32>>("4"), "[4]");
    assert_eq!(round_trip::<OneOrMany<u32>>("[4, 8]"), "[4,8]");
    assert_eq!(round_trip::<OneOrMany<u32>>("[]"), "[]");
    assert_eq!(
        round_trip::<OneOrMany<Detail>>("version: 1.10"),
        r#"[{"version":"1.10"}]"#
    );
    assert_eq!(serde_json::from_str::<OneOrMany<u32>>("4").unwrap().0, [4]);
}

#[test]
fn a_name_becomes_a_map_of_one_key() {
    assert_eq!(
        round_trip::<Vec<Named<Detail>>>("[sglang, {vllm: {version: v1}}, {trt: }]"),
        r#"[{"sglang":{"version":null}},{"vllm":{"version":"v1"}},{"trt":{"version":null}}]"#
    );
    assert_eq!(*serde_json::from_str::<Named<Detail>>("\"a\"").unwrap().name, "a");
    assert!(serde_json::from_str::<Named<Detail>>(r#"{"a":{},"b":{}}"#).is_err());
}

#[test]
fn by_engine_stays_as_written() {
    assert_eq!(round_trip::<ByEngine<u32>>("4"), "4");
    assert_eq!(round_trip::<ByEngine<OneOrMany<u32>>>("[4, 8]"), "[4,8]");
    assert_eq!(
        round_trip::<ByEngine<u32>>("{lmdeploy: 4, default: 8}"),
        r#"{"lmdeploy":4,"default":8}"#
    );
    let by: ByEngine<u32> = parse("{lmdeploy: 4}");
    assert_eq!((by.get("lmdeploy"), by.get("vllm")), (Some(&4), None));
}

#[test]
fn raw_keeps_the_spelling() {
    assert_eq!(
        round_trip::<Vec<Template>>("[1.10, no, 017, '8', null-ish]"),
        r#"["1.10","no","017","8","null-ish"]"#
    );
    let values: Vec<Template> = serde_json::from_str(r#"["a", 8, 1.5, true]"#).unwrap();
    assert_eq!(
        values.iter().map(Template::as_str).collect::<Vec<&str>>(),
        ["a", "8", "1.5", "true"]
    );
    assert!(serde_json::from_str::<Template>("null").is_err());
    let (_, diagnostics) = read::<Vec<Template>>(&Source::new("m.yaml", "[null]"));
    assert_eq!(diagnostics.len(), 1);
}

#[test]
fn an_ordered_map_keeps_its_order_and_refuses_doubles() {
    assert_eq!(
        round_trip::<OrderedMap<u32>>("{b: 1, a: 2, c: 3}"),
        r#"{"b":1,"a":2,"c":3}"#
    );
    assert!(serde_json::from_str::<OrderedMap<u32>>(r#"{"a":1,"a":2}"#).is_err());
    let map: OrderedMap<u32> = parse("{b: 1, a: 2}");
    assert_eq!((map.get("a"), map.get("z"), map.len()), (Some(&2), None, 2));
}

#[test]
fn a_list_of_wrong_values_is_told_value_by_value() {
    let (values, diagnostics) = read::<OneOrMany<u32>>(&Source::new("m.yaml", "[1, x, 2, y]"));
    assert_eq!((values.unwrap().0, diagnostics.len()), (vec![1, 2], 2));
}

#[test]
fn the_schema_accepts_what_people_write() {
    #[derive(schemars::JsonSchema)]
    #[expect(dead_code, reason = "only its schema is asked for")]
    struct All {
        many: OneOrMany<u32>,
        named: Vec<Named<Detail>>,
        by: ByEngine<u32>,
        raw: OrderedMap<Template>,
    }
    let schema = serde_json::to_value(schema_for!(All)).unwrap();
    let check = |value: serde_json::Value| jsonschema::is_valid(&schema, &value);
    let good = serde_json::json!({
        "many": 4, "named": ["a", {"b": {"version": "1"}}, {"c": null}], "by": {"a": 1}, "raw": {"k": true}
    });
    assert!(check(good.clone()));
    for (key, wrong) in [
        ("many", serde_json::json!("x")),
        ("named", serde_json::json!([{"a": {}, "b": {}}])),
        ("by", serde_json::json!({"a": "x"})),
        ("raw", serde_json::json!({"k": null})),
    ] {
        let mut bad = good.clone();
        bad[key] = wrong;
        assert!(!check(bad), "`{key}` should be refused");
    }
}
