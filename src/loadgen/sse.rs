//! Splits the bytes of a body into lines and server-sent events, cut at any byte. Pure: it knows no time and
//! no JSON.
//!
//! It strips and classifies lines as bench_serving does, and accepts more: `data:` without a space; it skips
//! comments, `event:`, `id:` and `retry:`; and it separates the data of an event named `error`. It does not
//! join several `data:` lines of one event, because no engine sends them.

use memchr::memchr;
use thiserror::Error;

use crate::results::record::request::Oddity;

/// A line of a body without white space at either end; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'b> {
    /// The text after `data:`.
    Event(&'b [u8]),
    /// The text after `data:` in an event named `error`.
    Error(&'b [u8]),
    /// `data: [DONE]`, or `[DONE]` alone.
    Done,
    /// A line without a field name, such as a JSON body that is not a stream.
    Plain(&'b [u8]),
}

/// A line that exceeds the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a line of the answer exceeds {limit} bytes")]
pub struct LineTooLong {
    /// Maximum length of a line, in bytes.
    pub(crate) limit: usize,
}

/// Splits bytes that arrive in pieces of any size into lines.
#[derive(Clone, Debug)]
pub struct LineScanner {
    limit: usize,
    /// The start of a line whose end has not arrived.
    partial: Vec<u8>,
    /// Whether `partial` was returned and can be cleared.
    is_partial_used: bool,
    /// Whether a field other than data, or data without its space, was seen.
    has_field: bool,
    has_unspaced: bool,
    /// Whether the current event is named `error`.
    is_error: bool,
}

impl LineScanner {
    /// Creates a scanner that rejects lines of more than `limit` bytes, without their line feed.
    pub const fn new(limit: usize) -> Self {
        Self {
            limit,
            partial: Vec::new(),
            is_partial_used: false,
            has_field: false,
            has_unspaced: false,
            is_error: false,
        }
    }

    /// Removes the next line from the front of `input`; `None` if it needs more bytes.
    pub fn next<'a, 'b: 'a>(&'a mut self, input: &mut &'b [u8]) -> Result<Option<Line<'a>>, LineTooLong> {
        self.reset();
        while let Some(end) = memchr(b'\n', input) {
            let bytes: &'b [u8] = input;
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            self.check_limit(line.len())?;
            *input = rest;
            if self.partial.is_empty() {
                self.note(line_oddity(line));
                self.is_error = starts_error_event(line).unwrap_or(self.is_error);
                if let Some(line) = classify(line, self.is_error) {
                    return Ok(Some(line));
                }
            } else {
                self.partial.extend_from_slice(line);
                self.note(line_oddity(&self.partial));
                self.is_error = starts_error_event(&self.partial).unwrap_or(self.is_error);
                if classify(&self.partial, self.is_error).is_some() {
                    self.is_partial_used = true;
                    return Ok(classify(&self.partial, self.is_error));
                }
                self.partial.clear();
            }
        }
        self.check_limit(input.len())?;
        self.partial.extend_from_slice(std::mem::take(input));
        Ok(None)
    }

    /// Returns the last line of a complete body, if no line feed ended it.
    pub fn finish(&mut self) -> Option<Line<'_>> {
        self.reset();
        self.is_partial_used = true;
        self.note(line_oddity(&self.partial));
        classify(&self.partial, self.is_error)
    }

    /// Returns true if more than white space has arrived of a line whose end has not.
    pub(crate) fn has_partial_line(&self) -> bool {
        !self.is_partial_used && !strip(&self.partial).is_empty()
    }

    /// Returns what was seen that bench_serving cannot parse.
    pub(crate) fn oddities(&self) -> impl Iterator<Item = Oddity> {
        let field = self.has_field.then_some(Oddity::Field);
        field
            .into_iter()
            .chain(self.has_unspaced.then_some(Oddity::Unspaced))
    }

    fn note(&mut self, oddity: Option<Oddity>) {
        self.has_field |= oddity == Some(Oddity::Field);
        self.has_unspaced |= oddity == Some(Oddity::Unspaced);
    }

    fn reset(&mut self) {
        if self.is_partial_used {
            self.partial.clear();
            self.is_partial_used = false;
        }
    }

    fn check_limit(&self, more: usize) -> Result<(), LineTooLong> {
        match self.partial.len() + more > self.limit {
            true => Err(LineTooLong { limit: self.limit }),
            false => Ok(()),
        }
    }
}

/// Strips the bytes that Python's `bytes.strip` strips.
fn strip(mut line: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    while let [first, rest @ ..] = line
        && is_space(first)
    {
        line = rest;
    }
    while let [rest @ .., last] = line
        && is_space(last)
    {
        line = rest;
    }
    line
}

/// Returns the part of a line that bench_serving cannot parse.
///
/// Source: docs/bench-serving.md 2.1, reading a stream.
fn line_oddity(line: &[u8]) -> Option<Oddity> {
    if line.starts_with(b"data: ") {
        return None;
    }
    let line = strip(line);
    match line.strip_prefix(b"data:") {
        Some([b' ', ..]) => None,
        Some(_) => Some(Oddity::Unspaced),
        None => (!line.is_empty() && classify(line, false).is_none()).then_some(Oddity::Field),
    }
}

/// Returns whether the following lines belong to an event named `error`; `None` if the line neither names nor
/// ends an event.
fn starts_error_event(line: &[u8]) -> Option<bool> {
    match line {
        [] | [b'\r'] => Some(false),
        [b'e', ..] => Some(strip(line.strip_prefix(b"event:")?) == b"error"),
        _ => None,
    }
}

/// Classifies a line, given whether its event is named `error`; `None` for a line to be skipped.
fn classify(line: &[u8], is_error: bool) -> Option<Line<'_>> {
    const DONE: &[u8] = b"[DONE]";
    let line = strip(line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line));
    if let Some(data) = line.strip_prefix(b"data:") {
        return match strip(data) {
            b"" => None,
            DONE => Some(Line::Done),
            data if is_error => Some(Line::Error(data)),
            data => Some(Line::Event(data)),
        };
    }
    match line {
        b"" | [b':', ..] => None,
        DONE => Some(Line::Done),
        _ if [&b"event:"[..], b"id:", b"retry:"]
            .iter()
            .any(|field| line.starts_with(field)) =>
        {
            None
        }
        _ => Some(Line::Plain(line)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    enum OwnedLine {
        Event(Vec<u8>),
        Error(Vec<u8>),
        Done,
        Plain(Vec<u8>),
    }

    impl From<Line<'_>> for OwnedLine {
        fn from(line: Line<'_>) -> Self {
            match line {
                Line::Event(bytes) => Self::Event(bytes.to_vec()),
                Line::Error(bytes) => Self::Error(bytes.to_vec()),
                Line::Done => Self::Done,
                Line::Plain(bytes) => Self::Plain(bytes.to_vec()),
            }
        }
    }

    fn scan<'p>(
        limit: usize,
        pieces: impl IntoIterator<Item = &'p [u8]>,
    ) -> (Vec<OwnedLine>, Result<(), LineTooLong>) {
        let (mut scanner, mut lines) = (LineScanner::new(limit), Vec::new());
        for mut piece in pieces {
            loop {
                match scanner.next(&mut piece) {
                    Ok(Some(line)) => lines.push(line.into()),
                    Ok(None) => break,
                    Err(huge) => return (lines, Err(huge)),
                }
                assert!(scanner.partial.len() <= limit);
            }
        }
        lines.extend(scanner.finish().map(OwnedLine::from));
        (lines, Ok(()))
    }

    #[test]
    fn events_are_told_from_comments_fields_and_plain_lines() {
        let text = b"\xef\xbb\xbf: ping\r\nevent: message\r\nid: 7\nretry: 3\n\ndata: {\"a\":1}\r\n\r\ndata:{\"b\":2}\n\
            data:\n \t {\"c\":3} \x0b\n:\ndata: [DONE]\n\n{\"last\":true}";
        let (lines, end) = scan(100, [&text[..]]);
        assert_eq!(end, Ok(()));
        assert_eq!(
            lines,
            [
                OwnedLine::Event(b"{\"a\":1}".to_vec()),
                OwnedLine::Event(b"{\"b\":2}".to_vec()),
                OwnedLine::Plain(b"{\"c\":3}".to_vec()),
                OwnedLine::Done,
                OwnedLine::Plain(b"{\"last\":true}".to_vec()),
            ]
        );
    }

    #[test]
    fn the_data_of_an_event_named_error_are_told_apart() {
        let text = b"event: error\r\ndata: {\"code\":500}\r\n\r\ndata: {\"a\":1}\nevent:message\ndata: b\n\nevent:error\n\ndata: c\n";
        let expected = [
            OwnedLine::Error(b"{\"code\":500}".to_vec()),
            OwnedLine::Event(b"{\"a\":1}".to_vec()),
            OwnedLine::Event(b"b".to_vec()),
            OwnedLine::Event(b"c".to_vec()),
        ];
        assert_eq!(scan(100, [&text[..]]).0, expected);
        assert_eq!(scan(100, text.chunks(1)).0, expected);
    }

    #[test]
    fn a_line_at_the_limit_passes_and_one_beyond_is_refused_unread() {
        assert_eq!(scan(7, [&b"1234567\n"[..]]).1, Ok(()));
        let huge = Err(LineTooLong { limit: 7 });
        assert_eq!(scan(7, [&b"12345678\n"[..]]).1, huge);
        assert_eq!(scan(7, [&b"1234"[..], b"5678"]).1, huge);
        assert_eq!(
            scan(7, [&b"ok\n"[..], b"12345678"]),
            (vec![OwnedLine::Plain(b"ok".to_vec())], huge)
        );
    }

    #[test]
    fn what_bench_serving_cannot_read_is_noted() {
        for (body, expected) in [
            ("data: {}\n\ndata: [DONE]\n\n", &[][..]),
            ("{\"plain\": 1}\r\n \n", &[]),
            (": ping\n\ndata: {}\n", &[Oddity::Field]),
            ("event: x\nid: 1\ndata: {}\n", &[Oddity::Field]),
            ("data:{}\n", &[Oddity::Unspaced]),
            (" data:[DONE]", &[Oddity::Unspaced]),
            (": ping\ndata:{}\n", &[Oddity::Field, Oddity::Unspaced]),
        ] {
            // The body is cut at every byte, so that lines arrive whole and in pieces.
            for cut in 0..=body.len() {
                let mut scanner = LineScanner::new(100);
                for mut part in [&body.as_bytes()[..cut], &body.as_bytes()[cut..]] {
                    while scanner.next(&mut part).unwrap().is_some() {}
                }
                scanner.finish();
                let seen: Vec<Oddity> = scanner.oddities().collect();
                assert_eq!(seen, expected, "{body:?} cut at {cut}");
            }
        }
    }

    proptest! {
        #[test]
        fn lines_cut_anywhere_scan_alike(
            lines in prop::collection::vec("(data: ?|: |event: |)[a-z\\[\\]{}\" \r\t]{0,12}\n?", 0..12),
            cuts in prop::collection::vec(0.0f64..1.0, 0..12),
            limit in 4usize..60,
        ) {
            let bytes = lines.concat().into_bytes();
            let mut places: Vec<usize> = cuts.iter().map(|cut| (cut * bytes.len() as f64) as usize).collect();
            places.extend([0, bytes.len()]);
            places.sort_unstable();
            let whole = scan(limit, [bytes.as_slice()]);
            prop_assert_eq!(&scan(limit, places.windows(2).map(|pair| &bytes[pair[0]..pair[1]])), &whole);
            prop_assert_eq!(&scan(limit, bytes.chunks(1)), &whole);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), limit in 0usize..50) {
            let _ = scan(limit, [bytes.as_slice()]);
            let _ = scan(limit, bytes.chunks(2));
        }
    }
}
