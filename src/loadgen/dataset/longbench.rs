//! The `longbench_v2` data set: long documents, each with a question of four choices.

use super::row_files;
use super::{Content, DatasetError, MakeRows, Prompt, RngState, RowInputs, Rows, token_count};
use crate::config::dataset::DatasetName;
use crate::config::dataset::longbench_v2::LongbenchV2;

/// Output tokens if the scenario does not set a number.
const DEFAULT_OUTPUT_TOKENS: u32 = 10;
/// Maximum number of documents that are tokenized at once; each may have millions of characters.
const MAX_BATCH: usize = 64;

impl MakeRows for LongbenchV2 {
    /// Shuffles the questions and takes those within the limit until there are enough.
    fn rows(&self, inputs: &RowInputs<'_>, rng: &mut RngState) -> Result<Rows, DatasetError> {
        let (tokenizer, path) = (inputs.tokenizer, inputs.path()?);
        let records = row_files::read(DatasetName::LongbenchV2, path)?;
        let mut order: Vec<usize> = (0..records.len()).collect();
        rng.python.shuffle(&mut order);
        let requested = inputs.prompts;
        let output_tokens = self.output_len.unwrap_or(DEFAULT_OUTPUT_TOKENS);
        let limit = self.context_len.filter(|limit| *limit > 0).unwrap_or(u32::MAX);
        let mut prompts: Vec<Prompt> = Vec::new();
        let mut order = order.into_iter();
        while prompts.len() < requested && order.len() > 0 {
            let block = order.by_ref().take((requested - prompts.len()).min(MAX_BATCH));
            let texts: Vec<String> = block
                .map(|at| {
                    prompt_text(&records[at]).map_err(|field| DatasetError::Malformed {
                        dataset: DatasetName::LongbenchV2,
                        path: path.to_owned(),
                        reason: format!("row {at} has no text in the field `{field}`"),
                    })
                })
                .collect::<Result<_, _>>()?;
            let slices: Vec<&str> = texts.iter().map(String::as_str).collect();
            let lengths = tokenizer.count_batch(&slices, true)?;
            for (text, length) in texts.into_iter().zip(lengths.into_iter().map(token_count)) {
                if u64::from(length) + u64::from(output_tokens) <= u64::from(limit) {
                    prompts.push(Prompt::new(Content::Text(text.into()), length, output_tokens));
                }
            }
        }
        let mut rows = Rows::new(prompts);
        // The Python tool prints nothing for this data set.
        rows.printed_lines.clear();
        Ok(rows)
    }
}

/// Returns the prompt of a row, or the name of a missing field.
fn prompt_text(record: &row_files::Record) -> Result<String, &'static str> {
    let field = |name: &'static str| record.text(name).ok_or(name);
    Ok(format!(
        "{}\n\nQuestion: {}\nA. {}\nB. {}\nC. {}\nD. {}\nAnswer:",
        field("context")?,
        field("question")?,
        field("choice_A")?,
        field("choice_B")?,
        field("choice_C")?,
        field("choice_D")?
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::workload::{Profile, Workload};
    use crate::loadgen::dataset::tokenizer::Tokenizer;
    use crate::loadgen::dataset::{PreparedPrompts, prepare};

    /// Five rows whose contexts grow by two characters each.
    fn five() -> Vec<Value> {
        let row = |at: usize| {
            json!({
                "_id": at, "context": format!("C{at}").repeat(at + 1), "question": format!("Q{at}"),
                "choice_A": "a", "choice_B": "b", "choice_C": "c", "choice_D": "d", "answer": "A"
            })
        };
        (0..5).map(row).collect()
    }

    fn prepare_rows(
        rows: &str,
        prompts: u32,
        context_len: Option<u32>,
    ) -> Result<PreparedPrompts, DatasetError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), rows).unwrap();
        let workload = Workload {
            prompts,
            ..Workload::with(LongbenchV2 {
                context_len,
                ..LongbenchV2::default()
            })
        };
        prepare(
            &workload,
            Profile::Current,
            1,
            &Tokenizer::bytes(),
            Some(file.path()),
        )
    }

    fn lengths(prepared: &PreparedPrompts) -> Vec<(u32, u32)> {
        prepared
            .prompts
            .iter()
            .map(|prompt| (prompt.prompt_tokens, prompt.output_tokens))
            .collect()
    }

    #[test]
    fn rows_are_those_of_the_tool_from_lines_and_from_a_list() {
        let lines: Vec<String> = five().iter().map(Value::to_string).collect();
        for text in [lines.join("\n"), Value::Array(five()).to_string()] {
            let three = prepare_rows(&text, 3, None).unwrap();
            assert_eq!(lengths(&three), [(48, 10), (50, 10), (52, 10)]);
            assert!(three.printed_lines.is_empty());
            let expected = "C2C2C2\n\nQuestion: Q2\nA. a\nB. b\nC. c\nD. d\nAnswer:";
            assert_eq!(
                three.prompts[0].content,
                Content::Text(expected.to_owned().into())
            );
            let limited = prepare_rows(&text, 5, Some(60)).unwrap();
            assert_eq!(lengths(&limited), [(48, 10), (50, 10), (44, 10), (46, 10)]);
        }
    }

    #[test]
    fn a_row_that_lacks_something_is_named() {
        let error = prepare_rows("{\"context\": \"c\", \"question\": 3}", 1, None)
            .unwrap_err()
            .to_string();
        assert!(error.contains("row 0") && error.contains("`question`"), "{error}");
        let error = prepare_rows("{\"context\"", 1, None).unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
    }
}
