//! Counts the measurements of a run that began and ended. A retried measurement counts once. Pure.

use std::collections::BTreeMap;

use crate::plan::Measurement;

/// The measurements of a run that events mentioned.
#[derive(Debug, Default)]
pub(super) struct Cells {
    /// Number of measurements that were finished before the run was resumed.
    finished: usize,
    states: BTreeMap<Measurement, CellState>,
}

#[derive(Debug)]
struct CellState {
    number: usize,
    has_ended: bool,
}

impl Cells {
    pub(super) const fn new(finished: usize) -> Self {
        Self {
            finished,
            states: BTreeMap::new(),
        }
    }

    /// Records that a cell begins or is retried, and returns its number, from 1.
    pub(super) fn begin(&mut self, measurement: &Measurement) -> usize {
        self.update(measurement, false)
    }

    /// Records that a cell ended, even if it never began.
    pub(super) fn end(&mut self, measurement: &Measurement) {
        self.update(measurement, true);
    }

    fn update(&mut self, measurement: &Measurement, has_ended: bool) -> usize {
        let next = self.finished + self.states.len() + 1;
        let number = self.states.get(measurement).map_or(next, |heard| heard.number);
        self.states
            .insert(measurement.clone(), CellState { number, has_ended });
        number
    }

    /// The number of cells that ended, including those finished before.
    pub(super) fn ended(&self) -> usize {
        self.finished + self.measured()
    }

    /// The number of cells that ended since the run began or was resumed.
    pub(super) fn measured(&self) -> usize {
        self.states.values().filter(|heard| heard.has_ended).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::CellKey;

    fn test_measurement(repeat: u32) -> Measurement {
        Measurement {
            cell: CellKey::new("engine=a"),
            start: 1,
            repeat,
        }
    }

    #[test]
    fn a_cell_that_is_tried_again_keeps_its_number() {
        let mut cells = Cells::new(2);
        assert_eq!(cells.begin(&test_measurement(1)), 3);
        cells.end(&test_measurement(1));
        assert_eq!(cells.ended(), 3);
        assert_eq!(cells.begin(&test_measurement(1)), 3);
        assert_eq!(cells.ended(), 2);
        cells.end(&test_measurement(1));
        assert_eq!(cells.begin(&test_measurement(2)), 4);
        cells.end(&test_measurement(2));
        assert_eq!((cells.ended(), cells.measured()), (4, 2));
    }

    #[test]
    fn cells_that_run_side_by_side_or_never_began_have_a_number_each() {
        let mut cells = Cells::new(0);
        assert_eq!(
            [
                cells.begin(&test_measurement(1)),
                cells.begin(&test_measurement(2))
            ],
            [1, 2]
        );
        cells.end(&test_measurement(3));
        assert_eq!(cells.begin(&test_measurement(4)), 4);
    }
}
