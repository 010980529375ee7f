//! Flags of `matrix tune`.

use clap::Args;

use super::RunArgs;
use super::sim::parse_share;
use crate::config::tune::{Objective, TuneBudget};

/// `matrix tune`.
///
/// Example: `matrix tune matrices/qwen3.yaml --engine vllm --budget '24 starts'`
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
Every trial is one start of the engine with other settings, measured with the load of one scenario. All trials are cells of one run. The settings and their values are those of \
`tune: { space: … }` in the matrix, otherwise those of the engine's recipe. Flags that the engine's `--help` does not list are left out. The default configuration is always a candidate. \
A configuration cannot win if it crashes, is refused, gives wrong answers or sustains no load within the SLO.\n\n\
The best configuration is then started in turn with the default one, in a separate run, and judged as `matrix upgrade` judges two sides. Only this comparison decides. `tune.md` and `tune.json` in \
the folder of the trials have the result, with the winner as an entry for a matrix.\n\n\
`--resume` continues a search that was stopped, also with a larger budget. `repeats` of the matrix is ignored.\n\n\
Exit codes: 0 the winner is confirmed, or nothing is better than the default; 3 not decided.")]
pub(crate) struct TuneArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// The engine, by its name in the matrix; may be left out if the matrix or its `tune:` names one.
    #[arg(long, value_name = "NAME")]
    pub(crate) engine: Option<String>,
    /// The scenario whose load is measured; may be left out if the matrix or its `tune:` names one.
    #[arg(long, value_name = "NAME")]
    pub(crate) scenario: Option<String>,
    /// What is maximised: `capacity` within the SLO of a scenario with `search`, `throughput` in output tokens per second, `energy` in
    /// output tokens per joule, or `cost` in output tokens per GPU-hour. By default the objective of the matrix. If the
    /// matrix has none, `capacity` for a scenario with `search`, and `throughput` for others.
    #[arg(long, value_name = "NAME")]
    pub(crate) objective: Option<Objective>,
    /// Limit for trials and confirmation together, such as `24 starts` or `120 gpu-min`. GPU minutes of an engine count
    /// from its start command to its end. By default the limit of the matrix, or 24 starts if it has none. If the limit
    /// is in GPU minutes, configurations are first measured with a quarter of the prompts.
    #[arg(long, value_name = "LIMIT")]
    pub(crate) budget: Option<TuneBudget>,
    /// The price of a GPU for an hour, for `--objective cost`; by default the price in the matrix.
    #[arg(long, value_name = "PRICE")]
    pub(crate) gpu_hour_price: Option<f64>,
    /// Number of starts of the default and of the winner in the confirmation. A verdict needs five, or three if
    /// `matrix noise` measured this host; a smaller number is raised to this minimum.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=50))]
    pub(crate) confirm_starts: u32,
    /// The smallest gain that counts.
    #[arg(long, default_value = "2%", value_parser = parse_share, value_name = "SHARE")]
    pub(crate) floor: f64,
    /// Seed of the search.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
}
