//! Reads the rows of a published file as JSON objects: JSON lines, Parquet, or CSV with a header.

use std::fs::{self, File};
use std::path::Path;

use parquet::file::reader::SerializedFileReader;
use parquet::record::Field;
use serde_json::{Map, Value, json};

/// Reads all rows. The name of the file says which format it has.
///
/// # Errors
/// The file cannot be read, or is not of its format.
pub(crate) fn read_json_rows(path: &Path) -> Result<Vec<Value>, String> {
    let wrong = |why: String| format!("cannot read `{}`: {why}", path.display());
    if path.extension().is_some_and(|ending| ending == "parquet") {
        return parquet_rows(path).map_err(|error| wrong(error.to_string()));
    }
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    if path.extension().is_some_and(|ending| ending == "csv") {
        return Ok(csv_rows(&text));
    }
    let lines = (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line)| {
            serde_json::from_str(line).map_err(|error| wrong(format!("line {number} is not JSON: {error}")))
        })
        .collect()
}

fn parquet_rows(path: &Path) -> Result<Vec<Value>, parquet::errors::ParquetError> {
    let reader = SerializedFileReader::new(File::open(path)?)?;
    let object = |row: parquet::record::Row| {
        let columns = row.into_columns().into_iter();
        columns
            .map(|(name, field)| (name, json_value(&field)))
            .collect::<Map<String, Value>>()
    };
    reader
        .into_iter()
        .map(|row| Ok(Value::Object(object(row?))))
        .collect()
}

/// Texts, whole numbers and lists of them. Tasks have no others.
fn json_value(field: &Field) -> Value {
    match field {
        Field::Str(text) => json!(text),
        Field::Byte(number) => json!(number),
        Field::Short(number) => json!(number),
        Field::Int(number) => json!(number),
        Field::Long(number) => json!(number),
        Field::ListInternal(list) => list.elements().iter().map(json_value).collect(),
        _ => Value::Null,
    }
}

/// The rows of a CSV file below its header. Fields in quotes may have commas, line breaks and doubled quotes.
fn csv_rows(text: &str) -> Vec<Value> {
    let mut lines = csv_lines(text).into_iter();
    let header = lines.next().unwrap_or_default();
    let object = |fields: Vec<String>| header.iter().cloned().zip(fields.into_iter().map(Value::String));
    lines
        .map(|fields| Value::Object(object(fields).collect()))
        .collect()
}

fn csv_lines(text: &str) -> Vec<Vec<String>> {
    let (mut lines, mut fields, mut field) = (Vec::new(), Vec::new(), String::new());
    let mut is_quoted = false;
    let mut letters = text.trim_start_matches('\u{feff}').chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if is_quoted && letters.next_if_eq(&'"').is_some() => field.push('"'),
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(std::mem::take(&mut field)),
            '\r' if !is_quoted => {}
            '\n' if !is_quoted => {
                fields.push(std::mem::take(&mut field));
                lines.push(std::mem::take(&mut fields));
            }
            letter => field.push(letter),
        }
    }
    if !field.is_empty() || !fields.is_empty() {
        fields.push(field);
        lines.push(fields);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_all_formats_are_objects() {
        // Written by pyarrow 21, as the hub has such files.
        let parquet = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/fixtures/tasks/choices.parquet"
        );
        assert_eq!(
            read_json_rows(Path::new(parquet)).unwrap(),
            [
                json!({"question": "Which?", "subject": "a", "choices": ["x", "y"], "answer": 1}),
                json!({"question": "Where?", "subject": "b", "choices": ["here", "there"], "answer": 0}),
            ]
        );
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            read_json_rows(&path)
        };
        let csv = "\u{feff}a,b\r\n\"x, \"\"y\"\"\nz\",\n1,2";
        assert_eq!(
            write("rows.csv", csv).unwrap(),
            [json!({"a": "x, \"y\"\nz", "b": ""}), json!({"a": "1", "b": "2"})]
        );
        assert_eq!(write("rows.jsonl", "{\"a\": 1}\n\n").unwrap(), [json!({"a": 1})]);
        let error = write("rows.jsonl", "{\"a\": 1}\n{").unwrap_err();
        assert!(error.contains("line 2 is not JSON"), "{error}");
        assert!(write("rows.parquet", "PAR1").is_err());
    }
}
