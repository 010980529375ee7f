//! `matrix calibrate`: measures the accuracy of the client on this host against the simulated engine.

use anyhow::Context;

use crate::base::text::error_chain;
use crate::cli::CalibrateArgs;
use crate::commands::environment::environment;
use crate::commands::error::{CommandError, Outcome};
use crate::commands::output::{Colors, print};
use crate::commands::terminal;
use crate::exit::Exit;
use crate::report::{self, calibration};
use crate::runner::calibrate::CalibrationRequest;
use crate::runner::client_calibration::{self, CalibrationError};

/// Measures the client, prints the table, and saves the result in the cache.
pub(crate) fn execute(args: &CalibrateArgs, colors: Colors) -> Outcome {
    let wanted = CalibrationRequest {
        streams: args.streams.clone(),
        gaps_ms: args.gaps.clone(),
        tokens: args.tokens,
        flood: true,
    };
    let saved =
        client_calibration::run(&environment(), &args.places.cache(), &wanted).map_err(calibration_error)?;
    let Some(saved) = saved else {
        return Ok(Exit::Interrupted);
    };
    if args.json {
        let text = serde_json::to_string_pretty(&saved.calibration).context("it is JSON")?;
        print(&format!("{text}\n"));
        return Ok(Exit::Done);
    }
    let table = calibration::table(&saved.calibration);
    print(&report::terminal::draw(&table, terminal::width(), colors.stdout));
    print(&format!("saved in {}\n", saved.path.display()));
    Ok(Exit::Done)
}

fn calibration_error(error: CalibrationError) -> CommandError {
    match error {
        CalibrationError::Threads(error) => error.into(),
        error => CommandError::host_not_ready(format!("error: {}\n", error_chain(&error))),
    }
}
