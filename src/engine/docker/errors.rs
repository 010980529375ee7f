//! What a daemon says, in our words: what is wrong, where that is written, how to mend it. Pure. The daemon's own text is always
//! kept beside it, for these texts change from version to version.

use crate::results::record::cell::FailureClass;

/// What a daemon's message means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Meaning {
    /// What is wrong.
    pub(super) what: String,
    /// The key of the recipe or the matrix that says so, where it is one.
    pub(super) place: Option<&'static str>,
    /// How to mend it.
    pub(super) help: String,
    /// Whose fault it is.
    pub(super) class: FailureClass,
}

impl Meaning {
    /// Whether nobody knows what the message means.
    pub(super) fn is_unknown(&self) -> bool {
        self.what == UNKNOWN
    }
}

/// What is said of a message that nobody knows.
const UNKNOWN: &str = "the container daemon refuses";

fn means(
    what: impl Into<String>,
    place: impl Into<Option<&'static str>>,
    help: impl Into<String>,
    class: FailureClass,
) -> Meaning {
    Meaning {
        what: what.into(),
        place: place.into(),
        help: help.into(),
        class,
    }
}

/// What stands for the message of a daemon that sent a status and no word.
pub(super) const NO_MESSAGE: &str = "without a message";

/// Reads a daemon's message.
pub(super) fn read(raw: &str) -> Meaning {
    way(raw)
        .or_else(|| machine(raw))
        .or_else(|| devices(raw))
        .or_else(|| image(raw))
        .or_else(|| written(raw))
        .unwrap_or_else(|| {
            means(
                UNKNOWN,
                None,
                "read what it says; paste the line that `matrix plan` prints to try it by hand",
                FailureClass::Infrastructure,
            )
        })
}

/// What a daemon's refusal to create a container means that nobody knows: it has read what the recipe asks for, and will say the same again.
pub(super) fn refused_to_create() -> Meaning {
    means(
        "the container daemon does not accept what the recipe asks for",
        "container",
        "mend what it names; `docker` says the same to the line that `matrix plan` prints",
        FailureClass::Spec,
    )
}

/// The daemon itself: not there, not allowed, too old.
fn machine(raw: &str) -> Option<Meaning> {
    use FailureClass::Infrastructure;
    let has = |part: &str| raw.contains(part);
    Some(if has("ermission denied") && (has("onnect") || has("socket")) {
        means(
            "this user may not talk to the container daemon",
            None,
            "join its group (`sudo usermod -aG docker $USER`, then log in anew), or use a rootless daemon by DOCKER_HOST",
            Infrastructure,
        )
    } else if has("Socket not found") {
        means(
            "no container daemon is there",
            None,
            "start it (`sudo systemctl start docker`), install Docker, or say by DOCKER_HOST where it is",
            Infrastructure,
        )
    } else if has("URI scheme is not supported") {
        means(
            "DOCKER_HOST is of a kind that matrix does not speak",
            None,
            "use unix:///path or tcp://host:port; tunnel others, as in `ssh -L /tmp/docker.sock:/var/run/docker.sock host`",
            Infrastructure,
        )
    } else if has("Maximum supported API version") || has("Minimum supported API version") {
        means(
            "the container daemon speaks another version of the API",
            None,
            "update the daemon",
            Infrastructure,
        )
    } else if has("Connection refused")
        || has("tcp connect error")
        || has("(Connect)")
        || has("Timeout error")
    {
        means(
            "the container daemon does not answer",
            None,
            "start it (`sudo systemctl start docker`), or mend DOCKER_HOST",
            Infrastructure,
        )
    } else if has(NO_MESSAGE) {
        means(
            "what answers is no container daemon, or a proxy stands in between",
            None,
            "mend DOCKER_HOST, and leave the daemon's host out of the proxy (NO_PROXY)",
            Infrastructure,
        )
    } else if has("no space left on device") {
        means(
            "the container daemon's disk is full",
            None,
            "make room: `docker system df` shows what is there",
            Infrastructure,
        )
    } else {
        return None;
    })
}

/// Whether a connection ended before anything was said on it.
pub(super) fn is_hung_up(raw: &str) -> bool {
    raw.contains("connection was not ready")
}

/// The way to a daemon: contexts, keys, TLS on one side only.
fn way(raw: &str) -> Option<Meaning> {
    use FailureClass::Infrastructure;
    let has = |part: &str| raw.contains(part);
    Some(if has("no Docker context") {
        means(
            "the Docker context does not exist",
            None,
            "`docker context ls` shows those that do; mend DOCKER_CONTEXT, or choose one with `docker context use`",
            Infrastructure,
        )
    } else if has("Docker's configuration") {
        means(
            "the configuration of Docker's client cannot be read",
            None,
            "mend the file, or say by DOCKER_HOST where the daemon is",
            Infrastructure,
        )
    } else if has("TLS without a look at who answers") {
        means(
            "the daemon is to be spoken to by TLS without a look at who answers, which matrix does not do",
            None,
            "give the authority that signed its certificate: `ca.pem` in DOCKER_CERT_PATH with DOCKER_TLS_VERIFY=1, or in the context (`docker context update --docker host=…,ca=ca.pem`)",
            Infrastructure,
        )
    } else if has("certificate file ") {
        means(
            "a file for TLS to the container daemon cannot be used",
            None,
            "mend it; `ca.pem`, `cert.pem` and `key.pem` lie in DOCKER_CERT_PATH, or with the context",
            Infrastructure,
        )
    } else if has("HTTP request to an HTTPS server") {
        means(
            "the container daemon wants TLS",
            None,
            "set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH to the folder of ca.pem, cert.pem and key.pem, or use a Docker context that has them",
            Infrastructure,
        )
    } else if has("received corrupt message") {
        means(
            "the container daemon does not speak TLS",
            None,
            "take DOCKER_TLS_VERIFY out, or mend the port: 2376 is usual with TLS, 2375 without",
            Infrastructure,
        )
    } else if let Some(why) = between(raw, "invalid peer certificate: ", "\n") {
        means(
            format!("the container daemon's certificate is not trusted ({why})"),
            None,
            "check that `ca.pem` signed it, that it is of the host in the address, and that it is still valid",
            Infrastructure,
        )
    } else if is_hung_up(raw) {
        means(
            "the container daemon hangs up at the first word",
            None,
            "look at its log; over TLS it may not trust our certificate: `cert.pem` and `key.pem` in DOCKER_CERT_PATH or the context",
            Infrastructure,
        )
    } else if has("received fatal alert") {
        means(
            "the container daemon does not accept our certificate",
            None,
            "put `cert.pem` and `key.pem`, signed by an authority that the daemon trusts, into DOCKER_CERT_PATH or the context",
            Infrastructure,
        )
    } else {
        return None;
    })
}

/// Runtimes, GPUs, device nodes.
fn devices(raw: &str) -> Option<Meaning> {
    use FailureClass::{Infrastructure, Spec};
    const TOOLKIT: &str =
        "install nvidia-container-toolkit, run `sudo nvidia-ctk runtime configure`, and restart the daemon";
    let has = |part: &str| raw.contains(part);
    let is_unknown_runtime = has("Unknown runtime specified") || has("unknown or invalid runtime name");
    Some(if is_unknown_runtime {
        let name = raw
            .rsplit([' ', '\n'])
            .find(|word| !word.is_empty())
            .unwrap_or("?");
        means(
            format!("the daemon knows no container runtime `{name}`"),
            "container: runtime",
            format!("for NVIDIA {TOOLKIT}; or take `runtime:` out"),
            Infrastructure,
        )
    } else if has("fork/exec") && has("OCI runtime") {
        means(
            "the program of the container runtime is not where the daemon's configuration says",
            "container: runtime",
            "mend `runtimes` in /etc/docker/daemon.json and restart the daemon",
            Infrastructure,
        )
    } else if has("could not select device driver \"cdi\"") {
        means(
            "the daemon does not know CDI, by which the GPUs are asked for",
            "container: gpus",
            "update Docker to 28.2 or later (25 to 28.1 know it with `features: {cdi: true}` in /etc/docker/daemon.json) and run `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`; or say `gpus: leased`",
            Infrastructure,
        )
    } else if has("could not select device driver") {
        means(
            "the daemon cannot give GPUs to a container",
            "container: gpus",
            format!("for NVIDIA {TOOLKIT}; or `gpus: none` for an engine that runs without"),
            Infrastructure,
        )
    } else if has("cannot set both Count and DeviceIDs") {
        means(
            "GPUs were asked for by number and by id at once",
            "container: gpus",
            "this is a mistake of matrix: please report it",
            FailureClass::Client,
        )
    } else if has("CDI device") {
        means(
            "the daemon does not know that GPU by its CDI name",
            "container: gpus",
            "run `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`, and restart the daemon",
            Infrastructure,
        )
    } else if has("error running hook") || has("nvidia-container-cli") {
        let cause = between(raw, "stderr: ", ": unknown").unwrap_or_else(|| "it says nothing".to_owned());
        means(
            format!("NVIDIA's hook refuses: {cause}"),
            "container: gpus",
            "check the driver with `nvidia-smi` on the host",
            Infrastructure,
        )
    } else if let Some(device) = between(raw, "adding custom device \"", "\"") {
        means(
            format!("the device node {device} is not on this host"),
            "container: device_nodes",
            "load its driver, or take it out of `device_nodes`",
            Spec,
        )
    } else {
        return None;
    })
}

/// Images that cannot be had.
fn image(raw: &str) -> Option<Meaning> {
    use FailureClass::Image;
    let has = |part: &str| raw.contains(part);
    Some(
        if has("context deadline exceeded") || has("Client.Timeout") || has("request canceled while waiting")
        {
            means(
                "the image is not here, and its registry does not answer",
                "container: image",
                "load it by hand (`docker pull`, or `docker load` on a host without network), or check the registry and the proxy",
                Image,
            )
        } else if has("no such host")
            || has("dial tcp")
            || has("network is unreachable")
            || has("i/o timeout")
        {
            means(
                "the image is not here, and its registry cannot be reached",
                "container: image",
                "load it by hand (`docker pull`, or `docker load` on a host without network), or check the network and the proxy",
                Image,
            )
        } else if has("and pulling is forbidden") {
            means(
                "the image is not here, and `--pull never` forbids to get it",
                "container: image",
                "`docker pull` it by hand, or leave `--pull never` out",
                Image,
            )
        } else if has("meant when the run began is gone") {
            means(
                "the image that the run began with is gone, and it came from no registry",
                "container: image",
                "begin a new run: it takes what the name means now",
                Image,
            )
        } else if has("unauthorized")
            || has("no basic auth credentials")
            || has("denied: requested access")
            || has("pull access denied")
            || has("authentication required")
        {
            means(
                "the registry does not give out the image",
                "container: image",
                "check its name; for a private one `docker login` to its registry, whose password is then taken from Docker's configuration",
                Image,
            )
        } else if has("manifest unknown") || (has("manifest for") && has("not found")) {
            means(
                "the registry has no such image",
                "container: image",
                "check the version and the tag",
                Image,
            )
        } else if has("No such image") {
            means(
                "the image is not here",
                "container: image",
                "`docker pull` it, or check its name",
                Image,
            )
        } else if has("invalid reference format") {
            means(
                "the image's name is not written as one",
                "container: image",
                "write it like `registry/name:tag`, in lower case",
                FailureClass::Spec,
            )
        } else if has("no matching manifest") {
            means(
                "the registry has that image only for other processors",
                "container: image",
                "take a tag for this host's processor",
                Image,
            )
        } else {
            return None;
        },
    )
}

/// What the recipe asks for and cannot be.
fn written(raw: &str) -> Option<Meaning> {
    use FailureClass::Spec;
    let has = |part: &str| raw.contains(part);
    Some(
        if let Some(folder) = after(raw, "bind source path does not exist: ") {
            means(
                format!("the folder {folder} is not on the daemon's host"),
                "container: mounts",
                "make it, or mend `source`; it is never made silently, for an empty model cache costs a download",
                Spec,
            )
        } else if has("is already in use by container") {
            means(
                "the container's name is taken",
                None,
                "`docker rm` the other one, or wait until the other run is over",
                FailureClass::Infrastructure,
            )
        } else if has("port is already allocated") || has("address already in use") {
            let port = between(raw, "Bind for ", " failed").unwrap_or_else(|| "it".to_owned());
            means(
                format!("the port is taken ({port})"),
                "port",
                "stop what listens there, or take `port:` out: then a free one is chosen",
                Spec,
            )
        } else if has("unable to apply caps") {
            means(
                "the daemon may not give a container all privileges",
                "container: privileged",
                "take `privileged` out, and name what is needed in `device_nodes`; inside of a virtual machine or a container it may be forbidden",
                Spec,
            )
        } else if has("error setting rlimit") {
            means(
                "the daemon may not set so high a limit",
                "container: ulimits",
                "lower it, or raise the daemon's own",
                Spec,
            )
        } else if has("exec: \"") || has("executable file not found") {
            let program = between(raw, "exec: \"", "\"").unwrap_or_else(|| "?".to_owned());
            means(
                format!("the image has no program `{program}`"),
                "container: entrypoint",
                "mend `entrypoint:`, or the first word of `command:` where the image has no entrypoint",
                Spec,
            )
        } else if has("Requested CPUs are not available") {
            means(
                "the host has not the CPUs that are asked for",
                "container: cpuset",
                "name CPUs that it has",
                Spec,
            )
        } else if has("Minimum memory limit") {
            means(
                "the memory limit is too low for a container",
                "container: memory",
                "raise it",
                Spec,
            )
        } else if has("Memoryswap limit") || has("emory swap limit") {
            means(
                "the limit of memory and swap does not fit the limit of memory",
                "container: memory_swap",
                "it is of both together: at least as much as `memory`, which must be given too",
                Spec,
            )
        } else if has("No command specified") || has("no command specified") {
            means(
                "the image has no entrypoint and the recipe no command",
                "container: command",
                "write the program and its arguments in `command:`",
                Spec,
            )
        } else {
            return None;
        },
    )
}

/// Whether a registry, or the way to it, may do better in a moment. What it refuses (no such image, no permission) it will refuse again.
pub(super) fn is_transient(raw: &str) -> bool {
    const SIGNS: &[&str] = &[
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
        // The daemon itself went away, as when it restarts.
        "error reading a body",
        "connection closed before message completed",
        "client error (Connect)",
    ];
    SIGNS.iter().any(|sign| raw.contains(sign))
}

fn after(raw: &str, mark: &str) -> Option<String> {
    let (_, rest) = raw.split_once(mark)?;
    Some(rest.lines().next().unwrap_or_default().trim().to_owned())
}

fn between(raw: &str, mark: &str, end: &str) -> Option<String> {
    let (_, rest) = raw.split_once(mark)?;
    let text = rest.split(end).next().unwrap_or_default().trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The very texts of Docker 20.10.24 and 28.5.2.
    const SAID: &[(&str, &str, Option<&str>)] = &[
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
        for (raw, what, place) in SAID {
            let meaning = read(raw);
            assert!(meaning.what.contains(what), "{raw}\n{meaning:?}");
            assert_eq!(meaning.place, *place, "{raw}\n{meaning:?}");
            assert!(!meaning.help.is_empty());
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
        let refused = SAID
            .iter()
            .map(|(raw, _, _)| *raw)
            .filter(|raw| !raw.contains("(Connect)"));
        for raw in refused.chain([
            "unauthorized: authentication required",
            "manifest for x:1 not found: manifest unknown: manifest unknown",
        ]) {
            assert!(!is_transient(raw), "{raw}");
        }
    }

    #[test]
    fn a_registry_or_a_daemon_without_an_answer_is_named_as_such() {
        let late = read(r#"Get "http://127.0.0.1:5999/v2/": context deadline exceeded"#);
        assert!(late.what.contains("registry does not answer"), "{late:?}");
        assert_eq!(late.class, FailureClass::Image);
        let silent = read("HTTP 404 without a message");
        assert!(silent.what.contains("no container daemon"), "{silent:?}");
        assert_eq!(silent.class, FailureClass::Infrastructure);
    }

    #[test]
    fn what_nobody_knows_is_not_explained_away() {
        let meaning = read("something new");
        assert_eq!(meaning.place, None);
        assert_eq!(meaning.class, FailureClass::Infrastructure);
    }
}
