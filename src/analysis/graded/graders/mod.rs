//! What graders read from the text of an answer. Where a grader is that of a task of lm-eval, it gives the same grade to
//! every answer (`tests/compare/lm_eval.rs`, against lm-eval 0.4.13).

pub mod choice;
pub mod ifeval;
pub mod number;
mod python_text;

use regex::Regex;

fn compiled(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is constant")
}
