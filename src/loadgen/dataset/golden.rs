//! Compares prompts with those recorded from the Python tool for a small data set and a tokenizer of one
//! token per byte.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::*;
use crate::config::dataset::random::Random;
use crate::config::dataset::random_ids::RandomIds;
use crate::config::dataset::sharegpt::Sharegpt;

/// Sixteen records with all special cases of the readers; record 9 has its turns under `key`.
fn data_set(key: &str) -> Value {
    let letters: Vec<char> = ('a'..='z').collect();
    let record = |at: usize| {
        let forth: String = letters.iter().take(7 * at % 23).collect();
        let back: String = letters.iter().rev().take(5 * at % 17).collect();
        let mut first = format!("Q{at:02}:{forth}");
        let mut second = format!("A{at:02}:{back}");
        match at {
            3 => first.clear(),
            7 => second = "y".to_owned(),
            11 => first = "x".to_owned(),
            _ => {}
        }
        let mut turns = vec![
            json!({"from": "human", "value": first}),
            json!({"from": "gpt", "value": second}),
        ];
        match at {
            5 => turns.truncate(1),
            12 => turns.push(json!({"from": "human", "value": "more"})),
            _ => {}
        }
        json!({ if at == 9 { key } else { "conversations" }: turns })
    };
    (0..16).map(record).collect()
}

/// The data set in a file that the profile can read.
struct Case {
    _folder: tempfile::TempDir,
    file: PathBuf,
    profile: Profile,
    tokenizer: Tokenizer,
}

impl Case {
    fn new(profile: Profile, tokenizer: Tokenizer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("data.json");
        let key = match profile {
            Profile::Classic => "conversations",
            Profile::Current => "conversation",
        };
        std::fs::write(&file, serde_json::to_vec(&data_set(key)).unwrap()).unwrap();
        Self {
            _folder: folder,
            file,
            profile,
            tokenizer,
        }
    }

    fn prepare(&self, seed: u64, workload: &Workload) -> PreparedPrompts {
        prepare(workload, self.profile, seed, &self.tokenizer, Some(&self.file)).unwrap()
    }
}

fn sharegpt(prompts: u32) -> Workload {
    sharegpt_with(prompts, Sharegpt::default())
}

fn sharegpt_with(prompts: u32, dataset: Sharegpt) -> Workload {
    Workload {
        prompts,
        ..Workload::with(dataset)
    }
}

fn random(prompts: u32, input_len: u32, output_len: u32, range_ratio: f64) -> Workload {
    Workload {
        prompts,
        ..Workload::with(Random {
            input_len: Some(input_len),
            output_len: Some(output_len),
            range_ratio,
            tokenize_prompt: false,
            lengths: None,
            common_prefix: None,
        })
    }
}

fn random_ids(tokenize_prompt: bool) -> Workload {
    Workload {
        prompts: 4,
        ..Workload::with(RandomIds {
            input_len: Some(6),
            output_len: Some(4),
            range_ratio: 0.5,
            tokenize_prompt,
            lengths: None,
            common_prefix: None,
        })
    }
}

/// Returns rows of text: prompt, its length, output length.
fn rows(prepared: &PreparedPrompts) -> Vec<(&str, u32, u32)> {
    prepared
        .prompts
        .iter()
        .map(|prompt| match &prompt.content {
            Content::Text(text) => (text.as_str(), prompt.prompt_tokens, prompt.output_tokens),
            _ => panic!("these rows are text"),
        })
        .collect()
}

/// Returns rows of ids: ids and output length.
fn id_rows(prepared: &PreparedPrompts) -> Vec<(Vec<u32>, u32)> {
    prepared
        .prompts
        .iter()
        .map(|prompt| match &prompt.content {
            Content::Ids(ids) => {
                assert_eq!(ids.len(), prompt.prompt_tokens as usize);
                (ids.to_vec(), prompt.output_tokens)
            }
            _ => panic!("these rows are ids"),
        })
        .collect()
}

/// Returns the next numbers of Python's and of numpy's generator.
pub(super) fn next_draws(prepared: &PreparedPrompts) -> (f64, f64) {
    let mut rng = prepared.rng.clone();
    (rng.python.random(), rng.numpy.random())
}

/// numpy's next number if nothing was drawn since seed 1.
const UNTOUCHED: f64 = 0.417022004702574;
/// Python's next number after it shuffled the data set with seed 1.
const SHUFFLED: f64 = 0.02834747652200631;

const SHAREGPT_ROWS: [(&str, u32, u32); 12] = [
    ("Q15:abcdefghijklm", 17, 11),
    ("Q00:", 4, 4),
    ("Q14:abcdef", 10, 6),
    ("Q06:abcdefghijklmnopqrs", 23, 17),
    ("Q09:abcdefghijklmnopq", 21, 15),
    ("Q08:abcdefghij", 14, 10),
    ("Q12:abcdefghijklmno", 19, 13),
    ("Q04:abcde", 9, 7),
    ("Q01:abcdefg", 11, 9),
    ("Q13:abcdefghijklmnopqrstuv", 26, 18),
    ("Q10:a", 5, 20),
    ("Q02:abcdefghijklmn", 18, 14),
];

#[test]
fn sharegpt_gives_the_tools_rows_in_both_profiles() {
    for profile in [Profile::Current, Profile::Classic] {
        let prepared = Case::new(profile, Tokenizer::bytes()).prepare(1, &sharegpt(100));
        assert_eq!(rows(&prepared), SHAREGPT_ROWS, "{profile:?}");
        assert_eq!((prepared.input_tokens, prepared.output_tokens), (177, 144));
        assert_eq!(next_draws(&prepared), (SHUFFLED, UNTOUCHED));
    }
}

#[test]
fn fewer_sharegpt_prompts_are_a_prefix() {
    let prepared = Case::new(Profile::Current, Tokenizer::bytes()).prepare(1, &sharegpt(6));
    assert_eq!(rows(&prepared), SHAREGPT_ROWS[..6]);
    assert_eq!((prepared.input_tokens, prepared.output_tokens), (89, 63));
}

#[test]
fn a_context_limit_drops_rows_of_sharegpt() {
    let limited = Sharegpt {
        context_len: Some(28),
        ..Sharegpt::default()
    };
    let limited = sharegpt_with(100, limited);
    let prepared = Case::new(Profile::Current, Tokenizer::bytes()).prepare(1, &limited);
    let begins: Vec<&str> = rows(&prepared).into_iter().map(|(text, ..)| &text[..3]).collect();
    assert_eq!(begins, ["Q15", "Q00", "Q14", "Q08", "Q04", "Q01", "Q10"]);
    assert_eq!((prepared.input_tokens, prepared.output_tokens), (70, 67));
}

#[test]
fn a_chat_template_is_applied_and_its_bos_left_to_the_tokenizer() {
    let templated = Sharegpt {
        apply_chat_template: true,
        ..Sharegpt::default()
    };
    let workload = sharegpt_with(3, templated);
    let prepared = Case::new(Profile::Current, Tokenizer::bytes_with_bos()).prepare(1, &workload);
    let prompts = ["Q15:abcdefghijklm", "x", "Q00:"];
    let texts = prompts.map(|text| format!("<|user|>\n{text}<|end|>\n<|assistant|>\n"));
    assert_eq!(
        rows(&prepared),
        [
            (texts[0].as_str(), 49, 12),
            (texts[1].as_str(), 33, 9),
            (texts[2].as_str(), 36, 5)
        ]
    );
}

#[test]
fn a_fixed_output_length_and_a_suffix_are_the_tools() {
    let suffixed = Sharegpt {
        output_len: Some(8),
        prompt_suffix: Some("!!".to_owned()),
        ..Sharegpt::default()
    };
    let workload = sharegpt_with(4, suffixed);
    let prepared = Case::new(Profile::Current, Tokenizer::bytes()).prepare(42, &workload);
    assert_eq!(
        rows(&prepared),
        [
            ("Q09:abcdefghijklmnopq!!Assistant:", 33, 8),
            ("Q14:abcdef!!Assistant:", 22, 8),
            ("Q08:abcdefghij!!Assistant:", 26, 8),
            ("Q07:abc!!Assistant:", 19, 8),
        ]
    );
    assert_eq!(next_draws(&prepared).0, 0.03178267948178359);
}

#[test]
fn a_bos_token_counts_in_prompts_and_in_completions() {
    let prepared = Case::new(Profile::Current, Tokenizer::bytes_with_bos()).prepare(1, &sharegpt(3));
    // `x` has two tokens here and is allowed; with plain bytes it has one and is dropped.
    assert_eq!(
        rows(&prepared),
        [("Q15:abcdefghijklm", 18, 12), ("x", 2, 9), ("Q00:", 5, 5)]
    );
}

#[test]
fn random_gives_the_tools_rows_in_the_current_profile() {
    let case = Case::new(Profile::Current, Tokenizer::bytes());
    let drawn = case.prepare(1, &random(5, 16, 8, 0.0));
    assert_eq!(
        rows(&drawn),
        [
            ("Q15:ab", 6, 2),
            ("xxxxxxxxxxxx", 12, 4),
            ("Q00:Q00:Q00:Q", 13, 6),
            ("Q14:abcde", 9, 8),
            ("Q07:abcQ07:abcQ0", 16, 1),
        ]
    );
    assert_eq!(next_draws(&drawn), (SHUFFLED, 0.0923385947687978));
    assert_eq!((drawn.input_tokens, drawn.output_tokens), (56, 21));

    let half = case.prepare(1, &random(5, 16, 8, 0.5));
    assert_eq!(
        rows(&half),
        [
            ("Q15:abcdefghi", 13, 5),
            ("xxxxxxxxxxxxxxxx", 16, 8),
            ("Q00:Q00:Q00:Q", 13, 8),
            ("Q14:abcd", 8, 5),
            ("Q07:abcQ", 8, 6),
        ]
    );
    assert_eq!(next_draws(&half), (SHUFFLED, 0.8463109166860171));

    let full = case.prepare(1, &random(5, 16, 8, 1.0));
    assert_eq!(
        rows(&full),
        [
            "Q15:abcdefghijkl",
            "xxxxxxxxxxxxxxxx",
            "Q00:Q00:Q00:Q00:",
            "Q14:abcdefQ14:ab",
            "Q07:abcQ07:abcQ0"
        ]
        .map(|text| (text, 16, 8))
    );
    assert_eq!(next_draws(&full), (SHUFFLED, UNTOUCHED));
}

#[test]
fn random_gives_the_tools_rows_in_the_classic_profile() {
    let case = Case::new(Profile::Classic, Tokenizer::bytes());
    let drawn = case.prepare(1, &random(5, 16, 8, 0.0));
    assert_eq!(
        rows(&drawn),
        [
            ("Q15:ab", 6, 5),
            ("Q12:abcdefgh", 12, 0),
            ("Q00:Q00:Q00:Q", 13, 0),
            ("Q14:abcde", 9, 1),
            ("Q08:abcdefghijQ0", 16, 7),
        ]
    );
    assert_eq!(next_draws(&drawn), (SHUFFLED, 0.34556072704304774));

    let half = case.prepare(1, &random(5, 16, 8, 0.5));
    assert_eq!(
        rows(&half),
        [
            ("Q15:abcdefghi", 13, 5),
            ("Q12:abcdefghijkl", 16, 8),
            ("Q00:Q00:Q00:Q", 13, 8),
            ("Q14:abcd", 8, 5),
            ("Q08:abcd", 8, 6),
        ]
    );
    assert_eq!(next_draws(&half), (SHUFFLED, 0.8463109166860171));

    let full = case.prepare(1, &random(5, 16, 8, 1.0));
    assert_eq!(
        rows(&full),
        [
            "Q15:abcdefghijkl",
            "Q12:abcdefghijkl",
            "Q00:Q00:Q00:Q00:",
            "Q14:abcdefQ14:ab",
            "Q08:abcdefghijQ0"
        ]
        .map(|text| (text, 16, 8))
    );
    assert_eq!(next_draws(&full), (SHUFFLED, UNTOUCHED));
}

#[test]
fn random_takes_special_tokens_off_the_length_and_writes_them_into_the_text() {
    let prepared =
        Case::new(Profile::Current, Tokenizer::bytes_with_bos()).prepare(1, &random(3, 16, 8, 1.0));
    assert_eq!(
        rows(&prepared),
        [
            ("<s>Q15:abcdefghij", 15, 8),
            ("<s>x<s>x<s>x<s>x<s>x<s>x<s>x<s>", 15, 8),
            ("<s>Q00:<s>Q00:<s>Q00:", 15, 8)
        ]
    );
}

#[test]
fn random_sends_ids_on_request() {
    let mut workload = random(3, 16, 8, 0.5);
    if let Dataset::Random(random) = &mut workload.dataset {
        random.tokenize_prompt = true;
    }
    let prepared = Case::new(Profile::Current, Tokenizer::bytes()).prepare(1, &workload);
    assert_eq!(
        id_rows(&prepared),
        [
            (vec![81, 49, 53, 58, 97, 98, 99, 100, 101, 102, 103, 104, 105], 4),
            (vec![120; 16], 4),
            (vec![81, 48, 48, 58, 81, 48, 48, 58, 81, 48, 48, 58, 81], 5),
        ]
    );
    assert_eq!(next_draws(&prepared).1, 0.1862602113776709);
}

#[test]
fn random_ids_count_up_from_drawn_offsets() {
    let prepared = prepare(&random_ids(true), Profile::Current, 1, &Tokenizer::bytes(), None).unwrap();
    assert_eq!(
        id_rows(&prepared),
        [
            (vec![129, 130, 131, 132], 3),
            (vec![205, 206, 207, 208, 209, 210], 3),
            (vec![73, 74, 75], 2),
            (vec![240, 241, 242], 2),
        ]
    );
    assert_eq!(next_draws(&prepared), (0.13436424411240122, 0.66974603680348));
}

#[test]
fn random_ids_as_text_are_the_same_ids_decoded() {
    let prepared = prepare(&random_ids(false), Profile::Current, 1, &Tokenizer::bytes(), None).unwrap();
    assert_eq!(rows(&prepared)[2], ("IJK", 3, 2));
}

#[test]
fn an_output_length_of_zero_draws_nothing() {
    let prepared = Case::new(Profile::Current, Tokenizer::bytes()).prepare(1, &random(3, 6, 0, 0.5));
    let lengths: Vec<(u32, u32)> = prepared
        .prompts
        .iter()
        .map(|prompt| (prompt.prompt_tokens, prompt.output_tokens))
        .collect();
    assert_eq!(lengths, [(4, 0), (6, 0), (3, 0)]);
    assert_eq!(next_draws(&prepared).1, 0.9325573593386588);
}

#[test]
fn gaps_go_on_where_the_data_set_stopped_drawing() {
    for (ratio, count, rate, gaps) in [
        (
            1.0,
            5,
            4.0,
            vec![
                0.13490145931479636,
                0.31853131325332606,
                2.859533966077148e-05,
                0.09000318871347975,
                0.039677398798668474,
            ],
        ),
        (
            0.5,
            5,
            4.0,
            vec![
                0.46820591422344904,
                0.09395479959922719,
                0.18587242102198273,
                0.1465008661381309,
                0.06520396043543143,
            ],
        ),
        (
            0.0,
            3,
            10.0,
            vec![0.0360012754853919, 0.01587095951946739, 0.009688387165373347],
        ),
    ] {
        let prepared =
            Case::new(Profile::Current, Tokenizer::bytes()).prepare(1, &random(count, 16, 8, ratio));
        let mut numpy = prepared.rng.numpy;
        let drawn: Vec<f64> = gaps.iter().map(|_| numpy.exponential(1.0 / rate)).collect();
        assert_eq!(drawn, gaps);
    }
}

/// Source: docs/bench-serving.md T36: texts are tokenized in batches, which must not change the rows.
#[test]
fn rows_taken_in_blocks_are_those_taken_one_by_one() {
    // A third of the prompts is empty: `sharegpt` drops them and `random` skips them, so one batch is not
    // enough.
    let prompt = |at: u32| match at % 3 {
        0 => String::new(),
        _ => format!("Q{at:03}"),
    };
    let output = |at: u32| 2 + at % 5;
    let record = |at: u32| json!({"conversations": [{"value": prompt(at)}, {"value": "x".repeat(output(at) as usize)}]});
    let case = Case::new(Profile::Current, Tokenizer::bytes());
    std::fs::write(&case.file, Value::from_iter((0..300).map(record)).to_string()).unwrap();
    let mut order: Vec<u32> = (0..300).collect();
    rng::Python::new(1).shuffle(&mut order);
    order.retain(|at| at % 3 != 0);
    order.truncate(150);
    let owned = |prepared: &PreparedPrompts| -> Vec<(String, u32, u32)> {
        let rows = rows(prepared).into_iter();
        rows.map(|(text, input, output)| (text.to_owned(), input, output))
            .collect()
    };

    let one_by_one: Vec<_> = order.iter().map(|at| (prompt(*at), 4, output(*at))).collect();
    assert_eq!(owned(&case.prepare(1, &sharegpt(150))), one_by_one);

    let mut numpy = rng::Numpy::new(1);
    let mut drawn = || -> Vec<usize> { (0..150).map(|_| numpy.randint(1, 9) as usize).collect() };
    let (inputs, outputs) = (drawn(), drawn());
    let one_by_one: Vec<_> = order
        .iter()
        .zip(inputs.into_iter().zip(outputs))
        .map(|(at, (input, output))| {
            (
                prompt(*at).repeat(2)[..input].to_owned(),
                input as u32,
                output as u32,
            )
        })
        .collect();
    assert_eq!(owned(&case.prepare(1, &random(150, 8, 8, 0.0))), one_by_one);
}

#[test]
fn a_file_that_gives_fewer_rows_shortens_current_and_stops_classic() {
    let workload = random(20, 16, 8, 1.0);
    let current = Case::new(Profile::Current, Tokenizer::bytes());
    let prepared = current.prepare(1, &workload);
    assert_eq!(prepared.prompts.len(), 14);
    assert_eq!(
        prepared.input_tokens, 320,
        "the tool prints the sum over all drawn rows"
    );
    let classic = Case::new(Profile::Classic, Tokenizer::bytes());
    let error = prepare(
        &workload,
        Profile::Classic,
        1,
        &classic.tokenizer,
        Some(&classic.file),
    )
    .unwrap_err();
    assert!(
        matches!(
            error,
            DatasetError::TooFew {
                available: 14,
                requested: 20
            }
        ),
        "{error}"
    );
}

#[test]
fn the_hash_tells_prompts_apart_and_nothing_else() {
    let case = Case::new(Profile::Current, Tokenizer::bytes());
    let one = case.prepare(1, &sharegpt(6)).hash;
    assert_eq!(one, case.prepare(1, &sharegpt(6)).hash);
    assert_ne!(one, case.prepare(2, &sharegpt(6)).hash);
    let fixed = Sharegpt {
        output_len: Some(8),
        ..Sharegpt::default()
    };
    assert_ne!(one, case.prepare(1, &sharegpt_with(6, fixed)).hash);
}

#[test]
fn what_cannot_be_prepared_is_said_before_anything_is_read() {
    let tokenizer = Tokenizer::bytes();
    let error = prepare(&sharegpt(0), Profile::Current, 1, &tokenizer, None).unwrap_err();
    assert!(error.to_string().contains("write at least 1"), "{error}");
    let error = prepare(&sharegpt(1), Profile::Current, 1 << 32, &tokenizer, None).unwrap_err();
    assert!(error.to_string().contains("0 to 4294967295"), "{error}");
    let error = prepare(&sharegpt(1), Profile::Current, 1, &tokenizer, None).unwrap_err();
    assert!(matches!(error, DatasetError::Missing { .. }), "{error}");
}

#[test]
fn a_file_without_a_usable_row_is_an_error() {
    let case = Case::new(Profile::Current, Tokenizer::bytes());
    let strict = Sharegpt {
        context_len: Some(1),
        ..Sharegpt::default()
    };
    let strict = sharegpt_with(1, strict);
    let error = prepare(&strict, Profile::Current, 1, &case.tokenizer, Some(&case.file)).unwrap_err();
    assert!(
        matches!(
            error,
            DatasetError::Empty {
                dataset: DatasetName::Sharegpt
            }
        ),
        "{error}"
    );
}

#[test]
fn the_file_is_the_named_one_or_the_cached_one_or_an_error_that_says_how_to_get_it() {
    let home = tempfile::tempdir().unwrap();
    let caches = Caches {
        hf_home: Some(home.path().to_owned()),
        prompts: None,
    };
    let at = |path: &str| Workload {
        path: Some(path.to_owned()),
        ..Workload::new(DatasetName::Sharegpt)
    };
    let missing = locate(&Workload::new(DatasetName::Sharegpt), home.path(), &caches)
        .unwrap_err()
        .to_string();
    assert!(missing.contains("matrix fetch --dataset sharegpt"), "{missing}");

    let snapshot = home
        .path()
        .join("hub/datasets--anon8231489123--ShareGPT_Vicuna_unfiltered/snapshots/abc");
    std::fs::create_dir_all(&snapshot).unwrap();
    let cached = snapshot.join("ShareGPT_V3_unfiltered_cleaned_split.json");
    std::fs::write(&cached, "[]").unwrap();
    assert_eq!(
        locate(&Workload::new(DatasetName::Random), home.path(), &caches).unwrap(),
        Some(cached)
    );

    std::fs::write(home.path().join("mine.json"), "[]").unwrap();
    let mine = locate(&at("mine.json"), home.path(), &caches).unwrap();
    assert_eq!(mine, Some(home.path().join("mine.json")));
    assert!(locate(&at("absent.json"), home.path(), &caches).is_err());
    assert_eq!(
        locate(&Workload::new(DatasetName::RandomIds), home.path(), &caches).unwrap(),
        None
    );
}
