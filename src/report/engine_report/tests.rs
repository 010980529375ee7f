use super::*;
use crate::report::testing::{Case, report_cells};
use crate::results::record::cell::Phase;

#[test]
fn a_report_has_the_command_and_the_block_of_every_launch() {
    let mut last =
        Case::new("vllm@0.10.1", "bf16", 4, 1.0).with_failure(Phase::Measure, "it died\nunder load");
    last.summaries[0]
        .warnings
        .push("the client <b>was</b> late".to_owned());
    let cases = [
        Case::new("vllm@0.10.1", "bf16", 1, 5000.0)
            .measured_again(5200.0)
            .measured_again(4000.0),
        Case::new("vllm@0.10.1", "fp8", 1, 7000.0),
        last,
    ];
    let machine = Machine {
        cpu: Some("Some CPU".to_owned()),
        gpus: vec!["GPU A".to_owned(), "GPU A".to_owned()],
        memory_bytes: Some(64 << 30),
        tool: "matrix 0.1.0".to_owned(),
        ..Machine::default()
    };
    insta::assert_snapshot!(
        "engine_report",
        engine_report(&report_cells(&cases), Some(&machine))
    );
}

#[test]
fn every_entry_of_the_contents_leads_to_a_heading() {
    let cases = [
        Case::new("vllm", "bf16", 1, 1.0),
        Case::new("vllm", "bf16", 2, 1.0),
        Case::new("vllm", "fp8", 2, 1.0).on_simulated_engine(),
    ];
    let text = engine_report(&report_cells(&cases), None);
    let headings: Vec<String> = text
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| anchor(&line.trim_start_matches('#').replace('\\', "")))
        .collect();
    let links: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_once("](#")?.1.strip_suffix(')'))
        .collect();
    assert_eq!(links.len(), 7);
    for link in links {
        assert_eq!(
            headings.iter().filter(|heading| *heading == link).count(),
            1,
            "{link}"
        );
    }
    assert!(text.contains("**Simulated**"));
    assert!(!text.contains("## Machine"));
}

#[test]
fn a_command_that_differs_in_the_model_alone_is_given_once_for_all() {
    let mut cases = [
        Case::new("vllm", "bf16", 1, 1.0),
        Case::new("vllm", "fp8", 1, 1.0),
    ];
    let text = engine_report(&report_cells(&cases), None);
    assert!(
        text.contains("Serve a model:") && text.contains("serve $MODEL --tp 1\n"),
        "{text}"
    );
    assert_eq!(text.matches("docker pull").count(), 1);
    cases[1].summaries[0].engine.command = Some("another command".to_owned());
    assert!(!engine_report(&report_cells(&cases), None).contains("Serve a model:"));
}

#[test]
fn a_short_model_name_is_replaced_as_a_word_only() {
    assert_eq!(
        without_model("matrix sim --model m --tp 1", "m"),
        "matrix sim --model $MODEL --tp 1"
    );
    assert_eq!(without_model("serve 'a b'", "b"), "serve 'a b'");
}

#[test]
fn no_name_or_message_breaks_out_of_its_place() {
    const EVIL: &str = "evil`|<b>\n# x\n```\n</details>\u{1b}[31m";
    let mut case = Case::new("vllm", "bf16", 1, 1.0).with_failure(Phase::Launch, EVIL);
    case.launch.model = EVIL.to_owned();
    case.launch.checkpoint = EVIL.to_owned();
    case.launch.engine.title = EVIL.to_owned();
    case.cell.scenario.name = EVIL.to_owned();
    case.summaries[0].engine.version = Some(EVIL.to_owned());
    case.summaries[0].engine.command = Some(EVIL.to_owned());
    case.summaries[0].warnings.push(EVIL.to_owned());
    let text = engine_report(&report_cells(&[case]), None);
    assert!(!text.contains('\u{1b}'));
    // Outside of code fences nothing is interpreted as Markdown or HTML.
    let mut fence: Option<&str> = None;
    for line in text.lines() {
        let ticks = &line[..line.len() - line.trim_start_matches('`').len()];
        match fence {
            Some(open) if line == open => fence = None,
            Some(_) => {}
            None if ticks.len() >= 3 => fence = Some(ticks),
            None => assert!(
                !line.contains("<b>") && !line.contains("</details>") && !line.starts_with("# x"),
                "{line}"
            ),
        }
    }
    assert_eq!(fence, None, "every fence is closed");
}

#[test]
fn engines_are_grouped_by_version() {
    let cases = [
        Case::new("vllm@1", "bf16", 1, 1.0),
        Case::new("vllm@2", "bf16", 1, 1.0),
        Case::new("vllm@1", "fp8", 1, 1.0),
    ];
    let cells = report_cells(&cases);
    let groups = group_by_engine(&cells);
    let counts: Vec<(&str, usize)> = groups
        .iter()
        .map(|(name, group)| (&**name, group.len()))
        .collect();
    assert_eq!(counts, [("vllm@1", 2), ("vllm@2", 1)]);
    assert_eq!(engine_report(&[], None), "");
}
