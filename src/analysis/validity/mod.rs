//! Judges whether the metrics of a measurement can be believed. It is a pure function of records, telemetry,
//! calibration and environment.
//!
//! Every reason has a stable code, the measured value, the bound, and a sentence with a fix. [`codes::TABLE`]
//! describes the codes. A test checks that every code has an entry.

mod caches;
mod client;
mod codes;
mod counters;
mod host;
mod machine;
mod outputs;
mod responses;
mod steadiness;
#[cfg(test)]
mod tests;
mod untimed;

pub(crate) use caches::{Met, cache_warm, caches};
#[cfg(test)]
pub(crate) use codes::TABLE;
pub use codes::entry;
pub(crate) use codes::{Entry, described};
pub(crate) use counters::reported;
pub(crate) use outputs::family_of_precision;
pub(crate) use responses::{Responses, answers};

use crate::analysis::calibration;
use crate::analysis::metrics::{self, Metric, Sample, Statistic};
use crate::config::validity::Bounds;
use crate::plan::{Cell, Launch, Protocol};
use crate::results::record::cell::{Definitions, Ending, Origin, Summary};
use crate::results::record::client::ClientFacts;
use crate::results::record::machine::Machine;
use crate::results::record::request::Request;
use crate::results::record::telemetry::Telemetry;
use crate::results::record::validity::{Code, Reason, Validity, Verdict};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence<'a> {
    pub launch: &'a Launch,
    pub cell: &'a Cell,
    pub summary: &'a Summary,
    pub requests: &'a [Request],
    /// The machine, where it is known.
    pub machine: Option<&'a Machine>,
    /// From where on it is doubted.
    pub bounds: &'a Bounds,
}

impl Evidence<'_> {
    fn figure(&self, metric: Metric) -> Option<f64> {
        metrics::figure(self.summary.figures.get(&Definitions::Matrix)?, metric)
    }

    /// The responses of a server that knows its model by these names.
    fn responses<'a>(&'a self, names: &'a [&'a str]) -> Responses<'a> {
        Responses {
            requests: self.requests,
            scenario: &self.cell.scenario,
            names,
            listed: &self.summary.engine.models,
            protocol: self.launch.contact.dialect.protocol,
            is_simulated: self.summary.origin == Origin::Simulated,
            bounds: self.bounds,
        }
    }

    fn completed(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().filter(|request| request.is_completed())
    }
}

/// Judges a measurement. `None` if it did not end normally, because its status says enough.
pub(crate) fn judge(evidence: &Evidence<'_>) -> Option<Validity> {
    if evidence.summary.ending != Ending::Done {
        return None;
    }
    let mut reasons = Vec::new();
    client::judge(evidence, &mut reasons);
    reasons.extend(surroundings(
        evidence.summary.client.as_ref(),
        evidence.figure(Metric::Time(Statistic::Mean, Sample::ChunkGap)),
        evidence.summary.telemetry.as_ref(),
        evidence.machine,
        evidence.bounds,
    ));
    outputs::judge(evidence, &mut reasons);
    reasons.extend(responses::of_responses(
        &evidence.responses(&[&evidence.launch.served]),
    ));
    caches::judge(evidence, &mut reasons);
    steadiness::judge(evidence, &mut reasons);
    machine::judge(evidence, &mut reasons);
    origin(evidence, &mut reasons);
    let loosened = evidence.bounds.loosened();
    if !loosened.is_empty() {
        reasons.push(found(Code::BoundsLoosened, loosened.join(", "), None));
    }
    Some(Validity::of(reasons))
}

/// Judges a load on a server of which there is no recipe: responses, rate and steady state, the worst first; caches; then client and machine, the
/// worst first. Notes are left out. What was done about the caches proves nothing.
pub(crate) fn judge_load(evidence: &Evidence<'_>) -> Vec<Reason> {
    let (launch, summary, bounds) = (evidence.launch, evidence.summary, evidence.bounds);
    let gap_ms = calibration::mean_gap_ms(evidence.requests);
    let (client, telemetry) = (summary.client.as_ref(), summary.telemetry.as_ref());
    let mut reasons = doubts(of_responses(
        &evidence.responses(&[&launch.served, &launch.model]),
    ));
    reasons.extend(cache_warm(&Met {
        proof: None,
        ..Met::of(evidence)
    }));
    reasons.extend(doubts(surroundings(
        client,
        gap_ms,
        telemetry,
        evidence.machine,
        bounds,
    )));
    reasons
}

/// Judges client and machine. `gap_ms` is the mean time between two events of a response.
fn surroundings(
    client: Option<&ClientFacts>,
    gap_ms: Option<f64>,
    telemetry: Option<&Telemetry>,
    machine: Option<&Machine>,
    bounds: &Bounds,
) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if let Some(client) = client {
        client::read_late(client, gap_ms, bounds, &mut reasons);
        client::effort(client, bounds, &mut reasons);
    }
    if let Some(telemetry) = telemetry {
        let threads = client.map_or(1, |client| client.threads.max(1));
        client::shared(telemetry, threads, bounds, &mut reasons);
        machine::devices(telemetry, machine, bounds, &mut reasons);
        host::judge(telemetry, bounds, &mut reasons);
    }
    reasons
}

/// Judges the responses of a server without a recipe, and the rate and steady state of the load.
fn of_responses(responses: &Responses<'_>) -> Vec<Reason> {
    let Responses {
        requests,
        scenario,
        bounds,
        ..
    } = *responses;
    let mut reasons = responses::of_responses(responses);
    if responses.protocol != Protocol::Embeddings {
        reasons.extend(outputs::of_text(requests, scenario, bounds));
        reasons.extend(untimed::of(requests, None, scenario));
    }
    reasons.extend(client::rate_of(requests, scenario, bounds));
    reasons.extend(steadiness::of_load(requests, scenario, &scenario.arrival, bounds));
    reasons.extend(outputs::named(requests, responses.names, responses.listed));
    reasons
}

/// Removes notes and sorts the reasons, the worst first.
fn doubts(mut reasons: Vec<Reason>) -> Vec<Reason> {
    reasons.retain(|reason| reason.weight > Verdict::Valid);
    reasons.sort_by(|a, b| b.weight.cmp(&a.weight).then(a.code.cmp(&b.code)));
    reasons
}

/// Reports the origin of a result that was not measured here.
fn origin(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    match evidence.summary.origin {
        Origin::Simulated => reasons.push(found(Code::Simulated, evidence.launch.engine.name.clone(), None)),
        Origin::Imported => reasons.push(found(Code::Imported, evidence.launch.engine.name.clone(), None)),
        Origin::Measured => {}
    }
    let is_pretended = evidence.machine.is_some_and(|machine| machine.gpus_pretended);
    if is_pretended && evidence.launch.devices > 0 {
        let pretended = format!("{} pretended GPUs", evidence.launch.devices);
        reasons.push(found(Code::PretendedGpus, pretended, None));
    }
}

/// Returns a reason with the weight and fix of its code in the table.
fn found(code: Code, measured: String, bound: Option<String>) -> Reason {
    let entry = entry(code);
    Reason {
        code,
        weight: entry.weight,
        only: entry.only.to_vec(),
        measured,
        bound,
        advice: format!("{} {}", entry.means, entry.mend),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
