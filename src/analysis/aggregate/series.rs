//! One value over time, interpolated linearly between samples.

use std::collections::BTreeMap;

use crate::analysis::aggregate::MAX_SAMPLE_GAP_S;
use crate::results::record::telemetry::{Sample, SampledRange};

/// Pairs of time and value, in the order of time. The time is in seconds after the start of the window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Series(Vec<(f64, f64)>);

/// Why a counter fell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CounterDrop {
    /// It returned to its earlier maximum at least twice, each time from more than half of it or within one
    /// sample. The samples alternate between several counters.
    Alternating,
    /// It fell to at most half of its maximum, so it was reset.
    Reset,
    /// It fell by less. Either several counters alternate, or one part of a sum was reset.
    Ambiguous,
}

impl Series {
    /// Selects the samples that contain `name`. Values that are not finite are left out.
    pub(super) fn from_samples<'s>(samples: impl IntoIterator<Item = &'s Sample>, name: &str) -> Self {
        let points = samples.into_iter();
        let points = points.filter_map(|sample| Some((at_s(sample), *sample.values.get(name)?)));
        Self(points.filter(|(_, value)| value.is_finite()).collect())
    }

    /// Returns the value at a time. `None` before the first sample and after the last.
    pub(super) fn value_at(&self, moment: f64) -> Option<f64> {
        let next = self.0.partition_point(|(at, _)| *at < moment);
        let (after, value) = *self.0.get(next)?;
        if after == moment {
            return Some(value);
        }
        let (before, earlier) = *self.0.get(next.checked_sub(1)?)?;
        Some(earlier + (value - earlier) * (moment - before) / (after - before))
    }

    /// Returns the growth of a counter from 0 to `end`. `None` if the samples do not cover this time, or if
    /// the counter fell.
    pub(super) fn growth_in_window(&self, end: f64) -> Option<f64> {
        (!self.has_drop()).then_some(())?;
        Some(self.value_at(end)? - self.value_at(0.0)?)
    }

    /// Returns the growth of a counter from the last sample before the window to the very last sample. `None`
    /// if the last sample is before the end of the window.
    pub(super) fn whole_growth(&self, window: f64) -> Option<f64> {
        let start = self.0.iter().rev().find(|(at, _)| *at <= 0.0)?;
        let (_, end) = self.0.last().filter(|(at, _)| *at >= window)?;
        Some(end - start.1)
    }

    pub(super) fn has_drop(&self) -> bool {
        self.0.windows(2).any(|pair| pair[1].1 < pair[0].1)
    }

    /// Says why the counter fell, or `None` if it did not. A counter that was reset starts at zero and grows
    /// from there.
    pub(super) fn drop_cause(&self) -> Option<CounterDrop> {
        let (mut max, mut min, mut previous, mut returns) = (0.0f64, f64::INFINITY, 0.0, 0);
        let (mut falls, mut is_deep) = (false, false);
        for (_, value) in &self.0 {
            falls |= *value < previous;
            is_deep |= *value < previous && *value <= max / 2.0;
            let is_at_once = previous < max / 2.0;
            if previous < max && *value >= max && (is_at_once || min > max / 2.0) {
                returns += 1;
            }
            min = if *value >= max { *value } else { min.min(*value) };
            max = value.max(max);
            previous = *value;
        }
        falls.then_some(match (returns > 1, is_deep) {
            (true, _) => CounterDrop::Alternating,
            (false, true) => CounterDrop::Reset,
            (false, false) => CounterDrop::Ambiguous,
        })
    }

    /// Returns the integral from 0 to `end`, in value times seconds. `None` if more than [`MAX_SAMPLE_GAP_S`]
    /// has no sample.
    pub(super) fn integral(&self, end: f64) -> Option<f64> {
        let corners = self.vertices(end);
        let first = self.0.first()?.0;
        let last = self.0.last()?.0;
        let inner = corners.windows(2).map(|pair| pair[1].0 - pair[0].0);
        let gap = inner.fold(first.max(end - last), f64::max);
        (gap <= MAX_SAMPLE_GAP_S).then(|| area(&corners))
    }

    /// Returns the minimum, mean and maximum from 0 to `end`. The values of the first and last sample extend
    /// to the ends of the window.
    pub(super) fn range(&self, end: f64) -> Option<SampledRange> {
        let corners = self.vertices(end);
        let (_, first) = *corners.first()?;
        let least = |least: f64, (_, value): &(f64, f64)| least.min(*value);
        let most = |most: f64, (_, value): &(f64, f64)| most.max(*value);
        let (min, max) = (
            corners.iter().fold(first, least),
            corners.iter().fold(first, most),
        );
        let mean = match end > 0.0 {
            true => area(&corners) / end,
            false => first,
        };
        Some(SampledRange {
            min,
            mean: mean.clamp(min, max),
            max,
        })
    }

    /// Returns the growth of a counter per second, between each two samples.
    pub(super) fn rate(&self) -> Self {
        let pairs = self
            .0
            .windows(2)
            .filter(|pair| pair[1].0 > pair[0].0 && pair[1].1 >= pair[0].1);
        let rates = pairs.flat_map(|pair| {
            let rate = (pair[1].1 - pair[0].1) / (pair[1].0 - pair[0].0);
            [(pair[0].0, rate), (pair[1].0, rate)]
        });
        Self(rates.collect())
    }

    /// Returns the points of the curve from 0 to `end`, both ends included.
    fn vertices(&self, end: f64) -> Vec<(f64, f64)> {
        let (Some(first), Some(last)) = (self.0.first(), self.0.last()) else {
            return Vec::new();
        };
        let edge = |moment: f64| {
            let value = if moment < first.0 { first.1 } else { last.1 };
            (moment, self.value_at(moment).unwrap_or(value))
        };
        let inner = self.0.iter().filter(|(at, _)| *at > 0.0 && *at < end);
        let mut corners = vec![edge(0.0)];
        corners.extend(inner);
        corners.push(edge(end));
        corners
    }
}

/// Returns the maximum of the sum of several curves, at the samples from 0 to `end` where all curves have a
/// value. `None` if there is no such sample.
pub(super) fn peak_of_sum(curves: &[Series], end: f64) -> Option<f64> {
    let moments = curves.iter().flat_map(|curve| curve.0.iter().map(|(at, _)| *at));
    let within = moments.filter(|at| (0.0..=end).contains(at));
    let sums = within.filter_map(|at| curves.iter().map(|curve| curve.value_at(at)).sum::<Option<f64>>());
    sums.fold(None, |max: Option<f64>, sum| {
        Some(max.map_or(sum, |max| max.max(sum)))
    })
}

/// Returns the time of a sample, in seconds after the start of the window.
pub(super) fn at_s(sample: &Sample) -> f64 {
    sample.at_ns as f64 / 1e9
}

pub(super) fn is_within(sample: &Sample, end: f64) -> bool {
    (0.0..=end).contains(&at_s(sample))
}

/// Returns the names of all values in the samples, sorted.
/// Ranges by name of those values that `is_ranged` accepts. A counter `*_total` becomes its rate, `*_per_s`.
pub(super) fn ranges(
    samples: &[&Sample],
    end: f64,
    is_ranged: impl Fn(&str) -> bool,
) -> BTreeMap<String, SampledRange> {
    let names = sample_names(samples).into_iter().filter(|name| is_ranged(name));
    let ranges = names.filter_map(|name| {
        let series = Series::from_samples(samples.iter().copied(), &name);
        match name.strip_suffix("_total") {
            Some(stem) => Some((format!("{stem}_per_s"), series.rate().range(end)?)),
            None => Some((name, series.range(end)?)),
        }
    });
    ranges.collect()
}

pub(super) fn sample_names(samples: &[&Sample]) -> Vec<String> {
    let names = samples.iter().flat_map(|sample| sample.values.keys());
    let names: BTreeMap<&String, ()> = names.map(|name| (name, ())).collect();
    names.into_keys().cloned().collect()
}

fn area(corners: &[(f64, f64)]) -> f64 {
    let parts = corners
        .windows(2)
        .map(|pair| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0);
    parts.sum()
}
