//! Findings of a review of nights, servers and GPUs, each shown a second time: with other engines, faults, sizes and ways in than the review used.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::sync::Mutex;
use std::time::Duration;

use matrix::results::record::cell::MeasurementSummary;
use matrix::results::record::validity::{ReasonCode, Verdict};
use matrix::results::store::Run;
use serde_json::Value;

use crate::fake::{Answer, Asked, Conduct, Fake};
use crate::harness::{Bench, sims, summary};
use crate::nightly::{GATE, LENIENT, nightly};
use crate::nvml::Stub;

/// A matrix on servers of these names.
fn attached(servers: &[(&str, &Fake)], scenarios: &str, more: &str) -> Bench {
    let engines: String = servers
        .iter()
        .map(|(name, server)| format!("  - attach: {{ as: {name}, url: \"{}\" }}\n", server.url()))
        .collect();
    Bench::of(&format!(
        "name: t\nengines:\n{engines}models:\n  - m: {{ tokenizer: data/tokenizer.json }}\nscenarios:\n{scenarios}\
         datasets: {{ sharegpt: data/conversations.json }}\n{LENIENT}{more}"
    ))
}

/// What was found of a measurement that weighs more than a note.
fn doubts(summary: &MeasurementSummary) -> BTreeSet<ReasonCode> {
    let reasons = summary.validity.iter().flat_map(|validity| &validity.reasons);
    reasons
        .filter(|reason| reason.weight > Verdict::Valid)
        .map(|reason| reason.code)
        .collect()
}

fn codes(summary: &MeasurementSummary) -> BTreeSet<ReasonCode> {
    let reasons = summary.validity.iter().flat_map(|validity| &validity.reasons);
    reasons.map(|reason| reason.code).collect()
}

/// An engine in a version, each of whose starts reads its time between tokens from the file of that version.
fn versioned(version: &str, models: &[&str]) -> String {
    let models: String = models
        .iter()
        .map(|model| format!("  - {model}: {{ tokenizer: data/tokenizer.json }}\n"))
        .collect();
    format!(
        "name: t
engines:
  - sim:
      as: tgi
      variant: vllm
      version: {version}
      command: [sh, -c, 'exec \"{{matrix}}\" sim --model {{served}} --port {{port}} --ttft 4ms --itl \"$(cat \"$TEST_FOLDER\"/{version}.itl)\" \"$@\"', sh]
      env: {{ TEST_FOLDER: \"@HERE@\" }}
models:
{models}scenarios:
  - random-1k-1k: {{ prompts: 5, input_len: 16, output_len: 30, warmup: 0 }}
repeats: {{ starts: 5 }}
datasets: {{ sharegpt: data/conversations.json }}
{LENIENT}"
    )
}

/// A folder with such a matrix.
fn of_versions(version: &str, models: &[&str]) -> Bench {
    let bench = Bench::of("");
    rewrite(&bench, version, models);
    bench
}

fn rewrite(bench: &Bench, version: &str, models: &[&str]) {
    let folder = bench.path().display().to_string();
    bench.rewrite(&versioned(version, models).replace("@HERE@", &folder));
}

/// From now on starts of these versions answer at this pace.
fn pace(bench: &Bench, versions: &[(&str, &str)]) {
    for (version, itl) in versions {
        fs::write(bench.path().join(format!("{version}.itl")), itl).expect("a file can be written");
    }
}

fn baseline(bench: &Bench) {
    let set = [
        &["baseline", "set", "matrices/m.yaml", "--reason", "a beginning"],
        &GATE[..],
    ]
    .concat();
    bench.call(&set).exits(0);
}

/// Night after night on a host whose processor is another one since the baseline: nothing can be judged, however slow the engine has become.
#[test]
fn a_night_on_another_processor_is_skipped_and_not_passed() {
    let bench = of_versions("v1", &["a", "b"]);
    pace(&bench, &[("v1", "5ms")]);
    nightly(&bench, &GATE).exits(0);
    baseline(&bench);
    let file = bench.matrix().with_file_name("m.baseline.json");
    let mut kept: Value =
        serde_json::from_str(&fs::read_to_string(&file).expect("there is a baseline")).expect("it is JSON");
    kept["side"]["machine"]["CPU"] = "Another Processor 3000".into();
    fs::write(&file, kept.to_string()).expect("a file can be written");
    pace(&bench, &[("v1", "15ms")]);
    let night = nightly(&bench, &[&GATE[..], &["--junit", "junit.xml"]].concat()).exits(5);
    let first = night.stdout.lines().next().unwrap_or_default();
    assert!(first.contains("2 of 2 metrics not judged"), "{}", night.stdout);
    let junit = fs::read_to_string(bench.path().join("junit.xml")).expect("there is a file");
    assert!(
        junit.contains("skipped=\"2\"") && junit.contains("<skipped"),
        "{junit}"
    );
    assert!(!junit.contains("failures=\"1\""), "{junit}");
    bench.leaves_no_process();
}

/// A night on which the host is slow costs the old version as much as the new one; a slow version costs itself alone.
#[test]
fn a_slow_host_is_no_loss_of_the_next_version_and_a_slow_version_is() {
    let bench = of_versions("v1", &["a"]);
    pace(&bench, &[("v1", "10ms"), ("v2", "10ms")]);
    nightly(&bench, &GATE).exits(0);
    baseline(&bench);
    rewrite(&bench, "v2", &["a"]);
    pace(&bench, &[("v1", "11ms"), ("v2", "11ms")]);
    let slow_host = nightly(&bench, &[&GATE[..], &["--confirm", "5"]].concat());
    assert!(!slow_host.stdout.contains("  worse: "), "{}", slow_host.stdout);
    assert_ne!(slow_host.code, Some(1), "{}", slow_host.stdout);
    pace(&bench, &[("v1", "10ms"), ("v2", "12ms")]);
    nightly(&bench, &[&GATE[..], &["--confirm", "5"]].concat())
        .exits(1)
        .shows("  worse: ");
    bench.leaves_no_process();
}

/// The beginnings of prompts that a server has seen.
static SEEN: Mutex<Option<HashSet<Vec<u32>>>> = Mutex::new(None);

fn remembers(asked: &Asked, answer: &mut Answer) {
    let mut seen = SEEN.lock().expect("nobody panicked");
    let begins = asked.ids.iter().take(16).copied().collect();
    let is_new = seen.get_or_insert_default().insert(begins);
    if let Some(first) = answer.events.first_mut().filter(|_| is_new) {
        first.after = Duration::from_millis(150);
    }
}

/// A running server that remembers what it has read, tells no counters and takes no reset.
#[test]
fn starts_on_a_running_server_that_remembers_are_one_start_and_cold() {
    let server = Fake::start(Conduct {
        answer: remembers,
        ..Conduct::at(5, 1)
    });
    let load = "  - ids: { dataset: random-ids, prompts: 12, input_len: 64, output_len: 6, concurrency: 3, range_ratio: 1.0, tokenize_prompt: true, warmup: 0 }\n";
    let bench = attached(&[("prod", &server)], load, "repeats: { starts: 3 }\n");
    bench.run(&["--results", "one"]).exits(0);
    bench.run(&["--results", "two"]).exits(0);
    let run_in = |name: &str| {
        let folder = fs::read_dir(bench.path().join(name))
            .expect("there are results")
            .map(|entry| entry.expect("they can be read").path())
            .find(|path| path.join("run.json").exists());
        folder.expect("there is a run")
    };
    let folders = [run_in("one"), run_in("two")];
    for folder in &folders {
        for summary in &Run::read(folder).expect("it can be read").summaries {
            let figures = summary.figures.values().last().expect("there are figures");
            let ttft = figures["median_ttft_ms"].expect("it is known");
            let found = codes(summary);
            let is_named =
                found.contains(&ReasonCode::ResetUnproven) || found.contains(&ReasonCode::CacheWarm);
            assert!(ttft > 100.0 || is_named, "{ttft} ms, {found:?}");
        }
    }
    let [one, two] = folders.map(|folder| folder.display().to_string());
    // Six times three requests of one process are one observation a side.
    let actual = bench.call(&["compare", &one, &two, "--format", "json"]);
    assert_eq!(actual.code, Some(5), "{}", actual.stdout);
    let page = bench
        .call(&["report", &one, &two, "--format", "json"])
        .exits(0)
        .stdout;
    let page: Value = serde_json::from_str(&page).expect("it is JSON");
    for standing in page["standings"].as_array().expect("there are some") {
        assert_eq!(
            (&standing["wins"], &standing["losses"]),
            (&0.into(), &0.into()),
            "{standing}"
        );
    }
}

/// What becomes of an honest answer.
type Lie = fn(&Asked, &mut Answer);

/// A word that is one token of the shipped tokenizer.
fn word() -> String {
    " the".to_owned()
}

fn cuts_a_quarter(_: &Asked, answer: &mut Answer) {
    answer.prompt -= answer.prompt / 4;
}

fn adds_a_tenth(_: &Asked, answer: &mut Answer) {
    let more = answer.events.len() / 10 + 2;
    let last = answer.events.last().cloned();
    answer.events.extend(last.into_iter().cycle().take(more));
    answer.completion += more as u32;
}

fn stammers_in_three_of_five(asked: &Asked, answer: &mut Answer) {
    if asked.number % 5 < 3 {
        for event in &mut answer.events {
            event.text = word();
        }
    }
}

fn stops_at_four_fifths_without_counting(_: &Asked, answer: &mut Answer) {
    let keep = answer.events.len() * 4 / 5;
    answer.events.truncate(keep);
    answer.usage = false;
    answer.finish = "stop";
}

fn counts_a_third_more(_: &Asked, answer: &mut Answer) {
    let keep = answer.events.len() * 3 / 4;
    answer.events.truncate(keep);
}

/// Milder lies than the boldest: each is named, and none wins over the honest one.
#[test]
fn servers_that_lie_by_a_little_are_named() {
    const LIES: [(&str, Lie, &[ReasonCode]); 5] = [
        ("cuts", cuts_a_quarter, &[ReasonCode::PromptTokensDisagree]),
        ("goes-on", adds_a_tenth, &[ReasonCode::OutputLong]),
        (
            "stammers",
            stammers_in_three_of_five,
            &[ReasonCode::AnswersDegenerate],
        ),
        (
            "stops",
            stops_at_four_fifths_without_counting,
            &[ReasonCode::OutputShort, ReasonCode::TokensUncounted],
        ),
        ("inflates", counts_a_third_more, &[ReasonCode::TokensDisagree]),
    ];
    let honest = Fake::start(Conduct::at(20, 4));
    let servers: Vec<(&str, Fake)> = LIES
        .iter()
        .map(|(name, answer, _)| {
            let conduct = Conduct {
                answer: *answer,
                ..Conduct::at(5, 2)
            };
            (*name, Fake::start(conduct))
        })
        .collect();
    let mut named: Vec<(&str, &Fake)> = vec![("honest", &honest)];
    named.extend(servers.iter().map(|(name, server)| (*name, server)));
    let load = "  - ids: { dataset: random-ids, prompts: 30, input_len: 120, output_len: 40, concurrency: 6, range_ratio: 1.0, tokenize_prompt: true, warmup: 0 }\n";
    let bench = attached(&named, load, "");
    let ran = bench.run(&[]);
    assert!(!ran.stdout.contains("[best]"), "{}", ran.stdout);
    let run = bench.finished();
    assert!(doubts(summary(&run, "honest", "ids")).is_empty());
    let mut silent: BTreeMap<&str, String> = BTreeMap::new();
    for (name, _, wanted) in LIES {
        let found = doubts(summary(&run, name, "ids"));
        for code in wanted {
            if !found.contains(code) {
                silent.insert(name, format!("{code:?} is not in {found:?}"));
            }
        }
    }
    assert!(silent.is_empty(), "{silent:#?}");
}

/// A server that is honest nine times of ten is named all the same, with how often it is not.
#[test]
fn a_server_that_lies_in_one_of_ten_answers_is_named() {
    const LIES: [(&str, Lie, ReasonCode, Verdict, &str); 3] = [
        (
            "stammers",
            |asked, answer| {
                if asked.number.is_multiple_of(10) {
                    for event in &mut answer.events {
                        (event.text, event.after) = (word(), Duration::from_micros(200));
                    }
                }
            },
            ReasonCode::AnswersDegenerate,
            Verdict::Suspect,
            "4 of 40 answers (10.0 %)",
        ),
        (
            "cuts",
            |asked, answer| {
                if asked.number.is_multiple_of(10) {
                    answer.prompt /= 2;
                }
            },
            ReasonCode::PromptTokensDisagree,
            Verdict::Invalid,
            "4 of 40 prompts",
        ),
        (
            "inflates",
            |asked, answer| {
                if asked.number.is_multiple_of(10) {
                    answer.events.truncate(answer.events.len() / 2);
                }
            },
            ReasonCode::TokensDisagree,
            Verdict::Valid,
            "4 of 40 answers",
        ),
    ];
    let servers: Vec<(&str, Fake)> = LIES
        .iter()
        .map(|(name, answer, ..)| {
            let conduct = Conduct {
                answer: *answer,
                ..Conduct::at(10, 4)
            };
            (*name, Fake::start(conduct))
        })
        .collect();
    let named: Vec<(&str, &Fake)> = servers.iter().map(|(name, server)| (*name, server)).collect();
    let load = "  - ids: { dataset: random-ids, prompts: 40, input_len: 60, output_len: 30, concurrency: 8, range_ratio: 1.0, tokenize_prompt: true, warmup: 0 }\n";
    let bench = attached(&named, load, "");
    bench.run(&[]);
    let run = bench.finished();
    for (name, _, code, weight, share) in LIES {
        let summary = summary(&run, name, "ids");
        let mut reasons = summary.validity.iter().flat_map(|validity| &validity.reasons);
        let found = reasons.find(|reason| reason.code == code);
        let found = found.unwrap_or_else(|| panic!("{name}: {:?}", summary.validity));
        assert!(
            found.weight == weight && found.measured.contains(share),
            "{name}: {found:?}"
        );
    }
}

/// An engine of a recipe of its own that counts nothing, whose reset answers success and does nothing: what it is asked a second time it knows.
#[test]
fn a_reset_that_does_nothing_and_that_no_counter_shows_is_unproven() {
    let bench = Bench::of(&format!(
        "name: t\nengines:\n  - quiet: {{ args: [--fake-reset, --hide-cached-tokens, \"--prefill-rate=5000\"] }}\n\
         models:\n  - m: {{ tokenizer: data/tokenizer.json }}\n\
         scenarios:\n  - ids: {{ dataset: random-ids, prompts: 8, input_len: 400, output_len: 4, concurrency: 2, range_ratio: 1.0, tokenize_prompt: true }}\n\
         repeats: {{ per_start: 2 }}\ndatasets: {{ sharegpt: data/conversations.json }}\n{LENIENT}"
    ));
    let engines = bench.path().join("engines");
    fs::remove_file(&engines).expect("it is a link");
    fs::create_dir(&engines).expect("a folder can be made");
    let recipe = "name: quiet
title: An engine without counters
simulated: true
backend: vllm
executors: [process]
devices: none
command: [\"{matrix}\", sim, --model, \"{served}\", --port, \"{port}\"]
port: { default: 8000 }
contact:
  protocol: completions
  usage: stream-options
  health: /health
  models: /v1/models
  reset: { method: POST, path: /reset_prefix_cache, success: /success }
";
    fs::write(engines.join("quiet.yaml"), recipe).expect("a file can be written");
    bench.run(&[]).exits(0);
    let run = bench.finished();
    let ttft = |repeat: u32| {
        let summary = run.summaries.iter().find(|summary| summary.repeat == repeat);
        let summary = summary.expect("it was measured");
        let figures = summary.figures.values().last().expect("there are figures");
        (figures["median_ttft_ms"].expect("it is known"), doubts(summary))
    };
    let ((cold, first), (warm, second)) = (ttft(1), ttft(2));
    assert!(warm < 0.7 * cold, "the reset does nothing: {cold} ms, {warm} ms");
    assert!(!first.contains(&ReasonCode::ResetUnproven), "{first:?}");
    assert!(second.contains(&ReasonCode::ResetUnproven), "{second:?}");
    bench.leaves_no_process();
}

/// Counters of an SGLang server that throws out a request of eight, and whose cache is full.
fn crowded(requests: u64) -> String {
    format!(
        "# TYPE sglang:num_retracted_requests_total counter\nsglang:num_retracted_requests_total {}\n\
         # TYPE sglang:token_usage gauge\nsglang:token_usage 0.99\n",
        requests / 8
    )
}

/// What an attached server tells under another engine's names is judged.
#[test]
fn a_running_server_that_throws_requests_out_is_named() {
    let crowd = Fake::start(Conduct {
        metrics: Some(crowded),
        ..Conduct::at(10, 8)
    });
    let calm = Fake::start(Conduct {
        metrics: Some(|_| crowded(0).replace("0.99", "0.4")),
        ..Conduct::at(10, 8)
    });
    let load = "  - ids: { dataset: random-ids, prompts: 48, input_len: 32, output_len: 60, concurrency: 4, range_ratio: 1.0, tokenize_prompt: true, warmup: 0 }\n";
    let bench = attached(&[("crowd", &crowd), ("calm", &calm)], load, "");
    let ran = bench.run(&[]).exits(0);
    let run = bench.finished();
    let found = codes(summary(&run, "crowd", "ids"));
    assert!(
        found.contains(&ReasonCode::Preempted) && found.contains(&ReasonCode::KvCacheFull),
        "{found:?}"
    );
    let found = codes(summary(&run, "calm", "ids"));
    assert!(
        !found.contains(&ReasonCode::Preempted) && !found.contains(&ReasonCode::KvCacheFull),
        "{found:?}"
    );
    assert!(ran.stdout.contains("preempted"), "{}", ran.stdout);
}

/// Three engines and two models: within a model the engines take turns, forward and backward, and then comes the next model.
#[test]
fn three_engines_take_turns_within_a_model() {
    let matrix = sims(
        &[("x", "vllm", ""), ("y", "sglang", ""), ("z", "lmdeploy", "")],
        "  - random-1k-1k: { prompts: 2, input_len: 16, output_len: 8 }\n",
    )
    .replace(
        "  - m: { tokenizer: data/tokenizer.json }\n",
        "  - m: { tokenizer: data/tokenizer.json }\n  - n: { tokenizer: data/tokenizer.json }\n",
    );
    let order = |repeats: &str| -> Vec<String> {
        let bench = Bench::of(&format!("{matrix}repeats: {repeats}\n"));
        let plan = bench.call(&["plan", "matrices/m.yaml", "--json"]).exits(0).stdout;
        let plan: Value = serde_json::from_str(&plan).expect("it is JSON");
        let starts = plan["starts"].as_array().expect("there are starts").iter();
        let of = |start: &Value| {
            let launch = start["launch"].as_str().expect("it has a name");
            let launches = plan["launches"].as_array().expect("there are launches");
            let launch = launches
                .iter()
                .find(|one| one["launch"] == launch)
                .expect("it is one");
            format!(
                "{}{}",
                launch["engine"]["name"].as_str().expect("it has a name"),
                launch["model"].as_str().expect("it has a model")
            )
        };
        starts.map(of).collect()
    };
    let turns = [
        "xm", "ym", "zm", "zm", "ym", "xm", "xm", "ym", "zm", "xn", "yn", "zn", "zn", "yn", "xn", "xn", "yn",
        "zn",
    ];
    assert_eq!(order("{ starts: 3 }"), turns);
    assert_eq!(order("{ starts: 2, order: blocks }")[..2], ["xm", "xm"]);
}

/// Six starts that vary by a tenth and by luck no more look quiet enough for a target that their true noise may miss.
#[test]
fn noise_is_not_known_well_enough_because_it_looks_small() {
    let bench = Bench::of("");
    let folder = bench.path().display().to_string();
    bench.rewrite(&format!(
        "name: t
engines:
  - sim:
      as: tgi
      variant: vllm
      command: [sh, -c, 'cd {folder}; n=$(cat starts | wc -l); echo . >> starts; exec \"{{matrix}}\" sim --model m --port {{port}} --ttft 2ms --itl \"$(sed -n $((n % 5 + 1))p times)\" \"$@\"', sh]
models:
  - m: {{ tokenizer: data/tokenizer.json }}
scenarios:
  - random-1k-1k: {{ prompts: 3, input_len: 16, output_len: 25, warmup: 0 }}
datasets: {{ sharegpt: data/conversations.json }}
{LENIENT}"
    ));
    fs::write(bench.path().join("starts"), "").expect("a file can be written");
    // 10 ms by a tenth: 2.37 tenths are what five starts against five show.
    fs::write(bench.path().join("times"), "10ms\n11ms\n9ms\n11200us\n9600us\n")
        .expect("a file can be written");
    let noise = [
        "noise",
        "matrices/m.yaml",
        "--no-calibration",
        "--starts",
        "3",
        "--most",
        "10",
        "--target",
        "26%",
    ];
    let ran = bench.call(&[&noise[..], &GATE[..]].concat()).exits(0);
    let ran = ran.says("`--target` is not reached");
    assert!(ran.stderr.contains("10 starts"), "{}", ran.stderr);
    bench.leaves_no_process();
}

/// Somebody computes on two of four GPUs: others are taken, and those that the surroundings or the matrix name.
#[test]
fn idle_gpus_are_taken_first_and_those_that_are_named_alone() {
    let own = std::process::id();
    let stub = Stub::of(&format!(
        "gpus 4\nprocess gpu=0 {own} 300\nprocess gpu=2 {own} 900\n"
    ));
    let matrix = sims(
        &[("a", "sglang", "")],
        "  - random-1k-1k: { prompts: 2, input_len: 16, output_len: 8, warmup: 0 }\n",
    )
    .replace("as: a,", "as: a, devices: gpu,");
    let leased = |bench: Bench| {
        bench.run(&[]).exits(0);
        let run = bench.finished();
        summary(&run, "a", "random-1k-1k").engine.devices.clone()
    };
    let two = format!("{matrix}axes: {{ tp: [2] }}\n");
    assert_eq!(leased(Bench::of(&two).gpus(&stub)), [1, 3]);
    for variable in ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"] {
        let bench = Bench::of(&matrix).gpus(&stub).variable(variable, "3");
        assert_eq!(leased(bench), [3], "{variable}");
    }
    let named = format!("{matrix}gpus: 2-3\n");
    assert_eq!(leased(Bench::of(&named).gpus(&stub)), [3]);
    // Where only a busy one may be taken, nothing starts.
    let busy = format!("{matrix}gpus: 0\n");
    Bench::of(&busy).gpus(&stub).run(&[]).exits(4);
}
