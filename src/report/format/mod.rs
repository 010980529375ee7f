//! The formats of reports, histories and comparisons: a row of [`FORMATS`] each. The files beside this one draw
//! and compute nothing.

mod csv;
mod json;
mod markdown;
mod svg;
pub(crate) mod terminal;

use super::document::Document;
use super::history::History;
use super::html;
use super::terminal::PageLayout;
use crate::analysis::compare::pairwise::Comparison;

/// A format and the documents that it can draw.
pub(crate) struct Format {
    /// The value of `--format`.
    pub(crate) name: &'static str,
    pub(crate) report: Option<ReportFormat>,
    pub(crate) history: Option<HistoryFormat>,
    pub(crate) comparison: Option<ComparisonFormat>,
}

pub(crate) struct ReportFormat {
    pub(crate) help: &'static str,
    pub(crate) file: &'static str,
    /// Whether every run, and `matrix report --out` without `--format`, write it.
    pub(crate) is_in_run_folder: bool,
    /// Whether the report shows warnings of its runs; else they go to stderr.
    pub(crate) shows_warnings: bool,
    /// Whether one document per engine is written beside the report.
    pub(crate) has_engine_reports: bool,
    pub(crate) draw: fn(&Document, PageLayout) -> String,
}

pub(crate) struct HistoryFormat {
    pub(crate) help: &'static str,
    pub(crate) draw: fn(&History<'_>, PageLayout) -> String,
}

pub(crate) struct ComparisonFormat {
    pub(crate) help: &'static str,
    /// The names are those of the baseline and the candidate.
    pub(crate) draw: fn(&Comparison, [&str; 2], PageLayout) -> String,
}

pub(crate) static FORMATS: [Format; 7] = [
    Format {
        name: "terminal",
        report: Some(ReportFormat {
            help: "Tables for a terminal",
            file: "report.txt",
            is_in_run_folder: false,
            shows_warnings: true,
            has_engine_reports: false,
            draw: terminal::report,
        }),
        history: Some(HistoryFormat {
            help: "A table for a terminal",
            draw: terminal::history,
        }),
        comparison: Some(ComparisonFormat {
            help: "Tables for a terminal",
            draw: terminal::comparison,
        }),
    },
    Format {
        name: "markdown",
        report: Some(ReportFormat {
            help: "A report in Markdown; with `--out`, also one report for each engine",
            file: "report.md",
            is_in_run_folder: true,
            shows_warnings: true,
            has_engine_reports: true,
            draw: |document, _| markdown::report(document),
        }),
        history: Some(HistoryFormat {
            help: "A table in GitHub's Markdown",
            draw: |history, _| markdown::history(history),
        }),
        comparison: Some(ComparisonFormat {
            help: "Tables in GitHub's Markdown",
            draw: |comparison, names, _| markdown::comparison(comparison, names),
        }),
    },
    Format {
        name: "html",
        report: Some(ReportFormat {
            help: "One HTML file with charts; it needs no network",
            file: "report.html",
            is_in_run_folder: true,
            shows_warnings: true,
            has_engine_reports: false,
            draw: |document, _| html::draw(document),
        }),
        history: Some(HistoryFormat {
            help: "One HTML file with a chart of every metric; it needs no network",
            draw: |history, _| html::draw_history(history),
        }),
        comparison: None,
    },
    Format {
        name: "svg",
        report: Some(ReportFormat {
            help: "An SVG image for your own web page: the conclusion in words, and charts with a point for each load",
            file: "report.svg",
            is_in_run_folder: false,
            shows_warnings: false,
            has_engine_reports: false,
            draw: |document, _| svg::report(document),
        }),
        history: None,
        comparison: None,
    },
    Format {
        name: "csv",
        report: Some(ReportFormat {
            help: "CSV with one row for each cell",
            file: "report.csv",
            is_in_run_folder: true,
            shows_warnings: false,
            has_engine_reports: false,
            draw: |document, _| csv::report(document),
        }),
        history: Some(HistoryFormat {
            help: "CSV with one row for each metric of each nightly run",
            draw: |history, _| csv::history(history),
        }),
        comparison: None,
    },
    Format {
        name: "csv-long",
        report: Some(ReportFormat {
            help: "CSV with one row for each metric of each cell; a metric with several definitions has a row for each",
            file: "report-long.csv",
            is_in_run_folder: false,
            shows_warnings: false,
            has_engine_reports: false,
            draw: |document, _| csv::long_report(document),
        }),
        history: None,
        comparison: None,
    },
    Format {
        name: "json",
        report: Some(ReportFormat {
            help: "Everything that a report shows; `matrix schema report` prints the schema",
            file: "report.json",
            is_in_run_folder: true,
            shows_warnings: true,
            has_engine_reports: false,
            draw: |document, _| document.json(),
        }),
        history: Some(HistoryFormat {
            help: "Everything, for programs",
            draw: |history, _| json::history(history),
        }),
        comparison: Some(ComparisonFormat {
            help: "Everything, for programs",
            draw: |comparison, _, _| json::comparison(comparison),
        }),
    },
];

/// Names and help texts of the formats that a command accepts. `help` returns the text, or `None` for a format
/// that cannot draw the command's document.
pub(crate) fn accepted(
    help: impl Fn(&'static Format) -> Option<&'static str>,
) -> Vec<(&'static str, &'static str)> {
    let formats = FORMATS.iter();
    formats
        .filter_map(|format| Some((format.name, help(format)?)))
        .collect()
}

pub(crate) fn report(name: &str) -> &'static ReportFormat {
    find(name, |format| format.report.as_ref())
}

pub(crate) fn draw_history(name: &str, history: &History<'_>, layout: PageLayout) -> String {
    (find(name, |format| format.history.as_ref()).draw)(history, layout)
}

pub(crate) fn draw_comparison(
    name: &str,
    comparison: &Comparison,
    names: [&str; 2],
    layout: PageLayout,
) -> String {
    (find(name, |format| format.comparison.as_ref()).draw)(comparison, names, layout)
}

fn find<T>(name: &str, drawing: impl Fn(&'static Format) -> Option<&'static T>) -> &'static T {
    let format = FORMATS.iter().find(|format| format.name == name);
    format
        .and_then(drawing)
        .expect("the command line accepts only formats of this document")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_format_draws_every_document_and_no_two_formats_share_a_file() {
        let default = &FORMATS[0];
        assert_eq!(default.name, "terminal");
        assert!(default.report.is_some() && default.history.is_some() && default.comparison.is_some());
        let reports = FORMATS.iter().filter_map(|format| format.report.as_ref());
        let mut files: Vec<&str> = reports.map(|format| format.file).collect();
        files.sort_unstable();
        assert!(files.is_sorted_by(|one, two| one < two), "{files:?}");
    }
}
