//! The lines of a block.

use crate::analysis::metrics::{
    self, CacheHits, CacheTiers, LatencyKind, Metric,
    Statistic::{self, Max, Mean, Median, P90, P95, P99},
};
use crate::report::table::MISSING;
use crate::results::record::cell::MetricValues;

pub(super) const WIDTH: usize = 50;

pub(super) struct Lines<'a> {
    pub(super) figures: &'a MetricValues,
    /// Whether lines without a value are printed too.
    pub(super) is_whole: bool,
    pub(super) text: String,
}

impl Lines<'_> {
    pub(super) fn figure(&self, metric: Metric) -> Option<f64> {
        metrics::metric_value(self.figures, metric)
    }

    /// Centres a title; if the space is odd, the right side gets the larger part.
    pub(super) fn section(&mut self, fill: char, title: &str) {
        let room = WIDTH.saturating_sub(title.chars().count());
        let fills = |count: usize| fill.to_string().repeat(count);
        self.text
            .push_str(&format!("{}{title}{}\n", fills(room / 2), fills(room - room / 2)));
    }

    pub(super) fn text(&mut self, label: &str, value: &str) {
        self.text.push_str(&format!("{label:<40} {value:<10}\n"));
    }

    pub(super) fn number(&mut self, label: &str, metric: Metric) {
        self.line(label, metric, 1.0, 2);
    }

    /// Adds a line only if the figure has a value.
    pub(super) fn optional_number(&mut self, label: &str, metric: Metric, scale: f64) {
        if let Some(value) = self.figure(metric) {
            self.value(label, Some(value * scale), 2);
        }
    }

    pub(super) fn percent(&mut self, label: &str, metric: Metric) {
        self.line(label, metric, 100.0, 2);
    }

    pub(super) fn integer(&mut self, label: &str, metric: Metric) {
        self.line(label, metric, 1.0, 0);
    }

    pub(super) fn line(&mut self, label: &str, metric: Metric, scale: f64, decimals: usize) {
        match self.figure(metric) {
            Some(value) => self.value(label, Some(value * scale), decimals),
            None if self.is_whole => self.value(label, None, decimals),
            // Python prints a value that is not a number as `nan`.
            None if self.may_show(metric) => self.text(label, "nan"),
            None => {}
        }
    }

    /// Whether the block has a line for that figure, with or without a value.
    pub(super) fn may_show(&self, metric: Metric) -> bool {
        self.is_whole || self.figures.contains_key(&metric.name())
    }

    pub(super) fn value(&mut self, label: &str, value: Option<f64>, decimals: usize) {
        let text = value.map_or_else(|| MISSING.to_owned(), |value| format!("{value:.decimals$}"));
        self.text(label, &text);
    }

    pub(super) fn times(&mut self, title: &str, name: &str, sample: LatencyKind, wanted: &[Statistic]) {
        if !wanted
            .iter()
            .any(|&statistic| self.may_show(Metric::Time(statistic, sample)))
        {
            return;
        }
        self.section('-', title);
        for &statistic in wanted {
            let word = match statistic {
                Mean => "Mean",
                Median => "Median",
                P90 => "P90",
                P95 => "P95",
                P99 => "P99",
                Max => "Max",
                Statistic::P50 | Statistic::P999 | Statistic::Std => continue,
            };
            self.number(&format!("{word} {name} (ms):"), Metric::Time(statistic, sample));
        }
    }

    pub(super) fn cache(&mut self, hits: &CacheHits) {
        let tiers: Vec<(String, u64)> = match &hits.tiers {
            Some(tiers) if hits.cached > 0 => tier_rows(tiers),
            _ => Vec::new(),
        };
        self.section('-', "Cache Hit Details");
        self.text("Total prompt tokens:", &hits.prompt.to_string());
        // If no answer reports cached tokens, the number is unknown.
        let cached = if hits.is_reported {
            hits.cached.to_string()
        } else {
            MISSING.to_owned()
        };
        self.text("Total cached tokens:", &cached);
        for (label, tokens) in &tiers {
            self.text(label, &tokens.to_string());
        }
        if !hits.is_reported {
            self.text("Cache hit rate:", MISSING);
            return;
        }
        let mut rate = |label: &str, part: u64, whole: u64| {
            let percent = CacheHits::percentage(part, whole);
            self.text.push_str(&format!("{label:<40} {percent:.1}%\n"));
        };
        rate("Cache hit rate:", hits.cached, hits.prompt);
        for (label, tokens) in &tiers {
            rate(label, *tokens, hits.cached);
        }
    }
}

/// A line for each cache tier; storage only if tokens came from it.
fn tier_rows(tiers: &CacheTiers) -> Vec<(String, u64)> {
    let mut rows = vec![
        ("  Device:".to_owned(), tiers.device),
        ("  Host:".to_owned(), tiers.host),
    ];
    if tiers.storage > 0 {
        let label = match &tiers.storage_backend {
            Some(name) => format!("  Storage ({name}):"),
            None => "  Storage:".to_owned(),
        };
        rows.push((label, tiers.storage));
    }
    rows
}
