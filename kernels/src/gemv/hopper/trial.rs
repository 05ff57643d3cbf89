//! Trials of the kernel: shapes, inputs, what must come out.

use super::oracle::{Given, expected};
use super::{Finish, HeadPages, Plan, Rows, Tuning, choose, step};
use crate::gemm::Buffer;
use crate::gemv::{Epilogue, Strip, pack};
use crate::kv::{PoolType, swizzled};
use crate::norm::SLOT;
use crate::shipped::Entry;
use crate::stored;
use crate::tile::Float;
use half::bf16;
use tilewright_codegen::ir::{Arch, Needs};
use tilewright_codegen::trial::{Draw, Expected, Trial};
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
    pub finish: Finish,
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
            let strips = draw.between(2..=24);
            let tuning = Tuning {
                warpgroups: strips.div_ceil(8),
                strips,
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
            let heads = (matches!(rows, Rows::Groups { .. }) && flag(draw)).then(|| {
                let float = [Float::Bf16, Float::F16, Float::F32][draw.between(0..=2) as usize];
                HeadPages { page_tokens: 8 * draw.between(1..=3), pool: PoolType::Float(float) }
            });
            let epilogue = Epilogue { residual: epilogue.residual && heads.is_none(), ..epilogue };
            let scaled = k.is_multiple_of(SLOT) && flag(draw);
            let normed = flag(draw).then(|| stored::float(draw));
            let finish = Finish { epilogue, scaled, normed, heads, best: false };
            let finish = match (rows, draw.between(0..=3)) {
                (Rows::InOrder(_), 0) => {
                    Finish { best: true, ..Epilogue { bias: epilogue.bias, residual: false, wide: true }.into() }
                }
                _ => finish,
            };
            let case = Case { batch, rows, k, multiprocessors, packed_tiles, tuning, finish };
            // Some settings do not go together: others, then. A few are those that are chosen.
            let tuning = match case.strip() {
                Some(strip) if draw.between(0..=4) == 0 => choose(batch, rows, strip, multiprocessors, 8),
                _ => tuning,
            };
            let case = Case { tuning, ..case };
            let fits = case.plan().is_some_and(|plan| finish.check(&plan).is_ok());
            let case =
                if fits { case } else { Case { finish: Finish { normed: None, best: false, ..finish }, ..case } };
            if batch * rows.packed().div_ceil(64) * k < 400_000 && case.plan().is_some() {
                return case;
            }
        }
    }

    fn strip(&self) -> Option<Strip> {
        Strip::new(self.k, 1, self.packed_tiles * 512).ok()
    }

    fn plan(&self) -> Option<Plan> {
        Plan::new(self.batch, self.rows, self.strip()?, self.tuning).ok()
    }

    /// The trial with inputs from -1 to 1.
    ///
    /// # Errors
    /// Where the kernel does not verify, which is a mistake in it.
    ///
    /// # Panics
    /// For a shape that has no plan: a mistake in the case.
    pub fn trial(&self, arch: Arch, draw: &mut Draw) -> Result<Trial, VerifyErrors> {
        let Case { batch, rows, k, multiprocessors, finish, .. } = *self;
        let plan = self.plan().expect("a case has a plan");
        let step = step(arch, &plan, finish, multiprocessors);
        let given = Given::draw(draw, &plan, finish);
        let found = expected(&plan, finish, &given);
        // Whatever stands behind a vector is not read.
        let mut pitched = vec![bf16::NAN; (batch * plan.x_pitch()) as usize];
        for (to, from) in pitched.chunks_mut(plan.x_pitch() as usize).zip(given.x.chunks(k as usize)) {
            to[..from.len()].copy_from_slice(from);
        }
        let zeros = vec![bf16::ZERO; k as usize];
        let row = |row| rows.weight(row).map_or(&zeros[..], |row| &given.w[(row * k) as usize..][..k as usize]);
        let packed: Vec<bf16> = (0..rows.packed()).flat_map(row).copied().collect();
        let float = if finish.epilogue.wide { Float::F32 } else { Float::Bf16 };
        let mut trial = Trial::new(verify(step.kernel)?, step.grid).note(format!("{self:?}"));
        for argument in step.arguments {
            trial = argument.pass(trial, |trial, buffer| match buffer {
                Buffer::A => trial.input("w", &pack(&packed, plan.strip)),
                Buffer::B => trial.input("x", &pitched),
                Buffer::Bias => trial.input("bias", &given.bias),
                Buffer::Residual => stored::input(trial, "residual", float, &given.residual),
                Buffer::C if finish.best => trial.output("y", Expected::exact(&found.bests)),
                Buffer::C | Buffer::AScale | Buffer::BScale | Buffer::Partials => {
                    stored::output(trial, "y", float, &found.y, found.bound)
                }
            });
        }
        if finish.scaled {
            let squares = trial.input("squares", &given.squares);
            trial = trial.pass(squares).pass(given.eps);
        }
        if let Some(float) = finish.normed {
            let weight = stored::input(&mut trial, "norm_weight", float, &given.norm_weight);
            let (normed, bound) = &found.normed;
            let normed = stored::output(&mut trial, "normed", Float::Bf16, normed, *bound);
            let (squares, bound) = &found.squares;
            let squares = stored::output(&mut trial, "norm_squares", Float::F32, squares, *bound);
            trial = trial.pass(weight).pass(normed).pass(squares);
        }
        if let (Some(HeadPages { page_tokens, pool: PoolType::Float(float) }), Rows::Groups { dim, .. }) =
            (finish.heads, rows)
        {
            let turns = trial.input("turns", &given.turns());
            let position = trial.input("position", &given.positions);
            let table = trial.input("page_table", &given.table);
            trial = trial.pass(turns).pass(position).pass(table).pass(given.table_width).pass(given.pages);
            for (name, pool) in ["keys", "values"].into_iter().zip(&found.pools) {
                let pool = swizzled(pool, page_tokens as usize, dim as usize);
                let id = stored::output(&mut trial, name, float, &pool, found.bound);
                trial = trial.pass(id);
            }
        }
        Ok(trial)
    }
}

/// The kernel as it is shipped.
pub(crate) fn shipped() -> Entry {
    let record = |arch| {
        let strip = Strip::new(4096, 8, 16384).expect("rows that can be streamed");
        let plan = Plan::new(64, 4096, strip, choose(64, 4096, strip, 132, 8)).expect("a plan for a batch of 64");
        step(arch, &plan, Epilogue::default(), 132).kernel
    };
    let draw = |arch, seed| {
        let mut draw = Draw::new(seed);
        Case::draw(&mut draw).trial(arch, &mut draw)
    };
    Entry { name: "gemv_wgmma", needs: Needs::Sm90a, record, draw }
}
