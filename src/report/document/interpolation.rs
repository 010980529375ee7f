//! Output per GPU at a given interactivity, between the loads that were measured.

use serde::Serialize;

use super::tradeoffs::{OperatingPoint, Tradeoff};
use crate::analysis::monotone_curve::MonotoneCurve;
use crate::report::table::{Align, Column, MISSING, Mark, Row, Table, Value};
use crate::results::record::validity::Verdict;

/// Fewest starts on both sides for a ratio: the ranges of fewer often lie apart although the engines are equal.
const MIN_STARTS: usize = 5;

/// Most speeds that a table has columns for, besides the one that an SLO demands.
const MAX_SPEEDS: usize = 3;

/// Output of each engine at one interactivity.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Interpolation {
    /// Output tokens per second that one user receives.
    pub(crate) interactivity_tok_s: f64,
    /// Whether the SLO of the scenario demands this speed of each answer.
    pub(crate) is_slo: bool,
    /// Engines whose measured loads lie on both sides of that speed.
    pub(crate) engines: Vec<InterpolatedOutput>,
}

/// Output of one engine between two of its measured loads.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct InterpolatedOutput {
    /// The engine as in `points`.
    pub(crate) engine: String,
    /// Output tokens per second per GPU, or in total (`is_per_gpu`), on a monotone curve through the measured points.
    pub(crate) output_tok_s: f64,
    /// Smallest and largest of the curves through each start, between which the value is; absent with one start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) range_of_starts: Option<[f64; 2]>,
    /// Number of starts of the range; 0 without one.
    pub(crate) starts: usize,
    /// Worst validity verdict of the points on the curve.
    pub(crate) validity: Verdict,
}

/// The curve of one engine with those of its starts.
struct EngineCurve {
    engine: String,
    curve: MonotoneCurve,
    /// Ends of the interactivity that every start reached.
    range: [f64; 2],
    /// The curve of each start; empty unless all points have the same starts, at least two.
    starts: Vec<MonotoneCurve>,
    /// Interactivity of invalid points: between the points next to one, nothing is interpolated.
    gaps: Vec<f64>,
    validity: Verdict,
}

impl EngineCurve {
    /// The curve through the valid points of an engine. `None` with fewer than two, or if two have the same interactivity. Loads that a
    /// search tried on some starts alone are left out, as their points differ from others by the start, too.
    fn new(engine: &str, points: &[OperatingPoint]) -> Option<Self> {
        let own = points.iter().filter(|point| point.engine == engine);
        let (invalid, mut kept): (Vec<&OperatingPoint>, Vec<&OperatingPoint>) =
            own.partition(|point| point.validity == Verdict::Invalid);
        kept.retain(|point| !point.is_partial);
        kept.sort_by(|a, b| a.interactivity_tok_s.total_cmp(&b.interactivity_tok_s));
        let curve = MonotoneCurve::new(
            kept.iter()
                .map(|point| [point.interactivity_tok_s, point.output_tok_s])
                .collect(),
        )?;
        let of_start = |start: usize| {
            let mut points: Vec<[f64; 2]> = kept.iter().map(|point| point.starts[start]).collect();
            points.sort_by(|a, b| a[0].total_cmp(&b[0]));
            MonotoneCurve::new(points)
        };
        let starts = kept[0].starts.len();
        let are_alike = starts > 1 && kept.iter().all(|point| point.starts.len() == starts);
        let of_starts: Option<Vec<MonotoneCurve>> =
            (0..starts).take_while(|_| are_alike).map(of_start).collect();
        let starts = of_starts.unwrap_or_default();
        let ends = starts.iter().map(MonotoneCurve::range);
        let of_means = curve.range();
        let range = ends.fold(of_means, |[low, high], [other_low, other_high]| {
            [low.max(other_low), high.min(other_high)]
        });
        Some(Self {
            engine: engine.to_owned(),
            curve,
            range,
            starts,
            gaps: invalid.iter().map(|point| point.interactivity_tok_s).collect(),
            validity: kept
                .iter()
                .map(|point| point.validity)
                .max()
                .unwrap_or(Verdict::Valid),
        })
    }

    /// The output at a speed; `None` where a start did not reach it, the load next to it is invalid, or it is outside of the curves of all
    /// starts.
    fn at(&self, interactivity_tok_s: f64) -> Option<InterpolatedOutput> {
        let is_between = |gap: &f64| self.curve.is_between_same_points(*gap, interactivity_tok_s);
        if self.gaps.iter().any(is_between) || !(self.range[0]..=self.range[1]).contains(&interactivity_tok_s)
        {
            return None;
        }
        let of_starts: Option<Vec<f64>> = self
            .starts
            .iter()
            .map(|curve| curve.at(interactivity_tok_s))
            .collect();
        let output_tok_s = self.curve.at(interactivity_tok_s)?;
        let range = of_starts.filter(|values| values.len() > 1).map(|values| {
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            [least, values.into_iter().fold(f64::NEG_INFINITY, f64::max)]
        });
        // Where the loads of some starts are in another order, the curve of the means lies outside of all curves of starts.
        if range.is_some_and(|[least, most]| !(least..=most).contains(&output_tok_s)) {
            return None;
        }
        Some(InterpolatedOutput {
            engine: self.engine.clone(),
            output_tok_s,
            range_of_starts: range,
            starts: range.map_or(0, |_| self.starts.len()),
            validity: self.validity,
        })
    }
}

/// The outputs at round speeds that all engines reach, and at that of the SLO. Invalid points are left out.
pub(super) fn interpolations(points: &[OperatingPoint], slo_tok_s: Option<f64>) -> Vec<Interpolation> {
    let mut engines: Vec<&str> = Vec::new();
    for point in points {
        if !engines.contains(&point.engine.as_str()) {
            engines.push(&point.engine);
        }
    }
    let curves: Vec<EngineCurve> = engines
        .into_iter()
        .filter_map(|engine| EngineCurve::new(engine, points))
        .collect();
    let low = curves.iter().map(|curve| curve.range[0]).fold(0.0, f64::max);
    let high = curves
        .iter()
        .map(|curve| curve.range[1])
        .fold(f64::INFINITY, f64::min);
    let mut speeds: Vec<(f64, bool)> = slo_tok_s.map(|speed| (speed, true)).into_iter().collect();
    if !curves.is_empty() {
        let round = round_speeds(low, high).into_iter().map(|speed| (speed, false));
        speeds.extend(round.filter(|(speed, _)| Some(*speed) != slo_tok_s));
    }
    speeds.sort_by(|a, b| a.0.total_cmp(&b.0));
    let at = |(interactivity_tok_s, is_slo): (f64, bool)| Interpolation {
        interactivity_tok_s,
        is_slo,
        engines: curves
            .iter()
            .filter_map(|curve| curve.at(interactivity_tok_s))
            .collect(),
    };
    let drawn = speeds.into_iter().map(at);
    drawn.filter(|speed| !speed.engines.is_empty()).collect()
}

/// At most three round speeds between two others, spread evenly.
fn round_speeds(low: f64, high: f64) -> Vec<f64> {
    const STEPS: [f64; 6] = [1.0, 1.5, 2.0, 3.0, 5.0, 7.0];
    let within: Vec<f64> = (-1..=4)
        .flat_map(|power| STEPS.map(|step| step * 10_f64.powi(power)))
        .filter(|speed| low <= *speed && *speed <= high)
        .collect();
    match within.len() {
        0..=MAX_SPEEDS => within,
        several => (0..MAX_SPEEDS)
            .map(|index| within[index * (several - 1) / (MAX_SPEEDS - 1)])
            .collect(),
    }
}

/// The table of a trade-off's interpolated outputs, with the ratio to the first engine; `None` without any.
pub(crate) fn interpolation_table(tradeoff: &Tradeoff) -> Option<Table> {
    let speeds = &tradeoff.interpolated;
    let mut engines: Vec<&str> = Vec::new();
    for output in speeds.iter().flat_map(|speed| &speed.engines) {
        if !engines.contains(&output.engine.as_str()) {
            engines.push(&output.engine);
        }
    }
    let first = *engines.first()?;
    let column = |head: String, unit, rank| Column {
        head,
        unit,
        align: Align::Right,
        better: None,
        rank,
    };
    let mut columns = vec![Column {
        align: Align::Left,
        ..column("engine".to_owned(), "", 0)
    }];
    for (speed, rank) in speeds.iter().zip(1..) {
        let of_slo = if speed.is_slo { " (SLO)" } else { "" };
        let head = format!("at {} tok/s per user{of_slo}", number(speed.interactivity_tok_s));
        columns.push(column(head, "tok/s", rank));
        if engines.len() > 1 {
            columns.push(column(format!("vs {first}"), "", rank));
        }
    }
    let rows = engines
        .iter()
        .map(|engine| row(engine, first, tradeoff, engines.len() > 1));
    Some(Table {
        title: format!(
            "{}: interpolated output {} at the same interactivity",
            tradeoff.title,
            match tradeoff.is_per_gpu {
                true => "per GPU",
                false => "of the engine",
            }
        ),
        columns,
        rows: rows.collect(),
        notes: notes(first, tradeoff),
    })
}

fn notes(first: &str, tradeoff: &Tradeoff) -> Vec<String> {
    let mut notes = vec![
        "values between measured loads are interpolated on a monotone curve; there is none beyond the measured loads, and they are no verdicts".to_owned(),
        "in parentheses: the smallest and the largest value on the curves of single starts; `overlap`: these ranges of two engines overlap".to_owned(),
        "`no range`: an engine has only one start, or a start has no valid figures at one of the loads; `few starts`: an engine has fewer than five".to_owned(),
    ];
    if !tradeoff.not_comparable.is_empty() {
        notes.push(format!(
            "≠: cannot be compared with {first}; the tables of the comparison name the differences"
        ));
    }
    notes
}

fn row(engine: &str, first: &str, tradeoff: &Tradeoff, has_ratio: bool) -> Row {
    let (speeds, not_comparable) = (&tradeoff.interpolated, &tradeoff.not_comparable);
    let find = |speed: &'_ Interpolation, name: &str| {
        speed.engines.iter().find(|output| output.engine == name).cloned()
    };
    let mut cells = vec![Value::text(engine)];
    let mut worst = Verdict::Valid;
    for speed in speeds {
        let output = find(speed, engine);
        let ratio = output.as_ref().zip(find(speed, first)).map(|(own, base)| {
            match not_comparable.iter().any(|name| name == engine) {
                true => "≠".to_owned(),
                false => ratio_text(own, &base),
            }
        });
        worst = output.as_ref().map_or(worst, |output| worst.max(output.validity));
        cells.push(output.map_or(Value::Missing, |output| value(&output)));
        if has_ratio {
            cells.push(Value::text(ratio.unwrap_or_else(|| MISSING.to_owned())));
        }
    }
    let marks = (worst == Verdict::Suspect).then_some(Mark::Suspect);
    Row {
        cells,
        marks: marks.into_iter().collect(),
    }
}

/// The ratio of two outputs, unless the starts do not tell them apart.
fn ratio_text(own: &InterpolatedOutput, base: &InterpolatedOutput) -> String {
    let ratio = own.output_tok_s / base.output_tok_s;
    match (own.range_of_starts, base.range_of_starts) {
        _ if own.engine == base.engine => format!("{ratio:.2}"),
        (Some(_), Some(_)) if own.starts.min(base.starts) < MIN_STARTS => format!("{ratio:.2} few starts"),
        (Some([least, most]), Some([base_least, base_most])) if most < base_least || base_most < least => {
            format!("{ratio:.2}")
        }
        (Some(_), Some(_)) => "overlap".to_owned(),
        _ => format!("{ratio:.2} no range"),
    }
}

fn value(output: &InterpolatedOutput) -> Value {
    let decimals = usize::from(output.output_tok_s < 1000.0);
    match output.range_of_starts {
        None => Value::Number {
            value: output.output_tok_s,
            decimals,
        },
        Some([least, most]) => Value::Spread {
            median: output.output_tok_s,
            least,
            most,
            decimals,
        },
    }
}

/// A speed as it is read: without needless decimals.
fn number(speed: f64) -> String {
    let text = format!("{speed:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(
        engine: &str,
        interactivity_tok_s: f64,
        output_tok_s: f64,
        starts: &[[f64; 2]],
    ) -> OperatingPoint {
        OperatingPoint {
            engine: engine.to_owned(),
            load: String::new(),
            interactivity_tok_s,
            output_tok_s,
            starts: starts.to_vec(),
            is_partial: false,
            validity: Verdict::Valid,
            is_on_frontier: false,
        }
    }

    /// Two points are joined by a line: at 20 of 10 to 30 the output is the mean of both.
    #[test]
    fn a_value_between_two_loads_is_that_of_the_line_with_the_range_of_the_starts() {
        let points = [
            point("a", 30.0, 100.0, &[[29.0, 90.0], [31.0, 110.0]]),
            point("a", 10.0, 500.0, &[[11.0, 490.0], [9.0, 510.0]]),
            point("b", 40.0, 100.0, &[]),
            point("b", 10.0, 700.0, &[]),
        ];
        let speeds = interpolations(&points, Some(20.0));
        let found: Vec<(f64, bool)> = speeds
            .iter()
            .map(|speed| (speed.interactivity_tok_s, speed.is_slo))
            .collect();
        // Start 1 of `a` reaches from 11 to 29 alone.
        assert_eq!(found, [(15.0, false), (20.0, true)]);
        let [a, b] = &speeds[1].engines[..] else {
            panic!("{speeds:?}")
        };
        assert!((a.output_tok_s - 300.0).abs() < 1e-9);
        // Start 1: from (11, 490) to (29, 90); start 2: from (9, 510) to (31, 110).
        let [low, high] = a.range_of_starts.unwrap();
        assert!(
            (low - 290.0).abs() < 1e-9 && (high - 310.0).abs() < 1e-9,
            "{low} {high}"
        );
        assert!((b.output_tok_s - 500.0).abs() < 1e-9);
        assert_eq!(b.range_of_starts, None);
    }

    #[test]
    fn nothing_is_interpolated_beyond_the_loads_of_an_engine_or_from_invalid_ones() {
        let mut points = vec![
            point("a", 30.0, 100.0, &[]),
            point("a", 10.0, 500.0, &[]),
            point("b", 60.0, 100.0, &[]),
            point("b", 40.0, 700.0, &[]),
        ];
        let speeds = interpolations(&points, Some(50.0));
        assert_eq!(speeds.len(), 1, "no speed is common to both: {speeds:?}");
        assert_eq!(speeds[0].engines.len(), 1);
        assert_eq!(speeds[0].engines[0].engine, "b");
        points[2].validity = Verdict::Invalid;
        let left = interpolations(&points, Some(50.0));
        assert!(
            left.iter()
                .all(|speed| speed.interactivity_tok_s <= 30.0 && speed.engines[0].engine == "a"),
            "{left:?}"
        );
        assert_eq!(interpolations(&points[..1], None), []);
    }

    #[test]
    fn the_curve_goes_through_every_valid_load_and_not_past_an_invalid_one() {
        let mut points = vec![
            point("a", 30.0, 100.0, &[]),
            point("a", 12.0, 90.0, &[]),
            point("a", 10.0, 500.0, &[]),
        ];
        let at_slo = |points: &[OperatingPoint], slo: f64| {
            let speeds = interpolations(points, Some(slo));
            let speed = speeds.into_iter().find(|speed| speed.is_slo)?;
            Some(speed.engines[0].output_tok_s)
        };
        // The load at 12 was measured, although another one beats it in both values.
        assert_eq!(at_slo(&points, 12.0), Some(90.0));
        points[1].validity = Verdict::Invalid;
        assert_eq!(at_slo(&points, 12.0), None);
        assert_eq!(at_slo(&points, 20.0), None, "the invalid load lies next to it");
    }

    #[test]
    fn the_table_puts_the_ratio_next_to_the_value() {
        let points = vec![
            point("a", 30.0, 100.0, &[]),
            point("a", 10.0, 500.0, &[]),
            point("b", 30.0, 110.0, &[]),
            point("b", 10.0, 550.0, &[]),
        ];
        let tradeoff = Tradeoff {
            has_winners: true,
            title: "m · s".to_owned(),
            is_per_gpu: true,
            interpolated: interpolations(&points, Some(20.0)),
            slo_tok_s: Some(20.0),
            not_comparable: Vec::new(),
            points,
        };
        let table = interpolation_table(&tradeoff).unwrap();
        let heads: Vec<&str> = table.columns.iter().map(|column| column.head.as_str()).collect();
        assert_eq!(
            heads[3..7],
            [
                "at 15 tok/s per user",
                "vs a",
                "at 20 tok/s per user (SLO)",
                "vs a"
            ]
        );
        let second = table.rows[1].texts();
        assert_eq!(second[5..7], ["330.0", "1.10 no range"], "{second:?}");
        let apart = Tradeoff {
            not_comparable: vec!["b".to_owned()],
            ..tradeoff
        };
        let table = interpolation_table(&apart).unwrap();
        assert_eq!(table.rows[1].texts()[5..7], ["330.0", "≠"]);
        assert!(
            table
                .notes
                .iter()
                .any(|note| note.starts_with("≠: cannot be compared with a"))
        );
    }

    /// A search tries some loads on some of its starts alone: they would bend the curve by the difference of these starts.
    #[test]
    fn loads_of_some_starts_alone_are_no_points_of_the_curve() {
        let mut points = vec![
            point("a", 30.0, 100.0, &[[30.0, 100.0], [30.0, 100.0]]),
            point("a", 20.0, 900.0, &[[20.0, 900.0]]),
            point("a", 10.0, 500.0, &[[10.0, 500.0], [10.0, 500.0]]),
        ];
        points[1].is_partial = true;
        let speeds = interpolations(&points, Some(20.0));
        let at_slo = speeds.iter().find(|speed| speed.is_slo).unwrap();
        assert!(
            (at_slo.engines[0].output_tok_s - 300.0).abs() < 1e-9,
            "{at_slo:?}"
        );
        assert_eq!(at_slo.engines[0].starts, 2);
    }

    /// At 15 both starts have 300 or more, but the mean of their loads at 10 and 20 gives less.
    #[test]
    fn a_value_outside_of_the_curves_of_all_starts_is_not_given() {
        let inside = [
            point("a", 20.0, 100.0, &[[20.0, 90.0], [20.0, 110.0]]),
            point("a", 10.0, 500.0, &[[10.0, 490.0], [10.0, 510.0]]),
        ];
        let outside = [
            point("a", 20.0, 100.0, &[[20.0, 300.0], [20.0, 310.0]]),
            inside[1].clone(),
        ];
        let at_slo = |points: &[OperatingPoint]| {
            let speeds = interpolations(points, Some(15.0));
            speeds.iter().filter(|speed| speed.is_slo).count()
        };
        assert_eq!((at_slo(&inside), at_slo(&outside)), (1, 0));
    }

    #[test]
    fn a_ratio_is_given_only_where_the_starts_tell_two_engines_apart() {
        let output = |engine: &str, output_tok_s: f64, range_of_starts| InterpolatedOutput {
            engine: engine.to_owned(),
            output_tok_s,
            range_of_starts,
            starts: if range_of_starts.is_some() { MIN_STARTS } else { 0 },
            validity: Verdict::Valid,
        };
        let base = output("a", 100.0, Some([95.0, 105.0]));
        assert_eq!(
            ratio_text(&output("b", 110.0, Some([106.0, 114.0])), &base),
            "1.10"
        );
        assert_eq!(ratio_text(&output("b", 90.0, Some([88.0, 94.0])), &base), "0.90");
        assert_eq!(
            ratio_text(&output("b", 110.0, Some([104.0, 116.0])), &base),
            "overlap"
        );
        assert_eq!(ratio_text(&output("b", 110.0, None), &base), "1.10 no range");
        assert_eq!(ratio_text(&base, &base), "1.00");
        let few = InterpolatedOutput {
            starts: MIN_STARTS - 1,
            ..output("b", 110.0, Some([106.0, 114.0]))
        };
        assert_eq!(ratio_text(&few, &base), "1.10 few starts");
    }

    #[test]
    fn round_speeds_are_at_most_three() {
        assert_eq!(round_speeds(11.0, 14.0), [0.0; 0]);
        assert_eq!(round_speeds(10.0, 20.0), [10.0, 15.0, 20.0]);
        assert_eq!(round_speeds(1.0, 100.0), [1.0, 10.0, 100.0]);
    }
}
