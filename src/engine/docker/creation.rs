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
use crate::engine::docker::docker_error::DockerError;
use crate::engine::docker::first_process::FirstProcess;
use crate::engine::docker::host::Address;
use crate::engine::docker::unremoved::{UnansweredRequest, UnremovedContainer, UnremovedContainers};
use crate::engine::ownership::OwnershipTags;
use crate::engine::start_record::StartRecord;

pub(super) struct Creation {
    pub(super) daemon: Daemon,
    pub(super) body: ContainerCreateBody,
    pub(super) tags: OwnershipTags,
    /// Folder of start records.
    pub(super) cache_dir: PathBuf,
}

impl Creation {
    pub(super) async fn create(&self, name: Option<&str>) -> Result<CreatedContainer, Error> {
        let record = StartRecord::for_request(&self.cache_dir, &self.tags);
        let options = name.map(|name| CreateContainerOptions {
            name: Some(name.to_owned()),
            ..CreateContainerOptions::default()
        });
        let docker = &self.daemon.docker;
        let response = docker.create_container(options, self.body.clone()).await;
        record.remove();
        let id = response?.id;
        Ok(CreatedContainer {
            address: self.daemon.address.clone(),
            name: name.map_or_else(|| id.clone(), str::to_owned),
            id,
            first_process: None,
            is_removed: false,
            unremoved: None,
        })
    }

    /// Creates the container under the first free name of `names`. If the caller drops this future, the
    /// request goes on: its container is removed as soon as it exists, and `unremoved` lists the request until
    /// then.
    pub(super) async fn create_named(
        self,
        names: Vec<String>,
        unremoved: &Arc<UnremovedContainers>,
    ) -> Result<CreatedContainer, DockerError> {
        let (answer, answered) = oneshot::channel();
        let name = names.first().cloned().unwrap_or_default();
        let address = self.daemon.address.clone();
        let of_container = Arc::clone(unremoved);
        #[expect(
            clippy::disallowed_methods,
            reason = "the request to create a container continues if its caller is dropped; `UnremovedContainers` waits for it"
        )]
        let asking = tokio::spawn(async move {
            let mut outcome = self.create_first_free(&names).await;
            if let Ok(created) = &mut outcome {
                created.unremoved = Some(of_container);
            }
            // If no receiver is left, the container is dropped here and thereby removed.
            drop(answer.send(outcome));
        });
        let mut unanswered = UnansweredRequestGuard {
            request: Some(UnansweredRequest {
                address,
                name,
                task: asking,
            }),
            orphans: unremoved,
        };
        let outcome = answered.await;
        unanswered.request = None;
        outcome.unwrap_or_else(|_| {
            Err(DockerError::from_message(
                "create",
                "the request was aborted".to_owned(),
            ))
        })
    }

    async fn create_first_free(&self, names: &[String]) -> Result<CreatedContainer, DockerError> {
        let mut name_taken = None;
        for name in names {
            match self.create(Some(name)).await {
                Ok(created) => return Ok(created),
                Err(error) => {
                    let docker_error = DockerError::new("create", &error);
                    // The status is 409 on Docker and 500 on Podman.
                    if !docker_error.message.contains("already in use") {
                        return Err(docker_error);
                    }
                    name_taken = Some(docker_error);
                }
            }
        }
        Err(name_taken.expect("at least one name was tried"))
    }
}

/// On drop, passes a request that has not been answered on to `orphans`.
struct UnansweredRequestGuard<'a> {
    request: Option<UnansweredRequest>,
    orphans: &'a UnremovedContainers,
}

impl Drop for UnansweredRequestGuard<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            self.orphans.add_request(request);
        }
    }
}

/// An existing container. Drop removes it, or registers it with `unremoved` if the daemon does not answer.
#[derive(Debug)]
pub(super) struct CreatedContainer {
    pub(super) address: Address,
    pub(super) id: String,
    pub(super) name: String,
    /// Its first process, if the daemon is on this host and reports it.
    pub(super) first_process: Option<FirstProcess>,
    pub(super) is_removed: bool,
    /// Receives the container if it could not be removed.
    unremoved: Option<Arc<UnremovedContainers>>,
}

impl CreatedContainer {
    /// Gives up the removal; `unremoved` tries it again later.
    pub(super) fn abandon(&mut self, has_ended: bool, reason: String) {
        self.is_removed = true;
        if let Some(unremoved) = &self.unremoved {
            unremoved.add(UnremovedContainer {
                address: self.address.clone(),
                id: self.id.clone(),
                name: self.name.clone(),
                first_process: self.first_process.clone(),
                has_ended,
                reason,
            });
        }
    }
}

impl Drop for CreatedContainer {
    fn drop(&mut self) {
        if self.is_removed {
            return;
        }
        if let Some(first) = &self.first_process {
            // Without the permission to signal, the removal below ends the process.
            let _ = first.signal(Signal::KILL);
        }
        if let Err(reason) = self.address.remove_now(&self.id) {
            self.abandon(false, reason);
        }
    }
}
