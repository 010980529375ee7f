//! What these tests share.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use serde_json::Value;

/// Two tests at once would install over each other.
static INSTALLING: Mutex<()> = Mutex::new(());

pub fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[expect(
    clippy::disallowed_methods,
    reason = "environment variables say what is installed"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Numbers that look random and are the same everywhere.
pub struct Numbers(pub u64);

impl Numbers {
    /// From 0, below 1.
    pub fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f64 / (1u64 << 31) as f64
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() * bound as f64) as usize
    }

    pub fn pick<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

/// A Python environment of other people's tools that tests are held against.
pub struct Peer {
    /// Its name, that of its folder, and of the script `tests/engines/NAME_peer.sh` that installs it.
    name: &'static str,
    /// Why a test is skipped without it.
    pub skipped: &'static str,
    /// A file of it.
    program: &'static str,
}

pub const SCIPY: Peer = Peer {
    name: "scipy",
    skipped: "needs scipy; run tests/engines/scipy_peer.sh, or set MATRIX_REQUIRE_PEERS",
    program: "bin/check-jsonschema",
};

pub const LM_EVAL: Peer = Peer {
    name: "lm_eval",
    skipped: "needs lm-eval; run tests/engines/lm_eval_peer.sh, or set MATRIX_REQUIRE_PEERS",
    program: "stamp",
};

impl Peer {
    /// The folder of its Python programs. Where `MATRIX_REQUIRE_PEERS` is set it is installed now; else, where it is not there, the test that asks
    /// says why it is skipped.
    pub fn python(&self) -> Option<PathBuf> {
        let peers = variable("MATRIX_PEERS").map_or_else(|| repository().join("target/peers"), PathBuf::from);
        let folder = peers.join(self.name);
        if variable("MATRIX_REQUIRE_PEERS").is_some() {
            let _alone = INSTALLING.lock();
            let script = format!("tests/engines/{}_peer.sh", self.name);
            let installed = Command::new("bash")
                .arg(repository().join(script))
                .arg(&peers)
                .status()
                .expect("bash runs");
            assert!(
                installed.success(),
                "{} cannot be installed in {}",
                self.name,
                peers.display()
            );
        }
        folder.join(self.program).exists().then(|| folder.join("bin"))
    }

    /// What a script of `tests/compare` answers to a question, both in JSON; `None` where it is not installed.
    pub fn ask(&self, script: &str, question: &Value) -> Option<Value> {
        let mut peer = Command::new(self.python()?.join("python"))
            .arg(repository().join("tests/compare").join(script))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python runs");
        let mut stdin = peer.stdin.take().expect("it is piped");
        stdin
            .write_all(question.to_string().as_bytes())
            .expect("it reads");
        drop(stdin);
        let output = peer.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{script} failed");
        Some(serde_json::from_slice(&output.stdout).expect("it answers in JSON"))
    }
}
