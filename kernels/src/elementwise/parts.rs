//! Sums of parts: rows of some arrays, added up into rows of another. Of one array, a copy.

use tilewright_codegen::build::{Builder, Val, block, record};
use tilewright_codegen::ir::{Arch, Kernel};

use crate::early::early;
use crate::tile::{Array, Float};
use crate::warps::ConsumerWarps;

/// Warps of a block.
const WARPS: u32 = 8;

/// What the kernel is generated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartsShape {
    /// Arrays that are added, at least one.
    pub parts: u32,
    /// Elements of a row.
    pub width: u32,
    /// From a row of a part to the next, and from a row of the sum to the next, elements.
    pub strides: [u32; 2],
    /// Types of the parts and of the sum.
    pub types: [Float; 2],
    /// Elements of a load: 4 where width, strides and the places of all arrays are multiples of four elements, else 1.
    pub vector: u32,
}

/// The kernel `sum_parts`: `out[r, c] = (part0[r, c] + part1[r, c]) + ..`, in f32 and in this order, for the row r of block r. Parameters:
/// `part0`, `part1` and so on, `out`. The arrays may be other devices'.
pub fn sum_parts(arch: Arch, shape: PartsShape) -> Kernel {
    record("sum_parts", arch, block(WARPS * 32), |k: &Builder| {
        let array = |name: &str, float| Array::new(k.global::<u8>(name), float);
        let parts: Vec<Array> = (0..shape.parts).map(|part| array(&format!("part{part}"), shape.types[0])).collect();
        let out = array("out", shape.types[1]);
        early(k);
        let [from, to] = shape.strides.map(|stride| k.block_id() * stride);
        ConsumerWarps::new(k, WARPS).each(shape.width / shape.vector, |at| {
            let column = at * shape.vector;
            if shape.vector == 4 {
                let loaded: Vec<[Val<'_, f32>; 4]> = parts.iter().map(|part| part.load4(from + column)).collect();
                let of = |i: usize| sum(loaded.iter().map(|part| part[i]).collect());
                out.store_run(to + column, std::array::from_fn::<_, 4, _>(|i| of(i).unwrap_or_else(|| k.lit(0.0f32))));
            } else {
                let loaded = parts.iter().map(|part| part.load(from + column)).collect();
                out.store(to + column, sum(loaded).unwrap_or_else(|| k.lit(0.0f32)));
            }
        });
    })
}

/// The sum of some numbers, in their order.
fn sum<'k>(values: Vec<Val<'k, f32>>) -> Option<Val<'k, f32>> {
    values.into_iter().reduce(|sum, value| sum + value)
}
