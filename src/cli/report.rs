//! The flags of the commands that show finished runs.

use std::path::PathBuf;

use clap::Args;

use super::cache::CacheArgs;
use super::sim::parse_share;
use crate::config::select::Selector;

#[derive(Args, Debug)]
#[command(after_help = "Example: matrix report results/2026-11-21-qwen3 --out published")]
pub(crate) struct ReportArgs {
    /// The runs: the folder or name of a run, or a matrix (its newest run is used). Several runs are shown in one
    /// report. By default the newest run of all matrices.
    #[arg(value_name = "RUN")]
    pub(crate) runs: Vec<String>,
    /// The folder of runs.
    #[arg(long, default_value = "results", value_name = "DIR")]
    pub(crate) results: PathBuf,
    /// The format. By default `terminal`; with `--out`, all other formats.
    #[arg(long)]
    pub(crate) format: Option<String>,
    /// Write files into this folder instead of printing.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// With `--format perfetto`: the cells whose measurements are written, such as `engine=vllm`. By default all.
    #[arg(long, value_name = "EXPR")]
    pub(crate) only: Option<Selector>,
    /// The engine that ratios refer to, by its name in the matrix. By default the `reference` of the matrix. Without
    /// one, the first engine of the report; in a table without that engine, the first engine of the table.
    #[arg(long, value_name = "ENGINE")]
    pub(crate) reference: Option<String>,
    /// The smallest change that counts as a win, a loss or `[best]`, as in `matrix compare`.
    #[arg(long, default_value = "2%", value_parser = parse_share, value_name = "SHARE")]
    pub(crate) floor: f64,
    /// The list of prices of GPUs and energy. By default `matrices/prices.yaml`, or the list inside this program if
    /// that file does not exist. Prices in the matrix (`price`) replace those of the list.
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
    /// The runs: the folder or name of a run, a matrix (its newest run is used), or a folder of runs (all its runs are
    /// used). By default all runs in `--results`.
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
    /// The cells: a part of their names, or a selector as for `matrix run --only`. By default all cells of the run. More
    /// than four measurements get one line each. Without `--run`, this may also be the folder of a run, or a reason code
    /// such as `host-busy`. For a reason code, its meaning, its bound and the fix are printed; no run is needed.
    pub(crate) cell: Option<String>,
    /// The run: its folder or name, or a matrix (its newest run is used). By default the newest run of all
    /// matrices.
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
