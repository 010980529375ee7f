//! Looks up the stored noise of a host for one metric of one cell.

use super::decision::KnownNoise;
use crate::base::ids::CellKey;
use crate::base::text::pluralize;
use crate::config::select::{self, AxisValues};
use crate::results::record::cell_stats::{Noise, NoiseEstimate};

/// Axes that two cells must share for one to use the noise of the other.
const LOAD_AXES: [&str; 2] = ["model", "scenario"];
/// Largest plausible standard deviation of starts, of logarithms: a factor of 150.
const MAX_SIGMA: f64 = 5.0;

/// Returns the noise of a metric of a cell. It comes from the cell itself, or else from other versions of it,
/// from other cells with the same model and scenario, or from all cells of this host.
pub(crate) fn known_noise(noise: &Noise, cell: &CellKey, figure: &str) -> Option<KnownNoise> {
    let axes = select::parse_key(cell.as_str());
    let without_version = |axes: &AxisValues| -> AxisValues {
        let others = axes.iter().filter(|(name, _)| *name != "version");
        others
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };
    let has_same_load = |other: &AxisValues| {
        LOAD_AXES
            .iter()
            .all(|axis| axes.contains_key(*axis) && axes.get(*axis) == other.get(*axis))
    };
    let stored = |is_asked: &dyn Fn(&AxisValues) -> bool| {
        let cells = noise.cells.iter();
        let matching = cells.filter(|(key, _)| is_asked(&select::parse_key(key.as_str())));
        pool_noise(matching.filter_map(|(_, figures)| figures.get(figure)))
    };
    let exact = noise.cells.get(cell).and_then(|figures| figures.get(figure));
    exact
        .and_then(|varies| pool_noise([varies].into_iter()))
        .or_else(|| stored(&|other| without_version(other) == without_version(&axes)))
        .or_else(|| stored(&has_same_load))
        .or_else(|| stored(&|_| true))
}

/// Combines the noise of several cells: their mean variance, with the degrees of freedom of a single cell,
/// because cells differ.
fn pool_noise<'a>(estimates: impl Iterator<Item = &'a NoiseEstimate>) -> Option<KnownNoise> {
    let (mut squares, mut sum, mut cells) = (0.0, 0.0, 0.0);
    for noise_of_cell in estimates.filter_map(noise_upper_bound) {
        squares += noise_of_cell.sigma.powi(2) * noise_of_cell.df;
        sum += noise_of_cell.df;
        cells += 1.0;
    }
    (cells > 0.0).then(|| KnownNoise {
        sigma: (squares / sum).sqrt(),
        df: sum / cells,
    })
}

/// Returns the upper confidence bound of the noise of one cell: the stored bound, or in older files one
/// computed from the starts. `None` for values that no measurement gives.
pub(crate) fn noise_upper_bound(varies: &NoiseEstimate) -> Option<KnownNoise> {
    let df = degrees_of_freedom(varies);
    let is_known = df > 0.0;
    (is_known && unusable_reason(varies).is_none()).then(|| match varies.bound_share {
        Some(sigma) => KnownNoise { sigma, df },
        None => KnownNoise::from_sigma(varies.start_share, df),
    })
}

/// Returns the stored values that no measurement gives, and that are therefore not used, as text.
pub(crate) fn unusable_noise(noise: &Noise) -> Vec<String> {
    let cells = noise.cells.iter();
    let figures =
        cells.flat_map(|(key, figures)| figures.iter().map(move |(figure, varies)| (key, figure, varies)));
    figures
        .filter_map(|(key, figure, varies)| {
            let why = unusable_reason(varies)?;
            Some(format!(
                "stored noise of `{figure}` of `{key}` is not used: {why}; measure it again (`matrix noise`)"
            ))
        })
        .collect()
}

fn degrees_of_freedom(varies: &NoiseEstimate) -> f64 {
    varies.df.unwrap_or_else(|| f64::from(varies.starts) - 1.0)
}

/// Says why a stored value cannot come from a measurement.
fn unusable_reason(varies: &NoiseEstimate) -> Option<String> {
    let (df, starts) = (degrees_of_freedom(varies), varies.starts);
    if df.is_nan() || df >= f64::from(starts.max(1)) {
        return Some(format!(
            "{df} degrees of freedom are not possible with {}",
            pluralize(starts as usize, "start", "starts")
        ));
    }
    let shares = [Some(varies.start_share), varies.bound_share];
    let is_share = |share: &f64| (0.0..=MAX_SIGMA).contains(share);
    let wrong = shares.into_iter().flatten().find(|share| !is_share(share))?;
    Some(format!(
        "{wrong} is not valid as a standard deviation between starts"
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const FIGURE: &str = "output_throughput_tok_s";

    fn noise(cells: &[(&str, f64)]) -> Noise {
        let varies = |share: f64| NoiseEstimate {
            at: String::new(),
            starts: 10,
            per_start: 1,
            start_share: share,
            bound_share: None,
            df: None,
            between_share: share,
            within_share: None,
            difference_share: 0.0,
        };
        let cell = |(key, share): &(&str, f64)| {
            let figures = BTreeMap::from([(FIGURE.to_owned(), varies(*share))]);
            (CellKey::new(*key), figures)
        };
        Noise {
            machine: BTreeMap::new(),
            cells: cells.iter().map(cell).collect(),
        }
    }

    #[test]
    fn noise_is_that_of_the_cell_else_of_another_version_else_of_the_load_else_of_the_host() {
        let noise = noise(&[
            ("engine=x,version=1,model=a,scenario=s", 0.01),
            ("engine=y,version=1,model=a,scenario=s", 0.03),
            ("engine=y,version=1,model=b,scenario=s", 0.05),
        ]);
        let sigma = |key: &str| {
            let known = known_noise(&noise, &CellKey::new(key), FIGURE).unwrap();
            assert_eq!(known.df, 9.0);
            known.sigma / KnownNoise::from_sigma(1.0, 9.0).sigma
        };
        let close =
            |key: &str, share: f64| assert!((sigma(key) - share).abs() < 1e-9, "{key}: {}", sigma(key));
        close("engine=x,version=1,model=a,scenario=s", 0.01);
        close("engine=x,version=2,model=a,scenario=s", 0.01);
        close("engine=z,version=2,model=a,scenario=s", (0.0005f64).sqrt());
        close(
            "engine=z,model=c,scenario=s",
            ((0.0001 + 0.0009 + 0.0025) / 3.0_f64).sqrt(),
        );
        assert_eq!(
            known_noise(&noise, &CellKey::new("engine=x"), "median_e2e_ms"),
            None
        );
    }

    #[test]
    fn noise_that_no_measurement_gives_is_not_used() {
        let key = CellKey::new("engine=x,model=a,scenario=s");
        let with = |edit: &dyn Fn(&mut NoiseEstimate)| {
            let mut noise = noise(&[(key.as_str(), 0.01)]);
            edit(noise.cells.get_mut(&key).unwrap().get_mut(FIGURE).unwrap());
            (known_noise(&noise, &key, FIGURE), unusable_noise(&noise))
        };
        assert!(matches!(with(&|_| ()), (Some(_), doubts) if doubts.is_empty()));
        for edit in [
            &(|varies: &mut NoiseEstimate| varies.df = Some(1e9)) as &dyn Fn(&mut NoiseEstimate),
            &|varies| varies.df = Some(10.0),
            &|varies| varies.bound_share = Some(1e200),
            &|varies| varies.start_share = -0.01,
        ] {
            let (known, doubts) = with(edit);
            assert_eq!((known, doubts.len()), (None, 1), "{doubts:?}");
        }
    }
}
