//! Two users with a run each on one host, where `/proc` hides each from the other, at one daemon. In namespaces of the test's own, for
//! which it must be root.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::chaos::OwnDaemon;
use crate::daemon::{Daemon, end, folder, make_image, until};
use crate::harness::{Bench, Ran};
use matrix::results::record::cell::MeasurementStatus;

/// The user that owns nothing.
const NOBODY: u32 = 65534;

/// One engine in a container, one as a process that ends only by force, some seconds each.
fn matrix(name: &str, tokens: u32) -> String {
    format!(
        "name: {name}\nengines:\n  - box: {{ as: {name}box, args: [--ttft, 10ms, --itl, 10ms] }}\n  \
         - sim: {{ as: {name}sim, variant: vllm, devices: gpu, timeouts: {{ stop: 1s }}, args: [--ttft, 10ms, --itl, 10ms, --ignore-sigterm] }}\n\
         models:\n  - m: {{ tokenizer: data/tokenizer.json }}\n\
         scenarios:\n  - random-1k-1k: {{ prompts: 2, input_len: 16, output_len: {tokens}, warmup: 0 }}\n\
         datasets: {{ sharegpt: data/conversations.json }}\n"
    )
}

/// Two users of one host.
struct Two {
    own: OwnDaemon,
    /// Where the locks of both are, and the binary that both use.
    shared: tempfile::TempDir,
}

impl Two {
    #[track_caller]
    fn or_skip(test: &str) -> Option<Self> {
        Daemon::or_skip()?;
        let namespaces = Command::new("unshare").args(["-m", "true"]).output();
        let can =
            rustix::process::geteuid().is_root() && namespaces.is_ok_and(|output| output.status.success());
        if !can {
            crate::skip::skip(&format!("{test} needs root and namespaces"));
            return None;
        }
        let own = OwnDaemon::with("");
        make_image(&own.daemon.host);
        let socket = Path::new(own.daemon.host.trim_start_matches("unix://")).to_owned();
        open(&socket);
        open(socket.parent().expect("it lies in a folder"));
        let shared = tempfile::tempdir().expect("a folder can be made");
        open(shared.path());
        let binary = shared.path().join("matrix");
        fs::copy(crate::binary::matrix(), binary).expect("the binary can be copied");
        fs::create_dir(shared.path().join("locks")).expect("a folder can be made");
        open(&shared.path().join("locks"));
        Some(Self { own, shared })
    }

    /// A folder for a run of either user.
    fn bench(&self, name: &str, tokens: u32) -> Bench {
        let bench = self.own.daemon.bench(name, &[], "", "");
        bench.rewrite(&matrix(name, tokens));
        let engines = folder(&bench).join("engines");
        fs::copy(
            crate::harness::repository().join("engines/sim.yaml"),
            engines.join("sim.yaml"),
        )
        .expect("a file can be copied");
        open(&folder(&bench));
        let locks = self.shared.path().join("locks").display().to_string();
        bench
            .variable("MATRIX_LOCKS", &locks)
            .variable("MATRIX_PRETEND_GPUS", "1")
            .variable("HOME", "/tmp")
    }

    /// The binary as the other user, who sees no processes but its own.
    fn as_nobody(&self, bench: &Bench, args: &[&str]) -> Command {
        let ours = bench.command(&[]);
        let script = format!(
            "mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups \"$@\""
        );
        let mut command = Command::new("unshare");
        command
            .args(["-m", "sh", "-c", &script, "sh", "env", "--default-signal=INT"])
            .arg(self.shared.path().join("matrix"))
            .args(args)
            .current_dir(folder(bench))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for (name, value) in ours.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        command
    }

    fn call_as_nobody(&self, bench: &Bench, args: &[&str]) -> Ran {
        Ran::from(self.as_nobody(bench, args).output().expect("it runs"))
    }
}

fn open(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o777)).expect("it is ours");
}

const RUN: [&str; 3] = ["run", "matrices/m.yaml", "--no-calibration"];

/// The run of one user goes on while the other one cleans, and wants to measure too.
#[test]
fn two_users_share_a_host_and_a_daemon_and_leave_each_other_alone() {
    let Some(two) = Two::or_skip("two users") else {
        return;
    };
    for is_nobody_first in [false, true] {
        let first = two.bench("first", 4000);
        let second = two.bench("second", 4);
        let as_user = |bench: &Bench, is_nobody: bool, args: &[&str]| match is_nobody {
            true => two.as_nobody(bench, args),
            false => bench.command(args),
        };
        let call = |args: &[&str]| {
            let mut command = as_user(&second, !is_nobody_first, args);
            Ran::from(command.output().expect("it runs"))
        };
        let mut command = as_user(&first, is_nobody_first, &RUN);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let running = command.spawn().expect("it runs");
        first.until_journal("\"cell-began\"");
        let containers = two.own.daemon.of_run(&first);
        assert_eq!(containers.len(), 1);
        let cleaned = call(&["clean"]).exits(0);
        assert!(!cleaned.stdout.contains("container"), "{}", cleaned.stdout);
        // Its GPU is taken as long as the other run goes on.
        let refused = call(&RUN).exits(4);
        refused.says("GPU 0 is locked by another run of matrix on this host");
        assert_eq!(two.own.daemon.of_run(&first), containers, "it goes on");
        let pid = rustix::process::Pid::from_child(&running);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it lives");
        end(running).exits(130);
        let run = first.finished();
        assert_eq!(run.summaries.len(), 1);
        assert_eq!(run.summaries[0].status, MeasurementStatus::Interrupted);
        assert!(two.own.daemon.of_run(&first).is_empty());
        // And free for the other user afterwards, whoever made the lock.
        call(&RUN).exits(0);
    }
}

#[test]
fn what_a_killed_run_of_another_user_left_at_the_daemon_is_found() {
    let Some(two) = Two::or_skip("a killed run of another user") else {
        return;
    };
    let bench = two.bench("killed", 4000);
    let mut killed = bench.command(&RUN);
    let mut killed = killed
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs");
    bench.until_journal("\"cell-began\"");
    killed.kill().expect("it can be killed");
    killed.wait().expect("it ends");
    let other = two.bench("other", 4);
    two.call_as_nobody(&other, &["clean"])
        .exits(0)
        .shows("removed container matrix-killed");
    until("nothing at the daemon", || {
        two.own.daemon.of_run(&bench).is_empty()
    });
    // The other way round also processes are ended: root may.
    let bench = two.bench("hidden", 4000);
    bench.rewrite(&matrix("hidden", 4000).replace(
        "  - box: { as: hiddenbox, args: [--ttft, 10ms, --itl, 10ms] }\n",
        "",
    ));
    let mut killed = two.as_nobody(&bench, &RUN).spawn().expect("it runs");
    bench.until_journal("\"cell-began\"");
    killed.kill().expect("it can be killed");
    killed.wait().expect("it ends");
    assert!(
        !bench.survivors().is_empty(),
        "an engine that ignores SIGTERM lives on"
    );
    bench.call(&["clean"]).exits(0).shows("removed process");
    bench.leaves_no_process();
}
