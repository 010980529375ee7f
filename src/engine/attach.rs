//! Executor of attached servers. It starts and stops nothing, and only failing requests show that the server
//! ended.

use std::time::Duration;

use futures_util::future::BoxFuture;
use reqwest::Url;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::base::clock;
use crate::base::secrets::Redactor;
use crate::config::template::Text;
use crate::engine::api;
use crate::engine::context::Context;
use crate::engine::docker::lack::Lack;
use crate::engine::endpoint::{Devices, Endpoint};
use crate::engine::error::StartError;
use crate::engine::executor::Ended;
use crate::engine::executor::launcher;
use crate::engine::executor::{Executor, PortHolder};
use crate::engine::log::Log;
use crate::engine::root_processes::{is_here, listeners};
use crate::engine::running::Running;
use crate::engine::start_record::StartRecord;
use crate::plan::{Attach, Launch, Place};

pub(super) struct Engine {
    /// The server's address without secrets.
    shown: String,
    at: (String, u16),
}

pub(super) fn start(launch: &Launch, attach: &Attach, context: &Context) -> Result<Running, StartError> {
    let url = context.reveal(None, &attach.url, "`url:`")?;
    let headers = api::headers(launch, context)?;
    let endpoint = endpoint(&url, headers).map_err(|reason| StartError::Url {
        url: attach.url.as_str().to_owned(),
        reason: reason.to_owned(),
    })?;
    Ok(attached(endpoint, &context.redactor))
}

/// Wraps an attached server without sending it a request.
pub(crate) fn attached(endpoint: Endpoint, redactor: &Redactor) -> Running {
    Running {
        executor: Box::new(Engine {
            shown: redactor.redact(&endpoint.base_url).into_owned(),
            at: (endpoint.host.trim_matches(['[', ']']).to_owned(), endpoint.port),
        }),
        endpoint,
        log: Log::silent(redactor),
        devices: Devices::Remote,
        began: clock::now(),
        shm: None,
        alarm: None,
    }
}

impl Executor for Engine {
    fn identity(&self) -> String {
        self.shown.clone()
    }

    fn has_log(&self) -> bool {
        false
    }

    fn sees_exit(&self) -> bool {
        false
    }

    /// Never resolves.
    fn exited<'a>(&'a mut self, _log: &'a Log) -> BoxFuture<'a, Ended> {
        Box::pin(std::future::pending())
    }

    fn root_pids(&self, endpoint: &Endpoint) -> Vec<u32> {
        match is_here(&endpoint.host) {
            true => listeners(endpoint.port),
            false => Vec::new(),
        }
    }

    fn port_holder(&self) -> PortHolder {
        PortHolder::EngineAlone
    }

    /// Leaves the server running.
    fn stop(self: Box<Self>, _log: &Log) -> BoxFuture<'_, (String, Option<StartRecord>)> {
        Box::pin(async move { (self.left_running().await, None) })
    }
}

impl Engine {
    /// Says in words whether the server still takes connections.
    async fn left_running(self) -> String {
        let (host, port) = self.at;
        let connected = tokio::time::timeout(GOODBYE, TcpStream::connect((host.as_str(), port)));
        match connected.await {
            Ok(Ok(_)) => "left running (someone else started it)".to_owned(),
            Ok(Err(error)) => {
                format!(
                    "it takes no connections any more ({error}); someone else started it, and must see why"
                )
            }
            Err(_) => {
                "it takes no connections any more; someone else started it, and must see why".to_owned()
            }
        }
    }
}

/// Timeout of the connection that checks the server after the last measurement.
const GOODBYE: Duration = Duration::from_secs(2);

/// Timeout of preflight checks.
const PROBE: Duration = Duration::from_secs(5);

/// Why the server that a launch attaches to cannot be used. `None` if it answers, or if a secret is missing,
/// which another check reports.
pub(crate) async fn unreachable(
    launch: &Launch,
    secret: &(dyn Fn(&str) -> Option<String> + Send + Sync),
    http: &reqwest::Client,
) -> Option<Lack> {
    let Place::Attach(attach) = &launch.place else {
        return None;
    };
    let reveal = |text: &Text, place: &str| {
        text.reveal(&|_| None, secret)
            .map_err(|source| StartError::Unfilled {
                place: place.to_owned(),
                text: text.as_str().to_owned(),
                source,
            })
    };
    let (Ok(url), Ok(headers)) = (reveal(&attach.url, "`url:`"), api::revealed(launch, &reveal)) else {
        return None;
    };
    let engine = &launch.engine.name;
    let endpoint = match endpoint(&url, headers) {
        Ok(endpoint) => endpoint,
        Err(reason) => {
            return Some(Lack {
                what: format!(
                    "the url `{}` of engine `{engine}` cannot be attached to: {reason}",
                    attach.url
                ),
                help: match url.contains("://") {
                    true => "write it like `http://host:8000`".to_owned(),
                    false => format!("did you mean `http://{}`?", attach.url),
                },
            });
        }
    };
    let Err(answer) = answers(launch, &endpoint, http).await else {
        let keyless = keyless(launch, &endpoint, http).await;
        return match keyless {
            None => api::unserved(launch, &endpoint, http).await,
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
            let is_meant = answers(launch, &shorter, http).await.is_ok();
            is_meant.then(|| format!("did you mean `{base}`? paths such as `/v1/models` are put behind it"))
        }
    };
    Some(Lack {
        what: format!("the server of engine `{engine}` cannot be used: {answer}"),
        help: shorter.unwrap_or_else(|| {
            "start it, or mend `url:`: scheme, host and port, without `/v1`; a key goes into `headers:`"
                .to_owned()
        }),
    })
}

/// The lack of a server that answers its health check without a key and refuses other requests.
async fn keyless(launch: &Launch, endpoint: &Endpoint, http: &reqwest::Client) -> Option<Lack> {
    let path = launch.contact.models.as_deref().unwrap_or("/v1/models");
    let status = api::status(http, endpoint, path, PROBE).await.ok()?;
    if !matches!(status, 401 | 403) {
        return None;
    }
    Some(Lack {
        what: format!(
            "the server of engine `{}` refuses to be asked: {} answers {status}",
            launch.engine.name,
            endpoint.url(path)
        ),
        help: match launch.contact.headers.is_empty() {
            true => {
                "give its key with `headers: { Authorization: \"Bearer ${KEY}\" }` at the engine".to_owned()
            }
            false => "check the key in `headers:` of the engine".to_owned(),
        },
    })
}

/// Checks that a health path answers with 200 or 5xx. The error lists what each path answered.
async fn answers(launch: &Launch, endpoint: &Endpoint, http: &reqwest::Client) -> Result<(), String> {
    let mut told = Vec::new();
    let deadline = Instant::now() + PROBE;
    for path in launcher::of(&launch.place).health_paths(launch) {
        let left = deadline.saturating_duration_since(Instant::now());
        match api::status(http, endpoint, path, left).await {
            // A server that is loading or failing may become ready later.
            Ok(200 | 500..) => return Ok(()),
            Ok(status) => told.push(format!("{} answers {status}", endpoint.url(path))),
            Err(reason) => {
                told.push(format!("{}: {reason}", endpoint.url(path)));
                break;
            }
        }
    }
    Err(told.join(", "))
}

fn endpoint(url: &str, headers: reqwest::header::HeaderMap) -> Result<Endpoint, &'static str> {
    let url = Url::parse(url.trim()).map_err(|_| "it is no URL")?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("only http and https are spoken");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it holds a user or a password; send them as `Authorization` in `headers:`");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("it has a query or a fragment");
    }
    let host = url.host_str().ok_or("it names no host")?.to_owned();
    let port = url.port_or_known_default().ok_or("it names no port")?;
    let prefix = url.path().trim_end_matches('/');
    let base_url = format!("{}://{host}:{port}{prefix}", url.scheme());
    Ok(Endpoint {
        host,
        port,
        base_url,
        headers,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::control_client;

    #[test]
    fn a_url_gives_host_port_and_prefix() {
        let of = |url: &str| endpoint(url, Default::default()).map(|end| (end.host, end.port, end.base_url));
        assert_eq!(of("http://h"), Ok(("h".into(), 80, "http://h:80".into())));
        assert_eq!(
            of("https://h/v/"),
            Ok(("h".into(), 443, "https://h:443/v".into()))
        );
        assert_eq!(
            of("http://[::1]:8000/"),
            Ok(("[::1]".into(), 8000, "http://[::1]:8000".into()))
        );
        for wrong in ["h:8000", "ftp://h", "http://u:p@h", "http://h/?k=v", "http://"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_path_is_put_behind_the_prefix() {
        let endpoint = endpoint("http://h:1/p/", Default::default()).unwrap();
        assert_eq!(endpoint.url("/health"), "http://h:1/p/health");
    }

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

    async fn lack(url: &str) -> Option<Lack> {
        let http = control_client::client();
        unreachable(&crate::engine::testing::attached(url), &|_| None, &http).await
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
            assert_eq!(lack(&url).await, None, "{answers:?}");
        }
        assert_eq!(
            lack("${NOT_SET}").await,
            None,
            "a missing secret is told elsewhere"
        );
    }

    #[tokio::test]
    async fn an_address_that_cannot_be_used_is_told_with_what_was_meant() {
        let closed = lack("http://127.0.0.1:1").await.unwrap();
        assert!(
            closed
                .what
                .contains("http://127.0.0.1:1/health: Connection refused"),
            "{}",
            closed.what
        );
        let url = server(&[("/health", 200), ("/v1/models", 200)]).await;
        let doubled = lack(&format!("{url}/v1")).await.unwrap();
        assert!(
            doubled.what.contains(&format!("{url}/v1/health answers 404")),
            "{}",
            doubled.what
        );
        assert!(
            doubled.help.starts_with(&format!("did you mean `{url}`?")),
            "{}",
            doubled.help
        );
        let keyed = server(&[("/health", 401), ("/v1/models", 401)]).await;
        let keyed = lack(&keyed).await.unwrap();
        assert!(
            keyed.what.contains("/v1/models answers 401") && keyed.help.contains("`headers:`"),
            "{keyed:?}"
        );
        let open = server(&[("/health", 200), ("/v1/models", 401)]).await;
        let open = lack(&open).await.unwrap();
        assert!(
            open.what.contains("/v1/models answers 401") && open.help.contains("Bearer ${KEY}"),
            "{open:?}"
        );
        let bare = lack("127.0.0.1:9100").await.unwrap();
        assert_eq!(bare.help, "did you mean `http://127.0.0.1:9100`?");
    }

    #[tokio::test]
    async fn waiting_tells_the_last_answer_and_the_limit() {
        let bench = crate::engine::testing::Bench::new();
        let url = server(&[("/health", 503)]).await;
        let mut launch = crate::engine::testing::attached(&url);
        launch.patience.start = crate::base::units::Span::seconds(1);
        let mut running = bench.start(&launch).await.unwrap();
        let told = std::sync::Mutex::new(Vec::new());
        let hear =
            |progress: crate::engine::start_progress::Progress| told.lock().unwrap().push(progress.last_line);
        let probe = || async { Ok(()) };
        let late = crate::engine::ready(
            &mut running,
            &launch,
            &control_client::client(),
            probe,
            || None,
            hear,
        )
        .await;
        assert!(late.is_err());
        let last = told.into_inner().unwrap().pop().unwrap();
        assert_eq!(last, format!("{url}/health answers 503; waits 1s at most"));
    }
}
