//! A timeline as a picture: one row per SM, time to the right, one colour per kind of level.
//!
//! Waiting is pale, loading half, computing and publishing full. The picture has a title, named
//! axes and a legend, and follows the reader's colour scheme.

use std::fmt::Write;

use super::Timeline;

/// Height of an SM's row and of a line of the legend.
const ROW: f64 = 6.0;
const LINE: f64 = 22.0;
/// Width of the plot, and of the axis of SMs at its left.
const WIDTH: f64 = 1600.0;
const LEFT: f64 = 90.0;
/// Height of the title and the two lines of the legend.
const TOP: f64 = 4.0 * LINE;
/// Colours of kinds, distinct for colour-blind readers too (Okabe and Ito, "Color Universal
/// Design", 2008).
const COLOURS: [&str; 8] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999", "#b8ae1a"];
/// Phases of a task in their order, and how much of the colour each has.
const PHASES: [(&str, &str); 4] = [("waiting", "0.15"), ("loading", "0.45"), ("computing", "1"), ("publishing", "0.8")];
/// Paper and ink, light and dark.
const STYLE: &str = "text{fill:#1b1f24}.title{font-size:18px;font-weight:600}.paper{fill:#fff}.line{stroke:#d5dae0}.phase{fill:#5a6470}\
    @media (prefers-color-scheme:dark){text{fill:#e8ebee}.paper{fill:#14171b}.line{stroke:#363d45}.phase{fill:#a3adb8}}";

impl Timeline {
    /// Draws the timeline as an SVG picture.
    pub fn svg(&self) -> String {
        let start = self.start();
        let length = self.length().max(1) as f64;
        let height = TOP + self.blocks as f64 * ROW + 2.5 * LINE;
        let x = |moment: u64| LEFT + moment.saturating_sub(start) as f64 / length * WIDTH;
        let mut svg = String::new();
        let right = WIDTH + LEFT + 40.0;
        let _ = writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {right:.0} {height:.0}\" \
             font-family=\"system-ui, sans-serif\" font-size=\"14\" role=\"img\" aria-label=\"{title}\">\n<title>{title}</title>\n\
             <style>{STYLE}</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n\
             <text class=\"title\" x=\"{LEFT}\" y=\"22\">{title}: {:.1} µs on {} SMs</text>",
            length / 1e3,
            self.blocks,
            title = "One decode step, task by task",
        );
        self.legend(&mut svg);
        self.axes(&mut svg, length);
        for entry in &self.tasks {
            let y = TOP + entry.times.block as f64 * ROW;
            let colour = COLOURS[entry.kind % COLOURS.len()];
            let _ = write!(svg, "<g fill=\"{colour}\"><title>{}</title>", escaped(&entry.label));
            let mut moment = entry.times.begun;
            for ((_, strength), length) in PHASES.into_iter().zip(entry.times.phases()) {
                let left = x(moment);
                let right = x(moment + length);
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
        svg.push_str("</svg>\n");
        svg
    }

    /// Writes two lines: the meaning of a colour, and of its strength.
    fn legend(&self, svg: &mut String) {
        let mut key = |at: usize, line: f64, fill: &str, name: &str| {
            let left = LEFT + 130.0 * at as f64;
            let y = LINE * line + 6.0;
            let _ = writeln!(
                svg,
                "<rect x=\"{left:.0}\" y=\"{y:.0}\" width=\"14\" height=\"14\" {fill}/>\
                 <text x=\"{:.0}\" y=\"{:.0}\">{}</text>",
                left + 20.0,
                y + 12.0,
                escaped(name)
            );
        };
        for (at, kind) in self.kinds.iter().enumerate() {
            key(at, 1.0, &format!("fill=\"{}\"", COLOURS[at % COLOURS.len()]), kind);
        }
        for (at, (phase, strength)) in PHASES.into_iter().enumerate() {
            key(at, 2.0, &format!("class=\"phase\" opacity=\"{strength}\""), phase);
        }
    }

    /// The axes: the number of every tenth SM, ten marks of time, and the names of both.
    fn axes(&self, svg: &mut String, length: f64) {
        let bottom = TOP + self.blocks as f64 * ROW;
        for block in (0..self.blocks).step_by(10) {
            let y = TOP + block as f64 * ROW + ROW;
            let _ = writeln!(svg, "<text x=\"{:.0}\" y=\"{y:.1}\" text-anchor=\"end\">{block}</text>", LEFT - 8.0);
        }
        for tenth in 0..=10 {
            let at = LEFT + f64::from(tenth) / 10.0 * WIDTH;
            let time = length / 1e4 * f64::from(tenth);
            let _ = writeln!(
                svg,
                "<path class=\"line\" d=\"M{at:.1} {TOP} V{bottom:.1}\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{time:.1}</text>",
                bottom + 18.0
            );
        }
        let middle = (TOP + bottom) / 2.0;
        let _ = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"middle\">time, µs</text>\
             <text transform=\"translate(24 {middle:.1}) rotate(-90)\" text-anchor=\"middle\">SM</text>",
            LEFT + WIDTH / 2.0,
            bottom + 42.0
        );
    }
}

/// Text as XML has it.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
