//! Finds an engine's processes on this host: the roots of its process tree, and the processes that listen on
//! its port.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use procfs::net::TcpState;
use procfs::process::{FDTarget, Process};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::base::proc::{self, ProcessInfo};
use crate::base::text::one_line;
use crate::engine::endpoint::Endpoint;
use crate::engine::executor::control::AllowedListeners;
use crate::engine::ownership::{self, OwnershipTags};
use crate::engine::port;
use crate::engine::running::RunningEngine;

/// Names of this host in the URL of an attached server.
const LOCAL_HOSTS: [&str; 5] = ["127.0.0.1", "localhost", "[::1]", "::1", "0.0.0.0"];

/// Whether the name is one of [`LOCAL_HOSTS`]. The host's network configuration is not consulted.
pub(crate) fn is_local_host(host: &str) -> bool {
    LOCAL_HOSTS.contains(&host)
}

impl RunningEngine {
    /// Pids on this host from which all other processes of the engine descend: the started process, the first
    /// process of its container, or, of an attached server, the processes that listen on its port. Empty if
    /// it runs elsewhere or the processes cannot be seen. Reads `/proc`, so callers should not poll it.
    pub(crate) fn root_pids(&self) -> Vec<u32> {
        self.executor.root_pids(&self.endpoint)
    }
}

/// Owner of the socket that answers on an engine's port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listener {
    Engine,
    /// Another process: its pid and command line.
    OtherProcess(String),
    /// The owner cannot be determined, for this reason.
    Unverified(&'static str),
}

/// Input of the check of an engine's port.
struct ListenerQuery {
    port: u16,
    roots: Vec<u32>,
    tags: Option<OwnershipTags>,
}

impl RunningEngine {
    /// Finds the owner of the socket that answers on the engine's port. Reads `/proc`: do not call it during
    /// a measurement.
    pub(crate) async fn listener(&self) -> Listener {
        let tags = match self.executor.allowed_listeners() {
            AllowedListeners::Any => return Listener::Engine,
            AllowedListeners::Processes(tags) => tags,
        };
        let roots = self.root_pids();
        if roots.is_empty() || !is_local_host(&self.endpoint.host) {
            return Listener::Unverified("the engine's processes are not visible to `matrix`");
        }
        let question = ListenerQuery {
            port: self.endpoint.port,
            roots,
            tags,
        };
        let looking = tokio::task::spawn_blocking(move || question.run());
        looking.await.expect("looking does not panic")
    }
}

impl ListenerQuery {
    fn run(&self) -> Listener {
        let sockets = listening_sockets(self.port);
        if sockets.is_empty() {
            return Listener::Unverified("the engine's port is in another network namespace");
        }
        let holders = socket_holders(&sockets);
        if holders.is_empty() {
            return Listener::Unverified(
                "the process that listens on the engine's port is not visible to this user",
            );
        }
        let members = proc::live_tree(&self.roots);
        let is_ours = |pid: u32| {
            members.iter().any(|member| member.pid == pid)
                || self
                    .tags
                    .as_ref()
                    .is_some_and(|tags| ownership::tags_of_process(pid).as_ref() == Some(tags))
        };
        match holders.iter().find(|(pid, _)| !is_ours(*pid)) {
            None => Listener::Engine,
            Some((pid, _)) => Listener::OtherProcess(process_name(*pid)),
        }
    }
}

/// Whether a stopped engine's endpoint still accepts connections. It may take about a second to close.
pub(crate) async fn still_answers(endpoint: &Endpoint) -> bool {
    const MAX_CHECKS: u32 = 6;
    const PAUSE: Duration = Duration::from_millis(200);
    const CHECK_TIMEOUT: Duration = Duration::from_secs(1);
    let host = endpoint.host.trim_start_matches('[').trim_end_matches(']');
    for look in 0..MAX_CHECKS {
        if look > 0 {
            sleep(PAUSE).await;
        }
        let connecting = timeout(CHECK_TIMEOUT, TcpStream::connect((host, endpoint.port)));
        if !matches!(connecting.await, Ok(Ok(_))) {
            return false;
        }
    }
    true
}

/// Pid and shortened command line.
fn process_name(pid: u32) -> String {
    let command = proc::open(pid).and_then(|process| process.cmdline().ok());
    let command: String = one_line(&command.unwrap_or_default().join(" "))
        .chars()
        .take(80)
        .collect();
    format!("process {pid} `{}`", command.trim_end())
}

/// Inodes of the sockets that answer at 127.0.0.1 on a port: those bound to that address, else to the
/// unspecified one.
fn listening_sockets(port: u16) -> BTreeSet<u64> {
    let tables = [procfs::net::tcp(), procfs::net::tcp6()];
    let entries: Vec<_> = tables
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.state == TcpState::Listen && entry.local_address.port() == port)
        .collect();
    let sockets_of = |is_special: &dyn Fn(&IpAddr) -> bool| -> BTreeSet<u64> {
        let entries = entries
            .iter()
            .filter(|entry| is_special(&entry.local_address.ip().to_canonical()));
        entries.map(|entry| entry.inode).collect()
    };
    let exact = sockets_of(&|address| *address == IpAddr::V4(Ipv4Addr::LOCALHOST));
    match exact.is_empty() {
        false => exact,
        true => sockets_of(&|address| address.is_unspecified()),
    }
}

/// Processes that hold one of these sockets, as (pid, parent pid).
fn socket_holders(sockets: &BTreeSet<u64>) -> Vec<(u32, u32)> {
    let holds = |process: &Process| {
        let files = process.fd().into_iter().flatten().flatten();
        let mut targets = files.map(|file| file.target);
        targets.any(|target| matches!(target, FDTarget::Socket(inode) if sockets.contains(&inode)))
    };
    proc::open_all()
        .filter(holds)
        .filter_map(|process| Some(ProcessInfo::from(&process.stat().ok()?)))
        .map(|process| (process.pid, process.parent))
        .collect()
}

/// Processes that listen on a port of this host, as far as this user can see them. Children that share their
/// parent's socket are left out.
pub(crate) fn listeners(port: u16) -> Vec<u32> {
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
    let holders = socket_holders(&sockets);
    let roots = holders
        .iter()
        .filter(|(_, parent)| !holders.iter().any(|(pid, _)| pid == parent));
    roots.map(|(pid, _)| *pid).collect()
}

/// Describes the processes that listen on a port of this host; `None` if the port is free.
pub(crate) fn port_holder(port: u16) -> Option<String> {
    let holders: Vec<String> = listeners(port).into_iter().map(process_name).collect();
    match holders.is_empty() {
        false => Some(holders.join(", ")),
        true if port::is_free(port) => None,
        true => Some("a process that is not visible to this user".to_owned()),
    }
}

/// Whether a process belongs to a container. A daemon in another pid namespace reports pids that are wrong
/// here.
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
        let words = port_holder(port).unwrap();
        assert!(
            words.starts_with(&format!("process {} `", std::process::id())),
            "{words}"
        );
        drop(listener);
        assert_eq!(listeners(port), [] as [u32; 0]);
        assert_eq!(port_holder(port), None);
    }

    #[test]
    fn the_listener_of_a_port_is_distinguished_from_other_processes() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // A socket with another address and the same port does not answer at 127.0.0.1.
        let _other = std::net::TcpListener::bind(("127.0.0.2", port)).unwrap();
        let ask = |root: u32| {
            let question = ListenerQuery {
                port,
                roots: vec![root],
                tags: None,
            };
            question.run()
        };
        assert_eq!(ask(std::process::id()), Listener::Engine);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let listener_of_another = ask(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(
            matches!(listener_of_another, Listener::OtherProcess(who) if who.contains(&format!("process {}", std::process::id())))
        );
        drop(listener);
        assert!(matches!(ask(std::process::id()), Listener::Unverified(_)));
    }

    #[test]
    fn a_process_of_no_container_is_told() {
        assert!(!is_of_container(std::process::id(), &"f".repeat(64)));
        assert!(!is_of_container(u32::MAX, ""));
    }
}
