//! Time to the first token over a path with a round trip of 10 ms, of many requests at once: as the client tells it, and as a raw reader
//! that connects to all at once. Runs in a network namespace of its own, whose only path goes through a device that holds packets back.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use matrix::base::clock::{self, Moment};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, socket};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use crate::{CLIENT_CORE, SERVER_CORE, Work, millis, ours, pin, quantile, verdict};

const REQUESTS: usize = 1000;
/// The way there, and the way back.
const DELAY: Duration = Duration::from_millis(5);
/// How long the server thinks.
const THINK: Duration = Duration::from_millis(20);
/// How much longer than the raw reader's the client's TTFT may be.
const MOST_OFF_MS: f64 = 2.0;
/// Packets to the other one come back to this one with both addresses changed round.
const HERE: &str = "10.77.0.1";
const THERE: &str = "10.77.0.2";
const DEVICE: &str = "matrix0";

/// Runs the row in a namespace; says so where there can be none.
pub fn bench() {
    let mut inner = Command::new("unshare");
    inner.args(["--user", "--map-root-user", "--net"]);
    inner
        .arg(std::env::current_exe().expect("it runs"))
        .args(["as", "delayed"]);
    let ended = inner.status();
    match ended.ok().and_then(|status| status.code()) {
        Some(0) => {}
        // The bound was missed, and the row says so.
        Some(1) => drop(verdict(false)),
        _ => println!("delay: skipped, there can be no network namespace with a TUN device here"),
    }
}

/// The row itself.
pub fn inside() {
    let device = device();
    let (sender, receiver) = channel();
    let mut reader = device.try_clone().expect("a file can be cloned");
    thread::spawn(move || {
        pin(SERVER_CORE);
        let mut packet = vec![0; 64 << 10];
        while let Ok(length) = reader.read(&mut packet) {
            let _ = sender.send((clock::now().plus(DELAY), packet[..length].to_vec()));
        }
    });
    thread::spawn(move || {
        pin(SERVER_CORE);
        reflect(device, &receiver);
    });
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
        serve(&listener);
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
    let (mut raw, mut client) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        raw.push(raw_ttft(&work));
        client.push(ours::measure(&work).ttft);
    }
    let of =
        |all: &[Vec<f64>], share| crate::median(all.iter().map(|ttft| quantile(&mut ttft.clone(), share)));
    let [p50, p99] = [0.5, 0.99].map(|share| [of(&raw, share), of(&client, share)]);
    println!(
        "delay, {REQUESTS} requests at once over a round trip of {} ms: TTFT p50 {:.2} (raw {:.2}), p99 {:.2} (raw {:.2}) ms: {}",
        2 * DELAY.as_millis(),
        p50[1],
        p50[0],
        p99[1],
        p99[0],
        verdict([p50, p99].iter().all(|[raw, ours]| ours - raw <= MOST_OFF_MS))
    );
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

/// Sends each packet back when its time has come, from the other address to ours. The checksums stay right.
fn reflect(mut device: File, packets: &Receiver<(Moment, Vec<u8>)>) {
    for (due, mut packet) in packets {
        thread::sleep(due.since(clock::now()));
        if packet.len() >= 20 && packet[0] >> 4 == 4 {
            let (source, target) = packet[12..20].split_at_mut(4);
            source.swap_with_slice(target);
            let _ = device.write(&packet);
        }
    }
}

/// Answers each request after a while, on one thread, so that clients are not held up by it.
fn serve(listener: &TcpListener) {
    listener.set_nonblocking(true).expect("a socket can do that");
    let epoll = epoll::create(CreateFlags::CLOEXEC).expect("epoll");
    epoll::add(&epoll, listener, EventData::new_u64(u64::MAX), EventFlags::IN).expect("epoll");
    let mut peers: Vec<Option<(TcpStream, Vec<u8>)>> = Vec::new();
    let mut due: VecDeque<(Moment, TcpStream)> = VecDeque::new();
    let event = "data: {\"choices\":[{\"index\":0,\"text\":\" a\",\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n";
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let answer = format!("{head}{event}");
    let mut events: Vec<Event> = Vec::with_capacity(1024);
    loop {
        while due.front().is_some_and(|(at, _)| *at <= clock::now())
            && let Some((_, mut stream)) = due.pop_front()
        {
            let _ = stream.write_all(answer.as_bytes());
        }
        let wait = due.front().map_or(THINK, |(at, _)| at.since(clock::now()));
        let wait = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: wait.subsec_nanos().into(),
        };
        events.clear();
        let _ = epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), Some(&wait));
        for event in &events {
            if event.data.u64() == u64::MAX {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true).expect("a socket can do that");
                    let data = EventData::new_u64(peers.len() as u64);
                    epoll::add(&epoll, &stream, data, EventFlags::IN).expect("epoll");
                    peers.push(Some((stream, Vec::new())));
                }
                continue;
            }
            let place = event.data.u64() as usize;
            let Some((stream, request)) = &mut peers[place] else {
                continue;
            };
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                request.extend_from_slice(&buffer[..length]);
            }
            if request.ends_with(b"}")
                && let Some((stream, _)) = peers[place].take()
            {
                epoll::delete(&epoll, &stream).expect("it was added");
                due.push_back((clock::now().plus(THINK), stream));
            }
        }
    }
}

/// Connects to all at once; the time to the first byte of each.
fn raw_ttft(work: &Work) -> Vec<f64> {
    let address: SocketAddr = format!("{}:{}", work.host, work.port)
        .parse()
        .expect("it is an address");
    let body = "{\"model\":\"m\",\"prompt\":\"The capital of France is\",\"max_tokens\":1,\"stream\":true}";
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let epoll = epoll::create(CreateFlags::CLOEXEC).expect("epoll");
    let mut streams: Vec<(TcpStream, Moment, bool)> = Vec::with_capacity(work.streams);
    for place in 0..work.streams {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let fd: OwnedFd = socket(AddressFamily::Inet, SockType::Stream, flags, None).expect("a socket");
        let sent = clock::now();
        let _ = connect(fd.as_raw_fd(), &SockaddrStorage::from(address));
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
        epoll::add(&epoll, &fd, EventData::new_u64(place as u64), flags).expect("epoll");
        streams.push((TcpStream::from(fd), sent, false));
    }
    let mut ttft = Vec::with_capacity(work.streams);
    let mut events: Vec<Event> = Vec::with_capacity(1024);
    let mut buffer = [0; 4096];
    while ttft.len() < work.streams {
        events.clear();
        let _ = epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None);
        for event in &events {
            let (stream, sent, has_written) = &mut streams[event.data.u64() as usize];
            let flags = event.flags;
            if !*has_written && flags.contains(EventFlags::OUT) {
                *has_written = stream.write_all(request.as_bytes()).is_ok();
            }
            if *has_written && stream.read(&mut buffer).is_ok_and(|length| length > 0) {
                ttft.push(millis(clock::now().since(*sent)));
                // Its end is an event that brings nothing.
            }
        }
    }
    ttft
}
