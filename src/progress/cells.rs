//! Which of the cells of a run began and ended. A cell that is tried again is one cell. Pure.

use std::collections::BTreeMap;

use crate::plan::Measurement;

/// The cells of a run that were heard of.
#[derive(Debug, Default)]
pub(super) struct Cells {
    /// Those that were finished before the run was taken up again.
    finished: usize,
    heard: BTreeMap<Measurement, Heard>,
}

#[derive(Debug)]
struct Heard {
    number: usize,
    has_ended: bool,
}

impl Cells {
    pub(super) const fn new(finished: usize) -> Self {
        Self {
            finished,
            heard: BTreeMap::new(),
        }
    }

    /// Notes that a cell begins, perhaps once more, and gives its number, from 1.
    pub(super) fn begin(&mut self, measurement: &Measurement) -> usize {
        self.note(measurement, false)
    }

    /// Notes that a cell ended, perhaps without a beginning.
    pub(super) fn end(&mut self, measurement: &Measurement) {
        self.note(measurement, true);
    }

    fn note(&mut self, measurement: &Measurement, has_ended: bool) -> usize {
        let next = self.finished + self.heard.len() + 1;
        let number = self.heard.get(measurement).map_or(next, |heard| heard.number);
        self.heard
            .insert(measurement.clone(), Heard { number, has_ended });
        number
    }

    /// How many have ended, those that were finished before included.
    pub(super) fn ended(&self) -> usize {
        self.finished + self.measured()
    }

    /// How many of them ended since the run began or went on.
    pub(super) fn measured(&self) -> usize {
        self.heard.values().filter(|heard| heard.has_ended).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::CellKey;

    fn repeat(repeat: u32) -> Measurement {
        Measurement {
            cell: CellKey::new("engine=a"),
            start: 1,
            repeat,
        }
    }

    #[test]
    fn a_cell_that_is_tried_again_keeps_its_number() {
        let mut cells = Cells::new(2);
        assert_eq!(cells.begin(&repeat(1)), 3);
        cells.end(&repeat(1));
        assert_eq!(cells.ended(), 3);
        assert_eq!(cells.begin(&repeat(1)), 3);
        assert_eq!(cells.ended(), 2);
        cells.end(&repeat(1));
        assert_eq!(cells.begin(&repeat(2)), 4);
        cells.end(&repeat(2));
        assert_eq!((cells.ended(), cells.measured()), (4, 2));
    }

    #[test]
    fn cells_that_run_side_by_side_or_never_began_have_a_number_each() {
        let mut cells = Cells::new(0);
        assert_eq!([cells.begin(&repeat(1)), cells.begin(&repeat(2))], [1, 2]);
        cells.end(&repeat(3));
        assert_eq!(cells.begin(&repeat(4)), 4);
    }
}
