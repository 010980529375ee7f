//! `custom_audio`: recordings in a file of JSON lines, each with a prompt whose tokens are counted and not sent.
//!
//! vLLM's tool decodes each file and sends its samples as WAV. Here only files with 16-bit samples are read, whose
//! samples stay as they are.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};

use super::identified;
use crate::base::audio::{Wav, wav_file};
use crate::config::dataset::vllm_serve::VllmRows;
use crate::loadgen::dataset::jsonl::{Lines, malformed_line, parse_value};
use crate::loadgen::dataset::rng::Python;
use crate::loadgen::dataset::template::ChatTemplate;
use crate::loadgen::dataset::{AudioClip, Content, DatasetError, Prompt, RngState, RowInputs, token_count};

/// The name under which vLLM's tool sends every recording.
const FILE_NAME: &str = "audio.wav";

struct Row {
    text: String,
    /// Relative to the folder in which the tool runs.
    path: PathBuf,
    output_tokens: u32,
    line: usize,
}

/// Returns the prompts and the wanted number of them.
pub(super) fn prompts(
    output_len: Option<u32>,
    common: &VllmRows,
    inputs: &RowInputs<'_>,
    rng: &mut RngState,
) -> Result<(Vec<Prompt>, usize), DatasetError> {
    let mut rows = read(output_len, inputs)?;
    rng.python = Python::new(inputs.seed);
    if !common.keeps_order {
        rng.python.shuffle(&mut rows);
    }
    let wanted = match inputs.prompts {
        0 => rows.len(),
        count => count,
    };
    rows.truncate(wanted);
    let template = ChatTemplate::open(inputs.tokenizer).ok();
    let mut clips: HashMap<PathBuf, Arc<AudioClip>> = HashMap::new();
    let mut prompts = Vec::with_capacity(wanted);
    for (number, row) in rows.into_iter().enumerate() {
        let clip = match clips.get(&row.path) {
            Some(clip) => Arc::clone(clip),
            None => {
                let clip = Arc::new(clip(&row, inputs)?);
                clips.insert(row.path, Arc::clone(&clip));
                clip
            }
        };
        let text = match &template {
            Some(template) => template.render(&[json!({"role": "user", "content": row.text})], None, true)?,
            None => row.text,
        };
        let tokens = token_count(inputs.tokenizer.count(&text, true)?);
        prompts.push(identified(
            Content::Audio(clip),
            tokens,
            row.output_tokens,
            common,
            number,
        ));
    }
    Ok((prompts, wanted))
}

/// Reads a recording and writes it as vLLM's tool does.
fn clip(row: &Row, inputs: &RowInputs<'_>) -> Result<AudioClip, DatasetError> {
    let data_file = inputs.path()?;
    let malformed = |reason: &str| {
        let reason = format!("`{}`: {reason}", crate::base::text::shown_path(&row.path));
        malformed_line(inputs.dataset, data_file, row.line, &reason)
    };
    let file = fs::read(&row.path).map_err(|error| DatasetError::Unreadable {
        path: row.path.clone(),
        error,
    })?;
    let wav = match Wav::read(&file) {
        Ok(wav) => wav,
        Err(reason) => return Err(malformed(&reason)),
    };
    let Some(samples) = wav.samples_16(&file).filter(|samples| !samples.is_empty()) else {
        return Err(malformed(
            "the data set `custom_audio` supports only WAV files with 16-bit samples. Convert the file, or use \
             `matrix bench` without `--like` and with the data set `audio`, which sends files unchanged",
        ));
    };
    let bytes = wav_file(wav.channels, wav.rate, &samples);
    let seconds = wav.seconds().expect("the samples have 16 bits each");
    Ok(AudioClip::from_wav(FILE_NAME, bytes, seconds))
}

fn read(output_len: Option<u32>, inputs: &RowInputs<'_>) -> Result<Vec<Row>, DatasetError> {
    let path = inputs.path()?;
    let lines = Lines::read(path)?;
    let mut rows = Vec::new();
    for (line, text) in lines.iter() {
        let malformed = |reason: &str| malformed_line(inputs.dataset, path, line, reason);
        let row = parse_value(text).map_err(|error| malformed(&error.to_string()))?;
        let text = |key: &str| row.get(key).and_then(Value::as_str).map(str::to_owned);
        let own_len = row.get("output_tokens").and_then(Value::as_u64);
        let own_len = own_len.and_then(|tokens| u32::try_from(tokens).ok());
        rows.push(Row {
            text: text("prompt").ok_or_else(|| malformed("the row has no text in `prompt`"))?,
            path: text("audio")
                .ok_or_else(|| malformed("the row has no `audio` with the path of a recording"))?
                .into(),
            output_tokens: output_len.or(own_len).ok_or_else(|| {
                malformed("the row has no number in `output_tokens`, and no output length is set")
            })?,
            line,
        });
    }
    Ok(rows)
}
