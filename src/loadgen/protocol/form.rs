//! Request bodies that are forms: `multipart/form-data`, RFC 7578.

use serde_json::{Map, Value};

use super::encode::EncodedBody;
use crate::config::api::ClientStyle;
use crate::loadgen::dataset::AudioClip;
use crate::loadgen::request::SharedFile;

/// Writes the fields of a form and a file under the name `file`. The boundary is made of the file's digest, so that the
/// file cannot contain it.
///
/// `vllm bench serve` puts the file before the fields, and writes booleans as Python prints them.
pub(super) fn encode(fields: &Map<String, Value>, clip: &AudioClip, style: ClientStyle) -> EncodedBody {
    let boundary = format!("matrix-{}", clip.digest());
    let is_python = style == ClientStyle::VllmServe;
    let mut own = Vec::new();
    let mut at = 0;
    if is_python {
        at = begin_file(&mut own, &boundary, clip);
    }
    for (name, value) in fields {
        match value {
            Value::Array(values) => {
                let values = values.iter();
                values.for_each(|value| write_field(&mut own, &boundary, name, &text(value, is_python)));
            }
            value => write_field(&mut own, &boundary, name, &text(value, is_python)),
        }
    }
    if !is_python {
        at = begin_file(&mut own, &boundary, clip);
    }
    own.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    EncodedBody {
        media_type: format!("multipart/form-data; boundary={boundary}").into(),
        own,
        file: Some(SharedFile {
            at,
            bytes: clip.bytes(),
        }),
    }
}

/// Writes the head of the file's part and its end. Returns the place of the file between them.
fn begin_file(own: &mut Vec<u8>, boundary: &str, clip: &AudioClip) -> usize {
    let head = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{}\"\r\nContent-Type: {}\r\n\r\n",
        quoted(clip.name()),
        clip.media_type()
    );
    own.extend_from_slice(head.as_bytes());
    let at = own.len();
    own.extend_from_slice(b"\r\n");
    at
}

fn write_field(own: &mut Vec<u8>, boundary: &str, name: &str, value: &str) {
    let field = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"{}\"\r\n\r\n{value}\r\n",
        quoted(name)
    );
    own.extend_from_slice(field.as_bytes());
}

/// Returns the value of a field as text; of objects, their JSON.
fn text(value: &Value, is_python: bool) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) if is_python => "True".to_owned(),
        Value::Bool(false) if is_python => "False".to_owned(),
        Value::Null => "None".to_owned(),
        value => value.to_string(),
    }
}

/// Returns a name that can stand between quotation marks.
fn quoted(name: &str) -> String {
    name.replace('"', "%22").replace(['\r', '\n'], "%0A")
}
