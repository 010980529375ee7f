//! Builds reasons of a validity.

use super::codes::code_entry;
use crate::results::record::validity::{Reason, ReasonCode};

/// Returns a reason with the weight and fix of its code in the table.
pub(crate) fn new_reason(code: ReasonCode, measured: String, bound: Option<String>) -> Reason {
    let entry = code_entry(code);
    Reason {
        code,
        weight: entry.weight,
        only: entry.families.to_vec(),
        measured,
        bound,
        advice: format!("{} {}", entry.meaning, entry.fix),
    }
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
