//! Reads text with result blocks: a console log with other output around, or a Markdown report with headings
//! and commands.

use std::collections::BTreeMap;

use serde_json::Value;

use super::args::{ClientOptions, parse_flags, parse_namespace, parse_server_arguments};
use super::block::{self, Block};
use super::{EngineTitle, LaunchInfo, Parsed, PrintedValue, ResultBlock, Warning, WarningSubject, names};
use crate::analysis::metrics::Metric;
use crate::config::builtin_scenarios;

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
        true => Err("it has no `Serving Benchmark Result` block, no JSON and no CSV".to_owned()),
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

/// A heading with the facts below it.
#[derive(Clone, Debug)]
struct Section {
    level: usize,
    line: u32,
    text: String,
    launch_info: Option<LaunchInfo>,
    /// Options quoted in the text below the heading, with their lines.
    quoted_options: Vec<(u32, BTreeMap<String, Value>)>,
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
                section.quoted_options.push((number, parse_flags(quoted)));
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
            quoted_options: Vec::new(),
            facts: BTreeMap::new(),
        });
    }

    /// Ends the open block, if there is one. A block without its last line gets a warning.
    fn finish_block(&mut self, number: u32, is_cut: bool) {
        let Some(open) = self.block.take() else { return };
        let mut block = open.finished();
        let (options, script_options) = (self.options.take(), self.script_options.take());
        if !block.figures.contains_key(&Metric::Completed) {
            self.warnings.push(Warning::new(
                block.line,
                WarningSubject::Nothing,
                "the block has no `Successful requests:` and is ignored",
            ));
            return;
        }
        if is_cut {
            block.warnings.push(Warning::new(
                number,
                WarningSubject::Figures,
                "the block is cut off before its last line; the missing figures stay unknown",
            ));
        }
        let mut result = ResultBlock::new(block.line, block.tool, block.profile());
        result.has_vision_line = block.has_vision_line;
        result.warnings = std::mem::take(&mut block.warnings);
        self.compare_options(&mut result, &block, options.as_ref(), script_options.as_ref());
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
                .flat_map(|section| &section.quoted_options)
            {
                compare_quoted_options(result, *line, &ClientOptions::from_options(*line, options));
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

    /// Compares the client's printed arguments with those of the script around it and with the block.
    fn compare_options(
        &self,
        result: &mut ResultBlock,
        block: &Block,
        options: Option<&ClientOptions>,
        script_options: Option<&(u32, ClientOptions)>,
    ) {
        let Some(options) = options else { return };
        if let Some((line, script_options)) = script_options {
            let pairs = [
                (
                    "prompts",
                    to_text(script_options.prompts),
                    to_text(options.prompts),
                ),
                (
                    "data set",
                    to_text(script_options.dataset.clone()),
                    to_text(options.dataset.clone()),
                ),
                (
                    "input length",
                    to_text(script_options.input_len),
                    to_text(options.input_len),
                ),
                (
                    "output length",
                    to_text(script_options.output_len),
                    to_text(options.output_len),
                ),
                (
                    "backend",
                    to_text(script_options.backend.clone()),
                    to_text(options.backend.clone()),
                ),
            ];
            for (what, script, client) in pairs {
                if let (Some(script), Some(client)) = (script, client)
                    && script != client
                {
                    result.warn(
                        *line,
                        WarningSubject::Identity,
                        format!("{what}: the script says `{script}`, the client's arguments say `{client}`"),
                    );
                }
            }
        }
        if let (Some(printed), Some(options)) = (block.rate, options.rate)
            && printed != options
        {
            result.warn(
                block.line,
                WarningSubject::Identity,
                format!("the block says {printed} req/s, the client's arguments say {options}"),
            );
        }
        let limit = |limit: Option<u32>, is_unlimited: bool| match limit {
            Some(limit) => Some(format!("at most {limit} requests at a time")),
            None => is_unlimited.then(|| "any number of requests at a time".to_owned()),
        };
        if let (Some(printed), Some(requested)) = (
            limit(block.concurrency_limit, block.is_unlimited),
            limit(options.concurrency, options.is_unlimited),
        ) && printed != requested
        {
            result.warn(
                block.line,
                WarningSubject::Identity,
                format!("the block says {printed}, the client's arguments say {requested}"),
            );
        }
        if let (Some(printed), Some(requested)) = (&block.backend, &options.backend)
            && printed != requested
        {
            result.warn(
                block.line,
                WarningSubject::Identity,
                format!("the block says backend `{printed}`, the client's arguments say `{requested}`"),
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

fn to_text<T: ToString>(value: Option<T>) -> Option<String> {
    value.map(|value| value.to_string())
}

fn parse_count(line: &str, label: &str) -> Option<u64> {
    line.trim().strip_prefix(label)?.trim().parse().ok()
}

/// The text of a heading without Markdown escapes and code marks.
fn without_markup(text: &str) -> String {
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
fn apply_facts(result: &mut ResultBlock, section: &Section) {
    let fact = |name: &str| section.facts.get(name);
    let size = |name: &str| fact(name).and_then(|size| size.parse().ok());
    if let Some(checkpoint) = fact("checkpoint").or_else(|| fact("model")) {
        result.launch_info.model = Some(checkpoint.clone());
    }
    if let Some(precision) = fact("precision") {
        result.launch_info.precision = Some(precision.clone());
    }
    result.launch_info.tp = size("tensor-parallel size").or(result.launch_info.tp);
    if result.options.prompts.is_none() {
        let prompts = fact("prompts").and_then(|prompts| prompts.parse().ok());
        result.options.prompts = prompts;
    }
}

/// If the heading names a built-in scenario, takes missing settings of the workload from it.
fn apply_standard_workload(result: &mut ResultBlock, heading: &str) {
    let Some(standard) = builtin_scenarios::by_name(heading) else {
        return;
    };
    let client_options = &mut result.options;
    if let Some(dataset) = standard.dataset.filter(|_| client_options.dataset.is_none()) {
        client_options.dataset = Some(dataset.bench_serving_name().to_owned());
        client_options.input_len = standard.input_len;
        client_options.output_len = standard.output_len;
        client_options.range_ratio = standard.range_ratio.map(|ratio| ratio.value);
    }
}

/// Compares options quoted in the text with those of a block with the same data set.
fn compare_quoted_options(result: &mut ResultBlock, line: u32, quoted: &ClientOptions) {
    let is_meant = quoted.dataset.is_none() || quoted.dataset == result.options.dataset;
    if !is_meant {
        return;
    }
    if let (Some(quoted_value), Some(sent)) = (quoted.prompts, result.options.prompts)
        && quoted_value != sent
    {
        result.warn(
            line,
            WarningSubject::Identity,
            format!("the text says {quoted_value} prompts, but {sent} were requested"),
        );
    }
    if let (Some(quoted_value), Some(sent)) = (quoted.seed, result.options.seed)
        && quoted_value != sent
    {
        result.warn(
            line,
            WarningSubject::Identity,
            format!("the text says seed {quoted_value}, but the client used {sent}"),
        );
    }
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
