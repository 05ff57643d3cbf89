//! Choices sorted by expert: a stable counting sort by one block.
//!
//! Each warp has a run of the choices. It counts those of each expert; sums over experts and warps
//! say where its first of each goes; then it gives each choice its place. Lanes with the same expert
//! find their ranks by a vote, so no place depends on timing.

use tilewright_codegen::build::{Builder, Global, Ptr, Shared, Val, Var, block, record};
use tilewright_codegen::ir::{Arch, Kernel};

use crate::collective::Warp;
use crate::pdl::trigger_and_wait;

/// The place of a choice that is for none of the experts.
pub const NO_PLACE: u32 = u32::MAX;

/// Warps of the block.
const WARPS: u32 = 32;
/// Threads of the block.
pub const SORT_THREADS: u32 = 32 * WARPS;
/// Choices of a lane whose loads are under way together.
const TOGETHER: u32 = 4;

/// The sizes that the kernel is specialised for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SortShape {
    /// Experts, up to 1024.
    pub experts: u32,
    /// The first of them: choices of others are left out, as those of other devices.
    pub first: u32,
    /// Whether the place of each choice is written.
    pub inverse: bool,
}

/// The kernel `sort_choices`: sorts choices by expert; those of one expert stay in their order.
///
/// Parameters: `count` (choices), `ids` (u32, `[count]`), `offsets` (u32, `[experts + 1]`), `order`
/// (u32, `[count]`: the number of the choice at each place), and where asked for `inverse` (u32,
/// `[count]`: the place of each choice, [`NO_PLACE`] for one that is left out). One block of
/// [`SORT_THREADS`] threads.
///
/// ```
/// use tilewright_codegen::ir::Arch;
/// use tilewright_kernels::route::{SORT_THREADS, SortShape, sort_choices};
/// let kernel = sort_choices(Arch::Sm90a, SortShape { experts: 128, first: 0, inverse: false });
/// assert_eq!(kernel.launch.threads[0], SORT_THREADS);
/// ```
pub fn sort_choices(arch: Arch, shape: SortShape) -> Kernel {
    let SortShape { experts, first, inverse } = shape;
    record("sort_choices", arch, block(SORT_THREADS), |k| {
        let count = k.param::<u32>("count");
        let ids = k.global::<u32>("ids");
        let offsets = k.global::<u32>("offsets");
        let order = k.global::<u32>("order");
        let inverse = inverse.then(|| k.global::<u32>("inverse"));
        // The number of the warp's choices of each expert, then their next place.
        let table = k.shared::<u32>("places", WARPS * experts);
        let totals = k.shared::<u32>("totals", WARPS);
        k.for_step(k.tid(), WARPS * experts, SORT_THREADS, |at| table.at(at).store(0u32));
        trigger_and_wait(k);
        k.barrier();
        let run = ChoiceRun::new(k, Choices { ids, count, experts, first }, table);
        run.each(&|_, choice| {
            k.when(choice.leads, || {
                let counter = run.counter(choice.expert);
                counter.store(counter.load() + choice.peers.popc());
            });
            k.sync_warp();
        });
        k.barrier();
        place_experts(k, experts, table, totals, offsets);
        k.barrier();
        run.each(&|number, choice| {
            let counter = run.counter(choice.expert.min(experts - 1));
            let place = counter.load() + (choice.peers & ((k.lit(1u32) << k.lane()) - 1)).popc();
            k.sync_warp();
            k.when(choice.leads, || counter.store(counter.load() + choice.peers.popc()));
            k.when(number.lt(count), || {
                k.when(choice.expert.lt(experts), || order.at(place).store(number));
                if let Some(inverse) = inverse {
                    inverse.at(number).store(choice.expert.lt(experts).select(place, NO_PLACE));
                }
            });
            k.sync_warp();
        });
    })
}

/// The choices to sort.
#[derive(Clone, Copy)]
struct Choices<'k> {
    ids: Ptr<'k, Global, u32>,
    count: Val<'k, u32>,
    experts: u32,
    first: u32,
}

/// The run of choices that a warp has.
#[derive(Clone, Copy)]
struct ChoiceRun<'k> {
    k: &'k Builder,
    choices: Choices<'k>,
    begin: Val<'k, u32>,
    end: Val<'k, u32>,
    /// The warp's counter of each expert.
    counters: Ptr<'k, Shared, u32>,
}

/// A lane's choice.
#[derive(Clone, Copy)]
struct LaneChoice<'k> {
    /// Counted from the first expert; the number of experts where there is none.
    expert: Val<'k, u32>,
    /// The lanes with the same expert.
    peers: Val<'k, u32>,
    /// Whether this lane counts for its peers: the first that has an expert.
    leads: Val<'k, bool>,
}

impl<'k> ChoiceRun<'k> {
    fn new(k: &'k Builder, choices: Choices<'k>, table: Ptr<'k, Shared, u32>) -> ChoiceRun<'k> {
        let step = SORT_THREADS * TOGETHER;
        let each = (choices.count + (step - 1)) / step * (32 * TOGETHER);
        let begin = k.warp() * each;
        ChoiceRun { k, choices, begin, end: begin + each, counters: table.at(k.warp() * choices.experts) }
    }

    fn counter(&self, expert: Val<'k, u32>) -> Ptr<'k, Shared, u32> {
        self.counters.at(expert)
    }

    /// Calls `body` for the choices of the run in their order, 32 at a time, a lane each: with the
    /// number of the lane's.
    fn each(&self, body: &dyn Fn(Val<'k, u32>, LaneChoice<'k>)) {
        let k = self.k;
        let Choices { ids, count, experts, first } = self.choices;
        k.for_step(self.begin, self.end, 32 * TOGETHER, |base| {
            let loaded = (0..TOGETHER).map(|i| {
                let number = base + k.lane() + 32 * i;
                let id: Var<'k, u32> = k.var(u32::MAX);
                k.when(number.lt(count), || id.set(ids.at(number).load()));
                (number, id)
            });
            for (number, id) in loaded.collect::<Vec<_>>() {
                let expert = (id.get() - first).min(experts);
                let peers = expert.match_any();
                let leads = (peers & ((k.lit(1u32) << k.lane()) - 1)).eq(0) & expert.lt(experts);
                body(number, LaneChoice { expert, peers, leads });
            }
        });
    }
}

/// Makes the first place of each warp's choices of each expert of their numbers, and writes the
/// offsets: thread `e` has expert `e`.
fn place_experts<'k>(
    k: &'k Builder,
    experts: u32,
    table: Ptr<'k, Shared, u32>,
    totals: Ptr<'k, Shared, u32>,
    offsets: Ptr<'k, Global, u32>,
) {
    let expert = k.tid();
    let exists = expert.lt(experts);
    let total = k.var(0u32);
    k.when(exists, || {
        k.for_(0u32, WARPS, |warp| {
            let counter = table.at(warp * experts + expert);
            let counted = counter.load();
            counter.store(total.get());
            total.set(total.get() + counted);
        });
    });
    let inclusive = inclusive_sum(k, total.get());
    k.when(k.lane().eq(31), || totals.at(k.warp()).store(inclusive));
    k.barrier();
    let before = inclusive_sum(k, totals.at(k.lane()).load());
    let before = k.warp().eq(0).select(0u32, before.shfl_idx(k.warp().max(1u32) - 1));
    let end = before + inclusive;
    let begin = end - total.get();
    k.when(exists, || {
        k.for_(0u32, WARPS, |warp| {
            let counter = table.at(warp * experts + expert);
            counter.store(counter.load() + begin);
        });
        offsets.at(expert + 1).store(end);
        k.when(expert.eq(0), || offsets.store(0u32));
    });
}

/// The sum of the lanes up to this one.
fn inclusive_sum<'k>(k: &'k Builder, mine: Val<'k, u32>) -> Val<'k, u32> {
    Warp::new(k).inclusive_scan(mine, |below, sum| sum + below)
}
