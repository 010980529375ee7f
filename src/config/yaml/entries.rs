//! Entries of a map for serde: follows merge keys; records and drops duplicate and unknown keys.

use std::collections::HashMap;

use serde::de::{DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess};

use super::context::{Context, Step};
use super::error::Fault;
use super::node::{Child, DEPTH, Value};
use super::reader::At;
use super::suggest::{is_of_models, nearest_earlier, renamed, synonym};
use super::{Mistake, listed, nearest};

/// One entry of a map; the index is the same in all passes.
#[derive(Clone, Copy)]
pub(super) struct Entry<'n> {
    pub index: usize,
    pub key: &'n Child,
    pub value: &'n Child,
    /// Today's name of a key with an earlier name.
    pub today: Option<&'static str>,
}

/// All entries of the current map that still have to be read.
pub(super) fn entries_of<'n>(
    context: &Context<'n>,
    map: &'n [(Child, Child)],
) -> Result<Vec<Entry<'n>>, Fault> {
    let mut all = Vec::with_capacity(map.len());
    let mut first: HashMap<&'n str, &'n Child> = HashMap::new();
    let mut merges = Vec::new();
    for (index, (key, value)) in map.iter().enumerate() {
        let name = key.text().unwrap_or_default();
        if let Some(earlier) = first.insert(name, key) {
            first.insert(name, earlier);
            if !context.is_left_out(index) {
                let mistake = Mistake::new(format!(
                    "the key `{name}` is written twice{}",
                    context.whereabouts()
                ))
                .at(&context.place(&key.node.mark), "written again")
                .also(&context.place(&earlier.node.mark), "first written here")
                .help("keep one of them");
                context.note(mistake, index, None);
            }
        } else if is_merge(key) {
            merges.push((index, value));
        } else {
            all.push(Entry {
                index,
                key,
                value,
                today: None,
            });
        }
    }
    let mut index = map.len();
    for (at, value) in merges {
        if !context.is_left_out(at)
            && let Err(wrong) = merge(context, value, 0, &mut index, &mut first, &mut all)?
        {
            let mistake = Mistake::new(format!(
                "`<<` takes a map or a list of maps{}",
                context.whereabouts()
            ))
            .at(&context.place(&wrong.node.mark), "not a map");
            context.note(mistake, at, None);
        }
    }
    all.retain(|entry| !context.is_left_out(entry.index));
    Ok(all)
}

fn is_merge(key: &Child) -> bool {
    matches!(&key.node.value, Value::Scalar { text, plain: true } if text == "<<")
}

/// Adds the entries of a merge key; existing keys take precedence. The inner error describes a value that
/// cannot be merged.
fn merge<'n>(
    context: &Context<'n>,
    from: &'n Child,
    depth: usize,
    index: &mut usize,
    seen: &mut HashMap<&'n str, &'n Child>,
    all: &mut Vec<Entry<'n>>,
) -> Result<Result<(), &'n Child>, Fault> {
    context.visit(from)?;
    if depth > DEPTH {
        return Ok(Err(from));
    }
    match &from.node.value {
        Value::Scalar { .. } => return Ok(Err(from)),
        Value::List(items) => {
            for item in items {
                if let Err(wrong) = merge(context, item, depth + 1, index, seen, all)? {
                    return Ok(Err(wrong));
                }
            }
        }
        Value::Map(map) => {
            for (key, value) in map.iter().filter(|(key, _)| !is_merge(key)) {
                context.visit(value)?;
                *index += 1;
                let name = key.text().unwrap_or_default();
                if !seen.contains_key(name) {
                    seen.insert(name, key);
                    all.push(Entry {
                        index: *index,
                        key,
                        value,
                        today: None,
                    });
                }
            }
            for (_, value) in map.iter().filter(|(key, _)| is_merge(key)) {
                if let Err(wrong) = merge(context, value, depth + 1, index, seen, all)? {
                    return Ok(Err(wrong));
                }
            }
        }
    }
    Ok(Ok(()))
}

/// Records and drops unknown keys. At the root, keys that begin with `x-` are allowed, for anchors.
pub(super) fn keep_known<'n>(
    context: &Context<'n>,
    entries: &mut Vec<Entry<'n>>,
    known: &'static [&'static str],
) {
    let present: Vec<&str> = entries.iter().filter_map(|entry| entry.key.text()).collect();
    entries.retain_mut(|entry| {
        let name = entry.key.text().unwrap_or_default();
        let today = renamed(name, known);
        if let Some(today) = today.filter(|today| !present.contains(today)) {
            context.note_renamed(entry.key, today);
            entry.today = Some(today);
            return true;
        }
        if today.is_none() && known.contains(&name) {
            return true;
        }
        if context.is_root() && name.starts_with("x-") {
            return false;
        }
        let place = context.place(&entry.key.node.mark);
        let mut mistake = Mistake::new(format!("unknown key `{name}`{}", context.whereabouts()))
            .at(&place, "not a known key");
        let absent: Vec<&'static str> = known
            .iter()
            .copied()
            .filter(|candidate| !present.contains(candidate) && renamed(candidate, known).is_none())
            .collect();
        let near = today
            .or_else(|| synonym(name, &absent))
            .or_else(|| nearest(name, absent.iter().copied()))
            .or_else(|| nearest_earlier(name, &absent));
        mistake = match near {
            None if is_of_models(name, known) => mistake.help(format!(
                "`{name}` belongs to the model: `models: [{{ NAME: {{ {name}: 2 }} }}]`"
            )),
            Some(near) if present.contains(&near) => mistake.help(format!(
                "`{name}` is the earlier name of `{near}`, which is written too; keep one of them"
            )),
            Some(near) => mistake.help("did you mean").replace(&place, near),
            None if known.is_empty() => mistake.help("no key is known here; remove it"),
            None => {
                let todays = known.iter().filter(|key| renamed(key, known).is_none());
                mistake.help(format!("known are {}", listed(todays.copied())))
            }
        };
        context.note(mistake, entry.index, near.map(str::to_owned));
        false
    });
}

/// Serde's access to the entries of a map.
pub(super) struct Entries<'n, 'c> {
    context: &'c Context<'n>,
    rest: std::vec::IntoIter<Entry<'n>>,
    current: Option<Entry<'n>>,
}

impl<'n, 'c> Entries<'n, 'c> {
    pub(super) fn new(context: &'c Context<'n>, entries: Vec<Entry<'n>>) -> Self {
        Self {
            context,
            rest: entries.into_iter(),
            current: None,
        }
    }
}

impl<'de> MapAccess<'de> for Entries<'_, '_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        self.current = self.rest.next();
        let Some(Entry {
            index, key, today, ..
        }) = self.current
        else {
            return Ok(None);
        };
        let step = Step {
            index,
            key: Some(key),
            value: None,
            is_firm: false,
        };
        self.context
            .inside(step, || match today {
                Some(today) => seed.deserialize(today.into_deserializer()),
                None => seed.deserialize(At::new(self.context, key)),
            })
            .map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let Some(Entry {
            index, key, value, ..
        }) = self.current.take()
        else {
            return Err(Fault::wanted("a key before its value"));
        };
        let step = Step {
            index,
            key: Some(key),
            value: Some(value),
            is_firm: false,
        };
        self.context
            .inside(step, || seed.deserialize(At::new(self.context, value)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// Serde's access to the elements of a list. In a tuple, no element can be left out alone.
pub(super) struct Items<'n, 'c> {
    context: &'c Context<'n>,
    rest: std::iter::Enumerate<std::slice::Iter<'n, Child>>,
    is_tuple: bool,
}

impl<'n, 'c> Items<'n, 'c> {
    pub(super) fn new(context: &'c Context<'n>, items: &'n [Child], is_tuple: bool) -> Self {
        Self {
            context,
            rest: items.iter().enumerate(),
            is_tuple,
        }
    }
}

impl<'de> SeqAccess<'de> for Items<'_, '_> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        let context = self.context;
        let Some((index, item)) = self.rest.find(|(index, _)| !context.is_left_out(*index)) else {
            return Ok(None);
        };
        let step = Step {
            index,
            key: None,
            value: Some(item),
            is_firm: self.is_tuple,
        };
        context
            .inside(step, || seed.deserialize(At::new(context, item)))
            .map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}
