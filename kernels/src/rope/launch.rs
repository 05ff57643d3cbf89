//! The kernel: a block for each row.

use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::{Arch, Kernel};

use super::{HeadNorm, HeadRotation, Rotation, rope};
use crate::kv::{PageTable, PagedPool, SplitPages, StepScalars};
use crate::tile::{Array, Float};
use crate::warps::ConsumerWarps;

/// The shapes and types that the kernel is specialised for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeShape {
    /// Heads of a row.
    pub heads: u32,
    /// Dimensions of a head, even; all of them are rotated.
    pub dim: u32,
    /// The head norm's eps, if heads are normalised before.
    pub norm: Option<f32>,
    /// Whether all heads of a row have one mean square.
    pub together: bool,
    /// Pages of the pool, tokens of a page and entries of a row of the page table, where the result
    /// is appended to pages.
    pub pages: Option<[u32; 3]>,
    /// Type of the input.
    pub x: Float,
    /// Type of the output.
    pub out: Float,
    /// Warps of a block.
    pub warps: u32,
}

/// The kernel `rope`: the heads of row r of `x`, `[rows, heads, dim]`, normalised and rotated for
/// `position[r]`, for the row r of block r. Without pages `out` is as `x`, and rows with a position
/// below 0 become zeros; with pages it is the pool `[heads, pages, page_tokens, dim]`, and such
/// rows append nothing.
///
/// Parameters: `x`, `weight` (f32 `[dim]`, of heads together `[heads, dim]`; not looked at without a norm), `turns` (cosines and
/// sines, f32 `[positions, dim / 2, 2]`), `position` (i32), `page_table` (i32 `[rows, width]`, not
/// looked at without pages), `out`.
pub fn rope_rows(arch: Arch, shape: RopeShape) -> Kernel {
    record("rope", arch, block(shape.warps * 32), |k| {
        let [x, weight] = ["x", "weight"].map(|name| k.global::<u8>(name));
        let rotation = Rotation { table: k.global::<f32>("turns"), half: shape.dim / 2 };
        let position = k.global::<i32>("position");
        let table = k.global::<i32>("page_table");
        let out = Array::new(k.global::<u8>("out"), shape.out);
        let [pages, page_tokens, table_width] = shape.pages.unwrap_or([1; 3]);
        let pages = PagedPool {
            pool: out.into(),
            pages: k.lit(pages),
            page_tokens,
            dim: shape.dim,
            position: StepScalars::Global(position),
            table: PageTable { cells: StepScalars::Global(table), width: k.lit(table_width), near: None },
            split_pages: SplitPages::ANY,
        };
        let work = HeadRotation {
            x: Array::new(x, shape.x),
            part: None,
            norm: shape.norm.map(|eps| HeadNorm {
                weight: Array::new(weight, Float::F32),
                eps,
                together: shape.together.then_some(shape.heads),
            }),
            rotation: Some(rotation),
            heads: shape.heads,
            out_heads: shape.heads,
            first_head: k.lit(0),
            count: shape.heads,
            rows: 1,
            first_row: k.block_id(),
            pages,
            out: shape.pages.is_none().then_some(out),
        };
        rope(ConsumerWarps::new(k, shape.warps), work);
    })
}
