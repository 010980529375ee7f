//! Merges one measurement in two files into one row, such as a console log and the JSON of the same run.

use super::imported_file::ImportedFile;
use super::result_block::{ResultBlock, Warning, WarningSubject};
use crate::analysis::metrics::{LatencyKind, Metric, Statistic, TokenCount};

/// Whether two sets of figures are one measurement in two formats. One must be printed and the other have all
/// digits, or the tools must differ. Duration, completed requests and output tokens must be known and equal
/// within the printed digits, and mean TTFT if both have it.
fn are_same_measurement(one: &ResultBlock, other: &ResultBlock) -> bool {
    let exact_metrics = [
        Metric::Duration,
        Metric::Completed,
        Metric::Tokens(TokenCount::Output),
    ];
    let agree = |metric: &Metric| {
        let (Some(a), Some(b)) = (one.figures.get(metric), other.figures.get(metric)) else {
            return false;
        };
        // A last digit may have been cut off instead of rounded, which doubles the error.
        let close = |a: f64, b: f64, half: f64| (a - b).abs() <= 2.0 * half + 1e-9 * a.abs();
        a.value
            .zip(b.value)
            .is_some_and(|(x, y)| x > 0.0 && close(x, y, a.half_digit.max(b.half_digit)))
    };
    let ttft = Metric::Time(Statistic::Mean, LatencyKind::Ttft);
    let has = |result: &ResultBlock| result.figures.contains_key(&ttft);
    let is_exact = |result: &ResultBlock| {
        result
            .figures
            .get(&Metric::Duration)
            .is_some_and(|printed| printed.half_digit == 0.0)
    };
    // Two files of one format are two measurements.
    let is_other_format = is_exact(one) != is_exact(other) || one.tool != other.tool;
    is_other_format && exact_metrics.iter().all(agree) && (!has(one) || !has(other) || agree(&ttft))
}

/// Merges equal measurements of different files. Figures come from the one with more digits, names from
/// either.
pub(super) fn merge_files(readings: &[ImportedFile]) -> Vec<(&str, Vec<ResultBlock>)> {
    let mut merged: Vec<(&str, Vec<ResultBlock>)> = Vec::new();
    for reading in readings {
        let mut own = Vec::new();
        for result in &reading.results {
            let mut result = result.clone();
            reading.declared.apply_to(&mut result);
            let others = merged.iter_mut().flat_map(|(file, results)| {
                let file = *file;
                results.iter_mut().map(move |other| (file, other))
            });
            let twin = others
                .into_iter()
                .find(|(_, other)| are_same_measurement(other, &result));
            match twin {
                Some((_, other)) => merge_into(other, result, &reading.file),
                None => own.push(result),
            }
        }
        merged.push((reading.file.as_str(), own));
    }
    merged
}

fn merge_into(one: &mut ResultBlock, other: ResultBlock, file: &str) {
    let says = format!("`{file}` has the same measurement as another file; both are merged into one row");
    let line = one.line;
    one.engine = one.engine.take().or(other.engine);
    one.variant = one.variant.take().or(other.variant);
    let has_dataset = one.options.dataset.is_some();
    let backend = one
        .options
        .backend
        .take()
        .or_else(|| other.options.backend.clone());
    let model = one.options.model.take().or_else(|| other.options.model.clone());
    if !has_dataset && other.options.dataset.is_some() {
        one.options = other.options;
    }
    one.options.backend = backend;
    one.options.model = model;
    let (mine, theirs) = (&mut one.launch_info, other.launch_info);
    mine.tp = mine.tp.or(theirs.tp);
    mine.pp = mine.pp.or(theirs.pp);
    mine.dp = mine.dp.or(theirs.dp);
    mine.ep = mine.ep.or(theirs.ep);
    mine.model = mine.model.take().or(theirs.model);
    mine.served_model_name = mine.served_model_name.take().or(theirs.served_model_name);
    mine.precision = mine.precision.take().or(theirs.precision);
    // Figures of another profile have other definitions, so they are not merged.
    if one.profile == other.profile {
        for (metric, printed) in other.figures {
            let known = one.figures.get(&metric);
            if known.is_none_or(|known| printed.half_digit < known.half_digit) {
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
    one.warnings
        .push(Warning::new(line, WarningSubject::Nothing, says));
}
