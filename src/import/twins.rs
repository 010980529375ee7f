//! Merges one measurement in two files into one row, such as a console log and the JSON of the same run.

use super::{About, Found, Reading, Warning};
use crate::analysis::metrics::{Count, Metric, Sample, Statistic};

/// Whether two sets of figures are one measurement in two formats. One must be printed and the other have all
/// digits, or the tools must differ. Duration, completed requests and output tokens must be known and equal
/// within the printed digits, and mean TTFT if both have it.
fn are_twins(one: &Found, other: &Found) -> bool {
    let told = [Metric::Duration, Metric::Completed, Metric::Tokens(Count::Output)];
    let agree = |metric: &Metric| {
        let (Some(a), Some(b)) = (one.figures.get(metric), other.figures.get(metric)) else {
            return false;
        };
        // A last digit may have been cut off instead of rounded, which doubles the error.
        let close = |a: f64, b: f64, half: f64| (a - b).abs() <= 2.0 * half + 1e-9 * a.abs();
        a.value
            .zip(b.value)
            .is_some_and(|(x, y)| x > 0.0 && close(x, y, a.half.max(b.half)))
    };
    let ttft = Metric::Time(Statistic::Mean, Sample::Ttft);
    let has = |found: &Found| found.figures.contains_key(&ttft);
    let is_exact = |found: &Found| {
        found
            .figures
            .get(&Metric::Duration)
            .is_some_and(|printed| printed.half == 0.0)
    };
    // Two files of one format are two measurements.
    let is_other_format = is_exact(one) != is_exact(other) || one.tool != other.tool;
    is_other_format && told.iter().all(agree) && (!has(one) || !has(other) || agree(&ttft))
}

/// Merges equal measurements of different files. Figures come from the one with more digits, names from
/// either.
pub(super) fn merged(readings: &[Reading]) -> Vec<(&str, Vec<Found>)> {
    let mut merged: Vec<(&str, Vec<Found>)> = Vec::new();
    for reading in readings {
        let mut own = Vec::new();
        for found in &reading.found {
            let mut found = found.clone();
            reading.declared.complete(&mut found);
            let others = merged.iter_mut().flat_map(|(file, all)| {
                let file = *file;
                all.iter_mut().map(move |other| (file, other))
            });
            let twin = others.into_iter().find(|(_, other)| are_twins(other, &found));
            match twin {
                Some((_, other)) => join(other, found, &reading.file),
                None => own.push(found),
            }
        }
        merged.push((reading.file.as_str(), own));
    }
    merged
}

fn join(one: &mut Found, other: Found, file: &str) {
    let says = format!("the same measurement is in `{file}` too: both are one row");
    let line = one.line;
    one.engine = one.engine.take().or(other.engine);
    one.variant = one.variant.take().or(other.variant);
    let has_dataset = one.asked.dataset.is_some();
    let backend = one.asked.backend.take().or_else(|| other.asked.backend.clone());
    let model = one.asked.model.take().or_else(|| other.asked.model.clone());
    if !has_dataset && other.asked.dataset.is_some() {
        one.asked = other.asked;
    }
    one.asked.backend = backend;
    one.asked.model = model;
    let (mine, theirs) = (&mut one.started, other.started);
    mine.tp = mine.tp.or(theirs.tp);
    mine.pp = mine.pp.or(theirs.pp);
    mine.dp = mine.dp.or(theirs.dp);
    mine.ep = mine.ep.or(theirs.ep);
    mine.model = mine.model.take().or(theirs.model);
    mine.served = mine.served.take().or(theirs.served);
    mine.precision = mine.precision.take().or(theirs.precision);
    // Figures of another profile have other definitions, so they are not merged.
    if one.profile == other.profile {
        for (metric, printed) in other.figures {
            let known = one.figures.get(&metric);
            if known.is_none_or(|known| printed.half < known.half) {
                one.figures.insert(metric, printed);
            }
        }
    }
    // Reasons and warnings of either file hold for the measurement.
    one.is_simulated |= other.is_simulated;
    for reason in other.reasons {
        if !one.reasons.contains(&reason) {
            one.reasons.push(reason);
        }
    }
    one.warnings.push(Warning::new(line, About::Rest, says));
}
