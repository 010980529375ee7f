use super::*;
use crate::base::ids::CellKey;
use crate::report::format::draw_history;
use crate::report::html;
use crate::report::terminal::PageLayout;
use crate::report::testing::nights;
use crate::results::record::nightly::FindingKind;

fn drawn(format: &str, history: &History<'_>, width: u16) -> String {
    let layout = PageLayout { width, colors: false };
    draw_history(format, history, layout)
}

#[test]
fn a_history_shows_trend_changes_and_events() {
    let nights = nights(&[
        "engine=vllm,model=m,scenario=chat",
        "engine=sglang,model=m,scenario=chat",
    ]);
    let history = History::from_nights("m", &nights, 0.02);
    let [wide, markdown] = ["terminal", "markdown"].map(|format| drawn(format, &history, 160));
    insta::assert_snapshot!(format!("{wide}\n{markdown}"));
    let narrow = drawn("terminal", &history, 80);
    assert!(
        narrow.contains("hidden columns: ") && !narrow.contains('▇'),
        "{narrow}"
    );
}

#[test]
fn what_nights_find_in_a_row_is_told_once() {
    let mut nights = nights(&["engine=vllm,model=m"]);
    let worse = |text: &str| Finding {
        kind: FindingKind::Worse,
        cell: Some(CellKey::new("engine=vllm,model=m")),
        figure: None,
        text: text.to_owned(),
    };
    for at in [5, 6, 7, 20] {
        nights[at].findings.push(worse(&format!("night {at}")));
    }
    let history = History::from_nights("m", &nights, 0.02);
    let rows: Vec<String> = findings_table(&history, &nights)
        .rows
        .iter()
        .map(|row| row.texts().join(" "))
        .collect();
    let cell = "vllm m";
    assert_eq!(
        rows,
        [
            format!("2026-01-21 2026-01-21 1 worse {cell} night 20"),
            format!("2026-01-12 2026-01-12 1 invalid {cell} client-late"),
            format!("2026-01-08 2026-01-06 3 worse {cell} night 7"),
        ]
    );
    let last = findings_table(&history, &nights[20..21]);
    assert_eq!(last.rows[0].texts(), ["worse", cell, "night 20"]);
}

#[test]
fn a_row_of_csv_is_a_night_and_a_gap_says_why() {
    let nights = nights(&["engine=vllm,model=m,scenario=a, b"]);
    let text = drawn("csv", &History::from_nights("m", &nights, 0.02), 160);
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!(rows.len(), 1 + nights.len());
    let row_of = |day: &str| rows.iter().find(|row| row.starts_with(day)).unwrap();
    insta::assert_snapshot!(
        [
            rows[0],
            row_of("2026-01-12"),
            row_of("2026-01-17"),
            row_of("2026-01-21")
        ]
        .join("\n")
    );
}

#[test]
fn machines_read_the_same() {
    let nights = nights(&["engine=vllm,model=m"]);
    let text = drawn("json", &History::from_nights("m", &nights, 0.02), 160);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let series = &document["series"][0];
    assert_eq!(series["nights"].as_array().unwrap().len(), nights.len() - 1);
    assert_eq!(series["gaps"][0]["why"], "invalid: client-late");
    let cuts: Vec<&serde_json::Value> = series["turns"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|turn| turn["is_cut"] == true)
        .collect();
    assert_eq!(cuts.len(), 1, "{series}");
    assert_eq!(cuts[0]["what"], "environment driver: 550 → 560");
    assert_eq!(series["changes"].as_array().unwrap().len(), 1);
    assert!(series["changes"][0]["change_share"].as_f64().unwrap() < -0.04);
}

#[test]
fn the_page_breaks_lines_at_gaps_and_cuts_and_names_what_happened() {
    let nights = nights(&["engine=vllm,model=m,scenario=chat"]);
    let page = html::draw_history(&History::from_nights("m", &nights, 0.02));
    // One stroke before the gap, one up to the cut, one after it.
    let strokes = page.matches("class=\"s c0 d0\" data-name=\"output throughput\"");
    assert_eq!(strokes.count(), 3);
    for (class, title) in [
        ("turn gap", "invalid: client-late"),
        ("turn cut", "environment driver: 550 → 560"),
        ("turn note", "baseline: none → m-0"),
    ] {
        let mark = page
            .split("<path ")
            .find(|path| path.contains(&format!("class=\"{class}\" data-at")) && path.contains(title));
        assert!(mark.is_some(), "{class}: {title}");
    }
    assert!(page.contains("<li>-6.1 % since 2026-01-17, p &lt; 0.0001</li>"));
}

#[test]
fn names_of_others_stay_text_on_the_page() {
    let hostile =
        "model=</script><script>alert(1)</script>\u{202e},scenario=\"><img src=x onerror=alert(2)> & 'x'";
    let mut nights = nights(&[hostile]);
    nights[3].findings.push(Finding {
        kind: FindingKind::Worse,
        cell: Some(CellKey::new(hostile)),
        figure: None,
        text: "<b onclick=\"x\">".to_owned(),
    });
    let page = html::draw_history(&History::from_nights("<m>\u{2066}", &nights, 0.02));
    for word in [
        "<script>alert",
        "<img",
        "<b onclick",
        "\u{202e}",
        "\u{2066}",
        "<m>",
    ] {
        assert!(!page.contains(word), "{word}");
    }
    assert!(page.contains("&lt;img src=x onerror=alert(2)&gt;"));
}
