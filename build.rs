//! Puts the git revision and the shipped engines, matrices and schemas into the binary.
#![expect(
    clippy::disallowed_methods,
    reason = "cargo talks to build scripts through the environment"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    watch_revision();
    println!("cargo:rustc-env=MATRIX_REVISION={}", revision());
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let mut code = String::from(
        "/// Every file that is shipped: its path and the end of its text in that of all.\npub(crate) const FILES: &[(&str, usize)] = &[\n",
    );
    let mut texts = Vec::new();
    for folder in ["engines", "matrices", "matrices/data", "schemas"] {
        println!("cargo:rerun-if-changed={folder}");
        for path in files(&root.join(folder))? {
            let name = path
                .file_name()
                .expect("a file has a name")
                .to_string_lossy()
                .into_owned();
            texts.extend(fs::read(&path)?);
            writeln!(code, "    ({:?}, {}),", format!("{folder}/{name}"), texts.len())
                .expect("a string grows");
        }
    }
    code.push_str("];\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(
        out.join("shipped.zst"),
        zstd::encode_all(texts.as_slice(), LEVEL)?,
    )?;
    fs::write(out.join("shipped.rs"), code)
}

/// Files are compressed once, when the binary is built.
const LEVEL: i32 = 19;

/// The YAML and JSON files of a folder, sorted, so that the same sources give the same binary.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let wanted = path
            .extension()
            .is_some_and(|kind| kind == "yaml" || kind == "json");
        if wanted && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// What decides the binary besides the files that cargo watches anyway.
const SOURCES: [&str; 7] = [
    "src",
    "engines",
    "matrices",
    "schemas",
    "Cargo.toml",
    "Cargo.lock",
    "build.rs",
];

/// Runs this script again after a commit, a checkout or a change of a source, and not after a mere `git status`, which rewrites the index.
fn watch_revision() {
    for source in SOURCES {
        println!("cargo:rerun-if-changed={source}");
    }
    // `HEAD` changes with a checkout, its log with every commit. In a worktree both lie elsewhere.
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name]).filter(|path| Path::new(path).exists()) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
}

/// The commit, with `+changes` where a source differs from it.
fn revision() -> String {
    let revision = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    let mut status = vec!["status", "--porcelain", "--untracked-files=no", "--"];
    status.extend(SOURCES);
    let has_changes = git(&status).is_some_and(|list| !list.is_empty());
    format!("{revision}{}", if has_changes { "+changes" } else { "" })
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
