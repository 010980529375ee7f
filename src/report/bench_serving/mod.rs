//! What bench_serving prints and writes, with its layouts and keys.

pub(crate) mod bench_line;
pub(crate) mod block;
pub(crate) mod classic_csv;
pub(crate) mod console;
pub(crate) mod jsonl;
pub(crate) mod notes;
pub(crate) mod python;
pub(crate) mod request_lines;
pub(crate) mod traffic;
