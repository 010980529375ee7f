//! The tree of a YAML text: nodes with places.

use std::ops::Range;
use std::rc::Rc;

use super::scalar;

/// Largest nesting depth of lists and maps, including aliases.
pub(super) const MAX_DEPTH: usize = 64;

/// A written value, shared by all aliases of it.
#[derive(Debug)]
pub(super) struct Node {
    /// Range to underline: the scalar, a list or map on one line, otherwise its first line.
    pub(crate) mark: Range<usize>,
    /// Number of levels below it, including aliases.
    pub(crate) height: usize,
    pub(crate) value: Value,
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
    pub(crate) node: Rc<Node>,
    /// The alias by which it is used here.
    pub(crate) alias: Option<Range<usize>>,
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
