//! Flags of `matrix sim` for engines of several processes: ranks on several nodes, and routers.

use clap::{Args, Command, Id};

use super::faults::ResponseFaultArgs;
use super::{BatchingArgs, EngineArgs, TimingArgs};
use crate::base::units::HumanDuration;
use crate::cli::named::variant_parser;
use crate::sim::{RankLoss, Ranks, RouterTargets, UpstreamUrl};

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Ranks of an engine over several nodes")]
pub(super) struct RankArgs {
    /// The number of nodes, each with one rank. Rank 0, the head, serves requests once all other ranks have joined it; until
    /// then it responds with status 503. The other ranks serve nothing and end with the head.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// The rank of this process, from 0.
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    node_rank: u32,
    /// The host of the head, as other nodes reach it.
    #[arg(long, value_name = "HOST")]
    head_host: Option<String>,
    /// The port at which the head listens for the other ranks, on all interfaces.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    head_port: Option<u16>,
    /// For how long a rank tries to join the head, such as `30s`.
    #[arg(long, value_name = "TIME", default_value = "600s")]
    join_timeout: HumanDuration,
    /// What the head does once another rank is lost: exits with status 1 (`exit`), or stops responding to generation
    /// requests but still reports good health (`hang`).
    #[arg(long, value_name = "HOW", value_parser = variant_parser::<RankLoss>(), default_value = "exit")]
    rank_loss: RankLoss,
    /// Injects the faults into this rank only, although all ranks have the same flags. `--start-delay` and
    /// `--listen-while-loading` still apply to all ranks.
    #[arg(long, value_name = "RANK")]
    fault_rank: Option<u32>,
}

impl RankArgs {
    /// Whether the injected faults are those of this rank.
    pub(super) fn has_faults(&self) -> bool {
        self.fault_rank.is_none_or(|rank| rank == self.node_rank)
    }

    /// `None` on a single node. The error is a message for users.
    pub(super) fn into_ranks(self) -> Result<Option<Ranks>, String> {
        let nodes = self.nodes;
        for (flag, rank) in [
            ("--node-rank", Some(self.node_rank)),
            ("--fault-rank", self.fault_rank),
        ] {
            if let Some(rank) = rank.filter(|rank| *rank >= nodes) {
                return Err(format!(
                    "`{flag}` is {rank}, but `--nodes` is {nodes}; ranks count from 0, so use at most {}",
                    nodes - 1
                ));
            }
        }
        if nodes == 1 {
            return Ok(None);
        }
        let missing = |flag: &str| {
            format!(
                "`--nodes {nodes}` needs `{flag}`; give the host and port where rank 0 listens for the other ranks, the same on every node"
            )
        };
        Ok(Some(Ranks {
            nodes,
            node_rank: self.node_rank,
            head_host: self.head_host.ok_or_else(|| missing("--head-host"))?,
            head_port: self.head_port.ok_or_else(|| missing("--head-port"))?,
            join_timeout: self.join_timeout.duration(),
            rank_loss: self.rank_loss,
        }))
    }
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Router of prefill and decode servers")]
pub(super) struct RouterArgs {
    /// Serves a router, which computes nothing: it has a prefill server compute each prompt, then passes on the response of a
    /// decode server. The servers of each kind take turns. `--model` and `--tp` have no effect on it.
    #[arg(long, requires_all = ["prefill", "decode"], conflicts_with_all = flags_of_computing())]
    router: bool,
    /// The address of a prefill server, such as `http://node1:8000`; may be repeated.
    #[arg(long, value_name = "URL", requires = "router")]
    prefill: Vec<UpstreamUrl>,
    /// The address of a decode server; may be repeated. The first one answers `/v1/models` and `/version`.
    #[arg(long, value_name = "URL", requires = "router")]
    decode: Vec<UpstreamUrl>,
}

impl RouterArgs {
    pub(super) fn into_targets(self) -> Option<RouterTargets> {
        self.router.then_some(RouterTargets {
            prefill: self.prefill,
            decode: self.decode,
        })
    }
}

/// The flags that have no effect on a router.
fn flags_of_computing() -> Vec<Id> {
    fn flags<A: Args>() -> Vec<Id> {
        let command = A::augment_args(Command::new("sim"));
        let ids = command.get_arguments().map(|flag| flag.get_id().clone());
        ids.collect()
    }
    [
        flags::<EngineArgs>(),
        flags::<BatchingArgs>(),
        flags::<TimingArgs>(),
        flags::<ResponseFaultArgs>(),
    ]
    .concat()
}
