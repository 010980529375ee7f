//! One mistake in what people wrote, before it is drawn.

use super::Place;

/// One mistake: what is wrong, where, how to mend it.
#[derive(Clone, Debug, PartialEq)]
pub struct Mistake {
    /// What is wrong, in one lower-case sentence without a full stop.
    pub message: String,
    /// Where it is wrong.
    pub place: Option<Place>,
    /// What stands beside the caret.
    pub label: String,
    /// Other places that matter, each with its label.
    pub also: Vec<(Place, String)>,
    pub notes: Vec<String>,
    /// How to mend it.
    pub help: Option<String>,
    /// A replacement, drawn as the line it would give.
    pub patch: Option<(Place, String)>,
    /// Whether what stands at the place must not be shown: a secret that somebody wrote down.
    pub hides: bool,
}

impl Mistake {
    /// A mistake without a place yet.
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

    /// Says where it is and what to write beside the caret.
    pub(crate) fn at(mut self, place: &Place, label: impl Into<String>) -> Self {
        self.place = Some(place.clone());
        self.label = label.into();
        self
    }

    /// Shows one more place.
    pub(crate) fn also(mut self, place: &Place, label: impl Into<String>) -> Self {
        self.also.push((place.clone(), label.into()));
        self
    }

    /// Adds a fact that explains.
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Says how to mend it.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Shows what the line would look like with `with` in this place.
    pub(crate) fn replace(mut self, place: &Place, with: impl Into<String>) -> Self {
        self.patch = Some((place.clone(), with.into()));
        self
    }

    /// Keeps what stands at the place from being shown.
    pub(crate) fn hide(mut self) -> Self {
        self.hides = true;
        self
    }
}
