//! Explains a daemon's error message: what is wrong, which key causes it, how to fix it.
//! `docs/docker-errors.md` is generated from this table. Pure. The daemon's own text is always kept as well,
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
    "the request to the container daemon failed",
    "read the daemon's message; to reproduce the error, run the command that `matrix plan` prints",
);

/// Meaning of an unknown refusal to create a container. It is a fault of the specification: the daemon has
/// read the request and will refuse it again.
const CREATE_REFUSED_ROW: Row = row(
    &[],
    Some("container"),
    Spec,
    "the container daemon rejects the container settings of the recipe",
    "correct the setting that the message names; the command that `matrix plan` prints fails with the same message",
);

/// All known messages. The first row that matches is used.
#[rustfmt::skip]
const TABLE: &[Row] = &[
    // Connecting: contexts, keys, TLS on one side only.
    row(&[&["no Docker context"]], None, Infrastructure,
        "the Docker context does not exist",
        "list the contexts with `docker context ls`; correct DOCKER_CONTEXT, or select a context with `docker context use`"),
    row(&[&["Docker's configuration"]], None, Infrastructure,
        "the configuration of Docker's client cannot be read",
        "correct the file, or set DOCKER_HOST to the daemon's address"),
    row(&[&["TLS without certificate verification"]], None, Infrastructure,
        "TLS without certificate verification is requested for the daemon, but matrix does not support this",
        "`matrix` always verifies the daemon's certificate. Put the certificate of its CA into DOCKER_CERT_PATH as `ca.pem` and set DOCKER_TLS_VERIFY=1, or add it to the context (`docker context update --docker host=…,ca=ca.pem`)"),
    row(&[&["certificate file "]], None, Infrastructure,
        "a certificate or key file for TLS to the container daemon cannot be used",
        "replace the file; `ca.pem`, `cert.pem` and `key.pem` are in DOCKER_CERT_PATH or in the context"),
    row(&[&["HTTP request to an HTTPS server"]], None, Infrastructure,
        "the container daemon requires TLS",
        "set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH to the folder of ca.pem, cert.pem and key.pem, or use a Docker context that contains these files"),
    row(&[&["received corrupt message"]], None, Infrastructure,
        "the container daemon does not use TLS",
        "unset DOCKER_TLS_VERIFY, or correct the port: usually 2376 with TLS, 2375 without"),
    row(&[&["invalid peer certificate: "]], None, Infrastructure,
        "the container daemon's certificate is not trusted ({})",
        "check that the certificate is signed by the CA in `ca.pem`, is issued for the host in the address, and has not expired")
        .with_value(MessagePart::Between("invalid peer certificate: ", "\n", None)),
    row(&[&[CONNECTION_CLOSED]], None, Infrastructure,
        "the container daemon closes the connection without a response",
        "read the daemon's log; with TLS, the daemon may not trust the client certificate (`cert.pem` and `key.pem` in DOCKER_CERT_PATH or in the context)"),
    row(&[&["received fatal alert"]], None, Infrastructure,
        "the container daemon does not accept the client certificate",
        "put `cert.pem` and `key.pem`, signed by an authority that the daemon trusts, into DOCKER_CERT_PATH or into the context"),
    // The daemon: not running, no permission, too old.
    row(&[&["ermission denied", "onnect"], &["ermission denied", "socket"]], None, Infrastructure,
        "this user has no permission to connect to the container daemon",
        "add the user to the daemon's group (`sudo usermod -aG docker $USER`, then log in again), or set DOCKER_HOST to a rootless daemon"),
    row(&[&["Socket not found"]], None, Infrastructure,
        "no container daemon was found",
        "start Docker (`sudo systemctl start docker`), install it, or set DOCKER_HOST to the daemon's address"),
    row(&[&["URI scheme is not supported"]], None, Infrastructure,
        "the URI scheme of the daemon's address is not supported",
        "use unix:///path or tcp://host:port; for other schemes create a tunnel, for example `ssh -L /tmp/docker.sock:/var/run/docker.sock host`"),
    row(&[&["Maximum supported API version"], &["Minimum supported API version"]], None, Infrastructure,
        "the container daemon does not support the API version that matrix uses",
        "update the daemon"),
    row(&[&["Connection refused"], &["tcp connect error"], &["(Connect)"], &["Timeout error"]], None, Infrastructure,
        "the container daemon does not respond",
        "start the daemon (`sudo systemctl start docker`), or correct DOCKER_HOST"),
    row(&[&[NO_MESSAGE]], None, Infrastructure,
        "the response is not from a container daemon, or a proxy intercepts the connection",
        "correct DOCKER_HOST, and exclude the daemon's host from the proxy (NO_PROXY)"),
    row(&[&["no space left on device"]], None, Infrastructure,
        "the container daemon's disk is full",
        "free disk space; `docker system df` lists what uses it"),
    // Runtimes, GPUs, device nodes.
    row(&[&["Unknown runtime specified"], &["unknown or invalid runtime name"]], Some("container: runtime"), Infrastructure,
        "the daemon has no container runtime `{}`",
        "for NVIDIA GPUs, install nvidia-container-toolkit, run `sudo nvidia-ctk runtime configure`, and restart the daemon; otherwise remove `runtime:`")
        .with_value(MessagePart::LastWord),
    row(&[&["fork/exec", "OCI runtime"]], Some("container: runtime"), Infrastructure,
        "the daemon cannot run the program of the container runtime; the path in the daemon's configuration may be wrong",
        "correct `runtimes` in /etc/docker/daemon.json and restart the daemon"),
    row(&[&["could not select device driver \"cdi\""]], Some("container: gpus"), Infrastructure,
        "the daemon does not support CDI, the interface by which the recipe requests GPUs",
        "update Docker to 28.2 or later, or set `features: {cdi: true}` in /etc/docker/daemon.json of Docker 25 to 28.1. Then run `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`. Or set `gpus: leased`"),
    row(&[&["could not select device driver"]], Some("container: gpus"), Infrastructure,
        "the daemon cannot give GPUs to a container",
        "for NVIDIA GPUs, install nvidia-container-toolkit, run `sudo nvidia-ctk runtime configure`, and restart the daemon; or set `gpus: none` if the engine needs no GPU"),
    row(&[&["cannot set both Count and DeviceIDs"]], Some("container: gpus"), Client,
        "the request contains both a number of GPUs and GPU ids",
        "this is a bug in matrix; please report it"),
    row(&[&["CDI device"]], Some("container: gpus"), Infrastructure,
        "the daemon does not know the requested GPU by its CDI name",
        "run `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`, and restart the daemon"),
    row(&[&["error running hook"], &["nvidia-container-cli"]], Some("container: gpus"), Infrastructure,
        "NVIDIA's container hook failed: {}",
        "check the driver with `nvidia-smi` on the host")
        .with_value(MessagePart::Between("stderr: ", ": unknown", Some("no message"))),
    row(&[&["adding custom device \""]], Some("container: device_nodes"), Spec,
        "the device node {} does not exist on this host",
        "load the driver of the device, or remove the device from `device_nodes`")
        .with_value(MessagePart::Between("adding custom device \"", "\"", None)),
    // Images that are not available.
    row(&[&["context deadline exceeded"], &["Client.Timeout"], &["request canceled while waiting"]], Some("container: image"), Image,
        "the image is not available locally, and its registry does not respond",
        "load the image manually (`docker pull`, or `docker load` on a host without network), or check the registry and the proxy"),
    row(&[&["no such host"], &["dial tcp"], &["network is unreachable"], &["i/o timeout"]], Some("container: image"), Image,
        "the image is not available locally, and its registry cannot be reached",
        "load the image manually (`docker pull`, or `docker load` on a host without network), or check the network and the proxy"),
    row(&[&["and pulling is forbidden"]], Some("container: image"), Image,
        "the image is not available locally, and `--pull never` forbids pulling it",
        "run `docker pull`, or omit `--pull never`"),
    row(&[&["when the run began"]], Some("container: image"), Image,
        "the image that the run began with no longer exists, and cannot be pulled because it did not come from a registry",
        "start a new run; it uses the image that the name refers to now"),
    row(&[&["unauthorized"], &["no basic auth credentials"], &["denied: requested access"], &["pull access denied"], &["authentication required"]], Some("container: image"), Image,
        "the registry denies access to the image",
        "check the image's name; for a private image, run `docker login` for its registry (matrix uses the login in Docker's configuration)"),
    row(&[&["manifest unknown"], &["manifest for", "not found"]], Some("container: image"), Image,
        "the registry has no such image",
        "check the version and the tag of the image"),
    row(&[&["No such image"]], Some("container: image"), Image,
        "the image is not available locally",
        "run `docker pull`, or check the image's name"),
    row(&[&["invalid reference format"]], Some("container: image"), Spec,
        "the image's name is not valid",
        "write the name as `registry/name:tag`, in lower case"),
    row(&[&["no matching manifest"]], Some("container: image"), Image,
        "the registry has the image only for other processor architectures",
        "use a tag for this host's architecture"),
    // Settings of the recipe that the daemon cannot apply.
    row(&[&["bind source path does not exist: "]], Some("container: mounts"), Spec,
        "the folder {} does not exist on the daemon's host",
        "create the folder, or correct `source`; matrix does not create it, because an empty model cache would cause a download")
        .with_value(MessagePart::Between("bind source path does not exist: ", "\n", Some(""))),
    row(&[&["is already in use by container"]], None, Infrastructure,
        "the container's name is already in use",
        "remove the other container with `docker rm`, or wait until the other run has ended"),
    row(&[&["port is already allocated"], &["address already in use"]], Some("port"), Spec,
        "the port is already in use ({})",
        "stop the process that listens on the port, or remove `port:` so that a free port is chosen")
        .with_value(MessagePart::Between("Bind for ", " failed", Some("address not reported"))),
    row(&[&["unable to apply caps"]], Some("container: privileged"), Spec,
        "the daemon has no permission to give a container all privileges",
        "remove `privileged`, and list the required devices in `device_nodes`; a daemon inside a virtual machine or a container may not be able to give privileges"),
    row(&[&["error setting rlimit"]], Some("container: ulimits"), Spec,
        "the daemon has no permission to set a limit as high as `ulimits` requests",
        "lower the limit, or raise the daemon's own limit"),
    row(&[&["exec: \""], &["executable file not found"]], Some("container: entrypoint"), Spec,
        "the image has no program `{}`",
        "correct `entrypoint:`, or the first element of `command:` if the image has no entrypoint")
        .with_value(MessagePart::Between("exec: \"", "\"", Some("?"))),
    row(&[&["Requested CPUs are not available"]], Some("container: cpuset"), Spec,
        "the host does not have the requested CPUs",
        "write only CPUs that the host has in `cpuset:`"),
    row(&[&["Minimum memory limit"]], Some("container: memory"), Spec,
        "the memory limit is too low for a container",
        "raise it"),
    row(&[&["Memoryswap limit"], &["emory swap limit"]], Some("container: memory_swap"), Spec,
        "`memory_swap` (the limit of memory plus swap) contradicts the memory limit",
        "set `memory` too, and set `memory_swap` (memory plus swap) to at least the value of `memory`"),
    row(&[&["No command specified"], &["no command specified"]], Some("container: command"), Spec,
        "the image has no entrypoint, and the recipe has no command",
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

    /// The table as a Markdown document; `…` is a part of the message.
    fn table_document() -> String {
        let mut document = "# Errors of a container daemon\n\n\
            How `matrix` explains a message of the daemon. The first row that matches is used; `…` is a part of the message.\n\
            This page is generated from the table in `src/engine/docker/errors.rs`.\n\n\
            | daemon message | problem | key | fix | fault |\n| --- | --- | --- | --- | --- |\n"
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
            "docs/docker-errors.md differs from the table; replace it with:\n{document}"
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
            "does not support CDI",
            Some("container: gpus"),
        ),
        (
            "cannot set both Count and DeviceIDs on device request",
            "both a number of GPUs and GPU ids",
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
            "denies access",
            Some("container: image"),
        ),
        (
            "manifest for vllm/vllm-openai:v9 not found: manifest unknown: manifest unknown",
            "no such image",
            Some("container: image"),
        ),
        (
            "No such image: x:1",
            "is not available locally",
            Some("container: image"),
        ),
        (
            r#"Conflict. The container name "/a1" is already in use by container "0f". You have to remove (or rename) that container to be able to reuse that name."#,
            "name is already in use",
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
            "a limit as high as",
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
            "does not support the API version",
            None,
        ),
        (
            "client version 1.20 is too old. Minimum supported API version is 1.24, please upgrade your client to a newer version",
            "does not support the API version",
            None,
        ),
        (
            "client error (Connect): Permission denied (os error 13)",
            "has no permission to connect",
            None,
        ),
        (
            "Socket not found: /var/run/docker.sock",
            "no container daemon",
            None,
        ),
        (
            "client error (Connect): Connection refused (os error 111)",
            "does not respond",
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
            diagnosis.problem.contains("registry does not respond"),
            "{diagnosis:?}"
        );
        assert_eq!(diagnosis.class, Image);
        let silent = diagnose("HTTP 404 without a message");
        assert!(
            silent.problem.contains("not from a container daemon"),
            "{silent:?}"
        );
        assert_eq!(silent.class, Infrastructure);
    }

    #[test]
    fn what_nobody_knows_is_not_explained_away() {
        let diagnosis = diagnose("something new");
        assert_eq!(diagnosis.key, None);
        assert_eq!(diagnosis.class, Infrastructure);
    }
}
