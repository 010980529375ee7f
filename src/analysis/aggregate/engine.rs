//! Aggregates the engine's own metrics over the window.

use crate::analysis::aggregate::series::{Fall, Series, is_within, names};
use crate::config::metrics::{Kind, kind};
use crate::results::record::telemetry::{EngineWindow, Sample};

/// A KV cache with at least this usage is full.
const FULL: f64 = 0.95;

/// Returns `None` if there is no sample. Counters grow from the last sample before the window to the very
/// last sample. That sample is taken when the load is over, so it includes what an engine counts after its
/// last answer. No other client sends requests in between.
pub(super) fn window(samples: &[&Sample], end: f64) -> Option<EngineWindow> {
    if samples.is_empty() {
        return None;
    }
    let series = |name: &str| Series::of(samples.iter().copied(), name);
    let mut window = EngineWindow {
        kv_full_share: full_share(samples, end),
        ..EngineWindow::default()
    };
    let is_counter = |name: &String| name_of_times(name).is_some() || kind(name) == Some(Kind::Counter);
    let fell = names(samples).into_iter().filter(is_counter);
    let fell: Vec<(String, Fall)> = fell
        .filter_map(|name| Some((name.clone(), series(&name).fall()?)))
        .collect();
    let any = |what: Fall| fell.iter().any(|(_, fall)| *fall == what);
    if any(Fall::InTurn) || !fell.is_empty() && !any(Fall::Anew) {
        window.is_in_turn = any(Fall::InTurn);
        window.mixed = fell.into_iter().map(|(name, _)| name).collect();
        window.kv_full_share = None;
        return Some(window);
    }
    for name in names(samples) {
        if let Some(times) = name_of_times(&name) {
            let counted = format!("{times}_count");
            read_times(&mut window, times, (&series(&name), &series(&counted)), end);
            continue;
        }
        let told = series(&name);
        match kind(&name) {
            Some(Kind::Level | Kind::Share) => {
                let range = told.range(end);
                window.gauges.extend(range.map(|range| (name, range)));
            }
            Some(Kind::Counter) if told.falls() => window.reset.push(name),
            Some(Kind::Counter) => {
                let grown = told.whole_growth(end);
                window.grown.extend(grown.map(|grown| (name, grown)));
            }
            Some(Kind::Times) | None => {}
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
    let told: Vec<f64> = within
        .filter_map(|sample| sample.values.get("kv_cache_usage").copied())
        .collect();
    let full = told.iter().filter(|used| **used >= FULL).count();
    (!told.is_empty()).then(|| full as f64 / told.len() as f64)
}

/// Computes the mean of a histogram over the window from the growth of its sum and its count.
fn read_times(window: &mut EngineWindow, name: &str, (sum, count): (&Series, &Series), end: f64) {
    if sum.falls() || count.falls() {
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
fn name_of_times(name: &str) -> Option<&str> {
    let times = name.strip_suffix("_sum")?;
    (kind(times) == Some(Kind::Times)).then_some(times)
}
