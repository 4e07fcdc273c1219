//! Text tables: aligned, clipped to the width of the terminal, and with colours on a terminal only.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use terminal_size::{Width, terminal_size};

use crate::text::{self, safe};

/// The space between columns.
const GAP: usize = 2;

/// A cell: its escaped text and its style.
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

    fn width(&self) -> usize {
        text::width(&self.text)
    }

    fn write(&self, out: &mut impl Write, width: usize, last: bool) -> io::Result<()> {
        let text = text::fit(&self.text, width);
        let style = self.style;
        write!(out, "{style}{text}{style:#}")?;
        if !last {
            let pad = width.saturating_sub(text::width(&text)) + GAP;
            write!(out, "{:pad$}", "")?;
        }
        Ok(())
    }
}

/// The style of headings and of less important text.
pub(crate) const fn dim() -> Style {
    Style::new().dimmed()
}

pub(crate) const fn colour(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(anstyle::Color::Ansi(colour)))
}

/// Writes a row. A column with width 0 is omitted.
pub(crate) fn row(out: &mut impl Write, cells: &[Cell], widths: &[usize]) -> io::Result<()> {
    for (n, (cell, width)) in cells.iter().zip(widths).enumerate() {
        if *width == 0 {
            continue;
        }
        let rest = cells[n + 1..].iter().zip(&widths[n + 1..]);
        let rest_is_empty = rest.clone().all(|(c, w)| c.text.is_empty() || *w == 0);
        cell.write(out, *width, rest_is_empty)?;
        if rest_is_empty {
            break;
        }
    }
    writeln!(out)
}

/// The widths that columns need to show all rows.
pub(crate) fn widths(rows: &[Vec<Cell>]) -> Vec<usize> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |n: usize| rows.iter().filter_map(|r| r.get(n)).map(Cell::width).max();
    (0..columns).map(|n| widest(n).unwrap_or(0)).collect()
}

/// Reduces the column widths until the table fits into `width`. Omits the `optional` columns, in this
/// order, until it is sufficient to narrow the `flexible` columns: pairs of a column and its minimum
/// width.
pub(crate) fn fit(
    widths: &mut [usize],
    flexible: &[(usize, usize)],
    optional: &[usize],
    width: usize,
) {
    let excess = |widths: &[usize]| {
        let shown = widths.iter().filter(|w| **w > 0);
        let total: usize = shown.map(|w| w + GAP).sum();
        total.saturating_sub(GAP + width)
    };
    let reducible = |widths: &[usize]| -> usize {
        let each = flexible
            .iter()
            .map(|(n, min)| widths[*n].saturating_sub(*min));
        each.sum()
    };
    for &column in optional {
        if excess(widths) <= reducible(widths) {
            break;
        }
        widths[column] = 0;
    }
    for &(column, min) in flexible {
        let reducible = widths[column].saturating_sub(min);
        widths[column] -= excess(widths).min(reducible);
    }
}

/// The width of the terminal, or a large width if the output is not a terminal.
pub(crate) fn terminal_width() -> usize {
    terminal_size().map_or(160, |(Width(w), _)| usize::from(w))
}

#[cfg(test)]
mod tests {
    use super::fit;

    fn fitted(width: usize) -> [usize; 4] {
        let mut widths = [10, 20, 5, 8];
        fit(&mut widths, &[(1, 12)], &[3, 2], width);
        widths
    }

    #[test]
    fn flexible_columns_are_narrowed_before_columns_are_omitted() {
        assert_eq!(fitted(80), [10, 20, 5, 8]);
        assert_eq!(fitted(49), [10, 20, 5, 8]);
        assert_eq!(fitted(48), [10, 19, 5, 8]);
        assert_eq!(fitted(41), [10, 12, 5, 8]);
    }

    #[test]
    fn optional_columns_are_omitted_in_order() {
        assert_eq!(
            fitted(40),
            [10, 20, 5, 0],
            "the flexible column has its full width again"
        );
        assert_eq!(fitted(30), [10, 18, 0, 0]);
        assert_eq!(fitted(5), [10, 12, 0, 0], "the minimum width");
    }
}
