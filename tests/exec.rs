//! The shim that ties an engine to the life of `matrix`, as a process.

#[path = "support/binary.rs"]
mod binary;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim().chars().next();
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

fn until(mut what: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if what() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("what is waited for does not come within 20 s");
}

#[test]
fn the_program_ends_with_a_parent_that_is_killed() {
    // The shell is the parent; the shim becomes the program, so the id that the shell sees stays.
    let script = format!("'{}' __exec $$ -- sleep 310 & echo $!; wait", binary::matrix());
    let mut parent = Command::new("sh")
        .args(["-c", &script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pid = String::new();
    BufReader::new(parent.stdout.take().unwrap())
        .read_line(&mut pid)
        .unwrap();
    let pid = pid.trim();
    let command = || std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    until(|| command().starts_with("sleep"));
    parent.kill().unwrap();
    parent.wait().unwrap();
    until(|| !is_alive(pid));
}

#[test]
fn the_program_does_not_begin_when_its_parent_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("begun");
    // Process 1 is never ours.
    let output = Command::new(binary::matrix())
        .args(["__exec", "1", "--", "touch"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("has ended"),
        "{output:?}"
    );
    assert!(!file.exists());
}

#[test]
fn arguments_and_status_pass_unchanged_and_a_missing_program_is_named() {
    let parent = std::process::id().to_string();
    let run = |words: &[&str]| {
        Command::new(binary::matrix())
            .args(["__exec", &parent, "--"])
            .args(words)
            .output()
            .unwrap()
    };
    let output = run(&[
        "sh",
        "-c",
        "printf '%s|' \"$@\"; exit 7",
        "x",
        "--port",
        "a b",
        "",
    ]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "--port|a b||");
    let output = run(&["no-such-program-here"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such-program-here"));
}

#[test]
fn a_port_that_is_in_use_on_another_node_is_named() {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let folder = tempfile::tempdir().unwrap();
    let start = format!(
        r#"{{"run":"r","start":"s","program":"/bin/true","args":[],"withheld_variables":[],"env":[],"dir":null,"gpus":null,"ports":[{port}],"cache_dir":"{}","grace_ms":1000}}"#,
        folder.path().display()
    );
    let mut remote = Command::new(binary::matrix())
        .arg("__remote")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(remote.stdin.take().unwrap(), "{start}").unwrap();
    let output = remote.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = format!("port {port} is in use on this node by another process\n");
    assert!(
        message.starts_with("matrix: ") && message.ends_with(&expected),
        "{message}"
    );
}
