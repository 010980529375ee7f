//! Messages for a bench that could not measure: the Python tool's lines on stdout, and help on stderr.

use crate::base::control_client::{ControlClient, ControlError};
use crate::base::units::HumanDuration;
use crate::commands::bench::config::BenchConfig;
use crate::commands::bench::print_line::print_line;
use crate::commands::error::CommandError;
use crate::commands::session_error::gpu_error;
use crate::config::backend::{Backend, KeyVariable};
use crate::config::workload::Profile;
use crate::exit::Exit;
use crate::results::record::request::{Failure, RequestFailureClass};
use crate::runner::bench::BenchError;
use crate::runner::cell::CellError;
use crate::runner::discovery;

fn host_not_ready(message: impl std::fmt::Display) -> CommandError {
    CommandError::host_not_ready(format!("error: {message}\n"))
}

/// The flags that give another address of the same kind; `plain` are those for neither a socket nor TLS.
pub(super) fn address_flags(base_url: &str, plain: &'static str) -> &'static str {
    if base_url.starts_with("unix://") {
        return "`--base-url unix:///path/to/socket`";
    }
    match base_url.starts_with("https://") {
        true => "`--base-url https://host:port`",
        false => plain,
    }
}

/// Prints the Python tool's lines about an error, and returns our message.
pub(super) async fn report_error(config: &BenchConfig, error: BenchError) -> CommandError {
    match error {
        BenchError::Header { .. } | BenchError::Data(_) => CommandError::usage(format!("error: {error}\n")),
        BenchError::NotReady { url, base_url, error } => server_not_ready(config, &url, &base_url, &error),
        BenchError::NoModel => {
            print_line("No model specified or found. Please provide a model using `--model`.");
            host_not_ready("the server lists no model; give `--model`")
        }
        BenchError::Models { base_url, error } => {
            print_line(&format!(
                "Failed to fetch model from {base_url}/v1/models. Error: {error}"
            ));
            print_line("Please specify the correct host and port using `--host` and `--port`.");
            host_not_ready(format!(
                "{error}\n  = help: give `--model`, or the address of the server with {}",
                address_flags(&base_url, "`--host` and `--port`")
            ))
        }
        BenchError::Gpus(error) => gpu_error(&error),
        BenchError::NotMeasured { error, url, control } => match &*error {
            CellError::WarmUp(failure) => warm_up_error(config, &control, &url, failure).await,
            CellError::Reset(ControlError::Silent { error: cause, .. }) if cause.is_timeout() => {
                host_not_ready(format!(
                    "{error}\n  = note: the caches were not emptied within the {} of `--flush-cache-timeout`\n  = help: leave \
                 `--flush-cache` out, or allow more seconds with `--flush-cache-timeout`",
                    HumanDuration(config.cache_reset_limit)
                ))
            }
            CellError::Reset(_) => host_not_ready(format!(
                "{error}\n  = help: leave `--flush-cache` out, or enable cache resets on the server"
            )),
            _ => host_not_ready(error),
        },
        BenchError::Prompts(_) | BenchError::FirstRequest(_) => host_not_ready(error),
    }
}

fn server_not_ready(config: &BenchConfig, url: &str, base_url: &str, error: &ControlError) -> CommandError {
    if !error.is_refusal() {
        print_line(&format!(
            "Server did not become ready within {}s timeout.",
            config.ready_timeout_s
        ));
        print_line(&format!("Server at {url} is not ready. Exiting."));
        let flags = address_flags(base_url, "`--host` and `--port`, or `--base-url`");
        let help = match error.has_answered() {
            true => format!("if this is not the server that you mean, give the right address with {flags}"),
            false => format!("start the server, or give its address with {flags}"),
        };
        return host_not_ready(format!("{error}\n  = help: {help}"));
    }
    print_line(&format!("Server at {url} is not ready. Exiting."));
    let help = match base_url.strip_suffix("/v1") {
        _ if error.requires_key() && config.backend.facts().key == KeyVariable::Anthropic => {
            "the server requires a key: set `ANTHROPIC_API_KEY`, or give `--header x-api-key=KEY`".to_owned()
        }
        _ if error.requires_key() => {
            "the server requires a key: set `OPENAI_API_KEY`, or give `--header Authorization=\"Bearer KEY\"`"
                .to_owned()
        }
        Some(base) => {
            format!("did you mean `--base-url {base}`? paths such as `/v1/models` are appended to it")
        }
        None => {
            "the server is up but does not serve this path: check `--base-url` and `--backend`, or skip the check \
                 with `--ready-check-timeout-sec 0`"
                .to_owned()
        }
    };
    host_not_ready(format!("{error}\n  = help: {help}"))
}

/// Returns the error for a warm-up in which every request failed; `failure` is the first failure.
async fn warm_up_error(
    config: &BenchConfig,
    server: &ControlClient,
    url: &str,
    failure: &Failure,
) -> CommandError {
    let what = match config.profile {
        Profile::Classic => "Initial test run failed",
        Profile::Current => "Warmup failed",
    };
    let help = warm_up_help(config, server, url, failure).await;
    let help = help.map_or_else(String::new, |help| format!("  = help: {help}\n"));
    CommandError {
        exit: Exit::CellFailed,
        message: format!(
            "error: {what} - Please make sure benchmark arguments are correctly specified. Error: {}: {}\n{help}",
            failure.class.name(),
            failure.message
        ),
    }
}

/// Returns help for a warm-up in which every request failed; `failure` is the first failure.
async fn warm_up_help(
    config: &BenchConfig,
    server: &ControlClient,
    url: &str,
    failure: &Failure,
) -> Option<String> {
    if config.asks_for_usage() && failure.message.contains("stream_options") {
        return Some(
            "send requests that do not ask for token counts, with `--extra-request-body '{\"stream_options\": null}'`".to_owned(),
        );
    }
    if failure.class != RequestFailureClass::Status {
        return None;
    }
    let named = config
        .served_model_name
        .as_ref()
        .map(|name| ("--served-model-name", name));
    let named = named.or_else(|| config.model.as_ref().map(|name| ("--model", name)));
    if let (Some((flag, name)), Ok(models)) = (named, discovery::list_models(server).await)
        && !models.is_empty()
        && !models.iter().any(|model| model.id == *name)
    {
        let models: Vec<String> = models.iter().map(|model| format!("`{}`", model.id)).collect();
        return Some(format!(
            "the server serves {}; `{flag} {name}` is not among its models",
            models.join(", ")
        ));
    }
    let lacks_path = ["Not Found", "Method Not Allowed"]
        .iter()
        .any(|prefix| failure.message.starts_with(prefix));
    // A message about the model means that the path exists, so the backend is right.
    let is_about_model = failure.message.to_lowercase().contains("model");
    (lacks_path && !is_about_model).then(|| {
        let others = [Backend::Vllm, Backend::SglangOai, Backend::Sglang].into_iter();
        let others: Vec<String> = others
            .filter(|backend| *backend != config.backend)
            .map(|backend| format!("`{}`", backend.name()))
            .collect();
        format!(
            "{url} is the endpoint of `--backend {}`; does the server need another backend, such as {}?",
            config.backend.name(),
            others[..2].join(" or ")
        )
    })
}
