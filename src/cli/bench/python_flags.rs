//! Test of the flags of the Python tool: names, defaults and prefixes.

use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory};

use crate::cli::Cli;

/// Every flag with a valid value (`-` if it has none) and its default in the Python tool. `~` means that an absent
/// flag has the default, so that rules may differ or an error can depend on whether it was given.
///
/// Source: docs/bench-serving.md 10.
const TABLE: &str = "
backend vllm sglang
base-url http://h:1 ~
host h 0.0.0.0
port 1 ~
ready-check-timeout-sec 1 ~
dataset-name random sharegpt
dataset-path p |
dataset-offset 1 ~
agentic-max-turns 1 ~
speed-bench-category mixed ~
speed-bench-output-len 1 ~
model m ~
served-model-name m ~
tokenizer t ~
num-prompts 1 1000
sharegpt-output-len 9 ~
sharegpt-context-len 9 ~
random-input-len 1 ~
random-output-len 1 ~
random-range-ratio 1 0
image-count 1 ~
image-resolution 720p ~
random-image-count - ~
image-format png ~
image-content blank ~
request-rate 1 inf
use-trace-timestamps - ~
max-concurrency 1 ~
output-file f ~
output-details - ~
goodput ttft:1 ~
print-requests - ~
disable-tqdm - ~
disable-stream - ~
return-logprob - ~
top-logprobs-num 1 0
token-ids-logprob 1 ~
logprob-start-len 1 -1
return-routed-experts - ~
cache-report - ~
seed 1 ~
disable-ignore-eos - ~
temperature 1 ~
top-p 1 ~
extra-request-body {} ~
apply-chat-template - ~
profile - ~
plot-throughput - ~
profile-activities CPU CPU,GPU
profile-start-step 1 ~
profile-steps 1 ~
profile-num-steps 1 ~
profile-by-stage - ~
profile-stages prefill ~
profile-output-dir d ~
profile-prefix p ~
lora-name a ~
lora-request-distribution skewed ~
lora-zipf-alpha 2 ~
prompt-suffix s |
pd-separated - ~
profile-prefill-url http://h:1 ~
profile-decode-url http://h:1 ~
flush-cache - ~
flush-cache-timeout 1 60
warmup-requests 1 ~
tokenize-prompt - ~
gsp-num-groups 1 ~
gsp-prompts-per-group 1 ~
gsp-system-prompt-len 1 ~
gsp-question-len 1 ~
gsp-output-len 1 ~
gsp-range-ratio 1 ~
gsp-fast-prepare - ~
gsp-send-routing-key - ~
gsp-num-turns 1 ~
gsp-ordered - ~
gsp-group-distribution zipf ~
gsp-zipf-alpha 1 ~
mooncake-slowdown-factor 1 ~
mooncake-num-rounds 1 ~
mooncake-workload toolagent ~
fake-prefill - ~
tag t ~
header A=1 ~
rust-client - ~
rust-worker-threads 1 ~
";

/// Prefixes that stay flags of `matrix`, because the log filter is a flag of every command.
const OWN_PREFIXES: [&str; 1] = ["log"];

struct Row {
    name: &'static str,
    value: Option<&'static str>,
    default: &'static str,
}

fn table_rows() -> Vec<Row> {
    let lines = TABLE.lines().filter(|line| !line.is_empty());
    let rows = lines.map(|line| {
        let cells: Vec<&str> = line.split(' ').collect();
        let [name, value, default] = cells[..] else {
            panic!("`{line}` has three cells");
        };
        Row {
            name,
            value: Some(value).filter(|value| *value != "-"),
            default,
        }
    });
    rows.collect()
}

fn parse_flag(command: &mut Command, flag: &str, value: Option<&str>) -> Result<ArgMatches, clap::Error> {
    let flag = format!("--{flag}");
    let words = ["matrix", "bench", flag.as_str()].into_iter().chain(value);
    let mut matches = command.try_get_matches_from_mut(words)?;
    Ok(matches.remove_subcommand().expect("`bench` was given").1)
}

#[test]
fn every_flag_of_the_python_tool_is_known_with_its_default() {
    let rows = table_rows();
    assert_eq!(rows.len(), 87);
    let command = Cli::command();
    let bench = command.find_subcommand("bench").expect("`bench` is a command");
    for row in rows {
        let found = bench.get_arguments().find(|arg| arg.get_long() == Some(row.name));
        let arg = found.unwrap_or_else(|| panic!("`--{}` is unknown", row.name));
        let values: Vec<_> = arg
            .get_default_values()
            .iter()
            .map(|value| value.to_string_lossy())
            .collect();
        let is_flag = row.value.is_none();
        match row.default {
            "~" => assert!(values.is_empty() || is_flag, "--{}: {values:?}", row.name),
            "|" => assert_eq!(values, [""], "--{}", row.name),
            default => assert_eq!(values.join(","), default, "--{}", row.name),
        }
    }
}

#[test]
fn every_prefix_that_is_unique_among_the_python_tools_flags_is_taken() {
    let rows = table_rows();
    let mut command = Cli::command();
    let mut tried = 0;
    for row in &rows {
        for length in 1..=row.name.len() {
            let prefix = &row.name[..length];
            let is_unique = |other: &&Row| other.name.starts_with(prefix);
            // Python also has `--help`.
            let is_alone = rows.iter().filter(is_unique).count() == 1 && !"help".starts_with(prefix);
            if length < row.name.len() && !is_alone || OWN_PREFIXES.contains(&prefix) {
                continue;
            }
            let matches = parse_flag(&mut command, prefix, row.value)
                .unwrap_or_else(|error| panic!("`--{prefix}` is `--{}`: {error}", row.name));
            let id = row.name.replace('-', "_");
            assert_eq!(
                matches.value_source(&id),
                Some(ValueSource::CommandLine),
                "`--{prefix}` is `--{}`",
                row.name
            );
            tried += 1;
        }
    }
    assert!(tried > 700, "{tried} prefixes");
}
