//! Draws errors in the style of rustc.

use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Patch, Renderer, Snippet};

use super::{Mistake, Place, Source};
use crate::base::secrets::hide_in_urls;
use crate::base::text::{is_control, one_line, printable};

/// Draws mistakes like rustc does; `color` is false for pipes and snapshots.
pub fn draw(mistakes: &[Mistake], sources: &[Source], color: bool) -> String {
    let renderer = if color {
        Renderer::styled()
    } else {
        Renderer::plain()
    }
    .decor_style(DecorStyle::Ascii);
    let sources = &masked(mistakes, sources);
    let mistakes: Vec<Mistake> = mistakes.iter().map(showable).collect();
    let drawn: Vec<String> = mistakes
        .iter()
        .map(|mistake| renderer.render(&report(mistake, sources)))
        .collect();
    let mut text = drawn.join("\n\n");
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// Masks every place that an error hides, so that no other error shows it, and the passwords in URLs.
fn masked(mistakes: &[Mistake], sources: &[Source]) -> Vec<Source> {
    let mut masked = sources.to_vec();
    for place in mistakes
        .iter()
        .filter(|mistake| mistake.hides)
        .filter_map(|mistake| mistake.place.as_ref())
    {
        for source in masked.iter_mut().filter(|source| *source.name == *place.file) {
            let stars = "*".repeat(place.range.len());
            let mut text = source.text.to_string();
            text.replace_range(place.range.clone(), &stars);
            source.text = text.into();
        }
    }
    for source in &mut masked {
        source.text = hide_in_urls(&source.text).into();
        // Keep the number of bytes, because places count bytes.
        let shown = |letter: char| match letter {
            '\n' | '\t' | '\r' => letter.to_string(),
            letter if is_control(letter) => "?".repeat(letter.len_utf8()),
            letter => letter.to_string(),
        };
        if source.text.chars().any(is_control) {
            source.text = source.text.chars().map(shown).collect::<String>().into();
        }
    }
    masked
}

/// Removes control characters and passwords in URLs from an error; names in a matrix may contain anything.
fn showable(mistake: &Mistake) -> Mistake {
    let mut mistake = mistake.clone();
    let labels = mistake.also.iter_mut().map(|(_, label)| label);
    for text in [&mut mistake.message, &mut mistake.label]
        .into_iter()
        .chain(labels)
    {
        *text = hide_in_urls(&one_line(text)).into_owned();
    }
    let texts = mistake.notes.iter_mut().chain(&mut mistake.help);
    for text in texts.chain(mistake.patch.iter_mut().map(|(_, with)| with)) {
        *text = hide_in_urls(&printable(text)).into_owned();
    }
    mistake
}

fn report<'a>(mistake: &'a Mistake, sources: &'a [Source]) -> Vec<Group<'a>> {
    let mut group = Group::with_title(Level::ERROR.primary_title(mistake.message.as_str()));
    let primary = mistake
        .place
        .iter()
        .map(|place| (place, mistake.label.as_str(), AnnotationKind::Primary));
    let others = mistake
        .also
        .iter()
        .map(|(place, label)| (place, label.as_str(), AnnotationKind::Context));
    let marks: Vec<_> = primary.chain(others).collect();
    let mut files: Vec<&str> = Vec::new();
    for (place, ..) in &marks {
        if !files.contains(&&*place.file) {
            files.push(&place.file);
        }
    }
    for file in files {
        let Some((text, skipped)) = text_of(file, sources) else {
            group = group.element(Origin::path(file));
            continue;
        };
        let mut snippet = Snippet::source(text).path(file).fold(true);
        for (place, label, kind) in marks.iter().filter(|(place, ..)| *place.file == *file) {
            let label = (!label.is_empty()).then_some(*label);
            snippet = snippet.annotation(kind.span(within(text, skipped, place)).label(label));
        }
        group = group.element(snippet);
    }
    for note in &mistake.notes {
        group = group.element(Level::NOTE.message(note.as_str()));
    }
    let help = mistake.help.as_deref();
    let patch = mistake
        .patch
        .as_ref()
        .and_then(|(place, with)| Some((place, with, text_of(&place.file, sources)?)));
    match (help, patch) {
        (None, None) => vec![group],
        (Some(help), None) => vec![group.element(Level::HELP.message(help))],
        (help, Some((place, with, (text, skipped)))) => {
            let patched = Snippet::source(text)
                .path(&*place.file)
                .fold(true)
                .patch(Patch::new(within(text, skipped, place), with.as_str()));
            vec![
                group,
                Level::HELP
                    .secondary_title(help.unwrap_or("write"))
                    .element(patched),
            ]
        }
    }
}

/// The text to draw, and the number of bytes cut from its beginning: a byte order mark would count as a
/// column.
fn text_of<'a>(file: &str, sources: &'a [Source]) -> Option<(&'a str, usize)> {
    let text = &*sources.iter().find(|source| source.name == file)?.text;
    Some(match text.strip_prefix('\u{feff}') {
        Some(rest) => (rest, text.len() - rest.len()),
        None => (text, 0),
    })
}

/// Limits the range of a place to `text`, so that a wrong place does not cause a panic.
fn within(text: &str, skipped: usize, place: &Place) -> Range<usize> {
    let fit = |at: usize| {
        let mut at = at.saturating_sub(skipped).min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let start = fit(place.range.start);
    start..fit(place.range.end).max(start)
}
