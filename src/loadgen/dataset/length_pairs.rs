//! Reads pairs of prompt and output lengths from CSV or JSON lines.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::DatasetError;
use crate::base::regular_file;
use crate::config::dataset::DatasetName;
use crate::config::workload::Workload;

/// Prompt and output length.
pub(super) type LengthPair = [u32; 2];

/// A pair in JSON: `{"input": 512, "output": 128}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedPair {
    #[serde(alias = "input_len", alias = "input_length", alias = "input_tokens")]
    input: u32,
    #[serde(alias = "output_len", alias = "output_length", alias = "output_tokens")]
    output: u32,
}

/// Checks the file with pairs of lengths that a workload names, if it names one.
pub(crate) fn check(work: &Workload) -> Result<(), DatasetError> {
    let facts = work.facts();
    let (Some(file), Some(input), Some(output)) = (facts.lengths_file(), facts.input_len(), facts.output_len)
    else {
        return Ok(());
    };
    read(work.dataset.name(), Path::new(file), [input, output]).map(drop)
}

/// Reads all pairs, of which none may exceed `max`.
pub(super) fn read(
    dataset: DatasetName,
    path: &Path,
    max: LengthPair,
) -> Result<Vec<LengthPair>, DatasetError> {
    let read = regular_file::check(path).and_then(|()| fs::read_to_string(path));
    let text = read.map_err(|error| DatasetError::Unreadable {
        path: path.to_owned(),
        error,
    })?;
    parse(&text, max).map_err(|reason| DatasetError::Malformed {
        dataset,
        path: path.to_owned(),
        reason,
    })
}

fn parse(text: &str, max: LengthPair) -> Result<Vec<LengthPair>, String> {
    let mut pairs = Vec::new();
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
        let pair = match parse_line(line) {
            Ok(pair) => pair,
            // The first line may name the columns.
            Err(_) if pairs.is_empty() && number == 1 && is_header(line) => continue,
            Err(why) => {
                return Err(format!(
                    "line {number}: {why}: `{}`",
                    line.chars().take(80).collect::<String>()
                ));
            }
        };
        for (side, length, max, option) in [
            ("prompt", pair[0], max[0], "input_len"),
            ("output", pair[1], max[1], "output_len"),
        ] {
            if length == 0 {
                return Err(format!(
                    "line {number}: the {side} has 0 tokens; write at least 1"
                ));
            }
            if length > max {
                return Err(format!(
                    "line {number}: the {side} has {length} tokens, more than the maximum of {max} (`{option}`, `--random-{}`); raise \
                     the maximum, or remove the line",
                    option.replace('_', "-")
                ));
            }
        }
        pairs.push(pair);
    }
    match pairs.is_empty() {
        true => Err("the file has no line with an input length and an output length".to_owned()),
        false => Ok(pairs),
    }
}

fn parse_line(line: &str) -> Result<LengthPair, String> {
    if line.starts_with('{') {
        let pair: NamedPair = serde_json::from_str(line).map_err(|error| error.to_string())?;
        return Ok([pair.input, pair.output]);
    }
    if line.starts_with('[') {
        return serde_json::from_str(line).map_err(|error| error.to_string());
    }
    let columns: Vec<&str> = line.split(',').map(str::trim).collect();
    let &[input, output] = columns.as_slice() else {
        return Err(format!("{} columns instead of two", columns.len()));
    };
    let number = |text: &str| {
        text.parse()
            .map_err(|_| format!("`{text}` is not a number of tokens"))
    };
    Ok([number(input)?, number(output)?])
}

/// Whether a line of CSV has names instead of numbers.
fn is_header(line: &str) -> bool {
    line.split(',').count() == 2
        && !line.starts_with(['{', '['])
        && line.chars().all(|letter| !letter.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_and_json_lines_are_read() {
        for text in [
            "input,output\n10,20\n\n30, 4\n",
            "10,20\r\n30,4",
            "{\"input\": 10, \"output\": 20}\n{\"input_len\": 30, \"output_len\": 4}\n",
            "[10, 20]\n[30, 4]\n",
        ] {
            assert_eq!(parse(text, [100, 100]).unwrap(), [[10, 20], [30, 4]], "{text}");
        }
    }

    #[test]
    fn what_is_no_pair_is_refused_with_its_line() {
        for (text, why) in [
            ("", "no line with"),
            ("input,output\n", "no line with"),
            ("10,20\nx,5\n", "line 2: `x` is not a number"),
            ("10,20,30\n", "line 1: 3 columns"),
            ("10,-5\n", "line 1: `-5` is not a number"),
            ("10,1.5\n", "line 1: `1.5` is not a number"),
            ("5,0\n", "line 1: the output has 0 tokens"),
            (
                "10,20\n200,5\n",
                "line 2: the prompt has 200 tokens, more than the maximum of 100",
            ),
            ("{\"input\": 5}\n", "line 1: missing field `output`"),
            ("[1, 2, 3]\n", "line 1: "),
            ("input,output\ninput,output\n", "line 2: `input` is not a number"),
        ] {
            let error = parse(text, [100, 100]).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
