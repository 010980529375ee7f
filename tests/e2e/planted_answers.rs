//! Planted errors in answers: each kind must be found at the loads at which it is, with the right code and the tasks that it
//! concerns, and healthy engines, whose answers also vary, must not be blamed. `tests/answers.sh` runs the long form.

use std::collections::BTreeSet;
use std::fs;
use std::thread;

use matrix::base::clock;
use matrix::results::record::validity::ReasonCode;
use matrix::results::record::validity::ReasonCode::{
    AnswersBelowMinimum as Below, AnswersNotCompared as NotCompared, AnswersWorseThanReference as Worse,
    AnswersWrongUnderLoad as UnderLoad,
};
use matrix::results::store::Run as Finished;

use crate::harness::{Bench, sims, summary};

/// Codes about graded answers that are no notes.
const CODES: [ReasonCode; 4] = [UnderLoad, Below, Worse, NotCompared];

/// What must be found at a scenario: a code, and the tasks that it names.
type Finding = (ReasonCode, &'static [&'static str]);

/// An engine with a planted error.
struct Planted {
    name: &'static str,
    args: &'static str,
    /// What must be found at the first and at the second scenario of its group.
    found: [&'static [Finding]; 2],
}

/// Engines that are measured and graded alike, in one run.
struct Group {
    variant: &'static str,
    /// Arguments of the engine that is the reference, if answers are compared.
    reference: Option<&'static str>,
    /// Whether the reference is measured in a run of its own.
    is_stored: bool,
    tasks: &'static [(&'static str, &'static str)],
    scenarios: [(&'static str, &'static str); 2],
    engines: &'static [Planted],
}

const fn planted(name: &'static str, args: &'static str, found: [&'static [Finding]; 2]) -> Planted {
    Planted { name, args, found }
}

const FEW_AND_MANY: [(&str, &str); 2] = [("few", "concurrency: 4"), ("many", "concurrency: 24")];
const TEXTS: &[&str] = &["arithmetic", "copy", "recall"];
const CALLS: &[&str] = &["tool-calls", "json", "arithmetic"];
const NOTHING: &[Finding] = &[];

const GROUPS: &[Group] = &[
    Group {
        variant: "vllm",
        reference: Some(""),
        is_stored: false,
        tasks: &[
            ("arithmetic", "items: 60, max_tokens: 12"),
            ("copy", "items: 40, input_len: 12, max_tokens: 24"),
            ("recall", "items: 40, input_len: 400, max_tokens: 12"),
        ],
        scenarios: FEW_AND_MANY,
        engines: &[
            planted(
                "above15",
                "--wrong-above=15",
                [NOTHING, &[(UnderLoad, TEXTS), (Worse, TEXTS)]],
            ),
            planted(
                "above8",
                "--wrong-above=8",
                [NOTHING, &[(UnderLoad, TEXTS), (Worse, TEXTS)]],
            ),
            planted(
                "above2",
                "--wrong-above=2",
                [
                    &[(UnderLoad, TEXTS), (Worse, TEXTS)],
                    &[(UnderLoad, TEXTS), (Worse, TEXTS)],
                ],
            ),
            planted(
                "beyond",
                "--wrong-beyond=150",
                [&[(Worse, &["recall"])], &[(Worse, &["recall"])]],
            ),
            planted(
                "share50",
                "--wrong-answers=50%",
                [&[(Worse, TEXTS)], &[(Worse, TEXTS)]],
            ),
            planted(
                "share100",
                "--wrong-answers=100%",
                [&[(Worse, TEXTS)], &[(Worse, TEXTS)]],
            ),
            planted(
                "template",
                "--wrong-template",
                [&[(Worse, TEXTS)], &[(Worse, TEXTS)]],
            ),
            planted(
                "cut",
                "--truncate-prompts=120",
                [&[(Worse, &["recall"])], &[(Worse, &["recall"])]],
            ),
            planted(
                "beyond-above",
                "--wrong-beyond=150, --wrong-above=8",
                [
                    &[(Worse, &["recall"])],
                    &[(UnderLoad, &["arithmetic", "copy"]), (Worse, TEXTS)],
                ],
            ),
        ],
    },
    Group {
        variant: "vllm-chat",
        reference: Some(""),
        is_stored: false,
        tasks: &[
            ("tool-calls", "items: 40, max_tokens: 60"),
            ("json", "items: 40, max_tokens: 60"),
            ("arithmetic", "items: 60, max_tokens: 12"),
        ],
        scenarios: [("few", "concurrency: 2"), ("many", "concurrency: 24")],
        engines: &[
            planted(
                "parser",
                "--broken-tool-parser",
                [&[(Worse, &["tool-calls"])], &[(Worse, &["tool-calls"])]],
            ),
            planted(
                "parser-above",
                "--broken-tool-parser, --wrong-above=8",
                [
                    &[(Worse, &["tool-calls"])],
                    &[(UnderLoad, &["json", "arithmetic"]), (Worse, CALLS)],
                ],
            ),
            planted(
                "above1",
                "--wrong-above=1",
                [
                    &[(UnderLoad, CALLS), (Worse, CALLS)],
                    &[(UnderLoad, CALLS), (Worse, CALLS)],
                ],
            ),
            planted(
                "above15",
                "--wrong-above=15",
                [NOTHING, &[(UnderLoad, CALLS), (Worse, CALLS)]],
            ),
            planted(
                "template",
                "--wrong-template",
                [&[(Worse, CALLS)], &[(Worse, CALLS)]],
            ),
            planted(
                "share50",
                "--wrong-answers=50%",
                [&[(Worse, CALLS)], &[(Worse, CALLS)]],
            ),
        ],
    },
    Group {
        variant: "vllm",
        reference: None,
        is_stored: false,
        tasks: &[
            ("arithmetic", "items: 60, max_tokens: 12, min_correct: 0.9"),
            (
                "copy",
                "items: 40, input_len: 12, max_tokens: 24, min_correct: 0.9",
            ),
            (
                "recall",
                "items: 40, input_len: 400, max_tokens: 12, min_correct: 0.9",
            ),
        ],
        scenarios: FEW_AND_MANY,
        engines: &[
            planted(
                "share35",
                "--wrong-answers=30%",
                [&[(Below, TEXTS)], &[(Below, TEXTS)]],
            ),
            planted(
                "share60",
                "--wrong-answers=60%",
                [&[(Below, TEXTS)], &[(Below, TEXTS)]],
            ),
            planted(
                "template",
                "--wrong-template",
                [&[(Below, TEXTS)], &[(Below, TEXTS)]],
            ),
            planted(
                "beyond",
                "--wrong-beyond=150",
                [&[(Below, &["recall"])], &[(Below, &["recall"])]],
            ),
            planted(
                "cut",
                "--truncate-prompts=120",
                [&[(Below, &["recall"])], &[(Below, &["recall"])]],
            ),
            planted(
                "above15",
                "--wrong-above=15",
                [NOTHING, &[(UnderLoad, TEXTS), (Below, TEXTS)]],
            ),
            planted(
                "above-noise",
                "--wrong-above=8, --wrong-answers=2%",
                [NOTHING, &[(UnderLoad, TEXTS), (Below, TEXTS)]],
            ),
            planted(
                "beyond-above",
                "--wrong-beyond=150, --wrong-above=8",
                [
                    &[(Below, &["recall"])],
                    &[(UnderLoad, &["arithmetic", "copy"]), (Below, TEXTS)],
                ],
            ),
        ],
    },
    Group {
        variant: "vllm-chat",
        reference: None,
        is_stored: false,
        tasks: &[
            ("tool-calls", "items: 40, max_tokens: 60, min_correct: 0.9"),
            ("json", "items: 40, max_tokens: 60, min_correct: 0.9"),
            ("arithmetic", "items: 60, max_tokens: 12"),
        ],
        scenarios: [("burst", "prompts: 24"), ("rate", "rate: 300")],
        engines: &[
            planted(
                "parser",
                "--broken-tool-parser",
                [&[(Below, &["tool-calls"])], &[(Below, &["tool-calls"])]],
            ),
            planted(
                "above6",
                "--wrong-above=6",
                [
                    &[(UnderLoad, CALLS), (Below, &["tool-calls", "json"])],
                    &[(UnderLoad, CALLS), (Below, &["tool-calls", "json"])],
                ],
            ),
            planted(
                "share50",
                "--wrong-answers=50%",
                [
                    &[(Below, &["tool-calls", "json"])],
                    &[(Below, &["tool-calls", "json"])],
                ],
            ),
            planted(
                "template",
                "--wrong-template",
                [
                    &[(Below, &["tool-calls", "json"])],
                    &[(Below, &["tool-calls", "json"])],
                ],
            ),
        ],
    },
    Group {
        variant: "vllm",
        reference: Some("--wrong-answers=5%"),
        is_stored: true,
        tasks: &[
            ("arithmetic", "items: 200, max_tokens: 12"),
            (
                "copy",
                "items: 120, input_len: 12, max_tokens: 24, min_correct: 0.5",
            ),
        ],
        scenarios: FEW_AND_MANY,
        engines: &[
            planted(
                "share30",
                "--wrong-answers=30%",
                [
                    &[(Worse, &["arithmetic", "copy"])],
                    &[(Worse, &["arithmetic", "copy"])],
                ],
            ),
            planted(
                "fails",
                "--wrong-answers=5%, --http-error-every=5",
                [
                    &[(Worse, &["arithmetic", "copy"])],
                    &[(Worse, &["arithmetic", "copy"])],
                ],
            ),
            planted(
                "share70",
                "--wrong-answers=70%",
                [
                    &[(Worse, &["arithmetic", "copy"]), (Below, &["copy"])],
                    &[(Worse, &["arithmetic", "copy"]), (Below, &["copy"])],
                ],
            ),
            planted(
                "above8",
                "--wrong-answers=5%, --wrong-above=8",
                [
                    NOTHING,
                    &[
                        (UnderLoad, &["arithmetic", "copy"]),
                        (Below, &["copy"]),
                        (Worse, &["arithmetic", "copy"]),
                    ],
                ],
            ),
        ],
    },
];

/// The matrix of engines, each with its variant and arguments.
fn matrix(
    engines: &[(String, &str, String)],
    scenarios: &[(&str, &str)],
    quality: &str,
    seed: u64,
) -> String {
    let scenarios: String = scenarios
        .iter()
        .map(|(name, load)| {
            let prompts = if load.contains("prompts") { "" } else { "prompts: 16, " };
            format!("  - {name}: {{ dataset: random, {prompts}input_len: 20, output_len: 12, warmup: 4, {load}, seed: {seed} }}\n")
        })
        .collect();
    let entries: Vec<(&str, &str, String)> = engines
        .iter()
        .enumerate()
        .map(|(nth, (name, variant, args))| {
            let more = if args.is_empty() { "" } else { ", " };
            let seed = seed * 1000 + nth as u64;
            (
                name.as_str(),
                *variant,
                format!("--step=1ms, --seed={seed}{more}{args}"),
            )
        })
        .collect();
    let entries: Vec<(&str, &str, &str)> = entries
        .iter()
        .map(|(name, variant, args)| (*name, *variant, args.as_str()))
        .collect();
    format!("{}quality: {{ {quality} }}\n", sims(&entries, &scenarios))
}

/// The codes about answers of a cell that are no notes, with the tasks that they name.
fn findings(run: &Finished, engine: &str, scenario: &str, tasks: &[&str]) -> BTreeSet<(String, Vec<String>)> {
    let summary = summary(run, engine, scenario);
    let json = serde_json::to_value(summary).expect("it is JSON");
    assert!(
        !json["graded"].is_null(),
        "{} was not graded: {:?}",
        summary.cell,
        summary.status
    );
    let reasons = summary.validity.iter().flat_map(|validity| &validity.reasons);
    let reasons: Vec<_> = reasons.filter(|reason| CODES.contains(&reason.code)).collect();
    let of_code = |code: ReasonCode| {
        let measured: Vec<&str> = reasons
            .iter()
            .filter(|reason| reason.code == code)
            .map(|reason| reason.measured.as_str())
            .collect();
        let named = tasks
            .iter()
            .filter(|task| measured.iter().any(|text| text.contains(**task)));
        (
            format!("{code:?}"),
            named.map(|task| (*task).to_owned()).collect(),
        )
    };
    reasons.iter().map(|reason| of_code(reason.code)).collect()
}

/// Measures a group, and describes every cell whose findings are others than the planted ones.
fn missed(group: &Group, engines: &[&Planted], seed: u64) -> Vec<String> {
    let names: Vec<&str> = group.tasks.iter().map(|(name, _)| *name).collect();
    let tasks: Vec<String> = group
        .tasks
        .iter()
        .map(|(name, task)| format!("{name}: {{ {task} }}"))
        .collect();
    let tasks = format!("controls: 8, tasks: [{}]", tasks.join(", "));
    let pinned = group
        .reference
        .map(|args| ("pinned".to_owned(), group.variant, args.to_owned()));
    let planted = engines
        .iter()
        .map(|planted| (planted.name.to_owned(), group.variant, planted.args.to_owned()));
    let run = match (pinned, group.is_stored) {
        (Some(pinned), true) => {
            let bench = Bench::of(&matrix(&[pinned], &group.scenarios, &tasks, seed));
            bench.run(&[]).exits(0);
            let stored = bench.run_folder();
            let name = stored.file_name().expect("it has a name").to_string_lossy();
            fs::rename(bench.results(), bench.path().join("pinned")).expect("it can be moved");
            let quality = format!("{tasks}, reference: {{ run: pinned/{name} }}");
            let engines: Vec<_> = planted.collect();
            bench.rewrite(&matrix(&engines, &group.scenarios, &quality, seed));
            bench.run(&[]).exits(3);
            bench.finished()
        }
        (pinned, _) => {
            let reference = pinned.as_ref().map_or("", |_| ", reference: pinned");
            let engines: Vec<_> = pinned.into_iter().chain(planted).collect();
            let bench = Bench::of(&matrix(
                &engines,
                &group.scenarios,
                &format!("{tasks}{reference}"),
                seed,
            ));
            bench.run(&[]).exits(3);
            bench.finished()
        }
    };
    let mut wrong = Vec::new();
    for planted in engines {
        for ((scenario, _), expected) in group.scenarios.iter().zip(planted.found) {
            let expected: BTreeSet<(String, Vec<String>)> = expected
                .iter()
                .map(|(code, named)| {
                    let named = names.iter().filter(|task| named.contains(*task));
                    (
                        format!("{code:?}"),
                        named.map(|task| (*task).to_owned()).collect(),
                    )
                })
                .collect();
            let found = findings(&run, planted.name, scenario, &names);
            if found != expected {
                wrong.push(format!(
                    "{} `{}` at {scenario}: found {found:?} instead of {expected:?}",
                    group.variant, planted.args
                ));
            }
        }
    }
    wrong
}

/// Measures healthy engines, whose answers are wrong with the same chance whatever the load is, and describes every cell
/// that is blamed.
fn blamed(engines: usize, scenarios: &[(&str, &str)], items: u32, share: &str, seed: u64) -> Vec<String> {
    let variants = ["vllm", "vllm-chat", "sglang-oai"];
    let names: Vec<(String, &str, String)> = (0..engines)
        .map(|nth| {
            let args = format!("--wrong-answers={share}");
            (format!("healthy{nth}"), variants[nth % variants.len()], args)
        })
        .collect();
    let quality = format!(
        "reference: healthy0, tasks: [arithmetic: {{ items: {items}, max_tokens: 12, min_correct: 0.3 }}, copy: {{ items: {items}, input_len: 12, max_tokens: 24 }}]"
    );
    let bench = Bench::of(&matrix(&names, scenarios, &quality, seed));
    let ran = bench.run(&[]);
    assert!(matches!(ran.code, Some(0 | 3)), "{}", ran.stderr);
    let run = bench.finished();
    assert_eq!(run.summaries.len(), engines * scenarios.len());
    let mut blamed = Vec::new();
    for (name, ..) in &names {
        for (scenario, _) in scenarios {
            for finding in findings(&run, name, scenario, &["arithmetic", "copy"]) {
                blamed.push(format!(
                    "{name} with {share} wrong answers at {scenario}, seed {seed}: {finding:?}"
                ));
            }
        }
    }
    blamed
}

const LOADS: [(&str, &str); 10] = [
    ("one", "concurrency: 1"),
    ("two", "concurrency: 2"),
    ("four", "concurrency: 4"),
    ("eight", "concurrency: 8"),
    ("twelve", "concurrency: 12"),
    ("sixteen", "concurrency: 16"),
    ("thirty", "concurrency: 30"),
    ("burst", "prompts: 20"),
    ("rate", "rate: 200"),
    ("slow-rate", "rate: 100"),
];

#[test]
fn a_few_planted_errors_are_found_and_twenty_clean_cells_are_not_blamed() {
    let chosen = |group: &'static Group, names: &[&str]| -> Vec<String> {
        let engines: Vec<&Planted> = group
            .engines
            .iter()
            .filter(|planted| names.contains(&planted.name))
            .collect();
        assert_eq!(engines.len(), names.len());
        missed(group, &engines, 1)
    };
    let (texts, calls, clean) = thread::scope(|scope| {
        let texts = scope.spawn(|| chosen(&GROUPS[2], &["beyond-above"]));
        let calls = scope.spawn(|| chosen(&GROUPS[1], &["parser"]));
        let clean = scope.spawn(|| blamed(2, &LOADS, 24, "10%", 1));
        [texts, calls, clean]
            .map(|thread| thread.join().expect("it does not panic"))
            .into()
    });
    assert_eq!((texts, calls, clean), Default::default());
}

/// The number in an environment variable of the long form, or what it is without one.
#[expect(
    clippy::disallowed_methods,
    reason = "the test reads the settings of its script"
)]
fn number(variable: &str, default: u64) -> u64 {
    let text = std::env::var(variable).ok();
    text.map_or(default, |text| text.parse().expect("it is a number"))
}

#[test]
#[ignore = "a long form; tests/answers.sh runs it"]
fn every_planted_error_is_found_and_at_most_one_of_three_hundred_clean_cells_is_blamed() {
    let (seed, runs) = (number("ANSWERS_SEED", 1), number("ANSWERS_CLEAN_RUNS", 5));
    println!("-- seed {seed}");
    let began = clock::now();
    let mut wrong = Vec::new();
    let mut kinds = 0;
    for (nth, group) in (0..).zip(GROUPS) {
        let engines: Vec<&Planted> = group.engines.iter().collect();
        kinds += engines.len();
        let missed = missed(group, &engines, seed * 100 + nth);
        missed.iter().for_each(|line| println!("{line}"));
        wrong.extend(missed);
        println!(
            "-- {kinds} kinds after {:.0} s",
            clock::now().since(began).as_secs_f64()
        );
    }
    println!(
        "-- {kinds} kinds of planted errors, {} cells judged otherwise",
        wrong.len()
    );
    let shares = ["0%", "2%", "5%", "10%", "30%"];
    let mut false_alarms = Vec::new();
    for nth in 0..runs {
        let share = shares[nth as usize % shares.len()];
        let blamed = blamed(6, &LOADS, 40, share, seed * 100 + 50 + nth);
        blamed.iter().for_each(|line| println!("{line}"));
        false_alarms.extend(blamed);
        println!(
            "-- {} clean cells after {:.0} s",
            60 * (nth + 1),
            clock::now().since(began).as_secs_f64()
        );
    }
    println!("-- {} clean cells, {} findings", 60 * runs, false_alarms.len());
    assert!(wrong.is_empty() && false_alarms.len() <= 1);
}
