//! Compares two machines: whether they are one host, and which differences forbid a verdict.
//!
//! A host name does not identify a host: containers, cloud machines and CI runners get a new name with every
//! run. A host is identified by the UUIDs of its GPUs, its DMI UUID or its machine id, in this order. Older
//! runs did not record these and are compared by name.

use std::collections::{BTreeMap, BTreeSet};

use super::difference::{Difference, DifferenceKind};
use crate::results::record::cell_stats::{Facts, RunStats};

pub(crate) const HOST: &str = "host";
/// The name of the node of a cluster.
pub(crate) const NODE: &str = "node";
/// The UUIDs of all GPUs, joined by commas.
pub(crate) const GPU_UUIDS: &str = "GPU UUIDs";
/// A digest of the DMI UUID.
pub(crate) const DMI_UUID: &str = "DMI UUID";
/// A digest of the machine id.
pub(crate) const MACHINE_ID: &str = "machine id";
/// The version of the GPU driver.
pub(crate) const DRIVER: &str = "driver";
/// The models of the GPUs, joined by commas.
pub(crate) const GPUS: &str = "GPUs";

/// Begins the names of facts of the further nodes of a launch.
const FURTHER_NODE: &str = "node ";

/// Memory sizes are equal if they differ by less than this share. The kernel reserves a little, which varies
/// between boots.
const MAX_MEMORY_DIFFERENCE: f64 = 0.02;

/// Whether two machines are one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    Same,
    Other,
    /// Both sides share no identifying fact, and their names differ.
    Unknown,
}

pub(crate) fn host_identity(first: &Facts, second: &Facts) -> Identity {
    let both_values = |name: &str| Some((first.get(name)?, second.get(name)?));
    let identity_if = |is_same: bool| if is_same { Identity::Same } else { Identity::Other };
    if let Some((first_value, second_value)) = both_values(GPU_UUIDS) {
        let uuids = |text: &str| text.split(", ").map(str::to_owned).collect::<BTreeSet<String>>();
        // A container may see only some GPUs of the host.
        return identity_if(!uuids(first_value).is_disjoint(&uuids(second_value)));
    }
    for name in [DMI_UUID, MACHINE_ID] {
        if let Some((first_value, second_value)) = both_values(name) {
            return identity_if(first_value == second_value);
        }
    }
    match first.get(HOST) == second.get(HOST) {
        true => Identity::Same,
        false => Identity::Unknown,
    }
}

/// Returns whether the noise of one machine applies to the other: they are one host and not two nodes, which may be copies
/// with one identity, and no difference forbids a verdict. Of a launch over several nodes, this holds for each node.
pub(crate) fn are_noise_compatible(first: &Facts, second: &Facts) -> bool {
    let is_one_node = |first: &Facts, second: &Facts| {
        let nodes = first.get(NODE).zip(second.get(NODE));
        host_identity(first, second) == Identity::Same && nodes.is_none_or(|(first, second)| first == second)
    };
    let second_nodes = by_node(second);
    let by_number = by_node(first);
    let both = by_number
        .iter()
        .filter_map(|(number, facts)| Some((facts, second_nodes.get(number)?)));
    both.into_iter().all(|(first, second)| is_one_node(first, second))
        && !differences(first, second)
            .iter()
            .any(|difference| difference.kind.forbids_verdict())
}

/// Returns the name of a fact of the further node of a launch with this number; the first node has the number 1.
pub(crate) fn further_node_fact(number: usize, fact: &str) -> String {
    format!("{FURTHER_NODE}{number} {fact}")
}

/// Returns the facts of each node of a launch by its number.
fn by_node(facts: &Facts) -> BTreeMap<u32, Facts> {
    let mut nodes = BTreeMap::from([(1, Facts::new())]);
    for (name, value) in facts {
        let further = name.strip_prefix(FURTHER_NODE).and_then(|rest| {
            let (number, fact) = rest.split_once(' ')?;
            Some((number.parse().ok()?, fact))
        });
        let (number, fact) = further.unwrap_or((1, name.as_str()));
        nodes
            .entry(number)
            .or_default()
            .insert(fact.to_owned(), value.clone());
    }
    nodes
}

/// Returns the differences of two machines, or of the nodes of two launches that have one number:
/// [`DifferenceKind::Environment`] if they forbid a verdict, otherwise [`DifferenceKind::Host`].
pub(crate) fn differences(first: &Facts, second: &Facts) -> Vec<Difference> {
    let (first, second) = (by_node(first), by_node(second));
    let both = first
        .iter()
        .filter_map(|(number, facts)| Some((number, facts, second.get(number)?)));
    both.flat_map(|(number, first, second)| {
        let differences = differences_of_nodes(first, second).into_iter();
        differences.map(|difference| Difference {
            what: match number {
                1 => difference.what,
                _ => further_node_fact(*number as usize, &difference.what),
            },
            ..difference
        })
    })
    .collect()
}

fn differences_of_nodes(first: &Facts, second: &Facts) -> Vec<Difference> {
    let mut differences: Vec<Difference> = Vec::new();
    differences.extend(host_difference(first, second));
    if let (Some(before), Some(after)) = (first.get(NODE), second.get(NODE))
        && before != after
    {
        differences.push(Difference {
            kind: DifferenceKind::Host,
            what: NODE.to_owned(),
            before: before.clone(),
            after: after.clone(),
        });
    }
    let (first, second) = (without_identifiers(first), without_identifiers(second));
    let names: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    for name in names {
        let (before, after) = (first.get(name), second.get(name));
        let Some(class) = difference_class(name, before, after) else {
            continue;
        };
        let in_words = |value: Option<&String>| value.map_or_else(|| "unknown".to_owned(), Clone::clone);
        let (kind, what) = class;
        differences.push(Difference {
            kind,
            what: what.unwrap_or(name).to_owned(),
            before: in_words(before),
            after: in_words(after),
        });
    }
    differences
}

/// Returns the differences among the hosts of two sides of which each may have been measured on several. What differs among the
/// hosts of one side counts as well: its values are then those of different hosts.
pub(crate) fn differences_of_hosts(first: &[Facts], second: &[Facts]) -> Vec<Difference> {
    if let ([first], [second]) = (first, second) {
        return differences(first, second);
    }
    let mut all: Vec<&Facts> = first.iter().collect();
    all.extend(second.iter().filter(|facts| !first.contains(facts)));
    // By kind and name: the values of each side.
    let mut found: BTreeMap<(DifferenceKind, String), [BTreeSet<String>; 2]> = BTreeMap::new();
    for (at, one) in all.iter().enumerate() {
        for other in &all[at + 1..] {
            for difference in differences(one, other) {
                let values = found.entry((difference.kind, difference.what)).or_default();
                for (facts, value) in [(one, difference.before), (other, difference.after)] {
                    for (side, values) in [first, second].iter().zip(values.iter_mut()) {
                        if side.contains(facts) {
                            values.insert(value.clone());
                        }
                    }
                }
            }
        }
    }
    let joined = |values: BTreeSet<String>| values.into_iter().collect::<Vec<_>>().join(", ");
    found
        .into_iter()
        .map(|((kind, what), [before, after])| Difference {
            kind,
            what,
            before: joined(before),
            after: joined(after),
        })
        .collect()
}

/// Says which hosts measured two sides, and the differences between them that forbid a verdict. `None` if there are none.
pub(crate) fn forbidding_differences(first: &[Facts], second: &[Facts]) -> Option<String> {
    let differences = differences_of_hosts(first, second);
    let forbidding: Vec<String> = differences
        .iter()
        .filter(|difference| difference.kind.forbids_verdict())
        .map(Difference::in_words)
        .collect();
    (!forbidding.is_empty()).then(|| {
        format!(
            "{} and {}: {}",
            names(first),
            names(second),
            forbidding.join("; ")
        )
    })
}

/// Returns the facts of each host that measured a run.
pub(crate) fn hosts_of_run(side: &RunStats) -> Vec<Facts> {
    let mut hosts: Vec<Facts> = Vec::new();
    let measured = side.cells.values().filter(|cell| !cell.is_missing());
    for host in measured.flat_map(|cell| side.hosts(cell)) {
        if !hosts.contains(host) {
            hosts.push(host.clone());
        }
    }
    hosts
}

/// Returns the names of hosts: those of their nodes, or else their host names.
pub(crate) fn names(hosts: &[Facts]) -> String {
    let name = |facts: &Facts| facts.get(NODE).or_else(|| facts.get(HOST)).cloned();
    let names: BTreeSet<String> = hosts
        .iter()
        .flat_map(|facts| by_node(facts).into_values())
        .map(|facts| name(&facts).unwrap_or_else(|| "a host without a name".to_owned()))
        .collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// Returns whether the noise of all these hosts is that of one.
pub(crate) fn have_one_noise(first: &[Facts], second: &[Facts]) -> bool {
    let mut hosts = first.iter().chain(second);
    let one = hosts.next();
    hosts.all(|host| one.is_none_or(|one| are_noise_compatible(one, host)))
}

/// Returns how the hosts differ that measured a run, in words; `None` if they are one, so that its noise is that of one host.
pub(crate) fn several_hosts(side: &RunStats) -> Option<String> {
    let mut hosts = side.cells.values().flat_map(|cell| &cell.hosts);
    let first = hosts.next()?;
    let is_other = |other: &&Facts| !are_noise_compatible(first, other);
    let others: Vec<Facts> = hosts.filter(is_other).cloned().collect();
    let differences = match others.is_empty() {
        true => return None,
        false => differences_of_hosts(std::slice::from_ref(first), &others),
    };
    let in_words = |difference: &Difference| {
        let Difference {
            what, before, after, ..
        } = difference;
        format!("{what} {before} and {after}")
    };
    Some(differences.iter().map(in_words).collect::<Vec<_>>().join("; "))
}

/// Returns the difference of hosts. `None` if they are one host with one name.
fn host_difference(first: &Facts, second: &Facts) -> Option<Difference> {
    let name = |facts: &Facts| facts.get(HOST).map_or_else(|| "unknown".to_owned(), Clone::clone);
    let (mut before, mut after) = (name(first), name(second));
    let what = match host_identity(first, second) {
        Identity::Other => {
            if before == after {
                let id = |facts: &Facts| {
                    let identifiers = [GPU_UUIDS, DMI_UUID, MACHINE_ID]
                        .into_iter()
                        .find(|kind| first.contains_key(*kind) && second.contains_key(*kind))?;
                    Some(format!(" ({identifiers} {})", facts.get(identifiers)?))
                };
                before.push_str(&id(first).unwrap_or_default());
                after.push_str(&id(second).unwrap_or_default());
            }
            "machine (another machine of the same class)"
        }
        Identity::Same if before == after => return None,
        Identity::Same => "name",
        Identity::Unknown => "name (no identifier shows whether it is the same machine)",
    };
    Some(Difference {
        kind: DifferenceKind::Host,
        what: what.to_owned(),
        before,
        after,
    })
}

/// Returns the facts without those that identify the host. Facts of single GPUs are merged, because the
/// numbers of GPUs do not matter.
fn without_identifiers(facts: &Facts) -> BTreeMap<String, String> {
    let mut gpus_by_fact: BTreeMap<String, BTreeSet<&String>> = BTreeMap::new();
    for (name, value) in facts {
        if [HOST, NODE, GPU_UUIDS, DMI_UUID, MACHINE_ID].contains(&name.as_str()) {
            continue;
        }
        gpus_by_fact
            .entry(gpu_fact_name(name).unwrap_or_else(|| name.clone()))
            .or_default()
            .insert(value);
    }
    let joined = |values: BTreeSet<&String>| {
        let values: Vec<&str> = values.into_iter().map(String::as_str).collect();
        values.join(", ")
    };
    gpus_by_fact
        .into_iter()
        .map(|(name, values)| (name, joined(values)))
        .collect()
}

/// Returns `GPU power limit` for `GPU 3 power limit`.
fn gpu_fact_name(name: &str) -> Option<String> {
    let (number, what) = name.strip_prefix("GPU ")?.split_once(' ')?;
    number.parse::<u32>().ok()?;
    Some(format!("GPU {what}"))
}

/// Classifies the difference of a fact. The second part is its name in output, if that is not the name of the
/// fact. `None` if the values are equal.
fn difference_class(
    name: &str,
    before: Option<&String>,
    after: Option<&String>,
) -> Option<(DifferenceKind, Option<&'static str>)> {
    if before == after {
        return None;
    }
    let (Some(first_value), Some(second_value)) = (before, after) else {
        // A fact that an older version did not record is no difference, except for these facts, without which
        // a comparison is meaningless.
        let is_vital = [GPUS, DRIVER, "GPU power limit", "CPU", "kernel"].contains(&name);
        return Some((
            if is_vital {
                DifferenceKind::Environment
            } else {
                DifferenceKind::Host
            },
            None,
        ));
    };
    match name {
        GPUS => {
            let models = |text: &str| text.split(", ").map(str::to_owned).collect::<BTreeSet<String>>();
            match models(first_value) == models(second_value) {
                true => Some((DifferenceKind::Host, Some("number of GPUs"))),
                false => Some((DifferenceKind::Environment, Some("GPU model"))),
            }
        }
        "CPUs" => Some((DifferenceKind::Host, None)),
        "kernel" if is_kernel_patch(first_value, second_value) => {
            Some((DifferenceKind::Host, Some("kernel patch")))
        }
        "memory" => match (parse_gib(first_value), parse_gib(second_value)) {
            (Some((first_value, blur)), Some((second_value, second_blur))) => {
                let apart = (first_value - second_value).abs() - blur.max(second_blur);
                let is_apart = apart > MAX_MEMORY_DIFFERENCE * first_value.max(second_value);
                Some((
                    if is_apart {
                        DifferenceKind::Environment
                    } else {
                        DifferenceKind::Host
                    },
                    None,
                ))
            }
            _ => Some((DifferenceKind::Environment, None)),
        },
        _ => Some((DifferenceKind::Environment, None)),
    }
}

/// Returns whether two kernels differ only in their patch: version, subversion and flavour are equal.
fn is_kernel_patch(first: &str, second: &str) -> bool {
    let version = |release: &str| {
        let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
        [
            numbers.next().map(str::to_owned),
            numbers.next().map(str::to_owned),
        ]
    };
    let flavour = |release: &str| -> Vec<String> {
        let words = release.split(|letter: char| !letter.is_ascii_alphabetic());
        words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    version(first) == version(second) && flavour(first) == flavour(second)
}

/// Returns the GiB of a fact, and the largest rounding error.
fn parse_gib(text: &str) -> Option<(f64, f64)> {
    let number = text.strip_suffix(" GiB")?;
    let blur = if number.contains('.') { 0.005 } else { 0.5 };
    Some((number.parse().ok()?, blur))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(pairs: &[(&str, &str)]) -> Facts {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    /// Returns the differences when one fact changes on one host.
    fn differences_in_words(name: &str, before: &str, after: &str) -> Vec<String> {
        let differences = differences(&facts(&[(name, before)]), &facts(&[(name, after)]));
        differences.iter().map(Difference::in_words).collect()
    }

    #[test]
    fn each_node_of_a_launch_is_compared_with_that_of_its_number() {
        let nodes = |second: &[(&str, &str)]| {
            let mut both = facts(&[(NODE, "n1"), (MACHINE_ID, "1"), ("CPU", "A")]);
            both.extend(
                facts(second)
                    .into_iter()
                    .map(|(name, value)| (further_node_fact(2, &name), value)),
            );
            both
        };
        let second = [(NODE, "n2"), (MACHINE_ID, "2"), ("CPU", "A")];
        let first = nodes(&second);
        assert!(differences(&first, &first).is_empty() && are_noise_compatible(&first, &first));
        let moved = nodes(&[(NODE, "n3"), (MACHINE_ID, "3"), ("CPU", "A")]);
        assert!(
            !are_noise_compatible(&first, &moved),
            "another node has other noise"
        );
        assert_eq!(
            forbidding_differences(std::slice::from_ref(&first), &[moved]),
            None
        );
        let other = nodes(&[(NODE, "n3"), (MACHINE_ID, "3"), ("CPU", "B")]);
        assert_eq!(
            forbidding_differences(std::slice::from_ref(&first), std::slice::from_ref(&other)).as_deref(),
            Some("n1, n2 and n1, n3: environment node 2 CPU: A → B")
        );
        assert!(!have_one_noise(std::slice::from_ref(&first), &[other]));
        // An older version, or a launch on one node.
        let alone = facts(&[(NODE, "n1"), (MACHINE_ID, "1"), ("CPU", "A")]);
        assert!(differences(&first, &alone).is_empty() && are_noise_compatible(&first, &alone));
        assert!(!are_noise_compatible(&first, &Facts::new()));
    }

    #[test]
    fn gpus_identify_a_host_else_its_firmware_else_its_machine_id() {
        let identity_of =
            |first: &[(&str, &str)], second: &[(&str, &str)]| host_identity(&facts(first), &facts(second));
        let named = (HOST, "a");
        assert_eq!(identity_of(&[named], &[named]), Identity::Same);
        assert_eq!(identity_of(&[named], &[(HOST, "b")]), Identity::Unknown);
        assert_eq!(identity_of(&[], &[]), Identity::Same);
        assert_eq!(
            identity_of(&[named, (MACHINE_ID, "1")], &[(HOST, "b"), (MACHINE_ID, "1")]),
            Identity::Same
        );
        assert_eq!(
            identity_of(&[named, (MACHINE_ID, "1")], &[named, (MACHINE_ID, "2")]),
            Identity::Other
        );
        assert_eq!(
            identity_of(
                &[(DMI_UUID, "1"), (MACHINE_ID, "1")],
                &[(DMI_UUID, "1"), (MACHINE_ID, "2")]
            ),
            Identity::Same,
            "a host that was installed anew"
        );
        assert_eq!(
            identity_of(
                &[(GPU_UUIDS, "GPU-1, GPU-2"), (DMI_UUID, "1")],
                &[(GPU_UUIDS, "GPU-2"), (DMI_UUID, "2")]
            ),
            Identity::Same,
            "a container that sees one of its GPUs"
        );
        assert_eq!(
            identity_of(
                &[(GPU_UUIDS, "GPU-1"), (DMI_UUID, "1")],
                &[(GPU_UUIDS, "GPU-3"), (DMI_UUID, "1")]
            ),
            Identity::Other
        );
        // The second side was recorded without identities.
        assert_eq!(
            identity_of(&[named, (GPU_UUIDS, "GPU-1"), (DMI_UUID, "1")], &[named]),
            Identity::Same
        );
    }

    #[test]
    fn what_decides_how_fast_an_engine_can_be_forbids_verdicts_and_the_rest_is_told() {
        for (name, before, after, kind) in [
            ("driver", "550.1", "560.2", "environment"),
            ("CPU", "EPYC 9654", "Xeon 8480", "environment"),
            ("GPU 0 power limit", "700 W", "350 W", "environment"),
            ("GPU 0 locked clocks", "1200 MHz", "1980 MHz", "environment"),
            ("GPUs", "H100", "A100", "environment"),
            ("kernel", "6.8.0-45-generic", "6.11.0-9-generic", "environment"),
            ("kernel", "6.8.0-45-generic", "6.8.0-45-realtime", "environment"),
            ("memory", "24.49 GiB", "16.01 GiB", "environment"),
            ("governor", "performance", "powersave", "environment"),
            ("kernel", "6.8.0-45-generic", "6.8.0-51-generic", "host"),
            ("memory", "24.49 GiB", "24.51 GiB", "host"),
            ("memory", "24 GiB", "24.49 GiB", "host"),
            ("CPUs", "2", "1", "host"),
            ("GPUs", "H100, H100", "H100", "host"),
            (HOST, "a", "b", "host"),
        ] {
            let lines = differences_in_words(name, before, after);
            assert_eq!(lines.len(), 1, "{name}");
            assert!(lines[0].starts_with(kind), "{}", lines[0]);
        }
        assert_eq!(
            differences_in_words("kernel", "6.8.0-45-generic", "6.8.0-51-generic"),
            ["host kernel patch: 6.8.0-45-generic → 6.8.0-51-generic"]
        );
    }

    #[test]
    fn gpus_are_compared_as_a_set_and_what_was_not_recorded_yet_is_no_change() {
        let two = facts(&[("GPU 0 power limit", "700 W"), ("GPU 1 power limit", "700 W")]);
        assert_eq!(differences(&two, &facts(&[("GPU 3 power limit", "700 W")])), []);
        let mixed = facts(&[("GPU 0 power limit", "700 W"), ("GPU 1 power limit", "500 W")]);
        assert_eq!(
            differences(&two, &mixed)[0].in_words(),
            "environment GPU power limit: 700 W → 500 W, 700 W"
        );
        let unknown = differences(&facts(&[]), &facts(&[("GPU 0 locked clocks", "1200 MHz")]));
        assert_eq!(unknown[0].kind, DifferenceKind::Host);
        let unknown = differences(&facts(&[]), &facts(&[("driver", "550")]));
        assert_eq!(unknown[0].kind, DifferenceKind::Environment);
        let identified = facts(&[(HOST, "a"), (DMI_UUID, "1"), (MACHINE_ID, "2")]);
        assert_eq!(differences(&facts(&[(HOST, "a")]), &identified), []);
    }

    #[test]
    fn sides_that_were_measured_on_several_hosts_differ_in_all_that_these_differ() {
        let node = |name: &str, driver: &str| facts(&[(NODE, name), ("driver", driver)]);
        let lines = |first: &[Facts], second: &[Facts]| -> Vec<String> {
            let differences = differences_of_hosts(first, second);
            differences.iter().map(Difference::in_words).collect()
        };
        let (one, two, old) = (node("n1", "560"), node("n2", "560"), node("n3", "550"));
        let only = |facts: &Facts| vec![facts.clone()];
        assert!(lines(&only(&one), &only(&one)).is_empty());
        assert_eq!(lines(&only(&one), &only(&two)), ["host node: n1 → n2"]);
        let both = [one.clone(), two.clone()];
        assert_eq!(lines(&both, &both), ["host node: n1, n2 → n1, n2"]);
        // Both sides used both hosts, and still nobody knows what is due to the driver.
        let mixed = [one.clone(), old.clone()];
        assert_eq!(
            lines(&mixed, &mixed),
            [
                "environment driver: 550, 560 → 550, 560",
                "host node: n1, n3 → n1, n3"
            ]
        );
        assert_eq!(
            lines(&only(&two), &mixed),
            ["environment driver: 560 → 550, 560", "host node: n2 → n1, n3"]
        );
    }

    #[test]
    fn noise_is_used_on_its_own_host_alone_while_nothing_that_matters_changed() {
        let first = facts(&[(HOST, "a"), (DMI_UUID, "1"), ("driver", "550"), ("CPUs", "8")]);
        let with = |name: &str, value: &str| {
            let mut changed = first.clone();
            changed.insert(name.to_owned(), value.to_owned());
            changed
        };
        assert!(are_noise_compatible(&first, &with(HOST, "b")));
        assert!(are_noise_compatible(&first, &with("CPUs", "4")));
        assert!(!are_noise_compatible(&first, &with("driver", "560")));
        assert!(!are_noise_compatible(&first, &with(DMI_UUID, "2")));
        assert!(are_noise_compatible(&first, &with(NODE, "n1")));
        assert!(are_noise_compatible(&with(NODE, "n1"), &with(NODE, "n1")));
        assert!(!are_noise_compatible(&with(NODE, "n1"), &with(NODE, "n2")));
        let other = &differences(&first, &with(DMI_UUID, "2"))[0];
        assert_eq!(
            other.in_words(),
            "host machine (another machine of the same class): a (DMI UUID 1) → a (DMI UUID 2)"
        );
    }
}
