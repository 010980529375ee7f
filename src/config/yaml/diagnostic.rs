//! One error in a file, before it is drawn.

use super::source::SourceSpan;

/// One error: what is wrong, where, and how to fix it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Diagnostic {
    /// What is wrong, in one lower-case sentence without a full stop.
    pub(crate) message: String,
    pub(crate) place: Option<SourceSpan>,
    /// Text beside the caret.
    pub(crate) label: String,
    /// Other relevant places, each with a label.
    pub(crate) secondary: Vec<(SourceSpan, String)>,
    pub(crate) notes: Vec<String>,
    /// How to fix it.
    pub(crate) help: Option<String>,
    /// A replacement, drawn as the resulting line.
    pub(crate) replacement: Option<(SourceSpan, String)>,
    /// Whether the text at the place must not be shown, because it is a secret.
    pub(crate) hides_source: bool,
}

impl Diagnostic {
    /// Creates an error without a place.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            place: None,
            label: String::new(),
            secondary: Vec::new(),
            notes: Vec::new(),
            help: None,
            replacement: None,
            hides_source: false,
        }
    }

    /// Sets the place and the text beside the caret.
    pub(crate) fn with_place(mut self, place: &SourceSpan, label: impl Into<String>) -> Self {
        self.place = Some(place.clone());
        self.label = label.into();
        self
    }

    pub(crate) fn with_secondary(mut self, place: &SourceSpan, label: impl Into<String>) -> Self {
        self.secondary.push((place.clone(), label.into()));
        self
    }

    pub(crate) fn with_note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Shows the line with `with` at this place.
    pub(crate) fn with_replacement(mut self, place: &SourceSpan, with: impl Into<String>) -> Self {
        self.replacement = Some((place.clone(), with.into()));
        self
    }

    /// Hides the text at the place.
    pub(crate) fn with_hidden_source(mut self) -> Self {
        self.hides_source = true;
        self
    }
}
