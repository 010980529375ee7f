//! Reads text with result blocks: a console log with other output around, or a Markdown report with headings
//! and commands.

use std::collections::BTreeMap;

use serde_json::Value;

use super::args::{Asked, flags, namespace, server_arguments};
use super::block::{self, Block};
use super::{About, Found, Parts, Printed, Started, Title, Warning, names};
use crate::analysis::metrics::Metric;
use crate::config::builtin_scenarios;

/// Reads every block of a text.
///
/// # Errors
/// The text has no block.
pub(super) fn read(text: &str) -> Result<Parts, String> {
    let mut scanner = Scanner {
        is_markdown: text.lines().any(|line| line.starts_with("```")),
        ..Scanner::default()
    };
    let mut last = 0;
    for (line, number) in text.split('\n').zip(1..) {
        scanner.line(number, &shown(line));
        last = number;
    }
    scanner.close(last, true);
    scanner.compare_contents();
    match scanner.found.is_empty() {
        true => Err("there is no block below `Serving Benchmark Result`, no JSON and no CSV".to_owned()),
        false => Ok((scanner.found, scanner.warnings)),
    }
}

/// The text of a line on a terminal: what follows the last carriage return, without control sequences.
fn shown(line: &str) -> String {
    let line = line.strip_suffix('\r').unwrap_or(line);
    let line = line.rsplit('\r').next().unwrap_or(line);
    let mut text = String::with_capacity(line.len());
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' => {
                if letters.next() == Some('[') {
                    letters.find(|letter| ('@'..='~').contains(letter));
                }
            }
            letter if letter.is_control() && letter != '\t' => {}
            letter => text.push(letter),
        }
    }
    text
}

/// A heading with the facts below it.
#[derive(Clone, Debug)]
struct Section {
    level: usize,
    line: u32,
    text: String,
    started: Option<Started>,
    /// Options quoted in the text below the heading, with their lines.
    said: Vec<(u32, BTreeMap<String, Value>)>,
    /// Entries of a list below the heading, such as `model: Qwen/Qwen3-8B`.
    facts: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Fence {
    line: u32,
    lines: Vec<String>,
    has_block: bool,
}

#[derive(Default)]
struct Scanner {
    is_markdown: bool,
    fence: Option<Fence>,
    title: Option<(u32, Title)>,
    headings: Vec<String>,
    contents: Vec<(u32, String)>,
    sections: Vec<Section>,
    image: Option<String>,
    package: Option<String>,
    /// The server that a log shows; `command` holds the lines of an unfinished command.
    server: Option<Started>,
    command: Option<(u32, Vec<String>)>,
    asked: Option<Asked>,
    /// The settings that the script around the client prints.
    wrapped: Option<(u32, Asked)>,
    block: Option<Block>,
    found: Vec<Found>,
    warnings: Vec<Warning>,
}

impl Scanner {
    fn line(&mut self, number: u32, line: &str) {
        if block::begins(line) {
            self.close(number, true);
            self.block = Some(Block::begin(number));
            if let Some(fence) = &mut self.fence {
                fence.has_block = true;
            }
            return;
        }
        let is_fence = self.is_markdown && line.trim_start().starts_with("```");
        if let Some(open) = &mut self.block {
            if block::ends(line) {
                self.close(number, false);
                return;
            }
            if !is_fence {
                open.feed(number, line);
                return;
            }
            self.close(number, true);
        }
        if is_fence {
            self.toggle(number);
            return;
        }
        let is_log = self.fence.is_some() || !self.is_markdown;
        if is_log && self.server(number, line) {
            // The commands of a fence are read together when it ends.
            if let Some(fence) = &mut self.fence {
                fence.lines.push(line.to_owned());
            }
        } else if let Some(options) = namespace(line) {
            self.asked(Asked::of(number, &options));
        } else if let Some(words) = line.trim().strip_prefix("Running benchmark ") {
            let mut options = flags(words.split(" with backend:").next().unwrap_or(words));
            if let Some((_, backend)) = words.split_once(" with backend:") {
                options.insert("backend".to_owned(), Value::String(backend.trim().to_owned()));
            }
            self.asked = None;
            self.wrapped = Some((number, Asked::of(number, &options)));
        } else if let Some(tokens) = counted(line, "#Input tokens:") {
            self.asked.get_or_insert_default().input_tokens = Some((number, tokens));
        } else if let Some(tokens) = counted(line, "#Output tokens:") {
            self.asked.get_or_insert_default().output_tokens = Some((number, tokens));
        } else if let Some(fence) = &mut self.fence {
            fence.lines.push(line.to_owned());
        } else if self.is_markdown {
            self.prose(number, line);
        }
    }

    /// Reads facts of the server from a log line; false if the line has none.
    fn server(&mut self, number: u32, line: &str) -> bool {
        if let Some(options) = server_arguments(line) {
            let mut started = names::configured(number, &options);
            // The log shows the command before the settings.
            let before = self.server.take().filter(|before| before.model == started.model);
            started.command = before.map(|before| before.command).unwrap_or_default();
            self.server = Some(started);
            return true;
        }
        let (first, mut lines) = match (self.command.take(), names::server_command(line)) {
            (Some(open), _) => open,
            (None, Some(_)) => (number, Vec::new()),
            (None, None) => return false,
        };
        let command = match lines.is_empty() {
            true => names::server_command(line).unwrap_or(line),
            false => line,
        };
        lines.push(command.to_owned());
        match command.trim_end().ends_with('\\') {
            true => self.command = Some((first, lines)),
            false if names::serves(&lines) => self.server = Some(names::started(first, &lines)),
            false => {}
        }
        true
    }

    /// Stores printed arguments, with the token sums that were printed before them.
    fn asked(&mut self, mut asked: Asked) {
        if let Some(before) = self.asked.take().filter(|before| before.line == 0) {
            asked.input_tokens = before.input_tokens;
            asked.output_tokens = before.output_tokens;
        }
        self.asked = Some(asked);
    }

    fn toggle(&mut self, number: u32) {
        let server = self.server.take();
        self.command = None;
        let Some(fence) = self.fence.take() else {
            self.server = server;
            self.fence = Some(Fence {
                line: number,
                lines: Vec::new(),
                has_block: false,
            });
            return;
        };
        if fence.has_block || fence.lines.is_empty() {
            return;
        }
        let text = fence.lines.join("\n");
        if let Some(image) = names::pulled(&text) {
            self.image = Some(image);
        } else if let Some(package) = names::installed(&text) {
            self.package = Some(package);
        } else {
            // A fence with only the client's command says nothing about the server.
            let started = names::started(fence.line + 1, &fence.lines);
            match self.sections.last_mut() {
                Some(section) if !started.command.is_empty() => section.started = Some(started),
                Some(_) => {}
                None => self.server = server,
            }
        }
    }

    /// Reads a line outside fences: a heading, an entry of the table of contents, or text that may quote
    /// options.
    fn prose(&mut self, number: u32, line: &str) {
        let marks = line.bytes().take_while(|byte| *byte == b'#').count();
        if (1..=6).contains(&marks) && line[marks..].starts_with(' ') {
            self.heading(number, marks, plain(line[marks..].trim()));
            return;
        }
        let point = line.trim_start().strip_prefix("- ");
        if let Some((text, _)) = point.and_then(|point| point.strip_prefix('[')?.split_once("](#")) {
            self.contents.push((number, plain(text)));
            return;
        }
        let Some(section) = self.sections.last_mut() else {
            return;
        };
        if let Some((name, value)) = point.and_then(|point| point.split_once(": ")) {
            section.facts.insert(name.trim().to_owned(), plain(value.trim()));
        }
        for quoted in line.split('`').skip(1).step_by(2) {
            if quoted.contains("--") {
                section.said.push((number, flags(quoted)));
            }
        }
    }

    fn heading(&mut self, line: u32, level: usize, text: String) {
        self.headings.push(text.clone());
        self.server = None;
        self.sections.retain(|section| section.level < level);
        if level == 1 {
            self.title = Some((line, names::title(&text)));
            (self.image, self.package) = (None, None);
            return;
        }
        self.sections.push(Section {
            level,
            line,
            text,
            started: None,
            said: Vec::new(),
            facts: BTreeMap::new(),
        });
    }

    /// Ends the open block, if there is one. A block without its last line gets a warning.
    fn close(&mut self, number: u32, is_cut: bool) {
        let Some(open) = self.block.take() else { return };
        let mut block = open.ended();
        let (asked, wrapped) = (self.asked.take(), self.wrapped.take());
        if !block.figures.contains_key(&Metric::Completed) {
            self.warnings.push(Warning::new(
                block.line,
                About::Rest,
                "a block without `Successful requests:` is left out",
            ));
            return;
        }
        if is_cut {
            block.warnings.push(Warning::new(
                number,
                About::Figures,
                "the block is cut before its last line, what is missing is unknown",
            ));
        }
        let mut found = Found::new(block.line, block.tool, block.profile());
        found.vision_line = block.vision_line;
        found.warnings = std::mem::take(&mut block.warnings);
        self.compare_asked(&mut found, &block, asked.as_ref(), wrapped.as_ref());
        let mut known = asked.unwrap_or_default();
        if let Some((_, wrapped)) = &wrapped {
            known = known.or(wrapped);
        }
        found.asked = known.or(&Asked {
            backend: block.backend,
            rate: block.rate,
            traffic: block.traffic,
            concurrency: block.limit,
            slo: block.slo.take(),
            ..Asked::default()
        });
        found.figures = block.figures;
        self.place(&mut found);
        self.found.push(found);
    }

    /// Adds facts from headings and commands around a block.
    fn place(&self, found: &mut Found) {
        found.engine = self.title.as_ref().map(|(_, title)| title.clone());
        let at = self
            .sections
            .iter()
            .rposition(|section| section.started.is_some())
            .or_else(|| self.sections.len().checked_sub(1));
        if let Some(at) = at {
            let section = &self.sections[at];
            found.heading = Some((section.line, section.text.clone()));
            found.started = section.started.clone().unwrap_or_default();
            let above = at.checked_sub(1).map(|above| self.sections[above].text.clone());
            found.variant = above;
            tell(found, section);
            if let Some(below) = self.sections.get(at + 1) {
                named(found, &below.text);
                tell(found, below);
            }
            for (line, options) in self.sections[at..].iter().flat_map(|section| &section.said) {
                compare_said(found, *line, &Asked::of(*line, options));
            }
        }
        // A server that a log near the block shows has precedence over the command below the heading.
        if let Some(server) = &self.server {
            found.started = server.clone();
        }
        found.started.image = self.image.clone();
        found.started.package = self.package.clone();
        if let (Some((line, title)), Some(image)) = (&self.title, &self.image)
            && let Some(version) = &title.version
            && let Some((_, tag)) = image.rsplit_once(':')
            && tag.contains('.')
            && !tag.contains(names::bare(version))
        {
            found.warn(
                *line,
                About::Identity,
                format!("the title says version `{version}` and the image is `{image}`"),
            );
        }
    }

    /// Compares the client's printed arguments with those of the script around it and with the block.
    fn compare_asked(
        &self,
        found: &mut Found,
        block: &Block,
        asked: Option<&Asked>,
        wrapped: Option<&(u32, Asked)>,
    ) {
        let Some(asked) = asked else { return };
        if let Some((line, wrapped)) = wrapped {
            let pairs = [
                ("prompts", words(wrapped.prompts), words(asked.prompts)),
                (
                    "data set",
                    words(wrapped.dataset.clone()),
                    words(asked.dataset.clone()),
                ),
                ("input length", words(wrapped.input_len), words(asked.input_len)),
                (
                    "output length",
                    words(wrapped.output_len),
                    words(asked.output_len),
                ),
                (
                    "backend",
                    words(wrapped.backend.clone()),
                    words(asked.backend.clone()),
                ),
            ];
            for (what, script, client) in pairs {
                if let (Some(script), Some(client)) = (script, client)
                    && script != client
                {
                    found.warn(
                        *line,
                        About::Identity,
                        format!("{what}: the script says `{script}`, the client's arguments say `{client}`"),
                    );
                }
            }
        }
        if let (Some(printed), Some(asked)) = (block.rate, asked.rate)
            && printed != asked
        {
            found.warn(
                block.line,
                About::Identity,
                format!("the block says {printed} req/s, the client's arguments say {asked}"),
            );
        }
        let limit = |limit: Option<u32>, is_unlimited: bool| match limit {
            Some(limit) => Some(format!("at most {limit} requests at a time")),
            None => is_unlimited.then(|| "any number of requests at a time".to_owned()),
        };
        if let (Some(printed), Some(wanted)) = (
            limit(block.limit, block.is_unlimited),
            limit(asked.concurrency, asked.is_unlimited),
        ) && printed != wanted
        {
            found.warn(
                block.line,
                About::Identity,
                format!("the block says {printed}, the client's arguments say {wanted}"),
            );
        }
        if let (Some(printed), Some(wanted)) = (&block.backend, &asked.backend)
            && printed != wanted
        {
            found.warn(
                block.line,
                About::Identity,
                format!("the block says backend `{printed}`, the client's arguments say `{wanted}`"),
            );
        }
    }

    /// Compares the table of contents with the headings that follow.
    fn compare_contents(&mut self) {
        for (line, entry) in &self.contents {
            if self.headings.contains(entry) {
                continue;
            }
            let engine = names::title(entry).name;
            let title = self.title.as_ref().filter(|(_, title)| title.name == engine);
            let says = match title.and_then(|(_, title)| title.version.as_ref()) {
                Some(version) => {
                    format!("the table of contents says `{entry}`, the title says `{engine} {version}`")
                }
                None => format!("the table of contents names `{entry}`, and there is no such heading"),
            };
            self.warnings.push(Warning::new(*line, About::Rest, says));
        }
    }
}

fn words<T: ToString>(value: Option<T>) -> Option<String> {
    value.map(|value| value.to_string())
}

fn counted(line: &str, label: &str) -> Option<u64> {
    line.trim().strip_prefix(label)?.trim().parse().ok()
}

/// The text of a heading without Markdown escapes and code marks.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => out.extend(letters.next()),
            '`' => {}
            letter => out.push(letter),
        }
    }
    out.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

/// Reads facts from the list below a heading, in the form of `matrix` reports.
fn tell(found: &mut Found, section: &Section) {
    let fact = |name: &str| section.facts.get(name);
    let size = |name: &str| fact(name).and_then(|size| size.parse().ok());
    if let Some(checkpoint) = fact("checkpoint").or_else(|| fact("model")) {
        found.started.model = Some(checkpoint.clone());
    }
    if let Some(precision) = fact("precision") {
        found.started.precision = Some(precision.clone());
    }
    found.started.tp = size("tensor-parallel size").or(found.started.tp);
    if found.asked.prompts.is_none() {
        let prompts = fact("prompts").and_then(|prompts| prompts.parse().ok());
        found.asked.prompts = prompts;
    }
}

/// If the heading names a built-in scenario, takes missing settings of the workload from it.
fn named(found: &mut Found, heading: &str) {
    let Some(standard) = builtin_scenarios::named(heading) else {
        return;
    };
    let asked = &mut found.asked;
    if let Some(dataset) = standard.dataset.filter(|_| asked.dataset.is_none()) {
        asked.dataset = Some(dataset.bench_serving_name().to_owned());
        asked.input_len = standard.input_len;
        asked.output_len = standard.output_len;
        asked.range_ratio = standard.range_ratio.map(|ratio| ratio.value);
    }
}

/// Compares options quoted in the text with those of a block with the same data set.
fn compare_said(found: &mut Found, line: u32, said: &Asked) {
    let is_meant = said.dataset.is_none() || said.dataset == found.asked.dataset;
    if !is_meant {
        return;
    }
    if let (Some(told), Some(sent)) = (said.prompts, found.asked.prompts)
        && told != sent
    {
        found.warn(
            line,
            About::Identity,
            format!("the text says {told} prompts, and {sent} were asked for"),
        );
    }
    if let (Some(told), Some(sent)) = (said.seed, found.asked.seed)
        && told != sent
    {
        found.warn(
            line,
            About::Identity,
            format!("the text says seed {told}, and {sent} was asked for"),
        );
    }
}

/// A figure of a file that has all digits.
pub(super) fn exact(line: u32, value: Option<f64>) -> Printed {
    Printed {
        value: value.filter(|value| value.is_finite()),
        half: 0.0,
        line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_what_a_terminal_shows_of_it() {
        assert_eq!(shown(" 10%|#  |\r100%|###|\rBackend: x\r"), "Backend: x");
        assert_eq!(shown("\u{1b}[1;32mMean\u{1b}[0m TTFT"), "Mean TTFT");
    }
}
