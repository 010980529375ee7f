//! Images from a registry: resolved once, pulled with patience, and by name of whoever may.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use matrix::results::record::validity::ReasonCode;

use crate::daemon::{Daemon, begin, end, folder, until, until_measuring};
use crate::harness::{Bench, summary};
use crate::registry::{Registry, keeper};
use crate::runs::written;

const ONE: &str = "  - random-1k-1k: { prompts: 2, input_len: 16, output_len: 4 }\n";
const LONG: &str = "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 3000, warmup: 0 }\n";

/// Takes an image of a test away again.
struct Gone<'a>(&'a Daemon, String);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        let ids = self.0.docker(&["images", "-q", "--no-trunc", &self.1]);
        for id in ids.lines() {
            self.0.try_docker(&["rmi", "-f", id]);
        }
    }
}

fn of(daemon: &Daemon, name: &str, image: &str, scenario: &str) -> Bench {
    daemon.bench(name, &[&format!("image: \"{image}\"")], "", scenario)
}

fn repository(registry: &Registry, name: &str) -> String {
    registry.name(name.split(':').next().expect("it has a name"))
}

#[test]
fn a_missing_image_is_pulled_by_its_digest_and_keeps_its_name() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let (registry, image) = Registry::with_layers(&daemon);
    let digest = registry.push("pulled:1", &image, "pulled");
    let _gone = Gone(&daemon, repository(&registry, "pulled"));
    let name = registry.name("pulled:1");
    let bench = of(&daemon, "pulled", &name, ONE);
    bench
        .run(&["--pull", "never"])
        .exits(4)
        .says(&name)
        .says("`--pull never` forbids");
    bench.run(&["--pull", "missing"]).exits(0);
    let run = bench.finished();
    let facts = &summary(&run, "pulled", "random-1k-1k").engine;
    let expected = format!("{}@{digest}", repository(&registry, "pulled"));
    assert_eq!(facts.image_digest.as_deref(), Some(expected.as_str()));
    assert!(facts.image_bytes.is_some_and(|bytes| bytes > 1_000_000));
    let log = written(&bench.run_folder());
    assert!(log.contains(&format!("pulling {expected}")), "{log}");
    assert!(
        log.contains("Pull complete") || log.contains("Already exists"),
        "{log}"
    );
    // The name is there for the next run, which asks no registry.
    let before = registry.asked().len();
    let again = of(&daemon, "pulledagain", &name, ONE);
    again.run(&["--pull", "never"]).exits(0);
    assert_eq!(registry.asked().len(), before);
}

#[test]
fn a_registry_that_fails_for_a_moment_is_asked_again_and_one_that_has_it_not_is_not() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let (registry, image) = Registry::with_layers(&daemon);
    let _gone = Gone(&daemon, repository(&registry, "flaky"));
    let none = of(&daemon, "nomanifest", &registry.name("flaky:9"), ONE);
    none.run(&[]).exits(4).says("no such image");
    let asked = registry.asked();
    let manifests = asked.iter().filter(|line| line.contains("/manifests/9"));
    assert!(manifests.count() <= 2, "a 404 is an answer: {asked:?}");

    registry.push("flaky:1", &image, "flaky");
    let bench = of(&daemon, "flaky", &registry.name("flaky:1"), ONE);
    // Of a digest that is known the pull asks only once per try.
    let daemon_resolves = registry.asked().len();
    registry.fails(2);
    bench.run(&[]).exits(0);
    let asked = registry.asked();
    let failed = asked[daemon_resolves..]
        .iter()
        .filter(|line| line.contains(" 503"));
    assert_eq!(failed.count(), 2, "{asked:?}");
}

#[test]
fn a_name_that_moves_during_the_run_starts_the_image_that_it_meant() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let (registry, image) = Registry::with_layers(&daemon);
    let first = registry.push("moving:1", &image, "first");
    let _gone = Gone(&daemon, repository(&registry, "moving"));
    let name = registry.name("moving:1");
    let bench = of(&daemon, "moving", &name, LONG);
    bench.rewrite(&format!(
        "name: moving\nengines:\n  - box: {{ as: moving }}\n  - box: {{ as: moving2, args: [--seed, \"7\"] }}\n\
         models:\n  - m: {{ tokenizer: data/tokenizer.json }}\nscenarios:\n{LONG}datasets: {{ sharegpt: data/conversations.json }}\n"
    ));
    let mut child = begin(&bench);
    until_measuring(&bench, &mut child);
    // It moves in the registry and here.
    let second = registry.push("moving:1", &image, "second");
    assert_ne!(first, second);
    daemon.docker(&["pull", "-q", &name]);
    let moved = daemon.docker(&["image", "inspect", "-f", "{{.Id}}", &name]);
    end(child).exits(0);
    let run = bench.finished();
    let expected = format!("{}@{first}", repository(&registry, "moving"));
    for engine in ["moving", "moving2"] {
        let facts = &summary(&run, engine, "random-1k-1k").engine;
        assert_eq!(facts.image_digest.as_deref(), Some(expected.as_str()), "{engine}");
    }
    // `missing` leaves the name where it moved to; `always` follows it.
    let now = daemon.docker(&["image", "inspect", "-f", "{{.Id}}", &name]);
    assert_eq!(now, moved);
    let third = registry.push("moving:1", &image, "third");
    let newest = of(&daemon, "newest", &name, ONE);
    newest.run(&["--pull", "always"]).exits(0);
    let run = newest.finished();
    let digest = summary(&run, "newest", "random-1k-1k")
        .engine
        .image_digest
        .clone();
    assert!(
        digest.as_deref().unwrap_or_default().ends_with(&third),
        "{digest:?}"
    );
}

#[test]
fn the_next_image_comes_while_a_cell_runs_only_where_the_matrix_allows_it() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let (registry, image) = Registry::with_layers(&daemon);
    registry.push("ahead:1", &image, "ahead");
    let name = registry.name("ahead:1");
    for allows in [true, false] {
        let _gone = Gone(&daemon, repository(&registry, "ahead"));
        let bench = daemon.bench("ahead", &[], "", ONE);
        bench.rewrite(&format!(
            "name: ahead\npull_ahead: {allows}\nengines:\n  - box: {{ as: ahead }}\n  - box: {{ as: ahead2, image: \"{name}\" }}\n\
             models:\n  - m: {{ tokenizer: data/tokenizer.json }}\nscenarios:\n{LONG}datasets: {{ sharegpt: data/conversations.json }}\n"
        ));
        let mut child = begin(&bench);
        until_measuring(&bench, &mut child);
        let is_here = || daemon.try_docker(&["image", "inspect", &name]).status.success();
        if allows {
            until("the next image", is_here);
            assert_eq!(ended(&bench), 0, "the first cell is not over");
        } else {
            until("the end of the first cell", || {
                let (is_here, ended) = (is_here(), ended(&bench));
                assert!(!is_here || ended > 0, "nothing comes while it runs");
                ended > 0
            });
        }
        end(child).exits(0);
        let run = bench.finished();
        let first = summary(&run, "ahead", "random-1k-1k");
        assert_eq!(first.pull_during, allows);
        let validity = first.validity.as_ref().expect("what ended is judged");
        let is_told = validity
            .reasons
            .iter()
            .any(|reason| reason.code == ReasonCode::Neighbour);
        assert_eq!(is_told, allows, "{validity:?}");
        let digest = summary(&run, "ahead2", "random-1k-1k")
            .engine
            .image_digest
            .clone();
        assert!(digest.is_some_and(|digest| digest.contains("ahead@sha256:")));
    }
}

/// How many cells of the one run have ended.
fn ended(bench: &Bench) -> usize {
    let journal = fs::read_to_string(bench.run_folder().join("journal.jsonl")).expect("it can be read");
    journal.matches("cell-ended").count()
}

#[test]
fn a_run_that_is_taken_up_again_goes_on_with_its_image() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let (registry, image) = Registry::with_layers(&daemon);
    let first = registry.push("resumed:1", &image, "first of resumed");
    let _gone = Gone(&daemon, repository(&registry, "resumed"));
    let name = registry.name("resumed:1");
    let scenarios =
        format!("{ONE}  - random-2k-6k: {{ prompts: 4, input_len: 16, output_len: 4000, warmup: 0 }}\n");
    let bench = of(&daemon, "resumed", &name, &scenarios);
    let mut child = begin(&bench);
    until_measuring(&bench, &mut child);
    until("the first summary", || {
        walk(&bench.run_folder())
            .iter()
            .any(|path| path.ends_with("summary.json"))
    });
    child.kill().expect("it lives");
    child.wait().expect("it ends");
    registry.push("resumed:1", &image, "second of resumed");
    daemon.docker(&["pull", "-q", &name]);
    bench.run(&["--resume"]).exits(0);
    let expected = format!("{}@{first}", repository(&registry, "resumed"));
    for summary in &bench.finished().summaries {
        assert_eq!(summary.engine.image_digest.as_deref(), Some(expected.as_str()));
    }
}

#[test]
fn a_registry_that_wants_a_login_gets_the_one_of_docker_and_nobody_else_sees_it() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let (registry, image) = Registry::with_layers(&daemon);
    registry.push("private:1", &image, "private");
    registry.wants("somebody", "hunter2-hunter2");
    let _gone = Gone(&daemon, repository(&registry, "private"));
    let name = registry.name("private:1");
    let configured = |name: &str, config: &str, image: &str| {
        let bench = of(&daemon, name, image, ONE);
        let docker = folder(&bench).join("docker-config");
        fs::create_dir_all(&docker).expect("a folder can be made");
        fs::write(docker.join("config.json"), config).expect("a file can be written");
        let path = matrix::cli::env_variable("PATH").unwrap_or_default();
        keeper(&docker, "matrixtest", "somebody", "hunter2-hunter2");
        let bench = bench.variable("DOCKER_CONFIG", &docker.display().to_string());
        bench.variable("PATH", &format!("{}:{path}", docker.display()))
    };
    let refused = configured("nologin", "{}", &name).run(&[]).exits(4);
    assert!(refused.stderr.contains("docker login"), "{}", refused.stderr);
    let wrong = STANDARD.encode("somebody:wrong-password");
    let wrong = format!(r#"{{"auths": {{"{}": {{"auth": "{wrong}"}}}}}}"#, registry.at);
    let refused = configured("wronglogin", &wrong, &name).run(&[]).exits(4);
    assert!(!refused.stderr.contains("wrong-password"), "{}", refused.stderr);

    let right = STANDARD.encode("somebody:hunter2-hunter2");
    for (bench, config) in [
        (
            "login",
            format!(r#"{{"auths": {{"{}": {{"auth": "{right}"}}}}}}"#, registry.at),
        ),
        (
            "keeper",
            format!(r#"{{"credHelpers": {{"{}": "matrixtest"}}}}"#, registry.at),
        ),
    ] {
        let bench = configured(bench, &config, &name);
        let ran = bench.run(&["--pull", "always"]).exits(0);
        let all = format!("{}{}{}", ran.stdout, ran.stderr, written(&bench.results()));
        assert!(!all.contains("hunter2") && !all.contains(&right));
        drop(Gone(&daemon, repository(&registry, "private")));
    }
}

/// All files below a folder.
fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder can be read").flatten();
    entries
        .flat_map(|entry| match entry.path() {
            path if path.is_dir() => walk(&path),
            path => vec![path],
        })
        .collect()
}
