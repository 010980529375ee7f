//! What others have on the same host is neither touched nor measured.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::harness::{Bench, Ran, sims};

/// A cell that takes some seconds.
const SOME_SECONDS: &str = "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 300, warmup: 0 }\n";

/// A file of another program in shared memory, gone at the end.
struct Shared(PathBuf);

impl Shared {
    fn put(name: &str, mode: u32) -> Self {
        let path = Path::new("/dev/shm").join(format!("matrix-test-{name}-{}", std::process::id()));
        let file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&path);
        let written = file.and_then(|mut file| std::io::Write::write_all(&mut file, &[7; 100_000]));
        written.expect("a file can be written");
        Self(path)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn left_by_sim(port: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| {
            path.display()
                .to_string()
                .contains(&format!("matrix-sim-{port}-"))
        })
        .collect()
}

#[test]
fn shared_memory_of_others_stays_and_that_of_the_engine_is_freed() {
    let bench = Bench::of(
        &sims(
            &[("a", "vllm", "--itl, 10ms, --ttft, 10ms, --leave-shm, 1MiB")],
            SOME_SECONDS,
        )
        .replace("--preset, fast, ", ""),
    );
    let child = bench.begin(&["run", "matrices/m.yaml", "--no-calibration"]);
    bench.until_journal("engine-started");
    let others = [Shared::put("dataset", 0o600), Shared::put("segment", 0o644)];
    let ran = Ran::from(child.wait_with_output().expect("it ends")).exits(0);
    for other in &others {
        assert!(
            other.0.exists(),
            "{} was removed:\n{}",
            other.0.display(),
            ran.stderr
        );
    }
    let journal = bench.journal();
    let (_, after) = journal.split_once("\"port\":").expect("an engine was started");
    let port: String = after.chars().take_while(char::is_ascii_digit).collect();
    assert_eq!(
        left_by_sim(&port),
        [] as [PathBuf; 0],
        "what the engine left is freed"
    );
    let ran = ran.says("1.0 MB that it left in /dev/shm are freed (1 file)");
    ran.says("not seen with it and stay");
    bench.leaves_no_process();
}
