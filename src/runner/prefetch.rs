//! Pulls the image of the next launch while cells of the current one run, if the matrix allows it. A pull
//! uses network, disk and processor, so the rows measured during it are marked.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinSet;

use crate::engine::{self, Devices, Running};
use crate::plan::{Launch, Start};
use crate::runner::context::Job;

/// Pulls in progress; they are cancelled on drop.
#[derive(Default)]
pub(crate) struct Ahead {
    pulls: Mutex<JoinSet<()>>,
    /// Number of progress messages of all pulls.
    steps: Arc<AtomicU64>,
}

impl Ahead {
    /// Begins to pull the image of the start after `start`, unless the engine runs on another host.
    pub(crate) fn begin(&self, job: &Job<'_>, start: &Start, running: &Running) {
        if !job.plan.pull_ahead || !matches!(running.devices(), Devices::Local(_)) {
            return;
        }
        let current = job.plan.launch(&start.launch);
        let Some((start, launch, image)) = next(job, start) else {
            return;
        };
        if engine::image(current) == Some(image) {
            return;
        }
        let Ok(log) = job.store.install_log(&launch.id, start.start) else {
            return;
        };
        let (whereabouts, images) = (job.host.whereabouts.clone(), Arc::clone(&job.host.images));
        let (image, steps) = (image.to_owned(), Arc::clone(&self.steps));
        let pull = async move {
            let tell = |_| {
                steps.fetch_add(1, Ordering::Relaxed);
            };
            engine::pull_ahead(&whereabouts, &images, &image, log, &tell).await;
        };
        let mut pulls = self.pulls.lock().unwrap_or_else(PoisonError::into_inner);
        pulls.spawn(pull);
    }

    /// A number that grows while an image is pulled.
    pub(crate) fn mark(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }
}

/// The next start, if it runs in a container.
fn next<'j>(job: &'j Job<'_>, start: &Start) -> Option<(&'j Start, &'j Launch, &'j str)> {
    let mut rest = job.todo.iter().skip_while(|other| *other != start).skip(1);
    let next = rest.next()?;
    let launch = job.plan.launch(&next.launch);
    Some((next, launch, engine::image(launch)?))
}
