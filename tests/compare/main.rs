//! Comparisons held against others' work: statistics against scipy, schedules against what will read them.

mod harness;
mod schedules;
mod scipy;
