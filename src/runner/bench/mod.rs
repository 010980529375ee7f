//! A bench: loads on a server that someone else runs, one after another. It starts nothing and stops nothing.

mod error;
mod measure;
mod measurement;
mod observer;
mod outcome;
mod points;
mod prepare;
mod profiler;
mod request;
mod session;

use std::path::Path;
use std::sync::Arc;

pub(crate) use error::BenchError;
pub(crate) use measurement::BenchMeasurement;
pub(crate) use observer::{
    BenchEvent, BenchObserver, JudgedPoint, ProfilerEvent, RequestDetails, ServerInfo,
};
pub(crate) use outcome::BenchOutcome;
pub(crate) use request::{
    Address, ArrivalDraws, BenchRequest, Headers, ProfiledServers, Profiler, ReadyCheck, RecordsFile, Scheme,
};
pub(crate) use session::Session;

use crate::engine;
use crate::results::record::client::Calibration;
use crate::runner::calibrate;
use crate::runner::environment::Environment;
use crate::runner::ready_engine::ReadyEngine;
use crate::runner::session::gpus;
use crate::runner::shutdown::Stop;
use crate::telemetry::gpu::Gpus;
use crate::telemetry::machine;

/// Raises the limit of open files, and reads the error of the client on this machine if it was measured.
pub(crate) fn prepare_host(cache: &Path, tool: &str) -> Option<Calibration> {
    machine::raise_open_files();
    calibrate::kept(cache, || machine::read(tool))
}

/// Measures every arrival of a request, or the points of its search.
///
/// # Errors
/// Why nothing could be measured, or why the next load cannot be sent.
pub(crate) async fn run(
    request: &BenchRequest,
    environment: &Environment,
    observer: &mut impl BenchObserver,
    stop: &Stop,
) -> Result<BenchOutcome, BenchError> {
    // Nothing was measured, so nothing is lost.
    let prepared = stop.unless_asked(prepare::prepare(request, observer)).await;
    let Some(prepared) = prepared else {
        return Ok(BenchOutcome::Stopped);
    };
    let prepare::Prepared {
        control,
        target,
        session,
    } = prepared?;
    // GPUs of this host tell nothing about a server elsewhere.
    let gpus = match engine::is_here(&request.address.host) {
        true => tokio::task::block_in_place(|| open_gpus(environment, observer))?,
        false => None,
    };
    let engine = ReadyEngine::attached(target, control, gpus).await;
    let mut server = measure::Server {
        request,
        engine,
        stop,
    };
    match &request.scenario.search {
        Some(search) => points::search(search, &mut server, &session, observer).await,
        None => points::arrivals(&mut server, &session, observer).await,
    }
}

fn open_gpus(
    environment: &Environment,
    observer: &mut impl BenchObserver,
) -> Result<Option<Arc<Gpus>>, BenchError> {
    let notices = std::cell::RefCell::new(Vec::new());
    let gpus = gpus::open(environment, &|notice| notices.borrow_mut().push(notice));
    for notice in notices.into_inner() {
        observer.event(BenchEvent::Notice(&notice));
    }
    gpus.map_err(BenchError::Gpus)
}
