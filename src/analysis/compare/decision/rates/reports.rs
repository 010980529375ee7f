//! Rates of false verdicts in reports of several engines.

use super::condition::{BOUND, Condition, LAYOUTS, PLAIN, SEED, SIZES, max_count, run_count};
use crate::analysis::compare::decision::synthetic::{SHAPES, SeededRng, Shape};
use crate::analysis::compare::decision::{
    Answer, DecisionOptions, Design, KnownNoise, MetricQuestion, Sample, decide_by_pairs,
};
use crate::analysis::compare::verdict::Verdict;
use crate::analysis::metrics::Direction;

/// Counts runs with a false verdict in a report of several identical engines, in which each cell is compared
/// with that of every other engine.
fn false_reports(shape: Shape, engines: usize, models: usize, condition: &Condition, salt: u64) -> usize {
    let mut rng = SeededRng::new(SEED + salt);
    let terms = DecisionOptions {
        bound: BOUND,
        family: 0,
    };
    let mut reports = 0;
    for _ in 0..run_count() {
        let noise = condition.noise.map(|starts| {
            condition
                .layout
                .starts(&mut rng, shape, condition.sigma, models, starts)
        });
        let drawn: Vec<Vec<Vec<f64>>> = (0..engines)
            .map(|_| {
                let (sigma, starts) = (condition.sigma, condition.starts);
                condition.layout.starts(&mut rng, shape, sigma, models, starts)
            })
            .collect();
        let (mut questions, mut pairs) = (Vec::new(), Vec::new());
        let sample = |engine: usize, model: usize| Sample {
            logs: drawn[engine][model].clone(),
            launch: Some(format!("{engine}/{}", condition.layout.launch(model))),
            ..Sample::default()
        };
        for (one, other) in (0..engines).flat_map(|one| (one + 1..engines).map(move |other| (one, other))) {
            for model in 0..models {
                questions.push(MetricQuestion {
                    better: Direction::Higher,
                    baseline: sample(one, model),
                    candidate: sample(other, model),
                    design: Design::Separate,
                    noise: noise
                        .as_ref()
                        .and_then(|noise| KnownNoise::from_starts(&noise[model])),
                    night_variance: None,
                    no_verdict: None,
                });
                pairs.push((one, other));
            }
        }
        let answers = decide_by_pairs(&questions, &pairs, &terms);
        let is_found = |answer: &Answer| matches!(answer.verdict(), Some(Verdict::Better | Verdict::Worse));
        reports += usize::from(answers.iter().any(is_found));
    }
    reports
}

#[test]
fn reports_of_several_engines_that_do_not_differ_seldom_tell_a_winner() {
    println!(
        "the simulation makes {} runs per condition, with the seed {SEED}",
        run_count()
    );
    let (mut wrong, mut salt) = (Vec::new(), 5000);
    for shape in SHAPES {
        for (starts, noise) in SIZES {
            for (engines, models, layout) in [(3, 8, LAYOUTS[0]), (3, 12, LAYOUTS[2]), (6, 1, LAYOUTS[0])] {
                salt += 1;
                let condition = Condition {
                    starts,
                    noise,
                    layout,
                    ..PLAIN
                };
                let reports = false_reports(shape, engines, models, &condition, salt);
                let name = format!(
                    "simulation with the distribution {shape:?}, {engines} engines, {models} models, {starts} starts, the noise {noise:?} and {} cells per launch",
                    layout.cells
                );
                println!("{name}: {reports} of {} runs", run_count());
                if reports > max_count(0.05, run_count()) {
                    wrong.push(format!("{name}: {reports} runs"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
