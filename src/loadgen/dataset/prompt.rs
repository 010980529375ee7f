//! One row of a data set: the prompt and its extras.

use std::borrow::Cow;
use std::io::{BufRead, Read};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::audio_clip::AudioClip;
use crate::base::ids::{ContentHash, Digest};

/// The content of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Text, which the server tokenizes; shared with its senders.
    Text(Arc<String>),
    /// Token ids, for engines that accept them.
    Ids(Arc<Vec<u32>>),
    /// Chat messages, as objects with `role` and `content`.
    Messages(Vec<Value>),
    /// A text followed by images.
    Images {
        /// The text; it has a placeholder for each image if the server inserts images into a prompt.
        text: String,
        /// The images in order, as data URIs.
        images: Vec<Arc<str>>,
    },
    /// A recording.
    Audio(Arc<AudioClip>),
}

/// Returns the fraction of prompt bytes that repeat the beginning of an earlier prompt: the legitimate upper
/// bound for prefix-cache hits. `None` for conversations with turns and for prompts with images or recordings.
pub(crate) fn repeated_share(prompts: &[Prompt]) -> Option<f64> {
    let mut texts = Vec::with_capacity(prompts.len());
    for prompt in prompts {
        let has_turns = prompt
            .extras
            .as_ref()
            .is_some_and(|extras| extras.turns.is_some());
        texts.push(match &prompt.content {
            _ if has_turns => return None,
            Content::Text(text) => Cow::Borrowed(text.as_bytes()),
            Content::Ids(ids) => ids.iter().flat_map(|id| id.to_be_bytes()).collect(),
            Content::Messages(messages) => serde_json::to_vec(messages).ok()?.into(),
            Content::Images { .. } | Content::Audio(_) => return None,
        });
    }
    let total: usize = texts.iter().map(|text| text.len()).sum();
    // After sorting, each prompt follows the one with which it has the longest common prefix. The sum of
    // these prefixes is what a prefix tree saves.
    texts.sort_unstable();
    let common: usize = texts
        .windows(2)
        .map(|pair| {
            pair[0]
                .iter()
                .zip(pair[1].iter())
                .take_while(|(a, b)| a == b)
                .count()
        })
        .sum();
    (total > 0).then(|| common as f64 / total as f64)
}

/// Returns the fraction of prompt bytes that repeat the beginning of a prompt in `earlier`: the upper bound
/// for hits in a prefix cache that has those.
pub(crate) fn shared_with_earlier<'p>(
    earlier: impl IntoIterator<Item = &'p Prompt>,
    prompts: &[Prompt],
) -> f64 {
    let mut earlier_prompts: Vec<Cow<'_, [u8]>> = earlier.into_iter().map(prompt_bytes).collect();
    earlier_prompts.sort_unstable();
    let (mut total, mut common) = (0, 0);
    for prompt in prompts.iter().map(prompt_bytes) {
        let place = earlier_prompts.partition_point(|other| *other < prompt);
        // A neighbour in sorted order has the longest common prefix.
        let beside = earlier_prompts
            .get(place)
            .into_iter()
            .chain(place.checked_sub(1).map(|before| &earlier_prompts[before]));
        let in_common = |other: &Cow<'_, [u8]>| {
            let pairs = prompt.iter().zip(other.iter());
            pairs.take_while(|(a, b)| a == b).count()
        };
        total += prompt.len();
        common += beside.map(in_common).max().unwrap_or(0);
    }
    if total == 0 {
        0.0
    } else {
        common as f64 / total as f64
    }
}

/// Returns the whole content of a prompt, in order.
fn prompt_bytes(prompt: &Prompt) -> Cow<'_, [u8]> {
    let turns = prompt.extras.as_ref().and_then(|extras| extras.turns.as_ref());
    let mut bytes: Vec<u8> = match &prompt.content {
        Content::Text(text) if turns.is_none() => return Cow::Borrowed(text.as_bytes()),
        Content::Text(text) => text.as_bytes().to_vec(),
        Content::Ids(ids) => ids.iter().flat_map(|id| id.to_be_bytes()).collect(),
        Content::Messages(messages) => to_json(messages),
        Content::Images { text, images } => {
            let images = images.iter().flat_map(|image| image.as_bytes());
            images.chain(text.as_bytes()).copied().collect()
        }
        Content::Audio(clip) => clip.digest().as_str().as_bytes().to_vec(),
    };
    bytes.extend(turns.iter().flat_map(to_json));
    bytes.into()
}

/// One request: its prompt and its number of output tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// The content; the first turn of a conversation.
    pub(crate) content: Content,
    /// Length in tokens by our tokenizer; for `random` the length of the cut, which a server may count
    /// differently.
    pub(crate) prompt_tokens: u32,
    /// Requested output tokens, of each turn in a conversation.
    pub(crate) output_tokens: u32,
    /// Properties that few rows have.
    pub(crate) extras: Option<Arc<Extras>>,
}

/// Optional properties of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Extras {
    /// The new messages of each turn after the first, in a conversation. The server's answers are inserted
    /// between.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) turns: Option<Vec<Vec<Value>>>,
    /// Number of prompt tokens that represent images.
    pub(crate) vision_tokens: u32,
    /// The time in a trace, on the trace's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<Duration>,
    /// Tells a router which rows belong together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) routing_key: Option<String>,
    /// The id of the request, sent as a header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request_id: Option<String>,
    /// Fields of the request body; they override those of the scenario.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) body: Map<String, Value>,
    /// The answer that is expected, which is not sent: a text, a JSON value, or an object with `tool_calls`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expected_answer: Option<Value>,
    /// The pause before each turn after the first, in a conversation; `None` if turns follow without pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pauses: Option<Vec<Duration>>,
    /// The place in a session, for rows that wait for other rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<SessionLink>,
}

impl Extras {
    /// Returns the documents that the row has for its query to rank.
    pub(crate) fn documents(&self) -> Option<&[Value]> {
        Some(self.body.get("documents")?.as_array()?.as_slice())
    }
}

/// The place of a request in its session. The rows of a session follow one another, so a request's
/// position in the session is its distance from the session's first row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionLink {
    /// Number of the session, from 0.
    pub(crate) session: u32,
    /// Positions of the requests that must end before it is sent; all are smaller than its own. The start of
    /// the session counts if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) after: Vec<u32>,
    /// The pause after these have ended.
    pub(crate) delay: Duration,
    /// Position of the request whose messages and answer come before its own messages; one of `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) continues: Option<u32>,
}

impl Prompt {
    pub(super) fn new(content: Content, prompt_tokens: u32, output_tokens: u32) -> Self {
        Self {
            content,
            prompt_tokens,
            output_tokens,
            extras: None,
        }
    }

    pub(super) fn extras_mut(&mut self) -> &mut Extras {
        Arc::make_mut(self.extras.get_or_insert_default())
    }
}

pub(super) fn content_hash(prompts: &[Prompt]) -> ContentHash {
    let mut digest = Digest::default();
    prompts.iter().for_each(|prompt| digest.update(&encode(prompt)));
    digest.finish()
}

/// Encodes a prompt as bytes: kind, length, content, prompt tokens, output tokens, with little-endian
/// numbers; then the extras if there are any.
pub(super) fn encode(prompt: &Prompt) -> Vec<u8> {
    let mut bytes = Vec::new();
    match &prompt.content {
        Content::Text(text) => {
            bytes.push(b't');
            append_block(&mut bytes, text.as_bytes());
        }
        Content::Ids(ids) => {
            bytes.push(b'i');
            bytes.extend((ids.len() as u64).to_le_bytes());
            bytes.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
        }
        Content::Messages(messages) => {
            bytes.push(b'm');
            append_block(&mut bytes, &to_json(messages));
        }
        Content::Images { text, images } => {
            bytes.push(b'p');
            append_block(&mut bytes, text.as_bytes());
            bytes.extend((images.len() as u64).to_le_bytes());
            images
                .iter()
                .for_each(|image| append_block(&mut bytes, image.as_bytes()));
        }
        // A digest stands for the bytes, which many rows may share. Rows with recordings are not read back.
        Content::Audio(clip) => {
            bytes.push(b'a');
            append_block(&mut bytes, clip.name().as_bytes());
            append_block(&mut bytes, clip.digest().as_str().as_bytes());
        }
    }
    bytes.extend(prompt.prompt_tokens.to_le_bytes());
    bytes.extend(prompt.output_tokens.to_le_bytes());
    if let Some(extras) = &prompt.extras {
        bytes.push(b'+');
        append_block(&mut bytes, &to_json(&**extras));
    }
    bytes
}

/// Decodes prompts that [`encode`] wrote one after another; `None` if the bytes are invalid or have a recording.
pub(super) fn decode(mut bytes: impl BufRead) -> Option<Vec<Prompt>> {
    let mut prompts = Vec::new();
    while !bytes.fill_buf().ok()?.is_empty() {
        prompts.push(read_prompt(&mut bytes)?);
    }
    Some(prompts)
}

fn read_prompt(rest: &mut impl BufRead) -> Option<Prompt> {
    let content = match &read_exact(rest, 1)?[..] {
        b"t" => Content::Text(read_text(rest)?.into()),
        b"i" => {
            let count = read_length(rest)?;
            let ids = read_exact(rest, count.checked_mul(4)?)?;
            let ids = ids.as_chunks::<4>().0.iter();
            Content::Ids(Arc::new(ids.map(|id| u32::from_le_bytes(*id)).collect()))
        }
        b"m" => Content::Messages(serde_json::from_slice(&read_block(rest)?).ok()?),
        b"p" => {
            let text = read_text(rest)?;
            let count = read_length(rest)?;
            let images: Option<Vec<Arc<str>>> = (0..count).map(|_| Some(read_text(rest)?.into())).collect();
            Content::Images {
                text,
                images: images?,
            }
        }
        _ => return None,
    };
    let mut number = || Some(u32::from_le_bytes(read_exact(rest, 4)?.try_into().ok()?));
    let (prompt_tokens, output_tokens) = (number()?, number()?);
    let extras = match rest.fill_buf().ok()?.first() {
        Some(b'+') => {
            read_exact(rest, 1)?;
            Some(Arc::new(serde_json::from_slice(&read_block(rest)?).ok()?))
        }
        _ => None,
    };
    Some(Prompt {
        content,
        prompt_tokens,
        output_tokens,
        extras,
    })
}

fn read_exact(rest: &mut impl BufRead, count: usize) -> Option<Vec<u8>> {
    // Do not reserve memory for an invalid length.
    let mut bytes_read = Vec::with_capacity(count.min(64 << 10));
    let read = rest.take(count as u64).read_to_end(&mut bytes_read).ok()?;
    bytes_read.shrink_to_fit();
    (read == count).then_some(bytes_read)
}

fn read_length(rest: &mut impl BufRead) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(read_exact(rest, 8)?.try_into().ok()?)).ok()
}

fn read_block(rest: &mut impl BufRead) -> Option<Vec<u8>> {
    let length = read_length(rest)?;
    read_exact(rest, length)
}

fn read_text(rest: &mut impl BufRead) -> Option<String> {
    String::from_utf8(read_block(rest)?).ok()
}

fn append_block(bytes: &mut Vec<u8>, more: &[u8]) {
    bytes.extend((more.len() as u64).to_le_bytes());
    bytes.extend(more);
}

fn to_json(value: &(impl Serialize + ?Sized)) -> Vec<u8> {
    serde_json::to_vec(value).expect("it holds no map with keys other than strings")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_prefix_cache_may_know_from_earlier_prompts_is_a_share_of_their_bytes() {
        let prompts = |texts: &[&str]| -> Vec<Prompt> {
            let prompt = |text: &&str| Prompt {
                content: Content::Text(Arc::new((*text).to_owned())),
                prompt_tokens: 1,
                output_tokens: 1,
                extras: None,
            };
            texts.iter().map(prompt).collect()
        };
        let earlier = prompts(&["abcd", "abxy", "q"]);
        for (texts, share) in [
            (&["abcd", "q"][..], 1.0),
            (&["abcdefgh"], 0.5),
            (&["abz", "zzz"], 2.0 / 6.0),
            (&["x"], 0.0),
            (&[], 0.0),
        ] {
            let known = shared_with_earlier(&earlier, &prompts(texts));
            assert!((known - share).abs() < 1e-12, "{texts:?}: {known}");
        }
        assert_eq!(shared_with_earlier(&[], &earlier), 0.0);
    }

    #[test]
    fn bytes_and_digest_know_every_part_of_a_row() {
        let row = |content, extras: Option<Extras>| Prompt {
            content,
            prompt_tokens: 1,
            output_tokens: 2,
            extras: extras.map(Arc::new),
        };
        let text = || Content::Text(Arc::new("a".to_owned()));
        let pictures = |images: &[&str]| Content::Images {
            text: "a".to_owned(),
            images: images.iter().map(|image| Arc::from(*image)).collect(),
        };
        let with = |change: fn(&mut Extras)| {
            let mut extras = Extras::default();
            change(&mut extras);
            row(text(), Some(extras))
        };
        let rows = [
            row(text(), None),
            row(Content::Ids(vec![97].into()), None),
            row(
                Content::Messages(vec![json!({"role": "user", "content": "a"})]),
                None,
            ),
            row(pictures(&["x", "y"]), None),
            row(pictures(&["xy"]), None),
            with(|_| {}),
            with(|extras| extras.turns = Some(Vec::new())),
            with(|extras| extras.turns = Some(vec![vec![json!("b")]])),
            with(|extras| extras.vision_tokens = 1),
            with(|extras| extras.at = Some(Duration::ZERO)),
            with(|extras| extras.routing_key = Some("k".to_owned())),
            with(|extras| extras.request_id = Some("k".to_owned())),
            with(|extras| drop(extras.body.insert("k".to_owned(), Value::Null))),
            with(|extras| extras.expected_answer = Some(Value::from("a"))),
            with(|extras| extras.pauses = Some(vec![Duration::from_millis(1)])),
            with(|extras| extras.session = Some(SessionLink::default())),
            with(|extras| {
                extras.session = Some(SessionLink {
                    after: vec![0],
                    delay: Duration::from_millis(1),
                    continues: Some(0),
                    session: 1,
                })
            }),
        ];
        let bytes: Vec<u8> = rows.iter().flat_map(encode).collect();
        assert_eq!(decode(&bytes[..]).as_deref(), Some(&rows[..]));
        assert_eq!(decode(&bytes[..20]), None);
        let mut digests: Vec<String> = rows
            .iter()
            .map(|row| content_hash(std::slice::from_ref(row)).to_string())
            .collect();
        digests.sort();
        digests.dedup();
        assert_eq!(digests.len(), rows.len());
    }
}
