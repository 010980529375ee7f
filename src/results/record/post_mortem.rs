//! The post-mortem of a failed cell: everything known about the failure, on one page. Pure.

use serde::{Deserialize, Serialize};

use crate::base::ids::CellKey;
use crate::results::record::measurement_status::{FailureClass, Phase};

/// How an engine's process or container ended, as far as known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EngineExitStatus {
    pub(crate) code: Option<i64>,
    /// The signal that ended it.
    pub(crate) signal: Option<i32>,
    /// Whether the kernel killed it because memory ran out; `None` if unknown.
    pub(crate) out_of_memory: Option<bool>,
}

/// An attempt that failed because of the host and was repeated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Retry {
    /// The phase in which it failed.
    pub(crate) phase: Phase,
    pub class: FailureClass,
    pub reason: String,
    /// Pause before the next attempt, in seconds.
    pub(crate) pause_s: f64,
}

/// Messages of the kernel about GPUs and memory during the launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KernelLog {
    /// The lines, oldest first; may be empty.
    Lines(Vec<String>),
    /// The log cannot be read, for this reason.
    Unreadable(String),
}

/// Everything known about a failure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PostMortem {
    pub(crate) cell: CellKey,
    /// Index of the start of the launch, from 1.
    pub(crate) start: u32,
    /// Index of the repeat on that start, from 1.
    pub(crate) repeat: u32,
    pub(crate) phase: Phase,
    pub(crate) class: FailureClass,
    /// What happened, in one sentence.
    pub(crate) reason: String,
    /// Whether the server is attached, so that neither its end nor its log is known.
    pub(crate) is_attached: bool,
    /// How the engine ended, if it did.
    pub(crate) end: Option<EngineExitStatus>,
    /// The attempts before this one.
    pub(crate) retries: Vec<Retry>,
    /// The command that starts the engine.
    pub(crate) command: String,
    /// Digest of the container's image, if it was created.
    pub(crate) image_digest: Option<String>,
    /// GPUs of the launch.
    pub(crate) devices: Vec<u32>,
    /// Messages of the kernel since the launch began.
    pub(crate) kernel: KernelLog,
    /// Last lines of the engine's log.
    pub(crate) log: Vec<String>,
}

impl PostMortem {
    /// The page, as Markdown.
    pub(crate) fn to_markdown(&self) -> String {
        let title = match self.class {
            FailureClass::Validity => "Why this measurement is invalid",
            _ => "Why this cell failed",
        };
        let mut page = format!("# {title}\n\n{}\n\n", one_line(&self.reason));
        let mut add_line = |what: &str, value: &str| page.push_str(&format!("- {what}: {value}\n"));
        add_line(
            "class",
            &format!("{} ({})", self.class.name(), self.class.description()),
        );
        add_line("phase", self.phase.name());
        add_line("cell", &format!("`{}`", one_line(self.cell.as_str())));
        add_line("start, repeat", &format!("{}, {}", self.start, self.repeat));
        self.write_end(&mut add_line);
        add_line("image", self.image_digest.as_deref().unwrap_or("–"));
        let devices: Vec<String> = self.devices.iter().map(u32::to_string).collect();
        add_line(
            "devices",
            match devices.is_empty() {
                true => "none".to_owned(),
                false => devices.join(", "),
            }
            .as_str(),
        );
        add_line("earlier attempts", &self.retries.len().to_string());
        for retry in &self.retries {
            page.push_str(&format!(
                "  - {} in {}, retried after {} s: {}\n",
                retry.class.name(),
                retry.phase.name(),
                retry.pause_s,
                one_line(&retry.reason)
            ));
        }
        page.push_str("\n## How the engine was started\n\n");
        page.push_str(&fenced_block("sh", &self.command));
        page.push_str("\n## Kernel messages about GPUs and memory since the start\n\n");
        match &self.kernel {
            KernelLog::Lines(lines) if lines.is_empty() => page.push_str("Nothing.\n"),
            KernelLog::Lines(lines) => page.push_str(&fenced_block("", &lines.join("\n"))),
            KernelLog::Unreadable(why) => page.push_str(&format!("The kernel log cannot be read: {why}.\n")),
        }
        if self.is_attached {
            page.push_str(
                "\n## The engine's log\n\n`matrix` did not start this engine and cannot read its log.\n",
            );
            return page;
        }
        page.push_str(&format!("\n## The engine's last {} lines\n\n", self.log.len()));
        match self.log.is_empty() {
            true => page.push_str("The log is empty.\n"),
            false => page.push_str(&fenced_block("", &self.log.join("\n"))),
        }
        page
    }

    fn write_end(&self, add_line: &mut impl FnMut(&str, &str)) {
        let Some(end) = self.end else {
            let why = match self.is_attached {
                true => "– (attached server: its exit is not visible)",
                false => "– (the engine was still running)",
            };
            add_line("exit code", why);
            add_line("killed for memory", "–");
            return;
        };
        match (end.code, end.signal) {
            (Some(code), _) => add_line("exit code", &code.to_string()),
            (None, Some(signal)) => add_line("exit code", &format!("– (signal {signal})")),
            (None, None) => add_line("exit code", "– (unknown)"),
        }
        add_line(
            "killed for memory",
            match end.out_of_memory {
                Some(true) => "yes",
                Some(false) => "no",
                None => "– (unknown)",
            },
        );
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns a code block whose fence is longer than every run of backticks in the text, so that the text
/// cannot end it.
fn fenced_block(language: &str, text: &str) -> String {
    let mut longest = 2;
    let mut run = 0;
    for letter in text.chars() {
        run = if letter == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    let fence = "`".repeat(longest + 1);
    format!("{fence}{language}\n{text}\n{fence}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_tells_everything_and_no_log_can_break_it() {
        let page = PostMortem {
            cell: CellKey::new("engine=vllm"),
            start: 1,
            repeat: 2,
            phase: Phase::Measure,
            class: FailureClass::Capacity,
            reason: "the engine ended\nunder load".into(),
            is_attached: false,
            end: Some(EngineExitStatus {
                code: Some(137),
                signal: None,
                out_of_memory: Some(true),
            }),
            retries: vec![Retry {
                phase: Phase::Launch,
                class: FailureClass::Infrastructure,
                reason: "the daemon was away".into(),
                pause_s: 1.0,
            }],
            command: "docker run x".into(),
            image_digest: Some("sha256:00".into()),
            devices: vec![0, 3],
            kernel: KernelLog::Lines(vec!["NVRM: Xid 79".into()]),
            log: vec!["a".into(), "```` b".into()],
        }
        .to_markdown();
        insta::assert_snapshot!(page);
    }

    #[test]
    fn what_nobody_tells_is_a_dash() {
        let mut post_mortem = PostMortem {
            cell: CellKey::new("c"),
            start: 1,
            repeat: 1,
            phase: Phase::Launch,
            class: FailureClass::Spec,
            reason: "no".into(),
            is_attached: false,
            end: None,
            retries: Vec::new(),
            command: String::new(),
            image_digest: None,
            devices: Vec::new(),
            kernel: KernelLog::Unreadable("permission denied".into()),
            log: Vec::new(),
        };
        let page = post_mortem.to_markdown();
        assert!(page.contains("- exit code: –"), "{page}");
        assert!(
            page.contains("The kernel log cannot be read: permission denied."),
            "{page}"
        );
        assert!(page.contains("The log is empty."), "{page}");
        post_mortem.is_attached = true;
        let page = post_mortem.to_markdown();
        assert!(
            page.contains("attached server: its exit is not visible"),
            "{page}"
        );
        assert!(
            !page.contains("was still running") && !page.contains("last 0 lines"),
            "{page}"
        );
    }
}
