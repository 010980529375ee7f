//! Waits for a server by repeating the first request of the load, as `vllm bench serve` does.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::base::clock;
use crate::loadgen::run_load;
use crate::runner::bench::error::BenchError;
use crate::runner::bench::session::Session;
use crate::runner::load::load_spec;
use crate::runner::ready_engine::ReadyEngine;
use crate::runner::requests::warm_up_item;

/// Pause between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Sends the first request until it is answered. Fails with the last failure after `limit`.
pub(super) async fn wait_for_answer(
    engine: &ReadyEngine,
    session: &Session,
    limit: Duration,
) -> Result<(), BenchError> {
    let scenario = &session.load.scenario;
    let Some(item) = warm_up_item(scenario, &session.workload.prepared, None) else {
        return Ok(());
    };
    let began = clock::now();
    loop {
        let load = load_spec(&engine.target, scenario, vec![item.clone()]);
        let failure = match run_load(load, Arc::default(), CancellationToken::new()).await {
            Ok(result) => match result.records.into_iter().next() {
                Some(request) => match request.failure {
                    None => return Ok(()),
                    Some(failure) => format!("{}: {}", failure.class.name(), failure.message),
                },
                None => "it was not sent".to_owned(),
            },
            Err(error) => error.to_string(),
        };
        let remaining = limit.saturating_sub(clock::now().since(began));
        if remaining.is_zero() {
            return Err(BenchError::FirstRequest(failure));
        }
        tokio::time::sleep(RETRY_INTERVAL.min(remaining)).await;
    }
}
