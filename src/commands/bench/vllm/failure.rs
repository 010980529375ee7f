//! Messages for a bench that could not measure.

use super::settings::Settings;
use crate::commands::bench::failure::address_flags;
use crate::commands::error::CommandError;
use crate::commands::session_error::gpu_error;
use crate::exit::Exit;
use crate::runner::bench::BenchError;
use crate::runner::cell::CellError;

pub(super) fn error(settings: &Settings, error: &BenchError) -> CommandError {
    let not_ready = |message: String| CommandError::host_not_ready(format!("error: {message}\n"));
    match error {
        BenchError::Header { .. } | BenchError::Data(_) => CommandError::usage(format!("error: {error}\n")),
        BenchError::Models { .. } | BenchError::NoModel => not_ready(format!(
            "{error}\n  = help: name the model with `--model`, or the server with {}",
            address_flags(
                &settings.address.to_string(),
                "`--host` and `--port`, or `--base-url`"
            )
        )),
        BenchError::FirstRequest(_) => not_ready(format!(
            "{error}\n  = help: start the server, check `--backend` and `--endpoint`, or allow more seconds with \
             `--ready-check-timeout-sec`"
        )),
        BenchError::Gpus(error) => gpu_error(error),
        BenchError::NotMeasured { error, url, .. } => match &**error {
            CellError::WarmUp(failure) => CommandError {
                exit: Exit::CellFailed,
                message: format!(
                    "error: every warm-up request to {url} failed: {}: {}\n  = help: check `--backend {}`, `--endpoint` and the model\n",
                    failure.class.name(),
                    failure.message,
                    settings.backend
                ),
            },
            error => not_ready(error.to_string()),
        },
        BenchError::NotReady { .. } | BenchError::Prompts(_) => not_ready(error.to_string()),
    }
}
