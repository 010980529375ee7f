use proptest::prelude::*;

use super::scale::Scale;
use super::*;

fn dot(x: f64, y: f64) -> PlotPoint {
    PlotPoint {
        x,
        y,
        ..PlotPoint::default()
    }
}

fn plot(points: Vec<PlotPoint>, kind: AxisKind) -> Plot {
    let axis = |label: &str, unit, kind| Axis {
        label: label.to_owned(),
        unit,
        kind,
    };
    Plot {
        title: "A <plot>".to_owned(),
        x: axis("time", "s", AxisKind::FromZero),
        y: axis("tokens", "tok/s", kind),
        lines: vec![Line {
            name: "a & \"b\"".to_owned(),
            color: 8,
            style: StrokeStyle::LineWithMarkers,
            points,
            breaks: Vec::new(),
        }],
        window: Some([0.0, 2.0]),
        events: Vec::new(),
        limits: Vec::new(),
    }
}

fn ticks(kind: AxisKind, values: &[f64]) -> Vec<String> {
    let scale = Scale::from_values(kind, values.iter().copied(), 0.0, 100.0, 5);
    scale.labels().into_iter().map(|(_, text)| text).collect()
}

#[test]
fn ticks_are_round_and_hold_the_values() {
    assert_eq!(
        ticks(AxisKind::FromZero, &[3.0, 97.0]),
        ["0", "20", "40", "60", "80", "100"]
    );
    assert_eq!(
        ticks(AxisKind::FromZero, &[0.0, 0.31]),
        ["0", "0.1", "0.2", "0.3", "0.4"]
    );
    assert_eq!(
        ticks(AxisKind::FromZero, &[48_000.0]),
        ["0", "10k", "20k", "30k", "40k", "50k"]
    );
    assert_eq!(
        ticks(AxisKind::Share, &[0.5]),
        ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    );
    assert_eq!(
        ticks(AxisKind::Ratio, &[1.5, 80.0]),
        ["1", "2", "5", "10", "20", "50", "100"]
    );
    assert_eq!(
        ticks(AxisKind::Ratio, &[10.0, 20.0]),
        ["0", "5", "10", "15", "20"]
    );
    assert_eq!(
        ticks(AxisKind::FromZero, &[]),
        ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    );
    assert_eq!(
        ticks(AxisKind::FromZero, &[0.0, 0.0]),
        ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    );
}

#[test]
fn moments_are_marked_by_hours_days_mondays_or_months() {
    let days = |moment: &str| crate::base::date::days_since_epoch(moment).unwrap();
    let ticks = |from: &str, to: &str| ticks(AxisKind::Dates, &[days(from), days(to)]);
    let mondays = ["03-02", "03-09", "03-16", "03-23", "03-30", "04-06"];
    assert_eq!(ticks("2026-03-01T03:00:00Z", "2026-04-10T03:00:00Z"), mondays);
    assert_eq!(
        ticks("2026-03-01T03:00:00Z", "2026-03-04T03:00:00Z"),
        ["03-02", "03-03", "03-04"]
    );
    assert_eq!(
        ticks("2026-03-01T03:00:00Z", "2026-03-01T03:10:00Z"),
        ["03-01 03:00"]
    );
    assert_eq!(
        ticks("2026-01-15T03:00:00Z", "2027-01-15T03:00:00Z"),
        ["2026-03", "2026-05", "2026-07", "2026-09", "2026-11", "2027-01"]
    );
}

#[test]
fn values_that_hardly_differ_are_not_blown_up() {
    let scale = Scale::from_values(AxisKind::Around, [100.0, 100.01].into_iter(), 0.0, 100.0, 5);
    assert!(scale.to - scale.from >= 4.0, "{scale:?}");
}

#[test]
fn a_plot_has_axes_marks_with_values_and_a_window() {
    let picture = Chart::Plot(plot(vec![dot(0.5, 10.0), dot(1.5, 30.0)], AxisKind::FromZero));
    insta::assert_snapshot!("plot", picture.svg());
}

#[test]
fn strokes_break_and_what_happened_is_marked() {
    let turn = |x, look, label: &str| PlotEvent {
        x,
        style: look,
        label: label.to_owned(),
        title: "a <driver>".to_owned(),
    };
    let mut broken = plot(
        (0..5).map(|at| dot(f64::from(at), 10.0)).collect(),
        AxisKind::FromZero,
    );
    broken.lines[0].breaks = vec![2, 4];
    broken.events = vec![
        turn(2.0, PlotEventStyle::Break, ""),
        turn(4.0, PlotEventStyle::Worse, "-7.0 %"),
        turn(4.1, PlotEventStyle::Better, "+8.0 %"),
    ];
    let svg = Chart::Plot(broken).svg();
    let points: Vec<usize> = svg
        .split("points=\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap().split(' ').count())
        .collect();
    assert_eq!(points, [2, 2, 1]);
    assert!(
        svg.contains("-7.0 %") && !svg.contains("+8.0 %"),
        "no text over another: {svg}"
    );
    assert_eq!(svg.matches("<title>a &lt;driver&gt;</title>").count(), 3);
}

#[test]
fn bars_show_each_measurement() {
    let bar = |name: &str, value, values: &[f64], is_doubtful| Bar {
        name: name.to_owned(),
        color: 1,
        value,
        values: values.to_vec(),
        is_doubtful,
    };
    let picture = Chart::Bars(Bars {
        title: "Throughput".to_owned(),
        unit: "tok/s",
        has_bars: true,
        rows: vec![
            bar("sglang", 4000.0, &[3900.0, 4000.0, 4200.0], false),
            bar(&"x".repeat(80), 12.5, &[12.5], true),
        ],
    });
    insta::assert_snapshot!("bars", picture.svg());
    assert_eq!(
        picture.table().rows[0].texts(),
        ["sglang", "4000", "3900, 4000, 4200"]
    );
}

#[test]
fn a_foreign_name_stays_text() {
    let mut hostile = plot(vec![dot(1.0, 1.0)], AxisKind::FromZero);
    hostile.title = "</svg><script>alert(1)</script>".to_owned();
    hostile.lines[0].name = "\" onload=\"alert(1)".to_owned();
    let picture = Chart::Plot(hostile);
    let svg = picture.svg();
    assert!(!svg.contains("<script") && !svg.contains("\" onload"), "{svg}");
}

proptest! {
    #[test]
    fn every_value_lies_on_its_axis_and_ticks_ascend(
        values in prop::collection::vec(-1e9f64..1e9, 0..20),
        small in 1e-6f64..1.0,
        kind in prop::sample::select(vec![AxisKind::FromZero, AxisKind::Around, AxisKind::Ratio]),
    ) {
        let values: Vec<f64> = values.iter().map(|value| value * small).collect();
        let scale = Scale::from_values(kind, values.iter().copied(), 10.0, 110.0, 5);
        prop_assert!(scale.ticks.len() >= 2 && scale.ticks.len() <= 25, "{:?}", scale.ticks);
        prop_assert!(scale.ticks.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", scale.ticks);
        for value in values {
            let at = scale.position(value);
            prop_assert!((9.9..=110.1).contains(&at), "{value} at {at} on {scale:?}");
        }
    }

    #[test]
    fn the_same_figures_give_the_same_bytes(points in prop::collection::vec((0f64..1e4, -10f64..1e6), 0..30)) {
        let dots: Vec<PlotPoint> = points.iter().map(|(x, y)| dot(*x, *y)).collect();
        let picture = Chart::Plot(plot(dots, AxisKind::FromZero));
        let svg = picture.svg();
        prop_assert_eq!(&svg, &picture.svg());
        prop_assert!(!svg.contains("NaN") && !svg.contains("inf"), "{}", svg);
    }
}
