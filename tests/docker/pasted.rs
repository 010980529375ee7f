//! The line that `matrix plan` prints, pasted into a shell, makes the same container as `matrix run`: field by field.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::daemon::{Daemon, begin, end, folder, until, until_measuring};

const LONG: &str = "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 4000, warmup: 0 }\n";

/// What differs by nature: ids, names, labels, moments, and the files and addresses that follow from them.
const OWN: &[&str] = &[
    "/Id",
    "/Name",
    "/Created",
    "/State",
    "/Config/Labels",
    // We start by the id what the line names; that both are one image "/Image" tells.
    "/Config/Image",
    "/Config/Hostname",
    "/HostConfig/LogConfig",
    // The size of the terminal that `docker` was called from.
    "/HostConfig/ConsoleSize",
    "/GraphDriver",
    "/NetworkSettings",
    "/LogPath",
    "/HostnamePath",
    "/HostsPath",
    "/ResolvConfPath",
];

#[test]
fn a_container_on_the_host_network_is_the_same() {
    same(
        "pastedhost",
        &[
            "env: { A: \"b c\", HF_TOKEN: \"${MATRIX_TEST_TOKEN}\" }",
            "mounts: [{ source: \"{hf_home}\", target: /root/.cache }, { source: /usr, target: /x y, read_only: true }, { source: \"with space, comma\", target: \"/rel,ative\" }]",
            "ulimits: { nofile: 4096, stack: 8388608 }",
        ],
        "container: { ulimits: { nofile: 2048 }, cpuset: \"0\", memory: 1GiB, init: true }, ",
    );
}

#[test]
fn a_container_on_a_bridge_is_the_same() {
    same(
        "pastedbridge",
        &[
            "network: bridge",
            "ipc:",
            "runtime:",
            "shm_size: 64MiB",
            "init: true",
            "device_nodes: [/dev/null]",
            "cpuset: \"0\"",
            "memory: 2GiB",
            "memory_swap: 3GiB",
            "extra_hosts: [\"hub:10.0.0.1\", \"away:10.0.0.2\"]",
            "cap_add: [SYS_PTRACE, net_admin]",
            "security_opt: [seccomp=unconfined]",
            "group_add: [\"44\"]",
            "entrypoint: [/usr/bin/matrix, sim]",
        ],
        "",
    );
}

fn same(name: &str, more: &[&str], changed: &str) {
    let Some(daemon) = Daemon::or_skip() else { return };
    let port = matrix::engine::free_port().expect("a port can be had");
    let entry = format!("{changed}port: {port}");
    let bench = daemon
        .bench_with(name, more, &entry, LONG)
        .variable("MATRIX_TEST_TOKEN", "hunter2-hunter2");
    let home = folder(&bench).join("hf");
    std::fs::create_dir(&home).expect("a folder can be made");
    let bench = bench.variable("HF_HOME", &home.display().to_string());
    // A relative source is below the matrix's folder, from wherever the line is pasted.
    let relative = folder(&bench).join("matrices/with space, comma");
    std::fs::create_dir(relative).expect("a folder can be made");

    let mut child = begin(&bench);
    until_measuring(&bench, &mut child);
    let ours = daemon.inspect(&daemon.of_run(&bench)[0]);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it lives");
    end(child).exits(130);

    let plan = bench.call(&["plan", "matrices/m.yaml"]).exits(0);
    let line: Vec<&str> = plan
        .stdout
        .lines()
        .skip_while(|line| !line.contains("docker run"))
        .take_while(|line| !line.trim_start().starts_with("cell "))
        .collect();
    let mut shell = Command::new("sh")
        .args(["-c", &line.join("\n")])
        .current_dir(folder(&bench))
        .env("DOCKER_HOST", &daemon.host)
        .env("HF_HOME", &home)
        .env("MATRIX_TEST_TOKEN", "hunter2-hunter2")
        .env("HF_TOKEN", "hunter2-hunter2")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a shell runs");
    let container = line
        .iter()
        .flat_map(|line| line.split_whitespace())
        .skip_while(|word| *word != "--name")
        .nth(1)
        .expect("the line names its container")
        .to_owned();
    until("the pasted container", || {
        if let Some(status) = shell.try_wait().expect("it can be asked") {
            let mut said = String::new();
            use std::io::Read;
            shell
                .stderr
                .take()
                .expect("it is piped")
                .read_to_string(&mut said)
                .expect("it is text");
            panic!("the line ended ({status}): {said}\n{}", line.join("\n"));
        }
        let running = daemon.try_docker(&["inspect", "-f", "{{.State.Running}}", &container]);
        String::from_utf8_lossy(&running.stdout).trim() == "true"
    });
    let pasted = daemon.inspect(&container);
    daemon.docker(&["rm", "-f", &container]);
    shell.wait().expect("it ends");

    let (ours, pasted) = (bare(ours), bare(pasted));
    let mut differing = Vec::new();
    differ("", &ours, &pasted, &mut differing);
    assert!(
        differing.is_empty(),
        "ours, then pasted:\n{}",
        differing.join("\n")
    );
    assert!(
        ours["HostConfig"]["DeviceRequests"].is_array(),
        "there is something to compare"
    );
    assert_eq!(ours["HostConfig"]["CpusetCpus"], "0", "limits are set");
    assert!(ours["HostConfig"]["Memory"].is_number(), "limits are set");
}

/// Without what differs by nature, and without what says nothing: one client leaves a field out where another writes its zero.
fn bare(mut value: Value) -> Value {
    for path in OWN {
        let (parent, key) = path.rsplit_once('/').expect("a pointer has a slash");
        if let Some(Value::Object(parent)) = value.pointer_mut(parent) {
            parent.remove(key);
        }
    }
    // The daemon and the command line keep these in maps: their order means nothing and differs from time to time.
    for unordered in [
        "/Config/Env",
        "/Mounts",
        "/HostConfig/Mounts",
        "/HostConfig/Ulimits",
        "/HostConfig/Binds",
        "/HostConfig/CapAdd",
    ] {
        if let Some(Value::Array(items)) = value.pointer_mut(unordered) {
            items.sort_by_key(Value::to_string);
        }
    }
    prune(value)
}

fn prune(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .map(|(key, value)| (key, prune(value)))
                .filter(|(_, value)| !says_nothing(value))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(prune).collect()),
        other => other,
    }
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) => false,
    }
}

fn differ(path: &str, ours: &Value, pasted: &Value, found: &mut Vec<String>) {
    match (ours, pasted) {
        (Value::Object(a), Value::Object(b)) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let field = |of: &serde_json::Map<String, Value>| of.get(key).cloned().unwrap_or_default();
                differ(&format!("{path}/{key}"), &field(a), &field(b), found);
            }
        }
        (a, b) if a == b => {}
        (a, b) => found.push(format!("{path}: {a} {b}")),
    }
}
