//! Why a bench could not be measured.

use thiserror::Error;

use crate::base::control_client::{ControlClient, ControlError};
use crate::runner::cell::CellError;
use crate::runner::session::gpus::GpuError;

/// Why a bench could not be measured.
#[derive(Debug, Error)]
pub(crate) enum BenchError {
    #[error("the header `{name}` cannot be sent: its value contains a control character")]
    Header { name: String },
    #[error("{error}")]
    NotReady {
        url: String,
        base_url: String,
        error: ControlError,
    },
    #[error("the server lists no model")]
    NoModel,
    #[error("{error}")]
    Models { base_url: String, error: ControlError },
    /// Why there are no prompts.
    #[error("{0}")]
    Prompts(String),
    #[error("the GPUs of this host cannot be used")]
    Gpus(GpuError),
    #[error("{error}")]
    NotMeasured {
        error: Box<CellError>,
        /// The URL that requests ask.
        url: String,
        /// The client for what else is asked of the server.
        control: Box<ControlClient>,
    },
}
