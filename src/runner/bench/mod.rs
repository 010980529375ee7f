//! A bench sends loads to an attached server, one after another. It starts and stops no engine.

mod align;
mod error;
mod first_request;
mod loads;
mod observer;
mod prepare;
mod request;
mod session;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use crate::loadgen::PlannedRequest;
pub(crate) use crate::loadgen::dataset::check_lengths_file;
pub(crate) use error::BenchError;
pub(crate) use observer::{BenchEvent, BenchLoad, BenchObserver, BenchOutcome};
pub(crate) use request::{Address, BenchRequest, Connections, Headers, ReadyCheck, Scheme};
pub(crate) use session::Session;

use self::loads::Bench;
use self::prepare::PreparedBench;
use crate::config::api::ClientStyle;
use crate::config::template::Template;
use crate::engine;
use crate::plan::{Api, AttachedServer, Engine, ExecutorSpec, Launch, Plan};
use crate::results::record::client::Calibration;
use crate::runner::calibrate;
use crate::runner::cell::{CellContext, Procedure};
use crate::runner::environment::Environment;
use crate::runner::ready_engine::ReadyEngine;
use crate::runner::record_sink::RecordSink;
use crate::runner::session::gpus;
use crate::runner::shutdown::Shutdown;
use crate::telemetry::gpu::Gpus;
use crate::telemetry::machine;

/// Interval of progress reports.
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// Raises the limit of open files and loads the client's calibration of this host, if there is one.
pub(crate) fn prepare_host(cache: &Path, tool: &str) -> Option<Calibration> {
    machine::raise_open_files();
    calibrate::load_saved(cache, || machine::read(tool))
}

/// Measures every arrival of a request, or the points of its search.
///
pub(crate) async fn run(
    request: &BenchRequest,
    environment: &Environment,
    observer: &mut impl BenchObserver,
    shutdown: &Shutdown,
) -> Result<BenchOutcome, BenchError> {
    // Stopping here loses no results, because nothing was measured.
    let prepared = shutdown
        .unless_requested(prepare::prepare(request, observer))
        .await;
    let Some(prepared) = prepared else {
        return Ok(BenchOutcome::Stopped);
    };
    let prepared = prepared?;
    // GPUs of this host are unrelated to a server on another host.
    let gpus = match engine::is_local_host(&request.address.host) {
        true => tokio::task::block_in_place(|| open_gpus(environment, observer))?,
        false => None,
    };
    let (target, control) = (prepared.session.target.clone(), prepared.control.clone());
    let plan = Plan::attached(launch(request, &prepared), request.scenarios.clone());
    let procedure = Procedure {
        reset_limit: request.cache_reset_limit,
        requires_reset: true,
        settle: request.settle_time,
        profiler: request.profiler.clone(),
        counters_path: (request.dialect.style == ClientStyle::VllmServe).then_some("/metrics"),
        report_every: REPORT_EVERY,
        is_raw: true,
    };
    let mut bench = Bench {
        plan: &plan,
        context: CellContext {
            launch: &plan.launches[0],
            bounds: &plan.validity,
            procedure: &procedure,
            records: RecordSink::File(request.records.as_ref()),
            calibration: None,
            stop: shutdown,
        },
        engine: ReadyEngine::attached(target, control, gpus, environment).await,
    };
    if let Some(limit) = request.first_request_limit {
        let asking = first_request::wait_for_answer(&bench.engine, &prepared.session, limit);
        match shutdown.unless_requested(asking).await {
            None => return Ok(BenchOutcome::Stopped),
            Some(answered) => answered?,
        }
        observer.bench_event(BenchEvent::Answered);
    }
    match &request.scenarios[0].search {
        Some(search) => bench.search(search, &prepared.session, observer).await,
        None => bench.arrivals(prepared, request.continues_draws, observer).await,
    }
}

/// Describes the server as a launch.
fn launch(request: &BenchRequest, prepared: &PreparedBench) -> Launch {
    let engine = Engine {
        backend: request.backend.clone(),
        simulated: prepared.is_simulated,
        ..Engine::new("bench")
    };
    let place = ExecutorSpec::Attach(AttachedServer {
        url: Template::new(request.address.to_string()),
        other_urls: (request.connections.other_addresses.iter())
            .map(|address| Template::new(address.to_string()))
            .collect(),
        balance: request.connections.balance,
        ..AttachedServer::default()
    });
    let api = Api {
        info: request.asks_info.then(|| "/server_info".to_owned()),
        reset: request.cache_reset.clone(),
        dialect: request.dialect.clone(),
        ..Api::new(request.dialect.protocol)
    };
    Launch {
        served_model_name: prepared.session.model().to_owned(),
        tokenizer: prepared.tokenizer.clone(),
        ..Launch::new(engine, &prepared.model, place, api)
    }
}

fn open_gpus(
    environment: &Environment,
    observer: &mut impl BenchObserver,
) -> Result<Option<Arc<Gpus>>, BenchError> {
    let notices = std::cell::RefCell::new(Vec::new());
    let gpus = gpus::open_gpus(environment, &|notice| notices.borrow_mut().push(notice));
    for notice in notices.into_inner() {
        observer.bench_event(BenchEvent::Notice(&notice));
    }
    gpus.map_err(BenchError::Gpus)
}
