//! IFEval: instructions about the form of an answer that a program can check.
//!
//! Source: J. Zhou et al., "Instruction-Following Evaluation for Large Language Models" (arXiv:2311.07911), as lm-eval 0.4.13
//! checks it (lm_eval/tasks/ifeval/instructions.py and utils.py).

mod arguments;
mod capital_words;
mod checks;

use serde_json::{Map, Value};

use self::arguments::Arguments;
pub use self::arguments::RowError;
use super::python_text::strip;

/// The instructions of an item, all of which an answer must follow.
pub struct Instructions(Vec<Instruction>);

/// An instruction with its name in IFEval.
struct Instruction {
    name: String,
    check: Check,
}

/// How strictly answers are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The answer itself must follow the instructions.
    Strict,
    /// Each instruction must be followed by the answer, or by it without its first line, its last line or its asterisks.
    Loose,
}

/// What an answer must be.
enum Check {
    NoComma,
    Capitals,
    Lowercase,
    CapitalWords(Bound),
    Words(Bound),
    /// Exactly so many, separated by `***`.
    Paragraphs(u64),
    NthParagraph {
        paragraphs: u64,
        nth: usize,
        first_word: String,
    },
    Placeholders(u64),
    Postscript(String),
    Bullets(u64),
    ConstrainedResponse,
    Highlights(u64),
    Sections {
        word: String,
        least: u64,
    },
    Json,
    Title,
    TwoResponses,
    RepeatedPrompt(String),
    End(String),
    Quotation,
    Keywords(Vec<String>),
    KeywordFrequency(String, Bound),
    ForbiddenWords(Vec<String>),
    LetterFrequency(char, Bound),
}

/// A bound of a number.
#[derive(Clone, Copy)]
enum Bound {
    LessThan(u64),
    AtLeast(u64),
}

impl Bound {
    fn holds(self, number: usize) -> bool {
        let number = number as u64;
        match self {
            Self::LessThan(bound) => number < bound,
            Self::AtLeast(bound) => number >= bound,
        }
    }
}

impl Instructions {
    /// Reads the instructions of a row of IFEval's file: `instruction_id_list` and, for each, its `kwargs`.
    ///
    /// # Errors
    /// They cannot be read, or one of them cannot be checked.
    pub fn read(row: &Value) -> Result<Self, RowError> {
        let malformed = |why: &str| RowError::Malformed(why.to_owned());
        let list = |key: &str| {
            row.get(key)
                .and_then(Value::as_array)
                .filter(|list| !list.is_empty())
        };
        let names = list("instruction_id_list").ok_or_else(|| malformed("no `instruction_id_list`"))?;
        let arguments = list("kwargs").ok_or_else(|| malformed("no `kwargs`"))?;
        if names.len() != arguments.len() {
            return Err(malformed(
                "`instruction_id_list` and `kwargs` have different lengths",
            ));
        }
        let instruction = |(name, arguments): (&Value, &Value)| {
            let name = name
                .as_str()
                .ok_or_else(|| malformed("an entry of `instruction_id_list` is not a string"))?;
            let none = Map::new();
            let arguments = arguments.as_object().unwrap_or(&none);
            Ok(Instruction {
                name: name.to_owned(),
                check: Check::read(name, &Arguments::new(name, arguments))?,
            })
        };
        names
            .iter()
            .zip(arguments)
            .map(instruction)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The names of the instructions that an answer does not follow. An answer without text follows none.
    pub fn broken_by(&self, text: &str, reading: Reading) -> Vec<&str> {
        let readings = match reading {
            Reading::Strict => vec![text.to_owned()],
            Reading::Loose => loose_readings(text),
        };
        let is_followed = |check: &Check| {
            let mut texts = readings.iter().filter(|text| !strip(text).is_empty());
            texts.any(|text| check.holds(text))
        };
        let broken = self
            .0
            .iter()
            .filter(|instruction| !is_followed(&instruction.check));
        broken.map(|instruction| instruction.name.as_str()).collect()
    }
}

impl Check {
    fn read(name: &str, arguments: &Arguments<'_>) -> Result<Self, RowError> {
        let bound = |relation: &str, count: &str| arguments.bound(relation, count);
        Ok(match name {
            "punctuation:no_comma" => Self::NoComma,
            "change_case:english_capital" => Self::Capitals,
            "change_case:english_lowercase" => Self::Lowercase,
            "change_case:capital_word_frequency" => {
                Self::CapitalWords(bound("capital_relation", "capital_frequency")?)
            }
            "length_constraints:number_words" => Self::Words(bound("relation", "num_words")?),
            "length_constraints:number_paragraphs" => Self::Paragraphs(arguments.count("num_paragraphs")?),
            "length_constraints:nth_paragraph_first_word" => arguments.nth_paragraph()?,
            "detectable_content:number_placeholders" => {
                Self::Placeholders(arguments.count("num_placeholders")?)
            }
            "detectable_content:postscript" => Self::Postscript(arguments.text("postscript_marker")?),
            "detectable_format:number_bullet_lists" => Self::Bullets(arguments.count("num_bullets")?),
            "detectable_format:constrained_response" => Self::ConstrainedResponse,
            "detectable_format:number_highlighted_sections" => {
                Self::Highlights(arguments.count("num_highlights")?)
            }
            "detectable_format:multiple_sections" => Self::Sections {
                word: arguments.text("section_spliter")?,
                least: arguments.count("num_sections")?,
            },
            "detectable_format:json_format" => Self::Json,
            "detectable_format:title" => Self::Title,
            "combination:two_responses" => Self::TwoResponses,
            "combination:repeat_prompt" => Self::RepeatedPrompt(arguments.text("prompt_to_repeat")?),
            "startend:end_checker" => Self::End(arguments.text("end_phrase")?),
            "startend:quotation" => Self::Quotation,
            "keywords:existence" => Self::Keywords(arguments.texts("keywords")?),
            "keywords:frequency" => {
                Self::KeywordFrequency(arguments.text("keyword")?, bound("relation", "frequency")?)
            }
            "keywords:forbidden_words" => Self::ForbiddenWords(arguments.texts("forbidden_words")?),
            "keywords:letter_frequency" => {
                Self::LetterFrequency(arguments.letter()?, bound("let_relation", "let_frequency")?)
            }
            "language:response_language" => {
                return Err(RowError::Ungradable(
                    "`matrix` does not detect the language of answers",
                ));
            }
            "length_constraints:number_sentences" => {
                return Err(RowError::Ungradable(
                    "`matrix` does not count the sentences of answers",
                ));
            }
            _ => {
                return Err(RowError::Malformed(format!("unknown instruction `{name}`")));
            }
        })
    }
}

/// The answer, and what remains of it without its first line, its last line and its asterisks.
fn loose_readings(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.split('\n').collect();
    let without = |first: usize, last: usize| {
        let end = lines.len().saturating_sub(last).max(first);
        strip(&lines.get(first..end).unwrap_or_default().join("\n")).to_owned()
    };
    let cut = [text.to_owned(), without(1, 0), without(0, 1), without(1, 1)];
    let plain = cut.iter().map(|text| text.replace('*', ""));
    cut.iter().cloned().chain(plain).collect()
}

#[cfg(test)]
mod tests;
