//! Reads a file of conversations in the ShareGPT format as leniently as Python does.
//!
//! Of two equal keys the last one is used, and a lone surrogate reads as U+FFFD. Unlike Python, it rejects
//! `NaN` and `Infinity`. It finds the first two turns and skips the rest; the text of a turn is decoded only
//! if the turn is sent.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::DatasetError;
use crate::config::workload::Profile;

/// The first two turns of a conversation.
#[derive(Clone, Debug)]
pub(super) struct TurnPair<'a> {
    /// The first turn, whatever its role.
    pub(crate) prompt: TurnText<'a>,
    pub(crate) completion: TurnText<'a>,
    /// The time of the conversation, if the file has it and the workload replays times.
    pub(crate) timestamp: Option<Duration>,
}

/// The text of a turn.
#[derive(Clone, Debug)]
pub(super) enum TurnText<'a> {
    /// A JSON string as in the file, quoted and escaped.
    Quoted(&'a str),
    Plain(String),
}

impl From<String> for TurnText<'_> {
    fn from(text: String) -> Self {
        Self::Plain(text)
    }
}

impl TurnText<'_> {
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Plain(text) => text,
            Self::Quoted(json) => match serde_json::from_str(json) {
                Ok(LenientText(text)) => text,
                Err(_) => unreachable!("this string was already parsed when the file was read"),
            },
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Plain(text) => text.is_empty(),
            Self::Quoted(json) => *json == "\"\"",
        }
    }
}

/// A file of conversations.
pub(super) struct ConversationFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl ConversationFile {
    pub(super) fn open(path: &Path) -> Result<Self, DatasetError> {
        let bytes = fs::read(path).map_err(|error| DatasetError::Unreadable {
            path: path.to_owned(),
            error,
        })?;
        Ok(Self {
            path: path.to_owned(),
            bytes,
        })
    }

    /// Returns the first two turns of every record with at least two, in file order.
    pub(super) fn pairs(&self, profile: Profile) -> Result<Vec<TurnPair<'_>>, DatasetError> {
        self.parsed(profile_turns(profile))
    }

    /// Like [`Self::pairs`], but passes over every record without `conversations`, as `vllm bench serve` does.
    pub(super) fn named_pairs(&self) -> Result<Vec<TurnPair<'_>>, DatasetError> {
        self.parsed(|_, record| Ok(record.conversations.unwrap_or_default()))
    }

    fn parsed<'a>(
        &'a self,
        turns: impl Fn(usize, Record<'a>) -> Result<Turns<'a>, String>,
    ) -> Result<Vec<TurnPair<'a>>, DatasetError> {
        parse(&self.bytes, turns).map_err(|reason| DatasetError::Invalid {
            path: self.path.clone(),
            reason,
        })
    }
}

/// Returns the turns of a record under a profile's rules.
fn profile_turns<'a>(profile: Profile) -> impl Fn(usize, Record<'a>) -> Result<Turns<'a>, String> {
    move |at, record| match profile {
        Profile::Classic => record
            .conversations
            .ok_or_else(|| format!("record {at} has no `conversations`, which the `classic` profile needs")),
        Profile::Current => Ok(record.conversations.or(record.conversation).unwrap_or_default()),
    }
}

fn parse<'a>(
    bytes: &'a [u8],
    turns: impl Fn(usize, Record<'a>) -> Result<Turns<'a>, String>,
) -> Result<Vec<TurnPair<'a>>, String> {
    let records: Vec<Record<'_>> = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let mut pairs = Vec::with_capacity(records.len());
    for (at, record) in records.into_iter().enumerate() {
        let turns = turns(at, record)?;
        if turns.count >= 2 {
            let silent = || format!("a turn of record {at} has no `value`");
            pairs.push(TurnPair {
                prompt: TurnText::Quoted(turns.first.ok_or_else(silent)?),
                completion: TurnText::Quoted(turns.second.ok_or_else(silent)?),
                timestamp: None,
            });
        }
    }
    Ok(pairs)
}

/// A record; its turns are under one of two keys.
#[derive(Default)]
struct Record<'a> {
    conversations: Option<Turns<'a>>,
    conversation: Option<Turns<'a>>,
}

/// The number of turns, and the JSON strings of the first two.
#[derive(Default)]
struct Turns<'a> {
    count: usize,
    first: Option<&'a str>,
    second: Option<&'a str>,
}

/// The JSON string of a turn.
#[derive(Default)]
struct Turn<'a>(Option<&'a str>);

/// A string in which lone surrogates are allowed.
struct LenientText(String);

impl<'de> Deserialize<'de> for Record<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Record<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a record with `conversations`")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Record<'de>, A::Error> {
                let mut record = Record::default();
                while let Some(LenientText(key)) = map.next_key()? {
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

impl<'de> Deserialize<'de> for Turns<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Turns<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of turns")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Turns<'de>, A::Error> {
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

impl<'de> Deserialize<'de> for Turn<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Turn<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a turn with a `value`")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Turn<'de>, A::Error> {
                let mut turn = Turn::default();
                while let Some(LenientText(key)) = map.next_key()? {
                    if key == "value" {
                        let value: &'de RawValue = map.next_value()?;
                        let json = value.get();
                        if !json.starts_with('"') {
                            return Err(A::Error::custom(format!(
                                "the `value` of a turn must be a string, but is {json:.40}"
                            )));
                        }
                        turn.0 = Some(json);
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

impl<'de> Deserialize<'de> for LenientText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = LenientText;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<LenientText, E> {
                Ok(LenientText(decode_lenient(bytes)))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<LenientText, E> {
                Ok(LenientText(text.to_owned()))
            }
        }
        // serde_json accepts lone surrogates only as bytes.
        deserializer.deserialize_bytes(Reader)
    }
}

/// Decodes UTF-8; a lone surrogate, encoded as three bytes, becomes one U+FFFD.
fn decode_lenient(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                return text;
            }
            Err(error) => {
                let (valid, invalid) = rest.split_at(error.valid_up_to());
                text.push_str(std::str::from_utf8(valid).expect("the error says that these bytes are valid"));
                text.push(char::REPLACEMENT_CHARACTER);
                let is_surrogate = matches!(invalid, [0xED, 0xA0..=0xBF, 0x80..=0xBF, ..]);
                let skipped = if is_surrogate {
                    3
                } else {
                    error.error_len().unwrap_or(invalid.len())
                };
                rest = &invalid[skipped..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(prompt: &str, completion: &str) -> (String, String) {
        (prompt.to_owned(), completion.to_owned())
    }

    fn current(text: &str) -> Result<Vec<(String, String)>, String> {
        let pairs = parse(text.as_bytes(), profile_turns(Profile::Current))?;
        Ok(pairs
            .into_iter()
            .map(|pair| (pair.prompt.into_text(), pair.completion.into_text()))
            .collect())
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
        let error = parse(text.as_bytes(), profile_turns(Profile::Classic)).unwrap_err();
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
        let error = ConversationFile::open(Path::new("/nowhere/file.json"))
            .map(drop)
            .unwrap_err();
        assert!(error.to_string().contains("`/nowhere/file.json`"), "{error}");
    }
}
