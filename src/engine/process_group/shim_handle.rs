//! The shim of a process group, as seen by the process that spawned it.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use crate::engine::shim::Message;

#[derive(Debug)]
pub(super) struct ShimHandle {
    pub(super) pid: u32,
    /// Socket to the shim. When it is closed, the shim ends everything.
    socket: tokio::net::UnixStream,
    /// The same socket, for reads that do not wait.
    messages: UnixStream,
    /// Start of a message whose line is incomplete.
    partial: String,
    pub(super) status: Option<ExitStatus>,
}

impl ShimHandle {
    pub(super) const fn new(pid: u32, socket: tokio::net::UnixStream, messages: UnixStream) -> Self {
        Self {
            pid,
            socket,
            messages,
            partial: String::new(),
            status: None,
        }
    }

    /// The next message; `None` once the shim has ended. Cancel-safe.
    pub(super) async fn next_message(&mut self) -> Option<Message> {
        loop {
            if let Some(message) = self.take_message() {
                return Some(message);
            }
            self.socket.readable().await.ok()?;
            let mut bytes = [0; 256];
            match self.socket.try_read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.partial.push_str(&String::from_utf8_lossy(&bytes[..count])),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
    }

    /// Reads the available messages without waiting.
    pub(super) fn read_available(&mut self) {
        let mut bytes = [0; 256];
        while let Ok(count @ 1..) = self.messages.read(&mut bytes) {
            self.partial.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        while self.take_message().is_some() {}
    }

    /// Takes a complete message from `partial`.
    fn take_message(&mut self) -> Option<Message> {
        let (line, rest) = self.partial.split_once('\n')?;
        let message = Message::parse(line);
        self.partial = rest.to_owned();
        if let Some(Message::Exited(status)) = message {
            self.status = Some(ExitStatus::from_raw(status));
        }
        message
    }
}
