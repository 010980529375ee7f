//! Words and lines for a POSIX shell. Secrets appear as names.

use std::path::Path;

use crate::base::text::is_control;
use crate::config::template::{Template, TemplatePart};
use crate::plan::executor::members::Ports;

/// A command line, split into groups between which a line may break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandLine(pub(crate) Vec<String>);

impl CommandLine {
    /// All on one line.
    pub(crate) fn to_line(&self) -> String {
        self.0.join(" ")
    }

    /// The command on several lines, joined by backslashes.
    pub(crate) fn to_wrapped(&self) -> String {
        self.0.join(" \\\n    ")
    }
}

/// What a command line needs of a launch and its start.
pub(crate) struct LineContext<'a> {
    /// Folder of the matrix file; relative mounts start here.
    pub(crate) folder: Option<&'a Path>,
    pub(crate) port: u16,
    /// The ports of an engine that consists of several processes.
    pub(crate) ports: Ports,
    /// Names of the GPUs.
    pub(crate) devices: Vec<String>,
    /// Number of GPUs that the launch leases.
    pub(crate) gpus: u32,
    /// The command with the arguments for `port`.
    pub(crate) arguments: Vec<Template>,
    /// The container's name, without the suffix of a run.
    pub(crate) name: String,
}

impl LineContext<'_> {
    pub(crate) fn device_list(&self) -> String {
        self.devices.join(",")
    }

    pub(crate) fn quote_all(&self, texts: &[Template]) -> String {
        let words: Vec<String> = texts.iter().map(|text| self.quote(text)).collect();
        words.join(" ")
    }

    /// Formats a word for a POSIX shell.
    pub(crate) fn quote(&self, text: &Template) -> String {
        let expands = |piece: &TemplatePart<'_>| {
            matches!(
                piece,
                TemplatePart::Secret(_) | TemplatePart::Placeholder("hf_home" | "venv" | "dir")
            )
        };
        let pieces = text.parts();
        if !pieces.iter().any(expands) {
            let fill = |name: &str| match name {
                "port" => Some(self.port.to_string()),
                "matrix" => Some("matrix".to_owned()),
                "devices" => Some(self.device_list()),
                _ => None,
            };
            return shell_quote(text.fill_placeholders(&fill).as_str());
        }
        let mut word = String::from("\"");
        for piece in pieces {
            match piece {
                TemplatePart::Literal(plain) => plain.chars().for_each(|c| {
                    if matches!(c, '"' | '\\' | '$' | '`') {
                        word.push('\\');
                    }
                    match escape_control(c) {
                        Some(escape) => word.push_str(&format!("\"$'{escape}'\"")),
                        None => word.push(c),
                    }
                }),
                TemplatePart::Secret(name) => word.push_str(&format!("${{{name}}}")),
                TemplatePart::Placeholder("hf_home") => word.push_str("${HF_HOME:-$HOME/.cache/huggingface}"),
                TemplatePart::Placeholder("venv") => word.push_str("$VIRTUAL_ENV"),
                TemplatePart::Placeholder("dir") => word.push('.'),
                TemplatePart::Placeholder("port") => word.push_str(&self.port.to_string()),
                TemplatePart::Placeholder(name) => word.push_str(name),
            }
        }
        word.push('"');
        word
    }
}

/// Whether the variable's value is the secret of the same name.
pub(crate) fn passes_variable(name: &str, value: &Template) -> bool {
    matches!(value.parts().as_slice(), [TemplatePart::Secret(secret)] if *secret == name)
}

/// Quotes a word for a POSIX shell.
pub(crate) fn shell_quote(word: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(safe) {
        word.to_owned()
    } else if word.chars().any(is_control) {
        let escaped = |c: char| match c {
            '\'' | '\\' => format!("\\{c}"),
            c => escape_control(c).unwrap_or_else(|| c.to_string()),
        };
        format!("$'{}'", word.chars().map(escaped).collect::<String>())
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Escapes a control character for `$'…'`, so that it has no effect on a program that shows the line: CI
/// systems interpret the beginning of lines as commands.
fn escape_control(c: char) -> Option<String> {
    match c {
        '\n' => Some("\\n".to_owned()),
        '\t' => Some("\\t".to_owned()),
        c if c.is_ascii_control() => Some(format!("\\{:03o}", u32::from(c))),
        c if is_control(c) => Some(format!("\\u{:04x}", u32::from(c))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(shell_quote("plain-1.0/x:y"), "plain-1.0/x:y");
        assert_eq!(shell_quote("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(shell_quote(""), "''");
        assert_eq!(
            shell_quote("it's\n::error::\u{1b}\u{202e}\\"),
            r"$'it\'s\n::error::\033\u202e\\'"
        );
    }
}
