//! Reads a file of conversations in the ShareGPT format as leniently as Python does.
//!
//! Of two equal keys the last one counts, and half of a surrogate pair reads as U+FFFD instead of spoiling the file.
//! Keeps the first two turns and forgets the rest. Not accepted, other than in Python: `NaN` and `Infinity`.

use std::fmt;
use std::fs;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::DatasetError;
use crate::matrix::spec::workload::Profile;

/// The first two turns of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    /// The first turn, whoever spoke.
    pub prompt: String,
    /// The second turn.
    pub completion: String,
}

/// The first two turns of every record that has two, in the order of the file.
pub(super) fn read(path: &Path, profile: Profile) -> Result<Vec<Pair>, DatasetError> {
    let bytes = fs::read(path).map_err(|error| DatasetError::Unreadable {
        path: path.to_owned(),
        error,
    })?;
    parse(&bytes, profile).map_err(|reason| DatasetError::Invalid {
        path: path.to_owned(),
        reason,
    })
}

fn parse(bytes: &[u8], profile: Profile) -> Result<Vec<Pair>, String> {
    let records: Vec<Record> = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let mut pairs = Vec::with_capacity(records.len());
    for (at, record) in records.into_iter().enumerate() {
        let turns = match profile {
            Profile::Classic => record.conversations.ok_or_else(|| {
                format!("record {at} has no `conversations`, which the `classic` profile needs")
            })?,
            Profile::Current => record.conversations.or(record.conversation).unwrap_or_default(),
        };
        if turns.count >= 2 {
            let silent = || format!("a turn of record {at} has no `value`");
            pairs.push(Pair {
                prompt: turns.first.ok_or_else(silent)?,
                completion: turns.second.ok_or_else(silent)?,
            });
        }
    }
    Ok(pairs)
}

/// A record: the turns under either key.
#[derive(Default)]
struct Record {
    conversations: Option<Turns>,
    conversation: Option<Turns>,
}

/// How many turns there are, and what the first two say.
#[derive(Default)]
struct Turns {
    count: usize,
    first: Option<String>,
    second: Option<String>,
}

/// What a turn says.
#[derive(Default)]
struct Turn(Option<String>);

/// A string in which lone surrogates are allowed.
struct Text(String);

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Record;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a record with `conversations`")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Record, A::Error> {
                let mut record = Record::default();
                while let Some(Text(key)) = map.next_key()? {
                    match key.as_str() {
                        "conversations" => record.conversations = Some(map.next_value()?),
                        "conversation" => record.conversation = Some(map.next_value()?),
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(record)
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

impl<'de> Deserialize<'de> for Turns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Turns;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of turns")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Turns, A::Error> {
                let mut turns = Turns::default();
                let Some(Turn(first)) = seq.next_element()? else {
                    return Ok(turns);
                };
                turns.count = 1;
                turns.first = first;
                let Some(Turn(second)) = seq.next_element()? else {
                    return Ok(turns);
                };
                turns.count = 2;
                turns.second = second;
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    turns.count += 1;
                }
                Ok(turns)
            }
        }
        deserializer.deserialize_seq(Reader)
    }
}

impl<'de> Deserialize<'de> for Turn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Turn;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a turn with a `value`")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Turn, A::Error> {
                let mut turn = Turn::default();
                while let Some(Text(key)) = map.next_key()? {
                    if key == "value" {
                        let Text(value) = map.next_value()?;
                        turn.0 = Some(value);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(turn)
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Text;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Text, E> {
                Ok(Text(lenient(bytes)))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }
        }
        // As bytes, because only then does serde_json let lone surrogates pass.
        deserializer.deserialize_bytes(Reader)
    }
}

/// UTF-8 in which a lone surrogate, encoded as three bytes, becomes one U+FFFD.
fn lenient(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                return text;
            }
            Err(error) => {
                let (valid, wrong) = rest.split_at(error.valid_up_to());
                text.push_str(std::str::from_utf8(valid).expect("the error says that these bytes are valid"));
                text.push(char::REPLACEMENT_CHARACTER);
                let is_surrogate = matches!(wrong, [0xED, 0xA0..=0xBF, 0x80..=0xBF, ..]);
                let skipped = if is_surrogate {
                    3
                } else {
                    error.error_len().unwrap_or(wrong.len())
                };
                rest = &wrong[skipped..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(prompt: &str, completion: &str) -> Pair {
        Pair {
            prompt: prompt.to_owned(),
            completion: completion.to_owned(),
        }
    }

    fn current(text: &str) -> Result<Vec<Pair>, String> {
        parse(text.as_bytes(), Profile::Current)
    }

    #[test]
    fn the_first_two_turns_count_whoever_spoke() {
        let text = r#"[{"id": "x", "conversations": [
            {"from": "gpt", "value": "a"}, {"value": "b", "from": "human"}, {"value": 3}, null
        ]}]"#;
        assert_eq!(current(text).unwrap(), [pair("a", "b")]);
    }

    #[test]
    fn records_with_fewer_than_two_turns_are_left_out() {
        let text = r#"[{}, {"conversations": []}, {"conversations": [{"value": "a"}]},
            {"conversations": [{}]}, {"conversations": [{"value": "a"}, {"value": ""}]}]"#;
        assert_eq!(current(text).unwrap(), [pair("a", "")]);
    }

    #[test]
    fn the_singular_key_stands_in_only_where_the_plural_is_absent() {
        let text = r#"[{"conversation": [{"value": "a"}, {"value": "b"}]},
            {"conversations": [], "conversation": [{"value": "c"}, {"value": "d"}]}]"#;
        assert_eq!(current(text).unwrap(), [pair("a", "b")]);
        let error = parse(text.as_bytes(), Profile::Classic).unwrap_err();
        assert!(error.contains("record 0 has no `conversations`"), "{error}");
    }

    #[test]
    fn of_two_equal_keys_the_last_counts() {
        let text =
            r#"[{"conversations": [], "conversations": [{"value": "a", "value": "b"}, {"value": "c"}]}]"#;
        assert_eq!(current(text).unwrap(), [pair("b", "c")]);
    }

    #[test]
    fn a_lone_surrogate_reads_as_one_replacement_and_a_pair_as_its_character() {
        let text = r#"[{"\ud800": "\udfff", "conversations": [
            {"value": "a\ud83db\ude00\ud83d\ude00"}, {"value": "\ud83d\ud83d\ude00é\n"}]}]"#;
        assert_eq!(
            current(text).unwrap(),
            [pair("a\u{fffd}b\u{fffd}😀", "\u{fffd}😀é\n")]
        );
    }

    #[test]
    fn a_mistake_in_the_file_is_placed() {
        let error = current("[{\"conversations\":\n[{\"value\": 7}, {}]}]").unwrap_err();
        assert!(error.contains("line 2"), "{error}");
        let error = current(r#"[{"conversations": [{"value": "a"}, {"from": "gpt"}]}]"#).unwrap_err();
        assert_eq!(error, "a turn of record 0 has no `value`");
    }

    #[test]
    fn a_file_that_is_absent_is_named() {
        let error = read(Path::new("/nowhere/file.json"), Profile::Current).unwrap_err();
        assert!(error.to_string().contains("`/nowhere/file.json`"), "{error}");
    }
}
