//! The plan of an upgrade: the cells of its two arms, whose starts alternate.

use crate::base::ids::CellKey;
use crate::config::select::{self, AxisValues};
use crate::config::template::Template;
use crate::config::upgrade::UpgradeArms;
use crate::plan::arms::baseline_key;
use crate::plan::{Launch, Plan};

/// Whether two launches start the same thing.
fn starts_the_same(one: &Launch, other: &Launch) -> bool {
    one.place == other.place && one.checkpoint == other.checkpoint && one.api == other.api
}

/// The command of a launch, for messages.
fn command_words(launch: &Launch) -> String {
    let words = launch.command_args(launch.api.port.default);
    let words: Vec<&str> = words.iter().map(Template::as_str).collect();
    words.join(" ")
}

impl Plan {
    /// Keeps the cells of both arms, under a name of its own, so that the run does not count as a run of the matrix.
    /// Answers of the candidate are compared with those of the baseline.
    ///
    /// # Errors
    /// Why no cells of the two arms can be compared: none form pairs, or both sides of a pair are the same engine.
    pub(crate) fn plan_upgrade(&mut self, arms: &UpgradeArms) -> Result<(), String> {
        let UpgradeArms {
            axis, values, engine, ..
        } = arms;
        let [from, to] = [&values[0], &values[1]].map(String::as_str);
        let is_of_engine = |axes: &AxisValues| engine.is_none() || axes.get("engine") == engine.as_ref();
        let is_of_arm = |axes: &AxisValues| axes.get(*axis).is_some_and(|own| *own == *from || *own == *to);
        self.matrix = format!("{}-upgrade-{}", self.matrix, arms.digest);
        self.reference = None;
        self.retain_cells(|cell| is_of_engine(&cell.axes) && is_of_arm(&cell.axes));
        let cells: Vec<_> = self.cells.iter().map(|cell| (&cell.key, &cell.axes)).collect();
        let pairs = select::arm_pairs(&cells, axis, [from, to])?;
        if pairs.is_empty() {
            return Err(format!(
                "no two cells differ only in the {axis}, with `{from}` in one cell and `{to}` in the other"
            ));
        }
        let pairs: Vec<(CellKey, CellKey)> = pairs
            .into_iter()
            .map(|(baseline, candidate)| (baseline.clone(), candidate.clone()))
            .collect();
        // A cell that only one side has, because of `exclude` or `include`, cannot be compared.
        self.retain_cells(|cell| {
            pairs
                .iter()
                .any(|(baseline, candidate)| cell.key == *baseline || cell.key == *candidate)
        });
        let launches = |(baseline, candidate): &(CellKey, CellKey)| {
            [baseline, candidate].map(|key| self.launch(&self.cell(key).launch))
        };
        if let Some([launch, _]) = pairs
            .iter()
            .map(launches)
            .find(|[one, other]| starts_the_same(one, other))
        {
            return Err(format!(
                "`{from}` and `{to}` start the same engine: `{}`\n  = help: the started engine does not depend on the {}; name two values that start different engines, or two programs, environments or images (`program=`, `venv=`, `image=`)",
                command_words(launch),
                arms.setting.name()
            ));
        }
        self.compare_answers_of(pairs);
        Ok(())
    }

    /// Compares graded answers of the cells of the second value of an axis with those of the first, and no others.
    ///
    /// # Errors
    /// A cell fits several.
    pub(crate) fn compare_answers_of_arms(&mut self, axis: &str, values: [&str; 2]) -> Result<(), String> {
        let cells: Vec<_> = self.cells.iter().map(|cell| (&cell.key, &cell.axes)).collect();
        let pairs = select::arm_pairs(&cells, axis, values)?;
        let pairs = pairs
            .into_iter()
            .map(|(baseline, candidate)| (baseline.clone(), candidate.clone()))
            .collect();
        self.compare_answers_of(pairs);
        Ok(())
    }

    /// Compares graded answers of every cell with those of the baseline that is started in turn with it.
    pub(crate) fn compare_answers_with_baselines(&mut self) {
        let is_planned = |key: &CellKey| self.cells.iter().any(|cell| cell.key == *key);
        let candidates = self.cells.iter().filter(|cell| !cell.is_baseline());
        let pairs = candidates.map(|cell| (baseline_key(cell), cell.key.clone()));
        let pairs: Vec<_> = pairs.filter(|(baseline, _)| is_planned(baseline)).collect();
        self.compare_answers_of(pairs);
    }

    /// Compares graded answers of the second cell of each of these pairs with those of the first, and no others.
    pub(super) fn compare_answers_of(&mut self, pairs: Vec<(CellKey, CellKey)>) {
        let graded = |key: &CellKey| self.cell(key).scenario.quality.is_some();
        self.answer_references = pairs
            .into_iter()
            .filter(|(baseline, candidate)| graded(baseline) && graded(candidate))
            .map(|(baseline, candidate)| (candidate, baseline))
            .collect();
        self.stored_reference = None;
    }
}
