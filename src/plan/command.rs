//! A launch as a shell command line. `plan` prints it and reports quote it; pasted into a shell, it starts
//! the same engine.
//!
//! Secrets appear as names: `-e NAME` for a container, `"$NAME"` elsewhere.

use std::path::Path;

use crate::base::text::is_control;
use crate::config::container::{ContainerGpus, ContainerNetwork, Mount};
use crate::config::template::{Template, TemplatePart};
use crate::plan::executor_spec::{Container, ExecutorSpec, Process};
use crate::plan::launch::Launch;

/// A command line, split into groups between which a line may break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine(Vec<String>);

impl CommandLine {
    /// All on one line.
    pub fn to_line(&self) -> String {
        self.0.join(" ")
    }

    /// The command on several lines, joined by backslashes.
    pub(crate) fn to_wrapped(&self) -> String {
        self.0.join(" \\\n    ")
    }
}

/// Values of a start, for the command line that really ran.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StartValues<'a> {
    /// Folder of the matrix file; relative mounts start here.
    pub folder: Option<&'a Path>,
    /// The port; the default one if absent.
    pub port: Option<u16>,
    /// Names of the leased GPUs; the first ones if absent.
    pub devices: Option<&'a [String]>,
}

/// The command line of a launch with its default port and devices; a comment with the address for an attached
/// server.
pub fn command_line(launch: &Launch) -> CommandLine {
    command_line_with(launch, StartValues::default())
}

/// The command line of a launch with the values of a start.
pub(crate) fn command_line_with(launch: &Launch, values: StartValues<'_>) -> CommandLine {
    let filler = PlaceholderValues {
        folder: values.folder,
        port: values.port.unwrap_or_else(|| launch.default_port()),
        devices: match values.devices {
            Some(devices) => devices.to_vec(),
            None => (0..launch.devices).map(|device| device.to_string()).collect(),
        },
    };
    match &launch.place {
        ExecutorSpec::Container(container) => docker_command(launch, container, &filler),
        ExecutorSpec::Process(process) => shell_command(launch, process, &filler),
        ExecutorSpec::Attach(attach) => CommandLine(vec![format!("# attached to {}", attach.url)]),
        ExecutorSpec::Imported(imported) if imported.command.is_empty() => {
            CommandLine(vec!["# imported; the command is not known".to_owned()])
        }
        ExecutorSpec::Imported(imported) => CommandLine(imported.command.clone()),
    }
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

fn docker_command(launch: &Launch, container: &Container, filler: &PlaceholderValues<'_>) -> CommandLine {
    let port = filler.port;
    let mut groups = vec!["docker run".to_owned()];
    let runtime = container
        .runtime
        .as_ref()
        .map(|runtime| format!("--runtime {}", shell_quote(runtime)));
    let gpus = match container.gpus {
        ContainerGpus::None | ContainerGpus::Cdi | ContainerGpus::CdiAll => None,
        ContainerGpus::All => Some("--gpus all".to_owned()),
        ContainerGpus::Leased if launch.devices == 0 => None,
        ContainerGpus::Leased => Some(format!("--gpus '\"device={}\"'", filler.device_list())),
    };
    let devices: Vec<String> = runtime.into_iter().chain(gpus).collect();
    if !devices.is_empty() {
        groups[0] = format!("{} {}", groups[0], devices.join(" "));
    }
    for mount in &container.mounts {
        groups.push(format!("--mount {}", filler.mount_flag(mount)));
    }
    for (name, value) in &container.env {
        groups.push(match passes_variable(name, value) {
            true => format!("-e {}", shell_quote(name)),
            false => format!("-e {}", filler.quote(&Template::new(format!("{name}={value}")))),
        });
    }
    for name in container.gpus.cdi_names(&filler.devices) {
        groups.push(format!("--device {name}"));
    }
    for device in &container.devices {
        groups.push(format!("--device {}", shell_quote(device)));
    }
    match container.network {
        ContainerNetwork::Host => groups.push("--net host".to_owned()),
        ContainerNetwork::Bridge => groups.push(format!("-p {port}:{port}")),
    }
    let mut flags = Vec::new();
    flags.extend(
        container
            .ipc
            .as_ref()
            .map(|ipc| shell_quote(&format!("--ipc={ipc}"))),
    );
    if container.ipc.as_deref() != Some("host") {
        flags.extend(container.shm_size.map(|size| format!("--shm-size {}", size.0)));
    }
    flags.extend(
        container
            .ulimits
            .iter()
            .map(|(name, limit)| format!("--ulimit {}", shell_quote(&format!("{name}={limit}")))),
    );
    flags.extend(limit_flags(container));
    flags.extend(container.init.then(|| "--init".to_owned()));
    flags.extend(container.privileged.then(|| "--privileged".to_owned()));
    let mut command = launch.command_args(port);
    if let Some(entrypoint) = &container.entrypoint {
        let program = entrypoint
            .first()
            .map_or_else(|| "''".to_owned(), |program| filler.quote(program));
        flags.push(format!("--entrypoint {program}"));
        command.splice(0..0, entrypoint.iter().skip(1).cloned());
    }
    flags.push(format!("--name {}", container_name(launch)));
    groups.push(flags.join(" "));
    groups.push(shell_quote(&container.image));
    if !command.is_empty() {
        groups.push(filler.quote_all(&command));
    }
    CommandLine(groups)
}

/// Flags for resource limits and privileges.
fn limit_flags(container: &Container) -> Vec<String> {
    let mut flags = Vec::new();
    let cpuset = container.cpuset.as_ref();
    flags.extend(cpuset.map(|cpus| format!("--cpuset-cpus {}", shell_quote(cpus))));
    flags.extend(container.memory.map(|bytes| format!("--memory {}", bytes.0)));
    flags.extend(
        container
            .memory_swap
            .map(|bytes| format!("--memory-swap {}", bytes.0)),
    );
    let lists = [
        ("--add-host", &container.extra_hosts),
        ("--cap-add", &container.cap_add),
        ("--security-opt", &container.security_opt),
        ("--group-add", &container.group_add),
    ];
    for (flag, values) in lists {
        flags.extend(
            values
                .iter()
                .map(|value| format!("{flag} {}", shell_quote(value))),
        );
    }
    flags
}

fn shell_command(launch: &Launch, process: &Process, filler: &PlaceholderValues<'_>) -> CommandLine {
    let given: Vec<&(String, Template)> = process
        .env
        .iter()
        .filter(|(name, value)| !passes_variable(name, value))
        .collect();
    let is_plain = given.iter().all(|(name, _)| is_shell_name(name));
    let mut groups: Vec<String> = given
        .iter()
        .map(|(name, value)| match is_plain {
            true => format!("{name}={}", filler.quote(value)),
            false => filler.quote(&Template::new(format!("{name}={value}"))),
        })
        .collect();
    if !is_plain {
        // A shell takes an assignment to another name for a program.
        groups.insert(0, "env".to_owned());
    }
    groups.push(filler.quote_all(&launch.command_args(filler.port)));
    CommandLine(groups)
}

/// Whether a POSIX shell can assign to a variable of that name.
fn is_shell_name(name: &str) -> bool {
    let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
    name.chars().all(is_word) && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// Whether the variable's value is the secret of the same name.
fn passes_variable(name: &str, value: &Template) -> bool {
    matches!(value.parts().as_slice(), [TemplatePart::Secret(secret)] if *secret == name)
}

/// Fills the placeholders of a command line.
struct PlaceholderValues<'a> {
    folder: Option<&'a Path>,
    port: u16,
    devices: Vec<String>,
}

impl PlaceholderValues<'_> {
    fn device_list(&self) -> String {
        self.devices.join(",")
    }

    /// The value of `--mount`. A missing source is an error for it, as in a run; `-v` would create an empty
    /// folder.
    fn mount_flag(&self, mount: &Mount) -> String {
        let mode = if mount.read_only { ",readonly" } else { "" };
        let source = csv_field(&format!("source={}", self.absolute_source(&mount.source)));
        let target = csv_field(&format!("target={}", mount.target));
        self.quote(&Template::new(format!("type=bind,{source},{target}{mode}")))
    }

    /// The source of a mount as a run passes it to the daemon: absolute if the folder of the matrix is known.
    fn absolute_source(&self, source: &Template) -> String {
        let Some(folder) = self.folder else {
            return source.to_string();
        };
        let folder = folder.to_string_lossy();
        match source.parts().first() {
            Some(TemplatePart::Literal(start)) if !start.starts_with('/') => format!("{folder}/{source}"),
            Some(TemplatePart::Placeholder("dir")) => source.as_str().replacen("{dir}", &folder, 1),
            _ => source.to_string(),
        }
    }

    fn quote_all(&self, texts: &[Template]) -> String {
        let words: Vec<String> = texts.iter().map(|text| self.quote(text)).collect();
        words.join(" ")
    }

    /// Formats a word for a POSIX shell.
    fn quote(&self, text: &Template) -> String {
        let expands = |piece: &TemplatePart<'_>| {
            matches!(
                piece,
                TemplatePart::Secret(_) | TemplatePart::Placeholder("hf_home" | "venv" | "dir")
            )
        };
        let pieces = text.parts();
        if !pieces.iter().any(expands) {
            let fill = |name: &str| match name {
                "port" => Some(self.port.to_string()),
                "matrix" => Some("matrix".to_owned()),
                "devices" => Some(self.device_list()),
                _ => None,
            };
            return shell_quote(text.fill_placeholders(&fill).as_str());
        }
        let mut word = String::from("\"");
        for piece in pieces {
            match piece {
                TemplatePart::Literal(plain) => plain.chars().for_each(|c| {
                    if matches!(c, '"' | '\\' | '$' | '`') {
                        word.push('\\');
                    }
                    match escape_control(c) {
                        Some(escape) => word.push_str(&format!("\"$'{escape}'\"")),
                        None => word.push(c),
                    }
                }),
                TemplatePart::Secret(name) => word.push_str(&format!("${{{name}}}")),
                TemplatePart::Placeholder("hf_home") => word.push_str("${HF_HOME:-$HOME/.cache/huggingface}"),
                TemplatePart::Placeholder("venv") => word.push_str("$VIRTUAL_ENV"),
                TemplatePart::Placeholder("dir") => word.push('.'),
                TemplatePart::Placeholder("port") => word.push_str(&self.port.to_string()),
                TemplatePart::Placeholder(name) => word.push_str(name),
            }
        }
        word.push('"');
        word
    }
}

/// Formats a field of `--mount`, which Docker parses as a line of CSV.
fn csv_field(field: &str) -> String {
    match field.contains([',', '"', '\n']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}

/// Quotes a word for a POSIX shell.
fn shell_quote(word: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(safe) {
        word.to_owned()
    } else if word.chars().any(is_control) {
        let escaped = |c: char| match c {
            '\'' | '\\' => format!("\\{c}"),
            c => escape_control(c).unwrap_or_else(|| c.to_string()),
        };
        format!("$'{}'", word.chars().map(escaped).collect::<String>())
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Escapes a control character for `$'…'`, so that it has no effect on a program that shows the line: CI
/// systems interpret the beginning of lines as commands.
fn escape_control(c: char) -> Option<String> {
    match c {
        '\n' => Some("\\n".to_owned()),
        '\t' => Some("\\t".to_owned()),
        c if c.is_ascii_control() => Some(format!("\\{:03o}", u32::from(c))),
        c if is_control(c) => Some(format!("\\u{:04x}", u32::from(c))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing::{command_launch, container_launch};

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(shell_quote("plain-1.0/x:y"), "plain-1.0/x:y");
        assert_eq!(shell_quote("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(shell_quote(""), "''");
        assert_eq!(
            shell_quote("it's\n::error::\u{1b}\u{202e}\\"),
            r"$'it\'s\n::error::\033\u202e\\'"
        );
    }

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
            folder: None,
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
