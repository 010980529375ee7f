//! Explains a daemon's error message: what is wrong, which key causes it, how to fix it.
//! `docs/docker-errors.md` is printed from this table. Pure. The daemon's own text is always kept as well,
//! because it changes between versions.

use crate::results::record::cell::FailureClass;
use crate::results::record::cell::FailureClass::{Client, Image, Infrastructure, Spec};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Diagnosis {
    pub(super) problem: String,
    /// The key of the recipe or the matrix that causes the error, if there is one.
    pub(super) key: Option<&'static str>,
    pub(super) help: String,
    pub(super) class: FailureClass,
}

impl Diagnosis {
    pub(super) fn is_unknown(&self) -> bool {
        self.problem == UNKNOWN_ROW.problem
    }
}

/// A row of the table: message patterns and their meaning.
struct Row {
    /// Alternatives. One matches if the message contains all of its texts.
    texts: &'static [&'static [&'static str]],
    /// The part of the message that replaces the `{}` of `what`.
    value: Option<MessagePart>,
    problem: &'static str,
    key: Option<&'static str>,
    help: &'static str,
    class: FailureClass,
}

/// A part of a message.
enum MessagePart {
    LastWord,
    /// The text after the first string, up to the second. If that is empty, the third; if there is none, the
    /// row does not match.
    Between(&'static str, &'static str, Option<&'static str>),
}

const fn row(
    texts: &'static [&'static [&'static str]],
    key: Option<&'static str>,
    class: FailureClass,
    problem: &'static str,
    help: &'static str,
) -> Row {
    Row {
        texts,
        value: None,
        problem,
        key,
        help,
        class,
    }
}

impl Row {
    const fn with_value(self, value: MessagePart) -> Self {
        Self {
            value: Some(value),
            ..self
        }
    }

    fn match_message(&self, raw: &str) -> Option<Diagnosis> {
        let holds = |together: &&[&str]| together.iter().all(|text| raw.contains(text));
        if !self.texts.iter().any(holds) {
            return None;
        }
        match &self.value {
            None => Some(self.diagnosis()),
            Some(value) => Some(Diagnosis {
                problem: self.problem.replace("{}", value.extract(raw)?),
                ..self.diagnosis()
            }),
        }
    }

    fn diagnosis(&self) -> Diagnosis {
        Diagnosis {
            problem: self.problem.to_owned(),
            key: self.key,
            help: self.help.to_owned(),
            class: self.class,
        }
    }
}

impl MessagePart {
    fn extract<'r>(&self, raw: &'r str) -> Option<&'r str> {
        match self {
            Self::LastWord => raw
                .rsplit([' ', '\n'])
                .find(|word| !word.is_empty())
                .or(Some("?")),
            Self::Between(start, end, otherwise) => {
                let rest = raw.split_once(start).map_or("", |(_, rest)| rest);
                let text = rest.split(end).next().unwrap_or_default().trim();
                Some(text).filter(|text| !text.is_empty()).or(*otherwise)
            }
        }
    }
}

/// Stands for the message of a daemon that sent a status without a body.
pub(super) const NO_MESSAGE: &str = "without a message";

/// Message of `hyper` for a connection that closed before any answer.
const CONNECTION_CLOSED: &str = "connection was not ready";

/// Meaning of a message that matches no row.
const UNKNOWN_ROW: Row = row(
    &[],
    None,
    Infrastructure,
    "the container daemon refuses",
    "read what it says; paste the line that `matrix plan` prints to try it by hand",
);

/// Meaning of an unknown refusal to create a container. It is a fault of the specification: the daemon has
/// read the request and will refuse it again.
const CREATE_REFUSED_ROW: Row = row(
    &[],
    Some("container"),
    Spec,
    "the container daemon does not accept what the recipe asks for",
    "mend what it names; `docker` says the same to the line that `matrix plan` prints",
);

/// All known messages. The first row that matches counts.
#[rustfmt::skip]
const TABLE: &[Row] = &[
    // Connecting: contexts, keys, TLS on one side only.
    row(&[&["no Docker context"]], None, Infrastructure,
        "the Docker context does not exist",
        "`docker context ls` shows those that do; mend DOCKER_CONTEXT, or choose one with `docker context use`"),
    row(&[&["Docker's configuration"]], None, Infrastructure,
        "the configuration of Docker's client cannot be read",
        "mend the file, or say by DOCKER_HOST where the daemon is"),
    row(&[&["TLS without a look at who answers"]], None, Infrastructure,
        "the daemon is to be spoken to by TLS without a look at who answers, which matrix does not do",
        "give the authority that signed its certificate: `ca.pem` in DOCKER_CERT_PATH with DOCKER_TLS_VERIFY=1, or in the context (`docker context update --docker host=…,ca=ca.pem`)"),
    row(&[&["certificate file "]], None, Infrastructure,
        "a file for TLS to the container daemon cannot be used",
        "mend it; `ca.pem`, `cert.pem` and `key.pem` lie in DOCKER_CERT_PATH, or with the context"),
    row(&[&["HTTP request to an HTTPS server"]], None, Infrastructure,
        "the container daemon wants TLS",
        "set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH to the folder of ca.pem, cert.pem and key.pem, or use a Docker context that has them"),
    row(&[&["received corrupt message"]], None, Infrastructure,
        "the container daemon does not speak TLS",
        "take DOCKER_TLS_VERIFY out, or mend the port: 2376 is usual with TLS, 2375 without"),
    row(&[&["invalid peer certificate: "]], None, Infrastructure,
        "the container daemon's certificate is not trusted ({})",
        "check that `ca.pem` signed it, that it is of the host in the address, and that it is still valid")
        .with_value(MessagePart::Between("invalid peer certificate: ", "\n", None)),
    row(&[&[CONNECTION_CLOSED]], None, Infrastructure,
        "the container daemon hangs up at the first word",
        "look at its log; over TLS it may not trust our certificate: `cert.pem` and `key.pem` in DOCKER_CERT_PATH or the context"),
    row(&[&["received fatal alert"]], None, Infrastructure,
        "the container daemon does not accept our certificate",
        "put `cert.pem` and `key.pem`, signed by an authority that the daemon trusts, into DOCKER_CERT_PATH or the context"),
    // The daemon: not running, no permission, too old.
    row(&[&["ermission denied", "onnect"], &["ermission denied", "socket"]], None, Infrastructure,
        "this user may not talk to the container daemon",
        "join its group (`sudo usermod -aG docker $USER`, then log in anew), or use a rootless daemon by DOCKER_HOST"),
    row(&[&["Socket not found"]], None, Infrastructure,
        "no container daemon is there",
        "start it (`sudo systemctl start docker`), install Docker, or say by DOCKER_HOST where it is"),
    row(&[&["URI scheme is not supported"]], None, Infrastructure,
        "DOCKER_HOST is of a kind that matrix does not speak",
        "use unix:///path or tcp://host:port; tunnel others, as in `ssh -L /tmp/docker.sock:/var/run/docker.sock host`"),
    row(&[&["Maximum supported API version"], &["Minimum supported API version"]], None, Infrastructure,
        "the container daemon speaks another version of the API",
        "update the daemon"),
    row(&[&["Connection refused"], &["tcp connect error"], &["(Connect)"], &["Timeout error"]], None, Infrastructure,
        "the container daemon does not answer",
        "start it (`sudo systemctl start docker`), or mend DOCKER_HOST"),
    row(&[&[NO_MESSAGE]], None, Infrastructure,
        "what answers is no container daemon, or a proxy stands in between",
        "mend DOCKER_HOST, and leave the daemon's host out of the proxy (NO_PROXY)"),
    row(&[&["no space left on device"]], None, Infrastructure,
        "the container daemon's disk is full",
        "make room: `docker system df` shows what is there"),
    // Runtimes, GPUs, device nodes.
    row(&[&["Unknown runtime specified"], &["unknown or invalid runtime name"]], Some("container: runtime"), Infrastructure,
        "the daemon knows no container runtime `{}`",
        "for NVIDIA install nvidia-container-toolkit, run `sudo nvidia-ctk runtime configure`, and restart the daemon; or take `runtime:` out")
        .with_value(MessagePart::LastWord),
    row(&[&["fork/exec", "OCI runtime"]], Some("container: runtime"), Infrastructure,
        "the program of the container runtime is not where the daemon's configuration says",
        "mend `runtimes` in /etc/docker/daemon.json and restart the daemon"),
    row(&[&["could not select device driver \"cdi\""]], Some("container: gpus"), Infrastructure,
        "the daemon does not know CDI, by which the GPUs are asked for",
        "update Docker to 28.2 or later (25 to 28.1 know it with `features: {cdi: true}` in /etc/docker/daemon.json) and run `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`; or say `gpus: leased`"),
    row(&[&["could not select device driver"]], Some("container: gpus"), Infrastructure,
        "the daemon cannot give GPUs to a container",
        "for NVIDIA install nvidia-container-toolkit, run `sudo nvidia-ctk runtime configure`, and restart the daemon; or `gpus: none` for an engine that runs without"),
    row(&[&["cannot set both Count and DeviceIDs"]], Some("container: gpus"), Client,
        "GPUs were asked for by number and by id at once",
        "this is a mistake of matrix: please report it"),
    row(&[&["CDI device"]], Some("container: gpus"), Infrastructure,
        "the daemon does not know that GPU by its CDI name",
        "run `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`, and restart the daemon"),
    row(&[&["error running hook"], &["nvidia-container-cli"]], Some("container: gpus"), Infrastructure,
        "NVIDIA's hook refuses: {}",
        "check the driver with `nvidia-smi` on the host")
        .with_value(MessagePart::Between("stderr: ", ": unknown", Some("it says nothing"))),
    row(&[&["adding custom device \""]], Some("container: device_nodes"), Spec,
        "the device node {} is not on this host",
        "load its driver, or take it out of `device_nodes`")
        .with_value(MessagePart::Between("adding custom device \"", "\"", None)),
    // Images that are not available.
    row(&[&["context deadline exceeded"], &["Client.Timeout"], &["request canceled while waiting"]], Some("container: image"), Image,
        "the image is not here, and its registry does not answer",
        "load it by hand (`docker pull`, or `docker load` on a host without network), or check the registry and the proxy"),
    row(&[&["no such host"], &["dial tcp"], &["network is unreachable"], &["i/o timeout"]], Some("container: image"), Image,
        "the image is not here, and its registry cannot be reached",
        "load it by hand (`docker pull`, or `docker load` on a host without network), or check the network and the proxy"),
    row(&[&["and pulling is forbidden"]], Some("container: image"), Image,
        "the image is not here, and `--pull never` forbids to get it",
        "`docker pull` it by hand, or leave `--pull never` out"),
    row(&[&["meant when the run began is gone"]], Some("container: image"), Image,
        "the image that the run began with is gone, and it came from no registry",
        "begin a new run: it takes what the name means now"),
    row(&[&["unauthorized"], &["no basic auth credentials"], &["denied: requested access"], &["pull access denied"], &["authentication required"]], Some("container: image"), Image,
        "the registry does not give out the image",
        "check its name; for a private one `docker login` to its registry, whose password is then taken from Docker's configuration"),
    row(&[&["manifest unknown"], &["manifest for", "not found"]], Some("container: image"), Image,
        "the registry has no such image",
        "check the version and the tag"),
    row(&[&["No such image"]], Some("container: image"), Image,
        "the image is not here",
        "`docker pull` it, or check its name"),
    row(&[&["invalid reference format"]], Some("container: image"), Spec,
        "the image's name is not written as one",
        "write it like `registry/name:tag`, in lower case"),
    row(&[&["no matching manifest"]], Some("container: image"), Image,
        "the registry has that image only for other processors",
        "take a tag for this host's processor"),
    // Settings of the recipe that the daemon cannot apply.
    row(&[&["bind source path does not exist: "]], Some("container: mounts"), Spec,
        "the folder {} is not on the daemon's host",
        "make it, or mend `source`; it is never made silently, for an empty model cache costs a download")
        .with_value(MessagePart::Between("bind source path does not exist: ", "\n", Some(""))),
    row(&[&["is already in use by container"]], None, Infrastructure,
        "the container's name is taken",
        "`docker rm` the other one, or wait until the other run is over"),
    row(&[&["port is already allocated"], &["address already in use"]], Some("port"), Spec,
        "the port is taken ({})",
        "stop what listens there, or take `port:` out: then a free one is chosen")
        .with_value(MessagePart::Between("Bind for ", " failed", Some("it"))),
    row(&[&["unable to apply caps"]], Some("container: privileged"), Spec,
        "the daemon may not give a container all privileges",
        "take `privileged` out, and name what is needed in `device_nodes`; inside of a virtual machine or a container it may be forbidden"),
    row(&[&["error setting rlimit"]], Some("container: ulimits"), Spec,
        "the daemon may not set so high a limit",
        "lower it, or raise the daemon's own"),
    row(&[&["exec: \""], &["executable file not found"]], Some("container: entrypoint"), Spec,
        "the image has no program `{}`",
        "mend `entrypoint:`, or the first word of `command:` where the image has no entrypoint")
        .with_value(MessagePart::Between("exec: \"", "\"", Some("?"))),
    row(&[&["Requested CPUs are not available"]], Some("container: cpuset"), Spec,
        "the host has not the CPUs that are asked for",
        "name CPUs that it has"),
    row(&[&["Minimum memory limit"]], Some("container: memory"), Spec,
        "the memory limit is too low for a container",
        "raise it"),
    row(&[&["Memoryswap limit"], &["emory swap limit"]], Some("container: memory_swap"), Spec,
        "the limit of memory and swap does not fit the limit of memory",
        "it is of both together: at least as much as `memory`, which must be given too"),
    row(&[&["No command specified"], &["no command specified"]], Some("container: command"), Spec,
        "the image has no entrypoint and the recipe no command",
        "write the program and its arguments in `command:`"),
];

pub(super) fn diagnose(raw: &str) -> Diagnosis {
    TABLE
        .iter()
        .find_map(|row| row.match_message(raw))
        .unwrap_or_else(|| UNKNOWN_ROW.diagnosis())
}

pub(super) fn create_refused() -> Diagnosis {
    CREATE_REFUSED_ROW.diagnosis()
}

/// Whether the connection closed before any answer.
pub(super) fn is_connection_closed(raw: &str) -> bool {
    raw.contains(CONNECTION_CLOSED)
}

/// Whether a retry may succeed: a registry or network fault. Refusals such as an unknown image or a missing
/// permission are permanent.
pub(super) fn is_transient(raw: &str) -> bool {
    const TRANSIENT_TEXTS: &[&str] = &[
        "connection reset",
        "Connection reset",
        "broken pipe",
        "unexpected EOF",
        ": EOF",
        "i/o timeout",
        "TLS handshake timeout",
        "Client.Timeout exceeded",
        "context deadline exceeded",
        "Timeout error",
        "Too Many Requests",
        "toomanyrequests",
        "server misbehaving",
        "Temporary failure in name resolution",
        "500 Internal Server Error",
        "502 Bad Gateway",
        "503 Service Unavailable",
        "504 Gateway",
        // The daemon itself went away, for example in a restart.
        "error reading a body",
        "connection closed before message completed",
        "client error (Connect)",
    ];
    TRANSIENT_TEXTS.iter().any(|sign| raw.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table as a Markdown document; `…` stands for a part of the message.
    fn table_document() -> String {
        let mut document = "# Errors of a container daemon\n\n\
            What `matrix` says of a message of the daemon. The first row that matches counts; `…` stands for a part of the message.\n\
            This page is printed from the table in `src/engine/docker/errors.rs`.\n\n\
            | the daemon says | what is wrong | place | what to do | fault |\n| --- | --- | --- | --- | --- |\n"
            .to_owned();
        for row in TABLE.iter().chain([&UNKNOWN_ROW]) {
            let together = |texts: &&[&str]| {
                texts
                    .iter()
                    .map(|text| format!("`{text}`"))
                    .collect::<Vec<_>>()
                    .join(" and ")
            };
            let texts: Vec<String> = row.texts.iter().map(together).collect();
            document.push_str(&format!(
                "| {} | {} | {} | {} | {} |\n",
                if texts.is_empty() {
                    "anything else".to_owned()
                } else {
                    texts.join(", ")
                },
                row.problem.replace("{}", "…"),
                row.key.map_or_else(String::new, |key| format!("`{key}`")),
                row.help,
                row.class.name()
            ));
        }
        document
    }

    #[test]
    fn the_document_is_the_table() {
        let document = table_document();
        assert!(
            document == include_str!("../../../docs/docker-errors.md"),
            "docs/docker-errors.md is not this table; write it anew:\n{document}"
        );
    }

    #[test]
    fn every_row_can_be_reached() {
        for row in TABLE {
            for texts in row.texts {
                let diagnosis = diagnose(&format!("{} x", texts.join(" ")));
                assert_eq!(diagnosis.help, row.help, "{texts:?}");
            }
        }
    }

    /// Original messages of Docker 20.10.24 and 28.5.2.
    const DAEMON_MESSAGES: &[(&str, &str, Option<&str>)] = &[
        (
            r#"could not select device driver "nvidia" with capabilities: [[gpu]]"#,
            "cannot give GPUs",
            Some("container: gpus"),
        ),
        (
            r#"could not select device driver "" with capabilities: [[gpu]]"#,
            "cannot give GPUs",
            Some("container: gpus"),
        ),
        (
            r#"could not select device driver "nvidia" with capabilities: [[tpu]]"#,
            "cannot give GPUs",
            Some("container: gpus"),
        ),
        (
            r#"could not select device driver "cdi" with capabilities: []"#,
            "does not know CDI",
            Some("container: gpus"),
        ),
        (
            "cannot set both Count and DeviceIDs on device request",
            "at once",
            Some("container: gpus"),
        ),
        (
            "Unknown runtime specified nvidia",
            "no container runtime `nvidia`",
            Some("container: runtime"),
        ),
        (
            "unknown or invalid runtime name: nv2",
            "no container runtime `nv2`",
            Some("container: runtime"),
        ),
        (
            "failed to create shim task: OCI runtime create failed: unable to retrieve OCI runtime error (open /r/log.json: no such file or directory): fork/exec /no/such/runtime: no such file or directory: unknown",
            "program of the container runtime",
            Some("container: runtime"),
        ),
        (
            "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: error running hook #0: error running hook: exit status 1, stdout: , stderr: nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown",
            "nvml error: driver not loaded",
            Some("container: gpus"),
        ),
        (
            "CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=7",
            "CDI name",
            Some("container: gpus"),
        ),
        (
            "unexpected count in CDI device request",
            "CDI name",
            Some("container: gpus"),
        ),
        (
            r#"Get "https://registry-1.docker.io/v2/": dial tcp: lookup registry-1.docker.io on 1.1.1.1:53: no such host"#,
            "registry cannot be reached",
            Some("container: image"),
        ),
        (
            "pull access denied for x/y, repository does not exist or may require 'docker login': denied: requested access to the resource is denied",
            "does not give out",
            Some("container: image"),
        ),
        (
            "manifest for vllm/vllm-openai:v9 not found: manifest unknown: manifest unknown",
            "no such image",
            Some("container: image"),
        ),
        ("No such image: x:1", "is not here", Some("container: image")),
        (
            r#"Conflict. The container name "/a1" is already in use by container "0f". You have to remove (or rename) that container to be able to reuse that name."#,
            "name is taken",
            None,
        ),
        (
            "driver failed programming external connectivity on endpoint a2 (0f): Bind for 127.0.0.1:8155 failed: port is already allocated",
            "127.0.0.1:8155",
            Some("port"),
        ),
        (
            r#"error gathering device information while adding custom device "/dev/kfd": no such file or directory"#,
            "/dev/kfd",
            Some("container: device_nodes"),
        ),
        (
            r#"invalid mount config for type "bind": bind source path does not exist: /no/such2"#,
            "/no/such2",
            Some("container: mounts"),
        ),
        (
            r#"failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: "/nope": stat /nope: no such file or directory: unknown"#,
            "`/nope`",
            Some("container: entrypoint"),
        ),
        (
            "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: unable to apply caps: operation not permitted: unknown",
            "all privileges",
            Some("container: privileged"),
        ),
        (
            "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: error setting rlimits for ready process: error setting rlimit type 8: operation not permitted: unknown",
            "so high a limit",
            Some("container: ulimits"),
        ),
        (
            "Requested CPUs are not available - requested 0-7, available: 0-1",
            "CPUs",
            Some("container: cpuset"),
        ),
        (
            "Minimum memory limit allowed is 6MB",
            "memory limit",
            Some("container: memory"),
        ),
        (
            "client version 1.52 is too new. Maximum supported API version is 1.41",
            "another version",
            None,
        ),
        (
            "client version 1.20 is too old. Minimum supported API version is 1.24, please upgrade your client to a newer version",
            "another version",
            None,
        ),
        (
            "client error (Connect): Permission denied (os error 13)",
            "may not talk",
            None,
        ),
        (
            "Socket not found: /var/run/docker.sock",
            "no container daemon",
            None,
        ),
        (
            "client error (Connect): Connection refused (os error 111)",
            "does not answer",
            None,
        ),
    ];

    #[test]
    fn every_known_text_is_given_a_cause_a_place_and_a_mend() {
        for (raw, problem, key) in DAEMON_MESSAGES {
            let diagnosis = diagnose(raw);
            assert!(diagnosis.problem.contains(problem), "{raw}\n{diagnosis:?}");
            assert_eq!(diagnosis.key, *key, "{raw}\n{diagnosis:?}");
            assert!(!diagnosis.help.is_empty());
        }
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        for raw in [
            "received unexpected HTTP status: 503 Service Unavailable",
            r#"Get "http://r/v2/": read tcp 1.1.1.1:2->3.3.3.3:4: read: connection reset by peer"#,
            "net/http: TLS handshake timeout",
            r#"Get "http://127.0.0.1:5000/v2/": EOF"#,
            "unexpected EOF",
        ] {
            assert!(is_transient(raw), "{raw}");
        }
        let diagnosis = DAEMON_MESSAGES
            .iter()
            .map(|(raw, _, _)| *raw)
            .filter(|raw| !raw.contains("(Connect)"));
        for raw in diagnosis.chain([
            "unauthorized: authentication required",
            "manifest for x:1 not found: manifest unknown: manifest unknown",
        ]) {
            assert!(!is_transient(raw), "{raw}");
        }
    }

    #[test]
    fn a_registry_or_a_daemon_without_an_answer_is_named_as_such() {
        let diagnosis = diagnose(r#"Get "http://127.0.0.1:5999/v2/": context deadline exceeded"#);
        assert!(
            diagnosis.problem.contains("registry does not answer"),
            "{diagnosis:?}"
        );
        assert_eq!(diagnosis.class, Image);
        let silent = diagnose("HTTP 404 without a message");
        assert!(silent.problem.contains("no container daemon"), "{silent:?}");
        assert_eq!(silent.class, Infrastructure);
    }

    #[test]
    fn what_nobody_knows_is_not_explained_away() {
        let diagnosis = diagnose("something new");
        assert_eq!(diagnosis.key, None);
        assert_eq!(diagnosis.class, Infrastructure);
    }
}
