//! Energy of the devices: total, per request and per token.

use super::dimensions::{Quantity, TokenCount};
use super::metric::Metric;
use super::metric_set::MetricSet;
use crate::results::record::telemetry::Energy;

/// Divides the energy of the whole window, including that of failed requests, by the completed amounts that
/// are already in the sheet.
pub(super) fn add_energy(metrics: &mut MetricSet, energy: &Energy) {
    let input = metrics.get(Metric::Tokens(TokenCount::Input));
    let output = metrics.get(Metric::Tokens(TokenCount::Output));
    let total = input.zip(output).map(|(input, output)| input + output);
    let amounts = [
        (Quantity::Requests, metrics.get(Metric::Completed)),
        (Quantity::Input, input),
        (Quantity::Output, output),
        (Quantity::Total, total),
    ];
    metrics.insert(Metric::Energy, Some(energy.joules));
    metrics.insert(Metric::EnergyAboveIdle, energy.above_idle_j);
    metrics.insert(Metric::MeanPower, Some(energy.mean_w));
    metrics.insert(Metric::PeakPower, energy.peak_w);
    for (flow, amount) in amounts {
        let amount = amount.filter(|amount| *amount > 0.0);
        metrics.insert(
            Metric::EnergyPer(flow),
            amount.map(|amount| energy.joules / amount),
        );
        if Quantity::PER_JOULE.contains(&flow) {
            let efficiency = amount.filter(|_| energy.joules > 0.0);
            metrics.insert(
                Metric::PerEnergy(flow),
                efficiency.map(|amount| amount / energy.joules),
            );
        }
    }
}
