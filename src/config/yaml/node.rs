//! Parses YAML text to a tree of nodes with places. The only file that uses the parser.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, StructureStyle, Tag, options};

use super::syntax::{Stop, explain};
use super::{Mistake, Place, Source, scalar};
use crate::base::secrets::secrets_in_urls;

/// Largest nesting depth of lists and maps, including aliases.
pub(super) const DEPTH: usize = 64;

/// A written value, shared by all aliases of it.
#[derive(Debug)]
pub(super) struct Node {
    /// Range to underline: the scalar, a list or map on one line, otherwise its first line.
    pub mark: Range<usize>,
    /// Number of levels below it, including aliases.
    pub height: usize,
    pub value: Value,
}

/// A scalar stays text, because only the requested type decides its meaning.
#[derive(Debug)]
pub(super) enum Value {
    Scalar { text: String, plain: bool },
    List(Vec<Child>),
    Map(Vec<(Child, Child)>),
}

/// A node at one place of use.
#[derive(Clone, Debug)]
pub(super) struct Child {
    pub node: Rc<Node>,
    /// The alias by which it is used here.
    pub via: Option<Range<usize>>,
}

impl Child {
    /// The text of a scalar.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.node.value {
            Value::Scalar { text, .. } => Some(text),
            Value::List(_) | Value::Map(_) => None,
        }
    }

    /// Whether the value is empty or null.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.node.value, Value::Scalar { text, plain: true } if scalar::is_null(text))
    }
}

/// A list or map that is not closed yet.
struct Open {
    is_map: bool,
    in_brackets: bool,
    anchor: usize,
    start: Range<usize>,
    children: Vec<Child>,
}

/// A document, with the errors that do not depend on the meaning of values.
pub(super) struct Document {
    pub root: Child,
    pub mistakes: Vec<Mistake>,
}

pub(super) fn parse(source: &Source) -> Result<Document, Box<Mistake>> {
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
        open: Vec::new(),
        anchors: HashMap::new(),
        names: Vec::new(),
        root: None,
        mistakes: Vec::new(),
        documents: 0,
        after: 0,
    };
    for event in Parser::new_from_str_with_options(text, options! { emit_anchor_events: true }) {
        match event {
            Ok((event, span)) => {
                let range = span.byte_range().unwrap_or(builder.after..builder.after);
                let end = range.end;
                builder.take(event, &span, range)?;
                builder.after = builder.after.max(end);
            }
            Err(error) => return Err(Box::new(builder.broken(&error))),
        }
    }
    match builder.root {
        Some(root) => Ok(Document {
            root,
            mistakes: builder.mistakes,
        }),
        None => Err(Box::new(builder.empty())),
    }
}

struct Builder<'t> {
    text: &'t str,
    /// Bytes cut from the beginning of the text; places include them.
    bom: usize,
    file: Arc<str>,
    open: Vec<Open>,
    anchors: HashMap<usize, Rc<Node>>,
    /// Names of anchors, to suggest the nearest one.
    names: Vec<String>,
    root: Option<Child>,
    mistakes: Vec<Mistake>,
    documents: usize,
    /// End of the last event.
    after: usize,
}

impl Builder<'_> {
    fn take(&mut self, event: Event<'_>, span: &Span, range: Range<usize>) -> Result<(), Box<Mistake>> {
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    let at = self.line_at(range.start);
                    return Err(Box::new(Mistake::new("a second document starts here")
                        .at(&self.place(at), "second document")
                        .help("one file holds one document: remove the `---`, or move the rest to a file of its own")));
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
                    return Err(Box::new(Mistake::new("this line is read as a part of the value above")
                        .at(&place, "indented too deep for a list of its own")
                        .help(
                            "give its `-` the same indent as the `-` above, or put the value above in quotes",
                        )));
                }
                // The parser returns `~` for an empty value.
                let text = if plain && range.is_empty() {
                    String::new()
                } else {
                    text.into_owned()
                };
                let mark = self.shift(mark);
                if !secrets_in_urls(&text).is_empty() {
                    let mistake = self.written_secret(mark.clone());
                    self.mistakes.push(mistake);
                }
                let value = Value::Scalar { text, plain };
                let node = Node {
                    mark,
                    height: 0,
                    value,
                };
                self.put(Rc::new(node), anchor, None)?;
            }
            Event::SequenceStart(style, anchor, tag) => {
                self.opened(false, style, anchor, tag.as_deref(), span, range)?
            }
            Event::MappingStart(style, anchor, tag) => {
                self.opened(true, style, anchor, tag.as_deref(), span, range)?
            }
            Event::SequenceEnd | Event::MappingEnd => self.closed(range)?,
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                Some(node) => {
                    let node = Rc::clone(node);
                    let via = Some(self.shift(range));
                    self.put(node, 0, via)?;
                }
                None => {
                    let name = &self.text[range.clone()];
                    return Err(Box::new(
                        Mistake::new(format!("`{name}` is used inside the very value it names"))
                            .at(&self.place(range), "this would never end"),
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
    fn written_secret(&self, range: Range<usize>) -> Mistake {
        let place = Place {
            file: self.file.clone(),
            range,
        };
        Mistake::new("a URL holds a password or key, which looks like a secret, and would be written down")
            .at(&place, "a secret is named, never written")
            .hide()
            .help("export it as an environment variable and name that in `args`, `env` or `headers`, as in `${PASSWORD}`")
    }

    fn opened(
        &mut self,
        is_map: bool,
        style: StructureStyle,
        anchor: usize,
        tag: Option<&Tag>,
        span: &Span,
        range: Range<usize>,
    ) -> Result<(), Box<Mistake>> {
        self.is_text(tag, span)?;
        if self.open.len() >= DEPTH {
            return Err(Box::new(
                Mistake::new(format!("lists and maps nest deeper than {DEPTH} levels"))
                    .at(&self.place(self.one_line(range)), "too deep"),
            ));
        }
        let in_brackets = style == StructureStyle::Flow;
        self.open.push(Open {
            is_map,
            in_brackets,
            anchor,
            start: range,
            children: Vec::new(),
        });
        Ok(())
    }

    fn closed(&mut self, range: Range<usize>) -> Result<(), Box<Mistake>> {
        let Some(open) = self.open.pop() else {
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
        if height > DEPTH {
            let place = Place {
                file: self.file.clone(),
                range: mark,
            };
            return Err(Box::new(Self::too_deep(&place)));
        }
        let value = if open.is_map {
            let mut entries = Vec::with_capacity(open.children.len() / 2);
            let mut children = open.children.into_iter();
            while let (Some(key), Some(value)) = (children.next(), children.next()) {
                if !matches!(key.node.value, Value::Scalar { .. }) {
                    let place = Place {
                        file: self.file.clone(),
                        range: key.node.mark.clone(),
                    };
                    return Err(Box::new(
                        Mistake::new("a key must be one word or text, not a list or a map")
                            .at(&place, "used as a key")
                            .help("a template such as `{name}` at the start of a value needs quotes"),
                    ));
                }
                entries.push((key, value));
            }
            Value::Map(entries)
        } else {
            Value::List(open.children)
        };
        self.put(Rc::new(Node { mark, height, value }), open.anchor, None)
    }

    fn put(&mut self, node: Rc<Node>, anchor: usize, via: Option<Range<usize>>) -> Result<(), Box<Mistake>> {
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        let child = Child { node, via };
        match self.open.last_mut() {
            Some(open) => open.children.push(child),
            None => {
                if matches!(&child.node.value, Value::Scalar { text, plain: true } if text.is_empty()) {
                    return Err(Box::new(self.empty()));
                }
                self.root = Some(child);
            }
        }
        Ok(())
    }

    /// Whether a tag makes the scalar a text; other tags are refused.
    fn is_text(&self, tag: Option<&Tag>, span: &Span) -> Result<bool, Box<Mistake>> {
        let Some(tag) = tag else { return Ok(false) };
        match tag.core_suffix() {
            Some(suffix) => Ok(suffix == "str"),
            None => {
                let range = span.tag_span().and_then(|span| span.byte_range()).unwrap_or(0..0);
                Err(Box::new(
                    Mistake::new(format!("the tag `{}` is not understood", tag.original()))
                        .at(&self.place(range), "not understood")
                        .help("leave it out, or put the value in quotes if `!` belongs to it"),
                ))
            }
        }
    }

    fn too_deep(place: &Place) -> Mistake {
        Mistake::new(format!(
            "lists and maps nest deeper than {DEPTH} levels, aliases followed"
        ))
        .at(place, "too deep")
        .help("write it flatter")
    }

    fn empty(&self) -> Mistake {
        Mistake::new("the file is empty").at(&self.place(0..0), "nothing is written here")
    }

    fn broken(&self, error: &ScanError) -> Mistake {
        let bracket = self
            .open
            .iter()
            .rev()
            .find(|open| open.in_brackets)
            .map(|open| open.start.clone());
        let stop = Stop {
            text: self.text,
            after: self.after,
            bracket,
            anchors: &self.names,
        };
        explain(&stop, error, |range| self.place(range))
    }

    fn place(&self, range: Range<usize>) -> Place {
        Place {
            file: self.file.clone(),
            range: self.shift(range),
        }
    }

    fn shift(&self, range: Range<usize>) -> Range<usize> {
        range.start + self.bom..range.end + self.bom
    }

    /// The line that contains a byte, without its line break.
    fn line_at(&self, at: usize) -> Range<usize> {
        let start = self.text[..at].rfind('\n').map_or(0, |found| found + 1);
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
