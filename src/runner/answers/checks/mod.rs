//! Checks whether answers are what their requests demand, after the load: JSON of a schema, calls of the offered tools, or the
//! expected answer.

mod constraint;
mod grade;
mod recursion;
mod schema;
mod verdict;

use std::sync::Arc;

pub(in crate::runner) use grade::{grade_answer, text_without_reasoning};

use constraint::{Compiler, Constraint, RequestFields};
use serde_json::{Map, Value};
use verdict::check_answer;

use super::for_each_request;
use crate::loadgen::PlannedRequest;
use crate::loadgen::dataset::Extras;
use crate::results::record::request::Request;

/// What the answers of a load must be, with compiled schemas.
#[derive(Clone, Debug)]
pub(in crate::runner) struct AnswerChecks {
    /// By the index of the record; the rounds of a conversation have that of their row.
    constraints: Vec<Option<Arc<Constraint>>>,
}

impl AnswerChecks {
    /// Reads what these requests demand of their answers from their own fields and from those of the scenario's body.
    ///
    /// # Errors
    /// A schema is invalid or refers to a document elsewhere, or no request demands anything that can be checked.
    pub(in crate::runner) fn compile(
        items: &[PlannedRequest],
        body: &Map<String, Value>,
    ) -> Result<Self, String> {
        let mut compiler = Compiler::default();
        let no_extras = Extras::default();
        let mut constraints = Vec::with_capacity(items.len());
        for (row, item) in items.iter().enumerate() {
            let extras = item.extras.as_deref().unwrap_or(&no_extras);
            let fields = RequestFields::new(&extras.body, body);
            let constraint = compiler
                .constraint(fields, extras.expected_answer.as_ref())
                .map_err(|why| format!("the answer to request {} cannot be checked: {why}", row + 1))?;
            constraints.extend(std::iter::repeat_n(constraint, item.rounds()));
        }
        match constraints.iter().any(Option::is_some) {
            true => Ok(Self { constraints }),
            false => Err(
                "answers cannot be checked, because no request says what its answer must be. Use the data set `structured`, rows of \
                 `openai` with `response_format`, `tools` or `expected_answer`, or a body with `response_format` or `tools`. \
                 Otherwise, do not set `check_answers` (`--check-answers`)"
                    .to_owned(),
            ),
        }
    }

    /// Checks that answers can be checked against the schemas of a scenario's body.
    ///
    /// # Errors
    /// A schema is invalid or refers to a document elsewhere.
    pub(in crate::runner) fn check_body(body: &Map<String, Value>) -> Result<(), String> {
        let no_row = Map::new();
        let constraint = Compiler::default().constraint(RequestFields::new(&no_row, body), None);
        constraint.map(drop)
    }

    /// Checks the completed answers on all cores, and drops the tool calls and the ends of all.
    pub(in crate::runner) fn apply(&self, requests: &mut [Request]) {
        for_each_request(
            requests,
            || (),
            |request, ()| {
                let constraint = usize::try_from(request.index)
                    .ok()
                    .and_then(|index| self.constraints.get(index)?.as_ref());
                request.answer_check = constraint
                    .filter(|_| request.is_completed())
                    .and_then(|constraint| check_answer(request, constraint));
                request.tool_calls = Vec::new();
                request.final_answer = None;
            },
        );
    }
}

#[cfg(test)]
mod tests;
