//! Two users on one host, where `/proc` hides each from the other. In namespaces of the test's own, for which it must be root.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::harness::Ran;

/// The user that owns nothing.
const NOBODY: u32 = 65534;

/// A folder that every user may read and write, with the binary in it; `None` where users and namespaces cannot be had.
#[track_caller]
fn shared(test: &str) -> Option<(tempfile::TempDir, PathBuf)> {
    let namespaces = Command::new("unshare").args(["-m", "true"]).output();
    let can = rustix::process::geteuid().is_root() && namespaces.is_ok_and(|output| output.status.success());
    if !can {
        crate::skip::skip(&format!("{test} needs root and namespaces"));
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder can be made");
    open_to_all(folder.path());
    let binary = folder.path().join("matrix");
    fs::copy(crate::binary::matrix(), &binary).expect("the binary can be copied");
    Some((folder, binary))
}

fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("it is ours");
}

/// `matrix clean` as another user, where `/proc` shows only that user's processes.
fn clean_as_nobody(folder: &Path, binary: &Path) -> Ran {
    let script = format!(
        "mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups '{}' clean",
        binary.display()
    );
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", &script])
        .current_dir(folder)
        .env("HOME", folder)
        .env("MATRIX_CACHE", folder.join("cache"))
        .env("DOCKER_HOST", "unix:///nowhere/docker.sock");
    Ran::from(command.output().expect("unshare runs"))
}

/// A process of nobody that carries marks of a run whose owner is this one.
fn marked(owner: &Child) -> Child {
    let read = |name: String| fs::read_to_string(name).expect("/proc can be read");
    let stat = read(format!("/proc/{}/stat", owner.id()));
    let started = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(19));
    let boot = read("/proc/sys/kernel/random/boot_id".to_owned());
    let namespace = fs::read_link("/proc/self/ns/pid").expect("/proc can be read");
    let namespace = namespace.display().to_string().replace("pid:", "");
    let mut command = Command::new("sleep");
    command
        .arg("61")
        .env("MATRIX_RUN", "a-run")
        .env("MATRIX_START", "x#1")
        .env(
            "MATRIX_OWNER",
            format!(
                "{}:{}:{}:{namespace}",
                owner.id(),
                started.expect("it has a start"),
                boot.trim()
            ),
        )
        .uid(NOBODY)
        .gid(NOBODY)
        .process_group(0);
    command.spawn().expect("sleep is there")
}

#[test]
fn what_belongs_to_a_live_run_of_a_user_that_cannot_be_seen_is_not_swept() {
    let Some((folder, binary)) = shared("a hidden owner") else {
        return;
    };
    let mut owner = Command::new("sleep")
        .arg("62")
        .stdin(Stdio::null())
        .spawn()
        .expect("sleep is there");
    let mut engine = marked(&owner);
    let alive = clean_as_nobody(folder.path(), &binary);
    let is_alive = engine.try_wait().expect("it can be asked").is_none();
    owner.kill().expect("it lives");
    owner.wait().expect("it ends");
    assert!(
        is_alive,
        "the engine of a live run was ended: {}{}",
        alive.stdout, alive.stderr
    );
    // There is no daemon at the address that was named, and `clean` says so.
    alive.exits(4).says("cannot list the containers");
    // Once its owner has ended it is ended: here, or by a run of another test.
    clean_as_nobody(folder.path(), &binary).exits(4);
    engine.wait().expect("it was ended");
}

/// A user whom nobody else is, so that all its threads are those of the test.
const ALONE: u32 = 61_979;

#[test]
fn too_few_threads_are_told_with_the_limit_and_are_no_interruption() {
    let Some((folder, binary)) = shared("a limit on threads") else {
        return;
    };
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (there, here) in [("engines", "engines"), ("matrices/data", "data")] {
        std::os::unix::fs::symlink(repository.join(there), folder.path().join(here))
            .expect("a link can be made");
    }
    let matrix = folder.path().join("m.yaml");
    let text = "name: t\nengines: [sim]\nmodels: [m: { tokenizer: data/tokenizer.json }]\nscenarios:\n  - random-ids: { dataset: random-ids, prompts: 2, input_len: 4, output_len: 4, warmup: 0 }\n";
    fs::write(&matrix, text).expect("a file can be written");
    let user = ALONE.to_string();
    let limited = |limit: &str, command: &[&str]| {
        let mut outer = Command::new("setpriv");
        outer
            .args([
                "--reuid",
                &user,
                "--regid",
                &user,
                "--clear-groups",
                "prlimit",
                limit,
            ])
            .arg(&binary)
            .args(command)
            .current_dir(folder.path())
            .env("HOME", folder.path())
            .env("MATRIX_CACHE", folder.path().join("cache"));
        Ran::from(outer.output().expect("setpriv runs"))
    };
    for limit in ["--nproc=1", "--nproc=2"] {
        for command in ["check", "plan", "run"] {
            let ran = limited(limit, &[command, "m.yaml"]).exits(4);
            ran.says("cannot start a thread").says("`ulimit -u` (now ");
        }
    }
    limited("--nproc=3", &["check", "m.yaml"]).exits(0);
    // These are enough to begin, and too few for the runtime, the tokenizer or the load.
    for limit in 3..16 {
        let limit = format!("--nproc={limit}");
        let ran = limited(&limit, &["run", "m.yaml", "--no-calibration"]).exits(4);
        ran.says("`pids.max`").says("nothing was started");
    }
    assert!(!folder.path().join("results").exists(), "nothing was begun");
}
