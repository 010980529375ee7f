//! The token sums that published reports print for ShareGPT, drawn anew from the same file with the same tokenizers.
//!
//! Neither the file nor the tokenizers are shipped. `MATRIX_SHAREGPT` names the file, `MATRIX_QWEN3_TOKENIZER` and
//! `MATRIX_GPT_OSS_TOKENIZER` a folder or a `tokenizer.json`. What is not named is skipped by name, and where
//! `MATRIX_REQUIRE_SHAREGPT` is set, that is a failure.
//!
//! Source: spec/bench-serving.md 13.1 and 13.2.

use std::path::{Path, PathBuf};

use matrix::cli::variable;
use matrix::load::dataset::tokenizer::Tokenizer;
use matrix::load::dataset::{Caches, prepare};
use matrix::matrix::spec::workload::{Dataset, Profile, Workload};

const FILE: &str = "MATRIX_SHAREGPT";

/// The value of a variable, without which a test is skipped.
fn wanted(name: &str) -> Option<String> {
    let value = variable(name);
    assert!(
        value.is_some() || variable("MATRIX_REQUIRE_SHAREGPT").is_none(),
        "{name} is not set, and MATRIX_REQUIRE_SHAREGPT is"
    );
    value
}

/// Draws so many rows under `classic` with its seed 1 and compares the sums that it prints.
fn gives(tokenizer: &str, prompts: u32, input: u64, output: u64) {
    let (Some(file), Some(name)) = (wanted(FILE), wanted(tokenizer)) else {
        println!("SKIPPED: needs {FILE} and {tokenizer}");
        return;
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let caches = Caches {
        hf_home: PathBuf::new(),
        prompts: None,
    };
    let tokenizer = Tokenizer::open(&name, folder, &caches).expect("the tokenizer opens");
    let workload = Workload {
        prompts,
        ..Workload::of(Dataset::Sharegpt)
    };
    let file = folder.join(file);
    let prepared =
        prepare(&workload, Profile::Classic, 1, &tokenizer, Some(&file)).expect("the file holds enough rows");
    let count = u32::try_from(prepared.prompts.len());
    assert_eq!(
        (count, prepared.input_tokens, prepared.output_tokens),
        (Ok(prompts), input, output)
    );
}

#[test]
fn ten_thousand_rows_counted_by_qwen3_have_the_published_sums() {
    gives("MATRIX_QWEN3_TOKENIZER", 10_000, 2_258_583, 1_992_177);
}

#[test]
fn ten_thousand_rows_counted_by_gpt_oss_have_the_published_sums() {
    gives("MATRIX_GPT_OSS_TOKENIZER", 10_000, 2_229_766, 1_959_361);
}

#[test]
fn a_thousand_rows_counted_by_gpt_oss_have_the_published_sums() {
    gives("MATRIX_GPT_OSS_TOKENIZER", 1_000, 221_351, 191_137);
}
