//! Servers that answer something else than they were asked for are found out, whatever they report.

use matrix::results::record::cell::MeasurementSummary;
use matrix::results::record::validity::{Reason, Verdict};

use crate::harness::{Bench, Ran, sims, summary};
use crate::server::{Server, attached};

/// Token ids, so that a server counts prompts as they were sent.
const LOAD: &str = "  - load: { dataset: random-ids, prompts: 16, input_len: 64, output_len: 48, concurrency: 4, range_ratio: 1.0, tokenize_prompt: true }\n";

/// What was found of a cell under this code.
pub fn reason<'s>(summary: &'s MeasurementSummary, code: &str) -> &'s Reason {
    let validity = summary.validity.as_ref().expect("it is judged");
    let found = validity.reasons.iter().find(|reason| reason.code.name() == code);
    found.unwrap_or_else(|| panic!("no {code} in {:#?}", validity.reasons))
}

/// A run on an honest server and on one with these faults, and what was said of it.
fn beside_an_honest_one(faults: &[&str], exit: i32) -> (Bench, Ran) {
    let timing = ["--dialect", "openai", "--ttft", "40ms", "--itl", "4ms"];
    let (honest, other) = (
        Server::start(&timing),
        Server::start(&[&["--dialect", "openai"], faults].concat()),
    );
    let bench = Bench::of(&attached(&[("honest", &honest), ("other", &other)], LOAD));
    let ran = bench.run(&[]).exits(exit);
    let verdict = summary(&bench.finished(), "honest", "load")
        .validity
        .clone()
        .expect("it is judged");
    assert!(verdict.verdict < Verdict::Invalid, "{verdict:#?}");
    (bench, ran)
}

/// The faulty server has no ratio and wins nothing.
fn gives_no_ratio(ran: &Ran, code: &str) {
    let mut lines = ran.stdout.lines();
    let is_said =
        lines.any(|line| line.contains("no ratio to honest: this row is invalid (") && line.contains(code));
    assert!(is_said, "no ratio for `{code}` is not in:\n{}", ran.stdout);
    assert!(!ran.stdout.contains("[best]"), "{}", ran.stdout);
}

#[test]
fn prompts_that_a_server_cuts_short_are_found() {
    let (bench, ran) = beside_an_honest_one(&["--ttft", "6ms", "--itl", "4ms", "--truncate-prompts", "8"], 3);
    let run = bench.finished();
    let found = reason(summary(&run, "other", "load"), "prompt-tokens-disagree");
    assert_eq!(found.weight, Verdict::Invalid);
    assert_eq!(
        found.measured,
        "by the server's count, 16 of 16 prompts are shorter than the sent prompts: the server counted 128 tokens in total, but 1024 were sent"
    );
    gives_no_ratio(&ran, "prompt-tokens-disagree");
}

#[test]
fn answers_that_go_on_beyond_what_was_asked_for_are_found() {
    let (bench, ran) = beside_an_honest_one(&["--ttft", "40ms", "--itl", "4ms", "--extra-output", "100%"], 3);
    let run = bench.finished();
    let found = reason(summary(&run, "other", "load"), "output-long");
    assert_eq!(
        found.measured,
        "16 of 16 answers are longer than requested; in total 1536 tokens arrived, and 768 were requested"
    );
    gives_no_ratio(&ran, "output-long");
}

#[test]
fn answers_that_are_one_token_over_and_over_are_found() {
    let (bench, ran) = beside_an_honest_one(&["--ttft", "8ms", "--itl", "1ms", "--same-token"], 3);
    let run = bench.finished();
    let found = reason(summary(&run, "other", "load"), "answers-degenerate");
    assert!(found.measured.contains(": 16 of 16 answers"), "{found:?}");
    gives_no_ratio(&ran, "answers-degenerate");
}

/// Without usage our own counts decide: a third of the tokens is a third of the tokens, and whole answers are whole.
#[test]
fn answers_without_a_count_are_measured_by_our_own() {
    let (bench, ran) = beside_an_honest_one(
        &[
            "--ttft",
            "40ms",
            "--itl",
            "4ms",
            "--hide-usage",
            "--early-end",
            "33%",
        ],
        3,
    );
    let run = bench.finished();
    reason(summary(&run, "other", "load"), "tokens-uncounted");
    let found = reason(summary(&run, "other", "load"), "output-short");
    assert!(
        found
            .measured
            .starts_with("16 of 16 answers are shorter than requested"),
        "{found:?}"
    );
    gives_no_ratio(&ran, "output-short");
    let (bench, _) = beside_an_honest_one(&["--ttft", "40ms", "--itl", "4ms", "--hide-usage"], 0);
    let run = bench.finished();
    let whole = summary(&run, "other", "load");
    reason(whole, "tokens-uncounted");
    let codes: Vec<&str> = whole
        .validity
        .iter()
        .flat_map(|validity| &validity.reasons)
        .map(|reason| reason.code.name())
        .collect();
    for code in ["output-short", "output-long", "chunked-tokens"] {
        assert!(!codes.contains(&code), "{codes:?}");
    }
}

/// A server that reports nearly twice the tokens that it sends: events and text agree against it.
#[test]
fn a_count_that_neither_text_nor_events_bear_out_is_found() {
    let (bench, ran) = beside_an_honest_one(
        &[
            "--ttft",
            "40ms",
            "--itl",
            "4ms",
            "--early-end",
            "53%",
            "--claim-full-length",
        ],
        0,
    );
    let run = bench.finished();
    let found = reason(summary(&run, "other", "load"), "tokens-disagree");
    assert_eq!(found.weight, Verdict::Suspect);
    assert!(
        found
            .measured
            .starts_with("the engine reports 768 output tokens, but"),
        "{found:?}"
    );
    let marked = ran
        .stdout
        .lines()
        .any(|line| line.contains(" other [") && line.contains("suspect]"));
    assert!(marked, "{}", ran.stdout);
}

/// A fifth more tokens reported than sent, at the same speed for each that it sends: neither the best nor better, and suspect by itself.
#[test]
fn a_fifth_more_tokens_than_came_wins_nothing() {
    let load = "  - random-1k-1k: { prompts: 24, input_len: 32, output_len: 32, concurrency: 4 }\nrepeats: { starts: 5 }\nvalidity: { send_lag: 200ms, other_cpus: 1.0, stolen: 1.0, window: 0s, tail: 0, steady: 0.0 }\n";
    let bench = Bench::of(&sims(
        &[
            ("honest", "vllm", "--ttft, 10ms, --itl, 2ms"),
            (
                "more",
                "vllm",
                "--ttft, 10ms, --itl, 2ms, --early-end, 81%, --claim-full-length",
            ),
        ],
        load,
    ));
    let ran = bench.run(&[]).exits(0);
    let run = bench.finished();
    let found = reason(summary(&run, "more", "random-1k-1k"), "tokens-disagree");
    assert_eq!(found.weight, Verdict::Suspect);
    assert!(!ran.stdout.contains("[best]"), "{}", ran.stdout);
    let said = ran.shows("ratio of the server's output token count to the client's count of the same text");
    let honest = summary(&run, "honest", "random-1k-1k").validity.as_ref();
    let codes: Vec<&str> = honest
        .iter()
        .flat_map(|validity| &validity.reasons)
        .map(|reason| reason.code.name())
        .collect();
    assert!(!codes.contains(&"tokens-disagree"), "{codes:?}\n{}", said.stdout);
}
