//! Answers one request, with the faults that are due.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde_json::json;
use tokio::sync::oneshot;

use crate::base::clock;
use crate::base::units::HumanDuration;
use crate::sim::connection::{Connection, KeepAlive, Reply, Request};
use crate::sim::dialect::{
    Endpoint, GenerationRequest, RequestError, RerankRequest, Route, request, transcription,
};
use crate::sim::engine::Engine;
use crate::sim::faults::FalseHealth;
use crate::sim::metrics::Metrics;
use crate::sim::options::{Dialect, Options, Timing};
use crate::sim::rerank;
use crate::sim::scheduler::BatchCommand;
use crate::sim::stream;

/// Bodies of more bytes are parsed on another thread, because other connections would wait. Shorter ones are not: the change of
/// threads would take longer than they do.
const LARGE_BODY: usize = 1 << 20;

/// What a request has the model compute.
enum Work {
    Generation(Endpoint, GenerationRequest),
    Ranking(RerankRequest),
}

impl Work {
    fn parse(
        endpoint: Option<Endpoint>,
        content_type: Option<&str>,
        body: &[u8],
        options: &Options,
    ) -> Result<Self, RequestError> {
        let Some(endpoint) = endpoint else {
            return RerankRequest::parse(body, options).map(Self::Ranking);
        };
        let generation = match endpoint {
            Endpoint::Transcription => transcription::parse(content_type, body, options)?,
            _ => GenerationRequest::parse(endpoint, body, options)?,
        };
        Ok(Self::Generation(endpoint, generation))
    }

    /// Parses the body of a request, and takes it if it is large.
    async fn read(
        endpoint: Option<Endpoint>,
        request: &mut Request,
        engine: &Arc<Engine>,
    ) -> Result<Self, RequestError> {
        let content_type = request.head.header("content-type");
        if request.body.len() <= LARGE_BODY {
            return Self::parse(endpoint, content_type, &request.body, &engine.options);
        }
        let (content_type, engine) = (content_type.map(str::to_owned), Arc::clone(engine));
        let body = std::mem::take(&mut request.body);
        let parsing = tokio::task::spawn_blocking(move || {
            Self::parse(endpoint, content_type.as_deref(), &body, &engine.options)
        });
        parsing.await.expect("parsing does not panic")
    }
}

/// Answers a request. Returns `KeepAlive::Close` if the connection must be closed.
pub(crate) async fn answer_request(
    connection: &mut Connection<'_>,
    engine: &Arc<Engine>,
    mut request: Request,
) -> std::io::Result<KeepAlive> {
    let route = Route::resolve(engine.options.dialect, &request.head.method, &request.head.path);
    let mut keep_alive = if request.head.keeps_alive() {
        KeepAlive::Keep
    } else {
        KeepAlive::Close
    };
    if !engine.is_ready.load(Relaxed) {
        let reply = match engine.missing_ranks.load(Relaxed) {
            0 => error_reply(engine, 503, "the model is still being loaded"),
            missing => error_reply(
                engine,
                503,
                &format!("number of ranks that have not joined yet: {missing}"),
            ),
        };
        connection.reply(&request, &reply, keep_alive).await?;
        return Ok(keep_alive);
    }
    if let Some(router) = &engine.router {
        return match is_authorized(engine, &request) {
            true => router.answer(connection, engine, &request, keep_alive).await,
            false => refuse_key(connection, engine, &request, keep_alive).await,
        };
    }
    let number = matches!(route, Route::Generate(_) | Route::Rerank).then(|| engine.next_number());
    let is_stalled =
        engine.stalled.is_cancelled() && (number.is_some() || matches!(route, Route::ResetCache));
    if is_stalled || engine.is_hanging() {
        connection.wait_for_close().await;
        return Ok(KeepAlive::Close);
    }
    if engine.refusing.is_cancelled() {
        keep_alive = KeepAlive::Close;
    }
    if !is_authorized(engine, &request) {
        return refuse_key(connection, engine, &request, keep_alive).await;
    }
    if let Some(number) = number {
        return compute(connection, engine, &mut request, route, number, keep_alive).await;
    }
    let reply = answer_page(engine, route, &request).await;
    connection.reply(&request, &reply, keep_alive).await?;
    Ok(keep_alive)
}

/// Whether the request carries the key, if its path needs one.
fn is_authorized(engine: &Engine, request: &Request) -> bool {
    let path = request.head.path.as_str();
    let needs_key = path.starts_with("/v1/") || path == "/generate";
    let key = engine.options.api_key.as_ref().filter(|_| needs_key);
    key.is_none_or(|key| key.matches(request.head.header("authorization")))
}

async fn refuse_key(
    connection: &mut Connection<'_>,
    engine: &Engine,
    request: &Request,
    keep_alive: KeepAlive,
) -> std::io::Result<KeepAlive> {
    let reply = error_reply(engine, 401, "Unauthorized");
    connection.reply(request, &reply, keep_alive).await?;
    Ok(keep_alive)
}

/// Answers a request that the model computes.
async fn compute(
    connection: &mut Connection<'_>,
    engine: &Arc<Engine>,
    request: &mut Request,
    route: Route,
    number: u64,
    keep_alive: KeepAlive,
) -> std::io::Result<KeepAlive> {
    let faults = &engine.options.faults;
    if faults.is_http_error(number) {
        connection
            .reply(
                request,
                &error_reply(engine, 500, "the engine failed on this request (simulated)"),
                keep_alive,
            )
            .await?;
        return Ok(keep_alive);
    }
    if faults.false_health == Some(FalseHealth::Hang) {
        connection.wait_for_close().await;
        return Ok(KeepAlive::Close);
    }
    let endpoint = match route {
        Route::Generate(endpoint) => Some(endpoint),
        _ => None,
    };
    let mut work = Work::read(endpoint, request, engine).await;
    if let Ok(Work::Generation(_, generation)) = &mut work
        && generation.structure.is_none()
    {
        generation.varied_from = engine.varied_from(number, generation.output_tokens as u64);
    }
    if let Ok(Work::Generation(_, generation)) = &mut work
        && generation.structure.is_some()
    {
        // This request is not counted yet.
        let in_flight = engine.metrics.in_flight.load(Relaxed) + 1;
        let is_solution = generation
            .structure
            .as_ref()
            .is_some_and(|structure| structure.is_solution);
        let nth = engine.next_wrong_answer(is_solution);
        let is_wrong = faults.is_wrong(in_flight, generation.prompt.len());
        if let Some(nth) = nth.or(is_wrong.then_some(0)) {
            generation.spoil(nth);
        }
    }
    match work {
        Ok(Work::Generation(endpoint, generation)) if generation.stream => {
            stream::stream_events(
                connection,
                engine,
                request,
                endpoint,
                &generation,
                number,
                keep_alive,
            )
            .await
        }
        Ok(Work::Generation(endpoint, generation)) => {
            stream::send_whole(
                connection,
                engine,
                request,
                endpoint,
                &generation,
                number,
                keep_alive,
            )
            .await
        }
        Ok(Work::Ranking(ranking)) => {
            rerank::send_ranking(connection, engine, request, &ranking, number, keep_alive).await
        }
        Err(error) => refuse(connection, engine, request, &error, keep_alive).await,
    }
}

async fn refuse(
    connection: &mut Connection<'_>,
    engine: &Engine,
    request: &Request,
    error: &RequestError,
    keep_alive: KeepAlive,
) -> std::io::Result<KeepAlive> {
    let reply = error_reply(engine, error.status, &error.message);
    connection.reply(request, &reply, keep_alive).await?;
    Ok(keep_alive)
}

async fn answer_page(engine: &Engine, route: Route, request: &Request) -> Reply {
    let options = &engine.options;
    match route {
        Route::Health | Route::HealthGenerate => match options.dialect {
            Dialect::Lmdeploy => Reply::json(200, r#"{"status":"healthy"}"#),
            Dialect::Sglang | Dialect::Vllm | Dialect::Openai => Reply::text(200, ""),
        },
        Route::Models => Reply::json(200, models_page(engine)),
        Route::Metrics if options.dialect == Dialect::Sglang && !options.metrics => not_found(),
        Route::Metrics if options.faults.hangs_metrics_at(engine.requests.load(Relaxed)) => {
            std::future::pending().await
        }
        Route::Metrics => match metrics_page(engine, &request::served_models(options)[0]) {
            Some(page) => Reply {
                content_type: "text/plain; version=0.0.4; charset=utf-8",
                ..Reply::text(200, page)
            },
            None => not_found(),
        },
        Route::ResetCache => reset_cache(engine, request.head.parameter("timeout")).await,
        Route::Version => Reply::json(200, json!({ "version": options.version }).to_string()),
        Route::ServerInfo => Reply::json(200, server_info_page(engine)),
        Route::ModelInfo => {
            let model = &request::served_models(options)[0];
            Reply::json(
                200,
                json!({ "model_path": model, "tokenizer_path": model, "is_generation": true }).to_string(),
            )
        }
        Route::Truth if options.truth => Reply {
            content_type: "application/x-ndjson",
            ..Reply::text(200, engine.truth())
        },
        Route::ClearTruth if options.truth => {
            engine.clear_truth();
            Reply::json(200, "{}")
        }
        Route::WrongMethod => Reply::json(405, r#"{"detail":"Method Not Allowed"}"#),
        Route::Truth | Route::ClearTruth | Route::Unknown | Route::Generate(_) | Route::Rerank => not_found(),
    }
}

fn models_page(engine: &Engine) -> String {
    let owner = match engine.options.dialect {
        Dialect::Sglang => "sglang",
        Dialect::Vllm => "vllm",
        Dialect::Lmdeploy => "lmdeploy",
        Dialect::Openai => "matrix-sim",
    };
    let names = match engine.options.faults.renames_at(engine.requests.load(Relaxed)) {
        true => vec!["sim/renamed-model".to_owned()],
        false => request::served_models(&engine.options),
    };
    let data: Vec<_> = names
        .into_iter()
        .map(|id| {
            json!({
                "id": id, "object": "model", "created": 0, "owned_by": owner, "root": id, "parent": null,
                "max_model_len": engine.options.max_model_len, "simulated": true,
            })
        })
        .collect();
    json!({ "object": "list", "data": data }).to_string()
}

/// The metrics page; `None` if the dialect has none. With the fault `forget_metrics_after`, the page of a new
/// engine.
fn metrics_page(engine: &Engine, model: &str) -> Option<String> {
    let options = &engine.options;
    match options.faults.forgets_metrics_at(engine.requests.load(Relaxed)) {
        true => Metrics::default().page(options.dialect, model, options.tp),
        false => engine.metrics.page(options.dialect, model, options.tp),
    }
}

fn server_info_page(engine: &Engine) -> String {
    let options = &engine.options;
    let model = &request::served_models(options)[0];
    let info = match options.dialect {
        Dialect::Sglang => json!({
            "model_path": model, "served_model_name": model, "tp_size": options.tp, "context_length": options.max_model_len,
            "random_seed": options.seed, "enable_metrics": options.metrics, "version": options.version, "simulated": true,
            "dtype": "auto", "quantization": options.quantization,
            "internal_states": [{ "simulated": true }],
        }),
        Dialect::Vllm | Dialect::Lmdeploy | Dialect::Openai => json!({
            "vllm_config": {
                "model": model, "tensor_parallel_size": options.tp, "max_model_len": options.max_model_len,
                "seed": options.seed,
            },
            "version": options.version, "simulated": true,
        }),
    };
    info.to_string()
}

/// Empties the prefix cache as the dialect does. vLLM reports success in the body, SGLang by the status.
/// SGLang waits until no request runs, for at most `timeout` seconds.
async fn reset_cache(engine: &Engine, timeout: Option<&str>) -> Reply {
    let wait = timeout
        .and_then(|text| format!("{text}s").parse::<HumanDuration>().ok())
        .map_or(Duration::ZERO, HumanDuration::duration);
    let deadline = clock::now().plus(wait);
    let mut is_done = engine.options.faults.fake_reset || try_flush(engine).await;
    while !is_done && engine.options.dialect == Dialect::Sglang && clock::now() < deadline {
        engine
            .timer
            .sleep_until(clock::now().plus(Duration::from_millis(10)))
            .await;
        is_done = try_flush(engine).await;
    }
    match engine.options.dialect {
        Dialect::Sglang if is_done => Reply::text(200, "Cache flushed.\n"),
        Dialect::Sglang => Reply::text(400, "Flush cache failed: requests are running or waiting.\n"),
        Dialect::Vllm | Dialect::Lmdeploy | Dialect::Openai => {
            Reply::json(200, json!({ "success": is_done }).to_string())
        }
    }
}

async fn try_flush(engine: &Engine) -> bool {
    let (Timing::Batched(_), Some(orders)) = (&engine.options.timing, &engine.batch_commands) else {
        return engine.metrics.in_flight.load(Relaxed) == 0;
    };
    let (sender, answer) = oneshot::channel();
    orders.send(BatchCommand::Flush(sender)).is_ok() && matches!(answer.await, Ok(Ok(())))
}

pub(crate) fn not_found() -> Reply {
    Reply::json(404, r#"{"detail":"Not Found"}"#)
}

pub(crate) fn error_reply(engine: &Engine, status: u16, message: &str) -> Reply {
    Reply::json(status, error_body(engine.options.dialect, status, message))
}

/// The body of an error answer in the dialect.
pub(crate) fn error_body(dialect: Dialect, status: u16, message: &str) -> String {
    let kind = match status {
        401 => "Unauthorized",
        404 => "NotFoundError",
        400..=499 => "BadRequestError",
        503 => "ServiceUnavailableError",
        _ => "InternalServerError",
    };
    let error = json!({ "message": message, "type": kind, "param": null, "code": status });
    match dialect {
        Dialect::Sglang => {
            json!({ "object": "error", "message": message, "type": kind, "param": null, "code": status })
                .to_string()
        }
        Dialect::Vllm | Dialect::Lmdeploy | Dialect::Openai => json!({ "error": error }).to_string(),
    }
}
