//! Executor of attached servers. It starts and stops nothing, and only failing requests show that the server
//! ended.

mod endpoints;

use std::path::Path;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;

use crate::base::clock;
use crate::base::secrets::Redactor;
use crate::base::tls::TlsConfig;
use crate::config::template::Template;
use crate::engine::api;
use crate::engine::context::StartContext;
use crate::engine::docker::unmet::Unmet;
use crate::engine::endpoint::{Devices, Endpoint};
use crate::engine::error::StartError;
use crate::engine::executor;
use crate::engine::executor::control::ExitCause;
use crate::engine::executor::control::{AllowedListeners, Executor};
use crate::engine::log::Log;
use crate::engine::root_processes::{is_local_host, listeners};
use crate::engine::running::RunningEngine;
use crate::engine::start_record::StartRecord;
use crate::plan::{AttachedServer, ExecutorSpec, Launch};

pub(super) struct AttachedEngine {
    /// The servers' addresses without secrets.
    display_urls: String,
    first: Endpoint,
    others: Vec<Endpoint>,
}

pub(super) fn start(
    launch: &Launch,
    attach: &AttachedServer,
    context: &StartContext,
) -> Result<RunningEngine, StartError> {
    let headers = api::request_headers(launch, context)?;
    let tls = endpoints::tls_config(attach, &context.folder).map_err(StartError::Tls)?;
    let mut endpoints = Vec::new();
    for template in attach.urls() {
        let url = context.fill(None, template, "`url:`")?;
        let endpoint = endpoints::parse(&url, headers.clone(), tls.as_ref());
        endpoints.push(endpoint.map_err(|fault| StartError::Url {
            url: template.as_str().to_owned(),
            reason: fault.reason,
        })?);
    }
    let others = endpoints.split_off(1);
    let first = endpoints.remove(0);
    Ok(running_at_all(first, others, &context.redactor))
}

/// Wraps an attached server without sending it a request.
pub(crate) fn running_at(endpoint: Endpoint, redactor: &Redactor) -> RunningEngine {
    running_at_all(endpoint, Vec::new(), redactor)
}

fn running_at_all(endpoint: Endpoint, others: Vec<Endpoint>, redactor: &Redactor) -> RunningEngine {
    let urls = std::iter::once(&endpoint).chain(&others);
    let urls: Vec<_> = urls.map(|endpoint| redactor.redact(&endpoint.base_url)).collect();
    RunningEngine {
        executor: Box::new(AttachedEngine {
            display_urls: urls.join(", "),
            first: endpoint.clone(),
            others,
        }),
        endpoint,
        log: Log::silent(redactor),
        devices: Devices::Remote,
        started_at: clock::now(),
        shared_memory: None,
        shared_memory_events: None,
    }
}

impl Executor for AttachedEngine {
    fn identity(&self) -> String {
        self.display_urls.clone()
    }

    fn has_log(&self) -> bool {
        false
    }

    fn can_observe_exit(&self) -> bool {
        false
    }

    /// Never resolves.
    fn wait_for_exit<'a>(&'a mut self, _log: &'a Log) -> BoxFuture<'a, ExitCause> {
        Box::pin(std::future::pending())
    }

    fn root_pids(&self, endpoint: &Endpoint) -> Vec<u32> {
        let all = std::iter::once(endpoint).chain(&self.others);
        let local = all.filter(|endpoint| is_local_host(&endpoint.host) && endpoint.socket.is_none());
        local.flat_map(|endpoint| listeners(endpoint.port)).collect()
    }

    fn other_endpoints(&self) -> &[Endpoint] {
        &self.others
    }

    fn allowed_listeners(&self) -> AllowedListeners {
        AllowedListeners::Any
    }

    /// Leaves the server running.
    fn stop(self: Box<Self>, _log: &Log) -> BoxFuture<'_, (String, Option<StartRecord>)> {
        Box::pin(async move { (self.connection_state().await, None) })
    }
}

impl AttachedEngine {
    /// Says in words whether the servers still take connections.
    async fn connection_state(self) -> String {
        for endpoint in std::iter::once(&self.first).chain(&self.others) {
            if let Some(problem) = connection_problem(endpoint).await {
                let which = match self.others.is_empty() {
                    true => "the server".to_owned(),
                    false => format!("the server on port {}", endpoint.port),
                };
                return format!(
                    "{which} no longer accepts connections{problem}; `matrix` did not start it, so check the server itself"
                );
            }
        }
        "the server is left running, because `matrix` did not start it".to_owned()
    }
}

/// Why a server takes no connection, in parentheses if it is known; `None` if it does.
async fn connection_problem(endpoint: &Endpoint) -> Option<String> {
    let connecting = async {
        match &endpoint.socket {
            Some(socket) => UnixStream::connect(socket).await.map(drop),
            None => {
                let host = endpoint.host.trim_matches(['[', ']']);
                TcpStream::connect((host, endpoint.port)).await.map(drop)
            }
        }
    };
    match tokio::time::timeout(CLOSE_CHECK_TIMEOUT, connecting).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!(" ({error})")),
        Err(_) => Some(String::new()),
    }
}

/// Timeout of the connection that checks the server after the last measurement.
const CLOSE_CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout of preflight checks.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the server that a launch attaches to cannot be used. `None` if it answers, or if a secret is missing,
/// which another check reports.
pub(crate) async fn unmet_server(
    launch: &Launch,
    secret: &(dyn Fn(&str) -> Option<String> + Send + Sync),
    http: &reqwest::Client,
    folder: &Path,
) -> Option<Unmet> {
    let ExecutorSpec::Attach(attach) = &launch.place else {
        return None;
    };
    let tls = match endpoints::tls_config(attach, folder) {
        Ok(tls) => tls,
        Err(reason) => {
            return Some(Unmet {
                problem: format!(
                    "`tls` of engine `{}` cannot be used: {reason}",
                    launch.engine.name
                ),
                help: "correct `tls:` of the engine; relative paths start at the folder of the matrix file"
                    .to_owned(),
            });
        }
    };
    for url in attach.urls() {
        let unmet = unmet_address(launch, url, tls.as_ref(), secret, http).await;
        if unmet.is_some() {
            return unmet;
        }
    }
    None
}

/// As [`unmet_server`], for one address.
async fn unmet_address(
    launch: &Launch,
    template: &Template,
    tls: Option<&TlsConfig>,
    secret: &(dyn Fn(&str) -> Option<String> + Send + Sync),
    http: &reqwest::Client,
) -> Option<Unmet> {
    let reveal = |text: &Template, location: &str| {
        text.expand(&|_| None, secret)
            .map_err(|source| StartError::UnfilledText {
                location: location.to_owned(),
                text: text.as_str().to_owned(),
                source,
            })
    };
    let (Ok(url), Ok(headers)) = (reveal(template, "`url:`"), api::headers_with(launch, &reveal)) else {
        return None;
    };
    let engine = &launch.engine.name;
    let endpoint = match endpoints::parse(&url, headers, tls) {
        Ok(endpoint) => endpoint,
        Err(fault) => {
            return Some(Unmet {
                problem: format!(
                    "the url `{template}` of engine `{engine}` cannot be used: {}",
                    fault.reason
                ),
                help: match url.trim().contains("://") || url.trim().is_empty() {
                    true => fault.help,
                    // The URL itself may hold a secret.
                    false => format!("did you mean `http://{template}`?"),
                },
            });
        }
    };
    let Err(answer) = check_presence(launch, &endpoint, http).await else {
        let keyless = missing_api_key(launch, &endpoint, http).await;
        return match keyless {
            None => api::unmet_model(launch, &endpoint, http).await,
            lack => lack,
        };
    };
    let shorter = match endpoint.base_url.strip_suffix("/v1") {
        None => None,
        Some(base) => {
            let shorter = Endpoint {
                base_url: base.to_owned(),
                ..endpoint.clone()
            };
            let is_meant = check_presence(launch, &shorter, http).await.is_ok();
            is_meant.then(|| format!("did you mean `{base}`? paths such as `/v1/models` are appended to it"))
        }
    };
    Some(Unmet {
        problem: format!("the server of engine `{engine}` cannot be used: {answer}"),
        help: shorter.unwrap_or_else(|| {
            "start the server, or correct `url:` (scheme, host and port, without `/v1`); an API key belongs in `headers:`"
                .to_owned()
        }),
    })
}

/// The lack of a server that answers its health check without a key and refuses other requests.
async fn missing_api_key(launch: &Launch, endpoint: &Endpoint, http: &reqwest::Client) -> Option<Unmet> {
    let path = launch.api.models.as_deref().unwrap_or("/v1/models");
    let status = api::fetch_status(http, endpoint, path, PROBE_TIMEOUT)
        .await
        .ok()?;
    if !matches!(status, 401 | 403) {
        return None;
    }
    Some(Unmet {
        problem: format!(
            "the server of engine `{}` requires an API key: {} returned {status}",
            launch.engine.name,
            endpoint.url(path)
        ),
        help: match launch.api.headers.is_empty() {
            true => "set the key with `headers: { Authorization: \"Bearer ${KEY}\" }` in the engine's entry"
                .to_owned(),
            false => "check the key in the engine's `headers:`".to_owned(),
        },
    })
}

/// Checks that a health path answers with 200 or 5xx. The error lists what each path answered.
async fn check_presence(launch: &Launch, endpoint: &Endpoint, http: &reqwest::Client) -> Result<(), String> {
    let mut statuses = Vec::new();
    let deadline = Instant::now() + PROBE_TIMEOUT;
    for path in executor::launcher_for(&launch.place).health_paths(launch) {
        let remaining = deadline.saturating_duration_since(Instant::now());
        match api::fetch_status(http, endpoint, path, remaining).await {
            // A server that is loading or failing may become ready later.
            Ok(200 | 500..) => return Ok(()),
            Ok(status) => statuses.push(format!("{} returned {status}", endpoint.url(path))),
            Err(reason) => {
                statuses.push(format!("{}: {reason}", endpoint.url(path)));
                break;
            }
        }
    }
    Err(statuses.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::control_client;

    /// Starts a server that answers each path with the given status and other paths with 404. Returns its
    /// address.
    async fn server(answers: &'static [(&'static str, u16)]) -> String {
        use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let serve = async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mut stream = BufReader::new(stream);
                let mut lines = Vec::new();
                loop {
                    let mut line = String::new();
                    stream.read_line(&mut line).await.unwrap();
                    if line.trim().is_empty() {
                        break;
                    }
                    lines.push(line);
                }
                let path = lines[0].split(' ').nth(1).unwrap();
                let status = answers
                    .iter()
                    .find(|(known, _)| *known == path)
                    .map_or(404, |(_, status)| *status);
                let answer = format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        };
        #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
        tokio::spawn(serve);
        format!("http://{at}")
    }

    async fn unmet(url: &str) -> Option<Unmet> {
        let http = control_client::client();
        let launch = crate::engine::testing::attach_launch(url);
        unmet_server(&launch, &|_| None, &http, Path::new("")).await
    }

    #[tokio::test]
    async fn a_server_that_is_there_in_any_way_is_attached_to() {
        for answers in [
            &[("/health", 200)][..],
            &[("/health", 503)],
            // A hosted API without a health check.
            &[("/v1/models", 200)],
        ] {
            let url = server(answers).await;
            assert_eq!(unmet(&url).await, None, "{answers:?}");
        }
        assert_eq!(
            unmet("${NOT_SET}").await,
            None,
            "a missing secret is told elsewhere"
        );
    }

    #[tokio::test]
    async fn a_server_on_a_unix_socket_is_attached_to() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("engine.sock");
        let url = format!("unix://{}", socket.display());
        let missing = unmet(&url).await.unwrap();
        assert!(missing.problem.contains("No such file"), "{}", missing.problem);
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let serve = async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 4096]).await;
                let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        };
        #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
        tokio::spawn(serve);
        assert_eq!(unmet(&url).await, None);
    }

    #[tokio::test]
    async fn an_address_that_cannot_be_used_is_told_with_what_was_meant() {
        let closed = unmet("http://127.0.0.1:1").await.unwrap();
        assert!(
            closed
                .problem
                .contains("http://127.0.0.1:1/health: Connection refused"),
            "{}",
            closed.problem
        );
        let url = server(&[("/health", 200), ("/v1/models", 200)]).await;
        let doubled = unmet(&format!("{url}/v1")).await.unwrap();
        assert!(
            doubled.problem.contains(&format!("{url}/v1/health returned 404")),
            "{}",
            doubled.problem
        );
        assert!(
            doubled.help.starts_with(&format!("did you mean `{url}`?")),
            "{}",
            doubled.help
        );
        let keyed = server(&[("/health", 401), ("/v1/models", 401)]).await;
        let keyed = unmet(&keyed).await.unwrap();
        assert!(
            keyed.problem.contains("/v1/models returned 401") && keyed.help.contains("`headers:`"),
            "{keyed:?}"
        );
        let open = server(&[("/health", 200), ("/v1/models", 401)]).await;
        let open = unmet(&open).await.unwrap();
        assert!(
            open.problem.contains("/v1/models returned 401") && open.help.contains("Bearer ${KEY}"),
            "{open:?}"
        );
        let bare = unmet("127.0.0.1:9100").await.unwrap();
        assert_eq!(bare.help, "did you mean `http://127.0.0.1:9100`?");
    }

    #[tokio::test]
    async fn waiting_tells_the_last_answer_and_the_limit() {
        let env = crate::engine::testing::TestEnv::new();
        let url = server(&[("/health", 503)]).await;
        let mut launch = crate::engine::testing::attach_launch(&url);
        launch.timeouts.start = crate::base::units::HumanDuration::from_secs(1);
        let mut running = env.start(&launch).await.unwrap();
        let actual = std::sync::Mutex::new(Vec::new());
        let receiver = |progress: crate::engine::start_progress::Progress| {
            actual.lock().unwrap().push(progress.last_line)
        };
        let probe = || async { Ok(()) };
        let late = crate::engine::wait_until_ready(
            &mut running,
            &launch,
            &control_client::client(),
            probe,
            || None,
            receiver,
        )
        .await;
        assert!(late.is_err());
        let last = actual.into_inner().unwrap().pop().unwrap();
        assert_eq!(last, format!("{url}/health returned 503; waiting for at most 1s"));
    }
}
