//! The errors of a daemon, row by row: which test provokes each. Rows that a recipe cannot bring about are provoked by a request of
//! our own at the same daemon, and its very words are explained by the same code that explains them in a run.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use matrix::engine::DockerError;
use serde_json::{Value, json};

use crate::daemon::{Daemon, IMAGE};

/// Each known kind of refusal, and the test that provokes it. Where this daemon, Docker 20.10, cannot bring it about, the words
/// are those of a newer one, and the test is one of the explanation.
const ROWS: &[(&str, &str)] = &[
    ("GPUs asked for, no hook", "gpus_without_a_driver_are_explained"),
    (
        "wrong driver or capability",
        "a_wrong_driver_or_capability_is_explained",
    ),
    (
        "count and ids of GPUs at once",
        "count_and_ids_at_once_are_explained",
    ),
    (
        "runtime not registered",
        "an_unknown_runtime_is_found_before_the_run",
    ),
    (
        "program of the runtime missing",
        "a_runtime_without_its_program_is_explained",
    ),
    ("hook fails", "a_hook_that_fails_is_quoted"),
    (
        "CDI at a daemon without it",
        "cdi_at_a_daemon_without_it_is_explained",
    ),
    (
        "CDI asked for by a matrix",
        "cdi_at_a_daemon_that_does_not_know_it_is_found_before_the_run",
    ),
    (
        "CDI name unknown (28)",
        "every_known_text_is_given_a_cause_a_place_and_a_mend",
    ),
    (
        "image missing, no network",
        "a_missing_image_is_found_before_the_run",
    ),
    ("name taken", "a_taken_name_is_explained"),
    ("port taken", "a_port_that_another_container_has_is_explained"),
    ("device node absent", "a_missing_device_node_is_explained"),
    (
        "bind source absent",
        "a_missing_bind_source_is_found_before_the_run_and_never_made",
    ),
    ("bad entrypoint", "a_program_that_the_image_lacks_is_explained"),
    ("CPU set", "cpus_that_are_not_there_are_explained"),
    (
        "CPU set and memory asked for by a matrix",
        "limits_that_the_host_cannot_keep_are_explained",
    ),
    ("memory limit", "a_memory_limit_below_the_least_is_explained"),
    (
        "out of memory",
        "a_container_that_the_kernel_kills_for_memory_is_a_matter_of_capacity",
    ),
    (
        "API version",
        "a_version_that_the_daemon_does_not_speak_is_explained",
    ),
    (
        "API version too old (28)",
        "every_known_text_is_given_a_cause_a_place_and_a_mend",
    ),
    (
        "socket without permission",
        "a_socket_without_permission_says_which_group",
    ),
    ("no daemon", "a_daemon_that_is_not_there_is_found_before_the_run"),
];

#[test]
fn every_row_has_a_test() {
    let tests = [
        include_str!("table.rs"),
        include_str!("refusals.rs"),
        include_str!("runs.rs"),
        include_str!("../../src/engine/docker/errors.rs"),
    ]
    .concat();
    for (row, test) in ROWS {
        let begins = format!("#[test]\nfn {test}()");
        let nested = format!("#[test]\n    fn {test}()");
        assert!(
            tests.contains(&begins) || tests.contains(&nested),
            "row `{row}` names no test: {test}"
        );
    }
    // A refusal with a test of its own belongs into the table.
    let provoked = include_str!("refusals.rs").match_indices("#[test]\nfn ");
    for (at, mark) in provoked {
        let rest = &include_str!("refusals.rs")[at + mark.len()..];
        let name = rest.split('(').next().unwrap_or_default();
        let is_listed = ROWS.iter().any(|(_, test)| *test == name) || BESIDE.contains(&name);
        assert!(is_listed, "{name} stands in no row");
    }
}

/// What no daemon refuses: refusals of ours, and registries and addresses that do not answer as a daemon does.
const BESIDE: &[&str] = &[
    "a_registry_that_never_answers_is_told_while_it_is_waited_for",
    "an_address_without_a_daemon_is_told_by_its_status",
    "an_image_that_is_no_name_is_found_before_the_run",
    "a_taken_port_is_found_before_the_run",
];

#[test]
fn gpus_without_a_driver_are_explained() {
    // With the hook there is a driver for GPUs, and for nothing else: the words are the same.
    explains(
        "nohook",
        &json!({ "HostConfig": { "DeviceRequests": [{ "Driver": "", "Count": -1, "Capabilities": [["npu"]] }] } }),
        &[
            "could not select device driver \"\" with capabilities: [[npu]]",
            "cannot give GPUs to a container",
            "container: gpus",
            "nvidia-container-toolkit",
        ],
    );
}

#[test]
fn a_wrong_driver_or_capability_is_explained() {
    explains(
        "amd",
        &json!({ "HostConfig": { "DeviceRequests": [{ "Driver": "amd", "Count": 1, "Capabilities": [["gpu"]] }] } }),
        &[
            "device driver \"amd\"",
            "cannot give GPUs to a container",
            "container: gpus",
        ],
    );
}

#[test]
fn count_and_ids_at_once_are_explained() {
    explains(
        "both",
        &json!({ "HostConfig": { "DeviceRequests": [
            { "Driver": "", "Count": 1, "DeviceIDs": ["0"], "Capabilities": [["gpu"]] }] } }),
        &[
            "both a number of GPUs and GPU ids",
            "container: gpus",
            "please report it",
        ],
    );
}

#[test]
fn cdi_at_a_daemon_without_it_is_explained() {
    explains(
        "cdi",
        &json!({ "HostConfig": { "DeviceRequests": [{ "Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=7"] }] } }),
        &["\"cdi\"", "container: gpus"],
    );
}

#[test]
fn a_taken_name_is_explained() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let name = "matrix-table-name";
    let first = daemon.docker(&["create", "--name", name, &IMAGE]);
    let said = refused(&daemon, name, &json!({}));
    daemon.docker(&["rm", &first]);
    says(
        &said,
        &[
            "name is already in use",
            "docker rm",
            "is already in use by container",
        ],
    );
}

#[test]
fn a_port_that_another_container_has_is_explained() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let port = matrix::engine::free_port().expect("a port can be had");
    let taken = format!("127.0.0.1:{port}:{port}");
    let first = daemon.docker(&["run", "-d", "-p", &taken, &IMAGE, "--preset", "fast"]);
    let binding = json!([{ "HostIp": "127.0.0.1", "HostPort": port.to_string() }]);
    let body = json!({
        "ExposedPorts": { format!("{port}/tcp"): {} },
        "HostConfig": { "PortBindings": { format!("{port}/tcp"): binding } },
    });
    let said = refused(&daemon, "matrix-table-port", &body);
    daemon.docker(&["rm", "-f", &first]);
    says(
        &said,
        &[
            &format!("127.0.0.1:{port}"),
            "(`port` of the recipe)",
            "remove `port:`",
        ],
    );
}

#[test]
fn a_bind_source_that_is_absent_is_explained_in_the_daemons_words_too() {
    explains(
        "bind",
        &json!({ "HostConfig": { "Mounts": [{ "Type": "bind", "Source": "/no/such", "Target": "/x" }] } }),
        &[
            "the folder /no/such",
            "container: mounts",
            "matrix does not create it",
        ],
    );
}

#[test]
fn cpus_that_are_not_there_are_explained() {
    explains(
        "cpus",
        &json!({ "HostConfig": { "CpusetCpus": "0-4095" } }),
        &[
            "does not have the requested CPUs",
            "`container",
            "write only CPUs that the host has in `cpuset:`",
        ],
    );
}

#[test]
fn a_memory_limit_below_the_least_is_explained() {
    explains(
        "memory",
        &json!({ "HostConfig": { "Memory": 4096 } }),
        &["memory limit is too low", "`container", "raise it"],
    );
}

#[test]
fn a_version_that_the_daemon_does_not_speak_is_explained() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let (status, answer) = ask(&daemon, "GET", "/v1.999/version", &Value::Null);
    assert_eq!(status, 400, "{answer}");
    let raw = answer["message"].as_str().expect("a refusal has a message");
    says(
        &DockerError::from_message("version", raw.to_owned()).to_string(),
        &[
            "does not support the API version",
            "update the daemon",
            "Maximum supported API version",
        ],
    );
}

/// Creates and starts a container that cannot be, and insists on what is said of that.
fn explains(name: &str, body: &Value, parts: &[&str]) {
    let Some(daemon) = Daemon::or_skip() else { return };
    says(&refused(&daemon, &format!("matrix-table-{name}"), body), parts);
}

fn says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
}

/// The explanation of what the daemon refuses at `create` or at `start`; nothing is left.
fn refused(daemon: &Daemon, name: &str, body: &Value) -> String {
    let mut body = body.clone();
    body["Image"] = IMAGE.as_str().into();
    let (status, made) = ask(daemon, "POST", &format!("/containers/create?name={name}"), &body);
    let (step, answer) = match made["Id"].as_str() {
        None => {
            assert!(status >= 400, "{made}");
            ("create", made)
        }
        Some(id) => {
            let (status, answer) = ask(daemon, "POST", &format!("/containers/{id}/start"), &Value::Null);
            daemon.docker(&["rm", "-f", id]);
            assert!(status >= 400, "it was started, {status}");
            ("start", answer)
        }
    };
    let raw = answer["message"].as_str().expect("a refusal has a message");
    DockerError::from_message(step, raw.to_owned()).to_string()
}

/// One request of our own.
fn ask(daemon: &Daemon, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let path_of_socket = daemon.host.strip_prefix("unix://").expect("tests use a socket");
    let mut stream = UnixStream::connect(path_of_socket).expect("the daemon listens");
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: docker\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .expect("the daemon reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the daemon answers");
    let (head, text) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (
        status.expect("an answer has a status"),
        serde_json::from_str(text).unwrap_or_default(),
    )
}
