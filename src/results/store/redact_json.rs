//! Serializes values as redacted JSON. Redacting the finished text could change a number or a word of the
//! format and make the file unreadable. Therefore, if the text contains a secret, it is replaced inside the
//! value's strings.

use std::collections::BTreeSet;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::base::secrets::{MASK, Redactor};

/// A number with fewer digits is never taken for a secret.
const MIN_NUMBER_DIGITS: usize = 6;

/// Names and times at the top of a value, by which runs are found. They are never redacted.
const UNREDACTED_PATHS: [&str; 6] = ["/run", "/matrix", "/tool", "/began", "/ended", "/at"];

/// Layout of the JSON.
#[derive(Clone, Copy)]
pub(crate) enum JsonLayout {
    /// One line, for JSON lines.
    Line,
    /// Indented, for people and git.
    Pretty,
}

/// Serializes a value as redacted JSON that can still be read as a `T`. Ends in a newline.
pub(crate) fn to_redacted_json<T: Serialize + DeserializeOwned>(
    value: &T,
    form: JsonLayout,
    redactor: &Redactor,
) -> String {
    const STRINGS: &str = "a record can be written as JSON, because all keys of its maps are strings";
    let line = serde_json::to_string(value).expect(STRINGS);
    let has_secret = redactor.redact(&line) != line;
    let mut text = match (has_secret, form) {
        (false, JsonLayout::Line) => line,
        (false, JsonLayout::Pretty) => serde_json::to_string_pretty(value).expect(STRINGS),
        (true, form) => {
            let clean = redact_value::<T>(serde_json::to_value(value).expect(STRINGS), redactor);
            match form {
                JsonLayout::Line => clean.to_string(),
                JsonLayout::Pretty => format!("{clean:#}"),
            }
        }
    };
    text.push('\n');
    text
}

pub(crate) fn redact<T: Serialize + DeserializeOwned>(value: T, redactor: &Redactor) -> T {
    let Ok(json) = serde_json::to_value(&value) else {
        return value;
    };
    let clean = redact_value::<T>(json, redactor);
    serde_json::from_value(clean).unwrap_or(value)
}

/// Redacts strings, keys, and numbers that equal a secret. Text that `T` cannot be read without, such as the
/// name of a field or variant, stays: it belongs to the format, even if a secret has the same spelling.
fn redact_value<T: Serialize + DeserializeOwned>(mut value: Value, redactor: &Redactor) -> Value {
    let (mut leaves, mut keys) = (Vec::new(), Vec::new());
    find_secrets(&value, String::new(), redactor, &mut leaves, &mut keys);
    if leaves.is_empty() && keys.is_empty() {
        return value;
    }
    let bound_to_read = reads_back::<T>(&value);
    let allowed = |value: &Value| !bound_to_read || reads_back::<T>(value);
    let mut redacted = value.clone();
    for (place, hidden) in &leaves {
        *value_at(&mut redacted, place) = hidden.clone();
    }
    if allowed(&redacted) {
        value = redacted;
    } else {
        // If one element of a list cannot be redacted, the same value in the others cannot be either. This
        // saves time, because records have thousands of chunks.
        let mut refused = BTreeSet::new();
        for (place, hidden) in leaves {
            let kind = (path_pattern(&place), value_at(&mut value, &place).to_string());
            if refused.contains(&kind) {
                continue;
            }
            let original = std::mem::replace(value_at(&mut value, &place), hidden);
            if !allowed(&value) {
                *value_at(&mut value, &place) = original;
                refused.insert(kind);
            }
        }
    }
    for (place, key) in keys {
        let original = value_at(&mut value, &place).clone();
        rename_key(value_at(&mut value, &place), &key, redactor);
        if !allowed(&value) {
            *value_at(&mut value, &place) = original;
        }
    }
    value
}

/// The path of a value with every index except the last one replaced by `*`.
fn path_pattern(place: &str) -> String {
    let (list, last) = place.rsplit_once('/').unwrap_or(("", place));
    let open = |step: &str| !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit());
    let steps: Vec<&str> = list
        .split('/')
        .map(|step| if open(step) { "*" } else { step })
        .collect();
    format!("{}/{last}", steps.join("/"))
}

fn reads_back<T: Serialize + DeserializeOwned>(value: &Value) -> bool {
    serde_json::from_value::<T>(value.clone())
        .ok()
        .and_then(|read| serde_json::to_value(read).ok())
        .is_some_and(|again| again == *value)
}

fn value_at<'v>(value: &'v mut Value, place: &str) -> &'v mut Value {
    value
        .pointer_mut(place)
        .expect("places are found in the same value, and keys are renamed from the leaves up")
}

/// Finds the leaves to replace and the objects with keys to rename, inner ones first.
fn find_secrets(
    value: &Value,
    place: String,
    redactor: &Redactor,
    leaves: &mut Vec<(String, Value)>,
    keys: &mut Vec<(String, String)>,
) {
    match value {
        Value::String(_) if UNREDACTED_PATHS.contains(&place.as_str()) => {}
        Value::String(text) => {
            let clean = redactor.redact(text);
            if clean != *text {
                leaves.push((place, Value::String(clean.into_owned())));
            }
        }
        Value::Number(number) => {
            let digits = number.to_string();
            if digits.len() >= MIN_NUMBER_DIGITS && redactor.redact(&digits) == MASK {
                leaves.push((place, Value::String(MASK.to_owned())));
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                find_secrets(item, format!("{place}/{index}"), redactor, leaves, keys);
            }
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                let step = key.replace('~', "~0").replace('/', "~1");
                find_secrets(field, format!("{place}/{step}"), redactor, leaves, keys);
            }
            for key in fields.keys().filter(|key| redactor.redact(key) != key.as_str()) {
                keys.push((place.clone(), key.clone()));
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

fn rename_key(object: &mut Value, key: &str, redactor: &Redactor) {
    let Value::Object(fields) = object else { return };
    let clean = redactor.redact(key).into_owned();
    let mut free = clean.clone();
    for number in 2.. {
        if !fields.contains_key(&free) {
            break;
        }
        free = format!("{clean}-{number}");
    }
    *fields = std::mem::take(fields)
        .into_iter()
        .map(|(name, field)| (if name == key { free.clone() } else { name }, field))
        .collect();
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Kind {
        Done,
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Thing {
        kind: Kind,
        words: String,
        #[serde(default)]
        port: Option<u32>,
        free: BTreeMap<String, Value>,
    }

    fn thing() -> Thing {
        Thing {
            kind: Kind::Done,
            words: "say \"hunter/2\" twice".to_owned(),
            port: Some(7),
            free: BTreeMap::from([
                ("key".to_owned(), serde_json::json!(["hunter/2", 7, 70])),
                ("hunter/2".to_owned(), serde_json::json!({"a/b~hunter/2": "done"})),
            ]),
        }
    }

    #[test]
    fn without_a_secret_nothing_changes() {
        let text = to_redacted_json(&thing(), JsonLayout::Line, &Redactor::new(["other"]));
        assert_eq!(serde_json::from_str::<Thing>(&text).unwrap(), thing());
        assert!(text.ends_with("}\n") && text.matches('\n').count() == 1);
    }

    #[test]
    fn a_secret_leaves_values_and_keys_and_the_rest_stays() {
        for form in [JsonLayout::Line, JsonLayout::Pretty] {
            let text = to_redacted_json(&thing(), form, &Redactor::new(["hunter/2"]));
            assert!(!text.contains("hunter"), "{text}");
            let read: Thing = serde_json::from_str(&text).unwrap();
            assert_eq!(read.words, "say \"***\" twice");
            assert_eq!(read.free["***"], serde_json::json!({"a/b~***": "done"}));
        }
    }

    #[test]
    fn a_number_that_is_the_secret_is_hidden_where_it_may_be() {
        let mut thing = thing();
        thing.port = Some(7_654_321);
        thing
            .free
            .insert("key".to_owned(), serde_json::json!([7_654_321, 7, 76_543_210]));
        let text = to_redacted_json(
            &thing,
            JsonLayout::Line,
            &Redactor::with_short_values(["7654321", "7"]),
        );
        let read: Thing = serde_json::from_str(&text).unwrap();
        assert_eq!(read.free["key"], serde_json::json!(["***", 7, 76_543_210]));
        assert_eq!(read.port, Some(7_654_321), "no number can stand for it");
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_secret_a_record_is_still_read_and_its_figures_stay(
            secret in "[a-z0-9\":,\\[\\]{} ]{1,6}|sim|null|done|true", text in "\\PC{0,30}", line in 0usize..3,
        ) {
            use crate::results::record::{cell::MeasurementSummary, request::Request};
            use crate::results::store::testing::{plan, requests, summary};
            let redactor = Redactor::with_short_values([secret.as_str()]);
            let mut request = requests().swap_remove(line);
            request.text = Some(text.into());
            let read: Request = serde_json::from_str(&to_redacted_json(&request, JsonLayout::Line, &redactor)).unwrap();
            let actual = request.text.as_ref().map(|text| redactor.redact(&text.read()).into_owned().into());
            proptest::prop_assert_eq!(&read.text, &actual);
            proptest::prop_assert_eq!((read.chunks, read.end_ns, read.usage), (request.chunks, request.end_ns, request.usage));
            let plan = plan();
            let whole = summary(&plan.cells[line % 2]);
            let read: MeasurementSummary = serde_json::from_str(&to_redacted_json(&whole, JsonLayout::Pretty, &redactor)).unwrap();
            proptest::prop_assert_eq!(read.status.name(), whole.status.name());
            proptest::prop_assert_eq!(read.failures, whole.failures);
            let read: crate::plan::Plan = serde_json::from_str(&to_redacted_json(&plan, JsonLayout::Pretty, &redactor)).unwrap();
            proptest::prop_assert_eq!(read.starts.len(), 1);
        }
    }

    thread_local! {
        static READ_COUNT: Cell<usize> = const { Cell::new(0) };
    }

    /// A word of the format that counts how often it is parsed.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(try_from = "String")]
    struct Word(String);

    impl TryFrom<String> for Word {
        type Error = String;

        fn try_from(text: String) -> Result<Self, String> {
            READ_COUNT.set(READ_COUNT.get() + 1);
            if text == "a" { Ok(Self(text)) } else { Err(text) }
        }
    }

    #[test]
    fn a_secret_spelt_like_a_word_in_every_element_of_a_list_costs_a_few_tries() {
        let chunks = vec![(1, Word("a".to_owned())); 500];
        let thing = (chunks, "an answer".to_owned());
        let text = to_redacted_json(&thing, JsonLayout::Line, &Redactor::with_short_values(["a"]));
        assert!(text.starts_with("[[[1,\"a\"],[1,\"a\"],"), "{text}");
        assert!(text.ends_with(",\"***n ***nswer\"]\n"), "{text}");
        // The value is parsed once for reading back, all replacements, the first word and the answer.
        assert!(
            READ_COUNT.get() <= 4 * thing.0.len(),
            "{} words read",
            READ_COUNT.get()
        );
    }

    #[test]
    fn a_secret_spelt_like_a_word_or_number_of_the_format_spoils_no_file() {
        for secret in ["done", "kind", "port", "7", "e", "\"", ":", "***"] {
            let text = to_redacted_json(&thing(), JsonLayout::Line, &Redactor::with_short_values([secret]));
            let read: Thing = serde_json::from_str(&text).unwrap();
            assert_eq!((read.kind, read.port), (Kind::Done, Some(7)), "{secret}");
        }
    }
}
