//! The `audio` data set: recordings from a folder or from a file of JSON lines. Their bytes are sent as they are.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::audio_clip::AudioClip;
use super::jsonl::{Lines, malformed_line};
use super::{Content, DatasetError, MakeRows, Prompt, RngState, RowInputs, Rows};
use crate::base::audio::{AudioFormat, MAX_SECONDS};
use crate::base::text::shown_path;
use crate::config::dataset::DatasetName;
use crate::config::dataset::audio::Audio;
use crate::config::workload::MAX_AUDIO_BYTES;

/// Keys of a row for the path of its recording: that of `vllm bench serve`, and that of NeMo's manifests.
const PATH_KEYS: [&str; 2] = ["audio", "audio_filepath"];

/// A row before its recording is read.
#[derive(Debug, Default)]
pub(super) struct Row {
    path: PathBuf,
    /// Its length as the row states it.
    seconds: Option<f64>,
    /// Limit of output tokens.
    output_tokens: Option<u32>,
    /// Text and language of the request.
    fields: Vec<(&'static str, Value)>,
}

impl MakeRows for Audio {
    /// Reads the recordings in the order of the lines, or of the paths in the folder.
    fn rows(&self, inputs: &RowInputs<'_>, _rng: &mut RngState) -> Result<Rows, DatasetError> {
        let path = inputs.path()?;
        let mut rows = match path.is_dir() {
            true => folder_rows(path)?,
            false => line_rows(path)?,
        };
        if inputs.prompts > 0 {
            rows.truncate(inputs.prompts);
        }
        let mut clips = Clips::default();
        let mut prompts = Vec::with_capacity(rows.len());
        for row in rows {
            let clip = clips.read(path, &row)?;
            let mut prompt = audio_prompt(clip, self.output_len.or(row.output_tokens));
            for (key, value) in row.fields {
                if key == "prompt"
                    && let Some(text) = value.as_str()
                {
                    let tokens = inputs.tokenizer.count(text, false)?;
                    prompt.prompt_tokens = super::token_count(tokens);
                }
                prompt.extras_mut().body.insert(key.to_owned(), value);
            }
            prompts.push(prompt);
        }
        let mut rows = Rows::new(prompts);
        rows.printed_lines = audio_lines(&rows.prompts);
        Ok(rows)
    }
}

/// Returns a request that sends a recording. Its tokens are known only to the server.
pub(super) fn audio_prompt(clip: Arc<AudioClip>, output_len: Option<u32>) -> Prompt {
    Prompt::new(Content::Audio(clip), 0, output_len.unwrap_or(0))
}

/// Says how long the recordings are together.
pub(super) fn audio_lines(prompts: &[Prompt]) -> Vec<String> {
    let seconds = prompts.iter().map(|prompt| match &prompt.content {
        Content::Audio(clip) => clip.seconds(),
        _ => None,
    });
    let known: Vec<f64> = seconds.flatten().collect();
    let sum: f64 = known.iter().sum();
    let unknown = prompts.len() - known.len();
    let mut lines = vec![format!("#Recordings: {}", prompts.len())];
    if !known.is_empty() {
        lines.push(format!("#Audio seconds: {sum:.2}"));
    }
    if unknown > 0 {
        lines.push(format!("Number of recordings with an unknown length: {unknown}"));
    }
    lines
}

/// The files of all formats in a folder and its folders, by their paths.
pub(super) fn folder_rows(folder: &Path) -> Result<Vec<Row>, DatasetError> {
    let (mut paths, mut lines) = (Vec::new(), None::<PathBuf>);
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let unreadable = |error| DatasetError::Unreadable {
            path: folder.clone(),
            error,
        };
        for entry in fs::read_dir(&folder).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let path = entry.path();
            // A link to a folder could lead back into it.
            if entry.file_type().map_err(unreadable)?.is_dir() {
                folders.push(path);
            } else if AudioFormat::from_name(&entry.file_name().to_string_lossy()).is_some() {
                paths.push(path);
            } else if path.extension().is_some_and(|ending| ending == "jsonl") {
                lines = lines.into_iter().chain([path]).min();
            }
        }
    }
    paths.sort();
    if paths.is_empty() {
        let reason = format!(
            "no file in this folder has one of the endings {}",
            AudioFormat::endings()
        );
        return Err(malformed(
            folder,
            &match lines {
                None => reason,
                Some(lines) => format!(
                    "{reason}; to use the JSON lines file of the folder, write its path: `{}`",
                    shown_path(&lines)
                ),
            },
        ));
    }
    let row = |path| Row {
        path,
        ..Row::default()
    };
    Ok(paths.into_iter().map(row).collect())
}

fn line_rows(path: &Path) -> Result<Vec<Row>, DatasetError> {
    let lines = Lines::read(path)?;
    let mut rows = Vec::new();
    for (number, line) in lines.iter() {
        let malformed = |reason: &str| malformed_line(DatasetName::Audio, path, number, reason);
        let row: Value = serde_json::from_str(line).map_err(|error| malformed(&error.to_string()))?;
        rows.push(line_row(&row, path).map_err(|reason| malformed(&reason))?);
    }
    match rows.is_empty() {
        true => Err(malformed(path, "the file has no rows")),
        false => Ok(rows),
    }
}

fn line_row(row: &Value, file: &Path) -> Result<Row, String> {
    let get = |key: &str| row.get(key).filter(|value| !value.is_null());
    let Some(path) = PATH_KEYS.iter().find_map(|key| get(key)) else {
        return Err("the row has no `audio` with the path of a recording".to_owned());
    };
    let path = path
        .as_str()
        .ok_or("`audio` is not the path of a file; write the path of a WAV, FLAC or MP3 file")?;
    let text = |key: &'static str, name: &'static str| {
        let value = get(key)?;
        Some(match value.as_str() {
            Some(_) => Ok((name, value.clone())),
            None => Err(format!("`{key}` must be a string")),
        })
    };
    let fields = [
        text("prompt", "prompt"),
        text("language", "language"),
        text("lang", "language"),
    ];
    let seconds = get("duration").map(|value| {
        let seconds = value.as_f64().filter(|seconds| *seconds > 0.0);
        let seconds = seconds.ok_or("`duration` must be a number of seconds above 0")?;
        match seconds > MAX_SECONDS {
            true => Err(format!(
                "`duration` is {value} s, but a recording may have at most {MAX_SECONDS} s (7 days)"
            )),
            false => Ok(seconds),
        }
    });
    let output_tokens = get("output_tokens").map(|value| {
        let tokens = value.as_u64().and_then(|tokens| u32::try_from(tokens).ok());
        tokens
            .filter(|tokens| *tokens > 0)
            .ok_or("`output_tokens` must be a whole number above 0")
    });
    Ok(Row {
        path: file.with_file_name("").join(path),
        seconds: seconds.transpose()?,
        output_tokens: output_tokens.transpose()?,
        fields: fields.into_iter().flatten().collect::<Result<_, _>>()?,
    })
}

/// The recordings that were read, each once.
#[derive(Default)]
struct Clips {
    read: HashMap<PathBuf, Arc<AudioClip>>,
    bytes: u64,
}

impl Clips {
    fn read(&mut self, data_file: &Path, row: &Row) -> Result<Arc<AudioClip>, DatasetError> {
        let path = &row.path;
        if let Some(clip) = self.read.get(path) {
            return Ok(Arc::clone(clip));
        }
        let unreadable = |error| DatasetError::Unreadable {
            path: path.clone(),
            error,
        };
        let about = fs::metadata(path).map_err(|error| match fs::read_link(path) {
            Ok(target) if error.kind() == ErrorKind::NotFound => {
                let (link, target) = (shown_path(path), shown_path(&target));
                malformed(
                    data_file,
                    &format!("`{link}` is a symbolic link to `{target}`, which does not exist"),
                )
            }
            _ => unreadable(error),
        })?;
        if !about.is_file() {
            return Err(malformed(
                data_file,
                &format!("`{}` is not a file", shown_path(path)),
            ));
        }
        self.bytes += about.len();
        if self.bytes > MAX_AUDIO_BYTES {
            let reason = format!(
                "the first {} recordings together need {:.1} GiB of memory, more than the limit of {} GiB; request fewer prompts",
                self.read.len() + 1,
                self.bytes as f64 / f64::from(1 << 30),
                MAX_AUDIO_BYTES >> 30
            );
            return Err(malformed(data_file, &reason));
        }
        let bytes = fs::read(path).map_err(unreadable)?;
        let clip = AudioClip::from_file(path, bytes, row.seconds)
            .map_err(|reason| malformed(data_file, &format!("`{}`: {reason}", shown_path(path))))?;
        let clip = Arc::new(clip);
        self.read.insert(path.clone(), Arc::clone(&clip));
        Ok(clip)
    }
}

fn malformed(path: &Path, reason: &str) -> DatasetError {
    DatasetError::Malformed {
        dataset: DatasetName::Audio,
        path: path.to_owned(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::base::audio::wav_file;
    use crate::config::workload::{Profile, Workload};
    use crate::loadgen::dataset::tokenizer::Tokenizer;
    use crate::loadgen::dataset::{PreparedPrompts, prepare};

    fn rows(path: &Path, prompts: u32) -> Result<PreparedPrompts, DatasetError> {
        let mut workload = Workload::with(Audio { output_len: None });
        workload.prompts = prompts;
        prepare(&workload, Profile::Current, 1, &Tokenizer::bytes(), Some(path))
    }

    fn clip(prompt: &Prompt) -> &Arc<AudioClip> {
        match &prompt.content {
            Content::Audio(clip) => clip,
            other => panic!("{other:?}"),
        }
    }

    fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        folder
    }

    #[test]
    fn a_folder_gives_its_recordings_by_path_and_nothing_else() {
        let wav = |seconds: usize| wav_file(1, 8000, &vec![5; seconds * 8000]);
        let folder = folder(&[
            ("b/two.wav", &wav(2)),
            ("a.wav", &wav(1)),
            ("b/c/three.mp3", b"ID3"),
            ("notes.txt", b"no"),
        ]);
        let all = rows(folder.path(), 0).unwrap();
        let facts: Vec<_> = all
            .prompts
            .iter()
            .map(|prompt| (clip(prompt).name(), clip(prompt).seconds()))
            .collect();
        assert_eq!(
            facts,
            [("a.wav", Some(1.0)), ("three.mp3", None), ("two.wav", Some(2.0))]
        );
        assert_eq!(&*clip(&all.prompts[0]).bytes(), &wav(1)[..]);
        assert_eq!(
            all.printed_lines,
            [
                "#Recordings: 3",
                "#Audio seconds: 3.00",
                "Number of recordings with an unknown length: 1"
            ]
        );
        assert_eq!(rows(folder.path(), 2).unwrap().prompts.len(), 2);
    }

    #[test]
    fn lines_name_recordings_with_what_is_sent_beside_them() {
        let lines = [
            json!({"audio": "a.wav", "prompt": "Hello", "language": "en", "output_tokens": 9, "text": "said"}),
            json!({"audio_filepath": "c.mp3", "duration": 2.5, "lang": "de"}),
            json!({"audio": "a.wav"}),
        ];
        let text = lines.map(|line| line.to_string()).join("\n");
        let folder = folder(&[
            ("a.wav", &wav_file(1, 8000, &[5; 800])),
            ("c.mp3", b"ID3"),
            ("rows.jsonl", text.as_bytes()),
        ]);
        let all = rows(&folder.path().join("rows.jsonl"), 0).unwrap().prompts;
        let facts: Vec<_> = all
            .iter()
            .map(|prompt| (clip(prompt).seconds(), prompt.prompt_tokens, prompt.output_tokens))
            .collect();
        assert_eq!(facts, [(Some(0.1), 5, 9), (Some(2.5), 0, 0), (Some(0.1), 0, 0)]);
        let fields = |row: usize| {
            all[row]
                .extras
                .as_ref()
                .map(|extras| Value::Object(extras.body.clone()))
        };
        assert_eq!(fields(0), Some(json!({"prompt": "Hello", "language": "en"})));
        assert_eq!(fields(1), Some(json!({"language": "de"})));
        assert_eq!(fields(2), None);
        // The same file is in memory once.
        assert!(Arc::ptr_eq(clip(&all[0]), clip(&all[2])));
    }

    #[test]
    fn what_is_no_recording_is_refused_with_its_place() {
        let refused = |row: Value| {
            let folder = folder(&[
                ("bad.wav", b"RIFX"),
                ("cut.wav", &wav_file(1, 8000, &[5; 800])[..100]),
                ("empty.mp3", b""),
                ("slow.wav", &wav_file(1, 1, &[5; 604_801])),
                ("a.aiff", b"FORM"),
                ("rows.jsonl", row.to_string().as_bytes()),
            ]);
            rows(&folder.path().join("rows.jsonl"), 0)
                .unwrap_err()
                .to_string()
        };
        for (row, reason) in [
            (json!({"audio": "missing.wav"}), "missing.wav"),
            (json!({"audio": "bad.wav"}), "bad.wav`: the file is not a WAV"),
            (json!({"audio": "cut.wav"}), "cut.wav`: the WAV file is cut off"),
            (json!({"audio": "empty.mp3"}), "empty.mp3`: it is empty"),
            (json!({"audio": "a.aiff"}), "none of the endings `.wav`"),
            (json!({"audio": {"bytes": ""}}), "line 1: `audio` is not the path"),
            (json!({"file": "a.wav"}), "line 1: the row has no `audio`"),
            (json!({"audio": "a.wav", "duration": 0}), "line 1: `duration`"),
            (
                json!({"audio": "a.wav", "duration": 1e300}),
                "line 1: `duration` is 1e+300 s, but a recording may have at most 604800 s (7 days)",
            ),
            (
                json!({"audio": "slow.wav"}),
                "slow.wav`: the header of the file says that the audio takes 604801 s, but at most 604800 s",
            ),
            (
                json!({"audio": "a.wav", "output_tokens": -1}),
                "line 1: `output_tokens` must be",
            ),
            (
                json!({"audio": "a.wav", "prompt": 5}),
                "line 1: `prompt` must be a string",
            ),
        ] {
            let error = refused(row.clone());
            assert!(error.contains(reason), "{row}: {error}");
        }
        let nothing = folder(&[("a.txt", b"x")]);
        assert!(
            rows(nothing.path(), 0)
                .unwrap_err()
                .to_string()
                .contains("no file in this folder")
        );
        let only_lines = folder(&[("b.jsonl", b"{}"), ("a.jsonl", b"{}")]);
        let error = rows(only_lines.path(), 0).unwrap_err().to_string();
        assert!(
            error.contains("write its path: `") && error.ends_with("a.jsonl`"),
            "{error}"
        );
        let linked = folder(&[]);
        std::os::unix::fs::symlink("gone.wav", linked.path().join("a.wav")).unwrap();
        let error = rows(linked.path(), 0).unwrap_err().to_string();
        assert!(
            error.ends_with("a.wav` is a symbolic link to `gone.wav`, which does not exist"),
            "{error}"
        );
        let named = folder(&[("a\nb\u{1b}[31m.wav", b"no")]);
        let error = rows(named.path(), 0).unwrap_err().to_string();
        assert!(
            error.contains("a\\nb\\u{1b}[31m.wav`: the file is not a WAV file"),
            "{error}"
        );
        let empty = folder(&[("rows.jsonl", b"\n \n")]);
        let error = rows(&empty.path().join("rows.jsonl"), 0).unwrap_err();
        assert!(error.to_string().contains("the file has no rows"), "{error}");
    }

    #[test]
    fn recordings_that_memory_does_not_hold_are_refused_before_they_are_read() {
        let folder = folder(&[("a.mp3", b"ID3")]);
        let huge = fs::File::create(folder.path().join("b.mp3")).unwrap();
        // The file takes no space on disk.
        huge.set_len(MAX_AUDIO_BYTES).unwrap();
        let error = rows(folder.path(), 0).unwrap_err().to_string();
        let says = "the first 2 recordings together need 4.0 GiB of memory, more than the limit of 4 GiB; request fewer prompts";
        assert!(error.contains(says), "{error}");
        assert_eq!(rows(folder.path(), 1).unwrap().prompts.len(), 1);
    }
}
