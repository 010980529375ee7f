//! What is attacked: commands on small matrices, whose engines behave as badly as engines do.

use std::fs;
use std::path::{Path, PathBuf};

use matrix::loadgen::dataset::rng::Python;

use crate::daemon::{Daemon, folder};
use crate::harness::Bench;

/// A command that is attacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    Run,
    Containers,
    Nightly,
    Noise,
    Bisect,
    Report,
}

const JOBS: [Job; 6] = [
    Job::Run,
    Job::Containers,
    Job::Nightly,
    Job::Noise,
    Job::Bisect,
    Job::Report,
];

/// How an engine behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    Good,
    /// Ignores SIGTERM.
    Stubborn,
    /// Has no environment, and so no marks.
    Bare,
    /// Has a child without marks in a session of its own.
    BareChild,
    /// Has a child without marks in its group.
    BareMember,
    /// Runs in a session of its own below its first process, beside orphans without marks.
    Forked,
    /// Leaves shared memory.
    Shared,
    /// Answers nothing more after its first answers, also no reset, while a file `hang` is there.
    Hanging,
}

const MANNERS: [Manner; 8] = [
    Manner::Good,
    Manner::Stubborn,
    Manner::Bare,
    Manner::BareChild,
    Manner::BareMember,
    Manner::Forked,
    Manner::Shared,
    Manner::Hanging,
];

/// The one that a variable names.
fn asked<T: Copy + std::fmt::Debug>(variable: &str, all: &[T]) -> Option<T> {
    let name = matrix::cli::env_variable(variable)?;
    let named = all.iter().find(|one| format!("{one:?}") == name);
    Some(*named.unwrap_or_else(|| panic!("`{variable}` may be one of {all:?}")))
}

/// A busy machine is no fault of these cells.
const BOUNDS: &str = "validity: { send_lag: 10s, client_wait: 1, client_cpu: 1, queue_growth: 100, gap: 60s, window: 0s, max_cache_hits: 0.2 }\n";

/// A command on a matrix in a folder of its own.
pub struct Case {
    pub job: Job,
    pub bench: Bench,
    /// How its engines behave, for messages.
    pub manners: Vec<Manner>,
    /// How long it takes about, in seconds, when nobody attacks it.
    pub seconds: f64,
    /// How the names of shared memory begin that its engines leave and that do not hold the token.
    pub segments: Vec<String>,
    /// How many measurements its run has in the end, where it is always the same one.
    pub measurements: Option<usize>,
}

/// What all cases share.
pub struct Surroundings<'a> {
    /// Digits that stand in the command line of everything that engines start.
    pub token: &'a str,
    pub daemon: Option<&'a Daemon>,
    pub locks: &'a Path,
    pub temporary: &'a Path,
}

impl Case {
    /// `MATRIX_ATTACK_JOB` and `MATRIX_ATTACK_MANNER` have all of one kind: `Noise`, `Shared`.
    pub fn draw(around: &Surroundings<'_>, draws: &mut Python) -> Self {
        let job = match (draws.random() * 10.0) as u32 {
            0..4 => Job::Run,
            4..6 if around.daemon.is_some() => Job::Containers,
            4..6 => Job::Run,
            6 => Job::Nightly,
            7 => Job::Noise,
            8 => Job::Bisect,
            _ => Job::Report,
        };
        Self::of(asked("MATRIX_ATTACK_JOB", &JOBS).unwrap_or(job), around, draws)
    }

    fn of(job: Job, around: &Surroundings<'_>, draws: &mut Python) -> Self {
        let manner = asked("MATRIX_ATTACK_MANNER", &MANNERS);
        let mut draw = || {
            let drawn = MANNERS[(draws.random() * MANNERS.len() as f64) as usize];
            manner.unwrap_or(drawn)
        };
        let manners = match job {
            Job::Run => vec![draw(), draw()],
            // Only the arguments of an engine in a container are its own.
            Job::Containers => [draw(), draw()]
                .into_iter()
                .map(|manner| match manner {
                    Manner::Stubborn | Manner::Shared | Manner::Hanging => manner,
                    _ => Manner::Good,
                })
                .collect(),
            // One that hangs would end these in another way.
            Job::Nightly | Job::Noise | Job::Bisect => vec![match draw() {
                Manner::Hanging => Manner::Good,
                manner => manner,
            }],
            Job::Report => vec![Manner::Good],
        };
        let port = 10_000 + (draws.random() * 5_000.0) as u32 * 2;
        let engines: String = manners
            .iter()
            .enumerate()
            .map(|(number, manner)| entry(job, *manner, number, port, around.token))
            .collect();
        let scenarios = match job {
            Job::Run | Job::Containers => {
                "  - random-1k-1k: { prompts: 3, input_len: 8, output_len: 30, warmup: 1 }\n  - random-2k-6k: { prompts: 3, input_len: 8, output_len: 15, warmup: 1 }\n"
            }
            _ => "  - random-1k-1k: { prompts: 3, input_len: 8, output_len: 15, warmup: 0 }\n",
        };
        let matrix = format!(
            "name: chaos\nengines:\n{engines}models:\n  - m: {{ tokenizer: data/tokenizer.json }}\nscenarios:\n{scenarios}datasets: {{ sharegpt: data/conversations.json }}\n{BOUNDS}"
        );
        let bench = Bench::of(&matrix);
        let path = |path: &Path| path.display().to_string();
        let mut bench = bench
            .variable("MATRIX_LOCKS", &path(around.locks))
            .variable("TMPDIR", &path(around.temporary))
            .variable("MATRIX_PRETEND_GPUS", "2");
        if let Some(daemon) = around.daemon {
            bench = bench.variable("DOCKER_HOST", &daemon.host);
        }
        if job == Job::Containers {
            let engines = folder(&bench).join("engines");
            fs::remove_file(&engines).expect("the link can be removed");
            fs::create_dir(&engines).expect("a folder can be made");
            fs::write(engines.join("box.yaml"), crate::daemon::recipe(&[])).expect("a file can be written");
        }
        let (seconds, measurements) = match job {
            Job::Run => (3.0, Some(4)),
            Job::Containers => (5.0, Some(4)),
            Job::Nightly => (1.6, Some(1)),
            Job::Noise => (2.6, Some(4)),
            Job::Bisect => (2.6, None),
            Job::Report => (0.4, Some(1)),
        };
        let case = Self {
            job,
            bench,
            manners,
            seconds,
            segments: (port..port + 2)
                .map(|port| format!("matrix-sim-{port}-"))
                .collect(),
            measurements,
        };
        if job == Job::Report {
            case.bench.run(&[]).exits(0);
        }
        if case.manners.contains(&Manner::Hanging) {
            fs::write(case.hang(), "").expect("a file can be written");
        }
        case
    }

    /// While this file is there engines hang that are made to.
    pub fn hang(&self) -> PathBuf {
        folder(&self.bench).join("hang")
    }

    /// The arguments; `resumes` goes on with the newest run.
    pub fn args(&self, resumes: bool) -> Vec<String> {
        let gate = ["--gate", "mean_tpot_ms"];
        let words: Vec<&str> = match self.job {
            Job::Run | Job::Containers => vec!["run", "matrices/m.yaml"],
            Job::Nightly => [&["nightly", "matrices/m.yaml", "--floor", "90%"], &gate[..]].concat(),
            Job::Noise => [&["noise", "matrices/m.yaml", "--starts", "2"], &gate[..]].concat(),
            Job::Bisect => [
                &["bisect", "matrices/m.yaml", "--starts", "2", "--floor", "90%"],
                &gate[..],
            ]
            .concat(),
            Job::Report => {
                let run = self.bench.run_folder().display().to_string();
                return ["report", &run, "--out", "drawn"].map(str::to_owned).to_vec();
            }
        };
        let more = match resumes {
            true => &["--no-calibration", "--resume"][..],
            false => &["--no-calibration"],
        };
        [&words[..], more]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect()
    }

    /// What it may end with when nobody attacks it.
    pub const fn good_ends(&self) -> &'static [i32] {
        match self.job {
            // Engines of one speed: no loss, or, after so few starts, undecided.
            Job::Bisect => &[0, 5],
            _ => &[0],
        }
    }
}

/// An engine of the matrix.
fn entry(job: Job, manner: Manner, number: usize, port: u32, token: &str) -> String {
    let name = format!("e{number}");
    let mut args = vec![
        "--ttft, 10ms, --itl, 5ms, --version-string".to_owned(),
        format!("\"9.{token}\""),
    ];
    if manner == Manner::Stubborn {
        args.push("--ignore-sigterm".to_owned());
    }
    if job == Job::Containers {
        match manner {
            Manner::Shared => args.push("--leave-shm, 64KiB".to_owned()),
            Manner::Hanging => args.push("--start-delay, 2s".to_owned()),
            _ => {}
        }
        return format!(
            "  - box: {{ as: {name}, port: {}, args: [{}] }}\n",
            port + u32::try_from(number).expect("it is small"),
            args.join(", ")
        );
    }
    let bare = format!("sleep 3600.{token}");
    let serve = r#""{matrix}", sim, --model, "{served}", --port, "{port}""#;
    let by_shell = |script: &str| format!("command: [sh, -c, '{script}', sh, {serve}], ");
    let command = match manner {
        Manner::Good | Manner::Stubborn => String::new(),
        Manner::Bare => format!("command: [env, -i, PATH=/usr/bin:/bin, {serve}], "),
        Manner::BareChild => by_shell(&format!("env -i setsid {bare} & exec \"$@\"")),
        Manner::BareMember => by_shell(&format!("env -i {bare} & exec \"$@\"")),
        Manner::Forked => by_shell(&format!(
            "(env -i setsid sh -c \"{bare} & {bare} &\" &) ; setsid \"$@\" & wait"
        )),
        Manner::Shared => by_shell(&format!(
            "umask 077; exec 7<>/dev/shm/psm_{token}_$$; head -c 65536 /dev/zero >&7; exec \"$@\""
        )),
        Manner::Hanging => by_shell("test ! -e hang || set -- \"$@\" --hang-after 2; exec \"$@\""),
    };
    let versions = match job {
        Job::Bisect => "version: [v1, v2, v3], ",
        _ => "",
    };
    format!(
        "  - sim: {{ as: {name}, variant: vllm, devices: gpu, timeouts: {{ stop: 1s }}, {versions}{command}args: [{}] }}\n",
        args.join(", ")
    )
}
