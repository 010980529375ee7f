//! Judges whether the metrics of a measurement can be believed. It is a pure function of records, telemetry,
//! calibration and environment.
//!
//! Every reason has a stable code, the measured value, the bound, and a sentence with a fix. [`codes::TABLE`]
//! describes the codes. A test checks that every code has an entry.

mod caches;
mod chunking;
mod client;
mod codes;
mod counters;
mod evidence;
mod graded;
mod host;
mod machine;
mod outputs;
mod reason;
mod responses;
mod served_model;
mod steadiness;
#[cfg(test)]
mod tests;
mod untimed;

pub(crate) use caches::{CacheEvidence, cache_reasons, unknown_server_cache_reason};
#[cfg(test)]
pub(crate) use codes::TABLE;
pub use codes::code_entry;
pub(crate) use codes::{CodeEntry, table_as_document};
pub(crate) use counters::reported_tokens;
pub(crate) use evidence::Evidence;
pub(crate) use host::other_processes;
pub(crate) use responses::input::Responses;
pub(crate) use responses::summary::summarize_answers;
pub(crate) use served_model::precision_family;

use crate::analysis::calibration;
use crate::analysis::metrics::{LatencyKind, Metric, Statistic};
use crate::config::validity::ValidityBounds;
use crate::results::record::cell::{MeasurementStatus, Origin};
use crate::results::record::client::ClientFacts;
use crate::results::record::machine::Machine;
use crate::results::record::telemetry::Telemetry;
use crate::results::record::validity::{Reason, ReasonCode, Validity, Verdict};
pub(crate) use reason::new_reason;

/// Judges a measurement. `None` if it did not end normally, because its status says enough.
pub(crate) fn judge(evidence: &Evidence<'_>) -> Option<Validity> {
    if evidence.summary.status != MeasurementStatus::Done {
        return None;
    }
    let mut reasons = Vec::new();
    client::judge(evidence, &mut reasons);
    reasons.extend(client_and_machine_reasons(
        evidence.summary.client.as_ref(),
        evidence.metric_value(Metric::Time(Statistic::Mean, LatencyKind::ChunkGap)),
        evidence.summary.telemetry.as_ref(),
        evidence.machine,
        evidence.bounds,
    ));
    outputs::judge_failures_and_counts(evidence, &mut reasons);
    chunking::judge(evidence, &mut reasons);
    served_model::judge(evidence, &mut reasons);
    reasons.extend(responses::response_reasons(
        &evidence.responses(&[&evidence.launch.served_model_name]),
    ));
    graded::judge(evidence, &mut reasons);
    caches::judge(evidence, &mut reasons);
    steadiness::judge(evidence, &mut reasons);
    machine::judge_disturbances(evidence, &mut reasons);
    judge_origin(evidence, &mut reasons);
    let loosened = evidence.bounds.describe_loosened();
    if !loosened.is_empty() {
        reasons.push(new_reason(ReasonCode::BoundsLoosened, loosened.join(", "), None));
    }
    Some(Validity::from_reasons(reasons))
}

/// Judges a load on a server of which there is no recipe: responses, rate and steady state, the worst first; caches; then client and machine, the
/// worst first. Notes are left out. What was done about the caches proves nothing.
pub(crate) fn judge_load(evidence: &Evidence<'_>) -> Vec<Reason> {
    let (launch, summary, bounds) = (evidence.launch, evidence.summary, evidence.bounds);
    let gap_ms = calibration::mean_gap_ms(evidence.requests);
    let (client, telemetry) = (summary.client.as_ref(), summary.telemetry.as_ref());
    let mut found = response_reasons(&evidence.responses(&[&launch.served_model_name, &launch.model]));
    let (scenario, dialect) = (&evidence.cell.scenario, &launch.api.dialect);
    if let Some(reason) = untimed::unstreamed_reason(evidence.requests, scenario, dialect) {
        found.retain(|other| other.code != reason.code);
        found.push(reason);
    }
    if !found
        .iter()
        .any(|reason| reason.code == ReasonCode::ChunkedTokens)
    {
        found.extend(chunking::flush_reason(evidence));
    }
    let mut reasons = without_notes(found);
    reasons.extend(unknown_server_cache_reason(&CacheEvidence {
        reset_proof: None,
        ..CacheEvidence::from_evidence(evidence)
    }));
    reasons.extend(without_notes(client_and_machine_reasons(
        client,
        gap_ms,
        telemetry,
        evidence.machine,
        bounds,
    )));
    reasons
}

/// Judges client and machine. `gap_ms` is the mean time between two events of a response.
fn client_and_machine_reasons(
    client: Option<&ClientFacts>,
    gap_ms: Option<f64>,
    telemetry: Option<&Telemetry>,
    machine: Option<&Machine>,
    bounds: &ValidityBounds,
) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if let Some(client) = client {
        client::judge_read_lateness(client, gap_ms, bounds, &mut reasons);
        client::judge_cpu_use(client, bounds, &mut reasons);
    }
    if let Some(telemetry) = telemetry {
        let threads = client.map_or(1, |client| client.threads.max(1));
        client::judge_shared_cpus(telemetry, threads, bounds, &mut reasons);
        machine::judge_devices(telemetry, machine, bounds, &mut reasons);
        host::judge(telemetry, bounds, &mut reasons);
    }
    reasons
}

/// Judges the responses of a server without a recipe, and the rate and steady state of the load.
fn response_reasons(responses: &Responses<'_>) -> Vec<Reason> {
    let Responses {
        requests,
        scenario,
        bounds,
        ..
    } = *responses;
    let mut reasons = responses::response_reasons(responses);
    if responses.protocol.facts().generates_text {
        reasons.extend(outputs::text_count_reason(requests, scenario, bounds));
        reasons.extend(untimed::unknown_token_times_reason(requests, None, scenario));
    }
    reasons.extend(client::load_rate_reason(requests, scenario, bounds));
    reasons.extend(steadiness::load_reasons(
        requests,
        scenario,
        &scenario.arrival,
        bounds,
    ));
    reasons.extend(served_model::model_name_reason(
        requests,
        responses.names,
        responses.listed,
    ));
    reasons
}

/// Removes notes and sorts the reasons, the worst first.
fn without_notes(mut reasons: Vec<Reason>) -> Vec<Reason> {
    reasons.retain(|reason| reason.weight > Verdict::Valid);
    reasons.sort_by(|a, b| b.weight.cmp(&a.weight).then(a.code.cmp(&b.code)));
    reasons
}

/// Reports the origin of a result that was not measured here.
fn judge_origin(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    match evidence.summary.origin {
        Origin::Simulated => reasons.push(new_reason(
            ReasonCode::Simulated,
            evidence.launch.engine.name.clone(),
            None,
        )),
        Origin::Imported => reasons.push(new_reason(
            ReasonCode::Imported,
            evidence.launch.engine.name.clone(),
            None,
        )),
        Origin::Measured => {}
    }
    let is_pretended = evidence.machine.is_some_and(|machine| machine.gpus_pretended);
    if is_pretended && evidence.launch.devices > 0 {
        let pretended = format!("{} pretended GPUs", evidence.launch.devices);
        reasons.push(new_reason(ReasonCode::PretendedGpus, pretended, None));
    }
}
