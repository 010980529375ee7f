//! Builds the body of `POST /containers/create` for a launch. `matrix plan` prints the same values as a
//! `docker run` line. Pure; secrets are revealed only here.

use std::collections::HashMap;
use std::path::Path;

use bollard::models::{
    ContainerCreateBody, DeviceMapping, DeviceRequest, HostConfig, HostConfigLogConfig, Mount, MountType,
    PortBinding, ResourcesUlimits, RestartPolicy, RestartPolicyNameEnum,
};

use crate::base::units::Bytes;
use crate::config::template::Template;
use crate::engine::context::StartContext;
use crate::engine::error::StartError;
use crate::engine::ownership::OwnershipTags;
use crate::plan::{Container, ContainerGpus, ContainerNetwork, Launch};

/// Label: the run id.
pub(super) const RUN_LABEL: &str = "matrix.run";
/// Label with the value `<launch>#<start>`.
pub(super) const START_LABEL: &str = "matrix.start";
/// Label: the `matrix` process that owns the container.
pub(super) const OWNER_LABEL: &str = "matrix.owner";
/// Label: the container in which that process runs, if any.
pub(super) const OWNER_CONTAINER_LABEL: &str = "matrix.owner-container";
/// Label: the image name of the recipe. The container itself is created by image id.
pub(super) const IMAGE_LABEL: &str = "matrix.image";

pub(super) fn create_body(
    launch: &Launch,
    container: &Container,
    context: &StartContext,
    tags: &OwnershipTags,
) -> Result<ContainerCreateBody, StartError> {
    let reveal = |text: &Template, location: &str| context.fill(None, text, location);
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
    for text in launch.command_args(context.port) {
        command.push(reveal(&text, "`command:`")?);
    }
    let mut env = Vec::new();
    for (name, value) in &container.env {
        env.push(format!("{name}={}", reveal(value, &format!("`env: {name}`"))?));
    }
    let port = format!("{}/tcp", context.port);
    let exposed = (container.network == ContainerNetwork::Bridge).then(|| vec![port.clone()]);
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
            (RUN_LABEL.to_owned(), tags.run.clone()),
            (START_LABEL.to_owned(), tags.start.clone()),
            (OWNER_LABEL.to_owned(), tags.owner.to_string()),
            (IMAGE_LABEL.to_owned(), container.image.clone()),
        ])),
        host_config: Some(host_config(container, context, port)?),
        ..ContainerCreateBody::default()
    })
}

fn host_config(
    container: &Container,
    context: &StartContext,
    port: String,
) -> Result<HostConfig, StartError> {
    let mut mounts = Vec::new();
    for mount in &container.mounts {
        let source = context.fill(None, &mount.source, "`mounts:`")?;
        mounts.push(Mount {
            typ: Some(MountType::BIND),
            source: Some(absolute_source(&context.folder, &source)),
            target: Some(mount.target.value.clone()),
            read_only: mount.read_only.then_some(true),
            ..Mount::default()
        });
    }
    let is_host_ipc = container.ipc.as_deref() == Some("host");
    let is_bridge = container.network == ContainerNetwork::Bridge;
    let bindings = || {
        let everywhere = PortBinding {
            host_ip: Some(String::new()),
            host_port: Some(context.port.to_string()),
        };
        HashMap::from([(port, Some(vec![everywhere]))])
    };
    Ok(HostConfig {
        runtime: container.runtime.clone(),
        device_requests: gpu_request(container.gpus, &context.device_names).map(|request| vec![request]),
        cpuset_cpus: container.cpuset.as_ref().or(context.cpus.as_ref()).cloned(),
        memory: container.memory.map(to_signed),
        memory_swap: container.memory_swap.map(to_signed),
        extra_hosts: non_empty(container.extra_hosts.clone()),
        cap_add: non_empty(container.cap_add.iter().map(|name| capability(name)).collect()),
        security_opt: non_empty(container.security_opt.clone()),
        group_add: non_empty(container.group_add.clone()),
        mounts: (!mounts.is_empty()).then_some(mounts),
        ipc_mode: container.ipc.clone(),
        // With host IPC, Docker ignores a size and Podman refuses it.
        shm_size: container.shm_size.filter(|_| !is_host_ipc).map(to_signed),
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
        devices: (!container.devices.is_empty()).then(|| {
            container
                .devices
                .iter()
                .map(|device| device_mapping(device))
                .collect()
        }),
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

fn to_signed(size: Bytes) -> i64 {
    i64::try_from(size.0).unwrap_or(i64::MAX)
}

fn non_empty(values: Vec<String>) -> Option<Vec<String>> {
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

pub(super) fn gpu_request(requested: ContainerGpus, leased: &[String]) -> Option<DeviceRequest> {
    let request = DeviceRequest {
        // Empty: the daemon picks the driver that registered the capability.
        driver: Some(String::new()),
        capabilities: Some(vec![vec!["gpu".to_owned()]]),
        ..DeviceRequest::default()
    };
    match requested {
        ContainerGpus::None => None,
        ContainerGpus::Cdi | ContainerGpus::CdiAll => {
            let names = requested.cdi_names(leased);
            // The same request as Docker's client sends for a CDI name in `--device`.
            (!names.is_empty()).then(|| DeviceRequest {
                driver: Some("cdi".to_owned()),
                device_ids: Some(names),
                ..DeviceRequest::default()
            })
        }
        ContainerGpus::All => Some(DeviceRequest {
            count: Some(-1),
            ..request
        }),
        // The launch has no GPU and needs none.
        ContainerGpus::Leased if leased.is_empty() => None,
        ContainerGpus::Leased => Some(DeviceRequest {
            device_ids: Some(leased.to_vec()),
            ..request
        }),
    }
}

/// A device node in the syntax of `--device`: `/dev/x`, `/dev/x:/dev/y` or `/dev/x:/dev/y:r`.
fn device_mapping(text: &str) -> DeviceMapping {
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
fn absolute_source(folder: &Path, source: &str) -> String {
    folder.join(source).to_string_lossy().into_owned()
}

/// Maximum size of one log file of the daemon.
const LOG_FILE_SIZE: &str = "64m";

/// Limits the daemon's own log of the container. The run's log has a full copy, so a flood of output must not
/// fill the daemon's disk. Podman has its own limits and refuses these.
pub(super) fn with_short_log(mut body: ContainerCreateBody, is_podman: bool) -> ContainerCreateBody {
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
            ("max-size".to_owned(), LOG_FILE_SIZE.to_owned()),
            ("max-file".to_owned(), "2".to_owned()),
        ])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing::{SECRET, TestEnv, container_launch};
    use crate::plan::ExecutorSpec;

    fn created_json(container: Container, devices: &[u32]) -> serde_json::Value {
        let env = TestEnv::new();
        let launch = container_launch(container);
        let ExecutorSpec::Container(container) = &launch.place else {
            panic!("it is a container");
        };
        let context = StartContext {
            devices: devices.to_vec(),
            device_names: devices.iter().map(u32::to_string).collect(),
            port: 8123,
            folder: "/m".into(),
            ..env.context()
        };
        let tags = OwnershipTags::new(&context.run, &launch.id, 1).unwrap();
        serde_json::to_value(create_body(&launch, container, &context, &tags).unwrap()).unwrap()
    }

    #[test]
    fn the_published_lines_can_be_said() {
        let body = created_json(
            Container {
                image: "x/y:1".into(),
                command: vec![Template::new("--port={port}")],
                env: vec![
                    ("HF_TOKEN".into(), Template::new("${KEY}")),
                    ("A".into(), Template::new("b c")),
                ],
                mounts: vec![crate::plan::Mount {
                    source: Template::new("cache"),
                    target: "/c".to_owned().into(),
                    read_only: true,
                }],
                runtime: Some("nvidia".into()),
                gpus: ContainerGpus::All,
                ipc: Some("host".into()),
                shm_size: Some(Bytes(1)),
                ..Container::default()
            },
            &[],
        );
        assert_eq!(body["Cmd"], serde_json::json!(["--port=8123"]));
        assert_eq!(
            body["Env"],
            serde_json::json!([format!("HF_TOKEN={SECRET}"), "A=b c"])
        );
        let host = &body["HostConfig"];
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
        assert!(body["Labels"]["matrix.owner"].is_string());
        assert_eq!(body["Labels"]["matrix.run"], "r");
    }

    #[test]
    fn leased_devices_are_asked_for_by_id_and_never_counted() {
        let body = created_json(
            Container {
                gpus: ContainerGpus::Leased,
                ..Container::default()
            },
            &[2, 3],
        );
        let request = &body["HostConfig"]["DeviceRequests"][0];
        assert_eq!(request["DeviceIDs"], serde_json::json!(["2", "3"]));
        assert!(request.get("Count").is_none());
    }

    #[test]
    fn cdi_names_the_leased_devices_and_nothing_else() {
        let request = |gpus, leased: &[u32]| {
            let container = Container {
                gpus,
                ..Container::default()
            };
            created_json(container, leased)["HostConfig"]["DeviceRequests"].clone()
        };
        assert_eq!(
            request(ContainerGpus::Cdi, &[2, 3]),
            serde_json::json!([{ "Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=2", "nvidia.com/gpu=3"] }])
        );
        assert!(request(ContainerGpus::Cdi, &[]).is_null());
        assert_eq!(
            request(ContainerGpus::CdiAll, &[])[0]["DeviceIDs"],
            serde_json::json!(["nvidia.com/gpu=all"])
        );
    }

    #[test]
    fn a_bridge_maps_the_port_and_the_rest_of_an_entrypoint_leads_the_command() {
        let body = created_json(
            Container {
                entrypoint: Some(vec![Template::new("python3"), Template::new("-m")]),
                command: vec![Template::new("server")],
                network: ContainerNetwork::Bridge,
                shm_size: Some(Bytes(64)),
                ulimits: vec![("memlock".into(), -1)],
                init: true,
                devices: vec!["/dev/kfd".into(), "/dev/a:/dev/b:r".into()],
                privileged: true,
                ..Container::default()
            },
            &[],
        );
        assert_eq!(body["Entrypoint"], serde_json::json!(["python3"]));
        assert_eq!(body["Cmd"], serde_json::json!(["-m", "server"]));
        assert_eq!(body["ExposedPorts"], serde_json::json!({ "8123/tcp": {} }));
        let host = &body["HostConfig"];
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
