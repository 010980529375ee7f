//! Groups questions that share starts: they have a launch in common, on either side.

use std::collections::BTreeMap;

use super::question::MetricQuestion;

/// Returns the group of each question, numbered from 0 without gaps. Two questions are in one group if their
/// baselines or their candidates were measured on the same launch, or if a third question connects them.
pub(crate) fn group_by_launch(questions: &[MetricQuestion]) -> Vec<usize> {
    let mut parents: Vec<usize> = (0..questions.len()).collect();
    let mut seen: BTreeMap<(usize, Option<&str>), usize> = BTreeMap::new();
    for (at, question) in questions.iter().enumerate() {
        for (side, sample) in [&question.baseline, &question.candidate].into_iter().enumerate() {
            let first = *seen.entry((side, sample.launch.as_deref())).or_insert(at);
            let (group, earlier_group) = (root(&mut parents, at), root(&mut parents, first));
            parents[group.max(earlier_group)] = group.min(earlier_group);
        }
    }
    let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
    (0..questions.len())
        .map(|at| {
            let root = root(&mut parents, at);
            let next = numbers.len();
            *numbers.entry(root).or_insert(next)
        })
        .collect()
}

fn root(parents: &mut [usize], mut at: usize) -> usize {
    while parents[at] != at {
        parents[at] = parents[parents[at]];
        at = parents[at];
    }
    at
}

#[cfg(test)]
mod tests {
    use super::super::{Design, Sample};
    use super::*;
    use crate::analysis::metrics::Direction;

    fn question(baseline: Option<&str>, candidate: Option<&str>) -> MetricQuestion {
        let sample = |launch: Option<&str>| Sample {
            launch: launch.map(str::to_owned),
            ..Sample::default()
        };
        MetricQuestion {
            better: Direction::Higher,
            baseline: sample(baseline),
            candidate: sample(candidate),
            design: Design::Separate,
            noise: None,
            night_variance: None,
            no_verdict: None,
        }
    }

    #[test]
    fn questions_with_a_launch_in_common_are_one_group() {
        let questions = [
            question(Some("a"), Some("x")),
            question(Some("b"), Some("y")),
            question(Some("a"), Some("z")),
            question(Some("c"), Some("y")),
            question(Some("x"), Some("b")),
        ];
        assert_eq!(group_by_launch(&questions), [0, 1, 0, 1, 2]);
    }

    #[test]
    fn questions_whose_launch_is_unknown_are_one_group() {
        let questions = [
            question(None, None),
            question(None, None),
            question(Some("a"), Some("a")),
        ];
        assert_eq!(group_by_launch(&questions), [0, 0, 1]);
    }
}
