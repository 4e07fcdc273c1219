//! Text tables: aligned, clipped to the width of the terminal, and with colours on a terminal only.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use terminal_size::terminal_size_of;

use crate::text::{self, safe};

const GAP: usize = 2;

#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn new(text: &str) -> Self {
        Self {
            text: safe(text).into_owned(),
            style: Style::new(),
        }
    }

    pub(crate) const fn style(mut self, style: Style) -> Self {
        self.style = style;
        self
    }
}

pub(crate) const fn dim() -> Style {
    Style::new().dimmed()
}

pub(crate) const fn colour(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(anstyle::Color::Ansi(colour)))
}

/// The width of a column, and what happens to it if the terminal is narrow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Width {
    /// The present width; 0 if the column is omitted.
    pub(crate) now: usize,
    least: usize,
    /// On a narrow terminal, the column with the lowest number is omitted first. A column with 0 is never omitted.
    omitted: u8,
}

impl Width {
    pub(crate) const fn new(now: usize) -> Self {
        Self {
            now,
            least: usize::MAX,
            omitted: 0,
        }
    }

    pub(crate) const fn at_least(mut self, least: usize) -> Self {
        self.least = least;
        self
    }

    pub(crate) const fn omitted(mut self, order: u8) -> Self {
        self.omitted = order;
        self
    }

    fn reducible(&self) -> usize {
        self.now.saturating_sub(self.least)
    }
}

/// Makes the columns fit into `total`: omits as few columns as possible, and narrows the rest, the last column first.
pub(crate) fn fit(mut widths: Vec<&mut Width>, total: usize) {
    let excess = |widths: &[&mut Width]| {
        let shown = widths.iter().filter(|width| width.now > 0);
        let all: usize = shown.map(|width| width.now + GAP).sum();
        all.saturating_sub(GAP + total)
    };
    let reducible = |widths: &[&mut Width]| widths.iter().map(|width| width.reducible()).sum();
    while excess(&widths) > reducible(&widths) {
        let shown = widths.iter_mut().filter(|w| w.omitted > 0 && w.now > 0);
        let Some(next) = shown.min_by_key(|width| width.omitted) else {
            break;
        };
        next.now = 0;
    }
    let mut excess = excess(&widths);
    for width in widths.iter_mut().rev() {
        let cut = excess.min(width.reducible());
        width.now -= cut;
        excess -= cut;
    }
}

/// A table on standard output: the headings and widths of its columns.
pub(crate) struct Table(Vec<(&'static str, Width)>);

impl Table {
    /// Makes the columns wide enough for these rows, as far as the terminal allows.
    pub(crate) fn new(mut columns: Vec<(&'static str, Width)>, rows: &[Vec<Cell>]) -> Self {
        for (n, (heading, width)) in columns.iter_mut().enumerate() {
            let cells = rows.iter().map(|row| text::width(&row[n].text));
            width.now = cells.max().unwrap_or(0).max(heading.len().max(width.now));
        }
        let widths = columns.iter_mut().map(|(_, width)| width);
        fit(widths.collect(), terminal_width());
        Self(columns)
    }

    pub(crate) fn heading(&self) -> io::Result<()> {
        let heading = |(heading, _): &(&str, _)| Cell::new(heading).style(dim());
        self.row(&self.0.iter().map(heading).collect::<Vec<_>>(), None)
    }

    /// Writes the cells whose columns are not omitted, then `message` across the columns that `cells` does not fill.
    pub(crate) fn row(&self, cells: &[Cell], message: Option<&Cell>) -> io::Result<()> {
        let cells = cells.iter().zip(self.0.iter().map(|(_, width)| width.now));
        let mut out = anstream::stdout().lock();
        let mut space = 0;
        let shown = cells.filter(|(_, width)| *width > 0);
        for (cell, width) in shown.chain(message.map(|cell| (cell, usize::MAX))) {
            let (text, style) = (text::fit(&cell.text, width), cell.style);
            if !text.is_empty() {
                write!(out, "{:space$}{style}{text}{style:#}", "")?;
                space = 0;
            }
            space += GAP + width.saturating_sub(text::width(&text));
        }
        writeln!(out)?;
        out.flush()
    }
}

/// The width of the terminal in columns, or a large number if the output is not a terminal.
pub(crate) fn terminal_width() -> usize {
    terminal_size_of(io::stdout()).map_or(160, |(width, _)| usize::from(width.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_is_omitted_only_if_narrowing_is_not_enough() {
        for (width, fitted) in [
            (80, [10, 20, 5, 8]),
            (49, [10, 20, 5, 8]),
            (48, [10, 19, 5, 8]),
            (41, [10, 12, 5, 8]),
            // The omitted last column leaves enough space for the full width of the second one.
            (40, [10, 20, 5, 0]),
            (30, [10, 18, 0, 0]),
            (5, [10, 12, 0, 0]),
        ] {
            let mut widths = [10, 20, 5, 8].map(Width::new);
            let [_, name, kind, id] = &mut widths;
            (*name, *kind, *id) = (name.at_least(12), kind.omitted(2), id.omitted(1));
            fit(widths.iter_mut().collect(), width);
            assert_eq!(widths.map(|width| width.now), fitted, "{width}");
        }
    }
}
