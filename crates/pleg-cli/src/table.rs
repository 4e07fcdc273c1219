//! Tables for people: aligned, coloured on a terminal only, clipped to its width.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use terminal_size::{Width, terminal_size};

use crate::text::{clip, safe};

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
            let pad = width.saturating_sub(text.chars().count()) + 2;
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

/// Writes one row with these column widths.
pub(crate) fn row(out: &mut impl Write, cells: &[Cell], widths: &[usize]) -> io::Result<()> {
    for (n, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let rest_is_empty = cells[n + 1..].iter().all(|c| c.text.is_empty());
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

/// How wide the terminal is; wide enough for everything where there is none.
pub(crate) fn room() -> usize {
    terminal_size().map_or(160, |(Width(w), _)| usize::from(w))
}
