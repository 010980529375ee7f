//! Compares the shipped demonstration data with the results of CPython 3.11, numpy 2.4 and Python's
//! tokenizers 0.23.

use std::path::PathBuf;

use super::*;

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "matrices", "data"].iter().collect()
}

/// Number of rows, input tokens, output tokens and digest of a workload of the shipped data.
fn draw_rows(profile: Profile, seed: u64, workload: &str) -> (usize, u64, u64, String) {
    let tokenizer = Tokenizer::open("tokenizer.json", &folder(), &Caches::default()).unwrap();
    let mut workload: Workload = serde_json::from_str(workload).unwrap();
    workload.path = Some("conversations.json".to_owned());
    let file = locate(&workload, &folder(), &Caches::default()).unwrap();
    let prepared = prepare(&workload, profile, seed, &tokenizer, file.as_deref()).unwrap();
    let hash = prepared.hash.as_str().to_owned();
    (
        prepared.prompts.len(),
        prepared.input_tokens,
        prepared.output_tokens,
        hash,
    )
}

#[test]
fn sharegpt_of_the_shipped_data_is_pythons() {
    let all = r#"{"dataset": "sharegpt", "prompts": 1000, "range_ratio": 0}"#;
    let some = r#"{"dataset": "sharegpt", "prompts": 100, "range_ratio": 0}"#;
    for (profile, seed, workload, expected) in [
        (Profile::Classic, 1, all, (326, 37291, 40330, "98a537de636585f5")),
        (
            Profile::Classic,
            42,
            some,
            (100, 10337, 13452, "162c43dbd5df476a"),
        ),
        (Profile::Current, 1, all, (381, 46793, 47065, "714fc4a3bfa8ab90")),
        (
            Profile::Current,
            42,
            some,
            (100, 10513, 13749, "a1542ac0ba955b0b"),
        ),
    ] {
        let (rows, input, output, hash) = draw_rows(profile, seed, workload);
        assert_eq!(
            (rows, input, output, hash.as_str()),
            expected,
            "{profile:?} {seed}"
        );
    }
}

#[test]
fn random_of_the_shipped_data_is_pythons() {
    let workload = |ratio: f64| {
        format!(
            r#"{{"dataset": "random", "prompts": 300, "input_len": 512, "output_len": 128, "range_ratio": {ratio}}}"#
        )
    };
    for (profile, ratio, expected) in [
        (Profile::Classic, 0.0, (300, 76836, 19772, "7ed995b3310c9287")),
        (Profile::Classic, 1.0, (300, 153600, 38400, "97b5c88322df4642")),
        (Profile::Current, 0.0, (300, 76836, 19688, "f1eda5e474208f20")),
        (Profile::Current, 1.0, (300, 153600, 38400, "481160e5667146fb")),
    ] {
        let (rows, input, output, hash) = draw_rows(profile, 1, &workload(ratio));
        assert_eq!(
            (rows, input, output, hash.as_str()),
            expected,
            "{profile:?} {ratio}"
        );
    }
}

#[test]
fn random_ids_of_the_shipped_tokenizer_are_pythons() {
    let workload = r#"{"dataset": "random-ids", "prompts": 50, "input_len": 100, "output_len": 20, "range_ratio": 0.25}"#;
    let (rows, input, output, hash) = draw_rows(Profile::Current, 1, workload);
    assert_eq!(
        (rows, input, output, hash.as_str()),
        (50, 2937, 625, "7e2b26693d4a5c97")
    );
}

#[test]
fn the_shipped_data_stays_small() {
    let size = |file: &str| std::fs::metadata(folder().join(file)).unwrap().len();
    assert!(size("tokenizer.json") < 250_000);
    assert!(size("conversations.json") < 600_000);
}
