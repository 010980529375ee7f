//! Probes: sources that the sampler reads periodically.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::results::record::telemetry::{SampleValues, TelemetrySource};

/// What one read of a probe gives for one device, or for none in particular.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceReading {
    /// The device's index on the host.
    pub device: Option<u32>,
    /// Missing values are left out.
    pub values: SampleValues,
}

/// What a probe reads, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProbeFacts {
    pub(crate) source: TelemetrySource,
    /// The device of all readings, if there is only one.
    pub(crate) device: Option<u32>,
    pub(crate) period: Duration,
}

impl ProbeFacts {
    pub(crate) fn of(probe: &dyn Probe) -> Self {
        Self {
            source: probe.source(),
            device: probe.device(),
            period: probe.period(),
        }
    }
}

/// A source that is read periodically. Reading may block: each probe has its own thread, and a hanging probe
/// is reported and delays nothing.
pub trait Probe: Send {
    /// The kind of source.
    fn source(&self) -> TelemetrySource;

    /// The device of all readings, if there is only one.
    fn device(&self) -> Option<u32> {
        None
    }

    /// The interval of readings.
    fn period(&self) -> Duration;

    /// Reads the values. After an error the sampler tries again in the next period.
    fn read(&mut self) -> Result<Vec<DeviceReading>, String>;

    /// Reads all values, at the edge of a window. [`Probe::read`] may leave out some that take long.
    fn read_all(&mut self) -> Result<Vec<DeviceReading>, String> {
        self.read()
    }
}
