//! Which processes of this host are an engine's: where its tree begins.

use std::collections::BTreeSet;
use std::fs;

use procfs::net::TcpState;
use procfs::process::{self, FDTarget};

use crate::engine::{Executor, Running, port};

/// The names of this host by which an engine that someone else started may have been given.
const HERE: [&str; 5] = ["127.0.0.1", "localhost", "[::1]", "::1", "0.0.0.0"];

/// Whether a name means this host, whatever its network says.
pub fn is_here(host: &str) -> bool {
    HERE.contains(&host)
}

impl Running {
    /// The processes of this host from which all others of the engine descend: the one that was started, the first one of its
    /// container, or, of an engine that someone else started, those that listen on its port. Nothing where it runs elsewhere, or where
    /// nobody can tell. It reads `/proc`, so ask it once rather than again and again.
    pub fn tree(&self) -> Vec<u32> {
        match &self.executor {
            Executor::Process(engine) => vec![engine.pid()],
            Executor::Docker(engine) => engine.pid().into_iter().collect(),
            Executor::Attach(_) if is_here(&self.endpoint.host) => listeners(self.endpoint.port),
            Executor::Attach(_) => Vec::new(),
        }
    }
}

/// The processes that listen on a port of this host, as far as this user may see; of a parent and its children that share the socket
/// only the parent.
pub fn listeners(port: u16) -> Vec<u32> {
    let tables = [procfs::net::tcp(), procfs::net::tcp6()];
    let sockets: BTreeSet<u64> = tables
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.state == TcpState::Listen && entry.local_address.port() == port)
        .map(|entry| entry.inode)
        .collect();
    if sockets.is_empty() {
        return Vec::new();
    }
    let holds = |process: &process::Process| {
        let files = process.fd().into_iter().flatten().flatten();
        let mut targets = files.map(|file| file.target);
        targets.any(|target| matches!(target, FDTarget::Socket(inode) if sockets.contains(&inode)))
    };
    let found: Vec<(i32, i32)> = process::all_processes()
        .into_iter()
        .flatten()
        .flatten()
        .filter(holds)
        .filter_map(|process| Some((process.pid, process.stat().ok()?.ppid)))
        .collect();
    let roots = found
        .iter()
        .filter(|(_, parent)| !found.iter().any(|(pid, _)| pid == parent));
    roots.filter_map(|(pid, _)| u32::try_from(*pid).ok()).collect()
}

/// Who listens on a port of this host, in words; `None` where nobody does.
pub fn holder(port: u16) -> Option<String> {
    let words = |pid: &u32| {
        let command = i32::try_from(*pid).ok().and_then(|pid| {
            let process = process::Process::new(pid).ok()?;
            process.cmdline().ok()
        });
        let command = command.unwrap_or_default().join(" ");
        let command: String = command
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(80)
            .collect();
        format!("process {pid} `{}`", command.trim_end())
    };
    let holders: Vec<String> = listeners(port).iter().map(words).collect();
    match holders.is_empty() {
        false => Some(holders.join(", ")),
        true if port::is_free(port) => None,
        true => Some("a process that this user may not see".to_owned()),
    }
}

/// Whether a process is one of a container. A daemon in another namespace of process ids tells numbers that mean nothing here.
pub(super) fn is_of_container(pid: u32, container: &str) -> bool {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup"));
    groups.is_ok_and(|groups| groups.contains(container))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_on_a_port_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(listeners(port), [std::process::id()]);
        let words = holder(port).unwrap();
        assert!(
            words.starts_with(&format!("process {} `", std::process::id())),
            "{words}"
        );
        drop(listener);
        assert_eq!(listeners(port), [] as [u32; 0]);
        assert_eq!(holder(port), None);
    }

    #[test]
    fn a_process_of_no_container_is_told() {
        assert!(!is_of_container(std::process::id(), &"f".repeat(64)));
        assert!(!is_of_container(u32::MAX, ""));
    }
}
