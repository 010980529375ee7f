//! What comes before the first load: the server is ready, its model is known, and the prompts are made.

use std::path::PathBuf;

use reqwest::header::HeaderMap;

use crate::base::control_client::{self, ControlClient};
use crate::loadgen::Target;
use crate::loadgen::dataset::Caches;
use crate::runner::bench::error::BenchError;
use crate::runner::bench::observer::{BenchEvent, BenchObserver, ServerInfo};
use crate::runner::bench::request::BenchRequest;
use crate::runner::bench::session::{Session, Tokenizers};
use crate::runner::discovery;

/// A bench that can begin.
pub(super) struct Prepared {
    pub(super) control: ControlClient,
    pub(super) target: Target,
    pub(super) session: Session,
}

/// Source: docs/bench-serving.md 6, steps 5 to 8.
pub(super) async fn prepare(
    request: &BenchRequest,
    observer: &mut impl BenchObserver,
) -> Result<Prepared, BenchError> {
    let control = control_client(request)?;
    let is_simulated = wait(request, &control, observer).await?;
    let model = match &request.model {
        Some(model) => model.clone(),
        None => first_model(&control).await?,
    };
    let tokenizers = match &request.tokenizer {
        Some(name) => vec![name.clone()],
        None => {
            let reported = discovery::tokenizer(&control).await;
            reported.into_iter().chain([model.clone()]).collect()
        }
    };
    let target = Target {
        address: request.address.clone(),
        headers: request.headers.clone(),
        dialect: request.dialect.clone(),
        model: request.served.clone().unwrap_or_else(|| model.clone()),
    };
    let caches = Caches {
        hf_home: request.hf_home.clone(),
        prompts: request.prompts.clone(),
    };
    let session = Session::prepare(
        target.clone(),
        request.scenario.clone(),
        Tokenizers(&tokenizers),
        PathBuf::new(),
        caches,
    );
    let session = session.await.map_err(BenchError::Prompts)?;
    observer.event(BenchEvent::Prepared {
        session: &session,
        server: ServerInfo { model, is_simulated },
    });
    Ok(Prepared {
        control,
        target,
        session,
    })
}

/// The client for everything that is asked of the server beside the load.
fn control_client(request: &BenchRequest) -> Result<ControlClient, BenchError> {
    let mut headers = HeaderMap::new();
    if let Some((name, value)) = &request.auth {
        let header = control_client::secret_header(name, value);
        headers.extend([header.map_err(|_| BenchError::Header { name: name.clone() })?]);
    }
    let base_url = request.address.to_string();
    Ok(ControlClient::new(control_client::client(), base_url, headers))
}

/// Waits until the server is ready, if it is asked; whether it says that it is the simulated engine.
async fn wait(
    request: &BenchRequest,
    control: &ControlClient,
    observer: &mut impl BenchObserver,
) -> Result<bool, BenchError> {
    let Some(check) = request.ready else {
        return Ok(false);
    };
    let (url, limit) = (control.url(check.path), check.limit);
    observer.event(BenchEvent::Waiting { url: &url, limit });
    match discovery::wait_until_ready(control, check.path, limit).await {
        Ok(ready) => {
            observer.event(BenchEvent::Ready {
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

async fn first_model(control: &ControlClient) -> Result<String, BenchError> {
    let models = discovery::models(control).await;
    let models = models.map_err(|error| BenchError::Models {
        base_url: control.base_url().to_owned(),
        error,
    })?;
    models.into_iter().next().ok_or(BenchError::NoModel)
}
