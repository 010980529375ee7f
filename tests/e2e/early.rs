//! Signals that come before anything was started.

use std::fs;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::Bench;

/// Each command waits for its matrix: nobody writes into the pipe that it reads it from.
#[test]
fn a_signal_before_anything_was_started_ends_every_command_with_130() {
    let bench = Bench::of("name: t\n");
    fs::remove_file(bench.matrix()).expect("it was made");
    rustix::fs::mkfifoat(rustix::fs::CWD, bench.matrix(), 0o600.into()).expect("a pipe can be made");
    for command in ["run", "nightly", "noise", "bisect", "plan", "check"] {
        for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
            let mut child = bench
                .command(&[command, "matrices/m.yaml"])
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the binary runs");
            // This returns once the other side is open.
            let writer = fs::OpenOptions::new().write(true).open(bench.matrix());
            let _writer = writer.expect("it reads the matrix");
            let id = i32::try_from(child.id()).expect("ids are small");
            kill_process(Pid::from_raw(id).expect("it is an id"), signal).expect("it lives");
            let status = child.wait().expect("it ends");
            assert_eq!(status.code(), Some(130), "{command}: {signal:?}: {status}");
        }
    }
    assert!(!bench.results().exists(), "nothing was begun");
}
