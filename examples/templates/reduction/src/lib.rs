//! A fused residual sum and RMS norm: `h = x + residual`, `out = h · weight / √(mean(h²) + eps)`, a
//! block a row.

use half::bf16;
use tilewright::codegen::build::{block, record};
use tilewright::codegen::ir::{Arch, Kernel};
use tilewright::kernels::tile::{Index, LayoutTensor};
use tilewright::layout::typed::Contiguous;

/// Threads of a block, each with eight elements at a time.
const THREADS: usize = 128;

/// The kernel for rows of `N` elements, a multiple of 1024. Parameters: `x`, `residual`, `weight`,
/// `h`, `out`.
pub fn residual_rms_norm<const N: usize>(arch: Arch, eps: f32) -> Kernel {
    record("residual_rms_norm", arch, block(THREADS as u32), |k| {
        let row = k.block_id().mul_wide(N as u32);
        let mine = |name: &str, row| {
            let all = LayoutTensor::new(k.global::<bf16>(name).at(row), Contiguous::<N>::default());
            all.vectorize::<0, 8>().distribute::<Contiguous<THREADS>>(Index::thread(k))
        };
        let [x, residual, weight, h, out] =
            [("x", row), ("residual", row), ("weight", k.lit(0u64)), ("h", row), ("out", row)].map(|(n, r)| mine(n, r));
        let sum: Vec<_> = (0..x.extent(0))
            .map(|i| {
                let x = x.load([i.into()]);
                let residual = residual.load([i.into()]);
                let sum: [_; 8] = std::array::from_fn(|e| x[e].cast::<f32>() + residual[e].cast::<f32>());
                h.store([i.into()], sum.map(|e| e.cast::<bf16>()));
                sum
            })
            .collect();
        let squares = sum.iter().flatten().fold(k.lit(0.0f32), |all, e| e.fma(*e, all));
        let sums = LayoutTensor::<f32, Contiguous<{ THREADS / 32 }>, _>::shared(k, "sums");
        let warp = squares.warp_reduce(|a, b| a + b);
        k.when(k.lane().eq(0), || sums.store([k.warp().into()], warp));
        k.barrier();
        let all = (0..sums.extent(0)).fold(k.lit(0.0f32), |all, warp| all + sums.load([warp.into()]));
        let scale = (all * (1.0 / N as f32) + eps).sqrt().recip();
        for (i, sum) in (0..).zip(&sum) {
            let weight = weight.load([Index::from(i)]);
            out.store([i.into()], std::array::from_fn(|e| (sum[e] * scale * weight[e].cast::<f32>()).cast::<bf16>()));
        }
    })
}

#[cfg(test)]
mod laws;
