//! Aggregates the host's samples over the window.

use crate::analysis::aggregate::series::{self, Series};
use crate::results::record::telemetry::{HostWindow, Sample};

/// Returns `None` if there is no sample.
pub(super) fn host_window(samples: &[&Sample], end: f64) -> Option<HostWindow> {
    let last = samples.last()?;
    let series = |name: &str| Series::from_samples(samples.iter().copied(), name);
    let over = |name: &str| series(name).growth_in_window(end);
    let busy = |name: &str| over(name).filter(|_| end > 0.0).map(|seconds| seconds / end);
    // The difference of the whole and its parts is not a monotonic counter: the kernel may count ticks of the
    // parts just before those of the whole. So each counter is differenced first, and the result is at least
    // 0.
    let is_told = last.values.contains_key("other_cpu_s");
    let others = || {
        let engine = busy("engine_cpu_s").unwrap_or(0.0);
        Some((busy("busy_cpu_s")? - busy("client_cpu_s")? - engine).max(0.0))
    };
    let other_cpus = is_told.then(others).flatten();
    // Processor time and constants are reported as figures of their own.
    let is_ranged = |name: &str| {
        name.ends_with("_total")
            || !name.ends_with("_s") && !["cpus", "shares_cpus", "numa_remote"].contains(&name)
    };
    Some(HostWindow {
        cpus: last.values.get("cpus").map_or(0, |cpus| *cpus as u32),
        client_cpus: busy("client_cpu_s"),
        engine_cpus: busy("engine_cpu_s"),
        other_cpus,
        shares_cpus: last.values.get("shares_cpus").map(|shares| *shares > 0.0),
        client_wait_s: over("client_wait_s"),
        stolen_cpus: busy("stolen_cpu_s"),
        is_numa_remote: last.values.get("numa_remote").map(|is_remote| *is_remote > 0.0),
        ranges: series::ranges(samples, end, is_ranged),
    })
}
