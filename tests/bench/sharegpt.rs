//! The token sums that published reports print for ShareGPT, drawn anew from the same file with the same tokenizers.
//!
//! Neither the file nor the tokenizers are shipped. `MATRIX_SHAREGPT` names the file, `MATRIX_QWEN3_TOKENIZER` and
//! `MATRIX_GPT_OSS_TOKENIZER` a folder or a `tokenizer.json`. What is not named is skipped by name, and where
//! `MATRIX_REQUIRE_SHAREGPT` is set, that is a failure.
//!
//! Source: docs/bench-serving.md 13.1 and 13.2.

use std::path::Path;

use matrix::cli::env_variable;
use matrix::config::dataset::DatasetName;
use matrix::config::workload::{Profile, Workload};
use matrix::loadgen::dataset::tokenizer::Tokenizer;
use matrix::loadgen::dataset::{Caches, prepare};

const FILE: &str = "MATRIX_SHAREGPT";
const QWEN3: &str = "MATRIX_QWEN3_TOKENIZER";
const GPT_OSS: &str = "MATRIX_GPT_OSS_TOKENIZER";

/// The value of a variable, without which a test is skipped.
fn wanted(name: &str) -> Option<String> {
    let value = env_variable(name);
    assert!(
        value.is_some() || env_variable("MATRIX_REQUIRE_SHAREGPT").is_none(),
        "{name} is not set, and MATRIX_REQUIRE_SHAREGPT is"
    );
    value
}

/// How many rows `classic` draws with its seed 1, and the sums that it prints; `None` without file or tokenizer.
fn drawn(tokenizer: &str, prompts: u32) -> Option<(usize, u64, u64)> {
    let (file, name) = (wanted(FILE)?, wanted(tokenizer)?);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let caches = Caches {
        hf_home: None,
        prompts: None,
    };
    let tokenizer = Tokenizer::open(&name, folder, &caches).expect("the tokenizer opens");
    let mut workload = Workload::new(DatasetName::Sharegpt);
    workload.prompts = prompts;
    let file = folder.join(file);
    let prepared = prepare(&workload, Profile::Classic, 1, &tokenizer, Some(&file));
    let prepared = prepared.expect("the file holds enough rows");
    Some((
        prepared.prompts.len(),
        prepared.input_tokens,
        prepared.output_tokens,
    ))
}

#[test]
fn ten_thousand_rows_counted_by_qwen3_have_the_published_sums() {
    match drawn(QWEN3, 10_000) {
        Some(drawn) => assert_eq!(drawn, (10_000, 2_258_583, 1_992_177)),
        None => crate::skip::skip(&format!("needs {FILE} and {QWEN3}")),
    }
}

#[test]
fn ten_thousand_rows_counted_by_gpt_oss_have_the_published_sums() {
    match drawn(GPT_OSS, 10_000) {
        Some(drawn) => assert_eq!(drawn, (10_000, 2_229_766, 1_959_361)),
        None => crate::skip::skip(&format!("needs {FILE} and {GPT_OSS}")),
    }
}

#[test]
fn a_thousand_rows_counted_by_gpt_oss_have_the_published_sums() {
    match drawn(GPT_OSS, 1_000) {
        Some(drawn) => assert_eq!(drawn, (1_000, 221_351, 191_137)),
        None => crate::skip::skip(&format!("needs {FILE} and {GPT_OSS}")),
    }
}
