//! Figures of one cell on one host over dates, from runs and from the history of nightly runs.

use std::collections::BTreeMap;

use super::frontier::{provenance, setup_in_words};
use super::hosts::HostId;
use super::row::{FIGURES, MAIN_FIGURES, RowState, SiteRow, UNKNOWN, figure_index};
use super::{Site, SiteNight, SiteRun, day};
use crate::analysis::compare::machines;
use crate::analysis::compare::settings::setting_pairs;
use crate::analysis::metrics::Metric;
use crate::base::date;
use crate::base::text::pluralize;
use crate::report::tables::mean_of_starts;
use crate::results::record::cell_stats::Facts;
use crate::results::record::nightly::NightlyCell;
use crate::results::record::validity::Verdict;

/// A cell on one host over dates.
#[derive(Clone, Debug)]
pub(crate) struct SiteSeries<'a> {
    pub(crate) title: String,
    /// By date, the earliest first.
    pub(crate) moments: Vec<Moment<'a>>,
}

/// A cell at one date.
#[derive(Clone, Debug)]
pub(crate) struct Moment<'a> {
    /// Days after 1970-01-01 UTC.
    pub(crate) day: f64,
    pub(crate) version: Option<String>,
    /// Verdict, run, host and date.
    pub(crate) provenance: String,
    /// The page of the run; empty if the site does not have it.
    pub(crate) page: &'a str,
    source: Source<'a>,
}

/// Where the figures of a moment are.
#[derive(Clone, Debug)]
enum Source<'a> {
    Row(&'a SiteRow),
    Night(&'a NightlyCell, &'a Facts),
}

/// A figure of a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MomentFigure {
    pub(crate) value: f64,
    pub(crate) verdict: Verdict,
}

/// What sets one series apart from others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SeriesKey {
    title: String,
    host: HostId,
}

/// The figures that are drawn over dates.
pub(crate) fn figures() -> &'static [Metric] {
    &FIGURES[..MAIN_FIGURES]
}

/// All series with several dates, by title.
pub(crate) fn all_series(site: &Site) -> Vec<SiteSeries<'_>> {
    let mut series: BTreeMap<SeriesKey, Vec<Moment<'_>>> = BTreeMap::new();
    let mut by_cell: BTreeMap<(&str, HostId), SeriesKey> = BTreeMap::new();
    for (run, row) in site.rows().filter(|(_, row)| row.state != RowState::NoFigures) {
        let key = SeriesKey {
            title: title(row),
            host: row.host,
        };
        by_cell.insert((row.cell.as_str(), row.host), key.clone());
        series.entry(key).or_default().extend(moment_of_row(run, row));
    }
    for night in &site.nights {
        for (cell, figures) in &night.night.cells {
            if let Some(key) = by_cell.get(&(cell.as_str(), night.host)) {
                series
                    .entry(key.clone())
                    .or_default()
                    .extend(moment_of_night(night, figures));
            }
        }
    }
    let series = series.into_iter().filter(|(_, moments)| moments.len() > 1);
    series
        .map(|(key, mut moments)| {
            moments.sort_by(|a, b| {
                a.day
                    .total_cmp(&b.day)
                    .then_with(|| a.provenance.cmp(&b.provenance))
            });
            SiteSeries {
                title: key.title,
                moments,
            }
        })
        .collect()
}

fn title(row: &SiteRow) -> String {
    let mut words = vec![row.engine.clone(), row.model.clone(), row.load.clone()];
    words.extend(setup_in_words(row));
    words.join(" · ")
}

fn moment_of_row<'a>(run: &'a SiteRun, row: &'a SiteRow) -> Option<Moment<'a>> {
    Some(Moment {
        day: date::days_since_epoch(&run.began)?,
        version: row.version.clone(),
        provenance: provenance(run, row),
        page: &run.page,
        source: Source::Row(row),
    })
}

fn moment_of_night<'a>(night: &'a SiteNight, cell: &'a NightlyCell) -> Option<Moment<'a>> {
    Some(Moment {
        day: date::days_since_epoch(&night.night.at)?,
        version: cell.engine.get("version").cloned(),
        provenance: format!(
            "nightly run {}, {}, known only from the history",
            night.night.run,
            day(&night.night.at)
        ),
        page: "",
        source: Source::Night(cell, &night.machine),
    })
}

/// What is known of both sides and differs, but for the names that `is_left_out` names.
fn known_differences(before: &Facts, after: &Facts, is_left_out: fn(&str) -> bool) -> Vec<String> {
    let changed = before.iter().filter_map(|(name, earlier)| {
        let later = after.get(name)?;
        let is_known = earlier != UNKNOWN && later != UNKNOWN;
        (is_known && earlier != later && !is_left_out(name)).then(|| format!("{name}: {earlier} → {later}"))
    });
    changed.collect()
}

/// Settings that differ, but for those that a new version changes. Where all settings of both sides are known, one that only one of
/// them has is a difference. Flags of another recipe mean something else, so the recipe itself is named.
fn setting_differences(before: &SiteRow, after: &SiteRow) -> Vec<String> {
    let [earlier, later] = [&before.conditions.settings, &after.conditions.settings];
    if !(before.has_all_settings && after.has_all_settings) {
        return known_differences(earlier, later, is_of_version);
    }
    if before.recipe != after.recipe {
        return vec![format!("recipe: {} → {}", before.recipe, after.recipe)];
    }
    let pairs = setting_pairs(earlier, later).into_iter();
    pairs
        .filter(|(name, earlier, later)| !is_of_version(name) && *earlier != UNKNOWN && *later != UNKNOWN)
        .map(|(name, earlier, later)| format!("{name}: {earlier} → {later}"))
        .collect()
}

/// Differences of loads and settings.
fn row_differences(before: &SiteRow, after: &SiteRow) -> Vec<String> {
    let [earlier, later] = [&before.conditions.load, &after.conditions.load];
    let mut differences = known_differences(earlier, later, is_of_prompts);
    differences.extend(setting_differences(before, after));
    differences
}

/// Facts of the load that the digest of the prompts decides.
fn is_of_prompts(name: &str) -> bool {
    name.contains("prompts")
}

/// The settings that a new version changes.
fn is_of_version(name: &str) -> bool {
    name == "image name"
}

impl Moment<'_> {
    /// A figure that may be drawn; `None` if it is unknown or invalid.
    pub(crate) fn figure(&self, metric: Metric) -> Option<MomentFigure> {
        match &self.source {
            Source::Row(row) => row.drawable(metric).map(|figure| MomentFigure {
                value: figure.value,
                verdict: figure.verdict,
            }),
            Source::Night(cell, _) => {
                let starts = cell.figures.get(&metric.name())?;
                let starts: Vec<Vec<f64>> = starts.iter().map(|value| vec![*value]).collect();
                Some(MomentFigure {
                    value: mean_of_starts(&starts)?,
                    // The history has no figures of invalid measurements.
                    verdict: Verdict::Valid,
                })
            }
        }
    }

    /// Whether it has the figure, but it is invalid.
    pub(crate) fn is_invalid(&self, metric: Metric) -> bool {
        match &self.source {
            Source::Row(row) => {
                let figure = row.figures[figure_index(metric)];
                figure.is_some_and(|figure| figure.verdict == Verdict::Invalid)
            }
            Source::Night(..) => false,
        }
    }

    /// Number of starts that the figure is the mean of.
    pub(crate) fn starts_in_words(&self, metric: Metric) -> Option<String> {
        match &self.source {
            // Its provenance says it.
            Source::Row(_) => None,
            Source::Night(cell, _) => {
                let starts = cell.figures.get(&metric.name())?.len();
                Some(pluralize(starts, "start", "starts"))
            }
        }
    }

    /// Why a figure is not comparable with the one before: differences of hosts, loads and settings; `None` if nothing is
    /// known to differ.
    pub(crate) fn break_since(&self, earlier: &Self) -> Option<String> {
        let hosts = [earlier, self].map(Self::host);
        let mut differences: Vec<String> = machines::differences(hosts[0], hosts[1])
            .into_iter()
            .filter(|difference| difference.kind.forbids_verdict())
            .map(|difference| difference.in_words())
            .collect();
        match (earlier.prompts(), self.prompts()) {
            (Some(before), Some(after)) if before != after => differences.push("other prompts".to_owned()),
            _ => {}
        }
        if let (Source::Row(before), Source::Row(after)) = (&earlier.source, &self.source) {
            differences.extend(row_differences(before, after));
        }
        (!differences.is_empty()).then(|| differences.join("; "))
    }

    /// Why a figure is not comparable with those before, `earlier` by date: [`Moment::break_since`] the last one. Nightly runs of the
    /// history have no settings, so loads and settings are compared with the last one that has them.
    pub(crate) fn break_after<'m>(&self, earlier: impl DoubleEndedIterator<Item = &'m Self>) -> Option<String>
    where
        Self: 'm,
    {
        let mut earlier = earlier.rev();
        let last = earlier.next()?;
        if let Some(reason) = self.break_since(last) {
            return Some(reason);
        }
        let (Source::Night(..), Source::Row(after)) = (&last.source, &self.source) else {
            return None;
        };
        let before = earlier.find_map(|moment| match &moment.source {
            Source::Row(row) => Some(*row),
            Source::Night(..) => None,
        })?;
        let differences = row_differences(before, after);
        (!differences.is_empty()).then(|| differences.join("; "))
    }

    fn host(&self) -> &Facts {
        match &self.source {
            Source::Row(row) => &row.conditions.host,
            Source::Night(_, machine) => machine,
        }
    }

    fn prompts(&self) -> Option<&str> {
        match &self.source {
            Source::Row(row) => row.prompts.as_deref(),
            Source::Night(cell, _) => cell.prompts.as_ref().map(|digest| digest.as_str()),
        }
    }
}
