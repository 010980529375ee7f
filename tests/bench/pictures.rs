//! Pictures and SPEED-Bench, against the simulated engine and against a server that keeps what it hears.

use serde_json::{Value, json};

use crate::harness::{Desk, Ran, Sim, data};
use crate::recorder::Recorder;

/// Messages in the manner of ChatML, pictures as one mark each.
const TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n\
    {% if message.content is string %}{{ message.content }}{% else %}\
    {% for part in message.content %}{% if part.type == 'image' %}<|picture|>{% else %}{{ part.text }}{% endif %}{% endfor %}\
    {% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// A bench with a tokenizer that has a chat template.
fn bench(desk: &Desk, backend: &str, port: u16, dataset: &str, more: &[&str]) -> Ran {
    let tokenizer = desk.path().join("tokenizer.json");
    std::fs::copy(data("tokenizer.json"), &tokenizer).expect("a file can be copied");
    std::fs::write(desk.path().join("chat_template.jinja"), TEMPLATE).expect("a file can be written");
    let port = port.to_string();
    let args = [
        "--backend",
        backend,
        "--host",
        "127.0.0.1",
        "--port",
        &port,
        "--tokenizer",
        "./tokenizer.json",
        "--dataset-name",
        dataset,
        "--output-file",
        "out.jsonl",
        "--output-details",
    ];
    desk.call(&[&args[..], more].concat())
}

const PICTURES: [&str; 14] = [
    "--num-prompts",
    "3",
    "--random-input-len",
    "6",
    "--random-output-len",
    "4",
    "--random-range-ratio",
    "1",
    "--image-count",
    "2",
    "--image-resolution",
    "random:8x8-16x24",
    "--image-format",
    "png",
];

#[test]
fn pictures_are_told_sent_and_counted() {
    let (sim, desk) = (Sim::start("sglang", &[]), Desk::new());
    let ran = bench(&desk, "sglang-oai-chat", sim.port, "image", &PICTURES).exits(0);
    assert_eq!(ran.value("Successful requests"), "3");
    assert_eq!(ran.value("Total generated tokens"), "12");
    let ran = ran
        .shows("#Total images: 6\n#Images per request: 2 (fixed)\n#Image resolution: min=")
        .shows("=== Token Breakdown (per request avg / total) ===\n  Raw text prompt tokens (without overhead): avg=6.0, total=18\n")
        .shows("\nCreated 3 random png images with average ");
    let (input, text): (u64, u64) = (
        ran.value("Total input tokens").parse().expect("a number"),
        ran.value("Total input text tokens").parse().expect("a number"),
    );
    let line = &desk.lines()[0];
    assert_eq!(line["total_input_tokens"], input);
    assert_eq!(line["total_input_text_tokens"], text);
    assert_eq!(line["total_input_vision_tokens"], input - text);
}

#[test]
fn pictures_are_parts_of_a_message_or_stand_beside_a_text_with_their_places() {
    let (recorder, desk) = (Recorder::start(), Desk::new());
    bench(&desk, "vllm-chat", recorder.port, "image", &PICTURES).exits(0);
    let heard = recorder.take();
    let body: &Value = &heard[1].body;
    let parts = body["messages"][0]["content"].as_array().expect("parts");
    assert_eq!(parts.len(), 3);
    let uri = parts[1]["image_url"]["url"].as_str().expect("a data URI");
    assert!(uri.starts_with("data:image/png;base64,"), "{uri:.40}");
    let text = parts[2]["text"].as_str().expect("text");
    assert!(!text.contains("<|im_start|>"), "{text}");
    assert_eq!(body["stream_options"], json!({"include_usage": true}));

    let (sim, again) = (Sim::start("sglang", &[]), Desk::new());
    bench(&again, "sglang", sim.port, "image", &PICTURES).exits(0);
    let ran = bench(&again, "vllm", sim.port, "image", &PICTURES).exits(2);
    assert!(ran.stderr.contains("chat backend"), "{}", ran.stderr);
}

#[test]
fn speed_bench_is_sampled_and_kept_for_the_next_time() {
    let (sim, desk) = (Sim::start("vllm", &[]), Desk::new());
    let row = |at: usize| {
        let category = if at.is_multiple_of(2) {
            "mixed"
        } else {
            "low_entropy"
        };
        json!({"category": category, "turns": [format!("Question {at}?"), "And then?"]}).to_string()
    };
    let path = desk.path().join("speed.jsonl");
    std::fs::write(&path, (0..6).map(row).collect::<Vec<_>>().join("\n")).expect("a file can be written");
    let args = [
        "--dataset-path",
        "speed.jsonl",
        "--num-prompts",
        "5",
        "--speed-bench-category",
        "mixed",
        "--speed-bench-output-len",
        "7",
    ];
    let kept = || std::fs::read_dir(desk.path().join("cache/prompts")).map_or(0, Iterator::count);
    let anew = [&args[..], &["--fresh-prompts"]].concat();
    bench(&desk, "vllm", sim.port, "speed-bench", &anew).exits(0);
    assert_eq!(kept(), 0);
    let figures: Vec<(String, String)> = (0..2)
        .map(|_| {
            let ran = bench(&desk, "vllm", sim.port, "speed-bench", &args).exits(0);
            assert_eq!(kept(), 1);
            let value = |label: &str| ran.value(label).to_owned();
            (value("Total input tokens"), value("Total generated tokens"))
        })
        .collect();
    assert_eq!(figures[0].1, "35");
    assert_eq!(figures[0], figures[1]);
    let ran = bench(&desk, "vllm", sim.port, "sharegpt", &args).exits(2);
    assert!(ran.stderr.contains("`--speed-bench-…`"), "{}", ran.stderr);
}
