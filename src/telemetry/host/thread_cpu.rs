//! Time of this process's threads: running, and waiting for a CPU.

use std::collections::BTreeMap;
use std::fs;

/// Name of the load generator's threads.
const LOAD_THREAD_NAME: &str = "load";

/// Times of this process's threads, including ended ones as far as they were seen.
#[derive(Default)]
pub(super) struct ThreadCpu {
    threads: BTreeMap<u32, Thread>,
    /// Times of ended threads.
    ended_times: ThreadTimes,
}

struct Thread {
    is_load: bool,
    times: ThreadTimes,
}

#[derive(Clone, Copy, Default)]
struct ThreadTimes {
    load_ran: u64,
    waited: u64,
}

impl ThreadCpu {
    /// Seconds that the load generator's threads ran, and seconds that all threads were runnable but waited
    /// for a CPU. `None` if the kernel does not report them.
    pub(super) fn update(&mut self) -> Option<(f64, f64)> {
        let mut now: BTreeMap<u32, Thread> = BTreeMap::new();
        for entry in fs::read_dir("/proc/self/task").ok()?.flatten() {
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // The thread may end meanwhile.
            let Some((ran, waited)) = fs::read_to_string(entry.path().join("schedstat"))
                .ok()
                .and_then(|text| parse_schedstat(&text))
            else {
                continue;
            };
            let is_load = match self.threads.get(&id) {
                Some(thread) => thread.is_load,
                None => fs::read_to_string(entry.path().join("comm"))
                    .is_ok_and(|name| name.trim() == LOAD_THREAD_NAME),
            };
            let load_ran = if is_load { ran } else { 0 };
            now.insert(
                id,
                Thread {
                    is_load,
                    times: ThreadTimes { load_ran, waited },
                },
            );
        }
        if now.is_empty() {
            return None;
        }
        for (id, thread) in &self.threads {
            // A reused thread id has a shorter waiting time.
            let is_same = now
                .get(id)
                .is_some_and(|now| now.times.waited >= thread.times.waited);
            if !is_same {
                self.ended_times.load_ran += thread.times.load_ran;
                self.ended_times.waited += thread.times.waited;
            }
        }
        self.threads = now;
        let all = self.threads.values().map(|thread| thread.times);
        let sum = all.fold(self.ended_times, |sum, times| ThreadTimes {
            load_ran: sum.load_ran + times.load_ran,
            waited: sum.waited + times.waited,
        });
        Some((sum.load_ran as f64 / 1e9, sum.waited as f64 / 1e9))
    }
}

/// Parses `<ran> <waited> <timeslices>`; the first two are in nanoseconds.
fn parse_schedstat(text: &str) -> Option<(u64, u64)> {
    let mut words = text.split_ascii_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_spent_stays_when_it_has_ended() {
        assert_eq!(parse_schedstat("12 34 5\n"), Some((12, 34)));
        assert_eq!(parse_schedstat("12"), None);
        let mut threads = ThreadCpu::default();
        if threads.update().is_none() {
            // This kernel has no `schedstat`.
            return;
        }
        let (send, receiver) = std::sync::mpsc::channel();
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let work = move || {
            let began = crate::base::clock::thread_cpu();
            while (crate::base::clock::thread_cpu() - began).as_millis() < 30 {
                std::hint::spin_loop();
            }
            send.send(()).unwrap();
            let _ = held.recv();
        };
        let thread = std::thread::Builder::new()
            .name(LOAD_THREAD_NAME.to_owned())
            .spawn(work)
            .unwrap();
        receiver.recv().unwrap();
        let (ran, waited) = threads.update().unwrap();
        assert!(ran >= 0.03, "{ran}");
        drop(hold);
        thread.join().unwrap();
        let (after, waited_after) = threads.update().unwrap();
        assert!(after >= ran && waited_after >= waited, "{after} {waited_after}");
    }
}
