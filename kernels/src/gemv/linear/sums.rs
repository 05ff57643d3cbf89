//! Strips from the ring times activations, and the sums of the warps' shares.

use core::cell::RefCell;

use tilewright_codegen::build::{Builder, Ptr, Shared, Val};
use tilewright_layout::view::OffsetMap;

use super::operand::Lane;
use super::packing::Packing;
use super::pass::StripPass;
use super::source::ActivationSource;
use super::starts::{Brought, Starts, side};
use super::wide;
use super::{AOperand, HeldStage};
use crate::gemv::product::{Chains, CodeTile, Fragment, ProductOperands, WarpTile, lowered, multiply, multiply_codes};
use crate::gemv::{Codes, Strip, Terms, WeightSide};
use crate::ring::{AnyStage, Consumer, Full, StageTile, Stages};
use crate::warps::{ConsumerWarps, sum_of_warps};

/// Activations as the MMA's operand.
pub(super) enum ActivationFragments<'k> {
    /// In shared memory.
    Shared(Lane<'k>),
    /// In shared memory, read two steps at a time.
    TwoSteps(Ptr<'k, Shared, u32>),
    /// In registers: the fragments of this warp's tiles, stage by stage.
    Registers(Vec<Vec<Fragment<'k>>>),
    /// Their source in memory.
    Reloaded(Box<ActivationSource<'k>>),
}

/// The operands that the weights of a task are multiplied with.
#[derive(Clone, Copy)]
pub(super) struct TaskOperands<'a, 'k> {
    /// The operand that holds the weights.
    pub side: WeightSide,
    /// The type in which codes meet activations.
    pub terms: Terms,
    /// The fragments of a step, or of it and the next where instructions take two: its number, and
    /// the place among those of a warp.
    pub fragments: &'a dyn Fn(Val<'k, u32>, u32) -> Vec<Fragment<'k>>,
    /// The zero-point accumulators.
    pub starts: Option<&'a Brought<'k>>,
}

/// Reads several stages that have arrived together.
pub type ReadStages<'r, 'k> = &'r dyn Fn(&[Ptr<'k, Shared, u32>]);

/// A source of weights, stage by stage: a reader of the ring. While a stage is read, the next one
/// may be waited for, no more.
pub trait WeightStages<'k>: Stages<'k> {
    /// Waits for the next stage, lets a warp read it, and releases it.
    fn stage(&self, read: &dyn Fn(Ptr<'k, Shared, u32>)) {
        let stage = self.wait();
        read(stage.base());
        stage.release();
    }

    /// Reads the next stage where a warp may have nothing to read; `reads` is uniform in the warp.
    fn stage_if(&self, reads: Val<'k, bool>, read: &dyn Fn(Ptr<'k, Shared, u32>)) {
        self.stage(&|there| reads.builder().when(reads, || read(there)));
    }

    /// Most stages that [`WeightStages::several`] may be asked for.
    fn most(&self) -> u32 {
        2
    }

    /// Reads the next `count` stages, which are released together.
    fn several(&self, count: u32, read: ReadStages<'_, 'k>) {
        let stages: Vec<_> = (0..count).map(|_| self.wait()).collect();
        read(&stages.iter().map(AnyStage::base).collect::<Vec<_>>());
        stages.into_iter().for_each(AnyStage::release);
    }

    /// The task's first stages, so far as they have been taken out of the ring already: where its
    /// activations are copied.
    fn held(&self) -> &[HeldStage<'k>] {
        &[]
    }
}

/// The consumers' end of a ring.
impl<'k, B, L: OffsetMap> WeightStages<'k> for RefCell<Consumer<'k, B, (StageTile<u32, L>,)>> {
    fn stage_if(&self, reads: Val<'k, bool>, read: &dyn Fn(Ptr<'k, Shared, u32>)) {
        let full = self.borrow_mut().wait();
        full.read_if(reads, |full| {
            let (stage,) = full.tiles();
            read(stage.base());
        });
    }

    fn most(&self) -> u32 {
        self.borrow().stages()
    }

    fn several(&self, count: u32, read: ReadStages<'_, 'k>) {
        let stages: Vec<_> = (0..count).map(|_| self.borrow_mut().wait()).collect();
        read(&stages.iter().map(|full| full.tiles().0.base()).collect::<Vec<_>>());
        Full::release_together(&stages);
    }
}

/// Accumulators of a strip of bf16 that take turns.
const CHAINS: u32 = 4;

/// Accumulators of a strip that take turns: of quantised weights those of a group do.
pub(super) fn chains(strip: Strip) -> u32 {
    if strip.codes().is_some() { 1 } else { CHAINS }
}

/// Sums in shared memory, f32 `[warps, strips, rows, 8]`: each warp's share of each output of a
/// group of strips.
#[derive(Clone, Copy)]
pub struct SharedSums<'k> {
    at: Ptr<'k, Shared, f32>,
    packing: Packing,
    strips: u32,
    warps: u32,
}

impl<'k> SharedSums<'k> {
    /// Sums of the products of those rows, for as many strips as fit into `bytes` bytes, 1 at least
    /// and 64 at most, an even number where it is more than 1.
    pub fn new(at: Ptr<'k, Shared, f32>, bytes: u32, packing: Packing, warps: u32) -> SharedSums<'k> {
        let strips = (bytes / SharedSums::bytes(packing.rows(), warps)).clamp(1, 64);
        // Strips may come in pairs.
        let strips = if strips > 1 { strips & !1 } else { 1 };
        SharedSums { at, packing, strips, warps }
    }

    /// Bytes of a strip's sums.
    pub fn bytes(rows: u32, warps: u32) -> u32 {
        warps * rows * Strip::ROWS * 4
    }

    /// Strips of a group.
    pub fn strips(self) -> u32 {
        self.strips
    }

    /// Outputs of a number of strips.
    pub(super) fn outputs(self, strips: u32) -> u32 {
        strips * self.packing.rows() * Strip::ROWS
    }

    /// The sum of the warps' shares of output `(strip · rows + row) · 8 + feature`.
    #[track_caller]
    pub(super) fn total(self, output: Val<'k, u32>) -> Val<'k, f32> {
        sum_of_warps(self.at.at(output), self.warps, self.outputs(self.strips))
    }

    /// Adds this lane's part of a strip's products to what is there.
    pub(super) fn add(self, team: ConsumerWarps<'k>, slot: Val<'k, u32>, products: [Val<'k, f32>; 4]) {
        self.place(team, slot, products, |at, [a, b]| {
            let [x, y]: [Val<f32>; 2] = at.load_vec();
            at.store_vec([a + x, b + y]);
        });
    }

    /// Stores this lane's part of a strip's products with codes as the A operand.
    fn store_features(self, team: ConsumerWarps<'k>, slot: Val<'k, u32>, products: [Val<'k, f32>; 4]) {
        let k = team.k;
        let rows = self.packing.rows();
        let strip = self.at.at((k.warp() * self.strips + slot) * (rows * Strip::ROWS) + k.lane() / 4);
        for (row, lane, value) in self.packing.rows_of_columns(k, products) {
            k.when((k.lane() % 4).eq(lane), || strip.at(row * Strip::ROWS).store(value));
        }
    }

    /// Stores this lane's part of the products of a strip and, where `second` says so, the next,
    /// with codes as the A operand: of eight rows from `first` on.
    fn store_pair(
        self,
        team: ConsumerWarps<'k>,
        [slot, first]: [Val<'k, u32>; 2],
        products: [Val<'k, f32>; 4],
        second: bool,
    ) {
        let k = team.k;
        let rows = self.packing.rows();
        let strip = self.at.at((k.warp() * self.strips + slot) * (rows * Strip::ROWS) + k.lane() / 4);
        let [a, b, c, d] = products;
        for (next, sums) in [[a, b], [c, d]].into_iter().enumerate().take(1 + usize::from(second)) {
            let strip = strip.at(next as u32 * rows * Strip::ROWS);
            for (row, sum) in self.packing.rows_of_two(k, sums) {
                let row = first + row;
                k.when(row.lt(rows), || strip.at(row * Strip::ROWS).store(sum));
            }
        }
    }

    /// Lets `put` have the places of this lane's part of a strip's products, and what goes there.
    fn place(
        self,
        team: ConsumerWarps<'k>,
        slot: Val<'k, u32>,
        products: [Val<'k, f32>; 4],
        put: impl Fn(Ptr<'k, Shared, f32>, [Val<'k, f32>; 2]),
    ) {
        let k = team.k;
        let rows = self.packing.rows();
        let group = k.lane() / 4;
        let feature = k.lane() % 4 * 2;
        let strip = self.at.at((k.warp() * self.strips + slot) * (rows * Strip::ROWS) + feature);
        let (first, second) = self.packing.totals(products);
        k.when(group.lt(rows), || put(strip.at(group * 8), first));
        if let Some(second) = second {
            k.when((group + 8).lt(rows), || put(strip.at(group * 8 + 64), second));
        }
    }
}

impl<'k> StripPass<'k> {
    /// The sums of a group of strips. Activations in registers leave their shared memory to them,
    /// up to four outputs of a thread: the ring is not read while outputs are finished, so few
    /// large groups are better than many small ones.
    pub(super) fn sums(self, packing: Packing) -> SharedSums<'k> {
        let StripPass { team, scratch, strip, rows, a_operand, reserved, .. } = self;
        let each = SharedSums::bytes(rows, team.warps);
        let plain = |bytes: u32| SharedSums::new(scratch.sums, bytes, packing, team.warps);
        match a_operand {
            AOperand::Reloaded { group } => plain(group * each),
            AOperand::Registers | AOperand::Phases { .. } if self.spreads => {
                let used = a_operand.operand_bytes(strip, packing).next_multiple_of(8) + reserved;
                let used = used.min(scratch.operand_bytes);
                let most = team.threads() * 4 / (rows * Strip::ROWS);
                let strips = ((scratch.operand_bytes - used + scratch.sums_bytes) / each).min(most) & !1;
                if strips * each <= scratch.sums_bytes {
                    return plain(scratch.sums_bytes);
                }
                SharedSums::new(scratch.operand.at(used / 2).cast(), strips * each, packing, team.warps)
            }
            AOperand::Shared | AOperand::Registers | AOperand::Phases { .. } => plain(scratch.sums_bytes),
        }
    }
}

/// The products of a ring's strips with activations: what they are made of, and where they go.
#[derive(Clone, Copy)]
pub(super) struct Products<'a, 'k> {
    /// Warps that multiply.
    pub team: ConsumerWarps<'k>,
    /// Shape of a strip.
    pub strip: Strip,
    /// Source of the strips, stage by stage.
    pub weights: &'a dyn WeightStages<'k>,
    /// Activations that strips are multiplied with.
    pub operands: TaskOperands<'a, 'k>,
    /// Shared memory that receives the products.
    pub sums: SharedSums<'k>,
}

impl<'k> Products<'_, 'k> {
    /// Multiplies the next strip of the ring, into slot `slot` of the sums. The strip's first
    /// stages may be held in registers.
    pub fn strip(self, held: &[HeldStage<'k>], slot: Val<'k, u32>) {
        let Products { team, strip, weights, operands, .. } = self;
        let chains = Chains::new(team.k, 1, chains(strip));
        for stage in 0..strip.stages() {
            let from = held.get(stage as usize).map_or(WeightStage::Next(weights), WeightStage::Held);
            operands.meet(team, strip, stage, |meeting| {
                from.multiply(team, strip, meeting, chains.after_tiles(stage * strip.per_warp()))
            });
        }
        self.store(slot, chains);
    }

    /// Multiplies the next `count` strips of the ring, of a single stage each, into slot `slot` of
    /// the sums and the following ones: all are under way together. The sums are those that
    /// [`Products::strip`] makes.
    pub fn several(self, slot: Val<'k, u32>, count: u32) {
        let Products { team, strip, weights, operands, .. } = self;
        let Some(codes) = strip.codes() else { return };
        let all: Vec<_> = (0..count).map(|next| (slot + next, Chains::new(team.k, 1, chains(strip)))).collect();
        weights.several(count, &|stages| {
            let tiles = |&stage| code_tiles(team.k, strip, codes, operands.side, stage).collect::<Vec<_>>();
            let tiles: Vec<_> = stages.iter().map(tiles).collect();
            for (tiles, &(_, chains)) in tiles.into_iter().zip(&all) {
                operands.meet(team, strip, 0, |meeting| {
                    multiply_codes(team.k, strip, codes, tiles.into_iter(), &meeting, chains);
                });
            }
        });
        all.into_iter().for_each(|(slot, chains)| self.store(slot, chains));
    }

    /// Stores a strip's products, which are in `chains`, into a slot of the sums.
    pub fn store(self, slot: Val<'k, u32>, chains: Chains<'k>) {
        let Products { team, strip, operands: TaskOperands { side, terms, .. }, sums, .. } = self;
        let products = lowered(strip, side, terms, chains);
        match side {
            WeightSide::A => sums.store_features(team, slot, products),
            WeightSide::B | WeightSide::Half | WeightSide::Pair => {
                sums.place(team, slot, products, |at, sums| at.store_vec(sums))
            }
        }
    }

    /// Multiplies the next `strips` strips of the ring, two by two.
    pub fn pairs(self, strips: Val<'k, u32>) {
        let k = self.team.k;
        let last = strips - strips % 2;
        k.for_step(0u32, last, 2, |slot| self.pair(slot, true));
        k.when(last.lt(strips), || self.pair(last, false));
    }

    /// Multiplies the next strip of the ring and, where `second` says so, the following one, into
    /// slot `slot` of the sums and the next. Single stages are released together; of several those
    /// of the first strip wait in registers. A strip's sums are the same whether there is another.
    fn pair(self, slot: Val<'k, u32>, second: bool) {
        let Products { team, strip, weights, operands, sums } = self;
        let k = team.k;
        let side = operands.side;
        let terms = operands.terms;
        let Some(codes) = strip.codes() else { return };
        let load = |stage| code_tiles(k, strip, codes, side, stage);
        let eights = sums.packing.halves().len() as u32;
        let chains = Chains::new(k, eights, 1);
        let multiply = |number: u32, tiles: &mut dyn Iterator<Item = CodeTile<'k>>| {
            let before = number * strip.per_warp();
            let tile = |round: u32| strip.tile(k.warp(), k.lit(before + round));
            let of_step = |step: u32| (operands.fragments)(tile(step / strip.steps()), before * strip.steps() + step);
            let starts = |round: u32, part: u32, atom: u32| {
                operands.starts.map(|starts| starts.load(before + round, strip.parts(side), tile(round), part, atom))
            };
            let meeting = ProductOperands { side, terms, fragments: &of_step, starts: &starts };
            multiply_codes(k, strip, codes, tiles, &meeting, chains);
        };
        let both = |(first, next): (CodeTile<'k>, CodeTile<'k>)| first.beside(&next);
        let twice = |first: CodeTile<'k>| first.beside(&first);
        if strip.stages() == 1 {
            if second {
                weights.several(2, &|stages| multiply(0, &mut load(stages[0]).zip(load(stages[1])).map(both)));
            } else {
                weights.stage(&|first| multiply(0, &mut load(first).map(twice)));
            }
        } else {
            let held: Vec<RefCell<Vec<CodeTile>>> = (0..strip.stages()).map(|_| RefCell::default()).collect();
            held.iter().for_each(|held| weights.stage(&|stage| held.borrow_mut().extend(load(stage))));
            for (number, first) in (0u32..).zip(&held) {
                let first = first.borrow();
                let first = first.iter().cloned();
                if second {
                    weights.stage(&|next| multiply(number, &mut first.clone().zip(load(next)).map(both)));
                } else {
                    multiply(number, &mut first.map(twice));
                }
            }
        }
        for eight in 0..eights {
            sums.store_pair(team, [slot, k.lit(eight * 8)], lowered(strip, side, terms, chains.atom(eight)), second);
        }
    }
}

/// Parts of tiles of codes of a warp that are under way together, where strips are of a single
/// stage.
const PARTS: u32 = 8;

/// Whether two strips of a task may share one stage, one after the other: codes of a single stage
/// each, which are read two or four at a time ([`WeightStages::several`]), from the task's first
/// on; of an odd number the last comes alone.
///
/// ```
/// use tilewright_kernels::gemv::{Codes, Strip, linear::{AOperand, Packing, in_pairs}};
/// use tilewright_kernels::{quant::Code, tile::Float};
/// let codes = Codes { code: Code::U4, group: Some(128), zeros: false, scale: Float::Bf16, blocks: false };
/// let strip = |k| Strip::of_codes(k, 8, 16384, codes);
/// let row = Packing::of(1, Float::F32);
/// let eight = Packing::of(8, Float::F32);
/// assert!(in_pairs(strip(2048)?, row, AOperand::Shared));
/// assert!(in_pairs(strip(2048)?, eight, AOperand::Registers) && !in_pairs(strip(8192)?, row, AOperand::Shared));
/// # Ok::<(), tilewright_kernels::gemv::StripError>(())
/// ```
pub fn in_pairs(strip: Strip, packing: Packing, a_operand: AOperand) -> bool {
    let both = match side(strip, packing.meeting(strip), a_operand) {
        WeightSide::A => turns(strip, 2).next() == Some(2),
        WeightSide::Pair => true,
        WeightSide::B | WeightSide::Half => false,
    };
    both && strip.stages() == 1
}

/// The numbers of strips that may be multiplied together, largest first: strips of a single stage,
/// within the limit of stages.
pub(super) fn turns(strip: Strip, stages: u32) -> impl Iterator<Item = u32> {
    let most =
        if strip.stages() == 1 { (PARTS / (strip.per_warp() * strip.parts(WeightSide::A))).min(stages) } else { 1 };
    [4, 2, 1].into_iter().filter(move |&strips| strips <= most.max(1))
}

/// The tiles of codes of a stage for this warp, each loaded when it is reached.
pub(super) fn code_tiles<'k>(
    k: &'k Builder,
    strip: Strip,
    codes: Codes,
    side: WeightSide,
    stage: Ptr<'k, Shared, u32>,
) -> impl Iterator<Item = CodeTile<'k>> {
    WarpTile::of_whole_rounds(k, strip).map(move |tile| tile.load_codes(strip, codes, side, stage.cast()))
}

impl<'k> TaskOperands<'_, 'k> {
    /// Builds the operands for a strip's weights from a stage on, and passes them to `multiply`.
    pub(super) fn meet(
        self,
        team: ConsumerWarps<'k>,
        strip: Strip,
        stage: u32,
        multiply: impl FnOnce(ProductOperands<'_, 'k>),
    ) {
        let side = self.side;
        let before = stage * strip.per_warp();
        let first = strip.tile(team.k.warp(), team.k.lit(before));
        let of_step = |number: u32| match strip.steps() {
            1 => (self.fragments)(first + number * team.warps, before + number),
            steps => {
                let meets = steps / side.steps();
                let tile = first + number / meets * team.warps;
                (self.fragments)(tile * steps + number % meets * side.steps(), before * meets + number)
            }
        };
        let parts = strip.parts(side);
        let starts = |round: u32, part: u32, _: u32| {
            self.starts.map(|starts| starts.load(before + round, parts, first + round * team.warps, part, 0))
        };
        multiply(ProductOperands { side, terms: self.terms, fragments: &of_step, starts: &starts });
    }
}

/// The products of a ring's strips, which come in the order of a group, with activations that are
/// loaded stage by stage.
#[derive(Clone, Copy)]
pub(super) struct Reloading<'a, 'k> {
    /// Source of the activations.
    pub source: &'a ActivationSource<'k>,
    /// Source of the strips, stage by stage.
    pub weights: &'a dyn WeightStages<'k>,
    /// Shared memory that receives the products.
    pub sums: SharedSums<'k>,
    /// Strips that are multiplied, a group at most.
    pub strips: Val<'k, u32>,
    /// Shared memory for the factors of a group's codes, of [`wide::room`].
    pub room: Ptr<'k, Shared, u8>,
    /// Zero-point accumulators of codes.
    pub starts: Option<Starts<'k>>,
}

/// Multiplies the next strips of the ring; `group`: how many a group has, where that is fixed.
pub(super) fn products<'k>(work: Reloading<'_, 'k>, group: Option<u32>) {
    let Reloading { source, weights, sums, strips, starts, .. } = work;
    let ActivationSource { team, strip, packing, .. } = *source;
    let k = team.k;
    let side = side(strip, packing, AOperand::Reloaded { group: 0 });
    let terms = packing.terms();
    // A lane alone reads and writes its part of the sums until the team meets.
    k.for_(0u32, strips, |slot| {
        sums.place(team, slot, [k.lit(0.0f32); 4], |at, zeros| at.store_vec(zeros));
    });
    source.clear_squares();
    if let (Some(codes), true, Some(group)) = (strip.codes(), wide::is_wide(strip, packing), group) {
        return wide::products(work, codes, group);
    }
    k.for_(0u32, strip.stages(), |stage| {
        let fragments = source.fragments(&source.columns(stage));
        let tile = |round: u32| WarpTile::number(k, strip, round).get(k);
        if let Some(starts) = starts {
            // The warp has read those of the stage before.
            k.sync_warp();
            let tiles = (0u32..).zip(fragments.chunks(strip.steps() as usize));
            let tiles: Vec<_> = tiles.map(|(round, fragments)| (tile(round), fragments.to_vec())).collect();
            starts.make(team, &tiles);
            k.sync_warp();
        }
        let starts = |round: u32, part: u32, _: u32| starts.map(|starts| starts.load(tile(round), part, 0));
        let fragments = |step: u32| fragments[step as usize].clone();
        k.for_(0u32, strips, |slot| {
            let chains = Chains::new(k, 1, chains(strip));
            let meeting = ProductOperands { side, terms, fragments: &fragments, starts: &starts };
            WeightStage::Next(weights).multiply(team, strip, meeting, chains);
            sums.add(team, slot, lowered(strip, side, terms, chains));
        });
    });
}

/// A stage of weights.
enum WeightStage<'w, 'k> {
    /// The ring's next.
    Next(&'w dyn WeightStages<'k>),
    /// In registers.
    Held(&'w HeldStage<'k>),
}

impl<'k> WeightStage<'_, 'k> {
    /// Adds its products.
    fn multiply(self, team: ConsumerWarps<'k>, strip: Strip, meeting: ProductOperands<'_, 'k>, chains: Chains<'k>) {
        let side = meeting.side;
        match self {
            WeightStage::Next(weights) => weights.stage(&|stage| {
                if let Some(codes) = strip.codes() {
                    let tiles = code_tiles(team.k, strip, codes, side, stage);
                    return multiply_codes(team.k, strip, codes, tiles, &meeting, chains);
                }
                let tiles = WarpTile::of_whole_rounds(team.k, strip).map(|tile| tile.load(strip, stage.cast()));
                multiply(team.k, tiles, meeting.fragments, chains);
            }),
            WeightStage::Held(held) => match strip.codes() {
                None => multiply(team.k, held.tiles(strip), meeting.fragments, chains),
                Some(codes) => {
                    let tiles = held.code_tiles(strip, codes, side);
                    multiply_codes(team.k, strip, codes, tiles, &meeting, chains);
                }
            },
        }
    }
}
