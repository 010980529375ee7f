//! Synthetic starts for Monte-Carlo tests: shapes of noise, and cells that share the starts of a launch.

use rand_mt::Mt64;

pub(in super::super) struct SeededRng(Mt64);

impl SeededRng {
    pub(in super::super) fn new(seed: u64) -> Self {
        Self(Mt64::new(seed))
    }

    /// Draws uniformly between 0 and 1, both excluded.
    pub(in super::super) fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Draws from the standard normal distribution, by Box and Muller.
    pub(in super::super) fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// Distribution of the starts of one cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) enum Shape {
    Normal,
    /// Student's t with three degrees of freedom, scaled to the standard deviation.
    Heavy,
    /// One of two levels at each start, with a little noise.
    TwoLevels,
    /// One start of five is slow, with a little noise.
    SlowStarts,
    /// Normal, but three starts of a hundred are sixteen standard deviations lower.
    SeldomSlow,
}

pub(in super::super) const SHAPES: [Shape; 4] =
    [Shape::Normal, Shape::Heavy, Shape::TwoLevels, Shape::SlowStarts];

impl Shape {
    /// Draws the deviation of one start, with a standard deviation of 1 (two levels and slow starts: √1.01).
    fn draw_deviation(self, rng: &mut SeededRng) -> f64 {
        match self {
            Self::Normal => rng.normal(),
            Self::Heavy => {
                let squares: f64 = (0..3).map(|_| rng.normal().powi(2)).sum();
                rng.normal() / squares.sqrt()
            }
            Self::TwoLevels => {
                let level = if rng.uniform() < 0.5 { 1.0 } else { -1.0 };
                level + 0.1 * rng.normal()
            }
            Self::SlowStarts => {
                // A probability of a fifth has a standard deviation of 0.4.
                let slow = if rng.uniform() < 0.2 { -2.5 } else { 0.0 };
                slow + 0.1 * rng.normal()
            }
            Self::SeldomSlow => {
                let slow = if rng.uniform() < 0.03 { -16.0 } else { 0.0 };
                (slow + rng.normal()) / 2.907
            }
        }
    }
}

/// How cells are distributed over launches, and how much of their deviations they share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) struct Layout {
    /// Cells on each launch.
    pub(in super::super) cells: usize,
    /// Share of the variance that comes from the start and is therefore common to all its cells.
    pub(in super::super) shared: f64,
}

impl Layout {
    pub(in super::super) fn launch(self, cell: usize) -> usize {
        cell / self.cells
    }

    /// Returns the deviations of `starts` starts for each of `cells` cells.
    pub(in super::super) fn starts(
        self,
        rng: &mut SeededRng,
        shape: Shape,
        sigma: f64,
        cells: usize,
        starts: usize,
    ) -> Vec<Vec<f64>> {
        let of_launch: Vec<Vec<f64>> = (0..cells.div_ceil(self.cells))
            .map(|_| (0..starts).map(|_| shape.draw_deviation(rng)).collect())
            .collect();
        let (common, own) = (self.shared.sqrt(), (1.0 - self.shared).sqrt());
        let of_cell = |cell: usize, rng: &mut SeededRng| -> Vec<f64> {
            let launch = &of_launch[self.launch(cell)];
            let deviation = |start: usize, rng: &mut SeededRng| {
                let alone = if own > 0.0 {
                    own * shape.draw_deviation(rng)
                } else {
                    0.02 * rng.normal()
                };
                sigma * (common * launch[start] + alone)
            };
            (0..starts).map(|start| deviation(start, rng)).collect()
        };
        (0..cells).map(|cell| of_cell(cell, rng)).collect()
    }
}
