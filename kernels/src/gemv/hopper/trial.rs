//! Trials of the kernel: shapes, inputs, what must come out.

use crate::quant::{Code, CodeFormat};
use half::bf16;
use tilewright_codegen::ir::{Arch, Needs};
use tilewright_codegen::trial::{Bound, Draw, Expected, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use super::oracle::{Given, expected};
use super::{HopperPlan, HopperTuning, WeightRows, choose, step};
use crate::activation::{Activation, SoftCap};
use crate::epilogue::{ResultFunctions, SumScale};
use crate::gemm::GemmBuffer;
use crate::gemv::{Epilogue, GemvEpilogue, HeadPages};
use crate::kv::{PoolType, swizzled};
use crate::norm::SLOT;
use crate::shipped_entry::ShippedEntry;
use crate::stored;
use crate::tile::Float;
use crate::weights::{CodePacker, Codes, Strip, pack};

/// A multiplication, planned for a number of multiprocessors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopperCase {
    /// Vectors.
    pub batch: u32,
    /// Rows of the weights, and what they are.
    pub rows: WeightRows,
    /// Elements of a vector.
    pub k: u32,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Tiles of a stage of the packed weights, as another kernel wanted them.
    pub packed_tiles: u32,
    /// The form of quantised weights, if they are quantised; groups are whole steps of 32.
    pub codes: Option<Codes>,
    /// The tuning parameters.
    pub tuning: HopperTuning,
    /// The epilogue.
    pub finish: GemvEpilogue,
}

impl HopperCase {
    /// A shape of modest size with everything else at random, too.
    pub fn draw(draw: &mut Draw) -> HopperCase {
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
            let codes = flag(draw).then(|| codes(draw));
            let multicast = 1 << draw.between(0..=2);
            let tuning = HopperTuning {
                warpgroups: strips.div_ceil(8),
                strips,
                stage_tiles: if codes.is_some() { draw.between(1..=4) } else { 2 * draw.between(1..=3) },
                stages: draw.between(2..=4),
                in_flight: draw.between(1..=4),
                multicast,
                splits: draw.between(1..=4),
                vectors: if flag(draw) { 8 * multicast * draw.between(1..=4) } else { 0 },
                per_sm: draw.between(1..=2),
            };
            let [bias, residual, wide] = [flag(draw), flag(draw), flag(draw)];
            let rows = match draw.between(0..=3) {
                0 => WeightRows::Gated(n.div_ceil(2)),
                1 => {
                    let [group, kv_heads, eighths] = [1..=4, 1..=3, 1..=4].map(|range| draw.between(range));
                    WeightRows::Groups { group, kv_heads, dim: 8 * eighths }
                }
                _ => WeightRows::InOrder(n),
            };
            let multiprocessors = draw.between(1..=8);
            let packed_tiles = draw.between(1..=9);
            let heads = (matches!(rows, WeightRows::Groups { .. }) && flag(draw)).then(|| {
                let float = [Float::Bf16, Float::F16, Float::F32][draw.between(0..=2) as usize];
                HeadPages { page_tokens: 8 * draw.between(1..=3), pool: PoolType::Float(float) }
            });
            let scaled = k.is_multiple_of(SLOT) && flag(draw);
            let normed = flag(draw).then(|| stored::float(draw));
            let gated = matches!(rows, WeightRows::Gated(_));
            let activation = Some(Activation::ALL[draw.between(0..=1) as usize]).filter(|_| gated);
            let soft_cap = SoftCap::new(4.0).ok().filter(|_| heads.is_none() && draw.between(0..=3) == 0);
            let functions = ResultFunctions { activation, soft_cap };
            let scale = scaled.then_some(SumScale::Norm);
            let epilogue = Epilogue { scale, bias, gated, functions, residual: residual && heads.is_none() };
            let finish = GemvEpilogue { epilogue, wide, normed, heads, best: false };
            let finish = match (rows, draw.between(0..=3)) {
                (WeightRows::InOrder(_), 0) if codes.is_none_or(|codes| codes.code != Code::E4m3) => {
                    let epilogue = Epilogue { scale: None, residual: false, ..epilogue };
                    GemvEpilogue { wide: true, best: true, ..epilogue.into() }
                }
                _ => finish,
            };
            let case = HopperCase { batch, rows, k, multiprocessors, packed_tiles, codes, tuning, finish };
            // Some settings do not go together: others, then. A few are those that are chosen.
            let tuning = match case.strip() {
                Some(strip) if draw.between(0..=4) == 0 => choose(batch, rows, strip, multiprocessors, 8),
                _ => tuning,
            };
            let case = HopperCase { tuning, ..case };
            let fits = case.plan().is_some_and(|plan| finish.check(&plan).is_ok());
            let case = if fits {
                case
            } else {
                HopperCase { finish: GemvEpilogue { normed: None, best: false, ..finish }, ..case }
            };
            let fits = case.plan().is_some_and(|plan| case.finish.check(&plan).is_ok());
            let case = if fits {
                case
            } else {
                let functions = ResultFunctions { soft_cap: None, ..functions };
                let epilogue = Epilogue { scale: None, functions, ..finish.epilogue };
                HopperCase { finish: GemvEpilogue { wide: finish.wide, ..epilogue.into() }, ..case }
            };
            if batch * rows.packed().div_ceil(64) * k < 400_000 && case.plan().is_some() {
                return case;
            }
        }
    }

    fn strip(&self) -> Option<Strip> {
        match self.codes {
            None => Strip::new(self.k, 1, self.packed_tiles * 512).ok(),
            Some(codes) => Strip::of_codes(self.k, 2, 2 * self.packed_tiles * 512, codes).ok(),
        }
    }

    fn plan(&self) -> Option<HopperPlan> {
        HopperPlan::new(self.batch, self.rows, self.strip()?, self.tuning).ok()
    }

    /// The trial with inputs from -1 to 1.
    ///
    /// # Errors
    /// Where the kernel does not verify, which is a mistake in it.
    ///
    /// # Panics
    /// For a shape that has no plan: a mistake in the case.
    pub fn trial(&self, arch: Arch, draw: &mut Draw) -> Result<Trial, VerifyErrors> {
        let HopperCase { batch, rows, k, multiprocessors, finish, .. } = *self;
        let plan = self.plan().expect("a case has a plan");
        let step = step(arch, &plan, finish, multiprocessors);
        let given = Given::draw(draw, &plan, finish);
        let found = expected(&plan, finish, &given);
        // Data after a vector is not read.
        let mut pitched = vec![bf16::NAN; (batch * plan.x_pitch()) as usize];
        for (to, from) in pitched.chunks_mut(plan.x_pitch() as usize).zip(given.x.chunks(k as usize)) {
            to[..from.len()].copy_from_slice(from);
        }
        let packed = packed(&given, &plan);
        let float = if finish.wide { Float::F32 } else { Float::Bf16 };
        let mut trial = Trial::new(verify(step.kernel)?, step.grid).note(format!("{self:?}"));
        // Codes' factors lie among them, and have a map of their own.
        let mut maps_of_weights = ["w", "factors"].into_iter();
        for argument in step.arguments {
            trial = argument.pass(trial, |trial, buffer| match buffer {
                GemmBuffer::A => trial.input(maps_of_weights.next().unwrap_or("w"), &packed),
                GemmBuffer::B => trial.input("x", &pitched),
                GemmBuffer::Bias => trial.input("bias", &given.bias),
                GemmBuffer::Residual => stored::input(trial, "residual", float, &given.residual),
                // Keys have the bits of the largest above its number. That of capped results, which
                // are near, may be another's.
                GemmBuffer::C if finish.best && finish.epilogue.functions.soft_cap.is_some() => {
                    let keys: Vec<f64> = found.bests.iter().map(|&key| key as f64).collect();
                    let bound = Bound { absolute: 33.0 * 2f64.powi(32), relative: 0.0 };
                    trial.output("y", Expected::near::<u64>(&keys, bound))
                }
                GemmBuffer::C if finish.best => trial.output("y", Expected::exact(&found.bests)),
                GemmBuffer::C | GemmBuffer::AScale | GemmBuffer::BScale | GemmBuffer::Partials => {
                    stored::output(trial, "y", float, &found.y, found.bound)
                }
            });
        }
        if finish.ends_norm() {
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
        if let (Some(HeadPages { page_tokens, pool: PoolType::Float(float) }), WeightRows::Groups { dim, .. }) =
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

/// Codes of any kind in groups that this product takes.
fn codes(draw: &mut Draw) -> Codes {
    let stored: Vec<Code> = Code::ALL.into_iter().filter(|code| code.format() != CodeFormat::Signed).collect();
    let code = stored[draw.between(0..=stored.len() as u32 - 1) as usize];
    let group = [None, Some(32), Some(64), Some(96), Some(128)][draw.between(0..=4) as usize];
    let scale = [Float::Bf16, Float::F16, Float::F32][draw.between(0..=2) as usize];
    Codes { code, group, zeros: code.is_integer() && draw.between(0..=1) == 1, scale, blocks: false }
}

/// The weights as a plan's strips have them.
fn packed(given: &Given, plan: &HopperPlan) -> Vec<bf16> {
    let rows = plan.results;
    let strip = plan.strip;
    let k = plan.strip.k() as usize;
    let (Some(matrix), Some(packer)) = (&given.matrix, CodePacker::new(strip)) else {
        let zeros = vec![bf16::ZERO; k];
        let row = |row| rows.weight(row).map_or(&zeros[..], |row| &given.w[row as usize * k..][..k]);
        return pack(&(0..rows.packed()).flat_map(row).copied().collect::<Vec<_>>(), strip);
    };
    let numbers: Vec<u32> = (0..rows.packed()).collect();
    let of_strip = |numbers: &[u32]| {
        let of = |at: usize| numbers.get(at).and_then(|&row| rows.weight(row)).map(|row| (matrix, row as usize));
        let mut memory = vec![0; strip.bytes() as usize];
        packer.pack(&core::array::from_fn(of), &mut memory);
        memory
    };
    let bytes: Vec<u8> = numbers.chunks(Strip::ROWS as usize).flat_map(of_strip).collect();
    bytes.chunks_exact(2).map(|two| bf16::from_bits(u16::from_le_bytes([two[0], two[1]]))).collect()
}

/// The kernel as it is shipped.
pub(crate) fn shipped() -> ShippedEntry {
    let record = |arch| {
        let strip = Strip::new(4096, 8, 16384).expect("rows that can be streamed");
        let plan = HopperPlan::new(64, 4096, strip, choose(64, 4096, strip, 132, 8)).expect("a plan for a batch of 64");
        step(arch, &plan, Epilogue::default(), 132).kernel
    };
    let draw = |arch, seed| {
        let mut draw = Draw::new(seed);
        HopperCase::draw(&mut draw).trial(arch, &mut draw)
    };
    ShippedEntry { name: "gemv_wgmma", needs: Needs::Sm90a, record, draw }
}
