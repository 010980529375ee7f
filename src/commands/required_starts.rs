//! How often the sides of a comparison have to be started.

use crate::analysis::compare::bisection;
use crate::analysis::compare::decision::{MIN_STARTS_NOISE_KNOWN, MIN_STARTS_NOISE_UNKNOWN};
use crate::analysis::compare::machine_facts::machine_facts;
use crate::analysis::compare::machines;
use crate::analysis::metrics::Metric;
use crate::cli::RunArgs;
use crate::commands::environment::environment;
use crate::commands::error::CommandError;
use crate::commands::measure::notice_line;
use crate::commands::output::eprint;
use crate::commands::session_error::gpu_error;
use crate::plan::Plan;
use crate::results::record::cell_stats::Noise;
use crate::results::store;
use crate::runner::session::gpus;

/// Number of starts of each side: as requested by that flag, or as many as a verdict needs in every cell.
pub(super) fn required_starts(
    flag: &str,
    requested: u32,
    run: &RunArgs,
    plan: &Plan,
    gates: &[Metric],
) -> Result<u32, CommandError> {
    let noise = match requested < MIN_STARTS_NOISE_UNKNOWN as u32 {
        true => saved_noise(run)?,
        false => None,
    };
    let min_starts = bisection::min_starts(plan, gates, noise.as_ref()) as u32;
    if requested < min_starts {
        let why = match min_starts as usize {
            MIN_STARTS_NOISE_KNOWN => "a verdict needs three starts on each side of the comparison",
            _ => {
                "a verdict needs five starts on each side of the comparison, or three if `matrix noise` measured this host"
            }
        };
        eprint(&format!(
            "note: `{flag} {requested}` is raised to {min_starts}: {why}\n"
        ));
    }
    Ok(requested.max(min_starts))
}

/// The saved noise, if it belongs to this host.
fn saved_noise(run: &RunArgs) -> Result<Option<Noise>, CommandError> {
    let Some(noise) = store::nightly::read_noise(&run.places.cache()) else {
        return Ok(None);
    };
    let (machine, _) = gpus::machine(&environment(), &|notice| eprint(&notice_line(&notice)))
        .map_err(|error| gpu_error(&error))?;
    let is_same = machines::are_noise_compatible(&noise.machine, &machine_facts(&machine));
    Ok(is_same.then_some(noise))
}
