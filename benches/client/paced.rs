//! A server that sends each token in a write of its own at the moment it is due, streams out of step with one another: it spins
//! rather than sleeps, so that tokens that are due singly leave singly. The simulated engine sleeps, and wakes for several at once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Write;
use std::time::Duration;

use matrix::base::clock::{self, MonotonicTime};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use crate::flood::{ENDING, EVENTS, HEAD, Peer, asked, framed, listen, pattern};
use crate::quantile;

/// Mean time to the first token.
const TTFT: Duration = Duration::from_millis(200);
/// How often it looks for requests.
const LOOK: Duration = Duration::from_micros(200);

/// Serves until it is killed; prints its port first, and after each round of streams the gaps between its own sends. `itl` is the mean
/// time between tokens; it is drawn by `share` to either side.
pub fn serve(itl: Duration, share: f64) -> ! {
    let listener = listen();
    println!("{}", listener.local_addr().expect("it is bound").port());
    listener.set_nonblocking(true).expect("a socket can do that");
    let (pattern, length) = pattern();
    let ending = framed(ENDING) + "0\r\n\r\n";
    let epoll = epoll::create(CreateFlags::CLOEXEC).expect("epoll");
    epoll::add(&epoll, &listener, EventData::new_u64(u64::MAX), EventFlags::IN).expect("epoll");
    let mut peers: Vec<Option<Peer>> = Vec::new();
    let mut due: BinaryHeap<Reverse<(MonotonicTime, usize)>> = BinaryHeap::new();
    let mut events: Vec<Event> = Vec::with_capacity(1024);
    let (mut first, mut spread) = (spread(0.3), spread(share));
    let mut sends: Vec<MonotonicTime> = Vec::new();
    let mut gaps: Vec<f64> = Vec::new();
    let mut open = 0;
    let mut next_look = clock::now();
    loop {
        while let Some(Reverse((at, place))) =
            due.peek().copied().filter(|Reverse((at, _))| *at <= clock::now())
        {
            due.pop();
            let Some(peer) = &mut peers[place] else { continue };
            let from = peer.sent % (EVENTS * length);
            let now = clock::now();
            if peer.sent > 0 {
                gaps.push(now.since(sends[place]).as_secs_f64() * 1e3);
            }
            sends[place] = now;
            let written = peer.stream.write(&pattern[from..from + length]);
            peer.sent += length;
            if written.is_ok() && peer.sent < peer.total {
                due.push(Reverse((at.plus(itl.mul_f64(spread())), place)));
            } else {
                let _ = peer.stream.write_all(ending.as_bytes());
                peers[place] = None;
                open -= 1;
                if open == 0 {
                    let actual = [0.5, 0.9, 0.99].map(|share| quantile(&mut gaps, share));
                    println!("{}", serde_json::to_string(&actual).expect("numbers are JSON"));
                    gaps.clear();
                }
            }
        }
        if clock::now() < next_look {
            std::hint::spin_loop();
            continue;
        }
        // Nothing is under way: there is no hurry.
        let wait = if due.is_empty() { 1_000_000 } else { 0 };
        next_look = clock::now().plus(LOOK);
        events.clear();
        let wait = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: wait,
        };
        let _ = epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), Some(&wait));
        for event in &events {
            if event.data.u64() == u64::MAX {
                while let Ok((stream, _)) = listener.accept() {
                    let flags = EventFlags::IN | EventFlags::ET;
                    let data = EventData::new_u64(peers.len() as u64);
                    let peer = Peer::new(stream);
                    epoll::add(&epoll, &peer.stream, data, flags).expect("epoll");
                    peers.push(Some(peer));
                    sends.push(MonotonicTime::default());
                    open += 1;
                }
                continue;
            }
            let place = event.data.u64() as usize;
            let Some(peer) = peers[place].as_mut().filter(|peer| !peer.has_begun) else {
                continue;
            };
            if let Some(tokens) = asked(peer) {
                peer.stream.write_all(HEAD).expect("an empty buffer takes a head");
                (peer.total, peer.has_begun) = (tokens * length, true);
                due.push(Reverse((clock::now().plus(TTFT.mul_f64(first())), place)));
            }
        }
    }
}

/// Draws factors about 1; the same ones every time.
fn spread(share: f64) -> impl FnMut() -> f64 {
    let mut state = 1_u64;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let unit = (state >> 11) as f64 / (1_u64 << 53) as f64;
        1.0 + share * (2.0 * unit - 1.0)
    }
}
