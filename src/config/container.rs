//! What a container is given of its host.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which GPUs a container gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Gpus {
    /// None.
    #[default]
    None,
    /// All of the host's.
    All,
    /// Those that the launch leased, by id.
    Leased,
    /// Those that the launch leased, by their CDI names, such as `nvidia.com/gpu=0`.
    Cdi,
    /// All of the host's, by the CDI name `nvidia.com/gpu=all`.
    CdiAll,
}

impl Gpus {
    /// The CDI names by which a launch with these devices asks for GPUs; none where it asks otherwise, or for none.
    pub fn cdi(self, devices: &[String]) -> Vec<String> {
        match self {
            Self::Cdi => devices
                .iter()
                .map(|device| format!("nvidia.com/gpu={device}"))
                .collect(),
            Self::CdiAll => vec!["nvidia.com/gpu=all".to_owned()],
            Self::None | Self::All | Self::Leased => Vec::new(),
        }
    }
}

/// How a container is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// It shares the host's network; no port mapping.
    #[default]
    Host,
    /// Docker's bridge with the port mapped.
    Bridge,
}
