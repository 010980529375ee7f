//! What got worse between two sides.

use super::resources::Resource;
use crate::analysis::metrics::Metric;
use crate::base::ids::CellKey;

/// What a loss is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LossOf {
    /// Graded answers to the items of this task, compared with those of the baseline.
    Answers(String),
    /// Answers that are wrong by themselves.
    WrongAnswers,
    Reliability,
    Metric(Metric),
    Resource(Resource),
}

/// Something that the candidate does worse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    /// The candidate's cell; without the axes of the load if the loss is one of the launch.
    pub(crate) cell: CellKey,
    pub(crate) of: LossOf,
}

impl Loss {
    pub(crate) fn label(&self) -> String {
        match &self.of {
            LossOf::Answers(task) => format!("answers of {task}"),
            LossOf::WrongAnswers => "wrong answers".to_owned(),
            LossOf::Reliability => "reliability".to_owned(),
            LossOf::Metric(metric) => metric.label().to_string(),
            LossOf::Resource(resource) => resource.label().to_owned(),
        }
    }
}
