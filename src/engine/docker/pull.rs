//! Pulls an image, with progress per layer and retries after temporary faults. The daemon keeps complete
//! layers, so a retry continues where the last attempt failed.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use bollard::auth::DockerCredentials;
use bollard::models::CreateImageInfo;
use bollard::query_parameters::CreateImageOptions;
use futures_util::StreamExt;
use tokio::time::{Instant, sleep};

use crate::base::clock;
use crate::base::secrets::Redactor;
use crate::engine::docker::client::Daemon;
use crate::engine::docker::docker_error::DockerError;
use crate::engine::docker::errors;
use crate::engine::start_progress::{Progress, ProgressFn};
use crate::results::store;

/// Pauses before the retries, in seconds.
const RETRY_DELAYS_S: [u64; 4] = [1, 3, 10, 30];

/// Interval of progress messages.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

pub(super) async fn pull(
    daemon: &Daemon,
    image: &str,
    credentials: Option<DockerCredentials>,
    log: &mut store::Log,
    report_progress: ProgressFn<'_>,
) -> Result<(), DockerError> {
    let secrets = Redactor::new(credentials.iter().flat_map(|login| {
        let all = [&login.password, &login.identitytoken, &login.registrytoken];
        all.into_iter().flatten().map(String::as_str)
    }));
    let mut log_line = |line: &str| {
        // A failed write is ignored: the pull goes on, and the run's results report a full disk.
        let _ = writeln!(log, "{}", secrets.redact(line)).and_then(|()| log.flush());
    };
    log_line(&format!("pulling {image}"));
    let started_at = clock::now();
    let report_progress = |message: String| {
        report_progress(Progress {
            phase: "pull".to_owned(),
            elapsed: clock::now().since(started_at),
            last_line: message,
        });
    };
    let mut pauses = RETRY_DELAYS_S.iter();
    loop {
        let docker_error = match pull_once(
            daemon,
            image,
            credentials.clone(),
            &mut log_line,
            &report_progress,
        )
        .await
        {
            Ok(()) => return Ok(()),
            Err(docker_error) => docker_error.redacted(&secrets),
        };
        let pause = pauses
            .next()
            .filter(|_| errors::is_transient(&docker_error.message));
        log_line(&docker_error.message);
        let Some(pause) = pause else {
            return Err(docker_error);
        };
        let again = format!("{}; retry in {pause} s", docker_error.message.trim());
        log_line(&format!("retry in {pause} s"));
        report_progress(again);
        sleep(Duration::from_secs(*pause)).await;
    }
}

async fn pull_once(
    daemon: &Daemon,
    image: &str,
    credentials: Option<DockerCredentials>,
    log_line: &mut impl FnMut(&str),
    report_progress: &impl Fn(String),
) -> Result<(), DockerError> {
    let options = CreateImageOptions {
        from_image: Some(image.to_owned()),
        ..CreateImageOptions::default()
    };
    let mut layers = Layers::default();
    let mut last_report: Option<Instant> = None;
    let mut pull = daemon.docker.create_image(Some(options), None, credentials);
    while let Some(step) = pull.next().await {
        let step = step.map_err(|error| DockerError::new("pull", &error))?;
        if let Some(line) = layers.update(&step) {
            log_line(&line);
        }
        if last_report.is_none_or(|last_report| last_report.elapsed() >= PROGRESS_INTERVAL) {
            last_report = Some(Instant::now());
            report_progress(layers.summary());
        }
    }
    report_progress(layers.summary());
    Ok(())
}

#[derive(Default)]
struct Layers(BTreeMap<String, Layer>);

#[derive(Default)]
struct Layer {
    status: String,
    /// Bytes downloaded, and in total.
    bytes: (u64, u64),
    /// The last logged progress, in tenths.
    reported_tenth: u64,
}

impl Layers {
    /// Applies a progress message. Returns a log line when a layer changes its state or completes another
    /// tenth.
    fn update(&mut self, step: &CreateImageInfo) -> Option<String> {
        let status = step.status.clone()?;
        let Some(id) = step.id.clone().filter(|_| !status.starts_with("Pulling from")) else {
            return Some(status);
        };
        let layer = self.0.entry(id.clone()).or_default();
        let detail = step.progress_detail.as_ref();
        let number = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok());
        let current = number(detail.and_then(|detail| detail.current)).unwrap_or(0);
        let total = number(detail.and_then(|detail| detail.total)).unwrap_or(0);
        if status == "Downloading" && total > 0 {
            layer.bytes = (current, total);
        } else if status != "Waiting" && status != "Pulling fs layer" && status != "Downloading" {
            layer.bytes.0 = layer.bytes.1;
        }
        let tenth = (current * 10).checked_div(total).unwrap_or(0);
        let is_new = layer.status != status;
        if !is_new && tenth <= layer.reported_tenth {
            return None;
        }
        layer.reported_tenth = tenth;
        layer.status.clone_from(&status);
        Some(match total {
            0 => format!("{id}: {status}"),
            _ => format!("{id}: {status} {}0 % of {:.1} MB", tenth, total as f64 / 1e6),
        })
    }

    /// Description such as `3 of 7 layers of the image are complete; 1.20 of 4.50 GB are downloaded`.
    fn summary(&self) -> String {
        let is_whole = |layer: &&Layer| layer.status == "Pull complete" || layer.status == "Already exists";
        let complete = self.0.values().filter(is_whole).count();
        let (received, total) = self.0.values().fold((0, 0), |(received, total), layer| {
            (received + layer.bytes.0, total + layer.bytes.1)
        });
        format!(
            "{complete} of {} layers of the image are complete; {:.2} of {:.2} GB are downloaded",
            self.0.len(),
            received as f64 / 1e9,
            total as f64 / 1e9
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::models::ProgressDetail;

    fn step(id: &str, status: &str, bytes: Option<(i64, i64)>) -> CreateImageInfo {
        CreateImageInfo {
            id: Some(id.into()),
            status: Some(status.into()),
            progress_detail: bytes.map(|(current, total)| ProgressDetail {
                current: Some(current),
                total: Some(total),
            }),
            ..CreateImageInfo::default()
        }
    }

    #[test]
    fn a_layer_is_told_once_per_state_and_tenth() {
        let mut layers = Layers::default();
        let mut take = |status: &str, bytes| layers.update(&step("a", status, bytes));
        assert_eq!(
            take("Pulling fs layer", None).as_deref(),
            Some("a: Pulling fs layer")
        );
        let line = take("Downloading", Some((1, 40_000_000)));
        assert_eq!(line.as_deref(), Some("a: Downloading 00 % of 40.0 MB"));
        assert_eq!(take("Downloading", Some((2, 40_000_000))), None);
        let line = take("Downloading", Some((21_000_000, 40_000_000)));
        assert_eq!(line.as_deref(), Some("a: Downloading 50 % of 40.0 MB"));
        assert!(take("Pull complete", None).is_some());
    }

    #[test]
    fn a_pull_is_told_in_layers_and_bytes() {
        let mut layers = Layers::default();
        layers.update(&step("1", "Pulling from a/b", None));
        layers.update(&step("a", "Downloading", Some((500_000_000, 1_000_000_000))));
        layers.update(&step("b", "Already exists", None));
        assert_eq!(
            layers.summary(),
            "1 of 2 layers of the image are complete; 0.50 of 1.00 GB are downloaded"
        );
        layers.update(&step("a", "Pull complete", None));
        assert_eq!(
            layers.summary(),
            "2 of 2 layers of the image are complete; 1.00 of 1.00 GB are downloaded"
        );
    }
}
