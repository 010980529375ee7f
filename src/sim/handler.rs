//! Answers one request, with the faults that are due.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde_json::json;
use tokio::sync::oneshot;

use crate::base::clock;
use crate::base::units::Span;
use crate::sim::connection::{After, Reply, Request, Wire};
use crate::sim::dialect::{Ask, Endpoint, Refusal, Route, request};
use crate::sim::engine::Engine;
use crate::sim::faults::LyingHealth;
use crate::sim::metrics::Metrics;
use crate::sim::options::{Dialect, Timing};
use crate::sim::scheduler::Order;
use crate::sim::stream;

/// Answers a request. Returns `After::Close` if the connection must be closed.
pub(crate) async fn answer(
    wire: &mut Wire<'_>,
    engine: &Arc<Engine>,
    request: Request,
) -> std::io::Result<After> {
    let route = Route::of(engine.options.dialect, &request.head.method, &request.head.path);
    let mut after = if request.head.keeps_alive() {
        After::Keep
    } else {
        After::Close
    };
    if !engine.is_ready.load(Relaxed) {
        wire.reply(
            &request,
            &error(engine, 503, "the model is still being loaded"),
            after,
        )
        .await?;
        return Ok(after);
    }
    let number = matches!(route, Route::Generate(_)).then(|| engine.number());
    if engine.hangs() {
        wire.gone().await;
        return Ok(After::Close);
    }
    if engine.refusing.is_cancelled() {
        after = After::Close;
    }
    if needs_key(&request.head.path)
        && let Some(key) = &engine.options.api_key
        && !key.opens(request.head.header("authorization"))
    {
        wire.reply(&request, &error(engine, 401, "Unauthorized"), after)
            .await?;
        return Ok(after);
    }
    if let (Route::Generate(endpoint), Some(number)) = (route, number) {
        return generate(wire, engine, &request, endpoint, number, after).await;
    }
    let reply = page(engine, route, &request).await;
    wire.reply(&request, &reply, after).await?;
    Ok(after)
}

fn needs_key(path: &str) -> bool {
    path.starts_with("/v1/") || path == "/generate"
}

async fn generate(
    wire: &mut Wire<'_>,
    engine: &Arc<Engine>,
    request: &Request,
    endpoint: Endpoint,
    number: u64,
    after: After,
) -> std::io::Result<After> {
    let faults = &engine.options.faults;
    if faults.is_http_error(number) {
        wire.reply(
            request,
            &error(engine, 500, "the engine failed on this request (simulated)"),
            after,
        )
        .await?;
        return Ok(after);
    }
    if faults.lying_health == Some(LyingHealth::Hang) {
        wire.gone().await;
        return Ok(After::Close);
    }
    match Ask::parse(endpoint, &request.body, &engine.options) {
        Ok(ask) if ask.stream => stream::events(wire, engine, request, endpoint, &ask, number, after).await,
        Ok(ask) => stream::whole(wire, engine, request, endpoint, &ask, number, after).await,
        Err(Refusal { status, message }) => {
            wire.reply(request, &error(engine, status, &message), after)
                .await?;
            Ok(after)
        }
    }
}

async fn page(engine: &Engine, route: Route, request: &Request) -> Reply {
    let options = &engine.options;
    match route {
        Route::Health | Route::HealthGenerate => match options.dialect {
            Dialect::Lmdeploy => Reply::json(200, r#"{"status":"healthy"}"#),
            Dialect::Sglang | Dialect::Vllm | Dialect::Openai => Reply::text(200, ""),
        },
        Route::Models => Reply::json(200, models(engine)),
        Route::Metrics if options.dialect == Dialect::Sglang && !options.metrics => not_found(),
        Route::Metrics if options.faults.hangs_metrics_at(engine.requests.load(Relaxed)) => {
            std::future::pending().await
        }
        Route::Metrics => match metrics(engine, &request::served_models(options)[0]) {
            Some(page) => Reply {
                content_type: "text/plain; version=0.0.4; charset=utf-8",
                ..Reply::text(200, page)
            },
            None => not_found(),
        },
        Route::ResetCache => reset_cache(engine, request.head.parameter("timeout")).await,
        Route::Version => Reply::json(200, json!({ "version": options.version }).to_string()),
        Route::ServerInfo => Reply::json(200, server_info(engine)),
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
        Route::ForgetTruth if options.truth => {
            engine.forget_truth();
            Reply::json(200, "{}")
        }
        Route::WrongMethod => Reply::json(405, r#"{"detail":"Method Not Allowed"}"#),
        Route::Truth | Route::ForgetTruth | Route::Unknown | Route::Generate(_) => not_found(),
    }
}

fn models(engine: &Engine) -> String {
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
fn metrics(engine: &Engine, model: &str) -> Option<String> {
    let options = &engine.options;
    match options.faults.forgets_metrics_at(engine.requests.load(Relaxed)) {
        true => Metrics::default().page(options.dialect, model, options.tp),
        false => engine.metrics.page(options.dialect, model, options.tp),
    }
}

fn server_info(engine: &Engine) -> String {
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
        .and_then(|text| format!("{text}s").parse::<Span>().ok())
        .map_or(Duration::ZERO, Span::duration);
    let deadline = clock::now().plus(wait);
    let mut is_done = engine.options.faults.fake_reset || try_flush(engine).await;
    while !is_done && engine.options.dialect == Dialect::Sglang && clock::now() < deadline {
        engine
            .metronome
            .until(clock::now().plus(Duration::from_millis(10)))
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
    let (Timing::Batched(_), Some(orders)) = (&engine.options.timing, &engine.orders) else {
        return engine.metrics.in_flight.load(Relaxed) == 0;
    };
    let (sender, answer) = oneshot::channel();
    orders.send(Order::Flush(sender)).is_ok() && matches!(answer.await, Ok(Ok(())))
}

fn not_found() -> Reply {
    Reply::json(404, r#"{"detail":"Not Found"}"#)
}

fn error(engine: &Engine, status: u16, message: &str) -> Reply {
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
