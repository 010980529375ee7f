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
use crate::engine::docker::errors;
use crate::engine::docker::refused::Refused;
use crate::engine::start_progress::{Progress, Tell};
use crate::results::store;

/// Pauses before the retries, in seconds.
const PAUSES: [u64; 4] = [1, 3, 10, 30];

/// Interval of progress messages.
const BEAT: Duration = Duration::from_millis(250);

pub(super) async fn pull(
    daemon: &Daemon,
    image: &str,
    credentials: Option<DockerCredentials>,
    log: &mut store::Log,
    tell: Tell<'_>,
) -> Result<(), Refused> {
    let secrets = Redactor::new(credentials.iter().flat_map(|login| {
        let all = [&login.password, &login.identitytoken, &login.registrytoken];
        all.into_iter().flatten().map(String::as_str)
    }));
    let mut say = |line: &str| {
        // A failed write is ignored: the pull goes on, and the run's results report a full disk.
        let _ = writeln!(log, "{}", secrets.redact(line)).and_then(|()| log.flush());
    };
    say(&format!("pulling {image}"));
    let began = clock::now();
    let tell = |what: String| {
        tell(Progress {
            phase: "pull".to_owned(),
            elapsed: clock::now().since(began),
            last_line: what,
        });
    };
    let mut pauses = PAUSES.iter();
    loop {
        let refused = match attempt(daemon, image, credentials.clone(), &mut say, &tell).await {
            Ok(()) => return Ok(()),
            Err(refused) => refused.redacted(&secrets),
        };
        let pause = pauses.next().filter(|_| errors::is_transient(&refused.raw));
        say(&refused.raw);
        let Some(pause) = pause else { return Err(refused) };
        let again = format!("{}; tried again in {pause} s", refused.raw.trim());
        say(&format!("tried again in {pause} s"));
        tell(again);
        sleep(Duration::from_secs(*pause)).await;
    }
}

async fn attempt(
    daemon: &Daemon,
    image: &str,
    credentials: Option<DockerCredentials>,
    say: &mut impl FnMut(&str),
    tell: &impl Fn(String),
) -> Result<(), Refused> {
    let options = CreateImageOptions {
        from_image: Some(image.to_owned()),
        ..CreateImageOptions::default()
    };
    let mut layers = Layers::default();
    let mut told: Option<Instant> = None;
    let mut pull = daemon.docker.create_image(Some(options), None, credentials);
    while let Some(step) = pull.next().await {
        let step = step.map_err(|error| Refused::of("pull", &error))?;
        if let Some(line) = layers.take(&step) {
            say(&line);
        }
        if told.is_none_or(|told| told.elapsed() >= BEAT) {
            told = Some(Instant::now());
            tell(layers.words());
        }
    }
    tell(layers.words());
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
    tenth: u64,
}

impl Layers {
    /// Applies a progress message. Returns a log line when a layer changes its state or completes another
    /// tenth.
    fn take(&mut self, step: &CreateImageInfo) -> Option<String> {
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
        if !is_new && tenth <= layer.tenth {
            return None;
        }
        layer.tenth = tenth;
        layer.status.clone_from(&status);
        Some(match total {
            0 => format!("{id}: {status}"),
            _ => format!("{id}: {status} {}0 % of {:.1} MB", tenth, total as f64 / 1e6),
        })
    }

    /// Description such as `3 of 7 layers, 1.20 of 4.50 GB`.
    fn words(&self) -> String {
        let is_whole = |layer: &&Layer| layer.status == "Pull complete" || layer.status == "Already exists";
        let whole = self.0.values().filter(is_whole).count();
        let (came, all) = self.0.values().fold((0, 0), |(came, all), layer| {
            (came + layer.bytes.0, all + layer.bytes.1)
        });
        format!(
            "{whole} of {} layers, {:.2} of {:.2} GB",
            self.0.len(),
            came as f64 / 1e9,
            all as f64 / 1e9
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
        let mut take = |status: &str, bytes| layers.take(&step("a", status, bytes));
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
        layers.take(&step("1", "Pulling from a/b", None));
        layers.take(&step("a", "Downloading", Some((500_000_000, 1_000_000_000))));
        layers.take(&step("b", "Already exists", None));
        assert_eq!(layers.words(), "1 of 2 layers, 0.50 of 1.00 GB");
        layers.take(&step("a", "Pull complete", None));
        assert_eq!(layers.words(), "2 of 2 layers, 1.00 of 1.00 GB");
    }
}
