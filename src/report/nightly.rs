//! Reports of a nightly run: Markdown, JUnit, GitHub annotations, a chat message.

use std::collections::BTreeSet;

use super::markdown::escape;
use super::table::single_line;
use crate::base::ids::CellKey;
use crate::results::record::nightly::{Finding, FindingKind, NightlyRun};

/// The nightly run as Markdown: its findings, one line each.
pub(crate) fn markdown(night: &NightlyRun) -> String {
    let mut text = format!("# {}: {}\n\n", escape(&night.matrix), headline(night));
    let baseline_text = night.baseline.as_ref().map_or_else(
        || "no baseline: set one with `matrix baseline set`".to_owned(),
        |run| format!("baseline `{run}`"),
    );
    text.push_str(&format!(
        "Run `{}`, ended {}, {baseline_text}.\n",
        night.run, night.at
    ));
    if let Some(upgrade) = &night.upgrade {
        text.push_str(&format!("\n{}\n", escape(upgrade)));
    }
    if !night.findings.is_empty() {
        text.push_str("\n| | cell | finding |\n| --- | --- | --- |\n");
    }
    for line in finding_lines(night) {
        text.push_str(&format!(
            "| {} | {} | {} |\n",
            bold_kind(line.kind),
            escape(&line.cells),
            escape(&line.text)
        ));
    }
    text
}

/// One or several findings in one line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FindingLine {
    pub(crate) kind: FindingKind,
    pub(crate) cells: String,
    pub(crate) text: String,
}

/// The findings, one line each; cells that were not judged for the same reason share a line.
pub(crate) fn finding_lines(night: &NightlyRun) -> Vec<FindingLine> {
    let mut lines: Vec<(FindingKind, Vec<&str>, &str)> = Vec::new();
    for finding in &night.findings {
        let cell = finding.cell.as_ref().map_or("all", CellKey::as_str);
        let is_alike = |(kind, _, text): &&mut (FindingKind, Vec<&str>, &str)| {
            *kind == FindingKind::NotJudged && *kind == finding.kind && *text == finding.text
        };
        match lines.iter_mut().find(is_alike) {
            Some((_, cells, _)) => cells.push(cell),
            None => lines.push((finding.kind, vec![cell], &finding.text)),
        }
    }
    let line = |(kind, cells, text): (FindingKind, Vec<&str>, &str)| FindingLine {
        kind,
        cells: match cells.as_slice() {
            [cell] => (*cell).to_owned(),
            [first, ..] => format!("{} cells, such as {first}", cells.len()),
            [] => String::new(),
        },
        text: text.to_owned(),
    };
    lines.into_iter().map(line).collect()
}

fn bold_kind(kind: FindingKind) -> String {
    if kind.is_notified() {
        format!("**{}**", kind.name())
    } else {
        kind.name().to_owned()
    }
}

/// The nightly run in one line. It begins with a missing baseline or the number of metrics that were not judged.
pub(crate) fn headline(night: &NightlyRun) -> String {
    let count = |kind| {
        night
            .findings
            .iter()
            .filter(|finding| finding.kind == kind)
            .count()
    };
    let mut parts = Vec::new();
    match night.judged {
        _ if night.baseline.is_none() => parts.push("no baseline yet".to_owned()),
        Some(judged) if judged.not_judged() > 0 => parts.push(format!(
            "{} of {} metrics not judged",
            judged.not_judged(),
            judged.metrics
        )),
        _ => {}
    }
    let kinds = [
        (FindingKind::Worse, "worse"),
        (FindingKind::Failed, "failed"),
        (FindingKind::Missing, "missing"),
        (FindingKind::Invalid, "invalid"),
        (FindingKind::Environment, "changed in the environment"),
        (FindingKind::Undecided, "suspected and undecided"),
        (FindingKind::Unconfirmed, "suspected and not confirmed"),
        (FindingKind::Better, "better"),
    ];
    let counts = kinds.map(|(kind, word)| (count(kind), word));
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    parts.extend(counts.map(|(count, word)| format!("{count} {word}")));
    let is_doubt = |finding: &&Finding| finding.kind == FindingKind::Unclear && finding.figure.is_none();
    let doubts = night.findings.iter().filter(is_doubt).count();
    parts.extend(
        (doubts > 0).then(|| format!("{doubts} possibly random changes in the number of failed requests")),
    );
    let is_quiet = count(FindingKind::Worse) == 0 && night.baseline.is_some();
    match night.judged {
        None if parts.is_empty() => "nothing got worse".to_owned(),
        Some(judged) if is_quiet && judged.judged > 0 && judged.undecided == 0 && judged.unclear == 0 => {
            let judged = format!("nothing got worse in {} judged metrics", judged.judged);
            parts.push(judged);
            parts.join(", ")
        }
        Some(judged) if judged.unclear > 0 => {
            let shown = judged.visible_loss_share.map_or_else(String::new, |loss| {
                format!("; the smallest detectable loss is {:.1} %", loss * 100.0)
            });
            parts.push(format!(
                "{} judged: {} unclear{shown}",
                judged.judged, judged.unclear
            ));
            parts.join(", ")
        }
        _ => parts.join(", "),
    }
}

/// The nightly run as JUnit XML with a case for each cell. A case fails if something got worse, failed or is
/// invalid. It is skipped if the cell was not judged or if a suspected loss stayed undecided.
pub(crate) fn junit(night: &NightlyRun) -> String {
    let whole: Vec<&Finding> = night
        .findings
        .iter()
        .filter(|finding| finding.cell.is_none())
        .collect();
    let (mut cases, mut failures, mut errors, mut skipped) = (String::new(), 0, 0, 0);
    let finding_cells = night.findings.iter().filter_map(|finding| finding.cell.as_ref());
    let cells: BTreeSet<&CellKey> = night.cells.keys().chain(finding_cells).collect();
    for cell in &cells {
        let is_of = |finding: &&Finding| finding.cell.as_ref() == Some(*cell);
        let findings: Vec<&Finding> = night.findings.iter().filter(is_of).collect();
        let gravest = findings.iter().map(|finding| finding.kind).min();
        let message = findings
            .iter()
            .map(|finding| finding.text.as_str())
            .collect::<Vec<_>>()
            .join("; ");
        let inner = match gravest {
            Some(FindingKind::Worse) => {
                failures += 1;
                format!("<failure type=\"worse\" message=\"{}\"/>", escape_xml(&message))
            }
            Some(kind @ (FindingKind::Failed | FindingKind::Missing | FindingKind::Invalid)) => {
                errors += 1;
                let kind = kind.name();
                format!("<error type=\"{kind}\" message=\"{}\"/>", escape_xml(&message))
            }
            Some(kind @ (FindingKind::Environment | FindingKind::Undecided | FindingKind::NotJudged)) => {
                skipped += 1;
                format!("<skipped message=\"{}: {}\"/>", kind.name(), escape_xml(&message))
            }
            Some(_) => format!("<system-out>{}</system-out>", escape_xml(&message)),
            None => String::new(),
        };
        cases.push_str(&format!(
            "    <testcase classname=\"{}\" name=\"{}\">{inner}</testcase>\n",
            escape_xml(&night.matrix),
            escape_xml(cell.as_str())
        ));
    }
    let out: String = whole
        .iter()
        .map(|finding| format!("{}\n", escape_xml(&finding.text)))
        .collect();
    let count = cells.len();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"{name}\" tests=\"{count}\" failures=\"{failures}\" \
         errors=\"{errors}\" skipped=\"{skipped}\" timestamp=\"{at}\">\n{cases}    <system-out>{out}</system-out>\n  </testsuite>\n</testsuites>\n",
        name = escape_xml(&night.matrix),
        at = escape_xml(&night.at),
    )
}

/// Escapes text for XML, in an attribute or an element.
fn escape_xml(text: &str) -> String {
    single_line(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Annotations that GitHub's runner reads from stdout: an error for each finding that is worse, failed,
/// missing or invalid, a warning for other news and for undecided findings.
///
/// Source: docs.github.com, "Workflow commands for GitHub Actions": `%`, line ends and, in properties, `:`
/// and `,` are escaped.
pub(crate) fn annotations(night: &NightlyRun) -> String {
    let mut text = String::new();
    let is_told = |finding: &&Finding| finding.kind.is_notified() || finding.kind == FindingKind::Undecided;
    for finding in night.findings.iter().filter(is_told) {
        let level = match finding.kind {
            FindingKind::Worse | FindingKind::Failed | FindingKind::Missing | FindingKind::Invalid => "error",
            _ => "warning",
        };
        let cell = finding.cell.as_ref().map_or("all cells", CellKey::as_str);
        let message = single_line(&format!("{cell}: {}", finding.text)).replace('%', "%25");
        let title = format!("{}: {}", night.matrix, finding.kind.name());
        let title = single_line(&title)
            .replace('%', "%25")
            .replace(':', "%3A")
            .replace(',', "%2C");
        text.push_str(&format!("::{level} title={title}::{message}\n"));
    }
    text
}

/// A message in the format of Slack's incoming webhooks; other services read its `text`. `over` is the number
/// of earlier findings that no longer hold.
pub(crate) fn message(night: &NightlyRun, over: usize) -> serde_json::Value {
    let mut lines = vec![format!("*{}*: {}", escape_slack(&night.matrix), headline(night))];
    for finding in night.findings.iter().filter(|finding| finding.kind.is_notified()) {
        let cell = finding.cell.as_ref().map_or("all", CellKey::as_str);
        lines.push(format!(
            "• {} `{}`: {}",
            finding.kind.name(),
            escape_slack(cell),
            escape_slack(&finding.text)
        ));
    }
    if over > 0 {
        lines.push(format!("resolved: {over} earlier findings"));
    }
    lines.push(format!("run `{}`", escape_slack(night.run.as_str())));
    let text = lines.join("\n");
    serde_json::json!({
        "text": text,
        "blocks": [{ "type": "section", "text": { "type": "mrkdwn", "text": shorten(&text) } }],
    })
}

/// Slack accepts at most 3000 characters in a block.
fn shorten(text: &str) -> String {
    const MAX_CHARS: usize = 2900;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Escapes `&`, `<` and `>`. Source: api.slack.com, "Formatting text".
fn escape_slack(text: &str) -> String {
    single_line(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::base::ids::RunId;
    use crate::results::record::nightly::{JudgedCounts, NightlyCell};

    fn night() -> NightlyRun {
        let cell = || NightlyCell {
            prompts: None,
            origin: None,
            engine: BTreeMap::new(),
            figures: BTreeMap::new(),
        };
        let finding = |kind, key: Option<&str>, text: &str| Finding {
            kind,
            cell: key.map(CellKey::new),
            figure: None,
            text: text.to_owned(),
        };
        NightlyRun {
            format: 1,
            at: "2026-01-02T03:04:05Z".to_owned(),
            run: RunId::new("m-1"),
            matrix: "m".to_owned(),
            baseline: Some(RunId::new("m-0")),
            machine: BTreeMap::new(),
            cells: ["model=a", "model=b<&\">", "model=c", "model=d", "model=f"]
                .map(|key| (CellKey::new(key), cell()))
                .into(),
            judged: Some(JudgedCounts {
                metrics: 6,
                judged: 1,
                undecided: 1,
                ..JudgedCounts::default()
            }),
            upgrade: None,
            findings: vec![
                finding(FindingKind::NotJudged, Some("model=d"), "driver: 550 → 560"),
                finding(FindingKind::NotJudged, Some("model=f"), "driver: 550 → 560"),
                finding(FindingKind::Missing, Some("model=e"), "it was not measured"),
                finding(FindingKind::Worse, Some("model=a"), "output throughput -6.0 %"),
                finding(
                    FindingKind::Invalid,
                    Some("model=b<&\">"),
                    "client-late\n::error::",
                ),
                finding(FindingKind::Environment, None, "driver: 550 → 560, 100%"),
                finding(
                    FindingKind::Undecided,
                    Some("model=c"),
                    "mean TPOT: +6.0 %; neither confirmed nor refuted",
                ),
            ],
        }
    }

    #[test]
    fn junit_fails_what_got_worse_failed_or_is_invalid_and_skips_what_was_not_judged() {
        insta::assert_snapshot!(junit(&night()));
    }

    #[test]
    fn annotations_cannot_be_broken_out_of() {
        insta::assert_snapshot!(annotations(&night()));
    }

    #[test]
    fn the_page_and_the_message_tell_the_same() {
        let message = message(&night(), 2);
        insta::assert_snapshot!(format!(
            "{}\n---\n{}",
            markdown(&night()),
            message["text"].as_str().unwrap()
        ));
        assert_eq!(message["blocks"][0]["text"]["type"], "mrkdwn");
    }

    #[test]
    fn a_quiet_night_says_so() {
        let upgraded = NightlyRun {
            upgrade: Some(
                "upgrade of sim: no (time to ready got worse: +282.3 %), see upgrade.html".to_owned(),
            ),
            ..night()
        };
        assert!(
            markdown(&upgraded).contains(
                "baseline `m-0`.\n\nupgrade of sim: no (time to ready got worse: +282.3 %), see upgrade.html\n\n| |"
            ),
            "{}",
            markdown(&upgraded)
        );
        let quiet = NightlyRun {
            findings: Vec::new(),
            judged: Some(JudgedCounts {
                metrics: 24,
                judged: 24,
                undecided: 0,
                ..JudgedCounts::default()
            }),
            ..night()
        };
        assert_eq!(headline(&quiet), "nothing got worse in 24 judged metrics");
        assert_eq!(annotations(&quiet), "");
        let wide = NightlyRun {
            judged: Some(JudgedCounts {
                metrics: 24,
                judged: 24,
                unclear: 2,
                visible_loss_share: Some(0.081),
                ..JudgedCounts::default()
            }),
            ..quiet.clone()
        };
        assert_eq!(
            headline(&wide),
            "24 judged: 2 unclear; the smallest detectable loss is 8.1 %"
        );
        let older = NightlyRun {
            judged: None,
            ..quiet.clone()
        };
        assert_eq!(headline(&older), "nothing got worse");
        let first = NightlyRun {
            baseline: None,
            ..older
        };
        assert_eq!(headline(&first), "no baseline yet");
        let partly = NightlyRun {
            judged: Some(JudgedCounts {
                metrics: 24,
                judged: 21,
                undecided: 0,
                ..JudgedCounts::default()
            }),
            ..quiet
        };
        assert_eq!(
            headline(&partly),
            "3 of 24 metrics not judged, nothing got worse in 21 judged metrics"
        );
    }
}
