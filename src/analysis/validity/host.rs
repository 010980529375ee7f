//! Checks what else used the host: other processes, other virtual machines, swap.

use super::reason::{new_reason, percent};
use crate::config::validity::ValidityBounds;
use crate::results::record::telemetry::{HostWindow, Telemetry};
use crate::results::record::validity::{Reason, ReasonCode};

/// Other processes may use this share of all processors, but at most one processor, even if the bound is
/// lower.
const MIN_CPU_SHARE: f64 = 0.25;

/// Shortest window in which other processes are judged. The kernel counts processor time in hundredths of a
/// second, and it is read twice a second.
const MIN_WINDOW_S: f64 = 2.0;

/// Judges processor time of others, stolen processor time, and lack of memory, on every node of the launch.
pub(super) fn judge(telemetry: &Telemetry, bounds: &ValidityBounds, reasons: &mut Vec<Reason>) {
    if let Some(host) = &telemetry.host {
        judge_host(telemetry, host, bounds, reasons);
    }
    for node in &telemetry.nodes {
        let Some(host) = &node.host else { continue };
        let mut own = Vec::new();
        judge_host(telemetry, host, bounds, &mut own);
        reasons.extend(own.into_iter().map(|reason| Reason {
            measured: format!("{}: {}", node.node, reason.measured),
            ..reason
        }));
    }
}

fn judge_host(telemetry: &Telemetry, host: &HostWindow, bounds: &ValidityBounds, reasons: &mut Vec<Reason>) {
    let is_long = telemetry.seconds >= MIN_WINDOW_S;
    if let Some(others) = other_processes(host, bounds).filter(|_| is_long) {
        let bound = format!("{:.2} processors", max_other_cpus(host, bounds));
        reasons.push(new_reason(ReasonCode::HostBusy, others, Some(bound)));
    }
    let stolen = host.stolen_cpus.unwrap_or(0.0) / f64::from(host.cpus.max(1));
    if stolen > bounds.stolen && is_long {
        let measured = format!(
            "{} of the processors' time went to other virtual machines",
            percent(stolen)
        );
        reasons.push(new_reason(
            ReasonCode::CpuStolen,
            measured,
            Some(percent(bounds.stolen)),
        ));
    }
    let swapped = host
        .ranges
        .get("swap_bytes_per_s")
        .map_or(0.0, |range| range.mean);
    if swapped > bounds.swap.0 as f64 {
        let measured = format!(
            "the host moved {:.1} MiB/s to and from swap",
            swapped / f64::from(1 << 20)
        );
        reasons.push(new_reason(
            ReasonCode::Swapping,
            measured,
            Some(format!("{}/s", bounds.swap)),
        ));
    }
    if host.is_numa_remote == Some(true) {
        reasons.push(new_reason(
            ReasonCode::NumaRemote,
            "the engine is allowed to run only on processors outside the NUMA nodes of its GPUs".to_owned(),
            None,
        ));
    }
}

/// Returns a text about the processors that other processes used, if they exceed [`max_other_cpus`].
pub(crate) fn other_processes(host: &HostWindow, bounds: &ValidityBounds) -> Option<String> {
    let used = host.other_cpus.map(|used| used.min(f64::from(host.cpus)))?;
    if used <= max_other_cpus(host, bounds) {
        return None;
    }
    Some(format!(
        "other processes used {used:.2} of {} processors",
        host.cpus
    ))
}

fn max_other_cpus(host: &HostWindow, bounds: &ValidityBounds) -> f64 {
    let cpus = f64::from(host.cpus);
    (bounds.other_cpus * cpus).max(1.0f64.min(MIN_CPU_SHARE * cpus))
}
