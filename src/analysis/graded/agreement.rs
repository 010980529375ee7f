//! How far the answers to greedy probes agree: those under load with those of a lone request, those of lone requests on
//! two starts of the same launch, and those of lone requests with the reference's.
//!
//! Kernels of healthy engines round differently from batch to batch, so that a greedy answer may go on with another
//! token. Agreement is therefore not judged. What is normal is how far lone requests on two starts agree.

use crate::base::ids::{CellKey, RunId};
use crate::plan::Plan;
use crate::results::record::cell::MeasurementSummary;
use crate::results::record::graded::{GradedAnswers, ProbeAnswers};
use crate::results::record::stored_answers::StoredAnswers;

use super::reference::{graded_answers, reference_side};

/// How far answers to the same probes agree.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Agreement {
    /// Probes with a text on both sides.
    pub(crate) probes: u32,
    /// Those with identical texts.
    pub(crate) identical: u32,
    /// Sum of the lengths of the common beginnings in characters.
    common: u64,
    /// Sum of the lengths of the longer texts in characters.
    length: u64,
}

impl Agreement {
    fn count(ours: &[Option<String>], theirs: &[Option<String>]) -> Self {
        let mut agreement = Self::default();
        for (ours, theirs) in ours.iter().zip(theirs) {
            let (Some(ours), Some(theirs)) = (ours, theirs) else {
                continue;
            };
            let common = ours.chars().zip(theirs.chars()).take_while(|(a, b)| a == b);
            agreement.probes += 1;
            agreement.identical += u32::from(ours == theirs);
            agreement.common += common.count() as u64;
            agreement.length += ours.chars().count().max(theirs.chars().count()) as u64;
        }
        agreement
    }

    fn sum(parts: impl Iterator<Item = Self>) -> Self {
        parts.fold(Self::default(), |sum, part| Self {
            probes: sum.probes + part.probes,
            identical: sum.identical + part.identical,
            common: sum.common + part.common,
            length: sum.length + part.length,
        })
    }

    /// Share of identical texts; `None` without a probe.
    pub(crate) fn identical_share(&self) -> Option<f64> {
        (self.probes > 0).then(|| f64::from(self.identical) / f64::from(self.probes))
    }

    /// Mean length of the common beginnings in characters.
    pub(crate) fn common_characters(&self) -> f64 {
        self.common as f64 / f64::from(self.probes.max(1))
    }

    /// Mean length of the longer texts in characters.
    pub(crate) fn characters(&self) -> f64 {
        self.length as f64 / f64::from(self.probes.max(1))
    }
}

/// The agreement of the answers of a cell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CellAgreement {
    pub(crate) cell: CellKey,
    /// Measurements with probes.
    pub(crate) measurements: u32,
    /// Answers under load with those of lone requests, over all measurements.
    pub(crate) under_load: Agreement,
    /// Answers of lone requests on two starts, for each pair of starts.
    pub(crate) between_starts: Vec<Agreement>,
    /// Answers of lone requests with those of the reference.
    pub(crate) versus_reference: Option<ReferenceAgreement>,
}

/// The agreement of lone requests with those of the reference.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReferenceAgreement {
    /// The stored run of the reference; absent if it is a cell of the same run.
    pub(crate) run: Option<RunId>,
    pub(crate) reference: CellKey,
    /// Over the first measurements of both sides, as many of each; or why they are not compared.
    pub(crate) result: Result<Agreement, String>,
}

impl CellAgreement {
    /// Over all pairs of starts.
    pub(crate) fn all_starts(&self) -> Agreement {
        Agreement::sum(self.between_starts.iter().copied())
    }
}

/// The agreement of the answers of every cell with probes.
pub(crate) fn agreements(
    plan: &Plan,
    summaries: &[MeasurementSummary],
    stored: Option<&StoredAnswers>,
) -> Vec<CellAgreement> {
    let by_cell = MeasurementSummary::by_cell(summaries);
    let found = plan.cells.iter().filter_map(|cell| {
        let measured: Vec<&MeasurementSummary> = by_cell.get(&cell.key)?.clone();
        let probes = probe_answers(&graded_answers(&measured));
        if probes.is_empty() {
            return None;
        }
        let reference = plan.answer_references.get(&cell.key);
        let versus_reference = reference.and_then(|reference| {
            let theirs = reference_side(plan, &by_cell, stored, reference)?;
            let agreement = theirs.and_then(|theirs| versus(&probes, &probe_answers(&theirs)));
            Some(ReferenceAgreement {
                run: plan
                    .stored_reference
                    .as_ref()
                    .and(stored)
                    .map(|stored| stored.run.clone()),
                reference: reference.clone(),
                result: agreement,
            })
        });
        let under_load = probes
            .iter()
            .map(|probes| Agreement::count(&probes.under_load, &probes.alone));
        Some(CellAgreement {
            cell: cell.key.clone(),
            measurements: u32::try_from(probes.len()).unwrap_or(u32::MAX),
            under_load: Agreement::sum(under_load),
            between_starts: between_starts(&measured),
            versus_reference,
        })
    });
    found.collect()
}

fn probe_answers<'a>(answers: &[&'a GradedAnswers]) -> Vec<&'a ProbeAnswers> {
    answers
        .iter()
        .filter_map(|answers| answers.probes.as_ref())
        .collect()
}

/// The agreement of each pair of starts, by the first measurement on each.
fn between_starts(measured: &[&MeasurementSummary]) -> Vec<Agreement> {
    let mut starts: Vec<u32> = measured.iter().map(|summary| summary.start).collect();
    starts.sort_unstable();
    starts.dedup();
    let of_start = |start: &u32| -> Option<&ProbeAnswers> {
        let of_start: Vec<&MeasurementSummary> = measured
            .iter()
            .copied()
            .filter(|summary| summary.start == *start)
            .collect();
        probe_answers(&graded_answers(&of_start)).first().copied()
    };
    let probes: Vec<&ProbeAnswers> = starts.iter().filter_map(of_start).collect();
    let pairs = probes.iter().enumerate().flat_map(|(nth, one)| {
        let others = probes[nth + 1..].iter();
        others
            .filter(|other| other.probes_hash == one.probes_hash)
            .map(|other| Agreement::count(&one.alone, &other.alone))
    });
    pairs.collect()
}

fn versus(ours: &[&ProbeAnswers], theirs: &[&ProbeAnswers]) -> Result<Agreement, String> {
    if theirs.is_empty() {
        return Err("the reference has no answers to greedy probes".to_owned());
    }
    if ours
        .iter()
        .chain(theirs)
        .any(|probes| probes.probes_hash != ours[0].probes_hash)
    {
        return Err(
            "the greedy probes of the two sides differ, perhaps because of different versions of `matrix`"
                .to_owned(),
        );
    }
    let pairs = ours.iter().zip(theirs);
    Ok(Agreement::sum(pairs.map(|(ours, theirs)| {
        Agreement::count(&ours.alone, &theirs.alone)
    })))
}

#[cfg(test)]
mod tests;
