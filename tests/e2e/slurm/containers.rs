//! Engines in containers that a job starts as processes. A stand-in for the container runtime notes how it was called, and executes
//! the command on the host with the variables that the runtime would pass.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use super::{Cluster, LOAD, PROFILE, cluster, job_folders, measured_once, run};
use crate::harness::{Bench, Ran, repository, sims};

const SECRET: &str = "hush-4711-hush";

/// The stand-in: it knows the image by its name, and where each runtime has the names of variables. An image is never there in advance.
const STAND_IN: &str = r#"#!/bin/bash
set -eu
runtime=${0##*/}
[ "$1" != image ] || exit 1
note=NOTES/$runtime.$$
printf '%s\n' "$@" >"$note.arguments"
env >"$note.outside"
passed=' PATH HOME '
while [[ $1 != *stand-in-image* ]]; do
  case $1 in
    --env=*) passed+="${1#--env=} " ;;
    --env) shift; passed+="$1 " ;;
  esac
  shift
done
shift
for name in $(compgen -e); do
  case $runtime/$name in
    apptainer/APPTAINERENV_* | singularity/SINGULARITYENV_*) export "${name#*ENV_}=${!name}"; unset "$name" ;;
    apptainer/* | singularity/*) ;;
    *) [[ $passed == *" $name "* ]] || unset "$name" ;;
  esac
done
env >"$note.inside"
exec "$@"
"#;

/// A matrix of one engine in a container beside the stand-in for its runtime.
struct Contained {
    bench: Bench,
}

/// How a stand-in was called: the words of the command, and the variables outside and inside of the container.
struct Call {
    words: Vec<String>,
    outside: BTreeMap<String, String>,
    inside: BTreeMap<String, String>,
}

impl Contained {
    /// An engine with these settings, started by `runtime` in a job that finds it by `PATH` of the profile alone.
    fn new(cluster: &Cluster, runtime: &str, entry: &str) -> Self {
        let bench = cluster.bench(&sims(&[("boxed", "vllm", "")], LOAD), "");
        let folder = bench.path().to_owned();
        for folder in ["tools", "notes", "shared"] {
            fs::create_dir(bench.path().join(folder)).expect("the folder is new");
        }
        let program = folder.join("tools").join(runtime);
        let notes = folder.join("notes").display().to_string();
        fs::write(&program, STAND_IN.replace("NOTES", &notes)).expect("it can be written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it is ours");
        fs::write(folder.join("matrices/stand-in-image.sqsh"), "").expect("it can be written");
        let contained = Self {
            bench: bench
                .variable("HUB_KEY", SECRET)
                .variable("OTHER_KEY", SECRET)
                .variable("MATRIX_PRETEND_GPUS", "1")
                .variable("MATRIX_LOCKS", &folder.join("locks").display().to_string()),
        };
        contained.recipe("");
        contained.profile(&format!(
            "{PROFILE}prolog: [\"export PATH={0}/tools:$PATH\"]\ncontainers: {{ runtime: {runtime}, options: [--own-option=1], bind: [{0}/shared] }}\n",
            folder.display()
        ));
        contained.entry(entry);
        contained
    }

    /// Gives jobs a command `module` that knows `tools/1`, the folder of the stand-in, as a login shell does.
    fn with_modules(self) -> Self {
        let tools = self.bench.path().join("tools").display().to_string();
        let module =
            format!("() {{ [ \"$1 $2\" = 'load tools/1' ] || return 1; export PATH=\"{tools}:$PATH\"; }}");
        Self {
            bench: self.bench.variable("BASH_FUNC_module%%", &module),
        }
    }

    /// Gives the recipe of the simulated engine a container, with further keys.
    fn recipe(&self, keys: &str) {
        let engines = self.bench.path().join("engines");
        if engines.is_symlink() {
            fs::remove_file(&engines).expect("it is a link");
            fs::create_dir(&engines).expect("the folder is new");
        }
        let shipped = fs::read_to_string(repository().join("engines/sim.yaml")).expect("it is shipped");
        let container = format!(
            "executors: [container, process]\ncontainer:\n  image: stand-in-image:1\n  gpus: all\n  mounts: [{{ source: data, target: /data, read_only: true }}]\n  env: {{ TEST_FOLDER: {} }}\n{keys}",
            self.bench.path().display()
        );
        let recipe = shipped.replace("executors: [process]\n", &container);
        assert_ne!(recipe, shipped);
        fs::write(engines.join("sim.yaml"), recipe).expect("it can be written");
    }

    fn profile(&self, text: &str) {
        let path = self.bench.matrix().with_file_name("clusters/test.yaml");
        fs::write(path, text).expect("it can be written");
    }

    /// The matrix with these settings of its engine.
    fn entry(&self, keys: &str) {
        let matrix = sims(&[("boxed", "vllm", "")], LOAD);
        let with_keys = matrix.replace(
            "as: boxed,",
            &format!("as: boxed, env: {{ HUB_KEY: \"${{HUB_KEY}}\" }}, {keys}"),
        );
        self.bench.rewrite(&with_keys);
    }

    /// Begins a run in a job.
    fn begin(&self) -> Child {
        let mut command =
            self.bench
                .command(&["run", "matrices/m.yaml", "--no-calibration", "--cluster", "test"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the binary runs")
    }

    /// The calls of the stand-in.
    fn calls(&self) -> Vec<Call> {
        let notes = fs::read_dir(self.bench.path().join("notes")).expect("there are notes");
        let notes = notes.map(|note| note.expect("it can be read").path());
        let mut arguments: Vec<PathBuf> = notes
            .filter(|note| note.extension().is_some_and(|end| end == "arguments"))
            .collect();
        arguments.sort();
        let read = |note: PathBuf| fs::read_to_string(note).expect("it was written");
        let variables = |text: String| {
            let pairs = text.lines().filter_map(|line| line.split_once('='));
            pairs
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect()
        };
        arguments
            .into_iter()
            .map(|note| Call {
                outside: variables(read(note.with_extension("outside"))),
                inside: variables(read(note.with_extension("inside"))),
                words: read(note).lines().map(str::to_owned).collect(),
            })
            .collect()
    }

    /// Insists that no file of the runs and their jobs has the secret.
    fn keeps_the_secret(&self) {
        let mut folders = vec![self.bench.results()];
        let mut files = 0;
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("it can be read") {
                let path = entry.expect("it can be read").path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                files += 1;
                let bytes = fs::read(&path).expect("it can be read");
                let text = String::from_utf8_lossy(&bytes);
                assert!(!text.contains(SECRET), "{}: {text}", path.display());
            }
        }
        assert!(files > 10, "{files}");
    }
}

impl Call {
    /// The words before the command of the engine.
    fn of_the_runtime(&self) -> Vec<&str> {
        let engine = crate::binary::matrix();
        let command = self.words.iter().take_while(|word| **word != engine);
        command.map(String::as_str).collect()
    }

    fn inside(&self, name: &str) -> Option<&str> {
        self.inside.get(name).map(String::as_str)
    }
}

/// The words of a command before that of the engine, with the paths of the test in it. `OWNER` stands for the variables by which
/// `matrix` finds what it started.
fn command_of(runtime: &str, folder: &Path) -> Vec<String> {
    let line = match runtime {
        "podman" => {
            "--cgroup-manager=cgroupfs run --rm --cgroups=disabled --network=host --device=nvidia.com/gpu=all --env=TEST_FOLDER --env=HUB_KEY \
             --env=MATRIX_RUN --env=MATRIX_START --env=MATRIX_OWNER --env=CUDA_DEVICE_ORDER --env=CUDA_VISIBLE_DEVICES \
             --volume=DIR/matrices/data:/data:ro --volume=DIR/shared:DIR/shared --own-option=1 stand-in-image:1"
        }
        "enroot" => {
            "start --env TEST_FOLDER --env HUB_KEY --env NVIDIA_VISIBLE_DEVICES --env MATRIX_RUN --env MATRIX_START --env MATRIX_OWNER \
             --env CUDA_DEVICE_ORDER --env CUDA_VISIBLE_DEVICES --mount DIR/matrices/data:/data:none:x-create=auto,bind,ro \
             --mount DIR/shared:DIR/shared:none:x-create=auto,bind --own-option=1 DIR/matrices/stand-in-image.sqsh"
        }
        _ => {
            "run --nv --bind DIR/matrices/data:/data:ro --bind DIR/shared:DIR/shared --own-option=1 docker://stand-in-image:1"
        }
    };
    let folder = folder.display().to_string();
    let words = line.split_whitespace();
    words.map(|word| word.replace("DIR", &folder)).collect()
}

#[test]
fn each_runtime_is_called_as_documented_and_gets_secrets_by_name() {
    let Some(cluster) = cluster() else { return };
    let all = [
        ("apptainer", ""),
        ("podman", ""),
        ("singularity", ""),
        ("enroot", "image: stand-in-image.sqsh,"),
    ]
    .map(|(runtime, keys)| {
        let keys = format!("executor: container, devices: gpu, {keys}");
        (runtime, Contained::new(&cluster, runtime, &keys))
    });
    // All at the same time: they wait for the scheduler for most of it.
    let runs: Vec<Child> = all.iter().map(|(_, contained)| contained.begin()).collect();
    for ((runtime, contained), ran) in all.iter().zip(runs) {
        let ran = Ran::from(ran.wait_with_output().expect("it ends"));
        ran.exits(0).shows("12/0").shows("1 done");
        measured_once(&contained.bench, 1);
        let is_help = |call: &Call| call.words.last().is_some_and(|word| word == "--help");
        let (help, mut calls): (Vec<Call>, Vec<Call>) = contained.calls().into_iter().partition(is_help);
        // Of the images here only the file is known to be there without a download.
        assert_eq!(
            (help.len(), calls.len()),
            (usize::from(*runtime == "enroot"), 1),
            "{runtime}"
        );
        let call = calls.remove(0);
        let folder = contained.bench.path();
        assert_eq!(call.of_the_runtime(), command_of(runtime, folder));
        assert!(call.words.iter().all(|word| !word.contains(SECRET)));
        assert_eq!(call.inside("HUB_KEY"), Some(SECRET), "{runtime}");
        assert_eq!(call.inside("CUDA_VISIBLE_DEVICES"), Some("0"), "{runtime}");
        // What neither recipe nor matrix names is not passed, nor is what belongs to the job.
        for name in ["OTHER_KEY", "SLURM_JOB_ID", "MATRIX_PRETEND_GPUS"] {
            assert!(!call.outside.contains_key(name), "{runtime}: {name}");
        }
        contained.keeps_the_secret();
        contained.bench.leaves_no_process();
    }
}

#[test]
fn ranks_on_two_nodes_run_in_containers() {
    let Some(cluster) = cluster() else { return };
    let contained = Contained::new(&cluster, "apptainer", "executor: container, nodes: 2,").with_modules();
    let bench = &contained.bench;
    let scratch = bench.path().join("scratch");
    contained.profile(&format!(
        "{PROFILE}modules: [tools/1]\nscratch: {}/$SLURM_JOB_ID\ncontainers: {{ runtime: apptainer }}\n",
        scratch.display()
    ));
    let planned = bench.call(&["plan", "matrices/m.yaml", "--cluster", "test"]);
    planned
        .exits(0)
        .shows("#SBATCH --nodes=2\n")
        .shows("srun --overlap")
        .shows("docker://stand-in-image:1");
    run(bench, &[]).exits(0).shows("12/0");
    measured_once(bench, 1);
    assert!(bench.engine_log().contains("rank 1 joined (1 of 1)"));
    let calls = contained.calls();
    let mut ranks: Vec<&str> = calls
        .iter()
        .filter_map(|call| {
            let at = call.words.iter().position(|word| word == "--node-rank")?;
            assert!(call.words.contains(&"docker://stand-in-image:1".to_owned()));
            assert_eq!(call.inside("HUB_KEY"), Some(SECRET));
            let of_job = call.outside.get("APPTAINER_CACHEDIR").expect("it is set");
            assert!(Path::new(of_job).starts_with(&scratch), "{of_job}");
            // The container does not have that folder.
            assert_eq!(call.outside.get("TMPDIR"), Some(of_job));
            assert_eq!(call.inside("TMPDIR"), Some("/tmp"));
            Some(call.words[at + 1].as_str())
        })
        .collect();
    ranks.sort_unstable();
    assert_eq!((ranks, calls.len()), (vec!["0", "1"], 2));
    // The job ends after its run.
    bench.until("the scratch folder was removed", || {
        fs::read_dir(&scratch).expect("it was created").count() == 0
    });
    contained.keeps_the_secret();
    bench.leaves_no_process();
}

#[test]
fn what_a_runtime_cannot_apply_is_refused_at_its_place_before_the_submission() {
    let Some(cluster) = cluster() else { return };
    let contained = Contained::new(&cluster, "apptainer", "executor: container,");
    let bench = &contained.bench;
    let recipe = bench.path().join("engines/sim.yaml");
    let plain = fs::read_to_string(&recipe).expect("it was written");
    for (key, setting) in [
        ("cpuset", "cpuset: \"0\""),
        ("memory", "memory: 1GiB"),
        ("memory_swap", "memory_swap: 1GiB"),
        ("runtime", "runtime: kata"),
        ("ipc", "ipc: private"),
        ("shm_size", "shm_size: 1GiB"),
        ("ulimits", "ulimits: { memlock: -1 }"),
        ("extra_hosts", "extra_hosts: [\"hub:10.0.0.1\"]"),
        ("cap_add", "cap_add: [SYS_PTRACE]"),
        ("security_opt", "security_opt: [seccomp=unconfined]"),
        ("group_add", "group_add: [video]"),
    ] {
        let message = format!(
            "the container runtime `apptainer` of the cluster cannot apply `{key}` of engine `boxed`"
        );
        contained.entry(&format!("executor: container, container: {{ {setting} }},"));
        let ran = run(bench, &[]).exits(2).says(&message);
        // Underlined is the entry, and not the recipe.
        ran.says("m.yaml:3:").says(&format!("^ sets `{key}`"));
        contained.entry("executor: container,");
        contained.recipe(&format!("  {setting}\n"));
        run(bench, &[])
            .exits(2)
            .says(&message)
            .says("m.yaml:3:")
            .says(&format!("^ its recipe sets `{key}`"));
        fs::write(&recipe, &plain).expect("it can be written");
    }
    for (key, setting) in [
        ("network", "network: bridge"),
        ("device_nodes", "device_nodes: [\"/dev/null:/dev/other\"]"),
        ("privileged", "privileged: true"),
    ] {
        contained.recipe(&format!("  {setting}\n"));
        let says = format!("cannot apply `{key}` of engine `boxed`");
        run(bench, &[]).exits(2).says(&says);
    }
    let with_colon = plain.replace("source: data", "source: \"a:b\"");
    fs::write(&recipe, with_colon).expect("it can be written");
    run(bench, &[]).exits(2).says("cannot apply `mounts`");
    fs::write(&recipe, &plain).expect("it can be written");
    contained.profile("containers: { runtime: enroot }\n");
    run(bench, &[])
        .exits(2)
        .says("cannot apply `image`")
        .says("enroot import --output");
    contained.recipe("  entrypoint: [serve]\n");
    run(bench, &[]).exits(2).says("cannot apply `entrypoint`");
    assert_eq!(job_folders(bench), Vec::<PathBuf>::new());
}

#[test]
fn wrong_settings_of_containers_modules_and_scratch_are_refused_before_the_submission() {
    let Some(cluster) = cluster() else { return };
    let contained = Contained::new(&cluster, "apptainer", "executor: container,");
    for (profile, message) in [
        ("containers: { runtime: lxc }\n", "lxc"),
        (
            "containers: { runtime: podman, options: [tls] }\n",
            "is no option of a container runtime",
        ),
        (
            "containers: { runtime: podman, bind: [local] }\n",
            "is no folder for containers",
        ),
        (
            "containers: { bind: [/local] }\n",
            "have no effect with the runtime `docker`",
        ),
        ("containers: { image: a }\n", "image"),
        ("modules: [\"cuda; id\"]\n", "is no name of a module"),
        ("modules: cuda\n", "modules"),
        (
            "scratch: local\n",
            "cannot be used as the folder for temporary files",
        ),
        (
            "scratch: \"/a/$(id)\"\n",
            "cannot be used as the folder for temporary files",
        ),
    ] {
        contained.profile(profile);
        run(&contained.bench, &[])
            .exits(2)
            .says(message)
            .says("test.yaml");
    }
    assert_eq!(job_folders(&contained.bench), Vec::<PathBuf>::new());
}

#[test]
fn a_node_without_runtime_module_or_scratch_folder_is_named() {
    let Some(cluster) = cluster() else { return };
    let node = fs::read_to_string("/proc/sys/kernel/hostname").expect("it can be read");
    let node = node.trim();
    let all = [
        (
            "containers: { runtime: singularity }\n".to_owned(),
            format!(
                "the program `singularity`, which starts the container of engine `boxed`, is not in PATH of the node `{node}`"
            ),
        ),
        (
            "modules: [no/such]\n".to_owned(),
            format!("error: the node {node} has no command `module`"),
        ),
        (
            "modules: [tools/1, no/such]\n".to_owned(),
            format!("error: the node {node} cannot load the module `no/such`"),
        ),
        (
            "scratch: /dev/null/$SLURM_JOB_ID\n".to_owned(),
            format!("error: the node {node} cannot create the folder /dev/null/"),
        ),
    ];
    let begun = all.map(|(profile, message)| {
        let mut contained = Contained::new(&cluster, "apptainer", "executor: container,");
        if profile.contains("tools/1") {
            contained = contained.with_modules();
        }
        contained.profile(&format!("{PROFILE}{profile}"));
        let run = contained.begin();
        (message, contained, run)
    });
    for (message, contained, run) in begun {
        let ran = Ran::from(run.wait_with_output().expect("it ends"));
        ran.exits(4).says(&message);
        assert_eq!(contained.calls().len(), 0);
        contained.bench.leaves_no_process();
    }
}

#[test]
fn a_plan_for_a_cluster_prints_the_command_of_the_container() {
    let Some(cluster) = cluster() else { return };
    let contained = Contained::new(&cluster, "apptainer", "executor: container, devices: gpu,");
    let folder = contained.bench.path().display().to_string();
    let planned = contained
        .bench
        .call(&["plan", "matrices/m.yaml", "--cluster", "test"])
        .exits(0);
    let joined = planned.stdout.replace(" \\\n", " ");
    let joined = joined.split_whitespace().collect::<Vec<_>>().join(" ");
    let command = command_of("apptainer", contained.bench.path()).join(" ");
    for part in [
        format!("apptainer {command} "),
        format!("APPTAINERENV_TEST_FOLDER={folder} "),
        "APPTAINERENV_HUB_KEY=\"${HUB_KEY}\" ".to_owned(),
    ] {
        assert!(joined.contains(&part), "{part} is not in\n{}", planned.stdout);
    }
    assert!(!planned.stdout.contains(SECRET));
    // On this host alone it is the container of a daemon.
    let here = contained.bench.call(&["plan", "matrices/m.yaml"]).exits(0);
    assert!(here.stdout.contains("docker run"), "{}", here.stdout);
    assert_eq!(job_folders(&contained.bench), Vec::<PathBuf>::new());
}
