//! Trials of the kernel: shapes, inputs, what must come out.

use super::{Plan, Tuning, choose, step};
use crate::gemm::{Argument, Buffer};
use crate::gemv::{Epilogue, Unit, pack, trial};
use crate::shipped::Entry;
use half::bf16;
use tilewright_codegen::ir::{Arch, Needs};
use tilewright_codegen::trial::{Draw, Expected, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

/// One multiplication, planned for so many multiprocessors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Vectors.
    pub batch: u32,
    /// Rows of the weights.
    pub n: u32,
    /// Elements of a vector.
    pub k: u32,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Tiles of a stage of the packed weights, as another kernel wanted them.
    pub packed_tiles: u32,
    /// What may be tuned.
    pub tuning: Tuning,
    /// What becomes of the sums.
    pub epilogue: Epilogue,
}

impl Case {
    /// A shape of modest size with everything else at random, too.
    pub fn draw(draw: &mut Draw) -> Case {
        loop {
            let batch = match draw.between(0..=3) {
                0 => draw.between(1..=16),
                1 | 2 => draw.between(17..=64),
                _ => draw.between(65..=256),
            };
            let k = match draw.between(0..=2) {
                0 => draw.between(1..=70),
                1 => 32 * draw.between(1..=24),
                _ => draw.between(71..=700),
            };
            let n = match draw.between(0..=1) {
                0 => 4 * draw.between(1..=80),
                _ => draw.between(1..=320),
            };
            let flag = |draw: &mut Draw| draw.between(0..=1) == 1;
            let tuning = Tuning {
                warpgroups: draw.between(1..=3),
                stage_tiles: 2 * draw.between(1..=3),
                stages: draw.between(2..=4),
                in_flight: draw.between(1..=4),
                multicast: 1 << draw.between(0..=2),
                splits: draw.between(1..=4),
                per_sm: draw.between(1..=2),
            };
            let epilogue = Epilogue { bias: flag(draw), residual: flag(draw), wide: flag(draw) };
            let (multiprocessors, packed_tiles) = (draw.between(1..=8), draw.between(1..=9));
            let case = Case { batch, n, k, multiprocessors, packed_tiles, tuning, epilogue };
            // Some settings do not go together: others, then. A few are those that are chosen.
            let tuning = match case.unit() {
                Some(unit) if draw.between(0..=4) == 0 => choose(batch, n, unit, multiprocessors, 8),
                _ => tuning,
            };
            let case = Case { tuning, ..case };
            if batch * n.div_ceil(64) * k < 400_000 && case.plan().is_some() {
                return case;
            }
        }
    }

    fn unit(&self) -> Option<Unit> {
        Unit::new(self.k, 1, self.packed_tiles * 512).ok()
    }

    fn plan(&self) -> Option<Plan> {
        Plan::new(self.batch, self.n, self.unit()?, self.tuning).ok()
    }

    /// The trial with inputs from -1 to 1.
    ///
    /// # Errors
    /// Where the kernel does not verify, which is a mistake in it.
    ///
    /// # Panics
    /// For a shape that has no plan: a mistake in the case.
    pub fn trial(&self, arch: Arch, draw: &mut Draw) -> Result<Trial, VerifyErrors> {
        let Case { batch, n, k, multiprocessors, epilogue, .. } = *self;
        let plan = self.plan().expect("a case has a plan");
        let step = step(arch, &plan, epilogue, multiprocessors);
        let mut floats = |count: u32| draw.floats::<bf16>(count as usize, bf16::from_f64);
        let (w, x, bias, residual) = (floats(n * k), floats(batch * k), floats(n), floats(batch * n));
        let (values, bound) = trial::expected(k, epilogue, &w, &x, &bias, &residual);
        // Whatever stands behind a vector is not read.
        let mut pitched = vec![bf16::NAN; (batch * plan.x_pitch()) as usize];
        for (to, from) in pitched.chunks_mut(plan.x_pitch() as usize).zip(x.chunks(k as usize)) {
            to[..from.len()].copy_from_slice(from);
        }
        let wide: Vec<f32> = residual.iter().map(|v| v.to_f32()).collect();
        let mut trial = Trial::new(verify(step.kernel)?, step.grid).note(format!("{self:?}"));
        for argument in step.arguments {
            let (buffer, shape) = match argument {
                Argument::Number(number) => {
                    trial = trial.pass(number);
                    continue;
                }
                Argument::Pointer(buffer) => (buffer, None),
                Argument::Map(buffer, shape) => (buffer, Some(shape)),
            };
            let id = match buffer {
                Buffer::A => trial.input("w", &pack(&w, plan.unit)),
                Buffer::B => trial.input("x", &pitched),
                Buffer::Bias => trial.input("bias", &bias),
                Buffer::Residual if epilogue.wide => trial.input("residual", &wide),
                Buffer::Residual => trial.input("residual", &residual),
                _ if epilogue.wide => trial.output("y", Expected::near::<f32>(&values, bound)),
                _ => trial.output("y", Expected::near::<bf16>(&values, bound)),
            };
            trial = match shape {
                Some(shape) => trial.map(id, shape),
                None => trial.pass(id),
            };
        }
        Ok(trial)
    }
}

/// The kernel as it is shipped.
pub(crate) fn shipped() -> Entry {
    let record = |arch| {
        let unit = Unit::new(4096, 8, 16384).expect("rows that can be streamed");
        let plan = Plan::new(64, 4096, unit, choose(64, 4096, unit, 132, 8)).expect("a plan for a batch of 64");
        step(arch, &plan, Epilogue::default(), 132).kernel
    };
    let draw = |arch, seed| {
        let mut draw = Draw::new(seed);
        Case::draw(&mut draw).trial(arch, &mut draw)
    };
    Entry { name: "gemv_wgmma", needs: Needs::Sm90a, record, draw }
}
