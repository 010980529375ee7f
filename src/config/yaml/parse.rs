//! Parses YAML text to a tree of nodes. Only this file and `syntax` use the parser.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, StructureStyle, Tag, options};

use super::diagnostic::Diagnostic;
use super::node::{Child, MAX_DEPTH, Node, Value};
use super::shorthand;
use super::source::{Source, SourceSpan};
use super::syntax::{ParserState, syntax_diagnostic};
use crate::base::secrets::url_secret_ranges;

/// A list or map that is not closed yet.
struct OpenCollection {
    is_map: bool,
    in_brackets: bool,
    anchor: usize,
    start: Range<usize>,
    children: Vec<Child>,
}

/// A document, with the errors that do not depend on the meaning of values.
pub(super) struct Document {
    pub(crate) root: Child,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

pub(super) fn parse(source: &Source) -> Result<Document, Box<Diagnostic>> {
    let bom = if source.text.starts_with('\u{feff}') {
        '\u{feff}'.len_utf8()
    } else {
        0
    };
    let text = &source.text[bom..];
    let mut builder = Builder {
        text,
        bom,
        file: source.name.as_str().into(),
        open_collections: Vec::new(),
        anchors: HashMap::new(),
        names: Vec::new(),
        root: None,
        diagnostics: Vec::new(),
        documents: 0,
        last_event_end: 0,
    };
    for event in Parser::new_from_str_with_options(text, options! { emit_anchor_events: true }) {
        match event {
            Ok((event, span)) => {
                let range = span
                    .byte_range()
                    .unwrap_or(builder.last_event_end..builder.last_event_end);
                let end = range.end;
                builder.handle_event(event, &span, range)?;
                builder.last_event_end = builder.last_event_end.max(end);
            }
            Err(error) => return Err(Box::new(builder.syntax_error(&error))),
        }
    }
    match builder.root {
        Some(root) => Ok(Document {
            root,
            diagnostics: builder.diagnostics,
        }),
        None => Err(Box::new(builder.empty_error())),
    }
}

struct Builder<'t> {
    text: &'t str,
    /// Bytes cut from the beginning of the text; places include them.
    bom: usize,
    file: Arc<str>,
    open_collections: Vec<OpenCollection>,
    anchors: HashMap<usize, Rc<Node>>,
    /// Names of anchors, to suggest the nearest one.
    names: Vec<String>,
    root: Option<Child>,
    diagnostics: Vec<Diagnostic>,
    documents: usize,
    /// End of the last event.
    last_event_end: usize,
}

impl Builder<'_> {
    fn handle_event(
        &mut self,
        event: Event<'_>,
        span: &Span,
        range: Range<usize>,
    ) -> Result<(), Box<Diagnostic>> {
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    let at = self.line_at(range.start);
                    return Err(Box::new(Diagnostic::new("a second document starts here")
                        .with_place(&self.place(at), "second document")
                        .with_help("a file may contain only one document: remove the `---`, or move the second document to another file")));
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain && !self.is_text(tag.as_deref(), span)?;
                let mark = if style == ScalarStyle::Literal || style == ScalarStyle::Folded {
                    self.first_line(range.clone())
                } else {
                    self.one_line(range.clone())
                };
                if style == ScalarStyle::Plain
                    && let Some(dash) = swallowed_dash(&self.text[range.clone()])
                {
                    let place = self.place(self.first_line(range.start + dash..range.end));
                    return Err(Box::new(Diagnostic::new("this line is read as part of the value above")
                        .with_place(&place, "indented too deep for a new list item")
                        .with_help(
                            "indent the `-` of this line like the `-` above; if this line continues the text above, put that whole text in quotes",
                        )));
                }
                // The parser returns `~` for an empty value.
                let text = if plain && range.is_empty() {
                    String::new()
                } else {
                    text.into_owned()
                };
                let mark = self.shift(mark);
                if !url_secret_ranges(&text).is_empty() {
                    let diagnostic = self.plaintext_secret(mark.clone());
                    self.diagnostics.push(diagnostic);
                }
                let value = Value::Scalar { text, plain };
                let node = Node {
                    mark,
                    height: 0,
                    value,
                };
                self.add_node(Rc::new(node), anchor, None)?;
            }
            Event::SequenceStart(style, anchor, tag) => {
                self.open_collection(false, style, anchor, tag.as_deref(), span, range)?
            }
            Event::MappingStart(style, anchor, tag) => {
                self.open_collection(true, style, anchor, tag.as_deref(), span, range)?
            }
            Event::SequenceEnd | Event::MappingEnd => self.close_collection(range)?,
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                Some(node) => {
                    let node = Rc::clone(node);
                    let via = Some(self.shift(range));
                    self.add_node(node, 0, via)?;
                }
                None => {
                    let name = &self.text[range.clone()];
                    return Err(Box::new(
                        Diagnostic::new(format!(
                            "the alias `{name}` is used inside the value that it refers to"
                        ))
                        .with_place(&self.place(range), "endless recursion"),
                    ));
                }
            },
            Event::Anchor(_, name) => self.names.push(name.into_owned()),
            _ => {}
        }
        Ok(())
    }

    /// The error for a URL with a password. It is reported under any key, because the matrix and its recipes
    /// are copied into every run.
    fn plaintext_secret(&self, range: Range<usize>) -> Diagnostic {
        let place = SourceSpan {
            file: self.file.clone(),
            range,
        };
        Diagnostic::new("a URL contains what looks like a password or key, which would be stored with the results")
            .with_place(&place, "use an environment variable")
            .with_hidden_source()
            .with_help("export the secret as an environment variable, and refer to it in `args`, `env` or `headers`, as in `${PASSWORD}`")
    }

    fn open_collection(
        &mut self,
        is_map: bool,
        style: StructureStyle,
        anchor: usize,
        tag: Option<&Tag>,
        span: &Span,
        range: Range<usize>,
    ) -> Result<(), Box<Diagnostic>> {
        self.is_text(tag, span)?;
        if self.open_collections.len() >= MAX_DEPTH {
            return Err(Box::new(
                Diagnostic::new(format!(
                    "lists and maps are nested deeper than {MAX_DEPTH} levels"
                ))
                .with_place(&self.place(self.one_line(range)), "too deep"),
            ));
        }
        let in_brackets = style == StructureStyle::Flow;
        self.open_collections.push(OpenCollection {
            is_map,
            in_brackets,
            anchor,
            start: range,
            children: Vec::new(),
        });
        Ok(())
    }

    fn close_collection(&mut self, range: Range<usize>) -> Result<(), Box<Diagnostic>> {
        let Some(open) = self.open_collections.pop() else {
            return Ok(());
        };
        let whole = open.start.start..range.end.max(open.start.end);
        let first = open.children.first().filter(|_| open.is_map && !open.in_brackets);
        let mark = match first {
            Some(key) => key.node.mark.clone(),
            None if open.in_brackets => self.shift(self.one_line(whole)),
            None => self.shift(self.first_line(whole)),
        };
        let height = 1 + open
            .children
            .iter()
            .map(|child| child.node.height)
            .max()
            .unwrap_or(0);
        if height > MAX_DEPTH {
            let place = SourceSpan {
                file: self.file.clone(),
                range: mark,
            };
            return Err(Box::new(Self::too_deep_error(&place)));
        }
        let value = if open.is_map {
            let mut entries = Vec::with_capacity(open.children.len() / 2);
            let mut children = open.children.into_iter();
            while let (Some(key), Some(value)) = (children.next(), children.next()) {
                if !matches!(key.node.value, Value::Scalar { .. }) {
                    let place = SourceSpan {
                        file: self.file.clone(),
                        range: key.node.mark.clone(),
                    };
                    return Err(Box::new(
                        Diagnostic::new("a key must be a text, not a list or a map")
                            .with_place(&place, "used as a key")
                            .with_help("a template such as `{name}` at the start of a value needs quotes"),
                    ));
                }
                let value = shorthand::expand(&key, value);
                entries.push((key, value));
            }
            Value::Map(entries)
        } else {
            Value::List(open.children)
        };
        self.add_node(Rc::new(Node { mark, height, value }), open.anchor, None)
    }

    fn add_node(
        &mut self,
        node: Rc<Node>,
        anchor: usize,
        via: Option<Range<usize>>,
    ) -> Result<(), Box<Diagnostic>> {
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        let child = Child { node, alias: via };
        match self.open_collections.last_mut() {
            Some(open) => open.children.push(child),
            None => {
                if matches!(&child.node.value, Value::Scalar { text, plain: true } if text.is_empty()) {
                    return Err(Box::new(self.empty_error()));
                }
                self.root = Some(child);
            }
        }
        Ok(())
    }

    /// Whether a tag makes the scalar a text; other tags are refused.
    fn is_text(&self, tag: Option<&Tag>, span: &Span) -> Result<bool, Box<Diagnostic>> {
        let Some(tag) = tag else { return Ok(false) };
        match tag.core_suffix() {
            Some(suffix) => Ok(suffix == "str"),
            None => {
                let range = span.tag_span().and_then(|span| span.byte_range()).unwrap_or(0..0);
                Err(Box::new(
                    Diagnostic::new(format!("the tag `{}` is not supported", tag.original()))
                        .with_place(&self.place(range), "not supported")
                        .with_help(
                            "remove the tag, or put the value in quotes if the `!` belongs to the value",
                        ),
                ))
            }
        }
    }

    fn too_deep_error(place: &SourceSpan) -> Diagnostic {
        Diagnostic::new(format!(
            "lists and maps are nested deeper than {MAX_DEPTH} levels, including aliases"
        ))
        .with_place(place, "too deep")
        .with_help("reduce the nesting")
    }

    fn empty_error(&self) -> Diagnostic {
        Diagnostic::new("the file is empty").with_place(&self.place(0..0), "nothing is written here")
    }

    fn syntax_error(&self, error: &ScanError) -> Diagnostic {
        let bracket = self
            .open_collections
            .iter()
            .rev()
            .find(|open| open.in_brackets)
            .map(|open| open.start.clone());
        let stop = ParserState {
            text: self.text,
            last_event_end: self.last_event_end,
            bracket,
            anchors: &self.names,
        };
        syntax_diagnostic(&stop, error, |range| self.place(range))
    }

    fn place(&self, range: Range<usize>) -> SourceSpan {
        SourceSpan {
            file: self.file.clone(),
            range: self.shift(range),
        }
    }

    fn shift(&self, range: Range<usize>) -> Range<usize> {
        range.start + self.bom..range.end + self.bom
    }

    /// The line that contains a byte, without its line break.
    fn line_at(&self, offset: usize) -> Range<usize> {
        let start = self.text[..offset].rfind('\n').map_or(0, |newline| newline + 1);
        self.first_line(start..self.text.len())
    }

    /// The range itself, or its first line.
    fn one_line(&self, range: Range<usize>) -> Range<usize> {
        if self.text[range.clone()].trim_end().contains('\n') {
            self.first_line(range)
        } else {
            range
        }
    }

    /// The first line of the range, without trailing blanks and comment.
    fn first_line(&self, range: Range<usize>) -> Range<usize> {
        let line = self.text[range.start..].split(['\n', '\r']).next().unwrap_or("");
        let code = line.find(" #").map_or(line, |comment| &line[..comment]);
        range.start..range.start + code.trim_end().len()
    }
}

/// Position of a `- ` at the beginning of a continuation line of a plain text; it is almost always a list
/// item with wrong indentation.
fn swallowed_dash(spelled: &str) -> Option<usize> {
    let mut start = 0;
    for line in spelled.split_inclusive('\n') {
        let code = line.trim_start_matches([' ', '\t']);
        if start > 0 && code.starts_with("- ") {
            return Some(start + line.len() - code.len());
        }
        start += line.len();
    }
    None
}
