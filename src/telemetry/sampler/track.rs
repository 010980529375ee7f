//! The samples of one source, which a thread of this process or another node reads.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::base::clock::{self, MonotonicTime};
use crate::results::record::telemetry::{Sample, SourceFacts, TelemetrySource};
use crate::telemetry::probe::{DeviceReading, ProbeFacts};

/// Time after which a probe that has not answered is reported as hanging.
pub(super) const HANG_AFTER: Duration = Duration::from_secs(3);

/// Number of readings in which every value that can be read appears.
const READINGS_BEFORE_WINDOW: usize = 20;

/// A source with its samples.
pub(super) struct Track {
    /// The node of the job that reads it, if it is not this one.
    pub(super) node: Option<String>,
    pub(super) source: TelemetrySource,
    pub(super) device: Option<u32>,
    pub(super) period: Duration,
    pub(super) state: Mutex<TrackState>,
    /// Signals a request for a reading, a request to end, and the end of the thread.
    pub(super) changed: Condvar,
}

#[derive(Default)]
pub(super) struct TrackState {
    samples: VecDeque<StoredSample>,
    /// Names of values. Samples refer to them by index, because there are many samples and few names.
    names: Vec<String>,
    pub(super) reading_since: Option<MonotonicTime>,
    /// Why the last reading failed.
    pub(super) last_error: Option<String>,
    /// Number of readings begun, and of readings finished.
    pub(super) reads_started: u64,
    pub(super) reads_done: u64,
    /// Number of the latest reading that is requested outside the schedule.
    pub(super) requested_read: u64,
    pub(super) is_stopping: bool,
    pub(super) has_ended: bool,
}

/// A sample in memory, which refers to its values' names by index.
struct StoredSample {
    sampled_at: MonotonicTime,
    device: Option<u32>,
    values: Vec<(u16, f64)>,
}

impl Track {
    pub(super) fn new(node: Option<String>, facts: ProbeFacts) -> Self {
        Self {
            node,
            source: facts.source,
            device: facts.device,
            period: facts.period.max(Duration::from_millis(1)),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Another node reads it: the next reading is expected a period after the last one arrived.
    pub(super) fn expect_reading(&self, arrived: MonotonicTime) {
        self.lock().reading_since = Some(arrived.plus(self.period));
    }

    /// Drops samples taken before a time.
    pub(super) fn discard_before(&self, before: MonotonicTime) {
        let samples = &mut self.lock().samples;
        let end = samples.partition_point(|sample| sample.sampled_at < before);
        samples.drain(..end);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, TrackState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn samples_between(
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
                    node: self.node.clone(),
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
            node: self.node.clone(),
            device: None,
            period_s: self.period.as_secs_f64(),
            samples: u32::try_from(within.len()).unwrap_or(u32::MAX),
            longest_gap_s: longest.as_secs_f64(),
            is_bracketed: (start > 0 || touches(from)) && (end < device_samples.len() || touches(to)),
            trouble: None,
        };
        let mut samples = last_of_each_value(&device_samples[..start]);
        samples.extend(&device_samples[start..]);
        (samples, facts)
    }
}

/// The last of these samples, and those before it that have a value which later ones lack: not each reading has all values.
fn last_of_each_value<'t>(device_samples: &[&'t StoredSample]) -> Vec<&'t StoredSample> {
    let mut known: BTreeSet<u16> = BTreeSet::new();
    let latest = device_samples.iter().rev().take(READINGS_BEFORE_WINDOW);
    let mut samples: Vec<&StoredSample> = latest
        .filter(|sample| {
            // Not `any`, which would stop at the first one.
            let new = sample.values.iter().filter(|(name, _)| known.insert(*name));
            new.count() > 0
        })
        .copied()
        .collect();
    samples.reverse();
    samples
}

impl TrackState {
    /// Keeps the result of a reading.
    pub(super) fn store(&mut self, at: MonotonicTime, result: Result<Vec<DeviceReading>, String>) {
        let readings = match result {
            Ok(readings) => readings,
            Err(reason) => {
                self.last_error = Some(reason);
                return;
            }
        };
        self.last_error = None;
        // Samples are in the order of time, even where the clock of another node was estimated anew.
        let at = self.samples.back().map_or(at, |last| at.max(last.sampled_at));
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
    pub(super) fn current_error(&self, now: MonotonicTime) -> Option<String> {
        let since = self.reading_since.filter(|_| self.is_hanging(now));
        match since.map(|since| now.since(since)) {
            Some(since) => Some(format!("no response for {:.1} s", since.as_secs_f64())),
            None => self.last_error.clone(),
        }
    }

    pub(super) fn is_hanging(&self, now: MonotonicTime) -> bool {
        self.reading_since
            .is_some_and(|since| now.since(since) > HANG_AFTER)
    }
}

/// Signed time from `from` to `to`, in nanoseconds.
pub(super) fn signed_ns(from: MonotonicTime, to: MonotonicTime) -> i64 {
    let signed = |nanos: u64| i64::try_from(nanos).unwrap_or(i64::MAX);
    signed(to.as_nanos()) - signed(from.as_nanos())
}
