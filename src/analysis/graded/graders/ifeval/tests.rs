use serde_json::json;

use super::*;

fn instructions(name: &str, arguments: Value) -> Result<Instructions, RowError> {
    Instructions::read(&json!({"instruction_id_list": [name], "kwargs": [arguments]}))
}

fn follows(name: &str, arguments: Value, text: &str) -> bool {
    let instructions = instructions(name, arguments).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    instructions.broken_by(text, Reading::Strict).is_empty()
}

#[test]
fn each_instruction_is_checked_as_by_lm_eval() {
    let at_least = |key: &str, count: u64| json!({"relation": "at least", key: count});
    // Recorded from lm-eval 0.4.13.
    for (name, arguments, right, wrong) in [
        ("punctuation:no_comma", json!({}), "a; b", "a, b"),
        ("change_case:english_capital", json!({}), "A 1!", "A b"),
        ("change_case:english_lowercase", json!({}), "a 1!", "a B"),
        (
            "change_case:capital_word_frequency",
            json!({"capital_relation": "less than", "capital_frequency": 2}),
            "an API",
            "DON'T",
        ),
        (
            "length_constraints:number_words",
            at_least("num_words", 3),
            "a b-c",
            "a b",
        ),
        (
            "length_constraints:number_paragraphs",
            json!({"num_paragraphs": 2}),
            "a\n***\nb ***",
            "a *** *** b",
        ),
        (
            "length_constraints:nth_paragraph_first_word",
            json!({"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "President"}),
            "a\n\n\"president's b",
            "president\n\nb",
        ),
        (
            "detectable_content:number_placeholders",
            json!({"num_placeholders": 2}),
            "[a] [b]",
            "[a\n] [b]",
        ),
        (
            "detectable_content:postscript",
            json!({"postscript_marker": "P.P.S"}),
            "a p. p.s b",
            "a P.S. b",
        ),
        (
            "detectable_format:number_bullet_lists",
            json!({"num_bullets": 2}),
            "* a\n - b",
            "* a\n** b",
        ),
        (
            "detectable_format:constrained_response",
            json!({}),
            "so: My answer is no.",
            "my answer is no.",
        ),
        (
            "detectable_format:number_highlighted_sections",
            json!({"num_highlights": 2}),
            "*a* and **b**",
            "*a* and **",
        ),
        (
            "detectable_format:multiple_sections",
            json!({"section_spliter": "Day", "num_sections": 2}),
            "Day 1 a Day2 b",
            "Day 1 a day 2 b",
        ),
        (
            "detectable_format:json_format",
            json!({}),
            "```json\n{\"a\": [NaN, \"\\\"NaN\"]}\n```",
            "{'a': 1}",
        ),
        ("detectable_format:title", json!({}), "<<a>> b", "<< >> b"),
        ("combination:two_responses", json!({}), "a******b", "a******a"),
        (
            "combination:repeat_prompt",
            json!({"prompt_to_repeat": " Say it. "}),
            "SAY IT. ok",
            "ok. Say it.",
        ),
        (
            "startend:end_checker",
            json!({"end_phrase": "The end."}),
            "\"a the END.\" ",
            "the end. a",
        ),
        ("startend:quotation", json!({}), " \"a\" ", "\""),
        (
            "keywords:existence",
            json!({"keywords": ["one", "two"]}),
            "two ONEs",
            "one",
        ),
        (
            "keywords:frequency",
            json!({"keyword": "one", "relation": "less than", "frequency": 2}),
            "one",
            "one none",
        ),
        (
            "keywords:forbidden_words",
            json!({"forbidden_words": ["one"]}),
            "none one_",
            "(One)",
        ),
        (
            "keywords:letter_frequency",
            json!({"letter": "A", "let_relation": "at least", "let_frequency": 2}),
            "aA",
            "a",
        ),
    ] {
        assert!(follows(name, arguments.clone(), right), "{name}: {right:?}");
        assert!(!follows(name, arguments, wrong), "{name}: {wrong:?}");
    }
}

#[test]
fn a_loose_reading_forgives_first_and_last_lines_and_asterisks() {
    let row = json!({
        "instruction_id_list": ["punctuation:no_comma", "startend:quotation"],
        "kwargs": [{}, {}],
    });
    let instructions = Instructions::read(&row).ok().unwrap();
    let text = "Sure, here it is:\n*\"a\"*";
    assert_eq!(
        instructions.broken_by(text, Reading::Strict),
        ["punctuation:no_comma", "startend:quotation"]
    );
    assert_eq!(instructions.broken_by(text, Reading::Loose), [""; 0]);
    // Nothing follows no instruction.
    assert_eq!(
        instructions.broken_by(" \n", Reading::Loose),
        ["punctuation:no_comma", "startend:quotation"]
    );
}

#[test]
fn what_cannot_be_checked_is_told_from_what_cannot_be_read() {
    for (name, arguments) in [
        ("language:response_language", json!({"language": "de"})),
        (
            "length_constraints:number_sentences",
            json!({"relation": "at least", "num_sentences": 3}),
        ),
        (
            "keywords:letter_frequency",
            json!({"letter": "#", "let_relation": "at least", "let_frequency": 4}),
        ),
        (
            "detectable_format:number_bullet_lists",
            json!({"num_bullets": null}),
        ),
        ("keywords:existence", json!({"keywords": []})),
    ] {
        let error = instructions(name, arguments).err();
        assert!(
            matches!(error, Some(RowError::Ungradable(_))),
            "{name}: {error:?}"
        );
    }
    for (name, arguments) in [
        ("keywords:key_sentences", json!({})),
        (
            "length_constraints:number_words",
            json!({"relation": "at most", "num_words": 3}),
        ),
        (
            "detectable_format:number_bullet_lists",
            json!({"num_bullets": "3"}),
        ),
        ("keywords:existence", json!({"keywords": "a"})),
    ] {
        let error = instructions(name, arguments).err();
        assert!(matches!(error, Some(RowError::Malformed(_))), "{name}: {error:?}");
    }
}
