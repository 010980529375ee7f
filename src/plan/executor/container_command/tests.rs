use super::*;
use crate::base::units::Bytes;
use crate::config::container::ContainerGpus;

fn command(containers: &str, container: Container) -> ContainerCommand {
    ContainerCommand {
        started_by: serde_json::from_str(containers).unwrap(),
        container: Container {
            image: match container.image.is_empty() {
                true => "vllm/vllm-openai:v0.10.1".to_owned(),
                false => container.image.clone(),
            },
            ..container
        },
    }
}

/// The container of a shipped recipe.
fn usual() -> Container {
    Container {
        gpus: ContainerGpus::All,
        runtime: Some("nvidia".to_owned()),
        ipc: Some("host".to_owned()),
        mounts: vec![
            Mount {
                source: Template::new("{hf_home}"),
                target: "/root/.cache".to_owned().into(),
                read_only: false,
            },
            Mount {
                source: Template::new("./models"),
                target: "/models".to_owned().into(),
                read_only: true,
            },
        ],
        ..Container::default()
    }
}

/// The command and the variables of an engine with GPUs, as text.
fn wrapped(command: &ContainerCommand) -> String {
    let words = ["--model", "m"].map(Template::new);
    let env = [
        ("HF_HOME".to_owned(), Template::new("/root/.cache")),
        ("HF_TOKEN".to_owned(), Template::new("${HF_TOKEN}")),
    ];
    let (words, env) = command.wrap(&words, &env, &["CUDA_VISIBLE_DEVICES"], true);
    let words: Vec<&str> = words.iter().map(Template::as_str).collect();
    let env: Vec<String> = env
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    format!("{} | {}", words.join(" "), env.join(" "))
}

#[test]
fn podman_keeps_the_entrypoint_and_names_variables_without_values() {
    let text = wrapped(&command(
        r#"{"runtime": "podman", "options": ["--tls-verify=false"], "bind": ["/shared", "/a:/b:ro"]}"#,
        usual(),
    ));
    assert_eq!(
        text,
        "podman --cgroup-manager=cgroupfs run --rm --cgroups=disabled --network=host --device=nvidia.com/gpu=all --env=HF_HOME --env=HF_TOKEN \
         --env=CUDA_VISIBLE_DEVICES --ipc=host --volume={hf_home}:/root/.cache --volume={dir}/models:/models:ro --volume=/shared:/shared \
         --volume=/a:/b:ro --tls-verify=false vllm/vllm-openai:v0.10.1 --model m | HF_HOME=/root/.cache HF_TOKEN=${HF_TOKEN}"
    );
}

#[test]
fn apptainer_runs_the_entrypoint_and_gets_variables_by_its_own_names() {
    let text = wrapped(&command(r#"{"runtime": "apptainer"}"#, usual()));
    assert_eq!(
        text,
        "apptainer run --nv --bind {hf_home}:/root/.cache --bind {dir}/models:/models:ro docker://vllm/vllm-openai:v0.10.1 --model m | \
         APPTAINERENV_HF_HOME=/root/.cache APPTAINERENV_HF_TOKEN=${HF_TOKEN} APPTAINERENV_TMPDIR=/tmp"
    );
    let text = wrapped(&command(
        r#"{"runtime": "singularity", "options": ["--fakeroot"]}"#,
        Container {
            image: "vllm.sif".to_owned(),
            entrypoint: Some(vec![Template::new("vllm"), Template::new("serve")]),
            ..Container::default()
        },
    ));
    assert_eq!(
        text,
        "singularity exec --fakeroot {dir}/vllm.sif vllm serve --model m | SINGULARITYENV_HF_HOME=/root/.cache SINGULARITYENV_HF_TOKEN=${HF_TOKEN} SINGULARITYENV_TMPDIR=/tmp"
    );
}

#[test]
fn enroot_starts_a_file_with_the_gpus_of_its_hook() {
    let text = wrapped(&command(
        r#"{"runtime": "enroot"}"#,
        Container {
            image: "/shared/vllm.sqsh".to_owned(),
            ..usual()
        },
    ));
    assert_eq!(
        text,
        "enroot start --env HF_HOME --env HF_TOKEN --env NVIDIA_VISIBLE_DEVICES --env CUDA_VISIBLE_DEVICES --mount \
         {hf_home}:/root/.cache:none:x-create=auto,bind --mount {dir}/models:/models:none:x-create=auto,bind,ro /shared/vllm.sqsh --model m | \
         HF_HOME=/root/.cache HF_TOKEN=${HF_TOKEN} NVIDIA_VISIBLE_DEVICES=all"
    );
}

#[test]
fn a_folder_for_temporary_files_that_the_engine_names_is_kept() {
    let own = command(r#"{"runtime": "apptainer"}"#, usual());
    let env = [("TMPDIR".to_owned(), Template::new("/models/tmp"))];
    let (_, env) = own.wrap(&[], &env, &[], false);
    assert_eq!(
        env,
        [("APPTAINERENV_TMPDIR".to_owned(), Template::new("/models/tmp"))]
    );
}

#[test]
fn an_engine_without_gpus_gets_none_and_podman_gets_its_own_entrypoint() {
    let own = command(
        r#"{"runtime": "podman"}"#,
        Container {
            entrypoint: Some(vec![Template::new("python3"), Template::new("-m")]),
            shm_size: Some(Bytes(64)),
            ulimits: vec![("memlock".to_owned(), -1)],
            init: true,
            ..usual()
        },
    );
    let (words, env) = own.wrap(&[Template::new("server")], &[], &[], false);
    let words: Vec<&str> = words.iter().map(Template::as_str).collect();
    let text = words.join(" ");
    assert!(!text.contains("nvidia") && env.is_empty(), "{text}");
    assert!(
        text.contains(" --ipc=host --ulimit=memlock=-1 --init ") && !text.contains("shm-size"),
        "{text}"
    );
    assert!(
        text.ends_with(" --entrypoint=python3 vllm/vllm-openai:v0.10.1 -m server"),
        "{text}"
    );
}

#[test]
fn what_a_runtime_cannot_apply_is_named() {
    let all = Container {
        image: "vllm/vllm-openai:v0.10.1".to_owned(),
        entrypoint: Some(vec![Template::new("a")]),
        runtime: Some("kata".to_owned()),
        ipc: Some("private".to_owned()),
        network: ContainerNetwork::Bridge,
        ulimits: vec![("memlock".to_owned(), -1)],
        devices: vec!["/dev/a:/dev/b".to_owned()],
        privileged: true,
        cpuset: Some("0".to_owned()),
        memory: Some(Bytes(1)),
        memory_swap: Some(Bytes(1)),
        extra_hosts: vec!["a:10.0.0.1".to_owned()],
        cap_add: vec!["SYS_PTRACE".to_owned()],
        security_opt: vec!["seccomp=unconfined".to_owned()],
        group_add: vec!["video".to_owned()],
        mounts: vec![Mount {
            source: Template::new("/a:b"),
            target: "/c".to_owned().into(),
            read_only: false,
        }],
        ..Container::default()
    };
    let keys = |runtime: &str| {
        let command = command(&format!(r#"{{"runtime": "{runtime}"}}"#), all.clone());
        let found = command.unsupported().into_iter().map(|found| found.key);
        found.collect::<Vec<_>>().join(" ")
    };
    let everywhere = "cpuset memory memory_swap network runtime mounts";
    assert_eq!(keys("podman"), everywhere);
    let processes = format!(
        "{everywhere} ipc ulimits privileged device_nodes extra_hosts cap_add security_opt group_add"
    );
    assert_eq!(keys("apptainer"), processes);
    assert_eq!(keys("singularity"), processes);
    assert_eq!(keys("enroot"), format!("{processes} entrypoint image"));
    for runtime in ["podman", "apptainer", "singularity"] {
        assert_eq!(
            command(&format!(r#"{{"runtime": "{runtime}"}}"#), usual()).unsupported(),
            []
        );
    }
    let shm = Container {
        shm_size: Some(Bytes(1)),
        ..Container::default()
    };
    assert_eq!(
        command(r#"{"runtime": "apptainer"}"#, shm).unsupported()[0].key,
        "shm_size"
    );
}
