//! Power of the simulated GPUs: a simple model for showing, testing and comparing energy without a GPU.
//!
//! An idle GPU draws [`IDLE_W`]. While a request runs it draws [`BUSY_W`] more, plus [`BATCH_W`] times the
//! fraction of the batch in use. Energy is the exact integral over time.

use std::sync::{Mutex, PoisonError};

use crate::base::clock::{self, MonotonicTime};

/// Power of an idle GPU in watts.
pub(crate) const IDLE_W: f64 = 80.0;
/// Additional power while any request runs, in watts.
pub(crate) const BUSY_W: f64 = 220.0;
/// Additional power of a full batch, in watts.
pub(crate) const BATCH_W: f64 = 400.0;

/// Meter of one GPU; all GPUs of an engine draw the same.
#[derive(Debug, Default)]
pub(crate) struct PowerMeter(Mutex<Meter>);

#[derive(Clone, Copy, Debug, Default)]
struct Meter {
    /// End of the counted time; `None` before the first reading.
    since: Option<MonotonicTime>,
    watts: f64,
    joules: f64,
}

impl Meter {
    fn advance(&mut self, now: MonotonicTime) {
        let since = self.since.replace(now).map(|since| now.since(since));
        self.joules += since.map_or(0.0, |passed| passed.as_secs_f64() * self.watts);
    }
}

impl PowerMeter {
    /// Sets the fraction of the batch in use from now on, 0 to 1.
    pub(crate) fn set(&self, share: f64) {
        let mut meter = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        meter.advance(clock::now());
        meter.watts = watts(share);
    }

    /// Current power in watts and energy so far in joules, of one GPU.
    pub(crate) fn read(&self) -> (f64, f64) {
        let mut meter = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if meter.since.is_none() {
            meter.watts = watts(0.0);
        }
        meter.advance(clock::now());
        (meter.watts, meter.joules)
    }
}

/// Power of a GPU in watts, for a fraction of the batch in use.
fn watts(share: f64) -> f64 {
    match share > 0.0 {
        true => IDLE_W + BUSY_W + BATCH_W * share.min(1.0),
        false => IDLE_W,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn joules_are_watts_over_time() {
        let mut meter = Meter::default();
        let at = |seconds: f64| MonotonicTime::from_nanos(0).plus(Duration::from_secs_f64(seconds));
        meter.advance(at(1.0));
        assert_eq!(meter.joules, 0.0, "what was before the first look is nobody's");
        meter.watts = watts(0.5);
        meter.advance(at(3.0));
        assert_eq!(meter.joules, 1000.0);
        meter.watts = watts(0.0);
        meter.advance(at(4.0));
        assert_eq!(meter.joules, 1080.0);
        assert_eq!([watts(1.0), watts(7.0)], [700.0, 700.0]);
    }

    #[test]
    fn an_engine_that_never_ran_is_idle() {
        let power = PowerMeter::default();
        assert_eq!(power.read().0, IDLE_W);
        power.set(1.0);
        assert_eq!(power.read().0, 700.0);
    }
}
