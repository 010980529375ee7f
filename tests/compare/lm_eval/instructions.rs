//! Rows of IFEval with answers that nearly follow their instructions.

use serde_json::{Value, json};

use crate::harness::Numbers;

/// What answers are made of. Many pieces are looked for by an instruction, or nearly.
const PIECES: &[&str] = &[
    "word",
    "the word",
    "Word's",
    "WORD",
    "OTHER WORDS",
    "DON'T",
    "I'm",
    "I'll",
    "CAN'T'S",
    "JOHN'S.",
    "U.S.A.",
    "CANNOT",
    "'TIS",
    "O'A",
    "wanna",
    "A,1B",
    "A,B",
    "A--B",
    "A..B",
    "R&D",
    "N'T.",
    "\u{1c5}",
    "\u{df}",
    "\u{c9}T\u{c9}",
    "e\u{301}",
    "\u{17f}",
    "\u{212a}",
    "x\u{b2}",
    "\u{4e2d}\u{6587}",
    "\u{663}",
    "_",
    "under_word",
    "words",
    "* point",
    "** point",
    "- point",
    "-",
    "*",
    "**",
    "***",
    "* * *",
    "****",
    "******",
    "*high*",
    "**high**",
    "* high *",
    "**",
    "*a\nb*",
    "\n* point",
    "\n - point",
    "\n\t* x",
    "<<title>>",
    "<< >>",
    "<title>",
    "<<a\nb>>",
    "<<<a>>>",
    "[name]",
    "[a\nb]",
    "[[x]",
    "[]",
    "P.S.",
    "P. S. note",
    "p.p.s",
    "P.P.S.",
    "P.P. S",
    "PS",
    "Section 1",
    "SECTION 2",
    "Section2",
    "section 3",
    "Section \u{663}",
    "Day 1",
    "\n\n",
    "\n",
    "\n***\n",
    "\n******\n",
    ",",
    ";",
    "\"",
    "\"word\"",
    "'word'",
    "'",
    "``",
    "```",
    "{\"a\": 1}",
    "[1, NaN]",
    "{\"a\": \"\\\"NaN\"}",
    "```json\n{\"a\": [1, 2]}\n```",
    "-Infinity",
    "{'a': 1}",
    "\"\\ud800\"",
    "1e999",
    "nul",
    "```json```",
    "null",
    "My answer is yes.",
    "my answer is no.",
    "My answer is maybe.",
    "The end.",
    "the END.",
    "Is there anything else?",
    "a",
    "e",
    "E",
    ".",
    "!",
    "?",
    "\r\n",
    "\t",
    "\u{a0}",
    "\u{1c}",
    "\u{2028}",
    "12",
    "3.5",
    "Mr. Smith",
    "e.g. this",
    "end.",
    ")",
    "(",
    "Say it.",
    "SAY IT.",
    "Sure, here it is:",
];

const JOINTS: &[&str] = &["", " ", " ", " ", "\n", "\n\n", ". ", ", "];

/// Words that keywords are taken from.
const KEYWORDS: &[&str] = &[
    "word",
    "Word",
    "other",
    "high",
    "\u{e9}t\u{e9}",
    "K",
    "x",
    "a",
    "s",
    "ss",
    "the word",
    "PS",
    "title",
];

/// Names of instructions that are drawn.
const NAMES: &[&str] = &[
    "punctuation:no_comma",
    "change_case:english_capital",
    "change_case:english_lowercase",
    "change_case:capital_word_frequency",
    "length_constraints:number_words",
    "length_constraints:number_paragraphs",
    "length_constraints:nth_paragraph_first_word",
    "detectable_content:number_placeholders",
    "detectable_content:postscript",
    "detectable_format:number_bullet_lists",
    "detectable_format:constrained_response",
    "detectable_format:number_highlighted_sections",
    "detectable_format:multiple_sections",
    "detectable_format:json_format",
    "detectable_format:title",
    "combination:two_responses",
    "combination:repeat_prompt",
    "startend:end_checker",
    "startend:quotation",
    "keywords:existence",
    "keywords:frequency",
    "keywords:forbidden_words",
    "keywords:letter_frequency",
];

/// A row with one or two instructions, and an answer.
pub fn with_answer(numbers: &mut Numbers) -> (Value, String) {
    let names: Vec<&str> = (0..=numbers.below(5) / 4).map(|_| numbers.pick(NAMES)).collect();
    let arguments: Vec<Value> = names.iter().map(|name| arguments(name, numbers)).collect();
    let row = json!({"key": 1, "prompt": "Say it.", "instruction_id_list": names, "kwargs": arguments});
    let mut answer = String::new();
    let quoted = numbers.below(8) == 0;
    if quoted {
        answer.push('"');
    }
    for _ in 0..=numbers.below(7) {
        answer.push_str(numbers.pick(PIECES));
        answer.push_str(numbers.pick(JOINTS));
    }
    if quoted {
        answer.push('"');
    }
    match numbers.below(10) {
        0 => answer = answer.to_uppercase(),
        1 => answer = answer.to_lowercase(),
        2 => answer = numbers.pick(PIECES).to_owned(),
        _ => {}
    }
    (row, answer)
}

fn arguments(name: &str, numbers: &mut Numbers) -> Value {
    let count = 1 + numbers.below(3);
    let relation = numbers.pick(&["less than", "at least"]);
    let words = [numbers.pick(KEYWORDS), numbers.pick(KEYWORDS)];
    match name {
        "change_case:capital_word_frequency" => {
            json!({"capital_relation": relation, "capital_frequency": count})
        }
        "length_constraints:number_words" => json!({"relation": relation, "num_words": 3 * count}),
        "length_constraints:number_paragraphs" => json!({"num_paragraphs": count}),
        "length_constraints:nth_paragraph_first_word" => {
            json!({"num_paragraphs": count, "nth_paragraph": 1 + numbers.below(count), "first_word": numbers.pick(&["word", "the", "a", "Word", "\u{df}"])})
        }
        "detectable_content:number_placeholders" => json!({"num_placeholders": count}),
        "detectable_content:postscript" => {
            json!({"postscript_marker": numbers.pick(&["P.S.", "P.P.S", "Note"])})
        }
        "detectable_format:number_bullet_lists" => json!({"num_bullets": count}),
        "detectable_format:number_highlighted_sections" => json!({"num_highlights": count}),
        "detectable_format:multiple_sections" => {
            json!({"section_spliter": numbers.pick(&["Section", "SECTION", " Day"]), "num_sections": count})
        }
        "combination:repeat_prompt" => json!({"prompt_to_repeat": "Say it. "}),
        "startend:end_checker" => json!({"end_phrase": numbers.pick(&["The end.", " word", "word.\""])}),
        "keywords:existence" => json!({"keywords": words}),
        "keywords:frequency" => json!({"keyword": words[0], "relation": relation, "frequency": count}),
        "keywords:forbidden_words" => json!({"forbidden_words": words}),
        "keywords:letter_frequency" => {
            json!({"letter": numbers.pick(&["a", "E", "s", "k"]), "let_relation": relation, "let_frequency": count})
        }
        // The public file has all keys in each row.
        _ => json!({"num_words": null}),
    }
}
