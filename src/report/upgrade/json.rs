//! The page of an upgrade as JSON.

use super::UpgradePage;
use crate::analysis::compare::decision::CONFIDENCE;
use crate::analysis::compare::resources::ResourceRow;
use crate::analysis::upgrade::Upgrade;
use crate::report::comparison;
use crate::report::tables::AnswersVersusReference;
use crate::results::record::upgrade::UpgradeRecord;

impl UpgradePage {
    /// Everything, for programs.
    pub(crate) fn json(&self, record: &UpgradeRecord, upgrade: &Upgrade) -> String {
        let changes = upgrade.changes.changes.iter().map(|change| {
            serde_json::json!({
                "kind": change.kind.name(),
                "what": change.what,
                "before": change.before,
                "after": change.after,
            })
        });
        let resources = upgrade.resources.iter().map(resource);
        let answers = upgrade.answers.iter().map(|answers| {
            serde_json::json!({
                "cell": answers.cell,
                "task": answers.task,
                "comparison": AnswersVersusReference::from(answers),
            })
        });
        let mut speed = comparison::json::json(&upgrade.speed);
        if let Some(fields) = speed.as_object_mut() {
            // The figures of this page are more than the metrics.
            let metrics = fields.remove("figures").unwrap_or_default();
            fields.insert("metrics".to_owned(), metrics);
        }
        let page = serde_json::json!({
            "answer": self.answer.word(),
            "reasons": self.reasons,
            "upgrade": record,
            "changes": changes.collect::<Vec<_>>(),
            "unknown": upgrade.changes.unknown,
            // Verdicts are corrected for so many figures together; those of a nightly run's metrics by its own rules.
            "figures": upgrade.figures_judged_together(),
            "metrics_judged_by": if upgrade.is_nightly { "nightly run" } else { "this page" },
            "speed": speed,
            "resources": resources.collect::<Vec<_>>(),
            "answers": answers.collect::<Vec<_>>(),
        });
        format!("{page:#}\n")
    }
}

fn resource(row: &ResourceRow) -> serde_json::Value {
    let estimate = row.answer.estimate;
    let interval = estimate.and_then(|estimate| estimate.interval(CONFIDENCE));
    let precision = estimate.and_then(|estimate| estimate.precision);
    serde_json::json!({
        "resource": row.resource.label(),
        "unit": row.resource.unit(),
        "cell": row.cell,
        "values": row.values,
        "change_share": estimate.map(|estimate| estimate.change()),
        "interval_share": interval.map(|interval| [interval.low, interval.high]),
        "starts": row.answer.starts,
        "baseline_starts": row.starts[0],
        "candidate_starts": row.starts[1],
        "p": precision.map(|precision| precision.p),
        "adjusted_p": precision.and_then(|precision| precision.adjusted_p),
        "bound_share": row.answer.bound,
        "verdict": row.answer.verdict_word(),
    })
}
