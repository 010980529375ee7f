//! Checks engines that consist of several processes: over several nodes, or with several roles.

use std::collections::BTreeSet;

use super::diagnostics::{unknown_name, with_place};
use crate::base::text::pluralize;
use crate::config::engine::{Devices, Executor, Recipe};
use crate::config::forms::Named;
use crate::config::job_containers::{ContainerRuntime, JobContainers};
use crate::config::matrix::{EngineEntry, engine_name};
use crate::config::members::RoleEntry;
use crate::config::template::Template;
use crate::config::yaml::{Diagnostic, SourceSpan, Spanned};

/// Placeholders that have a value on several nodes only.
const NODE_PLACEHOLDERS: [&str; 4] = ["nodes", "node_rank", "head_host", "head_port"];
/// Placeholders that have a value in roles only.
const ROLE_PLACEHOLDERS: [&str; 3] = ["aux_port", "host", "url"];
/// Largest number of processes of an engine.
const MAX_PROCESSES: u32 = 256;

/// Errors about the nodes and roles of an engine that runs with these executors.
pub(super) fn check_members(
    named: &Named<EngineEntry>,
    recipe: &Recipe,
    executors: &[Executor],
    containers: Option<&JobContainers>,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let entry = &named.value;
    let nodes = entry.nodes.as_ref().filter(|nodes| nodes.value.get() > 1);
    let first_role = entry.roles.iter().next().map(|(name, _)| name);
    let place = nodes.map_or_else(
        || first_role.and_then(|name| name.place.as_ref()),
        |nodes| nodes.place.as_ref(),
    );
    let engine = engine_name(named);
    // A container without a daemon is a process of the job.
    let starts_several = |executor: Executor| match executor {
        Executor::Process => true,
        Executor::Container => containers.is_none_or(|own| own.runtime != ContainerRuntime::Docker),
        Executor::Attach => false,
    };
    let other = executors.iter().find(|executor| !starts_several(**executor));
    match (nodes, first_role) {
        (None, None) => {}
        (Some(_), Some(role)) => diagnostics.push(
            with_place(
                Diagnostic::new(format!("`{engine}` has both `nodes` and `roles`")),
                role.place.as_ref(),
                "each role has its own nodes",
            )
            .with_help("remove `nodes` of the engine. Place each role with `node`, such as `decode: { node: 1 }`. If one process of a role runs over several nodes, set `nodes` of this role"),
        ),
        (_, _) if other.is_some() => diagnostics.push(
            with_place(
                Diagnostic::new(format!(
                    "`{engine}` consists of several processes, which the executor `{}` cannot start",
                    other.map_or("", |executor| executor.name())
                )),
                place,
                "needs `executor: process`",
            )
            .with_help("set `executor: process`, or run the containers in a job: write `containers: { runtime: podman }` (or `apptainer`, `enroot`) into the profile of the cluster"),
        ),
        (Some(nodes), None) => check_nodes(named, recipe, nodes.place.as_ref(), diagnostics),
        (None, Some(_)) => check_roles(named, recipe, diagnostics),
    }
    check_placeholders(named, nodes.is_some(), diagnostics);
}

/// Errors about an engine that has no arguments for its ranks.
fn check_nodes(
    named: &Named<EngineEntry>,
    recipe: &Recipe,
    place: Option<&SourceSpan>,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let entry = &named.value;
    let own = entry.args.iter().map(|arg| &arg.value);
    let mut own = own.chain(entry.command.iter().flatten());
    if recipe.nodes.is_none() && !own.any(|word| has_placeholder(word, &["node_rank"])) {
        let message = format!(
            "the recipe `{}` does not say how to run the engine over several nodes",
            recipe.name
        );
        diagnostics.push(
            with_place(Diagnostic::new(message), place, "each node needs an argument with its rank").with_help(
                "add `nodes:` to the recipe, such as `nodes: { args: [--nnodes, \"{nodes}\", --node-rank, \"{node_rank}\", --dist-init-addr, \"{head_host}:{head_port}\"] }`",
            ),
        );
    }
}

fn check_roles(named: &Named<EngineEntry>, recipe: &Recipe, diagnostics: &mut Vec<Diagnostic>) {
    let engine = engine_name(named);
    let roles = &named.value.roles;
    let place = named.name.place.as_ref();
    let is_endpoint = |role: &RoleEntry| role.endpoint.as_ref().is_some_and(|endpoint| endpoint.value);
    let mut endpoints = roles.iter().filter(|(_, role)| is_endpoint(role));
    match (endpoints.next(), endpoints.next()) {
        (None, _) => diagnostics.push(
            with_place(
                Diagnostic::new(format!(
                    "no role of `{engine}` receives the requests"
                )),
                place,
                "needs an endpoint",
            )
            .with_help("add `endpoint: true` to the role that receives the requests, such as `router: { endpoint: true }`"),
        ),
        (Some(_), Some((second, _))) => diagnostics.push(
            with_place(
                Diagnostic::new(format!("`{engine}` has more than one role with `endpoint: true`")),
                second.place.as_ref(),
                "again",
            )
            .with_help("requests are sent to one process; for several processes, use a router as the only endpoint"),
        ),
        (Some((name, role)), None) if role.count.as_ref().is_some_and(|count| count.value.get() > 1) => {
            diagnostics.push(
                with_place(
                    Diagnostic::new(format!(
                        "the role `{name}` of `{engine}` is the endpoint, but has several processes"
                    )),
                    role.count.as_ref().and_then(|count| count.place.as_ref()),
                    "more than one",
                )
                .with_help("remove `count`, or use a router as the endpoint"),
            );
        }
        (Some(_), None) => {}
    }
    let ranks = |role: &RoleEntry| role.processes().saturating_mul(role.nodes_each());
    let processes = roles.iter().map(|(_, role)| ranks(role));
    if processes.fold(0_u32, u32::saturating_add) > MAX_PROCESSES {
        let message = format!("`{engine}` has more than {MAX_PROCESSES} processes");
        diagnostics.push(with_place(Diagnostic::new(message), place, "too many").with_help("lower `count`"));
    }
    let devices = named.value.devices.unwrap_or(recipe.devices);
    if devices == Devices::Gpu && roles.iter().all(|(_, role)| role.gpus_each(true) == 0) {
        diagnostics.push(
            with_place(
                Diagnostic::new(format!("`{engine}` computes on GPUs, but none of its roles has a GPU")),
                place,
                "a role needs `tp` or `gpus`",
            )
            .with_help("add `tp` or `gpus` to the roles that compute, such as `decode: { tp: 4 }`, or `devices: none` to the engine"),
        );
    }
    diagnostics.extend(unused_node(named));
    let names: Vec<&str> = roles.names().collect();
    for (name, role) in roles.iter() {
        check_role_name(name, diagnostics);
        check_place(name, role, recipe, devices == Devices::Gpu, diagnostics);
        for (other, _) in role.for_each.iter() {
            if other.value == name.value {
                let message = format!("`for_each` of the role `{name}` names the role itself");
                diagnostics.push(
                    with_place(Diagnostic::new(message), other.place.as_ref(), "the same role")
                        .with_help("name another role"),
                );
            } else if !names.contains(&other.as_str()) {
                diagnostics.push(unknown_name(
                    "role",
                    other,
                    &names,
                    &format!("not a role of `{engine}`"),
                ));
            }
        }
    }
}

/// Errors about the nodes of a role.
fn check_place(
    name: &Spanned<String>,
    role: &RoleEntry,
    recipe: &Recipe,
    uses_gpus: bool,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let place = role.node.as_ref().and_then(|node| node.place.as_ref());
    let is_endpoint = role.endpoint.as_ref().is_some_and(|endpoint| endpoint.value);
    if is_endpoint && role.first_node(0) > 0 {
        let message = format!("the role `{name}` is the endpoint, but does not run on the first node");
        diagnostics.push(
            with_place(Diagnostic::new(message), place, "the load is generated on node 0")
                .with_help("remove `node`, or use a router on node 0 as the endpoint"),
        );
    }
    let nodes = role.node.as_ref().map_or(1, |node| node.value.len());
    let processes = role.processes() as usize;
    if nodes != 1 && nodes != processes {
        let message = format!("the role `{name}` has {processes} processes, and `node` lists {nodes} nodes");
        diagnostics.push(
            with_place(
                Diagnostic::new(message),
                place,
                "`node` must list one node for each process",
            )
            .with_help("list one node for each process, name one node for all processes, or remove `count`"),
        );
    }
    let ranks = role.nodes_each();
    if ranks == 1 {
        return;
    }
    let place = role.nodes.as_ref().and_then(|nodes| nodes.place.as_ref());
    let gpus = role.gpus_each(uses_gpus);
    if !gpus.is_multiple_of(ranks) {
        let message = format!(
            "each process of the role `{name}` has {}, which cannot be divided over {ranks} nodes",
            pluralize(gpus as usize, "GPU", "GPUs")
        );
        diagnostics.push(
            with_place(
                Diagnostic::new(message),
                place,
                "each node must have the same number of GPUs",
            )
            .with_help("choose `tp` or `gpus` of the role as a multiple of its `nodes`"),
        );
    }
    let own = role.args.iter().map(|arg| &arg.value);
    let mut own = own.chain(role.command.iter().flatten());
    let knows_ranks = recipe.nodes.is_some() && role.command.is_none();
    if !knows_ranks && !own.any(|word| has_placeholder(word, &["node_rank"])) {
        let message = format!("no argument of the role `{name}` says how it runs over several nodes");
        diagnostics.push(
            with_place(Diagnostic::new(message), place, "each node needs an argument with its rank").with_help(
                "add arguments to the role, such as `args: [--nnodes, \"{nodes}\", --node-rank, \"{node_rank}\", --dist-init-addr, \"{head_host}:{head_port}\"]`",
            ),
        );
    }
}

/// The error for a node between others on which no role has a process, or for more nodes than an engine may have.
fn unused_node(named: &Named<EngineEntry>) -> Option<Diagnostic> {
    let roles = &named.value.roles;
    let mut used = BTreeSet::new();
    for (_, role) in roles.iter() {
        for process in 0..role.processes().min(MAX_PROCESSES) {
            let first = role.first_node(process);
            used.extend(first..first.saturating_add(role.nodes_each().min(MAX_PROCESSES)));
        }
    }
    let last = *used.last()?;
    let engine = engine_name(named);
    let (message, help) = if last >= MAX_PROCESSES {
        let message =
            format!("`{engine}` uses node {last}, but an engine may have at most {MAX_PROCESSES} nodes");
        (message, "nodes are numbered from 0")
    } else {
        let missing = (0..last).find(|node| !used.contains(node))?;
        let message = format!("no role of `{engine}` has a process on node {missing}");
        (
            message,
            "number the nodes from 0, without gaps; requests are sent from node 0",
        )
    };
    let placed = roles
        .iter()
        .find_map(|(_, role)| role.node.as_ref()?.place.as_ref());
    let place = placed.or(named.name.place.as_ref());
    Some(with_place(Diagnostic::new(message), place, "check the `node` of every role").with_help(help))
}

/// Names appear in the log and in messages.
fn check_role_name(name: &Spanned<String>, diagnostics: &mut Vec<Diagnostic>) {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
    if name.is_empty() || !name.chars().all(is_allowed) {
        let message = format!("`{}` cannot be the name of a role", name.escape_debug());
        diagnostics.push(
            with_place(Diagnostic::new(message), name.place.as_ref(), "not a valid name")
                .with_help("use letters, digits, `_` and `-`"),
        );
    }
}

/// Errors about placeholders that have no value.
fn check_placeholders(named: &Named<EngineEntry>, has_nodes: bool, diagnostics: &mut Vec<Diagnostic>) {
    let entry = &named.value;
    let mut refuse = |word: &Template, place: Option<&SourceSpan>, names: &[&str], help: &str| {
        if let Some(name) = word.placeholders().find(|name| names.contains(name)) {
            let message = format!(
                "the placeholder `{{{name}}}` has no value for the engine `{}`",
                engine_name(named)
            );
            diagnostics.push(with_place(Diagnostic::new(message), place, "no value here").with_help(help));
        }
    };
    let (roles_help, nodes_help) = (
        "use `{url}` only in `for_each` of a role, and `{aux_port}` only in a role",
        "set `nodes` of the engine, such as `nodes: 2`",
    );
    let own = entry.args.iter().map(|arg| (&arg.value, arg.place.as_ref()));
    let env = entry
        .env
        .iter()
        .map(|(_, value)| (&value.value, value.place.as_ref()));
    let command = entry
        .command
        .iter()
        .flatten()
        .map(|word| (word, named.name.place.as_ref()));
    for (word, place) in own.chain(env).chain(command) {
        if !has_nodes {
            refuse(word, place, &NODE_PLACEHOLDERS, nodes_help);
        }
        if entry.roles.len() == 0 {
            refuse(word, place, &ROLE_PLACEHOLDERS, roles_help);
        }
    }
    for (name, role) in entry.roles.iter() {
        let args = role.args.iter().map(|arg| (&arg.value, arg.place.as_ref()));
        let env = role
            .env
            .iter()
            .map(|(_, value)| (&value.value, value.place.as_ref()));
        let command = role
            .command
            .iter()
            .flatten()
            .map(|word| (word, name.place.as_ref()));
        for (word, place) in args.chain(env).chain(command) {
            if role.nodes_each() == 1 {
                refuse(
                    word,
                    place,
                    &NODE_PLACEHOLDERS,
                    "set `nodes` of the role, such as `nodes: 2`",
                );
            }
            refuse(word, place, &["url"], roles_help);
        }
    }
}

fn has_placeholder(word: &Template, names: &[&str]) -> bool {
    word.placeholders().any(|name| names.contains(&name))
}
