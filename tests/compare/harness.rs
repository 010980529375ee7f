//! What these tests share.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

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

/// Why a test is skipped.
pub const SKIPPED: &str = "needs scipy; run tests/engines/scipy_peer.sh, or set MATRIX_REQUIRE_PEERS";

/// The folder of Python programs that `tests/engines/scipy_peer.sh` installs. Where `MATRIX_REQUIRE_PEERS` is set it is installed now; else, where it is not
/// there, the test that asks says [`SKIPPED`].
pub fn python() -> Option<PathBuf> {
    let peers = variable("MATRIX_PEERS").map_or_else(|| repository().join("target/peers"), PathBuf::from);
    let folder = peers.join("scipy/bin");
    if variable("MATRIX_REQUIRE_PEERS").is_some() {
        let _alone = INSTALLING.lock();
        let script = repository().join("tests/engines/scipy_peer.sh");
        let installed = Command::new("bash")
            .arg(script)
            .arg(&peers)
            .status()
            .expect("bash runs");
        assert!(
            installed.success(),
            "scipy cannot be installed in {}",
            peers.display()
        );
    }
    folder.join("check-jsonschema").exists().then_some(folder)
}
