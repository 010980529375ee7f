//! Errors of a bench.

use thiserror::Error;

use crate::base::control_client::{ControlClient, ControlError};
use crate::runner::cell::CellError;
use crate::runner::session::gpus::GpuError;

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
    /// The data file or the settings of the prompts are wrong.
    #[error("{0}")]
    Data(String),
    /// The prompts could not be prepared, for example because the data set or the tokenizer must be fetched first.
    #[error("{0}")]
    Prompts(String),
    /// The first request was not answered in time.
    #[error("the first request was not answered: {0}")]
    FirstRequest(String),
    #[error("the GPUs of this host cannot be used")]
    Gpus(GpuError),
    #[error("{error}")]
    NotMeasured {
        error: Box<CellError>,
        /// The URL of the load's requests.
        url: String,
        /// The client for control requests to the server.
        control: Box<ControlClient>,
    },
}
