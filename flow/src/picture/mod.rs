//! A flow as a person looks at it: text, DOT, SVG. All three show values with formats and shapes,
//! fused groups, bytes.

mod dot;
mod svg;
mod text;

pub use dot::FlowDot;
pub use svg::FlowSvg;
pub use text::FlowText;

use tilewright_layout::tensor::Format;

use crate::bind::FlowExtents;
use crate::flow::Traced;
use crate::graph::{Described, PassGraph, ValueId};
use crate::op::{Effect, FlowOp};
use crate::plan::{FlowPass, Fusion, PassPlan};

/// A flow for a model, with the plans of both passes.
#[derive(Clone, Debug)]
pub struct FlowView<'f> {
    traced: &'f Traced,
    extents: FlowExtents,
    cache: PassPlan,
    indexer: PassPlan,
}

impl<'f> FlowView<'f> {
    /// A view of a flow.
    ///
    /// ```
    /// use tilewright_flow::{ModelShape, algorithms, picture::{FlowText, FlowView}, plan::Fusion};
    /// let traced = algorithms::named("moba")?.trace()?;
    /// let model = ModelShape { kv_heads: 8, group: 4, head_dim: 128, block_tokens: 16 };
    /// let view = FlowView::new(&traced, traced.extents(&model)?, &Fusion::default());
    /// assert!(FlowText::new(&view, 1, 2048).to_string().contains("gemm(q, centroid)"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(traced: &'f Traced, extents: FlowExtents, fusion: &Fusion) -> FlowView<'f> {
        let plan = |pass| PassPlan::new(traced, &extents, pass, fusion);
        let cache = plan(FlowPass::Cache);
        let indexer = plan(FlowPass::Indexer);
        FlowView { traced, extents, cache, indexer }
    }

    fn passes(&self) -> [(&'static str, &PassGraph, &PassPlan); 2] {
        [("cache", &self.traced.cache, &self.cache), ("indexer", &self.traced.indexer, &self.indexer)]
    }

    /// `gemm(v0, centroid)`, `save(v3 → score)`.
    fn call(&self, graph: &PassGraph, id: ValueId) -> String {
        let node = graph.node(id);
        let operands: Vec<String> = node.operands.iter().map(|o| self.traced.label(graph, *o)).collect();
        let operands = operands.join(", ");
        let declared = &self.traced.declared;
        match node.op {
            FlowOp::Effect(Effect::Save(state)) => {
                format!("save({operands} → {})", declared.states[state.index()].name)
            }
            FlowOp::Effect(Effect::Store(field)) => {
                format!("store({operands} → {})", declared.fields[field.index()].name)
            }
            _ => format!("{}({operands})", Described(&node.op)),
        }
    }

    /// `ragged [1, G]`.
    fn kind(&self, graph: &PassGraph, id: ValueId) -> String {
        let node = graph.node(id);
        format!("{} {}", node.format, node.shape)
    }
}

/// The colour of a format.
const fn colour(format: Format) -> &'static str {
    match format {
        Format::Batched => "#cfe3f7",
        Format::Ragged => "#d9f0d3",
        Format::Paged => "#fde6c8",
        Format::Parameter => "#e8dcf2",
    }
}
