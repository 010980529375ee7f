//! Comparisons held against others' work: statistics against scipy, schedules against what will read them; and what `compare` says of sides
//! written by hand.

#[path = "../support/binary.rs"]
mod binary;
mod harness;
mod schedules;
mod scipy;
#[path = "../support/skip.rs"]
mod skip;
mod verdicts;
