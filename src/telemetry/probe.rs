//! Anything that can be asked again and again for values, and the threads that ask.

use std::time::Duration;

use crate::results::record::telemetry::{Source, Values};

/// Values of one device, or of no single one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// The device's index on the host.
    pub device: Option<u32>,
    /// What was told; what was not is absent.
    pub values: Values,
}

/// Something that can be asked again and again. It may block: each has a thread of its own, and one that hangs is cut off and
/// reported, so that it holds up nobody.
pub trait Probe: Send {
    /// What it reads.
    fn source(&self) -> Source;

    /// The device it is about, where it is about one.
    fn device(&self) -> Option<u32> {
        None
    }

    /// How often it is to be asked.
    fn period(&self) -> Duration;

    /// Asks. What it says of a device that has died or a call that is missing is in the error; the next time it is asked again.
    ///
    /// # Errors
    /// In words, why there are no values this time.
    fn read(&mut self) -> Result<Vec<Reading>, String>;
}
