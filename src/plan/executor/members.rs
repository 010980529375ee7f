//! The processes of an engine that consists of several: the ranks on its nodes, or its roles.

use serde::{Deserialize, Serialize};

use crate::config::members::RoleEntry;
use crate::config::template::Template;
use crate::plan::layers::Layers;

/// Ports of a process besides the one of its HTTP server.
const FURTHER_PORTS: usize = 1;

/// One process of an engine that consists of several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Member {
    /// Its name in the log and in messages, such as `rank 1` or `decode 2`.
    pub(crate) name: String,
    /// The node of the job on which it runs, from 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) node: u32,
    /// Its command, without `peers`.
    pub(crate) command: Vec<Template>,
    /// Environment variables on top of the inherited ones, in order.
    pub(crate) env: Vec<(String, Template)>,
    /// Number of its GPUs.
    pub(crate) gpus: u32,
    /// The path that returns status 200 when it is healthy; `None` if it serves no HTTP.
    pub(crate) health: Option<String>,
    /// Whether requests are sent to it.
    pub(crate) is_endpoint: bool,
    /// Arguments for each process of another role, appended to the command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) peers: Vec<Peer>,
}

impl Member {
    /// Number of its GPUs on the node that `matrix` runs on.
    pub(crate) const fn local_gpus(&self) -> usize {
        match self.node {
            0 => self.gpus as usize,
            _ => 0,
        }
    }
}

/// Arguments that name another process of the engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Peer {
    /// The name of the other process.
    pub(crate) name: String,
    /// Arguments, in which `{url}`, `{port}` and `{aux_port}` are those of the other process.
    pub(crate) arguments: Vec<Template>,
}

fn is_zero(node: &u32) -> bool {
    *node == 0
}

/// The ports of a start of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ports {
    /// Where requests are sent.
    pub(crate) endpoint: u16,
    /// Those of its further processes, as many as [`further_ports`] says.
    pub(crate) further: Vec<u16>,
}

/// Number of ports that a start needs besides the one to which requests are sent.
pub(crate) fn further_ports(members: &[Member]) -> usize {
    match members.is_empty() {
        true => 0,
        // The last one is that of the ranks.
        false => members.len() * (1 + FURTHER_PORTS) + 1,
    }
}

impl Ports {
    /// The ports that are printed if no start has chosen others.
    pub(crate) fn planned(endpoint: u16, members: &[Member]) -> Self {
        let further = (1..=further_ports(members)).map(|number| endpoint.wrapping_add(number as u16));
        Self {
            endpoint,
            further: further.collect(),
        }
    }

    /// The port of the HTTP server of a process.
    pub(crate) fn http(&self, members: &[Member], index: usize) -> u16 {
        match members[index].is_endpoint {
            true => self.endpoint,
            false => self.further[index * (1 + FURTHER_PORTS)],
        }
    }

    fn aux(&self, index: usize) -> u16 {
        self.further[index * (1 + FURTHER_PORTS) + 1]
    }

    fn head(&self) -> u16 {
        self.further.last().copied().unwrap_or_default()
    }
}

/// The words of a text with the ports of a process filled in.
pub(crate) fn fill_ports(members: &[Member], index: usize, ports: &Ports, text: &Template) -> Template {
    text.fill_placeholders(&|name| match name {
        "port" => Some(ports.http(members, index).to_string()),
        "aux_port" => Some(ports.aux(index).to_string()),
        "head_port" => Some(ports.head().to_string()),
        "url" => Some(format!("http://127.0.0.1:{}", ports.http(members, index))),
        _ => None,
    })
}

/// The command of a process with all ports filled in.
pub(crate) fn member_command(members: &[Member], index: usize, ports: &Ports) -> Vec<Template> {
    let member = &members[index];
    let own = member.command.iter();
    let mut words: Vec<Template> = own.map(|text| fill_ports(members, index, ports, text)).collect();
    for peer in &member.peers {
        let position = members.iter().position(|other| other.name == peer.name);
        let Some(other) = position else { continue };
        let filled = peer.arguments.iter();
        words.extend(filled.map(|text| fill_ports(members, other, ports, text)));
    }
    words
}

/// The processes of the engine at one grid point; empty if it is a single process. `command` and `env` are those of
/// the engine.
pub(super) fn merge(layers: &Layers<'_>, command: &[Template], env: &[(String, Template)]) -> Vec<Member> {
    let entry = layers.site.entry;
    match entry.nodes.as_ref().map_or(1, |nodes| nodes.value.get()) {
        1 => roles(layers, command, env),
        nodes => ranks(layers, nodes, command, env),
    }
}

fn ranks(layers: &Layers<'_>, nodes: u32, command: &[Template], env: &[(String, Template)]) -> Vec<Member> {
    let recipe = layers.site.recipe.nodes.clone().unwrap_or_default();
    let gpus = layers.devices() / nodes;
    let rank = |rank: u32| {
        let fill = |text: &Template| {
            text.fill_placeholders(&|name| match name {
                "node_rank" => Some(rank.to_string()),
                "nodes" => Some(nodes.to_string()),
                _ => None,
            })
        };
        let own = layers.filled(&recipe.args);
        let other = layers.filled(recipe.other_args.iter().filter(|_| rank > 0));
        let words: Vec<Template> = command.iter().chain(&own).chain(&other).map(fill).collect();
        Member {
            name: format!("rank {rank}"),
            node: rank,
            command: with_port(words, layers),
            env: env
                .iter()
                .map(|(name, value)| (name.clone(), fill(value)))
                .collect(),
            gpus,
            health: (rank == 0).then(|| layers.health()),
            is_endpoint: rank == 0,
            peers: Vec::new(),
        }
    };
    (0..nodes).map(rank).collect()
}

fn roles(layers: &Layers<'_>, command: &[Template], env: &[(String, Template)]) -> Vec<Member> {
    let roles = &layers.site.entry.roles;
    let mut members = Vec::new();
    for (role, entry) in roles.iter() {
        for number in 1..=count(entry) {
            let own = entry.command.as_ref().map(|command| layers.filled(command));
            let mut words = own.unwrap_or_else(|| command.to_vec());
            words.extend(layers.filled(entry.args.iter().map(|arg| &arg.value)));
            let added = entry
                .env
                .iter()
                .map(|(name, value)| (name.value.clone(), value.value.clone()));
            let added = added.map(|(name, value)| (name, value.fill_placeholders(layers.fill)));
            members.push(Member {
                name: member_name(&role.value, entry, number),
                node: 0,
                command: match entry.command.is_some() {
                    true => words,
                    false => with_port(words, layers),
                },
                env: env.iter().cloned().chain(added).collect(),
                gpus: entry.gpus.unwrap_or(0),
                health: Some(entry.health.clone().unwrap_or_else(|| layers.health())),
                is_endpoint: entry.endpoint.as_ref().is_some_and(|endpoint| endpoint.value),
                peers: peers(layers, entry),
            });
        }
    }
    members
}

fn peers(layers: &Layers<'_>, entry: &RoleEntry) -> Vec<Peer> {
    let roles = &layers.site.entry.roles;
    let mut peers = Vec::new();
    for (other, arguments) in entry.for_each.iter() {
        let Some(other_entry) = roles.get(&other.value) else {
            continue;
        };
        for number in 1..=count(other_entry) {
            peers.push(Peer {
                name: member_name(&other.value, other_entry, number),
                arguments: layers.filled(arguments),
            });
        }
    }
    peers
}

/// Number of GPUs of all roles.
pub(crate) fn gpus_of_roles<'a>(roles: impl Iterator<Item = &'a RoleEntry>) -> u32 {
    roles.map(|role| count(role) * role.gpus.unwrap_or(0)).sum()
}

fn count(entry: &RoleEntry) -> u32 {
    entry.count.as_ref().map_or(1, |count| count.value.get())
}

fn member_name(role: &str, entry: &RoleEntry, number: u32) -> String {
    match count(entry) {
        1 => role.to_owned(),
        _ => format!("{role} {number}"),
    }
}

/// The command with the arguments that set the port, unless it names the port itself.
fn with_port(mut command: Vec<Template>, layers: &Layers<'_>) -> Vec<Template> {
    let names_port = command
        .iter()
        .any(|word| word.placeholders().any(|name| name == "port"));
    if !names_port {
        command.extend(layers.port_arguments());
    }
    command
}
