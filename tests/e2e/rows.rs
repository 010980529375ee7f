//! Data sets with more than a prompt in each row, from the matrix file to the records.

use std::fs;

use matrix::results::record::cell::MeasurementStatus;

use crate::harness::{Bench, sims, summary};

const SCENARIOS: &str = "  - talks:
      dataset: generated-shared-prefix
      shared_prefix: { groups: 2, prompts_per_group: 2, system_len: 40, question_len: 8, turns: 3 }
      output_len: 5
      concurrency: 2
  - custom: { dataset: custom, path: custom.jsonl, prompts: 3, lora: { names: [a, b], distribution: distinct } }
  - trace:
      dataset: mooncake
      path: trace.jsonl
      mooncake: { slowdown: 2 }
";

/// A bench with the files of these scenarios.
fn bench(matrix: &str) -> Bench {
    let bench = Bench::of(matrix);
    let folder = bench.results();
    let matrices = folder.parent().expect("it lies in a folder").join("matrices");
    let custom: String = (0..4)
        .map(|at| {
            format!(
                "{{\"conversations\": [{{\"content\": \"What is {at}?\"}}, {{\"content\": \"It is what it is.\"}}]}}\n"
            )
        })
        .collect();
    let trace = "{\"timestamp\": 700, \"hash_ids\": [1], \"output_length\": 4}\n\
                 {\"timestamp\": 500, \"hash_ids\": [1, 2], \"output_length\": 3}\n";
    fs::write(matrices.join("custom.jsonl"), custom).expect("a file can be written");
    fs::write(matrices.join("trace.jsonl"), trace).expect("a file can be written");
    bench
}

#[test]
fn conversations_adapters_and_traces_go_from_the_matrix_to_the_records() {
    // The simulated SGLang answers by whatever name it is called.
    let matrix = sims(&[("chat", "vllm-chat", ""), ("native", "sglang", "")], SCENARIOS);
    let excluded = "exclude:
  - { when: { engine: native, scenario: talks }, why: it holds no conversations }
  - { when: { engine: chat, scenario: custom }, why: it knows no adapters }
  - { when: { engine: chat, scenario: trace }, why: its template would be applied twice }
";
    let bench = bench(&format!("{matrix}{excluded}"));
    bench.run(&[]).exits(0);
    let run = bench.finished();
    assert_eq!(run.summaries.len(), 3);
    assert!(
        run.summaries
            .iter()
            .all(|summary| matches!(summary.status, MeasurementStatus::Done))
    );
    assert_eq!(summary(&run, "chat", "talks").prompts, Some(4));
    for measurement in run.plan.starts.iter().flat_map(|start| &start.cells) {
        let requests = run.read_requests(measurement).expect("requests are kept");
        let key = measurement.cell.as_str();
        assert!(requests.iter().all(|request| request.is_completed()), "{key}");
        if key.contains("talks") {
            assert_eq!(requests.len(), 12);
            for talk in requests.chunks(3) {
                assert!(talk.is_sorted_by(
                    |one, next| one.end_ns <= next.due_ns && one.prompt_tokens < next.prompt_tokens
                ));
            }
        } else if key.contains("trace") {
            let due: Vec<u64> = requests.iter().map(|request| request.due_ns).collect();
            assert_eq!(due, [0, 400_000_000]);
        } else {
            assert_eq!(requests.len(), 3);
        }
    }
    bench.leaves_no_process();
}

#[test]
fn what_an_engine_cannot_be_sent_is_refused_before_anything_starts() {
    let native = sims(&[("native", "sglang", "")], SCENARIOS);
    bench(&native)
        .run(&[])
        .exits(2)
        .says("the protocol `sglang-native` of the engine `native` cannot send conversations, which `turns: 3` creates");
    for (scenario, says) in [
        (
            "{ dataset: mooncake, path: trace.jsonl, rate: 2 }",
            "takes the send times from its trace",
        ),
        (
            "{ dataset: generated-shared-prefix, prompts: 9 }",
            "computes the number of prompts itself",
        ),
        (
            "{ dataset: custom, shared_prefix: { groups: 2 } }",
            "(only `generated-shared-prefix` has it)",
        ),
        (
            "{ dataset: generated-shared-prefix, shared_prefix: { popularity: { zipf: { alpha: 0 } } } }",
            "`alpha` is 0",
        ),
        (
            "{ dataset: random-ids, input_len: 4, output_len: 2, range_ratio: 0, lora: { names: [a], distribution: distinct } }",
            "only one adapter",
        ),
    ] {
        let matrix = sims(&[("native", "sglang", "")], &format!("  - wrong: {scenario}\n"));
        bench(&matrix).run(&[]).exits(2).says(says);
    }
}

#[test]
fn exclusions_that_fit_nothing_are_all_named_and_a_selection_shows_only_its_own() {
    let scenario = "  - ids: { dataset: random-ids, prompts: 2, input_len: 4, output_len: 2, warmup: 0 }\n";
    let engines = [("a", "vllm", ""), ("b", "vllm", ""), ("c", "vllm", "")];
    let matrix = |exclusions: &str| format!("{}exclude:\n{exclusions}", sims(&engines, scenario));
    let bench = bench(&matrix(
        "  - { when: { engine: x }, why: one }\n  - { when: { engine: y }, why: two }\n",
    ));
    let ran = bench.call(&["check", "matrices/m.yaml"]).exits(2);
    for place in ["engine: x", "engine: y"] {
        assert!(ran.stderr.contains(place), "{place}: {}", ran.stderr);
    }
    bench.rewrite(&matrix(
        "  - { when: { engine: a }, why: one reason }\n  - { when: { engine: b }, why: another }\n",
    ));
    let all = bench
        .call(&["plan", "matrices/m.yaml"])
        .exits(0)
        .shows("one reason");
    all.shows("another");
    let some = bench
        .call(&["plan", "matrices/m.yaml", "--only", "engine=b|c"])
        .exits(0);
    assert!(!some.stdout.contains("one reason"), "{}", some.stdout);
    some.shows("another");
}

#[test]
fn a_matrix_of_more_than_a_million_cells_is_refused_before_it_is_planned() {
    let scenario = "  - wide: { dataset: random-ids, prompts: 2, input_len: 4, output_len: 2, warmup: 0 }\n";
    let values: Vec<String> = (1..=1001).map(|value| value.to_string()).collect();
    let values = values.join(", ");
    let axes = format!("axes: {{ rate: [{values}], concurrency: [{values}] }}\n");
    let bench = bench(&format!("{}{axes}", sims(&[("a", "vllm", "")], scenario)));
    for command in ["check", "plan"] {
        bench
            .call(&[command, "matrices/m.yaml"])
            .exits(2)
            .says("the matrix has more than 1000000 cells");
    }
}

#[test]
fn a_tokenizer_without_a_chat_template_is_told_before_anything_starts() {
    // The tokenizer of these tests is a file of its own.
    let templated =
        "  - own: { dataset: custom, path: custom.jsonl, prompts: 2, apply_chat_template: true }\n";
    let bench = bench(&sims(&[("native", "sglang", "")], templated));
    let needed = "`apply_chat_template` of the scenario `own` needs a chat template: the tokenizer";
    let check = || bench.call(&["check", "matrices/m.yaml"]);
    check()
        .exits(0)
        .says(&format!("note: {needed}"))
        .says("fetch its files with `matrix fetch");
    bench.run(&[]).exits(4).says(&format!("error: {needed}"));
    bench.rewrite(
        "name: t\nengines:\n  - vllm: { variant: chat }\nmodels:\n  - m: { tokenizer: data/tokenizer.json }\nscenarios:\n  \
         - ids: { dataset: random-ids, input_len: 8, output_len: 2, range_ratio: 0, prompts: 2 }\n",
    );
    let expected =
        "note: the engine `vllm` needs a chat template for its protocol `chat`; without one, requests fail";
    check().exits(0).says(expected).says("such as `--chat-template`");
    bench.rewrite(
        "name: t\nengines:\n  - vllm: { variant: chat, args: [--chat-template, own.jinja] }\nmodels:\n  - m: { tokenizer: \
         data/tokenizer.json }\nscenarios:\n  - ids: { dataset: random-ids, input_len: 8, output_len: 2, range_ratio: 0, prompts: 2 }\n",
    );
    assert!(!check().exits(0).stderr.contains("uses the protocol `chat`"));
}
