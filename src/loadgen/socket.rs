//! Non-blocking connections, bare or through TLS: connect, write, and read with the kernel's time of arrival.
//!
//! Each request has its own connection, as in bench_serving; there is no pooling, redirect, proxy or
//! compression.
//!
//! The kernel timestamps each segment when it arrives (`SO_TIMESTAMPNS`), so a late read of a single segment
//! does no harm. For several unread segments the kernel keeps only the last timestamp; the maximum error of
//! the others is recorded. A read without a timestamp gets the client's time. This module knows no HTTP and
//! never waits; the owner of a socket uses epoll to learn when to try again.

use std::io::{self, IoSliceMut, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, SockaddrStorage, UnixAddr, connect,
    getsockopt, recv, recvmsg, send, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeSpec;

use crate::base::clock::{self, MonotonicTime, WallClockOffset};
use crate::loadgen::arrival::{Arrival, TimestampSource};
use crate::loadgen::lateness::LatenessCounter;
use crate::loadgen::tls::TlsSession;

/// Maximum size of one read; one buffer serves all streams of a thread.
const BUFFER_BYTES: usize = 128 << 10;
/// How often, and at which interval, the kernel's timestamps are tested.
const MAX_WARM_UPS: u32 = 100;
const WARM_UP_PAUSE: Duration = Duration::from_millis(2);

/// What a connection is made to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    Tcp(SocketAddr),
    /// A Unix socket. Its kernel takes no times of arrival.
    Unix(Arc<Path>),
}

/// A connection, possibly not established yet.
pub(super) struct Socket {
    stream: StreamSocket,
    tls: Option<TlsSession>,
}

/// A non-blocking stream socket of any family.
struct StreamSocket(OwnedFd);

impl Read for &StreamSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self.0.as_raw_fd(), buffer, MsgFlags::empty())?)
    }
}

impl Write for &StreamSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.0.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The state that all sockets of a thread share for reading.
pub(super) struct ReadContext {
    /// Bytes from the socket.
    buffer: Vec<u8>,
    content: Vec<u8>,
    control: Vec<u8>,
    /// Converts the kernel's timestamps to the monotonic clock.
    pub(super) wall: WallClockOffset,
    /// Start of the present round of reads.
    round_start: MonotonicTime,
    /// All that arrived before this moment was read in earlier rounds, so data read now arrived later.
    pub(super) look_start: MonotonicTime,
    pub(super) lateness: LatenessCounter,
    /// A connection that stays open, because the kernel takes timestamps only while a socket asks for them.
    _warm: Option<Socket>,
    has_kernel_timestamps: bool,
}

impl Socket {
    /// Starts to connect; [`Socket::write`] shows whether it worked.
    ///
    /// # Errors
    /// `WouldBlock` if the accept queue of a Unix socket is full.
    pub(super) fn connect(to: &Peer) -> io::Result<Self> {
        let stream = timestamped_socket(to)?;
        let fd = stream.0.as_raw_fd();
        let connected = match to {
            Peer::Tcp(to) => connect(fd, &SockaddrStorage::from(*to)),
            Peer::Unix(path) => connect(fd, &UnixAddr::new(&**path)?),
        };
        match connected {
            Ok(()) | Err(Errno::EINPROGRESS) => Ok(Self { stream, tls: None }),
            Err(error) => Err(error.into()),
        }
    }

    /// Wraps the connection in TLS, before the handshake.
    pub(super) fn with_tls(self, session: TlsSession) -> Self {
        Self {
            tls: Some(session),
            ..self
        }
    }

    /// Continues the handshake; returns true when it is complete.
    pub(super) fn continue_handshake(&mut self) -> io::Result<bool> {
        match &mut self.tls {
            Some(session) => session.continue_handshake(&self.stream),
            None => Ok(true),
        }
    }

    /// Returns why a handshake failed, where the kernel says only that the connection ended.
    pub(super) fn handshake_error(&mut self, error: io::Error) -> io::Error {
        match &mut self.tls {
            Some(session) => session.handshake_error(&self.stream, error),
            None => error,
        }
    }

    /// Returns why the connection failed, if it did.
    pub(super) fn connect_error(&self) -> io::Result<Option<io::Error>> {
        let error = getsockopt(&self.stream.0, sockopt::SocketError)?;
        Ok((error != 0).then(|| io::Error::from_raw_os_error(error)))
    }

    /// Passes bytes to the kernel and returns how many it took. `WouldBlock` while the connection is not
    /// established.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(session) => session.write(bytes, &self.stream),
            None => (&self.stream).write(bytes),
        }
    }

    /// Returns true if accepted bytes wait for room in the socket's send buffer.
    pub(super) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(TlsSession::has_unsent)
    }

    /// Returns true if data arrived together with the end of the handshake.
    pub(super) fn has_early_content(&self) -> bool {
        self.tls.as_ref().is_some_and(TlsSession::has_early_content)
    }

    /// Reads what has arrived into `reading`; `WouldBlock` if nothing has.
    pub(super) fn read(&mut self, reading: &mut ReadContext) -> io::Result<Arrival> {
        let Some(session) = &mut self.tls else {
            return reading.receive(&self.stream);
        };
        reading.content.clear();
        session.take_pending(&mut reading.content)?;
        let mut arrival = Arrival {
            received_at: clock::now(),
            timestamp_source: TimestampSource::User,
            length: 0,
            has_more: true,
            is_truncated: false,
        };
        // Session tickets and key updates do not count as arrivals.
        while reading.content.is_empty() && !session.is_closed() {
            arrival = reading.receive(&self.stream)?;
            session.decrypt(&reading.buffer[..arrival.length], &mut reading.content)?;
            if arrival.length == 0 {
                arrival.is_truncated = true;
                break;
            }
        }
        // This sends the answer to a key update. If it fails, the next read shows why.
        let _ = session.flush(&mut &self.stream);
        arrival.length = reading.content.len();
        arrival.has_more |= session.is_over();
        Ok(arrival)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.0.as_fd()
    }
}

impl ReadContext {
    /// Prepares for reading and waits until the kernel takes timestamps, which starts shortly after the first
    /// request for them.
    pub(super) fn new() -> Self {
        let mut reading = Self {
            buffer: vec![0; BUFFER_BYTES],
            content: Vec::new(),
            control: nix::cmsg_space!(TimeSpec),
            wall: WallClockOffset::new(),
            round_start: clock::now(),
            look_start: clock::now(),
            lateness: LatenessCounter::default(),
            _warm: None,
            has_kernel_timestamps: false,
        };
        // Without a loopback or timestamps only the accuracy suffers.
        reading._warm = reading.warm_up().ok();
        reading
    }

    pub(super) fn has_kernel_timestamps(&self) -> bool {
        self.has_kernel_timestamps
    }

    /// Sends bytes over a loopback connection until one arrives with a kernel timestamp.
    fn warm_up(&mut self) -> io::Result<Socket> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut socket = Socket::connect(&Peer::Tcp(listener.local_addr()?))?;
        let (mut other, _) = listener.accept()?;
        for _ in 0..MAX_WARM_UPS {
            other.write_all(b"?")?;
            let arrival = socket.read(self);
            self.has_kernel_timestamps =
                arrival.is_ok_and(|arrival| arrival.timestamp_source == TimestampSource::Kernel);
            if self.has_kernel_timestamps {
                break;
            }
            thread::sleep(WARM_UP_PAUSE);
        }
        Ok(socket)
    }

    pub(super) fn start_round(&mut self) {
        self.wall.refresh();
        self.round_start = clock::now();
    }

    /// Reads from a connection and takes the kernel's timestamp.
    fn receive(&mut self, stream: &StreamSocket) -> io::Result<Arrival> {
        let mut slices = [IoSliceMut::new(&mut self.buffer)];
        let received = recvmsg::<()>(
            stream.0.as_raw_fd(),
            &mut slices,
            Some(&mut self.control),
            MsgFlags::empty(),
        )?;
        let timestamp_source = received.cmsgs().ok().and_then(|mut messages| {
            messages.find_map(|message| match message {
                ControlMessageOwned::ScmTimestampns(at) => Some(at),
                _ => None,
            })
        });
        let length = received.bytes;
        let (at, timestamp_source) = match timestamp_source {
            Some(at) => (self.to_moment(at), TimestampSource::Kernel),
            None => (clock::now(), TimestampSource::User),
        };
        Ok(Arrival {
            received_at: at,
            timestamp_source,
            length,
            has_more: length == self.buffer.len(),
            is_truncated: false,
        })
    }

    pub(super) fn bytes(&self, socket: &Socket, arrival: &Arrival) -> &[u8] {
        match socket.tls {
            Some(_) => &self.content,
            None => &self.buffer[..arrival.length],
        }
    }

    fn to_moment(&self, at: TimeSpec) -> MonotonicTime {
        let at = self.wall.to_monotonic(at.tv_sec() * 1_000_000_000 + at.tv_nsec());
        // A time in the future is possible only if the wall clock has just been set.
        if at <= self.round_start {
            at
        } else {
            at.min(clock::now())
        }
    }
}

/// Creates a non-blocking socket of the right family with kernel timestamps, if the kernel supports them.
fn timestamped_socket(to: &Peer) -> io::Result<StreamSocket> {
    let family = match to {
        Peer::Tcp(SocketAddr::V4(_)) => AddressFamily::Inet,
        Peer::Tcp(SocketAddr::V6(_)) => AddressFamily::Inet6,
        Peer::Unix(_) => AddressFamily::Unix,
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let stream = socket(family, SockType::Stream, flags, None)?;
    if matches!(to, Peer::Tcp(_)) {
        setsockopt(&stream, sockopt::TcpNoDelay, &true)?;
        // If the kernel refuses this, reads have no timestamp.
        let _ = setsockopt(&stream, sockopt::ReceiveTimestampns, &true);
    }
    Ok(StreamSocket(stream))
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    fn pair() -> (Socket, TcpStream, ReadContext) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let reading = ReadContext::new();
        let socket = Socket::connect(&Peer::Tcp(to)).unwrap();
        let (server, _) = listener.accept().unwrap();
        (socket, server, reading)
    }

    #[test]
    fn a_late_read_bears_the_moment_of_arrival() {
        let (mut socket, mut server, mut reading) = pair();
        let before = clock::now();
        server.write_all(b"hello").unwrap();
        let after = clock::now();
        thread::sleep(Duration::from_millis(50));
        reading.start_round();
        let arrival = socket.read(&mut reading).unwrap();
        assert_eq!(reading.bytes(&socket, &arrival), b"hello");
        let slack = Duration::from_millis(20);
        assert_eq!(
            arrival.timestamp_source == TimestampSource::Kernel,
            reading.has_kernel_timestamps()
        );
        match arrival.timestamp_source {
            TimestampSource::Kernel => {
                assert!(before <= arrival.received_at.plus(slack) && arrival.received_at <= after.plus(slack))
            }
            TimestampSource::User => assert!(arrival.received_at >= after.plus(Duration::from_millis(50))),
        }
    }

    #[test]
    fn nothing_there_is_told_from_an_end_and_from_a_refusal() {
        let (mut socket, server, mut reading) = pair();
        let nothing = socket.read(&mut reading).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(socket.write(b"ask").unwrap(), 3);
        let port = server.local_addr().unwrap();
        drop(server);
        let mut tries = 0;
        let end = loop {
            match socket.read(&mut reading) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && tries < 1000 => tries += 1,
                end => break end,
            }
            thread::sleep(Duration::from_millis(1));
        };
        // The server closed without reading the request, so the connection is reset.
        assert!(end.is_err() || end.unwrap().length == 0);
        let refused = Socket::connect(&Peer::Tcp(port)).and_then(|mut socket| socket.write(b"ask"));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
