//! The ring of stages in shared memory: one producer thread, all warps of the team as readers.

use tilewright_codegen::build::{Builder, Bulk, Global, Mbarrier, Ptr, Shared, Val, Var};
use tilewright_codegen::ir::attr::{BarScope, Eviction, ProxyFence, Scope};
use tilewright_kernels::decode::Weights;

use crate::vm::device::DeviceOptions;

/// Stages and their barriers: a stage goes round empty, expected, full, read, empty.
#[derive(Clone, Copy)]
pub(super) struct Ring<'k> {
    k: &'k Builder,
    stages: Ptr<'k, Shared, u32>,
    full: Mbarrier<'k, Shared>,
    empty: Mbarrier<'k, Shared>,
    /// The task that the team has come to, counted over the launch from 1.
    current: Ptr<'k, Shared, u32>,
    options: DeviceOptions,
}

/// Where a thread is in the ring.
#[derive(Clone, Copy)]
struct Cursor<'k> {
    stage: Var<'k, u32>,
    parity: Var<'k, u32>,
}

impl<'k> Ring<'k> {
    pub fn new(k: &'k Builder, options: DeviceOptions) -> Ring<'k> {
        let stages = k.shared_aligned::<u32>("ring", options.stages * options.stage_bytes / 4, 128);
        let (full, empty) = (k.mbarriers("full", options.stages), k.mbarriers("empty", options.stages));
        Ring { k, stages, full, empty, current: k.shared::<u32>("current", 1), options }
    }

    /// Initialises the barriers; by one thread, before anybody else comes.
    pub fn start(self) {
        for stage in 0..self.options.stages {
            self.full.at(stage).init(1);
            self.empty.at(stage).init(self.options.warps);
        }
        self.current.store(0u32);
        self.k.fence_mbarrier_init();
    }

    fn stage(self, stage: Val<'k, u32>) -> Ptr<'k, Shared, u32> {
        self.stages.at(stage * (self.options.stage_bytes / 4))
    }

    fn cursor(self, parity: u32) -> Cursor<'k> {
        Cursor { stage: self.k.var(0u32), parity: self.k.var(parity) }
    }

    fn advance(self, cursor: Cursor<'k>) {
        let next = cursor.stage.get() + 1;
        let wraps = next.eq(self.options.stages);
        cursor.stage.set(wraps.select(0u32, next));
        cursor.parity.set(cursor.parity.get() ^ wraps.select(1u32, 0u32));
    }

    /// The producer's end.
    pub fn producer(self) -> Producer<'k> {
        let in_flight = self.k.var(0u32);
        Producer {
            ring: self,
            filling: self.cursor(1),
            landing: self.cursor(0),
            in_flight,
            policy: self.k.policy(Eviction::First),
        }
    }

    /// A reader's end.
    pub fn reader(self) -> Reader<'k> {
        Reader { ring: self, cursor: self.cursor(0) }
    }
}

/// The producer's end: fills stages in order, a bounded number of them in flight.
#[derive(Clone, Copy)]
pub(super) struct Producer<'k> {
    ring: Ring<'k>,
    filling: Cursor<'k>,
    landing: Cursor<'k>,
    in_flight: Var<'k, u32>,
    policy: Val<'k, u64>,
}

impl<'k> Producer<'k> {
    /// Waits until fewer stages are in flight than may be for a task, counted over the launch from 1: more where the
    /// team has come to it.
    pub fn land(self, task: Val<'k, u32>) {
        // The producer's view of what landed must stay within one round of the ring: parities repeat after two.
        let options = self.ring.options;
        let [most, burst] = [options.in_flight, options.burst].map(|most| most.clamp(1, options.stages - 1));
        let most = self.ring.current.load_relaxed(Scope::Cta).eq(task).select(burst, most);
        self.ring.k.while_(|| self.in_flight.get().ge(most), || self.land_one());
    }

    fn land_one(self) {
        let ring = self.ring;
        ring.full.at(self.landing.stage.get()).wait(self.landing.parity.get());
        ring.advance(self.landing);
        self.in_flight.set(self.in_flight.get() - 1);
    }

    /// Whether the next stage is empty.
    pub fn is_empty(self) -> Val<'k, bool> {
        self.ring.empty.at(self.filling.stage.get()).test_wait(self.filling.parity.get(), BarScope::Cta)
    }

    /// Fills the next stage, which is empty, with so many bytes in all: `copies` says what goes where.
    pub fn fill(self, bytes: Val<'k, u32>, copies: impl FnOnce(Filling<'k>)) {
        let (ring, stage) = (self.ring, self.filling.stage.get());
        let full = ring.full.at(stage);
        self.in_flight.set(self.in_flight.get() + 1);
        full.arrive_expect_tx(bytes);
        copies(Filling { stage: ring.stage(stage).cast(), full, policy: self.policy });
        ring.advance(self.filling);
    }

    /// Whether something is in flight that has not landed; what has is counted.
    pub fn flies(self) -> Val<'k, bool> {
        let (k, ring) = (self.ring.k, self.ring);
        let full = ring.full.at(self.landing.stage.get());
        let lands = self.in_flight.get().gt(0) & full.test_wait(self.landing.parity.get(), BarScope::Cta);
        k.when(lands, || self.land_one());
        self.in_flight.get().gt(0)
    }

    /// Waits for everything in flight: a block must not end under a copy.
    pub fn drain(self) {
        self.ring.k.while_(|| self.in_flight.get().gt(0), || self.land_one());
    }
}

/// A stage that is being filled.
#[derive(Clone, Copy)]
pub(super) struct Filling<'k> {
    stage: Ptr<'k, Shared, u8>,
    full: Mbarrier<'k, Shared>,
    policy: Val<'k, u64>,
}

impl<'k> Filling<'k> {
    /// Brings bytes to a place of the stage.
    pub fn bring(self, at: u32, from: Ptr<'k, Global, u8>, bytes: Val<'k, u32>) {
        self.stage.at(at).bulk_load(from, bytes, self.full, Bulk::default().policy(self.policy));
    }
}

/// A reader's end, for whole warps.
#[derive(Clone, Copy)]
pub(super) struct Reader<'k> {
    ring: Ring<'k>,
    cursor: Cursor<'k>,
}

impl<'k> Reader<'k> {
    /// Whether the next stage has landed; the same for all lanes of a warp.
    pub fn landed(self) -> Val<'k, bool> {
        let (stage, parity) = (self.cursor.stage.get(), self.cursor.parity.get());
        self.ring.full.at(stage).test_wait(parity, BarScope::Cta).all()
    }

    /// Says which task the team comes to, counted over the launch from 1; by one thread.
    pub fn comes_to(self, task: Val<'_, u32>) {
        self.ring.current.store_relaxed(task, Scope::Cta);
    }
}

impl<'k> Weights<'k> for Reader<'k> {
    fn stage(&self, read: &dyn Fn(Ptr<'k, Shared, u32>)) {
        let (k, ring) = (self.ring.k, self.ring);
        let stage = self.cursor.stage.get();
        ring.full.at(stage).wait(self.cursor.parity.get());
        read(ring.stage(stage));
        // Reads may still be on their way, behind loads from global memory, when the arrival is seen, and copies into the
        // stage do not queue behind them.
        k.fence_proxy_async(ProxyFence::Shared);
        k.sync_warp();
        k.when(k.lane().eq(0), || ring.empty.at(stage).arrive());
        ring.advance(self.cursor);
    }
}
