//! Reads text with result blocks: a console log with other output around, or a Markdown report with headings
//! and commands.

mod option_contradictions;
mod section;

use std::collections::BTreeMap;

use section::{Section, apply_facts, apply_standard_workload, without_markup};
use serde_json::Value;

use super::args::{ClientOptions, parse_flags, parse_namespace, parse_server_arguments};
use super::block::{self, Block};
use super::names;
use super::result_block::{
    EngineTitle, LaunchInfo, Parsed, PrintedValue, ResultBlock, Warning, WarningSubject,
};
use crate::analysis::metrics::Metric;

/// Reads every block of a text.
///
/// # Errors
/// The text has no block.
pub(super) fn read(text: &str) -> Result<Parsed, String> {
    let mut scanner = Scanner {
        is_markdown: text.lines().any(|line| line.starts_with("```")),
        ..Scanner::default()
    };
    let mut last = 0;
    for (line, number) in text.split('\n').zip(1..) {
        scanner.read_line(number, &visible_text(line));
        last = number;
    }
    scanner.finish_block(last, true);
    scanner.compare_contents();
    match scanner.results.is_empty() {
        true => Err("the file has no `Serving Benchmark Result` block, no JSON and no CSV".to_owned()),
        false => Ok((scanner.results, scanner.warnings)),
    }
}

/// The text of a line on a terminal: what follows the last carriage return, without control sequences.
fn visible_text(line: &str) -> String {
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
    title: Option<(u32, EngineTitle)>,
    headings: Vec<String>,
    contents: Vec<(u32, String)>,
    sections: Vec<Section>,
    image: Option<String>,
    package: Option<String>,
    /// The server that a log shows; `command` holds the lines of an unfinished command.
    server: Option<LaunchInfo>,
    command: Option<(u32, Vec<String>)>,
    options: Option<ClientOptions>,
    /// The settings that the script around the client prints.
    script_options: Option<(u32, ClientOptions)>,
    block: Option<Block>,
    results: Vec<ResultBlock>,
    warnings: Vec<Warning>,
}

impl Scanner {
    fn read_line(&mut self, number: u32, line: &str) {
        if block::is_block_start(line) {
            self.finish_block(number, true);
            self.block = Some(Block::new(number));
            if let Some(fence) = &mut self.fence {
                fence.has_block = true;
            }
            return;
        }
        let is_fence = self.is_markdown && line.trim_start().starts_with("```");
        if let Some(open) = &mut self.block {
            if block::is_block_end(line) {
                self.finish_block(number, false);
                return;
            }
            if !is_fence {
                open.read_line(number, line);
                return;
            }
            self.finish_block(number, true);
        }
        if is_fence {
            self.toggle_fence(number);
            return;
        }
        let is_log = self.fence.is_some() || !self.is_markdown;
        if is_log && self.read_server_line(number, line) {
            // The commands of a fence are read together when it ends.
            if let Some(fence) = &mut self.fence {
                fence.lines.push(line.to_owned());
            }
        } else if let Some(options) = parse_namespace(line) {
            self.set_options(ClientOptions::from_options(number, &options));
        } else if let Some(words) = line.trim().strip_prefix("Running benchmark ") {
            let mut options = parse_flags(words.split(" with backend:").next().unwrap_or(words));
            if let Some((_, backend)) = words.split_once(" with backend:") {
                options.insert("backend".to_owned(), Value::String(backend.trim().to_owned()));
            }
            self.options = None;
            self.script_options = Some((number, ClientOptions::from_options(number, &options)));
        } else if let Some(tokens) = parse_count(line, "#Input tokens:") {
            self.options.get_or_insert_default().input_tokens = Some((number, tokens));
        } else if let Some(tokens) = parse_count(line, "#Output tokens:") {
            self.options.get_or_insert_default().output_tokens = Some((number, tokens));
        } else if let Some(fence) = &mut self.fence {
            fence.lines.push(line.to_owned());
        } else if self.is_markdown {
            self.read_prose(number, line);
        }
    }

    /// Reads facts of the server from a log line; false if the line has none.
    fn read_server_line(&mut self, number: u32, line: &str) -> bool {
        if let Some(options) = parse_server_arguments(line) {
            let mut started = names::launch_info_from_options(number, &options);
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
            false if names::starts_server(&lines) => {
                self.server = Some(names::launch_info_from_command(first, &lines))
            }
            false => {}
        }
        true
    }

    /// Stores printed arguments, with the token sums that were printed before them.
    fn set_options(&mut self, mut options: ClientOptions) {
        if let Some(before) = self.options.take().filter(|before| before.line == 0) {
            options.input_tokens = before.input_tokens;
            options.output_tokens = before.output_tokens;
        }
        self.options = Some(options);
    }

    fn toggle_fence(&mut self, number: u32) {
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
        if let Some(image) = names::docker_image(&text) {
            self.image = Some(image);
        } else if let Some(package) = names::pip_package(&text) {
            self.package = Some(package);
        } else {
            // A fence with only the client's command says nothing about the server.
            let started = names::launch_info_from_command(fence.line + 1, &fence.lines);
            match self.sections.last_mut() {
                Some(section) if !started.command.is_empty() => section.launch_info = Some(started),
                Some(_) => {}
                None => self.server = server,
            }
        }
    }

    /// Reads a line outside fences: a heading, an entry of the table of contents, or text that may quote
    /// options.
    fn read_prose(&mut self, number: u32, line: &str) {
        let marks = line.bytes().take_while(|byte| *byte == b'#').count();
        if (1..=6).contains(&marks) && line[marks..].starts_with(' ') {
            self.open_section(number, marks, without_markup(line[marks..].trim()));
            return;
        }
        let point = line.trim_start().strip_prefix("- ");
        if let Some((text, _)) = point.and_then(|point| point.strip_prefix('[')?.split_once("](#")) {
            self.contents.push((number, without_markup(text)));
            return;
        }
        let Some(section) = self.sections.last_mut() else {
            return;
        };
        if let Some((name, value)) = point.and_then(|point| point.split_once(": ")) {
            section
                .facts
                .insert(name.trim().to_owned(), without_markup(value.trim()));
        }
        for quoted in line.split('`').skip(1).step_by(2) {
            if quoted.contains("--") {
                section.command_options.push((number, parse_flags(quoted)));
            }
        }
    }

    fn open_section(&mut self, line: u32, level: usize, text: String) {
        self.headings.push(text.clone());
        self.server = None;
        self.sections.retain(|section| section.level < level);
        if level == 1 {
            self.title = Some((line, names::engine_title(&text)));
            (self.image, self.package) = (None, None);
            return;
        }
        self.sections.push(Section {
            level,
            line,
            text,
            launch_info: None,
            command_options: Vec::new(),
            facts: BTreeMap::new(),
        });
    }

    /// Ends the open block, if there is one. A block without its last line gets a warning.
    fn finish_block(&mut self, number: u32, is_cut: bool) {
        let Some(open) = self.block.take() else { return };
        let mut block = open.with_derived_image_tokens();
        let (options, script_options) = (self.options.take(), self.script_options.take());
        if !block.figures.contains_key(&Metric::Completed) {
            self.warnings.push(Warning::new(
                block.line,
                WarningSubject::Nothing,
                "a result block has no line `Successful requests:`, so the block is ignored",
            ));
            return;
        }
        if is_cut {
            block.warnings.push(Warning::new(
                number,
                WarningSubject::Figures,
                "the result block is cut off before its last line; the missing figures stay unknown",
            ));
        }
        let mut result = ResultBlock::new(block.line, block.tool, block.profile());
        result.has_vision_line = block.has_vision_line;
        result.warnings = std::mem::take(&mut block.warnings);
        if let Some(options) = &options {
            if let Some((line, script_options)) = &script_options {
                option_contradictions::compare_script(&mut result, *line, script_options, options);
            }
            option_contradictions::compare_block(&mut result, &block, options);
        }
        let mut options_of_block = options.unwrap_or_default();
        if let Some((_, script_options)) = &script_options {
            options_of_block = options_of_block.merged_with(script_options);
        }
        result.options = options_of_block.merged_with(&ClientOptions {
            backend: block.backend,
            rate: block.rate,
            traffic: block.traffic,
            concurrency: block.concurrency_limit,
            slo: block.slo.take(),
            ..ClientOptions::default()
        });
        result.figures = block.figures;
        self.apply_context(&mut result);
        self.results.push(result);
    }

    /// Adds facts from headings and commands around a block.
    fn apply_context(&self, result: &mut ResultBlock) {
        result.engine = self.title.as_ref().map(|(_, title)| title.clone());
        let at = self
            .sections
            .iter()
            .rposition(|section| section.launch_info.is_some())
            .or_else(|| self.sections.len().checked_sub(1));
        if let Some(at) = at {
            let section = &self.sections[at];
            result.heading = Some((section.line, section.text.clone()));
            result.launch_info = section.launch_info.clone().unwrap_or_default();
            let above = at.checked_sub(1).map(|above| self.sections[above].text.clone());
            result.variant = above;
            apply_facts(result, section);
            if let Some(below) = self.sections.get(at + 1) {
                apply_standard_workload(result, &below.text);
                apply_facts(result, below);
            }
            for (line, options) in self.sections[at..]
                .iter()
                .flat_map(|section| &section.command_options)
            {
                option_contradictions::compare_quoted(
                    result,
                    *line,
                    &ClientOptions::from_options(*line, options),
                );
            }
        }
        // A server that a log near the block shows has precedence over the command below the heading.
        if let Some(server) = &self.server {
            result.launch_info = server.clone();
        }
        result.launch_info.image = self.image.clone();
        result.launch_info.package = self.package.clone();
        if let (Some((line, title)), Some(image)) = (&self.title, &self.image)
            && let Some(version) = &title.version
            && let Some((_, tag)) = image.rsplit_once(':')
            && tag.contains('.')
            && !tag.contains(names::without_v(version))
        {
            result.warn(
                *line,
                WarningSubject::Identity,
                format!("the title says version `{version}`, but the image is `{image}`"),
            );
        }
    }

    /// Compares the table of contents with the headings that follow.
    fn compare_contents(&mut self) {
        for (line, entry) in &self.contents {
            if self.headings.contains(entry) {
                continue;
            }
            let engine = names::engine_title(entry).name;
            let title = self.title.as_ref().filter(|(_, title)| title.name == engine);
            let says = match title.and_then(|(_, title)| title.version.as_ref()) {
                Some(version) => {
                    format!("the table of contents says `{entry}`, the title says `{engine} {version}`")
                }
                None => format!("the table of contents names `{entry}`, but there is no such heading"),
            };
            self.warnings
                .push(Warning::new(*line, WarningSubject::Nothing, says));
        }
    }
}

fn parse_count(line: &str, label: &str) -> Option<u64> {
    line.trim().strip_prefix(label)?.trim().parse().ok()
}

/// A figure of a file that has all digits.
pub(super) fn exact_value(line: u32, value: Option<f64>) -> PrintedValue {
    PrintedValue {
        value: value.filter(|value| value.is_finite()),
        half_digit: 0.0,
        line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_what_a_terminal_shows_of_it() {
        assert_eq!(visible_text(" 10%|#  |\r100%|###|\rBackend: x\r"), "Backend: x");
        assert_eq!(visible_text("\u{1b}[1;32mMean\u{1b}[0m TTFT"), "Mean TTFT");
    }
}
