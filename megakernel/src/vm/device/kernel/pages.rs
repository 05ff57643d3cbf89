//! What does not come through the ring, on its way to level two before the team comes to it: pages of keys and values, weights of norms.
//!
//! Tokens of earlier steps depend on nothing of this one. The newest token's page is asked for too: level two is where its
//! writer's stores end. Weights of a norm are read by every block as soon as its activations are there; memory that is busy with
//! the stages of all blocks would give them last.

use tilewright_codegen::build::Val;
use tilewright_kernels::attention::split::Shares;

use super::Kit;
use super::table::TaskView;
use crate::vm::device::TokenStream;

/// Asks for the pages that a task of attention will read.
pub(super) fn ask_for_pages<'k>(kit: Kit<'k, '_>, task: TaskView<'k>) {
    let k = kit.k;
    if !kit.plan.options.pages_ahead || kit.plan.cells.is_none() {
        return;
    }
    for (opcode, function) in kit.plan.opcodes.iter().enumerate() {
        let Some(tokens) = function.tokens().filter(|tokens| tokens.stage.is_none()) else { continue };
        k.when(task.opcode().eq(opcode as u32), || {
            k.for_(0u32, tokens.rows, |row| pages(kit, task, task.value(tokens.fields.first_row) + row, &tokens));
        });
    }
}

/// Asks for the weights that every block will read as they are: each block for its share of the lines.
pub(super) fn ask_for_first<'k>(kit: Kit<'k, '_>, task: TaskView<'k>) {
    let k = kit.k;
    if !kit.plan.asks_for_norms() {
        return;
    }
    for (opcode, function) in kit.plan.opcodes.iter().enumerate() {
        let Some(first) = function.read_first().filter(|first| first.bytes.is_multiple_of(16)) else { continue };
        k.when(task.opcode().eq(opcode as u32), || {
            let start = task.operand(kit.memory.plain, first.field);
            k.for_step(k.block_id(), first.bytes / LINE, kit.plan.blocks, |line| {
                start.at(line * LINE).bulk_prefetch(LINE)
            });
            k.when(k.block_id().eq(0), || {
                if !first.bytes.is_multiple_of(LINE) {
                    start.at(first.bytes / LINE * LINE).bulk_prefetch(first.bytes % LINE);
                }
            });
        });
    }
}

/// Bytes of a line of level two.
const LINE: u32 = 128;

/// Asks for a row's pages of both pools.
fn pages<'k>(kit: Kit<'k, '_>, task: TaskView<'k>, row: Val<'k, u32>, of: &TokenStream) {
    let (k, pools) = (kit.k, of.pools);
    let (position, table) = kit.cells.of_step(pools);
    let shares = Shares::of(position.load(row), pools.page_tokens, of.splits, pools.split_pages);
    let begin = task.value(of.fields.split) * shares.each;
    let end = (begin + shares.each).min(shares.pages).max(begin);
    let bytes = pools.page_tokens * pools.dim * pools.of.bytes();
    let asked = of.fields.pools.map(|field| task.operand(kit.memory.pools, field));
    k.for_(begin, end, |at| {
        let page = table.page(row, at);
        let offset = (task.value(of.fields.kv_head) * kit.pages + page).mul_wide(bytes);
        asked.iter().for_each(|pool| pool.at(offset).bulk_prefetch(bytes));
    });
}
