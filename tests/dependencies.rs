//! What `deny.toml` and `rust-version` promise holds for every crate of `Cargo.lock`, without cargo-deny and without an old compiler.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

#[test]
fn every_licence_is_allowed() {
    let deny = std::fs::read_to_string(root().join("deny.toml")).expect("the file is readable");
    let (_, rest) = deny.split_once("allow = [").expect("licences are listed");
    let (list, _) = rest.split_once(']').expect("the list ends");
    let allowed: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
    for package in packages() {
        let licence = package["license"].as_str().unwrap_or("none");
        assert!(is_allowed(licence, &allowed), "{}: {licence}", package["name"]);
    }
}

/// The crates' own word for it: a crate that does not say its oldest compiler is not seen here.
#[test]
fn no_crate_needs_a_newer_compiler_than_ours() {
    let ours = version(env!("CARGO_PKG_RUST_VERSION"));
    for package in packages() {
        let theirs = package["rust_version"].as_str().unwrap_or("1");
        assert!(version(theirs) <= ours, "{} needs {theirs}", package["name"]);
    }
}

#[test]
fn alternatives_and_conjunctions_of_licences_are_told_apart() {
    let allowed = ["MIT", "Unicode-3.0"];
    for licence in [
        "MIT",
        "MIT/Apache-2.0",
        "GPL-3.0 OR MIT",
        "(MIT OR GPL-3.0) AND Unicode-3.0",
    ] {
        assert!(is_allowed(licence, &allowed), "{licence}");
    }
    for licence in [
        "none",
        "MIT AND GPL-3.0",
        "GPL-3.0 AND MIT OR GPL-2.0",
        "MIT WITH X",
    ] {
        assert!(!is_allowed(licence, &allowed), "{licence}");
    }
}

/// Whether a licence expression can be met with what is allowed.
fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    let expression = expression.trim();
    let inner = expression
        .strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'));
    let expression = inner.filter(|inner| !inner.contains('(')).unwrap_or(expression);
    let any = parts(expression, " OR ").or_else(|| parts(expression, "/"));
    if let Some(any) = any {
        return any.iter().any(|part| is_allowed(part, allowed));
    }
    match parts(expression, " AND ") {
        Some(all) => all.iter().all(|part| is_allowed(part, allowed)),
        None => allowed.contains(&expression),
    }
}

/// The operands of an operator outside of parentheses, if it stands there.
fn parts<'a>(expression: &'a str, operator: &str) -> Option<Vec<&'a str>> {
    let depth = |at: usize| {
        let before = &expression[..at];
        before.matches('(').count() - before.matches(')').count()
    };
    let mut operators = expression.match_indices(operator);
    let (at, _) = operators.find(|(at, _)| depth(*at) == 0)?;
    let rest = &expression[at + operator.len()..];
    Some(vec![&expression[..at], rest])
}

/// Every crate that `Cargo.lock` names for this platform, as cargo describes it.
fn packages() -> Vec<Value> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--filter-platform", &platform])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let packages = metadata["packages"].as_array().expect("there are packages");
    assert!(packages.len() > 100, "only {} crates", packages.len());
    packages.clone()
}

/// `1.89` and `1.89.0` as numbers.
fn version(text: &str) -> [u32; 3] {
    let mut parts = text
        .split('.')
        .map(|part| part.parse().expect("a version has numbers"));
    [(); 3].map(|()| parts.next().unwrap_or(0))
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
