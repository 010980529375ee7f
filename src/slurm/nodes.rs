//! What nodes and partitions of a cluster offer, and what a job would lack there.

use std::collections::BTreeSet;

use crate::base::text::pluralize;
use crate::config::cluster::{ClusterProfile, JobSize};

/// The format that [`parse_sinfo`] reads: one line for each node of each partition.
pub(super) const SINFO_FORMAT: &str = "%N|%P|%T|%c|%m|%G|%f|%l|%a|%E";

/// States in which a node takes no jobs until someone changes it.
const UNUSABLE_STATES: [&str; 7] = ["down", "drain", "fail", "maint", "unknown", "reboot", "future"];
/// Nodes that are named in a message.
const MAX_NAMED: usize = 4;

/// A node of a partition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    name: String,
    partition: String,
    is_default: bool,
    /// The state, such as `idle` or `drained*`.
    state: String,
    cpus: u32,
    memory_mib: u64,
    /// Names of generic resources without their numbers, and how many of each.
    gres: Vec<(String, u32)>,
    features: Vec<String>,
    /// The time limit of the partition in seconds; `None` if it has none.
    time_limit_s: Option<u64>,
    /// Whether the partition takes jobs.
    is_partition_up: bool,
    /// Why the node is down or drained.
    reason: Option<String>,
}

impl Node {
    fn is_usable(&self) -> bool {
        !UNUSABLE_STATES.iter().any(|state| self.state.contains(state))
    }

    /// How many resources of that name it has: `gpu` counts all GPUs.
    fn gres_count(&self, name: &str) -> u32 {
        let named = self.gres.iter().filter(|(known, _)| {
            known == name || known.strip_prefix(name).is_some_and(|rest| rest.starts_with(':'))
        });
        named.map(|(_, count)| count).sum()
    }
}

/// What a job asks for.
pub(crate) struct JobNeeds<'a> {
    pub(crate) profile: &'a ClusterProfile,
    pub(crate) size: JobSize,
    /// The partition that the environment names, for a profile without one.
    pub(crate) default_partition: Option<String>,
}

/// Says what the cluster lacks for a job, with how to fix it; empty if nothing is known to be missing.
pub(super) fn lacks(nodes: &[Node], needs: &JobNeeds<'_>) -> Vec<String> {
    let profile = needs.profile;
    if profile
        .options
        .iter()
        .any(|option| ["partition", "clusters", "gres", "gpus", "mem", "nodelist"].contains(&option.name()))
    {
        // An option may ask for anything.
        return Vec::new();
    }
    let named = profile.partition.as_ref().map(ToString::to_string);
    let mut found = Vec::new();
    let wanted: Vec<String> = match named.or_else(|| needs.default_partition.clone()) {
        Some(names) => names.split(',').map(str::to_owned).collect(),
        None => match nodes.iter().find(|node| node.is_default) {
            Some(node) => vec![node.partition.clone()],
            None => {
                return vec![format!(
                    "the cluster has no default partition; set `partition` of the profile to one of {}",
                    partitions(nodes)
                )];
            }
        },
    };
    for name in &wanted {
        if !nodes.iter().any(|node| node.partition == *name) {
            found.push(format!(
                "the cluster has no nodes in a partition `{name}`; `partition` of the profile may be one of {}",
                partitions(nodes)
            ));
        }
    }
    let nodes: Vec<&Node> = nodes
        .iter()
        .filter(|node| wanted.contains(&node.partition))
        .collect();
    if nodes.is_empty() {
        return found;
    }
    let place = format!("partition `{}`", wanted.join(","));
    if nodes.iter().all(|node| !node.is_partition_up) {
        found.push(format!("{place} takes no jobs now; choose another `partition`"));
    }
    found.extend(lacking_time(&nodes, profile, &place));
    found.extend(lacking_nodes(&nodes, needs, &place));
    found
}

fn lacking_time(nodes: &[&Node], profile: &ClusterProfile, place: &str) -> Option<String> {
    let limit = profile.time_limit?;
    let most = nodes
        .iter()
        .map(|node| node.time_limit_s.unwrap_or(u64::MAX))
        .max()?;
    (limit.duration().as_secs() > most).then(|| {
        format!(
            "`time_limit` of the profile is {limit}, but {place} allows only {}m; the job would never start",
            most / 60
        )
    })
}

/// Whether a node has one of the things that a job asks for.
type NodeCheck<'a> = Box<dyn Fn(&Node) -> bool + 'a>;

/// Whether some node that is in use has all that the job asks for; otherwise what the best ones have.
fn lacking_nodes(nodes: &[&Node], needs: &JobNeeds<'_>, place: &str) -> Option<String> {
    let profile = needs.profile;
    let gres = profile
        .gres
        .as_ref()
        .map_or_else(|| "gpu".to_owned(), ToString::to_string);
    let cpus = profile.cpus.map_or(1, std::num::NonZeroU32::get);
    let memory = profile
        .memory
        .as_ref()
        .and_then(|memory| memory_mib(&memory.to_string()));
    let features = profile
        .constraint
        .as_ref()
        .and_then(|constraint| plain_features(&constraint.to_string()))
        .unwrap_or_default();
    let checks: [(String, NodeCheck<'_>); 4] = [
        (
            format!(
                "{} named `{gres}`",
                pluralize(needs.size.gpus as usize, "GPU", "GPUs")
            ),
            Box::new(|node| node.gres_count(&gres) >= needs.size.gpus),
        ),
        (
            pluralize(cpus as usize, "processor", "processors"),
            Box::new(move |node| node.cpus >= cpus),
        ),
        (
            format!("{} MiB of memory", memory.unwrap_or(0)),
            Box::new(move |node| memory.is_none_or(|memory| node.memory_mib >= memory)),
        ),
        (
            format!("the features `{}`", features.join("&")),
            Box::new(|node| features.iter().all(|feature| node.features.contains(feature))),
        ),
    ];
    let suitable: Vec<&Node> = nodes
        .iter()
        .copied()
        .filter(|node| checks.iter().all(|(_, has)| has(node)))
        .collect();
    if suitable.is_empty() {
        // What no node has is the cause; otherwise it is the combination.
        let missing: Vec<&str> = checks
            .iter()
            .filter(|(_, has)| !nodes.iter().any(|node| has(node)))
            .map(|(what, _)| what.as_str())
            .collect();
        let offered = offers(nodes);
        return Some(match missing.is_empty() {
            true => format!("no node of {place} has all that the profile requests; {offered}"),
            false => format!("no node of {place} has {}; {offered}", missing.join(" and ")),
        });
    }
    let wanted = needs.size.nodes as usize;
    let existing = count_names(suitable.iter().copied());
    if existing < wanted {
        return Some(format!(
            "the job requests {wanted} nodes, but {place} has only {} with the requested resources; {}",
            pluralize(existing, "node", "nodes"),
            offers(nodes)
        ));
    }
    let usable = suitable.iter().copied().filter(|node| node.is_usable());
    (count_names(usable) < wanted).then(|| unusable_nodes(&suitable, wanted, place))
}

/// Number of nodes; a node is listed once for each of its partitions.
fn count_names<'n>(nodes: impl Iterator<Item = &'n Node>) -> usize {
    let names: BTreeSet<&str> = nodes.map(|node| node.name.as_str()).collect();
    names.len()
}

/// Says that fewer of the suitable nodes than wanted take jobs, and why the others do not.
fn unusable_nodes(suitable: &[&Node], wanted: usize, place: &str) -> String {
    let unusable: Vec<&&Node> = suitable.iter().filter(|node| !node.is_usable()).collect();
    let named: Vec<String> = unusable
        .iter()
        .take(MAX_NAMED)
        .map(|node| match &node.reason {
            Some(reason) => format!("{} is {} ({reason})", node.name, node.state),
            None => format!("{} is {}", node.name, node.state),
        })
        .collect();
    let more = match unusable.len() - named.len() {
        0 => String::new(),
        rest => format!(", and {rest} more"),
    };
    let what = match wanted {
        1 => format!("no node of {place} with the requested resources takes jobs now"),
        wanted => format!("fewer than {wanted} nodes of {place} with the requested resources take jobs now"),
    };
    format!("{what}: {}{more}", named.join(", "))
}

/// What nodes have at most, without repetition.
fn offers(nodes: &[&Node]) -> String {
    let mut kinds: BTreeSet<String> = BTreeSet::new();
    for node in nodes {
        let gres: Vec<String> = node
            .gres
            .iter()
            .map(|(name, count)| format!("{name}:{count}"))
            .collect();
        let mut parts = vec![
            pluralize(node.cpus as usize, "processor", "processors"),
            format!("{} MiB", node.memory_mib),
        ];
        parts.extend((!gres.is_empty()).then(|| gres.join(",")));
        parts.extend((!node.features.is_empty()).then(|| format!("features {}", node.features.join(","))));
        kinds.insert(parts.join(", "));
    }
    let named: Vec<String> = kinds.iter().take(MAX_NAMED).cloned().collect();
    format!("its nodes have {}", named.join("; or "))
}

fn partitions(nodes: &[Node]) -> String {
    let names: BTreeSet<&str> = nodes.iter().map(|node| node.partition.as_str()).collect();
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// The features of a constraint that only joins names with `&`; `None` of any other.
fn plain_features(constraint: &str) -> Option<Vec<String>> {
    let is_plain = constraint
        .chars()
        .all(|letter| letter.is_ascii_alphanumeric() || "_-.&".contains(letter));
    is_plain.then(|| constraint.split('&').map(str::to_owned).collect())
}

/// Reads `64G`, `900M` or `900` as MiB.
fn memory_mib(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    match text[digits.len()..].to_ascii_uppercase().as_str() {
        "K" => Some(number / 1024),
        "" | "M" | "MB" => Some(number),
        "G" | "GB" => number.checked_mul(1024),
        "T" | "TB" => number.checked_mul(1 << 20),
        _ => None,
    }
}

/// Reads a line of `sinfo`; `None` if it has another form.
pub(super) fn parse_sinfo(line: &str) -> Option<Node> {
    let fields: Vec<&str> = line.trim().splitn(10, '|').collect();
    let [
        name,
        partition,
        state,
        cpus,
        memory,
        gres,
        features,
        limit,
        availability,
        reason,
    ] = fields[..]
    else {
        return None;
    };
    let number = |text: &str| text.trim_end_matches('+').parse().ok();
    let known = |text: &str| !["", "(null)", "none", "N/A"].contains(&text);
    Some(Node {
        name: name.to_owned(),
        partition: partition.trim_end_matches('*').to_owned(),
        is_default: partition.ends_with('*'),
        state: state.to_lowercase(),
        cpus: u32::try_from(number(cpus)?).ok()?,
        memory_mib: number(memory)?,
        gres: parse_gres(gres),
        features: features
            .split(',')
            .filter(|name| known(name))
            .map(str::to_owned)
            .collect(),
        time_limit_s: parse_time_limit(limit),
        is_partition_up: availability == "up",
        reason: known(reason).then(|| reason.to_owned()),
    })
}

/// Reads `gpu:h100:8(S:0-1),tpu:2`.
fn parse_gres(text: &str) -> Vec<(String, u32)> {
    let mut depth = 0;
    let mut plain = String::new();
    for letter in text.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    let entries = plain.split(',').filter(|entry| !entry.is_empty());
    let read = entries.map(|entry| match entry.rsplit_once(':') {
        Some((name, count)) => match count.parse() {
            Ok(count) => (name.to_owned(), count),
            Err(_) => (entry.to_owned(), 1),
        },
        None => (entry.to_owned(), 1),
    });
    read.collect()
}

/// Reads `1-02:03:04`, `2:03:04` or `10:00` as seconds; `None` without a limit.
fn parse_time_limit(text: &str) -> Option<u64> {
    let (days, rest) = text.split_once('-').unwrap_or(("0", text));
    let mut seconds = 0u64;
    for part in rest.split(':') {
        seconds = seconds.checked_mul(60)?.checked_add(part.parse().ok()?)?;
    }
    days.parse::<u64>()
        .ok()?
        .checked_mul(86_400)?
        .checked_add(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: [&str; 4] = [
        "node1|gpu*|idle|16|64000|gpu:h100:8(S:0,1)|ib,h100|infinite|up|none",
        "node2|gpu*|drained*|32|64000|gpu:h100:8,gpu:a100:2|(null)|infinite|up|bad | disk",
        "node1|short|idle|16|64000|gpu:h100:8|(null)|10:00|up|none",
        "node3|off|idle|16|64000|(null)|(null)|1-00:00:00|inact|none",
    ];

    fn lacks_of(profile: &str, gpus: u32) -> String {
        let profile: ClusterProfile = serde_json::from_str(profile).unwrap();
        let nodes: Vec<Node> = LINES.iter().filter_map(|line| parse_sinfo(line)).collect();
        assert_eq!(nodes.len(), LINES.len());
        let needs = JobNeeds {
            profile: &profile,
            size: JobSize { nodes: 1, gpus },
            default_partition: None,
        };
        lacks(&nodes, &needs).join("\n")
    }

    #[test]
    fn what_a_cluster_lacks_is_named_with_what_it_has() {
        for (profile, gpus, found) in [
            ("{}", 8, ""),
            (r#"{"gres": "gpu:h100", "constraint": "ib&h100"}"#, 8, ""),
            (r#"{"partition": "gup"}"#, 0, "one of `gpu`, `off`, `short`"),
            (
                r#"{"partition": "short", "time_limit": "20m"}"#,
                1,
                "is 20m, but partition `short` allows only 10m",
            ),
            (r#"{"partition": "gpu,short", "time_limit": "20m"}"#, 1, ""),
            (r#"{"partition": "off"}"#, 0, "takes no jobs now"),
            (r#"{"partition": "off"}"#, 1, "has 1 GPU named `gpu`"),
            ("{}", 11, "has 11 GPUs named `gpu`; its nodes have"),
            (r#"{"gres": "gpu:h200"}"#, 1, "1 GPU named `gpu:h200`"),
            (r#"{"gres": "gpu:a100"}"#, 2, "node2 is drained* (bad | disk)"),
            (r#"{"cpus": 17}"#, 0, "node2 is drained*"),
            (r#"{"cpus": 33}"#, 0, "has 33 processors"),
            (r#"{"memory": "63G"}"#, 0, "64512 MiB"),
            (r#"{"memory": "62G"}"#, 0, ""),
            (r#"{"constraint": "foo"}"#, 0, "the features `foo`"),
            (r#"{"constraint": "foo|ib"}"#, 0, ""),
            (
                r#"{"cpus": 32, "constraint": "ib"}"#,
                0,
                "has all that the profile requests",
            ),
            (r#"{"cpus": 33, "options": ["--partition=x"]}"#, 0, ""),
        ] {
            let text = lacks_of(profile, gpus);
            match found {
                "" => assert_eq!(text, "", "{profile}"),
                found => assert!(text.contains(found), "{profile}: {text}"),
            }
        }
    }

    #[test]
    fn time_limits_are_read_in_all_their_forms() {
        assert_eq!(parse_time_limit("infinite"), None);
        assert_eq!(parse_time_limit("10:00"), Some(600));
        assert_eq!(parse_time_limit("2:03:04"), Some(7384));
        assert_eq!(parse_time_limit("1-00:00:00"), Some(86_400));
        assert_eq!(parse_sinfo("node1|gpu"), None);
    }
}
