//! How a job of a cluster starts containers.

use serde::{Deserialize, Deserializer, Serialize, de};

/// How a job starts the containers of engines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct JobContainers {
    /// What starts containers; default `docker`.
    pub(crate) runtime: ContainerRuntime,
    /// Further options of the command that starts a container, such as `--fakeroot`.
    pub(crate) options: Vec<RuntimeOption>,
    /// Folders of the node that all containers get, such as `/shared` or `/local/models:/models:ro`.
    pub(crate) bind: Vec<BindPath>,
}

/// What starts the containers of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ContainerRuntime {
    /// The container daemon of the node, which runs containers outside of the job.
    #[default]
    Docker,
    /// `podman run`, as a process of the job.
    Podman,
    /// `apptainer`, as a process of the job.
    Apptainer,
    /// `singularity`, as a process of the job.
    Singularity,
    /// `enroot start`, as a process of the job.
    Enroot,
}

/// An option of a container runtime, with its value after `=`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RuntimeOption(String);

/// A folder of the node and its path in containers: `SOURCE`, `SOURCE:TARGET` or `SOURCE:TARGET:ro`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(with = "String"))]
pub(crate) struct BindPath {
    pub(crate) source: String,
    pub(crate) target: String,
    pub(crate) is_read_only: bool,
}

impl ContainerRuntime {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::Apptainer => "apptainer",
            Self::Singularity => "singularity",
            Self::Enroot => "enroot",
        }
    }
}

impl JobContainers {
    /// What is wrong with settings that are valid one by one.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        let has_settings = !self.options.is_empty() || !self.bind.is_empty();
        (self.runtime == ContainerRuntime::Docker && has_settings)
            .then_some("`options` and `bind` of `containers` have no effect with the runtime `docker`")
    }
}

impl RuntimeOption {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl BindPath {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no folder for containers; write absolute paths as `SOURCE`, `SOURCE:TARGET` or `SOURCE:TARGET:ro`"
            )
        };
        let parts: Vec<&str> = text.split(':').collect();
        let (source, target, is_read_only) = match *parts {
            [path] => (path, path, false),
            [source, target] => (source, target, false),
            [source, target, "ro"] => (source, target, true),
            _ => return Err(wrong()),
        };
        let is_path = |path: &str| path.starts_with('/') && !path.contains([',', '{', '\n', '\0']);
        match is_path(source) && is_path(target) {
            true => Ok(Self {
                source: source.to_owned(),
                target: target.to_owned(),
                is_read_only,
            }),
            false => Err(wrong()),
        }
    }
}

impl Serialize for BindPath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mode = if self.is_read_only { ":ro" } else { "" };
        serializer.serialize_str(&format!("{}:{}{mode}", self.source, self.target))
    }
}

impl<'de> Deserialize<'de> for BindPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for RuntimeOption {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.starts_with('-') && !text.contains(['{', '\n', '\0']) {
            true => Ok(Self(text)),
            false => Err(de::Error::custom(format!(
                "{text:?} is no option of a container runtime; write it as `--name` or `--name=value`, without braces and line breaks"
            ))),
        }
    }
}
