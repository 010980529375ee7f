//! Shipped recipes and matrices give the right launches, and nothing leaks between cells.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use crate::config::engine::{Recipe, Recipes};
use crate::config::matrix::Matrix;
use crate::config::yaml::{self, Source};
use crate::plan::{Cell, Launch, Plan, command, expand};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn yaml_files(folder: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(root().join(folder))
        .expect("the folder is there")
        .map(|entry| entry.expect("the folder is readable").path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "yaml"))
        .collect();
    files.sort();
    files
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> T {
    let source = Source::new(
        path.display().to_string(),
        std::fs::read_to_string(path).expect("the file is readable"),
    );
    let (value, mistakes) = yaml::read::<T>(&source);
    assert!(
        mistakes.is_empty(),
        "{}",
        yaml::render(&mistakes, &[source], false)
    );
    value.expect("a file without mistakes gives a value")
}

fn recipes() -> Recipes {
    yaml_files("engines")
        .iter()
        .map(|path| {
            let recipe: Recipe = read(path);
            assert_eq!(
                Some(recipe.name.value.as_str()),
                path.file_stem().and_then(|stem| stem.to_str())
            );
            (recipe.name.value.clone(), recipe)
        })
        .collect()
}

fn plan(matrix: &Matrix, recipes: &Recipes) -> Plan {
    expand(matrix, recipes).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"))
}

#[test]
fn every_variant_and_executor_of_every_recipe_gives_a_launch() {
    let recipes = recipes();
    for (name, recipe) in &recipes {
        let variants = recipe.variants.names().map(Some).chain([None]);
        for variant in variants {
            // Its protocol sends recordings.
            let scenario = match variant {
                Some(name) if name.contains("transcription") => {
                    "clips: { dataset: random-audio, prompts: 2 }"
                }
                _ => "sharegpt",
            };
            for executor in &recipe.executors {
                let variant = variant
                    .map(|variant| format!("variant: {variant}, "))
                    .unwrap_or_default();
                let text = format!(
                    "name: t\nengines:\n  - {name}: {{ {variant}executor: {}, url: \"http://127.0.0.1:1\" }}\nmodels: [some/model]\nscenarios:\n  - {scenario}\n",
                    executor.name()
                );
                let (matrix, mistakes) = yaml::read::<Matrix>(&Source::new("t.yaml", text.clone()));
                assert!(mistakes.is_empty(), "{text}\n{mistakes:?}");
                let plan = plan(&matrix.expect("it reads"), &recipes);
                let launch = &plan.launches[0];
                let line = command::command_line(launch).to_line();
                assert!(executor.name() == "attach" || line.contains("model"), "{line}");
                for hole in ["{model}", "{served}", "{tp}", "{version}"] {
                    assert!(!line.contains(hole), "{name}: {hole} is left in {line}");
                }
            }
        }
    }
}

#[test]
fn qwen3_is_the_published_reports() {
    let plan = plan(&read(&root().join("matrices/qwen3.yaml")), &recipes());
    assert_eq!((plan.cells.len(), plan.launches.len()), (48, 12));
    let lines: BTreeMap<(String, String), String> = plan
        .launches
        .iter()
        .map(|launch| {
            (
                (launch.engine.name.clone(), launch.model.clone()),
                command::command_line(launch).to_line(),
            )
        })
        .collect();
    let line = |engine: &str, model: &str| lines[&(engine.to_owned(), format!("Qwen/{model}"))].clone();
    for (engine, sizes, image, serve) in [
        (
            "sglang",
            [1, 2, 2, 8],
            "lmsysorg/sglang:v0.5.1-cu126",
            // As published, and with the metrics without which rows cannot be judged.
            "python3 -m sglang.launch_server --model-path MODEL --tp TP --host 0.0.0.0 --enable-metrics",
        ),
        (
            "vllm",
            [1, 2, 2, 8],
            "vllm/vllm-openai:v0.10.1",
            "--model MODEL --tensor-parallel-size TP --host 0.0.0.0",
        ),
    ] {
        for (model, tp) in ["Qwen3-8B", "Qwen3-32B", "Qwen3-30B-A3B", "Qwen3-235B-A22B"]
            .into_iter()
            .zip(sizes)
        {
            let line = line(engine, model);
            let serve = serve
                .replace("MODEL", &format!("Qwen/{model}"))
                .replace("TP", &tp.to_string());
            assert!(line.ends_with(&format!("{image} {serve}")), "{line}");
            for part in [
                "docker run --runtime nvidia --gpus all",
                "--net host",
                "--ipc=host",
                ",target=/root/.cache/huggingface_hub",
                "-e HF_HOME=/root/.cache/huggingface_hub",
                "-e TRANSFORMERS_OFFLINE=1",
            ] {
                assert!(line.contains(part), "{part} is missing in {line}");
            }
            assert!(
                !line.contains(" -p "),
                "a port is mapped beside host network: {line}"
            );
            assert_eq!(line.contains("VLLM_LOGGING_LEVEL=ERROR"), engine == "vllm");
        }
    }
    assert_eq!(
        line("lmdeploy", "Qwen3-8B"),
        "lmdeploy serve api_server Qwen/Qwen3-8B-FP8 --tp 1 --enable-metrics"
    );
    assert_eq!(
        line("lmdeploy", "Qwen3-32B"),
        "lmdeploy serve api_server Qwen/Qwen3-32B-FP8 --tp 1 --enable-metrics"
    );
    assert_eq!(
        line("lmdeploy", "Qwen3-30B-A3B"),
        "lmdeploy serve api_server Qwen/Qwen3-30B-A3B-FP8 --tp 1 --enable-metrics"
    );
    assert_eq!(
        line("lmdeploy", "Qwen3-235B-A22B"),
        "lmdeploy serve api_server Qwen/Qwen3-235B-A22B-FP8 --tp 4 --enable-metrics --communicator cuda-ipc"
    );
}

#[test]
fn a_newer_lmdeploy_is_not_asked_for_metrics() {
    let text = "name: t\nengines: [{lmdeploy: {version: 0.16.0}}]\nmodels: [m]\nscenarios: [sharegpt]\n";
    let matrix = yaml::read::<Matrix>(&Source::new("t.yaml", text))
        .0
        .expect("it reads");
    let plan = plan(&matrix, &recipes());
    assert!(
        !command::command_line(&plan.launches[0])
            .to_line()
            .contains("--enable-metrics")
    );
}

/// The engines, models and scenarios of a matrix with much to leak: every level has arguments and variables of its own.
const RICH: &str = r#"
name: rich
engines:
  - sglang: { args: [--a, "1"], env: { E: sglang } }
  - vllm: { version: [v0.10.1, v0.11.0], args: [--b], env: { F: vllm } }
  - lmdeploy: { executor: process, precision: fp8, args: [--c] }
  - sim: { as: sim-a, variant: sglang, args: [--preset, fast] }
  - sim: { as: sim-b, variant: lmdeploy, env: { G: sim } }
models:
  - Qwen/Qwen3-8B: { tp: 1, args: { vllm: [--model-only], default: [--others] } }
  - Qwen/Qwen3-32B: { tp: { lmdeploy: 1, default: [2, 4] }, env: { M: big } }
  - other/model: { tokenizer: other/tokenizer }
scenarios:
  - sharegpt
  - random-1k-1k: { rate: [1, 2] }
axes:
  args: { plain: [], tuned: { vllm: [--tuned], default: [] } }
overrides:
  - { when: { engine: vllm, model: "*32B*" }, args: [--only-here], env: { O: "1" } }
"#;

type Rendered = BTreeMap<String, (String, String, String)>;

/// Every cell with everything that was made for it.
fn rendered(plan: &Plan) -> Rendered {
    let whole = |launch: &Launch| serde_json::to_string(launch).expect("a launch is JSON");
    let of = |cell: &Cell| {
        let launch = plan.launch(&cell.launch);
        let scenario = serde_json::to_string(&cell.scenario).expect("a scenario is JSON");
        (
            cell.key.to_string(),
            (
                command::command_line(launch).to_line(),
                whole(launch),
                format!("{} {scenario}", cell.content),
            ),
        )
    };
    plan.cells.iter().map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn permuting_or_dropping_entries_changes_no_other_cell(
        engines in Just((0..5).collect::<Vec<usize>>()).prop_shuffle(),
        models in Just((0..3).collect::<Vec<usize>>()).prop_shuffle(),
        scenarios in Just((0..2).collect::<Vec<usize>>()).prop_shuffle(),
        keep in (1usize..=5, 1usize..=3, 1usize..=2),
    ) {
        let recipes = recipes();
        let full: Matrix = yaml::read::<Matrix>(&Source::new("rich.yaml", RICH)).0.expect("it reads");
        let all = rendered(&plan(&full, &recipes));
        let mut some = full.clone();
        some.engines.value = engines[..keep.0].iter().map(|at| full.engines[*at].clone()).collect();
        some.models.value = models[..keep.1].iter().map(|at| full.models[*at].clone()).collect();
        some.scenarios.value = scenarios[..keep.2].iter().map(|at| full.scenarios[*at].clone()).collect();
        // By-engine entries may only name engines that are there.
        let names: Vec<&str> = some.engines.iter().map(|named| named.name.value.as_str()).collect();
        prop_assume!(names.contains(&"vllm") && names.contains(&"lmdeploy"));
        // An override that selects none of the cells is an error.
        let mut alone = some.clone();
        some.overrides.retain(|over| {
            alone.overrides = vec![over.clone()];
            expand(&alone, &recipes).is_ok()
        });
        let part = rendered(&plan(&some, &recipes));
        prop_assert!(!part.is_empty());
        for (key, made) in &part {
            prop_assert_eq!(Some(made), all.get(key), "{}", key);
        }
    }
}

/// The launches of a matrix that names shipped recipes.
fn launches(matrix: &str) -> Vec<Launch> {
    let source = Source::new("m.yaml".to_owned(), matrix.to_owned());
    let (matrix, mistakes) = yaml::read::<Matrix>(&source);
    assert!(
        mistakes.is_empty(),
        "{}",
        yaml::render(&mistakes, &[source], false)
    );
    plan(&matrix.expect("it is valid"), &recipes()).launches
}

#[test]
fn each_node_has_a_rank_with_its_share_of_the_gpus() {
    let launches = launches(
        "name: t\nengines:\n  - vllm: { executor: process, nodes: 2, venv: /v, version: v0.20.0 }\nmodels:\n  - Qwen/Qwen3-8B: { tp: 8, pp: 2 }\nscenarios: [random-1k-1k]\n",
    );
    let [launch] = &launches[..] else {
        panic!("{launches:?}")
    };
    assert_eq!((launch.devices, launch.local_gpus(), launch.nodes()), (16, 8, 2));
    let line = command::command_line(launch).to_line();
    let rank = |rank: u32| {
        format!("--nnodes 2 --node-rank {rank} --master-addr \"${{ADDRESS0}}\" --master-port 8005")
    };
    let (first, second) = line.split_once(" & ").expect("there are two");
    for part in [
        ": \"${SLURM_JOB_NODELIST:?enter this on the first node of an allocation}\"; NODE0=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | sed -n 1p); NODE1=",
        "ADDRESS0=$(scontrol show node --oneliner \"$NODE0\" | sed 's/.* NodeAddr=\\([^ ]*\\).*/\\1/'); CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 vllm serve",
    ] {
        assert!(first.contains(part), "{line}");
    }
    assert!(
        first.contains(&rank(0)) && !first.contains("--headless"),
        "{line}"
    );
    let srun = "srun --overlap --nodes=1 --ntasks=1 --cpu-bind=none --nodelist=\"$NODE1\" vllm serve";
    assert!(second.starts_with(srun), "{line}");
    assert!(
        second.contains(&rank(1)) && second.contains(" --headless"),
        "{line}"
    );
}

#[test]
fn roles_run_on_their_nodes_and_over_several() {
    let launches = launches(
        r#"
name: t
engines:
  - sglang:
      executor: process
      venv: /v
      version: v0.5.5
      roles:
        prefill: { node: [0, 1], tp: 2, args: [--disaggregation-mode, prefill, --host, "{host}"] }
        decode: { node: 1, nodes: 2, tp: 8, args: [--disaggregation-mode, decode] }
        router:
          endpoint: true
          command: [router, --port, "{port}"]
          for_each: { prefill: [--prefill, "{url}", "{aux_port}"], decode: [--decode, "{url}"] }
models: [m]
scenarios: [random-1k-1k]
"#,
    );
    let [launch] = &launches[..] else {
        panic!("{launches:?}")
    };
    let named: Vec<(&str, u32, u32)> = launch
        .members()
        .iter()
        .map(|member| (member.name.as_str(), member.node, member.gpus))
        .collect();
    let expected = [
        ("prefill 1", 0, 2),
        ("prefill 2", 1, 2),
        ("decode rank 0", 1, 4),
        ("decode rank 1", 2, 4),
        ("router", 0, 0),
    ];
    assert_eq!(named, expected);
    assert_eq!((launch.devices, launch.local_gpus(), launch.nodes()), (12, 2, 3));
    assert_eq!(launch.gpus_of_a_node(), 6);
    let line = command::command_line(launch).to_line();
    let ranks =
        |rank: u32| format!("--nnodes 2 --node-rank {rank} --dist-init-addr \"${{ADDRESS1}}:30013\" --port");
    for part in [
        "NODE2=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | sed -n 3p); ",
        "--disaggregation-mode prefill --host \"${ADDRESS0}\" --port 30001 & ",
        "--nodelist=\"$NODE1\" env CUDA_VISIBLE_DEVICES=0,1 python3",
        "--nodelist=\"$NODE1\" env CUDA_VISIBLE_DEVICES=2,3,4,5 python3",
        "--disaggregation-mode prefill --host \"${ADDRESS1}\" --port 30003 & ",
        &ranks(0),
        &ranks(1),
        "--nodelist=\"$NODE2\" python3",
        "--prefill \"http://${ADDRESS0}:30001\" 30002 --prefill \"http://${ADDRESS1}:30003\" 30004 --decode \"http://${ADDRESS1}:30005\"",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[test]
fn roles_of_an_engine_without_gpus_have_none() {
    let matrix = |devices: &str| {
        format!(
            "name: t\nengines:\n  - sim: {{ {devices}roles: {{ decode: {{ tp: 2, args: [x] }}, router: {{ endpoint: true }} }} }}\nmodels: [m]\nscenarios: [random-1k-1k]\n"
        )
    };
    assert_eq!(launches(&matrix(""))[0].devices, 0);
    assert_eq!(launches(&matrix("devices: gpu, "))[0].devices, 2);
}

#[test]
fn a_job_that_cannot_measure_the_plan_is_refused() {
    let matrix = "name: t\nengines:\n  - vllm: { executor: process, venv: /v, version: v0.20.0 }\nmodels:\n  - Qwen/Qwen3-8B: { tp: 4 }\nscenarios:\n  - random-1k-1k: { prompts: 1000, rate: 2 }\n";
    let source = Source::new("m.yaml".to_owned(), matrix.to_owned());
    let (matrix, _) = yaml::read::<Matrix>(&source);
    let plan = plan(&matrix.expect("it is valid"), &recipes());
    let why = |profile: &str| crate::plan::job::impossible(&plan, &serde_json::from_str(profile).unwrap());
    let gpus = why(r#"{"gpus": 2}"#).expect("four are needed");
    assert!(
        gpus.contains("needs 4 GPUs on each node") && gpus.contains("at least `gpus: 4`"),
        "{gpus}"
    );
    let limit = why(r#"{"time_limit": "5m"}"#).expect("it takes longer");
    for part in [
        "sends requests for 8m 20s",
        "`time_limit: 5m`",
        "at least `time_limit: 12m`",
    ] {
        assert!(limit.contains(part), "{limit}");
    }
    assert_eq!(why(r#"{"gpus": 4, "time_limit": "12m"}"#), None);
}

#[test]
fn roles_have_ports_gpus_and_addresses_of_one_another() {
    let launches = launches(
        r#"
name: t
engines:
  - sglang:
      executor: process
      venv: /v
      version: v0.5.5
      args: [--mem-fraction-static, "0.8"]
      roles:
        prefill: { count: 2, gpus: 1, args: [--disaggregation-mode, prefill, --disaggregation-bootstrap-port, "{aux_port}"] }
        decode: { tp: 2, args: [--disaggregation-mode, decode] }
        router:
          endpoint: true
          command: [python, -m, sglang_router.launch_router, --pd-disaggregation, --port, "{port}"]
          health: /health
          for_each: { prefill: [--prefill, "{url}", "{aux_port}"], decode: [--decode, "{url}"] }
models: [m]
scenarios: [random-1k-1k]
"#,
    );
    let [launch] = &launches[..] else {
        panic!("{launches:?}")
    };
    assert_eq!((launch.devices, launch.local_gpus(), launch.nodes()), (4, 4, 1));
    let names: Vec<&str> = launch
        .members()
        .iter()
        .map(|member| member.name.as_str())
        .collect();
    assert_eq!(names, ["prefill 1", "prefill 2", "decode", "router"]);
    let line = command::command_line(launch).to_line();
    for part in [
        "CUDA_VISIBLE_DEVICES=0 ",
        "--mem-fraction-static 0.8 --disaggregation-mode prefill --disaggregation-bootstrap-port 30002 --port 30001 & CUDA_VISIBLE_DEVICES=1 ",
        "--disaggregation-bootstrap-port 30004 --port 30003 & CUDA_VISIBLE_DEVICES=2,3 ",
        "CUDA_VISIBLE_DEVICES=2,3 python3 -m sglang.launch_server --model-path m --tp 2 ",
        "--disaggregation-mode decode --port 30005 & python -m",
        "--port 30000 --prefill http://127.0.0.1:30001 30002 --prefill http://127.0.0.1:30003 30004 --decode http://127.0.0.1:30005",
    ] {
        assert!(line.contains(part), "{part} is missing in {line}");
    }
    assert!(
        launch.api.metrics.is_none(),
        "the counters of one process are not those of the load"
    );
}
