//! Registry logins from Docker's configuration or a credential helper. They are sent only to the daemon, with
//! a pull or a query for the digest of an image.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bollard::auth::DockerCredentials;
use serde::Deserialize;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

use crate::engine::docker::config::{self, ConfigFile, Login};
use crate::engine::docker::host::DockerEnv;
use crate::engine::docker::image_ref;

/// Timeout of a credential helper, which may ask the user for a password.
const HELPER_TIMEOUT: Duration = Duration::from_secs(30);

/// The user name that marks a helper's secret as a token.
const TOKEN_USER: &str = "<token>";

/// The login for the registry of an image; `None` if there is none. Errors hold no secret.
pub(super) async fn registry_credentials(
    docker_env: &DockerEnv,
    image: &str,
) -> Result<Option<DockerCredentials>, String> {
    let config = config::read(docker_env.config.as_deref())?;
    let registry = image_ref::login_key(image);
    let entry = match helper_name(&config, registry) {
        Some(helper) => ask_helper(helper, registry, docker_env.path.as_deref()).await?,
        None => configured_login(&config, registry)?,
    };
    Ok(entry.map(|entry| DockerCredentials {
        serveraddress: Some(registry.to_owned()),
        ..entry
    }))
}

/// The credential helper of a registry: its own, else the one for all registries.
fn helper_name<'c>(config: &'c ConfigFile, registry: &str) -> Option<&'c str> {
    let registry_helper = config.cred_helpers.get(registry);
    registry_helper
        .or(config.creds_store.as_ref())
        .map(String::as_str)
        .filter(|name| !name.is_empty())
}

/// The login that the configuration holds itself.
fn configured_login(config: &ConfigFile, registry: &str) -> Result<Option<DockerCredentials>, String> {
    let bare = |key: &str| {
        let key = key.trim_start_matches("https://").trim_start_matches("http://");
        key.split('/').next().unwrap_or_default().to_owned()
    };
    // Older clients wrote a registry with scheme and path.
    let entry = config.auths.get(registry).or_else(|| {
        let mut logins = config.auths.iter();
        logins
            .find(|(key, _)| bare(key) == bare(registry))
            .map(|(_, login)| login)
    });
    let Some(login) = entry else { return Ok(None) };
    decode_login(login).map(Some).ok_or_else(|| {
        format!("the login for {registry} in Docker's configuration cannot be read; run `docker login` again")
    })
}

fn decode_login(login: &Login) -> Option<DockerCredentials> {
    let mut read = DockerCredentials {
        username: login.username.clone(),
        password: login.password.clone(),
        identitytoken: login.identity_token.clone().filter(|token| !token.is_empty()),
        registrytoken: login.registry_token.clone().filter(|token| !token.is_empty()),
        ..DockerCredentials::default()
    };
    if let Some(auth) = login.auth.as_ref().filter(|auth| !auth.is_empty()) {
        let bytes = STANDARD.decode(auth).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let (user, password) = text.split_once(':')?;
        read.username = Some(user.to_owned());
        // Some clients pad the password with NUL bytes.
        read.password = Some(password.trim_end_matches('\0').to_owned());
    }
    Some(read)
}

/// Answer of `docker-credential-<name> get`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperAnswer {
    username: String,
    secret: String,
}

async fn ask_helper(
    helper: &str,
    registry: &str,
    path: Option<&str>,
) -> Result<Option<DockerCredentials>, String> {
    let program = format!("docker-credential-{helper}");
    let file = find_helper(&program, path).ok_or_else(|| {
        format!("`{program}`, which Docker's configuration names for {registry}, is not in PATH")
    })?;
    let failed =
        |reason: String| format!("`{program} get` did not return the login for {registry}: {reason}");
    let mut child = Command::new(file)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A helper that does not read its input ends without an answer, which is reported below.
        let _ = stdin.write_all(registry.as_bytes()).await;
    }
    let output = match timeout(HELPER_TIMEOUT, child.wait_with_output()).await {
        Ok(output) => output.map_err(|error| failed(error.to_string()))?,
        Err(_) => {
            return Err(failed(format!(
                "no response within {} s",
                HELPER_TIMEOUT.as_secs()
            )));
        }
    };
    if !output.status.success() {
        // A helper reports errors on its standard output.
        let output_text = String::from_utf8_lossy(&output.stdout);
        return match output_text.contains("credentials not found") {
            true => Ok(None),
            false => Err(failed(
                output_text
                    .lines()
                    .next()
                    .unwrap_or("it failed without a message")
                    .to_owned(),
            )),
        };
    }
    let answer: HelperAnswer = serde_json::from_slice(&output.stdout).map_err(|_| {
        failed("the output of this program is not JSON with a user name and a secret".to_owned())
    })?;
    Ok(Some(match answer.username.as_str() {
        TOKEN_USER => DockerCredentials {
            identitytoken: Some(answer.secret),
            ..DockerCredentials::default()
        },
        _ => DockerCredentials {
            username: Some(answer.username),
            password: Some(answer.secret),
            ..DockerCredentials::default()
        },
    }))
}

fn find_helper(program: &str, path: Option<&str>) -> Option<PathBuf> {
    let folders = path.unwrap_or_default().split(':');
    folders
        .map(|folder| Path::new(folder).join(program))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A folder that holds both the configuration and the helper programs.
    fn config_folder(config: &str) -> (tempfile::TempDir, DockerEnv) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), config).unwrap();
        let docker_env = DockerEnv {
            config: Some(folder.path().to_owned()),
            path: Some(format!("/no/such:{}", folder.path().display())),
            ..DockerEnv::default()
        };
        (folder, docker_env)
    }

    fn program(folder: &tempfile::TempDir, name: &str, script: &str) {
        let file = folder.path().join(format!("docker-credential-{name}"));
        // Another process writes the file. If this process wrote it, a concurrent fork would inherit the open
        // file descriptor, and executing the file would fail.
        let chmod = std::process::Command::new("sh")
            .args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$2\" >\"$1\"", "sh"])
            .arg(&file)
            .arg(script)
            .status()
            .unwrap();
        assert!(chmod.success());
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[tokio::test]
    async fn a_login_of_the_configuration_is_found_by_its_registry() {
        let (_folder, docker_env) = config_folder(
            r#"{"auths": {
                "https://index.docker.io/v1/": {"auth": "aHViOnA6cQ=="},
                "https://old.example/v1/": {"username": "o", "password": "p"},
                "r.example:5000": {"identitytoken": "t"},
                "bad.example": {"auth": "%%"}}}"#,
        );
        let hub = registry_credentials(&docker_env, "vllm/vllm-openai:v1")
            .await
            .unwrap()
            .unwrap();
        assert_eq!(hub.username.as_deref(), Some("hub"));
        assert_eq!(hub.password.as_deref(), Some("p:q"));
        let old = registry_credentials(&docker_env, "old.example/a")
            .await
            .unwrap()
            .unwrap();
        assert_eq!(old.password.as_deref(), Some("p"));
        let token = registry_credentials(&docker_env, "r.example:5000/a/b@sha256:00")
            .await
            .unwrap()
            .unwrap();
        assert_eq!(token.identitytoken.as_deref(), Some("t"));
        assert!(
            registry_credentials(&docker_env, "other.example/a")
                .await
                .unwrap()
                .is_none()
        );
        let error = registry_credentials(&docker_env, "bad.example/a")
            .await
            .unwrap_err();
        assert!(
            error.contains("bad.example") && error.contains("docker login"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_program_that_keeps_passwords_is_asked() {
        let (folder, docker_env) = config_folder(
            r#"{"credsStore": "all", "credHelpers": {"r.example": "one", "lost.example": "none"}}"#,
        );
        program(
            &folder,
            "one",
            r#"[ "$1" = get ] && read server || [ -n "$server" ]; echo "{\"ServerURL\":\"$server\",\"Username\":\"u\",\"Secret\":\"s-$server\"}""#,
        );
        program(
            &folder,
            "all",
            "echo credentials not found in native keychain; exit 1",
        );
        let one = registry_credentials(&docker_env, "r.example/x:1")
            .await
            .unwrap()
            .unwrap();
        assert_eq!(one.password.as_deref(), Some("s-r.example"));
        assert!(registry_credentials(&docker_env, "x").await.unwrap().is_none());
        let error = registry_credentials(&docker_env, "lost.example/x")
            .await
            .unwrap_err();
        assert!(error.contains("docker-credential-none"), "{error}");
        program(&folder, "all", "echo the keychain is locked; exit 2");
        let locked = registry_credentials(&docker_env, "x").await.unwrap_err();
        assert!(locked.contains("the keychain is locked"), "{locked}");
    }
}
