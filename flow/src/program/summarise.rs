//! The op that keeps something of each block when its last token comes.

use serde::{Deserialize, Serialize};
use tilewright_graph::rows::Source;
use tilewright_megakernel::ops::{Access, Footprint, OperandError, Operands, RowCells, TaskOp, index};
use tilewright_megakernel::program::{BufferId, Span};
use tilewright_megakernel::vm::reference::{Context, TaskFault};

use super::subject::{LayerFlow, Pools, elements};
use crate::memory::FlowPool;
use crate::run::{Complete, FlowExecutor, Interpreter};

/// Stores the fields of each block of a kv head that this step completes: for every row whose
/// position is the last of a block, [`Flow::forward_cache`](crate::Flow::forward_cache) of that
/// block, on its keys and values as the pools hold them.
///
/// Fields depend on tokens alone and are stored with the keys: `[kv_heads, pages, blocks of a page,
/// d0·d1]`, so that sequences that share a page share them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summarise {
    /// Name of the flow.
    pub flow: String,
    /// Tokens of a block.
    pub block_tokens: usize,
    /// Query heads of a kv head.
    pub group: usize,
    /// Key pool, `[kv_heads, pages, page_tokens, head_dim]`.
    pub k_pool: BufferId,
    /// Value pool, the same extents.
    pub v_pool: BufferId,
    /// The step inputs that locate rows' tokens.
    pub at: RowCells,
    /// The kv head.
    pub kv_head: usize,
    /// Rows that this task looks at.
    pub rows: Span,
    /// The fields, in the order of their declarations.
    pub fields: Vec<BufferId>,
    /// The parameters, in the order of their declarations, f32 `[kv_heads, d0·d1]`.
    pub parameters: Vec<BufferId>,
}

impl Summarise {
    fn pools(&self) -> [BufferId; 2] {
        [self.k_pool, self.v_pool]
    }
}

impl TaskOp for Summarise {
    fn name() -> &'static str {
        "flow_summarise"
    }

    fn footprint(&self, ops: &Operands) -> Result<Footprint, OperandError> {
        let pools = Pools::of(ops, self.pools(), self.block_tokens)?;
        index("kv_head", self.kv_head, pools.kv_heads)?;
        let subject = LayerFlow::new(&self.flow, pools, self.group)?;
        let graph = &subject.traced.cache;
        let [count] = ops.shape("position", self.at.position)?;
        tilewright_megakernel::ops::interval("rows", self.rows, count)?;
        let mut reads = subject.tokens(graph, self.pools(), self.kv_head);
        reads.extend(self.at.footprint(ops, self.rows, count)?);
        reads.extend(subject.parameters(ops, graph, &self.parameters, self.kv_head)?);
        let writes = subject.fields(ops, &self.fields, self.kv_head)?;
        Ok(Footprint::new(reads, writes).cells(self.at.cells(ops, &[self.k_pool])?))
    }

    fn oracle(&self, on: &Context) -> Result<(), TaskFault> {
        let pools = Pools::found(on, self.k_pool, self.block_tokens)?;
        let subject =
            LayerFlow::new(&self.flow, pools, self.group).map_err(|error| TaskFault::Refused(error.to_string()))?;
        let graph = &subject.traced.cache;
        subject.bound(on, graph, &self.parameters, self.kv_head, |bound| {
            let interpreter = Interpreter::new(bound);
            for row in self.rows.iter() {
                let Some(position) = on.position(self.at.position, row)? else { continue };
                if !(position + 1).is_multiple_of(self.block_tokens) {
                    continue;
                }
                let last = on.slot(self.at.page_table, row, position, self.kv_head, on.pool_shape(self.k_pool)?)?;
                let tokens = self.block_tokens * pools.head_dim;
                let first = last + pools.head_dim - tokens;
                let block = last / tokens;
                let of = |source, pool| match graph.loads(source) {
                    true => on.read(pool, first, tokens),
                    false => Ok(Vec::new()),
                };
                let keys = of(Source::Keys, self.k_pool)?;
                let values = of(Source::Values, self.v_pool)?;
                let fields = bound.extents.fields.iter().map(|&shape| vec![f32::NAN; elements(shape)]).collect();
                let mut gathered = FlowPool::gathered(bound, 1, keys, values, fields);
                let summarised = interpreter.summarise(&mut gathered, Complete { block: 0, head: 0 });
                summarised.map_err(|error| TaskFault::Refused(error.to_string()))?;
                for (&field, values) in self.fields.iter().zip(&gathered.fields) {
                    on.write(field, block * values.len(), values)?;
                }
            }
            Ok(())
        })
    }

    fn accesses(&self) -> Vec<Access> {
        Access::weights(self.parameters.iter().copied()).collect()
    }
}
