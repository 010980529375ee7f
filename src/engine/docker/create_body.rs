//! Builds the body of `POST /containers/create` for a launch. `matrix plan` prints the same values as a
//! `docker run` line. Pure; secrets are revealed only here.

use std::collections::HashMap;
use std::path::Path;

use bollard::models::{
    ContainerCreateBody, DeviceMapping, DeviceRequest, HostConfig, HostConfigLogConfig, Mount, MountType,
    PortBinding, ResourcesUlimits, RestartPolicy, RestartPolicyNameEnum,
};

use crate::base::units::Bytes;
use crate::config::template::Text;
use crate::engine::context::Context;
use crate::engine::error::StartError;
use crate::engine::ownership::Marks;
use crate::plan::{Container, Gpus, Launch, Network};

/// Label: the run id.
pub(super) const RUN: &str = "matrix.run";
/// Label: `<launch>#<start>`.
pub(super) const START: &str = "matrix.start";
/// Label: the `matrix` process that owns the container.
pub(super) const OWNER: &str = "matrix.owner";
/// Label: the container in which that process runs, if any.
pub(super) const OWNER_CONTAINER: &str = "matrix.owner-container";
/// Label: the image name of the recipe. The container itself is created by image id.
pub(super) const IMAGE: &str = "matrix.image";

pub(super) fn body(
    launch: &Launch,
    container: &Container,
    context: &Context,
    marks: &Marks,
) -> Result<ContainerCreateBody, StartError> {
    let reveal = |text: &Text, place: &str| context.reveal(None, text, place);
    let mut command = Vec::new();
    let mut entrypoint = None;
    if let Some(parts) = &container.entrypoint {
        let mut parts = parts.iter();
        let program = parts
            .next()
            .map(|program| reveal(program, "`entrypoint:`"))
            .transpose()?;
        entrypoint = Some(vec![program.unwrap_or_default()]);
        // `docker run --entrypoint` takes one word; further words are the first arguments of the command.
        for part in parts {
            command.push(reveal(part, "`entrypoint:`")?);
        }
    }
    for text in launch.argv(context.port) {
        command.push(reveal(&text, "`command:`")?);
    }
    let mut env = Vec::new();
    for (name, value) in &container.env {
        env.push(format!("{name}={}", reveal(value, &format!("`env: {name}`"))?));
    }
    let port = format!("{}/tcp", context.port);
    let exposed = (container.network == Network::Bridge).then(|| vec![port.clone()]);
    Ok(ContainerCreateBody {
        image: Some(container.image.clone()),
        entrypoint,
        cmd: (!command.is_empty()).then_some(command),
        env: (!env.is_empty()).then_some(env),
        exposed_ports: exposed,
        // As `docker run` in the foreground does.
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        labels: Some(HashMap::from([
            (RUN.to_owned(), marks.run.clone()),
            (START.to_owned(), marks.start.clone()),
            (OWNER.to_owned(), marks.owner.to_string()),
            (IMAGE.to_owned(), container.image.clone()),
        ])),
        host_config: Some(host(container, context, port)?),
        ..ContainerCreateBody::default()
    })
}

fn host(container: &Container, context: &Context, port: String) -> Result<HostConfig, StartError> {
    let mut mounts = Vec::new();
    for mount in &container.mounts {
        let source = context.reveal(None, &mount.source, "`mounts:`")?;
        mounts.push(Mount {
            typ: Some(MountType::BIND),
            source: Some(absolute(&context.folder, &source)),
            target: Some(mount.target.value.clone()),
            read_only: mount.read_only.then_some(true),
            ..Mount::default()
        });
    }
    let is_host_ipc = container.ipc.as_deref() == Some("host");
    let is_bridge = container.network == Network::Bridge;
    let bindings = || {
        let everywhere = PortBinding {
            host_ip: Some(String::new()),
            host_port: Some(context.port.to_string()),
        };
        HashMap::from([(port, Some(vec![everywhere]))])
    };
    Ok(HostConfig {
        runtime: container.runtime.clone(),
        device_requests: gpus(container.gpus, &context.device_names).map(|request| vec![request]),
        cpuset_cpus: container.cpuset.as_ref().or(context.cpus.as_ref()).cloned(),
        memory: container.memory.map(bytes),
        memory_swap: container.memory_swap.map(bytes),
        extra_hosts: some(container.extra_hosts.clone()),
        cap_add: some(container.cap_add.iter().map(|name| capability(name)).collect()),
        security_opt: some(container.security_opt.clone()),
        group_add: some(container.group_add.clone()),
        mounts: (!mounts.is_empty()).then_some(mounts),
        ipc_mode: container.ipc.clone(),
        // With host IPC, Docker ignores a size and Podman refuses it.
        shm_size: container.shm_size.filter(|_| !is_host_ipc).map(bytes),
        network_mode: Some(if is_bridge { "default" } else { "host" }.to_owned()),
        port_bindings: is_bridge.then(bindings),
        ulimits: (!container.ulimits.is_empty()).then(|| {
            let limit = |(name, limit): &(String, i64)| ResourcesUlimits {
                name: Some(name.clone()),
                soft: Some(*limit),
                hard: Some(*limit),
            };
            container.ulimits.iter().map(limit).collect()
        }),
        devices: (!container.devices.is_empty())
            .then(|| container.devices.iter().map(|device| node(device)).collect()),
        init: container.init.then_some(true),
        privileged: Some(container.privileged),
        // `matrix` removes the container itself, because it reads the log and the exit state after the exit.
        auto_remove: Some(false),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: Some(0),
        }),
        ..HostConfig::default()
    })
}

fn bytes(size: Bytes) -> i64 {
    i64::try_from(size.0).unwrap_or(i64::MAX)
}

fn some(values: Vec<String>) -> Option<Vec<String>> {
    (!values.is_empty()).then_some(values)
}

/// A capability in the form that Docker's client sends: `SYS_PTRACE` and `cap_sys_ptrace` are the same.
fn capability(name: &str) -> String {
    let name = name.trim().to_ascii_uppercase();
    match name == "ALL" || name.starts_with("CAP_") {
        true => name,
        false => format!("CAP_{name}"),
    }
}

pub(super) fn gpus(wanted: Gpus, leased: &[String]) -> Option<DeviceRequest> {
    let request = DeviceRequest {
        // Empty: the daemon picks the driver that registered the capability.
        driver: Some(String::new()),
        capabilities: Some(vec![vec!["gpu".to_owned()]]),
        ..DeviceRequest::default()
    };
    match wanted {
        Gpus::None => None,
        Gpus::Cdi | Gpus::CdiAll => {
            let names = wanted.cdi(leased);
            // The same request as Docker's client sends for a CDI name in `--device`.
            (!names.is_empty()).then(|| DeviceRequest {
                driver: Some("cdi".to_owned()),
                device_ids: Some(names),
                ..DeviceRequest::default()
            })
        }
        Gpus::All => Some(DeviceRequest {
            count: Some(-1),
            ..request
        }),
        // The launch has no GPU and needs none.
        Gpus::Leased if leased.is_empty() => None,
        Gpus::Leased => Some(DeviceRequest {
            device_ids: Some(leased.to_vec()),
            ..request
        }),
    }
}

/// A device node in the syntax of `--device`: `/dev/x`, `/dev/x:/dev/y` or `/dev/x:/dev/y:r`.
fn node(text: &str) -> DeviceMapping {
    let mut parts = text.split(':');
    let outside = parts.next().unwrap_or_default();
    DeviceMapping {
        path_on_host: Some(outside.to_owned()),
        path_in_container: Some(parts.next().unwrap_or(outside).to_owned()),
        cgroup_permissions: Some(parts.next().unwrap_or("rwm").to_owned()),
    }
}

/// An absolute source path, as the daemon requires. The daemon may be on another host, so nothing is looked
/// up here.
fn absolute(folder: &Path, source: &str) -> String {
    folder.join(source).to_string_lossy().into_owned()
}

/// Maximum size of one log file of the daemon.
const LOG_FILE: &str = "64m";

/// Limits the daemon's own log of the container. The run's log has a full copy, so a flood of output must not
/// fill the daemon's disk. Podman has its own limits and refuses these.
pub(super) fn body_with_short_log(mut body: ContainerCreateBody, is_podman: bool) -> ContainerCreateBody {
    if let Some(host) = body.host_config.as_mut().filter(|_| !is_podman) {
        host.log_config = Some(short_log());
    }
    body
}

/// A small log with a driver that can be read, whatever the daemon's default is.
fn short_log() -> HostConfigLogConfig {
    HostConfigLogConfig {
        typ: Some("json-file".to_owned()),
        config: Some(HashMap::from([
            ("max-size".to_owned(), LOG_FILE.to_owned()),
            ("max-file".to_owned(), "2".to_owned()),
        ])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing::{Bench, SECRET, contained};
    use crate::plan::Place;

    fn made(container: Container, devices: &[u32]) -> serde_json::Value {
        let bench = Bench::new();
        let launch = contained(container);
        let Place::Container(container) = &launch.place else {
            panic!("it is a container");
        };
        let context = Context {
            devices: devices.to_vec(),
            device_names: devices.iter().map(u32::to_string).collect(),
            port: 8123,
            folder: "/m".into(),
            ..bench.context()
        };
        let marks = Marks::new(&context.run, &launch.id, 1).unwrap();
        serde_json::to_value(body(&launch, container, &context, &marks).unwrap()).unwrap()
    }

    #[test]
    fn the_published_lines_can_be_said() {
        let made = made(
            Container {
                image: "x/y:1".into(),
                command: vec![Text::new("--port={port}")],
                env: vec![
                    ("HF_TOKEN".into(), Text::new("${KEY}")),
                    ("A".into(), Text::new("b c")),
                ],
                mounts: vec![crate::plan::Mount {
                    source: Text::new("cache"),
                    target: "/c".to_owned().into(),
                    read_only: true,
                }],
                runtime: Some("nvidia".into()),
                gpus: Gpus::All,
                ipc: Some("host".into()),
                shm_size: Some(Bytes(1)),
                ..Container::default()
            },
            &[],
        );
        assert_eq!(made["Cmd"], serde_json::json!(["--port=8123"]));
        assert_eq!(
            made["Env"],
            serde_json::json!([format!("HF_TOKEN={SECRET}"), "A=b c"])
        );
        let host = &made["HostConfig"];
        assert_eq!(host["NetworkMode"], "host");
        assert_eq!(host["IpcMode"], "host");
        assert_eq!(host["Runtime"], "nvidia");
        assert_eq!(
            host["DeviceRequests"],
            serde_json::json!([{ "Driver": "", "Count": -1, "Capabilities": [["gpu"]] }])
        );
        assert_eq!(
            host["Mounts"],
            serde_json::json!([{ "Target": "/c", "Source": "/m/cache", "Type": "bind", "ReadOnly": true }])
        );
        assert_eq!(host["AutoRemove"], false);
        assert!(host.get("ShmSize").is_none() && host.get("Binds").is_none());
        assert!(made["Labels"]["matrix.owner"].is_string());
        assert_eq!(made["Labels"]["matrix.run"], "r");
    }

    #[test]
    fn leased_devices_are_asked_for_by_id_and_never_counted() {
        let made = made(
            Container {
                gpus: Gpus::Leased,
                ..Container::default()
            },
            &[2, 3],
        );
        let request = &made["HostConfig"]["DeviceRequests"][0];
        assert_eq!(request["DeviceIDs"], serde_json::json!(["2", "3"]));
        assert!(request.get("Count").is_none());
    }

    #[test]
    fn cdi_names_the_leased_devices_and_nothing_else() {
        let asked = |gpus, leased: &[u32]| {
            let container = Container {
                gpus,
                ..Container::default()
            };
            made(container, leased)["HostConfig"]["DeviceRequests"].clone()
        };
        assert_eq!(
            asked(Gpus::Cdi, &[2, 3]),
            serde_json::json!([{ "Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=2", "nvidia.com/gpu=3"] }])
        );
        assert!(asked(Gpus::Cdi, &[]).is_null());
        assert_eq!(
            asked(Gpus::CdiAll, &[])[0]["DeviceIDs"],
            serde_json::json!(["nvidia.com/gpu=all"])
        );
    }

    #[test]
    fn a_bridge_maps_the_port_and_the_rest_of_an_entrypoint_leads_the_command() {
        let made = made(
            Container {
                entrypoint: Some(vec![Text::new("python3"), Text::new("-m")]),
                command: vec![Text::new("server")],
                network: Network::Bridge,
                shm_size: Some(Bytes(64)),
                ulimits: vec![("memlock".into(), -1)],
                init: true,
                devices: vec!["/dev/kfd".into(), "/dev/a:/dev/b:r".into()],
                privileged: true,
                ..Container::default()
            },
            &[],
        );
        assert_eq!(made["Entrypoint"], serde_json::json!(["python3"]));
        assert_eq!(made["Cmd"], serde_json::json!(["-m", "server"]));
        assert_eq!(made["ExposedPorts"], serde_json::json!({ "8123/tcp": {} }));
        let host = &made["HostConfig"];
        assert_eq!(host["PortBindings"]["8123/tcp"][0]["HostPort"], "8123");
        assert_eq!(host["ShmSize"], 64);
        assert_eq!(
            host["Ulimits"],
            serde_json::json!([{ "Name": "memlock", "Soft": -1, "Hard": -1 }])
        );
        assert_eq!(host["Init"], true);
        assert_eq!(host["Privileged"], true);
        assert_eq!(host["Devices"][1]["PathInContainer"], "/dev/b");
        assert_eq!(host["Devices"][0]["CgroupPermissions"], "rwm");
    }
}
