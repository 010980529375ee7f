//! A client that is stopped for half a second while streams run must tell.

use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::{Server, begin, measured, verdict};

const STREAMS: usize = 4;
const GAP: Duration = Duration::from_millis(10);
const TOKENS: usize = 200;
/// How long it runs before, and how long it is stopped.
const BEFORE: Duration = Duration::from_secs(1);
const STOP: Duration = Duration::from_millis(500);

/// Prints the row.
pub fn bench() {
    let server = Server::paced(GAP, 0.0);
    let work = server.work(STREAMS, TOKENS);
    let client = begin("ours", &work);
    let process = Pid::from_child(&client);
    thread::sleep(BEFORE);
    kill_process(process, Signal::STOP).expect("it is ours");
    thread::sleep(STOP);
    kill_process(process, Signal::CONT).expect("it is ours");
    let one = measured("ours", client);
    let is_told = one.pauses == 1 && one.longest_pause >= STOP.as_secs_f64() * 1e3;
    println!(
        "stop, {STREAMS} streams x {} ms, stopped for {} ms: {} pause told, of {:.0} ms; moments off by {:.1} ms for 1 %: {}",
        GAP.as_millis(),
        STOP.as_millis(),
        one.pauses,
        one.longest_pause,
        one.late_p99,
        verdict(is_told)
    );
}
