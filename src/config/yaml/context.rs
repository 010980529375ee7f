//! State of one reading besides the tree: current path, errors, and entries to leave out.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

use super::error::{Fault, Placed, State, What};
use super::node::{Child, DEPTH, Value};
use super::scalar::{self, Looks};
use super::{Mistake, Place, Renamed, listed, nearest};
use crate::base::text::is_control;

/// Values read in one pass after which nested aliases count as endless.
const VISITS: usize = 1_000_000;
/// Passes after which the remaining errors are left for the next invocation.
const PASSES: usize = 100;

/// A step from a list or map to one of its values.
#[derive(Clone, Copy)]
pub(super) struct Step<'n> {
    pub index: usize,
    /// The key, in a map.
    pub key: Option<&'n Child>,
    /// The value; none if a name stands alone where a map is allowed.
    pub value: Option<&'n Child>,
    /// Whether the value cannot be left out alone, because it is the only entry of an enum's map.
    pub is_firm: bool,
}

pub(super) struct Context<'n> {
    file: Arc<str>,
    trail: RefCell<Vec<Step<'n>>>,
    /// Paths of entries that are not read any more, each with its key.
    left_out: RefCell<HashMap<Vec<usize>, Option<String>>>,
    mistakes: RefCell<Vec<Mistake>>,
    seen: RefCell<HashSet<(usize, usize, String)>>,
    /// Keys with an earlier name, by position.
    renamed: RefCell<BTreeMap<usize, Renamed>>,
    visits: Cell<usize>,
    passes: Cell<usize>,
}

impl<'n> Context<'n> {
    pub(super) fn new(file: &str) -> Self {
        Self {
            file: file.into(),
            trail: RefCell::default(),
            left_out: RefCell::default(),
            mistakes: RefCell::default(),
            seen: RefCell::default(),
            renamed: RefCell::default(),
            visits: Cell::new(0),
            passes: Cell::new(0),
        }
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    pub(super) fn place(&self, range: &Range<usize>) -> Place {
        Place {
            file: self.file.clone(),
            range: range.clone(),
        }
    }

    pub(super) fn is_root(&self) -> bool {
        self.trail.borrow().is_empty()
    }

    /// Counts a value that is read.
    pub(super) fn visit(&self, child: &Child) -> Result<(), Fault> {
        self.visits.set(self.visits.get() + 1);
        if self.visits.get() > VISITS {
            let range = child.via.as_ref().unwrap_or(&child.node.mark);
            return Err(Fault::fatal(
                Mistake::new(format!(
                    "the file comes to more than {VISITS} values once aliases are followed"
                ))
                .at(&self.place(range), "gave up here")
                .help("an alias of a list of aliases multiplies; write out what is meant"),
            ));
        }
        Ok(())
    }

    /// Calls `f` one step deeper; its error gets the place there.
    pub(super) fn inside<T>(&self, step: Step<'n>, f: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
        let Some(at) = step.value.or(step.key) else {
            return f();
        };
        self.visit(at)?;
        if self.trail.borrow().len() > DEPTH {
            return Err(Fault::fatal(
                Mistake::new(format!("lists and maps nest deeper than {DEPTH} levels"))
                    .at(&self.place(&at.node.mark), "too deep"),
            ));
        }
        self.trail.borrow_mut().push(step);
        let result = f().map_err(|fault| self.hurt(at, fault));
        self.trail.borrow_mut().pop();
        result
    }

    /// Whether the entry with this index of the current value is left out.
    pub(super) fn is_left_out(&self, index: usize) -> bool {
        let left_out = self.left_out.borrow();
        !left_out.is_empty() && left_out.contains_key(&self.path_to(index))
    }

    /// Records an error in an entry of the current map, and leaves the entry out from now on.
    pub(super) fn note(&self, mistake: Mistake, index: usize, stands_for: Option<String>) {
        let sameness = mistake.label.clone();
        self.left_out.borrow_mut().insert(self.path_to(index), stands_for);
        self.keep(mistake, sameness);
    }

    /// Records a key with an earlier name.
    pub(super) fn note_renamed(&self, key: &'n Child, today: &'static str) {
        let place = self.place(&key.node.mark);
        let earlier = key.text().unwrap_or_default().to_owned();
        self.renamed.borrow_mut().insert(
            place.range.start,
            Renamed {
                place,
                earlier,
                today,
            },
        );
    }

    /// Keys with an earlier name, in the order of the file.
    pub(super) fn renamed(&self) -> Vec<Renamed> {
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

    fn keep(&self, mistake: Mistake, sameness: String) {
        let range = mistake.place.as_ref().map_or(0..0, |place| place.range.clone());
        if self.seen.borrow_mut().insert((range.start, range.end, sameness)) {
            self.mistakes.borrow_mut().push(mistake);
        }
    }

    /// Records the error that ended a pass. Returns whether another pass may find more errors.
    pub(super) fn goes_on_after(&self, root: &'n Child, fault: Fault) -> bool {
        let placed = match *self.hurt(root, fault).0 {
            State::Placed(placed) => placed,
            State::Fatal(mistake) => {
                self.keep(mistake, "fatal".to_owned());
                return false;
            }
            State::Loose(_) => return false,
        };
        let Placed {
            mistake,
            sameness,
            owner,
            stands_for,
            is_consequent,
        } = placed;
        if !is_consequent {
            self.keep(mistake, sameness);
        }
        self.passes.set(self.passes.get() + 1);
        self.visits.set(0);
        self.trail.borrow_mut().clear();
        !owner.is_empty()
            && self.passes.get() < PASSES
            && self.left_out.borrow_mut().insert(owner, stands_for).is_none()
    }

    /// All errors in the order of the file.
    pub(super) fn into_mistakes(self) -> Vec<Mistake> {
        let mut mistakes = self.mistakes.into_inner();
        mistakes.sort_by_key(|mistake| mistake.place.as_ref().map_or(0, |place| place.range.start));
        mistakes
    }

    /// The path from the root to the current value: `` in `scenarios.chat.rate[2]` ``; empty at the root.
    pub(super) fn whereabouts(&self) -> String {
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
    pub(super) fn put(&self, mistake: Mistake) -> Fault {
        let sameness = mistake.label.clone();
        self.placed(mistake, sameness, false)
    }

    /// Gives a fault the place of this node, unless it has a place.
    pub(super) fn hurt(&self, child: &Child, fault: Fault) -> Fault {
        let what = match *fault.0 {
            State::Loose(what) => what,
            placed => return Fault(Box::new(placed)),
        };
        let is_consequent = self.comes_from_what_is_left_out(&what);
        let inside = self.whereabouts();
        let mark = self.place(&child.node.mark);
        let (mut mistake, sameness) = match what {
            What::Wanted {
                expected,
                help,
                instead,
            } => {
                let label = format!(
                    "expected {}",
                    expected.split(" with ").next().unwrap_or(&expected)
                );
                let mut mistake =
                    Mistake::new(format!("found {}{inside}, expected {expected}", found(child)))
                        .at(&mark, label.clone());
                mistake.help = help;
                mistake.patch = instead.map(|text| (mark, text));
                (mistake, label)
            }
            What::Custom(message) => {
                let label = inside.trim_start().to_owned();
                (Mistake::new(message.clone()).at(&mark, label), message)
            }
            What::Missing(key) => {
                let trail = self.trail.borrow();
                let mark = match trail.last().and_then(|step| step.key) {
                    Some(owner) => self.place(&owner.node.mark),
                    None => mark,
                };
                let label = format!("needs `{key}`");
                (
                    Mistake::new(format!("missing key `{key}`{inside}")).at(&mark, label.clone()),
                    label,
                )
            }
            What::Unknown { word, known } => {
                let mut mistake = Mistake::new(format!("unknown value `{word}`{inside}"))
                    .at(&mark, "not a known value")
                    .note(format!("known are {}", listed(known.iter().copied())));
                if let Some(near) = nearest(&word, known.iter().copied()) {
                    mistake = mistake.help("did you mean").replace(&mark, near);
                }
                (mistake, "not a known value".to_owned())
            }
        };
        if let Some(via) = self.last_alias(child) {
            mistake = mistake.also(&self.place(via), "used here");
        }
        self.placed(mistake, sameness, is_consequent)
    }

    fn placed(&self, mistake: Mistake, sameness: String, is_consequent: bool) -> Fault {
        let mut trail: Vec<Step<'_>> = self.trail.borrow().clone();
        while trail.last().is_some_and(|step| step.is_firm) {
            trail.pop();
        }
        let owner = trail.iter().map(|step| step.index).collect();
        let stands_for = trail
            .last()
            .and_then(|step| step.key)
            .and_then(Child::text)
            .map(str::to_owned);
        Fault(Box::new(State::Placed(Placed {
            mistake,
            sameness,
            owner,
            stands_for,
            is_consequent,
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
                .find_map(|step| step.value.and_then(|value| value.via.as_ref()))
        };
        child.via.as_ref().or_else(above)
    }

    fn comes_from_what_is_left_out(&self, what: &What) -> bool {
        let here: Vec<usize> = self.trail.borrow().iter().map(|step| step.index).collect();
        let left_out = self.left_out.borrow();
        let mut below = left_out
            .iter()
            .filter(|(path, _)| path.len() > here.len() && path.starts_with(&here));
        match what {
            What::Missing(key) => below.any(|(path, stands_for)| {
                path.len() == here.len() + 1 && stands_for.as_ref().is_some_and(|name| name == key)
            }),
            What::Custom(_) => below.next().is_some(),
            What::Wanted { .. } | What::Unknown { .. } => false,
        }
    }
}

/// Describes what is written at this node.
fn found(child: &Child) -> String {
    match &child.node.value {
        Value::List(_) => "a list".to_owned(),
        Value::Map(_) => "a map".to_owned(),
        Value::Scalar { text, plain } => {
            let kind = match (plain, scalar::looks(text)) {
                (true, Looks::Null) if text.is_empty() => return "nothing".to_owned(),
                (true, Looks::Null) => "the empty value",
                (true, Looks::Natural(_) | Looks::Negative(_) | Looks::Real(_)) => "the number",
                (true, Looks::Bool(_)) => "the truth value",
                (true, Looks::Text) => "the text",
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
