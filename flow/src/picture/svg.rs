//! A flow as an SVG image: sources in a row on top of each pass, a frame for each group below, edges from value to reader.

use std::collections::BTreeMap;
use std::fmt;

use super::{View, colour};
use crate::graph::{EdgeKind, Graph, ValueId};
use crate::plan::Plan;

/// A flow as an SVG image.
#[derive(Clone, Copy, Debug)]
pub struct Svg<'v>(pub &'v View<'v>);

const WIDTH: usize = 250;
const HEIGHT: usize = 40;
const GAP: usize = 20;

/// Where the boxes of a pass are: left and top.
struct Boxes {
    at: BTreeMap<ValueId, (usize, usize)>,
    /// Frames: left, top, width, height, title.
    frames: Vec<(usize, usize, usize, usize, String)>,
    width: usize,
    bottom: usize,
}

/// How many ops of `ops` come one after the other before `id`.
fn depths(graph: &Graph, ops: &[ValueId]) -> BTreeMap<ValueId, usize> {
    let mut depths: BTreeMap<ValueId, usize> = BTreeMap::new();
    for id in ops {
        let before = graph.node(*id).operands.iter().filter_map(|o| depths.get(o)).max();
        let depth = before.map_or(0, |depth| depth + 1);
        depths.insert(*id, depth);
    }
    depths
}

impl Boxes {
    fn new(graph: &Graph, plan: &Plan, pass: &str, top: usize) -> Boxes {
        let mut boxes = Boxes { at: BTreeMap::new(), frames: Vec::new(), width: 0, bottom: top };
        let sources: Vec<ValueId> = graph.ids().filter(|id| graph.node(*id).op.is_source()).collect();
        if !sources.is_empty() {
            boxes.row(&sources, top);
        }
        for (index, group) in plan.groups().iter().enumerate() {
            let frame_top = boxes.bottom + GAP;
            let mut layers: Vec<Vec<ValueId>> = Vec::new();
            for (id, depth) in depths(graph, &group.ops) {
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
            boxes.frames.push((
                GAP / 2,
                frame_top,
                width,
                top - frame_top,
                format!("{pass} {index}: {}", group.domain),
            ));
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

impl Svg<'_> {
    fn pass(&self, f: &mut fmt::Formatter<'_>, graph: &Graph, boxes: &Boxes) -> fmt::Result {
        for (left, top, width, height, title) in &boxes.frames {
            writeln!(
                f,
                r##"<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#888" rx="6"/>"##
            )?;
            writeln!(f, r##"<text x="{}" y="{}" fill="#555">{title}</text>"##, left + 6, top + 14)?;
        }
        for edge in graph.edges() {
            let (Some((x0, y0)), Some((x1, y1))) = (boxes.at.get(&edge.before), boxes.at.get(&edge.after)) else {
                continue;
            };
            let (x0, y0, x1) = (x0 + WIDTH / 2, y0 + HEIGHT, x1 + WIDTH / 2);
            let dashed = if edge.kind == EdgeKind::Data { "" } else { r#" stroke-dasharray="4 3""# };
            let (below, above) = (y0 + GAP, y1.saturating_sub(GAP));
            writeln!(
                f,
                r##"<path d="M{x0} {y0} C{x0} {below} {x1} {above} {x1} {y1}" fill="none" stroke="#555"{dashed}/>"##
            )?;
        }
        for (&id, (left, top)) in &boxes.at {
            let node = graph.node(id);
            let call = if node.op.is_source() { self.0.traced.label(graph, id) } else { self.0.call(graph, id) };
            let call = if node.op.is_source() || node.op.is_effect() { call } else { format!("{id} = {call}") };
            let fill = colour(node.format);
            writeln!(
                f,
                r##"<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="{fill}" stroke="#333" rx="4"/>"##
            )?;
            writeln!(f, r#"<text x="{}" y="{}">{}</text>"#, left + 8, top + 16, escaped(&call))?;
            writeln!(f, r#"<text x="{}" y="{}">{}</text>"#, left + 8, top + 32, self.0.kind(graph, id))?;
        }
        Ok(())
    }
}

impl fmt::Display for Svg<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut top = 3 * GAP;
        let mut passes = Vec::new();
        for (name, graph, plan) in self.0.passes() {
            let boxes = Boxes::new(graph, plan, name, top);
            top = boxes.bottom + 2 * GAP;
            passes.push((graph, boxes));
        }
        let width = passes.iter().map(|(_, boxes)| boxes.width).max().unwrap_or(0).max(400);
        writeln!(
            f,
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top}" font-family="monospace" font-size="12">"#
        )?;
        writeln!(f, r#"<rect width="100%" height="100%" fill="white"/>"#)?;
        let title = format!("{}: {}", self.0.traced.name, self.0.extents.model);
        writeln!(f, r#"<text x="{GAP}" y="{}" font-size="16">{}</text>"#, GAP + 8, escaped(&title))?;
        passes.iter().try_for_each(|(graph, boxes)| self.pass(f, graph, boxes))?;
        writeln!(f, "</svg>")
    }
}
