//! The processes of an engine that consists of several: the ranks on its nodes, or its roles.

use serde::{Deserialize, Serialize};

use crate::config::members::RoleEntry;
use crate::config::template::Template;
use crate::plan::layers::Layers;

/// Ports of a process besides the one by which its ranks find rank 0: that of its HTTP server, and a further one.
const OWN_PORTS: usize = 2;

/// One process of an engine that consists of several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Member {
    /// Its name in the log and in messages, such as `rank 1`, `decode 2` or `decode 2 rank 1`.
    pub(crate) name: String,
    /// The node of the job on which it runs, from 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) node: u32,
    /// Its rank, if the engine or its role runs over several nodes. Ranks follow one another in the list of processes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) rank: u32,
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

fn is_zero(number: &u32) -> bool {
    *number == 0
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
        false => members.len() * (OWN_PORTS + 1),
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
            false => self.further[index * OWN_PORTS],
        }
    }

    fn aux(&self, index: usize) -> u16 {
        self.further[index * OWN_PORTS + 1]
    }

    fn head(&self, members: &[Member], index: usize) -> u16 {
        self.further[members.len() * OWN_PORTS + head_of(members, index)]
    }

    /// The ports on which a process may listen.
    pub(crate) fn of_process(&self, members: &[Member], index: usize) -> Vec<u16> {
        let mut ports = vec![self.http(members, index), self.aux(index)];
        ports.extend((members[index].rank == 0).then(|| self.head(members, index)));
        ports
    }
}

/// Number of GPUs of the node of a process that earlier processes have.
pub(crate) fn gpus_before(members: &[Member], index: usize) -> u32 {
    let earlier = members[..index].iter();
    let on_its_node = earlier.filter(|other| other.node == members[index].node);
    on_its_node.map(|other| other.gpus).sum()
}

/// Position of rank 0 of a process.
fn head_of(members: &[Member], index: usize) -> usize {
    index - members[index].rank as usize
}

/// How the processes of an engine reach one another.
pub(crate) struct Addresses<'a> {
    pub(crate) members: &'a [Member],
    pub(crate) ports: &'a Ports,
    /// The address of a node; `None` if it is unknown.
    pub(crate) host: &'a dyn Fn(u32) -> Option<String>,
}

impl Addresses<'_> {
    /// The address of a process for the others.
    pub(crate) fn host_of(&self, index: usize) -> Option<String> {
        match self.members.iter().all(|member| member.node == 0) {
            true => Some("127.0.0.1".to_owned()),
            false => (self.host)(self.members[index].node),
        }
    }

    /// A text of a process with ports and addresses filled in.
    pub(crate) fn fill(&self, index: usize, text: &Template) -> Template {
        let Self { members, ports, host } = self;
        text.fill_placeholders(&|name| match name {
            "port" => Some(ports.http(members, index).to_string()),
            "aux_port" => Some(ports.aux(index).to_string()),
            "head_port" => Some(ports.head(members, index).to_string()),
            "head_host" => host(members[head_of(members, index)].node),
            "host" => self.host_of(index),
            "url" => {
                let host = self.host_of(index)?;
                Some(format!("http://{host}:{}", ports.http(members, index)))
            }
            _ => None,
        })
    }

    /// The command of a process with all ports and addresses filled in.
    pub(crate) fn command(&self, index: usize) -> Vec<Template> {
        let member = &self.members[index];
        let own = member.command.iter();
        let mut words: Vec<Template> = own.map(|text| self.fill(index, text)).collect();
        for peer in &member.peers {
            let position = self.members.iter().position(|other| other.name == peer.name);
            let Some(other) = position else { continue };
            words.extend(peer.arguments.iter().map(|text| self.fill(other, text)));
        }
        words
    }
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
    let gpus = layers.devices() / nodes;
    let rank = |rank: u32| {
        let fill = |name: &str| fill_rank(name, rank, nodes).or_else(|| (layers.fill)(name));
        let layers = layers.with_fill(&fill);
        let (mut command, env) = base(&layers);
        command.extend(rank_arguments(&layers, rank));
        Member {
            name: format!("rank {rank}"),
            node: rank,
            rank,
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

/// The value of a placeholder about the ranks of a process.
fn fill_rank(name: &str, rank: u32, nodes: u32) -> Option<String> {
    match name {
        "node_rank" => Some(rank.to_string()),
        "nodes" => Some(nodes.to_string()),
        _ => None,
    }
}

/// The arguments with which the recipe starts a rank.
fn rank_arguments(layers: &Layers<'_>, rank: u32) -> Vec<Template> {
    let Some(recipe) = &layers.site.recipe.nodes else {
        return Vec::new();
    };
    let other = recipe.other_args.iter().filter(|_| rank > 0);
    layers.filled(recipe.args.iter().chain(other))
}

/// The processes of a role, each with its ranks.
fn of_role(layers: &Layers<'_>, base: Base<'_>, name: &str, role: &RoleEntry) -> Vec<Member> {
    let nodes = role.nodes_each();
    let ranks = (0..role.processes()).flat_map(|process| (0..nodes).map(move |rank| (process, rank)));
    let member = |(process, rank)| {
        let fill = |name: &str| match (name, role.tp) {
            ("tp", Some(tp)) => Some(tp.to_string()),
            _ => fill_rank(name, rank, nodes)
                .filter(|_| nodes > 1)
                .or_else(|| (layers.fill)(name)),
        };
        let layers = &layers.with_fill(&fill);
        let (command, env) = role_command(layers, base, role, rank);
        Member {
            name: member_name(name, role, process, rank),
            node: role.first_node(process) + rank,
            rank,
            command,
            env,
            gpus: role.gpus_each(layers.uses_gpus()) / nodes,
            health: (rank == 0).then(|| role.health.clone().unwrap_or_else(|| layers.health())),
            is_endpoint: rank == 0 && role.endpoint.as_ref().is_some_and(|endpoint| endpoint.value),
            peers: peers(layers, role),
        }
    };
    ranks.map(member).collect()
}

/// Command and environment of a rank of a role.
fn role_command(
    layers: &Layers<'_>,
    base: Base<'_>,
    role: &RoleEntry,
    rank: u32,
) -> (Vec<Template>, Vec<(String, Template)>) {
    let (mut command, mut env) = base(layers);
    if let Some(own) = &role.command {
        command = layers.filled(own);
    }
    command.extend(layers.filled(role.args.iter().map(|arg| &arg.value)));
    if role.command.is_none() {
        if role.nodes_each() > 1 {
            command.extend(rank_arguments(layers, rank));
        }
        command = with_port(command, layers);
    }
    let added = role.env.iter();
    env.extend(added.map(|(name, value)| (name.value.clone(), value.value.fill_placeholders(layers.fill))));
    (command, env)
}

fn peers(layers: &Layers<'_>, entry: &RoleEntry) -> Vec<Peer> {
    let roles = &layers.site.entry.roles;
    let mut peers = Vec::new();
    for (other, arguments) in entry.for_each.iter() {
        let Some(other_entry) = roles.get(&other.value) else {
            continue;
        };
        for process in 0..other_entry.processes() {
            peers.push(Peer {
                name: member_name(&other.value, other_entry, process, 0),
                arguments: layers.filled(arguments),
            });
        }
    }
    peers
}

/// Number of GPUs of all roles.
pub(crate) fn gpus_of_roles<'a>(roles: impl Iterator<Item = &'a RoleEntry>, uses_gpus: bool) -> u32 {
    roles
        .map(|role| role.processes() * role.gpus_each(uses_gpus))
        .sum()
}

/// The name of a process, whose number is from 0, or of its rank.
fn member_name(role: &str, entry: &RoleEntry, process: u32, rank: u32) -> String {
    let name = match entry.processes() {
        1 => role.to_owned(),
        _ => format!("{role} {}", process + 1),
    };
    match entry.nodes_each() {
        1 => name,
        _ => format!("{name} rank {rank}"),
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
