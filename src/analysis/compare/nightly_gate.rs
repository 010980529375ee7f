//! Compares a nightly run with the baseline: suspected losses, confirmations and other findings.

use std::collections::{BTreeMap, BTreeSet};

use super::between::{self, Between, Past};
use super::confirmation_budget::Granted;
use super::decision::{Answer, EQUIVALENCE_LEVEL, Gap, KnownNoise, Question};
use super::environment_diff::{self, Difference, Kind};
use super::gate_policy::{self, Asked, Confirmed, Policy};
use super::verdict::Verdict;
use super::{gates, machines, pairwise, question, reliability, stored, verdict};
use crate::analysis::metrics::Metric;
use crate::base::ids::CellKey;
use crate::results::record::cell_stats::{Cause, Excluded, Noise, Side, SideCell};
use crate::results::record::night::{Finding, FindingKind, Judged, Night, NightCell};

/// Result of the screening of a nightly run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Look {
    /// Size of the family of tests: gating metrics that could be judged or were suspected.
    pub family: usize,
    pub suspects: Vec<Suspected>,
    /// Findings that need no fresh starts.
    pub findings: Vec<Finding>,
    /// Number of gating metrics of the baseline and of the night.
    pub metrics: usize,
    /// Number of metrics with a verdict without fresh starts.
    pub judged: usize,
    /// Judged metrics that may hide a loss.
    pub unclear: Unclear,
}

/// Number of metrics that may hide a loss.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Unclear {
    count: usize,
    /// The largest of their smallest visible losses, as a share.
    visible_loss: Option<f64>,
}

impl Unclear {
    /// Adds an answer and returns a finding if it may hide a loss of the size that must be found. `visible`
    /// is its smallest visible loss.
    fn finding(
        &mut self,
        cell: &CellKey,
        metric: Metric,
        answer: &Answer,
        policy: &Policy,
        visible: Option<f64>,
    ) -> Option<Finding> {
        if !answer.may_hide(policy.loss) {
            return None;
        }
        self.count += 1;
        self.visible_loss = [self.visible_loss, visible]
            .into_iter()
            .flatten()
            .reduce(f64::max);
        let estimate = answer.estimate?;
        let interval = estimate.interval(EQUIVALENCE_LEVEL)?;
        let share = |share: f64| format!("{:+.1} %", share * 100.0);
        let shown = visible.map_or_else(String::new, |loss| {
            format!("; it would have shown a loss of {:.1} % or more", loss * 100.0)
        });
        let text = format!(
            "{} {}, 90 % interval {} to {}, may hide a loss of {:.1} %{shown}",
            metric.label(),
            share(estimate.change()),
            share(interval.low),
            share(interval.high),
            policy.loss * 100.0,
        );
        Some(finding(FindingKind::Unclear, Some(cell), Some(metric), text))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Suspected {
    pub cell: CellKey,
    pub baseline: CellKey,
    pub metric: Metric,
    /// Fresh starts per side that decide.
    pub starts: u32,
    /// Loss in this night, as a difference of logarithms above zero. 0 if only the series raised the
    /// suspicion.
    pub loss: f64,
    pub why: String,
    /// Remarks for the finding, as the end of a sentence.
    pub remarks: String,
    pub noise: Option<KnownNoise>,
    /// The question of the night's own starts, for a candidate whose baseline cannot be started.
    question: Question,
    between: Option<Between>,
}

#[cfg(test)]
impl Suspected {
    /// Returns a suspected loss of this size, which needs this number of starts.
    pub(super) fn of(cell: &str, starts: u32, loss: f64) -> Self {
        let sample = |logs: &[f64]| super::decision::Sample {
            logs: logs.to_vec(),
            ..super::decision::Sample::default()
        };
        Self {
            cell: CellKey::new(cell),
            baseline: CellKey::new(cell),
            metric: Metric::Throughput(crate::analysis::metrics::Flow::Output),
            starts,
            loss,
            why: "-6.0 % against the baseline".to_owned(),
            remarks: String::new(),
            noise: None,
            question: Question {
                better: crate::analysis::metrics::Better::Higher,
                baseline: sample(&[0.0, 0.005, -0.005]),
                candidate: sample(&[-loss; 3]),
                design: super::decision::Design::Separate,
                noise: None,
                between: None,
                gap: None,
            },
            between: None,
        }
    }
}

pub(super) fn finding(
    kind: FindingKind,
    cell: Option<&CellKey>,
    metric: Option<Metric>,
    text: impl Into<String>,
) -> Finding {
    Finding {
        kind,
        cell: cell.cloned(),
        figure: metric.map(Metric::name),
        text: text.into(),
    }
}

/// Two cells that form a pair, and the reason that they cannot be judged, if any.
pub(super) struct Pair<'a> {
    pub(super) key: &'a CellKey,
    pub(super) baseline: &'a CellKey,
    pub(super) one: &'a SideCell,
    pub(super) two: &'a SideCell,
    pub(super) gap: Option<Gap>,
}

/// Computes what is known before any metric is compared: findings, pairs of cells, and the number of gating
/// metrics.
pub(super) fn begin<'a>(baseline: &'a Side, tonight: &'a Side) -> (Look, Vec<Pair<'a>>) {
    let mut look = Look::default();
    let events = environment_diff::of_sides(baseline, tonight);
    let events: Vec<&Difference> = events
        .iter()
        .filter(|event| event.kind == Kind::Environment)
        .collect();
    for event in &events {
        let text = format!("{}; no verdicts until `matrix baseline accept`", event.told());
        look.findings
            .push(finding(FindingKind::Environment, None, None, text));
    }
    look.findings.extend(failures(tonight));
    let matched = pairwise::pairs(baseline, tonight);
    look.findings
        .extend(reliability::failures(&matched).into_iter().map(|failure| {
            let kind = match failure.is_regression {
                true => FindingKind::Worse,
                false => FindingKind::Unclear,
            };
            finding(kind, Some(&failure.cell), None, failure.text)
        }));
    let is_new = |key: &CellKey| !matched.iter().any(|(paired, ..)| *paired == key);
    for (key, cell) in tonight.cells.iter().filter(|(key, _)| is_new(key)) {
        look.metrics += cell.gates.len();
        if cell.refused().is_none() {
            let text = "it is not in the baseline; `matrix baseline accept` takes it up";
            look.findings
                .push(finding(FindingKind::NotJudged, Some(key), None, text));
        }
    }
    let is_lost = |cell: &SideCell| !matched.iter().any(|(_, paired, _)| std::ptr::eq(*paired, cell));
    for (key, cell) in baseline.cells.iter().filter(|(_, cell)| is_lost(cell)) {
        look.metrics += cell.gates.len();
        let text = "the baseline has it, and it was not measured; `matrix baseline accept` drops it";
        look.findings
            .push(finding(FindingKind::Missing, Some(key), None, text));
    }
    let of_baseline = |one: &SideCell| {
        let known = baseline.cells.iter().find(|(_, cell)| std::ptr::eq(*cell, one));
        known.map(|(key, _)| key)
    };
    let pairs: Vec<Pair<'a>> = matched
        .iter()
        .map(|(key, one, two)| Pair {
            key,
            baseline: of_baseline(one).unwrap_or(key),
            one,
            two,
            gap: forbidden(one, two, &events),
        })
        .collect();
    look.metrics += pairs.iter().map(|pair| pair.two.gates.len()).sum::<usize>();
    (look, pairs)
}

/// Screens every gating metric of `tonight` against the baseline and earlier nights.
pub(crate) fn look(
    baseline: &Side,
    tonight: &Side,
    nights: &[Night],
    noise: Option<&Noise>,
    policy: &Policy,
) -> Look {
    let (mut look, pairs) = begin(baseline, tonight);
    let mut asked = Vec::new();
    for pair in &pairs {
        for metric in pair.two.gates.iter().filter_map(|name| Metric::of_name(name)) {
            let metric = gates::of_pair(metric, pair.one, pair.two);
            let known = noise.and_then(|noise| stored::known(noise, pair.key, &metric.name()));
            let mut question = question::of_cells(pair.one, pair.two, metric, known);
            question.gap = question.gap.or_else(|| pair.gap.clone());
            let past = past(nights, baseline, tonight, pair.key, metric);
            asked.push((pair, metric, Asked { question, past }));
        }
    }
    let questions: Vec<Asked> = asked.iter().map(|(.., asked)| asked.clone()).collect();
    let screened = gate_policy::screen(&questions, policy);
    look.family = screened.iter().filter(|one| one.is_tested()).count();
    for ((pair, metric, asked), screened) in asked.into_iter().zip(screened) {
        let verdict = screened.answer.verdict();
        match (screened.suspicion, screened.answer.outcome.gap()) {
            (Some(suspicion), _) => look.suspects.push(Suspected {
                cell: pair.key.clone(),
                baseline: pair.baseline.clone(),
                metric,
                starts: u32::try_from(suspicion.starts).unwrap_or(u32::MAX),
                loss: suspicion.loss,
                why: suspicion.why,
                remarks: remarks(pair.one, pair.two, metric),
                noise: suspicion.noise,
                question: asked.question,
                between: screened.between,
            }),
            // Failures are reported separately.
            (None, Some(_)) if pair.two.refused().is_some() => {}
            (None, Some(gap)) => look.findings.push(finding(
                FindingKind::NotJudged,
                Some(pair.key),
                Some(metric),
                gap.reason(),
            )),
            (None, None) => {
                look.judged += 1;
                let visible = policy.visible_loss(&screened.answer);
                let unclear = look
                    .unclear
                    .finding(pair.key, metric, &screened.answer, policy, visible);
                look.findings.extend(unclear);
                if verdict == Some(Verdict::Better) && screened.between.is_some() {
                    let text = format!("{}: {}", metric.label(), screened.answer.reason());
                    look.findings
                        .push(finding(FindingKind::Better, Some(pair.key), Some(metric), text));
                }
            }
        }
    }
    look
}

/// Returns the findings about failed and invalid cells, whatever they are compared with. Cells with some
/// valid starts are included.
pub(crate) fn failures(tonight: &Side) -> Vec<Finding> {
    let mut found = Vec::new();
    for (key, cell) in &tonight.cells {
        if let Some((cause, reason)) = cell.refused() {
            let kind = match cause {
                Cause::NotMeasured => FindingKind::Missing,
                Cause::Failed => FindingKind::Failed,
                Cause::Invalid => FindingKind::Invalid,
            };
            found.push(finding(kind, Some(key), None, reason));
            continue;
        }
        for (cause, kind) in [
            (Cause::NotMeasured, FindingKind::Missing),
            (Cause::Failed, FindingKind::Failed),
            (Cause::Invalid, FindingKind::Invalid),
        ] {
            let of_cause: Vec<&Excluded> = cell
                .excluded
                .iter()
                .filter(|excluded| excluded.cause == cause)
                .collect();
            let starts: BTreeSet<u32> = of_cause.iter().map(|excluded| excluded.start).collect();
            if let Some(first) = of_cause.first() {
                let text = format!("{} of its starts, the first: {}", starts.len(), first.reason);
                found.push(finding(kind, Some(key), None, text));
            }
        }
    }
    found
}

/// Says why a pair cannot be judged, whatever its metrics are.
fn forbidden(one: &SideCell, two: &SideCell, events: &[&Difference]) -> Option<Gap> {
    if let Some((cause, reason)) = one.refused() {
        let why = format!("the baseline holds nothing of it: {}: {reason}", cause.name());
        return Some(Gap::Missing(why));
    }
    let own = environment_diff::of_cells(one, two);
    let of_cell = own.iter().filter(|difference| difference.kind.forbids());
    let told: Vec<String> = events
        .iter()
        .copied()
        .chain(of_cell)
        .map(Difference::told)
        .collect();
    match told.is_empty() {
        false => Some(Gap::NotComparable(told.join("; "))),
        true => environment_diff::unknown(one, two).map(Gap::NotComparable),
    }
}

/// Returns the metric on earlier nights with the same machine and prompts. Nights on which it was found worse
/// are left out. Series 0 is that of the present baseline.
fn past(nights: &[Night], baseline: &Side, tonight: &Side, key: &CellKey, metric: Metric) -> Vec<Past> {
    let Some(cell) = tonight.cells.get(key) else {
        return Vec::new();
    };
    let name = metric.name();
    let is_loss = |finding: &Finding| {
        finding.kind == FindingKind::Worse
            && finding.cell.as_ref() == Some(key)
            && finding.figure.as_ref().is_none_or(|figure| *figure == name)
    };
    let alike = nights.iter().filter(|night| {
        night.matrix == tonight.matrix
            && machines::shares_noise(&night.machine, &tonight.machine)
            && !night.findings.iter().any(is_loss)
    });
    let mut baselines = vec![Some(&baseline.run)];
    let of_night = |night: &&Night| {
        let past = night.cells.get(key)?;
        let logs = verdict::logs(past.figures.get(&name)?)?;
        (past.prompts == cell.prompts).then_some(logs)
    };
    let mut found = Vec::new();
    for (night, logs) in alike.filter_map(|night| Some((night, of_night(&night)?))) {
        let of = night.baseline.as_ref();
        let series = baselines
            .iter()
            .position(|known| *known == of)
            .unwrap_or_else(|| {
                baselines.push(of);
                baselines.len() - 1
            });
        found.push(Past { logs, series });
    }
    found
}

/// The fresh starts of a suspected loss.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fresh {
    /// Baseline and candidate alternated.
    Alternated(Question),
    /// Only the candidate could be started. Holds its fresh starts, and the reason.
    Alone(Question, String),
    None,
}

/// Decides the suspected losses by fresh starts and counts the judged metrics. `fresh` and `granted` say what
/// was started.
pub(crate) fn decide(
    look: &Look,
    fresh: &[Fresh],
    policy: &Policy,
    granted: &BTreeMap<CellKey, Granted>,
) -> (Vec<Finding>, Judged) {
    let questions: Vec<Question> = look
        .suspects
        .iter()
        .zip(fresh)
        .map(|(suspect, fresh)| match fresh {
            Fresh::Alternated(question) => question.clone(),
            Fresh::Alone(question, _) => suspect.alone(question),
            Fresh::None => Question {
                gap: Some(Gap::Missing("nothing was started afresh".to_owned())),
                ..suspect.question.clone()
            },
        })
        .collect();
    let answers = gate_policy::confirm(&questions, look.family, policy);
    let mut judged = Judged {
        metrics: look.metrics,
        judged: look.judged,
        undecided: 0,
        unclear: look.unclear.count,
        visible_loss_share: look.unclear.visible_loss,
    };
    let told = look.suspects.iter().zip(fresh).zip(answers);
    let findings = told.map(|((suspect, fresh), answer)| {
        let kind = match Confirmed::of(&answer) {
            Confirmed::Worse => FindingKind::Worse,
            Confirmed::Refuted => FindingKind::Unconfirmed,
            Confirmed::Undecided => FindingKind::Undecided,
        };
        match kind {
            FindingKind::Undecided => judged.undecided += 1,
            _ => judged.judged += 1,
        }
        let text = suspect.told(fresh, &answer, granted.get(&suspect.cell));
        finding(kind, Some(&suspect.cell), Some(suspect.metric), text)
    });
    let findings = findings.collect();
    (findings, judged)
}

impl Suspected {
    /// Builds the question that compares the candidate's fresh starts with the starts of the baseline, which
    /// was measured on another night.
    fn alone(&self, fresh: &Question) -> Question {
        let between = self.between.and_then(|between| between::of_two(between.largest));
        let gap = match self.between {
            Some(_) => fresh.gap.clone(),
            None => Some(Gap::Missing(
                "five nights of history would tell how much nights differ".to_owned(),
            )),
        };
        Question {
            between,
            gap,
            ..fresh.clone()
        }
    }

    /// Returns the question with these fresh starts of the candidate.
    pub(crate) fn against(&self, fresh: &SideCell) -> Question {
        match question::sample(fresh, self.metric) {
            Ok(candidate) => Question {
                candidate,
                noise: self.noise,
                ..self.question.clone()
            },
            Err(why) => Question {
                gap: Some(Gap::Missing(why)),
                ..self.question.clone()
            },
        }
    }

    fn told(&self, fresh: &Fresh, answer: &Answer, granted: Option<&Granted>) -> String {
        let label = self.metric.label();
        let short = granted.and_then(|granted| granted.short());
        let short = short.map_or(String::new(), |why| format!(" ({why})"));
        if *fresh == Fresh::None {
            return format!(
                "{label}: {}; neither confirmed nor refuted: it takes {} fresh starts, and 0 count{short}",
                self.why, self.starts
            );
        }
        let how = match fresh {
            Fresh::Alone(_, why) => format!(", of the candidate alone, since {why}"),
            _ => String::new(),
        };
        let values = match answer.estimate {
            None => format!("{label}:"),
            Some(estimate) => format!(
                "{label} {} by {} fresh starts{how}:",
                gate_policy::percent(estimate.log_change),
                answer.starts[1]
            ),
        };
        let undecided = match Confirmed::of(answer) {
            Confirmed::Undecided => format!("; neither confirmed nor refuted{short}"),
            _ => String::new(),
        };
        format!(
            "{values} {}{undecided}; suspected for {}{}",
            answer.reason(),
            self.why,
            self.remarks
        )
    }
}

/// Returns the remarks for a finding: differences of the engines, and suspect measurements.
fn remarks(one: &SideCell, two: &SideCell, metric: Metric) -> String {
    let mut words = String::new();
    let differs = environment_diff::engines_in_words(one, two);
    if !differs.is_empty() {
        words.push_str(&format!("; what differs: {differs}"));
    }
    let sides = [("baseline", one), ("candidate", two)];
    let doubts = sides
        .map(|(side, cell)| pairwise::suspect(side, cell, metric))
        .concat();
    let doubts: Vec<String> = doubts.iter().map(ToString::to_string).collect();
    if !doubts.is_empty() {
        words.push_str(&format!("; suspect: {}", doubts.join("; ")));
    }
    words
}

/// A metric of a cell that was measured in turn with its baseline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pairing<'a> {
    pub cell: &'a CellKey,
    pub baseline: &'a CellKey,
    pub metric: Metric,
    pub noise: Option<KnownNoise>,
}

/// Judges a nightly run in which the baseline was started in turn with every cell. `ask` returns the question
/// for a metric, or the reason that there is none.
pub(crate) fn paired(
    baseline: &Side,
    tonight: &Side,
    noise: Option<&Noise>,
    policy: &Policy,
    ask: &dyn Fn(&Pairing<'_>) -> Result<Question, String>,
) -> (Vec<Finding>, Judged) {
    let (look, pairs) = begin(baseline, tonight);
    let mut findings = look.findings;
    let mut asked = Vec::new();
    for pair in pairs.iter().filter(|pair| pair.two.refused().is_none()) {
        for metric in pair.two.gates.iter().filter_map(|name| Metric::of_name(name)) {
            let metric = gates::of_pair(metric, pair.one, pair.two);
            let pairing = Pairing {
                cell: pair.key,
                baseline: pair.baseline,
                metric,
                noise: noise.and_then(|noise| stored::known(noise, pair.key, &metric.name())),
            };
            match ask(&pairing) {
                Ok(question) => asked.push((pairing, question, remarks(pair.one, pair.two, metric))),
                Err(why) => findings.push(finding(FindingKind::NotJudged, Some(pair.key), Some(metric), why)),
            }
        }
    }
    let questions: Vec<Question> = asked.iter().map(|(_, question, _)| question.clone()).collect();
    let mut judged = Judged {
        metrics: look.metrics,
        ..Judged::default()
    };
    let mut unclear = Unclear::default();
    for ((pairing, _, remarks), answer) in asked.iter().zip(gate_policy::confirm(&questions, 0, policy)) {
        judged.judged += usize::from(answer.verdict().is_some());
        let visible = answer.visible_loss();
        findings.extend(unclear.finding(pairing.cell, pairing.metric, &answer, policy, visible));
        let kind = match answer.verdict() {
            None => FindingKind::NotJudged,
            Some(Verdict::Worse) => FindingKind::Worse,
            Some(Verdict::Better) => FindingKind::Better,
            Some(Verdict::Same | Verdict::Unclear) => continue,
        };
        let text = match kind {
            FindingKind::NotJudged => answer.reason(),
            _ => format!("{}: {}{remarks}", pairing.metric.label(), answer.reason()),
        };
        findings.push(finding(kind, Some(pairing.cell), Some(pairing.metric), text));
    }
    judged.unclear = unclear.count;
    judged.visible_loss_share = unclear.visible_loss;
    (findings, judged)
}

/// Returns the values of each cell that the history stores.
pub(crate) fn kept(tonight: &Side) -> BTreeMap<CellKey, NightCell> {
    let of_cell = |cell: &SideCell| NightCell {
        prompts: cell.prompts.clone(),
        origin: Some(cell.origin),
        engine: cell.engine.clone(),
        figures: cell
            .gates
            .iter()
            .map(|name| (name.clone(), cell.starts(name)))
            .collect(),
    };
    tonight
        .cells
        .iter()
        .map(|(key, cell)| (key.clone(), of_cell(cell)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::decision::{Design, Sample};
    use super::*;

    const GRANTED: Granted = Granted {
        wanted: 3,
        starts: 0,
        is_time: true,
    };

    #[test]
    fn what_a_night_cannot_show_is_told_with_the_loss_that_it_could() {
        let policy = Policy::of_bound(0.02);
        let said = |night_sigma: f64| {
            let night = |at: usize| Past {
                logs: vec![[0.0, 1.0, -1.0, 0.5, -0.5][at % 5] * night_sigma; 5],
                series: 0,
            };
            let sample = |log: f64| Sample {
                logs: vec![log - 0.005, log, log + 0.005, log - 0.003, log + 0.003],
                ..Sample::default()
            };
            let asked = Asked {
                question: Question {
                    baseline: sample(0.0),
                    candidate: sample(-0.03),
                    design: Design::Separate,
                    noise: None,
                    ..Suspected::of("a", 3, 0.06).question
                },
                past: (0..20).map(night).collect(),
            };
            let screened = gate_policy::screen(&[asked], &policy).remove(0);
            assert!(screened.suspicion.is_none(), "{screened:?}");
            let mut unclear = Unclear::default();
            let visible = policy.visible_loss(&screened.answer);
            let output = Metric::Throughput(crate::analysis::metrics::Flow::Output);
            let found = unclear.finding(&CellKey::new("a"), output, &screened.answer, &policy, visible);
            (found, unclear)
        };
        let (found, unclear) = said(0.03);
        let found = found.expect("a loss of 5 % may hide");
        assert_eq!((found.kind, unclear.count), (FindingKind::Unclear, 1));
        assert!(
            found
                .text
                .contains("may hide a loss of 5.0 %; it would have shown a loss of 1"),
            "{}",
            found.text
        );
        assert!(unclear.visible_loss.is_some_and(|loss| loss > 0.1), "{unclear:?}");
    }

    /// Returns the finding about a suspected loss with these fresh starts.
    fn said(fresh: Fresh) -> (FindingKind, String, Judged) {
        let look = Look {
            family: 1,
            metrics: 1,
            suspects: vec![Suspected {
                noise: Some(KnownNoise::measured(0.005, 9.0)),
                ..Suspected::of("a", 3, 0.06)
            }],
            ..Look::default()
        };
        let granted = [(CellKey::new("a"), GRANTED)].into();
        let (mut findings, judged) = decide(&look, &[fresh], &Policy::of_bound(0.02), &granted);
        let found = findings.remove(0);
        (found.kind, found.text, judged)
    }

    fn question(baseline: [f64; 3], candidate: [f64; 3]) -> Question {
        let sample = |logs: [f64; 3]| Sample {
            logs: logs.to_vec(),
            ..Sample::default()
        };
        Question {
            baseline: sample(baseline),
            candidate: sample(candidate),
            design: Design::Rounds,
            noise: Some(KnownNoise::measured(0.005, 9.0)),
            ..Suspected::of("a", 3, 0.06).question
        }
    }

    #[test]
    fn a_suspicion_without_fresh_starts_is_neither_confirmed_nor_refuted() {
        let (kind, text, judged) = said(Fresh::None);
        assert_eq!(kind, FindingKind::Undecided);
        assert_eq!(
            text,
            "output throughput: -6.0 % against the baseline; neither confirmed nor refuted: it takes 3 fresh starts, and 0 count \
             (`--budget` has no room for more)"
        );
        assert_eq!((judged.judged, judged.undecided), (0, 1));
    }

    #[test]
    fn only_a_loss_against_the_baseline_of_the_same_night_is_confirmed() {
        let low = [-0.06, -0.061, -0.059];
        let (kind, text, judged) = said(Fresh::Alternated(question([0.0, 0.001, -0.001], low)));
        assert_eq!(kind, FindingKind::Worse, "{text}");
        assert_eq!((judged.judged, judged.undecided), (1, 0));
        let (kind, text, _) = said(Fresh::Alternated(question([-0.06, -0.06, -0.06], low)));
        assert_eq!(kind, FindingKind::Unconfirmed, "{text}");
        // The baseline of another night, without history of nights.
        let (kind, text, _) = said(Fresh::Alone(
            question([0.0, 0.001, -0.001], low),
            "it is gone".to_owned(),
        ));
        assert_eq!(kind, FindingKind::Undecided, "{text}");
        assert!(
            text.contains("since it is gone") && text.contains("five nights"),
            "{text}"
        );
    }
}
