//! Reads probes periodically, each in its own thread and on its own schedule, and keeps the samples until
//! they are cut to a window. A probe that hangs delays nothing, and no code here runs on the load generator's
//! threads.

use std::any::Any;
use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::base::clock::{self, Moment};
use crate::results::record::telemetry::{Sample, Source, SourceFacts};
use crate::telemetry::probe::{Probe, Reading};

/// Time after which a probe that has not answered is reported as hanging.
const HANGS: Duration = Duration::from_secs(3);

/// How long `Drop` waits for probes that are being read.
const PARTING: Duration = Duration::from_millis(250);

/// Interval of checks for an awaited reading.
const LOOK: Duration = Duration::from_millis(2);

/// The probes and their samples.
#[derive(Default)]
pub struct Sampler {
    tracks: Vec<Arc<Track>>,
}

impl Sampler {
    /// Starts one thread for each probe.
    pub fn begin(probes: Vec<Box<dyn Probe>>) -> Self {
        let mut sampler = Self::default();
        for probe in probes {
            sampler.add(probe);
        }
        sampler
    }

    pub(crate) fn add(&mut self, probe: Box<dyn Probe>) {
        let track = Arc::new(Track {
            source: probe.source(),
            device: probe.device(),
            period: probe.period().max(Duration::from_millis(1)),
            state: Mutex::default(),
            moved: Condvar::new(),
        });
        let name = match track.device {
            Some(device) => format!("probe {} {device}", track.source.name()),
            None => format!("probe {}", track.source.name()),
        };
        let asking = Arc::clone(&track);
        let spawned = thread::Builder::new().name(name).spawn(move || asking.run(probe));
        if let Err(error) = spawned {
            track.lock().trouble = Some(format!("its thread could not be started: {error}"));
        }
        self.tracks.push(track);
    }

    /// Has every probe asked once more, off its schedule, and waits until all have answered or failed, at most `limit`. Around a window
    /// this gives samples directly before its start and after its end.
    pub async fn bracket(&self, limit: Duration) {
        let deadline = clock::now().plus(limit);
        let asked: Vec<(&Arc<Track>, u64)> = self.tracks.iter().map(|track| (track, track.nudge())).collect();
        let is_open = |(track, turn): &&(&Arc<Track>, u64)| {
            let state = track.lock();
            state.turns_done < *turn && !state.has_ended && !state.hangs(clock::now())
        };
        while asked.iter().any(|asked| is_open(&asked)) && clock::now() < deadline {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What was sampled from one moment to another, of every device the last sample before that, and all that came after; told in
    /// nanoseconds after `zero`, in the order of time. And how each source did between the two moments.
    pub fn cut(&self, zero: Moment, from: Moment, to: Moment) -> (Vec<Sample>, Vec<SourceFacts>) {
        let (mut samples, mut facts) = (Vec::new(), Vec::new());
        for track in &self.tracks {
            track.cut((zero, from, to), &mut samples, &mut facts);
        }
        samples.sort_by_key(|sample| (sample.at_ns, sample.source, sample.device));
        (samples, facts)
    }

    /// Drops samples taken before a time.
    pub(crate) fn forget(&self, before: Moment) {
        for track in &self.tracks {
            let taken = &mut track.lock().taken;
            let end = taken.partition_point(|taken| taken.at < before);
            taken.drain(..end);
        }
    }
}

impl Drop for Sampler {
    /// Ends the reading. The thread of a hanging probe is left running and ends when the probe returns.
    fn drop(&mut self) {
        for track in &self.tracks {
            track.lock().is_over = true;
            track.moved.notify_all();
        }
        let deadline = clock::now().plus(PARTING);
        for track in &self.tracks {
            let mut state = track.lock();
            while !state.has_ended {
                let left = deadline.since(clock::now());
                if left.is_zero() {
                    break;
                }
                let waited = track.moved.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

struct Track {
    source: Source,
    device: Option<u32>,
    period: Duration,
    state: Mutex<State>,
    /// Signals a request for a reading, a request to end, and the end of the thread.
    moved: Condvar,
}

#[derive(Default)]
struct State {
    taken: VecDeque<Taken>,
    /// Names of values. Samples refer to them by index, because there are many samples and few names.
    names: Vec<String>,
    asking_since: Option<Moment>,
    /// Why the last reading failed.
    trouble: Option<String>,
    /// Number of readings begun, and of readings finished.
    turns: u64,
    turns_done: u64,
    /// Number of the latest reading that is requested outside the schedule.
    wanted: u64,
    is_over: bool,
    has_ended: bool,
}

/// A sample in memory, which refers to its values' names by index.
struct Taken {
    at: Moment,
    device: Option<u32>,
    values: Vec<(u16, f64)>,
}

/// Records that the thread has ended, on return and on panic.
struct Ended<'a>(&'a Track);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
        self.0.moved.notify_all();
    }
}

impl Track {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a reading that begins after now. Returns its number.
    fn nudge(&self) -> u64 {
        let mut state = self.lock();
        state.wanted = state.turns + 1;
        self.moved.notify_all();
        state.wanted
    }

    fn run(&self, mut probe: Box<dyn Probe>) {
        let _ended = Ended(self);
        let period = u64::try_from(self.period.as_nanos()).unwrap_or(u64::MAX);
        while self.turn_comes(period) {
            let began = clock::now();
            let told = catch_unwind(AssertUnwindSafe(|| probe.read()));
            let ended = clock::now();
            let at = began.plus(ended.since(began) / 2);
            let mut state = self.lock();
            state.asking_since = None;
            state.turns_done = state.turns;
            match told {
                Ok(Ok(readings)) => state.take(at, readings),
                Ok(Err(reason)) => state.trouble = Some(reason),
                Err(panic) => {
                    state.trouble = Some(format!("its probe broke: {}", words(&*panic)));
                    return;
                }
            }
        }
    }

    /// Waits for the next multiple of the period or for a request; returns false when the sampler ends.
    /// Multiples that passed during a reading are skipped.
    fn turn_comes(&self, period: u64) -> bool {
        let due = Moment::from_nanos((clock::now().as_nanos() / period + 1).saturating_mul(period));
        let mut state = self.lock();
        loop {
            let now = clock::now();
            if state.is_over {
                return false;
            }
            if now >= due || state.wanted > state.turns {
                state.turns += 1;
                state.asking_since = Some(now);
                return true;
            }
            let waited = self.moved.wait_timeout(state, due.since(now));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn cut(&self, window: (Moment, Moment, Moment), samples: &mut Vec<Sample>, facts: &mut Vec<SourceFacts>) {
        let state = self.lock();
        let mut devices: BTreeSet<Option<u32>> = state.taken.iter().map(|taken| taken.device).collect();
        if devices.is_empty() {
            devices.insert(self.device);
        }
        let trouble = state.trouble_now(clock::now());
        for device in devices {
            let own: Vec<&Taken> = state
                .taken
                .iter()
                .filter(|taken| taken.device == device)
                .collect();
            let (cut, mut about) = self.cut_device(&own, window);
            about.device = device;
            about.trouble.clone_from(&trouble);
            facts.push(about);
            samples.extend(cut.iter().map(|taken| {
                Sample {
                    at_ns: distance(window.0, taken.at),
                    source: self.source,
                    device,
                    values: taken
                        .values
                        .iter()
                        .map(|(name, value)| (state.names[usize::from(*name)].clone(), *value))
                        .collect(),
                }
            }));
        }
    }

    fn cut_device<'t>(
        &self,
        own: &[&'t Taken],
        (_, from, to): (Moment, Moment, Moment),
    ) -> (Vec<&'t Taken>, SourceFacts) {
        let start = own.partition_point(|taken| taken.at < from);
        let end = own.partition_point(|taken| taken.at <= to);
        let within = &own[start..end.max(start)];
        let mut longest = Duration::ZERO;
        let mut last = from;
        for at in within.iter().map(|taken| taken.at).chain([to]) {
            longest = longest.max(at.since(last));
            last = at;
        }
        let touches = |at: Moment| within.iter().any(|taken| taken.at == at);
        let facts = SourceFacts {
            source: self.source,
            device: None,
            period_s: self.period.as_secs_f64(),
            samples: u32::try_from(within.len()).unwrap_or(u32::MAX),
            longest_gap_s: longest.as_secs_f64(),
            is_bracketed: (start > 0 || touches(from)) && (end < own.len() || touches(to)),
            trouble: None,
        };
        (own[start.saturating_sub(1)..].to_vec(), facts)
    }
}

impl State {
    fn take(&mut self, at: Moment, readings: Vec<Reading>) {
        self.trouble = None;
        for reading in readings.into_iter().filter(|reading| !reading.values.is_empty()) {
            let values = reading.values.into_iter();
            let values = values.filter_map(|(name, value)| Some((self.number(name)?, value)));
            let values = values.collect();
            self.taken.push_back(Taken {
                at,
                device: reading.device,
                values,
            });
        }
    }

    fn number(&mut self, name: String) -> Option<u16> {
        let at = self.names.iter().position(|known| *known == name);
        let at = at.unwrap_or_else(|| {
            self.names.push(name);
            self.names.len() - 1
        });
        u16::try_from(at).ok()
    }

    /// Why there are currently no values.
    fn trouble_now(&self, now: Moment) -> Option<String> {
        let since = self.asking_since.filter(|_| self.hangs(now));
        match since.map(|since| now.since(since)) {
            Some(since) => Some(format!("hangs since {:.1} s", since.as_secs_f64())),
            None => self.trouble.clone(),
        }
    }

    fn hangs(&self, now: Moment) -> bool {
        self.asking_since.is_some_and(|since| now.since(since) > HANGS)
    }
}

/// Signed time from one moment to another, in nanoseconds.
fn distance(from: Moment, to: Moment) -> i64 {
    let signed = |nanos: u64| i64::try_from(nanos).unwrap_or(i64::MAX);
    signed(to.as_nanos()) - signed(from.as_nanos())
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a word".to_owned())
}

#[cfg(test)]
mod tests;
