//! Images: had already, or pulled while the install log says how far it is.

use std::collections::HashMap;
use std::io::Write;

use bollard::Docker;
use bollard::models::CreateImageInfo;
use bollard::query_parameters::CreateImageOptions;
use futures_util::StreamExt;

use crate::engine::docker::daemon::{Refused, is_missing};
use crate::results::store;

/// Sees to it that an image is there. Says whether it was pulled.
pub(super) async fn ensure(docker: &Docker, image: &str, mut log: store::Log) -> Result<bool, Refused> {
    match docker.inspect_image(image).await {
        Ok(_) => return Ok(false),
        Err(error) if is_missing(&error) => {}
        Err(error) => return Err(Refused::of("inspect the image", &error)),
    }
    let name = whole(image);
    let mut say = |line: &str| {
        // A full disk is told by whoever keeps results; an image is pulled all the same.
        let _ = writeln!(log, "{line}").and_then(|()| log.flush());
    };
    say(&format!("pulling {name}"));
    let options = CreateImageOptions {
        from_image: Some(name),
        ..CreateImageOptions::default()
    };
    let mut told: HashMap<String, String> = HashMap::new();
    let mut pull = docker.create_image(Some(options), None, None);
    while let Some(step) = pull.next().await {
        let step = step.map_err(|error| {
            let refused = Refused::of("pull", &error);
            say(&refused.raw);
            refused
        })?;
        if let Some(line) = progress(&step, &mut told) {
            say(&line);
        }
    }
    Ok(true)
}

/// A line for a step that is new: a layer is told once per state, not once per kilobyte.
fn progress(step: &CreateImageInfo, told: &mut HashMap<String, String>) -> Option<String> {
    let status = step.status.clone()?;
    let id = step.id.clone().unwrap_or_default();
    if told.insert(id.clone(), status.clone()).as_ref() == Some(&status) {
        return None;
    }
    let size = step
        .progress_detail
        .as_ref()
        .and_then(|detail| detail.total)
        .filter(|total| *total > 0)
        .map_or_else(String::new, |total| format!(" ({:.1} MB)", total as f64 / 1e6));
    Some(match id.is_empty() {
        true => status,
        false => format!("{id}: {status}{size}"),
    })
}

/// The name with a tag: without one a daemon would pull them all.
pub(super) fn whole(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    match image.contains('@') || last.contains(':') {
        true => image.to_owned(),
        false => format!("{image}:latest"),
    }
}

/// What an image is for ever: its digest in a registry, or its own id where it came from none.
pub(super) async fn digest(docker: &Docker, id: &str) -> Option<String> {
    let image = docker.inspect_image(id).await.ok()?;
    let named = image.repo_digests.unwrap_or_default().into_iter().next();
    named.or(image.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_without_a_tag_is_the_latest_and_never_all() {
        assert_eq!(whole("a/b"), "a/b:latest");
        assert_eq!(whole("h:5000/a/b"), "h:5000/a/b:latest");
        assert_eq!(whole("a/b:1"), "a/b:1");
        assert_eq!(whole("a/b@sha256:00"), "a/b@sha256:00");
    }

    #[test]
    fn a_layer_is_told_once_per_state() {
        let step = |id: &str, status: &str| CreateImageInfo {
            id: Some(id.into()),
            status: Some(status.into()),
            ..CreateImageInfo::default()
        };
        let mut told = HashMap::new();
        assert_eq!(
            progress(&step("a", "Downloading"), &mut told).as_deref(),
            Some("a: Downloading")
        );
        assert_eq!(progress(&step("a", "Downloading"), &mut told), None);
        assert!(progress(&step("a", "Extracting"), &mut told).is_some());
    }
}
