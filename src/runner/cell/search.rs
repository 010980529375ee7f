//! A cell that searches: many points on one engine, one record.

use std::sync::Arc;

use super::{CellOutcome, CellRun, ReadyEngine, count_tokens, load_of, span_of};
use crate::analysis::metrics::{Basis, Metric};
use crate::analysis::slo_search::{Hunt, Next};
use crate::analysis::validity::{self, Met};
use crate::config::search::Search;
use crate::loadgen::Driven;
use crate::results::record::cell::{Definitions, FailureClass, Phase, ResetProof};
use crate::results::record::client::ClientFacts;
use crate::results::record::search::{ReportedTokens, SearchEnding};
use crate::runner::calibrate;
use crate::runner::prompt_store::{PreparedWorkload, repeated_share_of};
use crate::runner::search::{judged, load_at};
use crate::runner::shutdown::Stop;
use crate::runner::telemetry::Span;

impl CellRun<'_> {
    /// Measures point after point until the search is over. Caches are emptied before each.
    pub(super) async fn search(
        mut self,
        search: &Search,
        ready: &mut ReadyEngine,
        workload: &Arc<PreparedWorkload>,
        stop: &Stop,
    ) -> CellOutcome {
        let basis = Basis::of(self.launch, self.cell);
        let is_fresh = ready.measured == 0 && !self.launch.is_attached();
        let bounds = &self.job.plan.validity;
        // Prompts that begin alike are known from those before them, whichever point sends them.
        let are_apart = workload.repeated.is_some_and(|share| share <= bounds.warm);
        let mut hunt = Hunt::new(search.clone());
        let mut used = 0;
        // The best point so far; the first one as long as none holds.
        let mut best: Option<(Driven, Option<ResetProof>, ClientFacts)> = None;
        // From the start of the first point to the end of the last.
        let mut whole: Option<Span> = None;
        let mut reported: Option<ReportedTokens> = None;
        ready.sampling.before().await;
        while let Next::Try(value) = hunt.next() {
            if best.is_some() {
                // What comes next ends at once where the run is asked to stop.
                let _ = stop.unless_asked(self.reset_caches(ready)).await;
            }
            let protocol = ready.target.dialect.protocol;
            let point = match load_at(&self.cell.scenario, search, workload, protocol, value, used) {
                Ok(point) => point,
                Err(reason) => {
                    return self.failed(Phase::Measure, FailureClass::Spec, reason, Vec::new(), true);
                }
            };
            let mut point = point;
            let rows = point.items.len();
            // The same value may be tried twice, so that the prompts used so far tell points apart.
            let items = match self
                .begun(
                    &format!("{value} after {used}"),
                    std::mem::take(&mut point.items),
                    workload,
                )
                .await
            {
                Ok(items) => items,
                Err(reason) => {
                    return self.failed(Phase::Measure, FailureClass::Spec, reason, Vec::new(), true);
                }
            };
            let load = load_of(&ready.target, &point.scenario, items);
            let is_first = ready.measured == 0;
            ready.measured += 1;
            let (mut driven, cut) = match self.drive(Phase::Measure, ready, load, stop).await {
                Ok(driven) => driven,
                Err(error) => {
                    self.summary.search = Some(hunt.record());
                    let said = error.to_string();
                    return self.failed(Phase::Measure, FailureClass::Client, said, Vec::new(), true);
                }
            };
            let short = point.ran_out(rows, &driven).filter(|_| cut.is_none());
            if let Some(short) = short {
                let (unit, says) = (search.by.unit(), short.says("`prompts`"));
                self.summary.warnings.push(format!("at {value} {unit} {says}"));
            }
            let span = span_of(&driven);
            let begun = whole.map_or(span.zero, |whole| whole.zero);
            whole = Some(Span { zero: begun, ..span });
            let mut client = calibrate::facts(&driven, self.job.calibration);
            let requests = count_tokens(std::mem::take(&mut driven.requests), workload).await;
            if let Some(cut) = cut {
                self.end_phase(Phase::Measure);
                self.sampled(ready, Span { zero: begun, ..span }, false).await;
                self.summary.search = Some(hunt.record());
                driven.requests = requests;
                return self.ended(driven, Some(cut), None, workload).await;
            }
            // A conversation is one prompt and several requests; of users who ran out of time not every prompt was sent.
            let sent = rows.min(requests.len());
            // Of these prompts alone: a few of many may repeat each other more than all do.
            let repeated = repeated_share_of(workload, used, sent).await;
            used += sent;
            let (telemetry, _) = ready.sampling.after(span, true).await;
            self.count_hits(telemetry.engine.as_ref());
            let mut point = judged(search, value, point.schedule, &requests, &basis, short.as_ref());
            let met = Met {
                protocol,
                scenario: &self.cell.scenario,
                bounds,
                repeated,
                proof: self.summary.reset.as_ref(),
                requests: &requests,
            };
            let of_point = validity::reported(&met);
            match &mut reported {
                Some(all) => all.add(&of_point),
                none => *none = Some(of_point),
            }
            let is_unseen = is_fresh && (is_first || are_apart && used <= workload.prepared.prompts.len());
            point.caches = validity::caches(&met, is_unseen);
            // That a rate was not reached is said of the point itself.
            if point.judged.unreached.is_some() {
                client.send_lag = None;
            }
            if best.is_none() || point.judged.holds && !point.is_warm() {
                driven.requests = requests;
                let before = best.replace((driven, self.summary.reset.clone(), client));
                self.other_points.extend(before.map(|(.., client)| client));
                self.summary.schedule_hash = Some(point.schedule_hash.clone());
            } else {
                self.other_points.push(client);
            }
            hunt.take(point);
        }
        self.end_phase(Phase::Measure);
        if let Some(whole) = whole {
            self.sampled(ready, whole, true).await;
        }
        let mut record = hunt.record();
        record.reported = reported;
        self.summary.warnings.dedup();
        if used > workload.prepared.prompts.len() && !self.empties_caches() {
            self.summary.warnings.push(format!(
                "the points sent {used} prompts of {}, so that some came twice, and the caches were not emptied in between",
                workload.prepared.prompts.len()
            ));
        }
        if record.ending != SearchEnding::Bracketed {
            self.summary.warnings.push(record.says());
        }
        let found = (Metric::Found(search.by).name(), record.found);
        self.summary.search = Some(record);
        let (driven, reset, _) = best.expect("a search without objection tries at least one point");
        self.summary.reset = reset;
        let mut measured = self.ended(driven, None, None, workload).await;
        let figures = measured.summary.figures.entry(Definitions::Matrix).or_default();
        figures.extend([found]);
        measured
    }

    /// Whether each point finds the caches as if they were empty.
    fn empties_caches(&self) -> bool {
        let proof = self.summary.reset.as_ref();
        proof.is_some_and(|proof| {
            let is_new = proof
                .unique_prefix
                .as_ref()
                .is_some_and(|prefix| prefix.kept == 0);
            is_new || (proof.possible && proof.success == Some(true))
        })
    }
}
