//! `burstgpt`: the lengths of GPT-4's requests in the BurstGPT trace; the prompts are consecutive ids.

use super::identified;
use crate::config::dataset::vllm_serve::VllmRows;
use crate::loadgen::dataset::jsonl::{Lines, malformed_line};
use crate::loadgen::dataset::rng::Numpy;
use crate::loadgen::dataset::tokenizer::CleanUp;
use crate::loadgen::dataset::{Content, DatasetError, Prompt, RowInputs, token_count};

/// The model whose rows are used.
const MODEL: &str = "GPT-4";

pub(super) fn prompts(common: &VllmRows, inputs: &RowInputs<'_>) -> Result<Vec<Prompt>, DatasetError> {
    let rows = read(inputs)?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    // pandas draws the rows with a generator of its own.
    let seed = u32::try_from(inputs.seed).map_err(|_| DatasetError::Seed { seed: inputs.seed })?;
    let mut numpy = Numpy::new(seed);
    let drawn = match inputs.prompts <= rows.len() {
        true => numpy.choice_distinct(rows.len(), inputs.prompts),
        false => {
            let any = |_| numpy.randint(0, rows.len() as u64) as usize;
            (0..inputs.prompts).map(any).collect()
        }
    };
    let vocabulary = token_count(inputs.tokenizer.vocab_size());
    let prompt = |(number, row): (usize, usize)| {
        let [input, output] = rows[row];
        let from = number as u64;
        let ids: Vec<u32> = (from..from + u64::from(input))
            .map(|at| (at % u64::from(vocabulary)) as u32)
            .collect();
        let text = inputs.tokenizer.decode(&ids, CleanUp::ExceptBpe)?;
        Ok(identified(
            Content::Text(text.into()),
            input,
            output,
            common,
            number,
        ))
    };
    drawn.into_iter().enumerate().map(prompt).collect()
}

/// Reads the input and output lengths of the rows that are used. The lengths are those of the third and fourth
/// column.
fn read(inputs: &RowInputs<'_>) -> Result<Vec<[u32; 2]>, DatasetError> {
    let path = inputs.path()?;
    let lines = Lines::read(path)?;
    let malformed = |number: usize, reason: &str| malformed_line(inputs.dataset, path, number, reason);
    let mut lines = lines.iter();
    let header = lines.next().ok_or_else(|| malformed(1, "it is empty"))?.1;
    let header: Vec<&str> = cells(header);
    let column = |name: &str| {
        let place = header.iter().position(|column| *column == name);
        place.ok_or_else(|| malformed(1, &format!("the header has no column `{name}`")))
    };
    let (model, answered) = (column("Model")?, column("Response tokens")?);
    let mut rows = Vec::new();
    for (number, line) in lines {
        let cells = cells(line);
        let length = |place: usize| -> Result<u32, DatasetError> {
            let length = cells.get(place).and_then(|cell| cell.parse::<f64>().ok());
            length
                .filter(|length| *length >= 0.0)
                .map(|length| length as u32)
                .ok_or_else(|| malformed(number, &format!("column {} is not a number of tokens", place + 1)))
        };
        if cells.get(model) == Some(&MODEL) && length(answered)? > 0 {
            rows.push([length(2)?, length(3)?]);
        }
    }
    Ok(rows)
}

fn cells(line: &str) -> Vec<&str> {
    line.split(',')
        .map(|cell| cell.trim().trim_matches('"'))
        .collect()
}
