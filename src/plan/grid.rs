//! Crosses and zips axes to grid points.

use std::num::NonZeroU32;

use crate::base::units::RequestRate;
use crate::config::engine::Executor;
use crate::plan::launch::Parallel;

/// One value for every axis except engine, model and scenario.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GridPoint {
    pub(crate) version: Option<String>,
    pub(crate) executor: Executor,
    pub(crate) precision: Option<String>,
    pub(crate) parallel: Parallel,
    /// Name of a set of arguments in `axes`, if there are any.
    pub(crate) args: Option<String>,
    /// Name of a set of environment variables in `axes`, if there are any.
    pub(crate) env: Option<String>,
    pub(crate) rate: RequestRate,
    pub(crate) concurrency: Option<NonZeroU32>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AxisValue {
    Text(Option<String>),
    Executor(Executor),
    Size(u32),
    Rate(RequestRate),
    Concurrency(Option<NonZeroU32>),
}

/// An axis with its values for one engine, model and scenario.
pub(crate) struct Axis {
    pub(crate) name: &'static str,
    pub(crate) values: Vec<AxisValue>,
}

impl GridPoint {
    /// The point without rate and concurrency, which do not belong to a launch.
    pub(crate) fn without_load(&self) -> Self {
        Self {
            rate: RequestRate::INFINITE,
            concurrency: None,
            ..self.clone()
        }
    }

    fn set(&mut self, axis: &str, value: &AxisValue) {
        match (axis, value) {
            ("version", AxisValue::Text(text)) => self.version.clone_from(text),
            ("precision", AxisValue::Text(text)) => self.precision.clone_from(text),
            ("args", AxisValue::Text(text)) => self.args.clone_from(text),
            ("env", AxisValue::Text(text)) => self.env.clone_from(text),
            ("executor", AxisValue::Executor(executor)) => self.executor = *executor,
            ("tp", AxisValue::Size(size)) => self.parallel.tp = *size,
            ("pp", AxisValue::Size(size)) => self.parallel.pp = *size,
            ("dp", AxisValue::Size(size)) => self.parallel.dp = *size,
            ("ep", AxisValue::Size(size)) => self.parallel.ep = *size,
            ("rate", AxisValue::Rate(rate)) => self.rate = *rate,
            ("concurrency", AxisValue::Concurrency(concurrency)) => self.concurrency = *concurrency,
            _ => unreachable!("the type of a value does not match its axis"),
        }
    }
}

/// Two axes of one zip group with different lengths.
#[derive(Debug, PartialEq)]
pub(crate) struct UnevenZip {
    pub(crate) group: usize,
    pub(crate) lengths: Vec<(String, usize)>,
}

/// Number of points, if the axes of each `zip` group have equal lengths.
pub(crate) fn count_points(axes: &[Axis], zip: &[Vec<&str>]) -> u64 {
    let mut grouped = vec![false; zip.len()];
    let counts = axes.iter().map(|axis| {
        let group = zip.iter().position(|group| group.contains(&axis.name));
        match group.map(|group| std::mem::replace(&mut grouped[group], true)) {
            // The first axis of the group has counted.
            Some(true) => 1,
            _ => axis.values.len() as u64,
        }
    });
    counts.fold(1, u64::saturating_mul)
}

/// Every point of the axes. Axes of one `zip` group vary together, the others are crossed. The first axis
/// varies slowest.
pub(crate) fn points(axes: &[Axis], zip: &[Vec<&str>]) -> Result<Vec<GridPoint>, UnevenZip> {
    let mut blocks: Vec<Vec<&Axis>> = Vec::new();
    let mut grouped: Vec<Option<usize>> = vec![None; zip.len()];
    for axis in axes {
        match zip.iter().position(|group| group.contains(&axis.name)) {
            None => blocks.push(vec![axis]),
            Some(group) => match grouped[group] {
                Some(block) => blocks[block].push(axis),
                None => {
                    grouped[group] = Some(blocks.len());
                    blocks.push(vec![axis]);
                }
            },
        }
    }
    for (group, block) in grouped.iter().enumerate() {
        let Some(block) = block else { continue };
        let lengths: Vec<_> = blocks[*block]
            .iter()
            .map(|axis| (axis.name.to_owned(), axis.values.len()))
            .collect();
        if lengths.iter().any(|(_, length)| *length != lengths[0].1) {
            return Err(UnevenZip { group, lengths });
        }
    }
    let mut points = vec![GridPoint {
        version: None,
        executor: Executor::Process,
        precision: None,
        parallel: Parallel::default(),
        args: None,
        env: None,
        rate: RequestRate::INFINITE,
        concurrency: None,
    }];
    for block in blocks {
        points = points
            .into_iter()
            .flat_map(|point| {
                (0..block[0].values.len())
                    .map(move |index| (point.clone(), index))
                    .collect::<Vec<_>>()
            })
            .map(|(mut point, index)| {
                for axis in &block {
                    point.set(axis.name, &axis.values[index]);
                }
                point
            })
            .collect();
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(name: &'static str, values: &[u32]) -> Axis {
        Axis {
            name,
            values: values.iter().map(|size| AxisValue::Size(*size)).collect(),
        }
    }

    #[test]
    fn axes_cross_and_zipped_axes_move_together() {
        let axes = [sizes("tp", &[1, 2]), sizes("pp", &[1, 2]), sizes("dp", &[4, 8])];
        let crossed: Vec<_> = points(&axes, &[])
            .unwrap()
            .iter()
            .map(|p| (p.parallel.tp, p.parallel.pp))
            .collect();
        assert_eq!((crossed.len(), count_points(&axes, &[])), (8, 8));
        assert_eq!(count_points(&axes, &[vec!["tp", "dp"]]), 4);
        assert_eq!(crossed[0], (1, 1));
        let zipped: Vec<_> = points(&axes, &[vec!["tp", "dp"]])
            .unwrap()
            .iter()
            .map(|p| (p.parallel.tp, p.parallel.pp, p.parallel.dp))
            .collect();
        assert_eq!(zipped, [(1, 1, 4), (1, 2, 4), (2, 1, 8), (2, 2, 8)]);
    }

    #[test]
    fn uneven_groups_are_named_with_their_lengths() {
        let axes = [sizes("tp", &[1, 2]), sizes("pp", &[1])];
        let uneven = points(&axes, &[vec!["tp", "pp"]]).unwrap_err();
        assert_eq!(uneven.lengths, [("tp".to_owned(), 2), ("pp".to_owned(), 1)]);
    }
}
