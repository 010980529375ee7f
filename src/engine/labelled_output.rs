//! The output of an engine of several processes: one log, in which every line begins with the name of its process.

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex};

/// Longest line that is kept whole, in bytes.
const MAX_LINE: usize = 64 << 10;

/// Where the lines of all processes are written, one line at a time. The log ends when all copies are dropped.
#[derive(Clone)]
pub(super) struct LabelledOutput {
    writer: Arc<Mutex<io::PipeWriter>>,
}

/// The beginning of the lines of a process.
pub(super) fn label(name: &str) -> String {
    format!("[{name}] ")
}

impl LabelledOutput {
    pub(super) fn new(writer: io::PipeWriter) -> Self {
        Self {
            writer: Arc::new(Mutex::new(writer)),
        }
    }

    /// The output of the process with that name.
    ///
    /// Fails if there are no more file descriptors or threads.
    pub(super) fn of_process(&self, name: &str) -> io::Result<io::PipeWriter> {
        let (reader, writer) = io::pipe()?;
        let (output, label) = (self.clone(), label(name));
        std::thread::Builder::new()
            .name("engine-log".to_owned())
            .spawn(move || output.copy(reader, &label))?;
        Ok(writer)
    }

    fn copy(&self, mut reader: io::PipeReader, label: &str) {
        let mut buffer = vec![0; 64 << 10];
        let mut line = Vec::new();
        let mut is_after_return = false;
        loop {
            let count = match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            for byte in &buffer[..count] {
                let is_end = matches!(byte, b'\n' | b'\r');
                // `\r\n` ends one line.
                let is_second = *byte == b'\n' && is_after_return && line.is_empty();
                if is_end && !is_second || line.len() == MAX_LINE {
                    self.write_line(label, &line);
                    line.clear();
                }
                if !is_end {
                    line.push(*byte);
                }
                is_after_return = *byte == b'\r';
            }
        }
        if !line.is_empty() {
            self.write_line(label, &line);
        }
    }

    /// Fails if the log has ended, which is fine: the process must not block.
    fn write_line(&self, label: &str, line: &[u8]) {
        let text = [label.as_bytes(), line, b"\n"].concat();
        let mut writer = self.writer.lock().expect("writing does not panic");
        let _ = writer.write_all(&text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_all_processes_are_whole_and_have_their_names() {
        let (mut reader, writer) = io::pipe().unwrap();
        let output = LabelledOutput::new(writer);
        let mut first = output.of_process("rank 0").unwrap();
        let mut second = output.of_process("rank 1").unwrap();
        drop(output);
        first.write_all(b"load").unwrap();
        second.write_all(b"10%\r20%\r\n\nend").unwrap();
        first.write_all(b"ing\r\ndone\n").unwrap();
        drop((first, second));
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        let of = |name: &str| {
            let lines = text.lines().filter_map(|line| line.strip_prefix(name));
            lines.collect::<Vec<_>>()
        };
        assert_eq!(of("[rank 0] "), ["loading", "done"]);
        assert_eq!(of("[rank 1] "), ["10%", "20%", "", "end"]);
    }
}
