//! Vendor tools that report all devices at once.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use super::{DeviceProcesses, DeviceSnapshot};
use crate::results::record::telemetry::TelemetrySource;
use crate::telemetry::probe::{DeviceReading, Probe};

/// Interval of the tool's runs. Some tools are Python programs that use much of a CPU second each time.
const PERIOD: Duration = Duration::from_secs(2);

/// Maximum size of a tool's output, in bytes.
const MAX_ANSWER_BYTES: u64 = 16 << 20;

/// Timeout of a tool. Python tools take half a second to start.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub(super) struct Program(PathBuf);

impl Program {
    /// The program in a `PATH`; `None` if it is not found.
    pub(super) fn find(name: &str, path: Option<&str>) -> Option<Self> {
        let folders = path?.split(':').filter(|folder| !folder.is_empty());
        let mut files = folders.map(|folder| Path::new(folder).join(name));
        files.find(|file| file.is_file()).map(Self)
    }

    /// Runs the program and returns its output, or a one-line error. The program is killed after [`ANSWER_TIMEOUT`].
    pub(super) fn run(&self, args: &[&str]) -> Result<String, String> {
        let with_command = |what: String| format!("`{} {}` {what}", self.0.display(), args.join(" "));
        let mut child = Command::new(&self.0)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| with_command(format!("cannot be run: {error}")))?;
        let output = child.stdout.take().expect("its output is a pipe");
        let (sender, receiver) = mpsc::sync_channel(1);
        let reader = std::thread::Builder::new().name("matrix-tool".to_owned());
        let reading = reader.spawn(move || {
            let mut text = Vec::new();
            let read = output.take(MAX_ANSWER_BYTES).read_to_end(&mut text);
            // After a timeout there is no receiver.
            let _ = sender.send(read.map(|_| String::from_utf8_lossy(&text).into_owned()));
        });
        let text = match reading {
            Ok(_) => receiver
                .recv_timeout(ANSWER_TIMEOUT)
                .map_err(|_| format!("did not respond within {} s", ANSWER_TIMEOUT.as_secs())),
            Err(error) => Err(format!("has unreadable output: {error}")),
        };
        if text.is_err() {
            // It fails only if the program has ended meanwhile.
            let _ = child.kill();
        }
        let status = child.wait();
        let text = text.map_err(with_command)?;
        match (text, status) {
            (Ok(text), Ok(status)) if status.success() => Ok(text),
            (Ok(_), Ok(status)) => Err(with_command(format!("ended with {status}"))),
            (Err(error), _) | (_, Err(error)) => Err(with_command(format!("has unreadable output: {error}"))),
        }
    }
}

/// A tool that reports about devices.
pub(super) trait Tool: Clone + Send + 'static {
    const SOURCE: TelemetrySource;

    /// Current values of all devices.
    fn snapshots(&self) -> Result<Vec<(u32, DeviceSnapshot)>, String>;

    fn snapshot(&self, device: u32) -> Result<DeviceSnapshot, String> {
        let mut snapshots = self.snapshots()?.into_iter();
        let snapshot = snapshots.find(|(index, _)| *index == device);
        snapshot
            .map(|(_, look)| look)
            .ok_or_else(|| format!("the GPU tool does not report device {device}"))
    }

    /// One probe for all devices of a launch.
    fn probes(&self, devices: &[u32], processes: &DeviceProcesses) -> Vec<Box<dyn Probe>> {
        vec![Box::new(ToolProbe {
            tool: self.clone(),
            devices: devices.to_vec(),
            processes: processes.clone(),
        })]
    }
}

struct ToolProbe<T> {
    tool: T,
    devices: Vec<u32>,
    processes: DeviceProcesses,
}

impl<T: Tool> Probe for ToolProbe<T> {
    fn source(&self) -> TelemetrySource {
        T::SOURCE
    }

    fn period(&self) -> Duration {
        PERIOD
    }

    fn read(&mut self) -> Result<Vec<DeviceReading>, String> {
        let mut snapshots = self.tool.snapshots()?;
        snapshots.retain(|(index, _)| self.devices.contains(index));
        let reading = |(index, look): (u32, DeviceSnapshot)| {
            let mut values = look.values;
            if let Some(now) = look.processes {
                let occupancy = self.processes.record(index, &now);
                values.insert("processes".to_owned(), now.len() as f64);
                values.insert("foreign_processes".to_owned(), occupancy.foreign as f64);
            }
            DeviceReading {
                device: Some(index),
                values,
            }
        };
        Ok(snapshots.into_iter().map(reading).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_answers_or_says_how_it_failed() {
        let shell = Program::find("sh", Some("/nowhere:/bin")).unwrap();
        assert_eq!(shell.run(&["-c", "echo 7; echo x >&2"]).unwrap(), "7\n");
        let failed = shell.run(&["-c", "exit 3"]).unwrap_err();
        assert!(failed.ends_with("ended with exit status: 3"), "{failed}");
        assert!(Program::find("sh", Some("/nowhere")).is_none());
        assert!(Program::find("sh", None).is_none());
    }
}
