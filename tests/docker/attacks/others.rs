//! What others have on the same host: planted before the attacks, and looked at after each.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::daemon::{Daemon, IMAGE};

/// The user that owns nothing.
const NOBODY: u32 = 65534;

/// Everything that belongs to others; it goes with this.
pub struct Others {
    files: Vec<File>,
    processes: Vec<Process>,
    containers: Vec<String>,
    volumes: Vec<String>,
    daemon: Option<String>,
    /// How names of shared memory of this test begin.
    token: String,
}

/// A file as it must stay.
struct File {
    path: PathBuf,
    inode: u64,
    owner: u32,
    text: String,
}

struct Process {
    what: String,
    child: Child,
}

impl Others {
    /// Plants them; in `locks` and `temporary` their files, at the daemon containers.
    pub fn plant(token: &str, locks: &Path, temporary: &Path, daemon: Option<&Daemon>) -> Self {
        let mut others = Self {
            files: Vec::new(),
            processes: Vec::new(),
            containers: Vec::new(),
            volumes: Vec::new(),
            daemon: daemon.map(|daemon| daemon.host.clone()),
            token: token.to_owned(),
        };
        let shared = Path::new("/dev/shm");
        let is_root = rustix::process::geteuid().is_root();
        for (path, owner) in [
            (shared.join(format!("psm_other_{token}")), 0),
            (shared.join(format!("sem.mp-other-{token}")), 0),
            (shared.join(format!("psm_nobody_{token}")), NOBODY),
            (locks.join("matrix-gpu-7.lock"), NOBODY),
            (locks.join("another-program.lock"), 0),
            (temporary.join(".tmpOther"), 0),
            (temporary.join("matrix-of-nobody"), NOBODY),
        ] {
            others
                .files
                .push(File::plant(&path, if is_root { owner } else { 0 }));
        }
        let precious = locks.join("precious");
        others.files.push(File::plant(&precious, 0));
        std::os::unix::fs::symlink(&precious, locks.join("matrix-gpu-6.lock")).expect("a link can be made");
        let users: &[u32] = if is_root { &[0, NOBODY] } else { &[0] };
        for &user in users {
            others.process(&format!("a process of another program, user {user}"), user, &[]);
            others.process(
                &format!("an engine of a run that lives, user {user}"),
                user,
                &marks(),
            );
        }
        others.lock_holder(&locks.join("matrix-gpu-7.lock"));
        if let Some(daemon) = daemon {
            others
                .volumes
                .push(daemon.docker(&["volume", "create", "of-another-program"]));
            let run = |more: &[&str]| {
                let all = ["run", "-d", "--network", "host"];
                let end = [IMAGE.as_str(), "--preset", "fast"];
                daemon.docker(&[&all[..], more, &end[..]].concat())
            };
            others.containers = vec![
                run(&["-v", "of-another-program:/data"]),
                run(&["--label", "matrix.run=mine", "--name", "matrix-of-another"]),
            ];
        }
        others
    }

    /// A file in shared memory that another program makes while a run goes on, and closes.
    pub fn another_segment(&mut self, round: u64) {
        let path = Path::new("/dev/shm").join(format!("psm_meanwhile_{}_{round}", self.token));
        self.files.push(File::plant(&path, 0));
    }

    fn process(&mut self, what: &str, user: u32, variables: &[(&str, String)]) {
        let mut command = Command::new("sleep");
        command
            .arg("86400")
            .envs(variables.iter().map(|(name, value)| (*name, value)))
            .stdin(Stdio::null())
            .process_group(0);
        if user != 0 {
            command.uid(user).gid(user);
        }
        let child = command.spawn().expect("sleep is there");
        self.processes.push(Process {
            what: what.to_owned(),
            child,
        });
    }

    /// Somebody who holds a lock on a file.
    fn lock_holder(&mut self, path: &Path) {
        let mut command = Command::new("flock");
        command.arg("--no-fork").arg(path).args(["sleep", "86400"]);
        let child = command.stdin(Stdio::null()).process_group(0).spawn();
        self.processes.push(Process {
            what: "the holder of a lock".to_owned(),
            child: child.expect("flock is there"),
        });
    }

    /// What of theirs is gone, or is not as it was.
    pub fn touched(&mut self) -> Vec<String> {
        let mut touched: Vec<String> = self.files.iter().filter_map(File::change).collect();
        // Each is told once.
        self.processes.retain_mut(|Process { what, child }| {
            let ended = child.try_wait().expect("it can be asked");
            if let Some(status) = ended {
                touched.push(format!("{what} ({}) has ended: {status}", child.id()));
            }
            ended.is_none()
        });
        let running = self.docker(&["ps", "-q", "--no-trunc"]);
        for container in &self.containers {
            if !running.contains(container) {
                touched.push(format!("container {container} does not run"));
            }
        }
        let volumes = self.docker(&["volume", "ls", "-q"]);
        for volume in &self.volumes {
            if !volumes.contains(volume) {
                touched.push(format!("volume {volume} is gone"));
            }
        }
        touched
    }

    /// Containers and volumes that are at the daemon and not theirs.
    pub fn besides(&self) -> Vec<String> {
        let mut besides = Vec::new();
        for (args, theirs) in [
            (&["ps", "-a", "-q", "--no-trunc"][..], &self.containers),
            (&["volume", "ls", "-q"], &self.volumes),
        ] {
            let all = self.docker(args);
            let ours = all.iter().filter(|id| !theirs.contains(id));
            besides.extend(ours.map(|id| format!("{} {id}", args[0])));
        }
        besides
    }

    /// Whether a file in shared memory or below a folder is theirs.
    pub fn has(&self, path: &Path) -> bool {
        self.files.iter().any(|file| file.path == path)
    }

    fn docker(&self, args: &[&str]) -> Vec<String> {
        let Some(host) = &self.daemon else {
            return Vec::new();
        };
        let daemon = Daemon { host: host.clone() };
        daemon.docker(args).lines().map(str::to_owned).collect()
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for Process { child, .. } in &mut self.processes {
            let _ = child.kill();
            let _ = child.wait();
        }
        for file in &self.files {
            let _ = fs::remove_file(&file.path);
        }
    }
}

impl File {
    fn plant(path: &Path, owner: u32) -> Self {
        let text = format!("{} belongs to somebody else", path.display());
        let mut file = fs::File::create_new(path).expect("a file can be made");
        file.write_all(text.as_bytes()).expect("it can be written");
        file.set_permissions(Permissions::from_mode(0o600))
            .expect("it is ours");
        if owner != 0 {
            chown(path, Some(owner), Some(owner)).expect("root may");
        }
        let about = file.metadata().expect("it is there");
        Self {
            path: path.to_owned(),
            inode: about.ino(),
            owner: about.uid(),
            text,
        }
    }

    fn change(&self) -> Option<String> {
        let path = self.path.display();
        let Ok(about) = fs::symlink_metadata(&self.path) else {
            return Some(format!("{path} is gone"));
        };
        if (about.ino(), about.uid()) != (self.inode, self.owner) {
            return Some(format!("{path} is another file"));
        }
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        (text != self.text).then(|| format!("{path} now holds {text:?}"))
    }
}

/// When a process started, in clock ticks after the machine: with its id that names it for ever.
pub fn started(id: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).expect("it is there");
    let started = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(19));
    started.expect("it has a start").to_owned()
}

/// The marks of an engine whose run lives: its owner is this test.
fn marks() -> [(&'static str, String); 3] {
    let read = |name: &str| fs::read_to_string(name).expect("/proc can be read");
    let namespace = fs::read_link("/proc/self/ns/pid").expect("/proc can be read");
    let owner = format!(
        "{}:{}:{}:{}",
        std::process::id(),
        started(std::process::id()),
        read("/proc/sys/kernel/random/boot_id").trim(),
        namespace.display().to_string().replace("pid:", "")
    );
    [
        ("MATRIX_RUN", "a-run".to_owned()),
        ("MATRIX_START", "x#1".to_owned()),
        ("MATRIX_OWNER", owner),
    ]
}
