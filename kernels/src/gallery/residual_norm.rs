//! A residual added to a row, and the RMS norm of the sum: one row a block.

use crate::tile::prelude::*;
use tilewright_layout::typed::Contiguous;

/// `s = x + r`, `y = s · w / √(mean(s²) + eps)`, for row b of x, r, s and y in block b. Parameters:
/// `rows`; `width` and `stride`, multiples of 4; `x`, `r`, `w`, `s`, `y`, f32 and aligned to 16
/// bytes.
pub fn residual_norm(k: &Builder, eps: f32) {
    let [rows, width, stride] = ["rows", "width", "stride"].map(|name| k.param::<u32>(name));
    let row = |name| {
        let modes = Modes::row_major([rows.into(), width.into()], stride).vectors(4);
        LayoutTensor::new(k.global::<f32>(name), modes).slice::<1>([Some(k.block_id().into()), None])
    };
    let x = row("x");
    let r = row("r");
    let w = LayoutTensor::new(k.global::<f32>("w"), Modes::contiguous_run(width).vectors(4));
    let s = row("s");
    let y = row("y");

    let thread = [Index::thread(k)];
    let run = 4 * k.threads();
    let squares = k.var(0.0f32);
    x.parts_along(0, run).each(|x, at| {
        let x = x.vectorize::<0, 4>().load(thread);
        let r = r.range(0, at, run).vectorize::<0, 4>().load(thread);
        let sums = [0, 1, 2, 3].map(|i| x[i] + r[i]);
        s.range(0, at, run).vectorize::<0, 4>().store(thread, sums);
        squares.set(sums.into_iter().fold(squares.get(), |squares, s| s.fma(s, squares)));
    });
    let of_warps = LayoutTensor::<f32, Contiguous<32>, _>::shared(k, "squares");
    let of_warp = squares.get().warp_reduce(|a, b| a + b);
    k.when(k.lane().eq(0), || of_warps.store([Index::below(k.warp(), 32)], of_warp));
    k.barrier();
    let sum = (0..k.threads() / 32).fold(k.lit(0.0f32), |sum, warp| sum + of_warps.load([warp.into()]));
    let scale = (sum.div_rn(width.cast::<f32>()) + eps).sqrt().recip();

    // Each thread reads what it wrote.
    s.parts_along(0, run).each(|s, at| {
        let s = s.vectorize::<0, 4>().load(thread);
        let w = w.range(0, at, run).vectorize::<0, 4>().load(thread);
        y.range(0, at, run).vectorize::<0, 4>().store(thread, [0, 1, 2, 3].map(|i| s[i] * scale * w[i]));
    });
}
