//! `matrix tune`: searches of the simulated engine.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::harness::{Bench, Ran, repository};

/// Fewest starts: ten of the confirmation and four trials.
const FEWEST: [&str; 2] = ["--budget", "14 starts"];

/// A load of half a second, and an engine with these arguments; `rest` has the space.
fn matrix(args: &str, rest: &str) -> String {
    format!(
        "name: t\nengines:\n  - sim: {{ variant: vllm, args: [--preset, fast{args}] }}\nmodels:\n  - m: {{ tokenizer: data/tokenizer.json }}\nscenarios:\n  - l: {{ dataset: random-ids, prompts: 48, input_len: 40, output_len: 12, concurrency: 8 }}\ndatasets: {{ sharegpt: data/conversations.json }}\nvalidity: {{ window: 100ms, send_lag: 10s, client_cpu: 1.0, max_cache_hits: 0.2 }}\n{rest}"
    )
}

fn tune(bench: &Bench, more: &[&str]) -> Ran {
    let given = ["tune", "matrices/m.yaml", "--no-calibration"];
    bench.call(&[&given, more].concat())
}

/// The folder of the trials.
fn trials_folder(bench: &Bench) -> PathBuf {
    let runs = fs::read_dir(bench.results()).expect("there are results");
    let mut folders = runs.map(|run| run.expect("results can be read").path());
    folders
        .find(|folder| folder.join("tune.json").exists())
        .expect("there is a search")
}

fn record(bench: &Bench) -> Value {
    let text = fs::read_to_string(trials_folder(bench).join("tune.json")).expect("there is a record");
    serde_json::from_str(&text).expect("it is JSON")
}

fn trials(record: &Value) -> &Vec<Value> {
    record["trials"].as_array().expect("a list")
}

/// The measurements that ended, by a journal.
fn ended(journal: &str) -> Vec<String> {
    let events = journal
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let ends = events.filter(|event| event.to_string().contains("cell-ended"));
    ends.map(|event| event["measurement"].to_string()).collect()
}

/// The measurements of all trials, in order.
fn all_ended(bench: &Bench) -> Vec<String> {
    let journal = fs::read_to_string(trials_folder(bench).join("journal.jsonl"));
    ended(&journal.expect("there is a journal"))
}

/// The trials with that outcome and a reason that has this text.
fn failed<'r>(record: &'r Value, outcome: &str, reason: &str) -> Vec<&'r Value> {
    let is_such = |trial: &&Value| {
        let why = trial["reason"].as_str().unwrap_or_default();
        trial["outcome"] == outcome && why.contains(reason)
    };
    trials(record).iter().filter(is_such).collect()
}

#[test]
fn a_better_flag_is_confirmed_and_a_killed_search_measures_nothing_twice() {
    let space = "tune: { space: { --step: [10ms, 2ms, 14ms], --stepp: [1, 2] } }\n";
    let bench = Bench::of(&matrix(", --step, 10ms", space));
    let budget = ["--budget", "15 starts"];
    let given = ["tune", "matrices/m.yaml", "--no-calibration"];
    let mut child = bench.begin(&[&given[..], &budget].concat());
    bench.until("two finished trials", || ended(&bench.journal()).len() >= 2);
    child.kill().expect("it still runs");
    child.wait().expect("it ended");
    let before = ended(&bench.journal()).len();
    let again = [&budget[..], &["--resume"]].concat();
    tune(&bench, &again)
        .exits(0)
        .says("note: `--stepp` is left out of the search space: ")
        .says("did you mean `--step`?")
        .shows("Best flags of sim for output throughput? --step=2ms: +")
        .shows("confirmed by fresh starts")
        .shows("args: [--preset, fast, --step, \"2ms\"]\n")
        .shows("simulated engine");
    let record = record(&bench);
    let result = &record["result"];
    assert_eq!(result["kind"], "confirmed", "{result}");
    let interval = result["confirmation"]["interval"]
        .as_array()
        .expect("an interval");
    assert!(interval[0].as_f64() > Some(0.3), "{result}");
    assert_eq!(record["spent"]["confirm_starts"], 10);
    assert_eq!(trials(&record)[0]["set"], "default");
    let page = fs::read_to_string(trials_folder(&bench).join("tune.md")).expect("there is a page");
    assert!(page.starts_with("# Best flags of sim"), "{page}");
    for part in [
        "```yaml\n# In the matrix file, replace `args` of the engine `sim`",
        "## Frontier",
        "## Trials",
    ] {
        assert!(page.contains(part), "`{part}` is not in\n{page}");
    }
    let measured = all_ended(&bench);
    let mut once = measured.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), measured.len(), "measured twice: {measured:?}");
    assert_eq!(trials(&record).len(), measured.len(), "{record:#}");
    assert!(measured.len() > before);
    // A finished search only shows its result again.
    tune(&bench, &again).exits(0).shows("--step=2ms: +");
    assert_eq!(all_ended(&bench), measured);
    let report = fs::read_to_string(trials_folder(&bench).join("report.md")).expect("there is a report");
    assert!(
        report.contains("### Frontier: the best configurations of sim that were tried\n"),
        "{report}"
    );
    assert!(report.contains("--step=2ms: +"), "{report}");
    assert!(
        !trials_folder(&bench).join("plan.json.old-1").exists(),
        "each trial keeps the plan before it"
    );
    // What it spent cannot be known any more.
    let journal = trials_folder(&bench).join("journal.jsonl");
    let text = fs::read_to_string(&journal).expect("there is a journal");
    fs::write(&journal, text.replacen("{", "", 3)).expect("it can be written");
    tune(&bench, &again)
        .exits(6)
        .says("the search cannot be continued, because it is unknown how much of the budget is used")
        .says("leave `--resume` out to start the search anew");
}

#[test]
fn flags_of_the_recipe_and_too_many_values_are_refused() {
    let many: Vec<String> = (0..70).map(|value| value.to_string()).collect();
    for (space, message) in [
        (
            "--port: [1, 2]".to_owned(),
            "`--port` cannot be varied: the recipe sets it to `{port}`",
        ),
        (
            format!("--step: [{}]", many.join(", ")),
            "`--step` has 70 values, more than 64",
        ),
    ] {
        let bench = Bench::of(&matrix("", &format!("tune: {{ space: {{ {space} }} }}\n")));
        tune(&bench, &FEWEST).exits(2).says(message).says("m.yaml:");
    }
}

#[test]
fn where_nothing_matters_the_default_stays() {
    // Seeds of the engine change nothing in its speed.
    let bench = Bench::of(&matrix(
        ", --step, 10ms, --seed, 1",
        "tune: { space: { --seed: [1, 2, 3] } }\n",
    ));
    let ran = tune(&bench, &[&FEWEST[..], &["--floor", "60%"]].concat()).exits(0);
    let kind = record(&bench)["result"]["kind"].clone();
    assert!(
        ["no-better", "default-is-best"].contains(&kind.as_str().expect("a text")),
        "{kind}"
    );
    let ran = ran.shows("Best flags of sim for output throughput? The default: ");
    assert!(
        !ran.stdout.contains("confirmed by fresh starts"),
        "{}",
        ran.stdout
    );
}

#[test]
fn configurations_that_crash_or_answer_wrongly_are_listed_and_do_not_win() {
    let space = "tune: { space: { kernel: [default, --step 2ms --die-after 20requests, --step 2ms --wrong-answers 90%] } }\n";
    let quality = "quality: { tasks: [arithmetic: { items: 20, min_correct: 0.9 }] }\n";
    let bench = Bench::of(&matrix(", --step, 10ms", &format!("{space}{quality}")));
    // Seven trials, of which the default has at most three.
    tune(&bench, &["--budget", "17 starts"])
        .exits(0)
        .shows("The default: according to the trials, no configuration is expected to be better than the default")
        .shows("What failed, and why");
    let record = record(&bench);
    assert_eq!(record["result"]["kind"], "default-is-best");
    assert!(
        !failed(&record, "infeasible", "failed in ").is_empty(),
        "{record:#}"
    );
    assert!(
        !failed(&record, "infeasible", "invalid: answers-").is_empty(),
        "{record:#}"
    );
    // What crashed is not tried again and again.
    assert!(failed(&record, "infeasible", "").len() <= 3, "{record:#}");
}

#[test]
fn what_cannot_be_tuned_is_refused_before_anything_starts() {
    let space = "tune: { space: { --step: [10ms, 2ms] } }\n";
    let bench = Bench::of(&matrix(", --step, 10ms", space));
    let refused = |more: &[&str], text: &str| {
        tune(&bench, more).exits(2).says(text);
        assert!(!bench.results().exists(), "{more:?} left results");
    };
    refused(
        &["--budget", "13 starts"],
        "14 are needed, 2 x 5 for the confirmation and 4 trials",
    );
    refused(&["--budget", "13"], "write `24 starts`");
    refused(&["--engine", "smi"], "no cell has the engine `smi`");
    refused(&["--scenario", "x"], "no cell has the scenario `x`");
    refused(&["--objective", "capacity"], "has no `search`");
    refused(&["--objective", "cost"], "--gpu-hour-price 2.5");
    refused(&["--resume"], "belongs to this search");
}

#[test]
fn time_as_a_budget_measures_short_loads_first_and_variables_are_tuned() {
    let space = "tune: { space: { --step: [10ms, 2ms], env: { ANY: [a, b] } } }\n";
    let bench = Bench::of(&matrix(", --step, 10ms", space));
    tune(&bench, &["--budget", "0.001 gpu-min"])
        .exits(5)
        .says("a budget of 0.001 gpu-min is too small: about ");
    tune(&bench, &["--budget", "0.8 gpu-min", "--resume"])
        .exits(0)
        .shows("--step=2ms");
    let record = record(&bench);
    let short = trials(&record).iter().filter(|trial| trial["is_short"] == true);
    assert!(short.count() >= 2, "{record:#}");
    let varies = |trial: &Value| trial["settings"]["ANY"].is_string();
    assert!(trials(&record).iter().any(varies), "{record:#}");
    assert_eq!(record["result"]["kind"], "confirmed");
    assert!(record["spent"]["gpu_minutes"].as_f64() < Some(1.6), "{record:#}");
}

/// The simulated engine behind a script: with `--fading` it runs three times, and never again.
const FADING: &str = r#"matrix=$1
shift
fading= late= fifth= tenth= lapse= faint= hale=
for word in "$@"; do
  shift
  case "$word" in
    --fading) fading=1 ;;
    --late=*) late=$(echo "${word#--late=}" | tr : " ") ;;
    --fifth=*) fifth=$(echo "${word#--fifth=}" | tr : " ") ;;
    --tenth=*) tenth=$(echo "${word#--tenth=}" | tr : " ") ;;
    --lapse) lapse=1 ;;
    --faint) faint=1 ;;
    --hale) hale=1 ;;
    --help) printf '      --fading  Runs three times\n      --late <FLAGS>  Adds flags after three starts\n      --fifth <FLAGS>  Adds flags to the fifth start\n      --faint  Fails in its fourth and fifth start\n      --tenth <FLAGS>  Adds flags to the tenth start\n      --lapse  Answers wrongly in its fifth start\n      --hale  Never fails\n'; set -- "$@" "$word" ;;
    *) set -- "$@" "$word" ;;
  esac
done
if [ -n "$fading" ]; then
  echo start >>"$0.starts"
  [ "$(wc -l <"$0.starts")" -le 3 ] || { echo 'error: it faded' >&2; exit 3; }
fi
if [ -n "$fifth" ]; then
  echo start >>"$0.fifth"
  [ "$(wc -l <"$0.fifth")" != 5 ] || set -- "$@" $fifth
fi
if [ -n "$tenth" ]; then
  echo start >>"$0.tenth"
  [ "$(wc -l <"$0.tenth")" != 10 ] || set -- "$@" $tenth
fi
if [ -n "$lapse" ] && [ -z "$hale" ]; then
  echo start >>"$0.lapse"
  [ "$(wc -l <"$0.lapse")" != 5 ] || set -- "$@" --wrong-answers 50%
fi
if [ -n "$faint" ] && [ -z "$hale" ]; then
  echo start >>"$0.faint"
  case $(wc -l <"$0.faint") in 4 | 5) echo 'error: it fainted' >&2; exit 3 ;; esac
fi
if [ -n "$late" ]; then
  echo start >>"$0.late"
  [ "$(wc -l <"$0.late")" -le 3 ] || set -- "$@" $late
fi
exec "$matrix" "$@"
"#;

/// A search with the engine of [`FADING`].
fn fading(space: &str) -> Bench {
    fading_with(", --step, 10ms", space)
}

/// The same with other arguments of the default.
fn fading_with(args: &str, space: &str) -> Bench {
    let bench = Bench::of(&matrix(args, space).replace("sim:", "fading:"));
    let folder = bench.path().join("matrices");
    fs::write(folder.join("fading.sh"), FADING).expect("it can be written");
    let recipe = fs::read_to_string(repository().join("engines/sim.yaml")).expect("the recipe is shipped");
    let recipe = recipe.replace("name: sim\n", "name: fading\n").replace(
        "[\"{matrix}\", sim",
        "[sh, \"{dir}/fading.sh\", \"{matrix}\", sim",
    );
    fs::create_dir_all(folder.join("engines")).expect("it can be made");
    fs::write(folder.join("engines/fading.yaml"), recipe).expect("it can be written");
    bench
}

#[test]
fn a_winner_whose_tokens_are_counted_otherwise_in_its_fresh_starts_is_rejected() {
    let space =
        "tune: { space: { speed: [default, --step 2ms --late=--truncate-prompts:10, --step 4ms] } }\n";
    let bench = fading(space);
    tune(&bench, &["--budget", "34 starts"])
        .exits(0)
        .shows("Best flags of fading for output throughput? speed=--step 4ms: +")
        .shows("the engine counts prompt tokens differently than with the default");
    bench.leaves_no_process();
}

/// A configuration of the engine of [`FADING`] is not confirmed once one of its fresh starts was invalid, also after that start was measured
/// again.
#[test]
fn a_winner_with_one_fresh_start_of_failed_requests_is_rejected_and_stays_so() {
    let space = "tune: { space: { speed: [default, --step 2ms --fifth=--http-error-every:9] } }\n";
    let bench = fading(space);
    let shown = "The default: some configurations were better in the trials, but they failed or answered worse in fresh starts (t01); no other configuration is expected to be better than the default";
    let rejected = "1 of 5 fresh starts failed or gave no usable result (invalid: errors)";
    tune(&bench, &["--budget", "15 starts"])
        .exits(0)
        .shows(shown)
        .shows(rejected);
    tune(&bench, &["--budget", "15 starts", "--resume", "--failed"])
        .exits(0)
        .shows(shown)
        .shows(rejected);
    // Nor is it if the start is measured again at once.
    fs::remove_dir_all(bench.results()).expect("they can be removed");
    fs::remove_file(bench.path().join("matrices/fading.sh.fifth")).expect("it can be removed");
    tune(&bench, &["--budget", "15 starts", "--retry-invalid", "2"])
        .exits(0)
        .shows(shown)
        .shows("1 of 5 fresh starts failed or gave no usable result (invalid: errors");
    bench.leaves_no_process();
}

#[test]
fn starts_of_the_default_that_fail_are_named_and_measured_again_by_a_command_that_is_printed() {
    let space = "tune: { space: { speed: [default, --step 2ms --hale] } }\n";
    let bench = fading_with(", --step, 10ms, --faint", space);
    let ran = tune(&bench, &["--budget", "15 starts"]).exits(3);
    let ran = ran.shows("Not decided, perhaps speed=--step 2ms --hale: with the default settings, 2 of 5 fresh starts failed or gave no usable result (failed in launch: ");
    let ran = ran.shows("so 2 valid starts have no counterpart to be compared with");
    let ran = ran.shows("some starts do not count; repeat them with: matrix tune ");
    assert!(ran.stdout.contains(" --failed --resume "), "{}", ran.stdout);
    tune(&bench, &["--budget", "15 starts", "--resume", "--failed"])
        .exits(0)
        .shows("speed=--step 2ms --hale: +")
        .shows("Findings with the default: 2 of 5 fresh starts failed or gave no usable result")
        .shows("2 more starts (interrupted, or measured again)");
    bench.leaves_no_process();
}

/// A start that was made once counts, whatever number of starts is asked for later.
#[test]
fn fresh_starts_that_were_made_count_also_if_fewer_are_asked_for_later() {
    // The winner has 4 trials at most.
    let space = "tune: { space: { speed: [default, --step 2ms --tenth=--http-error-every:4] } }\n";
    let bench = fading(space);
    let more = ["--budget", "25 starts", "--confirm-starts", "10"];
    tune(&bench, &more).exits(0).shows("1 of 10 fresh starts failed");
    tune(&bench, &["--budget", "25 starts", "--resume"])
        .exits(0)
        .shows("1 of 10 fresh starts failed");
    let few = ["--budget", "25 starts", "--confirm-starts", "12", "--resume"];
    assert!(!tune(&bench, &few).stdout.contains("confirmed by fresh starts"));
    assert_eq!(record(&bench)["confirmations"][0]["starts"], 20);
}

#[test]
fn a_winner_that_answers_worse_in_one_start_is_not_confirmed_though_the_default_does_too() {
    let quality = "quality: { tasks: [arithmetic: { items: 40 }] }\n";
    let space = format!(
        "tune: {{ space: {{ speed: [default, --step 2ms --hale --fifth=--wrong-answers:50%] }} }}\n{quality}"
    );
    let bench = fading_with(", --step, 10ms, --lapse", &space);
    tune(&bench, &["--budget", "15 starts"])
        .exits(3)
        .shows("Not decided, perhaps speed=")
        .shows("answers to arithmetic are worse than with the default")
        .shows("repair what fails, and start a new search without `--resume`");
    bench.leaves_no_process();
}

#[test]
fn a_journal_that_was_cut_off_is_refused() {
    let bench = Bench::of(&matrix(
        ", --step, 10ms",
        "tune: { space: { --step: [10ms, 2ms] } }\n",
    ));
    tune(&bench, &FEWEST).exits(0);
    let journal = trials_folder(&bench).join("journal.jsonl");
    fs::write(&journal, "").expect("it can be written");
    tune(&bench, &[&FEWEST[..], &["--resume"]].concat())
        .exits(6)
        .says("it is unknown how much of the budget is used: `journal.jsonl` of");
}

#[test]
fn after_a_winner_that_crashes_in_its_fresh_starts_the_next_best_is_confirmed() {
    let space = "tune: { space: { speed: [default, --step 2ms --fading, --step 4ms] } }\n";
    let bench = fading(space);
    tune(&bench, &["--budget", "34 starts"])
        .exits(0)
        .shows("Best flags of fading for output throughput? speed=--step 4ms: +")
        .shows("(speed=--step 2ms --fading) in 10 starts: ")
        .shows(" of 5 fresh starts failed or gave no usable result (failed in launch: ")
        .shows("rejected in its confirmation");
    let record = record(&bench);
    assert_eq!(record["spent"]["confirm_starts"], 20, "{record:#}");
    assert_eq!(record["confirmations"][0]["is_rejected"], true, "{record:#}");
    // The setting contributes what was confirmed.
    assert_eq!(
        record["result"]["contributions"][0]["change"], record["result"]["confirmation"]["change"],
        "{record:#}"
    );
    bench.leaves_no_process();
}

#[test]
fn prompts_that_are_cut_do_not_win() {
    let space = "tune: { space: { cut: [default, --step 2ms --truncate-prompts 10] } }\n";
    let bench = Bench::of(&matrix(", --step, 10ms", space));
    tune(&bench, &FEWEST).exits(0).shows("The default: ");
    let record = record(&bench);
    assert!(
        !failed(
            &record,
            "infeasible",
            "the engine counts prompt tokens differently than with the default"
        )
        .is_empty(),
        "{record:#}"
    );
}
