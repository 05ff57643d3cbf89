//! Weights without a ring: the team copies each stage itself.

use half::bf16;
use tilewright_codegen::build::{Global, Ptr, Shared, Val, Var};
use tilewright_codegen::trial::Draw;
use tilewright_kernels::gemv::activations::{AOperand, Packing};
use tilewright_kernels::gemv::task::LinearScratch;
use tilewright_kernels::ring::{AnyStage, Stages};
use tilewright_kernels::warps::ConsumerWarps;
use tilewright_kernels::weights::{Phases, StageOrder, Strip, WeightStages};

/// The stage at a position of the order.
type StageAt<'k> = Box<dyn Fn(Val<'k, u32>) -> Val<'k, u32> + 'k>;

/// Most bytes that are held at once.
const HELD: u32 = 64 << 10;

/// The stages of strips that lie one after the other.
pub struct Supply<'k> {
    team: ConsumerWarps<'k>,
    from: Ptr<'k, Global, u32>,
    memory: Ptr<'k, Shared, u32>,
    /// Words of a stage.
    words: u32,
    /// Whether all stages are held from the beginning.
    whole: bool,
    next: Var<'k, u32>,
    /// The stage at a position, if the order is not strip by strip.
    order: Option<StageAt<'k>>,
}

impl<'k> Supply<'k> {
    /// `strips` strips from there on, `most` at most. If they are small, all of them are copied
    /// now, to be read once the team has met.
    pub fn new(
        team: ConsumerWarps<'k>,
        strip: Strip,
        from: Ptr<'k, Global, u32>,
        strips: Val<'k, u32>,
        most: u32,
        a_operand: AOperand,
    ) -> Supply<'k> {
        let k = team.k;
        let words = strip.stage_bytes() / 4;
        let whole = most * strip.bytes() <= HELD;
        let memory = k.shared("stages", if whole { most * strip.bytes() / 4 } else { 2 * words });
        if whole {
            k.for_step(k.tid(), strips * (strip.bytes() / 4), team.threads(), |at| {
                memory.at(at).store(from.at(at).load())
            });
        }
        let stages = k.lit(strip.stages());
        let all = strips * strip.stages();
        let order: Option<StageAt<'k>> = match a_operand {
            AOperand::Reloaded { group } => {
                let order = StageOrder { stages, group: k.lit(group), all };
                Some(Box::new(move |place| order.stage(place)))
            }
            AOperand::Phases { stages: each, .. } => {
                let phases = Phases { stages, each: k.lit(each), of_phase: strips * each };
                Some(Box::new(move |place| phases.stage(place)))
            }
            AOperand::Shared | AOperand::Registers => None,
        };
        // Activations that are copied ask the team to meet, others do not.
        if whole && a_operand != AOperand::Shared {
            team.sync();
        }
        Supply { team, from, memory, words, whole, next: k.var(0u32), order }
    }
}

impl<'k> WeightStages<'k> for Supply<'k> {}

impl<'k> Stages<'k> for Supply<'k> {
    fn wait(&self) -> AnyStage<'k> {
        let place = self.next.get();
        let first = self.order.as_ref().map_or(place, |order| order(place)) * self.words;
        self.next.set(place + 1);
        if self.whole {
            return AnyStage::untold(self.memory.at(first));
        }
        // The stage before may still be read.
        let to = self.memory.at(place % 2 * self.words);
        self.team.sync();
        self.team.each(self.words, |at| to.at(at).store(self.from.at(first).at(at).load()));
        self.team.sync();
        AnyStage::untold(to)
    }
}

/// A way that these activations can take, at random; by phases sums of a number of strips wait.
pub fn a_operand(draw: &mut Draw, strip: Strip, packing: Packing, waiting: u32) -> AOperand {
    let group = 2 * draw.between(1..=3);
    let stages = draw.between(1..=strip.stages());
    let part = AOperand::registers(strip.part(0, stages), packing) <= 128;
    if part && stages < strip.stages() && strip.stages().is_multiple_of(stages) && strip.padded_k() == strip.k() {
        return AOperand::Phases { stages, waiting };
    }
    match draw.between(0..=2) {
        0 => AOperand::Shared,
        1 if AOperand::registers(strip, packing) <= 128 => AOperand::Registers,
        _ => AOperand::Reloaded { group },
    }
}

/// Strips of which there are sums: `strips`, and a group's where that asks for more.
pub fn sums(a_operand: AOperand, strips: u32) -> u32 {
    if let AOperand::Reloaded { group } = a_operand { strips.max(group) } else { strips }
}

/// The files in which weights and activations are read from shared memory.
pub fn reading(a_operand: AOperand) -> &'static [&'static str] {
    match a_operand {
        AOperand::Shared => &["linear/products.rs", "linear/operand.rs"],
        AOperand::Registers | AOperand::Phases { .. } | AOperand::Reloaded { .. } => &["linear/products.rs"],
    }
}

/// The team's shared memory for a number of rows of the operand's bytes, with sums for `strips`
/// strips.
pub fn scratch(team: ConsumerWarps<'_>, operand_bytes: u32, rows: u32, strips: u32) -> LinearScratch<'_> {
    let k = team.k;
    let sums_bytes = strips * LinearScratch::strip_bytes(rows, team.warps);
    let operand_bytes = operand_bytes.next_multiple_of(16);
    let operand = k.shared_aligned("operand", (operand_bytes + sums_bytes) / 2, 128);
    LinearScratch {
        operand,
        operand_bytes,
        squares: k.shared("squares", 16 * team.warps),
        sums: operand.at(operand_bytes / 2).cast(),
        sums_bytes,
        best: k.shared("best", 16),
        paired_rows: 16,
        copied_registers: 16,
        prefetched_word_stages: 0,
        overflow: None,
        loaded: None,
    }
}

/// The rows `[n, k]` as strips of eight, in the order of `order`: which rows each has.
pub fn pack(strip: Strip, weight: &[bf16], order: &[[Option<usize>; 8]]) -> Vec<bf16> {
    let row = |row: usize| &weight[row * strip.k() as usize..][..strip.k() as usize];
    let packer = strip.packer();
    let strips = order.iter().flat_map(|rows| {
        let mut place = vec![bf16::ZERO; strip.bytes() as usize / 2];
        packer.pack(&rows.map(|at| at.map(row)), &mut place);
        place
    });
    strips.collect()
}
