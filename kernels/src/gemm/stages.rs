//! The stages of a pipeline between one thread that fetches and warps that multiply, over a cluster of blocks.
//!
//! A stage is full when the bytes that its filler expects have landed, from whichever block of the cluster sent them; it
//! is empty when every multiplying warp of the whole cluster has said so, since each block's copies may land in all.

use tilewright_codegen::build::{Builder, Mbarrier, Shared, Val, Var};

/// The barriers of the stages.
#[derive(Clone, Copy)]
pub struct Stages<'k> {
    k: &'k Builder,
    full: Mbarrier<'k, Shared>,
    empty: Mbarrier<'k, Shared>,
    count: u32,
    cluster: u32,
}

/// A stage, as its user sees it.
#[derive(Clone, Copy)]
pub struct Stage<'k> {
    /// Its number.
    pub number: Val<'k, u32>,
    /// Completes when the stage is full.
    pub full: Mbarrier<'k, Shared>,
}

impl<'k> Stages<'k> {
    /// `count` stages that `warps` warps of each block of the cluster read. Every thread of the cluster comes here.
    #[track_caller]
    pub fn new(k: &'k Builder, count: u32, warps: u32, cluster: u32) -> Stages<'k> {
        let (full, empty) = (k.mbarriers("full", count), k.mbarriers("empty", count));
        k.when(k.tid().eq(0), || {
            for stage in 0..count {
                full.at(stage).init(1);
                empty.at(stage).init(warps * cluster);
            }
            k.fence_mbarrier_init();
        });
        if cluster > 1 {
            k.cluster_sync()
        } else {
            k.barrier()
        }
        Stages { k, full, empty, count, cluster }
    }

    /// The side that fills, for one thread.
    #[track_caller]
    pub fn writer(self) -> Writer<'k> {
        Writer { stages: self, cursor: Cursor::new(self.k, self.count, 1) }
    }

    /// The side that reads, for the warps that were counted.
    #[track_caller]
    pub fn reader(self) -> Reader<'k> {
        Reader { stages: self, cursor: Cursor::new(self.k, self.count, 0), previous: self.k.var(0u32) }
    }
}

/// A stage number that goes round, and the parity of its lap.
#[derive(Clone, Copy)]
struct Cursor<'k> {
    number: Var<'k, u32>,
    parity: Var<'k, u32>,
    count: u32,
}

impl<'k> Cursor<'k> {
    #[track_caller]
    fn new(k: &'k Builder, count: u32, parity: u32) -> Cursor<'k> {
        Cursor { number: k.var(0u32), parity: k.var(parity), count }
    }

    #[track_caller]
    fn advance(self) {
        let next = self.number.get() + 1;
        let around = next.eq(self.count);
        self.number.set(around.select(0u32, next));
        self.parity.set(self.parity.get() ^ around.select(1u32, 0u32));
    }
}

/// Fills stages in turn.
#[derive(Clone, Copy)]
pub struct Writer<'k> {
    stages: Stages<'k>,
    cursor: Cursor<'k>,
}

impl<'k> Writer<'k> {
    /// Waits for the next stage to be empty, expects `bytes` in it, and lets `copy` send them.
    #[track_caller]
    pub fn fill(self, bytes: u32, copy: impl FnOnce(Stage<'k>)) {
        let number = self.cursor.number.get();
        let Stages { full, empty, .. } = self.stages;
        empty.at(number).wait(self.cursor.parity.get());
        full.at(number).arrive_expect_tx(bytes);
        copy(Stage { number, full: full.at(number) });
        self.cursor.advance();
    }
}

/// Reads stages in turn.
#[derive(Clone, Copy)]
pub struct Reader<'k> {
    stages: Stages<'k>,
    cursor: Cursor<'k>,
    previous: Var<'k, u32>,
}

impl<'k> Reader<'k> {
    /// Waits for the next stage to be full and lets `read` use it.
    #[track_caller]
    pub fn read(self, read: impl FnOnce(Stage<'k>)) {
        let number = self.cursor.number.get();
        let full = self.stages.full.at(number);
        full.wait(self.cursor.parity.get());
        read(Stage { number, full });
        self.previous.set(number);
        self.cursor.advance();
    }

    /// The stage read before the one that is being read is not needed any more, where `there` is one.
    #[track_caller]
    pub fn free_previous(self, there: Val<'k, bool>) {
        let Stages { k, empty, cluster, .. } = self.stages;
        let bar = empty.at(self.previous.get());
        if cluster > 1 {
            k.when(k.lane().lt(cluster) & there, || bar.on(k.lane()).arrive_async());
        } else {
            k.when(k.lane().eq(0) & there, || bar.arrive());
        }
    }
}
