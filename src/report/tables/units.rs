//! Chooses readable units of time: seconds or minutes for columns with large values in milliseconds.

use crate::report::table::{Table, Value};

/// Larger units of time: unit, value from which the larger one is used, how many of the unit it holds, and
/// its name.
const LARGER_UNITS: [(&str, f64, f64, &str); 2] = [("ms", 10_000.0, 1000.0, "s"), ("s", 600.0, 60.0, "min")];

/// A column keeps its unit if its smallest value would fall below this in the larger unit.
const MIN_SHOWN: f64 = 0.1;

/// Converts every column of times to the largest unit in which all of its values can be read.
pub(super) fn fit_time_units(mut table: Table) -> Table {
    for at in 0..table.columns.len() {
        for (unit, from, factor, larger) in LARGER_UNITS {
            if table.columns[at].unit != unit {
                continue;
            }
            let numbers = || table.rows.iter().filter_map(|row| row.cells[at].sort_key());
            let max = numbers().fold(0.0, f64::max);
            let min = numbers()
                .filter(|number| *number > 0.0)
                .fold(f64::INFINITY, f64::min);
            if max < from || min / factor < MIN_SHOWN {
                continue;
            }
            table.columns[at].unit = larger;
            for row in &mut table.rows {
                divide(&mut row.cells[at], factor, 2);
            }
        }
    }
    table
}

/// A share in percent.
pub(super) fn in_percent(mut share: Value) -> Value {
    divide(&mut share, 0.01, 1);
    share
}

fn divide(value: &mut Value, factor: f64, shown_decimals: usize) {
    match value {
        Value::Number { value, decimals } => {
            *value /= factor;
            *decimals = shown_decimals;
        }
        Value::Spread {
            median,
            least,
            most,
            decimals,
        } => {
            for number in [median, least, most] {
                *number /= factor;
            }
            *decimals = shown_decimals;
        }
        Value::Approximate(value) => divide(value, factor, shown_decimals),
        Value::Missing | Value::Text(_) | Value::Count(_) | Value::Ratio { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::table::{Align, Column, Row};

    #[test]
    fn a_share_is_shown_in_percent() {
        let share = Value::Approximate(Box::new(Value::Spread {
            median: 0.9667,
            least: 0.5,
            most: 1.0,
            decimals: 4,
        }));
        assert_eq!(in_percent(share).to_string(), "~96.7 (50.0–100.0)");
        assert_eq!(in_percent(Value::Missing), Value::Missing);
    }

    #[test]
    fn a_column_of_long_times_is_in_seconds_or_minutes() {
        let fitted = |values: &[f64]| {
            let row = |value: &f64| Row {
                cells: vec![Value::Approximate(Box::new(Value::Number {
                    value: *value,
                    decimals: 1,
                }))],
                marks: Vec::new(),
            };
            let table = fit_time_units(Table {
                title: String::new(),
                columns: vec![Column {
                    head: "E2E".to_owned(),
                    unit: "ms",
                    align: Align::Right,
                    better: None,
                    rank: 0,
                }],
                rows: values.iter().map(row).collect(),
                notes: Vec::new(),
            });
            let texts: Vec<String> = table.rows.iter().map(|row| row.cells[0].to_string()).collect();
            (table.columns[0].unit, texts.join(" "))
        };
        assert_eq!(fitted(&[9000.0]), ("ms", "~9000.0".to_owned()));
        assert_eq!(fitted(&[225_447.1, 2000.0]), ("s", "~225.45 ~2.00".to_owned()));
        assert_eq!(
            fitted(&[1_768_755.8, 60_000.0]),
            ("min", "~29.48 ~1.00".to_owned())
        );
        // Values that would round to zero keep their unit.
        assert_eq!(fitted(&[20_000.0, 20.0]), ("ms", "~20000.0 ~20.0".to_owned()));
    }
}
