//! `y = a·x + y` for `n` numbers, four a thread.

use tilewright::codegen::build::{block, record};
use tilewright::codegen::ir::{Arch, Kernel};

/// Threads of a block.
const THREADS: u32 = 256;
/// Elements of a thread: a vector of 16 bytes.
const VECTOR: u32 = 4;

/// Blocks for `n` numbers.
pub fn grid(n: u32) -> u32 {
    n.div_ceil(THREADS * VECTOR).max(1)
}

/// The kernel, for a grid of [`grid`] blocks. Parameters: `n`, `a` (f32), `x` and `y`, aligned to 16
/// bytes.
pub fn axpy(arch: Arch) -> Kernel {
    record("axpy", arch, block(THREADS), |k| {
        let n = k.param::<u32>("n");
        let a = k.param::<f32>("a");
        let first = (k.block_id() * THREADS + k.tid()) * VECTOR;
        let [x, y] = ["x", "y"].map(|name| k.global::<f32>(name).at(first));
        k.if_else(
            (first + VECTOR).le(n),
            || {
                let [from, to] = [x, y].map(|vector| vector.load_vec::<4>());
                y.store_vec::<4>(std::array::from_fn(|i| from[i].fma(a, to[i])));
            },
            || {
                for i in 0..VECTOR {
                    let [x, y] = [x, y].map(|vector| vector.at(i));
                    k.when((first + i).lt(n), || y.store(x.load().fma(a, y.load())));
                }
            },
        );
    })
}

#[cfg(test)]
mod laws;
