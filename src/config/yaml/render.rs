//! Draws errors in the style of rustc.

use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Patch, Renderer, Snippet};

use super::diagnostic::Diagnostic;
use super::source::{Source, SourceSpan};
use crate::base::secrets::mask_url_secrets;
use crate::base::text::{is_control, one_line, printable};

/// Draws diagnostics like rustc does; `color` is false for pipes and snapshots.
pub(crate) fn render(diagnostics: &[Diagnostic], sources: &[Source], color: bool) -> String {
    let renderer = if color {
        Renderer::styled()
    } else {
        Renderer::plain()
    }
    .decor_style(DecorStyle::Ascii);
    let sources = &mask_secrets(diagnostics, sources);
    let diagnostics: Vec<Diagnostic> = diagnostics.iter().map(sanitize).collect();
    let drawn: Vec<String> = diagnostics
        .iter()
        .map(|diagnostic| renderer.render(&report_groups(diagnostic, sources)))
        .collect();
    let mut text = drawn.join("\n\n");
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// Masks every place that an error hides, so that no other error shows it, and the passwords in URLs.
fn mask_secrets(diagnostics: &[Diagnostic], sources: &[Source]) -> Vec<Source> {
    let mut masked = sources.to_vec();
    for place in diagnostics
        .iter()
        .filter(|diagnostic| diagnostic.hides_source)
        .filter_map(|diagnostic| diagnostic.place.as_ref())
    {
        for source in masked.iter_mut().filter(|source| *source.name == *place.file) {
            let stars = "*".repeat(place.range.len());
            let mut text = source.text.to_string();
            text.replace_range(place.range.clone(), &stars);
            source.text = text.into();
        }
    }
    for source in &mut masked {
        source.text = mask_url_secrets(&source.text).into();
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
fn sanitize(diagnostic: &Diagnostic) -> Diagnostic {
    let mut diagnostic = diagnostic.clone();
    let labels = diagnostic.secondary.iter_mut().map(|(_, label)| label);
    for text in [&mut diagnostic.message, &mut diagnostic.label]
        .into_iter()
        .chain(labels)
    {
        *text = mask_url_secrets(&one_line(text)).into_owned();
    }
    let texts = diagnostic.notes.iter_mut().chain(&mut diagnostic.help);
    for text in texts.chain(diagnostic.replacement.iter_mut().map(|(_, with)| with)) {
        *text = mask_url_secrets(&printable(text)).into_owned();
    }
    diagnostic
}

fn report_groups<'a>(diagnostic: &'a Diagnostic, sources: &'a [Source]) -> Vec<Group<'a>> {
    let mut group = Group::with_title(Level::ERROR.primary_title(diagnostic.message.as_str()));
    let primary = diagnostic
        .place
        .iter()
        .map(|place| (place, diagnostic.label.as_str(), AnnotationKind::Primary));
    let others = diagnostic
        .secondary
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
        let Some((text, skipped)) = source_text(file, sources) else {
            group = group.element(Origin::path(file));
            continue;
        };
        let mut snippet = Snippet::source(text).path(file).fold(true);
        for (place, label, kind) in marks.iter().filter(|(place, ..)| *place.file == *file) {
            let label = (!label.is_empty()).then_some(*label);
            snippet = snippet.annotation(kind.span(clamp_range(text, skipped, place)).label(label));
        }
        group = group.element(snippet);
    }
    for note in &diagnostic.notes {
        group = group.element(Level::NOTE.message(note.as_str()));
    }
    let help = diagnostic.help.as_deref();
    let patch = diagnostic
        .replacement
        .as_ref()
        .and_then(|(place, with)| Some((place, with, source_text(&place.file, sources)?)));
    match (help, patch) {
        (None, None) => vec![group],
        (Some(help), None) => vec![group.element(Level::HELP.message(help))],
        (help, Some((place, with, (text, skipped)))) => {
            let patched = Snippet::source(text)
                .path(&*place.file)
                .fold(true)
                .patch(Patch::new(clamp_range(text, skipped, place), with.as_str()));
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
fn source_text<'a>(file: &str, sources: &'a [Source]) -> Option<(&'a str, usize)> {
    let text = &*sources.iter().find(|source| source.name == file)?.text;
    Some(match text.strip_prefix('\u{feff}') {
        Some(rest) => (rest, text.len() - rest.len()),
        None => (text, 0),
    })
}

/// Limits the range of a place to `text`, so that a wrong place does not cause a panic.
fn clamp_range(text: &str, skipped: usize, place: &SourceSpan) -> Range<usize> {
    let clamp = |position: usize| {
        let mut position = position.saturating_sub(skipped).min(text.len());
        while !text.is_char_boundary(position) {
            position -= 1;
        }
        position
    };
    let start = clamp(place.range.start);
    start..clamp(place.range.end).max(start)
}
