//! Explains syntax errors in our own words, at the place to fix: an open bracket or quote is shown where it
//! opens, although the parser notices it lines later.

use std::ops::Range;

use granit_parser::{ErrorKind, ScanError};

use super::{Mistake, Place, nearest};

/// State of the parser at its error.
pub(super) struct Stop<'t> {
    /// The text without a byte order mark.
    pub text: &'t str,
    /// End of the last event.
    pub after: usize,
    /// The innermost open bracket.
    pub bracket: Option<Range<usize>>,
    /// Names of the anchors so far.
    pub anchors: &'t [String],
}

/// Converts the parser's error.
pub(super) fn explain(stop: &Stop<'_>, error: &ScanError, place: impl Fn(Range<usize>) -> Place) -> Mistake {
    let text = stop.text;
    let mut at = error.marker().byte_offset().unwrap_or(text.len()).min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let line = code_on_line(text, at);
    let unclosed = |open: Range<usize>, name: char| {
        let close = if name == '[' { ']' } else { '}' };
        Mistake::new(format!("the bracket `{name}` is never closed"))
            .at(&place(open), "opened here")
            .help(format!("add a `{close}` where it ends"))
    };
    match error.kind() {
        ErrorKind::UnclosedFlowCollection { open } => unclosed(one_char(text, at), *open),
        ErrorKind::MismatchedFlowCollectionEnd { open, close } => {
            let wanted = if *open == '[' { ']' } else { '}' };
            let wrong = text[at..].find(*close).map_or(at, |found| at + found);
            Mistake::new(format!("the bracket `{open}` is closed by `{close}`"))
                .at(
                    &place(wrong..wrong + close.len_utf8()),
                    format!("`{wanted}` belongs here"),
                )
                .also(&place(one_char(text, at)), "opened here")
        }
        ErrorKind::InvalidQuotedScalarIndent
        | ErrorKind::UnclosedQuotedScalar
        | ErrorKind::DocumentIndicatorInQuotedScalar => {
            let open = open_quote(text, stop.after.min(at), at).map_or(at..at, |open| open..open + 1);
            Mistake::new("a quoted text is never closed")
                .at(&place(open), "opened here")
                .help("close it on the same line with the same quote")
        }
        ErrorKind::TabInIndentation | ErrorKind::TabInBlockIndentation | ErrorKind::TabNotAllowed => {
            tab(text, at, place)
        }
        ErrorKind::TabInPlainScalar if indenting_tab(text, at).is_some() => tab(text, at, place),
        ErrorKind::UnknownAnchor => {
            let name: String = text[at..]
                .chars()
                .skip(1)
                .take_while(|c| !c.is_whitespace() && !",]}".contains(*c))
                .collect();
            let alias = place(at..at + 1 + name.len());
            let mistake = Mistake::new(format!("`*{name}` names nothing"))
                .at(&alias, format!("no `&{name}` stands above this line"));
            match nearest(&name, stop.anchors.iter().map(String::as_str)) {
                Some(near) => mistake.help("did you mean").replace(&alias, format!("*{near}")),
                None => mistake.help("put the text in quotes if the `*` belongs to it"),
            }
        }
        ErrorKind::UnexpectedCharacter { character } => {
            Mistake::new(format!("a value cannot begin with `{character}`"))
                .at(&place(one_char(text, at)), "reserved in YAML")
                .help("put the value in quotes")
        }
        ErrorKind::UnknownQuotedScalarEscape => Mistake::new("an unknown escape in a text in double quotes")
            .at(&place(one_char(text, at)), "in the text that begins here")
            .help("write `\\\\` for a backslash, or use single quotes"),
        kind => match &stop.bracket {
            Some(open) if is_about_brackets(kind) => {
                unclosed(open.clone(), text[open.start..].chars().next().unwrap_or('[')).also(
                    &place(one_char(text, at)),
                    "what stands here does not fit inside it",
                )
            }
            _ => layout(text, at, line, kind, place),
        },
    }
}

fn is_about_brackets(kind: &ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::InvalidColonPlacement
            | ErrorKind::UnexpectedEofFlowSequence
            | ErrorKind::UnexpectedEofFlowMapping
            | ErrorKind::UnexpectedEofImplicitFlowMapping
            | ErrorKind::ExpectedFlowMappingSeparator
            | ErrorKind::ExpectedFlowSequenceSeparator
            | ErrorKind::BlockEntryInFlowCollection
            | ErrorKind::InvalidFlowScalarIndent
    )
}

/// Explains lines whose indentation does not match the lines around them.
fn layout(
    text: &str,
    at: usize,
    line: Range<usize>,
    kind: &ErrorKind,
    place: impl Fn(Range<usize>) -> Place,
) -> Mistake {
    let code = &text[line.clone()];
    match kind {
        ErrorKind::MappingValueNotAllowed | ErrorKind::InvalidColonPlacement => {
            let before = text.get(line.start..at).unwrap_or("");
            if before.contains(": ") {
                Mistake::new("a second `: ` in one value")
                    .at(&place(one_char(text, at)), "read as the end of a key")
                    .help("put the value in quotes if the colon belongs to it")
            } else {
                Mistake::new("this line is indented as if it belonged to the value above")
                    .at(&place(line), "indented too deep")
                    .help("give it the same indent as the keys beside it")
            }
        }
        ErrorKind::SimpleKeyExpected | ErrorKind::InvalidSimpleKey => match code.find(':') {
            Some(colon) if !code[colon + 1..].is_empty() => {
                let colon = line.start + colon;
                Mistake::new("a key without a space after its colon")
                    .at(&place(line), "read as one word")
                    .help("write")
                    .replace(&place(colon..colon + 1), ": ")
            }
            _ => Mistake::new("a key without its colon")
                .at(&place(line), "expected `key: value`")
                .help("write a `:` after the key, or indent the line as a part of the value above"),
        },
        ErrorKind::ExpectedBlockMappingKey
        | ErrorKind::ExpectedBlockSequenceEntry
        | ErrorKind::InvalidIndentation
        | ErrorKind::BlockSequenceEntryNotAllowed
        | ErrorKind::ExpectedDocumentStart
        | ErrorKind::InvalidBlockScalarIndent => Mistake::new("this line does not fit the lines above")
            .at(&place(line), "neither beside nor under what stands above")
            .help("indent it exactly as the lines it belongs to; a list and keys cannot stand side by side"),
        kind => Mistake::new(format!("not YAML: {kind}")).at(&place(one_char(text, at)), "stopped here"),
    }
}

fn tab(text: &str, at: usize, place: impl Fn(Range<usize>) -> Place) -> Mistake {
    let tabs = indenting_tab(text, at).unwrap_or_else(|| one_char(text, at));
    Mistake::new("a tab is used to indent")
        .at(&place(tabs), "a tab")
        .help("indent with spaces")
}

/// The first tabs at the beginning of a line, from the line of `at` on.
fn indenting_tab(text: &str, at: usize) -> Option<Range<usize>> {
    let mut start = text[..at].rfind('\n').map_or(0, |found| found + 1);
    for line in text[start..].split_inclusive('\n') {
        let head = line.len() - line.trim_start_matches([' ', '\t']).len();
        if let Some(tab) = line[..head].find('\t') {
            let count = line[tab..head].bytes().take_while(|byte| *byte == b'\t').count();
            return Some(start + tab..start + tab + count);
        }
        start += line.len();
    }
    None
}

/// The quote that is still open at `at`; skips comments and closed texts.
fn open_quote(text: &str, from: usize, at: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut i = from;
    while i < at {
        match bytes[i] {
            b'#' if i == 0 || bytes[i - 1].is_ascii_whitespace() => {
                i += text[i..].find('\n').unwrap_or(text.len() - i);
            }
            quote @ (b'"' | b'\'') if i == 0 || b" \t\n\r[{,:-".contains(&bytes[i - 1]) => {
                let mut end = i + 1;
                while end < at && bytes[end] != quote {
                    end += if quote == b'"' && bytes[end] == b'\\' {
                        2
                    } else {
                        1
                    };
                }
                if end >= at {
                    return Some(i);
                }
                i = end + 1;
            }
            _ => i += 1,
        }
    }
    None
}

/// The range of the character at a byte; empty at a line break and at the end of the text.
fn one_char(text: &str, at: usize) -> Range<usize> {
    match text[at..].chars().next() {
        Some(c) if c != '\n' && c != '\r' => at..at + c.len_utf8(),
        _ => at..at,
    }
}

/// The text of the line around a byte, without indentation and comment.
fn code_on_line(text: &str, at: usize) -> Range<usize> {
    let start = text[..at].rfind('\n').map_or(0, |found| found + 1);
    let line = text[start..].split(['\n', '\r']).next().unwrap_or("");
    let code = line
        .find(" #")
        .map_or(line, |comment| &line[..comment])
        .trim_end();
    let indent = code.len() - code.trim_start().len();
    start + indent..start + code.len()
}
