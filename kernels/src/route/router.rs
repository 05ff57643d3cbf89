//! The choice of experts by a router's logits.

use core::f32::consts::LOG2_E;

use tilewright_codegen::build::{Builder, Global, Ptr, RegArray, Val, block, record};
use tilewright_codegen::ir::attr::ReduxOp;
use tilewright_codegen::ir::{Arch, Kernel};

use crate::pdl::trigger_and_wait;

/// The function from a router's logits to ids and weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RouterKind {
    /// The softmax over all experts, then the largest.
    SoftmaxThenTopK {
        /// Whether the chosen weights are divided by their sum.
        renormalise: bool,
    },
    /// The largest logits, then the softmax over those.
    TopKThenSoftmax,
    /// Scores of groups of experts, a correction of the choice: DeepSeek's.
    Grouped(GroupedRouter),
}

/// The function from logits to the scores of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterScore {
    /// The sigmoid of each logit. A group's score is the sum of its two largest (DeepSeek-V3).
    Sigmoid,
    /// The softmax over all experts. A group's score is its largest (DeepSeek-V2).
    Softmax,
}

/// A router that chooses by `score + correction`, and weighs by the score.
///
/// Experts form `groups` of as many each. Experts of the `kept` groups with the largest scores may
/// be chosen; as few others are never chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupedRouter {
    /// The scores.
    pub score: RouterScore,
    /// Whether a number for each expert is added to its score for the choice.
    pub corrected: bool,
    /// Groups, of at least two experts each; a power of two up to 32.
    pub groups: u32,
    /// Groups that are kept.
    pub kept: u32,
    /// Whether the chosen weights are divided by their sum.
    pub renormalise: bool,
    /// The factor of the weights, applied last.
    pub scale: f32,
}

/// The sizes that the kernel is specialised for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouterShape {
    /// Experts, up to 1024.
    pub experts: u32,
    /// Experts of a row, up to 32.
    pub chosen: u32,
    /// The function.
    pub kind: RouterKind,
    /// Warps of a block, each of which has a row.
    pub warps: u32,
}

/// Lanes of a warp.
const LANES: u32 = 32;

/// The kernel `route`: ids and weights of the experts of each row, the largest first, the least id
/// first among equals. Numbers are ordered as by [`f32::total_cmp`]: a NaN is above ∞ or below −∞
/// by its sign. Ids are always distinct and below `experts`; a row with a NaN has NaN as weights,
/// where these come by a softmax over it.
///
/// Parameters: `rows`, `logits` (f32, `[rows, experts]`), `correction` (f32, `[experts]`) where the
/// kind has one, `ids` (u32) and `weights` (f32), both `[rows, chosen]`. The grid has a warp for
/// each row.
///
/// ```
/// use tilewright_codegen::ir::Arch;
/// use tilewright_kernels::route::{RouterKind, RouterShape, route_rows};
/// let kind = RouterKind::SoftmaxThenTopK { renormalise: true };
/// let kernel = route_rows(Arch::Sm90a, RouterShape { experts: 128, chosen: 8, kind, warps: 4 });
/// assert_eq!(kernel.name, "route");
/// ```
pub fn route_rows(arch: Arch, shape: RouterShape) -> Kernel {
    let RouterShape { experts, chosen, kind, warps } = shape;
    record("route", arch, block(LANES * warps), |k| {
        trigger_and_wait(k);
        let rows = k.param::<u32>("rows");
        let logits = k.global::<f32>("logits");
        let corrected = matches!(kind, RouterKind::Grouped(router) if router.corrected);
        let correction = corrected.then(|| k.global::<f32>("correction"));
        let ids = k.global::<u32>("ids");
        let weights = k.global::<f32>("weights");
        let row = k.block_id() * warps + k.warp();
        k.when(row.lt(rows), || {
            let logits = logits.at(row.mul_wide(experts));
            let scores = Scores::new(k, experts, |_, id| logits.at(id).load());
            let (id, weight) = scores.chosen(kind, chosen, correction);
            k.when(k.lane().lt(chosen), || {
                let at = row * chosen + k.lane();
                ids.at(at).store(id);
                weights.at(at).store(weight);
            });
        });
    })
}

/// The numbers of a row in the registers of a warp: lane `l` has those of the experts `l`, `l + 32`
/// and so on.
#[derive(Clone, Copy)]
pub(crate) struct Scores<'k> {
    k: &'k Builder,
    experts: u32,
    values: RegArray<'k, f32>,
}

impl<'k> Scores<'k> {
    /// The numbers that `number` gives for each register of a lane and its expert.
    pub(crate) fn new(k: &'k Builder, experts: u32, number: impl Fn(u32, Val<'k, u32>) -> Val<'k, f32>) -> Scores<'k> {
        let values = k.regs(experts.div_ceil(LANES), f32::NEG_INFINITY);
        let scores = Scores { k, experts, values };
        scores.each(&|i, id| values.set(i, number(i, id)));
        scores
    }

    /// Ids and weights of the chosen experts: lane `j` has those of choice `j`.
    pub(crate) fn chosen(
        self,
        kind: RouterKind,
        chosen: u32,
        correction: Option<Ptr<'k, Global, f32>>,
    ) -> (Val<'k, u32>, Val<'k, f32>) {
        match kind {
            RouterKind::Grouped(router) => self.by_groups(router, chosen, correction),
            RouterKind::SoftmaxThenTopK { renormalise: false } => self.by_softmax(chosen, true),
            RouterKind::SoftmaxThenTopK { renormalise: true } | RouterKind::TopKThenSoftmax => {
                self.by_softmax(chosen, false)
            }
        }
    }

    /// Calls `body` for the lane's numbers, with the id of each.
    fn each(self, body: &dyn Fn(u32, Val<'k, u32>)) {
        for i in 0..self.values.len() {
            let id = self.k.lane() + LANES * i;
            match LANES * (i + 1) <= self.experts {
                true => body(i, id),
                false => self.k.when(id.lt(self.experts), || body(i, id)),
            }
        }
    }

    /// The ids and weights of the softmax of the chosen, or of all where `all` is set: lane `j` has
    /// those of choice `j`.
    fn by_softmax(self, chosen: u32, all: bool) -> (Val<'k, u32>, Val<'k, f32>) {
        let k = self.k;
        let most = self.most();
        let sum = k.var(0.0f32);
        if all {
            self.each(&|i, _| sum.set(sum.get() + power(self.values.get(i), most)));
        }
        let Choice { id, value } = self.choose(chosen);
        let power = k.lane().lt(chosen).select(power(value, most), 0.0f32);
        let sum = if all { sum.get() } else { power }.warp_reduce(|a, b| a + b);
        (id, power.div_rn(sum))
    }

    /// The largest of the numbers.
    fn most(self) -> Val<'k, f32> {
        let lanes = (0..self.values.len()).map(|i| self.values.get(i));
        let mine = lanes.reduce(|a, b| a.max(b)).unwrap_or_else(|| self.k.lit(f32::NEG_INFINITY));
        mine.warp_reduce(|a, b| a.max(b))
    }

    /// The largest of the numbers, and the sum of all powers relative to it.
    fn softmax(self) -> (Val<'k, f32>, Val<'k, f32>) {
        let most = self.most();
        let sum = self.k.var(0.0f32);
        self.each(&|i, _| sum.set(sum.get() + power(self.values.get(i), most)));
        (most, sum.get().warp_reduce(|a, b| a + b))
    }

    fn by_groups(
        self,
        router: GroupedRouter,
        chosen: u32,
        correction: Option<Ptr<'k, Global, f32>>,
    ) -> (Val<'k, u32>, Val<'k, f32>) {
        let k = self.k;
        let GroupedRouter { score, groups, kept, renormalise, scale, .. } = router;
        let softmax = match score {
            RouterScore::Sigmoid => None,
            RouterScore::Softmax => Some(self.softmax()),
        };
        let scores = k.regs(self.values.len(), 0.0f32);
        self.each(&|i, id| {
            let score = match softmax {
                None => ((self.values.get(i) * -LOG2_E).ex2() + 1.0).recip(),
                Some((most, sum)) => power(self.values.get(i), most).div_rn(sum),
            };
            scores.set(i, score);
            self.values.set(i, correction.map_or(score, |correction| score + correction.at(id).load()));
        });
        if groups > 1 {
            self.keep_groups(groups, kept, if score == RouterScore::Sigmoid { 2 } else { 1 });
        }
        let Choice { id, .. } = self.choose(chosen);
        // Each lane reads the score of its choice where that lies.
        let weight = k.var(0.0f32);
        for i in 0..self.values.len() {
            let there = scores.get(i).shfl_idx(id % LANES);
            weight.set((id / LANES).eq(i).select(there, weight.get()));
        }
        let weight = k.lane().lt(chosen).select(weight.get(), 0.0f32);
        let weight = if renormalise { weight.div_rn(weight.warp_reduce(|a, b| a + b)) } else { weight };
        (id, weight * scale)
    }

    /// Sets the numbers of all but the `kept` best groups to −∞, where the sum of a group's `best`
    /// largest is its score.
    fn keep_groups(self, groups: u32, kept: u32, best: u32) {
        let k = self.k;
        let size = self.experts / groups;
        // Lane `g` has the score of group `g`.
        let score = k.var(f32::NEG_INFINITY);
        for group in 0..groups {
            let inside = |id: Val<'k, u32>| id.ge(group * size) & id.lt((group + 1) * size);
            let member = k.regs(self.values.len(), 0u32);
            self.each(&|i, id| member.set(i, inside(id).select(1u32, 0u32)));
            let largest = self.choose_among(best, Some(member));
            let first = largest.value.shfl_idx(0u32);
            let sum = (1..best).fold(first, |sum, place| sum + largest.value.shfl_idx(place));
            score.set(k.lane().eq(group).select(sum, score.get()));
        }
        let of_groups = Scores { k, experts: groups, values: k.regs(1u32, score.get()) };
        let best = of_groups.choose(kept);
        let chosen = k.var(0u32);
        for j in 0..kept {
            chosen.set(chosen.get() | (k.lit(1u32) << best.id.shfl_idx(j)));
        }
        self.each(&|i, id| {
            let is_kept = ((chosen.get() >> (id / size)) & 1).eq(1);
            self.values.set(i, is_kept.select(self.values.get(i), f32::NEG_INFINITY));
        });
    }

    /// The largest numbers: lane `j` has choice `j`.
    fn choose(self, count: u32) -> Choice<'k> {
        self.choose_among(count, None)
    }

    /// The largest of the numbers whose `member` is set.
    fn choose_among(self, count: u32, member: Option<RegArray<'k, u32>>) -> Choice<'k> {
        let k = self.k;
        // 0 stands for a number that was taken or is none.
        let keys = k.regs(self.values.len(), 0u32);
        self.each(&|i, _| {
            let key = ordered(self.values.get(i)).max(1u32);
            keys.set(i, member.map_or(key, |member| member.get(i).ne(0).select(key, 0u32)));
        });
        let id = k.var(0u32);
        let value = k.var(f32::NEG_INFINITY);
        for j in 0..count {
            // The lane's largest; its first among equals.
            let largest = k.var(0u32);
            let place = k.var(0u32);
            for i in 0..keys.len() {
                let better = keys.get(i).gt(largest.get());
                place.set(better.select(k.lane() + LANES * i, place.get()));
                largest.set(keys.get(i).max(largest.get()));
            }
            let best = largest.get().redux(ReduxOp::Max);
            let first = largest.get().eq(best).select(place.get(), u32::MAX).redux(ReduxOp::Min);
            for i in 0..keys.len() {
                keys.set(i, (k.lane() + LANES * i).eq(first).select(0u32, keys.get(i)));
            }
            id.set(k.lane().eq(j).select(first, id.get()));
            value.set(k.lane().eq(j).select(unordered(best), value.get()));
        }
        Choice { id: id.get(), value: value.get() }
    }
}

/// `e^(x − most)`.
fn power<'k>(x: Val<'k, f32>, most: Val<'k, f32>) -> Val<'k, f32> {
    ((x - most) * LOG2_E).ex2()
}

/// A choice of each lane.
#[derive(Clone, Copy)]
struct Choice<'k> {
    id: Val<'k, u32>,
    value: Val<'k, f32>,
}

/// A number that is larger where the value is, in the order of [`f32::total_cmp`].
fn ordered(value: Val<'_, f32>) -> Val<'_, u32> {
    let bits = value.bits::<u32>();
    bits.ge(1u32 << 31).select(!bits, bits | 1 << 31)
}

/// The value that [`ordered`] was made of.
fn unordered(key: Val<'_, u32>) -> Val<'_, f32> {
    key.ge(1u32 << 31).select(key & 0x7fff_ffff, !key).bits()
}
