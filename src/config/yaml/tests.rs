use std::collections::BTreeMap;
use std::fmt::Write;
use std::num::NonZeroU32;

use proptest::prelude::*;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::*;
use crate::base::units::{HumanDuration, RequestRate};
use crate::config::forms::{ByEngine, Named, OneOrMany, OrderedMap};
use crate::config::template::Template;

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Detail {
    version: Option<String>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Arrival {
    Closed { concurrency: OneOrMany<NonZeroU32> },
    Open { rate: RequestRate },
    Burst,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sweep {
    name: Spanned<String>,
    #[serde(default)]
    engines: OneOrMany<Named<Detail>>,
    repeats: Option<u32>,
    duration: Option<HumanDuration>,
    arrival: Option<Arrival>,
    tp: Option<ByEngine<OneOrMany<u32>>>,
    #[serde(default)]
    args: OrderedMap<OneOrMany<Template>>,
    #[serde(default)]
    warm: bool,
    #[serde(default)]
    temperature: f64,
    #[serde(default)]
    scenarios: OrderedMap<Scenario>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    rate: u32,
    tokens: u32,
}

fn diagnostics<T: DeserializeOwned>(text: &str) -> String {
    let source = Source::new("m.yaml", text);
    let (_, diagnostics) = read::<T>(&source);
    assert!(!diagnostics.is_empty(), "nothing was found wrong");
    render(&diagnostics, &[source], false)
}

fn parse_valid<T: DeserializeOwned>(text: &str) -> T {
    let source = Source::new("m.yaml", text);
    let (value, diagnostics) = read::<T>(&source);
    assert!(
        diagnostics.is_empty(),
        "{}",
        render(&diagnostics, &[source], false)
    );
    value.expect("a file without mistakes has a value")
}

#[test]
fn an_unknown_key_gets_the_nearest_name_that_is_still_free() {
    let drawn = diagnostics::<Sweep>("name: a\nrepeats: 3\nduraton: 30s\n");
    insta::assert_snapshot!(drawn, @r#"
    error: unknown key `duraton`
     --> m.yaml:3:1
      |
    3 | duraton: 30s
      | ^^^^^^^ not a known key
      |
    help: did you mean
      |
    3 | duration: 30s
      |      +
    "#);
}

#[test]
fn an_unknown_key_far_from_all_lists_the_known_ones() {
    let drawn = diagnostics::<Scenario>("rate: 1\ntokens: 2\ncolour: red\n");
    insta::assert_snapshot!(drawn, @r#"
    error: unknown key `colour`
     --> m.yaml:3:1
      |
    3 | colour: red
      | ^^^^^^ not a known key
      |
      = help: known keys: `rate` and `tokens`
    "#);
}

#[test]
fn all_mistakes_come_in_one_go() {
    let drawn = diagnostics::<Sweep>(
        "name: a\nrepets: 4\nduration: 90\nwarm: yes\narrival: clsed\ntp: {vllm: [1, two], default: 8.0}\nscenarios:\n  chat: {rate: -1, tokens: 3}\n  code: {rate: 1}\nrepets: 5\n",
    );
    insta::assert_snapshot!(drawn, @r#"
    error: unknown key `repets`
     --> m.yaml:2:1
      |
    2 | repets: 4
      | ^^^^^^ not a known key
      |
    help: did you mean
      |
    2 | repeats: 4
      |     +

    error: `90` has no unit; write `90s` or `90ms`
     --> m.yaml:3:11
      |
    3 | duration: 90
      |           ^^ in `duration`

    error: found the text `yes` in `warm`, expected `true` or `false`
     --> m.yaml:4:7
      |
    4 | warm: yes
      |       ^^^ expected `true` or `false`
      |
    help: write `true`
      |
    4 - warm: yes
    4 + warm: true
      |

    error: unknown value `clsed` in `arrival`
     --> m.yaml:5:10
      |
    5 | arrival: clsed
      |          ^^^^^ not a known value
      |
      = note: known values: `closed`, `open` and `burst`
    help: did you mean
      |
    5 | arrival: closed
      |            +

    error: found the text `two` in `tp.vllm[1]`, expected a whole number, 0 or above
     --> m.yaml:6:16
      |
    6 | tp: {vllm: [1, two], default: 8.0}
      |                ^^^ expected a whole number, 0 or above

    error: found the number `8.0` in `tp.default`, expected a whole number, 0 or above
     --> m.yaml:6:31
      |
    6 | tp: {vllm: [1, two], default: 8.0}
      |                               ^^^ expected a whole number, 0 or above
      |
    help: write
      |
    6 - tp: {vllm: [1, two], default: 8.0}
    6 + tp: {vllm: [1, two], default: 8}
      |

    error: found the number `-1` in `scenarios.chat.rate`, expected a whole number from 0 to 4294967295
     --> m.yaml:8:16
      |
    8 |   chat: {rate: -1, tokens: 3}
      |                ^^ expected a whole number from 0 to 4294967295

    error: missing key `tokens` in `scenarios.code`
     --> m.yaml:9:3
      |
    9 |   code: {rate: 1}
      |   ^^^^ needs `tokens`

    error: the key `repets` is written twice
      --> m.yaml:10:1
       |
     2 | repets: 4
       | ------ first written here
    ...
    10 | repets: 5
       | ^^^^^^ written again
       |
       = help: keep one of them
    "#);
}

#[test]
fn a_key_written_twice_shows_both_places() {
    let drawn = diagnostics::<Sweep>("name: a\nrepeats: 3\nwarm: true\nrepeats: 4\n");
    insta::assert_snapshot!(drawn, @r#"
    error: the key `repeats` is written twice
     --> m.yaml:4:1
      |
    2 | repeats: 3
      | ------- first written here
    3 | warm: true
    4 | repeats: 4
      | ^^^^^^^ written again
      |
      = help: keep one of them
    "#);
}

#[test]
fn a_missing_key_is_reported_at_its_owner() {
    let drawn = diagnostics::<Sweep>("name: a\nscenarios:\n  chat:\n    rate: 1\n  code: {tokens: 2}\n");
    insta::assert_snapshot!(drawn, @r#"
    error: missing key `tokens` in `scenarios.chat`
     --> m.yaml:3:3
      |
    3 |   chat:
      |   ^^^^ needs `tokens`

    error: missing key `rate` in `scenarios.code`
     --> m.yaml:5:3
      |
    5 |   code: {tokens: 2}
      |   ^^^^ needs `rate`
    "#);
}

#[test]
fn a_missing_key_at_the_root_has_a_place() {
    let drawn = diagnostics::<Sweep>("engines: [sglang]\n");
    insta::assert_snapshot!(drawn, @r#"
    error: missing key `name`
     --> m.yaml:1:1
      |
    1 | engines: [sglang]
      | ^^^^^^^ needs `name`
    "#);
}

#[test]
fn a_missing_key_that_is_only_misspelt_or_wrong_is_no_second_mistake() {
    let drawn = diagnostics::<Sweep>(
        "name: a\nscenarios:\n  chat: {rate: 1, tokenz: 3}\n  code: {rate: many, tokens: 3}\n",
    );
    insta::assert_snapshot!(drawn, @r#"
    error: unknown key `tokenz` in `scenarios.chat`
     --> m.yaml:3:19
      |
    3 |   chat: {rate: 1, tokenz: 3}
      |                   ^^^^^^ not a known key
      |
    help: did you mean
      |
    3 -   chat: {rate: 1, tokenz: 3}
    3 +   chat: {rate: 1, tokens: 3}
      |

    error: found the text `many` in `scenarios.code.rate`, expected a whole number, 0 or above
     --> m.yaml:4:16
      |
    4 |   code: {rate: many, tokens: 3}
      |                ^^^^ expected a whole number, 0 or above
    "#);
}

#[test]
fn a_quoted_number_is_a_text() {
    let drawn = diagnostics::<Sweep>("name: a\nrepeats: \"8\"\ntemperature: '1.5'\n");
    insta::assert_snapshot!(drawn, @r#"
    error: found the quoted text `8` in `repeats`, expected a whole number, 0 or above
     --> m.yaml:2:10
      |
    2 | repeats: "8"
      |          ^^^ expected a whole number, 0 or above
      |
    help: a quoted text is not a number; write 8 without quotes
      |
    2 - repeats: "8"
    2 + repeats: 8
      |

    error: found the quoted text `1.5` in `temperature`, expected a number
     --> m.yaml:3:14
      |
    3 | temperature: '1.5'
      |              ^^^^^ expected a number
      |
    help: a quoted text is not a number; write 1.5 without quotes
      |
    3 - temperature: '1.5'
    3 + temperature: 1.5
      |
    "#);
}

#[test]
fn numbers_spelled_elsewhere_are_respelled() {
    let drawn = diagnostics::<Sweep>("name: a\nrepeats: 010\ntp: [1_000, 8.0, 0x10, 5000000000]\n");
    insta::assert_snapshot!(drawn, @r#"
    error: found the text `010` in `repeats`, expected a whole number, 0 or above
     --> m.yaml:2:10
      |
    2 | repeats: 010
      |          ^^^ expected a whole number, 0 or above
      |
    help: remove the leading 0, because some tools read such a number as octal
      |
    2 - repeats: 010
    2 + repeats: 10
      |

    error: found the text `1_000` in `tp[0]`, expected a whole number, 0 or above
     --> m.yaml:3:6
      |
    3 | tp: [1_000, 8.0, 0x10, 5000000000]
      |      ^^^^^ expected a whole number, 0 or above
      |
    help: write
      |
    3 - tp: [1_000, 8.0, 0x10, 5000000000]
    3 + tp: [1000, 8.0, 0x10, 5000000000]
      |

    error: found the number `8.0` in `tp[1]`, expected a whole number, 0 or above
     --> m.yaml:3:13
      |
    3 | tp: [1_000, 8.0, 0x10, 5000000000]
      |             ^^^ expected a whole number, 0 or above
      |
    help: write
      |
    3 - tp: [1_000, 8.0, 0x10, 5000000000]
    3 + tp: [1_000, 8, 0x10, 5000000000]
      |

    error: found the text `0x10` in `tp[2]`, expected a whole number, 0 or above
     --> m.yaml:3:18
      |
    3 | tp: [1_000, 8.0, 0x10, 5000000000]
      |                  ^^^^ expected a whole number, 0 or above
      |
    help: write
      |
    3 - tp: [1_000, 8.0, 0x10, 5000000000]
    3 + tp: [1_000, 8.0, 16, 5000000000]
      |

    error: found the number `5000000000` in `tp[3]`, expected a whole number from 0 to 4294967295
     --> m.yaml:3:24
      |
    3 | tp: [1_000, 8.0, 0x10, 5000000000]
      |                        ^^^^^^^^^^ expected a whole number from 0 to 4294967295
    "#);
}

#[test]
fn only_true_and_false_are_truth_values() {
    let drawn = diagnostics::<Sweep>("name: a\nwarm: Yes\n");
    insta::assert_snapshot!(drawn, @r#"
    error: found the text `Yes` in `warm`, expected `true` or `false`
     --> m.yaml:2:7
      |
    2 | warm: Yes
      |       ^^^ expected `true` or `false`
      |
    help: write `true`
      |
    2 - warm: Yes
    2 + warm: true
      |
    "#);
}

#[test]
fn a_custom_error_takes_the_place_of_its_node() {
    let drawn = diagnostics::<Sweep>("name: a\nduration: 90\n");
    insta::assert_snapshot!(drawn, @r#"
    error: `90` has no unit; write `90s` or `90ms`
     --> m.yaml:2:11
      |
    2 | duration: 90
      |           ^^ in `duration`
    "#);
}

#[test]
fn nothing_where_a_text_is_wanted() {
    let drawn = diagnostics::<Sweep>("name:\n");
    insta::assert_snapshot!(drawn, @r#"
    error: found nothing in `name`, expected a text
     --> m.yaml:1:5
      |
    1 | name:
      |     ^ expected a text
    "#);
}

#[test]
fn a_second_key_beside_a_name_is_a_slip_of_the_indent() {
    let drawn = diagnostics::<Sweep>("name: a\nengines:\n  - vllm:\n    version: v1\n");
    insta::assert_snapshot!(drawn, @r#"
    error: only one key is allowed in `engines[0]`, but there are two: `vllm` and `version`
     --> m.yaml:4:5
      |
    3 |   - vllm:
      |     ---- the first key
    4 |     version: v1
      |     ^^^^^^^ a second key
      |
      = help: indent the settings of `vllm` deeper than `vllm` itself
    "#);
}

#[test]
fn a_key_inside_a_named_entry_is_checked() {
    let drawn = diagnostics::<Sweep>("name: a\nengines: [sglang, {vllm: {verson: 1.10}}]\n");
    insta::assert_snapshot!(drawn, @r#"
    error: unknown key `verson` in `engines[1].vllm`
     --> m.yaml:2:27
      |
    2 | engines: [sglang, {vllm: {verson: 1.10}}]
      |                           ^^^^^^ not a known key
      |
    help: did you mean
      |
    2 | engines: [sglang, {vllm: {version: 1.10}}]
      |                               +
    "#);
}

#[test]
fn an_unknown_variant_gets_the_nearest_and_the_list() {
    let drawn = diagnostics::<Sweep>("name: a\narrival: clsed\n");
    insta::assert_snapshot!(drawn, @r#"
    error: unknown value `clsed` in `arrival`
     --> m.yaml:2:10
      |
    2 | arrival: clsed
      |          ^^^^^ not a known value
      |
      = note: known values: `closed`, `open` and `burst`
    help: did you mean
      |
    2 | arrival: closed
      |            +
    "#);
}

#[test]
fn a_variant_that_needs_keys_says_which() {
    let drawn = diagnostics::<Sweep>("name: a\narrival: closed\n");
    insta::assert_snapshot!(drawn, @r#"
    error: missing key `concurrency` in `arrival.closed`
     --> m.yaml:2:10
      |
    2 | arrival: closed
      |          ^^^^^^ needs `concurrency`
    "#);
}

#[test]
fn a_variant_without_value_takes_none() {
    let drawn = diagnostics::<Sweep>("name: a\narrival: {burst: 4}\n");
    insta::assert_snapshot!(drawn, @r#"
    error: `burst` takes no value; write `burst` alone
     --> m.yaml:2:18
      |
    2 | arrival: {burst: 4}
      |                  ^ in `arrival.burst`
    "#);
}

#[test]
fn only_one_variant_can_be_chosen() {
    let drawn = diagnostics::<Sweep>("name: a\narrival: {open: {rate: 1}, burst: }\n");
    insta::assert_snapshot!(drawn, @r#"
    error: only one key is allowed in `arrival`
     --> m.yaml:2:28
      |
    2 | arrival: {open: {rate: 1}, burst: }
      |           ----             ^^^^^ a second key
      |           |
      |           the first key
      |
      = help: keep one of `closed`, `open` and `burst`
    "#);
}

#[test]
fn a_value_inside_a_variant_has_its_path() {
    let drawn = diagnostics::<Sweep>("name: a\narrival:\n  closed: {concurrency: [1, 0]}\n");
    insta::assert_snapshot!(drawn, @r#"
    error: found the number `0` in `arrival.closed.concurrency[1]`, expected a whole number above 0
     --> m.yaml:3:29
      |
    3 |   closed: {concurrency: [1, 0]}
      |                             ^ expected a whole number above 0
    "#);
}

#[test]
fn an_aliased_mistake_shows_its_use_and_its_writing() {
    let drawn =
        diagnostics::<Sweep>("x-base: &base {rate: many, tokens: 3}\nname: a\nscenarios:\n  chat: *base\n");
    insta::assert_snapshot!(drawn, @r#"
    error: found the text `many` in `scenarios.chat.rate`, expected a whole number, 0 or above
     --> m.yaml:1:22
      |
    1 | x-base: &base {rate: many, tokens: 3}
      |                      ^^^^ expected a whole number, 0 or above
    ...
    4 |   chat: *base
      |         ----- used here
    "#);
}

#[test]
fn a_merge_that_is_no_map_is_refused() {
    let drawn = diagnostics::<Sweep>("name: a\nscenarios:\n  chat: {<<: 3, rate: 1, tokens: 2}\n");
    insta::assert_snapshot!(drawn, @r#"
    error: the merge key `<<` needs a map or a list of maps in `scenarios.chat`
     --> m.yaml:3:14
      |
    3 |   chat: {<<: 3, rate: 1, tokens: 2}
      |              ^ not a map
    "#);
}

#[test]
fn an_unknown_alias_gets_the_nearest_anchor() {
    let drawn = diagnostics::<Sweep>("x-base: &base 3\nname: a\nrepeats: *bass\n");
    insta::assert_snapshot!(drawn, @r#"
    error: the alias `*bass` refers to no anchor
     --> m.yaml:3:10
      |
    3 | repeats: *bass
      |          ^^^^^ there is no anchor `&bass` above this line
      |
    help: did you mean
      |
    3 - repeats: *bass
    3 + repeats: *base
      |
    "#);
}

#[test]
fn an_alias_inside_itself_is_refused() {
    let drawn = diagnostics::<Sweep>("name: &a [*a]\n");
    insta::assert_snapshot!(drawn, @r#"
    error: the alias `*a` is used inside the value that it refers to
     --> m.yaml:1:11
      |
    1 | name: &a [*a]
      |           ^^ endless recursion
    "#);
}

#[test]
fn a_tab_is_shown_where_it_stands() {
    let drawn = diagnostics::<Sweep>("name: a\nengines:\n\t- b\n");
    insta::assert_snapshot!(drawn, @r#"
    error: this line is indented with a tab
     --> m.yaml:3:1
      |
    3 |     - b
      | ^^^^ a tab
      |
      = help: indent with spaces
    "#);
}

#[test]
fn a_second_document_is_refused() {
    let drawn = diagnostics::<Sweep>("name: a\n---\nname: b\n");
    insta::assert_snapshot!(drawn, @r#"
    error: a second document starts here
     --> m.yaml:2:1
      |
    2 | ---
      | ^^^ second document
      |
      = help: a file may contain only one document: remove the `---`, or move the second document to another file
    "#);
}

#[test]
fn an_empty_file_is_a_mistake() {
    let drawn = diagnostics::<Sweep>("# nothing yet\n");
    insta::assert_snapshot!(drawn, @r#"
    error: the file is empty
     --> m.yaml:1:1
      |
    1 | # nothing yet
      | ^ nothing is written here
    "#);
}

#[test]
fn an_open_bracket_is_shown_where_it_opens() {
    let drawn = diagnostics::<Sweep>("name: a\nengines: [a, b\nrepeats: 3\n");
    insta::assert_snapshot!(drawn, @r#"
    error: the bracket `[` is never closed
     --> m.yaml:2:10
      |
    2 | engines: [a, b
      |          ^ opened here
    3 | repeats: 3
      |        - the bracket must be closed before this character
      |
      = help: add a `]` where the list or map ends
    "#);
}

#[test]
fn an_open_brace_at_the_end_is_shown_where_it_opens() {
    let drawn = diagnostics::<Sweep>("name: a\nscenarios: {a: {rate: 1, tokens: 3}\n");
    insta::assert_snapshot!(drawn, @r#"
    error: the bracket `{` is never closed
     --> m.yaml:2:12
      |
    2 | scenarios: {a: {rate: 1, tokens: 3}
      |            ^ opened here
      |
      = help: add a `}` where the list or map ends
    "#);
}

#[test]
fn brackets_that_do_not_match_show_both() {
    let drawn = diagnostics::<Sweep>("name: a\nengines: [a}\n");
    insta::assert_snapshot!(drawn, @r#"
    error: the bracket `[` is closed by `}`
     --> m.yaml:2:12
      |
    2 | engines: [a}
      |          - ^ expected `]`
      |          |
      |          opened here
    "#);
}

#[test]
fn an_open_quote_is_shown_where_it_opens() {
    let drawn = diagnostics::<Sweep>("name: \"a\nrepeats: 3\nwarm: true\n");
    insta::assert_snapshot!(drawn, @r#"
    error: a quoted text is never closed
     --> m.yaml:1:7
      |
    1 | name: "a
      |       ^ opened here
      |
      = help: close the text on the same line with the same quote
    "#);
}

#[test]
fn a_line_indented_too_deep_is_shown() {
    let drawn = diagnostics::<Sweep>("name: a\n  repeats: 3\n");
    insta::assert_snapshot!(drawn, @r#"
    error: this line is indented as if it belonged to the value above
     --> m.yaml:2:3
      |
    2 |   repeats: 3
      |   ^^^^^^^^^^ indented too deep
      |
      = help: indent this line like the other keys of the same map
    "#);
}

#[test]
fn a_line_that_fits_nowhere_is_shown() {
    let drawn = diagnostics::<Sweep>("name: a\nscenarios:\n    a: {rate: 1}\n  b: {rate: 2}\n");
    insta::assert_snapshot!(drawn, @r#"
    error: this line cannot continue the list or map above it
     --> m.yaml:4:3
      |
    4 |   b: {rate: 2}
      |   ^^^^^^^^^^^^ the indentation is wrong, or list items are mixed with keys
      |
      = help: indent this line exactly like the other lines of its list or map, and do not mix list items with keys
    "#);
}

#[test]
fn an_item_swallowed_by_the_one_above_is_shown() {
    let drawn = diagnostics::<Sweep>("name: a\nengines:\n  - sglang\n    - vllm\n");
    insta::assert_snapshot!(drawn, @r#"
    error: this line is read as part of the value above
     --> m.yaml:4:5
      |
    4 |     - vllm
      |     ^^^^^^ indented too deep for a new list item
      |
      = help: indent the `-` of this line like the `-` above; if this line continues the text above, put that whole text in quotes
    "#);
}

#[test]
fn a_colon_without_its_space_is_shown() {
    let drawn = diagnostics::<Sweep>("name: a\nrepeats:3\n");
    insta::assert_snapshot!(drawn, @r#"
    error: this key has no space after its colon
     --> m.yaml:2:1
      |
    2 | repeats:3
      | ^^^^^^^^^ read as one word
      |
    help: write
      |
    2 | repeats: 3
      |         +
    "#);
}

#[test]
fn a_second_colon_asks_for_quotes() {
    let drawn = diagnostics::<Sweep>("name: a: b\n");
    insta::assert_snapshot!(drawn, @r#"
    error: a second `: ` in one value
     --> m.yaml:1:8
      |
    1 | name: a: b
      |        ^ this colon is read as the end of a key
      |
      = help: put the value in quotes if the colon belongs to the value
    "#);
}

#[test]
fn a_template_in_braces_asks_for_quotes() {
    let drawn = diagnostics::<Sweep>("name: {model}\n");
    insta::assert_snapshot!(drawn, @r#"
    error: found a map in `name`, expected a text
     --> m.yaml:1:7
      |
    1 | name: {model}
      |       ^^^^^^^ expected a text
      |
      = help: put the value in quotes if the braces belong to the value
    "#);
}

#[test]
fn a_tag_is_refused() {
    let drawn = diagnostics::<Sweep>("name: !secret a\n");
    insta::assert_snapshot!(drawn, @r#"
    error: the tag `!secret` is not supported
     --> m.yaml:1:7
      |
    1 | name: !secret a
      |       ^^^^^^^ not supported
      |
      = help: remove the tag, or put the value in quotes if the `!` belongs to the value
    "#);
}

#[test]
fn a_list_where_keys_are_wanted_says_so() {
    let drawn = diagnostics::<Scenario>("- a\n");
    insta::assert_snapshot!(drawn, @r#"
    error: found a list, expected a map with the keys `rate` and `tokens`
     --> m.yaml:1:1
      |
    1 | - a
      | ^^^ expected a map
    "#);
}

#[test]
fn columns_count_characters_after_a_mark_and_across_crlf() {
    let drawn = diagnostics::<Sweep>("\u{feff}name: é\r\nduration: { größe: 3 }\r\nrepeats: ü\r\n");
    insta::assert_snapshot!(drawn, @r#"
    error: found a map in `duration`, expected a text
     --> m.yaml:2:11
      |
    2 | duration: { größe: 3 }
      |           ^^^^^^^^^^^^ expected a text

    error: found the text `ü` in `repeats`, expected a whole number, 0 or above
     --> m.yaml:3:10
      |
    3 | repeats: ü
      |          ^ expected a whole number, 0 or above
    "#);
}

#[test]
fn a_whole_file_arrives_typed_and_with_places() {
    let text = "name: chat\nengines: [sglang, {vllm: {version: 1.10}}, {trt: }]\nrepeats: 3\nduration: 1h 30m\n\
                arrival: {open: {rate: inf}}\ntp: {vllm: [1, 2], default: 8}\nwarm: true\ntemperature: .inf\n\
                args: {a: [1.10, no], b: 017, c: '8'}\n";
    let sweep: Sweep = parse_valid(text);
    let place = sweep.name.place.clone().unwrap();
    assert_eq!((&*place.file, &text[place.range]), ("m.yaml", "chat"));
    let names: Vec<&str> = sweep.engines.iter().map(|engine| engine.name.as_str()).collect();
    assert_eq!(names, ["sglang", "vllm", "trt"]);
    assert_eq!(sweep.engines[1].value.version.as_deref(), Some("1.10"));
    assert_eq!(sweep.engines[2].value, Detail::default());
    assert_eq!(sweep.duration, Some(HumanDuration::from_secs(5400)));
    assert_eq!(
        sweep.arrival,
        Some(Arrival::Open {
            rate: RequestRate::INFINITE
        })
    );
    let tp = sweep.tp.unwrap();
    assert_eq!(tp.get("vllm").unwrap().0, [1, 2]);
    assert_eq!(tp.get("sglang").unwrap().0, [8]);
    let keys: Vec<&str> = tp
        .entries()
        .map(|(key, _)| &text[key.place.clone().unwrap().range])
        .collect();
    assert_eq!(keys, ["vllm", "default"]);
    assert!(sweep.temperature.is_infinite());
    let args: Vec<&str> = sweep
        .args
        .iter()
        .flat_map(|(_, values)| values.iter().map(Template::as_str))
        .collect();
    assert_eq!(args, ["1.10", "no", "017", "8"]);
}

#[test]
fn texts_arrive_as_spelled() {
    let texts: Vec<String> =
        parse_valid("[1.10, no, 017, 0x1F, 1_000, \"a\\tb\", 'it''s', 2026-01-01, true]");
    assert_eq!(
        texts,
        [
            "1.10",
            "no",
            "017",
            "0x1F",
            "1_000",
            "a\tb",
            "it's",
            "2026-01-01",
            "true"
        ]
    );
}

#[test]
fn merged_keys_yield_to_written_ones_and_to_earlier_merges() {
    let text = "x-a: &a {rate: 1, tokens: 1}\nx-b: &b {rate: 2, tokens: 2}\nname: m\nscenarios:\n  one: *a\n  \
                two: {<<: *a, tokens: 9}\n  three: {rate: 7, <<: [*b, *a]}\n";
    let sweep: Sweep = parse_valid(text);
    let all: Vec<(u32, u32)> = sweep.scenarios.iter().map(|(_, s)| (s.rate, s.tokens)).collect();
    assert_eq!(all, [(1, 1), (1, 9), (7, 2)]);
}

#[test]
fn a_mistake_leaves_the_rest_of_the_file_readable() {
    let (sweep, diagnostics) = read::<Sweep>(&Source::new("m.yaml", "name: a\nrepeats: x\nwarm: true\n"));
    assert_eq!(diagnostics.len(), 1);
    assert!(sweep.unwrap().warm);
}

#[test]
fn an_aliased_mistake_is_told_once() {
    let text = "x-s: &s {rate: x, tokens: 3}\nname: a\nscenarios: {a: *s, b: *s, c: {<<: *s}}\n";
    assert_eq!(read::<Sweep>(&Source::new("m.yaml", text)).1.len(), 1);
}

#[test]
fn a_rule_about_a_whole_is_silent_while_a_part_is_left_out() {
    #[derive(Debug, Deserialize)]
    #[serde(try_from = "Vec<u32>")]
    struct Filled;
    impl TryFrom<Vec<u32>> for Filled {
        type Error = String;
        fn try_from(values: Vec<u32>) -> Result<Self, String> {
            if values.is_empty() {
                Err("it must not be empty".to_owned())
            } else {
                Ok(Self)
            }
        }
    }
    let count = |text: &str| {
        read::<BTreeMap<String, Filled>>(&Source::new("m.yaml", text))
            .1
            .len()
    };
    assert_eq!(count("a: [x]\n"), 1);
    assert_eq!(count("a: []\nb: [1]\nc: []\n"), 2);
}

#[test]
fn a_bomb_of_aliases_ends() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..12 {
        let before = vec![format!("*a{}", i - 1); 10].join(", ");
        writeln!(text, "a{i}: &a{i} [{before}]").unwrap();
    }
    let drawn = diagnostics::<serde_json::Value>(&text);
    assert!(
        drawn.contains("more than 1000000 values after aliases are expanded"),
        "{drawn}"
    );
}

#[test]
fn a_bomb_of_merges_ends() {
    let mut text = String::from("a0: &a0 {k: 1}\n");
    for i in 1..30 {
        let before = vec![format!("*a{}", i - 1); 4].join(", ");
        writeln!(text, "a{i}: &a{i} {{<<: [{before}]}}").unwrap();
    }
    assert!(diagnostics::<serde_json::Value>(&text).contains("after aliases are expanded"));
}

#[test]
fn depth_is_limited_with_and_without_aliases() {
    let brackets = format!("{}{}", "[".repeat(70), "]".repeat(70));
    assert!(diagnostics::<serde_json::Value>(&brackets).contains("nested deeper than 64 levels"));
    let mut chain = String::from("a0: &a0 [x]\n");
    for i in 1..5000 {
        writeln!(chain, "a{i}: &a{i} [*a{}]", i - 1).unwrap();
    }
    assert!(diagnostics::<serde_json::Value>(&chain).contains("nested deeper than 64 levels"));
}

#[test]
fn line_breaks_of_windows_leave_no_trace() {
    let drawn = diagnostics::<Sweep>("name: a\r\nrepeats: x\r\n");
    assert!(!drawn.contains('\r'), "{drawn:?}");
}

#[test]
fn colour_is_drawn_only_when_asked_for() {
    let source = Source::new("m.yaml", "name: [a]\n");
    let (_, diagnostics) = read::<Sweep>(&source);
    assert!(render(&diagnostics, std::slice::from_ref(&source), true).contains('\u{1b}'));
    assert!(!render(&diagnostics, &[source], false).contains('\u{1b}'));
}

#[test]
fn the_nearest_name_is_near() {
    assert_eq!(
        nearest_name("concurency", ["rate", "concurrency"]),
        Some("concurrency")
    );
    assert_eq!(nearest_name("colour", ["rate", "concurrency"]), None);
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Waits {
    #[serde(alias = "patience")]
    timeouts: u32,
}

#[test]
fn an_earlier_name_is_read_and_named() {
    let source = Source::new("m.yaml", "x-a: &a { patience: 3 }\n<<: *a\n");
    let reading = read_with_renames::<Waits>(&source);
    assert_eq!(reading.value, Some(Waits { timeouts: 3 }));
    assert_eq!(reading.diagnostics, []);
    let [renamed] = &reading.renamed[..] else {
        panic!("{:?}", reading.renamed)
    };
    assert_eq!(
        (renamed.old_name.as_str(), renamed.new_name),
        ("patience", "timeouts")
    );
    assert_eq!(&source.text[renamed.place.range.clone()], "patience");
}

#[test]
fn a_misspelt_earlier_name_leads_to_todays() {
    let drawn = diagnostics::<Waits>("pacience: 2\n");
    assert!(drawn.contains("+ timeouts: 2"), "{drawn}");
    let drawn = diagnostics::<Waits>("nothing: 2\n");
    assert!(drawn.contains("known keys: `timeouts`\n"), "{drawn}");
}

#[test]
fn both_names_of_one_key_are_refused() {
    let drawn = diagnostics::<Waits>("timeouts: 1\npatience: 2\n");
    assert!(
        drawn.contains("unknown key `patience`")
            && drawn.contains("`patience` is the old name of `timeouts`, and both are set; keep one of them"),
        "{drawn}"
    );
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in any::<String>()) {
        let source = Source::new("m.yaml", text);
        let (_, diagnostics) = read::<Sweep>(&source);
        render(&diagnostics, &[source], false);
    }

    #[test]
    fn no_near_yaml_makes_the_reader_panic(
        parts in proptest::collection::vec(
            proptest::sample::select(vec![
                "name", "engines", "repeats", "scenarios", "arrival", "tp", ": ", ":", "\n", "\n  ", "\r\n", "- ", "[", "]",
                "{", "}", ", ", "&a ", "*a", "<<", "\"", "'", "# ", "\t", "|", ">", "!x ", "é", "8", "\u{feff}", "---", "? ",
            ]),
            0..40,
        )
    ) {
        let source = Source::new("m.yaml", parts.concat());
        let (value, diagnostics) = read::<Sweep>(&source);
        prop_assert!(value.is_some() || !diagnostics.is_empty(), "nothing came out and nothing was said");
        for diagnostic in &diagnostics {
            let place = diagnostic.place.as_ref().expect("every mistake of the reader has a place");
            prop_assert!(source.text.get(place.range.clone()).is_some(), "{place:?} is no range of the text");
        }
        render(&diagnostics, &[source], false);
    }
}
