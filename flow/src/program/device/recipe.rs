//! A pass of a flow as what a device records: its graph, the extents of its values, and whether
//! lanes can compute them.

use std::fmt;
use std::sync::Arc;

use tilewright_graph::Graph;
use tilewright_graph::graph::ValueId;
use tilewright_graph::op::Op;
use tilewright_graph::rows::{FieldId, InnerAxis, ProductOp, Rearrange, Reduction, RowOp, Source};
use tilewright_layout::DType;

use super::linear::{Finder, LinearValue, is_of_row};
use super::registers;
use super::spread::Spread;
use crate::FlowPass;
use crate::bind::FlowExtents;
use crate::error::BindError;
use crate::flow::Traced;

/// A pass of a flow for a model.
#[derive(Clone)]
pub(super) struct PassRecipe {
    traced: Arc<Traced>,
    pass: FlowPass,
    extents: Vec<[usize; 2]>,
    scales: Vec<f32>,
    /// The distribution of rows over lanes.
    pub spread: Spread,
    /// The values of blocks that tensor cores compute.
    linear: Vec<LinearValue>,
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
        let graph = traced.graph(pass);
        let extents = all.of(pass);
        let scale = |op: &Op| match op {
            Op::OverBlocks { over: RowOp::Softmax(scale), .. }
            | Op::Product { product: ProductOp::LearnedQuery(scale), .. } => scale.bind(&all.model),
            _ => Ok(1.0),
        };
        let scales = graph.steps().map(|step| scale(step.op).map(|scale| scale as f32)).collect::<Result<_, _>>()?;
        let linear = Vec::new();
        Ok(PassRecipe { traced: Arc::clone(traced), pass, extents: extents.to_vec(), scales, spread, linear })
    }

    /// The recipe with its sums of products on tensor cores, if it has such; its rows lie in lanes
    /// as these need them.
    pub fn by_products(&self) -> Option<PassRecipe> {
        let spread = registers::spread(self.spread.dim)?;
        let is_bf16 = |field: FieldId| self.traced.declared.fields[field.index()].dtype == DType::BF16;
        let finder = Finder {
            graph: self.graph(),
            extents: &self.extents,
            dim: spread.dim as usize,
            is_operand: &|source| matches!(source, Source::Field(field) if is_bf16(field)),
        };
        let mut registers = 0;
        let mut linear: Vec<LinearValue> = self.graph().ids().filter_map(|id| finder.find(id)).collect();
        linear.retain(|linear| {
            let more = registers::weights_registers(linear, spread);
            let fits = registers + more <= registers::MOST_WEIGHTS;
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
    pub fn graph(&self) -> &Graph {
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
        is_of_row(self.graph().row(id).format)
    }

    /// The values to load for a block before it is computed, if some values are known already.
    pub fn of_block(&self, is_known: &dyn Fn(ValueId) -> bool) -> Vec<ValueId> {
        let graph = self.graph();
        let mut is_needed = vec![false; graph.ids().count()];
        graph.effects().into_iter().for_each(|id| is_needed[id.index()] = true);
        for id in graph.ids().collect::<Vec<_>>().into_iter().rev() {
            if is_needed[id.index()] && !is_known(id) {
                graph.operands(id).iter().for_each(|operand| is_needed[operand.index()] = true);
            }
        }
        let is_loaded = |id: &ValueId| {
            is_needed[id.index()] && matches!(*graph.op(*id), Op::Load { from: Source::Field(_) | Source::State(_) })
        };
        graph.ids().filter(is_loaded).collect()
    }

    /// Whether the pass stores a field.
    pub fn stores(&self, field: usize) -> bool {
        let is_store = |op: &Op| matches!(op, Op::Store { to: Source::Field(id), .. } if id.index() == field);
        self.graph().steps().any(|step| is_store(step.op))
    }

    /// The ops across the blocks of a row that must have seen all blocks before their value is
    /// used, in order.
    pub fn across(&self) -> Vec<ValueId> {
        self.graph().ids().filter(|id| self.gathers(*id)).collect()
    }

    /// Whether a value is known when an op across blocks has seen all of them.
    pub fn gathers(&self, id: ValueId) -> bool {
        matches!(self.graph().op(id), Op::OverBlocks { over, .. } if !matches!(over, RowOp::Conv1d(_)))
    }

    /// Why lanes cannot compute the pass, if they cannot.
    pub fn refusal(&self) -> Option<String> {
        self.graph().ids().find_map(|id| {
            let why = self.refuses(id)?;
            let flow = &self.traced.name;
            let op = self.graph().op(id).name();
            Some(format!("op `{op}` of flow `{flow}` {why}"))
        })
    }

    /// Whether no lane holds a value: weights of learned queries.
    fn is_shared(&self, id: ValueId) -> bool {
        let mut readers =
            self.graph().steps().filter(|step| step.op.operands().iter().any(|(_, operand)| *operand == id));
        readers.all(|step| matches!(*step.op, Op::Product { x, product: ProductOp::LearnedQuery(_), .. } if x != id))
    }

    fn refuses(&self, id: ValueId) -> Option<String> {
        /// Most elements of a value that each lane holds.
        const MOST: u32 = 1024;
        let operands_of = self.graph().operands(id);
        let dim = self.spread.dim;
        let dealt = |which: usize| self.deals(operands_of[which]);
        let mut operands = (0..operands_of.len()).map(dealt);
        let moves = || Some(format!("moves elements of rows of {dim}, which lie in several lanes"));
        if !self.deals(id) && self.held(id) > MOST && !self.is_shared(id) {
            return Some(format!("gives {} elements, and a lane holds {MOST}", self.held(id)));
        }
        match self.graph().op(id) {
            Op::Load { .. } | Op::Fill { .. } | Op::Store { .. } | Op::Select { .. } | Op::Elementwise { .. } => None,
            Op::Product { product: ProductOp::LearnedQuery(_), .. } => None,
            Op::Reduce { reduction: Reduction { axis: InnerAxis::D0, .. }, .. } => None,
            Op::Reduce { reduction: Reduction { axis: InnerAxis::D1, every: None, .. }, .. } => None,
            Op::Reduce { reduction: Reduction { axis: InnerAxis::D1, every: Some(_), .. }, .. }
            | Op::Rearrange { to: Rearrange::Transpose, .. } => {
                if self.deals(id) || operands.any(|dealt| dealt) {
                    moves()
                } else {
                    None
                }
            }
            Op::Rearrange { to: Rearrange::Reshape(_), .. } => {
                if self.deals(id) != dealt(0) || (dealt(0) && self.extents(id) != self.extents(operands_of[0])) {
                    moves()
                } else {
                    None
                }
            }
            Op::Product { product: ProductOp::Gemv | ProductOp::Gemm, .. } => self.deals(id).then(moves).flatten(),
            Op::Product { product: ProductOp::Kron([_, along]), .. } => {
                if *along && (self.deals(id) || operands.any(|dealt| dealt)) { moves() } else { None }
            }
            Op::OverBlocks { over: RowOp::Conv1d(_), .. } if !self.traced.declared.states.is_empty() => {
                Some("looks at blocks whose state another warp may have saved".into())
            }
            Op::OverBlocks { .. } => None,
            _ => Some("is not an op on rows of blocks".into()),
        }
    }
}
