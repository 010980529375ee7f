//! How coarse figures are by themselves: what lies within that of another value may be the same one, however often it is measured.

use crate::analysis::metrics::{self, Metric, Unit};
use crate::results::record::cell::{Definitions, Figures, Origin, Summary};

/// As many decimals as nobody prints: such a figure was computed.
const COMPUTED: u32 = 6;
/// With fewer figures of a unit, zeros at the end of all of them may be an accident.
const FEW: usize = 3;

/// How far the value that was meant may lie from a figure of these measurements, to either side, as a share; the coarsest of them.
///
/// What a search found lies anywhere in its bracket, and half of that is counted to either side, or how far its draws lie from their rates. What another tool printed may lie half of the last
/// digit away.
pub(crate) fn of<'a>(
    summaries: impl Iterator<Item = &'a Summary>,
    definitions: Definitions,
    metric: Metric,
) -> f64 {
    let shares = summaries.filter_map(|summary| match (metric, summary.origin) {
        (Metric::Found(_), _) => of_search(summary),
        (_, Origin::Imported) => of_print(summary.figures.get(&definitions)?, metric),
        (_, Origin::Measured | Origin::Simulated) => None,
    });
    shares.fold(0.0, f64::max)
}

/// What half a request would be: a goodput or an attainment below that is one of no request at all, of which there is no logarithm. Throughputs are those
/// of the starts, in requests per second; `None` of other metrics, and where nothing was completed.
pub(crate) fn least(metric: Metric, throughput: &[f64], completed: Option<f64>) -> Option<f64> {
    let completed = completed.filter(|completed| *completed > 0.0)?;
    let known: Vec<f64> = throughput.iter().copied().filter(|rate| *rate > 0.0).collect();
    match metric {
        Metric::Goodput if !known.is_empty() => {
            Some(0.5 * known.iter().sum::<f64>() / known.len() as f64 / completed)
        }
        Metric::Attainment => Some(0.5 / completed),
        _ => None,
    }
}

/// What half a request more or less on each start is, as a variance of logarithms: `least` is the value of half a request. `None` of figures that are no
/// counts of requests.
pub(crate) fn counting(metric: Metric, logs: &[f64], least: Option<f64>) -> Option<f64> {
    let squares = logs.iter().map(|log| (least.unwrap_or(0.0) / log.exp()).powi(2));
    let is_count = matches!(metric, Metric::Goodput | Metric::Attainment);
    is_count.then(|| squares.sum::<f64>() / logs.len().max(1) as f64)
}

/// What zeros of two sides are raised to: the lesser of both, so that two zeros are the same, and no zero passes a value that is none.
pub(crate) fn common(leasts: [Option<f64>; 2]) -> Option<f64> {
    leasts.into_iter().flatten().reduce(f64::min)
}

/// The repeats of starts, those of zero raised to the least that can be told from it.
pub(crate) fn raised(starts: &[Vec<f64>], least: Option<f64>) -> Vec<Vec<f64>> {
    let raise = |value: &f64| match least {
        Some(least) if *value == 0.0 => least,
        _ => *value,
    };
    let repeats = |repeats: &Vec<f64>| repeats.iter().map(raise).collect();
    starts.iter().map(repeats).collect()
}

fn of_search(summary: &Summary) -> Option<f64> {
    let search = summary.search.as_ref()?;
    let half = (search.fails_at? / search.found?).sqrt() - 1.0;
    // Where the arrivals as they were drawn lie further from their rates than the bracket is wide, that decides.
    Some(half.max(search.draw_error().unwrap_or(0.0)))
}

/// Half of the last digit that was printed, relative to the value. Figures of one unit are printed with as many decimals as the one that shows most; where
/// the unit has hardly any, all figures tell.
fn of_print(figures: &Figures, metric: Metric) -> Option<f64> {
    let value = metrics::figure(figures, metric)?;
    let decimals_of = |is_alike: &dyn Fn(Metric) -> bool| -> Vec<u32> {
        let alike = Metric::all().filter(|other| is_printed(*other) && is_alike(*other));
        alike
            .filter_map(|other| metrics::figure(figures, other))
            .map(decimals)
            .collect()
    };
    let mut known = decimals_of(&|other| other.unit() == metric.unit());
    if known.len() < FEW {
        known = decimals_of(&|_| true);
    }
    let decimals = known.into_iter().max()?;
    (decimals < COMPUTED && value > 0.0).then(|| 0.5 * 0.1f64.powi(decimals as i32) / value)
}

/// Shares are computed of what was printed.
fn is_printed(metric: Metric) -> bool {
    metric.unit() != Unit::Share
}

/// Decimals of a number as it is written shortest.
fn decimals(value: f64) -> u32 {
    let written = value.to_string();
    written
        .split_once('.')
        .map_or(0, |(_, decimals)| decimals.len() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::metrics::{Flow, Sample, Statistic};

    const OUTPUT: Metric = Metric::Throughput(Flow::Output);

    fn printed(figures: &[(Metric, f64)]) -> Option<f64> {
        let figures: Figures = figures
            .iter()
            .map(|(metric, value)| (metric.name(), Some(*value)))
            .collect();
        of_print(&figures, OUTPUT)
    }

    #[test]
    fn figures_of_one_unit_share_their_decimals_and_what_was_computed_is_exact() {
        let total = Metric::Throughput(Flow::Total);
        let share = |figures: &[(Metric, f64)]| printed(figures).unwrap_or(0.0);
        assert!((share(&[(OUTPUT, 50.0), (total, 103.25)]) - 0.0001).abs() < 1e-12);
        assert!((share(&[(OUTPUT, 50.0), (total, 103.0)]) - 0.01).abs() < 1e-12);
        // Times are of another unit, and tell where its own figures are too few.
        let (ttft, peak) = (Metric::Time(Statistic::Median, Sample::Ttft), Metric::PeakOutput);
        let three = [(OUTPUT, 50.0), (total, 103.0), (peak, 60.0), (ttft, 12.345)];
        assert!((share(&three) - 0.01).abs() < 1e-12);
        assert!((share(&[(OUTPUT, 50.0), (ttft, 12.345)]) - 0.00001).abs() < 1e-12);
        assert_eq!(printed(&[(OUTPUT, 50.123_456_789)]), None);
        assert_eq!(printed(&[]), None);
    }
}
