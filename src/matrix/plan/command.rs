//! A launch as the line one would type: `plan` prints it, reports quote it, and a shell that it is pasted into starts the same.
//!
//! Secrets stand as names: `-e NAME` for a container, `"$NAME"` elsewhere.

use crate::matrix::plan::launch::{Container, Gpus, Launch, Network, Place, Process};
use crate::matrix::spec::text::{Piece, Text};

/// A command line in the groups by which it may be broken into lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line(Vec<String>);

impl Line {
    /// All on one line.
    pub fn joined(&self) -> String {
        self.0.join(" ")
    }

    /// Broken into lines that a shell joins again.
    pub fn wrapped(&self) -> String {
        self.0.join(" \\\n    ")
    }
}

/// The line that starts a launch, on its usual port. An engine that is attached to has none: its address is given as a comment.
pub fn line(launch: &Launch) -> Line {
    match &launch.place {
        Place::Container(container) => docker(launch, container),
        Place::Process(process) => shell(launch, process),
        Place::Attach(attach) => Line(vec![format!("# attached to {}", attach.url)]),
        Place::Imported(imported) if imported.command.is_empty() => {
            Line(vec!["# imported; the command is not known".to_owned()])
        }
        Place::Imported(imported) => Line(imported.command.clone()),
    }
}

/// The name of the container of a launch, before a run adds its own mark.
pub fn container_name(launch: &Launch) -> String {
    format!("matrix-{}", launch.id.as_str().to_ascii_lowercase())
}

fn docker(launch: &Launch, container: &Container) -> Line {
    let port = launch.usual_port();
    let mut groups = vec!["docker run".to_owned()];
    let runtime = container
        .runtime
        .as_ref()
        .map(|runtime| format!("--runtime {}", quoted(runtime)));
    let gpus = match container.gpus {
        Gpus::None | Gpus::Cdi | Gpus::CdiAll => None,
        Gpus::All => Some("--gpus all".to_owned()),
        Gpus::Leased if launch.devices == 0 => None,
        Gpus::Leased => Some(format!("--gpus '\"device={}\"'", first_devices(launch))),
    };
    let devices: Vec<String> = runtime.into_iter().chain(gpus).collect();
    if !devices.is_empty() {
        groups[0] = format!("{} {}", groups[0], devices.join(" "));
    }
    for mount in &container.mounts {
        // `-v` would make a missing source, empty; this way it is an error, as it is for a run.
        let mode = if mount.read_only { ",readonly" } else { "" };
        let whole = format!("type=bind,source={},target={}{mode}", mount.source, mount.target);
        groups.push(format!("--mount {}", word(&Text::new(whole), launch, port)));
    }
    for (name, value) in &container.env {
        groups.push(match names_itself(name, value) {
            true => format!("-e {name}"),
            false => format!("-e {}", word(&Text::new(format!("{name}={value}")), launch, port)),
        });
    }
    let leased: Vec<u32> = (0..launch.devices).collect();
    for name in container.gpus.cdi(&leased) {
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
    rest.extend(container.ipc.as_ref().map(|ipc| format!("--ipc={ipc}")));
    if container.ipc.as_deref() != Some("host") {
        rest.extend(container.shm_size.map(|size| format!("--shm-size {}", size.0)));
    }
    rest.extend(
        container
            .ulimits
            .iter()
            .map(|(name, limit)| format!("--ulimit {name}={limit}")),
    );
    rest.extend(limits(container));
    rest.extend(container.init.then(|| "--init".to_owned()));
    rest.extend(container.privileged.then(|| "--privileged".to_owned()));
    let mut command = launch.argv(port);
    if let Some(entrypoint) = &container.entrypoint {
        let program = entrypoint
            .first()
            .map_or_else(|| "''".to_owned(), |program| word(program, launch, port));
        rest.push(format!("--entrypoint {program}"));
        command.splice(0..0, entrypoint.iter().skip(1).cloned());
    }
    rest.push(format!("--name {}", container_name(launch)));
    groups.push(rest.join(" "));
    groups.push(quoted(&container.image));
    if !command.is_empty() {
        groups.push(words(&command, launch, port));
    }
    Line(groups)
}

/// What limits a container, and what opens it.
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

/// The devices that a line names, which no lease has given it: the first ones.
fn first_devices(launch: &Launch) -> String {
    let devices: Vec<String> = (0..launch.devices).map(|device| device.to_string()).collect();
    devices.join(",")
}

fn shell(launch: &Launch, process: &Process) -> Line {
    let port = launch.usual_port();
    let mut groups: Vec<String> = process
        .env
        .iter()
        .filter(|(name, value)| !names_itself(name, value))
        .map(|(name, value)| format!("{name}={}", word(value, launch, port)))
        .collect();
    groups.push(words(&launch.argv(port), launch, port));
    Line(groups)
}

/// Whether a variable takes its value from the variable of the same name.
fn names_itself(name: &str, value: &Text) -> bool {
    matches!(value.pieces().as_slice(), [Piece::Secret(secret)] if *secret == name)
}

fn words(texts: &[Text], launch: &Launch, port: u16) -> String {
    texts
        .iter()
        .map(|text| word(text, launch, port))
        .collect::<Vec<_>>()
        .join(" ")
}

/// A word for a POSIX shell.
fn word(text: &Text, launch: &Launch, port: u16) -> String {
    let expands =
        |piece: &Piece<'_>| matches!(piece, Piece::Secret(_) | Piece::Hole("hf_home" | "venv" | "dir"));
    let pieces = text.pieces();
    if !pieces.iter().any(expands) {
        let fill = |name: &str| match name {
            "port" => Some(port.to_string()),
            "matrix" => Some("matrix".to_owned()),
            "devices" => Some(first_devices(launch)),
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
                word.push(c);
            }),
            Piece::Secret(name) => word.push_str(&format!("${{{name}}}")),
            Piece::Hole("hf_home") => word.push_str("${HF_HOME:-$HOME/.cache/huggingface}"),
            Piece::Hole("venv") => word.push_str("$VIRTUAL_ENV"),
            Piece::Hole("dir") => word.push('.'),
            Piece::Hole("port") => word.push_str(&port.to_string()),
            Piece::Hole(name) => word.push_str(name),
        }
    }
    word.push('"');
    word
}

/// A word as a POSIX shell must read it to give it back unchanged.
fn quoted(word: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(safe) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quoted("plain-1.0/x:y"), "plain-1.0/x:y");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quoted(""), "''");
    }
}
