//! Decodes events without parsing if they differ from a parsed event only in their text.
//!
//! The result is exact. The parsed event is split into the part before its text, the text, and the part after
//! it. If another event has the same two outer parts, and only bytes between them that a JSON string holds
//! unescaped, then it is the same JSON with another string. All other events go to the full parser.

use crate::results::record::request::ChunkKind;

/// The shape of the last event that carried one text and nothing else.
#[derive(Clone, Debug, Default)]
pub(super) struct EventShape {
    /// The part up to and including the quote before the text; empty if no shape is known.
    prefix: Vec<u8>,
    /// The part from the quote after the text.
    suffix: Vec<u8>,
    kind: Option<ChunkKind>,
}

impl EventShape {
    /// Learns the shape of an event. `text` is a slice of `json` and not empty. The event must carry this
    /// text and no other fact that each event would have to add.
    pub(super) fn learn(&mut self, json: &str, kind: ChunkKind, text: &str) {
        let start = (text.as_ptr() as usize).wrapping_sub(json.as_ptr() as usize);
        let end = start.wrapping_add(text.len());
        let (Some(before), Some(after)) = (json.get(..start), json.get(end..)) else {
            return;
        };
        if !before.ends_with('"') || !after.starts_with('"') || json.get(start..end) != Some(text) {
            return;
        }
        self.prefix.clear();
        self.prefix.extend_from_slice(before.as_bytes());
        self.suffix.clear();
        self.suffix.extend_from_slice(after.as_bytes());
        self.kind = Some(kind);
    }

    pub(super) fn match_text<'e>(&self, event: &'e [u8]) -> Option<(ChunkKind, &'e str)> {
        let kind = self.kind?;
        let text = event
            .strip_prefix(self.prefix.as_slice())?
            .strip_suffix(self.suffix.as_slice())?;
        let is_as_it_is = !text.is_empty() && text.iter().all(|byte| !matches!(byte, 0..0x20 | b'"' | b'\\'));
        let text = std::str::from_utf8(text).ok().filter(|_| is_as_it_is)?;
        Some((kind, text))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::loadgen::protocol::{Decoded, Decoder, LineKind};
    use crate::plan::Protocol;

    /// Decodes lines once with every line parsed and once with the fast path. Also returns how many lines
    /// took the fast path.
    fn both_ways(lines: &[String]) -> (Decoded, Decoded, usize) {
        let (mut full, mut quick) = (
            Decoder::new(Protocol::Chat, 300),
            Decoder::new(Protocol::Chat, 300),
        );
        let mut shape = 0;
        for (line, at) in lines.iter().zip(0..) {
            full.push(LineKind::Event, line.as_bytes(), at);
            if quick.push_fast(line.as_bytes(), at) {
                shape += 1;
            } else {
                quick.push(LineKind::Event, line.as_bytes(), at);
            }
        }
        (full.finish(true), quick.finish(true), shape)
    }

    #[test]
    fn an_event_that_differs_in_its_text_alone_is_not_parsed_again() {
        let line = |text: &str| format!(r#"{{"id":"1","choices":[{{"delta":{{"content":"{text}"}}}}]}}"#);
        let lines: Vec<String> = ["a", " b", "é", r"\n", "c\"", "", "d"].map(line).to_vec();
        let (full, quick, shape) = both_ways(&lines[..4]);
        assert_eq!((full.text.in_memory(), shape), ("a bé\n", 2));
        assert_eq!(full, quick);
        // A quote inside the text breaks the JSON, which only the parser may report.
        let (full, quick, _) = both_ways(&lines);
        assert!(full.failure.is_some());
        assert_eq!(full, quick);
    }

    proptest! {
        #[test]
        fn passing_known_events_by_changes_nothing(
            lines in prop::collection::vec((0usize..12, "[a-cé\" \\\\n\n{}]{0,4}"), 0..20),
        ) {
            let shapes = [
                r#"{"choices":[{"text":"@"}]}"#,
                r#"{"choices":[{"delta":{"content":"@"}}]}"#,
                r#"{"choices":[{"delta":{"content":"@"}}],"model":"@"}"#,
                r#"{"choices":[{"delta":{"reasoning_content":"@","content":""}}]}"#,
                r#"{"choices":[{"delta":{"reasoning":"@","reasoning_content":null}}]}"#,
                r#"{"choices":[{"delta":{"reasoning":"@","content":"x"}}]}"#,
                r#"{"choices":[{"delta":{"content":"@"},"finish_reason":"stop"}]}"#,
                r#"{"choices":[{"delta":{"content":"@"}}],"usage":{"completion_tokens":2}}"#,
                r#"{"error":"@"}"#,
                r#"{"choices":[{"text":"","delta":{"content":"@","tool_calls":[{"function":{"name":"@"}}]}}]}"#,
                r#"{"choices":[{"delta":{"content":"é"}},{"delta":{"content":"@"}}]}"#,
                r#"{"object":"@","choices":[{"text":"a","delta":{"content":"@"}}]}"#,
            ];
            // Every line comes twice, so that each shape is met while it is known.
            let lines: Vec<String> = lines
                .into_iter()
                .flat_map(|(shape, text)| [shapes[shape].replace('@', &text), shapes[shape].replace('@', "ab")])
                .collect();
            let (full, quick, _) = both_ways(&lines);
            prop_assert_eq!(full, quick);
        }
    }
}
