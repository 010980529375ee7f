//! A launch as a shell command line. `plan` prints it and reports quote it; pasted into a shell, it starts
//! the same engine.
//!
//! Secrets appear as names: `-e NAME` for a container, `"$NAME"` elsewhere.

use std::path::Path;

use crate::base::text::is_control;
use crate::config::container::{Gpus, Mount, Network};
use crate::config::template::{Piece, Text};
use crate::plan::launch::Launch;
use crate::plan::place::{Container, Place, Process};

/// A command line, split into groups between which a line may break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line(Vec<String>);

impl Line {
    /// All on one line.
    pub fn joined(&self) -> String {
        self.0.join(" ")
    }

    /// The command on several lines, joined by backslashes.
    pub(crate) fn wrapped(&self) -> String {
        self.0.join(" \\\n    ")
    }
}

/// Values of a start, for the command line that really ran.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Given<'a> {
    /// Folder of the matrix file; relative mounts start here.
    pub folder: Option<&'a Path>,
    /// The port; the usual one if absent.
    pub port: Option<u16>,
    /// Names of the leased GPUs; the first ones if absent.
    pub devices: Option<&'a [String]>,
}

/// The line that starts a launch, on its usual port and devices. An engine that is attached to has none: its address is given as a comment.
pub fn line(launch: &Launch) -> Line {
    line_of(launch, Given::default())
}

/// The command line of a launch with the values of a start.
pub(crate) fn line_of(launch: &Launch, given: Given<'_>) -> Line {
    let filler = Filler {
        folder: given.folder,
        port: given.port.unwrap_or_else(|| launch.usual_port()),
        devices: match given.devices {
            Some(devices) => devices.to_vec(),
            None => (0..launch.devices).map(|device| device.to_string()).collect(),
        },
    };
    match &launch.place {
        Place::Container(container) => docker(launch, container, &filler),
        Place::Process(process) => shell(launch, process, &filler),
        Place::Attach(attach) => Line(vec![format!("# attached to {}", attach.url)]),
        Place::Imported(imported) if imported.command.is_empty() => {
            Line(vec!["# imported; the command is not known".to_owned()])
        }
        Place::Imported(imported) => Line(imported.command.clone()),
    }
}

/// Longest container name of a launch, without the suffix of a run.
const LONGEST_NAME: usize = 100;

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
        Some((readable, digest)) if name.len() > LONGEST_NAME => {
            let kept: String = readable.chars().take(LONGEST_NAME - 1 - digest.len()).collect();
            format!("{}-{digest}", kept.trim_end_matches('-'))
        }
        _ => name,
    }
}

fn docker(launch: &Launch, container: &Container, filler: &Filler<'_>) -> Line {
    let port = filler.port;
    let mut groups = vec!["docker run".to_owned()];
    let runtime = container
        .runtime
        .as_ref()
        .map(|runtime| format!("--runtime {}", quoted(runtime)));
    let gpus = match container.gpus {
        Gpus::None | Gpus::Cdi | Gpus::CdiAll => None,
        Gpus::All => Some("--gpus all".to_owned()),
        Gpus::Leased if launch.devices == 0 => None,
        Gpus::Leased => Some(format!("--gpus '\"device={}\"'", filler.device_list())),
    };
    let devices: Vec<String> = runtime.into_iter().chain(gpus).collect();
    if !devices.is_empty() {
        groups[0] = format!("{} {}", groups[0], devices.join(" "));
    }
    for mount in &container.mounts {
        groups.push(format!("--mount {}", filler.mount(mount)));
    }
    for (name, value) in &container.env {
        groups.push(match names_itself(name, value) {
            true => format!("-e {}", quoted(name)),
            false => format!("-e {}", filler.word(&Text::new(format!("{name}={value}")))),
        });
    }
    for name in container.gpus.cdi(&filler.devices) {
        groups.push(format!("--device {name}"));
    }
    for device in &container.devices {
        groups.push(format!("--device {}", quoted(device)));
    }
    match container.network {
        Network::Host => groups.push("--net host".to_owned()),
        Network::Bridge => groups.push(format!("-p {port}:{port}")),
    }
    let mut rest = Vec::new();
    rest.extend(container.ipc.as_ref().map(|ipc| quoted(&format!("--ipc={ipc}"))));
    if container.ipc.as_deref() != Some("host") {
        rest.extend(container.shm_size.map(|size| format!("--shm-size {}", size.0)));
    }
    rest.extend(
        container
            .ulimits
            .iter()
            .map(|(name, limit)| format!("--ulimit {}", quoted(&format!("{name}={limit}")))),
    );
    rest.extend(limits(container));
    rest.extend(container.init.then(|| "--init".to_owned()));
    rest.extend(container.privileged.then(|| "--privileged".to_owned()));
    let mut command = launch.argv(port);
    if let Some(entrypoint) = &container.entrypoint {
        let program = entrypoint
            .first()
            .map_or_else(|| "''".to_owned(), |program| filler.word(program));
        rest.push(format!("--entrypoint {program}"));
        command.splice(0..0, entrypoint.iter().skip(1).cloned());
    }
    rest.push(format!("--name {}", container_name(launch)));
    groups.push(rest.join(" "));
    groups.push(quoted(&container.image));
    if !command.is_empty() {
        groups.push(filler.words(&command));
    }
    Line(groups)
}

/// Flags for resource limits and privileges.
fn limits(container: &Container) -> Vec<String> {
    let mut flags = Vec::new();
    let cpuset = container.cpuset.as_ref();
    flags.extend(cpuset.map(|cpus| format!("--cpuset-cpus {}", quoted(cpus))));
    flags.extend(container.memory.map(|most| format!("--memory {}", most.0)));
    flags.extend(
        container
            .memory_swap
            .map(|most| format!("--memory-swap {}", most.0)),
    );
    let lists = [
        ("--add-host", &container.extra_hosts),
        ("--cap-add", &container.cap_add),
        ("--security-opt", &container.security_opt),
        ("--group-add", &container.group_add),
    ];
    for (flag, values) in lists {
        flags.extend(values.iter().map(|value| format!("{flag} {}", quoted(value))));
    }
    flags
}

fn shell(launch: &Launch, process: &Process, filler: &Filler<'_>) -> Line {
    let given: Vec<&(String, Text)> = process
        .env
        .iter()
        .filter(|(name, value)| !names_itself(name, value))
        .collect();
    let is_plain = given.iter().all(|(name, _)| is_shell_name(name));
    let mut groups: Vec<String> = given
        .iter()
        .map(|(name, value)| match is_plain {
            true => format!("{name}={}", filler.word(value)),
            false => filler.word(&Text::new(format!("{name}={value}"))),
        })
        .collect();
    if !is_plain {
        // A shell takes an assignment to another name for a program.
        groups.insert(0, "env".to_owned());
    }
    groups.push(filler.words(&launch.argv(filler.port)));
    Line(groups)
}

/// Whether a POSIX shell can assign to a variable of that name.
fn is_shell_name(name: &str) -> bool {
    let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
    name.chars().all(is_word) && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// Whether the variable's value is the secret of the same name.
fn names_itself(name: &str, value: &Text) -> bool {
    matches!(value.pieces().as_slice(), [Piece::Secret(secret)] if *secret == name)
}

/// Fills the placeholders of a command line.
struct Filler<'a> {
    folder: Option<&'a Path>,
    port: u16,
    devices: Vec<String>,
}

impl Filler<'_> {
    fn device_list(&self) -> String {
        self.devices.join(",")
    }

    /// The value of `--mount`. A missing source is an error for it, as in a run; `-v` would create an empty
    /// folder.
    fn mount(&self, mount: &Mount) -> String {
        let mode = if mount.read_only { ",readonly" } else { "" };
        let source = csv(&format!("source={}", self.absolute(&mount.source)));
        let target = csv(&format!("target={}", mount.target));
        self.word(&Text::new(format!("type=bind,{source},{target}{mode}")))
    }

    /// The source of a mount as a run passes it to the daemon: absolute if the folder of the matrix is known.
    fn absolute(&self, source: &Text) -> String {
        let Some(folder) = self.folder else {
            return source.to_string();
        };
        let folder = folder.to_string_lossy();
        match source.pieces().first() {
            Some(Piece::Plain(start)) if !start.starts_with('/') => format!("{folder}/{source}"),
            Some(Piece::Hole("dir")) => source.as_str().replacen("{dir}", &folder, 1),
            _ => source.to_string(),
        }
    }

    fn words(&self, texts: &[Text]) -> String {
        let words: Vec<String> = texts.iter().map(|text| self.word(text)).collect();
        words.join(" ")
    }

    /// Formats a word for a POSIX shell.
    fn word(&self, text: &Text) -> String {
        let expands =
            |piece: &Piece<'_>| matches!(piece, Piece::Secret(_) | Piece::Hole("hf_home" | "venv" | "dir"));
        let pieces = text.pieces();
        if !pieces.iter().any(expands) {
            let fill = |name: &str| match name {
                "port" => Some(self.port.to_string()),
                "matrix" => Some("matrix".to_owned()),
                "devices" => Some(self.device_list()),
                _ => None,
            };
            return quoted(text.fill(&fill).as_str());
        }
        let mut word = String::from("\"");
        for piece in pieces {
            match piece {
                Piece::Plain(plain) => plain.chars().for_each(|c| {
                    if matches!(c, '"' | '\\' | '$' | '`') {
                        word.push('\\');
                    }
                    match escape(c) {
                        Some(escape) => word.push_str(&format!("\"$'{escape}'\"")),
                        None => word.push(c),
                    }
                }),
                Piece::Secret(name) => word.push_str(&format!("${{{name}}}")),
                Piece::Hole("hf_home") => word.push_str("${HF_HOME:-$HOME/.cache/huggingface}"),
                Piece::Hole("venv") => word.push_str("$VIRTUAL_ENV"),
                Piece::Hole("dir") => word.push('.'),
                Piece::Hole("port") => word.push_str(&self.port.to_string()),
                Piece::Hole(name) => word.push_str(name),
            }
        }
        word.push('"');
        word
    }
}

/// Formats a field of `--mount`, which Docker parses as a line of CSV.
fn csv(field: &str) -> String {
    match field.contains([',', '"', '\n']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}

/// Quotes a word for a POSIX shell.
fn quoted(word: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(safe) {
        word.to_owned()
    } else if word.chars().any(is_control) {
        let escaped = |c: char| match c {
            '\'' | '\\' => format!("\\{c}"),
            c => escape(c).unwrap_or_else(|| c.to_string()),
        };
        format!("$'{}'", word.chars().map(escaped).collect::<String>())
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Escapes a control character for `$'…'`, so that it has no effect on a program that shows the line: CI
/// systems interpret the beginning of lines as commands.
fn escape(c: char) -> Option<String> {
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
    use crate::engine::testing::{command, contained};

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quoted("plain-1.0/x:y"), "plain-1.0/x:y");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quoted(""), "''");
        assert_eq!(
            quoted("it's\n::error::\u{1b}\u{202e}\\"),
            r"$'it\'s\n::error::\033\u202e\\'"
        );
    }

    #[test]
    fn lines_of_a_word_are_no_lines_of_the_command() {
        for word in ["a\n::error::b", "a\n::error::${TOKEN}"] {
            let line = line(&command(&["serve", word])).wrapped();
            assert!(!line.contains("\n::"), "{line}");
            let mut shell = std::process::Command::new("bash");
            shell
                .env("TOKEN", "b")
                .args(["-c", &line.replace("serve", "printf %s")]);
            assert_eq!(shell.output().unwrap().stdout, b"a\n::error::b");
        }
    }

    fn mounted(source: &str, target: &str) -> String {
        let launch = contained(Container {
            mounts: vec![Mount {
                source: Text::new(source),
                target: target.to_owned().into(),
                read_only: false,
            }],
            ..Container::default()
        });
        let given = Given {
            folder: Some(Path::new("/m")),
            ..Given::default()
        };
        let line = line_of(&launch, given);
        let mount = line.0.into_iter().find(|group| group.starts_with("--mount "));
        mount.expect("there is a mount")
    }

    #[test]
    fn a_mount_is_absolute_and_its_fields_are_quoted_as_docker_reads_them() {
        assert_eq!(
            mounted("cache", "/c"),
            "--mount type=bind,source=/m/cache,target=/c"
        );
        assert_eq!(mounted("/a", "/c"), "--mount type=bind,source=/a,target=/c");
        assert_eq!(
            mounted("{dir}/a", "/c"),
            "--mount type=bind,source=/m/a,target=/c"
        );
        assert_eq!(
            mounted("a,b \"c\"", "/c,d"),
            "--mount 'type=bind,\"source=/m/a,b \"\"c\"\"\",\"target=/c,d\"'"
        );
        assert_eq!(
            mounted("{hf_home}/hub", "/c"),
            "--mount \"type=bind,source=${HF_HOME:-$HOME/.cache/huggingface}/hub,target=/c\""
        );
    }

    #[test]
    fn names_of_variables_limits_and_namespaces_are_quoted() {
        let launch = contained(Container {
            env: vec![
                ("A;id".into(), Text::new("${A;id}")),
                ("B c".into(), Text::new("d")),
            ],
            ipc: Some("host;id".into()),
            ulimits: vec![("memlock;id".into(), -1)],
            ..Container::default()
        });
        let line = line(&launch).joined();
        assert!(line.contains("'--ipc=host;id'"), "{line}");
        assert!(line.contains("--ulimit 'memlock;id=-1'"), "{line}");
        assert!(line.contains("-e 'B c=d'"), "{line}");
        let mut launch = command(&["serve"]);
        let Place::Process(process) = &mut launch.place else {
            panic!("it is a process");
        };
        process.env = vec![("$(id)".into(), Text::new("x")), ("B".into(), Text::new("y z"))];
        assert_eq!(super::line(&launch).joined(), "env '$(id)=x' 'B=y z' serve");
    }

    #[test]
    fn the_line_of_a_start_has_its_port_and_devices() {
        let mut launch = contained(Container {
            command: vec![Text::new("--port={port}"), Text::new("{devices}")],
            gpus: Gpus::Leased,
            ..Container::default()
        });
        launch.devices = 2;
        let names = ["4", "6"].map(str::to_owned);
        let given = Given {
            port: Some(20123),
            devices: Some(&names),
            folder: None,
        };
        let line = line_of(&launch, given).joined();
        assert!(line.contains("--gpus '\"device=4,6\"'"), "{line}");
        assert!(line.ends_with("--port=20123 4,6"), "{line}");
    }

    #[test]
    fn a_container_s_name_is_short_and_has_no_doubled_dashes() {
        let mut launch = contained(Container::default());
        launch.id = crate::base::ids::LaunchId::new("-n----B-x-1---x-tp1-14f20b");
        assert_eq!(container_name(&launch), "matrix-n-b-x-1-x-tp1-14f20b");
        launch.id = crate::base::ids::LaunchId::new(format!("{}-tp1-14f20b", "x".repeat(200)));
        let name = container_name(&launch);
        assert_eq!(name.len(), LONGEST_NAME);
        assert!(name.ends_with("x-14f20b"), "{name}");
    }
}
