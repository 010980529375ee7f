//! `matrix calibrate`: what the client is worth on this machine, measured against the simulated engine with exact timing.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;

use crate::base::ids::RunId;
use crate::base::secrets::Redactor;
use crate::base::threads;
use crate::cli::{self, CalibrateArgs};
use crate::commands::error::{CommandError, Outcome};
use crate::commands::output::{Colors, print};
use crate::engine;
use crate::exit::Exit;
use crate::report::{self, Format, calibration};
use crate::results::store::{self, Store};
use crate::runner::calibrate::{Wanted, calibrate};
use crate::runner::context::{Events, Host};
use crate::runner::shutdown::{Signals, Stop};
use crate::telemetry::machine;

/// Measures the client, prints the table, and keeps the result with the machine.
///
/// # Errors
/// The simulated engine does not start, or the result cannot be kept.
pub fn execute(args: &CalibrateArgs, colors: Colors) -> Outcome {
    machine::raise_open_files();
    let cache = args.places.cache();
    store::calibration::sweep(&cache);
    let logs = store::calibration::Folder::make(&cache).map_err(|error| {
        CommandError::unfit(format!(
            "error: the cache folder cannot be written: {error}\n  = help: name another one with `--cache` or XDG_CACHE_HOME\n"
        ))
    })?;
    let run = RunId::new("calibration");
    let store = Store::create(logs.path(), &run, Redactor::default()).context("cannot keep logs")?;
    let host = Host {
        run,
        matrix: std::env::current_exe().context("cannot find the program's own file")?,
        folder: logs.path().to_owned(),
        path: cli::variable("PATH"),
        environment: cli::variables(),
        hf_home: None,
        cache: cache.clone(),
        prompts: None,
        whereabouts: engine::Whereabouts::default(),
        images: Arc::default(),
        orphans: Arc::default(),
        secrets: BTreeMap::new(),
        redactor: Redactor::default(),
        http: engine::http_client(),
        machine: machine::read(&format!("matrix {}", cli::VERSION)),
        devices: Vec::new(),
        gpus: None,
    };
    let wanted = Wanted {
        streams: args.streams.clone(),
        gaps_ms: args.gaps.clone(),
        tokens: args.tokens,
        flood: true,
    };
    let runtime = threads::runtime()?;
    let stop = Stop::default();
    let measured = runtime.block_on(async {
        let mut signals = Signals::catch().context("cannot listen to signals")?;
        let events = Events::default();
        tokio::select! {
            measured = calibrate(&host, &store, &wanted, &stop) => anyhow::Ok(measured),
            never = stop.listen(&mut signals, &events) => match never {},
        }
    })?;
    if stop.is_asked() {
        return Ok(Exit::Interrupted);
    }
    let measured = measured
        .map_err(|reason| CommandError::unfit(format!("error: the client cannot be calibrated: {reason}\n  = help: measure again when nothing else keeps this host busy; an earlier calibration stays as it is\n")))?;
    let Some(measured) = measured else {
        return Ok(Exit::Interrupted);
    };
    let path = store::calibration::keep(&cache, &measured).context("the result cannot be kept")?;
    if args.json {
        let text = serde_json::to_string_pretty(&measured).context("it is JSON")?;
        print(&format!("{text}\n"));
        return Ok(Exit::Done);
    }
    let format = Format::Terminal {
        width: super::terminal::width(),
        colors: colors.stdout,
    };
    print(&report::draw(&calibration::table(&measured), format));
    print(&format!("kept in {}\n", path.display()));
    Ok(Exit::Done)
}
