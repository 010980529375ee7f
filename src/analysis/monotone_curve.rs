//! A monotone curve through measured points, for values between them.

/// Piecewise cubic curve through points whose `x` rises strictly. Between two points it lies between their values, so it
/// shows no extremum that was not measured.
///
/// Source: F. N. Fritsch and R. E. Carlson, "Monotone Piecewise Cubic Interpolation", SIAM Journal on Numerical
/// Analysis 17 (1980); the slopes are those of F. N. Fritsch and J. Butland (1984), as in SciPy's `PchipInterpolator`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MonotoneCurve {
    points: Vec<[f64; 2]>,
    slopes: Vec<f64>,
}

impl MonotoneCurve {
    /// `None` with fewer than two points, or if `x` does not rise.
    pub(crate) fn new(points: Vec<[f64; 2]>) -> Option<Self> {
        let rises = points.windows(2).all(|pair| pair[0][0] < pair[1][0]);
        (points.len() >= 2 && rises).then(|| Self {
            slopes: slopes(&points),
            points,
        })
    }

    /// The first and the last `x`.
    pub(crate) fn range(&self) -> [f64; 2] {
        [self.points[0][0], self.points[self.points.len() - 1][0]]
    }

    /// Whether `x` and `other` lie between the same two points; a point lies between none.
    pub(crate) fn is_between_same_points(&self, x: f64, other: f64) -> bool {
        let interval = |x: f64| self.points.iter().filter(|[known, _]| *known < x).count();
        let is_point = |x: f64| self.points.iter().any(|[known, _]| *known == x);
        !is_point(x) && !is_point(other) && interval(x) == interval(other)
    }

    /// The value at `x`; `None` outside of the points.
    pub(crate) fn at(&self, x: f64) -> Option<f64> {
        let next = self.points.iter().position(|[known, _]| *known >= x)?;
        let [right, value] = self.points[next];
        if right == x {
            return Some(value);
        }
        let ([left, below], above) = (self.points[next.checked_sub(1)?], value);
        let width = right - left;
        let t = (x - left) / width;
        let (from, to) = (self.slopes[next - 1] * width, self.slopes[next] * width);
        let u = 1.0 - t;
        Some(
            (1.0 + 2.0 * t) * u * u * below + t * u * u * from + t * t * (3.0 - 2.0 * t) * above
                - t * t * u * to,
        )
    }
}

fn slopes(points: &[[f64; 2]]) -> Vec<f64> {
    let widths: Vec<f64> = points.windows(2).map(|pair| pair[1][0] - pair[0][0]).collect();
    let rises: Vec<f64> = points
        .windows(2)
        .zip(&widths)
        .map(|(pair, width)| (pair[1][1] - pair[0][1]) / width)
        .collect();
    let last = rises.len() - 1;
    if last == 0 {
        return vec![rises[0]; 2];
    }
    let inner = (1..=last).map(|k| inner_slope([widths[k - 1], widths[k]], [rises[k - 1], rises[k]]));
    let first = end_slope([widths[0], widths[1]], [rises[0], rises[1]]);
    let end = end_slope([widths[last], widths[last - 1]], [rises[last], rises[last - 1]]);
    [first].into_iter().chain(inner).chain([end]).collect()
}

/// The weighted harmonic mean of the slopes on both sides; flat at an extremum.
fn inner_slope(widths: [f64; 2], rises: [f64; 2]) -> f64 {
    if rises[0] * rises[1] <= 0.0 {
        return 0.0;
    }
    let weights = [2.0 * widths[1] + widths[0], widths[1] + 2.0 * widths[0]];
    (weights[0] + weights[1]) / (weights[0] / rises[0] + weights[1] / rises[1])
}

/// The slope at an end from the two intervals next to it, cut so that the curve stays monotone.
fn end_slope(widths: [f64; 2], rises: [f64; 2]) -> f64 {
    let slope = ((2.0 * widths[0] + widths[1]) * rises[0] - widths[0] * rises[1]) / (widths[0] + widths[1]);
    if slope * rises[0] <= 0.0 {
        0.0
    } else if rises[0] * rises[1] <= 0.0 && slope.abs() > 3.0 * rises[0].abs() {
        3.0 * rises[0]
    } else {
        slope
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn curve(points: &[[f64; 2]]) -> MonotoneCurve {
        MonotoneCurve::new(points.to_vec()).unwrap()
    }

    fn assert_close(value: Option<f64>, expected: f64) {
        let value = value.unwrap();
        assert!(
            (value - expected).abs() < 1e-9 * expected.abs(),
            "{value} instead of {expected}"
        );
    }

    #[test]
    fn two_points_are_joined_by_a_line() {
        let line = curve(&[[10.0, 5.0], [30.0, 1.0]]);
        assert_close(line.at(15.0), 4.0);
        assert_eq!((line.at(10.0), line.at(30.0)), (Some(5.0), Some(1.0)));
    }

    /// By hand: the intervals rise by -15 and -10/3 for each step of x. At 30 the slope is the harmonic mean of both with
    /// the weights 80 and 70, at 10 it is (70 · -15 + 20 · 10/3) / 50. In the middle of an interval the value is the mean
    /// of its ends, and an eighth of the width times the difference of their slopes.
    #[test]
    fn three_points_follow_the_formula_by_hand() {
        let bent = curve(&[[10.0, 900.0], [30.0, 600.0], [60.0, 500.0]]);
        let middle = -150.0 / (80.0 / 15.0 + 70.0 / (10.0 / 3.0));
        let first = (70.0 * -15.0 + 20.0 * (10.0 / 3.0)) / 50.0;
        assert_close(bent.at(20.0), 750.0 + 20.0 / 8.0 * (first - middle));
    }

    /// The values of `scipy.interpolate.PchipInterpolator`, version 1.15.
    #[test]
    fn the_curve_is_that_of_scipy() {
        let points = [
            [10.0, 4000.0],
            [20.0, 3200.0],
            [50.0, 2500.0],
            [80.0, 900.0],
            [100.0, 100.0],
        ];
        for (x, expected) in [
            (12.5, 3761.217178254438),
            (20.0, 3200.0),
            (30.0, 2913.9343871785345),
            (65.0, 1748.0721903199344),
            (99.0, 134.9357232704403),
        ] {
            assert_close(curve(&points).at(x), expected);
        }
    }

    #[test]
    fn nothing_is_said_beyond_the_points_or_without_two() {
        let line = curve(&[[10.0, 5.0], [30.0, 1.0]]);
        assert_eq!(
            (line.at(9.9), line.at(30.1), line.at(f64::NAN)),
            (None, None, None)
        );
        assert_eq!(MonotoneCurve::new(vec![[1.0, 1.0]]), None);
        assert_eq!(MonotoneCurve::new(vec![[1.0, 1.0], [1.0, 2.0]]), None);
    }

    proptest! {
        #[test]
        fn a_value_lies_between_those_of_its_neighbours(
            steps in prop::collection::vec((0.1..50.0_f64, -500.0..500.0_f64), 2..8),
            share in 0.0..1.0_f64,
        ) {
            let mut at = [0.0, 0.0];
            let mut points = Vec::new();
            for (width, rise) in steps {
                at = [at[0] + width, at[1] + rise];
                points.push(at);
            }
            let curve = curve(&points);
            for pair in points.windows(2) {
                let value = curve.at(pair[0][0] + share * (pair[1][0] - pair[0][0])).unwrap();
                let (low, high) = (pair[0][1].min(pair[1][1]), pair[0][1].max(pair[1][1]));
                prop_assert!(low - 1e-6 <= value && value <= high + 1e-6, "{value} in {pair:?}");
            }
        }
    }
}
