//! Random lengths, types and alignments against the f64 oracle.

use tilewright_codegen::ir::{Arch, Kernel, Needs};
use tilewright_codegen::trial::{Bound, BufferId, Draw, Shipped, Trial, TrialArg};
use tilewright_codegen::verify::{VerifyErrors, verify};

use super::launch::RUN;
use super::{Types, add_all, gated_all};
use crate::activation::Activation;
use crate::naive;
use crate::shipped_entry::ShippedEntry;
use crate::stored::{self, UNIT};
use crate::tile::Float;

/// The types with which the kernels are shipped.
const SHOWN: Types = Types { a: Float::Bf16, b: Float::Bf16, out: Float::Bf16, vector: 4 };

/// The kernels of this module.
pub fn shipped() -> Vec<Box<dyn Shipped>> {
    vec![
        Box::new(ShippedEntry {
            name: "silu_mul",
            needs: Needs::Sm80,
            record: |arch| gated_all(arch, Activation::Silu, SHOWN),
            // The exponent is rounded, 8 units at most; then ex2, sum, quotient and product.
            draw: |arch, seed| gated_trial(arch, seed, Gates { activation: Activation::Silu, most: 10.0, units: 24.0 }),
        }),
        Box::new(ShippedEntry {
            name: "gelu_tanh_mul",
            needs: Needs::Sm80,
            record: |arch| gated_all(arch, Activation::GeluTanh, SHOWN),
            // The exponent, 16 at most, is rounded four times.
            draw: |arch, seed| {
                gated_trial(arch, seed, Gates { activation: Activation::GeluTanh, most: 4.0, units: 64.0 })
            },
        }),
        Box::new(ShippedEntry {
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

/// The gates of a trial.
struct Gates {
    /// Their function.
    activation: Activation,
    /// Gates, and what they are multiplied with, are drawn from minus this to this.
    most: f64,
    /// The relative error of a result, in units of [`UNIT`].
    units: f64,
}

fn gated_trial(arch: Arch, seed: u64, Gates { activation, most, units }: Gates) -> Result<Trial, VerifyErrors> {
    let bound = Bound { absolute: 1e-30, relative: units * UNIT };
    let record = |types| gated_all(arch, activation, types);
    let oracle = |gate: &[f64], up: &[f64]| naive::gated(activation, gate, up);
    trial(&mut Draw::new(seed), ["gate", "up"], record, oracle, most, bound)
}

fn trial(
    draw: &mut Draw,
    names: [&str; 2],
    record: impl Fn(Types) -> Kernel,
    oracle: impl Fn(&[f64], &[f64]) -> Vec<f64>,
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
    let from = |buffer: BufferId, float: Float| TrialArg::Pointer(buffer, u64::from(skip * float.bytes()));
    Ok(trial.pass(n).pass(from(a, types.a)).pass(from(b, types.b)).pass(from(out, types.out)))
}
