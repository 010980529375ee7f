//! Decides whether two cells may be compared: what was sent, by which definitions, to what, and who measured.
//!
//! [`comparable`] lists every difference. Two cells that answer different questions (other prompts, weights
//! or definitions) are not comparable. With different numbers of GPUs only metrics per GPU are comparable.
//! All other differences are shown with the ratio. Noise is not considered here.

use std::collections::BTreeSet;

use super::conditions::{Conditions, Of};
use super::from_run::machine_facts;
use super::{machines, settings};
use crate::analysis::metrics::{self, Count, Metric};
use crate::base::ids::ContentHash;
use crate::base::text::counted;
use crate::config::dataset::TemplateUse;
use crate::config::scenario::{Limits, Scenario};
use crate::config::workload::Profile;
use crate::plan::{Cell, Launch, Parallel};
use crate::results::record::cell::{Definitions, Ending, Origin, Summary};
use crate::results::record::cell_stats::Facts;
use crate::results::record::machine::Machine;
use crate::results::record::provenance::{Imported, Unknown};
use crate::results::record::search::{SearchEnding, SearchRecord};
use crate::results::record::validity::Verdict;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Side<'a> {
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
    pub(crate) fn said(&self) -> &[String] {
        match self {
            Self::Comparable => &[],
            Self::WithDifferences(said)
            | Self::DescribedOnly(said)
            | Self::PerGpuOnly(said)
            | Self::Not(said) => said,
        }
    }

    /// Returns whether the metrics themselves may be divided.
    pub(crate) const fn gives_ratio(&self) -> bool {
        matches!(
            self,
            Self::Comparable | Self::WithDifferences(_) | Self::DescribedOnly(_)
        )
    }
}

/// Differences found so far, by their consequence.
#[derive(Default)]
struct Said {
    apart: Vec<String>,
    per_gpu: Vec<String>,
    environment: Vec<String>,
    beside: Vec<String>,
}

/// Compares the conditions of `one` with those of `other`.
pub(crate) fn comparable(one: &Side<'_>, other: &Side<'_>) -> Comparability {
    let mut said = Said::default();
    validity(&mut said, one, other);
    sent(&mut said, one, other);
    definitions(&mut said, one, other);
    spread(&mut said, one, other);
    circumstances(&mut said, one, other);
    conditions(&mut said, one, other);
    machine(&mut said, one, other);
    searches(&mut said, one, other);
    let Said {
        mut apart,
        mut per_gpu,
        mut environment,
        beside,
    } = said;
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
pub(crate) fn asked(side: &Side<'_>) -> Facts {
    let (launch, scenario) = (side.launch, &side.cell.scenario);
    let mut facts = Facts::new();
    let mut tell = |name: &str, told: String| facts.insert(name.to_owned(), told);
    tell("model", launch.model.clone());
    match &launch.precision {
        Some(precision) => tell("precision", precision.clone()),
        None => {
            // The same checkpoint has the same precision. For an attached server only the server knows it.
            tell("checkpoint", launch.checkpoint.clone());
            let reported = launch
                .is_attached()
                .then(|| settings::reported_precision(side.summaries));
            tell(
                "precision",
                reported.flatten().unwrap_or_else(|| "unknown".to_owned()),
            )
        }
    };
    if launch.is_attached()
        && launch.gpus().is_none()
        && let Some(parallel) = settings::reported_parallel(side.summaries)
    {
        tell(
            "GPUs for each copy of the model, as the server reports them,",
            parallel,
        );
    }
    let length = match scenario.stop_at_eos {
        true => "as the model ends them",
        false => "as long as asked",
    };
    tell("answers", length.to_owned());
    let names: Vec<&str> = scenario.body.keys().map(String::as_str).collect();
    let body = match names.is_empty() {
        true => "none".to_owned(),
        false => {
            let text = serde_json::Value::from(scenario.body.clone()).to_string();
            format!(
                "{} ({})",
                names.join(", "),
                ContentHash::of_bytes(text.as_bytes())
            )
        }
    };
    tell("fields of the body", body);
    if side.imported().is_none() {
        tell("sampling by the engine's `body`", sampling(launch, scenario));
    }
    if scenario.search.is_none() && !side.lacks(Unknown::Rate) {
        let arrival = &scenario.arrival;
        let pace = arrival.pace.as_ref().map(ToString::to_string);
        tell(
            "rate",
            format!("{} req/s", pace.unwrap_or_else(|| arrival.rate.to_string())),
        );
        let limit = arrival.concurrency.map(|limit| limit.to_string());
        tell(
            "requests at once",
            limit.unwrap_or_else(|| "any number".to_owned()),
        );
        if !arrival.rate.is_infinite() {
            let spacing = serde_json::json!(arrival.spacing).to_string();
            tell("spacing", spacing.replace('"', ""));
        }
    }
    if side.imported().is_none() {
        tell("warm-up requests", scenario.limits.warmup.to_string());
        let duration = scenario.limits.duration.map(|duration| duration.to_string());
        tell(
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
fn sampling(launch: &Launch, scenario: &Scenario) -> String {
    let body = &launch.contact.dialect.body;
    let nested = body.get("sampling_params").and_then(serde_json::Value::as_object);
    let fields = body.iter().chain(nested.into_iter().flatten());
    let is_told = |(name, value): &(&String, &serde_json::Value)| {
        // Requests are greedy unless a field sets a temperature.
        let is_usual = value.is_null() || name.as_str() == "temperature" && value.as_f64() == Some(0.0);
        SAMPLING.contains(&name.as_str()) && !is_usual && !scenario.body.contains_key(name.as_str())
    };
    let mut told: Vec<String> = fields
        .filter(is_told)
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    told.sort();
    match told.is_empty() {
        true => "as usual".to_owned(),
        false => told.join(", "),
    }
}

/// Returns the SLO and timeouts of requests, by name.
pub(crate) fn limits(scenario: &Scenario) -> Facts {
    let limits = &scenario.limits;
    [
        (SLO, slo(scenario)),
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

pub(crate) fn slo(scenario: &Scenario) -> String {
    let Some(slo) = &scenario.slo else {
        return "none".to_owned();
    };
    let targets = [("TTFT", slo.ttft), ("TPOT", slo.tpot), ("E2E", slo.e2e)];
    let told: Vec<String> = targets
        .iter()
        .filter_map(|(name, target)| Some(format!("{name} {}", (*target)?)))
        .collect();
    told.join(", ")
}

/// Says why a metric that depends on the SLO cannot be compared. `None` for other metrics, and if both SLOs
/// are the same.
pub(crate) fn slo_apart(metric: Metric, ours: &str, theirs: &str) -> Option<String> {
    let depends = matches!(metric, Metric::Goodput | Metric::Attainment | Metric::Found(_));
    (depends && ours != theirs).then(|| format!("{SLO} {ours} against {theirs}"))
}

/// Returns the prompts of a scenario as text.
pub(crate) fn load(scenario: &Scenario) -> String {
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
pub(crate) fn told_apart([ours, theirs]: [String; 2], digests: [&ContentHash; 2]) -> [String; 2] {
    if ours != theirs {
        return [ours, theirs];
    }
    digests.map(|digest| format!("{ours}, of another text (digest {digest})"))
}

/// Returns the facts that both sides have and that differ: name and both values.
pub(crate) fn differing<'a>(
    ours: &'a Facts,
    theirs: &'a Facts,
) -> impl Iterator<Item = (&'a str, &'a str, &'a str)> {
    ours.iter().filter_map(|(name, value)| {
        let other = theirs.get(name)?;
        (value != other).then_some((name.as_str(), value.as_str(), other.as_str()))
    })
}

/// Returns the definitions in which two cells can be compared: `matrix` if both were measured here, otherwise
/// those of the import.
pub(crate) fn shared(one: &Side<'_>, other: &Side<'_>) -> Option<Definitions> {
    let (ours, theirs) = (one.definitions(), other.definitions());
    [Definitions::Matrix, Definitions::Current, Definitions::Classic]
        .into_iter()
        .find(|definitions| ours.contains(definitions) && theirs.contains(definitions))
}

impl<'a> Side<'a> {
    fn imported(&self) -> Option<&'a Imported> {
        self.summaries
            .iter()
            .find_map(|summary| summary.imported.as_ref())
    }

    fn lacks(&self, what: Unknown) -> bool {
        self.imported().is_some_and(|imported| imported.lacks(what))
    }

    /// Returns the definitions in which all metrics are known. An import has only its own, because it has
    /// only some metrics in others.
    fn definitions(&self) -> BTreeSet<Definitions> {
        let done = self
            .summaries
            .iter()
            .filter(|summary| summary.ending == Ending::Done);
        let mut all: BTreeSet<Definitions> =
            done.flat_map(|summary| summary.figures.keys().copied()).collect();
        if self.imported().is_some() {
            all.remove(&Definitions::Matrix);
        }
        all
    }

    /// Returns the digest of the prompts, if all measurements sent the same.
    fn hash(&self) -> Option<&'a ContentHash> {
        let first = self.summaries.first()?.prompts_hash.as_ref()?;
        let is_same = |summary: &&Summary| summary.prompts_hash.as_ref() == Some(first);
        self.summaries.iter().all(is_same).then_some(first)
    }

    /// Returns the metric of the first measurement, in the first definitions that have it.
    fn figure(&self, metric: Metric) -> Option<f64> {
        let summary = self.summaries.first()?;
        [Definitions::Matrix, Definitions::Classic, Definitions::Current]
            .iter()
            .find_map(|definitions| metrics::figure(summary.figures.get(definitions)?, metric))
    }

    fn prompts(&self) -> Option<u64> {
        if self.lacks(Unknown::Prompts) {
            return None;
        }
        let given = self.summaries.first().and_then(|summary| summary.prompts);
        Some(u64::from(given.unwrap_or(self.cell.scenario.workload.prompts)))
    }

    /// Returns whether every prompt was answered, so that sums describe all prompts.
    fn is_whole(&self) -> bool {
        let prompts = self.prompts().map(|prompts| prompts as f64);
        prompts.is_some() && self.figure(Metric::Completed) == prompts
    }

    /// Returns whether the prompts of the cell had a unique prefix.
    fn has_unique_prefixes(&self) -> bool {
        let proofs = self.summaries.iter().filter_map(|summary| summary.reset.as_ref());
        proofs.into_iter().any(|proof| proof.unique_prefix.is_some())
    }

    fn is_simulated(&self) -> bool {
        let is_simulated = |summary: &&Summary| summary.origin == Origin::Simulated;
        self.launch.engine.simulated || self.summaries.iter().any(is_simulated)
    }
}

fn validity(said: &mut Said, one: &Side<'_>, other: &Side<'_>) {
    for (side, name) in [(one, "it"), (other, "the reference")] {
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
        said.apart
            .push(format!("{name} is invalid ({})", codes.join(", ")));
    }
}

/// Compares prompts, lengths, and what determines the answers.
fn sent(said: &mut Said, one: &Side<'_>, other: &Side<'_>) {
    let is_imported = one.imported().is_some() || other.imported().is_some();
    match (one.hash(), other.hash()) {
        (Some(ours), Some(theirs)) if ours == theirs => {}
        (Some(ours), Some(theirs)) => {
            let loads = [one, other].map(|side| load(&side.cell.scenario));
            let [ours, theirs] = told_apart(loads, [ours, theirs]);
            said.apart.push(format!("prompts {ours} against {theirs}"));
        }
        _ if is_imported => {
            by_sums(said, one, other);
            client(said, one, other);
        }
        _ => said
            .apart
            .push("the prompts are not known, or not the same in every measurement".to_owned()),
    }
    // A difference but no obstacle: only the first few tokens of the prompts differ. Lengths are the same and
    // both sides are cold, which is the purpose of the prefix. An engine does the same work for both.
    if one.has_unique_prefixes() != other.has_unique_prefixes() {
        let word = |side: &Side<'_>| match side.has_unique_prefixes() {
            true => "prompts with unique prefixes",
            false => "prompts as drawn",
        };
        said.beside.push(format!("{} against {}", word(one), word(other)));
    }
    let (ours, theirs) = (asked(one), asked(other));
    said.apart.extend(
        differing(&ours, &theirs).map(|(what, ours, theirs)| format!("{what} {ours} against {theirs}")),
    );
    let lengths = [one, other].map(|side| answer_tokens(&side.cell.scenario, side.summaries));
    if let Some(told) = lengths_apart(lengths[0], lengths[1]) {
        said.beside
            .push(format!("{told}, so that only times of tokens are judged"));
    }
    if one.lacks(Unknown::Rate) || other.lacks(Unknown::Rate) {
        said.beside
            .push("how requests arrived is not known of both".to_owned());
    }
}

/// Compares prompts without a digest by their number, their sums and how they were drawn.
fn by_sums(said: &mut Said, one: &Side<'_>, other: &Side<'_>) {
    let before = said.apart.len();
    match (one.prompts(), other.prompts()) {
        (Some(ours), Some(theirs)) if ours != theirs => {
            said.apart.push(format!("{ours} prompts against {theirs}"));
        }
        (Some(_), Some(_)) => {}
        _ => said
            .apart
            .push("the number of prompts is not known of both".to_owned()),
    }
    let (ours, theirs) = (&one.cell.scenario.workload, &other.cell.scenario.workload);
    if one.lacks(Unknown::Dataset) || other.lacks(Unknown::Dataset) {
        said.apart.push("the data set is not known of both".to_owned());
    } else if ours.dataset.name() != theirs.dataset.name() {
        let (ours, theirs) = (&ours.dataset, &theirs.dataset);
        said.apart.push(format!(
            "data set {} against {}",
            ours.bench_serving_name(),
            theirs.bench_serving_name()
        ));
    }
    let lengths = |side: &Side<'_>| {
        let facts = side.cell.scenario.workload.facts();
        (facts.drawn, facts.output_len)
    };
    let is_told = !one.lacks(Unknown::Lengths) && !other.lacks(Unknown::Lengths);
    if !is_told {
        said.apart
            .push("the lengths that were asked for are not known of both".to_owned());
    } else if lengths(one) != lengths(other) {
        said.apart.push("other lengths were asked for".to_owned());
    }
    if said.apart.len() == before && one.is_whole() && other.is_whole() {
        sums(said, one, other);
    }
    if said.apart.len() > before {
        return;
    }
    let seed = |side: &Side<'_>| (!side.lacks(Unknown::Seed)).then_some(side.cell.scenario.seed);
    match (seed(one), seed(other)) {
        (Some(ours), Some(theirs)) if ours != theirs => {
            said.apart.push(format!("seed {ours} against {theirs}"));
        }
        (Some(_), Some(_)) => said
            .beside
            .push("the prompts are known by number, sums and seed alone".to_owned()),
        _ => said
            .beside
            .push("the prompts are known by number and sums alone".to_owned()),
    }
}

/// Returns how drawn prompts are sent, by name. If digests of the prompts are known, they include this.
fn as_sent(side: &Side<'_>) -> Facts {
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
fn client(said: &mut Said, one: &Side<'_>, other: &Side<'_>) {
    let (ours, theirs) = (as_sent(one), as_sent(other));
    said.apart.extend(
        differing(&ours, &theirs).map(|(what, ours, theirs)| format!("{what} {ours} against {theirs}")),
    );
    let warmup = |side: &Side<'_>| side.cell.scenario.limits.warmup;
    // A file need not have the number of warm-up requests. The import then uses the default.
    let is_filler = |side: &Side<'_>| side.imported().is_some() && warmup(side) == Limits::default().warmup;
    let are_told =
        one.imported().is_some() && other.imported().is_some() || ![one, other].into_iter().any(is_filler);
    if are_told && warmup(one) != warmup(other) {
        said.apart.push(format!(
            "warm-up requests {} against {}",
            warmup(one),
            warmup(other)
        ));
    }
    let settings = |side: &Side<'_>| {
        let mut facts = side
            .imported()
            .map(|imported| imported.client.clone())
            .unwrap_or_default();
        let launch = side.launch;
        if side.imported().is_some() && launch.served != launch.checkpoint {
            facts.insert("served model name".to_owned(), launch.served.clone());
        }
        facts
    };
    let (ours, theirs) = (settings(one), settings(other));
    let told = settings::pairs(&ours, &theirs).into_iter();
    said.beside
        .extend(told.map(|(what, ours, theirs)| format!("{what} {ours} against {theirs}")));
}

/// Compares the tokens of all prompts, and the requested output tokens.
fn sums(said: &mut Said, one: &Side<'_>, other: &Side<'_>) {
    let asked = Metric::Tokens(Count::OutputAsked);
    let input = |side: &Side<'_>| side.figure(Metric::Tokens(Count::Input));
    let output = |side: &Side<'_>| {
        let output = || side.figure(Metric::Tokens(Count::Output));
        side.figure(asked).or_else(output)
    };
    for (what, ours, theirs) in [
        ("prompt tokens", input(one), input(other)),
        ("output tokens", output(one), output(other)),
    ] {
        match (ours, theirs) {
            (Some(ours), Some(theirs)) if ours == theirs => {}
            (Some(ours), Some(theirs)) => said.apart.push(format!("{ours} {what} against {theirs}")),
            _ => said.apart.push(format!("{what} are not known of both")),
        }
    }
}

fn definitions(said: &mut Said, one: &Side<'_>, other: &Side<'_>) {
    // A cell without any metrics differs by its status.
    if shared(one, other).is_some() || one.definitions().is_empty() || other.definitions().is_empty() {
        return;
    }
    let words = |side: &Side<'_>| {
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
    let (ours, theirs) = (words(one), words(other));
    said.apart
        .push(format!("figures by the definitions {ours} against {theirs}"));
}

fn spread(said: &mut Said, one: &Side<'_>, other: &Side<'_>) {
    let (ours, theirs) = (one.launch.gpus(), other.launch.gpus());
    let is_unknown = "the number of GPUs is not known of both".to_owned();
    match (ours, theirs) {
        _ if one.lacks(Unknown::Gpus) || other.lacks(Unknown::Gpus) => said.apart.push(is_unknown),
        (Some(ours), Some(theirs)) if ours != theirs => {
            said.per_gpu.push(format!(
                "{} against {theirs}",
                counted(ours as usize, "GPU", "GPUs")
            ));
        }
        (Some(_), Some(_)) => {}
        _ => said.beside.push(is_unknown),
    }
    let is_told = !one.lacks(Unknown::Tp) && !other.lacks(Unknown::Tp);
    if is_told && ours == theirs && one.launch.parallel != other.launch.parallel {
        let words = |parallel: Parallel| {
            let Parallel { tp, pp, dp, ep } = parallel;
            format!("tp {tp} pp {pp} dp {dp} ep {ep}")
        };
        let (ours, theirs) = (words(one.launch.parallel), words(other.launch.parallel));
        said.beside.push(format!("{ours} against {theirs}"));
    }
}

/// Compares the kind of GPU of attached servers, which is known only if it is declared.
fn gpu_kinds(said: &mut Said, one: &Side<'_>, other: &Side<'_>) {
    match (gpu_kind(one), gpu_kind(other)) {
        (Some(ours), Some(theirs)) if ours == theirs => {}
        (Some(ours), Some(theirs)) => said.environment.push(format!("GPUs {ours} against {theirs}")),
        _ => said
            .beside
            .push("the kind of GPU is not known of both".to_owned()),
    }
}

/// Returns the kind of GPU of a cell: as declared for a server or a file, otherwise that of the machine.
fn gpu_kind(side: &Side<'_>) -> Option<String> {
    let declared = side.launch.place.declared_gpu();
    if declared.is_some() || side.launch.is_attached() {
        return declared.map(str::to_owned);
    }
    let gpus: BTreeSet<&str> = side.machine?.gpus.iter().map(String::as_str).collect();
    (!gpus.is_empty()).then(|| gpus.into_iter().collect::<Vec<_>>().join(", "))
}

/// Compares the machines. A difference that decides how fast an engine can be allows no verdict.
fn machine(said: &mut Said, one: &Side<'_>, other: &Side<'_>) {
    if one.launch.is_attached() || other.launch.is_attached() {
        gpu_kinds(said, one, other);
        return;
    }
    if one.imported().is_some() || other.imported().is_some() {
        match (gpu_kind(one), gpu_kind(other)) {
            (Some(ours), Some(theirs)) if ours == theirs => {}
            (Some(ours), Some(theirs)) => said.environment.push(format!("GPUs {ours} against {theirs}")),
            _ => said
                .environment
                .push("the kind of GPU is not known of both".to_owned()),
        }
        return;
    }
    let (Some(ours), Some(theirs)) = (one.machine, other.machine) else {
        return;
    };
    let facts = [theirs, ours].map(machine_facts);
    for difference in machines::differences(&facts[0], &facts[1]) {
        // A ratio names its own side first.
        let told = format!(
            "{} {} against {}",
            difference.what, difference.after, difference.before
        );
        match difference.kind.forbids() {
            true => said.environment.push(told),
            false => said.beside.push(told),
        }
    }
}

/// Compares client, profile, timeouts, settings, and the origin of the engine.
fn circumstances(said: &mut Said, one: &Side<'_>, other: &Side<'_>) {
    if one.is_simulated() != other.is_simulated() {
        said.apart.push("only one of both is simulated".to_owned());
    }
    let client = |side: &Side<'_>| side.imported().map_or("matrix", |imported| imported.tool.name());
    let profile = |side: &Side<'_>| match side.cell.scenario.profile {
        Profile::Classic => "classic",
        Profile::Current => "current",
    };
    for (what, ours, theirs) in [
        ("client", client(one), client(other)),
        ("profile", profile(one), profile(other)),
        ("engine", one.launch.place.origin(), other.launch.place.origin()),
    ] {
        if ours != theirs {
            said.beside.push(format!("{what} {ours} against {theirs}"));
        }
    }
    let limits = [one, other].map(|side| limits(&side.cell.scenario));
    if one.imported().is_none() && other.imported().is_none() {
        let told = differing(&limits[0], &limits[1]);
        said.beside
            .extend(told.map(|(what, ours, theirs)| format!("{what} {ours} against {theirs}")));
    }
    let is_one_recipe = one.launch.engine.recipe == other.launch.engine.recipe;
    let (ours, theirs) = (
        settings::of(one.launch, one.summaries),
        settings::of(other.launch, other.summaries),
    );
    if one.launch.is_attached() || other.launch.is_attached() {
        said.beside.extend(
            differing(&ours, &theirs).map(|(name, ours, theirs)| {
                format!("{}{name} {ours} against {theirs}", settings::warned(name))
            }),
        );
        return;
    }
    // The precision distinguishes checkpoints of one model already, and different engines need different
    // checkpoints.
    let told = settings::differing(&ours, &theirs, is_one_recipe).into_iter();
    said.beside
        .extend(told.filter(|told| !told.starts_with("checkpoint ") || is_one_recipe));
}

/// Compares clocks, power limits and answers.
fn conditions(said: &mut Said, one: &Side<'_>, other: &Side<'_>) {
    let differing = Conditions::of(one.summaries).differing(&Conditions::of(other.summaries));
    for differs in differing {
        let words = format!("{} {} against {}", differs.what, differs.before, differs.after);
        match differs.of {
            Of::Prompts => said.apart.push(words),
            Of::Machine | Of::Answers => said.environment.push(words),
        }
    }
}

/// Reports searches without a reliable bracket, which give no ratio.
fn searches(said: &mut Said, one: &Side<'_>, other: &Side<'_>) {
    for (side, name) in [(one, "it"), (other, "the reference")] {
        let records = side
            .summaries
            .iter()
            .filter_map(|summary| summary.search.as_ref());
        let doubt = records.filter_map(doubt_of_search).next();
        said.apart.extend(doubt.map(|doubt| format!("{name}: {doubt}")));
    }
}

/// Says why the result of a search gives no ratio: it has no bracket, or an end of the bracket rests on too
/// few requests to decide whether the target is met (five may miss it). `None` if it gives one.
pub(crate) fn doubt_of_search(record: &SearchRecord) -> Option<String> {
    if record.ending != SearchEnding::Bracketed {
        return Some("the bound that was searched for is not bracketed".to_owned());
    }
    if record
        .found
        .zip(record.fails_at)
        .is_none_or(|(found, fails_at)| fails_at <= found)
    {
        return Some("the value that a search found is not below the one that fails".to_owned());
    }
    let (fewest, needed) = record.few_requests()?;
    Some(format!(
        "a point that bounds the search rests on {fewest} requests, and {needed:.0} are needed"
    ))
}

/// Returns the mean output tokens of an answer, if the model ends its answers. `None` if lengths are
/// requested or unknown.
pub(crate) fn answer_tokens(scenario: &Scenario, summaries: &[&Summary]) -> Option<f64> {
    if !scenario.stop_at_eos {
        return None;
    }
    let sum = |metric: Metric| -> f64 {
        let read = |summary: &&Summary| metrics::figure(summary.figures.get(&Definitions::Matrix)?, metric);
        summaries.iter().filter_map(read).sum()
    };
    let (tokens, answers) = (sum(Metric::Tokens(Count::Output)), sum(Metric::Completed));
    (tokens > 0.0 && answers > 0.0).then(|| tokens / answers)
}

/// Says that mean answer lengths (in tokens) differ too much to compare metrics that count answers or their
/// tokens. `None` if they do not.
pub(crate) fn lengths_apart(ours: Option<f64>, theirs: Option<f64>) -> Option<String> {
    const SHARE: f64 = 0.02;
    let (ours, theirs) = (ours?, theirs?);
    let is_apart = (ours - theirs).abs() > SHARE * ours.min(theirs);
    is_apart.then(|| format!("answers of {ours:.1} tokens against {theirs:.1}"))
}

/// Returns whether a metric depends on the length of answers. Only times of tokens, and rates derived from
/// them, do not.
pub(crate) const fn depends_on_length(metric: Metric) -> bool {
    !matches!(
        metric,
        Metric::Time(
            _,
            metrics::Sample::Ttft | metrics::Sample::Tpot | metrics::Sample::Itl
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
        let record = |found: f64, fails_at: f64| -> SearchRecord {
            serde_json::from_value(serde_json::json!({
                "by": "concurrency", "target": 0.9, "points": [], "found": found, "attainment": 1.0,
                "fails_at": fails_at, "ending": "bracketed",
            }))
            .unwrap()
        };
        assert_eq!(doubt_of_search(&record(4.0, 5.0)), None);
        for fails_at in [4.0, 2.0] {
            let doubt = doubt_of_search(&record(4.0, fails_at)).unwrap();
            assert!(doubt.contains("not below"), "{doubt}");
        }
    }

    #[test]
    fn sampling_that_an_engine_sets_by_itself_is_told() {
        let plan = include_str!("../../../tests/fixtures/run-format-1/plan.json");
        let plan: Plan = serde_json::from_str(plan).unwrap();
        let told = |body: serde_json::Value| {
            let mut launch = plan.launches[0].clone();
            launch.contact.dialect.body = body.as_object().unwrap().clone();
            sampling(&launch, &plan.cells[0].scenario)
        };
        let usual = "as usual";
        assert_eq!(
            told(serde_json::json!({"ignore_eos": null, "temperature": 0})),
            usual
        );
        assert_eq!(
            told(serde_json::json!({"top_p": 0.5, "temperature": 1.0})),
            "temperature 1.0, top_p 0.5"
        );
        assert_eq!(
            told(serde_json::json!({"sampling_params": {"stop": ["a"]}})),
            "stop [\"a\"]"
        );
        let sides = [serde_json::json!({"top_p": 0.5}), serde_json::json!({})].map(|body| {
            let mut launch = plan.launches[0].clone();
            launch.contact.dialect.body = body.as_object().unwrap().clone();
            asked(&Side {
                launch: &launch,
                cell: &plan.cells[0],
                summaries: &[],
                machine: None,
            })
        });
        assert_eq!(differing(&sides[0], &sides[1]).count(), 1);
    }
}
