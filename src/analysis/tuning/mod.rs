//! What measurements say about the configurations of a search: the figure or failure of a trial, and the trials that no other one
//! beats. [`super::tune`] is the search itself, which knows no measurements.

pub(crate) mod doubts;
pub(crate) mod frontier;
pub(crate) mod outcome;
