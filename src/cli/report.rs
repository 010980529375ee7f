//! The flags of the commands that show finished runs.

use std::path::PathBuf;

use clap::Args;

use super::cache::CacheArgs;
use super::sim::parse_share;
use crate::config::select::Selector;

#[derive(Args, Debug)]
#[command(after_help = "Example: matrix report results/2026-11-21-qwen3 --out published")]
pub(crate) struct ReportArgs {
    /// The runs: a run's folder or name, or a matrix, for its newest run. Several runs are shown in one report. By
    /// default the newest run of all.
    #[arg(value_name = "RUN")]
    pub(crate) runs: Vec<String>,
    /// The folder of runs.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(crate) results: PathBuf,
    /// The format. By default `terminal`, or with `--out` all other formats.
    #[arg(long)]
    pub(crate) format: Option<String>,
    /// Write files into this folder instead of printing.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// With `--format perfetto`: the cells whose measurements are written, such as `engine=vllm`. By default all.
    #[arg(long, value_name = "EXPR")]
    pub(crate) only: Option<Selector>,
    /// The engine that ratios refer to, by its name in the matrix. By default that of the matrix, else the first engine of each table.
    #[arg(long, value_name = "ENGINE")]
    pub(crate) reference: Option<String>,
    /// The smallest change that counts as a win, a loss or `[best]`, as in `matrix compare`.
    #[arg(long, default_value = "2%", value_parser = parse_share, value_name = "SHARE")]
    pub(crate) floor: f64,
    /// The list of prices of GPUs and energy. By default `matrices/prices.yaml`, else the list inside this program. `price` of a matrix
    /// comes first.
    #[arg(long, value_name = "FILE")]
    pub(crate) prices: Option<PathBuf>,
    /// The cache folders; the noise of this host is read from there.
    #[command(flatten)]
    pub(crate) places: CacheArgs,
}

/// `matrix site`.
///
/// The site opens from a file and needs no server and no network. Its folder may be written again: only files of the site are
/// replaced or removed.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  matrix site public\n  matrix site public results /mnt/other-host/results"
)]
pub(crate) struct SiteArgs {
    /// The folder of the site. It must be new, empty, or written by this command.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The runs: a run's folder or name, a matrix, for its newest run, or a folder of runs, for all of them. By default all
    /// runs of `--results`.
    #[arg(value_name = "RUN")]
    pub(crate) runs: Vec<String>,
    /// The folder of runs.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(crate) results: PathBuf,
    /// The smallest change that counts as a win, a loss or `[best]` on the pages of the runs, as in `matrix compare`.
    #[arg(long, default_value = "2%", value_parser = parse_share, value_name = "SHARE")]
    pub(crate) floor: f64,
    /// The list of prices of GPUs and energy, as in `matrix report`.
    #[arg(long, value_name = "FILE")]
    pub(crate) prices: Option<PathBuf>,
    /// The cache folders; the noise of this host is read from there.
    #[command(flatten)]
    pub(crate) places: CacheArgs,
}

/// `matrix explain`.
///
/// Examples: `matrix explain engine=sglang,scenario=sharegpt`, `matrix explain host-busy`
#[derive(Args, Clone, Debug)]
pub(crate) struct ExplainArgs {
    /// The cells: a part of their names, or a selector as for `matrix run --only`. By default all cells of the run; more than four
    /// measurements are printed in one line each. Without `--run` also the folder of a run, or a reason code such as `host-busy`:
    /// prints its meaning, its bound and the fix, and needs no run.
    pub(crate) cell: Option<String>,
    /// The run: its folder or name, or a matrix, for its newest run. By default the newest run of all.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// The folder of runs.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(crate) results: PathBuf,
    /// Print the table of all reason codes instead, with meaning, bound and fix.
    #[arg(long)]
    pub(crate) codes: bool,
    /// Print JSON instead of text: the validity of each measurement with its evidence, or the entry of the reason code.
    #[arg(long)]
    pub(crate) json: bool,
}
