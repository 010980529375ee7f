//! The files that a bench writes.

use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::config::BenchConfig;
use crate::base::clock;
use crate::commands::error::CommandError;
use crate::commands::files::{self, open};
use crate::commands::output::redactor;
use crate::config::workload::Profile;

/// Checks before anything is sent that every output file can be written.
pub(super) fn check_outputs(config: &BenchConfig) -> Result<(), CommandError> {
    let line = line_path(config);
    let steady = config
        .steady_state
        .as_ref()
        .and_then(|steady| steady.output_file.as_deref());
    let files = [
        ("--output-file", Some(line.as_path())),
        ("--vllm-json", config.output.vllm_json.as_deref()),
        ("--steady-state-output-file", steady),
        ("--records", config.output.records.as_deref()),
    ];
    let named = files.map(|(flag, path)| Some((flag, path?)));
    let shared = shared_files(&named.into_iter().flatten().collect::<Vec<_>>());
    if !shared.is_empty() {
        return Err(CommandError::usage(format!("{shared}nothing was sent\n")));
    }
    let lines: String = files
        .into_iter()
        .filter_map(|(flag, path)| {
            let path = path?;
            let opened = match flag {
                // This file is written during the load.
                "--records" => files::refuse_pipe(path).and_then(|()| files::try_open(path)),
                // A link such as `/dev/stdout` leads to a pipe that has a reader.
                _ if path.is_symlink() => files::try_open(path),
                _ => files::refuse_pipe(path).and_then(|()| files::try_open(path)),
            };
            let error = opened.err()?;
            Some(format!(
                "error: cannot write `{}` ({flag}): {error}\n",
                path.display()
            ))
        })
        .collect();
    match lines.is_empty() {
        true => Ok(()),
        false => Err(CommandError::usage(format!("{lines}nothing was sent\n"))),
    }
}

/// Errors about two flags that name the same file. Devices and pipes may be shared.
fn shared_files(named: &[(&str, &Path)]) -> String {
    let resolved = |path: &Path| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
        let path = folder.join(path.file_name()?);
        Some(path.canonicalize().unwrap_or(path))
    };
    let is_device = |path: &Path| path.metadata().is_ok_and(|metadata| !metadata.is_file());
    let mut lines = String::new();
    for (place, (flag, path)) in named.iter().enumerate() {
        let real_path = resolved(path).filter(|path| !is_device(path));
        let earlier = named[..place]
            .iter()
            .find(|(_, other)| real_path.is_some() && resolved(other) == real_path);
        if let Some((other, _)) = earlier {
            lines.push_str(&format!(
                "error: `{other}` and `{flag}` name the same file, `{}`; name a file for each\n",
                path.display()
            ));
        }
    }
    lines
}

/// Returns the file for the result line.
pub(super) fn line_path(config: &BenchConfig) -> PathBuf {
    config.output.file.clone().unwrap_or_else(|| {
        PathBuf::from(format!(
            "{}_{}_{}",
            config.backend.name(),
            clock::local_date(),
            config.output.name_suffix
        ))
    })
}

/// Whether the result line is CSV. The classic form of the Python tool writes CSV into any file, whatever its
/// name.
pub(super) fn is_csv(config: &BenchConfig, path: &Path) -> bool {
    let is_named_so = path
        .extension()
        .is_some_and(|end| end.eq_ignore_ascii_case("csv"));
    config.profile == Profile::Classic && (is_named_so || config.output.compat_figures)
}

/// Appends to a file in one write, so that two benches do not mix their lines.
pub(super) fn append(path: &Path, text: &str) -> Result<(), CommandError> {
    append_whole(path, |file| {
        let text = format!("{}{}", missing_line_break(path), redactor().redact(text));
        file.write_all(text.as_bytes())
    })
}

/// Appends a text to a file in one write. An error contains the text.
pub(super) fn append_as_is(path: &Path, text: &str) -> Result<(), CommandError> {
    let redacted = redactor().redact(text);
    append_whole(path, |file| file.write_all(redacted.as_bytes()))
        .map_err(|error| with_lost_result(error, &redacted))
}

/// Appends all that `write` writes, or nothing if it does not fit on the disk. A lock makes other benches with the same
/// file wait.
fn append_whole(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), CommandError> {
    let is_new = !path.exists();
    let mut file = open(path).map_err(|error| write_error("append to", path, &error))?;
    // Devices and pipes have no locks.
    let _ = file.lock();
    let earlier = file.metadata().ok().filter(fs::Metadata::is_file);
    write(&mut file).map_err(|error| {
        let refusal = write_error("append to", path, &error);
        let is_undone = match earlier {
            None => true,
            Some(earlier) if is_new && earlier.len() == 0 => remove(path).is_ok(),
            Some(earlier) => file.set_len(earlier.len()).is_ok(),
        };
        match is_undone {
            true => refusal,
            false => refusal.with_text("  = note: the last line of the file is cut off\n"),
        }
    })
}

/// Returns a line break if the last line of the file is incomplete, as after a full disk.
fn missing_line_break(path: &Path) -> &'static str {
    let is_cut = || -> io::Result<bool> {
        let mut last = [b'\n'];
        if fs::metadata(path)?.is_file() {
            let mut file = File::open(path)?;
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        Ok(last != *b"\n")
    };
    // An empty file has no last byte.
    if is_cut().unwrap_or(false) { "\n" } else { "" }
}

/// Appends lines that are too many for one write.
pub(super) fn append_lines(path: &Path, lines: impl Iterator<Item = String>) -> Result<(), CommandError> {
    append_whole(path, |file| {
        let mut file = BufWriter::with_capacity(1 << 20, file);
        file.write_all(missing_line_break(path).as_bytes())?;
        for line in lines {
            file.write_all(redactor().redact(&line).as_bytes())?;
        }
        file.flush()
    })
}

/// Writes a file, replacing its content. An error means that the load ran; it contains the text, and the file is what it
/// was before.
pub(super) fn write_file(path: &Path, text: &str) -> Result<(), CommandError> {
    let redacted = redactor().redact(text);
    replace(path, redacted.as_bytes())
        .map_err(|error| with_lost_result(write_error("write", path, &error), &redacted))
}

/// Writes a new file beside the earlier one and renames it. What is no file, such as a device, is written itself.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A link keeps leading to the file.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let earlier = fs::metadata(&target).ok();
    if earlier.as_ref().is_some_and(|earlier| !earlier.is_file()) {
        return fs::write(&target, bytes);
    }
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
    let permissions = earlier.map_or_else(|| Permissions::from_mode(0o666), |earlier| earlier.permissions());
    let mut file = tempfile::Builder::new()
        .prefix(".matrix-")
        .permissions(permissions)
        .tempfile_in(folder.unwrap_or(Path::new(".")))?;
    file.write_all(bytes)?;
    file.persist(&target).map_err(|error| error.error)?;
    Ok(())
}

/// Removes a file; of a link, the file to which it leads.
fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path.canonicalize()?)
}

fn with_lost_result(error: CommandError, text: &str) -> CommandError {
    error.with_text(&format!("the result that was not written:\n{}\n", text.trim()))
}

fn write_error(what: &str, path: &Path, error: &io::Error) -> CommandError {
    CommandError::cannot_continue(format!("error: cannot {what} `{}`: {error}\n", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_not_appended_to_one_that_was_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        for (before, after) in [
            ("", "{}\n"),
            ("{\"a\":1}\n", "{\"a\":1}\n{}\n"),
            ("{\"a\"", "{\"a\"\n{}\n"),
        ] {
            fs::write(&path, before).unwrap();
            append(&path, "{}\n").unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), after);
            fs::write(&path, before).unwrap();
            append_lines(&path, ["{}\n".to_owned()].into_iter()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), after);
        }
    }
}
