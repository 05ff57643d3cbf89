//! Charts: `plotters` draws axes, labels and lines; marks that link to a row are laid over them,
//! because an SVG back end of `plotters` has no links. Colours are names: the style sheet gives
//! each one a value for light and for dark.

use std::fmt::Write;
use std::ops::Range;

use maud::{Markup, PreEscaped, html};
use plotters::coord::ranged1d::{AsRangedCoord, DefaultFormatting, KeyPointHint, Ranged, ValueFormatter};
use plotters::prelude::*;

use crate::cli::Failure;

/// Text and axes; the style sheet replaces the value.
const INK: RGBColor = RGBColor(0, 0, 1);
/// Lines of the grid.
const GRID: RGBColor = RGBColor(0, 0, 2);

/// Size of letters as `plotters` counts it, which writes 0.81 of it: 12.9 pixels.
const LETTERS: i32 = 16;

/// Width of a chart with room for long names, pixels.
pub const WIDE: u32 = 880;
/// Width of a chart that shares a row with another, in pixels.
pub const HALF: u32 = 560;

/// A point or a bar that leads to a row.
pub struct Mark {
    /// The position, or the end of the bar.
    pub x: f64,
    pub y: f64,
    /// The start of the bar; `None` for a point.
    pub from: Option<f64>,
    /// The number of its row.
    pub row: usize,
    /// Its colour, 0 to 7.
    pub series: usize,
    /// Tooltip.
    pub title: String,
}

/// A line without marks: a ceiling, or the connection of points.
pub struct ChartLine {
    pub points: Vec<(f64, f64)>,
    pub series: usize,
}

/// The contents of a chart.
pub struct Chart<'c> {
    /// Title, also read by screen readers.
    pub title: &'c str,
    /// Names of the axes, with units.
    pub axes: [&'c str; 2],
    /// Width and height, pixels; a window that is narrower scrolls.
    pub width: u32,
    pub height: u32,
    /// Room for the labels at the left, pixels.
    pub left: u32,
    /// Names of the series that occur: colour and name.
    pub legend: Vec<(usize, String)>,
    pub marks: Vec<Mark>,
    pub lines: Vec<ChartLine>,
}

/// Width of a chart of a narrow window, pixels; its names stand over their bars.
const NARROW: u32 = 356;

/// The size of one drawing of a chart.
#[derive(Clone, Copy)]
struct Size<'n> {
    width: u32,
    height: u32,
    left: u32,
    /// Names that stand over their bars, the first on top; otherwise the axis has them.
    over: Option<&'n [String]>,
}

impl Chart<'_> {
    /// Bars or points with their names, the first on top. There are two drawings, of which the
    /// style sheet shows one: names at the left, and for narrow windows names over their bars.
    pub fn bars(self, names: &[String], most: f64) -> Result<Markup, Failure> {
        let count = names.len();
        let name = |y: &f64| count.checked_sub(1 + y.round() as usize).and_then(|at| names.get(at)).cloned();
        let wide = self.draw(self.size(), 0.0..most, CategoryAxis { count, named: count }, &short, &|y| {
            name(y).unwrap_or_default()
        })?;
        let size = Size { width: NARROW, height: 80 + 40 * count as u32, left: 14, over: Some(names) };
        let narrow = self.draw(size, 0.0..most, CategoryAxis { count, named: count }, &short, &|_| String::new())?;
        Ok(self.figure(&html! { div class="wide" { (wide) } div class="narrow" { (narrow) } }))
    }

    /// Points over numbers, both axes logarithmic, as one drawing for wide windows and one for
    /// narrow ones.
    pub fn logarithmic(self, x: Range<f64>, y: Range<f64>) -> Result<Markup, Failure> {
        let wide = self.draw(self.size(), x.clone().log_scale(), y.clone().log_scale(), &short, &short)?;
        let size = Size { width: NARROW, height: self.height.min(340), left: self.left.min(60), ..self.size() };
        let narrow = self.draw(size, x.log_scale(), y.log_scale(), &short, &short)?;
        Ok(self.figure(&html! { div class="wide" { (wide) } div class="narrow" { (narrow) } }))
    }

    /// Points over names, from left to right, as one drawing for wide windows and one for narrow
    /// ones. Names that would overlap are left out.
    pub fn sequence(self, names: &[String], range: Range<f64>) -> Result<Markup, Failure> {
        let name = |x: &f64| names.get(x.round() as usize).cloned().unwrap_or_default();
        let places = |named| CategoryAxis { count: names.len(), named };
        let wide = self.draw(self.size(), places(6), range.clone(), &name, &short)?;
        let size = Size { width: NARROW, left: self.left.min(64), ..self.size() };
        let narrow = self.draw(size, places(3), range, &name, &short)?;
        Ok(self.figure(&html! { div class="wide" { (wide) } div class="narrow" { (narrow) } }))
    }

    fn size(&self) -> Size<'static> {
        Size { width: self.width, height: self.height, left: self.left, over: None }
    }

    /// The drawings with the title and the legend.
    fn figure(&self, drawings: &Markup) -> Markup {
        html! {
            figure {
                figcaption {
                    (self.title)
                    @for (series, name) in &self.legend {
                        " " span class={ "key s" (series) } { (name) }
                    }
                }
                div class="scroll" tabindex="0" role="group" aria-label=(self.title) { (drawings) }
            }
        }
    }

    fn draw<X, Y>(
        &self,
        size: Size<'_>,
        x: X,
        y: Y,
        x_label: &dyn Fn(&f64) -> String,
        y_label: &dyn Fn(&f64) -> String,
    ) -> Result<Markup, Failure>
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let mut svg = String::new();
        let mut over = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, (size.width, size.height)).into_drawing_area();
            let mut builder = ChartBuilder::on(&root);
            builder.margin(10).margin_right(30).x_label_area_size(50).y_label_area_size(size.left);
            let mut chart = builder.build_cartesian_2d(x, y)?;
            let text = ("sans-serif", LETTERS).into_font().color(&INK);
            chart
                .configure_mesh()
                .x_desc(self.axes[0])
                .y_desc(if size.over.is_some() { "" } else { self.axes[1] })
                .label_style(text.clone())
                .axis_desc_style(text)
                .axis_style(INK)
                .bold_line_style(GRID)
                .light_line_style(TRANSPARENT)
                .x_label_formatter(x_label)
                .y_label_formatter(y_label)
                .x_labels(if size.width < HALF { 4 } else { 8 })
                .draw()?;
            for line in &self.lines {
                chart.draw_series(LineSeries::new(line.points.iter().copied(), colour(line.series).stroke_width(2)))?;
            }
            let thick = bar_height(size, &self.marks);
            for mark in &self.marks {
                let at = chart.backend_coord(&(mark.x, mark.y));
                let from = mark.from.map(|from| chart.backend_coord(&(from, mark.y)));
                write!(over, "{}", overlay(mark, at, from, thick).into_string())?;
            }
            let names = size.over.unwrap_or_default();
            for (at, name) in names.iter().enumerate() {
                let (x, y) = chart.backend_coord(&(0.0, (names.len() - 1 - at) as f64));
                let text = html! { text x=(x + 4) y=(y - thick / 2 - 4) font-size="12.5" { (name) } };
                write!(over, "{}", text.into_string())?;
            }
            root.present()?;
        }
        // Marks are drawn last, just before the end of the picture.
        let body = svg.replacen("<svg ", "<svg role=\"img\" ", 1).replace("</svg>", &format!("{over}</svg>"));
        Ok(PreEscaped(body))
    }
}

/// An axis of places, one for each name; place `n` is the number `n`.
struct CategoryAxis {
    count: usize,
    /// Names that have room.
    named: usize,
}

impl Ranged for CategoryAxis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let part = (value + 0.5) / self.count.max(1) as f64;
        limit.0 + (part * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        let last = self.count.saturating_sub(1);
        let named = self.named.clamp(1, self.count.max(1));
        let mut places: Vec<usize> = match named {
            1 => vec![last],
            named => (0..named).map(|at| at * last / (named - 1)).collect(),
        };
        places.dedup();
        places.into_iter().filter(|place| *place < self.count).map(|place| place as f64).collect()
    }

    fn range(&self) -> Range<f64> {
        -0.5..self.count as f64 - 0.5
    }
}

/// Formats a tick label without rounding errors of the tick step.
fn short(value: &f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if (1e-4..1e7).contains(&size) => format!("{}", (value * 1e6).round() / 1e6),
        _ => format!("{value:e}"),
    }
}

/// Height of a bar, pixels, so that all bars and the names above them fit.
fn bar_height(size: Size<'_>, marks: &[Mark]) -> i32 {
    let mut places: Vec<i64> = marks.iter().map(|mark| (mark.y * 100.0) as i64).collect();
    places.sort_unstable();
    places.dedup();
    let place = size.height.saturating_sub(70) as i32 / places.len().max(1) as i32;
    if size.over.is_some() { 12 } else { (place - 4).clamp(3, 18) }
}

/// A mark as a link to its row.
fn overlay(mark: &Mark, at: (i32, i32), from: Option<(i32, i32)>, thick: i32) -> Markup {
    html! {
        a href={ "#row-" (mark.row) } data-row=(mark.row) class={ "mark s" (mark.series) } aria-label=(mark.title) {
            title { (mark.title) }
            @match from {
                Some(from) => rect x=(from.0) y=(at.1.saturating_sub(thick / 2)) width=((at.0.saturating_sub(from.0)).max(1)) height=(thick) {},
                None => circle cx=(at.0) cy=(at.1) r="5" {},
            }
        }
    }
}

/// The colour that stands for a series.
fn colour(series: usize) -> RGBColor {
    RGBColor(1, 0, series as u8 % 8)
}

/// The end of an axis: the next of 1, 1.5, 2, 3, 5 and 7.5 times a power of ten.
pub fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.max(1e-12).log10().floor());
    [1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0].map(|step| step * power).into_iter().find(|end| *end >= value).unwrap_or(value)
}

/// A range with a margin around values, at least 10 % of the largest wide.
pub fn range_around(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (least, most) = values.fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)));
    if least > most {
        return 0.0..1.0;
    }
    let margin = (0.15 * (most - least)).max(0.05 * most.abs()).max(1e-9);
    (least - margin).max(0.0)..most + margin
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(marks: Vec<Mark>) -> Chart<'static> {
        let legend = vec![(0, "one <series>".to_owned())];
        Chart { title: "t", axes: ["x & unit", "y"], width: HALF, height: 200, left: 100, legend, marks, lines: vec![] }
    }

    #[test]
    fn every_mark_is_a_link_to_its_row_and_text_is_escaped() {
        let mark = |row| Mark { x: 1.5, y: row as f64, from: Some(0.0), row, series: 1, title: "<b>".into() };
        let names = ["first".to_owned(), "second".to_owned()];
        let svg = chart(vec![mark(0), mark(1)]).bars(&names, 2.0).expect("draws").into_string();
        // Once for wide windows, once for narrow ones.
        assert_eq!(svg.matches("class=\"mark s1\"").count(), 4);
        assert!(svg.contains("href=\"#row-1\"") && svg.contains("&lt;b&gt;") && !svg.contains("<b>"));
        assert!(svg.contains("x &amp; unit") && svg.contains("one &lt;series&gt;"), "{svg}");
        assert!(svg.contains("first") && svg.contains("second"));
    }

    #[test]
    fn fifty_builds_have_six_names_and_a_range_that_shows_their_differences() {
        let names: Vec<String> = (0..50).map(|at| format!("commit{at:02}")).collect();
        let times = (0..50).map(|at| 600.0 - f64::from(at) / 10.0);
        let marks = times.clone().enumerate();
        let marks = marks.map(|(at, y)| Mark { x: at as f64, y, from: None, row: at, series: 0, title: String::new() });
        let svg = chart(marks.collect()).sequence(&names, range_around(times)).expect("draws").into_string();
        let shown = names.iter().filter(|name| svg.contains(*name)).count();
        assert_eq!(shown, 7, "six in the wide drawing, the middle one of three in the narrow");
        let range = range_around([600.0, 595.1].into_iter());
        assert!(range.start > 560.0 && range.end < 640.0, "{range:?}");
    }

    #[test]
    fn the_largest_numbers_of_rows_are_drawn() {
        for largest in [0.0, 1e-9, 1.0, 1e15, 1e30] {
            let mark = |row, x| Mark { x, y: row as f64, from: Some(0.0), row, series: 1, title: String::new() };
            let names = ["first".to_owned(), "second".to_owned()];
            let bars = chart(vec![mark(0, largest), mark(1, largest / 3.0)]).bars(&names, round_up(largest));
            assert!(bars.expect("draws").into_string().contains("</svg>"));
            let point = |at: usize, y| Mark { x: at as f64, y, from: None, row: at, series: 0, title: String::new() };
            let range = range_around([largest, largest / 2.0].into_iter());
            let points = chart(vec![point(0, largest), point(1, largest / 2.0)]).sequence(&names, range);
            assert!(points.expect("draws").into_string().contains("</svg>"));
        }
    }

    #[test]
    fn an_axis_ends_at_a_round_number() {
        assert_eq!([0.9, 1.0, 1.02, 1.79, 840.0].map(round_up), [1.0, 1.0, 1.5, 2.0, 1000.0]);
    }
}
