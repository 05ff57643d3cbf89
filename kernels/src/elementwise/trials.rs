//! Random lengths, types and alignments against the f64 oracle.

use tilewright_codegen::ir::{Kernel, Needs};
use tilewright_codegen::trial::{Bound, BufferId, Draw, Pass, Shipped, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use super::launch::RUN;
use super::{Types, add_all, silu_mul_all};
use crate::naive;
use crate::shipped::Entry;
use crate::stored::{self, UNIT};
use crate::tile::Float;

/// What the kernels are shown with.
const SHOWN: Types = Types { a: Float::Bf16, b: Float::Bf16, out: Float::Bf16, vector: 4 };

/// The kernels of this module.
pub fn shipped() -> Vec<Box<dyn Shipped>> {
    vec![
        Box::new(Entry {
            name: "silu_mul",
            needs: Needs::Sm80,
            record: |arch| silu_mul_all(arch, SHOWN),
            draw: |arch, seed| {
                // Gates to 10: the exponent is rounded, 8 units at most; then ex2, sum, quotient
                // and product.
                let bound = Bound { absolute: 1e-30, relative: 24.0 * UNIT };
                let names = ["gate", "up"];
                trial(&mut Draw::new(seed), names, |types| silu_mul_all(arch, types), naive::silu_mul, 10.0, bound)
            },
        }),
        Box::new(Entry {
            name: "add",
            needs: Needs::Sm80,
            record: |arch| add_all(arch, SHOWN),
            draw: |arch, seed| {
                let bound = Bound { absolute: 0.0, relative: UNIT };
                trial(&mut Draw::new(seed), ["a", "b"], |types| add_all(arch, types), naive::add, 1.0, bound)
            },
        }),
    ]
}

fn trial(
    draw: &mut Draw,
    names: [&str; 2],
    record: impl Fn(Types) -> Kernel,
    oracle: fn(&[f64], &[f64]) -> Vec<f64>,
    size: f64,
    bound: Bound,
) -> Result<Trial, VerifyErrors> {
    let most = [5, 1000, 6000][draw.between(0..=2) as usize];
    let n = draw.between(1..=most);
    let vector = [1, 4][draw.between(0..=1) as usize];
    let types = Types { a: stored::float(draw), b: stored::float(draw), out: stored::float(draw), vector };
    // Without a promise of alignment, arrays begin anywhere; what lies before the output is left
    // alone.
    let skip = if vector == 1 { draw.between(0..=3) } else { 0 };
    let [a, b] = [types.a, types.b].map(|float| stored::numbers(draw, float, n + skip, size));
    let start = skip as usize;
    let mut out = vec![f64::NAN; start];
    out.extend(oracle(&a[start..], &b[start..]));
    let mut trial = Trial::new(verify(record(types))?, n.div_ceil(RUN)).note(format!("n {n}, skip {skip}, {types:?}"));
    let a = stored::input(&mut trial, names[0], types.a, &a);
    let b = stored::input(&mut trial, names[1], types.b, &b);
    let out = stored::output(&mut trial, "out", types.out, &out, bound);
    let from = |buffer: BufferId, float: Float| Pass::Pointer(buffer, u64::from(skip * float.bytes()));
    Ok(trial.pass(n).pass(from(a, types.a)).pass(from(b, types.b)).pass(from(out, types.out)))
}
