//! Our statistics against scipy's, on samples of many sizes, with and without ties.

use matrix::analysis::compare::{multiple_testing, power, t_test};
use matrix::analysis::metrics;
use serde_json::{Value, json};

use crate::harness::{Numbers, SCIPY};

fn sample(numbers: &mut Numbers, n: usize, shift: f64, is_coarse: bool) -> Vec<f64> {
    let coarse = |value: f64| {
        if is_coarse {
            (value * 6.0).round() / 6.0
        } else {
            value
        }
    };
    (0..n).map(|_| coarse(numbers.next() + shift)).collect()
}

fn close(what: &str, ours: f64, theirs: &Value) {
    let theirs = theirs.as_f64().unwrap_or_else(|| panic!("{what}: {theirs}"));
    let bound = 1e-8 * theirs.abs().max(1.0);
    assert!(
        (ours - theirs).abs() <= bound,
        "{what}: ours {ours}, scipy's {theirs}"
    );
}

#[test]
fn tests_intervals_and_adjustments_are_scipys() {
    let mut numbers = Numbers(7);
    let sizes = [(3, 3), (4, 5), (5, 5), (5, 8), (7, 6), (2, 9)];
    let mut cases = Vec::new();
    for (at, (n, m)) in sizes.into_iter().cycle().take(24).enumerate() {
        let shift = [0.0, 0.2, 0.8][at % 3];
        let is_coarse = at % 4 == 3;
        cases.push((
            sample(&mut numbers, n, 0.0, is_coarse),
            sample(&mut numbers, m, shift, is_coarse),
        ));
    }
    let starts: Vec<Vec<f64>> = (0..5)
        .map(|at| sample(&mut numbers, 2 + at % 3, at as f64 / 5.0, false))
        .collect();
    let p = sample(&mut numbers, 20, 0.0, false)
        .iter()
        .map(|value| value * value)
        .collect::<Vec<f64>>();
    let percentiles = json!([[10, 0.5], [100, 0.9], [1000, 0.99], [5000, 0.99], [37, 0.5]]);
    let asked = json!({
        "cases": cases,
        "starts": starts,
        "p": p,
        "percentiles": percentiles,
        "quantiles": [[1, 0.975], [4, 0.95], [9, 0.99986], [28, 0.0001]],
    });
    let Some(actual) = SCIPY.ask("scipy_peer.py", &asked) else {
        crate::skip::skip(SCIPY.skipped);
        return;
    };
    for (at, (first, second)) in cases.iter().enumerate() {
        let theirs = &actual["cases"][at];
        let name = format!("case {at}, {} against {}", first.len(), second.len());
        let difference = t_test::difference(first, second).expect("they are enough");
        close(&format!("{name}: t"), difference.p_two_sided(), &theirs["t"]);
        let interval = difference.interval(0.95);
        close(&format!("{name}: t from"), interval.low, &theirs["t_interval"][0]);
        close(&format!("{name}: t to"), interval.high, &theirs["t_interval"][1]);
    }
    let components = power::variance_components(&starts);
    close(
        "within",
        components.within.expect("there are repeats"),
        &actual["within"],
    );
    close(
        "between",
        components.between.expect("there are starts"),
        &actual["between"],
    );
    for (at, ours) in multiple_testing::holm_adjusted(&p, p.len())
        .into_iter()
        .enumerate()
    {
        close("Holm", ours, &actual["holm"][at]);
    }
    for (at, asked) in percentiles.as_array().expect("it is a list").iter().enumerate() {
        let (n, share) = (
            asked[0].as_u64().expect("a number"),
            asked[1].as_f64().expect("a number"),
        );
        let ours = metrics::order_interval(n as usize, share, 0.95).map(|(low, high)| json!([low, high]));
        assert_eq!(ours.unwrap_or(Value::Null), actual["percentiles"][at], "{asked}");
    }
    for (at, (freedom, chance)) in [(1.0, 0.975), (4.0, 0.95), (9.0, 0.99986), (28.0, 0.0001)]
        .into_iter()
        .enumerate()
    {
        close(
            "quantile of t",
            t_test::quantile(freedom, chance),
            &actual["quantiles"][at],
        );
    }
}
