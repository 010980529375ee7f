//! Reads probes periodically, each in its own thread and on its own schedule, and keeps the samples until
//! they are cut to a window. A probe that hangs delays nothing, and no code here runs on the load generator's
//! threads.

use std::any::Any;
use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::base::clock::{self, MonotonicTime};
use crate::results::record::telemetry::{Sample, SourceFacts, TelemetrySource};
use crate::telemetry::probe::{DeviceReading, Probe};

/// Time after which a probe that has not answered is reported as hanging.
const HANG_AFTER: Duration = Duration::from_secs(3);

/// How long `Drop` waits for probes that are being read.
const STOP_TIMEOUT: Duration = Duration::from_millis(250);

/// Interval of checks for an awaited reading.
const READING_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The probes and their samples.
#[derive(Default)]
pub struct Sampler {
    threads: Vec<Arc<ProbeThread>>,
}

impl Sampler {
    /// Starts one thread for each probe.
    pub fn start(probes: Vec<Box<dyn Probe>>) -> Self {
        let mut sampler = Self::default();
        for probe in probes {
            sampler.add(probe);
        }
        sampler
    }

    pub(crate) fn add(&mut self, probe: Box<dyn Probe>) {
        let thread = Arc::new(ProbeThread {
            source: probe.source(),
            device: probe.device(),
            period: probe.period().max(Duration::from_millis(1)),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let name = match thread.device {
            Some(device) => format!("probe {} {device}", thread.source.name()),
            None => format!("probe {}", thread.source.name()),
        };
        let asking = Arc::clone(&thread);
        let spawned = thread::Builder::new().name(name).spawn(move || asking.run(probe));
        if let Err(error) = spawned {
            thread.lock().last_error = Some(format!("its thread could not be started: {error}"));
        }
        self.threads.push(thread);
    }

    /// Reads every probe once outside its schedule and waits for the results, at most `limit`. At the start
    /// and the end of a window this gives samples directly before and after it.
    pub async fn sample_now(&self, limit: Duration) {
        let deadline = clock::now().plus(limit);
        let requests: Vec<(&Arc<ProbeThread>, u64)> = self
            .threads
            .iter()
            .map(|thread| (thread, thread.request_read()))
            .collect();
        let is_open = |(thread, turn): &&(&Arc<ProbeThread>, u64)| {
            let state = thread.lock();
            state.reads_done < *turn && !state.has_ended && !state.is_hanging(clock::now())
        };
        while requests.iter().any(|requests| is_open(&requests)) && clock::now() < deadline {
            tokio::time::sleep(READING_POLL_INTERVAL).await;
        }
    }

    /// Returns the samples from `from` on, and the last sample of each device before it, in order of time and
    /// in nanoseconds after `zero`. Also returns the availability of each source from `from` to `to`.
    pub fn samples_between(
        &self,
        zero: MonotonicTime,
        from: MonotonicTime,
        to: MonotonicTime,
    ) -> (Vec<Sample>, Vec<SourceFacts>) {
        let (mut samples, mut facts) = (Vec::new(), Vec::new());
        for thread in &self.threads {
            thread.samples_between((zero, from, to), &mut samples, &mut facts);
        }
        samples.sort_by_key(|sample| (sample.at_ns, sample.source, sample.device));
        (samples, facts)
    }

    /// Drops samples taken before a time.
    pub(crate) fn discard_before(&self, before: MonotonicTime) {
        for thread in &self.threads {
            let sample = &mut thread.lock().samples;
            let end = sample.partition_point(|sample| sample.sampled_at < before);
            sample.drain(..end);
        }
    }
}

impl Drop for Sampler {
    /// Ends the reading. The thread of a hanging probe is left running and ends when the probe returns.
    fn drop(&mut self) {
        for thread in &self.threads {
            thread.lock().is_stopping = true;
            thread.changed.notify_all();
        }
        let deadline = clock::now().plus(STOP_TIMEOUT);
        for thread in &self.threads {
            let mut state = thread.lock();
            while !state.has_ended {
                let remaining = deadline.since(clock::now());
                if remaining.is_zero() {
                    break;
                }
                let waited = thread.changed.wait_timeout(state, remaining);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

struct ProbeThread {
    source: TelemetrySource,
    device: Option<u32>,
    period: Duration,
    state: Mutex<ThreadState>,
    /// Signals a request for a reading, a request to end, and the end of the thread.
    changed: Condvar,
}

#[derive(Default)]
struct ThreadState {
    samples: VecDeque<StoredSample>,
    /// Names of values. Samples refer to them by index, because there are many samples and few names.
    names: Vec<String>,
    reading_since: Option<MonotonicTime>,
    /// Why the last reading failed.
    last_error: Option<String>,
    /// Number of readings begun, and of readings finished.
    reads_started: u64,
    reads_done: u64,
    /// Number of the latest reading that is requested outside the schedule.
    requested_read: u64,
    is_stopping: bool,
    has_ended: bool,
}

/// A sample in memory, which refers to its values' names by index.
struct StoredSample {
    sampled_at: MonotonicTime,
    device: Option<u32>,
    values: Vec<(u16, f64)>,
}

/// Records that the thread has ended, on return and on panic.
struct EndGuard<'a>(&'a ProbeThread);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
        self.0.changed.notify_all();
    }
}

impl ProbeThread {
    fn lock(&self) -> MutexGuard<'_, ThreadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a reading that begins after now. Returns its number.
    fn request_read(&self) -> u64 {
        let mut state = self.lock();
        state.requested_read = state.reads_started + 1;
        self.changed.notify_all();
        state.requested_read
    }

    fn run(&self, mut probe: Box<dyn Probe>) {
        let _ended = EndGuard(self);
        let period = u64::try_from(self.period.as_nanos()).unwrap_or(u64::MAX);
        while self.wait_for_turn(period) {
            let began = clock::now();
            let result = catch_unwind(AssertUnwindSafe(|| probe.read()));
            let ended = clock::now();
            let at = began.plus(ended.since(began) / 2);
            let mut state = self.lock();
            state.reading_since = None;
            state.reads_done = state.reads_started;
            match result {
                Ok(Ok(readings)) => state.store(at, readings),
                Ok(Err(reason)) => state.last_error = Some(reason),
                Err(panic) => {
                    state.last_error = Some(format!("its probe panicked: {}", panic_text(&*panic)));
                    return;
                }
            }
        }
    }

    /// Waits for the next multiple of the period or for a request; returns false when the sampler ends.
    /// Multiples that passed during a reading are skipped.
    fn wait_for_turn(&self, period: u64) -> bool {
        let due = MonotonicTime::from_nanos((clock::now().as_nanos() / period + 1).saturating_mul(period));
        let mut state = self.lock();
        loop {
            let now = clock::now();
            if state.is_stopping {
                return false;
            }
            if now >= due || state.requested_read > state.reads_started {
                state.reads_started += 1;
                state.reading_since = Some(now);
                return true;
            }
            let waited = self.changed.wait_timeout(state, due.since(now));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn samples_between(
        &self,
        window: (MonotonicTime, MonotonicTime, MonotonicTime),
        samples: &mut Vec<Sample>,
        facts: &mut Vec<SourceFacts>,
    ) {
        let state = self.lock();
        let mut devices: BTreeSet<Option<u32>> = state.samples.iter().map(|sample| sample.device).collect();
        if devices.is_empty() {
            devices.insert(self.device);
        }
        let error = state.current_error(clock::now());
        for device in devices {
            let device_samples: Vec<&StoredSample> = state
                .samples
                .iter()
                .filter(|sample| sample.device == device)
                .collect();
            let (cut, mut about) = self.device_samples(&device_samples, window);
            about.device = device;
            about.trouble.clone_from(&error);
            facts.push(about);
            samples.extend(cut.iter().map(|sample| {
                Sample {
                    at_ns: signed_ns(window.0, sample.sampled_at),
                    source: self.source,
                    device,
                    values: sample
                        .values
                        .iter()
                        .map(|(name, value)| (state.names[usize::from(*name)].clone(), *value))
                        .collect(),
                }
            }));
        }
    }

    fn device_samples<'t>(
        &self,
        device_samples: &[&'t StoredSample],
        (_, from, to): (MonotonicTime, MonotonicTime, MonotonicTime),
    ) -> (Vec<&'t StoredSample>, SourceFacts) {
        let start = device_samples.partition_point(|sample| sample.sampled_at < from);
        let end = device_samples.partition_point(|sample| sample.sampled_at <= to);
        let within = &device_samples[start..end.max(start)];
        let mut longest = Duration::ZERO;
        let mut last = from;
        for at in within.iter().map(|sample| sample.sampled_at).chain([to]) {
            longest = longest.max(at.since(last));
            last = at;
        }
        let touches = |at: MonotonicTime| within.iter().any(|sample| sample.sampled_at == at);
        let facts = SourceFacts {
            source: self.source,
            device: None,
            period_s: self.period.as_secs_f64(),
            samples: u32::try_from(within.len()).unwrap_or(u32::MAX),
            longest_gap_s: longest.as_secs_f64(),
            is_bracketed: (start > 0 || touches(from)) && (end < device_samples.len() || touches(to)),
            trouble: None,
        };
        (device_samples[start.saturating_sub(1)..].to_vec(), facts)
    }
}

impl ThreadState {
    fn store(&mut self, at: MonotonicTime, readings: Vec<DeviceReading>) {
        self.last_error = None;
        for reading in readings.into_iter().filter(|reading| !reading.values.is_empty()) {
            let values = reading.values.into_iter();
            let values = values.filter_map(|(name, value)| Some((self.name_index(name)?, value)));
            let values = values.collect();
            self.samples.push_back(StoredSample {
                sampled_at: at,
                device: reading.device,
                values,
            });
        }
    }

    fn name_index(&mut self, name: String) -> Option<u16> {
        let at = self.names.iter().position(|known| *known == name);
        let at = at.unwrap_or_else(|| {
            self.names.push(name);
            self.names.len() - 1
        });
        u16::try_from(at).ok()
    }

    /// Why there are currently no values.
    fn current_error(&self, now: MonotonicTime) -> Option<String> {
        let since = self.reading_since.filter(|_| self.is_hanging(now));
        match since.map(|since| now.since(since)) {
            Some(since) => Some(format!("no response for {:.1} s", since.as_secs_f64())),
            None => self.last_error.clone(),
        }
    }

    fn is_hanging(&self, now: MonotonicTime) -> bool {
        self.reading_since
            .is_some_and(|since| now.since(since) > HANG_AFTER)
    }
}

/// Signed time from `from` to `to`, in nanoseconds.
fn signed_ns(from: MonotonicTime, to: MonotonicTime) -> i64 {
    let signed = |nanos: u64| i64::try_from(nanos).unwrap_or(i64::MAX);
    signed(to.as_nanos()) - signed(from.as_nanos())
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned())
}

#[cfg(test)]
mod tests;
