//! Finds and reads the list of prices.

use std::path::Path;

use crate::commands::diagnostics::diagnostics_error;
use crate::commands::error::CommandError;
use crate::commands::output::{Colors, eprint};
use crate::config::prices::PriceList;
use crate::config::shipped;
use crate::config::yaml::{self, Diagnostic, Source};
use crate::runner::load_matrix::read_bytes;

/// Where a list of prices is, from the working folder, and in the binary.
const LIST: &str = "matrices/prices.yaml";
/// Largest list in MiB.
const MAX_LIST_MIB: u64 = 1;

/// Reads the list of prices: `file`, otherwise `matrices/prices.yaml` of the working folder, otherwise the shipped one.
pub(super) fn price_list(file: Option<&Path>, colors: Colors) -> Result<PriceList, CommandError> {
    let local = Path::new(LIST);
    let Some(path) = file.or_else(|| local.is_file().then_some(local)) else {
        return Ok(shipped_list());
    };
    let text = read_bytes(path, MAX_LIST_MIB)
        .and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other))
        .map_err(|error| {
            CommandError::usage(format!("error: cannot read `{}`: {error}\n", path.display()))
        })?;
    let source = Source::new(path.display().to_string(), text);
    match yaml::read::<PriceList>(&source) {
        (Some(list), diagnostics) if diagnostics.is_empty() => Ok(list),
        (_, mut diagnostics) => {
            if diagnostics.is_empty() {
                diagnostics.push(
                    Diagnostic::new(format!("the list of prices `{}` is empty", path.display()))
                        .with_help("write `gpus: []` for no prices, or remove the file"),
                );
            }
            Err(diagnostics_error(&diagnostics, &[source], colors.stderr))
        }
    }
}

/// Like [`price_list`] for the report at the end of a run, which a bad list must not prevent: it is named, and the shipped one is used.
pub(super) fn price_list_or_shipped(colors: Colors) -> PriceList {
    price_list(None, colors).unwrap_or_else(|error| {
        eprint(&format!(
            "{}note: the report uses the prices that are built into `matrix`\n",
            error.message
        ));
        shipped_list()
    })
}

fn shipped_list() -> PriceList {
    let text = shipped::file_text(LIST).expect("the list is shipped");
    let (list, _) = yaml::read::<PriceList>(&Source::new(LIST.to_owned(), text.to_owned()));
    list.expect("the shipped list is valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_list_names_source_and_date_of_each_price() {
        let list = shipped_list();
        assert!(list.gpus.len() > 4);
        let is_day = |date: &str| date.parse::<jiff::civil::Date>().is_ok();
        assert!(
            list.gpus
                .iter()
                .all(|entry| is_day(&entry.date) && !entry.source.is_empty())
        );
        assert!(list.energy.is_some_and(|energy| is_day(&energy.date)));
    }
}
