//! Makes the data that the shipped demonstration runs on: `cargo run --example make_demo_data [folder]`.
//!
//! Writes `conversations.json`, invented conversations in the ShareGPT format, and `tokenizer.json`, a byte-level BPE
//! trained on other text of the same kind, into `matrices/data` or the folder given. The same files come out every
//! time. All text is put together here, from the words and sentences below; none is taken from elsewhere.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use matrix::loadgen::dataset::rng::Python;
use serde_json::{Value, json};
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, Tokenizer, TokenizerBuilder, TokenizerImpl};

/// Conversations in the file.
const CONVERSATIONS: usize = 400;
/// Entries of the tokenizer's vocabulary, bytes and the special token included.
const VOCABULARY: usize = 3000;
/// Words of text the tokenizer is trained on.
const TRAINING_WORDS: usize = 120_000;

/// What the sentences speak of; words are kept between commas.
const THINGS: &str = "anchor, apron, atlas, balcony, barrel, basket, beacon, bell, bicycle, blanket, boat, bottle, bridge, \
    broom, bucket, button, cabinet, candle, canvas, carpet, ceiling, chain, chair, chimney, clock, coat, \
    compass, copper kettle, crate, curtain, desk, drawer, drum, engine, envelope, feather, fence, ferry, \
    filter, flute, folder, fountain, furnace, garden, gate, glove, greenhouse, hammer, harbour, hinge, \
    iron, jacket, kitchen, ladder, lamp, lantern, ledger, letter, library, lock, machine, map, market, \
    meadow, mirror, motor, needle, notebook, oven, paddle, page, paint, parcel, path, pencil, piano, \
    pillow, pipe, plank, pocket, pump, queue, quilt, radio, railing, recipe, ribbon, river, roof, rope, \
    sail, saw, schedule, screw, shelf, shovel, signal, spoon, spring, staircase, station, stove, table, \
    teapot, telescope, thread, timetable, tower, tractor, train, tunnel, umbrella, valley, valve, \
    violin, wagon, wall, well, wheel, whistle, window, workshop, yard";
const QUALITIES: &str = "ancient, ashen, bent, blue, brave, bright, brittle, broad, calm, careful, cheap, clean, clever, \
    cold, crooked, damp, dark, deep, dry, dusty, early, empty, even, faded, faint, famous, fast, flat, \
    fragile, fresh, gentle, golden, green, grey, heavy, hidden, hollow, honest, huge, idle, large, late, \
    light, little, local, long, loose, loud, modern, narrow, neat, new, noisy, old, orange, ordinary, \
    patient, plain, polished, quiet, rare, red, rough, round, rusty, sharp, shiny, short, silent, \
    simple, slow, smooth, soft, solid, square, steep, sticky, stubborn, sturdy, thick, thin, tidy, \
    tired, tiny, useful, warm, weathered, wet, white, wide, wild, wooden, worn, yellow, young";
const ACTS: &str = "adjust, arrange, borrow, build, carry, check, clean, close, collect, compare, copy, count, cover, \
    decorate, deliver, describe, draw, empty, explain, fasten, fetch, fill, finish, fix, fold, follow, \
    gather, grease, heat, improve, inspect, label, lend, lift, load, lower, measure, mend, move, name, \
    open, order, paint, pack, plan, polish, prepare, protect, pull, push, raise, record, remember, \
    remove, repair, replace, return, rinse, scrape, sell, shake, share, shorten, sketch, sort, store, \
    stretch, study, test, tighten, trim, turn, unpack, wash, watch, weigh, wrap";
const MANNERS: &str = "again, at once, before noon, by hand, carefully, cheerfully, early, every spring, for a while, from \
    memory, gently, in silence, in the evening, later, now and then, on purpose, once a week, properly, \
    quickly, quietly, slowly, so far, step by step, together, twice, under the stars, very often, with a \
    friend, with both hands, without help";
const PEOPLE: &str = "my neighbour, the baker, the captain, the carpenter, my cousin, the doctor, an engineer, the farmer, \
    my grandmother, the librarian, the mayor, the mechanic, a musician, the painter, the postman, a \
    sailor, the teacher, our guide, the tailor, the watchmaker, a student, the crew";
const SYLLABLES: &str = "an, bar, bel, bren, cor, dal, den, dor, el, fen, gar, hal, hol, il, kas, kel, lan, lor, mar, mel, \
    mir, nor, ol, os, pel, qui, ran, rin, ros, sel, sor, tal, tar, ten, tor, ul, van, ver, vik, wen, \
    yor, zan";
const ENDINGS: &str = "bridge, by, ford, ham, haven, mouth, port, stead, ton, wick";

/// Sentences of a question; every word in braces is filled in.
const QUESTIONS: &[&str] = &[
    "How do I {act} a {quality} {thing} {manner}?",
    "Can you explain why the {thing} in {town} is so {quality}?",
    "What is the best way to {act} the {thing} without touching the {thing}?",
    "Please write a short story about {person} and a {quality} {thing}.",
    "Which would you rather {act}: a {quality} {thing} or {number} {thing}s?",
    "Could you help me {act} {number} {thing}s before {person} comes back from {town}?",
    "Is it true that {person} can {act} a {thing} {manner}?",
    "List {number} things to check when a {thing} becomes {quality}.",
    "Summarise the notes below in {number} sentences.",
    "What happens if nobody {act}s the {thing} for {number} days?",
    "I want to travel from {town} to {town} with a {quality} {thing}; what should I pack?",
    "Rewrite this so that {person} understands it: the {quality} {thing} must be {quality}.",
];

/// Sentences of an answer or of notes.
const STATEMENTS: &[&str] = &[
    "The {thing} near {town} is {quality}, but the {thing} behind it is {quality} and {quality}.",
    "First {act} the {thing}, then {act} the {quality} {thing} {manner}.",
    "In {town}, {person} used to {act} every {thing} {manner}.",
    "It takes about {number} minutes to {act} a {thing}, and {number} more if it is {quality}.",
    "{Person} said that a {quality} {thing} should never stand next to a {thing}.",
    "If the {thing} feels {quality}, {act} it {manner}; otherwise leave it alone.",
    "That is why so many people in {town} {act} their {thing}s {manner}.",
    "Nobody expected the {thing} to be {quality}, least of all {person}.",
    "A {quality} {thing} costs {number} coins, while a {quality} one costs only {number}.",
    "You may also {act} the {thing} and keep the {quality} parts for later.",
    "Remember to {act} the {thing} before you {act} the {thing}.",
    "There were {number} {thing}s on the road to {town}, each as {quality} as the last.",
    "On the other hand, {person} would rather {act} a {quality} {thing} than wait.",
    "When the {thing} was finished, {person} and {person} walked {manner} to {town}.",
    "The reason is simple: a {thing} that is {quality} cannot be {quality} as well.",
    "Write down the number {number}.{number} and compare it with the {quality} {thing}.",
    "“Never {act} a {thing} in the rain,” as {person} liked to say.",
    "The café in {town} keeps a {quality} {thing} over the door — it has been there for {number} years.",
];

/// Whole texts of a few tokens, as people do send them.
const BRIEF: &[&str] = &[
    "Hi",
    "Yes",
    "No",
    "Go on",
    "Thanks",
    "Why?",
    "Okay.",
    "Continue",
    "Yes, please.",
    "Thank you!",
    "More detail.",
    "Try again",
    "And then?",
    "Not quite",
    "Good morning",
    "Explain it again.",
    "In one word?",
    "Stop",
    "Hello there",
    "What is next?",
];

/// Puts words together; the same seed gives the same words.
struct Writer {
    draws: Python,
}

impl Writer {
    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.draws.below(from.len() as u64) as usize]
    }

    /// One of the words of a list with commas.
    fn word<'a>(&mut self, from: &'a str) -> &'a str {
        self.pick(&from.split(", ").collect::<Vec<&str>>())
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.draws.below(one_in) == 0
    }

    /// The name of a place that does not exist.
    fn town(&mut self) -> String {
        let mut name = String::new();
        for _ in 0..self.draws.randint(1, 2) {
            name.push_str(self.word(SYLLABLES));
        }
        name.push_str(self.word(ENDINGS));
        capitalised(&name)
    }

    /// A sentence with its braces filled in.
    fn sentence(&mut self, templates: &[&str]) -> String {
        let mut rest = self.pick(templates);
        let mut sentence = String::new();
        while let Some((before, after)) = rest.split_once('{') {
            let (slot, behind) = after
                .split_once('}')
                .expect("every brace of a sentence is closed");
            sentence.push_str(before);
            let word = match slot {
                "thing" => self.word(THINGS).to_owned(),
                "quality" => self.word(QUALITIES).to_owned(),
                "act" => self.word(ACTS).to_owned(),
                "manner" => self.word(MANNERS).to_owned(),
                "person" => self.word(PEOPLE).to_owned(),
                "Person" => capitalised(self.word(PEOPLE)),
                "town" => self.town(),
                "number" => self.draws.randint(2, 240).to_string(),
                other => unreachable!("no sentence has a slot `{other}`"),
            };
            if takes_an(&word) && (sentence.ends_with(" a ") || sentence == "A ") {
                sentence.pop();
                sentence.push_str("n ");
            }
            sentence.push_str(&word);
            rest = behind;
        }
        sentence + rest
    }

    /// Paragraphs and lists of about so many words.
    fn text(&mut self, words: usize) -> String {
        if words < 6 {
            return self.pick(BRIEF).to_owned();
        }
        let mut text = String::new();
        let mut line = 0;
        while text.split_whitespace().count() < words {
            if line > 0 && self.chance(9) {
                text.push_str("\n\n");
                for item in 1..=self.draws.randint(2, 5) {
                    let _ = writeln!(text, "{item}. {}", self.sentence(STATEMENTS));
                }
            } else if line > 0 {
                text.push_str(if self.chance(5) { "\n\n" } else { " " });
            }
            text.push_str(&self.sentence(STATEMENTS));
            line += 1;
        }
        text
    }

    /// A question, with notes below it if it is to be long.
    fn question(&mut self, words: usize) -> String {
        if words < 6 {
            return self.pick(BRIEF).to_owned();
        }
        let mut question = self.sentence(QUESTIONS);
        if words > 20 {
            question.push_str("\n\n");
            question.push_str(&self.text(words - 14));
        }
        question
    }

    /// A length in words: short ones are as common as long ones ten times their length.
    fn length(&mut self, longest: f64) -> usize {
        (2.0 * (longest / 2.0).powf(self.draws.random())) as usize
    }
}

/// Whether the article before a word of the lists is `an`.
fn takes_an(word: &str) -> bool {
    word.starts_with(['a', 'e', 'i', 'o', 'u']) && !word.starts_with("us") || word.starts_with("honest")
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

/// The conversations, with some of every kind that a filter drops.
fn conversations() -> Vec<Value> {
    let mut writer = Writer {
        draws: Python::new(2026),
    };
    let turn = |from: &str, value: String| json!({"from": from, "value": value});
    (0..CONVERSATIONS)
        .map(|at| {
            // Words, not tokens: a word of this text takes about one token and a half.
            let (asked, answered) = match at % 100 {
                // Prompts of more than 1024 tokens.
                17 => (980, writer.length(200.0)),
                // Within that limit, and more than 2048 together with the answer.
                59 if at < 200 => (600, 1150),
                _ => (writer.length(420.0), writer.length(420.0)),
            };
            // Some begin with an empty turn, and some end after the first.
            let question = if at % 100 == 33 {
                String::new()
            } else {
                writer.question(asked)
            };
            let mut turns = vec![turn("human", question)];
            if at % 50 != 41 {
                turns.push(turn("gpt", writer.text(answered)));
                if writer.chance(6) {
                    turns.push(turn("human", writer.pick(BRIEF).to_owned()));
                    turns.push(turn("gpt", writer.text(12)));
                }
            }
            json!({"id": format!("demo-{at:03}"), "conversations": turns})
        })
        .collect()
}

/// A byte-level BPE, trained on text of the same kind as the conversations, and not on them.
fn tokenizer() -> Result<Tokenizer, Box<dyn Error + Send + Sync>> {
    let mut writer = Writer {
        draws: Python::new(7),
    };
    let mut training = Vec::new();
    let mut words = 0;
    while words < TRAINING_WORDS {
        let text = if writer.chance(2) {
            writer.question(80)
        } else {
            writer.text(80)
        };
        words += text.split_whitespace().count();
        training.push(text);
    }
    training.extend(BRIEF.iter().map(|text| (*text).to_owned()));

    let byte_level = ByteLevel::new(false, true, true);
    let mut untrained: TokenizerImpl<BPE, tokenizers::NormalizerWrapper, ByteLevel, ByteLevel, ByteLevel> =
        TokenizerBuilder::new()
            .with_model(BPE::default())
            .with_normalizer(None)
            .with_pre_tokenizer(Some(byte_level))
            .with_post_processor(Some(ByteLevel::new(true, false, true)))
            .with_decoder(Some(byte_level))
            .build()?;
    let mut trainer = BpeTrainer::builder()
        .show_progress(false)
        .vocab_size(VOCABULARY)
        .min_frequency(2)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .special_tokens(vec![AddedToken::from("<|end|>", true)])
        .build();
    untrained.train(&mut trainer, training.iter())?;
    untrained.to_string(false)?.parse()
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let folder = std::env::args_os()
        .nth(1)
        .map_or_else(|| PathBuf::from("matrices/data"), PathBuf::from);
    fs::create_dir_all(&folder)?;
    // A line each, so that a change of one shows as a change of one.
    let records: Vec<String> = conversations().iter().map(Value::to_string).collect();
    fs::write(
        folder.join("conversations.json"),
        format!("[\n{}\n]\n", records.join(",\n")),
    )?;
    fs::write(
        folder.join("tokenizer.json"),
        tokenizer()?.to_string(false)? + "\n",
    )?;
    Ok(())
}
