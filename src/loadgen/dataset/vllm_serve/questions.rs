//! `custom`, `spec_bench` and `speed_bench`: prompts in a file of JSON lines.

use serde_json::{Value, json};

use super::identified;
use crate::config::dataset::vllm_serve::{PromptField, Questions, VllmRows};
use crate::loadgen::dataset::jsonl::{Lines, malformed_line, parse_value};
use crate::loadgen::dataset::rng::Python;
use crate::loadgen::dataset::template::ChatTemplate;
use crate::loadgen::dataset::{Content, DatasetError, Prompt, RngState, RowInputs, token_count};

struct Row {
    text: String,
    output_tokens: Option<u32>,
}

/// Returns the prompts, the wanted number of them, and the seed of their shuffle.
pub(super) fn prompts(
    questions: &Questions,
    common: &VllmRows,
    inputs: &RowInputs<'_>,
    rng: &mut RngState,
) -> Result<(Vec<Prompt>, usize, u64), DatasetError> {
    let mut rows = read(questions, inputs)?;
    let seed = match questions.fixed_seed {
        true => 0,
        false => inputs.seed,
    };
    rng.python = Python::new(seed);
    if !common.keeps_order {
        rng.python.shuffle(&mut rows);
    }
    let wanted = match inputs.prompts {
        0 => rows.len(),
        count => count,
    };
    rows.truncate(wanted);
    let template = questions
        .applies_template
        .then(|| ChatTemplate::open(inputs.tokenizer))
        .transpose()?;
    let mut prompts = Vec::with_capacity(wanted);
    for (number, row) in rows.into_iter().enumerate() {
        let text = match &template {
            Some(template) => {
                let message = json!({"role": "user", "content": row.text});
                template.render_with(&[message], None, true, &questions.template_variables)?
            }
            None => row.text,
        };
        let input = token_count(inputs.tokenizer.count(&text, true)?);
        let output = questions.output_len.or(row.output_tokens).unwrap_or(0);
        prompts.push(identified(
            Content::Text(text.into()),
            input,
            output,
            common,
            number,
        ));
    }
    Ok((prompts, wanted, seed))
}

fn read(questions: &Questions, inputs: &RowInputs<'_>) -> Result<Vec<Row>, DatasetError> {
    let path = inputs.path()?;
    let lines = Lines::read(path)?;
    let mut rows = Vec::new();
    for (number, line) in lines.iter() {
        let malformed = |reason: &str| malformed_line(inputs.dataset, path, number, reason);
        let row = parse_value(line).map_err(|error| malformed(&error.to_string()))?;
        if let Some(category) = &questions.category
            && row.get("category").and_then(Value::as_str) != Some(category)
        {
            continue;
        }
        let field = questions.field.name();
        let text = match questions.field {
            PromptField::Prompt => row.get(field),
            PromptField::Turns => row.get(field).and_then(|turns| turns.get(0)),
            PromptField::Messages => row.get(field).and_then(|messages| messages.pointer("/0/content")),
        };
        let text = text.and_then(Value::as_str);
        let text = text.ok_or_else(|| malformed(&format!("the row has no text in `{field}`")))?;
        let output_tokens = match questions.output_len {
            Some(_) => None,
            None => Some(
                row.get("output_tokens")
                    .and_then(whole_number)
                    .ok_or_else(|| malformed("the row has no whole number in `output_tokens`"))?,
            ),
        };
        rows.push(Row {
            text: text.to_owned(),
            output_tokens,
        });
    }
    Ok(rows)
}

/// A number as Python's `int` reads it.
fn whole_number(value: &Value) -> Option<u32> {
    let number = match value {
        Value::String(text) => text.trim().parse().ok()?,
        value => value.as_f64()?.trunc(),
    };
    (0.0..=f64::from(u32::MAX))
        .contains(&number)
        .then_some(number as u32)
}
