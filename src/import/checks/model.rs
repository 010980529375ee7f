//! Checks whether heading, server and client name one model.

use super::Checks;
use crate::import::names;
use crate::import::result_block::WarningSubject;

impl Checks<'_> {
    /// Compares the model names of the heading, of the server's command and of the client's arguments.
    pub(super) fn check_model(&mut self) {
        let result = self.result;
        let command = result.launch_info.model.as_deref();
        let requested_model = result.options.model.as_deref();
        let is_same = |a: &str, b: &str| names::short_name(a) == names::short_name(b);
        if let (Some(served), Some(model)) = (&result.options.served_model_name, requested_model.or(command))
        {
            let [name, model_name] =
                [served, model].map(|name| names::short_name(&names::model_and_precision(name).0));
            let is_one = name.starts_with(&model_name) || model_name.starts_with(&name);
            // A name of another family is an arbitrary served model name.
            if names::are_same_family(&name, &model_name) && !is_one {
                let message =
                    format!("the client sends the model name `{served}`, but the model is `{model}`");
                self.warn(result.options.line, WarningSubject::Identity, message);
            }
        }
        // A heading of another family names no model. Behind the model's name there may be more words.
        let heading = result.heading.as_ref().filter(|(_, heading)| {
            let model = requested_model.or(command).map(names::short_name);
            model.is_some_and(|model_and_precision| {
                names::are_same_family(&names::short_name(heading), &model_and_precision)
            })
        });
        let is_headed = |heading: &str, model: &str| {
            let (heading, model) = (names::short_name(heading), names::short_name(model));
            heading == model || heading.starts_with(&format!("{model} "))
        };
        let is_alias =
            |requested_model: &str| result.launch_info.served_model_name.as_deref() == Some(requested_model);
        if let (Some(command), Some(requested_model)) = (command, requested_model)
            && !is_same(command, requested_model)
            && !is_alias(requested_model)
        {
            let mut message = format!(
                "the server's command serves `{command}`, but the client's arguments name `{requested_model}`"
            );
            if let Some((_, heading)) = heading {
                message.push_str(&format!("; the heading above the result names `{heading}`"));
            }
            self.warn(result.launch_info.line, WarningSubject::Identity, message);
            return;
        }
        if let (Some((line, heading)), Some(model)) = (heading, requested_model.or(command))
            && !is_headed(heading, model)
        {
            let message = match requested_model {
                Some(_) => format!(
                    "the heading above the result names the model `{heading}`, but the client's arguments \
                     name `{model}`"
                ),
                None => format!(
                    "the heading above the result names the model `{heading}`, but the server's command \
                     serves `{model}`"
                ),
            };
            self.warn(*line, WarningSubject::Identity, message);
        }
    }
}
