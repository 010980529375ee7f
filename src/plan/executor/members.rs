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

/// The processes of the engine at one grid point; empty if it is a single process. `base` returns command and environment
/// of the engine.
pub(super) fn merge(layers: &Layers<'_>, base: Base<'_>) -> Vec<Member> {
    let entry = layers.site.entry;
    match entry.nodes.as_ref().map_or(1, |nodes| nodes.value.get()) {
        1 => {
            let roles = entry.roles.iter();
            roles
                .flat_map(|(name, role)| of_role(layers, base, name, role))
                .collect()
        }
        nodes => ranks(layers, nodes, base),
    }
}

/// Returns the command and the environment of an engine.
type Base<'b> = &'b dyn Fn(&Layers<'_>) -> (Vec<Template>, Vec<(String, Template)>);

fn ranks(layers: &Layers<'_>, nodes: u32, base: Base<'_>) -> Vec<Member> {
    let recipe = layers.site.recipe.nodes.clone().unwrap_or_default();
    let gpus = layers.devices() / nodes;
    let rank = |rank: u32| {
        let fill = |name: &str| match name {
            "node_rank" => Some(rank.to_string()),
            "nodes" => Some(nodes.to_string()),
            name => (layers.fill)(name),
        };
        let layers = layers.with_fill(&fill);
        let (mut command, env) = base(&layers);
        command.extend(layers.filled(&recipe.args));
        command.extend(layers.filled(recipe.other_args.iter().filter(|_| rank > 0)));
        Member {
            name: format!("rank {rank}"),
            node: rank,
            command: with_port(command, &layers),
            env,
            gpus,
            health: (rank == 0).then(|| layers.health()),
            is_endpoint: rank == 0,
            peers: Vec::new(),
        }
    };
    (0..nodes).map(rank).collect()
}

fn of_role(layers: &Layers<'_>, base: Base<'_>, name: &str, role: &RoleEntry) -> Vec<Member> {
    let fill = |name: &str| match (name, role.tp) {
        ("tp", Some(tp)) => Some(tp.to_string()),
        _ => (layers.fill)(name),
    };
    let layers = &layers.with_fill(&fill);
    let (mut command, mut env) = base(layers);
    if let Some(own) = &role.command {
        command = layers.filled(own);
    }
    command.extend(layers.filled(role.args.iter().map(|arg| &arg.value)));
    if role.command.is_none() {
        command = with_port(command, layers);
    }
    let added = role.env.iter();
    env.extend(added.map(|(name, value)| (name.value.clone(), value.value.fill_placeholders(layers.fill))));
    let member = Member {
        name: String::new(),
        node: 0,
        command,
        env,
        gpus: role.gpus_each(),
        health: Some(role.health.clone().unwrap_or_else(|| layers.health())),
        is_endpoint: role.endpoint.as_ref().is_some_and(|endpoint| endpoint.value),
        peers: peers(layers, role),
    };
    let named = |number| Member {
        name: member_name(name, role, number),
        ..member.clone()
    };
    (1..=role.processes()).map(named).collect()
}

fn peers(layers: &Layers<'_>, entry: &RoleEntry) -> Vec<Peer> {
    let roles = &layers.site.entry.roles;
    let mut peers = Vec::new();
    for (other, arguments) in entry.for_each.iter() {
        let Some(other_entry) = roles.get(&other.value) else {
            continue;
        };
        for number in 1..=other_entry.processes() {
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
    roles.map(|role| role.processes() * role.gpus_each()).sum()
}

fn member_name(role: &str, entry: &RoleEntry, number: u32) -> String {
    match entry.processes() {
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
