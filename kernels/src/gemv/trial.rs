//! Trials of the kernel: shapes, inputs, what must come out.

use crate::gemv::GemvEpilogue;
use half::bf16;
use tilewright_codegen::ir::{Arch, Needs};
use tilewright_codegen::trial::{Draw, Expected, Shipped, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use super::oracle::expected;
use super::{Epilogue, GemvPlan, GemvTuning, gemv, hopper};
use crate::shipped_entry::ShippedEntry;
use crate::weights::pack;

/// A multiplication on a number of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemvCase {
    /// Vectors.
    pub batch: u32,
    /// Rows of the weights.
    pub n: u32,
    /// Elements of a vector.
    pub k: u32,
    /// Blocks.
    pub blocks: u32,
    /// The tuning parameters.
    pub tuning: GemvTuning,
    /// The epilogue.
    pub epilogue: GemvEpilogue,
}

impl GemvCase {
    /// A shape of modest size with everything else at random, too.
    pub fn draw(draw: &mut Draw) -> GemvCase {
        let batch = match draw.between(0..=3) {
            0 => 1,
            1 => draw.between(1..=8),
            2 => draw.between(9..=16),
            _ => draw.between(17..=64),
        };
        let k = match draw.between(0..=2) {
            0 => draw.between(1..=70),
            1 => 16 * draw.between(1..=60),
            _ => draw.between(71..=1400),
        };
        let most = (60_000 / k).clamp(1, 150);
        let flag = |draw: &mut Draw| draw.between(0..=1) == 1;
        let tuning = GemvTuning {
            warps: [1, 2, 4, 8, 12, 16][draw.between(0..=5) as usize],
            stage_tiles: draw.between(1..=9),
            stages: draw.between(1..=6),
            in_flight: draw.between(1..=6),
            x_stages: draw.between(1..=3),
            group: draw.between(1..=16),
        };
        let tuning = GemvTuning { in_flight: tuning.in_flight.min(tuning.stages), ..tuning };
        let epilogue = Epilogue { bias: flag(draw), residual: flag(draw), ..Epilogue::default() };
        let epilogue = GemvEpilogue { wide: flag(draw), ..epilogue.into() };
        GemvCase { batch, n: draw.between(1..=most), k, blocks: draw.between(1..=5), tuning, epilogue }
    }

    /// The trial with inputs from -1 to 1.
    ///
    /// # Errors
    /// Where the kernel does not verify, which is a mistake in it.
    ///
    /// # Panics
    /// For a shape that has no plan: a mistake in the case.
    pub fn trial(&self, arch: Arch, draw: &mut Draw) -> Result<Trial, VerifyErrors> {
        let GemvCase { batch, n, k, blocks, tuning, epilogue: finish } = *self;
        let GemvEpilogue { epilogue, wide: is_wide, .. } = finish;
        let plan = GemvPlan::new(batch, k, GemvPlan::strips(n, blocks), tuning).expect("a case has a plan");
        let kernel = verify(gemv(arch, &plan, finish))?;
        let mut floats = |count: u32| draw.floats::<bf16>(count as usize, bf16::from_f64);
        let w = floats(n * k);
        let x = floats(batch * k);
        let bias = floats(n);
        let residual = floats(batch * n);
        let (values, bound) = expected(k, finish, &w, &x, &bias, &residual);

        let mut trial = Trial::new(kernel, blocks).note(format!("{self:?}"));
        let w = trial.input("w", &pack(&w, plan.strip));
        let pitch = plan.x_pitch() as usize;
        let mut pitched = vec![bf16::ZERO; batch as usize * pitch];
        for (to, from) in pitched.chunks_mut(pitch).zip(x.chunks(k as usize)) {
            to[..from.len()].copy_from_slice(from);
        }
        let x = trial.input("x", &pitched);
        let y = match is_wide {
            true => Expected::near::<f32>(&values, bound),
            false => Expected::near::<bf16>(&values, bound),
        };
        let y = trial.output("y", y);
        let bias = epilogue.bias.then(|| trial.input("bias", &bias));
        let wide: Vec<f32> = residual.iter().map(|v| v.to_f32()).collect();
        let residual = epilogue.residual.then(|| match is_wide {
            true => trial.input("residual", &wide),
            false => trial.input("residual", &residual),
        });
        let trial = trial.pass(n).pass(w).pass(x).pass(y);
        Ok([bias, residual].into_iter().flatten().fold(trial, Trial::pass))
    }
}

/// The kernels of this module.
pub fn shipped() -> Vec<Box<dyn Shipped>> {
    let record = |arch| {
        let plan = GemvPlan::new(1, 4096, 4, GemvTuning::h100(1)).expect("a plan for a batch of 1");
        gemv(arch, &plan, Epilogue::default())
    };
    let draw = |arch, seed| {
        let mut draw = Draw::new(seed);
        GemvCase::draw(&mut draw).trial(arch, &mut draw)
    };
    vec![Box::new(ShippedEntry { name: "gemv", needs: Needs::Sm90, record, draw }), Box::new(hopper::shipped())]
}
