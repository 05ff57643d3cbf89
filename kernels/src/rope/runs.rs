//! The kernel that finishes the heads of a stacked projection: queries, keys and values of a row, a
//! block for each row.

use tilewright_codegen::build::{Val, block, record};
use tilewright_codegen::ir::{Arch, Kernel};

use super::{HeadNorm, HeadRotation, Rotation, rope};
use crate::kv::{PageTable, PagedPool, PoolArray, PoolType, SplitPages, StepScalars};
use crate::pdl::trigger_and_wait;
use crate::tile::{Array, Float};
use crate::warps::ConsumerWarps;

/// Heads that follow each other in a row, and what becomes of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadRun {
    /// The first of them in the row.
    pub first: u32,
    /// The number of heads.
    pub heads: u32,
    /// The norm's eps and the type of its weight, if heads are normalised before.
    pub norm: Option<(f32, Float)>,
    /// Whether the heads of the run have one mean square.
    pub together: bool,
    /// Whether they are rotated.
    pub rotated: bool,
    /// Whether they are appended to the pages; else they are stored, `[rows, heads, dim]`.
    pub paged: bool,
    /// The type of the result; codes only in pages.
    pub out: PoolType,
}

/// The shapes and types that the kernel is specialised for.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadRuns {
    /// Heads of a row of the input.
    pub heads: u32,
    /// Dimensions of a head, even; all of them are rotated.
    pub dim: u32,
    /// Tokens of a page.
    pub page_tokens: u32,
    /// Type of the input.
    pub x: Float,
    /// The runs.
    pub runs: Vec<HeadRun>,
    /// Warps of a block.
    pub warps: u32,
}

/// The kernel `rope_runs`: the runs of row r of `x`, `[rows, heads, dim]`, normalised and rotated
/// for `position[r]`, stored or appended, for the row r of block r. A row with a position below 0
/// stores zeros and appends nothing.
///
/// Parameters: `x`, `turns` (cosines and sines, f32 `[positions, dim / 2, 2]`), `position` (i32),
/// `page_table` (i32 `[rows, width]`), `table_width`, `pages` (of the pools); then for each run its
/// `weight`, where it has a norm, and its `out`: rows, or a pool `[heads, pages, page_tokens, dim]`
/// in the order of [`swizzled`](crate::kv::swizzled), of codes with their `scale` after it.
///
/// ```
/// use tilewright_codegen::ir::Arch;
/// use tilewright_kernels::{kv::PoolType, rope::{HeadRun, HeadRuns, rope_runs}, tile::Float};
/// let out = PoolType::Float(Float::Bf16);
/// let query = HeadRun { first: 0, heads: 4, norm: None, together: false, rotated: true, paged: false, out };
/// let key = HeadRun { first: 4, heads: 1, paged: true, ..query };
/// let value = HeadRun { first: 5, rotated: false, ..key };
/// let runs = vec![query, key, value];
/// let heads = HeadRuns { heads: 6, dim: 64, page_tokens: 64, x: Float::Bf16, runs, warps: 4 };
/// assert_eq!(rope_runs(Arch::Sm90a, &heads).params.len(), 9);
/// ```
pub fn rope_runs(arch: Arch, shape: &HeadRuns) -> Kernel {
    record("rope_runs", arch, block(shape.warps * 32), |k| {
        let x = Array::new(k.global::<u8>("x"), shape.x);
        let rotation = Rotation { table: k.global::<f32>("turns"), half: shape.dim / 2 };
        let position = k.global::<i32>("position");
        let table = k.global::<i32>("page_table");
        let [table_width, pages]: [Val<'_, u32>; 2] = [k.param("table_width"), k.param("pages")];
        trigger_and_wait(k);
        for (number, run) in shape.runs.iter().enumerate() {
            let weight = |(eps, float)| HeadNorm {
                weight: Array::new(k.global(&format!("weight{number}")), float),
                eps,
                together: run.together.then_some(run.heads),
            };
            let norm = run.norm.map(weight);
            let out = k.global::<u8>(&format!("out{number}"));
            let (rows, pool) = match run.out {
                PoolType::Float(float) => (Some(Array::new(out, float)), Array::new(out, float).into()),
                PoolType::E4m3 => (None, PoolArray::E4m3 { codes: out, scale: k.param(&format!("scale{number}")) }),
            };
            let pages = PagedPool {
                pool,
                pages,
                page_tokens: shape.page_tokens,
                dim: shape.dim,
                position: StepScalars::Global(position),
                table: PageTable { cells: StepScalars::Global(table), width: table_width, near: None },
                split_pages: SplitPages::ANY,
            };
            let heads = HeadRotation {
                x: x.from(k.lit(run.first * shape.dim)),
                part: None,
                norm,
                rotation: run.rotated.then_some(rotation),
                heads: shape.heads,
                out_heads: run.heads,
                first_head: k.lit(0),
                count: run.heads,
                rows: 1,
                first_row: k.block_id(),
                pages,
                out: rows.filter(|_| !run.paged),
            };
            rope(ConsumerWarps::new(k, shape.warps), heads);
        }
    })
}
