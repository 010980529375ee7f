//! Time to the first token over a path with a round trip of 10 ms, of many requests at once: as the client tells it, and as a raw reader
//! does that makes the same calls in the same order. Runs in a network namespace of its own, whose only path goes through a device that
//! holds packets back.
//!
//! The path and the server are one thread that spins: two cores carry a thousand requests at once only where nothing else is woken for
//! each packet. Both clients fill the path, so the one that sends faster waits longer in it. So both times count: that from the sending of
//! each request, and that from the sending of the first.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use matrix::base::clock::{self, MonotonicTime, WallClockOffset};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, SockaddrStorage, connect, recvmsg,
    setsockopt, socket, sockopt,
};
use nix::sys::time::TimeSpec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use crate::{CLIENT_CORE, Measured, SERVER_CORE, Work, median, ours, pin, quantile, verdict};

const REQUESTS: usize = 1000;
/// The way there, and the way back.
const DELAY: Duration = Duration::from_millis(5);
/// How long the server thinks, and how long after the answer before: an engine reads one prompt after the other, and a path that is full
/// of answers makes them wait.
const THINK: Duration = Duration::from_millis(20);
const EACH: Duration = Duration::from_micros(150);
/// How far the client's TTFT may be from the raw reader's.
const MOST_OFF_MS: f64 = 2.0;
/// How long the raw reader waits for all answers, which take less than a second.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pairs of both clients: two of them differ by up to 20 ms on a machine of two cores, and the median of a hundred by less than one.
const PAIRS: usize = 101;
/// Between which of the sorted pairs their median lies in 95 of 100 rows (binomial).
const INTERVAL: [usize; 2] = [40, 60];
/// Packets to the other one come back to this one with both addresses changed round.
const HERE: &str = "10.77.0.1";
const THERE: &str = "10.77.0.2";
const DEVICE: &str = "matrix0";
/// How many packets are taken before the server looks at its sockets.
const PACKETS: usize = 16;

/// Runs the row in a namespace; says so where there can be none.
pub fn bench() {
    let within = |command: &[&str]| {
        let mut inner = Command::new("unshare");
        inner
            .args(["--user", "--map-root-user", "--net", "--"])
            .args(command)
            .status()
            .is_ok_and(|status| status.success())
    };
    if !within(&["test", "-w", "/dev/net/tun"]) {
        println!("delay: skipped, there can be no network namespace with a TUN device here");
        return;
    }
    let this = std::env::current_exe().expect("it runs");
    if !within(&[&this.to_string_lossy(), "as", "delayed"]) {
        // The bound was missed, and the row says so, or it broke off and said why.
        verdict(false);
    }
}

/// The row itself.
pub fn inside() {
    let device = device();
    let listener = TcpListener::bind((HERE, 0)).expect("the address is ours");
    let port = listener.local_addr().expect("it is bound").port();
    // A queue as long as a server's.
    nix::sys::socket::listen(
        &listener,
        nix::sys::socket::Backlog::new(2048).expect("it is small"),
    )
    .expect("it listens");
    thread::spawn(move || {
        pin(SERVER_CORE);
        carry(device, &listener);
    });
    pin(CLIENT_CORE);
    let work = Work {
        host: THERE.to_owned(),
        port,
        streams: REQUESTS,
        tokens: 1,
        prompt: "The capital of France is".to_owned(),
        is_simulated: false,
        is_encrypted: false,
    };
    // The first of each finds no routes and no buffers.
    raw(&work);
    ours::measure(&work);
    let (mut theirs, mut client) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        theirs.push(raw(&work));
        client.push(ours::measure(&work));
    }
    let of = |one: &Measured, since_first: bool, share: f64| {
        let mut times = if since_first {
            one.since_first.clone()
        } else {
            one.ttft.clone()
        };
        quantile(&mut times, share)
    };
    for (since, since_first) in [("its own", false), ("the first", true)] {
        let actual = [("p50", 0.5), ("p99", 0.99)].map(|(name, share)| {
            let [raw, ours] = [&theirs, &client].map(|all| {
                all.iter()
                    .map(|one| of(one, since_first, share))
                    .collect::<Vec<_>>()
            });
            let mut off: Vec<f64> = raw.iter().zip(&ours).map(|(raw, ours)| ours - raw).collect();
            let [raw, ours, middle] = [raw, ours, off.clone()].map(|all| median(all.into_iter()));
            off.sort_by(f64::total_cmp);
            let [from, to] = INTERVAL.map(|place| off[place]);
            format!(
                "{name} {ours:.2} (raw {raw:.2}), off by {middle:+.2} ms {} (95 % of medians {from:+.2} to {to:+.2})",
                verdict(middle.abs() <= MOST_OFF_MS)
            )
        });
        println!(
            "delay, {REQUESTS} requests at once over a round trip of {} ms: TTFT from {since} sending: {}",
            2 * DELAY.as_millis(),
            actual.join(", ")
        );
    }
}

#[expect(
    unsafe_code,
    reason = "a TUN device is made by an ioctl that no crate here wraps"
)]
fn device() -> File {
    struct SetInterface([u8; 40]);
    // SAFETY: `TUNSETIFF` reads an `ifreq` of 40 bytes, a name and flags, and writes the name back.
    unsafe impl rustix::ioctl::Ioctl for SetInterface {
        type Output = ();
        const IS_MUTATING: bool = true;
        fn opcode(&self) -> rustix::ioctl::Opcode {
            rustix::ioctl::opcode::write::<i32>(b'T', 202)
        }
        fn as_ptr(&mut self) -> *mut core::ffi::c_void {
            self.0.as_mut_ptr().cast()
        }
        unsafe fn output_from_ptr(
            _: rustix::ioctl::IoctlOutput,
            _: *mut core::ffi::c_void,
        ) -> rustix::io::Result<()> {
            Ok(())
        }
    }
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open("/dev/net/tun")
        .expect("there is a TUN device");
    let mut request = [0; 40];
    request[..DEVICE.len()].copy_from_slice(DEVICE.as_bytes());
    // Packets without a header of their own (`IFF_TUN | IFF_NO_PI`).
    request[16..18].copy_from_slice(&0x1001_u16.to_ne_bytes());
    // SAFETY: as above.
    unsafe { rustix::ioctl::ioctl(&device, SetInterface(request)) }.expect("a TUN device can be made");
    for command in [
        "link set lo up".to_owned(),
        format!("addr add {HERE}/24 dev {DEVICE}"),
        format!("link set {DEVICE} up txqueuelen 20000"),
    ] {
        let status = Command::new("ip")
            .args(command.split(' '))
            .status()
            .expect("`ip` runs");
        assert!(status.success(), "{command}");
    }
    device
}

/// Carries packets and answers requests: each packet goes back when its time has come, from the other address to ours, which keeps the
/// checksums right; each request is answered after a while.
fn carry(mut device: File, listener: &TcpListener) {
    listener.set_nonblocking(true).expect("a socket can do that");
    let epoll = epoll::create(CreateFlags::CLOEXEC).expect("epoll");
    epoll::add(&epoll, listener, EventData::new_u64(LISTENER), EventFlags::IN).expect("epoll");
    epoll::add(&epoll, &device, EventData::new_u64(TUN), EventFlags::IN).expect("epoll");
    let mut server = Server::default();
    let mut packets: VecDeque<(MonotonicTime, Vec<u8>)> = VecDeque::new();
    let mut buffer = vec![0; 64 << 10];
    let mut events: Vec<Event> = Vec::with_capacity(1024);
    loop {
        for _ in 0..PACKETS {
            let Ok(length) = device.read(&mut buffer) else {
                break;
            };
            packets.push_back((clock::now().plus(DELAY), buffer[..length].to_vec()));
        }
        for _ in 0..PACKETS {
            if packets.front().is_none_or(|(at, _)| *at > clock::now()) {
                break;
            }
            let Some((_, mut packet)) = packets.pop_front() else {
                break;
            };
            if packet.len() >= 20 && packet[0] >> 4 == 4 {
                let (source, target) = packet[12..20].split_at_mut(4);
                source.swap_with_slice(target);
                let _ = device.write(&packet);
            }
        }
        server.answer();
        // Nothing is under way: there is no hurry.
        let is_idle = packets.is_empty() && server.due.is_empty();
        let wait = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: if is_idle { 10_000_000 } else { 0 },
        };
        events.clear();
        let _ = epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), Some(&wait));
        for event in &events {
            match event.data.u64() {
                TUN => {}
                LISTENER => server.accept(listener, &epoll),
                place => server.read(place as usize, &epoll),
            }
        }
    }
}

/// The places of the listener and of the device among the sockets.
const LISTENER: u64 = u64::MAX;
const TUN: u64 = u64::MAX - 1;

/// Answers each request after a while.
#[derive(Default)]
struct Server {
    peers: Vec<Option<(TcpStream, Vec<u8>)>>,
    due: VecDeque<(MonotonicTime, TcpStream)>,
    last: Option<MonotonicTime>,
}

impl Server {
    fn accept(&mut self, listener: &TcpListener, epoll: &OwnedFd) {
        while let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(true).expect("a socket can do that");
            let data = EventData::new_u64(self.peers.len() as u64);
            epoll::add(epoll, &stream, data, EventFlags::IN).expect("epoll");
            self.peers.push(Some((stream, Vec::new())));
        }
    }

    fn read(&mut self, place: usize, epoll: &OwnedFd) {
        let Some((stream, request)) = &mut self.peers[place] else {
            return;
        };
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            request.extend_from_slice(&buffer[..length]);
        }
        if request.ends_with(b"}")
            && let Some((stream, _)) = self.peers[place].take()
        {
            epoll::delete(epoll, &stream).expect("it was added");
            let at = clock::now().plus(THINK);
            let at = self.last.map_or(at, |last| at.max(last.plus(EACH)));
            self.last = Some(at);
            self.due.push_back((at, stream));
        }
    }

    fn answer(&mut self) {
        while self.due.front().is_some_and(|(at, _)| *at <= clock::now())
            && let Some((_, mut stream)) = self.due.pop_front()
        {
            let _ = stream.write_all(ANSWER);
        }
    }
}

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n\
    data: {\"choices\":[{\"index\":0,\"text\":\" a\",\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n";

/// Connects to all at once, with the calls that the client makes for each, and takes the kernel's moments as it does.
fn raw(work: &Work) -> Measured {
    let address: SocketAddr = format!("{}:{}", work.host, work.port)
        .parse()
        .expect("it is an address");
    let body = "{\"model\":\"m\",\"prompt\":\"The capital of France is\",\"max_tokens\":1,\"stream\":true}";
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let epoll = epoll::create(CreateFlags::CLOEXEC).expect("epoll");
    let writing = epoll::create(CreateFlags::CLOEXEC).expect("epoll");
    let place_of_writing = EventData::new_u64(u64::MAX);
    epoll::add(&epoll, &writing, place_of_writing, EventFlags::IN).expect("epoll");
    let mut wall = WallClockOffset::new();
    let began = clock::now();
    let mut streams: Vec<(TcpStream, MonotonicTime, bool, Option<MonotonicTime>)> =
        Vec::with_capacity(work.streams);
    let mut events: Vec<Event> = Vec::with_capacity(1024);
    let mut buffer = vec![0; 4096];
    let mut control = nix::cmsg_space!(TimeSpec);
    let mut left = work.streams;
    while left > 0 {
        for place in streams.len()..work.streams.min(streams.len() + BURST) {
            let sent = clock::now();
            let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
            let fd = socket(AddressFamily::Inet, SockType::Stream, flags, None).expect("a socket");
            let mut stream = TcpStream::from(fd);
            stream.set_nodelay(true).expect("a socket can do that");
            setsockopt(&stream, sockopt::ReceiveTimestampns, &true).expect("Linux stamps");
            let _ = connect(stream.as_raw_fd(), &SockaddrStorage::from(address));
            let has_written = stream.write(request.as_bytes()).is_ok();
            let data = EventData::new_u64(place as u64);
            epoll::add(&writing, &stream, data, EventFlags::OUT | EventFlags::ET).expect("epoll");
            epoll::add(&epoll, &stream, data, EventFlags::IN | EventFlags::ET).expect("epoll");
            streams.push((stream, sent, has_written, None));
        }
        let wait = rustix::time::Timespec {
            tv_sec: i64::from(streams.len() == work.streams),
            tv_nsec: 0,
        };
        events.clear();
        let _ = epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), Some(&wait));
        if clock::now().since(began) > PATIENCE {
            let unsent = streams
                .iter()
                .filter(|(_, _, has_written, _)| !has_written)
                .count();
            panic!(
                "the raw reader has waited for {PATIENCE:?}: {left} answers lack, {unsent} requests are not sent"
            );
        }
        wall.refresh();
        for event in &events {
            if event.data.u64() == u64::MAX {
                let mut ready: Vec<Event> = Vec::with_capacity(BURST);
                let wait = rustix::time::Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                };
                let _ = epoll::wait(&writing, rustix::buffer::spare_capacity(&mut ready), Some(&wait));
                for event in &ready {
                    let (stream, _, has_written, _) = &mut streams[event.data.u64() as usize];
                    *has_written = *has_written || stream.write(request.as_bytes()).is_ok();
                }
                continue;
            }
            let (stream, .., first) = &mut streams[event.data.u64() as usize];
            let mut slices = [IoSliceMut::new(&mut buffer)];
            let read = recvmsg::<()>(
                stream.as_raw_fd(),
                &mut slices,
                Some(&mut control),
                MsgFlags::empty(),
            );
            let read = match read.map(|read| (read.bytes, read.cmsgs().ok().and_then(|mut all| all.next()))) {
                Err(nix::errno::Errno::EAGAIN) => continue,
                Err(error) => panic!("a stream of the raw reader broke: {error}"),
                Ok(read) => read,
            };
            assert!(
                read.0 > 0 || first.is_some(),
                "a stream of the raw reader ended before its answer"
            );
            if read.0 == 0 {
                // As the client does: what this sends is in the way of others.
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
            if let (1.., None) = (read.0, &first) {
                // The kernel begins to stamp a little after it was first asked to.
                *first = Some(match read.1 {
                    Some(ControlMessageOwned::ScmTimestampns(at)) => {
                        wall.to_monotonic(at.tv_sec() * 1_000_000_000 + at.tv_nsec())
                    }
                    _ => clock::now(),
                });
                left -= 1;
            }
        }
    }
    let moments: Vec<Vec<MonotonicTime>> = streams
        .iter()
        .map(|(.., first)| first.iter().copied().collect())
        .collect();
    let actual = streams.iter().zip(&moments);
    Measured::of(
        actual.map(|((_, sent, ..), moments)| (*sent, moments.as_slice(), true)),
        work,
        0.0,
        0.0,
    )
}

/// So many requests are begun before the raw reader looks at its sockets, as by the client.
const BURST: usize = 16;
