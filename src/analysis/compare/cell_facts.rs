//! What a cell asks of an engine, as facts by name and in words.

use super::compared_cell::ComparedCell;
use super::settings;
use crate::analysis::metrics::Metric;
use crate::base::ids::ContentHash;
use crate::config::dataset::TemplateUse;
use crate::config::scenario::Scenario;
use crate::plan::Launch;
use crate::results::record::cell_stats::Facts;
use crate::results::record::provenance::UnknownFact;

/// Returns what a cell asks besides its prompts, by name. Cells that differ in one of these facts answer
/// different questions. Unknown facts and those that a search chooses are left out.
pub(crate) fn question_facts(side: &ComparedCell<'_>) -> Facts {
    let (launch, scenario) = (side.launch, &side.cell.scenario);
    let mut facts = Facts::new();
    let mut add = |name: &str, value: String| facts.insert(name.to_owned(), value);
    add("model", launch.model.clone());
    match &launch.precision {
        Some(precision) => add("precision", precision.clone()),
        None => {
            // The same checkpoint has the same precision. For an attached server only the server knows it.
            add("checkpoint", launch.checkpoint.clone());
            let reported = launch
                .is_attached()
                .then(|| settings::reported_precision(side.summaries));
            add(
                "precision",
                reported.flatten().unwrap_or_else(|| "unknown".to_owned()),
            )
        }
    };
    if launch.is_attached()
        && launch.gpus().is_none()
        && let Some(parallel) = settings::reported_parallel(side.summaries)
    {
        add("parallel sizes reported by the server", parallel);
    }
    let length = match scenario.stop_at_eos {
        true => "as the model ends them",
        false => "as long as asked",
    };
    add("answers", length.to_owned());
    let names: Vec<&str> = scenario.body.keys().map(String::as_str).collect();
    let body = match names.is_empty() {
        true => "none".to_owned(),
        false => {
            let text = serde_json::Value::from(scenario.body.clone()).to_string();
            format!(
                "{} ({})",
                names.join(", "),
                ContentHash::from_bytes(text.as_bytes())
            )
        }
    };
    add("fields of the body", body);
    if side.imported().is_none() {
        add(
            "sampling fields in the engine's `body`",
            sampling_in_words(launch, scenario),
        );
    }
    if scenario.search.is_none() && !side.is_unknown(UnknownFact::Rate) {
        let arrival = &scenario.arrival;
        let pace = arrival.pace.as_ref().map(ToString::to_string);
        add(
            "rate",
            format!("{} req/s", pace.unwrap_or_else(|| arrival.rate.to_string())),
        );
        let limit = arrival.concurrency.map(|limit| limit.to_string());
        add(
            "requests at once",
            limit.unwrap_or_else(|| "any number".to_owned()),
        );
        if !arrival.rate.is_infinite() {
            let spacing = serde_json::json!(arrival.spacing).to_string();
            add("spacing", spacing.replace('"', ""));
        }
    }
    if side.imported().is_none() {
        add("warm-up requests", scenario.limits.warmup.to_string());
        let cancel = scenario.cancel.map(|cancel| cancel.to_string());
        add(
            "cancelled by the client",
            cancel.unwrap_or_else(|| "none".to_owned()),
        );
        if scenario.check_answers {
            add("answers that count", "only correct ones".to_owned());
        }
        let duration = scenario.limits.duration.map(|duration| duration.to_string());
        add(
            "duration",
            duration.unwrap_or_else(|| "until all are sent".to_owned()),
        );
    }
    facts
}

/// Fields of a body that change how an engine samples, or when an answer ends.
const SAMPLING: [&str; 16] = [
    "best_of",
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "min_p",
    "min_tokens",
    "n",
    "presence_penalty",
    "repetition_penalty",
    "stop",
    "stop_token_ids",
    "temperature",
    "top_k",
    "top_logprobs",
    "top_p",
    "use_beam_search",
];

/// Returns the sampling settings in the engine's own fields, as text. Fields that the scenario sets are left
/// out, because they are the same for all engines.
fn sampling_in_words(launch: &Launch, scenario: &Scenario) -> String {
    let body = &launch.api.dialect.body;
    let nested = body.get("sampling_params").and_then(serde_json::Value::as_object);
    let fields = body.iter().chain(nested.into_iter().flatten());
    let is_told = |(name, value): &(&String, &serde_json::Value)| {
        // Requests are greedy unless a field sets a temperature.
        let is_usual = value.is_null() || name.as_str() == "temperature" && value.as_f64() == Some(0.0);
        SAMPLING.contains(&name.as_str()) && !is_usual && !scenario.body.contains_key(name.as_str())
    };
    let mut parts: Vec<String> = fields
        .filter(is_told)
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    parts.sort();
    match parts.is_empty() {
        true => "as usual".to_owned(),
        false => parts.join(", "),
    }
}

/// Returns the SLO, timeouts and connections of requests, by name.
pub(crate) fn limit_facts(scenario: &Scenario) -> Facts {
    let limits = &scenario.limits;
    [
        (SLO, slo_in_words(scenario)),
        ("connections", scenario.connections.lifetime.in_words().to_owned()),
        (
            "retries after 429 and 503",
            scenario.connections.retries.to_string(),
        ),
        ("request timeout", limits.request.to_string()),
        ("first-byte timeout", limits.first_byte.to_string()),
        ("stall timeout", limits.stall.to_string()),
        ("drain", limits.drain.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Name of the SLO among the facts of a cell.
pub(crate) const SLO: &str = "SLO";

pub(crate) fn slo_in_words(scenario: &Scenario) -> String {
    if scenario.slo.is_none() {
        return "none".to_owned();
    }
    let tiers: Vec<String> = scenario
        .tiers()
        .iter()
        .map(|slo| slo.limits_in_words().join(", "))
        .collect();
    tiers.join("; ")
}

/// Says why a metric that depends on the SLO cannot be compared. `None` for other metrics, and if both SLOs
/// are the same.
pub(crate) fn slo_difference(metric: Metric, first_value: &str, second_value: &str) -> Option<String> {
    let depends = matches!(metric, Metric::Goodput | Metric::Attainment | Metric::Found(..));
    (depends && first_value != second_value).then(|| format!("{SLO} {first_value} against {second_value}"))
}

/// Returns the prompts of a scenario as text.
pub(crate) fn load_in_words(scenario: &Scenario) -> String {
    let workload = &scenario.workload;
    let mut words = format!(
        "{} of {}",
        workload.prompts,
        workload.dataset.bench_serving_name()
    );
    let facts = workload.facts();
    let lengths = [(facts.input_len(), "in"), (facts.output_len, "out")];
    for (tokens, way) in lengths {
        if let Some(tokens) = tokens {
            words.push_str(&format!(", {tokens} {way}"));
        }
    }
    if let Some(drawn) = facts.drawn.filter(|drawn| drawn.input_len.is_some()) {
        words.push_str(&format!(", ratio {}", drawn.range_ratio));
    }
    words + &format!(", seed {}", scenario.seed)
}

/// Returns the texts of two loads with different prompts. Their digests are added only if the texts are
/// equal.
pub(crate) fn add_digests(
    [first_value, second_value]: [String; 2],
    digests: [&ContentHash; 2],
) -> [String; 2] {
    if first_value != second_value {
        return [first_value, second_value];
    }
    digests.map(|digest| format!("{first_value}, and the texts of the prompts have the digest {digest}"))
}

/// Returns the facts that both sides have and that differ: name and both values.
pub(crate) fn differing_facts<'a>(
    first_value: &'a Facts,
    second_value: &'a Facts,
) -> impl Iterator<Item = (&'a str, &'a str, &'a str)> {
    first_value.iter().filter_map(|(name, value)| {
        let second_fact = second_value.get(name)?;
        (value != second_fact).then_some((name.as_str(), value.as_str(), second_fact.as_str()))
    })
}

/// Returns how drawn prompts are sent, by name. If digests of the prompts are known, they include this.
pub(crate) fn prompt_facts(side: &ComparedCell<'_>) -> Facts {
    let facts = side.cell.scenario.workload.facts();
    let word = |is: bool, yes: &str, no: &str| if is { yes } else { no }.to_owned();
    let name = |path: &str| {
        let path = path.trim_end_matches('/').to_lowercase();
        path.rsplit('/').next().unwrap_or(&path).to_owned()
    };
    let launch = side.launch;
    let tokenizer = name(&launch.tokenizer);
    let own = [&launch.checkpoint, &launch.model].map(|own| name(own));
    [
        (
            "chat template",
            word(facts.template == TemplateUse::Requested, "applied", "not applied"),
        ),
        ("prompts as", word(facts.sends_ids, "token ids", "text")),
        (
            "suffix of the prompts",
            facts.prompt_suffix.unwrap_or("none").to_owned(),
        ),
        (
            "tokenizer",
            match own.contains(&tokenizer) {
                true => "of the model".to_owned(),
                false => tokenizer,
            },
        ),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    #[test]
    fn checked_answers_are_still_compared_by_how_they_end() {
        let plan = include_str!("../../../tests/fixtures/run-format-1/plan.json");
        let plan: Plan = serde_json::from_str(plan).unwrap();
        let mut cell = plan.cells[0].clone();
        cell.scenario.check_answers = true;
        let mut facts_of = |stop_at_eos: bool| {
            cell.scenario.stop_at_eos = stop_at_eos;
            question_facts(&ComparedCell {
                launch: &plan.launches[0],
                cell: &cell,
                summaries: &[],
                machine: None,
            })
        };
        let [short, long] = [true, false].map(&mut facts_of);
        assert_eq!(short["answers that count"], "only correct ones");
        assert_ne!(short["answers"], long["answers"]);
    }

    #[test]
    fn sampling_that_an_engine_sets_by_itself_is_told() {
        let plan = include_str!("../../../tests/fixtures/run-format-1/plan.json");
        let plan: Plan = serde_json::from_str(plan).unwrap();
        let sampling_of = |body: serde_json::Value| {
            let mut launch = plan.launches[0].clone();
            launch.api.dialect.body = body.as_object().unwrap().clone();
            sampling_in_words(&launch, &plan.cells[0].scenario)
        };
        let usual = "as usual";
        assert_eq!(
            sampling_of(serde_json::json!({"ignore_eos": null, "temperature": 0})),
            usual
        );
        assert_eq!(
            sampling_of(serde_json::json!({"top_p": 0.5, "temperature": 1.0})),
            "temperature 1.0, top_p 0.5"
        );
        assert_eq!(
            sampling_of(serde_json::json!({"sampling_params": {"stop": ["a"]}})),
            "stop [\"a\"]"
        );
        let sides = [serde_json::json!({"top_p": 0.5}), serde_json::json!({})].map(|body| {
            let mut launch = plan.launches[0].clone();
            launch.api.dialect.body = body.as_object().unwrap().clone();
            question_facts(&ComparedCell {
                launch: &launch,
                cell: &plan.cells[0],
                summaries: &[],
                machine: None,
            })
        });
        assert_eq!(differing_facts(&sides[0], &sides[1]).count(), 1);
    }
}
