//! Trials of the kernel: shapes, inputs, what must come out.

use super::{Plan, Rows, Tuning, choose, step};
use crate::gemm::{Argument, Buffer};
use crate::gemv::{Epilogue, Unit, pack, trial};
use crate::shipped::Entry;
use half::bf16;
use tilewright_codegen::ir::{Arch, Needs};
use tilewright_codegen::trial::{Bound, Draw, Expected, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

/// One multiplication, planned for so many multiprocessors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Vectors.
    pub batch: u32,
    /// Rows of the weights, and what they are.
    pub rows: Rows,
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
            let rows = match draw.between(0..=3) {
                0 => Rows::Gated(n.div_ceil(2)),
                1 => {
                    let [group, kv_heads, eighths] = [1..=4, 1..=3, 1..=4].map(|range| draw.between(range));
                    Rows::Groups { group, kv_heads, dim: 8 * eighths }
                }
                _ => Rows::InOrder(n),
            };
            let (multiprocessors, packed_tiles) = (draw.between(1..=8), draw.between(1..=9));
            let case = Case { batch, rows, k, multiprocessors, packed_tiles, tuning, epilogue };
            // Some settings do not go together: others, then. A few are those that are chosen.
            let tuning = match case.unit() {
                Some(unit) if draw.between(0..=4) == 0 => choose(batch, rows, unit, multiprocessors, 8),
                _ => tuning,
            };
            let case = Case { tuning, ..case };
            if batch * rows.packed().div_ceil(64) * k < 400_000 && case.plan().is_some() {
                return case;
            }
        }
    }

    fn unit(&self) -> Option<Unit> {
        Unit::new(self.k, 1, self.packed_tiles * 512).ok()
    }

    fn plan(&self) -> Option<Plan> {
        Plan::new(self.batch, self.rows, self.unit()?, self.tuning).ok()
    }

    /// The trial with inputs from -1 to 1.
    ///
    /// # Errors
    /// Where the kernel does not verify, which is a mistake in it.
    ///
    /// # Panics
    /// For a shape that has no plan: a mistake in the case.
    pub fn trial(&self, arch: Arch, draw: &mut Draw) -> Result<Trial, VerifyErrors> {
        let Case { batch, rows, k, multiprocessors, epilogue, .. } = *self;
        let gated = matches!(rows, Rows::Gated(_));
        let (results, n) = (rows.results(), if gated { 2 * rows.results() } else { rows.results() });
        let plan = self.plan().expect("a case has a plan");
        let step = step(arch, &plan, epilogue, multiprocessors);
        let mut floats = |count: u32| draw.floats::<bf16>(count as usize, bf16::from_f64);
        let (w, x, bias, residual) = (floats(n * k), floats(batch * k), floats(n), floats(batch * results));
        let (values, bound) = match gated {
            true => expected_of_gates(k, epilogue, results, &w, &x, &bias, &residual),
            false => trial::expected(k, epilogue, &w, &x, &bias, &residual),
        };
        // Whatever stands behind a vector is not read.
        let mut pitched = vec![bf16::NAN; (batch * plan.x_pitch()) as usize];
        for (to, from) in pitched.chunks_mut(plan.x_pitch() as usize).zip(x.chunks(k as usize)) {
            to[..from.len()].copy_from_slice(from);
        }
        let zeros = vec![bf16::ZERO; k as usize];
        let row = |row| rows.weight(row).map_or(&zeros[..], |row| &w[(row * k) as usize..][..k as usize]);
        let packed: Vec<bf16> = (0..rows.packed()).flat_map(row).copied().collect();
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
                Buffer::A => trial.input("w", &pack(&packed, plan.unit)),
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

/// What must come out where rows are gates and what they gate, and by how much it may differ.
fn expected_of_gates(
    k: u32,
    epilogue: Epilogue,
    results: u32,
    w: &[bf16],
    x: &[bf16],
    bias: &[bf16],
    residual: &[bf16],
) -> (Vec<f64>, Bound) {
    let sums = Epilogue { residual: false, wide: true, ..epilogue };
    let (sums, bound) = trial::expected(k, sums, w, x, bias, &[]);
    let (mut values, mut largest) = (Vec::new(), 0f64);
    for (sums, residual) in sums.chunks(2 * results as usize).zip(residual.chunks(results as usize)) {
        let (gates, others) = sums.split_at(results as usize);
        for ((gate, other), residual) in gates.iter().zip(others).zip(residual) {
            let residual = if epilogue.residual { residual.to_f64() } else { 0.0 };
            values.push(gate / (1.0 + (-gate).exp()) * other + residual);
            largest = largest.max(gate.abs()).max(other.abs());
        }
    }
    // The slope of silu is at most 1.1; exponential and quotient are off by a few units of 2⁻²².
    let rounding = if epilogue.wide { 2f64.powi(-22) } else { 2f64.powi(-8) };
    let absolute = 2.2 * bound.at(largest) * largest + 2f64.powi(-20) * (largest * largest + 1.0);
    (values, Bound { absolute, relative: rounding })
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
