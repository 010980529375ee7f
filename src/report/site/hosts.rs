//! Which rows were measured on one host, and what a host is called.

use crate::analysis::compare::machines::{
    DMI_UUID, GPU_UUIDS, GPUS, HOST, Identity, MACHINE_ID, NODE, host_identity,
};
use crate::results::record::cell_stats::Facts;
use crate::results::record::machine::Machine;

/// A host among those of a site.
pub(crate) type HostId = usize;

/// Facts that identify a host better than its name, which containers change with every run.
const IDENTIFIERS: [&str; 3] = [GPU_UUIDS, DMI_UUID, MACHINE_ID];

/// The hosts of a site, each with the facts of one measurement.
#[derive(Debug, Default)]
pub(crate) struct Hosts(Vec<Facts>);

impl Hosts {
    /// The host that these facts describe. A host of which nothing is known is another one each time.
    pub(super) fn find_or_add(&mut self, facts: &Facts) -> HostId {
        let is_same = |known: &Facts| {
            let nodes = known.get(NODE).zip(facts.get(NODE));
            is_known(facts)
                && is_known(known)
                && host_identity(known, facts) == Identity::Same
                && nodes.is_none_or(|(known, node)| known == node)
        };
        self.0.iter().position(is_same).unwrap_or_else(|| {
            self.0.push(facts.clone());
            self.0.len() - 1
        })
    }
}

/// Whether something says which host it is.
pub(super) fn is_known(facts: &Facts) -> bool {
    let names = IDENTIFIERS.into_iter().chain([HOST, NODE]);
    names.into_iter().any(|name| facts.contains_key(name))
}

/// The name of a host; `None` if it is unknown.
pub(super) fn name(facts: &Facts) -> Option<String> {
    facts.get(NODE).or_else(|| facts.get(HOST)).cloned()
}

/// The GPUs of a host in words, such as `8× NVIDIA H200`; `None` if it has none or they are unknown.
pub(super) fn gpus_in_words(machine: &Machine, facts: &Facts) -> Option<String> {
    let all: Vec<&str> = facts.get(GPUS)?.split(", ").collect();
    let mut models: Vec<(&str, usize)> = Vec::new();
    for gpu in &all {
        match models.iter_mut().find(|(model, _)| model == gpu) {
            Some((_, count)) => *count += 1,
            None => models.push((gpu, 1)),
        }
    }
    let in_words = |(model, count): &(&str, usize)| match count {
        1 => (*model).to_owned(),
        count => format!("{count}× {model}"),
    };
    let words: Vec<String> = models.iter().map(in_words).collect();
    let simulated = if machine.gpus_pretended {
        " (simulated)"
    } else {
        ""
    };
    Some(words.join(", ") + simulated)
}

/// The facts of a host that a comparison of two rows looks at. Its name counts only if nothing better identifies it.
pub(super) fn conditions(facts: &Facts) -> Facts {
    let mut conditions = facts.clone();
    if !is_known(facts) {
        conditions.insert(HOST.to_owned(), super::row::UNKNOWN.to_owned());
    } else if IDENTIFIERS.iter().any(|name| facts.contains_key(*name)) {
        conditions.remove(HOST);
    }
    conditions
}
