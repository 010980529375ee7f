//! The `structured` data set: prompts with a JSON schema or tools, which are drawn.

use serde_json::{Map, Value, json};

use super::jsonl::python_json;
use super::random::{consecutive_ids, texts};
use super::rng::Numpy;
use super::{Content, DatasetError, MakeRows, Prompt, RngState, RowInputs, Rows, token_count};
use crate::config::dataset::structured::{Demands, Structured, ToolChoice};

/// What prompts are about.
const SUBJECTS: [&str; 16] = [
    "a library book",
    "a train journey",
    "a customer order",
    "a weather report",
    "a recipe",
    "a football match",
    "a hotel booking",
    "a bug report",
    "a patient visit",
    "a concert",
    "a shipment",
    "a phone contract",
    "a museum",
    "a bank transfer",
    "a flight",
    "a rental car",
];

/// Names of properties.
const NAMES: [&str; 32] = [
    "title", "name", "city", "country", "street", "author", "category", "status", "price", "amount", "count",
    "year", "month", "age", "weight", "height", "score", "rating", "color", "language", "currency", "email",
    "phone", "notes", "tags", "items", "owner", "address", "active", "verified", "priority", "duration",
];

/// Values of properties that have only a few.
const VALUES: [&str; 12] = [
    "low", "medium", "high", "open", "closed", "pending", "red", "green", "blue", "small", "large", "unknown",
];

/// Verbs of tools.
const VERBS: [&str; 8] = [
    "get", "find", "create", "update", "delete", "list", "check", "send",
];

/// Most elements of a list.
const MAX_ITEMS: u32 = 3;
/// Properties of an object within an object.
const INNER_PROPERTIES: u32 = 2;

impl MakeRows for Structured {
    /// Draws the schemas and the sets of tools first, then the rows. Each row draws what it demands, its subject, and its
    /// number; the prompt begins with what is drawn, so that prompts have no common beginning.
    fn rows(&self, inputs: &RowInputs<'_>, rng: &mut RngState) -> Result<Rows, DatasetError> {
        let demands = self.demands();
        let numpy = &mut rng.numpy;
        let distinct = match demands.schemas {
            0 => inputs.prompts,
            schemas => (schemas as usize).min(inputs.prompts),
        };
        let schemas: Vec<Value> = (0..distinct)
            .map(|_| object(demands.properties, 1, numpy))
            .collect();
        let tools: Vec<Value> = (0..distinct).map(|_| tool_set(&demands, numpy)).collect();
        let mut prompts = Vec::with_capacity(inputs.prompts);
        for row in 0..inputs.prompts {
            let drawn = numpy.random();
            let subject = SUBJECTS[pick(SUBJECTS.len(), numpy)];
            let number = numpy.randint(10_000, 100_000);
            let place = match demands.schemas {
                0 => row,
                _ => pick(distinct, numpy),
            };
            let mut fields = Map::new();
            let task = if drawn < demands.tools_share {
                set_tools(&mut fields, &tools[place], demands.tool_choice, numpy);
                format!(
                    "{number}: call the tool that fits best for {subject}, with arguments that you make up."
                )
            } else if drawn < demands.tools_share + demands.plain_share {
                format!("{number}: describe {subject} in a few sentences.")
            } else {
                let schema = &schemas[place];
                let format = json!({"name": "answer", "schema": schema, "strict": true});
                fields.insert(
                    "response_format".to_owned(),
                    json!({"type": "json_schema", "json_schema": format}),
                );
                format!("{number}: describe {subject} as JSON that fulfils this schema: {schema}")
            };
            prompts.push(self.prompt(&task, fields, inputs, numpy)?);
        }
        Ok(Rows::new(prompts))
    }
}

impl Structured {
    /// Returns a prompt with a task, after so many drawn tokens that it has about `input_len`.
    fn prompt(
        &self,
        task: &str,
        fields: Map<String, Value>,
        inputs: &RowInputs<'_>,
        numpy: &mut Numpy,
    ) -> Result<Prompt, DatasetError> {
        let tokenizer = inputs.tokenizer;
        let missing = self
            .input_len
            .unwrap_or(0)
            .saturating_sub(token_count(tokenizer.count(task, false)?));
        let text = match missing {
            0 => task.to_owned(),
            missing => {
                let vocabulary = tokenizer.vocab_size() as u64;
                let run = consecutive_ids(numpy.randint(0, vocabulary), missing, vocabulary);
                let filler = texts(&[run], inputs.profile, tokenizer)?.concat();
                format!("{filler}\n{task}")
            }
        };
        let mut tokens = tokenizer.count(&text, false)?;
        // Servers put the tools before the prompt.
        if let Some(tools) = fields.get("tools") {
            tokens += tokenizer.count(&python_json(tools), true)?;
        }
        let mut prompt = Prompt::new(
            Content::Text(text.into()),
            token_count(tokens),
            self.output_tokens(),
        );
        if !fields.is_empty() {
            prompt.extras_mut().body = fields;
        }
        Ok(prompt)
    }
}

fn pick(count: usize, numpy: &mut Numpy) -> usize {
    usize::try_from(numpy.randint(0, count as u64)).expect("it is an index")
}

/// Draws different elements of a list, in a drawn order; with a number behind those that are needed more than once.
fn draw_names(list: &[&str], count: u32, numpy: &mut Numpy) -> Vec<String> {
    let order = numpy.permutation(list.len());
    (0..count as usize)
        .map(|nth| match nth / list.len() {
            0 => list[order[nth]].to_owned(),
            round => format!("{}_{round}", list[order[nth % list.len()]]),
        })
        .collect()
}

/// Draws the schema of an object, which has all its properties and no others. `depth` is how far objects may lie within it.
fn object(properties: u32, depth: u32, numpy: &mut Numpy) -> Value {
    let names = draw_names(&NAMES, properties, numpy);
    let properties: Map<String, Value> = names
        .iter()
        .map(|name| (name.clone(), property(depth, numpy)))
        .collect();
    json!({"type": "object", "properties": properties, "required": names, "additionalProperties": false})
}

fn property(depth: u32, numpy: &mut Numpy) -> Value {
    let kinds = if depth > 0 { 7 } else { 6 };
    match numpy.randint(0, kinds) {
        0 | 1 => json!({"type": "string"}),
        2 => json!({"type": "integer", "minimum": 0, "maximum": 1000}),
        3 => json!({"type": "boolean"}),
        4 => json!({"type": "string", "enum": draw_names(&VALUES, 3, numpy)}),
        5 => json!({
            "type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_ITEMS,
        }),
        _ => object(INNER_PROPERTIES, depth - 1, numpy),
    }
}

/// Draws tools with different names.
fn tool_set(demands: &Demands, numpy: &mut Numpy) -> Value {
    let names = draw_names(&NAMES, demands.tools, numpy);
    names
        .iter()
        .map(|noun| {
            let verb = VERBS[pick(VERBS.len(), numpy)];
            let parameters = object(demands.properties, 0, numpy);
            json!({"type": "function", "function": {
                "name": format!("{verb}_{noun}"), "strict": true, "description": format!("{verb} the {noun}"), "parameters": parameters,
            }})
        })
        .collect()
}

fn set_tools(fields: &mut Map<String, Value>, tools: &Value, choice: ToolChoice, numpy: &mut Numpy) {
    let choice = match choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Named => {
            let count = tools.as_array().map_or(0, Vec::len);
            let name = &tools[pick(count, numpy)]["function"]["name"];
            json!({"type": "function", "function": {"name": name}})
        }
    };
    fields.insert("tools".to_owned(), tools.clone());
    fields.insert("tool_choice".to_owned(), choice);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::workload::{Profile, Workload};
    use crate::loadgen::dataset::tokenizer::Tokenizer;
    use crate::loadgen::dataset::{PreparedPrompts, prepare};

    fn prepared(structured: &Structured, seed: u64) -> PreparedPrompts {
        let mut workload = Workload::with(structured.clone());
        workload.prompts = 200;
        prepare(&workload, Profile::Current, seed, &Tokenizer::bytes(), None).unwrap()
    }

    fn with(demands: Demands) -> Structured {
        Structured {
            structured: Some(demands),
            ..Structured::default()
        }
    }

    fn field<'p>(prompt: &'p Prompt, key: &str) -> Option<&'p Value> {
        prompt.extras.as_ref()?.body.get(key)
    }

    #[test]
    fn a_seed_gives_the_same_rows_and_shares_are_kept() {
        let mixed = with(Demands {
            tools_share: 0.5,
            plain_share: 0.2,
            schemas: 3,
            ..Demands::default()
        });
        let rows = prepared(&mixed, 1).prompts;
        assert_eq!(rows, prepared(&mixed, 1).prompts);
        assert_ne!(rows, prepared(&mixed, 2).prompts);
        let count = |key: &str| rows.iter().filter(|row| field(row, key).is_some()).count();
        let (tools, schemas) = (count("tools"), count("response_format"));
        assert!((80..=120).contains(&tools), "{tools}");
        assert!((40..=80).contains(&schemas), "{schemas}");
        let distinct = |key: &str| {
            let texts = rows
                .iter()
                .filter_map(|row| field(row, key))
                .map(Value::to_string);
            texts.collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!((distinct("tools"), distinct("response_format")), (3, 3));
        assert_eq!(distinct("tool_choice"), 1);
    }

    #[test]
    fn every_request_may_have_its_own_schema_and_name_a_tool_that_it_offers() {
        let own = with(Demands {
            tools_share: 0.5,
            schemas: 0,
            tools: 40,
            tool_choice: ToolChoice::Named,
            ..Demands::default()
        });
        let rows = prepared(&own, 7).prompts;
        let schemas: Vec<String> = rows
            .iter()
            .filter_map(|row| Some(field(row, "response_format")?.to_string()))
            .collect();
        let distinct: std::collections::BTreeSet<&String> = schemas.iter().collect();
        assert_eq!(distinct.len(), schemas.len());
        for row in rows.iter().filter(|row| field(row, "tools").is_some()) {
            let name = &field(row, "tool_choice").unwrap()["function"]["name"];
            let tools = field(row, "tools").unwrap().as_array().unwrap();
            let names: std::collections::BTreeSet<&str> = tools
                .iter()
                .filter_map(|tool| tool["function"]["name"].as_str())
                .collect();
            assert_eq!(names.len(), 40);
            assert!(names.contains(name.as_str().unwrap()));
        }
    }

    #[test]
    fn prompts_have_about_the_length_that_is_asked_for_and_at_least_their_task() {
        let long = Structured {
            input_len: Some(2000),
            output_len: Some(9),
            structured: None,
        };
        for row in prepared(&long, 1).prompts {
            // Ids become text, which may have other tokens: these are bytes, and some are no UTF-8.
            assert!(
                (2000..=6000).contains(&row.prompt_tokens),
                "{}",
                row.prompt_tokens
            );
            assert_eq!(row.output_tokens, 9);
        }
        assert!(
            prepared(&Structured::default(), 1)
                .prompts
                .iter()
                .all(|row| row.prompt_tokens > 100)
        );
    }

    #[test]
    fn drawn_schemas_are_schemas() {
        let mut numpy = Numpy::new(3);
        for properties in 1..=64 {
            let schema = object(properties, 1, &mut numpy);
            assert_eq!(
                schema["required"].as_array().map(Vec::len),
                Some(properties as usize)
            );
            let validator = jsonschema::validator_for(&schema).unwrap();
            assert!(!validator.is_valid(&json!({})), "{schema}");
        }
    }
}
