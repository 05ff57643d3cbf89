//! Pages of keys and values that do not come through the ring, on their way to L2 before attention
//! comes to them.
//!
//! Tokens of earlier steps depend on nothing of this one. The current token's page is prefetched
//! too: L2 is where its writer's stores end.

use tilewright_codegen::build::Val;
use tilewright_kernels::attention::split::Shares;

use super::context::KernelContext;
use super::task::TaskView;
use crate::vm::device::{Opcode, TokenStream};

/// Asks for the pages that a task of attention will read.
pub(super) fn prefetch_pages<'k>(context: KernelContext<'k, '_>, opcodes: &[Opcode], task: TaskView<'k>) {
    let k = context.k;
    if !context.shape.options.prefetch_pages || context.shape.cells.is_none() {
        return;
    }
    for (opcode, function) in opcodes.iter().enumerate() {
        let Some(tokens) = function.tokens() else { continue };
        k.when(task.opcode().eq(opcode as u32), || {
            k.for_(0u32, tokens.rows, |row| pages(context, task, task.value(tokens.fields.first_row) + row, &tokens));
        });
    }
}

/// Asks for a row's pages of both pools.
fn pages<'k>(context: KernelContext<'k, '_>, task: TaskView<'k>, row: Val<'k, u32>, of: &TokenStream) {
    let k = context.k;
    let pools = of.pools;
    let (position, table) = context.cells.of_step(pools);
    let shares = Shares::of(position.load(row), pools.page_tokens, of.splits, pools.split_pages, of.window);
    let [begin, end] = shares.pages_of(task.value(of.fields.split));
    let bytes = pools.page_tokens * pools.dim * pools.of.bytes();
    let asked = of.fields.pools.map(|field| task.operand(context.memory.pools, field));
    k.for_(begin, end, |at| {
        let page = table.page(row, at);
        let offset = (task.value(of.fields.kv_head) * context.pages + page).mul_wide(bytes);
        asked.iter().for_each(|pool| pool.at(offset).bulk_prefetch(bytes));
    });
}
