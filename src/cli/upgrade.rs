//! Flags of `matrix upgrade`.

use clap::Args;

use super::regression::JudgeArgs;
use super::{JobArgs, RunArgs};
use crate::base::units::HumanDuration;
use crate::config::upgrade::UpgradeSide;

/// `matrix upgrade`.
///
/// Example: `matrix upgrade matrices/qwen3.yaml --engine vllm --from v0.10.1 --to v0.11.0`
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
Both sides are started in turn in one run. `upgrade.md` and `upgrade.html` in its folder answer whether to upgrade. They show what changed (version, image, packages, \
settings, flags and their defaults), then speed, answers (if the matrix has `quality:`), time to ready, memory and energy. Verdicts are those of `matrix compare`, over all figures \
together. A change of the time to ready counts if it is at least 100 ms and at least 10 % (or `--floor`, if that is more). `repeats` of the matrix is ignored, except for `per_start`.\n\n\
The answer is no if anything got worse. It is undecided if a gating metric is unclear or was not judged, or if graded answers could not be compared. Otherwise it is yes; it then \
also names the resources whose verdict is unclear.\n\n\
Exit codes: 0 yes; 1 no; 3 a cell failed, is missing or invalid; 5 undecided.")]
pub(crate) struct UpgradeArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// The engine, by its name in the matrix; may be left out if the matrix has one engine.
    #[arg(long, value_name = "NAME")]
    pub(crate) engine: Option<String>,
    /// The baseline: a version, or a setting with its value: `image=REF`, `venv=DIR`, `program=FILE`,
    /// `args=SET`, `env=SET`, `precision=NAME`, `engine=NAME` for another engine of the matrix, or `run=NAME` for a
    /// stored run. Use `run=` for a change that cannot alternate within a run, such as another driver. SET is the
    /// name of a set in `axes:`. If `axes:` has no sets of arguments, `args=` takes the arguments themselves,
    /// separated by spaces.
    #[arg(long, value_name = "SIDE")]
    pub(crate) from: UpgradeSide,
    /// The candidate: a version, or another value of the setting that `--from` names.
    #[arg(long, value_name = "SIDE")]
    pub(crate) to: UpgradeSide,
    /// How verdicts are computed.
    #[command(flatten)]
    pub(crate) judging: JudgeArgs,
    /// Number of starts of each side. A verdict needs five, or three if `matrix noise` measured this host; a smaller
    /// number is raised to this minimum.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=50))]
    pub(crate) starts: u32,
    /// Start both sides more often, up to 20 times, until the half-width of the 95 % interval of every gating metric is at
    /// most half of `--floor`. All starts together use at most this GPU time. The number of starts is estimated from the first
    /// starts only, so that no verdict is favoured.
    #[arg(long, value_name = "TIME")]
    pub(crate) budget: Option<HumanDuration>,
}
