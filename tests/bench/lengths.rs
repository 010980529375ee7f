//! Distributions of lengths, pairs of lengths from a file, and tokens that prompts have in common.

use serde_json::Value;

use crate::harness::{Desk, Ran, Sim};

const QUIET: [&str; 3] = ["--warmup-requests", "0", "--disable-tqdm"];

/// Ids as prompts, so that every count is exact.
const IDS: [&str; 9] = [
    "--dataset-name",
    "random-ids",
    "--dataset-path",
    "",
    "--tokenize-prompt",
    "--max-concurrency",
    "1",
    "--records",
    "records.jsonl",
];

fn bench(desk: &Desk, port: u16, more: &[&str]) -> Ran {
    desk.random("sglang", port, &[&QUIET[..], &IDS, more].concat())
}

/// Prompt and requested tokens of each record.
fn lengths(desk: &Desk) -> Vec<[u64; 2]> {
    let text = std::fs::read_to_string(desk.path().join("records.jsonl")).expect("records");
    let records = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let length = |record: &Value, key: &str| record[key].as_u64().expect("a length");
    let pairs = records.map(|record| {
        [
            length(&record, "prompt_tokens"),
            length(&record, "requested_tokens"),
        ]
    });
    pairs.collect()
}

#[test]
fn lengths_follow_their_distributions_and_the_seed() {
    let sim = Sim::start("sglang", &[]);
    let run = |seed: &str| {
        let desk = Desk::new();
        let more = [
            "--num-prompts",
            "80",
            "--seed",
            seed,
            "--random-input-len",
            "200",
            "--random-output-len",
            "12",
            "--random-range-ratio",
            "0",
            "--lengths-input",
            "lognormal:median=40,sigma=1,min=8",
            "--lengths-output",
            "normal:mean=6,stddev=4",
        ];
        bench(&desk, sim.port, &more).exits(0);
        lengths(&desk)
    };
    let drawn = run("5");
    assert_eq!(drawn.len(), 80);
    assert!(
        drawn
            .iter()
            .all(|[input, output]| (8..=200).contains(input) && (1..=12).contains(output))
    );
    let below = drawn.iter().filter(|[input, _]| *input < 40).count();
    // Five standard deviations of the count below the median: 5 · √(80 · 0.25) = 22.
    assert!(below.abs_diff(40) <= 22, "{below}");
    // Uniform lengths would reach neither end as often.
    assert!(drawn.iter().any(|[_, output]| *output == 12));
    assert_eq!(run("5"), drawn);
    assert_ne!(run("6"), drawn);
}

/// Half of the drawn lengths are above the maximum, which is their median.
#[test]
fn the_share_of_clipped_lengths_is_told() {
    let sim = Sim::start("sglang", &[]);
    let note = |distribution: &str| {
        let desk = Desk::new();
        let more = [
            "--num-prompts",
            "40",
            "--random-range-ratio",
            "0",
            "--lengths-input",
            distribution,
        ];
        let ran = bench(&desk, sim.port, &more).exits(0);
        let at_maximum = lengths(&desk).iter().filter(|[input, _]| *input == 32).count();
        let line = ran.stderr.lines().find(|line| line.contains("were clipped"));
        (line.map(str::to_owned), at_maximum)
    };
    let (printed, at_maximum) = note("lognormal:median=32,sigma=1");
    let printed = printed.expect("there is a note");
    let share: f64 = printed
        .split_once(" were clipped: ")
        .and_then(|(_, rest)| rest.split_once(" % of the drawn lengths were above the maximum of 32 tokens"))
        .and_then(|(share, _)| share.parse().ok())
        .expect("it names the share");
    // A length of exactly the maximum is not clipped, and hardly drawn.
    let expected = 100.0 * at_maximum as f64 / 40.0;
    assert!(
        (share - expected).abs() <= 5.0 && share > 10.0,
        "{printed}: {expected}"
    );
    assert_eq!(note("normal:mean=16,stddev=1").0, None);
}

#[test]
fn pairs_of_a_file_are_sent_in_order() {
    let sim = Sim::start("sglang", &[]);
    let desk = Desk::new();
    std::fs::write(desk.path().join("pairs.csv"), "input,output\n10,3\n20,1\n32,8\n")
        .expect("it can be written");
    let more = [
        "--random-range-ratio",
        "0",
        "--lengths-file",
        "pairs.csv",
        "--lengths-in-order",
    ];
    bench(&desk, sim.port, &more).exits(0);
    let expected: Vec<[u64; 2]> = [[10, 3], [20, 1], [32, 8]].into_iter().cycle().take(10).collect();
    assert_eq!(lengths(&desk), expected);
}

#[test]
fn the_common_share_is_what_the_cache_of_the_engine_finds() {
    let percent = |ran: &Ran, before: &str| -> f64 {
        let text = ran
            .stderr
            .split(before)
            .next()
            .filter(|text| text.len() < ran.stderr.len());
        let text = text.unwrap_or_else(|| panic!("no `{before}` in {}", ran.stderr));
        text.rsplit(' ')
            .next()
            .and_then(|number| number.parse().ok())
            .expect("a number")
    };
    let more = [
        "--num-prompts",
        "40",
        "--random-input-len",
        "64",
        "--random-output-len",
        "2",
        "--prefix-share",
        "50%",
        "--prefix-groups",
        "4",
        "--prefix-block-tokens",
        "16",
    ];
    for (cache, expected_hits) in [
        (&["--block-tokens", "16"][..], true),
        (&["--no-prefix-cache"], false),
    ] {
        let sim = Sim::start("sglang", cache);
        let ran = bench(&Desk::new(), sim.port, &more).exits(0);
        let expected = percent(
            &ran,
            " % of the prompt tokens repeat an earlier prompt (requested: 50 % of each prompt",
        );
        // All but the first prompt of each of four groups repeat half of their tokens. Consecutive ids after them may meet, too.
        assert!((44.9..48.0).contains(&expected), "{expected}");
        let measured = percent(&ran, " % of the prompt tokens as cached");
        match expected_hits {
            // The engine caches whole blocks.
            true => assert!(
                (44.9..=expected + 0.1).contains(&measured),
                "{measured} {expected}"
            ),
            false => assert_eq!(measured, 0.0),
        }
    }
}

#[test]
fn lengths_without_sense_are_refused() {
    let desk = Desk::new();
    std::fs::write(desk.path().join("long.csv"), "10,3\n200,1\n").expect("it can be written");
    for (more, why) in [
        (
            &["--lengths-input", "gamma:mean=5"][..],
            "unknown variant `gamma`",
        ),
        (
            &["--lengths-input", "lognormal:median=5"],
            "a log-normal distribution needs `median` and `sigma`",
        ),
        (
            &["--lengths-output", "normal:mean=5,stddev=1,min=99"],
            "`min` is 99, above the maximum length of 8",
        ),
        (
            &[
                "--lengths-input",
                "normal:mean=5,stddev=1",
                "--lengths-file",
                "a.csv",
            ],
            "from a file or from distributions",
        ),
        (&["--lengths-in-order"], "lengths need a distribution or a file"),
        (
            &["--lengths-file", "long.csv", "--random-range-ratio", "0.5"],
            "`--random-range-ratio` has no effect",
        ),
        (
            &["--dataset-name", "sharegpt", "--prefix-share", "0.5"],
            "has no option `common_prefix`",
        ),
        (
            &["--prefix-groups", "4"],
            "have no effect without `--prefix-share`",
        ),
        (&["--prefix-share", "0"], "the share of common tokens is 0"),
        (
            &["--prefix-share", "0.5", "--prefix-groups", "0"],
            "`0` is not a whole number from 1 to 4294967295",
        ),
        (
            &["--lengths-input", "normal:mean=5,mean=6,stddev=1"],
            "sets `mean` twice",
        ),
        (
            &["--prefix-share", "0.5", "--prefix-block-tokens", "64"],
            "is shorter than one block",
        ),
    ] {
        let ran = desk.random("vllm", 1, &[&QUIET[..], more].concat());
        ran.exits(2).says(why);
    }
    // Which lengths a file has is known when it is read.
    let sim = Sim::start("sglang", &[]);
    for (file, why) in [
        (
            "long.csv",
            "line 2: the prompt has 200 tokens, more than the maximum of 32",
        ),
        ("none.csv", "none.csv"),
        // It has no end.
        ("/dev/zero", "the path is not a regular file"),
    ] {
        let ran = bench(
            &desk,
            sim.port,
            &["--random-range-ratio", "0", "--lengths-file", file],
        );
        ran.exits(2).says(why).says("nothing was sent");
    }
}
