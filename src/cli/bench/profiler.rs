//! Flags of the server's profiler.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "The server's profiler")]
pub(crate) struct ProfilerArgs {
    /// Start and stop the server's profiler around the measurement.
    #[arg(long)]
    pub(crate) profile: bool,
    /// What the profiler records.
    #[arg(long, num_args = 1.., action = ArgAction::Set, value_enum, default_values = ["CPU", "GPU"])]
    pub(crate) profile_activities: Vec<Activity>,
    /// The first step that is profiled.
    #[arg(long, value_name = "STEP")]
    pub(crate) profile_start_step: Option<u64>,
    /// The number of steps to profile. After these steps, the server stops the profiler.
    #[arg(long, value_name = "COUNT")]
    pub(crate) profile_steps: Option<u64>,
    /// The number of steps to profile. After these steps, the server stops the profiler, except with `--pd-separated`.
    #[arg(long, value_name = "COUNT")]
    pub(crate) profile_num_steps: Option<u64>,
    /// Write separate profiles for prefill and decode; `--profile-num-steps` is then 5 by default.
    #[arg(long)]
    pub(crate) profile_by_stage: bool,
    /// The stages that are profiled, such as `prefill` and `decode`; the server decides which names it knows.
    #[arg(long, num_args = 1.., action = ArgAction::Set, value_name = "STAGE")]
    pub(crate) profile_stages: Option<Vec<String>>,
    /// The folder for profiles on the server. By default the value of the environment variable
    /// SGLANG_TORCH_PROFILER_DIR, or `/tmp` if it is not set.
    #[arg(long, value_name = "DIR")]
    pub(crate) profile_output_dir: Option<PathBuf>,
    /// The prefix of the profiles' file names.
    #[arg(long, value_name = "TEXT")]
    pub(crate) profile_prefix: Option<String>,
    /// Prefill and decode run on separate workers. Profile the workers that `--profile-prefill-url` or
    /// `--profile-decode-url` lists.
    #[arg(long)]
    pub(crate) pd_separated: bool,
    /// The URLs of the prefill workers to profile.
    #[arg(long, num_args = 1.., action = ArgAction::Set, value_name = "URL")]
    pub(crate) profile_prefill_url: Option<Vec<String>>,
    /// The URLs of the decode workers to profile, instead of prefill workers.
    #[arg(long, num_args = 1.., action = ArgAction::Set, value_name = "URL")]
    pub(crate) profile_decode_url: Option<Vec<String>>,
}

/// What a server's profiler records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Activity {
    Cpu,
    Gpu,
    CudaProfiler,
    Xpu,
    Mem,
}
