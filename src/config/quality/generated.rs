//! Generated tasks: the texts of their items, and the answers that are right. The simulated engine reads the same texts,
//! which is how it knows the answers.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Grader;

const ADJECTIVES: [&str; 20] = [
    "amber", "bright", "calm", "deep", "early", "fast", "green", "high", "iron", "jade", "kind", "light",
    "mild", "north", "open", "plain", "quiet", "red", "silver", "tall",
];
const NOUNS: [&str; 20] = [
    "anchor", "bridge", "castle", "dock", "engine", "forest", "garden", "harbour", "island", "jetty",
    "kiosk", "ladder", "market", "needle", "office", "palace", "quarry", "river", "station", "tower",
];
const CITIES: [&str; 20] = [
    "Athens", "Bergen", "Cairo", "Dublin", "Essen", "Florence", "Geneva", "Hanoi", "Istanbul", "Jakarta",
    "Kyoto", "Lisbon", "Madrid", "Nairobi", "Oslo", "Porto", "Quito", "Riga", "Seoul", "Tunis",
];
const NAMES: [&str; 20] = [
    "Anna Berg",
    "Bruno Costa",
    "Clara Dias",
    "David Evans",
    "Emma Fischer",
    "Felix Gruber",
    "Greta Holm",
    "Hugo Ivanov",
    "Irene Jansen",
    "Jonas Keller",
    "Karin Lopez",
    "Lukas Meyer",
    "Maria Novak",
    "Nils Olsen",
    "Olga Petrov",
    "Paul Quinn",
    "Rosa Silva",
    "Simon Torres",
    "Tina Ullman",
    "Viktor Weber",
];

const ARITHMETIC: &str = "What is ";
const ALONE: &str = "? Answer with the number alone.";
const COPY: &str = "Copy the text between the marks exactly, and write nothing else.\n<<<";
const COPY_END: &str = ">>>";
const RECALL: &str = "Remember these codes.\n";
const RECALL_QUESTION: &str = "What is the code of the ";
const RECORD: &str = "Write this record as a JSON object with the keys `name`, `city`, `age` (a number) and `member` (true or false), and write nothing else.\nRecord: ";
const TOOLS: &str = "Use a tool. ";

/// Tokens of a line with a code, about.
const TOKENS_PER_CODE: u32 = 14;
/// Tokens of a word to copy, about; every fifth is a number of five digits.
const TOKENS_PER_WORD: u32 = 2;

/// Longest request for a tool, in bytes.
const LONGEST_REQUEST: usize = 100;

/// A task whose items are generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum GeneratedTask {
    /// Sums and products of whole numbers.
    Arithmetic,
    /// A text that must be repeated.
    Copy,
    /// A record that must be written as JSON of a schema.
    Json,
    /// A code among many in a long prompt.
    Recall,
    /// A tool that must be called with arguments from the prompt.
    ToolCalls,
}

/// An item of a generated task.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GeneratedItem {
    pub(crate) prompt: String,
    /// Fields of the request body.
    pub(crate) fields: Map<String, Value>,
    /// The right answer: a text, a number, a JSON value, or a call with `name` and `arguments`.
    pub(crate) expected: Value,
}

/// What a model that solves an item answers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Solution {
    Text(String),
    /// The call of a tool: its name and its arguments.
    Call(String, Value),
}

impl GeneratedTask {
    pub(crate) const ALL: [Self; 5] = [
        Self::Arithmetic,
        Self::Copy,
        Self::Json,
        Self::Recall,
        Self::ToolCalls,
    ];

    /// Its name in a matrix.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Arithmetic => "arithmetic",
            Self::Copy => "copy",
            Self::Json => "json",
            Self::Recall => "recall",
            Self::ToolCalls => "tool-calls",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|task| task.name() == name)
    }

    pub(crate) const fn grader(self) -> Grader {
        match self {
            Self::Arithmetic | Self::Recall => Grader::Numeric,
            Self::Copy => Grader::Exact,
            Self::Json => Grader::Json,
            Self::ToolCalls => Grader::ToolCall,
        }
    }

    /// Length of prompts in tokens, where it can be chosen.
    pub(crate) const fn default_input_len(self) -> Option<u32> {
        match self {
            Self::Copy => Some(60),
            Self::Recall => Some(1000),
            Self::Arithmetic | Self::Json | Self::ToolCalls => None,
        }
    }

    /// Largest length of an answer in tokens.
    pub(crate) const fn max_tokens(self, input_len: u32) -> u32 {
        match self {
            Self::Arithmetic | Self::Recall => 32,
            Self::Json | Self::ToolCalls => 128,
            Self::Copy => 2 * input_len + 32,
        }
    }

    /// The item with this number. The same seed, number and length give the same item.
    pub(crate) fn item(self, seed: u64, number: u32, input_len: u32) -> GeneratedItem {
        let mut draws = Draws::new(seed, self, number);
        match self {
            Self::Arithmetic => arithmetic(&mut draws),
            Self::Copy => copy(&mut draws, input_len),
            Self::Json => record(&mut draws),
            Self::Recall => recall(&mut draws, input_len),
            Self::ToolCalls => tool_call(&mut draws),
        }
    }
}

fn text_item(prompt: String, expected: Value) -> GeneratedItem {
    GeneratedItem {
        prompt,
        fields: Map::new(),
        expected,
    }
}

fn arithmetic(draws: &mut Draws) -> GeneratedItem {
    let (a, b, c) = (
        draws.between(11, 99),
        draws.between(11, 99),
        draws.between(100, 9_999),
    );
    let (sign, result) = match draws.below(2) {
        0 => ('+', a * b + c),
        _ => ('-', a * b - c),
    };
    text_item(format!("{ARITHMETIC}{a} * {b} {sign} {c}{ALONE}"), json!(result))
}

fn copy(draws: &mut Draws, input_len: u32) -> GeneratedItem {
    let words = (input_len / TOKENS_PER_WORD).max(1);
    let words: Vec<String> = (0..words)
        .map(|nth| match nth % 5 {
            4 => draws.between(10_000, 99_999).to_string(),
            _ => match draws.below(2) {
                0 => draws.pick(&ADJECTIVES).to_owned(),
                _ => draws.pick(&NOUNS).to_owned(),
            },
        })
        .collect();
    let text = words.join(" ");
    text_item(format!("{COPY}{text}{COPY_END}\n"), json!(text))
}

fn recall(draws: &mut Draws, input_len: u32) -> GeneratedItem {
    let count = u64::from((input_len / TOKENS_PER_CODE).max(1));
    // Every place has one code: places are numbered from a drawn one, and named again with a number once all have one.
    let places = (ADJECTIVES.len() * NOUNS.len() * CITIES.len()) as u64;
    let first = draws.below(places);
    let place = |nth: u64| {
        let number = ((first + nth) % places) as usize;
        let (number, adjective) = (number / ADJECTIVES.len(), ADJECTIVES[number % ADJECTIVES.len()]);
        let (number, noun) = (number / NOUNS.len(), NOUNS[number % NOUNS.len()]);
        let city = CITIES[number % CITIES.len()];
        match nth / places {
            0 => format!("{adjective} {noun} in {city}"),
            turn => format!("{adjective} {noun} {} in {city}", turn + 1),
        }
    };
    let asked = draws.below(count);
    let mut prompt = RECALL.to_owned();
    let mut expected = 0;
    for nth in 0..count {
        let code = draws.between(10_000, 99_999);
        if nth == asked {
            expected = code;
        }
        prompt.push_str(&format!("The code of the {} is {code}.\n", place(nth)));
    }
    prompt.push_str(&format!("{RECALL_QUESTION}{}{ALONE}", place(asked)));
    text_item(prompt, json!(expected))
}

fn record(draws: &mut Draws) -> GeneratedItem {
    let (name, city) = (draws.pick(&NAMES), draws.pick(&CITIES));
    let (age, is_member) = (draws.between(18, 90), draws.below(2) == 0);
    let member = if is_member { "a member" } else { "not a member" };
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string"}, "city": {"type": "string"}, "age": {"type": "integer"}, "member": {"type": "boolean"},
        },
        "required": ["name", "city", "age", "member"],
        "additionalProperties": false,
    });
    let format = json!({
        "type": "json_schema", "json_schema": {"name": "record", "schema": schema, "strict": true},
    });
    GeneratedItem {
        prompt: format!("{RECORD}{name}; {city}; {age} years; {member}"),
        fields: Map::from_iter([("response_format".to_owned(), format)]),
        expected: json!({"name": name, "city": city, "age": age, "member": is_member}),
    }
}

fn tool_call(draws: &mut Draws) -> GeneratedItem {
    let city = draws.pick(&CITIES);
    let (request, name, arguments) = match draws.below(3) {
        0 => {
            let (people, hour, minute) = (draws.between(2, 12), draws.between(17, 21), draws.between(10, 59));
            (
                format!("Book a table for {people} people at {hour}:{minute} in {city}."),
                "book_table",
                json!({"people": people, "time": format!("{hour}:{minute}"), "city": city}),
            )
        }
        1 => {
            let day = draws.between(1, 365);
            (
                format!("Get the usual weather of day {day} of the year in {city}."),
                "get_weather",
                json!({"day": day, "city": city}),
            )
        }
        _ => {
            let (name, amount) = (draws.pick(&NAMES), draws.between(10, 990));
            (
                format!("Pay {amount} euros to {name} in {city}."),
                "send_payment",
                json!({"amount": amount, "to": name, "city": city}),
            )
        }
    };
    GeneratedItem {
        prompt: format!("{TOOLS}{request}"),
        fields: Map::from_iter([
            ("tools".to_owned(), offered_tools()),
            ("tool_choice".to_owned(), json!("required")),
        ]),
        expected: json!({"name": name, "arguments": arguments}),
    }
}

fn offered_tools() -> Value {
    let tool = |name: &str, about: &str, properties: Value| {
        let required: Vec<String> = properties
            .as_object()
            .map(|properties| properties.keys().cloned().collect())
            .unwrap_or_default();
        let parameters = json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        });
        json!({"type": "function", "function": {"name": name, "description": about, "parameters": parameters}})
    };
    let (text, number) = (json!({"type": "string"}), json!({"type": "integer"}));
    let time = json!({"type": "string", "description": "hours and minutes, such as 18:00"});
    json!([
        tool(
            "book_table",
            "Books a table in a restaurant.",
            json!({"people": number, "time": time, "city": text}),
        ),
        tool(
            "get_weather",
            "Returns the usual weather of a day of the year.",
            json!({"day": number, "city": text}),
        ),
        tool(
            "send_payment",
            "Sends an amount in euros to a person.",
            json!({"amount": number, "to": text, "city": text}),
        ),
    ])
}

/// The right answer to the item that a prompt ends with; `None` if it ends with none.
pub(crate) fn solve(prompt: &str) -> Option<Solution> {
    if !ends_with_item(prompt) {
        return None;
    }
    if let Some((_, rest)) = prompt.rsplit_once(COPY) {
        let text = rest.split_once(COPY_END)?.0;
        return Some(Solution::Text(text.to_owned()));
    }
    if let Some((_, rest)) = prompt.rsplit_once(RECORD) {
        return solve_record(rest);
    }
    if let Some((_, rest)) = prompt.rsplit_once(TOOLS) {
        return solve_call(rest.trim());
    }
    if let Some((before, rest)) = prompt.rsplit_once(RECALL_QUESTION) {
        let place = rest.split_once(ALONE)?.0;
        let (_, rest) = before.split_once(&format!("The code of the {place} is "))?;
        return Some(Solution::Text(rest.split_once('.')?.0.to_owned()));
    }
    let (_, rest) = prompt.rsplit_once(ARITHMETIC)?;
    let words: Vec<&str> = rest.split_once(ALONE)?.0.split(' ').collect();
    let number = |nth: usize| words.get(nth)?.parse::<i64>().ok();
    let product = number(0)?.checked_mul(number(2)?)?;
    let result = match *words.get(3)? {
        "+" => product.checked_add(number(4)?)?,
        _ => product.checked_sub(number(4)?)?,
    };
    Some(Solution::Text(result.to_string()))
}

/// Whether the end of a prompt may be that of an item. Most prompts are no items, and long.
fn ends_with_item(prompt: &str) -> bool {
    let prompt = prompt.trim_end();
    let ends = [ALONE, COPY_END, " member"];
    let from = prompt.len().saturating_sub(LONGEST_REQUEST);
    let tail = prompt.as_bytes().get(from..).unwrap_or_default();
    ends.iter().any(|end| prompt.ends_with(end))
        || tail.windows(TOOLS.len()).any(|part| part == TOOLS.as_bytes())
}

fn solve_record(text: &str) -> Option<Solution> {
    let mut parts = text.lines().next()?.trim().split("; ");
    let (name, city, age, member) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let age: i64 = age.strip_suffix(" years")?.parse().ok()?;
    let value = json!({"name": name, "city": city, "age": age, "member": member == "a member"});
    Some(Solution::Text(value.to_string()))
}

fn solve_call(request: &str) -> Option<Solution> {
    let (request, city) = request.strip_suffix('.')?.rsplit_once(" in ")?;
    let (name, arguments) = if let Some(rest) = request.strip_prefix("Book a table for ") {
        let (people, time) = rest.split_once(" people at ")?;
        let people: i64 = people.parse().ok()?;
        (
            "book_table",
            json!({"people": people, "time": time, "city": city}),
        )
    } else if let Some(rest) = request.strip_prefix("Get the usual weather of day ") {
        let day: i64 = rest.strip_suffix(" of the year")?.parse().ok()?;
        ("get_weather", json!({"day": day, "city": city}))
    } else {
        let (amount, to) = request.strip_prefix("Pay ")?.split_once(" euros to ")?;
        let amount: i64 = amount.parse().ok()?;
        ("send_payment", json!({"amount": amount, "to": to, "city": city}))
    };
    Some(Solution::Call(name.to_owned(), arguments))
}

/// Seeded draws of one item (SplitMix64, <https://prng.di.unimi.it/splitmix64.c>).
struct Draws(u64);

impl Draws {
    fn new(seed: u64, task: GeneratedTask, number: u32) -> Self {
        let mut draws = Self(seed ^ ((task as u64 + 1) << 40));
        // Items with neighbouring numbers must not be alike.
        draws.0 = draws.next() ^ u64::from(number);
        draws.0 = draws.next();
        draws
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let bits = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, below: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(below)) >> 64) as u64
    }

    fn between(&mut self, least: i64, most: i64) -> i64 {
        least + self.below((most - least + 1).unsigned_abs()) as i64
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_long_prompt_has_as_many_codes_as_its_length_says_each_of_another_place() {
        let codes = |input_len: u32| {
            let prompt = GeneratedTask::Recall.item(1, 0, input_len).prompt;
            let places: Vec<String> = prompt
                .lines()
                .filter_map(|line| {
                    Some(
                        line.strip_prefix("The code of the ")?
                            .split_once(" is ")?
                            .0
                            .to_owned(),
                    )
                })
                .collect();
            let different: BTreeSet<&String> = places.iter().collect();
            assert_eq!(different.len(), places.len());
            (places.len(), solve(&prompt).is_some())
        };
        assert_eq!(codes(4 * TOKENS_PER_CODE), (4, true));
        assert_eq!(codes(20_000 * TOKENS_PER_CODE), (20_000, true));
    }

    #[test]
    fn every_item_is_solved_from_its_text_as_expected() {
        for task in GeneratedTask::ALL {
            let mut prompts = BTreeSet::new();
            for number in 0..500 {
                for input_len in [1, 60, 1000] {
                    let item = task.item(7, number, input_len);
                    assert_eq!(item, task.item(7, number, input_len));
                    let solved = solve(&item.prompt).unwrap_or_else(|| panic!("{}", item.prompt));
                    let solved = match (solved, task.grader()) {
                        (Solution::Call(name, arguments), _) => json!({"name": name, "arguments": arguments}),
                        (Solution::Text(text), Grader::Exact) => json!(text),
                        (Solution::Text(text), _) => serde_json::from_str(&text).unwrap(),
                    };
                    assert_eq!(solved, item.expected, "{}", item.prompt);
                    prompts.insert(item.prompt);
                }
            }
            assert!(prompts.len() >= 490, "{task:?}: {}", prompts.len());
        }
        assert_eq!(solve("What is the weather like?"), None);
        assert_eq!(solve(""), None);
    }

    #[test]
    fn another_seed_gives_other_items() {
        for task in GeneratedTask::ALL {
            let first: Vec<_> = (0..20).map(|number| task.item(1, number, 100)).collect();
            let second: Vec<_> = (0..20).map(|number| task.item(2, number, 100)).collect();
            assert_ne!(first, second);
        }
    }
}
