//! Aggregates the engine's own metrics over the window.

use crate::analysis::aggregate::series::{CounterDrop, Series, is_within, sample_names};
use crate::config::metrics::{MetricKind, metric_kind};
use crate::results::record::telemetry::{EngineWindow, Sample};

/// A KV cache with at least this usage is full.
const FULL_CACHE_USE: f64 = 0.95;

/// Returns `None` if there is no sample. Counters grow from the last sample before the window to the very
/// last sample. That sample is taken when the load is over, so it includes what an engine counts after its
/// last answer. No other client sends requests in between.
pub(super) fn engine_window(samples: &[&Sample], end: f64) -> Option<EngineWindow> {
    if samples.is_empty() {
        return None;
    }
    let series = |name: &str| Series::from_samples(samples.iter().copied(), name);
    let mut window = EngineWindow {
        kv_full_share: full_share(samples, end),
        ..EngineWindow::default()
    };
    let is_counter =
        |name: &String| time_name(name).is_some() || metric_kind(name) == Some(MetricKind::Counter);
    let fell = sample_names(samples).into_iter().filter(is_counter);
    let fell: Vec<(String, CounterDrop)> = fell
        .filter_map(|name| Some((name.clone(), series(&name).drop_cause()?)))
        .collect();
    let any = |what: CounterDrop| fell.iter().any(|(_, fall)| *fall == what);
    if any(CounterDrop::Alternating) || !fell.is_empty() && !any(CounterDrop::Reset) {
        window.is_in_turn = any(CounterDrop::Alternating);
        window.mixed = fell.into_iter().map(|(name, _)| name).collect();
        window.kv_full_share = None;
        return Some(window);
    }
    for name in sample_names(samples) {
        if let Some(times) = time_name(&name) {
            let counted = format!("{times}_count");
            add_mean_time(&mut window, times, (&series(&name), &series(&counted)), end);
            continue;
        }
        let values = series(&name);
        match metric_kind(&name) {
            Some(MetricKind::Level | MetricKind::Share) => {
                let range = values.range(end);
                window.gauges.extend(range.map(|range| (name, range)));
            }
            Some(MetricKind::Counter) if values.has_drop() => window.reset.push(name),
            Some(MetricKind::Counter) => {
                let grown = values.whole_growth(end);
                window.grown.extend(grown.map(|grown| (name, grown)));
            }
            Some(MetricKind::Histogram) | None => {}
        }
    }
    // Some engines count hits and misses but not queries.
    if !window.grown.contains_key("prefix_queries")
        && let Some((hits, misses)) = window
            .grown
            .get("prefix_hits")
            .zip(window.grown.get("prefix_misses"))
    {
        let queries = hits + misses;
        window.grown.insert("prefix_queries".to_owned(), queries);
    }
    // Tokens from an external cache were not computed either, so they are hits.
    if let Some(external) = window.grown.get("external_hits").copied()
        && let Some(hits) = window.grown.get_mut("prefix_hits")
    {
        *hits += external;
    }
    Some(window)
}

/// Returns the share of the samples in the window in which the KV cache is full.
fn full_share(samples: &[&Sample], end: f64) -> Option<f64> {
    let within = samples.iter().filter(|sample| is_within(sample, end));
    let cache_use: Vec<f64> = within
        .filter_map(|sample| sample.values.get("kv_cache_usage").copied())
        .collect();
    let full = cache_use.iter().filter(|used| **used >= FULL_CACHE_USE).count();
    (!cache_use.is_empty()).then(|| full as f64 / cache_use.len() as f64)
}

/// Computes the mean of a histogram over the window from the growth of its sum and its count.
fn add_mean_time(window: &mut EngineWindow, name: &str, (sum, count): (&Series, &Series), end: f64) {
    if sum.has_drop() || count.has_drop() {
        window.reset.push(name.to_owned());
        return;
    }
    let Some((sum, count)) = sum.whole_growth(end).zip(count.whole_growth(end)) else {
        return;
    };
    window.grown.insert(format!("{name}_count"), count);
    if count > 0.0 {
        window.means.insert(name.to_owned(), sum / count);
    }
}

/// Returns the name of the histogram whose sum is called `name`.
fn time_name(name: &str) -> Option<&str> {
    let times = name.strip_suffix("_sum")?;
    (metric_kind(times) == Some(MetricKind::Histogram)).then_some(times)
}
