//! Comparisons held against others' work: statistics against scipy, grades against lm-eval, schedules against what will read them; and what `compare` says and
//! `report` say of sides and runs written by hand.

mod again;
#[path = "../support/binary.rs"]
mod binary;
mod fresh;
mod harness;
mod lm_eval;
mod reports;
mod schedules;
mod scipy;
#[path = "../support/skip.rs"]
mod skip;
mod verdicts;
mod written;
