//! Elementwise ops on a run of elements by one block: `silu(gate)·up`, and sums.
//!
//! | file | what it holds |
//! |---|---|
//! | `launch` | the kernels, a block for each run |
//! | `trials` | random lengths against the f64 oracle |

mod launch;
mod trials;

use std::f32::consts::LOG2_E;

use tilewright_codegen::build::Val;

pub use launch::{Types, add_all, silu_mul_all};
pub use trials::shipped;

use crate::decode::{Array, ConsumerWarps};

/// Elements `first..end` of arrays that are as long.
#[derive(Clone, Copy)]
pub struct Run<'k> {
    /// The first; a multiple of four where `vector` is 4.
    pub first: Val<'k, u32>,
    /// Behind the last.
    pub end: Val<'k, u32>,
    /// Elements of a load, 1 or 4.
    pub vector: u32,
}

impl<'k> Run<'k> {
    /// `out[i] = of(a[i], b[i])`.
    fn map(
        self,
        team: ConsumerWarps<'k>,
        [a, b]: [Array<'k>; 2],
        out: Array<'k>,
        of: impl Fn(Val<'k, f32>, Val<'k, f32>) -> Val<'k, f32>,
    ) {
        let k = team.k;
        let step = team.threads() * self.vector;
        let whole = self.first + (self.end - self.first) / self.vector * self.vector;
        if self.vector == 4 {
            k.for_step(self.first + k.tid() * 4, whole, step, |at| {
                let (a, b) = (a.load4(at), b.load4(at));
                out.store4(at, std::array::from_fn(|i| of(a[i], b[i])));
            });
        }
        let left = if self.vector == 4 { whole } else { self.first };
        k.for_step(left + k.tid(), self.end, team.threads(), |at| out.store(at, of(a.load(at), b.load(at))));
    }
}

/// `x / (1 + exp(−x))`, approximately: exponential and quotient within 2 ulp each.
fn silu(x: Val<'_, f32>) -> Val<'_, f32> {
    x.div_approx((x * -LOG2_E).ex2() + 1.0)
}

/// `out[i] = silu(gate[i]) · up[i]`; `out` may be one of them.
pub fn silu_mul<'k>(team: ConsumerWarps<'k>, run: Run<'k>, gate: Array<'k>, up: Array<'k>, out: Array<'k>) {
    run.map(team, [gate, up], out, |gate, up| silu(gate) * up);
}

/// `out[i] = a[i] + b[i]`, rounded once in f32 and once to the type of `out`, which may be one of them.
pub fn add<'k>(team: ConsumerWarps<'k>, run: Run<'k>, a: Array<'k>, b: Array<'k>, out: Array<'k>) {
    run.map(team, [a, b], out, |a, b| a + b);
}
