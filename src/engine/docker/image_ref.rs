//! Parses image names as Docker does. Pure.

/// Key of Docker Hub in Docker's configuration.
const DOCKER_HUB_KEY: &str = "https://index.docker.io/v1/";

/// The name with a tag. Without a tag a daemon would pull all tags.
pub(super) fn with_tag(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    match image.contains('@') || last.contains(':') {
        true => image.to_owned(),
        false => format!("{image}:latest"),
    }
}

pub(super) fn repository(image: &str) -> &str {
    let named = image.split('@').next().unwrap_or(image);
    let from = named.rfind('/').map_or(0, |at| at + 1);
    match named[from..].find(':') {
        Some(at) => &named[..from + at],
        None => named,
    }
}

/// The tag; `None` if the name has a digest.
pub(super) fn tag(image: &str) -> Option<String> {
    let tagged = with_tag(image);
    let has_digest = tagged.contains('@');
    let tag = tagged.rsplit(':').next().map(str::to_owned);
    tag.filter(|_| !has_digest)
}

pub(super) fn with_digest(image: &str, digest: &str) -> String {
    format!("{}@{digest}", repository(image))
}

pub(super) fn registry(image: &str) -> &str {
    match login_key(image) {
        DOCKER_HUB_KEY => "docker.io",
        registry => registry,
    }
}

/// The key under which Docker's configuration holds the login of the image's registry.
pub(super) fn login_key(image: &str) -> &str {
    let first = image.split('/').next().unwrap_or_default();
    let is_host = image.contains('/') && (first.contains(['.', ':']) || first == "localhost");
    match is_host && first != "docker.io" && first != "index.docker.io" {
        true => first,
        false => DOCKER_HUB_KEY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_without_a_tag_is_the_latest_and_never_all() {
        assert_eq!(with_tag("a/b"), "a/b:latest");
        assert_eq!(with_tag("h:5000/a/b"), "h:5000/a/b:latest");
        assert_eq!(with_tag("a/b:1"), "a/b:1");
        assert_eq!(with_tag("a/b@sha256:00"), "a/b@sha256:00");
    }

    #[test]
    fn a_name_is_taken_apart() {
        assert_eq!(repository("h:5000/a/b:1"), "h:5000/a/b");
        assert_eq!(repository("h:5000/a/b"), "h:5000/a/b");
        assert_eq!(repository("a:1@sha256:00"), "a");
        assert_eq!(tag("h:5000/a").as_deref(), Some("latest"));
        assert_eq!(tag("a:1").as_deref(), Some("1"));
        assert_eq!(tag("a:1@sha256:00"), None);
        assert_eq!(with_digest("h:5000/a/b:1", "sha256:00"), "h:5000/a/b@sha256:00");
        assert_eq!(login_key("vllm/vllm-openai:1"), DOCKER_HUB_KEY);
        assert_eq!(login_key("ubuntu"), DOCKER_HUB_KEY);
        assert_eq!(login_key("docker.io/a/b"), DOCKER_HUB_KEY);
        assert_eq!(login_key("nvcr.io/nvidia/x:1"), "nvcr.io");
        assert_eq!(registry("ubuntu"), "docker.io");
        assert_eq!(registry("127.0.0.1:5000/x:1"), "127.0.0.1:5000");
        assert_eq!(login_key("localhost/x"), "localhost");
        assert_eq!(login_key("127.0.0.1:5000/x"), "127.0.0.1:5000");
    }
}
