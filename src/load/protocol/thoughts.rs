//! Reasoning that a server leaves in the text of the answer, between `<think>` and `</think>`.

use memchr::memmem;

use super::Decoded;
use crate::results::record::request::ChunkKind;

const BEGIN: &str = "<think>";
const END: &str = "</think>";

/// Marks the events that carry such reasoning; one that carries the beginning of the answer too is of the answer.
///
/// Many templates open the reasoning in the prompt, so that the text holds its end alone.
pub(super) fn mark(decoded: &mut Decoded) {
    let Some(end) = end(&decoded.text) else {
        return;
    };
    let mut at = 0;
    for chunk in &mut decoded.chunks {
        if chunk.kind == ChunkKind::Tool {
            continue;
        }
        at += chunk.bytes as usize;
        if at > end {
            return;
        }
        if chunk.kind == ChunkKind::Answer {
            chunk.kind = ChunkKind::Thought;
        }
    }
}

/// Where the reasoning ends in a text that begins with some: before the first character of the answer.
fn end(text: &str) -> Option<usize> {
    let is_begun = text.trim_start().starts_with(BEGIN);
    let Some(end) = memmem::find(text.as_bytes(), END.as_bytes()) else {
        return is_begun.then_some(text.len());
    };
    let has_begun = || memmem::find(&text.as_bytes()[..end], BEGIN.as_bytes()).is_some();
    if !is_begun && has_begun() {
        return None;
    }
    let after = end + END.len();
    let space = text[after..].len() - text[after..].trim_start().len();
    Some(after + space)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasoning_in_the_text_is_found_where_it_stands_first() {
        for (text, expected) in [
            ("<think>a</think>\n\nb", Some(18)),
            (" <think>a", Some(9)),
            ("a</think>b", Some(9)),
            ("a<think>b</think>c", None),
            ("plain", None),
        ] {
            assert_eq!(end(text), expected, "{text}");
        }
    }
}
