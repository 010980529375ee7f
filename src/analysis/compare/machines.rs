//! Compares two machines: whether they are one host, and which differences forbid a verdict.
//!
//! A host name does not identify a host: containers, cloud machines and CI runners get a new name with every
//! run. A host is identified by the UUIDs of its GPUs, its DMI UUID or its machine id, in this order. Older
//! runs did not record these and are compared by name.

use std::collections::{BTreeMap, BTreeSet};

use super::environment_diff::{Difference, Kind};
use crate::results::record::cell_stats::Facts;

pub(crate) const HOST: &str = "host";
/// The UUIDs of all GPUs, joined by commas.
pub(crate) const GPU_UUIDS: &str = "GPU UUIDs";
/// A digest of the DMI UUID.
pub(crate) const DMI_UUID: &str = "DMI UUID";
/// A digest of the machine id.
pub(crate) const MACHINE_ID: &str = "machine id";
/// The models of the GPUs, joined by commas.
pub(crate) const GPUS: &str = "GPUs";

/// Memory sizes are equal if they differ by less than this share. The kernel reserves a little, which varies
/// between boots.
const MEMORY_SHARE: f64 = 0.02;

/// Whether two machines are one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    Same,
    Other,
    /// Both sides share no identifying fact, and their names differ.
    Unknown,
}

pub(crate) fn identity(first: &Facts, second: &Facts) -> Identity {
    let known = |name: &str| Some((first.get(name)?, second.get(name)?));
    let told = |is_same: bool| if is_same { Identity::Same } else { Identity::Other };
    if let Some((one, two)) = known(GPU_UUIDS) {
        let uuids = |text: &str| text.split(", ").map(str::to_owned).collect::<BTreeSet<String>>();
        // A container may see only some GPUs of the host.
        return told(!uuids(one).is_disjoint(&uuids(two)));
    }
    for name in [DMI_UUID, MACHINE_ID] {
        if let Some((one, two)) = known(name) {
            return told(one == two);
        }
    }
    match first.get(HOST) == second.get(HOST) {
        true => Identity::Same,
        false => Identity::Unknown,
    }
}

/// Returns whether the noise of one machine applies to the other: they are one host, and no difference
/// forbids a verdict.
pub(crate) fn shares_noise(first: &Facts, second: &Facts) -> bool {
    identity(first, second) == Identity::Same
        && !differences(first, second)
            .iter()
            .any(|difference| difference.kind.forbids())
}

/// Returns the differences of two machines: [`Kind::Environment`] if they forbid a verdict, otherwise
/// [`Kind::Host`].
pub(crate) fn differences(first: &Facts, second: &Facts) -> Vec<Difference> {
    let mut found: Vec<Difference> = Vec::new();
    found.extend(of_hosts(first, second));
    let (first, second) = (gathered(first), gathered(second));
    let names: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    for name in names {
        let (before, after) = (first.get(name), second.get(name));
        let Some(class) = class(name, before, after) else {
            continue;
        };
        let told = |value: Option<&String>| value.map_or_else(|| "unknown".to_owned(), Clone::clone);
        let (kind, what) = class;
        found.push(Difference {
            kind,
            what: what.unwrap_or(name).to_owned(),
            before: told(before),
            after: told(after),
        });
    }
    found
}

/// Returns the difference of hosts. `None` if they are one host with one name.
fn of_hosts(first: &Facts, second: &Facts) -> Option<Difference> {
    let name = |facts: &Facts| facts.get(HOST).map_or_else(|| "unknown".to_owned(), Clone::clone);
    let (mut before, mut after) = (name(first), name(second));
    let what = match identity(first, second) {
        Identity::Other => {
            if before == after {
                let id = |facts: &Facts| {
                    let known = [GPU_UUIDS, DMI_UUID, MACHINE_ID]
                        .into_iter()
                        .find(|kind| first.contains_key(*kind) && second.contains_key(*kind))?;
                    Some(format!(" ({known} {})", facts.get(known)?))
                };
                before.push_str(&id(first).unwrap_or_default());
                after.push_str(&id(second).unwrap_or_default());
            }
            "machine, another one of this class"
        }
        Identity::Same if before == after => return None,
        Identity::Same => "name",
        Identity::Unknown => "name, and nothing identifies the machine",
    };
    Some(Difference {
        kind: Kind::Host,
        what: what.to_owned(),
        before,
        after,
    })
}

/// Returns the facts without those that identify the host. Facts of single GPUs are merged, because the
/// numbers of GPUs do not matter.
fn gathered(facts: &Facts) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, BTreeSet<&String>> = BTreeMap::new();
    for (name, value) in facts {
        if [HOST, GPU_UUIDS, DMI_UUID, MACHINE_ID].contains(&name.as_str()) {
            continue;
        }
        all.entry(of_gpu(name).unwrap_or_else(|| name.clone()))
            .or_default()
            .insert(value);
    }
    let joined = |values: BTreeSet<&String>| {
        let values: Vec<&str> = values.into_iter().map(String::as_str).collect();
        values.join(", ")
    };
    all.into_iter()
        .map(|(name, values)| (name, joined(values)))
        .collect()
}

/// Returns `GPU power limit` for `GPU 3 power limit`.
fn of_gpu(name: &str) -> Option<String> {
    let (number, what) = name.strip_prefix("GPU ")?.split_once(' ')?;
    number.parse::<u32>().ok()?;
    Some(format!("GPU {what}"))
}

/// Classifies the difference of a fact. The second part is its name in output, if that is not the name of the
/// fact. `None` if the values are equal.
fn class(
    name: &str,
    before: Option<&String>,
    after: Option<&String>,
) -> Option<(Kind, Option<&'static str>)> {
    if before == after {
        return None;
    }
    let (Some(one), Some(two)) = (before, after) else {
        // A fact that an older version did not record is no difference, except for these facts, without which
        // a comparison is meaningless.
        let is_vital = [GPUS, "driver", "GPU power limit", "CPU", "kernel"].contains(&name);
        return Some((if is_vital { Kind::Environment } else { Kind::Host }, None));
    };
    match name {
        GPUS => {
            let models = |text: &str| text.split(", ").map(str::to_owned).collect::<BTreeSet<String>>();
            match models(one) == models(two) {
                true => Some((Kind::Host, Some("number of GPUs"))),
                false => Some((Kind::Environment, Some("GPU model"))),
            }
        }
        "CPUs" => Some((Kind::Host, None)),
        "kernel" if is_patch(one, two) => Some((Kind::Host, Some("kernel patch"))),
        "memory" => match (gib(one), gib(two)) {
            (Some((one, blur)), Some((two, other))) => {
                let apart = (one - two).abs() - blur.max(other);
                let is_apart = apart > MEMORY_SHARE * one.max(two);
                Some((if is_apart { Kind::Environment } else { Kind::Host }, None))
            }
            _ => Some((Kind::Environment, None)),
        },
        _ => Some((Kind::Environment, None)),
    }
}

/// Returns whether two kernels differ only in their patch: version, subversion and flavour are equal.
fn is_patch(first: &str, second: &str) -> bool {
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
fn gib(told: &str) -> Option<(f64, f64)> {
    let number = told.strip_suffix(" GiB")?;
    let blur = if number.contains('.') { 0.005 } else { 0.5 };
    Some((number.parse().ok()?, blur))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(told: &[(&str, &str)]) -> Facts {
        told.iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    /// Returns the differences when one fact changes on one host.
    fn told(name: &str, before: &str, after: &str) -> Vec<String> {
        let found = differences(&facts(&[(name, before)]), &facts(&[(name, after)]));
        found.iter().map(Difference::told).collect()
    }

    #[test]
    fn gpus_identify_a_host_else_its_firmware_else_its_machine_id() {
        let of = |first: &[(&str, &str)], second: &[(&str, &str)]| identity(&facts(first), &facts(second));
        let named = (HOST, "a");
        assert_eq!(of(&[named], &[named]), Identity::Same);
        assert_eq!(of(&[named], &[(HOST, "b")]), Identity::Unknown);
        assert_eq!(of(&[], &[]), Identity::Same);
        assert_eq!(
            of(&[named, (MACHINE_ID, "1")], &[(HOST, "b"), (MACHINE_ID, "1")]),
            Identity::Same
        );
        assert_eq!(
            of(&[named, (MACHINE_ID, "1")], &[named, (MACHINE_ID, "2")]),
            Identity::Other
        );
        assert_eq!(
            of(
                &[(DMI_UUID, "1"), (MACHINE_ID, "1")],
                &[(DMI_UUID, "1"), (MACHINE_ID, "2")]
            ),
            Identity::Same,
            "a host that was installed anew"
        );
        assert_eq!(
            of(
                &[(GPU_UUIDS, "GPU-1, GPU-2"), (DMI_UUID, "1")],
                &[(GPU_UUIDS, "GPU-2"), (DMI_UUID, "2")]
            ),
            Identity::Same,
            "a container that sees one of its GPUs"
        );
        assert_eq!(
            of(
                &[(GPU_UUIDS, "GPU-1"), (DMI_UUID, "1")],
                &[(GPU_UUIDS, "GPU-3"), (DMI_UUID, "1")]
            ),
            Identity::Other
        );
        // The second side was recorded without identities.
        assert_eq!(
            of(&[named, (GPU_UUIDS, "GPU-1"), (DMI_UUID, "1")], &[named]),
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
            let found = told(name, before, after);
            assert_eq!(found.len(), 1, "{name}");
            assert!(found[0].starts_with(kind), "{}", found[0]);
        }
        assert_eq!(
            told("kernel", "6.8.0-45-generic", "6.8.0-51-generic"),
            ["host kernel patch: 6.8.0-45-generic → 6.8.0-51-generic"]
        );
    }

    #[test]
    fn gpus_are_compared_as_a_set_and_what_was_not_recorded_yet_is_no_change() {
        let two = facts(&[("GPU 0 power limit", "700 W"), ("GPU 1 power limit", "700 W")]);
        assert_eq!(differences(&two, &facts(&[("GPU 3 power limit", "700 W")])), []);
        let mixed = facts(&[("GPU 0 power limit", "700 W"), ("GPU 1 power limit", "500 W")]);
        assert_eq!(
            differences(&two, &mixed)[0].told(),
            "environment GPU power limit: 700 W → 500 W, 700 W"
        );
        let unknown = differences(&facts(&[]), &facts(&[("GPU 0 locked clocks", "1200 MHz")]));
        assert_eq!(unknown[0].kind, Kind::Host);
        let unknown = differences(&facts(&[]), &facts(&[("driver", "550")]));
        assert_eq!(unknown[0].kind, Kind::Environment);
        let identified = facts(&[(HOST, "a"), (DMI_UUID, "1"), (MACHINE_ID, "2")]);
        assert_eq!(differences(&facts(&[(HOST, "a")]), &identified), []);
    }

    #[test]
    fn noise_is_used_on_its_own_host_alone_while_nothing_that_matters_changed() {
        let first = facts(&[(HOST, "a"), (DMI_UUID, "1"), ("driver", "550"), ("CPUs", "8")]);
        let with = |name: &str, value: &str| {
            let mut changed = first.clone();
            changed.insert(name.to_owned(), value.to_owned());
            changed
        };
        assert!(shares_noise(&first, &with(HOST, "b")));
        assert!(shares_noise(&first, &with("CPUs", "4")));
        assert!(!shares_noise(&first, &with("driver", "560")));
        assert!(!shares_noise(&first, &with(DMI_UUID, "2")));
        let other = &differences(&first, &with(DMI_UUID, "2"))[0];
        assert_eq!(
            other.told(),
            "host machine, another one of this class: a (DMI UUID 1) → a (DMI UUID 2)"
        );
    }
}
