//! A launch as a shell command line. `plan` prints it and reports quote it; pasted into a shell, it starts
//! the same engine.
//!
//! Secrets appear as names: `-e NAME` for a container, `"$NAME"` elsewhere.

use std::path::Path;

use crate::plan::executor::members::Ports;
use crate::plan::launch::Launch;
use crate::plan::shell::{CommandLine, LineContext};

/// Values of a start, for the command line that really ran.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StartValues<'a> {
    /// Folder of the matrix file; relative mounts start here.
    pub(crate) folder: Option<&'a Path>,
    /// The port; the default one if absent.
    pub(crate) port: Option<u16>,
    /// Ports of further processes of the engine; those after `port` if absent.
    pub(crate) further_ports: Option<&'a [u16]>,
    /// Names of the leased GPUs; the first ones if absent.
    pub(crate) devices: Option<&'a [String]>,
}

/// The command line of a launch with its default port and devices; a comment with the address for an attached
/// server.
pub(crate) fn command_line(launch: &Launch) -> CommandLine {
    command_line_with(launch, StartValues::default())
}

/// The command line of a launch with the values of a start.
pub(crate) fn command_line_with(launch: &Launch, values: StartValues<'_>) -> CommandLine {
    let port = values.port.unwrap_or_else(|| launch.default_port());
    let ports = match values.further_ports {
        Some(further) => Ports {
            endpoint: port,
            further: further.to_vec(),
        },
        None => Ports::planned(port, launch.members()),
    };
    launch.place.settings().command_line(&LineContext {
        folder: values.folder,
        port,
        ports,
        devices: match values.devices {
            Some(devices) => devices.to_vec(),
            None => (0..launch.local_gpus())
                .map(|device| device.to_string())
                .collect(),
        },
        gpus: launch.local_gpus(),
        arguments: launch.command_args(port),
        name: container_name(launch),
    })
}

/// Longest container name of a launch, without the suffix of a run.
const MAX_NAME_LENGTH: usize = 100;

/// The container name of a launch, without the suffix of a run.
pub(crate) fn container_name(launch: &Launch) -> String {
    let whole = format!("matrix-{}", launch.id.as_str().to_ascii_lowercase());
    let mut name = String::with_capacity(whole.len());
    for c in whole.chars() {
        if c != '-' || !name.ends_with('-') {
            name.push(c);
        }
    }
    // The digest at the end distinguishes launches. The whole name is ASCII.
    match name.rsplit_once('-') {
        Some((readable, digest)) if name.len() > MAX_NAME_LENGTH => {
            let prefix: String = readable
                .chars()
                .take(MAX_NAME_LENGTH - 1 - digest.len())
                .collect();
            format!("{}-{digest}", prefix.trim_end_matches('-'))
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::container::{ContainerGpus, Mount};
    use crate::config::template::Template;
    use crate::engine::testing::{command_launch, container_launch};
    use crate::plan::executor::{Container, ExecutorSpec};

    #[test]
    fn lines_of_a_word_are_no_lines_of_the_command() {
        for word in ["a\n::error::b", "a\n::error::${TOKEN}"] {
            let line = command_line(&command_launch(&["serve", word])).to_wrapped();
            assert!(!line.contains("\n::"), "{line}");
            let mut shell = std::process::Command::new("bash");
            shell
                .env("TOKEN", "b")
                .args(["-c", &line.replace("serve", "printf %s")]);
            assert_eq!(shell.output().unwrap().stdout, b"a\n::error::b");
        }
    }

    fn mount_text(source: &str, target: &str) -> String {
        let launch = container_launch(Container {
            mounts: vec![Mount {
                source: Template::new(source),
                target: target.to_owned().into(),
                read_only: false,
            }],
            ..Container::default()
        });
        let given = StartValues {
            folder: Some(Path::new("/m")),
            ..StartValues::default()
        };
        let line = command_line_with(&launch, given);
        let mount = line.0.into_iter().find(|group| group.starts_with("--mount "));
        mount.expect("there is a mount")
    }

    #[test]
    fn a_mount_is_absolute_and_its_fields_are_quoted_as_docker_reads_them() {
        assert_eq!(
            mount_text("cache", "/c"),
            "--mount type=bind,source=/m/cache,target=/c"
        );
        assert_eq!(mount_text("/a", "/c"), "--mount type=bind,source=/a,target=/c");
        assert_eq!(
            mount_text("{dir}/a", "/c"),
            "--mount type=bind,source=/m/a,target=/c"
        );
        assert_eq!(
            mount_text("a,b \"c\"", "/c,d"),
            "--mount 'type=bind,\"source=/m/a,b \"\"c\"\"\",\"target=/c,d\"'"
        );
        assert_eq!(
            mount_text("{hf_home}/hub", "/c"),
            "--mount \"type=bind,source=${HF_HOME:-$HOME/.cache/huggingface}/hub,target=/c\""
        );
    }

    #[test]
    fn names_of_variables_limits_and_namespaces_are_quoted() {
        let launch = container_launch(Container {
            env: vec![
                ("A;id".into(), Template::new("${A;id}")),
                ("B c".into(), Template::new("d")),
            ],
            ipc: Some("host;id".into()),
            ulimits: vec![("memlock;id".into(), -1)],
            ..Container::default()
        });
        let line = command_line(&launch).to_line();
        assert!(line.contains("'--ipc=host;id'"), "{line}");
        assert!(line.contains("--ulimit 'memlock;id=-1'"), "{line}");
        assert!(line.contains("-e 'B c=d'"), "{line}");
        let mut launch = command_launch(&["serve"]);
        let ExecutorSpec::Process(process) = &mut launch.place else {
            panic!("it is a process");
        };
        process.env = vec![
            ("$(id)".into(), Template::new("x")),
            ("B".into(), Template::new("y z")),
        ];
        assert_eq!(command_line(&launch).to_line(), "env '$(id)=x' 'B=y z' serve");
    }

    #[test]
    fn the_line_of_a_start_has_its_port_and_devices() {
        let mut launch = container_launch(Container {
            command: vec![Template::new("--port={port}"), Template::new("{devices}")],
            gpus: ContainerGpus::Leased,
            ..Container::default()
        });
        launch.devices = 2;
        let names = ["4", "6"].map(str::to_owned);
        let given = StartValues {
            port: Some(20123),
            devices: Some(&names),
            ..StartValues::default()
        };
        let line = command_line_with(&launch, given).to_line();
        assert!(line.contains("--gpus '\"device=4,6\"'"), "{line}");
        assert!(line.ends_with("--port=20123 4,6"), "{line}");
    }

    #[test]
    fn a_container_s_name_is_short_and_has_no_doubled_dashes() {
        let mut launch = container_launch(Container::default());
        launch.id = crate::base::ids::LaunchId::new("-n----B-x-1---x-tp1-14f20b");
        assert_eq!(container_name(&launch), "matrix-n-b-x-1-x-tp1-14f20b");
        launch.id = crate::base::ids::LaunchId::new(format!("{}-tp1-14f20b", "x".repeat(200)));
        let name = container_name(&launch);
        assert_eq!(name.len(), MAX_NAME_LENGTH);
        assert!(name.ends_with("x-14f20b"), "{name}");
    }
}
