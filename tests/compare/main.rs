//! Comparisons held against others' work: statistics against scipy, schedules against what will read them.

#[path = "../support/binary.rs"]
mod binary;
mod harness;
mod schedules;
mod scipy;
#[path = "../support/skip.rs"]
mod skip;
