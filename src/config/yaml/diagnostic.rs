//! One error in a file, before it is drawn.

use super::Place;

/// One error: what is wrong, where, and how to fix it.
#[derive(Clone, Debug, PartialEq)]
pub struct Mistake {
    /// What is wrong, in one lower-case sentence without a full stop.
    pub message: String,
    pub place: Option<Place>,
    /// Text beside the caret.
    pub label: String,
    /// Other relevant places, each with a label.
    pub also: Vec<(Place, String)>,
    pub notes: Vec<String>,
    /// How to fix it.
    pub help: Option<String>,
    /// A replacement, drawn as the resulting line.
    pub patch: Option<(Place, String)>,
    /// Whether the text at the place must not be shown, because it is a secret.
    pub hides: bool,
}

impl Mistake {
    /// Creates an error without a place.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            place: None,
            label: String::new(),
            also: Vec::new(),
            notes: Vec::new(),
            help: None,
            patch: None,
            hides: false,
        }
    }

    /// Sets the place and the text beside the caret.
    pub(crate) fn at(mut self, place: &Place, label: impl Into<String>) -> Self {
        self.place = Some(place.clone());
        self.label = label.into();
        self
    }

    /// Adds another place.
    pub(crate) fn also(mut self, place: &Place, label: impl Into<String>) -> Self {
        self.also.push((place.clone(), label.into()));
        self
    }

    /// Adds an explanation.
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Sets the fix.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Shows the line with `with` at this place.
    pub(crate) fn replace(mut self, place: &Place, with: impl Into<String>) -> Self {
        self.patch = Some((place.clone(), with.into()));
        self
    }

    /// Hides the text at the place.
    pub(crate) fn hide(mut self) -> Self {
        self.hides = true;
        self
    }
}
