//! The weighted sum of the chosen experts' results, which may be added to the residual stream.

use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::{Arch, Kernel};

use super::sort::NO_PLACE;
use crate::pdl::trigger_and_wait;
use crate::tile::{Float, Modes, StoredTensor};

/// The sizes and types that the kernel is specialised for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SumShape {
    /// Elements of a row.
    pub width: u32,
    /// Experts of a row.
    pub chosen: u32,
    /// Type of the results.
    pub y: Float,
    /// Type of the output, and of the residual stream.
    pub out: Float,
    /// Whether the sum is added to a residual stream.
    pub residual: bool,
    /// Whether results lie by expert, so that the place of each choice is read; otherwise they lie
    /// by row and choice, as a scattering product writes them.
    pub inverse: bool,
    /// Warps of a block.
    pub warps: u32,
}

/// The kernel `weighted_sum`: `out[r] = residual[r] + Σ_j weights[r, j] · y[r, j]` for the row `r`
/// of block `r`, in f32, `j` from 0 on; without the first term where there is no residual stream.
///
/// Parameters: `y` (`[places, width]`), `weights` (f32, `[rows, chosen]`), `inverse` (u32, `[rows,
/// chosen]`) where asked for, `residual` where asked for, and `out` (both `[rows, width]`), which may
/// be one buffer. A choice with no place counts as zero. Buffers are aligned to 16 bytes.
///
/// ```
/// use tilewright_codegen::ir::Arch;
/// use tilewright_kernels::route::{SumShape, weighted_sum_rows};
/// use tilewright_kernels::tile::Float;
/// let shape = SumShape { width: 2048, chosen: 8, y: Float::Bf16, out: Float::F32, residual: true, inverse: false, warps: 8 };
/// assert_eq!(weighted_sum_rows(Arch::Sm90a, shape).name, "weighted_sum");
/// ```
pub fn weighted_sum_rows(arch: Arch, shape: SumShape) -> Kernel {
    if shape.width.is_multiple_of(4) { rows::<4>(arch, shape) } else { rows::<1>(arch, shape) }
}

/// The kernel, by vectors of `N` elements.
fn rows<const N: usize>(arch: Arch, shape: SumShape) -> Kernel {
    let SumShape { width, chosen, y, out, residual, inverse, warps } = shape;
    record("weighted_sum", arch, block(32 * warps), |k| {
        trigger_and_wait(k);
        let results = k.global::<u8>("y");
        let weights = k.global::<f32>("weights");
        let inverse = inverse.then(|| k.global::<u32>("inverse"));
        let residual = residual.then(|| k.global::<u8>("residual"));
        let to = k.global::<u8>("out");
        let row = k.block_id();
        let run = |base, float: Float, row| {
            let rows = Modes::row_major([(1 << 31).into(), width.into()], width).vectors(N as u32);
            StoredTensor::new(base, float, rows).inside().slice::<1>([Some(row), None]).vectorize::<0, N>()
        };
        let choices: Vec<_> = (0..chosen)
            .map(|j| {
                let at = row * chosen + j;
                let weight = weights.at(at).load();
                let place = inverse.map_or(at, |inverse| inverse.at(at).load());
                (place, weight)
            })
            .collect();
        let residual = residual.map(|base| run(base, out, row.into()));
        let to = run(to, out, row.into());
        k.for_step(k.tid(), width / N as u32, k.threads(), |at| {
            let mut sum = [k.lit(0.0f32); N];
            for &(place, weight) in &choices {
                let exists = place.ne(NO_PLACE);
                let here = if inverse.is_some() { exists.select(place, 0u32) } else { place };
                let found = run(results, y, here.into()).load([at.into()]);
                let added: [_; N] = std::array::from_fn(|i| weight.fma(found[i], sum[i]));
                let kept = |i: usize| if inverse.is_some() { exists.select(added[i], sum[i]) } else { added[i] };
                sum = std::array::from_fn(kept);
            }
            if let Some(residual) = residual {
                let residual = residual.load([at.into()]);
                sum = std::array::from_fn(|i| residual[i] + sum[i]);
            }
            to.store([at.into()], sum);
        });
    })
}
