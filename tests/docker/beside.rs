//! Launches side by side, each on GPUs of its own; the GPUs are pretended.

use matrix::results::record::cell::MeasurementStatus;
use matrix::results::record::event::Event;
use matrix::results::record::validity::ReasonCode;

use crate::chaos::has_run;
use crate::daemon::{Daemon, begin, end, until};
use crate::harness::summary;

const WORK: &str = "  - random-1k-1k: { prompts: 2, input_len: 16, output_len: 300, warmup: 0 }\n";

#[test]
fn two_launches_run_on_gpus_of_their_own_and_a_third_waits() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let bench = daemon
        .bench("beside", &[], "", WORK)
        .variable("MATRIX_PRETEND_GPUS", "2");
    let engines: String = ["one", "two", "three"]
        .iter()
        .map(|name| {
            format!("  - box: {{ as: beside{name}, devices: gpu, args: [--ttft, 10ms, --itl, 10ms] }}\n")
        })
        .collect();
    let matrix = |parallel: bool| {
        format!(
            "name: beside\nparallel: {parallel}\nengines:\n{engines}models:\n  - m: {{ tokenizer: data/tokenizer.json }}\n\
             scenarios:\n{WORK}datasets: {{ sharegpt: data/conversations.json }}\n"
        )
    };
    bench.rewrite(&matrix(true));
    let mut child = begin(&bench);
    let mut seen: Vec<Vec<String>> = Vec::new();
    until("two containers at once", || {
        assert!(child.try_wait().expect("it can be asked").is_none(), "it goes on");
        if !has_run(&bench) {
            return false;
        }
        let ours = daemon.of_run(&bench);
        assert!(ours.len() <= 2, "a third one waits");
        seen = ours.iter().map(|id| devices(&daemon, id)).collect();
        ours.len() == 2
    });
    seen.sort();
    assert_eq!(seen, [["0"], ["1"]], "each has a GPU of its own");
    let ran = end(child).exits(0);
    let run = bench.finished();
    let of = |name: &str| summary(&run, &format!("beside{name}"), "random-1k-1k");
    for name in ["one", "two", "three"] {
        assert_eq!(of(name).status, MeasurementStatus::Done);
        assert_eq!(of(name).engine.devices.len(), 1);
        let validity = of(name).validity.as_ref().expect("what ended is judged");
        let is_pretended = validity
            .reasons
            .iter()
            .any(|reason| reason.code == ReasonCode::PretendedGpus);
        assert!(is_pretended, "{validity:?}");
    }
    assert!(
        of("one").concurrent_launches.contains(&of("two").launch),
        "{:?}",
        of("one").concurrent_launches
    );
    assert!(
        of("two").concurrent_launches.contains(&of("one").launch),
        "{:?}",
        of("two").concurrent_launches
    );
    // On a busy machine the third one may begin before the first one's load is over.
    let mut notes = ran
        .stdout
        .lines()
        .filter(|line| line.contains("besideone@1: other launches that ran on the same host"));
    let note = notes.next().unwrap_or_else(|| panic!("{}", ran.stdout));
    assert!(note.contains("besidetwo"), "{note}");
    // The third begins only when one of the others is gone.
    let at = |is: &dyn Fn(&Event) -> bool| run.journal.iter().position(|(_, event)| is(event));
    let begins =
        at(&|event| matches!(event, Event::LaunchBegan { launch, .. } if *launch == of("three").launch));
    let stops = at(&|event| matches!(event, Event::EngineStopped { .. }));
    assert!(stops.is_some() && stops < begins, "{stops:?} {begins:?}");
    assert!(daemon.of_run(&bench).is_empty());
}

fn devices(daemon: &Daemon, id: &str) -> Vec<String> {
    let seen = daemon.inspect(id);
    let ids = &seen["HostConfig"]["DeviceRequests"][0]["DeviceIDs"];
    let ids = ids.as_array().expect("devices are asked for by id").iter();
    ids.map(|id| id.as_str().unwrap_or_default().to_owned()).collect()
}
