//! Measures the client's error against the simulated engine, which runs in a separate process and records the
//! true times.

mod reference_engine;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use reference_engine::{ReferenceEngine, busiest_cpu_share};

use crate::analysis::calibration;
use crate::base::clock;
use crate::loadgen::LoadResult;
use crate::plan::{Measurement, Plan, Start};
use crate::results::record::client::{ArrivalUncertainty, Calibration, ClientFacts, SendLag};
use crate::results::record::machine::Machine;
use crate::results::store::{self, Store};
use crate::runner::context::HostEnv;
use crate::runner::shutdown::Shutdown;

/// Start index of the flood's launch; it gives that launch a log of its own.
const FLOOD_START: u32 = 1000;
/// Times between tokens that are measured before a run, in ms.
pub(crate) const GAPS_MS: [u32; 3] = [20, 5, 1];
/// Event rate per second that a simulated engine on the same host can hold.
const MAX_EVENTS_PER_S: u32 = 20_000;
/// Largest number of streams that is measured before a run.
const MAX_STREAMS: u32 = 1024;
/// What a calibration measures.
#[derive(Clone, Debug)]
pub(crate) struct CalibrationRequest {
    /// Numbers of streams, in any order.
    pub(crate) streams: Vec<u32>,
    /// Times between tokens in any order, in ms. The longest is measured with every number of streams, the
    /// others with the largest number that a simulated engine can serve.
    pub(crate) gaps_ms: Vec<u32>,
    /// Tokens of each stream, at least 2.
    pub(crate) tokens: u32,
    /// Whether to measure the highest token rate of the client.
    pub(crate) flood: bool,
}

/// Measures the client on this host; `None` if the run was asked to stop. The simulated engine's log goes to
/// `store`.
pub(crate) async fn calibrate(
    host: &HostEnv,
    store: &Store,
    request: &CalibrationRequest,
    shutdown: &Shutdown,
) -> Result<Option<Calibration>, String> {
    let mut streams = request.streams.clone();
    streams.sort_unstable();
    streams.dedup();
    let max_streams = streams.last().copied().unwrap_or(1);
    let mut gaps = request.gaps_ms.clone();
    gaps.sort_unstable_by(|one, other| other.cmp(one));
    gaps.dedup();
    let longest = gaps.first().copied();
    let tries = gaps.into_iter().map(|gap_ms| match longest == Some(gap_ms) {
        true => (gap_ms, streams.clone()),
        false => (gap_ms, vec![max_streams.min(MAX_EVENTS_PER_S * gap_ms / 1000)]),
    });
    let mut stamps = None;
    let mut points = Vec::new();
    for (start, (itl_ms, streams)) in (1..).zip(tries) {
        let exact = ReferenceEngine::start_exact(host, store, start, itl_ms).await?;
        let measured = exact
            .measure_points(&streams, request.tokens.max(2), itl_ms, shutdown)
            .await;
        exact.stop().await;
        match measured {
            Ok(measured) => {
                stamps = measured.last().map(|(_, stamp)| *stamp).or(stamps);
                points.extend(measured.into_iter().map(|(point, _)| point));
            }
            Err(_) if shutdown.is_requested() => break,
            Err(error) => return Err(error),
        }
    }
    let mut flood = None;
    if request.flood && !shutdown.is_requested() {
        let server = ReferenceEngine::start(host, store, FLOOD_START, &["--flood".to_owned()]).await?;
        let measured = server.measure_flood(shutdown).await;
        server.stop().await;
        flood = Some(measured?);
    }
    if shutdown.is_requested() {
        return Ok(None);
    }
    Ok(Some(Calibration {
        tool: host.machine.tool.clone(),
        machine: machine_identity(&host.machine),
        at: clock::timestamp(),
        timestamp_source: stamps.unwrap_or("user").to_owned(),
        points,
        flood,
    }))
}

/// The numbers of concurrent streams to calibrate for a plan: the smallest, the middle and the largest of its
/// cells.
pub(crate) fn stream_counts(plan: &Plan, todo: &[Start]) -> Vec<u32> {
    let stream_count = |measurement: &Measurement| {
        let scenario = &plan.cell(&measurement.cell).scenario;
        let bound = scenario.arrival.concurrency.map_or(MAX_STREAMS, NonZeroU32::get);
        bound.min(scenario.workload.prompts).clamp(1, MAX_STREAMS)
    };
    let counts: BTreeSet<u32> = todo
        .iter()
        .flat_map(|start| start.cells.iter().map(stream_count))
        .collect();
    let counts: Vec<u32> = counts.into_iter().collect();
    let picked: BTreeSet<u32> = [counts.first(), counts.get(counts.len() / 2), counts.last()]
        .into_iter()
        .flatten()
        .copied()
        .collect();
    picked.into_iter().collect()
}

/// The calibration in the cache folder, if it was made on this host with this version of `matrix`, as given
/// by `machine`.
pub(crate) fn load_saved(cache: &Path, machine: impl FnOnce() -> Machine) -> Option<Calibration> {
    let saved = store::calibration::load(cache)?;
    let machine = machine();
    (saved.tool == machine.tool && saved.machine == machine_identity(&machine)).then_some(saved)
}

/// Text that identifies a host.
fn machine_identity(machine: &Machine) -> String {
    let cpus = machine.cpus.map(|count| format!("{count} CPUs"));
    [
        machine.host.clone(),
        machine.kernel.clone(),
        machine.cpu.clone(),
        cpus,
    ]
    .into_iter()
    .flatten()
    .collect::<Vec<_>>()
    .join(", ")
}

/// Load and errors of the client during a load.
pub(super) fn client_facts(driven: &LoadResult, calibration: Option<&Calibration>) -> ClientFacts {
    let millis = |span: Duration| span.as_secs_f64() * 1e3;
    let longest = driven.threads.iter().map(|effort| effort.longest_pass).max();
    ClientFacts {
        send_lag: driven.lag.map(|lag| SendLag {
            mean_ms: millis(lag.mean),
            p99_ms: millis(lag.p99),
            max_ms: millis(lag.max),
            second_ms: lag.second_latest.map(millis),
            fifth_ms: lag.fifth_latest.map(millis),
        }),
        cpu_share: busiest_cpu_share(driven),
        threads: u32::try_from(driven.threads.len()).unwrap_or(u32::MAX),
        loop_lag_max_ms: longest.map(millis),
        clock_jumps: driven.clock_jumps,
        late: Some(ArrivalUncertainty {
            p90_ms: millis(driven.lateness.p90),
            p99_ms: millis(driven.lateness.p99),
            max_ms: millis(driven.lateness.max),
            events_per_s: driven.lateness.events_per_s as f64,
            pauses: driven.lateness.pauses,
            longest_pause_s: driven.lateness.longest_pause.as_secs_f64(),
        }),
        left_open: driven.left_open,
        surplus_connections: driven.surplus,
        error: calibration.and_then(|calibration| {
            let (most, gap) = (
                calibration::peak_concurrency(&driven.records),
                calibration::mean_gap_ms(&driven.records),
            );
            calibration::matching_point(calibration, most, gap)
        }),
    }
}
