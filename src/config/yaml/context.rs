//! State of one reading besides the tree: current path, errors, and entries to leave out.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

use super::diagnostic::Diagnostic;
use super::node::{Child, MAX_DEPTH, Value};
use super::read_error::{ErrorState, PlacedError, ReadError, ReadErrorKind};
use super::scalar::{self, PlainScalar};
use super::source::{RenamedKey, SourceSpan};
use super::suggest::{backtick_list, nearest_name};
use crate::base::text::is_control;

/// Values read in one pass after which nested aliases count as endless.
const MAX_VISITS: usize = 1_000_000;
/// Passes after which the remaining errors are left for the next invocation.
const MAX_PASSES: usize = 100;

/// A step from a list or map to one of its values.
#[derive(Clone, Copy)]
pub(super) struct Step<'n> {
    pub(crate) index: usize,
    /// The key, in a map.
    pub(crate) key: Option<&'n Child>,
    /// The value; none if a name stands alone where a map is allowed.
    pub(crate) value: Option<&'n Child>,
    /// Whether the value cannot be left out alone, because it is the only entry of an enum's map.
    pub(crate) is_required: bool,
}

pub(super) struct YamlContext<'n> {
    file: Arc<str>,
    trail: RefCell<Vec<Step<'n>>>,
    /// Paths of entries that are not read any more, each with its key.
    omitted: RefCell<HashMap<Vec<usize>, Option<String>>>,
    diagnostics: RefCell<Vec<Diagnostic>>,
    reported: RefCell<HashSet<(usize, usize, String)>>,
    /// Keys with an earlier name, by position.
    renamed: RefCell<BTreeMap<usize, RenamedKey>>,
    visits: Cell<usize>,
    passes: Cell<usize>,
}

impl<'n> YamlContext<'n> {
    pub(super) fn new(file: &str) -> Self {
        Self {
            file: file.into(),
            trail: RefCell::default(),
            omitted: RefCell::default(),
            diagnostics: RefCell::default(),
            reported: RefCell::default(),
            renamed: RefCell::default(),
            visits: Cell::new(0),
            passes: Cell::new(0),
        }
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    pub(super) fn place(&self, range: &Range<usize>) -> SourceSpan {
        SourceSpan {
            file: self.file.clone(),
            range: range.clone(),
        }
    }

    pub(super) fn is_root(&self) -> bool {
        self.trail.borrow().is_empty()
    }

    /// Whether the value that is read is that of a key for which this holds.
    pub(super) fn is_value_of(&self, is_meant: impl Fn(&str) -> bool) -> bool {
        let trail = self.trail.borrow();
        let key = trail.iter().rev().find_map(|step| step.key.and_then(Child::text));
        key.is_some_and(is_meant)
    }

    /// Counts a value that is read.
    pub(super) fn visit(&self, child: &Child) -> Result<(), ReadError> {
        self.visits.set(self.visits.get() + 1);
        if self.visits.get() > MAX_VISITS {
            let range = child.alias.as_ref().unwrap_or(&child.node.mark);
            return Err(ReadError::fatal(
                Diagnostic::new(format!(
                    "the file has more than {MAX_VISITS} values after aliases are expanded"
                ))
                .with_place(&self.place(range), "limit reached here")
                .with_help("nested aliases multiply the number of values; write the values without aliases"),
            ));
        }
        Ok(())
    }

    /// Calls `f` one step deeper; its error gets the place there.
    pub(super) fn with_step<T>(
        &self,
        step: Step<'n>,
        f: impl FnOnce() -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let Some(node) = step.value.or(step.key) else {
            return f();
        };
        self.visit(node)?;
        if self.trail.borrow().len() > MAX_DEPTH {
            return Err(ReadError::fatal(
                Diagnostic::new(format!(
                    "lists and maps are nested deeper than {MAX_DEPTH} levels"
                ))
                .with_place(&self.place(&node.node.mark), "too deep"),
            ));
        }
        self.trail.borrow_mut().push(step);
        let result = f().map_err(|fault| self.locate_error(node, fault));
        self.trail.borrow_mut().pop();
        result
    }

    /// Whether the entry with this index of the current value is left out.
    pub(super) fn is_omitted(&self, index: usize) -> bool {
        let left_out = self.omitted.borrow();
        !left_out.is_empty() && left_out.contains_key(&self.path_to(index))
    }

    /// Records an error in an entry of the current map, and leaves the entry out from now on.
    pub(super) fn add_diagnostic(&self, diagnostic: Diagnostic, index: usize, stands_for: Option<String>) {
        let sameness = diagnostic.label.clone();
        self.omitted.borrow_mut().insert(self.path_to(index), stands_for);
        self.record_once(diagnostic, sameness);
    }

    /// Records a key with an earlier name.
    pub(super) fn add_renamed(&self, key: &'n Child, today: &'static str) {
        let place = self.place(&key.node.mark);
        let earlier = key.text().unwrap_or_default().to_owned();
        self.renamed.borrow_mut().insert(
            place.range.start,
            RenamedKey {
                place,
                old_name: earlier,
                new_name: today,
            },
        );
    }

    /// Keys with an earlier name, in the order of the file.
    pub(super) fn renamed(&self) -> Vec<RenamedKey> {
        self.renamed.borrow().values().cloned().collect()
    }

    fn path_to(&self, index: usize) -> Vec<usize> {
        self.trail
            .borrow()
            .iter()
            .map(|step| step.index)
            .chain([index])
            .collect()
    }

    fn record_once(&self, diagnostic: Diagnostic, sameness: String) {
        let range = diagnostic
            .place
            .as_ref()
            .map_or(0..0, |place| place.range.clone());
        if self
            .reported
            .borrow_mut()
            .insert((range.start, range.end, sameness))
        {
            self.diagnostics.borrow_mut().push(diagnostic);
        }
    }

    /// Records the error that ended a pass. Returns whether another pass may find more errors.
    pub(super) fn recover_from(&self, root: &'n Child, fault: ReadError) -> bool {
        let placed = match *self.locate_error(root, fault).0 {
            ErrorState::Placed(placed) => placed,
            ErrorState::Fatal(diagnostic) => {
                self.record_once(diagnostic, "fatal".to_owned());
                return false;
            }
            ErrorState::Unplaced(_) => return false,
        };
        let PlacedError {
            diagnostic,
            dedup_key: sameness,
            omitted_path: owner,
            omitted_key: stands_for,
            is_consequence: is_consequent,
        } = placed;
        if !is_consequent {
            self.record_once(diagnostic, sameness);
        }
        self.passes.set(self.passes.get() + 1);
        self.visits.set(0);
        self.trail.borrow_mut().clear();
        !owner.is_empty()
            && self.passes.get() < MAX_PASSES
            && self.omitted.borrow_mut().insert(owner, stands_for).is_none()
    }

    /// All errors in the order of the file.
    pub(super) fn into_diagnostics(self) -> Vec<Diagnostic> {
        let mut diagnostics = self.diagnostics.into_inner();
        diagnostics.sort_by_key(|diagnostic| diagnostic.place.as_ref().map_or(0, |place| place.range.start));
        diagnostics
    }

    /// The path from the root to the current value: `` in `scenarios.chat.rate[2]` ``; empty at the root.
    pub(super) fn path(&self) -> String {
        let mut path = String::new();
        for step in self.trail.borrow().iter() {
            let _ = match step.key.and_then(Child::text) {
                Some(key) if path.is_empty() => write!(path, "{key}"),
                Some(key) => write!(path, ".{key}"),
                None => write!(path, "[{}]", step.index),
            };
        }
        if path.is_empty() {
            path
        } else {
            format!(" in `{path}`")
        }
    }

    /// Converts a complete error about the current value to a fault.
    pub(super) fn error_here(&self, diagnostic: Diagnostic) -> ReadError {
        let sameness = diagnostic.label.clone();
        self.locate_diagnostic(diagnostic, sameness, false)
    }

    /// Gives a fault the place of this node, unless it has a place.
    pub(super) fn locate_error(&self, child: &Child, fault: ReadError) -> ReadError {
        let kind = match *fault.0 {
            ErrorState::Unplaced(kind) => kind,
            placed => return ReadError(Box::new(placed)),
        };
        let is_consequent = self.follows_omission(&kind);
        let inside = self.path();
        let mark = self.place(&child.node.mark);
        let (mut diagnostic, sameness) = match kind {
            ReadErrorKind::Expected {
                expected,
                help,
                instead,
            } => {
                let label = format!(
                    "expected {}",
                    expected.split(" with ").next().unwrap_or(&expected)
                );
                let mut diagnostic = Diagnostic::new(format!(
                    "found {}{inside}, expected {expected}",
                    describe_value(child)
                ))
                .with_place(&mark, label.clone());
                diagnostic.help = help;
                diagnostic.replacement = instead.map(|text| (mark, text));
                (diagnostic, label)
            }
            ReadErrorKind::Custom(message) => {
                let label = inside.trim_start().to_owned();
                (Diagnostic::new(message.clone()).with_place(&mark, label), message)
            }
            ReadErrorKind::Missing(key) => {
                let trail = self.trail.borrow();
                let mark = match trail.last().and_then(|step| step.key) {
                    Some(owner) => self.place(&owner.node.mark),
                    None => mark,
                };
                let label = format!("needs `{key}`");
                (
                    Diagnostic::new(format!("missing key `{key}`{inside}")).with_place(&mark, label.clone()),
                    label,
                )
            }
            ReadErrorKind::Unknown { word, known } => {
                let mut diagnostic = Diagnostic::new(format!("unknown value `{word}`{inside}"))
                    .with_place(&mark, "not a known value")
                    .with_note(format!("known values: {}", backtick_list(known.iter().copied())));
                if let Some(near) = nearest_name(&word, known.iter().copied()) {
                    diagnostic = diagnostic.with_help("did you mean").with_replacement(&mark, near);
                }
                (diagnostic, "not a known value".to_owned())
            }
        };
        if let Some(via) = self.last_alias(child) {
            diagnostic = diagnostic.with_secondary(&self.place(via), "used here");
        }
        self.locate_diagnostic(diagnostic, sameness, is_consequent)
    }

    fn locate_diagnostic(&self, diagnostic: Diagnostic, sameness: String, is_consequent: bool) -> ReadError {
        let mut trail: Vec<Step<'_>> = self.trail.borrow().clone();
        while trail.last().is_some_and(|step| step.is_required) {
            trail.pop();
        }
        let owner = trail.iter().map(|step| step.index).collect();
        let stands_for = trail
            .last()
            .and_then(|step| step.key)
            .and_then(Child::text)
            .map(str::to_owned);
        ReadError(Box::new(ErrorState::Placed(PlacedError {
            diagnostic,
            dedup_key: sameness,
            omitted_path: owner,
            omitted_key: stands_for,
            is_consequence: is_consequent,
        })))
    }

    /// The alias that led here, if any.
    fn last_alias<'a>(&self, child: &'a Child) -> Option<&'a Range<usize>>
    where
        'n: 'a,
    {
        let above = || {
            self.trail
                .borrow()
                .iter()
                .rev()
                .find_map(|step| step.value.and_then(|value| value.alias.as_ref()))
        };
        child.alias.as_ref().or_else(above)
    }

    fn follows_omission(&self, kind: &ReadErrorKind) -> bool {
        let trail: Vec<usize> = self.trail.borrow().iter().map(|step| step.index).collect();
        let left_out = self.omitted.borrow();
        let mut below = left_out
            .iter()
            .filter(|(path, _)| path.len() > trail.len() && path.starts_with(&trail));
        match kind {
            ReadErrorKind::Missing(key) => below.any(|(path, stands_for)| {
                path.len() == trail.len() + 1 && stands_for.as_ref().is_some_and(|name| name == key)
            }),
            ReadErrorKind::Custom(_) => below.next().is_some(),
            ReadErrorKind::Expected { .. } | ReadErrorKind::Unknown { .. } => false,
        }
    }
}

/// Describes what is written at this node.
fn describe_value(child: &Child) -> String {
    match &child.node.value {
        Value::List(_) => "a list".to_owned(),
        Value::Map(_) => "a map".to_owned(),
        Value::Scalar { text, plain } => {
            let kind = match (plain, scalar::classify(text)) {
                (true, PlainScalar::Null) if text.is_empty() => return "nothing".to_owned(),
                (true, PlainScalar::Null) => "the empty value",
                (true, PlainScalar::Natural(_) | PlainScalar::Negative(_) | PlainScalar::Real(_)) => {
                    "the number"
                }
                (true, PlainScalar::Bool(_)) => "the boolean",
                (true, PlainScalar::Text) => "the text",
                (false, _) => "the quoted text",
            };
            let mut short: String = text
                .chars()
                .take(40)
                .map(|c| if is_control(c) { ' ' } else { c })
                .collect();
            if text.chars().nth(40).is_some() {
                short.push('…');
            }
            format!("{kind} `{short}`")
        }
    }
}
