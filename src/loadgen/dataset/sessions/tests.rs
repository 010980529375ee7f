use std::path::Path;

use super::*;
use crate::config::dataset::agentic_sessions::{Replay, TraceFormat};
use crate::config::workload::{Profile, Workload};
use crate::loadgen::dataset::{Caches, PreparedPrompts, prepare};

fn tokenizer() -> Tokenizer {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/matrices/data"));
    Tokenizer::open("tokenizer.json", folder, &Caches::default()).unwrap()
}

fn prepare_trace(text: &str, prompts: u32, replay: Replay) -> Result<PreparedPrompts, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, text).unwrap();
    let dataset = AgenticSessions {
        output_len: None,
        agentic_sessions: Some(replay),
    };
    let workload = Workload {
        prompts,
        ..Workload::with(dataset)
    };
    let prepared = prepare(&workload, Profile::Current, 7, &tokenizer(), Some(file.path()));
    prepared.map_err(|error| error.to_string())
}

fn small_blocks() -> Replay {
    Replay {
        trace_block: Some(16),
        ..Replay::default()
    }
}

const TRACE: &str = r#"{"session_id": "a", "input_length": 20, "output_length": 5, "hash_ids": [1, 2]}
{"input_length": 16, "hash_ids": [1]}
{"session_id": "a", "delay": 250, "input_length": 40, "output_length": 6, "hash_ids": [1, 2, 3]}
{"session_id": "b", "input_length": 32, "output_length": 5, "hash_ids": [1, 4]}
"#;

fn link(prompt: &Prompt) -> SessionLink {
    prompt.extras.as_ref().unwrap().session.clone().unwrap()
}

#[test]
fn sessions_are_contiguous_rows_with_the_tokens_of_their_blocks() {
    let prepared = prepare_trace(TRACE, 0, small_blocks()).unwrap();
    let lengths: Vec<(u32, u32, u32)> = prepared
        .prompts
        .iter()
        .map(|prompt| (link(prompt).session, prompt.prompt_tokens, prompt.output_tokens))
        .collect();
    assert_eq!(lengths, [(0, 20, 5), (0, 40, 6), (1, 16, 256), (2, 32, 5)]);
    assert_eq!(
        (
            link(&prepared.prompts[1]).after,
            link(&prepared.prompts[1]).delay.as_millis()
        ),
        (vec![0], 250)
    );
    let ids = |row: usize| match &prepared.prompts[row].content {
        Content::Ids(ids) => ids.to_vec(),
        other => panic!("{other:?}"),
    };
    assert_eq!(ids(0)[..], ids(1)[..20]);
    assert_eq!(
        (ids(2)[..] == ids(0)[..16], ids(3)[16..] == ids(1)[16..32]),
        (true, false)
    );
    let warm_up = prepared.warmup.unwrap();
    assert!(matches!(&warm_up.content, Content::Ids(warm_up) if warm_up[..16] != ids(0)[..16]));
    let two = prepare_trace(TRACE, 2, small_blocks()).unwrap();
    assert_eq!(two.prompts[..], prepared.prompts[..3]);
}

#[test]
fn text_of_a_prompt_has_its_tokens() {
    let prepared = prepare_trace(TRACE, 0, small_blocks()).unwrap();
    for prompt in &prepared.prompts {
        let Content::Ids(ids) = &prompt.content else {
            panic!("{prompt:?}");
        };
        let text = as_text(ids, &tokenizer()).unwrap();
        assert_eq!(
            tokenizer().count(&text, false).unwrap(),
            prompt.prompt_tokens as usize
        );
    }
    let error = as_text(&[0xffff_fff0], &tokenizer()).unwrap_err();
    assert!(error.contains("accepts token ids"), "{error}");
}

#[test]
fn random_starts_leave_the_rest_of_each_session_and_prime_the_part_before() {
    let line = |number: u32| {
        let ids: Vec<u32> = (0..=number).collect();
        format!(
            "{{\"session_id\": \"a\", \"delay\": 100, \"input_length\": {}, \"hash_ids\": {ids:?}}}\n",
            16 * (number + 1)
        )
    };
    let trace: String = (0..50).map(line).collect();
    let random = Replay {
        start: SessionStart::Random,
        ..small_blocks()
    };
    let all = prepare_trace(&trace, 0, small_blocks()).unwrap();
    let begun = prepare_trace(&trace, 0, random.clone()).unwrap();
    let left_out = all.prompts.len() - begun.prompts.len();
    assert!(left_out > 0, "seed 7 begins later");
    assert_eq!(begun.prompts[0].content, all.prompts[left_out].content);
    assert_eq!(begun.priming.len(), 1, "each prompt begins with the one before");
    assert_eq!(begun.priming[0].content, all.prompts[left_out - 1].content);
    assert_eq!(begun.priming[0].output_tokens, 1);
    let first = link(&begun.prompts[0]);
    assert_eq!((first.after.len(), first.delay.as_millis()), (0, 0));
    assert_eq!(link(&begun.prompts[1]).delay.as_millis(), 100);
    assert_eq!(prepare_trace(&trace, 0, random).unwrap(), begun);
    assert!(all.priming.is_empty());
}

#[test]
fn an_unknown_file_names_the_formats() {
    let error = prepare_trace("{\"a\": 1}\n", 0, Replay::default()).unwrap_err();
    assert!(error.contains("`weka`, `dag`, `mooncake`, `otel`"), "{error}");
    let error = prepare_trace("{\"input_length\": 16}\n{\"input", 0, small_blocks()).unwrap_err();
    assert!(error.contains("line 2: the text is not valid JSON"), "{error}");
    let weka = Replay {
        format: Some(TraceFormat::Weka),
        ..Replay::default()
    };
    let error = prepare_trace("{\"input_length\": 16}\n", 0, weka).unwrap_err();
    assert!(
        error.contains("line 1: the session or sub-agent has no list of `requests`"),
        "{error}"
    );
}

#[test]
fn files_that_cannot_be_read_are_named_with_place_and_fix() {
    let folder = tempfile::tempdir().unwrap();
    let read = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        files::read(&path, &small_blocks(), usize::MAX).map_err(|error| error.to_string())
    };
    assert_eq!(
        read("marked.jsonl", &format!("\u{feff}{TRACE}")).unwrap().len(),
        3
    );
    for (name, text, parts) in [
        (
            "empty.jsonl",
            "",
            ["empty.jsonl`", "no session was found; write the path"],
        ),
        (
            "blank.jsonl",
            "\n \n",
            ["blank.jsonl`", "no session was found; write the path"],
        ),
        ("text.jsonl", "hello", ["text.jsonl`", "one value in each line"]),
        (
            "huge.jsonl",
            &format!("{TRACE}{{\"input_length\": {}}}\n", "9".repeat(400)),
            ["huge.jsonl`", "line 5: a number at line 1 column"],
        ),
    ] {
        let error = read(name, text).map(|_| ()).unwrap_err();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    // A pipe in a folder would never end; a socket is as little a file.
    let pipes = tempfile::tempdir().unwrap();
    std::fs::write(pipes.path().join("a.jsonl"), TRACE).unwrap();
    let pipe = pipes.path().join("b.jsonl");
    let _socket = std::os::unix::net::UnixListener::bind(&pipe).unwrap();
    let error = files::read(pipes.path(), &small_blocks(), usize::MAX)
        .map(|_| ())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("b.jsonl`: the path is not a regular file"),
        "{error}"
    );
}

#[test]
fn fewer_sessions_than_asked_for_are_noted() {
    let notes = |prompts: u32| {
        let prepared = prepare_trace(TRACE, prompts, small_blocks()).unwrap();
        let workload = Workload {
            prompts,
            ..Workload::with(AgenticSessions::default())
        };
        crate::loadgen::dataset::prompt_notes(&workload, Profile::Current, 7, &prepared)
    };
    assert_eq!(notes(5), ["the trace has 3 sessions, but 5 were requested"]);
    assert_eq!([notes(3), notes(0), notes(2)].concat(), [""; 0]);
}
