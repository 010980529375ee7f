//! Output per GPU against interactivity, over the versions of an engine.

use std::collections::BTreeMap;

use super::row::{FIGURES, RowState, SiteFigure, SiteRow};
use super::{Site, SiteRun, day};
use crate::analysis::metrics::{Metric, Quantity};
use crate::base::text::pluralize;
use crate::results::record::cell::Origin;
use crate::results::record::cell_stats::Facts;
use crate::results::record::validity::Verdict;

/// Maximum number of versions in a frontier: the newest ones.
const MAX_VERSIONS: usize = 7;

/// The versions of an engine with one model and scenario on one host.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Frontier {
    pub(crate) title: String,
    /// Whether output is per GPU. It is the total if no engine has GPUs, as with simulated engines.
    pub(crate) is_per_gpu: bool,
    /// One entry for each version, in the order of their numbers.
    pub(crate) versions: Vec<VersionCurve>,
    pub(crate) notes: Vec<String>,
}

/// A version at several loads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VersionCurve {
    pub(crate) version: String,
    /// By interactivity, the lowest first.
    pub(crate) points: Vec<LoadPoint>,
}

/// A version at one load.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LoadPoint {
    pub(crate) interactivity_tok_s: f64,
    pub(crate) output_tok_s: f64,
    /// The load, run, host, date and verdict.
    pub(crate) provenance: String,
    pub(crate) is_doubtful: bool,
    pub(crate) page: String,
}

/// All frontiers with several points, by title.
pub(crate) fn frontiers(site: &Site) -> Vec<Frontier> {
    let mut groups: BTreeMap<(String, usize), Vec<(&SiteRun, &SiteRow)>> = BTreeMap::new();
    for (run, row) in site.rows() {
        groups.entry((title(row), row.host)).or_default().push((run, row));
    }
    let frontiers = groups
        .into_iter()
        .filter_map(|((title, _), rows)| frontier(title, &rows));
    frontiers.collect()
}

/// What the rows of a group have in common, in words.
fn title(row: &SiteRow) -> String {
    let mut words = vec![row.engine.clone(), row.model.clone(), row.scenario.clone()];
    words.extend(setup_in_words(row));
    words.join(" · ")
}

/// Precision, parallelism, host and origin of a row in words.
pub(super) fn setup_in_words(row: &SiteRow) -> Vec<String> {
    let mut words: Vec<String> = row.precision.iter().cloned().collect();
    words.extend(row.tp.map(|tp| format!("tp {tp}")));
    words.extend(
        row.gpus
            .filter(|gpus| Some(*gpus) != row.tp && *gpus > 0)
            .map(|gpus| pluralize(gpus as usize, "GPU", "GPUs")),
    );
    let host = row.host_name.clone().unwrap_or_else(|| "unknown host".to_owned());
    words.push(match &row.gpu {
        Some(gpu) => format!("{host} ({gpu})"),
        None => host,
    });
    if row.is_simulated {
        words.push("simulated".to_owned());
    } else if row.origin == Origin::Imported {
        words.push("imported".to_owned());
    }
    words
}

/// The frontier of rows, of which the newest come first; `None` with less than two points.
fn frontier(title: String, rows: &[(&SiteRun, &SiteRow)]) -> Option<Frontier> {
    let is_per_gpu = rows.iter().any(|(_, row)| row.gpus.is_some_and(|gpus| gpus > 0));
    let output = match is_per_gpu {
        true => Metric::PerDevice(Quantity::Output),
        false => FIGURES[0],
    };
    // By version, the newest first: its points by load.
    let mut versions: Vec<(String, &Facts, BTreeMap<&str, LoadPoint>)> = Vec::new();
    let (mut invalid, mut earlier, mut other_settings) = (0, 0, 0);
    for (run, row) in rows {
        let figure = |metric| row.drawable(metric);
        let Some((user, output)) = figure(Metric::Interactivity).zip(figure(output)) else {
            invalid += usize::from(row.state == RowState::Invalid);
            continue;
        };
        let name = row
            .version
            .clone()
            .unwrap_or_else(|| "version unknown".to_owned());
        let settings = &row.conditions.settings;
        let at = versions.iter().position(|(known, ..)| *known == name);
        let at = at.unwrap_or_else(|| {
            versions.push((name, settings, BTreeMap::new()));
            versions.len() - 1
        });
        let (_, newest_settings, points) = &mut versions[at];
        if *newest_settings != settings {
            other_settings += 1;
            continue;
        }
        match points.contains_key(row.load.as_str()) {
            true => earlier += 1,
            false => {
                points.insert(&row.load, point(run, row, user, output));
            }
        }
    }
    let left_out = versions.len().saturating_sub(MAX_VERSIONS);
    versions.truncate(MAX_VERSIONS);
    versions.sort_by_cached_key(|(version, ..)| natural_key(version));
    let versions: Vec<VersionCurve> = versions
        .into_iter()
        .map(|(version, _, points)| VersionCurve {
            version,
            points: in_order(points.into_values().collect()),
        })
        .collect();
    let notes = [
        (invalid > 0).then(|| {
            format!(
                "{} left out",
                pluralize(invalid, "invalid cell is", "invalid cells are")
            )
        }),
        (earlier > 0).then(|| {
            format!(
                "only the newest run of each load is shown; {} left out",
                pluralize(earlier, "earlier cell is", "earlier cells are")
            )
        }),
        (other_settings > 0).then(|| {
            format!(
                "each version is shown with the settings of its newest run; {} left out",
                pluralize(
                    other_settings,
                    "cell with other settings is",
                    "cells with other settings are"
                )
            )
        }),
        (left_out > 0).then(|| {
            format!(
                "{} left out",
                pluralize(left_out, "earlier version is", "earlier versions are")
            )
        }),
    ];
    let points: usize = versions.iter().map(|version| version.points.len()).sum();
    (points > 1).then(|| Frontier {
        title,
        is_per_gpu,
        versions,
        notes: notes.into_iter().flatten().collect(),
    })
}

/// Orders texts with their numbers by value, so that 0.9 comes before 0.10.
fn natural_key(text: &str) -> Vec<(u64, String)> {
    let mut key: Vec<(u64, String)> = Vec::new();
    let mut is_number = false;
    for letter in text.chars() {
        match (letter.to_digit(10), key.last_mut()) {
            (Some(digit), Some((number, word))) if is_number && word.is_empty() => {
                *number = number.saturating_mul(10).saturating_add(u64::from(digit));
            }
            (Some(digit), _) => key.push((u64::from(digit), String::new())),
            (None, Some((_, word))) if !is_number => word.push(letter),
            (None, _) => key.push((0, letter.to_string())),
        }
        is_number = letter.is_ascii_digit();
    }
    key
}

fn in_order(mut points: Vec<LoadPoint>) -> Vec<LoadPoint> {
    points.sort_by(|a, b| a.interactivity_tok_s.total_cmp(&b.interactivity_tok_s));
    points
}

fn point(run: &SiteRun, row: &SiteRow, user: SiteFigure, output: SiteFigure) -> LoadPoint {
    LoadPoint {
        interactivity_tok_s: user.value,
        output_tok_s: output.value,
        provenance: format!("{}, {}", row.load, provenance(run, row)),
        is_doubtful: user.verdict.max(output.verdict) > Verdict::Valid,
        page: run.page.clone(),
    }
}

/// Where a figure of a row comes from, with its verdict.
pub(super) fn provenance(run: &SiteRun, row: &SiteRow) -> String {
    let mut words = vec![
        row.verdict(),
        format!("run {}", run.name),
        day(&run.began).to_owned(),
    ];
    words.extend(row.host_name.iter().map(|host| format!("host {host}")));
    words.push(pluralize(row.starts, "start", "starts"));
    words.push(run.tool.clone());
    if row.is_simulated {
        words.push("simulated".to_owned());
    }
    words.join(", ")
}
