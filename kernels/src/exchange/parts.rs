//! Sums of parts: rows of some arrays, added up into rows of others. Of one array, a copy.

use tilewright_codegen::build::{Builder, Val, block, record};
use tilewright_codegen::ir::{Arch, Kernel};

use crate::pdl::trigger_and_wait;
use crate::tile::{Array, Copies, Float, MAX_DEVICES};
use crate::warps::ConsumerWarps;

/// Warps of a block.
const WARPS: u32 = 8;

/// The shapes and types that the kernel is specialised for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartsShape {
    /// Arrays that are added, at least one.
    pub parts: u32,
    /// Arrays that the sum is stored in, at least one.
    pub copies: u32,
    /// Elements of a row.
    pub width: u32,
    /// The distance from a row of a part to the next, and from a row of the sum to the next, in
    /// elements.
    pub strides: [u32; 2],
    /// Types of the parts and of the sum.
    pub types: [Float; 2],
    /// Elements of a load: as many as 16 bytes have where width, strides and the places of all
    /// arrays are multiples of that, else 1.
    pub vector: u32,
}

impl PartsShape {
    /// The defect of the shape, if there is one.
    fn wrong(self) -> Option<String> {
        let PartsShape { parts, copies, width, strides, types, vector } = self;
        let bytes = types.map(Float::bytes).into_iter().max().unwrap_or(4);
        let most = 16 / bytes;
        if parts == 0 || !(1..=MAX_DEVICES as u32).contains(&copies) {
            return Some(format!(
                "{parts} parts are added up and stored in {copies} arrays: add one at least, and store 1 to {MAX_DEVICES}"
            ));
        }
        if vector != 1 && (vector > most || ![4, 8].contains(&vector)) {
            return Some(format!("loads are of {vector} elements of {bytes} bytes: take 1, or {most}"));
        }
        let whole = [width, strides[0], strides[1]].iter().all(|extent| extent.is_multiple_of(vector));
        (!whole).then(|| {
            format!("rows of {width} elements, {strides:?} apart, are no whole loads of {vector}: take loads of 1")
        })
    }
}

/// The kernel `sum_parts`: `out[r, c] = (part0[r, c] + part1[r, c]) + ..`, in f32 and in this
/// order, for the row r of block r, stored in each copy. A launch's end orders its stores: other
/// devices read them after a [barrier](super::device_barrier). Parameters: `part0`, `part1` and so
/// on, `out0` and so on. The arrays may be other devices'. A shape that makes no sense is refused
/// in the kernel's errors.
pub fn sum_parts(arch: Arch, shape: PartsShape) -> Kernel {
    record("sum_parts", arch, block(WARPS * 32), |k: &Builder| {
        if let Some(wrong) = shape.wrong() {
            return k.refuse(&wrong);
        }
        let array = |name: &str, float| Array::new(k.global::<u8>(name), float);
        let parts: Vec<Array> = (0..shape.parts).map(|part| array(&format!("part{part}"), shape.types[0])).collect();
        let out: Copies = (0..shape.copies).map(|copy| array(&format!("out{copy}"), shape.types[1])).collect();
        trigger_and_wait(k);
        let [from, to] = shape.strides.map(|stride| k.block_id() * stride);
        ConsumerWarps::new(k, WARPS).each(shape.width / shape.vector, |at| {
            let [from, to] = [from, to].map(|row| row + at * shape.vector);
            match shape.vector {
                8 => run::<8>(&parts, from, out, to),
                4 => run::<4>(&parts, from, out, to),
                _ => run::<1>(&parts, from, out, to),
            }
        });
    })
}

/// Sums of `N` consecutive elements.
fn run<'k, const N: usize>(parts: &[Array<'k>], from: Val<'k, u32>, out: Copies<'k>, to: Val<'k, u32>) {
    let loaded: Vec<[Val<'k, f32>; N]> = parts.iter().map(|part| part.load_run(from)).collect();
    let sum = |i: usize| loaded.iter().skip(1).fold(loaded[0][i], |sum, part| sum + part[i]);
    out.store_run(to, std::array::from_fn::<_, N, _>(sum));
}
