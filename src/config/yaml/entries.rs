//! Entries of a map for serde: follows merge keys; records and drops duplicate and unknown keys.

use std::collections::HashMap;

use serde::de::{DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess};

use super::context::{Step, YamlContext};
use super::diagnostic::Diagnostic;
use super::node::{Child, MAX_DEPTH, Value};
use super::read_error::ReadError;
use super::reader::NodeDeserializer;
use super::suggest::{backtick_list, is_model_size, nearest_name, nearest_renamed, new_name, synonym};

/// One entry of a map; the index is the same in all passes.
#[derive(Clone, Copy)]
pub(super) struct Entry<'n> {
    pub(crate) index: usize,
    pub(crate) key: &'n Child,
    pub(crate) value: &'n Child,
    /// Today's name of a key with an earlier name.
    pub(crate) new_name: Option<&'static str>,
}

/// All entries of the current map that still have to be read.
pub(super) fn collect_entries<'n>(
    context: &YamlContext<'n>,
    map: &'n [(Child, Child)],
) -> Result<Vec<Entry<'n>>, ReadError> {
    let mut entries = Vec::with_capacity(map.len());
    let mut first: HashMap<&'n str, &'n Child> = HashMap::new();
    let mut merges = Vec::new();
    for (index, (key, value)) in map.iter().enumerate() {
        let name = key.text().unwrap_or_default();
        if let Some(earlier) = first.insert(name, key) {
            first.insert(name, earlier);
            if !context.is_omitted(index) {
                let diagnostic =
                    Diagnostic::new(format!("the key `{name}` is written twice{}", context.path()))
                        .with_place(&context.place(&key.node.mark), "written again")
                        .with_secondary(&context.place(&earlier.node.mark), "first written here")
                        .with_help("keep one of them");
                context.add_diagnostic(diagnostic, index, None);
            }
        } else if is_merge(key) {
            merges.push((index, value));
        } else {
            entries.push(Entry {
                index,
                key,
                value,
                new_name: None,
            });
        }
    }
    let mut index = map.len();
    for (merge_index, value) in merges {
        if !context.is_omitted(merge_index)
            && let Err(wrong) = merge_entries(context, value, 0, &mut index, &mut first, &mut entries)?
        {
            let diagnostic = Diagnostic::new(format!(
                "the merge key `<<` needs a map or a list of maps{}",
                context.path()
            ))
            .with_place(&context.place(&wrong.node.mark), "not a map");
            context.add_diagnostic(diagnostic, merge_index, None);
        }
    }
    entries.retain(|entry| !context.is_omitted(entry.index));
    Ok(entries)
}

fn is_merge(key: &Child) -> bool {
    matches!(&key.node.value, Value::Scalar { text, plain: true } if text == "<<")
}

/// Adds the entries of a merge key; existing keys take precedence. The inner error describes a value that
/// cannot be merged.
fn merge_entries<'n>(
    context: &YamlContext<'n>,
    from: &'n Child,
    depth: usize,
    index: &mut usize,
    known: &mut HashMap<&'n str, &'n Child>,
    entries: &mut Vec<Entry<'n>>,
) -> Result<Result<(), &'n Child>, ReadError> {
    context.visit(from)?;
    if depth > MAX_DEPTH {
        return Ok(Err(from));
    }
    match &from.node.value {
        Value::Scalar { .. } => return Ok(Err(from)),
        Value::List(items) => {
            for item in items {
                if let Err(wrong) = merge_entries(context, item, depth + 1, index, known, entries)? {
                    return Ok(Err(wrong));
                }
            }
        }
        Value::Map(map) => {
            for (key, value) in map.iter().filter(|(key, _)| !is_merge(key)) {
                context.visit(value)?;
                *index += 1;
                let name = key.text().unwrap_or_default();
                if !known.contains_key(name) {
                    known.insert(name, key);
                    entries.push(Entry {
                        index: *index,
                        key,
                        value,
                        new_name: None,
                    });
                }
            }
            for (_, value) in map.iter().filter(|(key, _)| is_merge(key)) {
                if let Err(wrong) = merge_entries(context, value, depth + 1, index, known, entries)? {
                    return Ok(Err(wrong));
                }
            }
        }
    }
    Ok(Ok(()))
}

/// Records and drops unknown keys. At the root, keys that begin with `x-` are allowed, for anchors.
pub(super) fn drop_unknown<'n>(
    context: &YamlContext<'n>,
    entries: &mut Vec<Entry<'n>>,
    known: &'static [&'static str],
) {
    let present: Vec<&str> = entries.iter().filter_map(|entry| entry.key.text()).collect();
    entries.retain_mut(|entry| {
        let name = entry.key.text().unwrap_or_default();
        let today = new_name(name, known);
        if let Some(today) = today.filter(|today| !present.contains(today)) {
            context.add_renamed(entry.key, today);
            entry.new_name = Some(today);
            return true;
        }
        if today.is_none() && known.contains(&name) {
            return true;
        }
        if context.is_root() && name.starts_with("x-") {
            return false;
        }
        let place = context.place(&entry.key.node.mark);
        let mut diagnostic = Diagnostic::new(format!("unknown key `{name}`{}", context.path()))
            .with_place(&place, "not a known key");
        let absent: Vec<&'static str> = known
            .iter()
            .copied()
            .filter(|candidate| !present.contains(candidate) && new_name(candidate, known).is_none())
            .collect();
        let near = today
            .or_else(|| synonym(name, &absent))
            .or_else(|| nearest_name(name, absent.iter().copied()))
            .or_else(|| nearest_renamed(name, &absent));
        diagnostic = match near {
            None if is_model_size(name, known) => diagnostic.with_help(format!(
                "`{name}` is set per model or in `axes`; write `models: [{{ NAME: {{ {name}: 2 }} }}]`, or `axes: {{ {name}: [1, 2] }}` for all models"
            )),
            Some(near) if present.contains(&near) => diagnostic.with_help(format!(
                "`{name}` is the old name of `{near}`, and both are set; keep one of them"
            )),
            Some(near) => diagnostic
                .with_help("did you mean")
                .with_replacement(&place, near),
            None if known.is_empty() => diagnostic.with_help("no key is allowed here; remove this key"),
            None => {
                let current = known.iter().filter(|key| new_name(key, known).is_none());
                diagnostic.with_help(format!("known keys: {}", backtick_list(current.copied())))
            }
        };
        context.add_diagnostic(diagnostic, entry.index, near.map(str::to_owned));
        false
    });
}

/// Serde's access to the entries of a map.
pub(super) struct EntryAccess<'n, 'c> {
    context: &'c YamlContext<'n>,
    remaining: std::vec::IntoIter<Entry<'n>>,
    current: Option<Entry<'n>>,
}

impl<'n, 'c> EntryAccess<'n, 'c> {
    pub(super) fn new(context: &'c YamlContext<'n>, entries: Vec<Entry<'n>>) -> Self {
        Self {
            context,
            remaining: entries.into_iter(),
            current: None,
        }
    }
}

impl<'de> MapAccess<'de> for EntryAccess<'_, '_> {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ReadError> {
        self.current = self.remaining.next();
        let Some(Entry {
            index,
            key,
            new_name: today,
            ..
        }) = self.current
        else {
            return Ok(None);
        };
        let step = Step {
            index,
            key: Some(key),
            value: None,
            is_required: false,
        };
        self.context
            .with_step(step, || match today {
                Some(today) => seed.deserialize(today.into_deserializer()),
                None => seed.deserialize(NodeDeserializer::new(self.context, key)),
            })
            .map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, ReadError> {
        let Some(Entry {
            index, key, value, ..
        }) = self.current.take()
        else {
            return Err(ReadError::expected("a key before its value"));
        };
        let step = Step {
            index,
            key: Some(key),
            value: Some(value),
            is_required: false,
        };
        self.context.with_step(step, || {
            seed.deserialize(NodeDeserializer::new(self.context, value))
        })
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.remaining.len())
    }
}

/// Serde's access to the elements of a list. In a tuple, no element can be left out alone.
pub(super) struct ItemAccess<'n, 'c> {
    context: &'c YamlContext<'n>,
    remaining: std::iter::Enumerate<std::slice::Iter<'n, Child>>,
    is_tuple: bool,
}

impl<'n, 'c> ItemAccess<'n, 'c> {
    pub(super) fn new(context: &'c YamlContext<'n>, items: &'n [Child], is_tuple: bool) -> Self {
        Self {
            context,
            remaining: items.iter().enumerate(),
            is_tuple,
        }
    }
}

impl<'de> SeqAccess<'de> for ItemAccess<'_, '_> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, ReadError> {
        let context = self.context;
        let Some((index, item)) = self.remaining.find(|(index, _)| !context.is_omitted(*index)) else {
            return Ok(None);
        };
        let step = Step {
            index,
            key: None,
            value: Some(item),
            is_required: self.is_tuple,
        };
        context
            .with_step(step, || seed.deserialize(NodeDeserializer::new(context, item)))
            .map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.remaining.len())
    }
}
