//! The least time that the loads of a plan take, before anything was measured.

use std::collections::BTreeMap;

use crate::base::ids::CellKey;
use crate::base::text::{format_seconds, pluralize};
use crate::plan::{Cell, Launch, Plan};

/// What the rates and durations of loads decide; the rest depends on the engines.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct LeastTime {
    seconds: f64,
    gpu_seconds: f64,
    /// Measurements whose load takes as long as the engine needs.
    undecided: usize,
    decided: usize,
}

/// A line about the measurements of cells that were never measured here; empty if there are none.
pub(super) fn note(plan: &Plan, was_measured: &dyn Fn(&CellKey) -> bool) -> String {
    let least = least_time(plan, was_measured);
    if least.decided == 0 {
        return String::new();
    }
    let gpu_hours = match least.gpu_seconds > 0.0 {
        true => format!(", {:.1} GPU-hours", least.gpu_seconds / 3600.0),
        false => String::new(),
    };
    let rest = match least.undecided {
        0 => String::new(),
        count => format!(
            ", and {} without a rate, which take as long as the engine needs",
            pluralize(count, "load", "loads")
        ),
    };
    format!(
        "\nat least {}{gpu_hours} for loads whose rate or duration is set; starts of engines come on top{rest}\n",
        format_seconds(least.seconds)
    )
}

fn least_time(plan: &Plan, was_measured: &dyn Fn(&CellKey) -> bool) -> LeastTime {
    let cells: BTreeMap<&CellKey, &Cell> = plan.cells.iter().map(|cell| (&cell.key, cell)).collect();
    let mut least = LeastTime::default();
    for start in &plan.starts {
        let launch = plan.launches.iter().find(|launch| launch.id == start.launch);
        let gpus = launch.and_then(Launch::gpus).unwrap_or(0);
        let keys = start.cells.iter().map(|measurement| &measurement.cell);
        for cell in keys
            .filter(|key| !was_measured(key))
            .filter_map(|key| cells.get(key))
        {
            let Some(seconds) = least_seconds(cell) else {
                least.undecided += 1;
                continue;
            };
            least.decided += 1;
            least.seconds += seconds;
            least.gpu_seconds += seconds * f64::from(gpus);
        }
    }
    least
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
        let least = least_time(&plan, &|_| false);
        // 600 s and 300 s, on three starts with two GPUs each.
        assert_eq!((least.seconds, least.gpu_seconds), (2700.0, 5400.0));
        assert_eq!((least.decided, least.undecided), (6, 3));
        let said = note(&plan, &|_| false);
        assert!(said.contains("at least 45m 00s, 1.5 GPU-hours"), "{said}");
        assert!(said.contains("3 loads without a rate"), "{said}");
        assert_eq!(note(&plan, &|_| true), "");
    }

    #[test]
    fn a_duration_limits_the_time_and_a_search_has_none_in_advance() {
        let timed = "{ a: { dataset: random-ids, input_len: 8, output_len: 8, rate: 2, duration: 30s } }";
        assert_eq!(least_time(&plan(timed), &|_| false).seconds, 90.0);
        let staged = "{ a: { dataset: random-ids, input_len: 8, output_len: 8, stages: [{ rate: 1, duration: 20s }, { rate: 2, duration: 40s }] } }";
        assert_eq!(least_time(&plan(staged), &|_| false).seconds, 180.0);
        let search = "{ a: { dataset: random-ids, input_len: 8, output_len: 8, prompts: 40000, slo: { ttft: 1s }, search: { by: rate, from: 16, to: 64, duration: 10m } } }";
        assert_eq!(least_time(&plan(search), &|_| false).decided, 0);
    }
}
