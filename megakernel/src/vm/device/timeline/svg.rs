//! A timeline as a picture: a row for each SM, time to the right, a colour for each kind of level.
//!
//! Waiting is pale, loading half, computing and publishing full.

use std::fmt::Write;

use super::Timeline;

/// Height of an SM's row, and of a line of the legend.
const ROW: f64 = 6.0;
const LINE: f64 = 16.0;
/// Width of the picture and of the column of names.
const WIDTH: f64 = 1600.0;
const NAMES: f64 = 48.0;
/// Colours of kinds, for eyes that see few as well (Okabe and Ito, "Color Universal Design", 2008).
const COLOURS: [&str; 8] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999", "#b8ae1a"];
/// How much of the colour each phase has.
const STRENGTH: [&str; 4] = ["0.12", "0.45", "1", "0.8"];

impl Timeline {
    /// The picture.
    pub fn svg(&self) -> String {
        let (start, length) = (self.start(), self.length().max(1) as f64);
        let top = 2.0 * LINE;
        let height = top + self.blocks as f64 * ROW + 2.0 * LINE;
        let x = |moment: u64| NAMES + moment.saturating_sub(start) as f64 / length * WIDTH;
        let mut svg = String::new();
        let right = WIDTH + NAMES + 16.0;
        let _ = writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {right:.0} {height:.0}\" font-family=\"sans-serif\" \
             font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
        );
        for (at, kind) in self.kinds.iter().enumerate() {
            let (left, colour) = (NAMES + 110.0 * at as f64, COLOURS[at % COLOURS.len()]);
            let _ = writeln!(
                svg,
                "<rect x=\"{left:.0}\" y=\"8\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
                 <text x=\"{:.0}\" y=\"18\">{kind}</text>",
                left + 16.0
            );
        }
        for entry in &self.tasks {
            let y = top + entry.times.block as f64 * ROW;
            let colour = COLOURS[entry.kind % COLOURS.len()];
            let _ = write!(svg, "<g fill=\"{colour}\"><title>{}</title>", escaped(&entry.label));
            let mut moment = entry.times.begun;
            for (strength, length) in STRENGTH.into_iter().zip(entry.times.phases()) {
                let (left, right) = (x(moment), x(moment + length));
                moment += length;
                if length > 0 {
                    let _ = write!(
                        svg,
                        "<rect x=\"{left:.2}\" y=\"{y:.1}\" width=\"{:.2}\" height=\"{:.1}\" opacity=\"{strength}\"/>",
                        right - left,
                        ROW - 1.0
                    );
                }
            }
            let _ = writeln!(svg, "</g>");
        }
        self.axes(&mut svg, top, length);
        svg.push_str("</svg>\n");
        svg
    }

    /// Names of SMs, every tenth, and ten marks of time.
    fn axes(&self, svg: &mut String, top: f64, length: f64) {
        for block in (0..self.blocks).step_by(10) {
            let y = top + block as f64 * ROW + ROW;
            let _ = writeln!(svg, "<text x=\"4\" y=\"{y:.1}\">SM {block}</text>");
        }
        let bottom = top + self.blocks as f64 * ROW;
        for tenth in 0..=10 {
            let (at, time) = (NAMES + f64::from(tenth) / 10.0 * WIDTH, length / 1e4 * f64::from(tenth));
            let _ = writeln!(
                svg,
                "<path d=\"M{at:.1} {top} V{bottom:.1}\" stroke=\"#000\" stroke-opacity=\"0.2\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{time:.1} µs</text>",
                bottom + LINE
            );
        }
    }
}

/// Text as XML has it.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
