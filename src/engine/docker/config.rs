//! Reads `config.json` of Docker's client, from `~/.docker` or DOCKER_CONFIG.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use serde::Deserialize;

/// The keys of `config.json` that `matrix` uses.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ConfigFile {
    /// The context that `docker context use` chose.
    pub(super) current_context: Option<String>,
    pub(super) auths: BTreeMap<String, Login>,
    /// Credential helper for all registries: `docker-credential-<name>`.
    pub(super) creds_store: Option<String>,
    /// Credential helpers of single registries.
    pub(super) cred_helpers: BTreeMap<String, String>,
}

/// A login as `docker login` writes it. `Debug` hides it.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Login {
    pub(super) auth: Option<String>,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    #[serde(rename = "identitytoken")]
    pub(super) identity_token: Option<String>,
    #[serde(rename = "registrytoken")]
    pub(super) registry_token: Option<String>,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login(***)")
    }
}

/// Reads the configuration in `folder`. A missing file is an empty configuration. Errors do not quote the
/// file, which may hold passwords.
pub(super) fn read(folder: Option<&Path>) -> Result<ConfigFile, String> {
    let Some(file) = folder.map(|folder| folder.join("config.json")) else {
        return Ok(ConfigFile::default());
    };
    let text = match std::fs::read(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(ConfigFile::default()),
        Err(error) => return Err(format!("{} cannot be read: {error}", file.display())),
    };
    serde_json::from_slice(&text).map_err(|error| {
        format!(
            "{} is not a valid Docker configuration (line {}, column {})",
            file.display(),
            error.line(),
            error.column()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_that_is_broken_is_named_and_not_quoted() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(Some(folder.path())).unwrap().current_context.is_none());
        std::fs::write(
            folder.path().join("config.json"),
            r#"{"auths": {"r": {"auth": "hunter2"}}, "credsStore": 7}"#,
        )
        .unwrap();
        let error = read(Some(folder.path())).unwrap_err();
        assert!(
            error.contains("config.json") && error.contains("line 1"),
            "{error}"
        );
        assert!(!error.contains("hunter2"), "{error}");
        assert!(
            !format!(
                "{:?}",
                Login {
                    auth: Some("hunter2".into()),
                    ..Login::default()
                }
            )
            .contains("hunter2")
        );
    }
}
