//! Creation of a container. The daemon completes a create request even if the process that sent it has ended.
//! So a record on disk exists until the daemon answers, and `clean` and the next run wait for it. A request
//! that this process stops waiting for goes on in a task, and its container is removed.

use std::path::PathBuf;
use std::sync::Arc;

use bollard::errors::Error;
use bollard::models::ContainerCreateBody;
use bollard::query_parameters::CreateContainerOptions;
use rustix::process::Signal;
use tokio::sync::oneshot;

use crate::engine::docker::client::Daemon;
use crate::engine::docker::first_process::FirstProcess;
use crate::engine::docker::host::Address;
use crate::engine::docker::refused::Refused;
use crate::engine::docker::unremoved::{Orphan, Orphans, Request};
use crate::engine::ownership::Marks;
use crate::engine::start_record::StartRecord;

pub(super) struct Creation {
    pub(super) daemon: Daemon,
    pub(super) body: ContainerCreateBody,
    pub(super) marks: Marks,
    /// Folder of start records.
    pub(super) cache: PathBuf,
}

impl Creation {
    pub(super) async fn create(&self, name: Option<&str>) -> Result<Created, Error> {
        let record = StartRecord::of_request(&self.cache, &self.marks);
        let options = name.map(|name| CreateContainerOptions {
            name: Some(name.to_owned()),
            ..CreateContainerOptions::default()
        });
        let docker = &self.daemon.docker;
        let made = docker.create_container(options, self.body.clone()).await;
        record.remove();
        let id = made?.id;
        Ok(Created {
            address: self.daemon.address.clone(),
            name: name.map_or_else(|| id.clone(), str::to_owned),
            id,
            first: None,
            is_gone: false,
            orphans: None,
        })
    }

    /// Creates the container under the first free name of `names`. If the caller drops this future, the
    /// request goes on: its container is removed as soon as it exists, and `orphans` lists the request until
    /// then.
    pub(super) async fn create_named(
        self,
        names: Vec<String>,
        orphans: &Arc<Orphans>,
    ) -> Result<Created, Refused> {
        let (answer, answered) = oneshot::channel();
        let name = names.first().cloned().unwrap_or_default();
        let address = self.daemon.address.clone();
        let of_container = Arc::clone(orphans);
        #[expect(
            clippy::disallowed_methods,
            reason = "it goes on when whoever asked has gone; the orphans wait for its end"
        )]
        let asking = tokio::spawn(async move {
            let mut made = self.create_at_first(&names).await;
            if let Ok(created) = &mut made {
                created.orphans = Some(of_container);
            }
            // If no receiver is left, the container is dropped here and thereby removed.
            drop(answer.send(made));
        });
        let mut unanswered = Unanswered {
            request: Some(Request {
                address,
                name,
                asking,
            }),
            orphans,
        };
        let made = answered.await;
        unanswered.request = None;
        made.unwrap_or_else(|_| Err(Refused::saying("create", "the request was broken off".to_owned())))
    }

    async fn create_at_first(&self, names: &[String]) -> Result<Created, Refused> {
        let mut taken = None;
        for name in names {
            match self.create(Some(name)).await {
                Ok(created) => return Ok(created),
                Err(error) => {
                    let refused = Refused::of("create", &error);
                    // The status is 409 on Docker and 500 on Podman.
                    if !refused.raw.contains("already in use") {
                        return Err(refused);
                    }
                    taken = Some(refused);
                }
            }
        }
        Err(taken.expect("at least one name was tried"))
    }
}

/// On drop, passes a request that has not been answered on to `orphans`.
struct Unanswered<'a> {
    request: Option<Request>,
    orphans: &'a Orphans,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            self.orphans.add_request(request);
        }
    }
}

/// An existing container. Drop removes it, or registers it with `orphans` if the daemon does not answer.
#[derive(Debug)]
pub(super) struct Created {
    pub(super) address: Address,
    pub(super) id: String,
    pub(super) name: String,
    /// Its first process, if the daemon is on this host and reports it.
    pub(super) first: Option<FirstProcess>,
    pub(super) is_gone: bool,
    /// Receives the container if it could not be removed.
    orphans: Option<Arc<Orphans>>,
}

impl Created {
    /// Gives up the removal; `orphans` tries it again later.
    pub(super) fn abandon(&mut self, has_ended: bool, reason: String) {
        self.is_gone = true;
        if let Some(orphans) = &self.orphans {
            orphans.add(Orphan {
                address: self.address.clone(),
                id: self.id.clone(),
                name: self.name.clone(),
                first: self.first.clone(),
                has_ended,
                reason,
            });
        }
    }
}

impl Drop for Created {
    fn drop(&mut self) {
        if self.is_gone {
            return;
        }
        if let Some(first) = &self.first {
            // Without the permission to signal, the removal below ends the process.
            let _ = first.signal(Signal::KILL);
        }
        if let Err(reason) = self.address.remove_now(&self.id) {
            self.abandon(false, reason);
        }
    }
}
