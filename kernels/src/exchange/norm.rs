//! The parts of all devices added to rows of the residual stream, and the norm of the sum stored on
//! some: what lies between two products of a layer that several devices share, in one launch.

use tilewright_codegen::build::{Builder, Val, Var, block, record};
use tilewright_codegen::ir::{Arch, Kernel};

use crate::norm::{add_squares, rms_factor};
use crate::pdl::trigger_and_wait;
use crate::tile::{Array, Copies, Float, MAX_DEVICES};
use crate::warps::{ConsumerWarps, store_warp_sum, sum_of_warps};

/// Most warps of a block.
const MOST_WARPS: u32 = 32;
/// Most elements of a row that a thread keeps in registers between the sum and the norm.
const MOST_KEPT: u32 = 64;

/// The point at which the residual stream is added to the sum of the parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResidualAdd {
    /// Before the norm, which is that of the new residual stream: a block's pre-norm.
    #[default]
    BeforeNorm,
    /// After the norm, which is that of the sum: the post-norm of what a block made (Gemma 2).
    AfterNorm,
}

/// The shapes and types that the kernel is specialised for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SumNormShape {
    /// Parts that are added, of one device each.
    pub parts: u32,
    /// Arrays that the result is stored in.
    pub copies: u32,
    /// The point at which the residual stream is added.
    pub residual: ResidualAdd,
    /// Elements of a row.
    pub width: u32,
    /// Type of the parts.
    pub part: Float,
    /// Type of the norm's weight.
    pub weight: Float,
    /// Type of the result.
    pub out: Float,
    /// Added to the mean square.
    pub eps: f32,
}

impl SumNormShape {
    /// Elements of a load of a part: 16 bytes, where rows are whole ones.
    fn vector(self) -> u32 {
        let most = 16 / self.part.bytes();
        if self.width.is_multiple_of(most) { most } else { 1 }
    }

    /// Warps of a block: enough that a thread has one load of a row, as far as a block has room.
    fn warps(self) -> u32 {
        (self.width / self.vector()).div_ceil(32).clamp(1, MOST_WARPS)
    }

    /// The defect of the shape, if there is one.
    fn wrong(self) -> Option<String> {
        let SumNormShape { parts, copies, width, .. } = self;
        if [parts, copies].iter().any(|count| !(1..=MAX_DEVICES as u32).contains(count)) {
            return Some(format!(
                "{parts} parts are added and {copies} results stored: take 1 to {MAX_DEVICES} of each"
            ));
        }
        let rounds = (width / self.vector()).div_ceil(self.warps() * 32);
        (width == 0 || rounds * self.vector() > MOST_KEPT).then(|| {
            let most = MOST_KEPT * MOST_WARPS * 32;
            format!("rows of {width} elements are normalised: take 1 to {most}, from 65537 on a multiple of 16 bytes")
        })
    }
}

/// The kernel `sum_rms_norm`: for the row r of block r,
/// `x[r] = x[r] + ((part0[r] + part1[r]) + ..)` in f32 and in this order, and the RMS norm of it
/// stored in each of `out0`, `out1` and so on. The kernel `sum_post_norm`, which is that of
/// [`ResidualAdd::AfterNorm`], stores there `x[r] + rms_norm((part0[r] + part1[r]) + ..)`; one of
/// the arrays may be `x`, which it reads only. A launch's end orders its stores: other devices read
/// them after a [barrier](super::device_barrier). Parameters: `x` (f32), `part0`, `part1` and so
/// on, `weight`, `out0` and so on, aligned to 16 bytes. Parts and copies may be other devices'. A shape
/// that makes no sense is refused in the kernel's errors.
pub fn sum_rms_norm(arch: Arch, shape: SumNormShape) -> Kernel {
    let warps = shape.warps();
    let name = match shape.residual {
        ResidualAdd::BeforeNorm => "sum_rms_norm",
        ResidualAdd::AfterNorm => "sum_post_norm",
    };
    record(name, arch, block(warps * 32), |k: &Builder| {
        if let Some(wrong) = shape.wrong() {
            return k.refuse(&wrong);
        }
        let x = Array::new(k.global::<u8>("x"), Float::F32);
        let each = |name: &str, count: u32, float| -> Vec<Array> {
            let array = |at: u32| Array::new(k.global::<u8>(&format!("{name}{at}")), float);
            (0..count).map(array).collect()
        };
        let parts = each("part", shape.parts, shape.part);
        let weight = Array::new(k.global::<u8>("weight"), shape.weight);
        let out: Copies = each("out", shape.copies, shape.out).into_iter().collect();
        trigger_and_wait(k);
        let rows = SumNormArrays { k, shape, x, parts, weight, out };
        match shape.vector() {
            8 => rows.run::<8>(),
            4 => rows.run::<4>(),
            _ => rows.run::<1>(),
        }
    })
}

/// The arrays of a launch.
struct SumNormArrays<'k> {
    k: &'k Builder,
    shape: SumNormShape,
    x: Array<'k>,
    parts: Vec<Array<'k>>,
    weight: Array<'k>,
    out: Copies<'k>,
}

impl<'k> SumNormArrays<'k> {
    /// The block's row, by `N` elements at a time.
    fn run<const N: usize>(self) {
        let k = self.k;
        let SumNormShape { width, residual, .. } = self.shape;
        let before = residual == ResidualAdd::BeforeNorm;
        let consumers = ConsumerWarps::new(k, self.shape.warps());
        let row = k.block_id() * width;
        let sums = k.shared("sums", consumers.warps);
        let squares = k.var(0.0f32);
        let mut kept: Vec<[Var<'k, f32>; N]> = Vec::new();
        let items = consumers.items(width / N as u32);
        for item in &items {
            let held: [Var<f32>; N] = std::array::from_fn(|_| k.var(0.0f32));
            item.alone(|| {
                let at = row + item.at * N as u32;
                // All are asked for before any is needed: what lies on a peer takes a microsecond.
                let parts: Vec<[Val<f32>; N]> = self.parts.iter().map(|part| part.load_run(at)).collect();
                let x = before.then(|| self.x.load_run::<N>(at));
                let sum = |i: usize| parts.iter().skip(1).fold(parts[0][i], |sum, part| sum + part[i]);
                let x: [Val<f32>; N] = std::array::from_fn(|i| x.map_or_else(|| sum(i), |x| x[i] + sum(i)));
                if before {
                    self.x.store_run(at, x);
                }
                squares.set(add_squares(squares.get(), x));
                held.iter().zip(x).for_each(|(held, x)| held.set(x));
            });
            kept.push(held);
        }
        store_warp_sum(sums, squares.get());
        consumers.sync();
        let scale = rms_factor(sum_of_warps(sums, consumers.warps, 1), width, self.shape.eps);
        for (item, kept) in items.iter().zip(kept) {
            item.alone(|| {
                let column = item.at * N as u32;
                let weight: [Val<f32>; N] = self.weight.load_run(column);
                let x = (!before).then(|| self.x.load_run::<N>(row + column));
                let normed = |i: usize| kept[i].get() * scale * weight[i];
                let y: [Val<f32>; N] = std::array::from_fn(|i| x.map_or_else(|| normed(i), |x| x[i] + normed(i)));
                self.out.store_run(row + column, y);
            });
        }
    }
}
