//! `out[b] = Σ x[b·n .. (b+1)·n]`: one block a row, its threads strided, one shuffle tree a warp,
//! one over the warps.

use crate::build::Builder;

/// Parameters: n, x\[blocks, n\], out\[blocks\].
pub fn block_sum(k: &Builder) {
    let n = k.param::<u32>("n");
    let x = k.global::<f32>("x");
    let out = k.global::<f32>("out");
    let warps = k.threads() / 32;
    let partial = k.shared::<f32>("partial", warps);
    let row = x.at(k.block_id().mul_wide(n));

    let sum = k.var(0.0f32);
    let i = k.var(k.tid());
    k.while_(
        || i.get().lt(n),
        || {
            sum.set(sum.get() + row.at(i.get()).load());
            i.set(i.get() + k.threads());
        },
    );

    let of_warp = sum.get().warp_reduce(|a, b| a + b);
    k.when(k.lane().eq(0), || partial.at(k.warp()).store(of_warp));
    k.barrier();
    k.when(k.tid().eq(0), || {
        let total = (1..warps).fold(partial.load(), |sum, warp| sum + partial.at(warp).load());
        out.at(k.block_id()).store(total);
    });
}
