//! Pictures as SVG: lines over logarithmic axes, and bars. Plain text, no fonts of their own.

use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 56.0;

/// What a value of an axis is called.
pub(super) type Label = fn(f64) -> String;

/// An axis.
#[derive(Clone, Copy)]
pub(super) struct Axis {
    pub(super) name: &'static str,
    pub(super) label: Label,
    pub(super) logarithmic: bool,
}

/// A line through points.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) color: &'static str,
    pub(super) points: Vec<(f64, f64)>,
    /// Whether each point is to be seen.
    pub(super) dots: bool,
}

/// A bar.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) color: &'static str,
    pub(super) value: f64,
    /// It was not waited for any longer.
    pub(super) more: bool,
}

struct Scale {
    axis: Axis,
    from: f64,
    to: f64,
    start: f64,
    end: f64,
}

impl Scale {
    fn new(axis: Axis, values: impl Iterator<Item = f64>, start: f64, end: f64) -> Self {
        let values: Vec<f64> = values.filter(|v| !axis.logarithmic || *v > 0.0).collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (from, to) = if axis.logarithmic {
            // Whole decades.
            (
                low.log10().floor(),
                high.log10().ceil().max(low.log10().floor() + 1.0),
            )
        } else {
            (low.min(0.0), high)
        };
        Self {
            axis,
            from,
            to,
            start,
            end,
        }
    }

    fn at(&self, value: f64) -> f64 {
        let value = if self.axis.logarithmic {
            value.max(1e-12).log10()
        } else {
            value
        };
        let part = ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0);
        self.start + part * (self.end - self.start)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.axis.logarithmic {
            let decades = (self.to - self.from) as i32;
            return (0..=decades)
                .map(|n| 10_f64.powf(self.from + f64::from(n)))
                .collect();
        }
        (0..=4)
            .map(|n| self.from + (self.to - self.from) * f64::from(n) / 4.0)
            .collect()
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

struct Canvas(String);

impl Canvas {
    fn new(height: f64, title: &str) -> Self {
        let mut canvas = Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             font-family=\"sans-serif\" font-size=\"13\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
        ));
        canvas.text(
            LEFT,
            26.0,
            "start",
            "#111111",
            &format!("<tspan font-weight=\"bold\">{}</tspan>", escaped(title)),
        );
        canvas
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, color: &str, inner: &str) {
        let _ = writeln!(
            self.0,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{color}\">{inner}</text>"
        );
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), color: &str) {
        let ((a, b), (c, d)) = (from, to);
        let _ = writeln!(
            self.0,
            "<line x1=\"{a:.1}\" y1=\"{b:.1}\" x2=\"{c:.1}\" y2=\"{d:.1}\" stroke=\"{color}\"/>"
        );
    }

    fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

/// Lines; `None` if there is nothing to draw.
pub(super) fn lines(title: &str, x: Axis, y: Axis, lines: &[Line]) -> Option<String> {
    let points = || lines.iter().flat_map(|l| l.points.iter().copied());
    points().next()?;
    let legend = 20.0 * lines.len().div_ceil(3) as f64;
    let height = 440.0 + legend;
    let bottom = height - BOTTOM - legend;
    let xs = Scale::new(x, points().map(|p| p.0), LEFT, WIDTH - RIGHT);
    let ys = Scale::new(y, points().map(|p| p.1), bottom, TOP);
    let mut canvas = Canvas::new(height, title);
    for tick in xs.ticks() {
        canvas.line((xs.at(tick), TOP), (xs.at(tick), bottom), "#e4e4e4");
        canvas.text(
            xs.at(tick),
            bottom + 18.0,
            "middle",
            "#444444",
            &(x.label)(tick),
        );
    }
    for tick in ys.ticks() {
        canvas.line((LEFT, ys.at(tick)), (WIDTH - RIGHT, ys.at(tick)), "#e4e4e4");
        canvas.text(
            LEFT - 8.0,
            ys.at(tick) + 4.0,
            "end",
            "#444444",
            &(y.label)(tick),
        );
    }
    canvas.text(
        f64::midpoint(LEFT, WIDTH - RIGHT),
        bottom + 38.0,
        "middle",
        "#444444",
        &escaped(x.name),
    );
    canvas.text(LEFT, TOP - 8.0, "start", "#444444", &escaped(y.name));
    for (n, line) in lines.iter().enumerate() {
        let path: Vec<String> = line
            .points
            .iter()
            .map(|(a, b)| format!("{:.1},{:.1}", xs.at(*a), ys.at(*b)))
            .collect();
        let _ = writeln!(
            canvas.0,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>",
            path.join(" "),
            line.color
        );
        for (a, b) in line.points.iter().filter(|_| line.dots) {
            let _ = writeln!(
                canvas.0,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"{}\"/>",
                xs.at(*a),
                ys.at(*b),
                line.color
            );
        }
        let left = LEFT + 225.0 * (n % 3) as f64;
        let down = bottom + 62.0 + 20.0 * (n / 3) as f64;
        canvas.line((left, down - 4.0), (left + 18.0, down - 4.0), line.color);
        canvas.text(left + 24.0, down, "start", line.color, &escaped(&line.name));
    }
    Some(canvas.finish())
}

/// Bars, one below the other; `None` if there is nothing to draw.
pub(super) fn bars(title: &str, axis: Axis, bars: &[Bar]) -> Option<String> {
    bars.first()?;
    const NAMES: f64 = 250.0;
    const STEP: f64 = 30.0;
    let height = TOP + STEP * bars.len() as f64 + BOTTOM;
    let bottom = height - BOTTOM;
    let scale = Scale::new(axis, bars.iter().map(|b| b.value), NAMES, WIDTH - 110.0);
    let mut canvas = Canvas::new(height, title);
    for tick in scale.ticks() {
        canvas.line(
            (scale.at(tick), TOP - 6.0),
            (scale.at(tick), bottom),
            "#e4e4e4",
        );
        canvas.text(
            scale.at(tick),
            bottom + 18.0,
            "middle",
            "#444444",
            &(axis.label)(tick),
        );
    }
    canvas.text(
        NAMES,
        bottom + 38.0,
        "start",
        "#444444",
        &escaped(axis.name),
    );
    for (n, bar) in bars.iter().enumerate() {
        let top = TOP + STEP * n as f64;
        let end = scale.at(bar.value);
        let _ = writeln!(
            canvas.0,
            "<rect x=\"{NAMES}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"20\" fill=\"{}\"/>",
            (end - NAMES).max(2.0),
            bar.color
        );
        let more = if bar.more { "more than " } else { "" };
        let label = format!("{more}{}", (axis.label)(bar.value));
        canvas.text(
            NAMES - 8.0,
            top + 15.0,
            "end",
            "#111111",
            &escaped(&bar.name),
        );
        canvas.text(
            end.max(NAMES + 2.0) + 6.0,
            top + 15.0,
            "start",
            "#111111",
            &escaped(&label),
        );
    }
    Some(canvas.finish())
}
