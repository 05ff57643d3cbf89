//! The parts that a flow's ops share: the flow by name, the buffers of its memory, and their
//! checks.

use std::sync::Arc;

use tilewright_graph::Graph;
use tilewright_graph::dim::ModelShape;
use tilewright_graph::rows::{FieldId, ParameterId, Source};
use tilewright_layout::DType;
use tilewright_megakernel::ops::{OperandError, Operands, multiple};
use tilewright_megakernel::program::{BufferId, Region, Span};
use tilewright_megakernel::vm::reference::{Context, TaskFault};

use super::registry;
use crate::bind::{BoundFlow, FlowExtents, Parameters};
use crate::flow::Traced;

/// Result of a check.
pub(super) type CheckResult<T> = Result<T, OperandError>;

/// The pools of a layer: `[kv_heads, pages, page_tokens, head_dim]`, with a field's blocks.
#[derive(Clone, Copy)]
pub(super) struct Pools {
    pub kv_heads: usize,
    pub pages: usize,
    pub page_tokens: usize,
    pub head_dim: usize,
    pub block_tokens: usize,
}

impl Pools {
    /// The pools of operands of those names.
    pub fn of(ops: &Operands, [k, v]: [BufferId; 2], block_tokens: usize) -> CheckResult<Pools> {
        let shape @ [kv_heads, pages, page_tokens, head_dim] = ops.pool("k_pool", k)?;
        ops.pool("v_pool", v)?;
        ops.floats_of("v_pool", v, shape)?;
        multiple("page_tokens", page_tokens, block_tokens)?;
        Ok(Pools { kv_heads, pages, page_tokens, head_dim, block_tokens })
    }

    /// The pools of a valid program.
    pub fn found(on: &Context, k_pool: BufferId, block_tokens: usize) -> Result<Pools, TaskFault> {
        let [kv_heads, pages, page_tokens, head_dim] = on.shape(k_pool)?;
        Ok(Pools { kv_heads, pages, page_tokens, head_dim, block_tokens })
    }

    /// Blocks of a page.
    pub fn per_page(&self) -> usize {
        self.page_tokens / self.block_tokens.max(1)
    }

    /// All of a kv head.
    pub fn region(&self, pool: BufferId, kv_head: usize) -> Region {
        let spans = [Span::one(kv_head), Span::all(self.pages), Span::all(self.page_tokens), Span::all(self.head_dim)];
        Region::new(pool, &spans)
    }

    fn field_region(&self, field: BufferId, kv_head: usize, elements: usize) -> Region {
        let spans = [Span::one(kv_head), Span::all(self.pages), Span::all(self.per_page()), Span::all(elements)];
        Region::new(field, &spans)
    }

    /// The index of a block of a kv head among those of all kv heads.
    pub fn block(&self, kv_head: usize, block: usize) -> usize {
        kv_head * self.pages * self.per_page() + block
    }

    fn model(&self, group: usize) -> ModelShape {
        let Pools { kv_heads, head_dim, block_tokens, .. } = *self;
        ModelShape { kv_heads, group, head_dim, block_tokens }
    }
}

/// A flow in a layer: what it keeps, and where.
pub(super) struct LayerFlow {
    pub traced: Arc<Traced>,
    pub extents: FlowExtents,
    pub pools: Pools,
}

fn refused(operand: &'static str, problem: impl ToString) -> OperandError {
    OperandError::Refused { operand, problem: problem.to_string() }
}

/// Elements of `[d0, d1]`.
pub(super) fn elements([d0, d1]: [usize; 2]) -> usize {
    d0 * d1
}

impl LayerFlow {
    /// The flow of that name in a layer with these pools.
    pub fn new(name: &str, pools: Pools, group: usize) -> CheckResult<LayerFlow> {
        let unknown = || refused("flow", format!("there is no flow `{name}`; register it before its program is read"));
        let traced = registry::flow(name).ok_or_else(unknown)?;
        let extents = traced.extents(&pools.model(group)).map_err(|error| refused("flow", error))?;
        Ok(LayerFlow { traced, extents, pools })
    }

    /// Checks the buffers of all fields, `[kv_heads, pages, blocks of a page, elements]`, and gives
    /// a kv head's regions.
    pub fn fields(&self, ops: &Operands, fields: &[BufferId], kv_head: usize) -> CheckResult<Vec<Region>> {
        let Pools { kv_heads, pages, .. } = self.pools;
        self.count("fields", fields.len(), self.extents.fields.len())?;
        let each = fields.iter().zip(&self.extents.fields);
        each.map(|(&field, &shape)| {
            ops.pool_of("fields", field, [kv_heads, pages, self.pools.per_page(), elements(shape)])?;
            Ok(self.pools.field_region(field, kv_head, elements(shape)))
        })
        .collect()
    }

    /// Checks the buffers of all parameters, f32 `[kv_heads, elements]`, and gives a kv head's
    /// regions of those that a pass reads.
    pub fn parameters(
        &self,
        ops: &Operands,
        graph: &Graph,
        parameters: &[BufferId],
        kv_head: usize,
    ) -> CheckResult<Vec<Region>> {
        self.count("parameters", parameters.len(), self.extents.parameters.len())?;
        let mut regions = Vec::new();
        for (at, (&parameter, &shape)) in parameters.iter().zip(&self.extents.parameters).enumerate() {
            ops.exactly("parameters", parameter, DType::F32, [self.pools.kv_heads, elements(shape)])?;
            if graph.loads(Source::Parameter(ParameterId(at as u32))) {
                regions.push(Region::new(parameter, &[Span::one(kv_head), Span::all(elements(shape))]));
            }
        }
        Ok(regions)
    }

    /// Whether a pass reads a field.
    pub fn reads_field(&self, graph: &Graph, field: usize) -> bool {
        graph.loads(Source::Field(FieldId(field as u32)))
    }

    /// A kv head's regions of the pools that a pass reads.
    pub fn tokens(&self, graph: &Graph, pools: [BufferId; 2], kv_head: usize) -> Vec<Region> {
        let read = [Source::Keys, Source::Values].into_iter().zip(pools).filter(|(source, _)| graph.loads(*source));
        read.map(|(_, pool)| self.pools.region(pool, kv_head)).collect()
    }

    /// Checks that the number of buffers is that of the flow's declarations.
    pub fn count(&self, operand: &'static str, found: usize, expected: usize) -> CheckResult<()> {
        let problem = || format!("{found} buffers; flow `{}` declares {expected}", self.traced.name);
        if found == expected { Ok(()) } else { Err(refused(operand, problem())) }
    }

    /// Calls `then` with the flow bound to one kv head, with the parameters that a pass reads.
    pub fn bound<R>(
        &self,
        on: &Context,
        graph: &Graph,
        parameters: &[BufferId],
        kv_head: usize,
        then: impl FnOnce(&BoundFlow<'_>) -> Result<R, TaskFault>,
    ) -> Result<R, TaskFault> {
        let mut values = Parameters::new();
        for (at, (&parameter, declared)) in parameters.iter().zip(&self.traced.declared.parameters).enumerate() {
            let count = elements(self.extents.parameters[at]);
            // A pass does not see parameters that it does not read.
            let read = match graph.loads(Source::Parameter(ParameterId(at as u32))) {
                true => on.read(parameter, kv_head * count, count)?.into_iter().map(f64::from).collect(),
                false => vec![f64::NAN; count],
            };
            values.insert(declared.name.clone(), read);
        }
        let model = ModelShape { kv_heads: 1, ..self.extents.model };
        let bound = self.traced.bind(&model, &values).map_err(|error| TaskFault::Refused(error.to_string()))?;
        then(&bound)
    }
}
