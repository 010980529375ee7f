//! What is known of a launch that was imported from files of another tool.

use serde::{Deserialize, Serialize};

use crate::plan::executor::{ExecutorSettings, ExecutorSpec};
use crate::plan::shell::{CommandLine, LineContext};

/// How an imported engine was started, as far as known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ImportedLaunch {
    pub(crate) image: Option<String>,
    /// The package from pip, such as `lmdeploy==0.10.0`.
    pub(crate) package: Option<String>,
    /// GPU model as declared by the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gpu: Option<String>,
    /// The published command, line by line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) command: Vec<String>,
}

impl ExecutorSettings for ImportedLaunch {
    fn name(&self) -> &'static str {
        "imported"
    }

    fn engine_source(&self) -> &'static str {
        match (&self.image, &self.package) {
            (Some(_), _) => "container image",
            (None, Some(_)) => "pip package",
            (None, None) => "unknown",
        }
    }

    fn image(&self) -> Option<&str> {
        self.image.as_deref()
    }

    fn pip_install(&self) -> Option<String> {
        Some(format!("python3 -m pip install {}", self.package.as_ref()?))
    }

    fn declared_gpu(&self) -> Option<&str> {
        self.gpu.as_deref()
    }

    fn pin(&self, _digest: Option<&str>) -> Result<ExecutorSpec, &'static str> {
        Err("it was imported")
    }

    fn command_line(&self, _context: &LineContext<'_>) -> CommandLine {
        match self.command.is_empty() {
            true => CommandLine(vec![
                "# imported; the command that started the engine is not known".to_owned(),
            ]),
            false => CommandLine(self.command.clone()),
        }
    }
}
