//! Decides whether two cells may be compared: what was sent, by which definitions, to what, and who measured.
//!
//! [`comparable`] lists every difference. Two cells that answer different questions (other prompts, weights
//! or definitions) are not comparable. With different numbers of GPUs only metrics per GPU are comparable.
//! All other differences are shown with the ratio. Noise is not considered here.

use std::collections::BTreeSet;

use super::conditions::{ConditionKind, Conditions};
use super::from_run::machine_facts;
use super::{machines, settings};
use crate::analysis::metrics::{self, Metric, TokenCount};
use crate::base::ids::ContentHash;
use crate::base::text::pluralize;
use crate::config::dataset::TemplateUse;
use crate::config::scenario::{Limits, Scenario};
use crate::config::workload::Profile;
use crate::plan::{Cell, Launch, Parallel};
use crate::results::record::cell::{Definitions, MeasurementStatus, Origin, Summary};
use crate::results::record::cell_stats::Facts;
use crate::results::record::machine::Machine;
use crate::results::record::provenance::{Provenance, UnknownFact};
use crate::results::record::search::{SearchRecord, SearchStopReason};
use crate::results::record::validity::Verdict;

#[derive(Clone, Copy, Debug)]
pub(crate) struct ComparedCell<'a> {
    pub launch: &'a Launch,
    pub cell: &'a Cell,
    pub summaries: &'a [&'a Summary],
    /// Machine that measured the cell. `None` if both sides are of one run, or if it is unknown.
    pub machine: Option<&'a Machine>,
}

/// Which comparison of two cells is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Comparability {
    Comparable,
    WithDifferences(Vec<String>),
    /// A ratio without a verdict, because more than the engine differs. Holds every difference, those of the
    /// environment first.
    DescribedOnly(Vec<String>),
    /// A ratio of metrics per GPU alone, because the numbers of GPUs differ. Holds every difference.
    PerGpuOnly(Vec<String>),
    /// No ratio and no winner. Holds every reason.
    Not(Vec<String>),
}

impl Comparability {
    /// Every difference or reason.
    #[cfg(test)]
    pub(crate) fn reasons(&self) -> &[String] {
        match self {
            Self::Comparable => &[],
            Self::WithDifferences(reasons)
            | Self::DescribedOnly(reasons)
            | Self::PerGpuOnly(reasons)
            | Self::Not(reasons) => reasons,
        }
    }

    /// Returns whether the metrics themselves may be divided.
    pub(crate) const fn allows_ratio(&self) -> bool {
        matches!(
            self,
            Self::Comparable | Self::WithDifferences(_) | Self::DescribedOnly(_)
        )
    }
}

/// Differences found so far, by their consequence.
#[derive(Default)]
struct FoundDifferences {
    incomparable: Vec<String>,
    per_gpu: Vec<String>,
    environment: Vec<String>,
    noted: Vec<String>,
}

/// Compares the conditions of `one` with those of `other`.
pub(crate) fn comparable(first: &ComparedCell<'_>, second: &ComparedCell<'_>) -> Comparability {
    let mut differences = FoundDifferences::default();
    compare_validity(&mut differences, first, second);
    compare_prompts(&mut differences, first, second);
    compare_definitions(&mut differences, first, second);
    compare_parallelism(&mut differences, first, second);
    compare_provenance(&mut differences, first, second);
    compare_conditions(&mut differences, first, second);
    compare_machines(&mut differences, first, second);
    compare_searches(&mut differences, first, second);
    let FoundDifferences {
        incomparable: mut apart,
        mut per_gpu,
        mut environment,
        noted: beside,
    } = differences;
    if !apart.is_empty() {
        apart.extend(per_gpu);
        return Comparability::Not(apart);
    }
    if !per_gpu.is_empty() {
        per_gpu.extend(environment);
        per_gpu.extend(beside);
        return Comparability::PerGpuOnly(per_gpu);
    }
    if !environment.is_empty() {
        environment.extend(beside);
        return Comparability::DescribedOnly(environment);
    }
    match beside.is_empty() {
        true => Comparability::Comparable,
        false => Comparability::WithDifferences(beside),
    }
}

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
        add(
            "GPUs for each copy of the model, as the server reports them,",
            parallel,
        );
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
            "sampling by the engine's `body`",
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

/// Returns the SLO and timeouts of requests, by name.
pub(crate) fn limit_facts(scenario: &Scenario) -> Facts {
    let limits = &scenario.limits;
    [
        (SLO, slo_in_words(scenario)),
        ("request timeout", limits.request.to_string()),
        ("first-byte timeout", limits.first_byte.to_string()),
        ("stall timeout", limits.stall.to_string()),
        ("drain", limits.drain.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Name of the SLO in [`limits`].
pub(crate) const SLO: &str = "SLO";

pub(crate) fn slo_in_words(scenario: &Scenario) -> String {
    let Some(slo) = &scenario.slo else {
        return "none".to_owned();
    };
    let targets = [("TTFT", slo.ttft), ("TPOT", slo.tpot), ("E2E", slo.e2e)];
    let limits: Vec<String> = targets
        .iter()
        .filter_map(|(name, target)| Some(format!("{name} {}", (*target)?)))
        .collect();
    limits.join(", ")
}

/// Says why a metric that depends on the SLO cannot be compared. `None` for other metrics, and if both SLOs
/// are the same.
pub(crate) fn slo_difference(metric: Metric, first_value: &str, second_value: &str) -> Option<String> {
    let depends = matches!(metric, Metric::Goodput | Metric::Attainment | Metric::Found(_));
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
    digests.map(|digest| format!("{first_value}, with different text (digest {digest})"))
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

/// Returns the definitions in which two cells can be compared: `matrix` if both were measured here, otherwise
/// those of the import.
pub(crate) fn shared_definitions(first: &ComparedCell<'_>, second: &ComparedCell<'_>) -> Option<Definitions> {
    let (first_value, second_value) = (first.definitions(), second.definitions());
    [Definitions::Matrix, Definitions::Current, Definitions::Classic]
        .into_iter()
        .find(|definitions| first_value.contains(definitions) && second_value.contains(definitions))
}

impl<'a> ComparedCell<'a> {
    fn imported(&self) -> Option<&'a Provenance> {
        self.summaries
            .iter()
            .find_map(|summary| summary.imported.as_ref())
    }

    fn is_unknown(&self, what: UnknownFact) -> bool {
        self.imported().is_some_and(|imported| imported.lacks(what))
    }

    /// Returns the definitions in which all metrics are known. An import has only its own, because it has
    /// only some metrics in others.
    fn definitions(&self) -> BTreeSet<Definitions> {
        let done = self
            .summaries
            .iter()
            .filter(|summary| summary.status == MeasurementStatus::Done);
        let mut sets: BTreeSet<Definitions> =
            done.flat_map(|summary| summary.figures.keys().copied()).collect();
        if self.imported().is_some() {
            sets.remove(&Definitions::Matrix);
        }
        sets
    }

    /// Returns the digest of the prompts, if all measurements sent the same.
    fn prompts_hash(&self) -> Option<&'a ContentHash> {
        let first = self.summaries.first()?.prompts_hash.as_ref()?;
        let is_same = |summary: &&Summary| summary.prompts_hash.as_ref() == Some(first);
        self.summaries.iter().all(is_same).then_some(first)
    }

    /// Returns the metric of the first measurement, in the first definitions that have it.
    fn figure(&self, metric: Metric) -> Option<f64> {
        let summary = self.summaries.first()?;
        [Definitions::Matrix, Definitions::Classic, Definitions::Current]
            .iter()
            .find_map(|definitions| metrics::metric_value(summary.figures.get(definitions)?, metric))
    }

    fn prompts(&self) -> Option<u64> {
        if self.is_unknown(UnknownFact::Prompts) {
            return None;
        }
        let prompts = self.summaries.first().and_then(|summary| summary.prompts);
        Some(u64::from(prompts.unwrap_or(self.cell.scenario.workload.prompts)))
    }

    /// Returns whether every prompt was answered, so that sums describe all prompts.
    fn is_complete(&self) -> bool {
        let prompts = self.prompts().map(|prompts| prompts as f64);
        prompts.is_some() && self.figure(Metric::Completed) == prompts
    }

    /// Returns whether the prompts of the cell had a unique prefix.
    fn has_unique_prefixes(&self) -> bool {
        let proofs = self
            .summaries
            .iter()
            .filter_map(|summary| summary.cache_reset.as_ref());
        proofs.into_iter().any(|proof| proof.unique_prefix.is_some())
    }

    fn is_simulated(&self) -> bool {
        let is_simulated = |summary: &&Summary| summary.origin == Origin::Simulated;
        self.launch.engine.simulated || self.summaries.iter().any(is_simulated)
    }
}

fn compare_validity(differences: &mut FoundDifferences, first: &ComparedCell<'_>, second: &ComparedCell<'_>) {
    for (side, name) in [(first, "it"), (second, "the reference")] {
        let invalid: Vec<_> = side
            .summaries
            .iter()
            .filter_map(|summary| summary.validity.as_ref())
            .filter(|validity| validity.verdict == Verdict::Invalid)
            .collect();
        if invalid.is_empty() {
            continue;
        }
        let reasons = invalid.iter().flat_map(|validity| &validity.reasons);
        let codes: BTreeSet<&str> = reasons
            .filter(|reason| reason.weight == Verdict::Invalid)
            .map(|reason| reason.code.name())
            .collect();
        let codes: Vec<&str> = codes.into_iter().collect();
        differences
            .incomparable
            .push(format!("{name} is invalid ({})", codes.join(", ")));
    }
}

/// Compares prompts, lengths, and what determines the answers.
fn compare_prompts(
    differences: &mut FoundDifferences,
    cell: &ComparedCell<'_>,
    reference: &ComparedCell<'_>,
) {
    let is_imported = cell.imported().is_some() || reference.imported().is_some();
    match (cell.prompts_hash(), reference.prompts_hash()) {
        (Some(first_value), Some(second_value)) if first_value == second_value => {}
        (Some(first_value), Some(second_value)) => {
            let loads = [cell, reference].map(|side| load_in_words(&side.cell.scenario));
            let [first_value, second_value] = add_digests(loads, [first_value, second_value]);
            differences
                .incomparable
                .push(format!("prompts {first_value} against {second_value}"));
        }
        _ if is_imported => {
            compare_prompt_sums(differences, cell, reference);
            compare_clients(differences, cell, reference);
        }
        _ => differences.incomparable.push(
            "the prompts are unknown: not recorded, or not the same in all measurements of a side".to_owned(),
        ),
    }
    // A difference but no obstacle: only the first few tokens of the prompts differ. Lengths are the same and
    // both sides are cold, which is the purpose of the prefix. An engine does the same work for both.
    if cell.has_unique_prefixes() != reference.has_unique_prefixes() {
        let word = |side: &ComparedCell<'_>| match side.has_unique_prefixes() {
            true => "prompts with unique prefixes",
            false => "prompts as drawn",
        };
        differences
            .noted
            .push(format!("{} against {}", word(cell), word(reference)));
    }
    let (first_value, second_value) = (question_facts(cell), question_facts(reference));
    differences.incomparable.extend(
        differing_facts(&first_value, &second_value)
            .map(|(what, first_value, second_value)| format!("{what} {first_value} against {second_value}")),
    );
    let lengths = [cell, reference].map(|side| mean_response_tokens(&side.cell.scenario, side.summaries));
    if let Some(difference) = length_difference(lengths[0], lengths[1]) {
        differences.noted.push(format!(
            "{difference}, so only metrics that do not depend on the length of answers are judged"
        ));
    }
    if cell.is_unknown(UnknownFact::Rate) || reference.is_unknown(UnknownFact::Rate) {
        differences
            .noted
            .push("the arrival of requests is not known for both sides".to_owned());
    }
}

/// Compares prompts without a digest by their number, their sums and how they were drawn.
fn compare_prompt_sums(
    differences: &mut FoundDifferences,
    first: &ComparedCell<'_>,
    second: &ComparedCell<'_>,
) {
    let before = differences.incomparable.len();
    match (first.prompts(), second.prompts()) {
        (Some(first_value), Some(second_value)) if first_value != second_value => {
            differences
                .incomparable
                .push(format!("{first_value} prompts against {second_value}"));
        }
        (Some(_), Some(_)) => {}
        _ => differences
            .incomparable
            .push("the number of prompts is not known for both sides".to_owned()),
    }
    let (first_value, second_value) = (&first.cell.scenario.workload, &second.cell.scenario.workload);
    if first.is_unknown(UnknownFact::Dataset) || second.is_unknown(UnknownFact::Dataset) {
        differences
            .incomparable
            .push("the data set is not known for both sides".to_owned());
    } else if first_value.dataset.name() != second_value.dataset.name() {
        let (first_value, second_value) = (&first_value.dataset, &second_value.dataset);
        differences.incomparable.push(format!(
            "data set {} against {}",
            first_value.bench_serving_name(),
            second_value.bench_serving_name()
        ));
    }
    let lengths = |side: &ComparedCell<'_>| {
        let facts = side.cell.scenario.workload.facts();
        (facts.drawn, facts.output_len)
    };
    let is_told = !first.is_unknown(UnknownFact::Lengths) && !second.is_unknown(UnknownFact::Lengths);
    if !is_told {
        differences
            .incomparable
            .push("the requested lengths are not known for both sides".to_owned());
    } else if lengths(first) != lengths(second) {
        differences
            .incomparable
            .push("the requested lengths differ".to_owned());
    }
    if differences.incomparable.len() == before && first.is_complete() && second.is_complete() {
        compare_token_sums(differences, first, second);
    }
    if differences.incomparable.len() > before {
        return;
    }
    let seed =
        |side: &ComparedCell<'_>| (!side.is_unknown(UnknownFact::Seed)).then_some(side.cell.scenario.seed);
    match (seed(first), seed(second)) {
        (Some(first_value), Some(second_value)) if first_value != second_value => {
            differences
                .incomparable
                .push(format!("seed {first_value} against {second_value}"));
        }
        (Some(_), Some(_)) => differences
            .noted
            .push("the prompts are compared only by number, token sums and seed".to_owned()),
        _ => differences
            .noted
            .push("the prompts are compared only by number and token sums".to_owned()),
    }
}

/// Returns how drawn prompts are sent, by name. If digests of the prompts are known, they include this.
fn prompt_facts(side: &ComparedCell<'_>) -> Facts {
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

/// Compares the settings of the clients besides the prompts, if one side is imported.
fn compare_clients(differences: &mut FoundDifferences, first: &ComparedCell<'_>, second: &ComparedCell<'_>) {
    let (first_value, second_value) = (prompt_facts(first), prompt_facts(second));
    differences.incomparable.extend(
        differing_facts(&first_value, &second_value)
            .map(|(what, first_value, second_value)| format!("{what} {first_value} against {second_value}")),
    );
    let warmup = |side: &ComparedCell<'_>| side.cell.scenario.limits.warmup;
    // A file need not have the number of warm-up requests. The import then uses the default.
    let is_filler =
        |side: &ComparedCell<'_>| side.imported().is_some() && warmup(side) == Limits::default().warmup;
    let are_told = first.imported().is_some() && second.imported().is_some()
        || ![first, second].into_iter().any(is_filler);
    if are_told && warmup(first) != warmup(second) {
        differences.incomparable.push(format!(
            "warm-up requests {} against {}",
            warmup(first),
            warmup(second)
        ));
    }
    let settings = |side: &ComparedCell<'_>| {
        let mut facts = side
            .imported()
            .map(|imported| imported.client.clone())
            .unwrap_or_default();
        let launch = side.launch;
        if side.imported().is_some() && launch.served_model_name != launch.checkpoint {
            facts.insert("served model name".to_owned(), launch.served_model_name.clone());
        }
        facts
    };
    let (first_value, second_value) = (settings(first), settings(second));
    let setting_differences = settings::setting_pairs(&first_value, &second_value).into_iter();
    differences.noted.extend(
        setting_differences
            .map(|(what, first_value, second_value)| format!("{what} {first_value} against {second_value}")),
    );
}

/// Compares the tokens of all prompts, and the requested output tokens.
fn compare_token_sums(
    differences: &mut FoundDifferences,
    first: &ComparedCell<'_>,
    second: &ComparedCell<'_>,
) {
    let requested = Metric::Tokens(TokenCount::OutputRequested);
    let input = |side: &ComparedCell<'_>| side.figure(Metric::Tokens(TokenCount::Input));
    let output = |side: &ComparedCell<'_>| {
        let output = || side.figure(Metric::Tokens(TokenCount::Output));
        side.figure(requested).or_else(output)
    };
    for (what, first_value, second_value) in [
        ("prompt tokens", input(first), input(second)),
        ("output tokens", output(first), output(second)),
    ] {
        match (first_value, second_value) {
            (Some(first_value), Some(second_value)) if first_value == second_value => {}
            (Some(first_value), Some(second_value)) => differences
                .incomparable
                .push(format!("{first_value} {what} against {second_value}")),
            _ => differences
                .incomparable
                .push(format!("{what} are not known for both sides")),
        }
    }
}

fn compare_definitions(
    differences: &mut FoundDifferences,
    first: &ComparedCell<'_>,
    second: &ComparedCell<'_>,
) {
    // A cell without any metrics differs by its status.
    if shared_definitions(first, second).is_some()
        || first.definitions().is_empty()
        || second.definitions().is_empty()
    {
        return;
    }
    let words = |side: &ComparedCell<'_>| {
        let names = side
            .definitions()
            .into_iter()
            .map(|definitions| match definitions {
                Definitions::Classic => "classic",
                Definitions::Current => "current",
                Definitions::Matrix => "matrix",
            });
        names.collect::<Vec<_>>().join(", ")
    };
    let (first_value, second_value) = (words(first), words(second));
    differences.incomparable.push(format!(
        "metrics in the definitions {first_value} against {second_value}"
    ));
}

fn compare_parallelism(
    differences: &mut FoundDifferences,
    first: &ComparedCell<'_>,
    second: &ComparedCell<'_>,
) {
    let (first_value, second_value) = (first.launch.gpus(), second.launch.gpus());
    let is_unknown = "the number of GPUs is not known for both sides".to_owned();
    match (first_value, second_value) {
        _ if first.is_unknown(UnknownFact::Gpus) || second.is_unknown(UnknownFact::Gpus) => {
            differences.incomparable.push(is_unknown)
        }
        (Some(first_value), Some(second_value)) if first_value != second_value => {
            differences.per_gpu.push(format!(
                "{} against {second_value}",
                pluralize(first_value as usize, "GPU", "GPUs")
            ));
        }
        (Some(_), Some(_)) => {}
        _ => differences.noted.push(is_unknown),
    }
    let is_told = !first.is_unknown(UnknownFact::Tp) && !second.is_unknown(UnknownFact::Tp);
    if is_told && first_value == second_value && first.launch.parallel != second.launch.parallel {
        let words = |parallel: Parallel| {
            let Parallel { tp, pp, dp, ep } = parallel;
            format!("tp {tp} pp {pp} dp {dp} ep {ep}")
        };
        let (first_value, second_value) = (words(first.launch.parallel), words(second.launch.parallel));
        differences
            .noted
            .push(format!("{first_value} against {second_value}"));
    }
}

/// Compares the kind of GPU of attached servers, which is known only if it is declared.
fn compare_gpu_kinds(
    differences: &mut FoundDifferences,
    first: &ComparedCell<'_>,
    second: &ComparedCell<'_>,
) {
    match (gpu_kind(first), gpu_kind(second)) {
        (Some(first_value), Some(second_value)) if first_value == second_value => {}
        (Some(first_value), Some(second_value)) => differences
            .environment
            .push(format!("GPUs {first_value} against {second_value}")),
        _ => differences
            .noted
            .push("the GPU model is not known for both sides".to_owned()),
    }
}

/// Returns the kind of GPU of a cell: as declared for a server or a file, otherwise that of the machine.
fn gpu_kind(side: &ComparedCell<'_>) -> Option<String> {
    let declared = side.launch.place.declared_gpu();
    if declared.is_some() || side.launch.is_attached() {
        return declared.map(str::to_owned);
    }
    let gpus: BTreeSet<&str> = side.machine?.gpus.iter().map(String::as_str).collect();
    (!gpus.is_empty()).then(|| gpus.into_iter().collect::<Vec<_>>().join(", "))
}

/// Compares the machines. A difference that decides how fast an engine can be allows no verdict.
fn compare_machines(
    differences: &mut FoundDifferences,
    cell: &ComparedCell<'_>,
    reference: &ComparedCell<'_>,
) {
    if cell.launch.is_attached() || reference.launch.is_attached() {
        compare_gpu_kinds(differences, cell, reference);
        return;
    }
    if cell.imported().is_some() || reference.imported().is_some() {
        match (gpu_kind(cell), gpu_kind(reference)) {
            (Some(first_value), Some(second_value)) if first_value == second_value => {}
            (Some(first_value), Some(second_value)) => differences
                .environment
                .push(format!("GPUs {first_value} against {second_value}")),
            _ => differences
                .environment
                .push("the GPU model is not known for both sides".to_owned()),
        }
        return;
    }
    let (Some(first_value), Some(second_value)) = (cell.machine, reference.machine) else {
        return;
    };
    let facts = [second_value, first_value].map(machine_facts);
    for difference in machines::differences(&facts[0], &facts[1]) {
        // A ratio names its own side first.
        let text = format!(
            "{} {} against {}",
            difference.what, difference.after, difference.before
        );
        match difference.kind.forbids_verdict() {
            true => differences.environment.push(text),
            false => differences.noted.push(text),
        }
    }
}

/// Compares client, profile, timeouts, settings, and the origin of the engine.
fn compare_provenance(
    differences: &mut FoundDifferences,
    first: &ComparedCell<'_>,
    second: &ComparedCell<'_>,
) {
    if first.is_simulated() != second.is_simulated() {
        differences
            .incomparable
            .push("only one side is simulated".to_owned());
    }
    let client = |side: &ComparedCell<'_>| side.imported().map_or("matrix", |imported| imported.tool.name());
    let profile = |side: &ComparedCell<'_>| match side.cell.scenario.profile {
        Profile::Classic => "classic",
        Profile::Current => "current",
    };
    for (what, first_value, second_value) in [
        ("client", client(first), client(second)),
        ("profile", profile(first), profile(second)),
        (
            "engine",
            first.launch.place.describe_origin(),
            second.launch.place.describe_origin(),
        ),
    ] {
        if first_value != second_value {
            differences
                .noted
                .push(format!("{what} {first_value} against {second_value}"));
        }
    }
    let limits = [first, second].map(|side| limit_facts(&side.cell.scenario));
    if first.imported().is_none() && second.imported().is_none() {
        let differing = differing_facts(&limits[0], &limits[1]);
        differences.noted.extend(
            differing.map(|(what, first_value, second_value)| {
                format!("{what} {first_value} against {second_value}")
            }),
        );
    }
    let is_one_recipe = first.launch.engine.recipe == second.launch.engine.recipe;
    let (first_value, second_value) = (
        settings::launch_settings(first.launch, first.summaries),
        settings::launch_settings(second.launch, second.summaries),
    );
    if first.launch.is_attached() || second.launch.is_attached() {
        differences
            .noted
            .extend(
                differing_facts(&first_value, &second_value).map(|(name, first_value, second_value)| {
                    format!(
                        "{}{name} {first_value} against {second_value}",
                        settings::lossy_mark(name)
                    )
                }),
            );
        return;
    }
    // The precision distinguishes checkpoints of one model already, and different engines need different
    // checkpoints.
    let differing = settings::differing_settings(&first_value, &second_value, is_one_recipe).into_iter();
    differences
        .noted
        .extend(differing.filter(|differing| !differing.starts_with("checkpoint ") || is_one_recipe));
}

/// Compares clocks, power limits and answers.
fn compare_conditions(
    differences: &mut FoundDifferences,
    first: &ComparedCell<'_>,
    second: &ComparedCell<'_>,
) {
    let differing = Conditions::from_summaries(first.summaries)
        .differences(&Conditions::from_summaries(second.summaries));
    for differs in differing {
        let words = format!(
            "{} {} against {}",
            differs.condition, differs.before, differs.after
        );
        match differs.kind {
            ConditionKind::Prompts => differences.incomparable.push(words),
            ConditionKind::Machine | ConditionKind::Answers => differences.environment.push(words),
        }
    }
}

/// Reports searches without a reliable bracket, which give no ratio.
fn compare_searches(differences: &mut FoundDifferences, first: &ComparedCell<'_>, second: &ComparedCell<'_>) {
    for (side, name) in [(first, "it"), (second, "the reference")] {
        let records = side
            .summaries
            .iter()
            .filter_map(|summary| summary.search.as_ref());
        let doubt = records.filter_map(unreliable_search_reason).next();
        differences
            .incomparable
            .extend(doubt.map(|doubt| format!("{name}: {doubt}")));
    }
}

/// Says why the result of a search gives no ratio: it has no bracket, or an end of the bracket rests on too
/// few requests to decide whether the target is met (five may miss it). `None` if it gives one.
pub(crate) fn unreliable_search_reason(record: &SearchRecord) -> Option<String> {
    if record.ending != SearchStopReason::Bracketed {
        return Some("the search did not bracket its result".to_owned());
    }
    if record
        .found
        .zip(record.fails_at)
        .is_none_or(|(best, fails_at)| fails_at <= best)
    {
        return Some("the value that the search found is not below the value that failed".to_owned());
    }
    let (fewest, needed) = record.few_requests()?;
    Some(format!(
        "a point that bounds the search has only {fewest} requests, and {needed:.0} are needed"
    ))
}

/// Returns the mean output tokens of an answer, if the model ends its answers. `None` if lengths are
/// requested or unknown.
pub(crate) fn mean_response_tokens(scenario: &Scenario, summaries: &[&Summary]) -> Option<f64> {
    if !scenario.stop_at_eos {
        return None;
    }
    let sum = |metric: Metric| -> f64 {
        let read =
            |summary: &&Summary| metrics::metric_value(summary.figures.get(&Definitions::Matrix)?, metric);
        summaries.iter().filter_map(read).sum()
    };
    let (tokens, answers) = (sum(Metric::Tokens(TokenCount::Output)), sum(Metric::Completed));
    (tokens > 0.0 && answers > 0.0).then(|| tokens / answers)
}

/// Says that mean answer lengths (in tokens) differ too much to compare metrics that count answers or their
/// tokens. `None` if they do not.
pub(crate) fn length_difference(first_value: Option<f64>, second_value: Option<f64>) -> Option<String> {
    const MAX_LENGTH_DIFFERENCE: f64 = 0.02;
    let (first_value, second_value) = (first_value?, second_value?);
    let is_apart = (first_value - second_value).abs() > MAX_LENGTH_DIFFERENCE * first_value.min(second_value);
    is_apart.then(|| format!("answers of {first_value:.1} tokens against {second_value:.1}"))
}

/// Returns whether a metric depends on the length of answers. Only times of tokens, and rates derived from
/// them, do not.
pub(crate) const fn depends_on_length(metric: Metric) -> bool {
    !matches!(
        metric,
        Metric::Time(
            _,
            metrics::LatencyKind::Ttft | metrics::LatencyKind::Tpot | metrics::LatencyKind::Itl
        ) | Metric::PerUser
            | Metric::Interactivity
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    #[test]
    fn a_search_that_contradicts_itself_gives_no_ratio() {
        let record = |best: f64, fails_at: f64| -> SearchRecord {
            serde_json::from_value(serde_json::json!({
                "by": "concurrency", "target": 0.9, "points": [], "found": best, "attainment": 1.0,
                "fails_at": fails_at, "ending": "bracketed",
            }))
            .unwrap()
        };
        assert_eq!(unreliable_search_reason(&record(4.0, 5.0)), None);
        for fails_at in [4.0, 2.0] {
            let doubt = unreliable_search_reason(&record(4.0, fails_at)).unwrap();
            assert!(doubt.contains("not below"), "{doubt}");
        }
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
