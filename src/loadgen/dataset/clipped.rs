//! How many of the lengths that a distribution gives were clipped.

use super::random::{draw_lengths, draw_unclipped};
use super::rng::Numpy;
use crate::config::dataset::length_distribution::LengthDistribution;
use crate::config::workload::{Profile, Workload};

/// Share of clipped lengths from which on they are reported.
const MIN_SHARE: f64 = 0.01;

/// Says which share of the lengths of a workload was clipped, for prompts and answers. Draws the lengths again, because
/// stored prompts do not hold what was drawn.
pub(super) fn notes(work: &Workload, profile: Profile, seed: u32) -> Vec<String> {
    let facts = work.facts();
    let Some(lengths) = facts.lengths.filter(|lengths| lengths.file.is_none()) else {
        return Vec::new();
    };
    let (Some(drawn), count) = (facts.drawn, work.prompts as usize) else {
        return Vec::new();
    };
    let shortest_output = u32::from(profile == Profile::Current);
    let mut numpy = Numpy::new(seed);
    let mut notes = Vec::new();
    for (side, distribution, longest, shortest) in [
        ("input", lengths.input, drawn.input_len, 1),
        ("output", lengths.output, drawn.output_len, shortest_output),
    ] {
        let Some(longest) = longest else { continue };
        match distribution {
            Some(distribution) => {
                let drawn = draw_unclipped(distribution, count, &mut numpy);
                notes.extend(note(side, distribution, longest, &drawn));
            }
            None => drop(draw_lengths(
                longest,
                drawn.range_ratio,
                shortest,
                count,
                &mut numpy,
            )),
        }
    }
    notes
}

fn note(side: &str, distribution: LengthDistribution, longest: u32, drawn: &[f64]) -> Option<String> {
    let (min, max) = (distribution.min(), longest);
    let share = |is_clipped: &dyn Fn(f64) -> bool| {
        let clipped = drawn.iter().filter(|length| is_clipped(**length)).count();
        clipped as f64 / drawn.len().max(1) as f64
    };
    let [above, below] = [
        share(&|length| length > f64::from(max)),
        share(&|length| length < f64::from(min)),
    ];
    if above + below < MIN_SHARE {
        return None;
    }
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let parts = [
        (above > 0.0).then(|| {
            format!(
                "{} of the drawn lengths were above the maximum of {max} tokens",
                percent(above)
            )
        }),
        (below > 0.0).then(|| {
            format!(
                "{} of the drawn lengths were below the minimum of {min} tokens",
                percent(below)
            )
        }),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    Some(format!(
        "{side} lengths of `{distribution}` were clipped: {}. The lengths in the requests do not follow \
         this distribution; choose a wider range or a smaller spread",
        parts.join(" and ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_clipped_lengths_are_told_from_one_percent_on() {
        let distribution: LengthDistribution = "normal:mean=10,stddev=1,min=8".parse().unwrap();
        let mut drawn = vec![10.0; 100];
        assert_eq!(note("input", distribution, 12, &drawn), None);
        drawn[0] = 13.0;
        drawn[1] = 7.0;
        drawn[2] = 12.0;
        let note = note("input", distribution, 12, &drawn).unwrap();
        assert!(
            note.contains(
                "1.0 % of the drawn lengths were above the maximum of 12 tokens and 1.0 % of the drawn lengths were below the \
                 minimum of 8 tokens"
            ),
            "{note}"
        );
    }
}
