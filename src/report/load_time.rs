//! The time that the loads of a plan take, as far as it is known before anything was measured.

use std::collections::BTreeMap;

use crate::base::ids::CellKey;
use crate::base::text::{format_seconds, pluralize};
use crate::plan::{Cell, Launch, Plan};

/// Rate at which each request is assumed to get its output tokens, and the most requests at once that it is assumed
/// for: a model of 8B on one recent GPU.
const ASSUMED_TOKENS_PER_S: f64 = 40.0;
const ASSUMED_CONCURRENCY: f64 = 256.0;

/// Output tokens of a request whose data set does not say: about those of ShareGPT.
const ASSUMED_OUTPUT: f64 = 200.0;

/// The time of the loads of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct LoadTime {
    seconds: f64,
    gpu_seconds: f64,
    loads: usize,
}

impl LoadTime {
    fn add(&mut self, seconds: f64, gpus: u32) {
        self.loads += 1;
        self.seconds += seconds;
        self.gpu_seconds += seconds * f64::from(gpus);
    }

    fn in_words(self) -> String {
        let gpu_hours = match self.gpu_seconds > 0.0 {
            true => format!(", {:.1} GPU-hours", self.gpu_seconds / 3600.0),
            false => String::new(),
        };
        format_seconds(self.seconds) + &gpu_hours
    }
}

/// The time of the loads that were never measured here.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct LoadTimes {
    /// Loads whose rates or durations decide it.
    decided: LoadTime,
    /// Loads that take as long as the engine needs.
    assumed: LoadTime,
    searches: usize,
}

/// A line about the measurements of cells that were never measured here; empty if there are none.
pub(super) fn note(plan: &Plan, was_measured: &dyn Fn(&CellKey) -> bool) -> String {
    let times = load_times(plan, was_measured);
    let decided = (times.decided.loads > 0).then(|| {
        format!(
            "measuring takes at least {} for loads with a set rate or duration",
            times.decided.in_words()
        )
    });
    let assumed = (times.assumed.loads > 0).then(|| {
        format!(
            "measuring takes about {} for {} without a rate, assuming at most {ASSUMED_CONCURRENCY} requests at once with {ASSUMED_TOKENS_PER_S} tok/s each",
            times.assumed.in_words(),
            pluralize(times.assumed.loads, "load", "loads")
        )
    });
    let searches = (times.searches > 0).then(|| {
        let count = pluralize(times.searches, "search", "searches");
        format!("the time of {count} is not known in advance")
    });
    let parts: Vec<String> = [decided, assumed, searches].into_iter().flatten().collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!(
            "\n{}; the starts of engines take additional time\n",
            parts.join("; ")
        ),
    }
}

fn load_times(plan: &Plan, was_measured: &dyn Fn(&CellKey) -> bool) -> LoadTimes {
    let cells: BTreeMap<&CellKey, &Cell> = plan.cells.iter().map(|cell| (&cell.key, cell)).collect();
    let mut times = LoadTimes::default();
    for start in &plan.starts {
        let launch = plan.launches.iter().find(|launch| launch.id == start.launch);
        let gpus = launch.and_then(Launch::gpus).unwrap_or(0);
        let keys = start.cells.iter().map(|measurement| &measurement.cell);
        for cell in keys
            .filter(|key| !was_measured(key))
            .filter_map(|key| cells.get(key))
        {
            match (least_seconds(cell), cell.scenario.search.is_some()) {
                (Some(seconds), _) => times.decided.add(seconds, gpus),
                (None, true) => times.searches += 1,
                (None, false) => times.assumed.add(assumed_seconds(cell), gpus),
            }
        }
    }
    times
}

fn least_seconds(cell: &Cell) -> Option<f64> {
    let scenario = &cell.scenario;
    let sending = scenario.sending_time().or_else(|| {
        let is_paced = scenario.search.is_none() && scenario.arrival.is_paced();
        let window = scenario.arrival.sending_window(scenario.limits.duration);
        window.filter(|_| is_paced)
    });
    sending.map(|time| time.as_secs_f64())
}

/// The time that the requests of a load without a rate take at the assumed speed, at most its duration.
fn assumed_seconds(cell: &Cell) -> f64 {
    let (workload, arrival) = (&cell.scenario.workload, &cell.scenario.arrival);
    let requests = workload.requests().unwrap_or_else(|| workload.prompts.into()) as f64;
    let facts = workload.facts();
    let drawn = facts
        .drawn
        .and_then(|drawn| Some(f64::from(drawn.output_len?) * (1.0 + drawn.range_ratio) / 2.0));
    let output = drawn
        .or_else(|| facts.output_len.map(f64::from))
        .unwrap_or(ASSUMED_OUTPUT);
    let slots = arrival.concurrency.map_or(ASSUMED_CONCURRENCY, |slots| {
        f64::from(slots.get()).min(ASSUMED_CONCURRENCY)
    });
    let seconds = (requests / slots).max(1.0) * output / ASSUMED_TOKENS_PER_S;
    let window = arrival.sending_window(cell.scenario.limits.duration);
    window.map_or(seconds, |window| seconds.min(window.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::engine::Recipes;
    use crate::config::matrix::Matrix;
    use crate::config::shipped;
    use crate::config::yaml::{self, Source};
    use crate::plan::expand;

    fn plan(scenarios: &str) -> Plan {
        let text = format!(
            "name: m\nengines: [vllm]\nmodels: [{{ m/m: {{ tp: 2 }} }}]\nscenarios: [{scenarios}]\nrepeats: {{ starts: 3 }}\n"
        );
        let (matrix, errors) = yaml::read::<Matrix>(&Source::new("m.yaml", text));
        assert!(errors.is_empty(), "{errors:?}");
        let recipe = shipped::file_text("engines/vllm.yaml").unwrap();
        let recipe = yaml::read(&Source::new("vllm.yaml", recipe.to_owned()))
            .0
            .unwrap();
        expand(&matrix.unwrap(), &Recipes::from([("vllm".to_owned(), recipe)])).unwrap()
    }

    #[test]
    fn prompts_at_a_rate_take_at_least_their_quotient_on_every_start() {
        let plan = plan(
            "{ a: { dataset: random-ids, input_len: 8, output_len: 8, prompts: 1200, rate: [2, 4] } }, random-1k-1k",
        );
        let times = load_times(&plan, &|_| false);
        // 600 s and 300 s, on three starts with two GPUs each.
        let decided = times.decided;
        assert_eq!(
            (decided.seconds, decided.gpu_seconds, decided.loads),
            (2700.0, 5400.0, 6)
        );
        // 2000 prompts in groups of 256, with 1024 tokens each.
        assert_eq!(times.assumed.seconds, 3.0 * 2000.0 / 256.0 * 1024.0 / 40.0);
        let said = note(&plan, &|_| false);
        assert!(said.contains("at least 45m 00s, 1.5 GPU-hours"), "{said}");
        assert!(
            said.contains("about 10m 00s, 0.3 GPU-hours for 3 loads without a rate"),
            "{said}"
        );
        assert_eq!(note(&plan, &|_| true), "");
    }

    #[test]
    fn a_duration_limits_the_time_and_a_search_has_none_in_advance() {
        let timed = "{ a: { dataset: random-ids, input_len: 8, output_len: 8, rate: 2, duration: 30s } }";
        assert_eq!(load_times(&plan(timed), &|_| false).decided.seconds, 90.0);
        let staged = "{ a: { dataset: random-ids, input_len: 8, output_len: 8, stages: [{ rate: 1, duration: 20s }, { rate: 2, duration: 40s }] } }";
        assert_eq!(load_times(&plan(staged), &|_| false).decided.seconds, 180.0);
        let search = "{ a: { dataset: random-ids, input_len: 8, output_len: 8, prompts: 40000, slo: { ttft: 1s }, search: { by: rate, from: 16, to: 64, duration: 10m } } }";
        let times = load_times(&plan(search), &|_| false);
        assert_eq!(
            (times.decided.loads, times.assumed.loads, times.searches),
            (0, 0, 3)
        );
    }

    #[test]
    fn loads_without_a_rate_are_assumed_to_be_served_at_a_usual_speed() {
        let seconds = |load: &str| {
            let text = format!("{{ a: {{ dataset: random-ids, input_len: 8, {load} }} }}");
            load_times(&plan(&text), &|_| false).assumed.seconds / 3.0
        };
        assert_eq!(seconds("output_len: 400, prompts: 100, concurrency: 10"), 100.0);
        assert_eq!(seconds("output_len: 400, prompts: 5, concurrency: 10"), 10.0);
        assert_eq!(
            seconds("output_len: 400, range_ratio: 0.5, prompts: 100, concurrency: 10"),
            75.0
        );
        assert_eq!(
            seconds("output_len: 400, prompts: 100, concurrency: 10, duration: 30s"),
            30.0
        );
    }
}
