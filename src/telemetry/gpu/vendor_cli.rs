//! Vendor tools that report all devices at once.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use super::{Look, Processes};
use crate::results::record::telemetry::Source;
use crate::telemetry::probe::{Probe, Reading};

/// Interval of the tool's runs. Some tools are Python programs that use much of a CPU second each time.
const PERIOD: Duration = Duration::from_secs(2);

/// Maximum size of a tool's output, in bytes.
const LONGEST: u64 = 16 << 20;

/// Timeout of a tool. Python tools take half a second to start.
const LIMIT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub(super) struct Program(PathBuf);

impl Program {
    /// The program in a `PATH`; `None` if it is not found.
    pub(super) fn find(name: &str, path: Option<&str>) -> Option<Self> {
        let folders = path?.split(':').filter(|folder| !folder.is_empty());
        let mut files = folders.map(|folder| Path::new(folder).join(name));
        files.find(|file| file.is_file()).map(Self)
    }

    /// Runs the program and returns its output, or a one-line error. The program is killed after [`LIMIT`].
    pub(super) fn ask(&self, args: &[&str]) -> Result<String, String> {
        let said = |what: String| format!("`{} {}` {what}", self.0.display(), args.join(" "));
        let mut child = Command::new(&self.0)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| said(format!("cannot be run: {error}")))?;
        let output = child.stdout.take().expect("its output is a pipe");
        let (told, hear) = mpsc::sync_channel(1);
        let reader = std::thread::Builder::new().name("matrix-tool".to_owned());
        let reading = reader.spawn(move || {
            let mut text = Vec::new();
            let read = output.take(LONGEST).read_to_end(&mut text);
            // After a timeout there is no receiver.
            let _ = told.send(read.map(|_| String::from_utf8_lossy(&text).into_owned()));
        });
        let text = match reading {
            Ok(_) => hear
                .recv_timeout(LIMIT)
                .map_err(|_| format!("gave no answer within {} s", LIMIT.as_secs())),
            Err(error) => Err(format!("cannot be heard: {error}")),
        };
        if text.is_err() {
            // It fails only if the program has ended meanwhile.
            let _ = child.kill();
        }
        let status = child.wait();
        let text = text.map_err(said)?;
        match (text, status) {
            (Ok(text), Ok(status)) if status.success() => Ok(text),
            (Ok(_), Ok(status)) => Err(said(format!("ended with {status}"))),
            (Err(error), _) | (_, Err(error)) => Err(said(format!("cannot be heard: {error}"))),
        }
    }
}

/// A tool that reports about devices.
pub(super) trait Tool: Clone + Send + 'static {
    const SOURCE: Source;

    /// Current values of all devices.
    fn looks(&self) -> Result<Vec<(u32, Look)>, String>;

    fn look(&self, device: u32) -> Result<Look, String> {
        let mut looks = self.looks()?.into_iter();
        let here = looks.find(|(index, _)| *index == device);
        here.map(|(_, look)| look)
            .ok_or_else(|| format!("the tool tells nothing about device {device}"))
    }

    /// One probe for all devices of a launch.
    fn probes(&self, devices: &[u32], processes: &Processes) -> Vec<Box<dyn Probe>> {
        vec![Box::new(All {
            tool: self.clone(),
            devices: devices.to_vec(),
            processes: processes.clone(),
        })]
    }
}

struct All<T> {
    tool: T,
    devices: Vec<u32>,
    processes: Processes,
}

impl<T: Tool> Probe for All<T> {
    fn source(&self) -> Source {
        T::SOURCE
    }

    fn period(&self) -> Duration {
        PERIOD
    }

    fn read(&mut self) -> Result<Vec<Reading>, String> {
        let mut looks = self.tool.looks()?;
        looks.retain(|(index, _)| self.devices.contains(index));
        let reading = |(index, look): (u32, Look)| {
            let mut values = look.values;
            if let Some(now) = look.processes {
                let seen = self.processes.see(index, &now);
                values.insert("processes".to_owned(), now.len() as f64);
                values.insert("foreign_processes".to_owned(), seen.foreign as f64);
            }
            Reading {
                device: Some(index),
                values,
            }
        };
        Ok(looks.into_iter().map(reading).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_answers_or_says_how_it_failed() {
        let shell = Program::find("sh", Some("/nowhere:/bin")).unwrap();
        assert_eq!(shell.ask(&["-c", "echo 7; echo x >&2"]).unwrap(), "7\n");
        let failed = shell.ask(&["-c", "exit 3"]).unwrap_err();
        assert!(failed.ends_with("ended with exit status: 3"), "{failed}");
        assert!(Program::find("sh", Some("/nowhere")).is_none());
        assert!(Program::find("sh", None).is_none());
    }
}
