//! Answers that are hard to grade, put together from pieces.

use crate::harness::Numbers;

/// Spellings of numbers, most of which some reader gets wrong.
const SPELLINGS: &[&str] = &[
    "18",
    "-18",
    "$18",
    "$1,800",
    "1,800.50",
    "18.",
    "18.0",
    "18,",
    "1 800",
    ".5",
    "-.5",
    "- 18",
    "--18",
    "€18",
    "18%",
    "$",
    "...",
    "..",
    "0",
    "007",
    "1e3",
    "3/4",
    "18.5.2",
    "(18)",
    "**18**",
    "18$",
    "$-18",
    "-$18",
    "\u{0661}\u{0668}",
    "\u{ff11}\u{ff18}",
    "\u{2212}18",
    "eighteen",
    "\\boxed{18}",
    "18th",
    "x18",
    "1,8,0,0",
    "18-20",
    "5,",
    "72",
    "72.",
    "$72.00",
    "#### 72",
];

/// What stands between numbers.
const BETWEEN: &[&str] = &[
    " ",
    "\n",
    " #### ",
    "\n#### ",
    "####",
    "#### #### ",
    "\n\n",
    ". ",
    ", ",
    " = ",
    " + ",
    " apples and ",
    " So the answer is ",
    "\n#### $",
    "\r\n",
    "\t",
    "\u{a0}",
    " <<6*3=18>>",
    "Question: ",
    " ### ",
    "#####  ",
    "\u{2028}",
];

/// An answer and a right number, mostly one that occurs in it.
pub fn with_numbers(numbers: &mut Numbers) -> (String, String) {
    let mut text = String::new();
    let mut spelled = Vec::new();
    for _ in 0..numbers.below(6) {
        text.push_str(numbers.pick(BETWEEN));
        let number = numbers.pick(SPELLINGS);
        text.push_str(number);
        spelled.push(number);
    }
    if numbers.below(3) == 0 {
        text.push_str(numbers.pick(BETWEEN));
    }
    let gold = match spelled.last() {
        Some(last) if numbers.below(4) > 0 => last,
        Some(_) => spelled[numbers.below(spelled.len())],
        None => "18",
    };
    // Right answers are written as the data set has them: a number with commas, mostly.
    let plain: String = gold
        .chars()
        .filter(|letter| letter.is_ascii_digit() || "-.,".contains(*letter))
        .collect();
    let gold = match plain.as_str() {
        "" => "18",
        plain => plain,
    };
    (text, gold.to_owned())
}

/// Texts of choices that contain, equal or resemble each other and the letters.
const CHOICES: &[&str] = &[
    "Guilty",
    "Guilty of romance",
    "guilty",
    "not guilty",
    "18",
    "1,8",
    "(A)",
    "A",
    "b",
    "C.",
    "?",
    "x + y",
    "x",
    "a.b",
    "Paris, France",
    "paris france",
    "\u{c9}t\u{e9}",
    "Stra\u{df}e",
    "STRASSE",
    "\u{130}stanbul",
    " padded ",
    "of",
    "\u{201c}quoted\u{201d}",
    "$5",
    "e^x",
    "\u{3a3}\u{3a3}",
    "end !",
    "both \u{2014} all",
    "None of the above",
];

/// What answers to such questions are made of, besides letters and choices.
const PHRASES: &[&str] = &[
    "The answer is ",
    "the answer is: ",
    "Answer: ",
    "ANSWER: ",
    "**",
    "\n",
    ". ",
    " ",
    "",
    "because ",
    "Final answer: (",
    "So ",
    ":",
    ": ",
    ":\n",
    ")",
    "(",
    "I think ",
    "\t",
    ", not ",
    " or ",
    "\u{a0}",
    "\u{1c}",
    "<think>(A)</think>",
    "\\boxed{",
    "}",
    "\u{ff08}",
    "!",
    "\r\n",
];

/// An answer, the choices, and the number of the right one.
pub fn with_choices(numbers: &mut Numbers) -> (String, Vec<&'static str>, usize) {
    let choices: Vec<&str> = (0..4).map(|_| numbers.pick(CHOICES)).collect();
    let mut text = String::new();
    let mut named = 0;
    for _ in 0..=numbers.below(5) {
        text.push_str(numbers.pick(PHRASES));
        named = numbers.below(4);
        let letter = char::from(b'A' + u8::try_from(named).expect("few choices"));
        text.push_str(&match numbers.below(8) {
            0 => format!("({letter})"),
            1 => letter.to_string(),
            2 => letter.to_ascii_lowercase().to_string(),
            3 => format!(": {letter}"),
            4 => choices[named].to_owned(),
            5 => choices[named].to_uppercase(),
            6 => "(E)".to_owned(),
            _ => format!("{letter}."),
        });
    }
    if numbers.below(2) == 0 {
        text.push_str(numbers.pick(PHRASES));
    }
    let right = if numbers.below(4) > 0 {
        named
    } else {
        numbers.below(4)
    };
    (text, choices, right)
}
