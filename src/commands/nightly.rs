//! `matrix nightly`: a run, held against its baseline; suspects are started afresh before anybody is told.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::time::Duration;

use anyhow::Context;

use crate::base::clock;
use crate::base::ids::CellKey;
use crate::base::secrets::Redactor;
use crate::cli::compare::NightlyArgs;
use crate::cli::{RunArgs, variable};
use crate::commands::again::Further;
use crate::commands::compare::{gates, noise_of, of_run};
use crate::commands::run::{Measured, measure};
use crate::commands::{Colors, Outcome, Refusal, baseline, complain, print, read, refused};
use crate::engine;
use crate::exit::Exit;
use crate::judge::compare::held::{self, Look};
use crate::judge::compare::night::Policy;
use crate::judge::compare::side;
use crate::judge::metrics::Metric;
use crate::matrix::plan::Plan;
use crate::report::night as told;
use crate::results::record::FORMAT;
use crate::results::record::night::{Finding, FindingKind, Night};
use crate::results::record::side::{Baseline, Side};
use crate::results::store::nightly::Nights;
use crate::results::store::{self, Run, Store, StoreError};

/// The file of a night's page, in the run's folder.
const PAGE: &str = "nightly.md";
/// How long a webhook may take.
const WEBHOOK: Duration = Duration::from_secs(15);

/// Runs a matrix and judges it.
///
/// # Errors
/// As `matrix run`; another night that goes on; a baseline that cannot be read.
pub fn execute(args: &NightlyArgs, colors: Colors) -> Outcome {
    let plan = read(&args.run.matrix)
        .map_err(|(mistakes, sources)| refused(&mistakes, &sources, colors.stderr))?
        .plan;
    let gates = gates(&args.judging.gate)?;
    let file = baseline::file(&args.run.matrix, args.baseline.as_deref());
    let kept =
        store::nightly::baseline(&file).map_err(|error| Refusal::usage(format!("error: {error}\n")))?;
    let nights = Nights::take(&args.run.results, &plan.matrix).map_err(overlaps)?;
    let measured = measure(&args.run, colors, &|_| (), &Further::AsAsked)?;
    if measured.exit == Exit::Interrupted {
        return Ok(Exit::Interrupted);
    }
    let mut exit = measured.exit;
    let planned = |plan: &Plan, launch: &crate::base::ids::LaunchId| {
        plan.starts
            .iter()
            .filter(|start| start.launch == *launch)
            .map(|start| start.start)
            .max()
            .unwrap_or(0)
    };
    let run = Run::read(&measured.folder).context("the night's run cannot be read")?;
    let first: BTreeMap<CellKey, u32> = run
        .plan
        .cells
        .iter()
        .map(|cell| (cell.key.clone(), planned(&run.plan, &cell.launch)))
        .collect();
    let tonight = of_run(&run, &gates);
    let findings = match &kept {
        None => {
            complain(&format!(
                "note: there is no baseline `{}`; `matrix baseline set {} {} --reason <text>` makes this run one\n",
                file.display(),
                args.run.matrix.display(),
                measured.folder.display()
            ));
            refusals(&tonight)
        }
        Some(baseline) => {
            let judged = judge(args, colors, &gates, baseline, &tonight, &measured, &first)?;
            let Some((findings, worst)) = judged else {
                return Ok(Exit::Interrupted);
            };
            if worst == Exit::CellFailed {
                exit = worst;
            }
            findings
        }
    };
    let night = Night {
        format: FORMAT,
        at: clock::timestamp(),
        run: run.about.run.clone(),
        matrix: plan.matrix.clone(),
        baseline: kept.as_ref().map(|baseline| baseline.side.run.clone()),
        machine: tonight.machine.clone(),
        cells: held::kept(&tonight),
        findings,
    };
    publish(args, &night, &measured)?;
    let history = nights
        .append(&night)
        .context("the night is measured, and not in the history")?;
    notify(args, &nights, &night);
    forget(args, &night);
    if !args.run.json {
        print(&format!("history: {}\n", history.display()));
    }
    let is_worse = night
        .findings
        .iter()
        .any(|finding| finding.kind == FindingKind::Worse);
    Ok(if is_worse { Exit::Regression } else { exit })
}

fn overlaps(error: StoreError) -> Refusal {
    Refusal::unfit(match error {
        StoreError::Locked { pid, .. } => format!(
            "error: another night goes on{}\n  = help: wait until it is over; two at once would measure each other\n",
            pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
        ),
        other => format!("error: {other}\n"),
    })
}

/// What failed or is invalid, where there is no baseline.
fn refusals(tonight: &Side) -> Vec<Finding> {
    let nothing = Side {
        cells: BTreeMap::new(),
        ..tonight.clone()
    };
    let look = held::look(&nothing, tonight, &[], None, &Policy::default());
    look.findings
        .into_iter()
        .filter(|finding| finding.kind < FindingKind::Environment)
        .collect()
}

/// What the night found, after fresh starts of the suspects, and how those went; `None` if they were interrupted. `first` is how many starts of each cell
/// were planned before.
fn judge(
    args: &NightlyArgs,
    colors: Colors,
    gates: &[Metric],
    baseline: &Baseline,
    tonight: &Side,
    measured: &Measured,
    first: &BTreeMap<CellKey, u32>,
) -> Result<Option<(Vec<Finding>, Exit)>, Refusal> {
    let policy = Policy {
        floor: args.judging.floor,
        loss: Policy::default().loss.max(2.0 * args.judging.floor),
        ..Policy::default()
    };
    let (past, doubts) =
        store::nightly::history(&args.run.results, &tonight.matrix).context("the history cannot be read")?;
    for doubt in doubts {
        complain(&format!("warning: {doubt}\n"));
    }
    let noise = noise_of(&args.run.places.cache(), tonight);
    let look = held::look(&baseline.side, tonight, &past, noise.as_ref(), &policy);
    let mut findings = look.findings.clone();
    let run = Run::read(&measured.folder).context("the night's run cannot be read")?;
    let seconds = run.summaries.iter().filter_map(|summary| {
        Some((
            summary.cell.clone(),
            clock::seconds_between(&summary.began, &summary.ended)?,
        ))
    });
    let seconds: BTreeMap<CellKey, f64> = seconds.collect();
    let wanted = affordable(args, &look, &seconds);
    let mut exit = Exit::Done;
    if !look.suspects.is_empty() {
        for suspect in &look.suspects {
            let starts = wanted.get(&suspect.cell).copied().unwrap_or(0);
            complain(&format!(
                "suspect: {}: {}: {}; {starts} fresh starts decide\n",
                suspect.cell,
                suspect.metric.label(),
                suspect.why
            ));
        }
        let again = RunArgs {
            resume: Some(tonight.run.to_string()),
            ..args.run.clone()
        };
        let confirmed = measure(&again, colors, &|_| (), &Further::Confirming(&wanted))?;
        if confirmed.exit == Exit::Interrupted {
            return Ok(None);
        }
        exit = confirmed.exit;
        let run = Run::read(&measured.folder).context("the fresh starts cannot be read")?;
        let is_fresh = |cell: &CellKey, start: u32| first.get(cell).is_some_and(|planned| start > *planned);
        let fresh: Vec<_> = run
            .summaries
            .into_iter()
            .filter(|summary| is_fresh(&summary.cell, summary.start))
            .collect();
        let fresh = side::of_run(&run.about, &run.plan, &run.machine, &fresh, gates);
        findings.extend(held::decide(&look, &fresh, &policy));
    }
    findings.sort_by(|a, b| (a.kind, &a.cell).cmp(&(b.kind, &b.cell)));
    Ok(Some((findings, exit)))
}

/// Fresh starts of each suspect that the budget has room for, alike for all.
fn affordable(args: &NightlyArgs, look: &Look, seconds: &BTreeMap<CellKey, f64>) -> BTreeMap<CellKey, u32> {
    let wanted = look.fresh_starts(args.confirm);
    let Some(budget) = args.budget else { return wanted };
    let all: f64 = wanted
        .iter()
        .map(|(cell, starts)| f64::from(*starts) * seconds.get(cell).copied().unwrap_or(0.0))
        .sum();
    let share = (budget.duration().as_secs_f64() / all.max(f64::MIN_POSITIVE)).min(1.0);
    let fewer = |starts: u32| (f64::from(starts) * share) as u32;
    wanted
        .into_iter()
        .map(|(cell, starts)| (cell, fewer(starts)))
        .filter(|(_, starts)| *starts > 0)
        .collect()
}

/// Writes and prints what people and CI read.
fn publish(args: &NightlyArgs, night: &Night, measured: &Measured) -> Result<(), Refusal> {
    let page = told::markdown(night);
    let store = Store::open(&args.run.results, &night.run, Redactor::default())
        .context("the page cannot be written")?;
    let path = store
        .write_report(PAGE, &page)
        .context("the page cannot be written")?;
    drop(store);
    if let Some(file) = &args.junit {
        fs::write(file, told::junit(night)).with_context(|| format!("cannot write {}", file.display()))?;
    }
    if let Some(summary) = variable("GITHUB_STEP_SUMMARY") {
        let mut file = OpenOptions::new().create(true).append(true).open(&summary);
        let written = file.as_mut().map(|file| file.write_all(page.as_bytes()));
        if !matches!(written, Ok(Ok(()))) {
            complain(&format!("warning: cannot write the job summary `{summary}`\n"));
        }
    }
    if args.run.json {
        let text = serde_json::to_string(night).map_err(anyhow::Error::from)?;
        print(&format!("{text}\n"));
        return Ok(());
    }
    print(&measured.tables);
    if variable("GITHUB_ACTIONS").is_some() {
        print(&told::annotations(night));
    }
    print(&format!("\n{}: {}\n", night.matrix, told::headline(night)));
    for finding in &night.findings {
        let cell = finding.cell.as_ref().map_or("all", CellKey::as_str);
        print(&format!("  {}: {cell}: {}\n", finding.kind.name(), finding.text));
    }
    print(&format!("page: {}\n", path.display()));
    Ok(())
}

/// Sends the message where something is new or over since the last one. What could not be sent is sent the next night.
fn notify(args: &NightlyArgs, nights: &Nights, night: &Night) {
    let news = night.findings.iter().filter(|finding| finding.kind.is_news());
    let mut now: Vec<String> = news.map(Finding::identity).collect();
    now.sort();
    now.dedup();
    let before = nights.told();
    let over = before.iter().filter(|told| !now.contains(told)).count();
    if now == before {
        return;
    }
    if let Some(url) = &args.webhook
        && let Err(why) = send(url, &told::message(night, over))
    {
        complain(&format!(
            "warning: the webhook was not reached, the next night tries again: {why}\n"
        ));
        return;
    }
    if let Err(error) = nights.tell(&now) {
        complain(&format!("warning: {error}\n"));
    }
}

fn send(url: &str, message: &serde_json::Value) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    // The address of a webhook is its password.
    let told = |error: reqwest::Error| error.without_url().to_string();
    runtime.block_on(async {
        let sent = engine::http_client()
            .post(url)
            .timeout(WEBHOOK)
            .json(message)
            .send();
        let answer = sent.await.map_err(told)?;
        answer.error_for_status().map(|_| ()).map_err(told)
    })
}

/// Removes old raw data, where that was asked for.
fn forget(args: &NightlyArgs, night: &Night) {
    let Some(keep) = args.keep else { return };
    let baseline = night.baseline.as_ref().map_or("", |run| run.as_str());
    let seconds = keep.duration().as_secs_f64();
    match store::nightly::forget_raw(
        &args.run.results,
        &night.matrix,
        seconds,
        &[baseline, night.run.as_str()],
    ) {
        Ok(0) => {}
        Ok(bytes) => complain(&format!(
            "note: removed {:.1} MB of raw data older than {keep}\n",
            bytes as f64 / 1e6
        )),
        Err(error) => complain(&format!("warning: old raw data stays: {error}\n")),
    }
}
