//! Prepares a bench: waits for the server, finds its model and prepares the prompts.

use std::path::PathBuf;
use std::sync::Arc;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::base::control_client::{self, ControlClient};
use crate::config::api::ClientStyle;
use crate::config::scenario::Scenario;
use crate::loadgen::dataset::{Caches, RngState};
use crate::loadgen::{Address, Target};
use crate::runner::bench::align;
use crate::runner::bench::error::BenchError;
use crate::runner::bench::observer::{BenchEvent, BenchObserver};
use crate::runner::bench::request::BenchRequest;
use crate::runner::bench::session::Session;
use crate::runner::discovery;
use crate::runner::prompt_store::{PreparedWorkload, PromptStore};

pub(super) struct PreparedBench {
    pub(super) control: ControlClient,
    pub(super) model: String,
    /// Whether the server reports that it is the simulated engine.
    pub(super) is_simulated: bool,
    /// The tokenizer that cuts and counts prompts.
    pub(super) tokenizer: String,
    pub(super) prompt_store: Arc<PromptStore>,
    pub(super) session: Session,
    /// State of the generator after the arrivals and adapters of the first load were drawn.
    pub(super) draws: RngState,
}

/// Source: docs/bench-serving.md 6, steps 5 to 8.
pub(super) async fn prepare(
    request: &BenchRequest,
    observer: &mut impl BenchObserver,
) -> Result<PreparedBench, BenchError> {
    let control = control_client(request, &request.address)?;
    let is_simulated = wait_ready(request, &control, observer).await?;
    for address in &request.connections.other_addresses {
        wait_ready(request, &control_client(request, address)?, observer).await?;
    }
    let style = request.dialect.style;
    let (model, listed) = match &request.model {
        Some(model) => (model.clone(), None),
        None => first_model(&control, style).await?,
    };
    let tokenizers = match &request.tokenizer {
        Some(name) => vec![name.clone()],
        None if style == ClientStyle::VllmServe => vec![model.clone()],
        None => {
            let reported = discovery::tokenizer(&control).await;
            reported.into_iter().chain([model.clone()]).collect()
        }
    };
    let target = Target {
        address: request.address.clone(),
        headers: request.headers.clone(),
        dialect: request.dialect.clone(),
        model: listed
            .or_else(|| request.served_model_name.clone())
            .unwrap_or_else(|| model.clone()),
        connections: request.connections.clone(),
    };
    let caches = Caches {
        hf_home: request.hf_home.clone(),
        prompts: request.prompts.clone(),
    };
    let prompt_store = PromptStore::new(PathBuf::new(), caches);
    let scenario = &request.scenarios[0];
    let prepared = workload(scenario, tokenizers, &prompt_store).await;
    let (tokenizer, mut workload) = prepared.map_err(|error| match error {
        BenchError::Prompts(reason)
            if is_simulated
                && request.tokenizer.is_none()
                && reason.starts_with("no tokenizer found for") =>
        {
            BenchError::Prompts(lacks_tokenizer(&model))
        }
        error => error,
    })?;
    if request.aligns_prompts {
        workload = align::align(workload, &control, &model, observer).await;
    }
    let mut draws = workload.prepared.rng.clone();
    let session = Session::new(target, workload, scenario.clone(), &mut draws);
    let session = session.map_err(BenchError::Data)?;
    observer.bench_event(BenchEvent::Prepared {
        session: &session,
        model: &model,
    });
    Ok(PreparedBench {
        control,
        model,
        is_simulated,
        tokenizer,
        prompt_store,
        session,
        draws,
    })
}

/// What to do if the model of a simulated engine, whose name may be invented, has no tokenizer.
fn lacks_tokenizer(model: &str) -> String {
    format!(
        "the server simulates the model `{model}`, which has no tokenizer on this machine\n  = help: give the tokenizer of any \
         model with `--tokenizer`. It can be the path of a `tokenizer.json`, such as `matrices/data/tokenizer.json`, which \
         `matrix init` writes. It can also be a name, such as `Qwen/Qwen3-8B`, after `matrix fetch --tokenizer Qwen/Qwen3-8B`"
    )
}

/// Prepares the prompts with the first of `tokenizers` that works, and returns its name.
async fn workload(
    scenario: &Scenario,
    tokenizers: Vec<String>,
    prompt_store: &Arc<PromptStore>,
) -> Result<(String, Arc<PreparedWorkload>), BenchError> {
    let mut reasons = Vec::new();
    for name in tokenizers {
        match prompt_store.workload(scenario, &name).await {
            Ok(workload) => return Ok((name, workload)),
            // Another tokenizer does not change it.
            Err(error) if error.is_wrong_data => return Err(BenchError::Data(error.reason)),
            Err(error) => reasons.push(error.reason),
        }
    }
    reasons.dedup();
    Err(BenchError::Prompts(reasons.join("\n")))
}

/// Headers of the load that control requests do not repeat: those that describe the bodies of the load.
const BODY_HEADERS: [&str; 3] = ["accept", "accept-encoding", "content-type"];

/// The client for control requests, which are not part of the load.
fn control_client(request: &BenchRequest, address: &Address) -> Result<ControlClient, BenchError> {
    let of_protocol = request.dialect.protocol.facts().headers.iter();
    let mut headers: HeaderMap = of_protocol
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect();
    let auth = request
        .auth
        .iter()
        .filter(|_| request.dialect.style == ClientStyle::BenchServing)
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let repeated = (request.headers.iter())
        .filter(|(name, _)| !BODY_HEADERS.iter().any(|known| name.eq_ignore_ascii_case(known)));
    for (name, value) in auth.chain(repeated) {
        let header = control_client::secret_header(name, value);
        let (name, value) = header.map_err(|_| BenchError::Header {
            name: name.to_owned(),
        })?;
        // A header of the load overrides the key of the environment.
        headers.insert(name, value);
    }
    let tls = request.connections.tls.as_ref();
    let http = control_client::server_client(tls, address.socket.as_deref());
    Ok(ControlClient::new(http, address.to_string(), headers))
}

/// Waits until the server is ready, if a check is requested. Returns whether the server reports that it is
/// the simulated engine.
async fn wait_ready(
    request: &BenchRequest,
    control: &ControlClient,
    observer: &mut impl BenchObserver,
) -> Result<bool, BenchError> {
    let Some(check) = request.ready_check else {
        return Ok(false);
    };
    let (url, limit) = (control.url(check.path), check.limit);
    observer.bench_event(BenchEvent::Waiting { url: &url, limit });
    match discovery::wait_until_ready(control, check.path, limit).await {
        Ok(ready) => {
            observer.bench_event(BenchEvent::Ready {
                seconds: ready.seconds,
            });
            Ok(ready.is_simulated)
        }
        Err(error) => Err(BenchError::NotReady {
            url,
            base_url: control.base_url().to_owned(),
            error,
        }),
    }
}

/// The first model that the server lists. `vllm bench serve` takes it for the path from which the server loaded
/// it, whose tokenizer it uses, and names it in requests as listed; then the second text is that name.
async fn first_model(
    control: &ControlClient,
    style: ClientStyle,
) -> Result<(String, Option<String>), BenchError> {
    let models = discovery::list_models(control).await;
    let models = models.map_err(|error| BenchError::Models {
        base_url: control.base_url().to_owned(),
        error,
    })?;
    let first = models.into_iter().next().ok_or(BenchError::NoModel)?;
    Ok(match (style, first.root) {
        (ClientStyle::VllmServe, Some(root)) => (root, Some(first.id)),
        _ => (first.id, None),
    })
}
