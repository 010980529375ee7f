//! Tests of the whole module with real processes.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::testing::{
    SECRET, SERVER_SCRIPT, TestEnv, attach_launch, command_launch, process, python_launch, shell_launch,
};
use super::*;
use crate::base::units::HumanDuration;
use crate::config::template::Template;
use crate::plan::Launch;
use crate::plan::Venv;
use crate::results::record::cell::{FailureClass, Phase};

async fn wait_until(mut what: impl FnMut() -> bool) {
    let waited = timeout(Duration::from_secs(20), async {
        while !what() {
            sleep(Duration::from_millis(10)).await;
        }
    });
    waited.await.expect("what is waited for comes within 20 s");
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim().chars().next();
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

/// Waits until a script has printed `count` process ids, one per line, and returns them.
async fn printed_pids(running: &RunningEngine, count: usize) -> Vec<String> {
    wait_until(|| running.log().tail().len() >= count).await;
    running.log().tail()
}

async fn not_ready(env: &TestEnv, launch: &Launch) -> (NotReady, f64) {
    let mut running = env.start(launch).await.unwrap();
    let started_at = Instant::now();
    let error = wait_until_ready(
        &mut running,
        launch,
        &http_client(),
        || async { Ok(()) },
        || None,
        |_| {},
    )
    .await
    .unwrap_err();
    let seconds = started_at.elapsed().as_secs_f64();
    running.stop().await;
    (error, seconds)
}

#[tokio::test]
async fn a_log_is_whole_from_the_first_byte_and_holds_no_secret() {
    let env = TestEnv::new();
    let mut launch = shell_launch(
        "printf 'first\\nkey '; printf %.9s \"$TOKEN\"; sleep 0.2; printf %s \"${TOKEN#hunter2-h}\" >&2; echo; printf last",
    );
    process(&mut launch).env = vec![("TOKEN".into(), Template::new("${KEY}"))];
    let mut running = env.start(&launch).await.unwrap();
    let engine_exit = running.wait_for_exit().await;
    assert_eq!(engine_exit.status, "the engine ended (exit status: 0)");
    assert_eq!(engine_exit.end.and_then(|end| end.code), Some(0));
    assert_eq!(engine_exit.tail, ["first", "key ***", "last"]);
    assert_eq!(running.log().bytes(), 30);
    running.stop().await;
    let written = env.written_text();
    assert!(written.contains("first\nkey ***\nlast"), "{written}");
    assert!(!written.contains(SECRET) && !written.contains("hunter2"));
}

#[tokio::test]
async fn a_process_gets_its_marks_devices_folder_and_variables() {
    let env = TestEnv::new();
    let mut launch = shell_launch("env; pwd; echo args $0 $1");
    launch.devices = 2;
    let wanted = process(&mut launch);
    wanted
        .command
        .extend([Template::new("{port}"), Template::new("{devices}")]);
    wanted.devices_env = Some("GPUS".into());
    wanted.dir = Some(Template::new("results"));
    wanted.env = vec![("PLACE".into(), Template::new("{dir}/x"))];
    let context = StartContext {
        devices: vec![3, 5],
        device_names: vec!["3".to_owned(), "MIG-5".to_owned()],
        ..env.context()
    };
    let mut running = start(&launch, &context, env.logs(&launch), &|_| {})
        .await
        .unwrap();
    running.wait_for_exit().await;
    let mut from = 0;
    let output = running.log().slice_from(&mut from);
    for line in [
        "GPUS=3,MIG-5\n".to_owned(),
        format!("PLACE={}/x\n", env.path().display()),
        "MATRIX_RUN=r\n".to_owned(),
        format!("MATRIX_START={}#1\n", launch.id),
        format!("MATRIX_OWNER={}:", std::process::id()),
        format!("{}\n", env.path().join("results").display()),
        format!("args {} 3,MIG-5\n", context.port),
    ] {
        assert!(output.contains(&line), "{line} is not in:\n{output}");
    }
    assert!(!output.contains("PYTHONDONTWRITEBYTECODE"));
    assert_eq!(running.devices(), &Devices::Local(vec![3, 5]));
    running.stop().await;
}

#[tokio::test]
async fn without_devices_the_variable_is_not_set() {
    let env = TestEnv::new();
    let mut launch = shell_launch("env | grep GPUS_OF_THIS_TEST; true");
    process(&mut launch).devices_env = Some("GPUS_OF_THIS_TEST".into());
    let mut running = env.start(&launch).await.unwrap();
    assert_eq!(running.wait_for_exit().await.tail, Vec::<String>::new());
    running.stop().await;
}

#[tokio::test]
async fn cuda_counts_devices_as_the_bus_does_unless_the_recipe_says_otherwise() {
    let env = TestEnv::new();
    for (own, order) in [(None, "PCI_BUS_ID"), (Some("FASTEST_FIRST"), "FASTEST_FIRST")] {
        let mut launch = shell_launch("env | grep CUDA_DEVICE_ORDER");
        launch.devices = 1;
        let wanted = process(&mut launch);
        wanted.devices_env = Some("CUDA_VISIBLE_DEVICES".into());
        wanted
            .env
            .extend(own.map(|own| ("CUDA_DEVICE_ORDER".into(), Template::new(own))));
        let mut running = env.start(&launch).await.unwrap();
        let output = running.wait_for_exit().await.tail;
        assert_eq!(output, [format!("CUDA_DEVICE_ORDER={order}")]);
        running.stop().await;
    }
}

#[tokio::test]
async fn stopping_ends_children_grandchildren_and_those_that_left_the_group() {
    let env = TestEnv::new();
    let launch = shell_launch(
        "echo $$; sh -c 'echo $$; sleep 301 & echo $!; wait' & setsid sh -c 'echo $$; sleep 302; true' & wait",
    );
    let running = env.start(&launch).await.unwrap();
    let pids = printed_pids(&running, 4).await;
    assert!(pids.iter().all(|pid| is_alive(pid)), "{pids:?}");
    let stopped = running.stop().await;
    assert!(
        stopped.description.contains("SIGTERM") && !stopped.description.contains("killed"),
        "{}",
        stopped.description
    );
    assert!(
        !pids.iter().any(|pid| is_alive(pid)),
        "{pids:?} after: {}",
        stopped.description
    );
}

#[tokio::test]
async fn what_ignores_sigterm_is_killed_after_its_grace() {
    let env = TestEnv::new();
    let mut launch = shell_launch("trap '' TERM; echo $$; while :; do sleep 0.05; done");
    launch.timeouts.stop = HumanDuration(Duration::from_millis(300));
    let running = env.start(&launch).await.unwrap();
    let pids = printed_pids(&running, 1).await;
    let stopped = running.stop().await;
    assert!(
        stopped
            .description
            .contains("killed after a grace period of 300ms (signal: 9 (SIGKILL))"),
        "{}",
        stopped.description
    );
    assert!(stopped.seconds >= 0.3);
    assert!(!is_alive(&pids[0]));
}

#[tokio::test]
async fn what_a_dead_engine_leaves_is_stopped_too() {
    let env = TestEnv::new();
    let launch = shell_launch("sleep 303 & echo $!; kill -9 $$");
    let mut running = env.start(&launch).await.unwrap();
    assert_eq!(
        running.wait_for_exit().await.status,
        "the engine ended (signal: 9 (SIGKILL))"
    );
    assert_eq!(
        running.wait_for_exit().await.status,
        "the engine ended (signal: 9 (SIGKILL))",
        "asked again it says the same"
    );
    let pid = running.log().tail().remove(0);
    assert!(is_alive(&pid));
    let stopped = running.stop().await;
    assert!(
        stopped.description.starts_with("the process had already ended"),
        "{}",
        stopped.description
    );
    assert!(!is_alive(&pid));
}

#[tokio::test]
async fn dropping_an_engine_kills_its_group() {
    let env = TestEnv::new();
    let launch = shell_launch("trap '' TERM; setsid sleep 304 & echo $!; echo $$; wait");
    let running = env.start(&launch).await.unwrap();
    let pids = printed_pids(&running, 2).await;
    drop(running);
    wait_until(|| !pids.iter().any(|pid| is_alive(pid))).await;
}

#[tokio::test]
async fn death_while_loading_is_noticed_within_a_second_and_explained() {
    let env = TestEnv::new();
    let launch = shell_launch("echo Loading; echo CUDA out of memory; echo last words >&2; exit 3");
    let (error, seconds) = not_ready(&env, &launch).await;
    assert!(seconds < 1.0, "{seconds}");
    assert_eq!(error.tail(), ["Loading", "CUDA out of memory", "last words"]);
    assert_eq!(
        error.to_string(),
        "the engine ended (exit status: 3) before it was ready: the memory does not hold it (`CUDA out of memory`); raise tp"
    );
}

#[tokio::test]
async fn a_fatal_line_ends_the_wait_though_the_process_lives() {
    let env = TestEnv::new();
    let (error, _) = not_ready(&env, &shell_launch("echo core died; exec sleep 305")).await;
    assert!(
        matches!(&error, NotReady::Fatal { fatal_line, .. } if fatal_line.line == "core died"),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .ends_with("its core died (`core died`); read above"),
        "{error}"
    );
}

#[tokio::test]
async fn a_silent_log_is_a_stall_and_a_busy_one_is_late() {
    let env = TestEnv::new();
    let mut silent = shell_launch("echo Loading; exec sleep 306");
    silent.timeouts.stall = HumanDuration(Duration::from_millis(700));
    let (error, _) = not_ready(&env, &silent).await;
    assert!(
        matches!(&error, NotReady::Stalled { phase, .. } if phase == "weights"),
        "{error}"
    );
    let mut busy = shell_launch("while :; do echo working; sleep 0.1; done");
    busy.timeouts.stall = HumanDuration(Duration::from_millis(700));
    busy.timeouts.start = HumanDuration(Duration::from_millis(1500));
    let (error, seconds) = not_ready(&env, &busy).await;
    assert!(matches!(error, NotReady::TimedOut { .. }), "{error}");
    assert!(seconds >= 1.4, "{seconds}");
}

#[tokio::test]
async fn a_server_gets_ready_tells_about_itself_and_its_reset_is_not_believed() {
    let env = TestEnv::new();
    let mut launch = python_launch(SERVER_SCRIPT);
    launch.api.headers = vec![("Authorization".into(), Template::new("Bearer ${KEY}"))];
    let http = http_client();
    let mut running = env.start(&launch).await.unwrap();
    let mut progress_phases = Vec::new();
    let readiness = wait_until_ready(
        &mut running,
        &launch,
        &http,
        || async { Ok(()) },
        || None,
        |progress| progress_phases.push(progress),
    )
    .await
    .unwrap();
    assert!(readiness.seconds > 0.0 && !progress_phases.is_empty());
    let phases: Vec<&str> = readiness.phases.iter().map(|(phase, _)| phase.as_str()).collect();
    assert_eq!(phases, ["start", "weights", "first-token"]);
    let (client, limit) = (running.endpoint().control_client(&http), Duration::from_secs(60));
    let facts = fetch_facts(&launch, &client).await;
    assert_eq!(facts.version.as_deref(), Some("1.2.3"));
    assert_eq!(facts.models, ["m", "lora"]);
    assert_eq!(
        facts.info,
        Some(serde_json::json!({ "a": 1 })),
        "the header was sent"
    );
    let path = launch.api.info.as_deref().unwrap();
    assert_eq!(client.json(path, limit).await.ok(), facts.info);
    assert!(!format!("{:?}", running.endpoint()).contains(SECRET));
    assert_eq!(check_model(&launch, &facts), Ok(()));
    let other = Launch {
        served_model_name: "x".into(),
        ..launch.clone()
    };
    assert!(
        check_model(&other, &facts)
            .unwrap_err()
            .contains("serves `m` and `lora`, but `x` is requested")
    );
    let reset = reset_caches(launch.api.reset.as_ref(), &client, limit).await;
    assert!(reset.error.is_none());
    let proof = reset.proof;
    assert_eq!(
        (proof.possible, proof.status, proof.success),
        (true, Some(200), Some(false))
    );
    assert!(proof.answer.unwrap().contains("busy"));
    // The same server as an attached one.
    let far = attach_launch(&format!("http://127.0.0.1:{}", running.endpoint().port));
    let mut attachment = env.start(&far).await.unwrap();
    wait_until_ready(&mut attachment, &far, &http, || async { Ok(()) }, || None, |_| {})
        .await
        .unwrap();
    assert_eq!(attachment.devices(), &Devices::Remote);
    attachment.stop().await;
    assert!(
        is_alive(&running.identity()),
        "what somebody else started is not stopped"
    );
    running.stop().await;
}

#[tokio::test]
async fn waiting_for_a_token_shows_the_last_answer_and_its_own_limit() {
    let env = TestEnv::new();
    let mut running = env.start(&python_launch(SERVER_SCRIPT)).await.unwrap();
    wait_until_ready(
        &mut running,
        &python_launch(SERVER_SCRIPT),
        &http_client(),
        || async { Ok(()) },
        || None,
        |_| {},
    )
    .await
    .unwrap();
    let mut far = attach_launch(&format!("http://127.0.0.1:{}", running.endpoint().port));
    far.timeouts.probe = HumanDuration::from_secs(2);
    let mut attachment = env.start(&far).await.unwrap();
    let probe = || async { Err(NoToken::NotYet("status 500".to_owned())) };
    let (mut progress_phases, http) = (Vec::new(), http_client());
    let waiting = wait_until_ready(
        &mut attachment,
        &far,
        &http,
        probe,
        || None,
        |progress| {
            progress_phases.push(progress.last_line);
        },
    );
    waiting.await.unwrap_err();
    let last = progress_phases.last().unwrap();
    assert_eq!(last, "the first request: status 500; waiting for at most 2s");
    running.stop().await;
}

#[tokio::test]
async fn health_without_a_token_is_a_lie() {
    let env = TestEnv::new();
    let launch = python_launch(SERVER_SCRIPT);
    let mut running = env.start(&launch).await.unwrap();
    let probe = || async { Err(NoToken::NotYet("the answer has no text".to_owned())) };
    let error = wait_until_ready(&mut running, &launch, &http_client(), probe, || None, |_| {})
        .await
        .unwrap_err();
    assert!(matches!(error, NotReady::FalseHealth { .. }));
    let output = error.to_string();
    assert!(
        output.contains("sent no token within 400ms: the answer has no text"),
        "{output}"
    );
    running.stop().await;
}

#[tokio::test]
async fn death_during_the_probe_is_death() {
    let env = TestEnv::new();
    let mut launch = python_launch(SERVER_SCRIPT);
    launch.timeouts.probe = HumanDuration::from_secs(20);
    let mut running = env.start(&launch).await.unwrap();
    let pid = running.identity();
    let kill = || {
        Command::new("kill").args(["-9", &pid]).status().unwrap();
        std::future::pending()
    };
    let error = wait_until_ready(&mut running, &launch, &http_client(), kill, || None, |_| {})
        .await
        .unwrap_err();
    assert!(
        matches!(&error, NotReady::Exited { status, .. } if status == "the engine ended (signal: 9 (SIGKILL))"),
        "{error}"
    );
    running.stop().await;
}

#[tokio::test]
async fn what_cannot_start_says_what_is_missing() {
    let env = TestEnv::new();
    let output = |result: Result<RunningEngine, StartError>| result.unwrap_err().to_string();
    let missing = output(env.start(&command_launch(&["no-such-program-here"])).await);
    assert!(
        missing.contains("`no-such-program-here` was not found in PATH (/"),
        "{missing}"
    );
    let slash = output(env.start(&command_launch(&["./no/such"])).await);
    assert!(slash.contains("`./no/such` was not found in /"), "{slash}");
    let hole = output(env.start(&command_launch(&["sh", "{hf_home}"])).await);
    assert_eq!(
        hole,
        "`{hf_home}` in `command:`: the placeholder `{hf_home}` has no value"
    );
    let mut secret = shell_launch("true");
    process(&mut secret).env = vec![("A".into(), Template::new("${NOPE}"))];
    let secret = output(env.start(&secret).await);
    assert!(secret.contains("`NOPE` is not set"), "{secret}");
    let mut folder = shell_launch("true");
    process(&mut folder).dir = Some(Template::new("nowhere"));
    assert!(output(env.start(&folder).await).contains("nowhere does not exist"));
    let url = output(env.start(&attach_launch("host:8000")).await);
    assert!(url.contains("`host:8000` cannot be used"), "{url}");
    let context = env.context();
    let _taken = std::net::TcpListener::bind(("127.0.0.1", context.port)).unwrap();
    let launch = shell_launch("true");
    let taken = start(&launch, &context, env.logs(&launch), &|_| {})
        .await
        .unwrap_err();
    assert!(matches!(taken, StartError::PortTaken { port } if port == context.port));
}

/// A process with the ownership tags of some owner, in its own process group.
fn spawn_tagged(owner: &str) -> Child {
    Command::new("sleep")
        .arg("307")
        .env("MATRIX_RUN", "r")
        .env("MATRIX_START", "swept#1")
        .env("MATRIX_OWNER", owner)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn only_what_a_dead_owner_left_is_swept() {
    let living = Owner::current().unwrap().to_string();
    let mut parts: Vec<String> = living.split(':').map(str::to_owned).collect();
    parts[1] = "1".into();
    let mut own_group = Command::new("sh");
    own_group
        .args([
            "-c",
            "trap '' TERM; env -i sleep 308 & echo $!; while :; do sleep 0.05; done",
        ])
        .env("MATRIX_RUN", "r")
        .env("MATRIX_START", "swept#1")
        .env("MATRIX_OWNER", parts.join(":"))
        .stdout(Stdio::piped())
        .process_group(0);
    let mut left = own_group.spawn().unwrap();
    let mut bare = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(left.stdout.take().unwrap()),
        &mut bare,
    )
    .unwrap();
    let bare = bare.trim().to_owned();
    let mut live = spawn_tagged(&living);
    let mut stranger = Command::new("sleep").arg("309").spawn().unwrap();
    wait_until(|| {
        find_owned_processes(false)
            .iter()
            .any(|process| process.pid == live.id())
    })
    .await;
    wait_until(|| {
        find_owned_processes(true)
            .iter()
            .any(|process| process.pid.to_string() == bare)
    })
    .await;
    let result = sweep(
        Duration::from_millis(300),
        &DockerEnv::with_host("unix:///no/such/daemon"),
        std::path::Path::new("/no/such/cache"),
    )
    .await
    .removed;
    let named = |pid: u32| {
        result
            .iter()
            .any(|what| what.starts_with(&format!("process {pid} ")))
    };
    assert!(
        named(left.id())
            && result
                .iter()
                .any(|what| what.starts_with(&format!("process {bare} "))),
        "{result:?}"
    );
    assert!(!named(live.id()) && !named(stranger.id()), "{result:?}");
    assert!(!is_alive(&left.id().to_string()) && !is_alive(&bare));
    assert!(is_alive(&live.id().to_string()) && is_alive(&stranger.id().to_string()));
    for child in [&mut left, &mut live, &mut stranger] {
        let _ = child.kill();
        child.wait().unwrap();
    }
}

fn venv(version: &str) -> Venv {
    Venv {
        path: None,
        packages: Vec::new(),
        distribution: Some("pip".into()),
        version: Some(version.into()),
        python: "python3".into(),
    }
}

#[tokio::test]
async fn an_environment_is_made_once_used_first_in_path_and_held_to_its_version() {
    let env = TestEnv::new();
    let mut launch = command_launch(&["sh", "-c", "command -v python; echo $VIRTUAL_ENV"]);
    launch.engine.version = Some("1.0".into());
    process(&mut launch).venv = Some(venv("0.0.1"));
    let refused = env.start(&launch).await.unwrap_err();
    let StartError::Venv(VenvError::OtherVersion { installed, path, .. }) = &refused else {
        panic!("{refused}")
    };
    assert!(refused.to_string().contains("0.0.1 is requested"), "{refused}");
    assert_eq!(refused.phase(), Phase::Install);
    let made = std::fs::metadata(path.join("matrix-stamp"))
        .unwrap()
        .modified()
        .unwrap();
    process(&mut launch).venv = Some(venv(&format!("v{installed}+cpu")));
    let mut running = env.start(&launch).await.unwrap();
    let tail = running.wait_for_exit().await.tail;
    assert_eq!(
        tail,
        [
            path.join("bin/python").display().to_string(),
            path.display().to_string()
        ]
    );
    running.stop().await;
    assert_eq!(
        std::fs::metadata(path.join("matrix-stamp"))
            .unwrap()
            .modified()
            .unwrap(),
        made,
        "made once"
    );
    // An existing environment that the recipe names, and a folder that is none.
    process(&mut launch).venv = Some(Venv {
        path: Some(Template::new(path.to_string_lossy())),
        ..venv(installed)
    });
    let running = env.start(&launch).await.unwrap();
    running.stop().await;
    process(&mut launch).venv = Some(Venv {
        path: Some(Template::new("nowhere")),
        ..venv(installed)
    });
    assert!(
        env.start(&launch)
            .await
            .unwrap_err()
            .to_string()
            .contains("no Python environment at")
    );
    // An incomplete environment is removed and created again.
    std::fs::remove_file(path.join("matrix-stamp")).unwrap();
    std::fs::write(path.join("rubbish"), "x").unwrap();
    process(&mut launch).venv = Some(venv(installed));
    env.start(&launch).await.unwrap().stop().await;
    assert!(!path.join("rubbish").exists() && path.join("matrix-stamp").exists());
}

#[tokio::test]
async fn two_starts_at_once_make_an_environment_once() {
    let env = TestEnv::new();
    let mut launches = [shell_launch("true"), shell_launch("true")];
    for launch in &mut launches {
        process(launch).venv = Some(Venv {
            version: None,
            ..venv("")
        });
    }
    let (a, b) = tokio::join!(env.start(&launches[0]), env.start(&launches[1]));
    a.unwrap().stop().await;
    b.unwrap().stop().await;
    assert_eq!(
        env.written_text().matches("-m venv").count(),
        1,
        "{}",
        env.written_text()
    );
}

#[tokio::test]
async fn giving_up_an_installation_ends_it_and_the_next_one_begins_anew() {
    let env = TestEnv::new();
    let mut launch = shell_launch("true");
    let wanted = Venv {
        version: None,
        ..venv("")
    };
    process(&mut launch).venv = Some(wanted);
    let given_up = timeout(Duration::from_millis(300), env.start(&launch)).await;
    assert!(given_up.is_err(), "making an environment takes longer");
    let mark = format!("{}#1", launch.id);
    let own = Owner::current().unwrap();
    wait_until(|| {
        !find_owned_processes(false)
            .iter()
            .any(|left| left.start == mark && left.owner == own)
    })
    .await;
    env.start(&launch).await.unwrap().stop().await;
}

#[tokio::test]
async fn a_failed_installation_says_what_pip_said_and_leaves_no_stamp() {
    let env = TestEnv::new();
    let mut launch = shell_launch("true");
    let packages = vec!["--no-index".into(), "no-such-package-here".into()];
    process(&mut launch).venv = Some(Venv {
        packages,
        ..venv("1")
    });
    let error = env.start(&launch).await.unwrap_err();
    assert_eq!(
        (error.phase(), error.class()),
        (Phase::Install, FailureClass::Image)
    );
    assert!(
        error
            .tail()
            .iter()
            .any(|line| line.contains("no-such-package-here")),
        "{:?}",
        error.tail()
    );
    assert!(
        env.written_text().contains("No matching distribution"),
        "the log of the installation has it"
    );
    let venvs = std::fs::read_dir(env.path().join("cache/venvs")).unwrap();
    assert!(
        venvs
            .filter_map(Result::ok)
            .all(|entry| !entry.path().join("matrix-stamp").exists())
    );
}
