//! The time between tokens as the client tells it, as a raw reader tells it, and as the server knows it from its own send times.

use std::time::Duration;

use crate::{Measured, Server, Work, median, take_turns};

/// Streams and the time between their tokens.
const ROWS: [(usize, Duration); 7] = [
    (64, Duration::from_micros(500)),
    (128, Duration::from_millis(1)),
    (256, Duration::from_millis(2)),
    (512, Duration::from_millis(5)),
    (512, Duration::from_millis(20)),
    // Beyond what a client keeps up with.
    (128, Duration::from_micros(500)),
    (512, Duration::from_millis(1)),
];

/// Prints a row for each number of streams and gap.
pub fn bench(rounds: usize, is_quick: bool) {
    let span = Duration::from_millis(if is_quick { 1000 } else { 3000 });
    for (streams, gap) in ROWS {
        let server = Server::paced(gap, 0.0);
        let tokens = (span.as_nanos() / gap.as_nanos()) as usize;
        let mut told: Vec<[f64; 3]> = Vec::new();
        let work: Work = server.work(streams, tokens);
        let (raw, ours) = take_turns(&work, rounds, |_| told.push(server.gaps()));
        let truths = |place: usize| told.iter().skip(place).step_by(2).copied().collect::<Vec<_>>();
        println!(
            "gaps, {streams} streams x {} ms ({:.0} events/s): raw {}; ours {}; ours may be off by {:.3} ms for 10 %, {:.3} ms for 1 %{}",
            gap.as_secs_f64() * 1e3,
            streams as f64 / gap.as_secs_f64(),
            errors(&raw, &truths(0)),
            errors(&ours, &truths(1)),
            median(ours.iter().map(|one| one.late_p90)),
            median(ours.iter().map(|one| one.late_p99)),
            match median(ours.iter().map(|one| one.late_p90)) > gap.as_secs_f64() * 500.0 {
                true => " (client-late)",
                false => "",
            },
        );
    }
}

/// Medians of p50 and p99, with those of the server.
fn errors(measured: &[Measured], told: &[[f64; 3]]) -> String {
    let of = |name: &str, ours: &dyn Fn(&Measured) -> f64, place: usize| {
        let ours = median(measured.iter().map(ours));
        let truth = median(told.iter().map(|gaps| gaps[place]));
        format!("{name} {ours:.3} of {truth:.3} ms")
    };
    format!(
        "{}, {}",
        of("p50", &|one| one.itl_p50, 0),
        of("p99", &|one| one.itl_p99, 2)
    )
}
