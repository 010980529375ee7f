//! Energy of the devices: total, per request and per token.

use super::Sheet;
use super::dimensions::{Count, Flow};
use super::metric::Metric;
use crate::results::record::telemetry::Energy;

/// Divides the energy of the whole window, including that of failed requests, by the completed amounts that
/// are already in the sheet.
pub(super) fn matrix(sheet: &mut Sheet, energy: &Energy) {
    let input = sheet.get(Metric::Tokens(Count::Input));
    let output = sheet.get(Metric::Tokens(Count::Output));
    let total = input.zip(output).map(|(input, output)| input + output);
    let amounts = [
        (Flow::Requests, sheet.get(Metric::Completed)),
        (Flow::Input, input),
        (Flow::Output, output),
        (Flow::Total, total),
    ];
    sheet.put(Metric::Energy, Some(energy.joules));
    sheet.put(Metric::EnergyAboveIdle, energy.above_idle_j);
    sheet.put(Metric::MeanPower, Some(energy.mean_w));
    sheet.put(Metric::PeakPower, energy.peak_w);
    for (flow, amount) in amounts {
        let amount = amount.filter(|amount| *amount > 0.0);
        sheet.put(
            Metric::EnergyPer(flow),
            amount.map(|amount| energy.joules / amount),
        );
        if Flow::OF_EFFICIENCY.contains(&flow) {
            let efficiency = amount.filter(|_| energy.joules > 0.0);
            sheet.put(
                Metric::PerEnergy(flow),
                efficiency.map(|amount| amount / energy.joules),
            );
        }
    }
}
