//! The data sets beside `sharegpt` and `random`, against the simulated engine.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::harness::{Desk, Ran, Sim, data};
use crate::recorder::Recorder;

/// A bench of a data set on that port.
fn bench(desk: &Desk, backend: &str, port: u16, dataset: &str, more: &[&str]) -> Ran {
    let (port, tokenizer) = (port.to_string(), data("tokenizer.json"));
    let args = [
        "--backend",
        backend,
        "--host",
        "127.0.0.1",
        "--port",
        &port,
        "--tokenizer",
        &tokenizer,
        "--dataset-name",
        dataset,
        "--output-file",
        "out.jsonl",
        "--output-details",
    ];
    desk.call(&[&args[..], more].concat())
}

/// Writes a file of JSON lines and names it.
fn lines(desk: &Desk, rows: &[Value]) -> String {
    let path = desk.path().join("rows.jsonl");
    let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
    std::fs::write(&path, text).expect("a file can be written");
    path.display().to_string()
}

const GROUPS: [&str; 10] = [
    "--gsp-num-groups",
    "3",
    "--gsp-prompts-per-group",
    "2",
    "--gsp-system-prompt-len",
    "40",
    "--gsp-question-len",
    "8",
    "--gsp-output-len",
    "5",
];

#[test]
fn shared_prefixes_are_told_sent_and_counted() {
    let (sim, desk) = (Sim::start("sglang", &[]), Desk::new());
    let gsp = "generated-shared-prefix";
    let ran = bench(&desk, "sglang", sim.port, gsp, &GROUPS).exits(0);
    assert_eq!(ran.value("Successful requests"), "6");
    assert_eq!(ran.value("Total generated tokens"), "30");
    assert_eq!(ran.value("Total prompts"), "6");
    assert_eq!(ran.value("Number of groups"), "3");
    let ran = ran.shows("Generating new input data... (num_groups=3, 2, system_prompt_len=40, ");
    let counted: u64 = ran.value("Total input tokens").parse().expect("a number");
    // What is decoded may be encoded into fewer or more tokens.
    assert!((6 * 20..=6 * 80).contains(&counted), "{counted}");
    let keyed = bench(
        &desk,
        "sglang",
        sim.port,
        gsp,
        &[&GROUPS[..], &["--gsp-send-routing-key", "--gsp-fast-prepare"]].concat(),
    );
    assert_eq!(keyed.exits(0).value("Successful requests"), "6");
}

#[test]
fn routing_keys_go_into_a_header() {
    let (recorder, desk) = (Recorder::start(), Desk::new());
    let keyed = [
        &GROUPS[..],
        &[
            "--gsp-send-routing-key",
            "--gsp-ordered",
            "--max-concurrency",
            "1",
        ],
    ]
    .concat();
    bench(&desk, "vllm", recorder.port, "generated-shared-prefix", &keyed).exits(0);
    let keys: Vec<Option<String>> = recorder
        .take()
        .iter()
        .map(|heard| {
            let key = heard
                .headers
                .iter()
                .find_map(|header| header.strip_prefix("x-smg-routing-key: "));
            key.and_then(|key| key.rsplit('_').next()).map(str::to_owned)
        })
        .collect();
    let groups = ["0", "0", "1", "1", "2", "2"].map(|group| Some(group.to_owned()));
    // The warm-up has none.
    assert_eq!(keys, [&[None], &groups[..]].concat());
}

/// How many requests had each value of a header, without the warm-up.
fn requests_by_header(recorder: &Recorder, name: &str) -> BTreeMap<Option<String>, usize> {
    let mut counts = BTreeMap::new();
    for heard in recorder.take().iter().skip(3) {
        let value = |header: &String| header.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned);
        *counts.entry(heard.headers.iter().find_map(value)).or_default() += 1;
    }
    counts
}

/// The warm-up is the first conversation with its three rounds.
#[test]
fn all_rounds_of_a_conversation_have_one_value_of_the_header_that_a_router_reads() {
    let (recorder, desk) = (Recorder::start(), Desk::new());
    let turns = ["--gsp-num-turns", "3", "--max-concurrency", "2"];
    let header = ["--routing-key-header", "X-Session-ID"];
    let send = |more: &[&str]| {
        let args = [&GROUPS[..], &turns, &header, more].concat();
        bench(
            &desk,
            "vllm-chat",
            recorder.port,
            "generated-shared-prefix",
            &args,
        )
        .exits(0);
    };
    send(&[]);
    let conversations = requests_by_header(&recorder, "x-session-id");
    assert_eq!(conversations.len(), 6, "{conversations:?}");
    assert!(!conversations.contains_key(&None));
    assert!(
        conversations.values().all(|requests| *requests == 3),
        "{conversations:?}"
    );
    let line = &desk.lines()[0];
    assert_eq!(line["matrix"]["routing_key_header"], "X-Session-ID");
    // The same command sends the same keys.
    send(&[]);
    assert_eq!(requests_by_header(&recorder, "x-session-id"), conversations);
    // Rows with keys of their own keep them, under the name that was given.
    send(&["--gsp-send-routing-key"]);
    let groups = requests_by_header(&recorder, "x-session-id");
    assert_eq!(
        groups.values().copied().collect::<Vec<_>>(),
        [6, 6, 6],
        "{groups:?}"
    );
    send(&["--gsp-send-routing-key"]);
    assert_eq!(
        requests_by_header(&recorder, "x-smg-routing-key").len(),
        1,
        "no request has it"
    );
}

#[test]
fn a_header_of_routing_keys_that_cannot_be_sent_or_has_no_effect_is_refused() {
    let desk = Desk::new();
    let turns = ["--gsp-num-turns", "3"];
    let refused = |more: &[&str], why: &str| {
        let args = [&GROUPS[..], more].concat();
        bench(&desk, "vllm-chat", 9, "generated-shared-prefix", &args)
            .exits(2)
            .says(why);
    };
    refused(
        &["--routing-key-header", "X-Session-ID"],
        "its requests are independent of each other",
    );
    let invalid = [&turns[..], &["--routing-key-header", "a b"]].concat();
    refused(&invalid, "may contain only letters");
    let own = [&turns[..], &["--routing-key-header", "Content-Length"]].concat();
    refused(&own, "the client sets this header itself");
    let twice = [
        "--routing-key-header",
        "X-Session-ID",
        "--header",
        "x-session-id=1",
    ];
    refused(&[&turns[..], &twice].concat(), "contradict each other");
}

#[test]
fn conversations_are_held_round_by_round_and_their_prompts_summed() {
    let (sim, desk) = (Sim::start("sglang", &[]), Desk::new());
    let turns = [&GROUPS[..], &["--gsp-num-turns", "3", "--max-concurrency", "2"]].concat();
    let gsp = "generated-shared-prefix";
    let ran = bench(&desk, "sglang-oai-chat", sim.port, gsp, &turns).exits(0);
    assert_eq!(ran.value("Successful requests"), "18");
    let line = &desk.lines()[0];
    let lens: Vec<u64> = line["input_lens"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(Value::as_u64)
        .collect();
    assert_eq!(lens.len(), 18);
    for talk in lens.chunks(3) {
        // Each round holds the one before it, its answer and a question.
        assert!(talk.is_sorted_by(|one, next| *next > one + 5), "{lens:?}");
    }
    assert_eq!(line["total_input_tokens"], lens.iter().sum::<u64>());
    let copied = [&turns[..], &["--compat-figures"]].concat();
    bench(&desk, "sglang-oai-chat", sim.port, gsp, &copied).exits(0);
    assert_eq!(desk.lines()[1]["total_input_tokens"], 0);
}

#[test]
fn custom_rows_are_sent_and_a_missing_file_is_named() {
    let (sim, desk) = (Sim::start("vllm", &[]), Desk::new());
    let row = |at: usize| {
        let turn = |text: String| json!({"content": text});
        json!({"conversations": [turn(format!("Question {at}, what is it?")), turn("It is what it is.".to_owned())]})
    };
    let file = lines(&desk, &(0..9).map(row).collect::<Vec<_>>());
    let of = |file: &str| {
        bench(
            &desk,
            "vllm",
            sim.port,
            "custom",
            &["--dataset-path", file, "--num-prompts", "5"],
        )
    };
    assert_eq!(of(&file).exits(0).value("Successful requests"), "5");
    of("absent.jsonl").exits(2).says("absent.jsonl");
    of("")
        .exits(2)
        .says("no data file found for `custom`\nset the scenario's `path`");
}

#[test]
fn a_data_file_that_is_wrong_is_a_usage_error() {
    let (sim, desk) = (Sim::start("vllm", &[]), Desk::new());
    let file = |name: &str, text: &str| std::fs::write(desk.path().join(name), text).expect("a file");
    file("text.json", "no JSON");
    file("list.jsonl", "[1]\n");
    file("typo.jsonl", "{\"id\": \"a\", \"reqests\": []}\n");
    std::fs::create_dir(desk.path().join("empty")).expect("a folder");
    let pipe = desk.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|made| made.success()), "a pipe can be made");
    let weka = ["--session-format", "weka"];
    for (backend, dataset, path, more, message) in [
        ("vllm", "sharegpt", "text.json", &[][..], "ShareGPT format"),
        (
            "vllm",
            "sharegpt",
            "pipe",
            &[],
            "cannot read the data file `pipe`: the path is not a regular file",
        ),
        (
            "vllm",
            "custom",
            "list.jsonl",
            &[],
            "`list.jsonl` does not contain valid rows for the data set `custom`",
        ),
        ("vllm", "custom", "pipe", &[], "the path is not a regular file"),
        ("vllm-chat", "agentic-sessions", "typo.jsonl", &[], "typo.jsonl"),
        ("vllm-chat", "agentic-sessions", "list.jsonl", &weka, "list.jsonl"),
        ("vllm-chat", "agentic-sessions", "empty", &[], "empty"),
        (
            "vllm-chat",
            "agentic-sessions",
            "",
            &[],
            "no data file found for `agentic-sessions`",
        ),
        ("vllm-transcription", "audio", "text.json", &[], "text.json"),
        ("vllm-transcription", "audio", "empty", &[], "empty"),
        (
            "vllm-transcription",
            "audio",
            "",
            &[],
            "no data file found for `audio`",
        ),
    ] {
        let more = [&["--num-prompts", "2", "--dataset-path", path], more].concat();
        let ran = bench(&desk, backend, sim.port, dataset, &more);
        assert_eq!(ran.code, Some(2), "{dataset} {path}: {}", ran.stderr);
        assert!(ran.stderr.contains(message), "{dataset} {path}: {}", ran.stderr);
    }
}

#[test]
fn adapters_take_turns_and_the_first_warms_up() {
    let (recorder, desk) = (Recorder::start(), Desk::new());
    let more = [
        "--lora-name",
        "a",
        "b",
        "c",
        "--lora-request-distribution",
        "distinct",
        "--max-concurrency",
        "1",
    ];
    let more = [&GROUPS[..], &more].concat();
    bench(
        &desk,
        "vllm-chat",
        recorder.port,
        "generated-shared-prefix",
        &more,
    )
    .exits(0);
    let heard = recorder.take();
    let names: Vec<&str> = heard
        .iter()
        .map(|heard| heard.body["model"].as_str().expect("a name"))
        .collect();
    assert_eq!(names, ["a", "a", "b", "c", "a", "b", "c"]);
    assert!(
        heard
            .iter()
            .all(|heard| heard.body["model"] == heard.body["lora_path"])
    );
    // An engine that knows the names answers all, and one that does not refuses them.
    for (known, failed) in [
        (&["--model", "a", "--model", "b", "--model", "c"][..], false),
        (&[], true),
    ] {
        let sim = Sim::start("vllm", known);
        let ran = bench(&desk, "vllm", sim.port, "generated-shared-prefix", &more);
        match failed {
            false => assert_eq!(ran.exits(0).value("Successful requests"), "6"),
            true => drop(ran.exits(3).says("The model `a` does not exist")),
        }
    }
}

#[test]
fn a_trace_is_replayed_at_its_moments() {
    let (sim, desk) = (Sim::start("sglang", &[]), Desk::new());
    let row = |at: u64, blocks: &[u64]| json!({"timestamp": at, "input_length": 9, "output_length": 4, "hash_ids": blocks});
    let file = lines(&desk, &[row(9300, &[1, 2]), row(9000, &[1]), row(9150, &[])]);
    let more = [
        "--dataset-path",
        &file,
        "--num-prompts",
        "3",
        "--mooncake-slowdown-factor",
        "2",
        "--mooncake-num-rounds",
        "2",
    ];
    let ran = bench(&desk, "sglang", sim.port, "mooncake", &more).exits(0);
    assert_eq!(ran.value("Successful requests"), "6");
    assert_eq!(ran.value("Traffic request rate"), "trace");
    let line = &desk.lines()[0];
    assert_eq!(line["request_rate"], "trace");
    assert!(line["duration"].as_f64() >= Some(0.6), "{}", line["duration"]);
    let wrong = lines(&desk, &[json!({"hash_ids": []})]);
    bench(&desk, "sglang", sim.port, "mooncake", &["--dataset-path", &wrong])
        .exits(2)
        .says("line 1: the row has no `timestamp`");
}

#[test]
fn recorded_requests_and_agents_are_sent_to_chats_only() {
    let (sim, desk) = (Sim::start("vllm", &[]), Desk::new());
    let turn = |text: &str| json!({"messages": [{"role": "user", "content": text}], "prompt_tokens": 5});
    let file = lines(
        &desk,
        &[json!({"conversations": [[turn("one"), turn("two")], [turn("three")]]})],
    );
    let args = ["--dataset-path", &file, "--sharegpt-output-len", "6"];
    let ran = bench(&desk, "vllm-chat", sim.port, "agentic-trace", &args).exits(0);
    assert_eq!(ran.value("Successful requests"), "3");
    ran.shows("#Conversations: 2 (offset=0, turns/conv min=1 max=2 avg=1.5)\n#Output tokens per turn: 6\n");
    for dataset in ["agentic-trace", "openai"] {
        bench(&desk, "vllm", sim.port, dataset, &args)
            .exits(2)
            .says("use a chat backend");
    }
    bench(&desk, "vllm", sim.port, "random", &["--gsp-ordered"])
        .exits(2)
        .says("belong to the data set `generated-shared-prefix`");
}

#[test]
fn rows_of_a_file_are_replayed_at_their_moments() {
    let (sim, desk) = (Sim::start("vllm", &[]), Desk::new());
    let row = |at: u32| json!({"timestamp": at, "conversations": [{"content": format!("row {at} asks")}, {"content": "it answers this"}]});
    let path = lines(&desk, &[row(5700), row(5000), row(5300)]);
    let replay = [
        "--dataset-path",
        &path,
        "--use-trace-timestamps",
        "--num-prompts",
        "3",
    ];
    let ran = bench(&desk, "vllm", sim.port, "custom", &replay).exits(0);
    assert_eq!(ran.value("Traffic request rate"), "trace");
    let seconds: f64 = ran.value("Benchmark duration (s)").parse().expect("a number");
    assert!(seconds >= 0.7, "{seconds}");
    bench(
        &desk,
        "vllm",
        sim.port,
        "custom",
        &[&replay[..], &["--request-rate", "4"]].concat(),
    )
    .exits(2)
    .says("leave out `--request-rate` or `--use-trace-timestamps`");
    bench(&desk, "vllm", sim.port, "sharegpt", &["--use-trace-timestamps"])
        .exits(2)
        .says("whose rows have no timestamps");
}

#[test]
fn a_model_that_the_server_lacks_is_answered_with_those_that_it_serves() {
    let (sim, desk) = (Sim::start("vllm", &[]), Desk::new());
    for backend in ["vllm", "sglang-oai", "vllm-chat"] {
        let more = ["--model", "wrong", "--num-prompts", "1"];
        let ran = bench(&desk, backend, sim.port, "random-ids", &more).exits(3);
        let ran = ran
            .says("The model `wrong` does not exist")
            .says("= help: the server serves `m`; `--model wrong` is not among its models");
        assert!(!ran.stderr.contains("--backend"), "{}", ran.stderr);
    }
    // A path that the server does not know.
    let more = ["--model", "m", "--num-prompts", "1"];
    let ran = bench(&desk, "sglang", sim.port, "random-ids", &more).exits(3);
    ran.says("does the server need another backend, such as `vllm` or `sglang-oai`?");
}
