//! A graph as an SVG image: ops in rows by depth, edges from a value to its readers.
//!
//! Colours follow the viewer's light or dark mode; the legend names them. A box shows the op and
//! its type, its tooltip the whole line of the text form.

use std::fmt;

use crate::graph::{Body, Graph, Step, ValueId};
use crate::op::{InputKind, Op};
use crate::text::OpText;

/// A graph as an SVG image.
///
/// ```
/// use tilewright_graph::{models, picture::Svg};
/// let config = serde_json::json!({
///     "model_type": "llama", "vocab_size": 32, "hidden_size": 8, "intermediate_size": 16,
///     "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
/// });
/// let image = Svg(&models::graph(&config)?).to_string();
/// assert!(image.starts_with("<svg ") && image.contains("<title>Graph of llama</title>"));
/// # Ok::<(), models::ModelError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Svg<'g>(pub &'g Graph);

const WIDTH: usize = 300;
const HEIGHT: usize = 40;
const GAP: usize = 20;
/// Height of a row with the edges below it.
const ROW: usize = HEIGHT + 2 * GAP;
/// The top of the first row, after the title and the legend.
const TOP: usize = 100;
/// Width of an entry of the legend.
const LEGEND_WIDTH: usize = 190;
/// Letters of a line of a box.
const LETTERS: usize = 39;

/// Colours in both modes, and the arrowhead.
const STYLE: &str = r##"<style>
.ground { fill: #fff } text { fill: #1f2328 } .note { fill: #57606a }
.edge { fill: none; stroke: #57606a; marker-end: url(#head) } .head { fill: #57606a } .box { stroke: #57606a }
.product { fill: #cfe3f7 } .norm { fill: #d9f0d3 } .attention { fill: #fde6c8 } .elementwise { fill: #eaeef2 } .ids { fill: #e8dcf2 }
@media (prefers-color-scheme: dark) {
.ground { fill: #0d1117 } text { fill: #e6edf3 } .note { fill: #8b949e } .edge { stroke: #8b949e } .head { fill: #8b949e } .box { stroke: #6e7681 }
.product { fill: #10355e } .norm { fill: #174a22 } .attention { fill: #5a3a0c } .elementwise { fill: #21262d } .ids { fill: #43265c }
}
</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path class="head" d="M0 0 L8 4 L0 8 z"/></marker></defs>"##;

/// The kinds of ops, with what the legend says of them.
const CLASSES: [(&str, &str); 5] = [
    ("product", "products"),
    ("norm", "norms"),
    ("attention", "rope, cache, attention"),
    ("elementwise", "elementwise"),
    ("ids", "inputs, choices"),
];

const fn class(op: &Op) -> &'static str {
    match op {
        Op::Embed { .. } | Op::Linear { .. } | Op::HeadLinear { .. } | Op::ExpertLinear { .. } | Op::Logits { .. } => {
            "product"
        }
        Op::Norm { .. } => "norm",
        Op::Convolve { .. } | Op::DeltaRule { .. } => "attention",
        Op::Regroup { .. } => "elementwise",
        Op::Rope { .. } | Op::CacheAppend { .. } | Op::Attention { .. } => "attention",
        Op::Activation { .. } | Op::Binary { .. } | Op::Scale { .. } => "elementwise",
        Op::SoftCap { .. } | Op::WeightedSum { .. } | Op::Slice { .. } | Op::Concat { .. } => "elementwise",
        Op::Input { .. } | Op::Route { .. } | Op::Choose { .. } => "ids",
        Op::Product { .. } => "product",
        Op::Elementwise { .. } | Op::Reduce { .. } | Op::Rearrange { .. } | Op::OverBlocks { .. } => "elementwise",
        Op::Load { .. } | Op::Fill { .. } | Op::Store { .. } | Op::Select { .. } => "ids",
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A text cut to the width of a box.
fn clipped(text: &str) -> String {
    match text.char_indices().nth(LETTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The positions of boxes.
struct Boxes<'g> {
    /// Ops with the left and top of their boxes.
    at: Vec<(Step<'g>, usize, usize)>,
    /// The box of each value.
    of_value: Vec<usize>,
    columns: usize,
    rows: usize,
}

impl<'g> Boxes<'g> {
    fn new(graph: &'g Graph) -> Boxes<'g> {
        let steps: Vec<Step<'g>> = graph.steps().collect();
        let mut of_value = Vec::new();
        let mut depths: Vec<usize> = Vec::new();
        let mut widths: Vec<usize> = Vec::new();
        let mut places = Vec::new();
        for (place, step) in steps.iter().enumerate() {
            let before = |(_, id): &(_, ValueId)| of_value.get(id.index()).map(|&place: &usize| depths[place] + 1);
            let depth = step.op.operands().iter().filter_map(before).max().unwrap_or(0);
            depths.push(depth);
            of_value.resize(of_value.len() + step.results.len(), place);
            widths.resize(widths.len().max(depth + 1), 0);
            places.push((depth, widths[depth]));
            widths[depth] += 1;
        }
        let columns = widths.iter().copied().max().unwrap_or(1);
        let at = steps.into_iter().zip(places).map(|(step, (depth, column))| {
            let margin = (columns - widths[depth]) * (WIDTH + GAP) / 2;
            (step, GAP + margin + column * (WIDTH + GAP), TOP + depth * ROW)
        });
        Boxes { at: at.collect(), of_value, columns, rows: widths.len() }
    }
}

impl Svg<'_> {
    fn edges(&self, f: &mut fmt::Formatter<'_>, boxes: &Boxes<'_>) -> fmt::Result {
        for (step, right, bottom) in &boxes.at {
            for (_, id) in step.op.operands() {
                let Some((from, left, top)) = boxes.of_value.get(id.index()).and_then(|place| boxes.at.get(*place))
                else {
                    continue;
                };
                // Every rotation and attention reads them.
                if *from.op == (Op::Input { input: InputKind::Positions }) {
                    continue;
                }
                let x0 = left + WIDTH / 2;
                let y0 = top + HEIGHT;
                let x1 = right + WIDTH / 2;
                let y1 = *bottom;
                let below = y0 + 2 * GAP;
                let above = y1.saturating_sub(2 * GAP);
                // An edge that skips rows passes next to their boxes.
                let aside = if y1 > y0 + ROW { 5 * WIDTH / 4 } else { 0 };
                let first = x0.saturating_sub(aside);
                let second = x1.saturating_sub(aside);
                writeln!(f, r#"<path class="edge" d="M{x0} {y0} C{first} {below} {second} {above} {x1} {y1}"/>"#)?;
            }
        }
        Ok(())
    }

    fn boxes(&self, f: &mut fmt::Formatter<'_>, boxes: &Boxes<'_>) -> fmt::Result {
        let parts = self.0.parts();
        for (step, left, top) in &boxes.at {
            let class = class(step.op);
            let line = OpText::new(parts, step).to_string();
            let weights = step.op.weights();
            let group = match parts.nodes[step.node].body {
                Body::Fused(_) => format!(" (group {})", step.node),
                Body::Single(_) => String::new(),
            };
            let call = match weights.first().and_then(|(_, id)| parts.weights.get(id.index())) {
                Some(weight) => {
                    let module = weight.tensor.trim_end_matches(".weight");
                    format!("{} {}", step.op.name(), module.rsplit('.').next().unwrap_or(module))
                }
                None => {
                    let words = line.rsplit(" = ").next().unwrap_or(&line);
                    words.split('(').next().unwrap_or(words).to_owned()
                }
            };
            let name = format!("{}{group} = {call}", step.first);
            let kind = step.results.first().map(ToString::to_string).unwrap_or_default();
            writeln!(f, "<g><title>{}</title>", escaped(&line))?;
            writeln!(
                f,
                r#"<rect class="box {class}" x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" rx="4"/>"#
            )?;
            for (text, below) in [(&name, 16), (&kind, 32)] {
                writeln!(f, r#"<text x="{}" y="{}">{}</text>"#, left + 8, top + below, escaped(&clipped(text)))?;
            }
            writeln!(f, "</g>")?;
        }
        Ok(())
    }
}

impl fmt::Display for Svg<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let boxes = Boxes::new(self.0);
        let width = (boxes.columns * (WIDTH + GAP)).max(CLASSES.len() * LEGEND_WIDTH) + GAP;
        let height = TOP + boxes.rows * ROW + GAP;
        let title = escaped(&clipped(&self.0.parts().name));
        writeln!(
            f,
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="monospace" font-size="12" role="img">"#
        )?;
        writeln!(f, "<title>Graph of {title}</title>")?;
        writeln!(f, "{STYLE}")?;
        writeln!(f, r#"<rect class="ground" width="100%" height="100%"/>"#)?;
        writeln!(f, r#"<text x="{GAP}" y="{}" font-size="16">{title}</text>"#, GAP + 8)?;
        for (column, (class, text)) in CLASSES.into_iter().enumerate() {
            let x = GAP + column * LEGEND_WIDTH;
            writeln!(f, r#"<rect class="box {class}" x="{x}" y="42" width="14" height="14" rx="3"/>"#)?;
            writeln!(f, r#"<text x="{}" y="53">{text}</text>"#, x + 20)?;
        }
        let note = "An edge leads from a value to its reader; readers of positions are not drawn.";
        writeln!(f, r#"<text class="note" x="{GAP}" y="76">{note}</text>"#)?;
        self.edges(f, &boxes)?;
        self.boxes(f, &boxes)?;
        writeln!(f, "</svg>")
    }
}
