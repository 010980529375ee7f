//! Reads rows with named fields from JSON lines, a JSON list, or Parquet.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parquet::file::reader::SerializedFileReader;
use parquet::record::Field;
use serde_json::Value;

use super::DatasetError;
use super::jsonl::{Lines, malformed_line, parse_value};
use crate::config::dataset::DatasetName;

#[derive(Debug, Default)]
pub(super) struct Record {
    texts: BTreeMap<String, String>,
    files: BTreeMap<String, Vec<u8>>,
}

impl Record {
    pub(super) fn text(&self, field: &str) -> Option<&str> {
        self.texts.get(field).map(String::as_str)
    }

    /// Returns the content of a file field: bytes in Parquet; in JSON a data URI or a file path relative to
    /// the data file.
    pub(super) fn file(&self, field: &str, data_file: &Path) -> Option<Result<Vec<u8>, String>> {
        if let Some(bytes) = self.files.get(field) {
            return Some(Ok(bytes.clone()));
        }
        let text = self.text(field)?;
        if let Some(uri) = text.strip_prefix("data:") {
            let encoded = uri.split_once(";base64,").map_or("", |(_, encoded)| encoded);
            return Some(
                STANDARD
                    .decode(encoded)
                    .map_err(|error| format!("the field `{field}` is not valid base64: {error}")),
            );
        }
        let path = data_file.with_file_name("").join(text);
        Some(
            fs::read(&path)
                .map_err(|error| format!("cannot read `{}`: {error}", crate::base::text::shown_path(&path))),
        )
    }
}

/// Reads all rows of a file. Its first bytes tell whether it is Parquet, a JSON list or JSON lines.
pub(super) fn read(dataset: DatasetName, path: &Path) -> Result<Vec<Record>, DatasetError> {
    let unreadable = |error: std::io::Error| DatasetError::Unreadable {
        path: path.to_owned(),
        error,
    };
    let mut prefix = [0; 4];
    let has_four = std::io::Read::read_exact(&mut File::open(path).map_err(unreadable)?, &mut prefix).is_ok();
    if has_four && &prefix == b"PAR1" {
        return parquet(path).map_err(|error| DatasetError::Malformed {
            dataset,
            path: path.to_owned(),
            reason: error.to_string(),
        });
    }
    if prefix.trim_ascii_start().starts_with(b"[") {
        let text = fs::read_to_string(path).map_err(unreadable)?;
        let list = parse_value(&text).map_err(|error| DatasetError::Malformed {
            dataset,
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        let Value::Array(rows) = list else {
            unreachable!("JSON that begins with `[` is a list");
        };
        return Ok(rows.into_iter().map(to_record).collect());
    }
    let lines = Lines::read(path)?;
    lines
        .iter()
        .map(|(number, line)| {
            let row = parse_value(line)
                .map_err(|error| malformed_line(dataset, path, number, &error.to_string()))?;
            Ok(to_record(row))
        })
        .collect()
}

/// Keeps the text fields of a JSON object.
fn to_record(row: Value) -> Record {
    let mut record = Record::default();
    if let Value::Object(fields) = row {
        for (name, field) in fields {
            if let Value::String(text) = field {
                record.texts.insert(name, text);
            }
        }
    }
    record
}

/// Reads a Parquet file. Files are groups of `bytes` and `path`, as Hugging Face's libraries store them.
fn parquet(path: &Path) -> Result<Vec<Record>, parquet::errors::ParquetError> {
    let reader = SerializedFileReader::new(File::open(path)?)?;
    let mut records = Vec::new();
    for row in reader {
        let mut record = Record::default();
        for (name, field) in row?.into_columns() {
            match field {
                Field::Str(text) => drop(record.texts.insert(name, text)),
                Field::Bytes(bytes) => drop(record.files.insert(name, bytes.data().to_vec())),
                Field::Group(parts) => {
                    for (part, field) in parts.into_columns() {
                        if let ("bytes", Field::Bytes(bytes)) = (part.as_str(), field) {
                            record.files.insert(name.clone(), bytes.data().to_vec());
                        }
                    }
                }
                _ => {}
            }
        }
        records.push(record);
    }
    Ok(records)
}
