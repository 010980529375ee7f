//! Servers that lie, cut corners or are disturbed, each beside honest ones: every one is named with its code, and none is the best, wins,
//! or has a ratio that nothing marks.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use matrix::results::record::validity::{ReasonCode, Verdict};
use serde_json::Value;

use crate::fake::{Answer, Asked, Conduct, Fake, WORDS};
use crate::harness::Bench;

/// Bounds that a short load beside other tests does not meet by itself, and that are not what is tried here.
const BOUNDS: &str = "validity: { window: 0s, tail: 0, steady: 0.0, send_lag: 200ms }\n";

/// Prompts and answers of several lengths, as token ids, so that a server counts prompts as they were sent.
const LOAD: &str = "  - load: { dataset: random-ids, prompts: 16, input_len: 64, output_len: 40, concurrency: 8, range_ratio: 0.5, tokenize_prompt: true }\n";

/// One thing that a server does otherwise than an honest one.
struct Situation {
    name: &'static str,
    code: &'static str,
    /// Whether it may have a ratio that is marked; else it has none.
    may_have_ratio: bool,
    conduct: Conduct,
}

/// A server that is faster than the honest one, by this.
const fn lies(
    name: &'static str,
    code: &'static str,
    may_have_ratio: bool,
    answer: fn(&Asked, &mut Answer),
) -> Situation {
    let conduct = Conduct {
        answer,
        ..Conduct::at(5, 1)
    };
    Situation {
        name,
        code,
        may_have_ratio,
        conduct,
    }
}

const INVALID: bool = false;
const MARKED: bool = true;

/// Keeps so many events.
fn keep(answer: &mut Answer, share: f64) {
    let count = (answer.events.len() as f64 * share).ceil() as usize;
    answer.events.truncate(count.max(1));
}

/// What servers do otherwise, and by what each is found.
fn situations() -> Vec<Situation> {
    let counters = |requests: u64| {
        format!(
            "vllm:generation_tokens_total {}\nvllm:num_preemptions_total {}\n",
            31 * requests,
            requests / 2
        )
    };
    vec![
        lies(
            "reads-eight-tokens",
            "prompt-tokens-disagree",
            INVALID,
            |_, answer| {
                answer.prompt = answer.prompt.min(8);
            },
        ),
        lies(
            "adds-a-system-prompt",
            "prompt-tokens-disagree",
            MARKED,
            |_, answer| answer.prompt += 90,
        ),
        // The counts of another request, which asked for something else.
        lies(
            "usage-of-another",
            "prompt-tokens-disagree",
            INVALID,
            |asked, answer| {
                let other = (asked.number * 37) % 33;
                (answer.prompt, answer.completion) = (32 + other as u32, answer.completion.max(20));
            },
        ),
        lies("goes-on", "output-long", INVALID, |_, answer| {
            let more = answer.events.clone();
            answer.events.extend(more);
            answer.completion *= 2;
        }),
        lies("exclamation-marks", "answers-degenerate", INVALID, |_, answer| {
            answer
                .events
                .iter_mut()
                .for_each(|event| event.text = "!".to_owned());
        }),
        lies(
            "echoes-the-prompt",
            "answers-degenerate",
            INVALID,
            |asked, answer| {
                let prompt: Vec<char> = asked.text().chars().collect();
                let events = answer.events.iter_mut().zip(prompt.chunks(4).cycle());
                events.for_each(|(event, piece)| event.text = piece.iter().collect());
            },
        ),
        lies("ends-early", "output-short", INVALID, |_, answer| {
            keep(answer, 0.3);
            answer.completion = answer.events.len() as u32;
            answer.finish = "stop";
        }),
        lies(
            "ends-every-tenth-early",
            "output-short",
            INVALID,
            |asked, answer| {
                if asked.number % 10 == 0 {
                    keep(answer, 0.2);
                    answer.completion = answer.events.len() as u32;
                }
            },
        ),
        lies("ends-early-uncounted", "output-short", INVALID, |_, answer| {
            keep(answer, 0.3);
            answer.usage = false;
            answer.finish = "stop";
        }),
        lies("counts-nothing", "tokens-uncounted", MARKED, |_, answer| {
            answer.usage = false
        }),
        lies(
            "claims-a-quarter-as-whole",
            "tokens-disagree",
            MARKED,
            |_, answer| keep(answer, 0.25),
        ),
        lies("claims-half-as-whole", "tokens-disagree", MARKED, |_, answer| {
            keep(answer, 0.53)
        }),
        lies("counts-empty-events", "tokens-disagree", MARKED, |_, answer| {
            let every_other = answer.events.iter_mut().skip(1).step_by(2);
            every_other.for_each(|event| event.text.clear());
        }),
        lies("sends-no-text-at-all", "tokens-disagree", MARKED, |_, answer| {
            answer.events.iter_mut().for_each(|event| event.text.clear());
        }),
        lies(
            "counts-and-sends-nothing",
            "tokens-disagree",
            MARKED,
            |_, answer| {
                answer.events.clear();
            },
        ),
        // Three canned tokens at the pace of the model, before it has read the prompt.
        lies("begins-canned", "first-event-ahead", MARKED, |_, answer| {
            let pace = answer.events[1].after;
            for (event, text) in answer.events.iter_mut().zip([" Sure", " here", " is"]) {
                (event.text, event.after) = (text.to_owned(), pace);
            }
            answer.events[3].after = pace * 12;
        }),
        // Words of its own for each prompt, as quickly.
        lies("begins-with-three", "first-event-ahead", MARKED, |_, answer| {
            answer.events[3].after = Duration::from_millis(200);
        }),
        lies(
            "sends-every-token-twice",
            "tokens-disagree",
            MARKED,
            |_, answer| {
                let twice = answer
                    .events
                    .iter()
                    .flat_map(|event| [event.clone(), event.clone()]);
                answer.events = twice.collect();
            },
        ),
        lies(
            "counts-reasoning-alone",
            "tokens-disagree",
            MARKED,
            |_, answer| {
                answer.completion /= 4;
                answer.reasoning = Some(answer.completion);
            },
        ),
        lies("four-tokens-an-event", "chunked-tokens", MARKED, |_, answer| {
            answer.join(4)
        }),
        lies("all-in-one-event", "chunked-tokens", MARKED, |_, answer| {
            answer.join(1000)
        }),
        lies("buffers-200-ms", "chunked-tokens", MARKED, |_, answer| {
            for (index, event) in answer.events.iter_mut().enumerate() {
                event.after = if index % 20 == 0 {
                    Duration::from_millis(200)
                } else {
                    Duration::ZERO
                };
            }
        }),
        // A proxy that flushes every 20 ms: 1.8 events at a moment. This is slower than the honest server, but a client that reads a few ms late,
        // as beside other tests, must not take the flushes for its own delay.
        lies("flushes-in-twos", "chunked-tokens", MARKED, |_, answer| {
            for (index, event) in answer.events.iter_mut().enumerate().skip(1) {
                event.after = match index % 9 {
                    2 | 4 | 6 | 8 => Duration::ZERO,
                    _ => Duration::from_millis(20),
                };
            }
        }),
        lies("all-in-one-write", "chunked-tokens", MARKED, |_, answer| {
            let whole = answer.events.iter().map(|event| event.after).sum();
            answer
                .events
                .iter_mut()
                .for_each(|event| event.after = Duration::ZERO);
            answer.events[0].after = whole;
        }),
        lies(
            "says-the-same-to-all",
            "answers-degenerate",
            INVALID,
            |_, answer| {
                for (place, event) in answer.events.iter_mut().enumerate() {
                    event.text = WORDS[place * place % 31 % WORDS.len()].to_owned();
                }
            },
        ),
        lies("loops", "answers-degenerate", MARKED, |asked, answer| {
            for (place, event) in answer.events.iter_mut().enumerate() {
                let word = asked.number as usize + place % 3;
                event.text = WORDS[word % WORDS.len()].to_owned();
            }
        }),
        // Seven of sixteen prompts are near enough to one that was answered before, whatever order they come in.
        lies(
            "answers-from-a-cache",
            "answers-degenerate",
            MARKED,
            |asked, answer| {
                if asked.number % 2 == 0 && asked.number % 16 < 14 {
                    for (place, event) in answer.events.iter_mut().enumerate() {
                        event.text = WORDS[place * place % 31 % WORDS.len()].to_owned();
                        event.after /= 4;
                    }
                }
            },
        ),
        // Three of four answers come from another model, and quickly.
        lies("falls-back", "wrong-model", INVALID, |asked, answer| {
            if asked.number % 4 != 0 {
                answer.model = "tiny-fallback";
                answer.events.iter_mut().for_each(|event| event.after /= 5);
            }
        }),
        lies("drops-every-fourth", "errors", INVALID, |asked, answer| {
            if asked.number % 4 == 0 {
                answer.status = 503;
            }
        }),
        Situation {
            name: "changes-its-model",
            code: "wrong-model",
            may_have_ratio: false,
            conduct: Conduct {
                model: |requests| if requests > 8 { "m-small" } else { "m" },
                ..Conduct::at(5, 1)
            },
        },
        Situation {
            name: "is-replaced",
            code: "engine-changed",
            may_have_ratio: false,
            conduct: Conduct {
                length: |requests| if requests > 8 { 8192 } else { 4096 },
                ..Conduct::at(5, 1)
            },
        },
        Situation {
            name: "restarts",
            code: "engine-restarted",
            may_have_ratio: false,
            conduct: Conduct {
                metrics: Some(|requests| {
                    format!(
                        "vllm:generation_tokens_total {}\n",
                        if requests > 8 { 0 } else { 1000 + requests }
                    )
                }),
                ..Conduct::at(5, 1)
            },
        },
        Situation {
            name: "serves-others-too",
            code: "tokens-disagree",
            may_have_ratio: true,
            conduct: Conduct {
                metrics: Some(|requests| format!("vllm:generation_tokens_total {}\n", 400 * requests)),
                ..Conduct::at(5, 1)
            },
        },
        // Prompts of others, whose answers are a token each.
        Situation {
            name: "reads-for-others-too",
            code: "tokens-disagree",
            may_have_ratio: true,
            conduct: Conduct {
                metrics: Some(|requests| format!("vllm:prompt_tokens_total {}\n", 1000 * requests)),
                ..Conduct::at(5, 1)
            },
        },
        Situation {
            name: "counts-an-eighth-of-the-prompts",
            code: "prompt-tokens-disagree",
            may_have_ratio: false,
            conduct: Conduct {
                metrics: Some(|requests| format!("vllm:prompt_tokens_total {}\n", 4 * requests)),
                ..Conduct::at(5, 1)
            },
        },
        Situation {
            name: "preempts",
            code: "preempted",
            may_have_ratio: true,
            conduct: Conduct {
                metrics: Some(counters),
                ..Conduct::at(5, 1)
            },
        },
    ]
}

/// A row of the comparison of this engine, and its cell, by the report of the run.
fn placed<'r>(report: &'r Value, engine: &str) -> (&'r Value, &'r Value) {
    let cells = report["cells"].as_array().expect("a report has cells");
    let at = cells.iter().position(|cell| {
        cell["cell"]
            .as_str()
            .is_some_and(|key| key.contains(&format!("engine={engine},")))
    });
    let at = at.unwrap_or_else(|| panic!("no cell of {engine}"));
    let rows = report["comparisons"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|one| one["rows"].as_array().into_iter().flatten());
    let row = rows
        .into_iter()
        .find(|row| row["cell"] == at)
        .unwrap_or_else(|| panic!("no row of {engine}"));
    (row, &cells[at])
}

/// Everything that was found of a cell's measurements.
fn reasons(cell: &Value) -> impl Iterator<Item = &Value> {
    let measurements = cell["measurements"].as_array().into_iter().flatten();
    measurements.flat_map(|one| one["reasons"].as_array().into_iter().flatten())
}

/// A finding without weight, which older versions call `valid`.
fn is_note(reason: &Value) -> bool {
    reason["weight"] == "note" || reason["weight"] == "valid"
}

/// What is wrong with how this engine is reported: a code that is missing, a win, a ratio without a mark.
fn objections(report: &Value, stdout: &str, situation: &Situation) -> Vec<String> {
    let (row, cell) = placed(report, situation.name);
    let reasons: Vec<&Value> = reasons(cell).collect();
    let codes: Vec<&str> = reasons
        .iter()
        .filter_map(|reason| reason["code"].as_str())
        .collect();
    let mut found = Vec::new();
    if !reasons
        .iter()
        .any(|reason| reason["code"] == situation.code && !is_note(reason))
    {
        found.push(format!("no {} among {codes:?}", situation.code));
    }
    if row["is_best"] == true {
        found.push("it is [best]".to_owned());
    }
    let ratio = &row["ratio"];
    if ratio["standing"] == "better" {
        found.push("it wins".to_owned());
    }
    if !ratio.is_null() && !situation.may_have_ratio {
        found.push(format!("it has the ratio {}", ratio["value"]));
    }
    let name = format!(" {} [", situation.name);
    let is_marked = stdout
        .lines()
        .any(|line| line.contains(&name) && (line.contains("suspect]") || line.contains("[invalid]")));
    if !is_marked {
        found.push(format!("nothing marks its row (ratio {})", ratio["value"]));
    }
    found
        .into_iter()
        .map(|what| format!("{}: {what}", situation.name))
        .collect()
}

#[test]
fn servers_that_lie_are_named_and_win_nothing() {
    let all = situations();
    // Tokens that were accepted together come together: that is how the engine works.
    let speculating = Conduct {
        answer: |_, answer| answer.join(3),
        metrics: Some(|requests| format!("vllm:spec_decode_num_accepted_tokens_total {}\n", 20 * requests)),
        ..Conduct::at(10, 2)
    };
    let honest = [
        ("honest", Fake::start(Conduct::at(20, 3))),
        ("quick", Fake::start(Conduct::at(10, 2))),
        ("speculating", Fake::start(speculating)),
    ];
    let fakes: Vec<Fake> = all
        .iter()
        .map(|situation| Fake::start(situation.conduct))
        .collect();
    let lying = all.iter().map(|situation| situation.name).zip(&fakes);
    let entry =
        |(name, fake): (&str, &Fake)| format!("  - attach: {{ as: {name}, url: \"{}\" }}\n", fake.url());
    let entries: String = honest
        .iter()
        .map(|(name, fake)| (*name, fake))
        .chain(lying)
        .map(entry)
        .collect();
    let bench = Bench::of(&format!(
        "name: t\nengines:\n{entries}models:\n  - m: {{ tokenizer: data/tokenizer.json }}\nscenarios:\n{LOAD}datasets: {{ sharegpt: data/conversations.json }}\n{BOUNDS}"
    ));
    let ran = bench.run(&[]);
    let actual = bench
        .call(&[
            "report",
            &bench.run_folder().display().to_string(),
            "--format",
            "json",
        ])
        .exits(0);
    let report: Value = serde_json::from_str(&actual.stdout).expect("a report is JSON");
    // What an honest server does is no lie.
    let honest = honest.iter().flat_map(|(name, _)| {
        let (row, cell) = placed(&report, name);
        // A client that reads late beside other tests says nothing of the server.
        let is_of_client = |reason: &&Value| {
            ["client-late", "host-busy"].contains(&reason["code"].as_str().unwrap_or_default())
        };
        let doubts = reasons(cell).filter(|reason| !is_note(reason) && !is_of_client(reason));
        let doubts: Vec<String> = doubts
            .map(|reason| format!("{name}: {}", reason["code"]))
            .collect();
        assert!(row["ratio"]["value"].is_number(), "{row:#}");
        doubts
    });
    let lying = all
        .iter()
        .flat_map(|situation| objections(&report, &ran.stdout, situation));
    let is_best = ran
        .stdout
        .contains("[best]")
        .then(|| "there is a [best]".to_owned());
    let code = (ran.code != Some(3)).then(|| format!("it ended with {:?}", ran.code));
    let found: Vec<String> = honest.chain(lying).chain(is_best).chain(code).collect();
    assert!(
        found.is_empty(),
        "{} objections to {} situations:\n{}\n{}",
        found.len(),
        all.len(),
        found.join("\n"),
        ran.stdout
    );
}

/// A chat template may add tokens, so that many more than were sent are no fault; the row tells how many.
#[test]
fn a_server_that_counts_more_prompt_tokens_of_a_chat_is_noted() {
    let more = Conduct {
        answer: |_, answer| answer.prompt += 240,
        ..Conduct::at(5, 1)
    };
    let few = Conduct {
        answer: |_, answer| answer.prompt += 4,
        ..Conduct::at(5, 1)
    };
    let (more, few) = (Fake::start(more), Fake::start(few));
    let bench = Bench::of(&format!(
        "name: t\nengines:\n  - attach: {{ as: more, variant: chat, url: \"{}\" }}\n  - attach: {{ as: few, variant: chat, url: \"{}\" }}\n\
         models:\n  - m: {{ tokenizer: data/tokenizer.json }}\nscenarios:\n  - load: {{ dataset: random, prompts: 8, input_len: 60, \
         output_len: 20, concurrency: 4 }}\ndatasets: {{ sharegpt: data/conversations.json }}\n{BOUNDS}",
        more.url(),
        few.url()
    ));
    let ran = bench.run(&[]).exits(0);
    let notes: Vec<&str> = ran
        .stdout
        .lines()
        .filter(|line| line.contains("the server counts"))
        .collect();
    assert!(!notes.is_empty(), "{}", ran.stdout);
    for note in notes {
        assert!(note.contains("more") && !note.contains("few"), "{note}");
        assert!(
            note.contains("prompt tokens, but the data set has 480;"),
            "{note}"
        );
    }
    assert!(!ran.stdout.contains("prompt-tokens-disagree"), "{}", ran.stdout);
}

/// Every answer of a server that compresses is compressed, so that nothing is waited for.
#[test]
fn a_server_whose_answers_are_compressed_is_not_waited_for() {
    let fake = Fake::start(Conduct {
        answer: |_, answer| answer.encoding = Some("gzip"),
        ..Conduct::at(5, 1)
    });
    let bench = Bench::of(&format!(
        "name: t\nengines:\n  - attach: {{ as: a, url: \"{}\", timeouts: {{ probe: 2m }} }}\nmodels:\n  - m: {{ tokenizer: data/tokenizer.json }}\n\
         scenarios:\n{LOAD}datasets: {{ sharegpt: data/conversations.json }}\n{BOUNDS}",
        fake.url()
    ));
    let ran = bench.run(&[]).exits(3).says("its responses cannot be measured");
    let ran = ran.says("compressed (`gzip`)").says("turn off compression");
    assert!(!ran.stderr.contains("timeouts:"), "{}", ran.stderr);
}

/// A server that keeps whole answers and counts no hits: sent the same prompts again, it answers at once. Its starts are repeats, nobody
/// can tell that its caches were empty, and it is not the best.
#[test]
fn a_server_that_keeps_its_answers_is_unproven() {
    static KNOWN: Mutex<BTreeSet<Vec<u32>>> = Mutex::new(BTreeSet::new());
    let keeping = Conduct {
        answer: |asked, answer| {
            if !KNOWN.lock().expect("nothing panics").insert(asked.ids.clone()) {
                answer
                    .events
                    .iter_mut()
                    .for_each(|event| event.after = Duration::from_micros(100));
            }
        },
        ..Conduct::at(40, 4)
    };
    let (honest, keeping) = (Fake::start(Conduct::at(40, 4)), Fake::start(keeping));
    let bench = Bench::of(&format!(
        "name: t\nengines:\n  - attach: {{ as: honest, url: \"{}\" }}\n  - attach: {{ as: keeping, unique_prefixes: false, url: \"{}\" }}\n\
         models:\n  - m: {{ tokenizer: data/tokenizer.json }}\nscenarios:\n{LOAD}repeats: {{ starts: 3 }}\n{BOUNDS}",
        honest.url(),
        keeping.url()
    ));
    // Older versions know no such key.
    let matrix = std::fs::read_to_string(bench.matrix()).expect("it can be read");
    if bench.call(&["check", "matrices/m.yaml"]).code == Some(2) {
        bench.rewrite(&matrix.replace("unique_prefixes: false, ", ""));
    }
    let ran = bench.run(&[]).exits(0);
    let actual = bench.call(&[
        "report",
        &bench.run_folder().display().to_string(),
        "--format",
        "json",
    ]);
    let report: Value = serde_json::from_str(&actual.exits(0).stdout).expect("a report is JSON");
    let (row, cell) = placed(&report, "keeping");
    let codes: Vec<&str> = reasons(cell)
        .filter_map(|reason| reason["code"].as_str())
        .collect();
    assert!(codes.contains(&"reset-unproven"), "{codes:?}\n{}", ran.stdout);
    assert_eq!(row["is_best"], false, "{row:#}");
    assert_ne!(row["ratio"]["standing"], "better", "{row:#}");
    assert!(ran.stdout.contains(" keeping [suspect]"), "{}", ran.stdout);
}

/// What the engine's counters tell is told beside failed requests, and of the points of a search too.
#[test]
fn counters_are_held_against_answers_beside_failures_and_in_searches() {
    let failing = Conduct {
        answer: |asked, answer| {
            if asked.number % 10 == 5 {
                answer.status = 503;
            }
        },
        ..Conduct::at(5, 1)
    };
    let cutting = Conduct {
        metrics: Some(|requests| format!("vllm:prompt_tokens_total {}\n", 4 * requests)),
        ..failing
    };
    let shared = Conduct {
        metrics: Some(|requests| format!("vllm:generation_tokens_total {}\n", 100 * requests)),
        ..failing
    };
    let (cutting, shared) = (Fake::start(cutting), Fake::start(shared));
    let search = "  - capacity: { dataset: random-ids, prompts: 240, input_len: 64, output_len: 40, range_ratio: 0.5, tokenize_prompt: true, \
                  error_share: 0.5, slo: { ttft: 500ms }, search: { by: concurrency, from: 1, to: 2, target: 0.5, prompts: 80 } }\n";
    let bench = Bench::of(&format!(
        "name: t\nengines:\n  - attach: {{ as: cutting, url: \"{}\" }}\n  - attach: {{ as: shared, url: \"{}\" }}\nmodels:\n  - m: {{ tokenizer: \
         data/tokenizer.json }}\nscenarios:\n{}{search}datasets: {{ sharegpt: data/conversations.json }}\n{BOUNDS}",
        cutting.url(),
        shared.url(),
        LOAD.replace("concurrency: 8", "concurrency: 8, error_share: 0.5")
    ));
    let ran = bench.run(&[]);
    let run = bench.finished();
    assert_eq!(run.summaries.len(), 4, "{}", ran.stdout);
    for summary in &run.summaries {
        let code = match summary.launch.to_string().contains("cutting") {
            true => ReasonCode::PromptTokensDisagree,
            false => ReasonCode::TokensDisagree,
        };
        let validity = summary.validity.as_ref().expect("it was judged");
        let actual = validity.reasons.iter().find(|reason| reason.code == code);
        let actual = actual.unwrap_or_else(|| panic!("{}: {validity:?}", summary.cell));
        assert!(actual.measured.contains("by the engine's counter"), "{actual:?}");
    }
}

/// A load balancer asks the page of another server each time: nothing began anew, and what the pages count is no evidence.
#[test]
fn pages_of_several_servers_in_turn_are_no_restart() {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let fake = Fake::start(Conduct {
        metrics: Some(|requests| {
            let other = ASKED.fetch_add(1, Ordering::Relaxed) % 2;
            format!(
                "vllm:generation_tokens_total {}\n",
                100_000 * other + 31 * requests
            )
        }),
        ..Conduct::at(20, 24)
    });
    let bench = Bench::of(&format!(
        "name: t\nengines:\n  - attach: {{ as: balanced, url: \"{}\" }}\nmodels:\n  - m: {{ tokenizer: data/tokenizer.json }}\nscenarios:\n{}datasets: {{ sharegpt: data/conversations.json }}\n{BOUNDS}",
        fake.url(),
        LOAD.replace("concurrency: 8", "concurrency: 2")
    ));
    bench.run(&[]).exits(0);
    let run = bench.finished();
    assert_eq!(run.summaries.len(), 1);
    for summary in &run.summaries {
        let validity = summary.validity.as_ref().expect("it was judged");
        let mixed = validity
            .reasons
            .iter()
            .find(|reason| reason.code == ReasonCode::MetricsMixed);
        let mixed = mixed.unwrap_or_else(|| panic!("{validity:?}"));
        assert_eq!(mixed.weight, Verdict::Valid);
        assert!(mixed.measured.contains("generation_tokens"), "{mixed:?}");
        assert!(
            !validity
                .reasons
                .iter()
                .any(|reason| reason.code == ReasonCode::EngineRestarted)
        );
    }
}
