//! Engines that consist of several processes: one on each of several nodes, or one for each role.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::config::forms::{OneOrMany, OrderedMap};
use crate::config::template::Template;
use crate::config::yaml::Spanned;

/// What an engine needs to run over several nodes: one process on each node, its rank. Arguments may contain `{nodes}`
/// (the number of nodes), `{node_rank}` (from 0), `{head_host}` and `{head_port}` (where the ranks find rank 0).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NodesRecipe {
    /// Arguments of every rank, appended to the command.
    pub(crate) args: Vec<Template>,
    /// Further arguments of all ranks but rank 0, which is the one that answers requests.
    pub(crate) other_args: Vec<Template>,
}

/// A role of an engine whose processes have different tasks, such as `prefill`, `decode` and `router`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RoleEntry {
    /// Whether requests are sent to it. Exactly one role has it.
    pub(crate) endpoint: Option<Spanned<bool>>,
    /// Number of processes; default 1, or the length of the list `node`.
    pub(crate) count: Option<Spanned<NonZeroU32>>,
    /// The node of the job on which its processes run, from 0, or a list with the node of each; default 0, where the load is
    /// generated.
    pub(crate) node: Option<Spanned<OneOrMany<u32>>>,
    /// Number of nodes over which each process runs, from its `node` on, with a rank on each; default 1.
    pub(crate) nodes: Option<Spanned<NonZeroU32>>,
    /// Tensor-parallel size of each process, the value of `{tp}` in its command; default: that of the model.
    pub(crate) tp: Option<NonZeroU32>,
    /// GPUs of each process, on all its nodes together; default: `tp` of the role if the engine computes on GPUs, otherwise 0.
    pub(crate) gpus: Option<u32>,
    /// Command of the role; default: the engine's command with the engine's arguments.
    pub(crate) command: Option<Vec<Template>>,
    /// Arguments appended to the command.
    pub(crate) args: Vec<Spanned<Template>>,
    /// Environment variables added to those of the engine.
    pub(crate) env: OrderedMap<Spanned<Template>>,
    /// Path that returns status 200 when the process is healthy; default: that of the engine.
    pub(crate) health: Option<String>,
    /// Arguments that are appended once for each process of another role, such as
    /// `{ decode: [--decode, "{url}"] }`. In them `{url}`, `{host}`, `{port}` and `{aux_port}` are those of that process.
    pub(crate) for_each: OrderedMap<Vec<Template>>,
}

impl RoleEntry {
    /// Number of processes.
    pub(crate) fn processes(&self) -> u32 {
        let nodes = self
            .node
            .as_ref()
            .map_or(1, |node| node.value.len().max(1) as u32);
        self.count.as_ref().map_or(nodes, |count| count.value.get())
    }

    /// The first node of a process, by its number from 0.
    pub(crate) fn first_node(&self, process: u32) -> u32 {
        let nodes = self.node.as_ref().map_or(&[][..], |node| &node.value);
        let own = nodes.get(process as usize).or(nodes.last());
        own.copied().unwrap_or(0)
    }

    /// Number of nodes over which each process runs.
    pub(crate) fn nodes_each(&self) -> u32 {
        self.nodes.as_ref().map_or(1, |nodes| nodes.value.get())
    }

    /// GPUs of each process. `uses_gpus` says whether the engine computes on GPUs.
    pub(crate) fn gpus_each(&self, uses_gpus: bool) -> u32 {
        let tp = self.tp.map(NonZeroU32::get).filter(|_| uses_gpus);
        self.gpus.or(tp).unwrap_or(0)
    }
}
