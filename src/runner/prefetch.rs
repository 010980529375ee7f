//! Pulls the image of the next launch while cells of the current one run, if the matrix allows it. A pull
//! uses network, disk and processor, so the rows measured during it are marked.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinSet;

use crate::engine::{self, Devices, RunningEngine};
use crate::plan::{Launch, Start};
use crate::runner::context::RunContext;

/// Pulls in progress; they are cancelled on drop.
#[derive(Default)]
pub(crate) struct ImagePrefetch {
    pulls: Mutex<JoinSet<()>>,
    /// Number of progress messages of all pulls.
    steps: Arc<AtomicU64>,
}

impl ImagePrefetch {
    /// Begins to pull the image of the start after `start`, unless the engine runs on another host.
    pub(crate) fn begin(&self, run_context: &RunContext<'_>, start: &Start, running: &RunningEngine) {
        if !run_context.plan.pull_ahead || !matches!(running.devices(), Devices::Local(_)) {
            return;
        }
        let current = run_context.plan.launch(&start.launch);
        let Some((start, launch, image)) = next_container_start(run_context, start) else {
            return;
        };
        if engine::image_name(current) == Some(image) {
            return;
        }
        let Ok(log) = run_context.store.install_log(&launch.id, start.start) else {
            return;
        };
        let (docker_env, images) = (
            run_context.host.docker.clone(),
            Arc::clone(&run_context.host.images),
        );
        let (image, steps) = (image.to_owned(), Arc::clone(&self.steps));
        let pull = async move {
            let report_progress = |_| {
                steps.fetch_add(1, Ordering::Relaxed);
            };
            engine::prefetch_image(&docker_env, &images, &image, log, &report_progress).await;
        };
        let mut pulls = self.pulls.lock().unwrap_or_else(PoisonError::into_inner);
        pulls.spawn(pull);
    }

    /// A number that grows while an image is pulled.
    pub(crate) fn progress_count(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }
}

/// The next start, if it runs in a container.
fn next_container_start<'j>(
    run_context: &'j RunContext<'_>,
    start: &Start,
) -> Option<(&'j Start, &'j Launch, &'j str)> {
    let mut rest = run_context
        .starts
        .iter()
        .skip_while(|other| *other != start)
        .skip(1);
    let next = rest.next()?;
    let launch = run_context.plan.launch(&next.launch);
    Some((next, launch, engine::image_name(launch)?))
}
