//! The rows as JSON for the script of the page. Equal texts and equal conditions are written once, so that many rows stay small.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Number, Value, json};

use super::row::{FIGURES, SiteFigure, SiteRow};
use super::{Site, day};
use crate::analysis::metrics::Direction;
use crate::report::table::single_line;
use crate::results::record::cell::Origin;
use crate::results::record::cell_stats::Facts;
use crate::results::record::validity::Verdict;

/// Digits of figures after the first one.
const DIGITS: usize = 5;

/// Texts and conditions, each once.
#[derive(Default)]
struct Dictionary {
    texts: Vec<String>,
    text_ids: BTreeMap<String, usize>,
    facts: Vec<Vec<[usize; 2]>>,
    fact_ids: BTreeMap<Vec<[usize; 2]>, usize>,
}

impl Dictionary {
    fn text(&mut self, text: &str) -> usize {
        let text = single_line(text);
        if let Some(id) = self.text_ids.get(&text) {
            return *id;
        }
        self.texts.push(text.clone());
        self.text_ids.insert(text, self.texts.len() - 1);
        self.texts.len() - 1
    }

    fn facts(&mut self, facts: &Facts) -> usize {
        let pairs: Vec<[usize; 2]> = facts
            .iter()
            .map(|(name, value)| [self.text(name), self.text(value)])
            .collect();
        if let Some(id) = self.fact_ids.get(&pairs) {
            return *id;
        }
        self.facts.push(pairs.clone());
        self.fact_ids.insert(pairs, self.facts.len() - 1);
        self.facts.len() - 1
    }
}

/// A figure as the page names it.
#[derive(Serialize)]
struct FigureName {
    label: String,
    unit: &'static str,
    /// Whether a higher value is better; absent if neither is.
    higher: Option<bool>,
}

/// All rows as JSON that can stand inside a `script` element.
pub(crate) fn json(site: &Site) -> String {
    let mut dictionary = Dictionary::default();
    let runs: Vec<Value> = site
        .runs
        .iter()
        .map(|run| {
            json!([
                dictionary.text(&run.name),
                dictionary.text(&run.page),
                dictionary.text(day(&run.began)),
                dictionary.text(&run.tool),
            ])
        })
        .collect();
    let mut rows = Vec::new();
    for (at, run) in site.runs.iter().enumerate() {
        rows.extend(run.rows.iter().map(|row| row_json(&mut dictionary, at, row)));
    }
    let figures: Vec<FigureName> = FIGURES
        .iter()
        .map(|metric| FigureName {
            label: metric.label(),
            unit: metric.unit().symbol(),
            higher: metric.direction().map(|direction| direction == Direction::Higher),
        })
        .collect();
    let text = json!({
        "figures": figures,
        "runs": runs,
        "rows": rows,
        "facts": dictionary.facts,
        "texts": dictionary.texts,
    });
    escape(&text.to_string())
}

/// A row: run, host, GPU, engine, version, model, tp, load, state, verdict, origin, starts, conditions, figures, recipe. Texts and
/// conditions are indices, and -1 is unknown.
fn row_json(dictionary: &mut Dictionary, run: usize, row: &SiteRow) -> Value {
    let mut optional = |text: &Option<String>| match text {
        Some(text) => json!(dictionary.text(text)),
        None => json!(-1),
    };
    let (host, gpu, version) = (
        optional(&row.host_name),
        optional(&row.gpu),
        optional(&row.version),
    );
    let tp = row.tp.map_or(json!(-1), |tp| json!(tp));
    let figures: Vec<Value> = row.figures.iter().map(|figure| figure_json(*figure)).collect();
    json!([
        run,
        host,
        gpu,
        dictionary.text(&row.engine),
        version,
        dictionary.text(&row.model),
        tp,
        dictionary.text(&row.load),
        row.state
            .name()
            .map_or(json!(-1), |name| json!(dictionary.text(name))),
        dictionary.text(&row.verdict()),
        dictionary.text(origin(row)),
        row.starts,
        dictionary.facts(&row.conditions.host),
        dictionary.facts(&row.conditions.load),
        dictionary.facts(&row.conditions.settings),
        figures,
        dictionary.text(&row.recipe),
    ])
}

/// The origin as a mark beside the name of the run; empty for measured rows.
pub(crate) fn origin(row: &SiteRow) -> &'static str {
    match (row.is_simulated, row.origin) {
        (true, Origin::Imported) => "imported, simulated",
        (true, _) => "simulated",
        (false, Origin::Imported) => "imported",
        (false, _) => "",
    }
}

/// Value and verdict (0 valid, 1 suspect, 2 invalid), with the bounds of its interval if it has one; 0 if it is unknown.
fn figure_json(figure: Option<SiteFigure>) -> Value {
    let Some(figure) = figure else { return json!(0) };
    let verdict = match figure.verdict {
        Verdict::Valid => 0,
        Verdict::Suspect => 1,
        Verdict::Invalid => 2,
    };
    let mut parts = vec![rounded(figure.value), json!(verdict)];
    parts.extend(figure.interval.into_iter().flatten().map(rounded));
    Value::Array(parts)
}

/// A number with few digits, which is shorter.
fn rounded(value: f64) -> Value {
    let short: f64 = format!("{value:.DIGITS$e}").parse().unwrap_or(value);
    match short.fract() == 0.0 && short.abs() < 1e15 {
        #[expect(clippy::cast_possible_truncation, reason = "the number is whole and < 1e15")]
        true => json!(short as i64),
        false => Number::from_f64(short).map_or(Value::Null, Value::Number),
    }
}

/// JSON that cannot end the element that it stands in.
fn escape(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                text.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            other => text.push(other),
        }
    }
    text
}
