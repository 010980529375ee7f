//! Probes: sources that the sampler reads periodically.

use std::time::Duration;

use crate::results::record::telemetry::{SampleValues, TelemetrySource};

/// Values of one device, or of none in particular.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// The device's index on the host.
    pub device: Option<u32>,
    /// Missing values are left out.
    pub values: SampleValues,
}

/// Something that can be asked again and again. It may block: each has a thread of its own, and one that hangs is cut off and
/// reported, so that it holds up nobody.
pub trait Probe: Send {
    /// What it reads.
    fn source(&self) -> TelemetrySource;

    /// The device that all readings are about, if it is only one.
    fn device(&self) -> Option<u32> {
        None
    }

    /// How often it is to be asked.
    fn period(&self) -> Duration;

    /// Reads the values. After an error the sampler tries again in the next period.
    fn read(&mut self) -> Result<Vec<Reading>, String>;
}
