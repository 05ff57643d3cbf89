//! A flow as an SVG image: sources in a row on top of each pass, a frame for each task below,
//! edges from value to reader.
//!
//! Colours follow the viewer's light or dark mode; the legend names the formats and both kinds of
//! edges.

use std::collections::BTreeMap;
use std::fmt;

use tilewright_graph::Graph;
use tilewright_graph::graph::ValueId;
use tilewright_layout::tensor::Format;

use super::{FlowView, TaskView, edges};

/// A flow as an SVG image.
#[derive(Clone, Copy, Debug)]
pub struct FlowSvg<'v>(pub &'v FlowView<'v>);

const WIDTH: usize = 250;
const HEIGHT: usize = 40;
const GAP: usize = 20;
/// Height of the legend.
const LEGEND: usize = 40;
/// Width of an entry of the legend.
const LEGEND_WIDTH: usize = 220;

/// Colours in both modes, and the arrowhead.
const STYLE: &str = r##"<style>
.ground { fill: #fff } text { fill: #1f2328 } .note { fill: #57606a }
.frame { fill: none; stroke: #8c959f } .edge { fill: none; stroke: #57606a; marker-end: url(#head) } .head { fill: #57606a }
.box { stroke: #57606a } .batched { fill: #cfe3f7 } .ragged { fill: #d9f0d3 } .paged { fill: #fde6c8 } .parameter { fill: #e8dcf2 }
@media (prefers-color-scheme: dark) {
.ground { fill: #0d1117 } text { fill: #e6edf3 } .note { fill: #8b949e } .frame, .box { stroke: #6e7681 }
.edge { stroke: #8b949e } .head { fill: #8b949e }
.batched { fill: #10355e } .ragged { fill: #174a22 } .paged { fill: #5a3a0c } .parameter { fill: #43265c }
}
</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path class="head" d="M0 0 L8 4 L0 8 z"/></marker></defs>"##;

/// The class of a format's boxes.
const fn class(format: Format) -> &'static str {
    match format {
        Format::Batched => "batched",
        Format::Ragged => "ragged",
        Format::Paged => "paged",
        Format::Parameter => "parameter",
    }
}

/// The positions of a pass's boxes: left and top.
struct Boxes {
    at: BTreeMap<ValueId, (usize, usize)>,
    /// Frames: left, top, width, height, title.
    frames: Vec<(usize, usize, usize, usize, &'static str)>,
    width: usize,
    bottom: usize,
}

/// The depth of each op: the longest chain of `ops` before it.
fn depths(graph: &Graph, ops: &[ValueId]) -> BTreeMap<ValueId, usize> {
    let mut depths: BTreeMap<ValueId, usize> = BTreeMap::new();
    for id in ops {
        let before = graph.operands(*id).iter().filter_map(|o| depths.get(o)).max();
        let depth = before.map_or(0, |depth| depth + 1);
        depths.insert(*id, depth);
    }
    depths
}

impl Boxes {
    fn new(graph: &Graph, tasks: &[TaskView], top: usize) -> Boxes {
        let mut boxes = Boxes { at: BTreeMap::new(), frames: Vec::new(), width: 0, bottom: top };
        let sources: Vec<ValueId> = graph.ids().filter(|id| graph.op(*id).is_source()).collect();
        if !sources.is_empty() {
            boxes.row(&sources, top);
        }
        for task in tasks {
            let frame_top = boxes.bottom + GAP;
            let mut layers: Vec<Vec<ValueId>> = Vec::new();
            for (id, depth) in depths(graph, &task.ops) {
                layers.resize_with(layers.len().max(depth + 1), Vec::new);
                layers[depth].push(id);
            }
            let mut top = frame_top + GAP;
            for layer in &layers {
                boxes.row(layer, top);
                top = boxes.bottom + GAP;
            }
            let widest = layers.iter().map(Vec::len).max().unwrap_or(0);
            let width = widest * (WIDTH + GAP) + GAP;
            boxes.bottom = top;
            boxes.width = boxes.width.max(width + GAP);
            boxes.frames.push((GAP / 2, frame_top, width, top - frame_top, task.name));
        }
        boxes
    }

    fn row(&mut self, ids: &[ValueId], top: usize) {
        for (column, id) in ids.iter().enumerate() {
            self.at.insert(*id, (GAP + column * (WIDTH + GAP), top));
        }
        self.bottom = self.bottom.max(top + HEIGHT);
        self.width = self.width.max(ids.len() * (WIDTH + GAP) + GAP);
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl FlowSvg<'_> {
    fn pass(&self, f: &mut fmt::Formatter<'_>, graph: &Graph, boxes: &Boxes) -> fmt::Result {
        for (left, top, width, height, title) in &boxes.frames {
            writeln!(f, r#"<rect class="frame" x="{left}" y="{top}" width="{width}" height="{height}" rx="6"/>"#)?;
            writeln!(f, r#"<text class="note" x="{}" y="{}">{title}</text>"#, left + 6, top + 14)?;
        }
        for ([before, after], is_data) in edges(graph) {
            let dashed = if is_data { "" } else { r#" stroke-dasharray="4 3""# };
            let (Some((x0, y0)), Some((x1, y1))) = (boxes.at.get(&before), boxes.at.get(&after)) else {
                continue;
            };
            let x0 = x0 + WIDTH / 2;
            let y0 = y0 + HEIGHT;
            let x1 = x1 + WIDTH / 2;
            let below = y0 + GAP;
            let above = y1.saturating_sub(GAP);
            writeln!(f, r#"<path class="edge" d="M{x0} {y0} C{x0} {below} {x1} {above} {x1} {y1}"{dashed}/>"#)?;
        }
        for (&id, (left, top)) in &boxes.at {
            let op = graph.op(id);
            let call = if op.is_source() { self.0.traced.label(graph, id) } else { self.0.call(graph, id) };
            let call = if op.is_source() || op.is_effect() { call } else { format!("{id} = {call}") };
            let class = class(graph.row(id).format);
            writeln!(
                f,
                r#"<rect class="box {class}" x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" rx="4"/>"#
            )?;
            writeln!(f, r#"<text x="{}" y="{}">{}</text>"#, left + 8, top + 16, escaped(&call))?;
            writeln!(f, r#"<text x="{}" y="{}">{}</text>"#, left + 8, top + 32, self.0.kind(graph, id))?;
        }
        Ok(())
    }

    /// Draws the meaning of colours and edges, in a row that begins at `top`.
    fn legend(f: &mut fmt::Formatter<'_>, top: usize) -> fmt::Result {
        let formats = [
            (Format::Batched, "batched: a row per request"),
            (Format::Ragged, "ragged: a row per block"),
            (Format::Paged, "paged: kept with the pages"),
            (Format::Parameter, "parameter"),
        ];
        for (column, (format, text)) in formats.into_iter().enumerate() {
            let x = GAP + column * LEGEND_WIDTH;
            let class = class(format);
            writeln!(f, r#"<rect class="box {class}" x="{x}" y="{top}" width="14" height="14" rx="3"/>"#)?;
            writeln!(f, r#"<text x="{}" y="{}">{text}</text>"#, x + 20, top + 11)?;
        }
        let edges =
            [("", "a value and its reader"), (r#" stroke-dasharray="4 3""#, "order: a state is saved after its load")];
        for (column, (dashed, text)) in edges.into_iter().enumerate() {
            let x = GAP + column * 2 * LEGEND_WIDTH;
            let y = top + 30;
            writeln!(f, r#"<path class="edge" d="M{x} {y} H{}"{dashed}/>"#, x + 30)?;
            writeln!(f, r#"<text x="{}" y="{}">{text}</text>"#, x + 38, y + 4)?;
        }
        Ok(())
    }
}

impl fmt::Display for FlowSvg<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut top = 3 * GAP;
        let mut passes = Vec::new();
        for (_, graph, tasks) in self.0.passes() {
            let boxes = Boxes::new(graph, &tasks, top);
            top = boxes.bottom + 2 * GAP;
            passes.push((graph, boxes));
        }
        let width = passes.iter().map(|(_, boxes)| boxes.width).max().unwrap_or(0).max(4 * LEGEND_WIDTH + GAP);
        let height = top + LEGEND;
        let title = escaped(&format!("{}: {}", self.0.traced.name, self.0.extents.model));
        writeln!(
            f,
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="monospace" font-size="12" role="img">"#
        )?;
        writeln!(f, "<title>Flow {title}</title>")?;
        writeln!(f, "{STYLE}")?;
        writeln!(f, r#"<rect class="ground" width="100%" height="100%"/>"#)?;
        writeln!(f, r#"<text x="{GAP}" y="{}" font-size="16">{title}</text>"#, GAP + 8)?;
        passes.iter().try_for_each(|(graph, boxes)| self.pass(f, graph, boxes))?;
        Self::legend(f, top - GAP)?;
        writeln!(f, "</svg>")
    }
}
