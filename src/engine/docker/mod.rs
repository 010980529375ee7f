//! An engine in a container: created by the daemon's API from the very launch that `matrix plan` prints, followed from its first
//! byte, seen dead at once, stopped and removed. bollard is named in this folder and nowhere else.
//!
//! A container never removes itself, so that its exit code and its last words can be read; it carries labels by which the next run
//! finds it when this one is killed. Nothing here touches a container without our labels.

mod address;
mod body;
mod config;
mod credentials;
mod daemon;
mod errors;
mod fit;
mod help;
mod image;
mod inquest;
mod left;
mod name;
mod pull;
mod trial;
mod watch;

use std::collections::HashMap;
use std::time::Duration;

use bollard::Docker;
use bollard::models::{ContainerCreateBody, HostConfigLogConfig};
use bollard::query_parameters::{
    CreateContainerOptions, InspectContainerOptions, KillContainerOptions, RemoveContainerOptions,
};
use tokio::sync::watch::Receiver;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::base::clock;
use crate::engine::docker::address::Address;
use crate::engine::docker::daemon::{Daemon, is_missing};
use crate::engine::docker::image::Had;
use crate::engine::docker::watch::{Exit, Life};
use crate::engine::marks::Marks;
use crate::engine::{
    Context, Devices, Ended, Endpoint, Executor, Log, Logs, Running, StartError, Tell, belongs, contact, port,
};
use crate::matrix::plan::{Container, Launch, command};
use crate::results::store;

pub use address::Whereabouts;
pub use daemon::Refused;
pub use fit::{Lack, Wanted, lacks};
pub(in crate::engine) use help::{Dry, help, image_at_hand};
pub use image::{Images, Pull};
pub use left::{LeftContainer, find, sweep};

/// How long to wait for last words once a container has ended: its log ends with it.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long the daemon may take to end a container that was killed.
const KILLED: Duration = Duration::from_secs(20);

/// How much of what a container says one file of the daemon holds.
const LOG_FILE: &str = "64m";

/// How long the daemon may take to remove a container.
const REMOVED: Duration = Duration::from_secs(30);

/// A container of ours.
pub(super) struct Engine {
    docker: Docker,
    container: Created,
    grace: Duration,
    image: Had,
    life: Receiver<Life>,
    /// Its first process, where the daemon is of this host and tells.
    pid: Option<u32>,
    /// What follows its log and its life; ends with this.
    _following: JoinSet<()>,
}

pub(super) async fn start(
    launch: &Launch,
    container: &Container,
    context: &Context,
    logs: Logs,
    tell: Tell<'_>,
) -> Result<Running, StartError> {
    let refused = |refused: Refused| StartError::Container(Box::new(refused.redacted(&context.redactor)));
    let headers = contact::headers(launch, context)?;
    let marks = Marks::new(&context.run, &launch.id, context.start)?;
    let mut body = body::body(launch, container, context, &marks)?;
    let daemon = Daemon::connect(&context.whereabouts).await.map_err(refused)?;
    let image = context
        .images
        .ensure(
            &daemon,
            &context.whereabouts,
            &container.image,
            logs.install,
            tell,
        )
        .await
        .map_err(refused)?;
    // The name may mean another image by now.
    body.image = Some(image.id.clone());
    if daemon.address.is_local() && !port::is_free(context.port) {
        return Err(StartError::PortTaken { port: context.port });
    }
    let pipe = |source| StartError::Spawn {
        program: "the reader of the container's log".to_owned(),
        source,
    };
    let began = clock::now();
    let (reader, writer) = std::io::pipe().map_err(pipe)?;
    let writer = tokio::net::unix::pipe::Sender::from_owned_fd(writer.into()).map_err(pipe)?;
    let log = Log::follow(reader, logs.engine, launch.signs.clone(), &context.redactor).map_err(pipe)?;
    let body = body_with_short_log(body, daemon.is_podman);
    let names = names(&command::container_name(launch), context);
    let created = create(&daemon, &names, body).await.map_err(refused)?;
    let docker = daemon.docker.clone();
    let started = docker.start_container(&created.id, None).await;
    started.map_err(|error| refused(Refused::of("start", &error)))?;
    let pid = match daemon.address.is_local() {
        true => first_process(&docker, &created.id).await,
        false => None,
    };
    let (following, life) = watch::follow(&docker, &created.id, writer);
    let host = daemon.address.host();
    Ok(Running {
        endpoint: Endpoint {
            base_url: format!("http://{host}:{}", context.port),
            host,
            port: context.port,
            headers,
        },
        log,
        devices: match daemon.address.is_local() {
            true => Devices::Local(context.devices.clone()),
            false => Devices::Remote,
        },
        began,
        install_seconds: image.pulled_seconds,
        executor: Executor::Docker(Box::new(Engine {
            docker,
            container: created,
            grace: launch.patience.stop.duration(),
            image,
            life,
            pid,
            _following: following,
        })),
        shm: None,
    })
}

/// The daemon keeps what the container says until it is removed. It is copied to the run's own log meanwhile, so that the last of it
/// is enough there; a flood must not fill the daemon's disk. Podman keeps its own bounds and refuses these.
fn body_with_short_log(mut body: ContainerCreateBody, is_podman: bool) -> ContainerCreateBody {
    let bounds = HashMap::from([
        ("max-size".to_owned(), LOG_FILE.to_owned()),
        ("max-file".to_owned(), "2".to_owned()),
    ]);
    if let Some(host) = body.host_config.as_mut().filter(|_| !is_podman) {
        host.log_config = Some(HostConfigLogConfig {
            typ: Some("json-file".to_owned()),
            config: Some(bounds),
        });
    }
    body
}

/// Whether the containers of a daemon run on this host, as far as its address tells.
pub fn is_here(whereabouts: &Whereabouts) -> bool {
    Address::of(whereabouts).is_ok_and(|address| address.is_local())
}

/// Gets the image of a start to come. What goes wrong is told by that start.
pub async fn pull_ahead(
    whereabouts: &Whereabouts,
    images: &Images,
    image: &str,
    log: store::Log,
    tell: Tell<'_>,
) {
    if let Ok(daemon) = Daemon::connect(whereabouts).await {
        // The start asks again, and says why it cannot be had.
        let _ = images.ensure(&daemon, whereabouts, image, log, tell).await;
    }
}

/// The names to try: the one that `matrix plan` prints, else with the run and the start, else with a number of ours.
fn names(usual: &str, context: &Context) -> [String; 3] {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let run: String = context.run.to_string().chars().filter(|c| allowed(*c)).collect();
    let own = format!("{usual}-{run}-{}", context.start);
    let last = format!("{own}-{}", std::process::id());
    [usual.to_owned(), own, last]
}

async fn create(daemon: &Daemon, names: &[String], body: ContainerCreateBody) -> Result<Created, Refused> {
    let mut taken = None;
    for name in names {
        let options = CreateContainerOptions {
            name: Some(name.clone()),
            ..CreateContainerOptions::default()
        };
        match daemon.docker.create_container(Some(options), body.clone()).await {
            Ok(made) => {
                return Ok(Created {
                    address: daemon.address.clone(),
                    id: made.id,
                    name: name.clone(),
                    is_gone: false,
                });
            }
            Err(error) => {
                let refused = Refused::of("create", &error);
                // 409 on Docker, 500 on Podman.
                if !refused.raw.contains("already in use") {
                    return Err(refused);
                }
                taken = Some(refused);
            }
        }
    }
    Err(taken.expect("at least one name was tried"))
}

/// A container that exists. Dropping it removes it, as far as the daemon answers.
struct Created {
    address: Address,
    id: String,
    name: String,
    is_gone: bool,
}

impl Drop for Created {
    fn drop(&mut self) {
        if !self.is_gone {
            self.address.remove_now(&self.id);
        }
    }
}

impl Engine {
    pub(super) fn identity(&self) -> String {
        let id: String = self.container.id.chars().take(12).collect();
        format!("container {} ({id})", self.container.name)
    }

    pub(super) fn digest(&self) -> &str {
        &self.image.digest
    }

    pub(super) const fn pid(&self) -> Option<u32> {
        self.pid
    }

    pub(super) const fn image_bytes(&self) -> Option<u64> {
        self.image.bytes
    }

    /// Waits until the container ended and, a moment, for its last words.
    pub(super) async fn exited(&mut self, log: &Log) -> Ended {
        let exit = self.ended().await;
        log.over(LAST_WORDS).await;
        exit.ended()
    }

    /// Whether nobody can tell at the moment if it lives: the daemon is not heard.
    pub(super) fn is_unheard(&self) -> bool {
        *self.life.borrow() == Life::Unheard
    }

    async fn ended(&mut self) -> Exit {
        let ended = |life: &Life| matches!(life, Life::Ended(_));
        match self.life.wait_for(ended).await.map(|life| life.clone()) {
            Ok(Life::Ended(exit)) => exit,
            Ok(_) | Err(_) => Exit::foreign("nobody watches it any more"),
        }
    }

    pub(super) async fn stop(mut self, log: &Log) -> String {
        let before = self.life.borrow().clone();
        let how = match before {
            Life::Ended(exit) => format!("it had ended before ({})", exit.words()),
            Life::Lives | Life::Unheard => self.end().await,
        };
        log.over(LAST_WORDS).await;
        match remove(&self.docker, &self.container.id).await {
            Ok(()) => {
                self.container.is_gone = true;
                format!("{how}; the container is removed")
            }
            Err(reason) => format!(
                "{how}; the container {} is still there: {reason}",
                self.container.name
            ),
        }
    }

    /// SIGTERM, grace, SIGKILL.
    async fn end(&mut self) -> String {
        let (docker, id, grace) = (self.docker.clone(), self.container.id.clone(), self.grace);
        signal(&docker, &id, "SIGTERM").await;
        if let Ok(exit) = timeout(grace, self.ended()).await {
            return format!("it ended on SIGTERM ({})", exit.words());
        }
        signal(&docker, &id, "SIGKILL").await;
        let grace = crate::base::units::Span(grace);
        match timeout(KILLED, self.ended()).await {
            Ok(exit) => format!("it was killed after {grace} of grace ({})", exit.words()),
            Err(_) => format!("it was killed after {grace} of grace and has not ended since"),
        }
    }
}

/// The first process of a container by this host's numbers; `None` where it has ended already, or the daemon counts otherwise.
async fn first_process(docker: &Docker, id: &str) -> Option<u32> {
    let seen = docker
        .inspect_container(id, None::<InspectContainerOptions>)
        .await
        .ok()?;
    let pid = u32::try_from(seen.state?.pid?).ok().filter(|pid| *pid > 0)?;
    belongs::is_of_container(pid, id).then_some(pid)
}

async fn signal(docker: &Docker, id: &str, signal: &str) {
    let options = KillContainerOptions {
        signal: signal.to_owned(),
    };
    // It may have ended in the meantime, which is what was wanted.
    let _ = docker.kill_container(id, Some(options)).await;
}

/// Removes a container and waits until the daemon knows it no more.
async fn remove(docker: &Docker, id: &str) -> Result<(), String> {
    let options = || RemoveContainerOptions {
        force: true,
        v: true,
        ..RemoveContainerOptions::default()
    };
    let deadline = Instant::now() + REMOVED;
    loop {
        let removed = docker.remove_container(id, Some(options())).await;
        let seen = docker
            .inspect_container(id, None::<InspectContainerOptions>)
            .await;
        match (removed, seen) {
            (_, Err(error)) if is_missing(&error) => return Ok(()),
            (removed, _) if Instant::now() >= deadline => {
                return Err(removed.map_or_else(
                    |error| daemon::words(&error),
                    |()| "it is being removed".to_owned(),
                ));
            }
            _ => sleep(Duration::from_millis(200)).await,
        }
    }
}
