//! `matrix plan`: prints what `run` would do, in order, with the shell commands, and notes missing inputs.

use crate::base::text::printable;
use crate::cli::PlanArgs;
use crate::commands::cluster;
use crate::commands::environment::{cache_dirs, environment};
use crate::commands::error::Outcome;
use crate::commands::matrix_file::{load_to_start, print_notes, select};
use crate::commands::output::{Colors, eprint, print};
use crate::exit::Exit;
use crate::plan::Plan;
use crate::plan::command::StartValues;
use crate::report::plan as report;
use crate::results::store::durations::last_durations;
use crate::runner::host_error;
use crate::runner::preflight;

pub(crate) fn execute(args: &PlanArgs, colors: Colors) -> Outcome {
    let mut loaded = load_to_start(&args.matrix, args.cluster.as_deref(), colors)?;
    if let Some(only) = &args.only {
        select(&mut loaded.plan, only)?;
    }
    print_notes(&loaded);
    let plan = &loaded.plan;
    let folder = host_error::absolute_folder(&loaded.folder)?;
    let start_values = StartValues {
        folder: Some(&folder),
        ..StartValues::default()
    };
    // A plan whose job would be refused is not printed.
    let script = args
        .cluster
        .as_ref()
        .map(|cluster| cluster::script(args, &loaded, cluster, colors).map(|script| (cluster, script)))
        .transpose()?;
    // The plan is printed even if no earlier run can be read.
    let past = last_durations(&args.results, &plan.matrix, &plan.cells).unwrap_or_default();
    print(&match args.json {
        true => report::json(plan, &past, start_values),
        false => printable(&report::text(
            plan,
            &past,
            start_values,
            &passed_environment(plan),
        )),
    });
    if let Some((cluster, (jobs, script))) = script {
        print(&printable(&format!("\n{jobs} on `{cluster}`:\n\n{script}")));
    }
    let caches = cache_dirs(&args.places, false).input_caches();
    // Missing inputs do not invalidate the plan, but a run would not start.
    for finding in preflight::check_inputs(plan, &loaded.folder, &caches, &args.matrix) {
        eprint(&finding.to_note());
    }
    Ok(Exit::Done)
}

/// Engines that inherit only a part of the environment, with a description of that part.
fn passed_environment(plan: &Plan) -> Vec<(String, String)> {
    let environment = environment();
    let mut engines: Vec<(String, String)> = Vec::new();
    for launch in &plan.launches {
        let Some(description) = environment.describe_passed(launch) else {
            continue;
        };
        let row = (launch.engine.name.clone(), description);
        if !engines.contains(&row) {
            engines.push(row);
        }
    }
    engines
}
