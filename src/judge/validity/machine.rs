//! What the machine and the engine's process went through meanwhile.

use super::{Evidence, found, percent};
use crate::matrix::spec::validity::Bounds;
use crate::results::record::telemetry::{GpuWindow, Source, Telemetry};
use crate::results::record::validity::{Code, Reason};

/// Below this many samples of a busy GPU nothing is said of its clock.
const BUSY: u32 = 30;

pub(super) fn judge(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    if !evidence.summary.beside.is_empty() || evidence.summary.pulled_beside {
        let mut beside: Vec<String> = evidence.summary.beside.iter().map(ToString::to_string).collect();
        if evidence.summary.pulled_beside {
            beside.push("the pull of an image".to_owned());
        }
        reasons.push(found(
            Code::Neighbour,
            beside.join(", "),
            Some("alone on the host".to_owned()),
        ));
    }
    let Some(telemetry) = &evidence.summary.telemetry else {
        return;
    };
    engine(telemetry, reasons);
    devices(telemetry, evidence.bounds, reasons);
    gaps(evidence, telemetry, reasons);
}

/// What the GPUs went through, and who else was on them.
pub(super) fn devices(telemetry: &Telemetry, bounds: &Bounds, reasons: &mut Vec<Reason>) {
    for gpu in &telemetry.gpus {
        clocks(gpu, bounds, reasons);
        company(gpu, bounds, reasons);
    }
    if let Some(energy) = &telemetry.energy
        && let Some(other) = energy.disagrees_j
    {
        reasons.push(found(
            Code::EnergyDisagrees,
            format!("{:.0} J and {other:.0} J", energy.joules),
            Some("5 % apart".to_owned()),
        ));
    }
}

fn engine(telemetry: &Telemetry, reasons: &mut Vec<Reason>) {
    let Some(engine) = telemetry
        .engine
        .as_ref()
        .filter(|engine| !engine.reset.is_empty())
    else {
        return;
    };
    reasons.push(found(
        Code::EngineRestarted,
        format!("counters fell: {}", engine.reset.join(", ")),
        Some("counters only grow".to_owned()),
    ));
}

fn clocks(gpu: &GpuWindow, bounds: &Bounds, reasons: &mut Vec<Reason>) {
    for (name, code, bound) in [
        ("thermal", Code::ThrottledThermal, bounds.throttled),
        ("power", Code::ThrottledPower, bounds.power_capped),
        ("hardware", Code::ThrottledHardware, bounds.throttled),
    ] {
        let share = gpu.throttled.get(name).copied().unwrap_or(0.0);
        if share > bound {
            reasons.push(found(
                code,
                format!("GPU {}: {} of the samples", gpu.device, percent(share)),
                Some(percent(bound)),
            ));
        }
    }
    if let Some(spread) = gpu.clock_spread.filter(|_| gpu.busy_samples >= BUSY)
        && spread > bounds.clock_spread
    {
        let clock = gpu
            .busy_clock_mhz
            .map_or_else(String::new, |clock| format!(" around {clock:.0} MHz"));
        reasons.push(found(
            Code::ClocksSpread,
            format!("GPU {}: {}{clock}", gpu.device, percent(spread)),
            Some(percent(bounds.clock_spread)),
        ));
    }
}

/// Whoever else uses or used the GPU.
fn company(gpu: &GpuWindow, bounds: &Bounds, reasons: &mut Vec<Reason>) {
    if !gpu.foreign.is_empty() {
        let named: Vec<String> = gpu
            .foreign
            .iter()
            .map(|process| format!("{} ({})", process.pid, process.name.as_deref().unwrap_or("?")))
            .collect();
        reasons.push(found(
            Code::GpuShared,
            format!("GPU {}: process {}", gpu.device, named.join(", ")),
            Some("only the engine's".to_owned()),
        ));
    }
    let rest = bounds.rest_memory;
    if let Some(bytes) = gpu.rest_memory_bytes.filter(|bytes| *bytes > rest.0) {
        reasons.push(found(
            Code::GpuNotAtRest,
            format!(
                "GPU {}: {} before the start",
                gpu.device,
                crate::base::units::Bytes(bytes)
            ),
            Some(format!("{rest}")),
        ));
    }
}

/// Sources that were silent or gave up. Who was never there is no gap, but GPUs that nobody watched are.
fn gaps(evidence: &Evidence<'_>, telemetry: &Telemetry, reasons: &mut Vec<Reason>) {
    let bound = evidence.bounds.gap.duration().as_secs_f64();
    let mut told = Vec::new();
    for source in &telemetry.sources {
        let whose = source
            .device
            .map_or_else(String::new, |device| format!(" of GPU {device}"));
        let name = source.source.name();
        if let Some(trouble) = &source.trouble {
            told.push(format!("{name}{whose}: {trouble}"));
        } else if source.longest_gap_s > bound.max(3.0 * source.period_s) {
            told.push(format!("{name}{whose}: silent for {:.1} s", source.longest_gap_s));
        }
    }
    let is_gpu = |source: Source| matches!(source, Source::Nvml | Source::Amd | Source::Ascend);
    let is_watched = telemetry.sources.iter().any(|source| is_gpu(source.source));
    if evidence.launch.devices > 0 && !is_watched && !evidence.machine.gpus_pretended {
        told.push("nobody watched the GPUs".to_owned());
    }
    if !told.is_empty() {
        reasons.push(found(
            Code::TelemetryGap,
            told.join("; "),
            Some(format!("{}", evidence.bounds.gap)),
        ));
    }
}
