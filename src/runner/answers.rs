//! Analyses answers after the load, off the timed path: one-token answers, loops, canned answers, echoes and
//! token counts.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use crate::base::threads;
use crate::loadgen::dataset::tokenizer::{CleanUp, Tokenizer};
use crate::loadgen::dataset::words::WordEncoder;
use crate::loadgen::dataset::{Content, Prompt};
use crate::results::record::request::{Chunk, ChunkKind, Request};
use crate::results::record::spilled::SpilledText;

/// Minimum number of tokens, events or characters for statistics about repetition.
const MIN_MEMBERS: usize = 8;

/// Differences of at most this many tokens between the server's and the data set's count of a prompt are
/// ignored.
const CLOSE_TOKENS: u32 = 8;

/// Characters at the start of a prompt that are skipped before the piece that is searched for in its answer,
/// because a unique prefix may replace them.
const ECHO_SKIP_CHARS: usize = 64;

/// The same in tokens, for a prompt of token ids.
const ECHO_SKIP_IDS: usize = 8;

/// Length of the piece in characters: longer than what two texts share by accident.
const ECHO_CHARS: usize = 32;

/// The piece must occur within this many characters at the start of the answer.
const ECHO_SEARCH_CHARS: usize = 256;

/// A fast hasher: answers have millions of members, and protection against chosen hashes is not needed.
#[derive(Clone, Copy, Default)]
struct FastHasher(u64);

impl FastHasher {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x51_7c_c1_b7_27_22_0a_95);
    }
}

impl Hasher for FastHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.mix(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.mix(u64::from_le_bytes(last) ^ (rest.len() as u64) << 56);
    }

    fn write_u32(&mut self, word: u32) {
        self.mix(word.into());
    }

    fn write_u8(&mut self, word: u8) {
        self.mix(word.into());
    }

    fn finish(&self) -> u64 {
        // The upper bits are mixed best, and hash tables use the lower ones.
        self.0.rotate_left(26)
    }
}

/// How often the most frequent member of a sequence occurs, and the number of members.
#[derive(Default)]
struct MemberCounts {
    max_count: usize,
    total: usize,
}

impl MemberCounts {
    fn from_members<T: Eq + Hash>(members: impl Iterator<Item = T>) -> Self {
        let mut counts: HashMap<T, usize, BuildHasherDefault<FastHasher>> = HashMap::default();
        let mut total = 0;
        for member in members {
            *counts.entry(member).or_default() += 1;
            total += 1;
        }
        let max = counts.into_values().max().unwrap_or(0);
        Self {
            max_count: max,
            total,
        }
    }

    /// Counts the characters of a text, almost all of which are ASCII.
    fn from_characters(text: &str) -> Self {
        let mut ascii = [0; 128];
        text.bytes()
            .filter(u8::is_ascii)
            .for_each(|byte| ascii[usize::from(byte)] += 1);
        let max = ascii.into_iter().max().unwrap_or(0);
        let total = ascii.into_iter().sum();
        match total == text.len() {
            true => Self {
                max_count: max,
                total,
            },
            false => {
                let others = Self::from_members(text.chars().filter(|character| !character.is_ascii()));
                Self {
                    max_count: max.max(others.max_count),
                    total: total + others.total,
                }
            }
        }
    }

    /// Share of the most frequent member; `None` for short sequences.
    fn max_share(&self) -> Option<f64> {
        (self.total >= MIN_MEMBERS).then(|| self.max_count as f64 / self.total as f64)
    }
}

/// Lengths of loops that are searched for, in tokens or events.
const PERIODS: std::ops::RangeInclusive<usize> = 2..=8;

/// One in this many members of a loop may differ from the member one period earlier.
const LOOP_TOLERANCE: usize = 10;

/// A shorter answer may equal another one by accident.
const CANNED_TOKENS: u32 = 6;

/// Number of first events that may depend on the prompt in a canned answer, and that honest answers may
/// share.
const OPENING_EVENTS: usize = 8;

/// Number of first events that are compared if the prompts have nothing in common.
const LONG_OPENING_EVENTS: usize = 32;

/// Number of characters at the beginning and at the end of prompts that are compared, to detect a common task
/// or form of question.
const TASK_CHARS: usize = 8;

/// Minimum length, in bytes, of a text that counts as equal to a longer one that begins with it: it was only
/// cut off earlier.
const LONG_TEXT_BYTES: usize = 64;

/// Number of characters of answers that are compared.
const CANNED_CHARACTERS: usize = 1024;

/// Share of answers with the same beginning from which it is not an accident.
const COMMON_SHARE: f64 = 0.9;

/// Whether almost all members of a sequence equal the member one period earlier, for one of the [`PERIODS`].
fn is_periodic<T: Eq>(members: &[T]) -> bool {
    let is_repeated = |period: usize| {
        let max_strays = (members.len() - period) / LOOP_TOLERANCE;
        let pairs = members.iter().zip(&members[period..]);
        // For most texts this stops after a few members.
        pairs
            .filter(|(before, after)| before != after)
            .nth(max_strays)
            .is_none()
    };
    // A loop must have two full repetitions.
    let mut periods = PERIODS.filter(|period| 3 * period <= members.len());
    members.len() >= MIN_MEMBERS && periods.any(is_repeated)
}

/// Whether an answer is almost entirely a loop of a few tokens or events.
fn is_loop(ids: &[u32], pieces: Option<&[&str]>) -> bool {
    let pieces = pieces.into_iter().flatten();
    let pieces: Vec<&str> = pieces.copied().filter(|piece| !piece.is_empty()).collect();
    is_periodic(ids) || is_periodic(&pieces)
}

/// Largest share of one token, event or character in an answer. Events and characters are counted too,
/// because the tokenizer may split a run of one token into other tokens (`!!!!` is a token of its own).
fn uniformity(ids: &[u32], pieces: Option<&[&str]>, text: &str) -> Option<f64> {
    let pieces = pieces.map(|pieces| pieces.iter().filter(|piece| !piece.is_empty()));
    let share = [
        MemberCounts::from_members(ids.iter()).max_share(),
        pieces.and_then(|pieces| MemberCounts::from_members(pieces).max_share()),
        MemberCounts::from_characters(text).max_share(),
    ]
    .into_iter()
    .flatten()
    .fold(None, |most: Option<f64>, share| {
        Some(most.unwrap_or(0.0).max(share))
    });
    share.map(|share| (share * 1000.0).round() / 1000.0)
}

/// Counts prompt tokens where the server's count differs from the data set's: a text that was cut to a number
/// of tokens may be split into a few more or fewer.
pub(super) fn count_prompts(requests: &mut [Request], prompts: &[Prompt], tokenizer: &Tokenizer) {
    for request in requests {
        let reported = request.usage.and_then(|usage| usage.prompt);
        let is_apart =
            reported.is_some_and(|reported| reported.abs_diff(request.prompt_tokens) > CLOSE_TOKENS);
        if !is_apart || request.round.is_some() {
            continue;
        }
        let prompt = usize::try_from(request.index)
            .ok()
            .and_then(|row| prompts.get(row));
        let counted = match prompt.map(|prompt| &prompt.content) {
            Some(Content::Text(text)) => tokenizer.count(text, false).ok(),
            Some(Content::Ids(ids)) => Some(ids.len()),
            Some(Content::Messages(_) | Content::Images { .. }) | None => None,
        };
        request.counted_prompt = counted.and_then(|count| u32::try_from(count).ok());
    }
}

/// Counts the tokens and the repetition of answers and of their reasoning, on all cores. An answer without
/// text, as from a server without a tokenizer, gets no count.
pub(super) fn count_outputs(requests: &mut [Request], tokenizer: &Tokenizer) {
    for_each_request(requests, || WordEncoder::new(tokenizer), count_output);
}

/// Calls `work` for every request on all cores. Each core has its own `means` and holds one text in memory at
/// a time.
pub(super) fn for_each_request<M>(
    requests: &mut [Request],
    means: impl Fn() -> M + Sync,
    work: impl Fn(&mut Request, &mut M) + Sync,
) {
    let count = requests.len();
    let remaining = Mutex::new(requests.iter_mut());
    let all = || {
        let mut means = means();
        loop {
            let next = remaining.lock().unwrap_or_else(PoisonError::into_inner).next();
            match next {
                Some(request) => work(request, &mut means),
                None => return,
            }
        }
    };
    threads::on_all_cores(count, all);
}

fn count_output(request: &mut Request, encoder: &mut WordEncoder<'_>) {
    let Some(text) = request.text.as_ref().map(SpilledText::read) else {
        return;
    };
    let calls = request.tool_text.as_deref();
    if text.is_empty() && calls.is_none() && !request.chunks.is_empty() {
        return;
    }
    let Ok(ids) = encoder.encode(&text) else {
        return;
    };
    let mut count = |text: &str| Some(encoder.encode(text).ok()?.len());
    let pieces = chunk_texts(request, &text);
    let uniform = uniformity(&ids, pieces.as_deref(), &text);
    let is_loop = is_loop(&ids, pieces.as_deref());
    let is_blank = |piece: &&&str| !piece.is_empty() && piece.chars().all(is_blank);
    let blank_events = pieces.iter().flatten().take_while(is_blank).count();
    let counted_first = pieces
        .as_deref()
        .and_then(|pieces| first_tokens(request, pieces, &mut count));
    let reasoning = pieces
        .and_then(|pieces| reasoning_text(request, &pieces))
        .and_then(|text| count(&text));
    let tokens = calls.map_or(Some(0), count).map(|called| ids.len() + called);
    drop(text);
    request.blank_events = u32::try_from(blank_events).unwrap_or(u32::MAX);
    request.counted_first = counted_first;
    request.uniform = uniform;
    request.is_loop = is_loop;
    request.counted_reasoning = reasoning.and_then(|tokens| u32::try_from(tokens).ok());
    request.counted_tokens = tokens.and_then(|tokens| u32::try_from(tokens).ok());
}

/// Counts the tokens of the text that arrived at the first moment, if the answer has more tokens than events.
fn first_tokens(
    request: &Request,
    pieces: &[&str],
    count: impl FnOnce(&str) -> Option<usize>,
) -> Option<u32> {
    let events = request.chunks.moments().first;
    let has_more = request
        .visible_tokens()
        .is_some_and(|tokens| tokens as usize > request.chunks.len());
    let text = pieces.get(..events).filter(|_| has_more)?.concat();
    u32::try_from(count(&text)?).ok()
}

/// Whether a character is invisible.
fn is_blank(letter: char) -> bool {
    letter.is_whitespace() || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
}

/// Marks answers that begin with their prompt: the engine was told to echo it, or does not compute anything.
pub(super) fn find_echoes(requests: &mut [Request], prompts: &[Prompt], tokenizer: &Tokenizer) {
    for request in requests.iter_mut().filter(|request| request.round.is_none()) {
        let prompt = usize::try_from(request.index)
            .ok()
            .and_then(|row| prompts.get(row));
        let (Some(prompt), Some(answer)) = (prompt, &request.text) else {
            continue;
        };
        let piece = match &prompt.content {
            Content::Text(text) => prompt_piece(text, ECHO_SKIP_CHARS),
            Content::Ids(ids) => {
                let begin = ids.iter().skip(ECHO_SKIP_IDS).take(ECHO_CHARS);
                let begin: Vec<u32> = begin.copied().collect();
                let text = tokenizer.decode(&begin, CleanUp::AsConfigured).ok();
                text.and_then(|text| prompt_piece(&text, 0))
            }
            Content::Messages(messages) => {
                let mut texts = messages
                    .iter()
                    .rev()
                    .filter_map(|message| message["content"].as_str());
                texts.next().and_then(|text| prompt_piece(text, ECHO_SKIP_CHARS))
            }
            Content::Images { .. } => None,
        };
        request.echoes_prompt = piece
            .is_some_and(|piece| contains_near_start(&answer.read_prefix(4 * ECHO_SEARCH_CHARS), &piece));
    }
}

/// A digest that distinguishes prompts.
fn prompt_digest(content: &Content) -> u64 {
    let mut hasher = DefaultHasher::new();
    match content {
        Content::Text(text) => text.hash(&mut hasher),
        Content::Ids(ids) => ids.hash(&mut hasher),
        Content::Messages(messages) => messages
            .iter()
            .for_each(|message| message.to_string().hash(&mut hasher)),
        Content::Images { text, images } => {
            text.hash(&mut hasher);
            images.hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// Bytes of an answer's first events, which may depend on the prompt (a number, for example) even if the rest
/// is canned; 0 for a short answer.
fn opening_bytes(request: &Request) -> usize {
    let visible = request
        .chunks
        .iter()
        .filter(|chunk| chunk.kind != ChunkKind::Tool);
    let bytes = visible
        .take(OPENING_EVENTS)
        .map(|chunk| chunk.bytes as usize)
        .sum();
    if request.chunks.len() >= 3 * OPENING_EVENTS {
        bytes
    } else {
        0
    }
}

/// Marks answers that equal the answer to another prompt, except for the first events. One of the two may end
/// earlier.
pub(super) fn find_canned(requests: &mut [Request], prompts: &[Prompt]) {
    let mut answers: Vec<(String, u64, usize)> = Vec::new();
    for (place, request) in requests.iter().enumerate() {
        let row = usize::try_from(request.index).unwrap_or(usize::MAX);
        let is_told = request
            .counted_tokens
            .is_some_and(|tokens| tokens >= CANNED_TOKENS);
        if let (Some(text), Some(prompt)) = (&request.text, prompts.get(row))
            && is_told
            && request.round.is_none()
        {
            // Long answers may lie on disk; comparing their beginning is enough.
            let opening = opening_bytes(request);
            let text = text.read_prefix(opening + 4 * CANNED_CHARACTERS);
            let text = text.get(opening..).unwrap_or_default();
            let text: String = text.chars().take(CANNED_CHARACTERS).collect();
            if text.len() >= MIN_MEMBERS {
                answers.push((text, prompt_digest(&prompt.content), place));
            }
        }
    }
    // After sorting, a text is directly followed by the texts that begin with it.
    answers.sort_unstable();
    let is_alike = |one: &str, other: &str| {
        other.starts_with(one) && (one.len() == other.len() || one.len() >= LONG_TEXT_BYTES)
    };
    for alike in answers.chunk_by(|(one, ..), (other, ..)| is_alike(one, other)) {
        let prompts: HashSet<u64> = alike.iter().map(|(_, prompt, _)| *prompt).collect();
        for (.., place) in alike.iter().filter(|_| prompts.len() > 1) {
            requests[*place].is_canned = true;
        }
    }
}

/// Whether texts have neither beginnings nor ends in common, so that no two of them ask the same.
fn have_no_common_ends(texts: &[&str]) -> bool {
    let is_common = |end_of: fn(&str) -> String| {
        let mut counts: HashMap<String, usize> = HashMap::new();
        for text in texts {
            *counts.entry(end_of(text)).or_default() += 1;
        }
        let most = counts.into_values().max().unwrap_or(0);
        10 * most > texts.len()
    };
    let begin = |text: &str| text.trim().chars().take(TASK_CHARS).collect();
    let end = |text: &str| text.trim().chars().rev().take(TASK_CHARS).collect();
    texts.len() >= MIN_MEMBERS && !is_common(begin) && !is_common(end)
}

/// Number of first events to compare in answers to these prompts. It is small for messages, which may hold
/// instructions that make answers begin alike.
fn opening_events(prompts: &[Prompt], tokenizer: &Tokenizer) -> usize {
    let text = |prompt: &Prompt| match &prompt.content {
        Content::Text(text) if prompt.extras.is_none() => Some(Arc::clone(text)),
        Content::Ids(ids) => {
            let ends = [
                &ids[..ids.len().min(TASK_CHARS)],
                &ids[ids.len().saturating_sub(TASK_CHARS)..],
            ];
            tokenizer
                .decode(&ends.concat(), CleanUp::AsConfigured)
                .ok()
                .map(Arc::new)
        }
        Content::Text(_) | Content::Messages(_) | Content::Images { .. } => None,
    };
    let texts: Option<Vec<Arc<String>>> = prompts.iter().map(text).collect();
    let is_unlike = texts.is_some_and(|texts| {
        let texts: Vec<&str> = texts.iter().map(|text| text.as_str()).collect();
        have_no_common_ends(&texts)
    });
    if is_unlike {
        LONG_OPENING_EVENTS
    } else {
        OPENING_EVENTS
    }
}

/// Marks answers whose first events almost all answers share, with the number of these events.
pub(super) fn find_common_beginning(requests: &mut [Request], prompts: &[Prompt], tokenizer: &Tokenizer) {
    for events in 1..=opening_events(prompts, tokenizer) {
        let beginnings: Vec<Option<String>> = requests
            .iter()
            .map(|request| first_events_text(request, events))
            .collect();
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for beginning in beginnings.iter().flatten() {
            *counts.entry(beginning).or_default() += 1;
        }
        let all: usize = counts.values().sum();
        let common = counts.into_iter().max_by_key(|(_, count)| *count);
        let Some((common, _)) =
            common.filter(|(_, count)| all >= MIN_MEMBERS && *count as f64 >= COMMON_SHARE * all as f64)
        else {
            return;
        };
        for (request, beginning) in requests.iter_mut().zip(&beginnings) {
            if beginning.as_deref() == Some(common) {
                request.common_events = u32::try_from(events).unwrap_or(u32::MAX);
            }
        }
    }
}

/// The text of the first events of an answer; `None` if it has fewer.
fn first_events_text(request: &Request, events: usize) -> Option<String> {
    let text = request.text.as_ref().filter(|_| request.is_completed())?;
    let calls = request.tool_text.as_deref();
    let is_known = |chunk: &Chunk| chunk.bytes > 0 && (chunk.kind != ChunkKind::Tool || calls.is_some());
    let (mut count, mut shown, mut called) = (0, 0, 0);
    for chunk in request.chunks.iter().filter(is_known).take(events) {
        count += 1;
        let bytes = usize::try_from(chunk.bytes).ok()?;
        match chunk.kind {
            ChunkKind::Tool => called += bytes,
            _ => shown += bytes,
        }
    }
    let calls = calls.unwrap_or_default().get(..called)?;
    (count == events).then(|| text.read_prefix(shown).into_owned() + calls)
}

/// The piece of a prompt after its first `begin` characters; `None` if the prompt is too short.
fn prompt_piece(text: &str, begin: usize) -> Option<String> {
    let piece: String = text.chars().skip(begin).take(ECHO_CHARS).collect();
    (piece.chars().count() == ECHO_CHARS).then_some(piece)
}

/// Whether the piece of the prompt occurs near the beginning of the answer; a chat template may precede it.
fn contains_near_start(answer: &str, piece: &str) -> bool {
    let begin: String = answer.chars().take(ECHO_SEARCH_CHARS).collect();
    begin.contains(piece)
}

/// The text of the reasoning; `None` without reasoning.
fn reasoning_text(request: &Request, pieces: &[&str]) -> Option<String> {
    if !request.chunks.has_reasoning() {
        return None;
    }
    let chunks = request.chunks.iter().zip(pieces);
    let text: String = chunks
        .filter(|(chunk, _)| chunk.kind.is_reasoning())
        .map(|(_, piece)| *piece)
        .collect();
    (!text.is_empty()).then_some(text)
}

/// The state of a conversation after a round.
#[derive(Clone, Copy)]
struct ConversationHistory {
    /// Index of the conversation's last request.
    index: u32,
    /// Tokens of all messages and answers so far; `None` if one of them has no known count.
    tokens: Option<usize>,
    /// Tokens of these that a chat template may leave out.
    omittable: usize,
}

/// Counts the prompts of rounds: all earlier messages and answers, and the new message. The chat template is
/// not included.
pub(super) fn count_rounds(requests: &mut [Request], prompts: &[Prompt], tokenizer: &Tokenizer) {
    let turns = prompts.iter().flat_map(|prompt| {
        let turns = prompt.extras.as_ref().and_then(|extras| extras.turns.as_deref());
        let later = turns
            .unwrap_or_default()
            .iter()
            .map(move |turn| (prompt, Some(turn)));
        std::iter::once((prompt, None)).chain(later)
    });
    let mut places = requests.iter_mut();
    let mut before: Option<ConversationHistory> = None;
    for (index, (prompt, turn)) in turns.enumerate() {
        let Some(request) = places.as_slice().first() else {
            return;
        };
        if usize::try_from(request.index) != Ok(index) {
            before = None;
            continue;
        }
        let Some(request) = places.next() else {
            return;
        };
        if request.round.is_none() {
            continue;
        }
        let history = match turn {
            None => Some(ConversationHistory {
                index: request.index,
                tokens: first_turn(prompt, tokenizer),
                omittable: 0,
            }),
            Some(turn) => before
                .filter(|before| before.index + 1 == request.index)
                .map(|before| ConversationHistory {
                    index: request.index,
                    tokens: before
                        .tokens
                        .zip(message_tokens(turn, tokenizer))
                        .map(|(all, next)| all + next),
                    ..before
                }),
        };
        if let Some(history) = history {
            let count = |tokens| u32::try_from(tokens).unwrap_or(u32::MAX);
            request.counted_prompt = history.tokens.map(count);
            request.omittable_prompt = count(history.omittable);
        }
        if request.usage.is_some_and(|usage| usage.prompt.is_some()) {
            request.prompt_tokens = request.prompt_sent();
        }
        before = history.map(|history| with_answer(history, request, tokenizer));
    }
}

/// Tokens of the first turn of a conversation; `None` if it holds more than text, or the request holds more
/// than messages.
fn first_turn(prompt: &Prompt, tokenizer: &Tokenizer) -> Option<usize> {
    const MORE: [&str; 3] = ["tools", "functions", "documents"];
    let body = prompt.extras.as_ref().map(|extras| &extras.body);
    if body.is_some_and(|body| MORE.iter().any(|key| body.contains_key(*key))) {
        return None;
    }
    match &prompt.content {
        Content::Text(text) => tokenizer.count(text, false).ok(),
        Content::Messages(messages) => message_tokens(messages, tokenizer),
        Content::Ids(_) | Content::Images { .. } => None,
    }
}

/// Tokens of the text of messages; `None` if they hold more than text.
fn message_tokens(messages: &[serde_json::Value], tokenizer: &Tokenizer) -> Option<usize> {
    let count = |message: &serde_json::Value| {
        let is_call = message.get("tool_calls").is_some_and(|calls| !calls.is_null());
        let text = message["content"].as_str().filter(|_| !is_call)?;
        tokenizer.count(text, false).ok()
    };
    messages.iter().map(count).sum()
}

/// Adds the answer of the last round as the next round repeats it.
fn with_answer(
    history: ConversationHistory,
    request: &Request,
    tokenizer: &Tokenizer,
) -> ConversationHistory {
    let Some(text) = request.text.as_ref().filter(|_| request.is_completed()) else {
        return history;
    };
    let text = text.read();
    let count = |text: &str| tokenizer.count(text, false).ok();
    // Tool calls are included in the count of the text, but are not repeated.
    let counted = request.counted_tokens.filter(|_| request.tool_text.is_none());
    let all = counted.map(|tokens| tokens as usize).or_else(|| count(&text));
    // Chat templates drop reasoning and trim white space.
    let answer = text
        .rsplit_once("</think>")
        .map_or(&*text, |(_, answer)| answer)
        .trim();
    let rest = match answer.len() == text.len() {
        true => all,
        false => count(answer),
    };
    let dropped = all.zip(rest).map_or(0, |(all, rest)| all.saturating_sub(rest));
    let reasoning = match request.counted_reasoning {
        Some(tokens) => tokens as usize,
        None if request.chunks.has_reasoning() => all.unwrap_or(0),
        None => 0,
    };
    ConversationHistory {
        tokens: history.tokens.zip(all).map(|(before, all)| before + all),
        omittable: history.omittable + dropped.max(reasoning),
        ..history
    }
}

/// Tokens of each chunk's text alone; `None` if the text was not kept.
pub(super) fn count_chunks(request: &Request, encoder: &mut WordEncoder<'_>) -> Option<Vec<u32>> {
    let text = request.text.as_ref()?.read();
    let counts = chunk_texts(request, &text)?;
    let counts = counts
        .iter()
        .map(|piece| u32::try_from(encoder.encode(piece).ok()?.len()).ok());
    counts.collect()
}

/// The text of each chunk; empty for a piece of a tool call, which the text does not contain.
pub(super) fn chunk_texts<'t>(request: &Request, text: &'t str) -> Option<Vec<&'t str>> {
    let mut rest = text;
    let chunks = request.chunks.iter();
    chunks
        .map(|chunk| {
            if chunk.kind == ChunkKind::Tool {
                return Some("");
            }
            let (piece, after) = rest.split_at_checked(usize::try_from(chunk.bytes).ok()?)?;
            rest = after;
            Some(piece)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_token_is_seen_however_its_text_splits() {
        assert_eq!(
            uniformity(&[7, 8], None, "!!!!!!!!!!!!"),
            Some(1.0),
            "as characters"
        );
        let pieces = ["the end"; 9];
        let text = pieces.concat();
        assert_eq!(
            uniformity(&[1, 2, 3], Some(&pieces), &text),
            Some(1.0),
            "as events"
        );
        assert_eq!(uniformity(&[4; 10], None, "abcdefghijkl"), Some(1.0), "as tokens");
        let ids: Vec<u32> = (0..20).collect();
        let text = "the quick brown fox jumps over the lazy dog";
        assert!(uniformity(&ids, None, text) < Some(0.25));
        assert_eq!(uniformity(&[1, 1], None, "aa"), None, "too short to say");
        assert_eq!(uniformity(&[1], None, "ééééaaab"), Some(0.5), "beyond ASCII");
    }

    #[test]
    fn a_loop_of_a_few_tokens_is_seen_and_one_that_begins_late_is_not() {
        let looping: Vec<u32> = (0..48).map(|index| index % 3).collect();
        assert!(is_loop(&looping, None));
        let late: Vec<u32> = (0..24)
            .map(|index| 100 + index)
            .chain((0..24).map(|index| index % 3))
            .collect();
        assert!(!is_loop(&late, None));
        let text: Vec<u32> = (0..48).collect();
        assert!(!is_loop(&text, None));
        let pieces = [" a river", " and", " a stone"].repeat(12);
        assert!(is_loop(&[1, 2, 3], Some(&pieces)), "as events");
    }

    #[test]
    fn the_same_answer_to_different_prompts_is_canned() {
        let canned = |prompts: [&str; 3], answers: [&str; 3]| {
            let prompts = prompts.map(|text| Prompt {
                content: Content::Text(text.to_owned().into()),
                prompt_tokens: 3,
                output_tokens: 20,
                extras: None,
            });
            let mut requests: Vec<Request> = (0..)
                .zip(answers)
                .map(|(index, answer)| Request {
                    index,
                    counted_tokens: u32::try_from(answer.len()).ok(),
                    ..request(Some(answer), &[])
                })
                .collect();
            find_canned(&mut requests, &prompts);
            let canned: Vec<bool> = requests.iter().map(|request| request.is_canned).collect();
            canned
        };
        let (same, other) = ("a long answer of many words", "another answer of many words");
        assert_eq!(canned(["a", "b", "c"], [same, other, same]), [true, false, true]);
        assert_eq!(
            canned(["a", "b", "a"], [same, other, same]),
            [false; 3],
            "to one prompt"
        );
        assert_eq!(
            canned(["a", "b", "c"], ["yes", other, "yes"]),
            [false; 3],
            "short ones"
        );
        // Every text that several prompts received counts, not only the most frequent one.
        let (one, two) = ("a fixed text of many words", "another fixed text of many words");
        assert_eq!(canned(["a", "b", "c"], [one, one, two]), [true, true, false]);
    }

    #[test]
    fn an_answer_that_depends_on_its_prompt_in_the_first_events_alone_is_canned() {
        let rest = " and a text of many words that is always the same";
        let mut requests: Vec<Request> = ["Request 1:", "Request 25:"]
            .into_iter()
            .zip(0..)
            .map(|(first, index)| {
                let mut events = vec![("a", u32::try_from(first.len()).unwrap())];
                events.extend([("a", 0); 7]);
                events.extend([("a", 3); 17]);
                Request {
                    index,
                    counted_tokens: Some(30),
                    ..request(Some(&format!("{first}{rest}")), &events)
                }
            })
            .collect();
        let prompts = ["a", "b"].map(|text| Prompt {
            content: Content::Text(text.to_owned().into()),
            prompt_tokens: 3,
            output_tokens: 20,
            extras: None,
        });
        find_canned(&mut requests, &prompts);
        assert!(requests.iter().all(|request| request.is_canned));
    }

    #[test]
    fn an_answer_that_begins_with_its_prompt_is_an_echo() {
        let prompt = "once upon a time there was a benchmark that measured nothing at all, and it was the fastest one of all times";
        let is_echo = |prompt: &str, answer: &str| {
            let piece = prompt_piece(prompt, ECHO_SKIP_CHARS);
            piece.is_some_and(|prompt_piece| contains_near_start(answer, &prompt_piece))
        };
        assert!(is_echo(prompt, prompt));
        assert!(is_echo(prompt, &format!("<|user|>{prompt}<|assistant|>")));
        assert!(
            is_echo(prompt, &prompt.replace("once upon a time", "zqxwvuts")),
            "behind a beginning of its own"
        );
        assert!(!is_echo(prompt, "there was a benchmark that measured nothing"));
        assert!(
            !is_echo(prompt, &format!("{}{prompt}", "word ".repeat(80))),
            "a quotation"
        );
        assert!(!is_echo("short", "short"));
    }

    fn request(text: Option<&str>, chunks: &[(&str, u32)]) -> Request {
        let chunks: Vec<_> = chunks
            .iter()
            .map(|(kind, bytes)| serde_json::json!([0, kind, null, bytes]))
            .collect();
        serde_json::from_value(serde_json::json!({
            "index": 0, "prompt_tokens": 1, "asked_tokens": 2, "due_ns": 0, "end_ns": 0,
            "chunks": chunks, "text": text,
        }))
        .unwrap()
    }

    #[test]
    fn a_first_event_that_nearly_all_answers_share_is_common() {
        let common = |firsts: &[&str]| {
            let answer = |first: &&str| {
                let text = format!("{first} and more");
                request(
                    Some(&text),
                    &[("t", 9), ("a", u32::try_from(first.len()).unwrap()), ("a", 9)],
                )
            };
            let mut requests: Vec<Request> = firsts.iter().map(answer).collect();
            find_common_beginning(&mut requests, &[], &Tokenizer::bytes());
            requests
                .iter()
                .filter(|request| request.common_events > 0)
                .count()
        };
        assert_eq!(common(&["Sure"; 8]), 8);
        assert_eq!(common(&["Sure"; 7]), 0, "few");
        let mut mixed = ["Sure"; 20];
        mixed[3] = "No";
        assert_eq!(common(&mixed), 19);
        mixed[4..7].fill("No");
        assert_eq!(common(&mixed), 0);
        let canned = |nth: usize| {
            let text = format!("Sure here is {nth} and more");
            request(Some(&text), &[("a", 4), ("a", 5), ("a", 3), ("a", 2), ("a", 9)])
        };
        let mut requests: Vec<Request> = (0..9).map(canned).collect();
        find_common_beginning(&mut requests, &[], &Tokenizer::bytes());
        assert!(requests.iter().all(|request| request.common_events == 3));
        let calling = |nth: usize| {
            let arguments = format!("{{\"nth\":{nth}}}");
            let length = u32::try_from(arguments.len()).unwrap();
            let mut request = request(Some(""), &[("t", 6), ("t", length), ("t", 1)]);
            request.tool_text = Some(format!("search{arguments}."));
            request
        };
        let mut requests: Vec<Request> = (0..9).map(calling).collect();
        find_common_beginning(&mut requests, &[], &Tokenizer::bytes());
        assert!(requests.iter().all(|request| request.common_events == 1));
    }

    #[test]
    fn a_long_beginning_is_looked_at_where_prompts_have_nothing_in_common() {
        let begin = |prompts: &[String]| {
            let prompts: Vec<Prompt> = prompts
                .iter()
                .map(|text| Prompt {
                    content: Content::Text(text.clone().into()),
                    prompt_tokens: 9,
                    output_tokens: 20,
                    extras: None,
                })
                .collect();
            let mut requests: Vec<Request> = (0..prompts.len())
                .map(|nth| {
                    request(
                        Some(&format!("{}{nth:02}", "opener".repeat(12))),
                        &[&[("a", 6); 12][..], &[("a", 2)]].concat(),
                    )
                })
                .collect();
            find_common_beginning(&mut requests, &prompts, &Tokenizer::bytes());
            requests[0].common_events
        };
        let prompts = |begin: &str, end: &str| -> Vec<String> {
            (0..20)
                .map(|nth| format!("{begin}{nth}{}{nth}{end}", "x".repeat(40)))
                .collect()
        };
        assert_eq!(begin(&prompts("", "")), 12);
        assert_eq!(begin(&prompts("Translate into German: ", "")), 8);
        assert_eq!(begin(&prompts("", " Write a short summary.")), 8);
    }

    #[test]
    fn a_text_is_cut_where_its_chunks_meet_and_tool_calls_are_not_in_it() {
        let told = request(None, &[("r", 1), ("t", 9), ("a", 3), ("a", 3)]);
        assert_eq!(chunk_texts(&told, "hméllo").unwrap(), ["h", "", "mé", "llo"]);
    }

    #[test]
    fn a_text_that_does_not_fit_its_chunks_is_not_cut() {
        assert_eq!(chunk_texts(&request(None, &[("a", 1)]), "é"), None);
        assert_eq!(chunk_texts(&request(None, &[("a", 2)]), "e"), None);
    }

    #[test]
    fn what_has_no_text_has_no_count_and_tool_calls_and_reasoning_have_theirs() {
        let tokenizer = Tokenizer::bytes();
        let mut silent = request(Some(""), &[("a", 0)]);
        let mut calling = request(Some("ab"), &[("h", 1), ("a", 1), ("t", 3)]);
        silent.index = 1;
        calling.tool_text = Some("f()".to_owned());
        let mut requests = [silent, calling];
        count_outputs(&mut requests, &tokenizer);
        assert_eq!(requests[0].counted_tokens, None);
        assert_eq!(
            (requests[1].counted_tokens, requests[1].counted_reasoning),
            (Some(5), Some(1))
        );
    }

    /// A conversation of these turns.
    fn conversation(first: &str, later: &[&str]) -> Prompt {
        use crate::loadgen::dataset::Extras;
        let turn = |text: &&str| vec![serde_json::json!({"role": "user", "content": text})];
        Prompt {
            content: Content::Text(first.to_owned().into()),
            prompt_tokens: 3,
            output_tokens: 2,
            extras: Some(Arc::new(Extras {
                turns: Some(later.iter().map(turn).collect()),
                ..Extras::default()
            })),
        }
    }

    #[test]
    fn a_count_of_the_server_that_what_was_said_bears_out_is_that_of_a_round_and_another_one_is_not() {
        let prompts = [conversation(
            &"a".repeat(100),
            &[&"b".repeat(100), &"c".repeat(100)],
        )];
        let sent = |answer: &str, reported: [u32; 3]| {
            let mut requests: Vec<Request> = (0..)
                .zip(reported)
                .map(|(index, prompt)| {
                    let length = u32::try_from(answer.len()).unwrap();
                    let mut round = request(Some(answer), &[("a", length)]);
                    (round.index, round.round, round.prompt_tokens) = (index, Some(index), 100);
                    round.counted_tokens = Some(length);
                    round.usage = Some(crate::results::record::request::Usage {
                        prompt: Some(prompt),
                        ..Default::default()
                    });
                    round
                })
                .collect();
            count_rounds(&mut requests, &prompts, &Tokenizer::bytes());
            let sent: Vec<u32> = requests.iter().map(Request::prompt_sent).collect();
            sent
        };
        let answer = "d".repeat(100);
        assert_eq!(sent(&answer, [105, 320, 530]), [105, 320, 530], "with a template");
        assert_eq!(sent(&answer, [105, 105, 105]), [105, 300, 500], "no history");
        assert_eq!(
            sent(&answer, [105, 1600, 2650]),
            [105, 300, 500],
            "five times as many"
        );
        let thinking = format!("{}</think>\n\nd", "t".repeat(97));
        assert_eq!(
            sent(&thinking, [105, 210, 315]),
            [105, 210, 315],
            "reasoning is dropped"
        );
        assert_eq!(
            sent(&thinking, [105, 320, 530]),
            [105, 320, 530],
            "and where it is kept"
        );
    }

    #[test]
    fn rounds_without_a_count_hold_what_was_said_before() {
        let prompt = conversation("abc", &["de", "f"]);
        let mut requests = Vec::new();
        for index in 0..6 {
            let mut round = request(Some("xy"), &[("a", 2)]);
            (round.index, round.round, round.prompt_tokens) = (index, Some(index % 3), 3);
            round.counted_tokens = Some(2);
            requests.push(round);
        }
        count_rounds(&mut requests, &[prompt.clone(), prompt], &Tokenizer::bytes());
        let counted: Vec<u32> = requests.iter().map(Request::prompt_sent).collect();
        assert_eq!(counted, [3, 7, 10, 3, 7, 10]);
    }
}
