//! What bench_serving prints and writes, in its layouts and keys.

pub mod bench_line;
pub mod block;
pub mod classic_csv;
pub(crate) mod console;
pub mod jsonl;
pub(crate) mod notes;
pub(crate) mod python;
pub(crate) mod request_lines;
pub mod traffic;
