//! A pass of a flow as what a device records: its graph, the extents of its values, and whether
//! lanes can compute them.

use std::fmt;
use std::sync::Arc;

use tilewright_layout::DType;
use tilewright_layout::tensor::Format;

use super::linear::{Finder, LinearValue};
use super::product;
use super::spread::Spread;
use crate::FlowPass;
use crate::bind::FlowExtents;
use crate::error::BindError;
use crate::flow::Traced;
use crate::graph::{PassGraph, ValueId};
use crate::op::{Effect, Elementwise, FieldId, FlowOp, InnerAxis, ProductOp, Rearrange, Reduction, RowOp, SourceOp};

/// A pass of a flow for a model.
#[derive(Clone)]
pub(super) struct PassRecipe {
    traced: Arc<Traced>,
    pass: FlowPass,
    extents: Vec<[usize; 2]>,
    scales: Vec<f32>,
    /// How rows lie in lanes.
    pub spread: Spread,
    /// The values of blocks that tensor cores compute.
    linear: Vec<LinearValue>,
}

/// Whether values of a format are the same for all blocks of a row.
pub(super) const fn is_of_row(format: Format) -> bool {
    matches!(format, Format::Batched | Format::Parameter)
}

/// Compares flow and model: names of flows are unique.
impl PartialEq for PassRecipe {
    fn eq(&self, other: &PassRecipe) -> bool {
        self.traced.name == other.traced.name
            && self.pass == other.pass
            && self.extents == other.extents
            && self.scales == other.scales
            && self.spread == other.spread
            && self.linear == other.linear
    }
}

impl fmt::Debug for PassRecipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {:?}", self.traced.name, self.pass, self.spread)
    }
}

impl PassRecipe {
    /// A pass with these extents.
    pub fn new(
        traced: &Arc<Traced>,
        pass: FlowPass,
        all: &FlowExtents,
        spread: Spread,
    ) -> Result<PassRecipe, BindError> {
        let (graph, extents) = (traced.graph(pass), all.of(pass));
        let scale = |op: &FlowOp| match op {
            FlowOp::Row(RowOp::Softmax(scale)) | FlowOp::Product(ProductOp::LearnedQuery(scale)) => {
                scale.bind(&all.model)
            }
            _ => Ok(1.0),
        };
        let scales = graph.nodes().iter().map(|node| Ok(scale(&node.op)? as f32)).collect::<Result<_, _>>()?;
        let linear = Vec::new();
        Ok(PassRecipe { traced: Arc::clone(traced), pass, extents: extents.to_vec(), scales, spread, linear })
    }

    /// The recipe with its sums of products on tensor cores, if it has such; its rows lie in lanes
    /// as these need them.
    pub fn by_products(&self) -> Option<PassRecipe> {
        let spread = product::spread(self.spread.dim)?;
        let is_bf16 = |field: FieldId| self.traced.declared.fields[field.index()].dtype == DType::BF16;
        let finder = Finder {
            graph: self.graph(),
            extents: &self.extents,
            dim: spread.dim as usize,
            is_operand: &|source| matches!(source, SourceOp::Field(field) if is_bf16(field)),
        };
        let mut registers = 0;
        let mut linear: Vec<LinearValue> = self.graph().ids().filter_map(|id| finder.find(id)).collect();
        linear.retain(|linear| {
            let more = product::weights_registers(linear, spread);
            let fits = registers + more <= product::MOST_WEIGHTS;
            registers += if fits { more } else { 0 };
            fits
        });
        (!linear.is_empty()).then(|| PassRecipe { linear, spread, ..self.clone() })
    }

    /// The values of blocks that tensor cores compute.
    pub fn linear(&self) -> &[LinearValue] {
        &self.linear
    }

    /// The graph of the pass.
    pub fn graph(&self) -> &PassGraph {
        self.traced.graph(self.pass)
    }

    /// The inner extents of a value.
    pub fn extents(&self, id: ValueId) -> [usize; 2] {
        self.extents[id.index()]
    }

    /// The factor of an op.
    pub fn scale(&self, id: ValueId) -> f32 {
        self.scales[id.index()]
    }

    /// Whether rows of a value are dealt to the lanes.
    pub fn deals(&self, id: ValueId) -> bool {
        self.spread.deals(self.extents(id)[1])
    }

    /// Elements of a value that a lane holds.
    pub fn held(&self, id: ValueId) -> u32 {
        let [d0, d1] = self.extents(id);
        d0 as u32 * self.spread.held(d1)
    }

    /// Whether a value is the same for all blocks of a row.
    pub fn is_of_row(&self, id: ValueId) -> bool {
        is_of_row(self.graph().node(id).format)
    }

    /// What is loaded of a block before it is computed with, where some values are known already.
    pub fn of_block(&self, is_known: &dyn Fn(ValueId) -> bool) -> Vec<ValueId> {
        let graph = self.graph();
        let mut is_needed = vec![false; graph.nodes().len()];
        graph.effects().into_iter().for_each(|id| is_needed[id.index()] = true);
        for id in graph.ids().collect::<Vec<_>>().into_iter().rev() {
            if is_needed[id.index()] && !is_known(id) {
                graph.node(id).operands.iter().for_each(|operand| is_needed[operand.index()] = true);
            }
        }
        let is_loaded = |id: &ValueId| {
            is_needed[id.index()]
                && matches!(graph.node(*id).op, FlowOp::Source(SourceOp::Field(_) | SourceOp::Load(_)))
        };
        graph.ids().filter(is_loaded).collect()
    }

    /// Whether the pass stores a field.
    pub fn stores(&self, field: usize) -> bool {
        let is_store = |op: &FlowOp| matches!(op, FlowOp::Effect(Effect::Store(id)) if id.index() == field);
        self.graph().nodes().iter().any(|node| is_store(&node.op))
    }

    /// The ops across the blocks of a row that must have seen all of them before anybody takes
    /// their value, in order.
    pub fn across(&self) -> Vec<ValueId> {
        let gathers =
            |id: &ValueId| matches!(&self.graph().node(*id).op, FlowOp::Row(op) if !matches!(op, RowOp::Conv1d(_)));
        self.graph().ids().filter(gathers).collect()
    }

    /// Why lanes cannot compute the pass, if they cannot.
    pub fn refusal(&self) -> Option<String> {
        self.graph().ids().find_map(|id| {
            let why = self.refuses(id)?;
            let flow = &self.traced.name;
            let op = self.graph().node(id).op.name();
            Some(format!("op `{op}` of flow `{flow}` {why}"))
        })
    }

    /// Whether no lane holds a value: weights of learned queries.
    fn is_shared(&self, id: ValueId) -> bool {
        let mut readers = self.graph().nodes().iter().filter(|node| node.operands.contains(&id));
        readers.all(|node| matches!(node.op, FlowOp::Product(ProductOp::LearnedQuery(_))) && node.operands[0] != id)
    }

    fn refuses(&self, id: ValueId) -> Option<String> {
        /// Most elements of a value that each lane holds.
        const MOST: u32 = 1024;
        let node = self.graph().node(id);
        let dim = self.spread.dim;
        let dealt = |which: usize| self.deals(node.operands[which]);
        let mut operands = (0..node.operands.len()).map(dealt);
        let moves = || Some(format!("moves elements of rows of {dim}, which lie in several lanes"));
        if !self.deals(id) && self.held(id) > MOST && !self.is_shared(id) {
            return Some(format!("gives {} elements, and a lane holds {MOST}", self.held(id)));
        }
        match &node.op {
            FlowOp::Source(_) | FlowOp::Effect(_) | FlowOp::Product(ProductOp::LearnedQuery(_)) => None,
            FlowOp::Elementwise(Elementwise::Unary(_) | Elementwise::Binary(_) | Elementwise::MaskSlice { .. }) => None,
            FlowOp::Reduction(Reduction { axis: InnerAxis::D0, .. }) => None,
            FlowOp::Reduction(Reduction { axis: InnerAxis::D1, every: None, .. }) => None,
            FlowOp::Reduction(Reduction { axis: InnerAxis::D1, every: Some(_), .. })
            | FlowOp::Rearrange(Rearrange::Transpose) => {
                if self.deals(id) || operands.any(|dealt| dealt) {
                    moves()
                } else {
                    None
                }
            }
            FlowOp::Rearrange(Rearrange::Reshape(_)) => {
                if self.deals(id) != dealt(0) || (dealt(0) && self.extents(id) != self.extents(node.operands[0])) {
                    moves()
                } else {
                    None
                }
            }
            FlowOp::Product(ProductOp::Gemv | ProductOp::Gemm) => self.deals(id).then(moves).flatten(),
            FlowOp::Product(ProductOp::Kron([_, along])) => {
                if *along && (self.deals(id) || operands.any(|dealt| dealt)) { moves() } else { None }
            }
            FlowOp::Row(RowOp::Conv1d(_)) if !self.traced.declared.states.is_empty() => {
                Some("looks at blocks whose state another warp may have saved".into())
            }
            FlowOp::Row(_) => None,
        }
    }
}
