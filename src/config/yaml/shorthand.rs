//! Short forms of values that users know from shells and Docker. They become the long forms before anything is read, so that
//! types know the long forms alone.

use std::rc::Rc;

use super::node::{Child, Node, Value};

/// The value of a key in its long form:
/// - `args`: one text, split into words as a shell would, such as `--max-model-len 4096`;
/// - `mounts`: texts as `docker run -v` takes them, such as `/data/hf:/models:ro`.
pub(super) fn expand(key: &Child, value: Child) -> Child {
    match (key.text(), &value.node.value) {
        (Some("args"), Value::Scalar { text, .. }) => match words(text) {
            Some(words) => list(&value, words.iter().map(|word| quoted(&value, word)).collect()),
            None => value,
        },
        (Some("mounts"), Value::List(items)) => {
            let items = items
                .iter()
                .map(|item| mount(item).unwrap_or_else(|| item.clone()));
            list(&value, items.collect())
        }
        _ => value,
    }
}

/// The words of a text that begins as arguments do; `None` if it is no list of arguments, or a quote is open.
fn words(text: &str) -> Option<Vec<String>> {
    if !text.trim_start().starts_with('-') {
        return None;
    }
    shell_words::split(text).ok()
}

/// A mount in Docker's short form: `SOURCE:TARGET`, or with `:ro` or `:rw`.
fn mount(item: &Child) -> Option<Child> {
    let mut parts = item.text()?.split(':');
    let (source, target, mode) = (parts.next()?, parts.next()?, parts.next());
    let read_only = match mode {
        None | Some("rw") => "false",
        Some("ro") => "true",
        Some(_) => return None,
    };
    if source.is_empty() || !target.starts_with('/') || parts.next().is_some() {
        return None;
    }
    let entry = |name: &str, text: &str, plain: bool| (quoted(item, name), node(item, text, plain));
    let entries = vec![
        entry("source", source, false),
        entry("target", target, false),
        entry("read_only", read_only, true),
    ];
    Some(child(item, Value::Map(entries), 1))
}

fn list(at: &Child, items: Vec<Child>) -> Child {
    let height = 1 + items.iter().map(|item| item.node.height).max().unwrap_or(0);
    child(at, Value::List(items), height)
}

fn quoted(at: &Child, text: &str) -> Child {
    node(at, text, false)
}

fn node(at: &Child, text: &str, plain: bool) -> Child {
    let text = text.to_owned();
    child(at, Value::Scalar { text, plain }, 0)
}

/// A node at the place of another one.
fn child(at: &Child, value: Value, height: usize) -> Child {
    Child {
        node: Rc::new(Node {
            mark: at.node.mark.clone(),
            height,
            value,
        }),
        alias: at.alias.clone(),
    }
}
