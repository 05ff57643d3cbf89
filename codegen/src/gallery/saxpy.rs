//! `y[i] = a·x[i] + y[i]` for i below n. One element a thread, ⌈n / 256⌉ blocks.

use crate::build::Builder;

/// Parameters: n, a, x\[n\], y\[n\].
pub fn saxpy(k: &Builder) {
    let n = k.param::<u32>("n");
    let a = k.param::<f32>("a");
    let x = k.global::<f32>("x");
    let y = k.global::<f32>("y");
    let i = k.block_id() * k.threads() + k.tid();
    k.when(i.lt(n), || y.at(i).store(x.at(i).load().fma(a, y.at(i).load())));
}
