//! Greedy probes: prompts without a right answer, whose answers are compared with each other. They are the same in every
//! run, so that answers of any two runs can be compared.

/// Largest length of an answer in tokens.
pub(crate) const MAX_TOKENS: u32 = 48;

/// Number of probes.
pub(crate) const COUNT: u32 = (TASKS.len() * SUBJECTS.len()) as u32;

const TASKS: [&str; 8] = [
    "Explain in simple words how {} works.",
    "Write the first sentences of a short story about {}.",
    "List three common questions about {}, with short answers.",
    "Summarize the history of {} in two sentences.",
    "What would a visitor from another planet notice first about {}?",
    "Compare {} with its best known alternative.",
    "Give a beginner step-by-step advice about {}.",
    "Write a short letter to a friend in which you recommend {}.",
];
const SUBJECTS: [&str; 4] = [
    "a mechanical clock",
    "the postal service",
    "bread from sourdough",
    "a suspension bridge",
];

/// The prompts, in order.
pub(crate) fn prompts() -> impl Iterator<Item = String> {
    SUBJECTS
        .iter()
        .flat_map(|subject| TASKS.iter().map(|task| task.replace("{}", subject)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::quality::generated::solve;

    #[test]
    fn probes_differ_and_are_no_items_of_tasks() {
        let prompts: BTreeSet<String> = prompts().collect();
        assert_eq!(prompts.len(), COUNT as usize);
        assert!(prompts.iter().all(|prompt| solve(prompt).is_none()));
    }
}
