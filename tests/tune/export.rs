//! Writes surfaces, and what the tuner found on them, for searches by other programs.

use super::surfaces::KINDS;

/// Starts of a search.
const STARTS: usize = 24;

/// Writes one JSON document per surface and seed, a line each: the knobs (name, ordered, values, default), the noise, the
/// regret of the tuner's winner, and the logarithms of the true figures, the last knob fastest.
pub fn write(seeds: u64, seed: u64) {
    for kind in KINDS {
        for seed in seed..seed + seeds {
            let surface = kind.surface(seed);
            let knobs = surface.space.knobs.iter();
            let knobs = knobs.map(|knob| format!("[{:?},{},{},{}]", knob.name, knob.is_ordered, knob.values, knob.default));
            let figures = surface.figures.iter();
            let figures = figures.map(|figure| figure.map_or("null".to_owned(), |log| format!("{log:.6}")));
            println!(
                "{{\"surface\":{:?},\"seed\":{seed},\"starts\":{STARTS},\"noise\":{},\"regret\":{},\"knobs\":[{}],\"figures\":[{}]}}",
                kind.name(),
                surface.noise,
                surface.tuned(STARTS, seed).regret,
                knobs.collect::<Vec<_>>().join(","),
                figures.collect::<Vec<_>>().join(",")
            );
        }
    }
}
