//! Commands that are killed, stopped together with their engines, and interrupted twice, at random moments. Afterwards nothing of theirs is
//! left, nothing of others is touched, and every cell is measured once. Short here; `tests/chaos.sh` is the long form.

mod jobs;
mod others;
mod traces;

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use matrix::base::clock;
use matrix::cli::env_variable;
use matrix::loadgen::dataset::rng::Python;
use rustix::process::{Pid, Signal, kill_process};

use crate::chaos::OwnDaemon;
use crate::daemon::{Daemon, make_image};
use jobs::{Case, Job, Surroundings};
use others::Others;
use traces::{has_run, repeated, runs};

/// What is done to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attack {
    /// `kill -9` of the command alone.
    Kill,
    /// SIGTERM to the command and to all processes of its engines, in any order.
    Terminate,
    /// SIGINT, and once more within a second and a half.
    InterruptTwice,
}

/// How long a command may take to stop after SIGTERM: some engines wait for their grace, on a machine with much else to do.
const STOPPED: Duration = Duration::from_secs(40);

/// How long it may take after the second SIGINT: ten seconds are promised, a busy machine takes some more.
const ABANDONED: Duration = Duration::from_secs(13);

/// How long a command may take that nobody attacks.
const UNDISTURBED: Duration = Duration::from_secs(120);

fn number(name: &str, otherwise: u64) -> u64 {
    env_variable(name)
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[test]
fn attacked_at_random_moments_commands_leave_nothing_and_touch_nothing_of_others() {
    let counts = [
        (Attack::Kill, number("MATRIX_ATTACK_KILLS", 3)),
        (Attack::Terminate, number("MATRIX_ATTACK_TERMS", 2)),
        (Attack::InterruptTwice, number("MATRIX_ATTACK_INTERRUPTS", 1)),
    ];
    let seed = number(
        "MATRIX_ATTACK_SEED",
        (clock::unix_seconds() * 1e3) as u64 % 100_000,
    );
    say(&format!(
        "attacks: {counts:?}, seed {seed} (set MATRIX_ATTACK_SEED to repeat)"
    ));
    let own = Daemon::or_skip().map(|_| OwnDaemon::with(""));
    if let Some(own) = &own {
        make_image(&own.daemon.host);
    }
    let mut field = Field::prepare(own.as_ref().map(|own| &own.daemon), seed);
    let mut attacks: Vec<Attack> = counts
        .iter()
        .flat_map(|(attack, count)| (0..*count).map(|_| *attack))
        .collect();
    field.shuffle(&mut attacks);
    let began = clock::now();
    let all = attacks.len();
    let mut tally = Tally::default();
    let mut round = 0;
    while let Some(attack) = attacks.last().copied() {
        round += 1;
        // One that came too late is none.
        if field.round(round, attack, &mut tally) {
            attacks.pop();
        }
        if round % 20 == 0 || attacks.is_empty() {
            say(&format!(
                "attacks: {} of {all} after {:.0} s, {tally}",
                tally.hit,
                clock::now().since(began).as_secs_f64()
            ));
        }
    }
    field.finish(&mut tally);
    assert!(
        tally.faults.is_empty(),
        "seed {seed}: {} faults:\n{}",
        tally.faults.len(),
        tally.faults.join("\n")
    );
    say(&format!("attacks: done, seed {seed}, {tally}, no fault"));
}

/// What came of it.
#[derive(Default)]
struct Tally {
    /// Commands that were still under way when they were attacked.
    hit: usize,
    /// Commands that had ended before.
    missed: usize,
    /// Runs that were completed and looked through.
    completed: usize,
    cleaned: usize,
    faults: Vec<String>,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} hit, {} too late, {} times `clean`, {} runs completed, {} faults",
            self.hit,
            self.missed,
            self.cleaned,
            self.completed,
            self.faults.len()
        )
    }
}

/// Where it happens.
struct Field<'a> {
    folder: tempfile::TempDir,
    token: String,
    daemon: Option<&'a Daemon>,
    others: Others,
    draws: Python,
    /// How the names of shared memory of all engines so far begin, but for what holds the token.
    segments: Vec<String>,
    /// How the names of the cgroups of all commands so far begin.
    commands: Vec<String>,
    /// A run that was attacked and is not complete yet.
    open: Option<Case>,
}

impl<'a> Field<'a> {
    fn prepare(daemon: Option<&'a Daemon>, seed: u64) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        for part in ["locks", "temporary"] {
            fs::create_dir(folder.path().join(part)).expect("a folder can be made");
        }
        let token = format!("00{:07}{seed:06}", std::process::id());
        let (locks, temporary) = (folder.path().join("locks"), folder.path().join("temporary"));
        Self {
            others: Others::plant(&token, &locks, &temporary, daemon),
            token,
            daemon,
            folder,
            draws: Python::new(seed),
            segments: Vec::new(),
            commands: Vec::new(),
            open: None,
        }
    }

    fn shuffle(&mut self, attacks: &mut [Attack]) {
        for index in (1..attacks.len()).rev() {
            let other = (self.draws.random() * (index + 1) as f64) as usize;
            attacks.swap(index, other);
        }
    }

    /// A fresh case, or the one that is not complete yet.
    fn case(&mut self) -> Case {
        if let Some(open) = self.open.take() {
            return open;
        }
        let (locks, temporary) = (
            self.folder.path().join("locks"),
            self.folder.path().join("temporary"),
        );
        let around = Surroundings {
            token: &self.token,
            daemon: self.daemon,
            locks: &locks,
            temporary: &temporary,
        };
        let case = Case::draw(&around, &mut self.draws);
        self.segments.extend(case.segments.iter().cloned());
        case
    }

    fn begin(&mut self, case: &Case, args: &[String], said: &Path) -> Child {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let said = fs::File::create(said).expect("a file can be made");
        let mut command: Command = case.bench.command(&args);
        command.stdout(Stdio::null()).stderr(said).process_group(0);
        let child = command.spawn().expect("the binary runs");
        let (id, started) = (child.id(), others::started(child.id()));
        self.commands.push(format!("matrix-{id}-{started}-"));
        child
    }

    /// Attacks a command, lets the next one come to its end, and looks what is left. Says whether the attack came in time.
    fn round(&mut self, round: u64, attack: Attack, tally: &mut Tally) -> bool {
        let case = self.case();
        let resumes = case.job != Job::Report && has_run(&case.bench);
        let args = case.args(resumes);
        let wait = Duration::from_secs_f64(self.draws.random() * case.seconds);
        let title = format!(
            "round {round}, {attack:?} of {:?} with {:?} after {} ms",
            case.job,
            case.manners,
            wait.as_millis()
        );
        let said = self.folder.path().join("said");
        let mut child = self.begin(&case, &args, &said);
        let ended = ends_within(&mut child, wait);
        let mut may_die = false;
        self.others.another_segment(round);
        let code = match ended {
            Some(code) => {
                tally.missed += 1;
                Some(code)
            }
            None => {
                tally.hit += 1;
                // One that is hardly begun ends by the signal itself.
                may_die = !catches_signals(&child);
                let code = self.strike(attack, &mut child);
                if code.is_none() {
                    // It must not stay while others are looked for.
                    child.kill().expect("it can be killed");
                    child.wait().expect("it ends");
                }
                code
            }
        };
        let mut faults = Vec::new();
        match (code, ended.is_some() || attack != Attack::Kill) {
            (_, false) => {}
            (None, true) => faults.push(format!("it did not end after {attack:?}")),
            (Some(code), true) => {
                let may = ended.is_none() && (code == 130 || may_die && [-2, -15].contains(&code));
                if !may && !case.good_ends().contains(&code) {
                    faults.push(format!("it ended with {code}"));
                }
            }
        }
        let said = fs::read_to_string(&said).unwrap_or_default();
        self.afterwards(case, &mut faults, tally);
        for fault in faults {
            let fault = format!("{title}: {fault}");
            say(&format!("{fault}\n{}", last_lines(&said)));
            tally.faults.push(fault);
        }
        ended.is_none()
    }

    /// Attacks a command, and waits until it ends; `None` if it does not, and for one that was killed.
    fn strike(&mut self, attack: Attack, child: &mut Child) -> Option<i32> {
        match attack {
            Attack::Kill => {
                child.kill().expect("it can be killed");
                child.wait().expect("it ends");
                Some(-9)
            }
            Attack::Terminate => {
                let mut pids: Vec<i32> = self.processes().into_iter().map(|(pid, _)| pid).collect();
                let own = i32::try_from(child.id()).expect("ids are small");
                pids.retain(|pid| *pid != own);
                let place = (self.draws.random() * (pids.len() + 1) as f64) as usize;
                pids.insert(place, own);
                for pid in pids {
                    signal(pid, Signal::TERM);
                }
                ends_within(child, STOPPED)
            }
            Attack::InterruptTwice => {
                let own = i32::try_from(child.id()).expect("ids are small");
                signal(own, Signal::INT);
                // Within 0.1 s it would be the same signal.
                let between = Duration::from_secs_f64(0.15 + self.draws.random() * 1.5);
                if let Some(code) = ends_within(child, between) {
                    return Some(code);
                }
                signal(own, Signal::INT);
                ends_within(child, ABANDONED)
            }
        }
    }

    /// The next run, or `clean`; then nothing is left.
    fn afterwards(&mut self, case: Case, faults: &mut Vec<String>, tally: &mut Tally) {
        let is_run = matches!(case.job, Job::Run | Job::Containers);
        if self.draws.random() < 0.4 {
            tally.cleaned += 1;
            let ran = case.bench.call(&["clean"]);
            if ran.code != Some(0) {
                faults.push(format!("`clean` ends with {:?}: {}", ran.code, ran.stderr));
            }
            faults.extend(self.left(None));
            // The next attack is one on the run that goes on.
            if is_run && self.draws.random() < 0.5 {
                self.open = Some(case);
                return;
            }
        }
        self.complete(&case, faults, tally);
    }

    /// Lets a command come to its end, and looks through what it made.
    fn complete(&mut self, case: &Case, faults: &mut Vec<String>, tally: &mut Tally) {
        let _ = fs::remove_file(case.hang());
        let resumes = case.job != Job::Report && has_run(&case.bench);
        let said = self.folder.path().join("said-next");
        let mut child = self.begin(case, &case.args(resumes), &said);
        let code = ends_within(&mut child, UNDISTURBED);
        if code.is_none() {
            child.kill().expect("it can be killed");
            child.wait().expect("it ends");
        }
        if code.is_some_and(|code| case.good_ends().contains(&code)) {
            faults.extend(repeated(case));
            tally.completed += 1;
        } else {
            let said = fs::read_to_string(&said).unwrap_or_default();
            faults.push(format!("the next run ends with {code:?}: {}", last_lines(&said)));
        }
        if !faults.is_empty() {
            for run in runs(&case.bench) {
                let journal = fs::read_to_string(run.join("journal.jsonl")).unwrap_or_default();
                let lines = journal
                    .lines()
                    .map(|line| line.chars().take(300).collect::<String>());
                say(&format!(
                    "{}:\n{}",
                    run.display(),
                    lines.collect::<Vec<_>>().join("\n")
                ));
            }
        }
        faults.extend(self.left(Some(case)));
    }

    /// Completes what is open in the end.
    fn finish(&mut self, tally: &mut Tally) {
        if let Some(case) = self.open.take() {
            let mut faults = Vec::new();
            self.complete(&case, &mut faults, tally);
            tally.faults.extend(faults);
        }
    }
}

/// Whether a process catches SIGTERM.
fn catches_signals(child: &Child) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|caught| u64::from_str_radix(caught.trim(), 16).ok());
    caught.is_some_and(|caught| caught >> 14 & 1 == 1)
}

fn signal(pid: i32, signal: Signal) {
    // It may have ended by itself.
    let _ = kill_process(Pid::from_raw(pid).expect("it is a process id"), signal);
}

/// The exit status of a command that ends in time; one that a signal ended has the negative number of that.
fn ends_within(child: &mut Child, limit: Duration) -> Option<i32> {
    use std::os::unix::process::ExitStatusExt;
    let began = clock::now();
    loop {
        if let Some(status) = child.try_wait().expect("it can be asked") {
            return status.code().or_else(|| Some(-status.signal()?));
        }
        if clock::now().since(began) >= limit {
            return None;
        }
        std::thread::sleep(Duration::from_millis(3));
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}
