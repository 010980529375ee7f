//! The block that `vllm bench serve` prints after a load.

use super::{CounterGrowth, VllmLoad, percent_name};

const WIDTH: usize = 50;

#[derive(Default)]
struct Block(String);

impl Block {
    /// Centres a title; if the space is odd, the right side gets the larger part.
    fn title(&mut self, title: &str, fill: char) {
        let room = WIDTH.saturating_sub(title.chars().count());
        let fills = |count: usize| fill.to_string().repeat(count);
        let line = format!("{}{title}{}\n", fills(room / 2), fills(room - room / 2));
        self.0.push_str(&line);
    }

    fn text(&mut self, label: &str, value: &str) {
        self.0.push_str(&format!("{label:<40} {value:<10}\n"));
    }

    fn whole(&mut self, label: &str, value: u64) {
        self.text(label, &value.to_string());
    }

    fn number(&mut self, label: &str, value: f64) {
        self.text(label, &format!("{value:.2}"));
    }
}

/// Formats the block.
pub(crate) fn block(load: &VllmLoad<'_>) -> String {
    let mut block = Block::default();
    block.title(" Serving Benchmark Result ", '=');
    totals(&mut block, load);
    for (time, _, name, title) in load.times() {
        let statistics = load.figures.statistics(time, load.percents);
        block.title(title, '-');
        block.number(&format!("Mean {name} (ms):"), statistics.mean);
        block.number(&format!("Median {name} (ms):"), statistics.median);
        for (percent, value) in statistics.percentiles {
            block.number(&format!("P{} {name} (ms):", percent_name(percent)), value);
        }
    }
    counters(&mut block, load.counters, load.figures.duration_s);
    block.title("", '=');
    block.0
}

fn totals(block: &mut Block, load: &VllmLoad<'_>) {
    let figures = load.figures;
    let input = figures.total(|request| request.prompt_tokens);
    let output = figures.total(|request| request.output_tokens);
    block.whole("Successful requests:", figures.completed() as u64);
    block.whole("Failed requests:", figures.failed() as u64);
    if let Some(limit) = load.arrival.concurrency {
        block.whole("Maximum request concurrency:", u64::from(limit.get()));
    }
    if !load.arrival.rate.is_infinite() {
        block.number("Request rate configured (RPS):", load.arrival.rate.per_second());
    }
    block.number("Benchmark duration (s):", figures.duration_s);
    block.whole("Total input tokens:", input);
    if load.generates_text {
        block.whole("Total generated tokens:", output);
    }
    block.number(
        "Request throughput (req/s):",
        figures.rate(figures.completed() as u64),
    );
    if !load.generates_text {
        let sequences = figures.total(|request| request.sequences);
        block.number("Input throughput (inputs/s):", figures.rate(sequences));
    }
    if let Some(targets) = load.goodput.filter(|_| load.generates_text) {
        block.number("Request goodput (req/s):", figures.rate(figures.good(&targets)));
    }
    if load.generates_text {
        let (tokens, requests) = figures.peaks();
        block.number("Output token throughput (tok/s):", figures.rate(output));
        block.number("Peak output token throughput (tok/s):", tokens);
        block.number("Peak concurrent requests:", requests as f64);
        if figures.rtfx() > 0.0 {
            block.number("RTFx (Inverse Real-Time Factor):", figures.rtfx());
        }
    }
    block.number("Total token throughput (tok/s):", figures.rate(input + output));
}

fn counters(block: &mut Block, growth: &CounterGrowth, duration_s: f64) {
    if let Some(diffusion) = &growth.diffusion {
        block.title("Diffusion Decoding", '-');
        block.number("Committed throughput (tok/s):", diffusion.committed / duration_s);
        block.number("Denoising steps per canvas:", diffusion.steps_per_canvas());
        block.number("Committed per denoising step:", diffusion.committed_per_step());
        block.whole("Committed tokens:", diffusion.committed as u64);
        block.whole("Denoising steps:", diffusion.denoising_steps() as u64);
        block.whole("Canvas positions evaluated:", diffusion.positions as u64);
    } else if let Some(drafts) = &growth.speculation {
        block.title("Speculative Decoding", '-');
        block.number("Acceptance rate (%):", drafts.acceptance_percent());
        block.number("Acceptance length:", drafts.acceptance_length());
        block.whole("Drafts:", drafts.drafts as u64);
        block.whole("Draft tokens:", drafts.draft_tokens as u64);
        block.whole("Accepted tokens:", drafts.accepted as u64);
        let rates = drafts.rates_by_position();
        if !rates.is_empty() {
            block.0.push_str("Per-position acceptance (%):\n");
        }
        for (position, rate) in rates.iter().enumerate() {
            block.number(&format!("  Position {position}:"), rate * 100.0);
        }
    }
}
