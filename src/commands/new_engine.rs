//! `matrix new engine`: writes a recipe of an engine, and a matrix that measures it.

use crate::base::text::{printable, shown_path};
use crate::cli::command_line;
use crate::cli::orientation::{NewArgs, NewEngineArgs, NewFile};
use crate::commands::error::{CommandError, Outcome};
use crate::commands::init::write_new;
use crate::commands::output::print;
use crate::config::shipped;
use crate::exit::Exit;

pub(crate) fn execute(args: &NewArgs) -> Outcome {
    let NewFile::Engine(args) = &args.what;
    check_name(&args.name)?;
    let recipe = args.dir.join(format!("engines/{}.yaml", args.name));
    let matrix = args.dir.join(format!("matrices/{}.yaml", args.name));
    for file in [&recipe, &matrix] {
        if file.exists() {
            return Err(CommandError::usage(format!(
                "error: {} exists already\n  = help: choose another name, or edit that file\n",
                shown_path(file)
            )));
        }
    }
    let files = [(&recipe, recipe_text(args)), (&matrix, matrix_text(args))];
    let mut message = String::new();
    for (file, text) in files {
        write_new(file, &text).map_err(CommandError::unwritable)?;
        message.push_str(&format!("wrote {}\n", file.display()));
    }
    message.push_str(&format!(
        "edit the recipe, then: {}\n",
        command_line::doctor_command(&matrix)
    ));
    print(&printable(&message));
    Ok(Exit::Done)
}

fn check_name(name: &str) -> Result<(), CommandError> {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_allowed) || name.starts_with(['.', '-']) {
        return Err(CommandError::usage(format!(
            "error: `{name}` is not a valid name of an engine\n  = help: write lower-case letters, digits, `.` and `-`, such as `my-engine`\n"
        )));
    }
    if shipped::yaml_names("engines").any(|shipped| shipped == name) {
        return Err(CommandError::usage(format!(
            "error: `{name}` is the name of a shipped engine\n  = help: choose another name, such as `my-{name}`; a matrix can also change arguments, image and version of the shipped engine\n"
        )));
    }
    Ok(())
}

/// A YAML text in quotes.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text is always written")
}

fn recipe_text(args: &NewEngineArgs) -> String {
    let name = &args.name;
    let default = match &args.image {
        Some(_) => "--model {model} --tp {tp}".to_owned(),
        None => format!("{name} serve --model {{model}} --tp {{tp}}"),
    };
    let command = args.command.as_deref().unwrap_or(&default);
    let words: Vec<String> = command.split_whitespace().map(quoted).collect();
    let words = words.join(", ");
    let how = match &args.image {
        Some(image) => format!(
            "executors: [container]\ncontainer:\n  image: {}\n  command: [{words}]\n  runtime: nvidia\n  gpus: all\n  ipc: host\n  network: host\n",
            quoted(image)
        ),
        None => format!(
            "executors: [process]\ncommand: [{words}]\nprocess: {{ devices_env: CUDA_VISIBLE_DEVICES }}\n"
        ),
    };
    // A command that names its port needs no flag for it.
    let port = match command.contains("{port}") {
        true => "port: { default: 8000 }",
        false => "port: { default: 8000, flag: [--port, \"{port}\"] }",
    };
    format!(
        "# How to start, watch and stop {name}. All keys: docs/matrix-files.md, or `matrix schema engine`.\n\
         # Placeholders: {{model}}, {{tp}}, {{port}}, {{version}}.\n\
         name: {name}\n\
         title: {name}\n\
         # The API of the engine: vllm (OpenAI completions), vllm-chat (OpenAI chat), sglang, … as for `matrix bench --backend`.\n\
         backend: vllm\n\
         version: \"1.0\"\n\
         {how}{port}\n\
         api:\n  protocol: completions\n  \
         # A streamed response ends with the number of its tokens.\n  usage: stream-options\n  \
         # Paths of the engine: one answers once the engine is ready, the other lists its models.\n  health: /health\n  models: /v1/models\n  \
         # The prefix cache of the engine cannot be emptied, so the prompts of each measurement begin differently.\n  unique_prefixes: true\n"
    )
}

fn matrix_text(args: &NewEngineArgs) -> String {
    format!(
        "# Measures {name}. Check it with: matrix doctor matrices/{name}.yaml\n\
         name: {name}\n\
         engines:\n  - {name}\n\
         # The built-in tokenizer makes prompts of about the requested lengths. For exact lengths remove it, and run: matrix fetch FILE\n\
         models:\n  - {model}: {{ tp: 1, tokenizer: built-in }}\n\
         scenarios:\n  - chat: {{ dataset: random-ids, input_len: 1k, output_len: 128, prompts: 200, concurrency: 16 }}\n",
        name = args.name,
        model = quoted(&args.model),
    )
}
