//! The tables of the page, as text.

use std::fmt::Write as _;

use super::data::{Data, SampleFilter};
use super::format::{interval, times};
use super::rows::{Row, TABLES, Table};
use crate::subject::Kind;

const SUBJECTS: [Kind; 9] = [
    Kind::Drain,
    Kind::Decode,
    Kind::Statuses,
    Kind::Calls,
    Kind::Generic,
    Kind::Polling,
    Kind::Evented,
    Kind::Hint,
    Kind::Ours,
];

/// All tables.
pub(super) fn text(data: &Data) -> String {
    TABLES.iter().map(|table| table.text(data)).collect()
}

impl Table {
    fn text(&self, data: &Data) -> String {
        let measures = |subject: &Kind| {
            let of_group = |g: &super::rows::Group| data.of(g.filter, *subject).next().is_some();
            self.groups.iter().any(of_group)
        };
        let subjects: Vec<Kind> = SUBJECTS.into_iter().filter(measures).collect();
        if subjects.is_empty() {
            return String::new();
        }
        let names: Vec<&str> = subjects.iter().map(|s| s.name()).collect();
        let mut out = format!(
            "\n### {}\n\n| | {} | ratio (95 %) |\n| --- |{} --- |\n",
            self.title,
            names.join(" | "),
            " --- |".repeat(subjects.len())
        );
        for group in self.groups {
            let rows = group.rows.iter();
            let lines: Vec<String> = rows
                .filter_map(|row| row.line(data, group.filter, &subjects))
                .collect();
            if lines.is_empty() {
                continue;
            }
            let seconds = data.seconds(group.filter);
            let seconds = seconds.map_or_else(String::new, |s| format!(" ({s} s)"));
            let empty = " |".repeat(subjects.len() + 1);
            let _ = write!(
                out,
                "| **{}**{seconds} |{empty}\n{}",
                group.title,
                lines.concat()
            );
        }
        out
    }
}

impl Row {
    /// Returns the line; `None` if this project's figure was not measured.
    fn line(&self, data: &Data, filter: SampleFilter, subjects: &[Kind]) -> Option<String> {
        let of = |subject| data.estimate(filter, subject, self.figure);
        of(Kind::Ours)?;
        let cell = |&subject: &Kind| match of(subject) {
            None => "–".to_owned(),
            Some(of) if subject == Kind::Ours => interval(of, self.unit),
            Some(of) => (self.unit)(of.median),
        };
        let cells: Vec<String> = subjects.iter().map(cell).collect();
        let ratio = |pair| data.ratio(filter, self.figure, pair);
        let ratios = self.ratios.iter().filter_map(|&(above, below)| {
            let of = interval(ratio((above, below))?, times);
            Some(format!("{} / {}: {of}", above.name(), below.name()))
        });
        let ratios: Vec<String> = ratios.collect();
        Some(format!(
            "| {} | {} | {} |\n",
            self.title,
            cells.join(" | "),
            ratios.join("<br>"),
        ))
    }
}
