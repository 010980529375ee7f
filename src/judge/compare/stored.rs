//! The noise that is stored of a host, looked up for one figure of one cell.

use super::decision::KnownNoise;
use crate::base::ids::CellKey;
use crate::matrix::spec::select::{self, AxisValues};
use crate::results::record::side::{Noise, Varies};

/// Axes that a cell shares with another one whose noise is taken for its own.
const LOAD: [&str; 2] = ["model", "scenario"];

/// What is known of the noise of a figure of a cell: as it was measured of this cell in whatever version; else of other cells of the same
/// model and scenario; else of all cells of this host.
pub fn known(noise: &Noise, cell: &CellKey, figure: &str) -> Option<KnownNoise> {
    let axes = select::values(cell.as_str());
    let without_version = |axes: &AxisValues| -> AxisValues {
        let others = axes.iter().filter(|(name, _)| *name != "version");
        others
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };
    let has_same_load = |other: &AxisValues| {
        LOAD.iter()
            .all(|axis| axes.contains_key(*axis) && axes.get(*axis) == other.get(*axis))
    };
    let stored = |is_asked: &dyn Fn(&AxisValues) -> bool| {
        let cells = noise.cells.iter();
        let asked = cells.filter(|(key, _)| is_asked(&select::values(key.as_str())));
        pooled(asked.filter_map(|(_, figures)| figures.get(figure)))
    };
    let exact = noise.cells.get(cell).and_then(|figures| figures.get(figure));
    exact
        .and_then(|varies| pooled([varies].into_iter()))
        .or_else(|| stored(&|other| without_version(other) == without_version(&axes)))
        .or_else(|| stored(&has_same_load))
        .or_else(|| stored(&|_| true))
}

/// The noise of several cells as that of one: their mean variance, known no better than that of one of them, since cells differ.
fn pooled<'a>(all: impl Iterator<Item = &'a Varies>) -> Option<KnownNoise> {
    let (mut squares, mut df, mut cells) = (0.0, 0.0, 0.0);
    for varies in all.filter(|varies| varies.starts > 1) {
        let own = f64::from(varies.starts - 1);
        squares += varies.start_share.powi(2) * own;
        df += own;
        cells += 1.0;
    }
    (cells > 0.0).then(|| KnownNoise::measured((squares / df).sqrt(), df / cells))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const FIGURE: &str = "output_throughput_tok_s";

    fn noise(cells: &[(&str, f64)]) -> Noise {
        let varies = |share: f64| Varies {
            at: String::new(),
            starts: 10,
            per_start: 1,
            start_share: share,
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
            let known = known(&noise, &CellKey::new(key), FIGURE).unwrap();
            assert_eq!(known.df, 9.0);
            known.sigma / KnownNoise::measured(1.0, 9.0).sigma
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
        assert_eq!(known(&noise, &CellKey::new("engine=x"), "median_e2e_ms"), None);
    }
}
