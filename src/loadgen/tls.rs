//! TLS between a socket and HTTP, without I/O of its own.
//!
//! A [`TlsSession`] processes the bytes of the socket on the thread that read them. Encrypted connections
//! therefore take the same timed path as bare ones, with the kernel's times of arrival. A record that spans
//! several reads has the time of the read that completed it. Records without content, such as session tickets
//! and key updates, do not count as arrivals.

use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::base::tls::{self, TlsConfig};

/// The TLS settings that all sessions with one host share.
#[derive(Clone)]
pub(super) struct TlsClient {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsClient {
    /// Creates the settings for a host.
    ///
    /// # Errors
    /// No certificate can hold the name.
    pub(super) fn new(host: &str, config: &TlsConfig) -> Result<Self, String> {
        let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
        Ok(Self {
            config: config.client_config(),
            name,
        })
    }

    /// Creates a session before its handshake.
    pub(super) fn session(&self) -> io::Result<TlsSession> {
        let connection = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        connection
            .map(|connection| TlsSession {
                connection: Box::new(connection),
                is_closed: false,
                has_early_content: false,
                failure: None,
            })
            .map_err(tls_error)
    }
}

pub(super) struct TlsSession {
    connection: Box<ClientConnection>,
    is_closed: bool,
    /// Whether data arrived together with the end of the handshake.
    has_early_content: bool,
    /// The error in the bytes after the data that was decrypted last.
    failure: Option<io::Error>,
}

impl TlsSession {
    /// Continues the handshake over a non-blocking socket; returns true when it is complete.
    ///
    /// # Errors
    /// The connection failed or ended, or the server cannot be trusted.
    pub(super) fn continue_handshake(&mut self, mut socket: impl Read + Write) -> io::Result<bool> {
        let advanced = self.advance_handshake(&mut socket);
        advanced.map_err(|error| self.handshake_error(socket, error))
    }

    /// Returns why the server ended a connection on which reading, writing or connecting failed: a server that
    /// refuses a client sends an alert and closes, and what is written after that fails before the alert is
    /// read.
    pub(super) fn handshake_error(&mut self, mut socket: impl Read, error: io::Error) -> io::Error {
        if !tls::is_sudden_end(&error) {
            return error;
        }
        while self.connection.read_tls(&mut socket).is_ok_and(|count| count > 0) {
            if let Err(alert) = self.connection.process_new_packets() {
                return tls_error(alert);
            }
        }
        io::Error::new(error.kind(), tls::describe_sudden_end(&error))
    }

    fn advance_handshake(&mut self, mut socket: impl Read + Write) -> io::Result<bool> {
        loop {
            self.flush(&mut socket)?;
            if self.has_unsent() {
                return Ok(false);
            }
            if !self.connection.is_handshaking() {
                return Ok(true);
            }
            match self.connection.read_tls(&mut socket) {
                Ok(0) => {
                    return Err(io::Error::new(
                        ErrorKind::UnexpectedEof,
                        "the server closed the connection",
                    ));
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            match self.connection.process_new_packets() {
                Ok(state) => {
                    self.is_closed |= state.peer_has_closed();
                    self.has_early_content = state.plaintext_bytes_to_read() > 0;
                }
                Err(error) => {
                    // This sends the alert, so that the other side learns the reason.
                    let _ = self.flush(&mut socket);
                    return Err(tls_error(error));
                }
            }
        }
    }

    /// Encrypts bytes and sends as much as the socket takes. Returns how many bytes were accepted.
    ///
    /// # Errors
    /// `WouldBlock` while bytes accepted earlier wait for room in the socket's send buffer.
    pub(super) fn write(&mut self, bytes: &[u8], mut socket: impl Write) -> io::Result<usize> {
        self.flush(&mut socket)?;
        if self.has_unsent() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = self.connection.writer().write(bytes)?;
        self.flush(&mut socket)?;
        Ok(count)
    }

    /// Returns true if encrypted bytes wait for room in the socket's send buffer.
    pub(super) fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    /// Sends waiting bytes, as far as the socket has room.
    pub(super) fn flush(&mut self, socket: &mut impl Write) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Decrypts bytes of the socket and appends the result to `content`. An empty `bytes` means the end of
    /// the connection.
    ///
    /// # Errors
    /// The bytes are not TLS, or the other side sent an alert. If data came before the error, the next call
    /// to [`Self::take_pending`] returns it.
    pub(super) fn decrypt(&mut self, mut bytes: &[u8], content: &mut Vec<u8>) -> io::Result<()> {
        loop {
            let count = self.connection.read_tls(&mut bytes)?;
            match self.take_content(content) {
                Ok(()) => {}
                Err(error) if content.is_empty() => return Err(error),
                Err(error) => {
                    self.failure = Some(error);
                    return Ok(());
                }
            }
            // After close_notify the connection accepts no more bytes.
            if bytes.is_empty() || count == 0 {
                return Ok(());
            }
        }
    }

    /// Returns true if data or the end of the connection arrived together with the end of the handshake.
    pub(super) fn has_early_content(&self) -> bool {
        self.has_early_content || self.is_closed
    }

    /// Appends data that arrived together with the end of the handshake to `content`.
    ///
    /// # Errors
    /// The bytes after the data that was decrypted last were invalid.
    pub(super) fn take_pending(&mut self, content: &mut Vec<u8>) -> io::Result<()> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        match std::mem::take(&mut self.has_early_content) {
            true => self.take_content(content),
            false => Ok(()),
        }
    }

    fn take_content(&mut self, content: &mut Vec<u8>) -> io::Result<()> {
        let processed = self.connection.process_new_packets();
        let mut reader = self.connection.reader();
        // `fill_buf` returns an error if there is no data, and an empty chunk after close_notify.
        while let Ok(chunk) = reader.fill_buf()
            && !chunk.is_empty()
        {
            let length = chunk.len();
            content.extend_from_slice(chunk);
            reader.consume(length);
        }
        self.is_closed |= processed.map_err(tls_error)?.peer_has_closed();
        Ok(())
    }

    /// Returns true if no more data will be read. The socket may not report this end by an event.
    pub(super) fn is_over(&self) -> bool {
        self.is_closed || self.failure.is_some()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }
}

fn tls_error(error: rustls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, tls::describe(&error))
}
