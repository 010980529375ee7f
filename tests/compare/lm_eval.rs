//! Our grades against lm-eval's, answer by answer, over answers that are hard to read.

mod answers;
mod instructions;

use matrix::analysis::graded::graders::ifeval::{Instructions, Reading};
use matrix::analysis::graded::graders::{choice, number};
use serde_json::{Value, json};
use std::io::Write;

use crate::harness::{LM_EVAL, Numbers};

/// Answers of each grader.
const ANSWERS: usize = 2_000;
/// Smallest share of the answers that must be right, and of those that must be wrong. With less there would be nothing to compare.
const LEAST_OF_EACH: f64 = 0.05;

/// An answer with our grade, and what lm-eval is asked for.
struct Graded {
    is_right: bool,
    item: Value,
}

impl Graded {
    fn new(task: &str, filter: &str, doc: Value, answer: String, is_right: bool) -> Self {
        Self {
            is_right,
            item: json!({"task": task, "filter": filter, "doc": doc, "answer": answer}),
        }
    }
}

/// The seed of the answers; `MATRIX_LM_EVAL_SEED` sets another.
#[expect(clippy::disallowed_methods, reason = "an environment variable sets the seed")]
fn seed() -> u64 {
    let given = std::env::var("MATRIX_LM_EVAL_SEED").ok();
    given.map_or(1, |seed| seed.parse().expect("MATRIX_LM_EVAL_SEED is a number"))
}

/// Fails where lm-eval's grade is another one, with the first answers that differ.
fn assert_same_grades(what: &str, graded: &[Graded]) {
    let asked: Vec<&Value> = graded.iter().map(|graded| &graded.item).collect();
    let Some(theirs) = LM_EVAL.ask("lm_eval_peer.py", &json!(asked)) else {
        crate::skip::skip(LM_EVAL.skipped);
        return;
    };
    let theirs: Vec<bool> = serde_json::from_value(theirs).expect("a grade for each answer");
    assert_eq!(theirs.len(), graded.len());
    let pairs = graded.iter().zip(&theirs);
    let differing: Vec<String> = pairs
        .filter(|(ours, theirs)| ours.is_right != **theirs)
        .map(|(ours, theirs)| format!("lm-eval says {theirs}: {}", ours.item))
        .collect();
    let right = theirs.iter().filter(|is_right| **is_right).count();
    let all = graded.len();
    let count = format!(
        "{what}, seed {}: {} of {all} grades differ; {right} are right\n",
        seed(),
        differing.len()
    );
    std::io::stdout()
        .write_all(count.as_bytes())
        .expect("stdout takes the count");
    assert!(
        differing.is_empty(),
        "{what}, seed {}: {} of {all} grades differ, such as\n{}",
        seed(),
        differing.len(),
        differing[..differing.len().min(10)].join("\n")
    );
    let share = right as f64 / all as f64;
    assert!(
        (LEAST_OF_EACH..1.0 - LEAST_OF_EACH).contains(&share),
        "{what}: {right} of {all} answers are right"
    );
}

#[test]
#[ignore = "a long form; tests/peers.sh runs it"]
fn numbers_are_those_of_lm_evals_gsm8k() {
    let mut numbers = Numbers(seed());
    let mut graded = Vec::new();
    for _ in 0..ANSWERS {
        let (answer, gold) = answers::with_numbers(&mut numbers);
        let doc = json!({"question": "How many?", "answer": format!("It is so.\n#### {gold}")});
        let expected = number::normalize(doc["answer"].as_str().expect("a text"));
        let is = |found: Option<String>| found.as_deref() == Some(expected.as_str());
        for (filter, found) in [
            ("strict-match", number::strict(&answer)),
            ("flexible-extract", number::flexible(&answer)),
        ] {
            graded.push(Graded::new(
                "gsm8k",
                filter,
                doc.clone(),
                answer.clone(),
                is(found),
            ));
        }
    }
    assert_same_grades("GSM8K", &graded);
}

#[test]
#[ignore = "a long form; tests/peers.sh runs it"]
fn choices_are_those_of_lm_evals_multiple_choice_tasks() {
    let mut numbers = Numbers(seed() + 1);
    let mut graded = Vec::new();
    for _ in 0..ANSWERS {
        let (answer, choices, right) = answers::with_choices(&mut numbers);
        let letter = char::from(b'A' + u8::try_from(right).expect("few choices")).to_string();
        let expected = choice::normalize(&letter);
        let mmlu = json!({"question": "Which?", "choices": choices, "answer": right});
        let gpqa = json!({"Question": "Which?", "choices": choices, "answer": format!("({letter})")});
        let first_line = choice::strict(&answer) == expected;
        graded.push(Graded::new(
            "mmlu_generative",
            "get_response",
            mmlu.clone(),
            answer.clone(),
            first_line,
        ));
        let last = choice::flexible(&answer, &choices) == Some(expected);
        for (task, doc) in [("mmlu_flan_cot_zeroshot", mmlu), ("gpqa_cot_zeroshot", gpqa)] {
            graded.push(Graded::new(task, "flexible-extract", doc, answer.clone(), last));
        }
    }
    assert_same_grades("multiple choice", &graded);
}

#[test]
#[ignore = "a long form; tests/peers.sh runs it"]
fn instructions_are_followed_where_lm_evals_ifeval_finds_them_followed() {
    let mut numbers = Numbers(seed() + 2);
    let mut graded = Vec::new();
    for _ in 0..ANSWERS {
        let (doc, answer) = instructions::with_answer(&mut numbers);
        let instructions = Instructions::read(&doc).unwrap_or_else(|error| panic!("{doc}: {error:?}"));
        for (filter, reading) in [("strict", Reading::Strict), ("loose", Reading::Loose)] {
            let is_right = instructions.broken_by(&answer, reading).is_empty();
            graded.push(Graded::new(
                "ifeval",
                filter,
                doc.clone(),
                answer.clone(),
                is_right,
            ));
        }
    }
    assert_same_grades("IFEval", &graded);
}
