//! Checks events of the machine and of the engine's process during the measurement.

use super::evidence::Evidence;
use super::reason::{new_reason, percent};
use crate::base::text::pluralize;
use crate::base::units::Bytes;
use crate::config::validity::ValidityBounds;
use crate::results::record::engine_change::EngineChange;
use crate::results::record::machine::Machine;
use crate::results::record::telemetry::{Gpu, GpuWindow, SourceFacts, Telemetry, TelemetrySource};
use crate::results::record::validity::{Reason, ReasonCode, Verdict};

/// Fewest samples of a busy GPU for which its clock is judged.
const MIN_BUSY_SAMPLES: u32 = 30;

/// The clock of a GPU is judged only below this share of its highest clock. Under load, boost clocks are
/// below the highest.
const NORMAL_CLOCK_SHARE: f64 = 0.75;

/// Share of the window in which a full KV cache leads to a note.
const MAX_FULL_CACHE_SHARE: f64 = 0.05;

/// Judges what happened to the engine and beside it: other launches and image pulls, changes of the engine,
/// preemptions, a full KV cache, gaps in telemetry.
pub(super) fn judge_disturbances(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    if !evidence.summary.concurrent_launches.is_empty() || evidence.summary.pull_during {
        let mut concurrent: Vec<String> = evidence
            .summary
            .concurrent_launches
            .iter()
            .map(ToString::to_string)
            .collect();
        if evidence.summary.pull_during {
            concurrent.push("an image pull".to_owned());
        }
        reasons.push(new_reason(
            ReasonCode::Neighbour,
            concurrent.join(", "),
            Some("alone on the host".to_owned()),
        ));
    }
    if let Some(reason) = &evidence.summary.listener_unverified {
        reasons.push(new_reason(ReasonCode::ListenerUnverified, reason.clone(), None));
    }
    let changes = &evidence.summary.engine_changes;
    if !changes.is_empty() {
        let changes_in_words: Vec<String> = changes.iter().map(EngineChange::describe).collect();
        let mut reason = new_reason(ReasonCode::EngineChanged, changes_in_words.join(", "), None);
        if changes.iter().all(EngineChange::is_model_list) {
            reason.weight = Verdict::Suspect;
        }
        reasons.push(reason);
    }
    let Some(telemetry) = &evidence.summary.telemetry else {
        return;
    };
    judge_engine(evidence, telemetry, reasons);
    judge_telemetry_gaps(evidence, telemetry, reasons);
}

/// Judges the state of the GPUs and other processes on them.
pub(super) fn judge_devices(
    telemetry: &Telemetry,
    machine: Option<&Machine>,
    bounds: &ValidityBounds,
    reasons: &mut Vec<Reason>,
) {
    for gpu in &telemetry.gpus {
        let machine_gpu = facts_about(gpu, telemetry, machine);
        judge_clocks(gpu, machine_gpu, bounds, reasons);
        judge_other_users(gpu, machine_gpu, bounds, reasons);
        judge_device_faults(gpu, machine_gpu, reasons);
    }
    if !telemetry.kernel.is_empty() {
        reasons.push(new_reason(
            ReasonCode::GpuErrors,
            telemetry.kernel.join("; "),
            Some("none".to_owned()),
        ));
    }
    if let Some(energy) = &telemetry.energy
        && let Some(energy_j) = energy.disagrees_j
    {
        reasons.push(new_reason(
            ReasonCode::EnergyDisagrees,
            format!("{:.0} J and {energy_j:.0} J", energy.joules),
            Some("5 % apart".to_owned()),
        ));
    }
}

/// The facts about a GPU, from the description of its node.
fn facts_about<'t>(
    gpu: &GpuWindow,
    telemetry: &'t Telemetry,
    machine: Option<&'t Machine>,
) -> Option<&'t Gpu> {
    let devices = match &gpu.node {
        None => &machine?.devices,
        Some(node) => &telemetry.nodes.iter().find(|other| other.node == *node)?.devices,
    };
    devices.iter().find(|facts| facts.device == gpu.device)
}

fn judge_engine(evidence: &Evidence<'_>, telemetry: &Telemetry, reasons: &mut Vec<Reason>) {
    let Some(engine) = &telemetry.engine else {
        return;
    };
    if !engine.reset.is_empty() {
        reasons.push(new_reason(
            ReasonCode::EngineRestarted,
            format!("counters fell: {}", engine.reset.join(", ")),
            Some("counters only grow".to_owned()),
        ));
        return;
    }
    if !engine.mixed.is_empty() {
        let (how, weight) = match engine.is_in_turn {
            true => (
                "counters of the engine fell and returned to earlier values",
                Verdict::Valid,
            ),
            false => ("counters of the engine fell, but not to zero", Verdict::Suspect),
        };
        let measured = format!("{how}: {}", engine.mixed.join(", "));
        let mut reason = new_reason(
            ReasonCode::MetricsMixed,
            measured,
            Some("counters only grow".to_owned()),
        );
        reason.weight = weight;
        reasons.push(reason);
        return;
    }
    // The counters of a search include all its points.
    if evidence.summary.search.is_some() {
        return;
    }
    let (requests, bound) = (evidence.requests.len(), evidence.bounds.preemptions);
    let preempted = engine.grown.get("preemptions").copied().unwrap_or(0.0);
    if requests > 0 && preempted > bound * requests as f64 {
        reasons.push(new_reason(
            ReasonCode::Preempted,
            format!("the engine preempted requests {preempted} times, with {requests} requests in total"),
            Some(format!("{} of the requests", percent(bound))),
        ));
    }
    if let Some(share) = engine.kv_full_share.filter(|share| *share > MAX_FULL_CACHE_SHARE) {
        let waiting = engine.gauges.get("waiting").map_or_else(String::new, |waiting| {
            format!("; {:.1} requests waited on average", waiting.mean)
        });
        let measured = format!(
            "the KV cache was full in {} of the telemetry samples{waiting}",
            percent(share)
        );
        reasons.push(new_reason(
            ReasonCode::KvCacheFull,
            measured,
            Some(percent(MAX_FULL_CACHE_SHARE)),
        ));
    }
}

fn judge_clocks(
    gpu: &GpuWindow,
    machine_gpu: Option<&Gpu>,
    bounds: &ValidityBounds,
    reasons: &mut Vec<Reason>,
) {
    for (name, code, bound) in [
        ("thermal", ReasonCode::ThrottledThermal, bounds.throttled),
        ("power", ReasonCode::ThrottledPower, bounds.power_capped),
        ("hardware", ReasonCode::ThrottledHardware, bounds.throttled),
    ] {
        let share = gpu.throttled.get(name).copied().unwrap_or(0.0);
        if share > bound {
            reasons.push(new_reason(
                code,
                format!("{}: {} of the samples", gpu.id(), percent(share)),
                Some(percent(bound)),
            ));
        }
    }
    let Some(clock) = gpu
        .busy_clock_mhz
        .filter(|_| gpu.busy_samples >= MIN_BUSY_SAMPLES)
    else {
        return;
    };
    let spread = gpu.clock_spread.filter(|spread| *spread > bounds.clock_spread);
    let highest = machine_gpu.and_then(|machine_gpu| machine_gpu.max_sm_clock_mhz);
    let highest = highest.filter(|highest| clock < NORMAL_CLOCK_SHARE * highest);
    let (measured, bound) = match (spread, highest) {
        (Some(spread), _) => (
            format!(
                "{}: the GPU clock varied by {} around {clock:.0} MHz",
                gpu.id(),
                percent(spread)
            ),
            percent(bounds.clock_spread),
        ),
        (None, Some(highest)) => (
            format!(
                "{}: the clock of the busy GPU was {clock:.0} MHz, its maximum is {highest:.0} MHz",
                gpu.id()
            ),
            percent(NORMAL_CLOCK_SHARE),
        ),
        (None, None) => return,
    };
    reasons.push(new_reason(ReasonCode::ClocksSpread, measured, Some(bound)));
}

/// Judges the error counters of a device, and a bus that is slower than possible.
fn judge_device_faults(gpu: &GpuWindow, machine_gpu: Option<&Gpu>, reasons: &mut Vec<Reason>) {
    let range = |name: &str| gpu.ranges.get(name);
    let grown = |name: &str| range(name).map_or(0.0, |range| range.max - range.min);
    let max_of = |name: &str| range(name).map_or(0.0, |range| range.max);
    let mut faults = Vec::new();
    for (count, what) in [
        (
            grown("ecc_uncorrected"),
            "the GPU had uncorrectable memory errors during the measurement",
        ),
        (
            grown("rows_remapped"),
            "the GPU remapped memory rows during the measurement",
        ),
    ] {
        if count > 0.0 {
            faults.push(format!("{what} (count: {count})"));
        }
    }
    if max_of("row_remap_failed") > 0.0 {
        faults.push("a memory row could not be remapped".to_owned());
    }
    if !faults.is_empty() {
        reasons.push(new_reason(
            ReasonCode::GpuErrors,
            format!("{}: {}", gpu.id(), faults.join(", ")),
            Some("none".to_owned()),
        ));
    }
    // An idle device lowers the link generation to save power.
    let Some(machine_gpu) = machine_gpu.filter(|_| gpu.busy_samples >= MIN_BUSY_SAMPLES) else {
        return;
    };
    let below = |name: &str, highest: Option<u32>| {
        let (now, highest) = (range(name)?.max, highest?);
        (now > 0.0 && now < f64::from(highest)).then_some((now, highest))
    };
    let generation = below("pcie_generation", machine_gpu.pcie_generation);
    let width = below("pcie_width", machine_gpu.pcie_width);
    let generation = generation.map(|(now, highest)| format!("generation {now} of {highest}"));
    let width = width.map(|(now, highest)| format!("{now} of {highest} lanes"));
    let slower: Vec<String> = generation.into_iter().chain(width).collect();
    if !slower.is_empty() {
        reasons.push(new_reason(
            ReasonCode::PcieDowntrained,
            format!("{}: {}", gpu.id(), slower.join(", ")),
            Some(
                "the PCIe link must use the highest speed and number of lanes that GPU and slot support"
                    .to_owned(),
            ),
        ));
    }
}

/// Judges other processes that use or used the GPU.
fn judge_other_users(
    gpu: &GpuWindow,
    machine_gpu: Option<&Gpu>,
    bounds: &ValidityBounds,
    reasons: &mut Vec<Reason>,
) {
    if !gpu.foreign.is_empty() {
        let named: Vec<String> = gpu
            .foreign
            .iter()
            .map(|process| format!("{} ({})", process.pid, process.name.as_deref().unwrap_or("?")))
            .collect();
        reasons.push(new_reason(
            ReasonCode::GpuShared,
            format!("{}: process {}", gpu.id(), named.join(", ")),
            Some("only processes of the engine may use the GPU".to_owned()),
        ));
    }
    let rest = bounds.rest_memory;
    if let Some(bytes) = gpu.rest_memory_bytes.filter(|bytes| *bytes > rest.0) {
        let draws = machine_gpu.is_some_and(|machine_gpu| machine_gpu.display == Some(true));
        let desktop = if draws { ", a desktop included" } else { "" };
        let mut reason = new_reason(
            ReasonCode::GpuNotAtRest,
            format!(
                "{}: {} of GPU memory were in use before the engine started{desktop}",
                gpu.id(),
                Bytes(bytes)
            ),
            Some(format!("{rest}")),
        );
        if draws {
            reason.weight = Verdict::Valid;
        }
        reasons.push(reason);
    }
    if gpu.foreign.is_empty() {
        judge_unexplained_memory(gpu, bounds, reasons);
    }
}

/// Judges memory of no known process. It belongs to another container, user or virtual machine.
fn judge_unexplained_memory(gpu: &GpuWindow, bounds: &ValidityBounds, reasons: &mut Vec<Reason>) {
    let bound = bounds.unexplained_memory;
    let Some(taken) = gpu.ranges.get("memory_used_bytes") else {
        return;
    };
    let own = gpu.ranges.get("own_memory_bytes");
    let (bytes, what) = match own {
        Some(own) => {
            let rest = gpu.rest_memory_bytes.unwrap_or(0) as f64;
            (
                taken.max - own.max - rest,
                "some GPU memory belongs to no process of the engine",
            )
        }
        None => (
            taken.max - taken.min,
            "an unknown process allocated GPU memory during the measurement",
        ),
    };
    if bytes > bound.0 as f64 {
        let bytes = Bytes(bytes as u64);
        reasons.push(new_reason(
            ReasonCode::GpuMemoryUnexplained,
            format!("{}: {what} ({bytes})", gpu.id()),
            Some(format!("{bound}")),
        ));
    }
}

/// Judges sources that were silent or failed. A source that never existed is no gap, except for GPUs without
/// any source. An engine may answer late while it computes. Only its gauges are missing then: its counters
/// are complete if they were read before and after the window.
fn judge_telemetry_gaps(evidence: &Evidence<'_>, telemetry: &Telemetry, reasons: &mut Vec<Reason>) {
    let bound = evidence.bounds.gap.duration().as_secs_f64();
    let silent = || {
        telemetry
            .sources
            .iter()
            .filter_map(|source| source_silence(source, bound))
    };
    let mut silent_sources: Vec<String> = silent().map(|(what, _)| what).collect();
    let mut weight = silent().map(|(_, weight)| weight).max();
    let is_watched = reads_gpus(telemetry, None);
    let is_pretended = evidence.machine.is_some_and(|machine| machine.gpus_pretended);
    if evidence.launch.devices > 0 && !is_watched && !is_pretended {
        silent_sources.push("no telemetry source read the GPUs".to_owned());
        weight = Some(Verdict::Suspect);
    }
    let other_nodes = unsampled_nodes(evidence, telemetry);
    if !other_nodes.is_empty() {
        silent_sources.extend(other_nodes);
        weight = Some(Verdict::Suspect);
    }
    if let Some(weight) = weight {
        reasons.push(Reason {
            weight,
            ..new_reason(
                ReasonCode::TelemetryGap,
                silent_sources.join("; "),
                Some(format!("{}", evidence.bounds.gap)),
            )
        });
    }
}

/// Whether a source read the GPUs of a node.
fn reads_gpus(telemetry: &Telemetry, node: Option<&str>) -> bool {
    let sources = &telemetry.sources;
    sources
        .iter()
        .any(|source| source.source.is_gpu() && source.node.as_deref() == node)
}

/// What is missing of the further nodes of the launch. A simulated engine computes on none of their GPUs.
fn unsampled_nodes(evidence: &Evidence<'_>, telemetry: &Telemetry) -> Vec<String> {
    let is_real = !evidence.launch.engine.simulated;
    let mut missing = Vec::new();
    for node in &telemetry.nodes {
        if let Some(trouble) = &node.trouble {
            missing.push(format!("{}: {trouble}", node.node));
        } else if node.gpus > 0 && is_real && !reads_gpus(telemetry, Some(&node.node)) {
            missing.push(format!("no telemetry source read the GPUs of {}", node.node));
        }
    }
    let unsampled = (evidence.launch.nodes() as usize - 1).saturating_sub(telemetry.nodes.len());
    if unsampled > 0 && is_real {
        missing.push(format!(
            "nothing was sampled on {}",
            pluralize(unsampled, "other node", "other nodes")
        ));
    }
    missing
}

/// Returns a text about the silence of a source, and its weight.
pub(super) fn source_silence(source: &SourceFacts, bound: f64) -> Option<(String, Verdict)> {
    let name = source.name();
    if let Some(trouble) = &source.trouble {
        return Some((format!("{name}: {trouble}"), Verdict::Suspect));
    }
    let is_late = source.longest_gap_s > bound.max(3.0 * source.period_s);
    let is_whole = source.source == TelemetrySource::Engine && source.is_bracketed;
    is_late.then(|| {
        let what = format!("{name}: silent for {:.1} s", source.longest_gap_s);
        (
            what,
            if is_whole {
                Verdict::Valid
            } else {
                Verdict::Suspect
            },
        )
    })
}
