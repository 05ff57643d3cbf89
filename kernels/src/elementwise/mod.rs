//! Elementwise ops on a run of elements by one block: `activation(gate)·up`, and sums.
//!
//! | file | what it holds |
//! |---|---|
//! | `launch` | the kernels, a block for each run |
//! | `trials` | random lengths against the f64 oracle |

mod launch;
mod trials;

use tilewright_codegen::build::Val;

pub use launch::{Types, add_all, gated_all};
pub use trials::shipped;

use crate::activation::Activation;
use crate::tile::StoredRun;
use crate::warps::ConsumerWarps;

/// Elements `first..end` of arrays that are as long.
#[derive(Clone, Copy)]
pub struct ElementRange<'k> {
    /// The first; a multiple of four where `vector` is 4.
    pub first: Val<'k, u32>,
    /// The end, exclusive.
    pub end: Val<'k, u32>,
    /// Elements of a load, 1 or 4: four where all arrays are aligned to four elements.
    pub vector: u32,
}

impl<'k> ElementRange<'k> {
    /// `out[i] = of(a[i], b[i])`.
    fn map(
        self,
        consumers: ConsumerWarps<'k>,
        arrays: [StoredRun<'k>; 3],
        of: impl Fn(Val<'k, f32>, Val<'k, f32>) -> Val<'k, f32>,
    ) {
        let k = consumers.k;
        let mut left = self.first;
        if self.vector == 4 {
            let [a, b, out] = arrays.map(|array| array.whole_and_rest(0, 4)[0].vectorize::<0, 4>().inside());
            let fours = self.end / 4;
            k.for_step(self.first / 4 + k.tid(), fours, consumers.threads(), |at| {
                let a = a.load([at.into()]);
                let b = b.load([at.into()]);
                out.store([at.into()], std::array::from_fn(|i| of(a[i], b[i])));
            });
            left = fours * 4;
        }
        let [a, b, out] = arrays.map(|array| array.inside());
        k.for_step(left + k.tid(), self.end, consumers.threads(), |at| {
            let [a] = a.load([at.into()]);
            let [b] = b.load([at.into()]);
            out.store([at.into()], [of(a, b)]);
        });
    }
}

/// `out[i] = activation(gate[i]) · up[i]`; `out`, the last of the arrays, may be one of the others.
pub fn gated<'k>(
    consumers: ConsumerWarps<'k>,
    activation: Activation,
    run: ElementRange<'k>,
    gate_up_out: [StoredRun<'k>; 3],
) {
    run.map(consumers, gate_up_out, |gate, up| activation.apply(gate) * activation.factor(up));
}

/// `out[i] = a[i] + b[i]`, rounded once in f32 and once to the type of `out`, the last of the
/// arrays, which may be one of the others.
pub fn add<'k>(consumers: ConsumerWarps<'k>, run: ElementRange<'k>, a_b_out: [StoredRun<'k>; 3]) {
    run.map(consumers, a_b_out, |a, b| a + b);
}
