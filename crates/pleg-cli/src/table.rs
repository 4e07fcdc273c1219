//! Tables for people: aligned, coloured on a terminal only, clipped to its width.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use terminal_size::{Width, terminal_size};

use crate::text::{clip, safe};

/// Between columns.
const GAP: usize = 2;

/// One cell: its text, made safe, and how it is shown.
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
        self.text.chars().count()
    }

    fn write(&self, out: &mut impl Write, width: usize, last: bool) -> io::Result<()> {
        let text = clip(&self.text, width);
        let style = self.style;
        write!(out, "{style}{text}{style:#}")?;
        if !last {
            let pad = width.saturating_sub(text.chars().count()) + GAP;
            write!(out, "{:pad$}", "")?;
        }
        Ok(())
    }
}

/// The style of headings and of what matters less.
pub(crate) const fn dim() -> Style {
    Style::new().dimmed()
}

pub(crate) const fn colour(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(anstyle::Color::Ansi(colour)))
}

/// Writes one row with these column widths; a column without width is left out.
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

/// Makes a table fit: columns that people can do without are left out, in that order, until the
/// names can make the rest of the room by giving way, each down to its least width.
pub(crate) fn fit(
    widths: &mut [usize],
    names: &[(usize, usize)],
    expendable: &[usize],
    room: usize,
) {
    let over = |widths: &[usize]| {
        let shown = widths.iter().filter(|w| **w > 0);
        let total: usize = shown.map(|w| w + GAP).sum();
        total.saturating_sub(GAP + room)
    };
    let give = |widths: &[usize]| -> usize {
        let each = names
            .iter()
            .map(|(n, least)| widths[*n].saturating_sub(*least));
        each.sum()
    };
    for &column in expendable {
        if over(widths) <= give(widths) {
            break;
        }
        widths[column] = 0;
    }
    for &(column, least) in names {
        let most = widths[column].saturating_sub(least);
        widths[column] -= over(widths).min(most);
    }
}

/// How wide the terminal is; wide enough for everything where there is none.
pub(crate) fn room() -> usize {
    terminal_size().map_or(160, |(Width(w), _)| usize::from(w))
}

#[cfg(test)]
mod tests {
    use super::fit;

    fn fitted(room: usize) -> [usize; 4] {
        let mut widths = [10, 20, 5, 8];
        fit(&mut widths, &[(1, 12)], &[3, 2], room);
        widths
    }

    #[test]
    fn names_give_way_before_columns_go() {
        assert_eq!(fitted(80), [10, 20, 5, 8]);
        assert_eq!(fitted(49), [10, 20, 5, 8]);
        assert_eq!(fitted(48), [10, 19, 5, 8]);
        assert_eq!(fitted(41), [10, 12, 5, 8]);
    }

    #[test]
    fn what_can_be_done_without_goes_in_order() {
        assert_eq!(
            fitted(40),
            [10, 20, 5, 0],
            "which leaves room for the name again"
        );
        assert_eq!(fitted(30), [10, 18, 0, 0]);
        assert_eq!(fitted(5), [10, 12, 0, 0], "no narrower than this");
    }
}
