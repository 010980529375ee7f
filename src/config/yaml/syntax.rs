//! Explains syntax errors in our own words, at the place to fix: an open bracket or quote is shown where it
//! opens, although the parser notices it lines later.

use std::ops::Range;

use granit_parser::{ErrorKind, ScanError};

use super::diagnostic::Diagnostic;
use super::source::SourceSpan;
use super::suggest::nearest_name;

/// State of the parser at its error.
pub(super) struct ParserState<'t> {
    /// The text without a byte order mark.
    pub(crate) text: &'t str,
    /// End of the last event.
    pub(crate) last_event_end: usize,
    /// The innermost open bracket.
    pub(crate) bracket: Option<Range<usize>>,
    /// Names of the anchors so far.
    pub(crate) anchors: &'t [String],
}

/// Converts the parser's error.
pub(super) fn syntax_diagnostic(
    stop: &ParserState<'_>,
    error: &ScanError,
    place: impl Fn(Range<usize>) -> SourceSpan,
) -> Diagnostic {
    let text = stop.text;
    let mut offset = error.marker().byte_offset().unwrap_or(text.len()).min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let line = code_on_line(text, offset);
    let unclosed = |open: Range<usize>, name: char| {
        let close = if name == '[' { ']' } else { '}' };
        let diagnostic = Diagnostic::new(format!("the bracket `{name}` is never closed"))
            .with_place(&place(open.clone()), "opened here");
        if let Some(variable) = unquoted_variable(text, open.start) {
            let written = text[variable.clone()].to_owned();
            return Diagnostic::new(format!("`{written}` is inside brackets, so it must be in quotes"))
                .with_place(
                    &place(variable.clone()),
                    "the `{` of this text is read as a bracket of YAML",
                )
                .with_help("write")
                .with_replacement(&place(variable), format!("\"{written}\""));
        }
        diagnostic.with_help(format!("add a `{close}` where the list or map ends"))
    };
    match error.kind() {
        ErrorKind::UnclosedFlowCollection { open } => unclosed(one_char(text, offset), *open),
        ErrorKind::MismatchedFlowCollectionEnd { open, close } => {
            let closing_bracket = if *open == '[' { ']' } else { '}' };
            let wrong = text[offset..]
                .find(*close)
                .map_or(offset, |newline| offset + newline);
            Diagnostic::new(format!("the bracket `{open}` is closed by `{close}`"))
                .with_place(
                    &place(wrong..wrong + close.len_utf8()),
                    format!("expected `{closing_bracket}`"),
                )
                .with_secondary(&place(one_char(text, offset)), "opened here")
        }
        ErrorKind::InvalidQuotedScalarIndent
        | ErrorKind::UnclosedQuotedScalar
        | ErrorKind::DocumentIndicatorInQuotedScalar => {
            let open = open_quote(text, stop.last_event_end.min(offset), offset)
                .map_or(offset..offset, |open| open..open + 1);
            Diagnostic::new("a quoted text is never closed")
                .with_place(&place(open), "opened here")
                .with_help("close the text on the same line with the same quote")
        }
        ErrorKind::TabInIndentation | ErrorKind::TabInBlockIndentation | ErrorKind::TabNotAllowed => {
            tab_error(text, offset, place)
        }
        ErrorKind::TabInPlainScalar if indenting_tab(text, offset).is_some() => {
            tab_error(text, offset, place)
        }
        ErrorKind::UnknownAnchor => {
            let name: String = text[offset..]
                .chars()
                .skip(1)
                .take_while(|c| !c.is_whitespace() && !",]}".contains(*c))
                .collect();
            let alias = place(offset..offset + 1 + name.len());
            let diagnostic = Diagnostic::new(format!("the alias `*{name}` refers to no anchor"))
                .with_place(&alias, format!("there is no anchor `&{name}` above this line"));
            match nearest_name(&name, stop.anchors.iter().map(String::as_str)) {
                Some(near) => diagnostic
                    .with_help("did you mean")
                    .with_replacement(&alias, format!("*{near}")),
                None => diagnostic.with_help("put the text in quotes if the `*` belongs to the text"),
            }
        }
        ErrorKind::UnexpectedCharacter { character } => {
            Diagnostic::new(format!("a value cannot begin with `{character}`"))
                .with_place(&place(one_char(text, offset)), "reserved in YAML")
                .with_help("put the value in quotes")
        }
        ErrorKind::UnknownQuotedScalarEscape => {
            Diagnostic::new("this text in double quotes has an unknown escape sequence")
                .with_place(
                    &place(one_char(text, offset)),
                    "the text that begins here contains the escape sequence",
                )
                .with_help("write `\\\\` for a backslash, or use single quotes")
        }
        kind => match &stop.bracket {
            Some(open) if is_about_brackets(kind) => {
                unclosed(open.clone(), text[open.start..].chars().next().unwrap_or('[')).with_secondary(
                    &place(one_char(text, offset)),
                    "the bracket must be closed before this character",
                )
            }
            _ => layout_error(text, offset, line, kind, place),
        },
    }
}

/// The first `${NAME}` without quotes after a bracket, on its line.
fn unquoted_variable(text: &str, bracket: usize) -> Option<Range<usize>> {
    let line = text.get(bracket..)?.lines().next()?;
    let (mut in_single, mut in_double) = (false, false);
    for (at, letter) in line.char_indices() {
        match letter {
            '\'' if !in_double => in_single = !in_single,
            '"' if !in_single => in_double = !in_double,
            '$' if !in_single && !in_double && line[at + 1..].starts_with('{') => {
                let end = at + line[at..].find('}')? + 1;
                return Some(bracket + at..bracket + end);
            }
            _ => {}
        }
    }
    None
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
fn layout_error(
    text: &str,
    offset: usize,
    line: Range<usize>,
    kind: &ErrorKind,
    place: impl Fn(Range<usize>) -> SourceSpan,
) -> Diagnostic {
    let code = &text[line.clone()];
    match kind {
        ErrorKind::MappingValueNotAllowed | ErrorKind::InvalidColonPlacement => {
            let before = text.get(line.start..offset).unwrap_or("");
            if before.contains(": ") {
                Diagnostic::new("a second `: ` in one value")
                    .with_place(&place(one_char(text, offset)), "this colon is read as the end of a key")
                    .with_help("put the value in quotes if the colon belongs to the value")
            } else {
                Diagnostic::new("this line is indented as if it belonged to the value above")
                    .with_place(&place(line), "indented too deep")
                    .with_help("indent this line like the other keys of the same map")
            }
        }
        ErrorKind::SimpleKeyExpected | ErrorKind::InvalidSimpleKey => match code.find(':') {
            Some(colon) if !code[colon + 1..].is_empty() => {
                let colon = line.start + colon;
                Diagnostic::new("this key has no space after its colon")
                    .with_place(&place(line), "read as one word")
                    .with_help("write")
                    .with_replacement(&place(colon..colon + 1), ": ")
            }
            _ => Diagnostic::new("a key without a colon")
                .with_place(&place(line), "expected `key: value`")
                .with_help("write a `:` after the key, or indent the line as part of the value above"),
        },
        ErrorKind::ExpectedBlockMappingKey
        | ErrorKind::ExpectedBlockSequenceEntry
        | ErrorKind::InvalidIndentation
        | ErrorKind::BlockSequenceEntryNotAllowed
        | ErrorKind::ExpectedDocumentStart
        | ErrorKind::InvalidBlockScalarIndent => Diagnostic::new(
            "this line cannot continue the list or map above it",
        )
        .with_place(&place(line), "the indentation is wrong, or list items are mixed with keys")
        .with_help(
            "indent this line exactly like the other lines of its list or map, and do not mix list items with keys",
        ),
        kind => Diagnostic::new(format!("invalid YAML: {kind}"))
            .with_place(&place(one_char(text, offset)), "stopped here"),
    }
}

fn tab_error(text: &str, offset: usize, place: impl Fn(Range<usize>) -> SourceSpan) -> Diagnostic {
    let tabs = indenting_tab(text, offset).unwrap_or_else(|| one_char(text, offset));
    Diagnostic::new("this line is indented with a tab")
        .with_place(&place(tabs), "a tab")
        .with_help("indent with spaces")
}

/// The first tabs at the beginning of a line, from the line of `at` on.
fn indenting_tab(text: &str, offset: usize) -> Option<Range<usize>> {
    let mut start = text[..offset].rfind('\n').map_or(0, |newline| newline + 1);
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
fn open_quote(text: &str, from: usize, offset: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut i = from;
    while i < offset {
        match bytes[i] {
            b'#' if i == 0 || bytes[i - 1].is_ascii_whitespace() => {
                i += text[i..].find('\n').unwrap_or(text.len() - i);
            }
            quote @ (b'"' | b'\'') if i == 0 || b" \t\n\r[{,:-".contains(&bytes[i - 1]) => {
                let mut end = i + 1;
                while end < offset && bytes[end] != quote {
                    end += if quote == b'"' && bytes[end] == b'\\' {
                        2
                    } else {
                        1
                    };
                }
                if end >= offset {
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
fn one_char(text: &str, offset: usize) -> Range<usize> {
    match text[offset..].chars().next() {
        Some(c) if c != '\n' && c != '\r' => offset..offset + c.len_utf8(),
        _ => offset..offset,
    }
}

/// The text of the line around a byte, without indentation and comment.
fn code_on_line(text: &str, offset: usize) -> Range<usize> {
    let start = text[..offset].rfind('\n').map_or(0, |newline| newline + 1);
    let line = text[start..].split(['\n', '\r']).next().unwrap_or("");
    let code = line
        .find(" #")
        .map_or(line, |comment| &line[..comment])
        .trim_end();
    let indent = code.len() - code.trim_start().len();
    start + indent..start + code.len()
}
