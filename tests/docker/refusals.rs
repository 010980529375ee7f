//! What a real daemon refuses, provoked one by one: each is reported with its cause, its place and its mend.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use matrix::cli::env_variable;

use crate::daemon::{Daemon, folder};

const ONE: &str = "  - random-1k-1k: { prompts: 2, input_len: 16, output_len: 4 }\n";

/// Runs an engine that cannot start: the exit code and every part of what is said must fit, and nothing may be left.
fn refuses(name: &str, more: &[&str], code: i32, says: &[&str]) {
    let Some(daemon) = Daemon::or_skip() else { return };
    let bench = daemon.bench(name, more, "", ONE);
    let ran = bench.run(&[]).exits(code);
    for part in says {
        assert!(ran.stderr.contains(part), "`{part}` is not in:\n{}", ran.stderr);
    }
    if code == 3 {
        assert!(daemon.of_run(&bench).is_empty(), "nothing is left");
    } else {
        let begun = fs::read_dir(bench.results()).map_or(0, Iterator::count);
        assert_eq!(begun, 0, "nothing was begun");
        let trials = daemon.containers("label=matrix.run=check");
        assert!(trials.is_empty(), "a trial is left");
    }
}

#[test]
fn an_unknown_runtime_is_found_before_the_run() {
    refuses(
        "runtime",
        &["runtime: nvidai"],
        4,
        &[
            "no container runtime `nvidai`",
            "container: runtime",
            "nvidia-ctk",
        ],
    );
}

#[test]
fn a_missing_image_is_found_before_the_run() {
    // Nobody listens there, with or without a network.
    refuses(
        "image",
        &["image: 127.0.0.1:1/no/such:1"],
        4,
        &[
            "127.0.0.1:1/no/such:1",
            "registry cannot be reached",
            "container: image",
            "docker pull",
        ],
    );
}

#[test]
fn an_image_that_is_no_name_is_found_before_the_run() {
    refuses(
        "upper",
        &["image: \"No/Such:1\""],
        4,
        &["No/Such:1", "container: image"],
    );
}

#[test]
fn a_registry_that_never_answers_is_told_while_it_is_waited_for() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port can be had");
    let at = silent.local_addr().expect("it has an address");
    let image = format!("image: {at}/slow:2");
    let bench = daemon.bench("silent", &[&image], "", ONE);
    let mut child = bench.begin(&["run", "matrices/m.yaml", "--no-calibration"]);
    let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
    let line = stderr.lines().map(|line| line.expect("it is text"));
    let actual = line.into_iter().find(|line| line.contains("asking"));
    child.kill().expect("it lives");
    child.wait().expect("it ends");
    let actual = actual.expect("the wait is reported");
    assert_eq!(
        actual,
        format!("asking the registry {at} for the digest of `{at}/slow:2`…")
    );
}

#[test]
fn an_address_without_a_daemon_is_told_by_its_status() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let proxy = TcpListener::bind("127.0.0.1:0").expect("a port can be had");
    let at = proxy.local_addr().expect("it has an address");
    std::thread::spawn(move || {
        for stream in proxy.incoming().flatten() {
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            while stream.read_line(&mut line).is_ok_and(|read| read > 2) {
                line.clear();
            }
            let answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let _ = stream.get_mut().write_all(answer.as_bytes());
        }
    });
    let bench = daemon
        .bench("proxy", &[], "", ONE)
        .variable("DOCKER_HOST", &format!("tcp://{at}"));
    bench
        .run(&[])
        .exits(4)
        .says("HTTP 404 without a message")
        .says("not from a container daemon, or a proxy intercepts the connection");
}

#[test]
fn a_missing_bind_source_is_found_before_the_run_and_never_made() {
    refuses(
        "source",
        &["mounts: [{ source: no-such-folder, target: /x }]"],
        4,
        &["no-such-folder", "container: mounts", "matrix does not create it"],
    );
}

#[test]
fn a_runtime_without_its_program_is_explained() {
    refuses(
        "program",
        &["runtime: no-such-program"],
        4,
        &["program of the container runtime", "container: runtime"],
    );
}

#[test]
fn a_missing_device_node_is_explained() {
    refuses(
        "kfd",
        &["device_nodes: [/dev/no-such-kfd]"],
        3,
        &["/dev/no-such-kfd", "device_nodes"],
    );
}

#[test]
fn a_program_that_the_image_lacks_is_explained() {
    refuses(
        "entry",
        &["entrypoint: [/nope]"],
        3,
        &["has no program `/nope`", "container: entrypoint"],
    );
}

#[test]
fn a_taken_port_is_found_before_the_run() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let taken = TcpListener::bind(("0.0.0.0", 0)).expect("a port can be had");
    let port = taken.local_addr().expect("it has an address").port();
    let bench = daemon.bench_with("port", &[], &format!("port: {port}"), ONE);
    bench.run(&[]).exits(4).says(&format!("port {port}"));
}

#[test]
fn cdi_at_a_daemon_that_does_not_know_it_is_found_before_the_run() {
    refuses(
        "cdi",
        &["gpus: cdi-all"],
        4,
        &[
            "does not support CDI",
            "container: gpus",
            "nvidia-ctk cdi generate",
        ],
    );
}

#[test]
fn limits_that_the_host_cannot_keep_are_explained() {
    let limits: &[(&str, &str, &str)] = &[
        ("cpus", "cpuset: \"4000\"", "container: cpuset"),
        ("little", "memory: 1MiB", "container: memory"),
        ("swap", "memory_swap: 1GiB", "container: memory_swap"),
    ];
    for (name, line, place) in limits {
        refuses(name, &[line], 3, &[place]);
    }
}

#[test]
fn a_hook_that_fails_is_quoted() {
    refuses(
        "hook",
        &[
            "env: { PRETEND_NVIDIA_FAILS: \"nvidia-container-cli: initialization error: nvml error: driver not loaded\" }",
        ],
        4,
        &[
            "gets no GPU",
            "hook failed",
            "nvml error: driver not loaded",
            "nvidia-smi",
        ],
    );
}

#[test]
fn a_daemon_that_is_not_there_is_found_before_the_run() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let bench = daemon
        .bench("away", &[], "", ONE)
        .variable("DOCKER_HOST", "unix:///no/such/docker.sock");
    bench
        .run(&[])
        .exits(4)
        .says("no container daemon was found at unix:///no/such/docker.sock");
    let bench = bench.variable("DOCKER_HOST", "ssh://there");
    bench.run(&[]).exits(4).says("ssh -L");
}

#[test]
fn a_socket_without_permission_says_which_group() {
    use std::os::unix::process::CommandExt;
    let Some(daemon) = Daemon::or_skip() else { return };
    if env_variable("USER").is_some_and(|user| user != "root") || !rustix::process::getuid().is_root() {
        crate::skip::skip("only root can become somebody who may not");
        return;
    }
    let bench = daemon.bench("nobody", &[], "", ONE);
    // The socket in a folder that all may enter; the folder of the test is only ours.
    let open = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir_in("/tmp")
        .expect("a folder can be made");
    let socket = open.path().join("docker.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket can be made");
    fs::set_permissions(&socket, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("it is ours");
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(folder(&bench), everybody).expect("it is ours");
    let copy = open.path().join("matrix");
    fs::copy(crate::binary::matrix(), &copy).expect("the binary can be copied");
    let mut command = std::process::Command::new(&copy);
    command
        .args(["run", "matrices/m.yaml"])
        .current_dir(folder(&bench))
        .env("DOCKER_HOST", format!("unix://{}", socket.display()))
        .uid(65534)
        .gid(65534);
    let output = command.output().expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(
        said.contains("has no permission to connect to the container daemon"),
        "{said}"
    );
    assert!(said.contains("usermod -aG docker"), "{said}");
    drop(listener);
}
