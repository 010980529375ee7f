//! How a bench ended.

use crate::runner::search::SearchOutcome;

/// How a bench ended.
pub(crate) enum BenchOutcome {
    /// Every arrival was measured.
    Done,
    /// What a search over so many prompts came to.
    Search { outcome: SearchOutcome, prompts: usize },
    /// It was stopped, or its observer refused to go on.
    Stopped,
}
