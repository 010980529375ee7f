//! A library of ours in the place of NVIDIA's, for tests without a GPU: it is built from `stub.c` by the system's C compiler, and says
//! what a script tells it to.
//!
//! A script has a directive on each line; `#` begins a comment. Devices are numbered from 0. `gpu=N` makes a directive one device's,
//! else it is for all. `from=M` and `until=M` bound it: a moment is a number of seconds after the library was loaded, `engine` (with
//! `+S`) that long after the engine under test came and only while it lives, or `gone` (with `+S`) after it went. The engine is the child of
//! the process that loaded the library which runs `matrix sim`. Where several lines tell one thing, the last that holds is true.
//!
//! | directive | means |
//! |---|---|
//! | `gpus N` | so many devices (1); `gpus -1`: the driver is not loaded |
//! | `name …`, `driver V`, `cuda 12080`, `memory MIB`, `limit W` | what they are |
//! | `instances N` | it is cut into so many instances (MIG); `instance=I` makes `hold` and `process` those of one of them |
//! | `nvlink N`, `mig`, `ecc` | links that are up, to a switch; modes that are on |
//! | `power W` or `power T:W T:W …` | watts, or points that are joined by straight lines; the energy counter is its exact integral |
//! | `busy W` | watts on top while the engine lives |
//! | `rest MIB` | memory in use when nobody is there (512) |
//! | `hold MIB` | memory in use that is nobody's |
//! | `process PID MIB`, `process engine MIB` | somebody who computes, with the memory that they hold |
//! | `util GPU% MEMORY%`, `clock SM MEMORY`, `heat C`, `memory-heat C` | as they say (0, 345 MHz, 34 °C, no sensor) |
//! | `throttle REASON` | `idle`, `chosen`, `sync`, `power`, `thermal`, `hot` (by hardware), `brake`, `hardware`, `display`, `new` |
//! | `pcie SENT RECEIVED`, `links SENT RECEIVED` | throughput in KB/s, and of NVLink in MiB/s |
//! | `link GEN WIDTH`, `slot GEN WIDTH` | the PCIe link as it runs, and as it could |
//! | `faults ECC ROWS FAILED` | memory errors, rows that were replaced, whether one could not be |
//! | `desktop 1` | a desktop is drawn on it |
//! | `lost` | the device has fallen off the bus |
//! | `error CALL CODE`, `slow CALL MS`, `hang CALL` | what a call does; `*` is every call |
//! | `bare` | energy and power are told by their own calls only, as by older drivers |
//! | `without CALL` | the library has no such call |

// Each binary of tests that shares this uses a part of it.
#![allow(dead_code, reason = "shared by several test binaries")]

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// The variable by which `matrix` is told where the library is.
pub const VARIABLE: &str = "MATRIX_NVML_LIBRARY";

/// The library with its script, in a folder of its own, until this is dropped.
pub struct Stub {
    folder: TempDir,
}

impl Stub {
    /// A library that says what the script tells.
    pub fn of(script: &str) -> Self {
        let without: Vec<&str> = script
            .lines()
            .filter_map(|line| line.trim().strip_prefix("without "))
            .map(str::trim)
            .collect();
        let folder = tempfile::tempdir().expect("a folder can be made");
        let stub = Self { folder };
        // A copy: the loader takes two names of one file for one library.
        fs::copy(built(&without), stub.file()).expect("the library can be copied");
        stub.rewrite(script);
        stub
    }

    /// The library's file.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("libnvidia-ml.so.1")
    }

    /// The library's file for a variable or an argument.
    pub fn path(&self) -> String {
        self.file().display().to_string()
    }

    /// Another script, for whoever loads the library from now on.
    pub fn rewrite(&self, script: &str) {
        self.write("libnvidia-ml.so.1.script", script);
    }

    /// What it says on a node of a cluster, instead of the script.
    pub fn on_node(&self, node: &str, script: &str) {
        self.write(&format!("libnvidia-ml.so.1.script.{node}"), script);
    }

    fn write(&self, name: &str, script: &str) {
        let kept: Vec<&str> = script
            .lines()
            .filter(|line| !line.trim().starts_with("without "))
            .collect();
        fs::write(self.folder.path().join(name), kept.join("\n") + "\n").expect("the script can be written");
    }
}

/// The built library without these calls; each kind is built once.
fn built(without: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvml/stub.c");
    let mut digest = DefaultHasher::new();
    fs::read(&source).expect("the source is there").hash(&mut digest);
    without.hash(&mut digest);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let kept = folder.join(format!("nvml-{:016x}.so", digest.finish()));
    if kept.exists() {
        return kept;
    }
    // Under a name of its own first: tests run side by side.
    let own = tempfile::Builder::new()
        .prefix("nvml-")
        .tempfile_in(folder)
        .expect("a file can be made");
    let output = Command::new("cc")
        .args(["-O1", "-shared", "-fPIC", "-o"])
        .arg(own.path())
        .args(without.iter().map(|call| format!("-D{call}=absent_{call}")))
        .arg(&source)
        .args(["-ldl", "-lpthread"])
        .output()
        .expect("there is a C compiler `cc`");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    own.persist(&kept).expect("the library can be kept");
    kept
}
