//! Compares rows of the other data sets with those recorded from the Python tool, with a tokenizer of one
//! token per byte.
//!
//! Source: docs/bench-serving.md 14.1.

use serde_json::{Value, json};

use super::golden::next_draws;
use super::*;
use crate::config::dataset::Options;
use crate::config::dataset::agentic_trace::{AgenticTrace, Conversations};
use crate::config::dataset::custom::Custom;
use crate::config::dataset::generated_shared_prefix::{
    GeneratedSharedPrefix, GroupDistribution, SharedPrefix,
};
use crate::config::dataset::mooncake::{Mooncake, Replay};

/// Prepares a workload from a file with this text under the profile `current`.
fn prepare_from(
    workload: &Workload,
    tokenizer: &Tokenizer,
    text: &str,
) -> Result<PreparedPrompts, DatasetError> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("data");
    std::fs::write(&file, text).unwrap();
    prepare(workload, Profile::Current, 1, tokenizer, Some(&file))
}

fn rows(workload: &Workload, text: &str) -> PreparedPrompts {
    prepare_from(workload, &Tokenizer::bytes(), text).unwrap()
}

fn lines(values: &[Value]) -> String {
    values.iter().map(|value| format!("{value}\n")).collect()
}

fn text(prompt: &Prompt) -> &str {
    match &prompt.content {
        Content::Text(text) => text,
        other => panic!("{other:?} is no text"),
    }
}

fn lengths(prepared: &PreparedPrompts) -> Vec<(u32, u32)> {
    let rows = prepared.prompts.iter();
    rows.map(|prompt| (prompt.prompt_tokens, prompt.output_tokens))
        .collect()
}

/// A tokenizer of one token per character: the first 256 characters, with their code points as ids.
fn letters() -> Tokenizer {
    let letter = |id: u8| (char::from(id).to_string(), json!(id));
    let vocabulary: serde_json::Map<String, Value> = (0..=u8::MAX).map(letter).collect();
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": {"type": "Fuse"},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []}
    });
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), file.to_string()).unwrap();
    Tokenizer::open(".", folder.path(), &Caches::default()).unwrap()
}

/// Prepares three groups of two: system prompts of 5, questions of 3 and answers of 4 tokens.
fn shared_prefix(change: impl FnOnce(&mut GeneratedSharedPrefix, &mut SharedPrefix)) -> PreparedPrompts {
    shared_prefix_with(&Tokenizer::bytes(), change)
}

fn shared_prefix_with(
    tokenizer: &Tokenizer,
    change: impl FnOnce(&mut GeneratedSharedPrefix, &mut SharedPrefix),
) -> PreparedPrompts {
    let mut prefix = SharedPrefix {
        groups: 3,
        prompts_per_group: 2,
        system_len: 5,
        question_len: 3,
        ordered: true,
        ..SharedPrefix::default()
    };
    let mut dataset = GeneratedSharedPrefix {
        output_len: Some(4),
        ..GeneratedSharedPrefix::default()
    };
    change(&mut dataset, &mut prefix);
    dataset.shared_prefix = Some(prefix);
    prepare_from(&Workload::with(dataset), tokenizer, "").unwrap()
}

fn ids(prepared: &PreparedPrompts) -> Vec<Vec<u32>> {
    let ids = |prompt: &Prompt| match &prompt.content {
        Content::Ids(ids) => ids.to_vec(),
        other => panic!("{other:?} are no ids"),
    };
    prepared.prompts.iter().map(ids).collect()
}

const SYSTEMS: [[u32; 5]; 3] = [
    [34, 216, 195, 65, 126],
    [115, 166, 201, 24, 7],
    [213, 110, 195, 0, 114],
];
const QUESTIONS: [[u32; 3]; 6] = [
    [184, 58, 241],
    [230, 7, 6],
    [138, 240, 97],
    [55, 108, 7],
    [56, 112, 126],
    [59, 59, 56],
];

/// The expected ids of each slot, for the group of each slot.
fn slots(groups: [usize; 6]) -> Vec<Vec<u32>> {
    let slots = groups.iter().zip(QUESTIONS);
    slots
        .map(|(group, question)| [&SYSTEMS[*group][..], &question].concat())
        .collect()
}

#[test]
fn shared_prefixes_are_those_of_the_python_tool() {
    let ordered = shared_prefix(|workload, _| workload.tokenize_prompt = true);
    assert_eq!(ids(&ordered), slots([0, 0, 1, 1, 2, 2]));
    assert_eq!(lengths(&ordered), [(8, 4); 6]);
    assert_eq!(next_draws(&ordered).0, 0.4596034657377336);
    let shuffled = shared_prefix(|workload, prefix| {
        workload.tokenize_prompt = true;
        prefix.ordered = false;
    });
    let there = slots([0, 0, 1, 1, 2, 2]);
    assert_eq!(
        ids(&shuffled),
        [4, 5, 1, 0, 2, 3].map(|slot: usize| there[slot].clone())
    );
    assert_eq!(next_draws(&shuffled).0, 0.1859062658947177);
    let zipf = shared_prefix(|workload, prefix| {
        workload.tokenize_prompt = true;
        prefix.popularity = GroupDistribution::Zipf { alpha: 1.2 };
    });
    assert_eq!(ids(&zipf), slots([0, 2, 0, 2, 0, 0]));
}

#[test]
fn shared_prefixes_of_drawn_lengths_are_those_of_the_python_tool() {
    let drawn = shared_prefix(|workload, prefix| {
        workload.tokenize_prompt = true;
        prefix.range_ratio = 0.5;
    });
    assert_eq!(
        ids(&drawn),
        [
            vec![34, 216, 195, 213],
            vec![34, 216, 195, 110, 195],
            vec![65, 126, 115, 166, 201, 0, 114],
            vec![65, 126, 115, 166, 201, 184],
            vec![24, 7, 58],
            vec![24, 7, 241, 230],
        ]
    );
    let outputs: Vec<u32> = lengths(&drawn).iter().map(|(_, output)| *output).collect();
    assert_eq!(outputs, [2, 3, 2, 4, 3, 4]);
    assert_eq!(next_draws(&drawn), (0.030589983033553536, 0.8463109166860171));
}

#[test]
fn shared_prefixes_of_text_are_those_of_the_python_tool() {
    let letters = letters();
    let spelt = |ids: &[u32]| -> String {
        let letter = |id: &u32| char::from(u8::try_from(*id).unwrap());
        ids.iter().map(letter).collect()
    };
    let texts = |prepared: &PreparedPrompts| -> Vec<String> {
        let texts = prepared.prompts.iter().map(text);
        texts.map(str::to_owned).collect()
    };
    let whole = shared_prefix_with(&letters, |_, _| {});
    assert_eq!(lengths(&whole), [(10, 4); 6]);
    assert_eq!(
        whole.printed_lines[9..],
        [
            "Total input tokens: 60",
            "Total output tokens: 24",
            "Average system prompt length: 5.0 tokens",
            "Average question length: 3.0 tokens",
            ""
        ]
    );
    let half = shared_prefix_with(&letters, |_, prefix| prefix.range_ratio = 0.5);
    let expected: [(&[u32], u32); 6] = [
        (&[34, 216, 195, 10, 10, 213], 2),
        (&[34, 216, 195, 10, 10, 110, 195], 3),
        (&[65, 126, 115, 166, 201, 10, 10, 0, 114], 2),
        (&[65, 126, 115, 166, 201, 10, 10, 184], 4),
        (&[24, 7, 10, 10, 58], 3),
        (&[24, 7, 10, 10, 241, 230], 4),
    ];
    assert_eq!(texts(&half), expected.map(|(ids, _)| spelt(ids)));
    assert_eq!(
        lengths(&half),
        expected.map(|(ids, output)| (ids.len() as u32, output))
    );
    assert_eq!(next_draws(&half), (0.030589983033553536, 0.8463109166860171));
    let talks = shared_prefix_with(&letters, |_, prefix| prefix.turns = 2);
    let first_turn = |question: &[u32; 3]| spelt(&[&SYSTEMS[0][..], &[10, 10], question].concat());
    assert_eq!(
        texts(&talks)[..2],
        [first_turn(&QUESTIONS[0]), first_turn(&QUESTIONS[2])]
    );
}

#[test]
fn shared_prefixes_of_text_stand_apart_from_their_questions_and_are_told() {
    let plain = shared_prefix(|_, _| {});
    let [system, question] = [&SYSTEMS[0][..], &QUESTIONS[0]].map(|ids| {
        Tokenizer::bytes()
            .decode(ids, tokenizer::CleanUp::ExceptBpe)
            .unwrap()
    });
    assert_eq!(text(&plain.prompts[0]), format!("{system}\n\n{question}"));
    assert_eq!(
        plain.printed_lines[..9],
        [
            "",
            "Generating new input data... (num_groups=3, 2, system_prompt_len=5, question_len=3, output_len=4, \
             range_ratio=1.0, num_turns=1, group_distribution='uniform', zipf_alpha=None)",
            "",
            "Generated shared prefix dataset statistics:",
            "Number of groups: 3",
            "Prompts per group: 2",
            "Number of turns: 1",
            "Group distribution: uniform",
            "Total prompts: 6",
        ]
    );
    assert_eq!(plain.printed_lines.len(), 14);
    let uncounted = shared_prefix(|_, prefix| {
        prefix.uncounted = true;
        prefix.popularity = GroupDistribution::Zipf { alpha: 1.2 };
    });
    assert_eq!(lengths(&uncounted), [(1, 4); 6]);
    assert_eq!(
        uncounted.printed_lines[8..],
        ["Zipf alpha: 1.2", "Total prompts: 6"].map(str::to_owned)
    );
}

#[test]
fn shared_prefixes_of_several_turns_draw_a_question_for_each() {
    let talks = shared_prefix(|_, prefix| prefix.turns = 2);
    assert_eq!(next_draws(&talks).0, 0.5875806061435594);
    let turns = |at: usize| talks.prompts[at].extras.as_ref().unwrap().turns.clone().unwrap();
    let question = |ids: &[u32]| {
        let content = Tokenizer::bytes()
            .decode(ids, tokenizer::CleanUp::ExceptBpe)
            .unwrap();
        vec![vec![json!({"role": "user", "content": content})]]
    };
    assert_eq!(turns(0), question(&QUESTIONS[1]));
    assert_eq!(turns(1), question(&QUESTIONS[3]));
}

#[test]
fn routing_keys_are_the_same_for_the_same_draws_and_differ_by_group() {
    let keyed = || {
        let rows = shared_prefix(|_, prefix| prefix.routing_key = true);
        let keys = rows.prompts.iter().map(|prompt| {
            let extras = prompt.extras.as_ref().unwrap();
            extras.routing_key.clone().unwrap()
        });
        (keys.collect::<Vec<_>>(), rows.hash)
    };
    let (keys, hash) = keyed();
    assert_eq!((keys.clone(), hash), keyed());
    assert_eq!(keys[0], keys[1]);
    assert_ne!(keys[1], keys[2]);
    assert!(keys[5].ends_with("_2"), "{keys:?}");
}

#[test]
fn custom_conversations_are_those_of_the_python_tool() {
    let mut file: Vec<String> = (0..6)
        .map(|at| {
            let (user, assistant) = ("a".repeat(at), "b".repeat(at % 3));
            json!({"conversations": [
                {"role": "user", "content": format!("U{at}{user}")},
                {"role": "assistant", "content": format!("B{at}{assistant}")},
            ]})
            .to_string()
        })
        .collect();
    file.extend([String::new(), "{no".to_owned()]);
    file.push(json!({"conversation": [{"value": "V"}, {"value": "W"}]}).to_string());
    file.push(json!({"conversations": [{"content": "alone"}]}).to_string());
    let workload = Workload {
        prompts: 4,
        ..Workload::new(DatasetName::Custom)
    };
    let prepared = rows(&workload, &file.join("\n"));
    let prompts: Vec<_> = prepared
        .prompts
        .iter()
        .map(text)
        .zip(lengths(&prepared))
        .collect();
    assert_eq!(
        prompts,
        [
            ("U3aaa", (5, 2)),
            ("U5aaaaa", (7, 4)),
            ("U2aa", (4, 4)),
            ("U0", (2, 2))
        ]
    );
    assert_eq!(
        prepared.printed_lines,
        ["#Input tokens: 18", "#Output tokens: 12"]
    );
}

#[test]
fn a_chat_template_is_applied_and_its_first_token_left_to_the_encoding() {
    let turns = json!({"conversations": [{"content": "x"}, {"content": "yyyy"}]});
    let workload = Workload::with(Custom {
        apply_chat_template: true,
        ..Custom::default()
    });
    let prepared = prepare_from(&workload, &Tokenizer::bytes_with_bos(), &turns.to_string()).unwrap();
    assert_eq!(text(&prepared.prompts[0]), "<|user|>\nx<|end|>\n<|assistant|>\n");
    assert_eq!(lengths(&prepared), [(33, 5)]);
}

#[test]
fn recorded_requests_keep_their_messages_and_their_own_fields() {
    let file = lines(&[
        json!({"model": "other", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 7, "temperature": 0.5}),
        json!({"messages": []}),
        json!({
            "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "yo"}],
            "max_completion_tokens": 9, "tools": [{"type": "function", "function": {"name": "f"}}]
        }),
    ]);
    let workload = Workload {
        prompts: 0,
        ..Workload::new(DatasetName::Openai)
    };
    let prepared = rows(&workload, &format!("no JSON\n{file}"));
    assert_eq!(lengths(&prepared), [(33, 7), (102, 256)]);
    let own = |at: usize| {
        let prompt: &Prompt = &prepared.prompts[at];
        Value::Object(prompt.extras.as_ref().unwrap().body.clone())
    };
    assert_eq!(own(0), json!({"temperature": 0.5}));
    assert_eq!(
        own(1),
        json!({"tools": [{"type": "function", "function": {"name": "f"}}]})
    );
    assert_eq!(
        prepared.printed_lines,
        [
            "Loaded 2 OpenAI-format requests",
            "#Input tokens: 135",
            "#Output tokens: 263"
        ]
    );
    let two = Workload {
        prompts: 2,
        ..workload
    };
    assert_eq!(rows(&two, &file).prompts.len(), 1);
}

#[test]
fn an_agents_conversations_begin_at_the_offset_and_are_cut() {
    let turn = |content: &str, tokens: u32| json!({"messages": [{"role": "user", "content": content, "name": "n"}], "prompt_tokens": tokens});
    let file = json!({"conversations": [
        [turn("a0", 10), {"messages": [], "prompt_tokens": 11}, turn("a1", 12), turn("a2", 13)],
        [],
        [turn("c0", 30)],
    ]});
    let workload = Workload::with(AgenticTrace {
        agentic_trace: Some(Conversations {
            offset: 5,
            max_turns: Some(2),
        }),
        ..AgenticTrace::default()
    });
    let prepared = rows(&workload, &file.to_string());
    assert_eq!(lengths(&prepared), [(30, 220), (10, 220)]);
    let user = |content: &str| vec![json!({"role": "user", "content": content})];
    assert_eq!(prepared.prompts[1].content, Content::Messages(user("a0")));
    let turns = |at: usize| prepared.prompts[at].extras.as_ref().unwrap().turns.clone();
    assert_eq!((turns(0), turns(1)), (Some(vec![]), Some(vec![user("a1")])));
    assert_eq!(
        prepared.printed_lines,
        [
            "#Conversations: 2 (offset=5, turns/conv min=1 max=2 avg=1.5)",
            "#Output tokens per turn: 220"
        ]
    );
    let error = prepare_from(&workload, &Tokenizer::bytes(), "[]")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("the data set `agentic-trace`: the file has no list of `conversations`"),
        "{error}"
    );
}

#[test]
fn a_trace_is_sorted_and_its_rounds_grow() {
    let file = lines(&[
        json!({"timestamp": 2000, "input_length": 9, "output_length": 2, "hash_ids": [7, 8]}),
        json!({"timestamp": 500, "input_length": 9, "output_length": 1, "hash_ids": []}),
        json!({"timestamp": 9, "hash_ids": []}),
    ]);
    let workload = Workload {
        prompts: 2,
        ..Workload::with(Mooncake {
            mooncake: Some(Replay {
                rounds: 2,
                ..Replay::default()
            }),
        })
    };
    let prepared = rows(&workload, &file);
    let at = |prompt: &Prompt| prompt.extras.as_ref().unwrap().at.unwrap().as_millis();
    assert_eq!(
        prepared.prompts.iter().map(at).collect::<Vec<_>>(),
        [500, 500, 2000, 2000]
    );
    let story = "Tell me a story based on this context.";
    assert_eq!(
        text(&prepared.prompts[1]),
        format!(
            "<|user|>\nRound 1: {story}<|end|>\n<|assistant|>\nstory<|end|>\n<|user|>\nRound 2: {story}<|end|>\n<|assistant|>\n"
        )
    );
    assert_eq!(lengths(&prepared)[3].1, 2);
    let warm = prepared.warmup.as_ref().map(text).unwrap();
    assert!(warm.starts_with("7hi hi ") && warm.ends_with("Can you tell me a detailed story in 1000 words?"));
    let wrong = lines(&[json!({"timestamp": "x"})]);
    let error = prepare_from(&workload, &Tokenizer::bytes(), &wrong)
        .unwrap_err()
        .to_string();
    assert!(error.contains("line 1: the row has no `timestamp`"), "{error}");
}

#[test]
fn rows_with_moments_are_sent_in_their_order_where_that_is_asked_for() {
    let printed = |dataset: DatasetName, timestamp: Option<u32>| {
        let mut row = match dataset {
            DatasetName::Custom => json!({"conversations": [{"content": "question"}, {"content": "answer"}]}),
            DatasetName::Openai => json!({"messages": [{"role": "user", "content": "question"}]}),
            _ => json!({"messages": [{"role": "user", "content": "question"}], "prompt_tokens": 8}),
        };
        if let Some(timestamp) = timestamp {
            row["timestamp"] = json!(timestamp);
        }
        row
    };
    for dataset in [
        DatasetName::Custom,
        DatasetName::Openai,
        DatasetName::AgenticTrace,
    ] {
        let file = |moments: &[Option<u32>]| {
            let rows: Vec<Value> = moments.iter().map(|moment| printed(dataset, *moment)).collect();
            match dataset {
                DatasetName::AgenticTrace => {
                    let talks: Vec<Value> = rows.into_iter().map(|row| json!([row])).collect();
                    json!({ "conversations": talks }).to_string()
                }
                _ => lines(&rows),
            }
        };
        let at_rate = Workload::with(dataset);
        let timed = Options::from_iter([("trace_timestamps".to_owned(), json!(true))]);
        let workload = Workload::given(dataset, timed, 1000).unwrap();
        let replayed = rows(&workload, &file(&[Some(1500), Some(200), Some(900)]));
        let moments: Vec<_> = replayed
            .prompts
            .iter()
            .map(|prompt| prompt.extras.as_ref().unwrap())
            .map(|extras| (extras.at.unwrap().as_millis(), extras.body.len()))
            .collect();
        assert_eq!(moments, [(200, 0), (900, 0), (1500, 0)], "{dataset:?}");
        let at_rate = rows(&at_rate, &file(&[Some(1), None]));
        let has_moment = |prompt: &Prompt| prompt.extras.as_ref().is_some_and(|extras| extras.at.is_some());
        assert!(!at_rate.prompts.iter().any(has_moment), "{dataset:?}");
        let error = prepare_from(&workload, &Tokenizer::bytes(), &file(&[Some(1), None])).unwrap_err();
        assert!(
            error.to_string().contains("has no `timestamp` in milliseconds"),
            "{error}"
        );
    }
}
