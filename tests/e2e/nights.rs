//! What bounds nights: time for confirmations, room on the disk, one night at a time; and noise measured to a target.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use matrix::base::clock;

use crate::harness::{Bench, Ran, repository};
use crate::nightly::{GATE, LENIENT, newest, nightly, quiet, read_post, receiver};

/// One cell of three starts, over in a moment; `itl` in milliseconds, `tokens` of every answer.
pub fn small(itl: u32, tokens: u32) -> String {
    format!(
        "name: t
engines:
  - sim: {{ variant: vllm }}
models:
  - a: {{ tokenizer: data/tokenizer.json, args: [--ttft, 5ms, --itl, {itl}ms] }}
scenarios:
  - random-1k-1k: {{ prompts: 4, input_len: 8, output_len: {tokens}, warmup: 0 }}
repeats: {{ starts: 3 }}
datasets: {{ sharegpt: data/conversations.json }}
{LENIENT}"
    )
}

/// What a busy machine does to so small cells is below that.
const FLOOR: [&str; 2] = ["--floor", "90%"];

/// A first night, which is the baseline from then on; gives its run's folder.
fn baseline(bench: &Bench) -> String {
    nightly(bench, &GATE)
        .exits(0)
        .says("there is no baseline")
        .shows("t: no baseline yet\n");
    let set = [
        "baseline",
        "set",
        "matrices/m.yaml",
        "--reason",
        "the first night",
    ];
    bench.call(&[&set[..], &GATE[..]].concat()).exits(0);
    quiet(bench);
    newest(bench).display().to_string()
}

/// The files of raw data below a run.
fn raw(run: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for part in ["cells", "launches"] {
        for folder in fs::read_dir(run.join(part)).expect("the run has its parts") {
            let folder = folder.expect("it can be read").path();
            for file in fs::read_dir(folder).expect("it is a folder") {
                let name = file.expect("it can be read").file_name();
                let name = name.to_string_lossy().into_owned();
                if name.ends_with(".zst") || name.ends_with(".log") {
                    found.push(name);
                }
            }
        }
    }
    found
}

#[test]
fn a_suspect_that_the_budget_has_no_room_for_is_undecided_and_nothing_else() {
    let bench = Bench::of(&small(5, 30));
    baseline(&bench);
    bench.rewrite(&small(15, 30));
    let more = [&GATE[..], &["--budget", "1ms", "--junit", "junit.xml"]].concat();
    let night = nightly(&bench, &more)
        .exits(5)
        .says("the loss stays undecided: a decision needs ")
        .says("`--budget` does not allow more")
        .shows("t: 1 suspected and undecided\n")
        .shows("  undecided: ")
        .shows("neither confirmed nor refuted");
    for word in ["nothing got worse", "not confirmed", "unconfirmed", "  worse: "] {
        assert!(!night.stdout.contains(word), "{word}: {}", night.stdout);
    }
    let run = newest(&bench);
    let page = fs::read_to_string(run.join("nightly.md")).expect("there is a page");
    assert!(
        page.starts_with("# t: 1 suspected and undecided\n") && page.contains("| undecided | "),
        "{page}"
    );
    let measured = fs::read_dir(run.join("cells")).expect("there are cells").count();
    assert_eq!(measured, 3, "no fresh start was made");
    let folder = bench.results();
    let junit = fs::read_to_string(folder.with_file_name("junit.xml")).expect("there is a file");
    assert!(
        junit.contains("failures=\"0\" errors=\"0\" skipped=\"1\"")
            && junit.contains("<skipped message=\"undecided: "),
        "{junit}"
    );
    bench.leaves_no_process();
}

/// The file that `--junit junit.xml` wrote.
fn junit(bench: &Bench) -> String {
    fs::read_to_string(bench.results().with_file_name("junit.xml")).expect("there is a file")
}

#[test]
fn a_night_that_judged_nothing_is_not_green() {
    let bench = Bench::of(&small(5, 10));
    baseline(&bench);
    let file = bench.matrix().with_file_name("m.baseline.json");
    let mut kept: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&file).expect("there is a baseline")).expect("it is JSON");
    kept["side"]["machine"]["CPU"] = "another one".into();
    fs::write(&file, kept.to_string()).expect("a file can be written");
    // Twice as slow.
    bench.rewrite(&small(10, 10));
    let night = nightly(&bench, &[&GATE[..], &["--junit", "junit.xml"]].concat()).exits(5);
    let first = night.stdout.lines().next().expect("it says something");
    assert!(first.contains("1 of 1 metrics not judged"), "{first}");
    assert!(!night.stdout.contains("nothing got worse"), "{}", night.stdout);
    let junit = junit(&bench);
    assert!(
        junit.contains("failures=\"0\" errors=\"0\" skipped=\"1\"")
            && junit.contains("<skipped message=\"not judged: "),
        "{junit}"
    );
    bench.leaves_no_process();
}

/// Two engines, the second of which dies while it loads.
fn dying(names: &[&str]) -> String {
    let engines: String = names
        .iter()
        .map(|name| {
            let args = if *name == "bad" {
                ", --die-while-loading"
            } else {
                ""
            };
            format!("  - sim: {{ as: {name}, variant: vllm, args: [--ttft, 5ms, --itl, 5ms{args}] }}\n")
        })
        .collect();
    let text = small(5, 10);
    let (head, rest) = text.split_once("  - sim: ").expect("it has an engine");
    let (_, rest) = rest.split_once('\n').expect("the line ends");
    format!(
        "{head}{engines}{}",
        rest.replace(", args: [--ttft, 5ms, --itl, 5ms]", "")
    )
}

#[test]
fn a_cell_that_failed_or_was_not_measured_is_told_everywhere() {
    let bench = Bench::of(&dying(&["good", "bad"]));
    let (url, posted) = receiver();
    let bench = bench.variable("MATRIX_WEBHOOK", &url);
    let more = [&GATE[..], &["--junit", "junit.xml"]].concat();
    let actual = |bench: &Bench, kind: &str| {
        let page = fs::read_to_string(newest(bench).join("nightly.md")).expect("there is a page");
        assert!(page.contains(&format!("| **{kind}** | ")), "{page}");
        let junit = junit(bench);
        assert!(
            junit.contains("errors=\"1\"") && junit.contains(&format!("<error type=\"{kind}\"")),
            "{junit}"
        );
        let message = posted
            .recv_timeout(Duration::from_secs(5))
            .expect("it is reported");
        let text = message["text"].as_str().expect("it has a text").to_owned();
        assert!(text.contains(&format!("1 {kind}")), "{text}");
    };
    // Without a baseline, and with one in which it is missing.
    nightly(&bench, &more)
        .exits(3)
        .shows("t: no baseline yet, 1 failed\n");
    actual(&bench, "failed");
    let set = [
        "baseline",
        "set",
        "matrices/m.yaml",
        "--reason",
        "the first night",
    ];
    bench.call(&[&set[..], &GATE[..]].concat()).exits(0);
    nightly(&bench, &more).exits(3).shows("1 failed");
    let junit = junit(&bench);
    assert!(junit.contains("<error type=\"failed\""), "{junit}");
    // The other way round: the baseline has what the night lacks.
    bench.rewrite(&dying(&["bad"]));
    nightly(&bench, &more).shows("1 missing");
    let page = fs::read_to_string(newest(&bench).join("nightly.md")).expect("there is a page");
    assert!(
        page.contains("| **missing** | ") && page.contains("engine=good"),
        "{page}"
    );
    bench.leaves_no_process();
}

#[test]
fn a_webhook_that_redirects_has_not_taken_the_message_and_its_words_are_not_printed() {
    // Where it leads to would get the secret address; the words beside the status are the server's own.
    let (target, posted) = receiver();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    for (status, said) in [
        ("302", "status 302, but redirects are not followed"),
        ("403", "status 403"),
    ] {
        let bench =
            Bench::of(&dying(&["bad"])).variable("MATRIX_WEBHOOK", &format!("http://{address}/hook/s3cr3t"));
        let night = bench.begin(&["nightly", "matrices/m.yaml", "--no-calibration"]);
        let (mut stream, _) = listener.accept().expect("the webhook is called");
        read_post(&mut stream);
        let answer =
            format!("HTTP/1.1 {status} no/hook/s3cr3t\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).expect("an answer goes");
        let ran = Ran::from(night.wait_with_output().expect("it ends")).exits(3);
        let ran = ran.says("cannot send the message to the webhook").says(said);
        assert!(!ran.stderr.contains("s3cr3t"), "{}", ran.stderr);
    }
    assert!(posted.try_recv().is_err(), "the redirect was followed");
}

#[test]
fn a_junit_file_that_cannot_be_written_hides_neither_the_exit_code_nor_the_message_through_a_proxy() {
    let bench = Bench::of(&dying(&["bad"]));
    // What is posted to the proxy is meant for a host that only the proxy can reach.
    let (proxy, posted) = receiver();
    let bench = bench
        .variable("MATRIX_WEBHOOK", "http://hooks.example.invalid/secret")
        .variable("http_proxy", &proxy)
        .variable("NO_PROXY", "")
        .variable("no_proxy", "");
    let folder = bench.path().join("gone");
    fs::create_dir(&folder).expect("a folder can be made");
    let more = [
        "nightly",
        "matrices/m.yaml",
        "--no-calibration",
        "--junit",
        "gone/junit.xml",
    ];
    let night = bench.begin(&more);
    bench.until_journal("launch-began");
    fs::remove_dir(&folder).expect("it is empty");
    Ran::from(night.wait_with_output().expect("it ends"))
        .exits(3)
        .says("cannot write gone/junit.xml");
    let message = posted
        .recv_timeout(Duration::from_secs(5))
        .expect("the proxy is asked");
    let text = message["text"].as_str().expect("it has a text");
    assert!(text.contains("1 failed"), "{text}");
}

#[test]
fn a_baseline_is_set_from_within_the_folder_of_its_matrix() {
    let bench = Bench::of(&small(5, 4));
    bench.run(&[]).exits(0);
    let run = bench.run_folder().display().to_string();
    let set = || {
        let mut command = bench.command(&["baseline", "set", "m.yaml", &run, "--reason", "test"]);
        command.current_dir(bench.path().join("matrices"));
        Ran::from(command.output().expect("the binary runs"))
    };
    set().exits(0);
    assert!(bench.path().join("matrices/m.baseline.json").exists());
    set().exits(2).says("already exists");
}

#[test]
fn old_raw_data_goes_but_what_it_came_to_and_the_baselines_stay() {
    let bench = Bench::of(&small(5, 10));
    let first = baseline(&bench);
    nightly(&bench, &[GATE, FLOOR].concat()).exits(0);
    let second = newest(&bench);
    let before = raw(&second);
    assert!(
        before.iter().any(|name| name == "requests.jsonl.zst"),
        "{before:?}"
    );
    // A night takes longer than that.
    nightly(&bench, &[GATE, FLOOR, ["--keep", "100ms"]].concat())
        .exits(0)
        .says("of raw data older than 100ms")
        .shows("charts: ");
    assert_eq!(raw(&second), [] as [String; 0]);
    assert!(!raw(Path::new(&first)).is_empty(), "the baseline's stays");
    assert!(!raw(&newest(&bench)).is_empty(), "tonight's stays");
    for page in ["nightly.md", "history.html", "report.html", "report.json"] {
        assert!(second.join(page).exists(), "{page}");
    }
    let second = second.display().to_string();
    bench.call(&["report", &second]).exits(0).shows("random-1k-1k");
    bench
        .call(&[&["compare", &first, &second], &GATE[..], &FLOOR[..]].concat())
        .exits(0)
        .shows("same");
    bench.leaves_no_process();
}

#[test]
fn a_finished_night_that_is_resumed_is_one_night_of_the_history() {
    let bench = Bench::of(&small(5, 4));
    nightly(&bench, &[]).exits(0);
    nightly(&bench, &[]).exits(0);
    let file = bench.results().join("nightly/history-t.jsonl");
    let entries = || -> Vec<serde_json::Value> {
        let text = fs::read_to_string(&file).expect("there is a history");
        let entry = |line| serde_json::from_str(line).expect("it is JSON");
        text.lines().map(entry).collect()
    };
    let before = entries();
    for _ in 0..2 {
        nightly(&bench, &["--resume"]).exits(0);
    }
    assert_eq!(entries(), before);
}

#[test]
fn a_second_night_is_sent_away_and_a_killed_one_leaves_the_next_its_place() {
    let bench = Bench::of(&small(10, 4000));
    let mut first = bench
        .command(&["nightly", "matrices/m.yaml", "--no-calibration"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let began = clock::now();
    // Itself and its engine.
    while bench.survivors().len() < 2 {
        assert!(
            clock::now().since(began) < Duration::from_secs(60),
            "no engine was started"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    nightly(&bench, &[]).exits(4).says(&format!(
        "another nightly run is in progress (process {})",
        first.id()
    ));
    first.kill().expect("it lives");
    first.wait().expect("it ends");
    bench.rewrite(&small(5, 10));
    nightly(&bench, &GATE).exits(0);
    let history = bench.call(&["history", "t", "--format", "csv"]).exits(0).stdout;
    assert_eq!(history.lines().count(), 2, "{history}");
    bench.leaves_no_process();
}

#[test]
fn a_history_that_is_a_pipe_or_a_link_is_refused_before_anything_is_measured() {
    let bench = Bench::of(&small(5, 4));
    let folder = bench.results().join("nightly");
    fs::create_dir_all(&folder).expect("a folder can be made");
    let history = folder.join("history-t.jsonl");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &history,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .expect("a pipe can be made");
    let refused = |why: &str| {
        nightly(&bench, &GATE)
            .exits(4)
            .says("history-t.jsonl`: ")
            .says(why)
            .says("nothing was started");
        let entries = fs::read_dir(bench.results()).expect("there are results");
        assert_eq!(entries.count(), 1, "there is the folder of nights alone");
    };
    refused("the path is not a regular file");
    bench
        .call(&["history", "t"])
        .exits(2)
        .says("the path is not a regular file");
    // Another matrix has none, and names are looked for in all of them.
    bench
        .call(&["history", "other"])
        .exits(2)
        .says("there is no nightly run of `other`");
    fs::remove_file(&history).expect("it can be removed");
    let elsewhere = bench.path().join("elsewhere");
    fs::write(&elsewhere, "").expect("a file can be written");
    std::os::unix::fs::symlink(&elsewhere, &history).expect("a link can be made");
    refused("is a symbolic link");
    assert_eq!(fs::read_to_string(&elsewhere).expect("it is there"), "");
}

/// The machine's facts of the baseline, changed.
fn change_machine(bench: &Bench, fact: &str, value: &str) {
    let file = bench.matrix().with_file_name("m.baseline.json");
    let mut kept: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&file).expect("there is a baseline")).expect("it is JSON");
    kept["side"]["machine"][fact] = value.into();
    fs::write(&file, kept.to_string()).expect("a file can be written");
}

fn first_line(text: &str) -> &str {
    text.lines().next().expect("it says something")
}

#[test]
fn a_new_host_name_hides_no_loss_and_a_power_limit_gives_no_verdict() {
    let bench = Bench::of(&small(5, 30));
    baseline(&bench);
    change_machine(&bench, "host", "ci-runner-4711");
    bench.rewrite(&small(15, 30));
    let more = [&GATE[..], &["--junit", "junit.xml"]].concat();
    let night = nightly(&bench, &more).exits(1);
    assert_eq!(first_line(&night.stdout), "t: 1 worse");
    let page = fs::read_to_string(newest(&bench).join("nightly.md")).expect("there is a page");
    // What differs besides the figures stands beside the verdict, everywhere.
    for actual in [&night.stdout, &page, &junit(&bench)] {
        assert!(
            actual.contains("engine differences: ") && actual.contains("--itl: 5ms → 15ms"),
            "{actual}"
        );
    }
    change_machine(&bench, "GPU 0 power limit", "350 W");
    let night = nightly(&bench, &more).exits(5);
    assert!(
        first_line(&night.stdout).starts_with("t: 1 of 1 metrics not judged"),
        "{}",
        night.stdout
    );
    assert!(
        night.stdout.contains("GPU power limit: 350 W → unknown"),
        "{}",
        night.stdout
    );
    assert!(junit(&bench).contains("failures=\"0\" errors=\"0\" skipped=\"1\""));
    bench.leaves_no_process();
}

/// Makes the first measurement of a start invalid.
fn spoil(run: &Path, start: u32) {
    let folders = fs::read_dir(run.join("cells")).expect("the run has cells");
    let folder = folders
        .map(|folder| folder.expect("it can be read").path())
        .find(|folder| folder.to_string_lossy().ends_with(&format!("-s{start}-r1")))
        .expect("the start has a measurement");
    let path = folder.join("summary.json");
    let text = fs::read_to_string(&path).expect("it has a summary");
    let mut summary: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    summary["validity"]["verdict"] = "invalid".into();
    fs::write(&path, summary.to_string()).expect("a file can be written");
}

#[test]
fn a_start_that_does_not_count_is_told_with_what_measures_it_again() {
    let set = |bench: &Bench| {
        let set = ["baseline", "set", "matrices/m.yaml", "--reason", "test"];
        bench.call(&[&set[..], &GATE[..]].concat()).exits(0)
    };
    let five = Bench::of(&small(5, 10).replace("starts: 3", "starts: 5"));
    five.run(&[]).exits(0);
    let run = five.run_folder();
    spoil(&run, 3);
    let name = run.file_name().expect("it has a name").to_string_lossy();
    let actual = set(&five)
        .says("1 of 1 cell in the baseline has too few usable starts")
        .says(" has 4; a verdict needs at least five starts, or three if `matrix noise` measured this host. Until then, a nightly run judges such a cell only if it suspects a loss, and only by fresh starts")
        .says("1 of the 5 planned starts does not count")
        .says(&format!(
            "To measure failed and invalid cells again, use `matrix run matrices/m.yaml --resume {name} --failed`"
        ))
        .says("`--retry-invalid`");
    assert!(
        !actual.stderr.contains("Measure with `repeats"),
        "{}",
        actual.stderr
    );
    five.call(&["report", "t"]).exits(0).shows("done, n=4, 1 invalid");
    let three = Bench::of(&small(5, 10));
    three.run(&[]).exits(0);
    set(&three)
        .says(" has 3; a verdict needs at least five starts")
        .says("Measure with `repeats: { starts: 5 }`");
}

#[test]
fn a_goodput_of_another_slo_is_not_judged_at_night() {
    let of_slo = |ttft: &str| {
        let load = format!("output_len: 10, rate: 40, slo: {{ ttft: {ttft} }},");
        small(5, 10).replace("output_len: 10,", &load)
    };
    let bench = Bench::of(&of_slo("1ms"));
    let gate = ["--gate", "goodput_req_s"];
    nightly(&bench, &gate).exits(0);
    let set = [
        "baseline",
        "set",
        "matrices/m.yaml",
        "--reason",
        "the first night",
    ];
    bench.call(&[&set[..], &gate[..]].concat()).exits(0);
    bench.rewrite(&of_slo("900ms"));
    let night = nightly(&bench, &gate).exits(5);
    assert_eq!(first_line(&night.stdout), "t: 1 of 1 metrics not judged");
    night.shows("SLO TTFT 900ms against TTFT 1ms");
    bench.leaves_no_process();
}

#[test]
fn starts_that_crash_tonight_are_a_regression() {
    let bench = Bench::of(&small(5, 10));
    baseline(&bench);
    bench.rewrite(&small(5, 10).replace("itl, 5ms", "itl, 5ms, --die-while-loading"));
    let night = nightly(&bench, &[&GATE[..], &["--junit", "junit.xml"]].concat()).exits(1);
    let first = first_line(&night.stdout);
    assert!(
        first.contains("1 of 1 metrics not judged") && first.contains("1 worse"),
        "{first}"
    );
    night.shows("3 of 3 starts crashed, compared with 0 of 3 on the baseline");
    assert!(
        junit(&bench).contains("<failure type=\"worse\""),
        "{}",
        junit(&bench)
    );
    bench.leaves_no_process();
}

#[test]
fn two_starts_and_published_figures_judge_nothing() {
    let two = small(5, 10)
        .replace("starts: 3", "starts: 2")
        .replace("name: t\n", "name: published\n");
    let bench = Bench::of(&two);
    nightly(&bench, &GATE)
        .exits(0)
        .shows("published: no baseline yet\n");
    let accept = |what: &str, run: &str| {
        let moved = ["baseline", what, "matrices/m.yaml", run, "--reason", "r"];
        bench.call(&[&moved[..], &GATE[..]].concat()).exits(0);
    };
    accept("set", &newest(&bench).display().to_string());
    let night = nightly(&bench, &[GATE, FLOOR].concat()).exits(5);
    assert_eq!(first_line(&night.stdout), "published: 1 of 1 metrics not judged");
    night.shows("the two sides have 2 and 2 starts; a verdict needs five starts on each side");
    accept(
        "accept",
        &repository().join("results/published").display().to_string(),
    );
    let night = nightly(&bench, &GATE).exits(3);
    let first = first_line(&night.stdout);
    assert!(
        first.starts_with("published: 74 of 74 metrics not judged, 73 missing"),
        "{first}"
    );
    for verdict in ["nothing got worse", "  worse: ", "  better: "] {
        assert!(!night.stdout.contains(verdict), "{verdict}: {}", night.stdout);
    }
    bench.leaves_no_process();
}

#[test]
fn noise_is_measured_to_its_target_or_until_its_starts_are_spent() {
    let bench = Bench::of(&small(5, 20));
    let noise = |more: &[&str]| {
        let args = ["noise", "matrices/m.yaml", "--no-calibration"];
        bench.call(&[&args[..], &GATE[..], more].concat())
    };
    noise(&["--starts", "3", "--target", "1%", "--most", "5"])
        .exits(2)
        .says("`--starts 3` is raised to 5")
        .says("on each of the two sides, 10 in total");
    // Nothing is as steady as that.
    noise(&["--starts", "2", "--target", "0.0001%", "--most", "12"])
        .exits(0)
        .says("`--target` is not reached with the starts that `--most` allows: with 12 starts of each launch, a change of ");
    let cells = fs::read_dir(newest(&bench).join("cells")).expect("there are cells");
    assert_eq!(cells.count(), 12);
    noise(&["--starts", "2", "--target", "90%", "--most", "12"])
        .exits(0)
        .says("the target is reached: with 10 starts of each launch, a change of ");
    bench.leaves_no_process();
}
