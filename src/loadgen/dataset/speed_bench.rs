//! The `speed-bench` data set: first turns of SPEED-Bench, rendered with the tokenizer's chat template.

use serde_json::Value;

use super::jsonl::{Lines, malformed_line, parse_value};
use super::template::ChatTemplate;
use super::tokenizer::CleanUp;
use super::{Content, DatasetError, MakeRows, Prompt, RngState, RowInputs, Rows, token_count};
use crate::config::dataset::DatasetName;
use crate::config::dataset::speed_bench::SpeedBench;

/// Output tokens if the scenario does not set a number.
const DEFAULT_OUTPUT_TOKENS: u32 = 512;

impl MakeRows for SpeedBench {
    /// Draws rows of the file; if it has too few, from repeated rows.
    ///
    /// The Python tool tokenizes all rows before it draws. The draws do not depend on that, so only drawn
    /// rows are tokenized here.
    fn rows(&self, inputs: &RowInputs<'_>, rng: &mut RngState) -> Result<Rows, DatasetError> {
        let (tokenizer, requested) = (inputs.tokenizer, inputs.prompts);
        let questions = first_turns(self, inputs)?;
        if questions.is_empty() {
            return Err(DatasetError::Empty {
                dataset: DatasetName::SpeedBench,
            });
        }
        let prompt_texts: Vec<String> = if requested <= questions.len() {
            rng.python.sample(&questions, requested)
        } else {
            let mut repeated: Vec<String> = questions.iter().cycle().take(requested).cloned().collect();
            rng.python.shuffle(&mut repeated);
            repeated
        };
        let template = ChatTemplate::open(tokenizer).ok();
        // A question that the template cannot render is sent as it is, as in the Python tool. The template
        // writes the special tokens.
        let ids = prompt_texts.iter().map(|question| {
            let rendered = template
                .as_ref()
                .and_then(|template| template.render_user(question).ok());
            match rendered {
                Some(text) => tokenizer.encode(&text, false),
                None => tokenizer.encode(question, true),
            }
        });
        let ids = ids.collect::<Result<Vec<_>, _>>()?;
        let lists: Vec<&[u32]> = ids.iter().map(Vec::as_slice).collect();
        let texts = tokenizer.decode_batch(&lists, CleanUp::ExceptBpe)?;
        let output_tokens = self.output_len.unwrap_or(DEFAULT_OUTPUT_TOKENS);
        let prompts = texts.into_iter().zip(&ids).map(|(text, ids)| {
            Prompt::new(Content::Text(text.into()), token_count(ids.len()), output_tokens)
        });
        let mut rows = Rows::new(prompts.collect());
        // The Python tool prints nothing for this data set.
        rows.printed_lines.clear();
        Ok(rows)
    }
}

/// Returns the first turns of the rows of the requested category, in file order.
fn first_turns(requested: &SpeedBench, inputs: &RowInputs<'_>) -> Result<Vec<String>, DatasetError> {
    let path = inputs.path()?;
    let category = requested.speed_bench.as_ref().and_then(|spec| spec.category);
    let lines = Lines::read(path)?;
    let mut questions = Vec::new();
    for (number, line) in lines.iter() {
        let malformed_row = |reason: &str| malformed_line(DatasetName::SpeedBench, path, number, reason);
        let row = parse_value(line).map_err(|error| malformed_row(&error.to_string()))?;
        let is_of = |name: &str| row.get("category").and_then(Value::as_str) == Some(name);
        if category.is_some_and(|category| !is_of(category.name())) {
            continue;
        }
        let question = row
            .get("turns")
            .and_then(|turns| turns.get(0))
            .and_then(Value::as_str);
        questions.push(
            question
                .ok_or_else(|| malformed_row("the first entry of `turns` is not a string"))?
                .to_owned(),
        );
    }
    Ok(questions)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::dataset::speed_bench::{Category, Rows};
    use crate::config::workload::{Profile, Workload};
    use crate::loadgen::dataset::prepare;
    use crate::loadgen::dataset::tokenizer::Tokenizer;

    fn file() -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let row = |at: usize| {
            let category = if at.is_multiple_of(2) {
                "low_entropy"
            } else {
                "mixed"
            };
            json!({"category": category, "turns": [format!("t{at}"), "more"]}).to_string()
        };
        std::fs::write(file.path(), (0..4).map(row).collect::<Vec<_>>().join("\n\n")).unwrap();
        file
    }

    /// Returns the row numbers of the prompts, after checks of everything else.
    fn draw_rows(prompts: u32, category: Option<Category>) -> Vec<String> {
        let workload = Workload {
            prompts,
            ..Workload::with(SpeedBench {
                speed_bench: category.map(|category| Rows {
                    category: Some(category),
                }),
                ..SpeedBench::default()
            })
        };
        let file = file();
        let prepared = prepare(
            &workload,
            Profile::Current,
            1,
            &Tokenizer::bytes(),
            Some(file.path()),
        )
        .unwrap();
        assert!(prepared.printed_lines.is_empty());
        let question = |prompt: &Prompt| {
            let Content::Text(text) = &prompt.content else {
                panic!("these rows are text");
            };
            assert_eq!((prompt.prompt_tokens, prompt.output_tokens), (33, 512));
            let question = text.strip_prefix("<|user|>\n").unwrap();
            question
                .strip_suffix("<|end|>\n<|assistant|>\n")
                .unwrap()
                .to_owned()
        };
        prepared.prompts.iter().map(question).collect()
    }

    #[test]
    fn rows_are_those_of_the_tool() {
        assert_eq!(draw_rows(3, None), ["t1", "t2", "t0"]);
        assert_eq!(draw_rows(7, None), ["t3", "t2", "t1", "t2", "t0", "t0", "t1"]);
        assert_eq!(draw_rows(2, Some(Category::LowEntropy)), ["t0", "t2"]);
    }

    #[test]
    fn a_line_that_is_no_row_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "{\"turns\": [\"a\"]}\n{\"turns\": []}\n").unwrap();
        let error = prepare(
            &Workload::new(DatasetName::SpeedBench),
            Profile::Current,
            1,
            &Tokenizer::bytes(),
            Some(file.path()),
        );
        let error = error.unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("turns"), "{error}");
    }
}
