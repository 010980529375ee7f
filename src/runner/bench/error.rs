//! Why a bench could not be measured.

use thiserror::Error;

use crate::base::control_client::{ControlClient, ControlError};
use crate::loadgen::DriveError;
use crate::results::record::request::Failure;
use crate::runner::session::gpus::GpuError;

/// Why a bench could not be measured.
#[derive(Debug, Error)]
pub(crate) enum BenchError {
    #[error("the header `{name}` cannot be sent: its value holds a control character")]
    Header { name: String },
    #[error("{error}")]
    NotReady {
        url: String,
        base_url: String,
        error: ControlError,
    },
    #[error("the server names no model")]
    NoModel,
    #[error("{error}")]
    Models { base_url: String, error: ControlError },
    /// Why there are no prompts, or why they cannot be sent.
    #[error("{0}")]
    Prompts(String),
    #[error("the GPUs of this host cannot be used")]
    Gpus(GpuError),
    #[error("every warm-up request failed: {}: {}", .0.failure.class.name(), .0.failure.message)]
    WarmUp(Box<FailedWarmUp>),
    #[error("the caches were not emptied: {0}")]
    Reset(ControlError),
    #[error(transparent)]
    NotSent(#[from] DriveError),
}

/// A warm-up of which every request failed.
#[derive(Debug)]
pub(crate) struct FailedWarmUp {
    /// The first failure.
    pub(crate) failure: Failure,
    /// The URL that requests ask.
    pub(crate) url: String,
    /// The client for what else is asked of the server.
    pub(crate) control: ControlClient,
}
